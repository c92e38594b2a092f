"""Loads a SavedModel as TensorFlow Serving does: in C++, without Python TensorFlow.

`tf.saved_model.load` rebuilds the Python object graph and restores its variables. The server has
no Python objects: it imports the GraphDef, runs the restore op inside the graph, and feeds and
fetches tensors by name. A model may load in Python and fail on the server. So a test that only uses
`tf.saved_model.load` proves nothing about serving.

TensorFlow's wheel contains the server's loader, and its C API calls it. `ServingSession` uses this
API:

    with ServingSession("exported/1") as session:
        [ids] = session.run({"serving_default_text:0": texts}, ["StatefulPartitionedCall:0"])

Three things make this process like the server:

- XLA is disabled, as the server does when it starts. `xla=True` leaves XLA on, like a server
  started with `--xla_cpu_compilation_enabled`.
- The ops of tensorflow-text are registered, because the server links them.
- `import tensorflow` never happens, so no Python op or resource can help by accident.
  `export.capi.job.serve_calls` makes sure of that: it uses a fresh process.
"""

import contextlib
import ctypes
import os
from ctypes import c_char_p, c_int64, c_void_p

import numpy as np

from .library import (
    DTYPES,
    NUMBERS,
    STRING,
    STRING_BYTES,
    Output,
    ServingError,
    Status,
    library,
    switch_xla,
)


class ServingSession(contextlib.AbstractContextManager):
    """A loaded SavedModel. `run` feeds and fetches tensors by their names in the graph.

    Args:
        intra_op_threads: threads that share one op, at least 1. Default: one per core. The first
            session of a process decides for all later ones.
        inter_op_threads: threads of this session that run ops in parallel, at least 1. Default:
            one per core, shared by all sessions with the default.
        xla: whether XLA may compile; a stock server does not allow it. All sessions of a process
            must have the same value. Default False.

    Raises:
        ServingError: the error that the server would answer.
        ValueError: an argument breaks its rule. The message names argument, rule and value.
    """

    def __init__(
        self,
        directory,
        *,
        intra_op_threads: int | None = None,
        inter_op_threads: int | None = None,
        xla: bool = False,
    ):
        config = _config(intra_op_threads=intra_op_threads, inter_op_threads=inter_op_threads)
        switch_xla(xla)
        c = self._c = library()
        options = c.TF_NewSessionOptions()
        self._graph = c.TF_NewGraph()
        tags = (c_char_p * 1)(b"serve")
        try:
            with Status() as status:
                c.TF_SetConfig(options, config, len(config), status)
            with Status() as status:
                self._session = c.TF_LoadSessionFromSavedModel(
                    options, None, os.fsencode(directory), tags, 1, self._graph, None, status
                )
        except ServingError:
            c.TF_DeleteGraph(self._graph)
            raise
        finally:
            c.TF_DeleteSessionOptions(options)

    def run(
        self, feeds: dict[str, np.ndarray], fetches: list[str], timeout: float | None = None
    ) -> list[np.ndarray]:
        """Returns the fetched tensors in order. Strings are object arrays of bytes, also as feeds.

        After `timeout` seconds (default None: no limit) the run fails with DEADLINE_EXCEEDED.
        """
        inputs = (Output * len(feeds))(*map(self._output, feeds))
        outputs = (Output * len(fetches))(*map(self._output, fetches))
        values = (c_void_p * len(feeds))()
        results = (c_void_p * len(fetches))()
        options = _run_options(timeout)
        buffer = self._c.TF_NewBufferFromString(options, len(options)) if options else None
        try:
            for i, (name, array) in enumerate(feeds.items()):
                values[i] = self._to_tensor(name, array)
            with Status() as status:
                self._c.TF_SessionRun(
                    self._session, buffer, inputs, values, len(feeds), outputs, results,
                    len(fetches), None, 0, None, status,
                )  # fmt: skip
            return [
                self._to_array(name, tensor) for name, tensor in zip(fetches, results, strict=True)
            ]
        finally:  # results first: ops such as Identity share the memory of the fed tensors
            for tensor in filter(None, results):
                self._c.TF_DeleteTensor(tensor)
            for tensor in filter(None, values):
                self._delete_fed(tensor)
            if buffer:
                self._c.TF_DeleteBuffer(buffer)

    def close(self):
        if self._session:
            with Status() as status:
                self._c.TF_CloseSession(self._session, status)
            with Status() as status:
                self._c.TF_DeleteSession(self._session, status)
            self._c.TF_DeleteGraph(self._graph)
            self._session = None

    def __exit__(self, *_):
        self.close()

    def _output(self, name: str) -> Output:
        operation, _, index = name.partition(":")
        pointer = self._c.TF_GraphOperationByName(self._graph, operation.encode())
        index = int(index or 0)
        if not pointer or index >= self._c.TF_OperationNumOutputs(pointer):
            raise ServingError("NOT_FOUND", f"the graph has no tensor {name!r}")
        return Output(pointer, index)

    def _to_tensor(self, name: str, array) -> int:
        array = np.asarray(array)
        if array.dtype not in NUMBERS:
            raise TypeError(
                f"feed {name!r} must be one of {[str(d) for d in NUMBERS]}, got {array.dtype}"
                " (strings: an object array of bytes)"
            )
        number = NUMBERS[array.dtype]
        array = np.asarray(array, order="C")
        strings = array.ravel().tolist() if number == STRING else []
        for value in strings:
            if not isinstance(value, bytes):
                raise TypeError(f"strings of feed {name!r} must be bytes, got {value!r}")
        num_bytes = array.size * STRING_BYTES if number == STRING else array.nbytes
        shape = (c_int64 * array.ndim)(*array.shape)
        tensor = self._c.TF_AllocateTensor(number, shape, array.ndim, num_bytes)
        data = self._c.TF_TensorData(tensor)
        if number != STRING and num_bytes:
            ctypes.memmove(data, array.ctypes.data, num_bytes)
        for i, value in enumerate(strings):
            self._c.TF_StringInit(data + i * STRING_BYTES)
            self._c.TF_StringCopy(data + i * STRING_BYTES, value, len(value))
        return tensor

    def _to_array(self, name: str, tensor: int) -> np.ndarray:
        c = self._c
        number = c.TF_TensorType(tensor)
        if number not in DTYPES:
            raise ServingError("UNIMPLEMENTED", f"{name!r} has TF_DataType {number}")
        shape = [c.TF_Dim(tensor, i) for i in range(c.TF_NumDims(tensor))]
        result = np.empty(shape, DTYPES[number])
        data = c.TF_TensorData(tensor)
        if number == STRING:
            flat = result.reshape(-1)  # a view: result is new and contiguous
            for i in range(flat.size):
                string = data + i * STRING_BYTES
                size = c.TF_StringGetSize(string)
                flat[i] = ctypes.string_at(c.TF_StringGetDataPointer(string), size)
        elif result.nbytes:
            ctypes.memmove(result.ctypes.data, data, result.nbytes)
        return result

    def _delete_fed(self, tensor: int):
        if self._c.TF_TensorType(tensor) == STRING:  # the C API frees only the array of strings
            data = self._c.TF_TensorData(tensor)
            for i in range(self._c.TF_TensorElementCount(tensor)):
                self._c.TF_StringDealloc(data + i * STRING_BYTES)
        self._c.TF_DeleteTensor(tensor)


# Field numbers of tensorflow/core/protobuf/config.proto.
CONFIG_FIELDS = {"intra_op_threads": 2, "inter_op_threads": 5, "use_per_session_threads": 9}


def _config(**threads: int | None) -> bytes:
    """A serialized ConfigProto with these numbers of threads. None keeps TensorFlow's default."""
    given = {name: value for name, value in threads.items() if value is not None}
    for name, value in given.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    if "inter_op_threads" in given:  # else all sessions would share the first one's
        given["use_per_session_threads"] = 1
    return b"".join(_varint(CONFIG_FIELDS[name] << 3) + _varint(n) for name, n in given.items())


def _run_options(timeout: float | None) -> bytes:
    """A serialized RunOptions with `timeout_in_ms`, its second field."""
    return b"" if timeout is None else b"\x10" + _varint(max(1, int(timeout * 1000)))


def _varint(value: int) -> bytes:
    """A number in the encoding of protocol buffers: seven bits per byte, the lowest first."""
    rest = value >> 7
    return bytes([value & 127 | 128]) + _varint(rest) if rest else bytes([value])

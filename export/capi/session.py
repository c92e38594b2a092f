"""A SavedModel loaded the way TensorFlow Serving loads it: by C++, without Python TensorFlow.

`tf.saved_model.load` rebuilds the Python object graph and restores into its own variables. The
server knows no Python objects: it imports the GraphDef, runs the restore op that is inside the
graph, and feeds and fetches tensors by name. A model can pass the first and fail the second, so
a test that only uses `tf.saved_model.load` proves nothing about serving.

The server's loader is in TensorFlow's wheel, behind the C API, and `ServingSession` calls it:

    with ServingSession("exported/1") as session:
        [ids] = session.run({"serving_default_text:0": texts}, ["StatefulPartitionedCall:0"])

Three things make this process like the server: XLA is disabled as the server does at its start,
tensorflow-text's ops are registered because the server links them, and `import tensorflow` never
happens, so that no Python op or Python-held resource can help by accident. To stay sure of that,
`serve_calls` does it in a fresh process: `python -m export.capi.session JOB`, where JOB is a folder
with `calls.json`; the answers are written beside it as `results.json`. `xla=True` leaves XLA on,
as a server does that was started with `--xla_cpu_compilation_enabled`.
"""

import base64
import ctypes
import functools
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
from ctypes import POINTER, c_char_p, c_int, c_int64, c_size_t, c_void_p
from pathlib import Path

import ml_dtypes  # noqa: F401  registers bfloat16 with NumPy; TensorFlow depends on it
import numpy as np

CODES = (
    "OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS "
    "PERMISSION_DENIED RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED "
    "INTERNAL UNAVAILABLE DATA_LOSS UNAUTHENTICATED"
).split()  # in the order of absl::StatusCode
ROOT = Path(__file__).resolve().parents[2]  # where a child process finds this package
STRING = 7
DTYPES = {  # TF_DataType -> NumPy
    1: np.dtype("float32"), 2: np.dtype("float64"), 3: np.dtype("int32"), 4: np.dtype("uint8"),
    6: np.dtype("int8"), STRING: np.dtype(object), 9: np.dtype("int64"), 10: np.dtype("bool"),
    14: np.dtype("bfloat16"), 19: np.dtype("float16"),
}  # fmt: skip
NUMBERS = {dtype: number for number, dtype in DTYPES.items()}
STRING_BYTES = 24  # sizeof(TF_TString)


class ServingError(Exception):
    """What the server would answer: a canonical code's name and a message."""

    def __init__(self, code_name: str, message: str):
        super().__init__(f"{code_name}: {message}")
        self.code_name = code_name
        self.message = message

    def __reduce__(self):  # goes from one process to another
        return ServingError, (self.code_name, self.message)


class ServingSession:
    """One loaded SavedModel; `run` feeds and fetches tensors by their names in the graph.

    Args:
        directory: the SavedModel.
        tag: of its MetaGraph. Default `"serve"`.
        intra_op_threads: threads that share one op, at least 1. Default: one a core. The first
            session of a process decides it for all that follow.
        inter_op_threads: threads that run ops side by side, at least 1, this session's own.
            Default: one a core, shared by the sessions that do not say.
        xla: whether XLA may compile, which no stock server lets it. The first session of a process
            decides it, and no other may differ. Default False.

    Raises:
        ServingError: what the server would answer.
        ValueError: naming the argument, the rule and the value received.
    """

    def __init__(
        self,
        directory,
        tag: str = "serve",
        *,
        intra_op_threads: int | None = None,
        inter_op_threads: int | None = None,
        xla: bool = False,
    ):
        config = _config(intra_op_threads=intra_op_threads, inter_op_threads=inter_op_threads)
        _switch_xla(xla)
        c = self._c = _library()
        options = c.TF_NewSessionOptions()
        self._graph = c.TF_NewGraph()
        tags = (c_char_p * 1)(tag.encode())
        try:
            with _Status() as status:
                c.TF_SetConfig(options, config, len(config), status)
            with _Status() as status:
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
        """The fetched tensors, in order. Strings are object arrays of bytes, both ways.

        After `timeout` seconds (default None: never) it is given up, with DEADLINE_EXCEEDED.
        """
        inputs = (_Output * len(feeds))(*map(self._output, feeds))
        outputs = (_Output * len(fetches))(*map(self._output, fetches))
        values = (c_void_p * len(feeds))()
        results = (c_void_p * len(fetches))()
        options = _run_options(timeout)
        buffer = self._c.TF_NewBufferFromString(options, len(options)) if options else None
        try:
            for i, (name, array) in enumerate(feeds.items()):
                values[i] = self._to_tensor(name, array)
            with _Status() as status:
                self._c.TF_SessionRun(
                    self._session, buffer, inputs, values, len(feeds), outputs, results,
                    len(fetches), None, 0, None, status,
                )  # fmt: skip
            return [
                self._to_array(name, tensor) for name, tensor in zip(fetches, results, strict=True)
            ]
        finally:  # results first: Identity and the like share the memory of what was fed
            for tensor in filter(None, results):
                self._c.TF_DeleteTensor(tensor)
            for tensor in filter(None, values):
                self._delete_fed(tensor)
            if buffer:
                self._c.TF_DeleteBuffer(buffer)

    def close(self):
        if self._session:
            with _Status() as status:
                self._c.TF_CloseSession(self._session, status)
            with _Status() as status:
                self._c.TF_DeleteSession(self._session, status)
            self._c.TF_DeleteGraph(self._graph)
            self._session = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _output(self, name: str) -> "_Output":
        operation, _, index = name.partition(":")
        pointer = self._c.TF_GraphOperationByName(self._graph, operation.encode())
        index = int(index or 0)
        if not pointer or index >= self._c.TF_OperationNumOutputs(pointer):
            raise ServingError("NOT_FOUND", f"the graph has no tensor {name!r}")
        return _Output(pointer, index)

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
        if self._c.TF_TensorType(tensor) == STRING:  # the C API frees the array, not the strings
            data = self._c.TF_TensorData(tensor)
            for i in range(self._c.TF_TensorElementCount(tensor)):
                self._c.TF_StringDealloc(data + i * STRING_BYTES)
        self._c.TF_DeleteTensor(tensor)


# Field numbers of tensorflow/core/protobuf/config.proto.
CONFIG_FIELDS = {"intra_op_threads": 2, "inter_op_threads": 5, "use_per_session_threads": 9}


def _config(**threads: int | None) -> bytes:
    """A serialized ConfigProto with these numbers of threads; None leaves TensorFlow's own.

    Without `use_per_session_threads`, the first session's inter-op threads would be everybody's.
    """
    given = {name: value for name, value in threads.items() if value is not None}
    for name, value in given.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    if "inter_op_threads" in given:
        given["use_per_session_threads"] = 1
    return b"".join(_varint(CONFIG_FIELDS[name] << 3) + _varint(n) for name, n in given.items())


def _run_options(timeout: float | None) -> bytes:
    """A serialized RunOptions with `timeout_in_ms`, its second field."""
    return b"" if timeout is None else b"\x10" + _varint(max(1, int(timeout * 1000)))


def _varint(value: int) -> bytes:
    """A number as protocol buffers write it: seven bits a byte, the lowest first."""
    rest = value >> 7
    return bytes([value & 127 | 128]) + _varint(rest) if rest else bytes([value])


class _Output(ctypes.Structure):
    _fields_ = [("operation", c_void_p), ("index", c_int)]


class _Status:
    """A TF_Status for one C call; leaving the block raises what the call reported."""

    def __enter__(self):
        self.pointer = _library().TF_NewStatus()
        return self.pointer

    def __exit__(self, error_type, *_):
        c = _library()
        code, message = c.TF_GetCode(self.pointer), c.TF_Message(self.pointer)
        c.TF_DeleteStatus(self.pointer)
        if code and error_type is None:
            raise ServingError(CODES[code], message.decode(errors="replace"))


@functools.cache
def _library() -> ctypes.CDLL:
    """TensorFlow's C API, tensorflow-text's ops registered."""
    folder = _package("tensorflow")
    if folder is None:
        raise ServingError("FAILED_PRECONDITION", "package 'tensorflow' is not installed")
    ctypes.CDLL(str(folder / "libtensorflow_framework.so.2"), mode=ctypes.RTLD_GLOBAL)
    c = ctypes.CDLL(str(folder / "libtensorflow_cc.so.2"), mode=ctypes.RTLD_GLOBAL)
    for name, result, *arguments in _PROTOTYPES:
        function = getattr(c, name)
        function.restype, function.argtypes = result, arguments
    text = _package("tensorflow_text")
    for path in sorted(text.glob("python/ops/_*.so")) if text else []:
        status = c.TF_NewStatus()
        c.TF_LoadLibrary(os.fsencode(path), status)
        code, message = c.TF_GetCode(status), c.TF_Message(status).decode(errors="replace")
        c.TF_DeleteStatus(status)
        if code:
            raise ServingError(CODES[code], message)
    return c


_xla: list[bool] = []  # what the first session of the process has chosen


def _switch_xla(xla: bool):
    """Disables XLA unless `xla`, as a server does when it starts, for the whole process."""
    if _xla and _xla != [xla]:
        raise ValueError(f"xla must be {_xla[0]}, as in the process's first session, got {xla}")
    if not _xla and not xla:
        _library()._ZN10tensorflow21DisableXlaCompilationEv()  # DisableXlaCompilation()
    _xla[:] = [xla]


_PROTOTYPES = [  # name, result, *arguments, as in tensorflow/c/c_api.h, tf_tensor.h, tf_tstring.h
    ("_ZN10tensorflow21DisableXlaCompilationEv", None),
    ("TF_NewStatus", c_void_p),
    ("TF_DeleteStatus", None, c_void_p),
    ("TF_GetCode", c_int, c_void_p),
    ("TF_Message", c_char_p, c_void_p),
    ("TF_LoadLibrary", c_void_p, c_char_p, c_void_p),
    ("TF_NewSessionOptions", c_void_p),
    ("TF_SetConfig", None, c_void_p, c_char_p, c_size_t, c_void_p),
    ("TF_DeleteSessionOptions", None, c_void_p),
    ("TF_NewGraph", c_void_p),
    ("TF_DeleteGraph", None, c_void_p),
    ("TF_LoadSessionFromSavedModel", c_void_p, c_void_p, c_void_p, c_char_p, POINTER(c_char_p),
     c_int, c_void_p, c_void_p, c_void_p),
    ("TF_NewBufferFromString", c_void_p, c_char_p, c_size_t),
    ("TF_DeleteBuffer", None, c_void_p),
    ("TF_CloseSession", None, c_void_p, c_void_p),
    ("TF_DeleteSession", None, c_void_p, c_void_p),
    ("TF_GraphOperationByName", c_void_p, c_void_p, c_char_p),
    ("TF_OperationNumOutputs", c_int, c_void_p),
    ("TF_SessionRun", None, c_void_p, c_void_p, POINTER(_Output), POINTER(c_void_p), c_int,
     POINTER(_Output), POINTER(c_void_p), c_int, c_void_p, c_int, c_void_p, c_void_p),
    ("TF_AllocateTensor", c_void_p, c_int, POINTER(c_int64), c_int, c_size_t),
    ("TF_DeleteTensor", None, c_void_p),
    ("TF_TensorType", c_int, c_void_p),
    ("TF_NumDims", c_int, c_void_p),
    ("TF_Dim", c_int64, c_void_p, c_int),
    ("TF_TensorElementCount", c_int64, c_void_p),
    ("TF_TensorData", c_void_p, c_void_p),
    ("TF_StringInit", None, c_void_p),
    ("TF_StringCopy", None, c_void_p, c_char_p, c_size_t),
    ("TF_StringGetDataPointer", c_void_p, c_void_p),
    ("TF_StringGetSize", c_size_t, c_void_p),
    ("TF_StringDealloc", None, c_void_p),
]  # fmt: skip


def _package(name: str) -> Path | None:
    """The folder of an installed package, found without importing it."""
    spec = importlib.util.find_spec(name)
    return Path(spec.submodule_search_locations[0]) if spec else None


# In a fresh process: `calls.json` in, `results.json` out.


def serve_calls(
    directory,
    calls: list[tuple[dict[str, np.ndarray], list[str]]],
    timeout: float | None = 600,
    *,
    xla: bool = False,
    python: str | os.PathLike | None = None,
) -> list[dict[str, np.ndarray] | ServingError]:
    """Make each call (feeds, fetches) in one fresh process; an answer is {fetch: array} or error.

    With `xla`, XLA is on in it; see `ServingSession`. `python` is the interpreter, by default this
    one: another one's environment may have another TensorFlow.

    A SavedModel that does not load, a process that dies, and one that takes longer than `timeout`
    seconds (None: there is no such limit) raise `ServingError`.
    """
    with tempfile.TemporaryDirectory(prefix="tfformer-serve-") as job:
        write_job(job, directory, calls, xla)
        try:
            child = subprocess.run(
                [python or sys.executable, "-m", "export.capi.session", job],
                cwd=ROOT, env=child_environment(log_level=2), timeout=timeout,
                stdin=subprocess.DEVNULL, capture_output=True,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            message = f"the serving process had not answered {len(calls)} calls in {timeout:g} s"
            raise ServingError("DEADLINE_EXCEEDED", message) from error
        if child.returncode:
            how = how_it_ended(child.returncode)
            tail = child.stderr.decode(errors="replace").strip().splitlines()[-1:]
            raise ServingError("UNAVAILABLE", ": ".join([f"the serving process {how}", *tail]))
        answer = json.loads(Path(job, "results.json").read_text())
    if answer["python_tensorflow"]:
        raise ServingError("INTERNAL", "the serving process imported Python TensorFlow")
    if answer["error"]:
        raise ServingError(**answer["error"])
    return [
        ServingError(**result["error"])
        if "error" in result
        else {name: _from_json(value) for name, value in result.items()}
        for result in answer["results"]
    ]


def child_environment(log_level: int) -> dict[str, str]:
    """The environment of a process that has a session of its own."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "TF_CPP_MIN_LOG_LEVEL": str(log_level),
        "CUDA_VISIBLE_DEVICES": "-1",  # a GPU belongs to the calling process, if to anyone
    }


def how_it_ended(code: int) -> str:
    """What the exit code of a process says, negative ones being signals."""
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def write_job(job, directory, calls, xla=False):
    """The child's input, `calls.json` in the folder `job`."""
    record = {
        "directory": str(Path(directory).resolve()),
        "xla": xla,
        "calls": [
            {"feeds": {name: _to_json(array) for name, array in feeds.items()}, "fetches": fetches}
            for feeds, fetches in calls
        ],
    }
    Path(job, "calls.json").write_text(json.dumps(record))


def run_job(job):
    """The child's whole life: load, make every call, write `results.json`."""
    record = json.loads(Path(job, "calls.json").read_text())
    answer = {"error": None, "results": []}
    try:
        with ServingSession(record["directory"], xla=record["xla"]) as session:
            for call in record["calls"]:
                feeds = {name: _from_json(value) for name, value in call["feeds"].items()}
                try:
                    arrays = session.run(feeds, call["fetches"])
                    results = zip(call["fetches"], map(_to_json, arrays), strict=True)
                    answer["results"].append(dict(results))
                except ServingError as error:
                    answer["results"].append({"error": vars(error)})
    except ServingError as error:
        answer["error"] = vars(error)
    answer["python_tensorflow"] = "tensorflow" in sys.modules
    Path(job, "results.json").write_text(json.dumps(answer))


def _to_json(array: np.ndarray) -> dict:
    """Bytes survive JSON in base64: NUL, and what is not UTF-8, included."""
    strings = array.dtype == object
    data = array.ravel().tolist() if strings else [array.tobytes()]
    data = [base64.b64encode(value).decode() for value in data]
    return {"dtype": str(array.dtype), "shape": array.shape, "data": data}


def _from_json(value: dict) -> np.ndarray:
    data = [base64.b64decode(text) for text in value["data"]]
    if value["dtype"] == "object":
        array = np.empty(len(data), object)
        array[:] = data
    else:
        array = np.frombuffer(data[0], np.dtype(value["dtype"]))
    return array.reshape(value["shape"])


if __name__ == "__main__":
    if len(sys.argv) != 2 or not Path(sys.argv[1], "calls.json").is_file():
        sys.exit("usage: python -m export.capi.session JOB (a folder that holds calls.json)")
    run_job(sys.argv[1])

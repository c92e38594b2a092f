"""A loaded version: from a PredictRequest to a PredictResponse, after `predict_util.cc`.

Files of the server's source that this is written after: `servables/tensorflow/predict_util.cc`
(signatures, numbers of inputs, output filter), TensorFlow's `cc/saved_model/util.cc` (names of
inputs, defaults), `servables/tensorflow/saved_model_warmup_util.cc` (warm-up).
"""

import json
import threading
import time
from pathlib import Path

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow_serving.apis import predict_pb2

from export.capi.library import ServingError
from export.serving.batching import Batcher
from export.serving.deadline import Deadline
from export.serving.tensors import MOST_ROWS, to_array
from export.serving.worker import Worker
from export.verification.graph import BrokenModel, one_line, read_graph
from export.verification.warmup import WARMUP_FILE, of_warmup, read_warmup

DEFAULT_SIGNATURE = "serving_default"
PATIENCE = 30  # seconds in which the requests to a version that is unloaded may end


class Unloaded(Exception):
    """The version was unloaded before it was asked."""


class Model:
    """One version of a SavedModel, loaded and warmed up.

    Args:
        name, version: as requests name it.
        directory: the SavedModel.
        batching: `BatchingParameters`. Default None: each request is a run of its own.
        intra_op_threads, inter_op_threads, xla: see `ServingSession`.
        warm_up: replay its warm-up requests, as a server does. Default True.
        ran: called with the model's name and the seconds of each run of the session that ended
            well. Default: nobody is told.

    Attributes:
        graph: its `export.verification.graph.Graph`.
        signature_defs: {name: SignatureDef}.
        most_rows: that a request may have, as the report beside the version says it; without a
            report, `MOST_ROWS`.

    Raises:
        ServingError: it does not load, or a warm-up request fails; then nothing is left of it.
    """

    def __init__(
        self,
        name,
        version,
        directory,
        batching=None,
        intra_op_threads=None,
        inter_op_threads=None,
        xla=False,
        warm_up=True,
        ran=lambda name, seconds: None,
    ):
        self.name, self.version, self.directory = name, version, Path(directory)
        self._ran = ran
        try:
            self.graph = read_graph(directory)
        except (BrokenModel, OSError) as error:
            raise ServingError("INTERNAL", one_line(error)) from error
        self.signature_defs = self.graph.definitions
        self.most_rows = _most_rows(self.directory)
        self._worker = Worker(directory, intra_op_threads, inter_op_threads, xla)
        self._batcher = Batcher(self._worker.run, batching) if batching else None
        self._running, self._idle, self._closed = 0, threading.Condition(), False
        try:
            self.warmup_requests = self._warm_up() if warm_up else []
        except BaseException:
            self.close()
            raise

    @property
    def pid(self):
        return self._worker.pid

    @property
    def alive(self):
        return self._worker.alive

    def beat(self):
        """See `Worker.beat`."""
        self._worker.beat()

    @property
    def peak_bytes(self):
        """See `Worker.peak_bytes`."""
        return self._worker.peak_bytes

    def predict(self, request, timeout=None):
        """A PredictResponse.

        Args:
            request: the PredictRequest.
            timeout: in seconds, of all that is done; later it is DEADLINE_EXCEEDED. Default: none.

        Raises:
            ServingError: the status that the server gives.
            Unloaded: `close` was called before.
        """
        deadline = Deadline(timeout)
        name, feeds, outputs = _asked(self.graph, request, self.most_rows)
        deadline.check("reading the request")
        response = predict_pb2.PredictResponse()
        response.model_spec.name, response.model_spec.signature_name = self.name, name
        response.model_spec.version.value = self.version
        run = self._batcher.run if self._batcher else self._worker.run
        with self._idle:
            if self._closed:
                raise Unloaded
            self._running += 1
        start = time.perf_counter()
        try:
            arrays = run(feeds, list(outputs.values()), deadline.left())
            self._ran(self.name, time.perf_counter() - start)
        finally:
            with self._idle:
                self._running -= 1
                self._idle.notify_all()
        for alias, array in zip(outputs, arrays, strict=True):
            response.outputs[alias].CopyFrom(tf.make_tensor_proto(array, shape=array.shape))
        return response

    def close(self, deadline=None):
        """Unloads it, once what runs has ended, or at the `Deadline`. Default: in 30 seconds."""
        deadline = deadline or Deadline(PATIENCE)
        with self._idle:
            self._closed = True
            self._idle.wait_for(lambda: not self._running, deadline.left())
        if self._batcher:
            self._batcher.close()
        self._worker.close()

    def _warm_up(self):
        """Replays the recorded requests; returns them. The first that fails is the reason."""
        requests = _recorded(self.directory)
        for number, request in enumerate(requests):
            try:
                if self._batcher:
                    self._require_joinable(request.model_spec.signature_name)
                self.predict(request)
            except ServingError as error:
                raise of_warmup(number, error) from error
        return requests

    def _require_joinable(self, name):
        """Raises INVALID_ARGUMENT if a signature has an input that is one value for all rows."""
        signature = self.graph.signatures.get(name or DEFAULT_SIGNATURE)
        for alias, info in signature.inputs.items() if signature else ():
            if info.shape == ():
                raise ServingError(
                    "INVALID_ARGUMENT",
                    f"signature {name} must have no input of one value for all rows when requests "
                    f"are joined, got {alias}; `python -m export.saved_model RUN DIRECTORY "
                    f"--batching` writes an export for that",
                )


def warmup_calls(directory, graph):
    """The recorded requests of a version as calls, each (feeds, fetches), for `serve_calls`.

    Raises:
        ServingError: their file is damaged, or a request is none that the signatures take.
    """
    calls, most_rows = [], _most_rows(directory)
    for number, request in enumerate(_recorded(directory)):
        try:
            _, feeds, outputs = _asked(graph, request, most_rows)
        except ServingError as error:
            raise of_warmup(number, error) from error
        calls.append((feeds, list(outputs.values())))
    return calls


def _recorded(directory):
    """The warm-up requests of a version."""
    try:
        return read_warmup(directory)
    except (tf.errors.OpError, DecodeError, ValueError) as error:
        raise ServingError("DATA_LOSS", f"{WARMUP_FILE}: {one_line(error)}") from error


def _most_rows(directory):
    """What an export's report says; `MOST_ROWS` where there is none that says it."""
    try:
        text = directory.with_name(f"{directory.name}.report.json").read_text(encoding="utf-8")
        most = json.loads(text)["deployment"]["limits"]["max_batch_size"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return MOST_ROWS
    return most if isinstance(most, int) and most > 0 else MOST_ROWS


def _asked(graph, request, most_rows):
    """Which signature a request asks, its arrays by tensor names, and {output: tensor name}."""
    name = request.model_spec.signature_name or DEFAULT_SIGNATURE
    if name not in graph.signatures:
        raise ServingError("FAILED_PRECONDITION", f'Serving signature key "{name}" not found.')
    signature = graph.signatures[name]
    return name, _feeds(signature, request, most_rows), _outputs(signature, request)


def _feeds(signature, request, most_rows):
    """Arrays by tensor names; what the request lacks has its default."""
    given, wanted = set(request.inputs), set(signature.inputs)
    if len(given) > len(wanted) or (len(given) < len(wanted) and not signature.defaults):
        raise ServingError(
            "INVALID_ARGUMENT",
            f"input size does not match signature: {len(given)}!={len(wanted)} "
            f"len({_names(given)}) != len({_names(wanted)}). Sent extra: {_names(given - wanted)}. "
            f"Missing but required: {_names(wanted - given)}.",
        )
    feeds = {}
    for alias, info in signature.inputs.items():
        if alias in request.inputs:
            feeds[info.name] = to_array(alias, info, request.inputs[alias], most_rows)
        elif alias in signature.defaults:
            feeds[info.name] = signature.defaults[alias]
        else:
            raise ServingError(
                "INVALID_ARGUMENT",
                f"Signature input alias: {alias}(feed name: {info.name}) not found in request and "
                f"no default value provided. Inputs expected to be in the request "
                f"{_names(given)}, or default input alias set: {_names(signature.defaults)}",
            )
    if given - wanted:
        raise ServingError(
            "INVALID_ARGUMENT",
            f"Inputs contains invalid name. Used request inputs: {_names(given & wanted)}, "
            f"request input: {_names(given)}",
        )
    return feeds


def _outputs(signature, request):
    """{alias: tensor name} of what the request wants, by default everything."""
    wanted = list(request.output_filter) or sorted(signature.outputs)
    for place, alias in enumerate(wanted):
        if alias not in signature.outputs:
            raise ServingError(
                "INVALID_ARGUMENT",
                f"output tensor alias not found in signature: {alias} Outputs expected to be in "
                f"the set {_names(signature.outputs)}.",
            )
        if alias in wanted[:place]:
            message = f"duplicate output tensor alias: {alias}"
            raise ServingError("INVALID_ARGUMENT", message)
    return {alias: signature.outputs[alias].name for alias in wanted}


def _names(names):
    return "{" + ",".join(sorted(names)) + "}"

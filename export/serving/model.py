"""A loaded version of a model: answers a PredictRequest with a PredictResponse.

The code follows these files of the server's source: `servables/tensorflow/predict_util.cc`
(signatures, number of inputs, output filter), TensorFlow's `cc/saved_model/util.cc` (names of
inputs, defaults) and `servables/tensorflow/saved_model_warmup_util.cc` (warm-up).
"""

import json
import threading
import time
from pathlib import Path

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow_serving.apis import predict_pb2

from ..capi.library import ServingError, invalid
from ..verification.graph import BrokenModel, one_line, read_graph
from ..verification.warmup import WARMUP_FILE, of_warmup, read_warmup
from .batching import Batcher
from .deadline import Deadline
from .tensors import MAX_ROWS, to_array
from .worker import Worker

DEFAULT_SIGNATURE = "serving_default"
PATIENCE = 30  # seconds that `close` waits for running requests


class Unloaded(Exception):
    """The version was unloaded before the request reached it."""


class Model:
    """One version of a SavedModel, loaded and warmed up.

    Args:
        name, version: the name and the version number that requests use.
        batching: `BatchingParameters`. Default None: requests are not joined into batches.
        intra_op_threads, inter_op_threads, xla: see `ServingSession`.
        warm_up: whether to replay the warm-up requests, as a server does. Default True.
        ran: called after each successful run of the session, with the model's name and the seconds.

    Attributes:
        graph: its `export.verification.graph.Graph`.
        worker: the `Worker` that runs it.
        deployment: the part "deployment" of the report beside the version; {} if there is none.
        max_rows: the maximum number of rows of a request, from that report, else `MAX_ROWS`.

    Raises:
        ServingError: the SavedModel does not load, or a warm-up request fails.
    """

    def __init__(
        self, name, version, directory, batching=None, intra_op_threads=None,
        inter_op_threads=None, xla=False, warm_up=True, ran=lambda name, seconds: None,
    ):  # fmt: skip
        self.name, self.version, self.directory = name, version, Path(directory)
        self._ran = ran
        try:
            self.graph = read_graph(directory)
        except (BrokenModel, OSError) as error:
            raise ServingError("INTERNAL", one_line(error)) from error
        self.deployment = _deployment(self.directory)
        self.max_rows = _max_rows(self.deployment)
        self.worker = Worker(directory, intra_op_threads, inter_op_threads, xla)
        self._batcher = Batcher(self.worker.run, batching) if batching else None
        self._running, self._idle, self._closed = 0, threading.Condition(), False
        try:
            self.warmup_requests = self._warm_up() if warm_up else []
        except BaseException:
            self.close()
            raise

    def predict(self, request, timeout=None):
        """Answers a PredictRequest with a PredictResponse within `timeout` seconds (None: no
        limit).

        Raises:
            ServingError: the status that the server returns.
            Unloaded: `close` was called before.
        """
        deadline = Deadline(timeout)
        name, feeds, outputs = _asked(self.graph, request, self.max_rows)
        deadline.check("reading the request")
        response = predict_pb2.PredictResponse()
        response.model_spec.name, response.model_spec.signature_name = self.name, name
        response.model_spec.version.value = self.version
        run = self._batcher.run if self._batcher else self.worker.run
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
        """Waits for running requests, at most until the `Deadline` (default: 30 s), and unloads."""
        deadline = deadline or Deadline(PATIENCE)
        with self._idle:
            self._closed = True
            self._idle.wait_for(lambda: not self._running, deadline.left())
        if self._batcher:
            self._batcher.close()
        self.worker.close()

    def _warm_up(self):
        """Replays the recorded requests and returns them. Raises the error of the first failure."""
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
        """Raises INVALID_ARGUMENT if a signature has a scalar input: one value for all rows."""
        signature = self.graph.signatures.get(name or DEFAULT_SIGNATURE)
        for alias, info in signature.inputs.items() if signature else ():
            if info.shape == ():
                raise invalid(
                    f"signature {name} must have no input of one value for all rows when requests "
                    f"are joined, got {alias}; `tfformer export RUN DIRECTORY "
                    f"--batching` writes an export for that"
                )


def warmup_calls(directory, graph):
    """The recorded requests of a version as calls for `serve_calls`, each (feeds, fetches)."""
    calls, max_rows = [], _max_rows(_deployment(directory))
    for number, request in enumerate(_recorded(directory)):
        try:
            _, feeds, outputs = _asked(graph, request, max_rows)
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


def _deployment(directory):
    """The part "deployment" of the export's report beside a version; {} if there is none."""
    try:
        text = directory.with_name(f"{directory.name}.report.json").read_text(encoding="utf-8")
        found = json.loads(text)["deployment"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _max_rows(deployment):
    """The maximum batch size from the export's report; `MAX_ROWS` if it gives none."""
    limits = deployment.get("limits")
    maximum = limits.get("max_batch_size") if isinstance(limits, dict) else None
    return maximum if isinstance(maximum, int) and maximum > 0 else MAX_ROWS


def _asked(graph, request, max_rows):
    """The signature that a request names, {tensor name: array}, and {output: tensor name}."""
    name = request.model_spec.signature_name or DEFAULT_SIGNATURE
    if name not in graph.signatures:
        raise ServingError("FAILED_PRECONDITION", f'Serving signature key "{name}" not found.')
    signature = graph.signatures[name]
    return name, _feeds(signature, request, max_rows), _outputs(signature, request)


def _feeds(signature, request, max_rows):
    """{tensor name: array}, with the default of each input that the request lacks."""
    given, wanted = set(request.inputs), set(signature.inputs)
    if len(given) > len(wanted) or (len(given) < len(wanted) and not signature.defaults):
        raise invalid(
            f"input size does not match signature: {len(given)}!={len(wanted)} "
            f"len({_names(given)}) != len({_names(wanted)}). Sent extra: {_names(given - wanted)}. "
            f"Missing but required: {_names(wanted - given)}."
        )
    feeds = {}
    for alias, info in signature.inputs.items():
        if alias in request.inputs:
            feeds[info.name] = to_array(alias, info, request.inputs[alias], max_rows)
        elif alias in signature.defaults:
            feeds[info.name] = signature.defaults[alias]
        else:
            raise invalid(
                f"Signature input alias: {alias}(feed name: {info.name}) not found in request and "
                f"no default value provided. Inputs expected to be in the request "
                f"{_names(given)}, or default input alias set: {_names(signature.defaults)}"
            )
    if given - wanted:
        raise invalid(
            f"Inputs contains invalid name. Used request inputs: {_names(given & wanted)}, "
            f"request input: {_names(given)}"
        )
    return feeds


def _outputs(signature, request):
    """{alias: tensor name} of the requested outputs; without an output filter, of all outputs."""
    wanted = list(request.output_filter) or sorted(signature.outputs)
    for place, alias in enumerate(wanted):
        if alias not in signature.outputs:
            raise invalid(
                f"output tensor alias not found in signature: {alias} Outputs expected to be in "
                f"the set {_names(signature.outputs)}."
            )
        if alias in wanted[:place]:
            raise invalid(f"duplicate output tensor alias: {alias}")
    return {alias: signature.outputs[alias].name for alias in wanted}


def _names(names):
    return "{" + ",".join(sorted(names)) + "}"

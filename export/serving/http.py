"""The REST routes of the server.

The code follows `model_servers/http_rest_api_handler.cc`, `_util.cc` and `http_server.cc`:

POST /v1/models/NAME[/versions/N | /labels/L]:predict
GET  /v1/models/NAME[/versions/N | /labels/L]
GET  /v1/models/NAME[/versions/N | /labels/L]/metadata
GET  /monitoring/prometheus/metrics

`:classify` and `:regress` return UNIMPLEMENTED, because no exported signature has them.
"""

import http.server
import json
import re
import sys
import threading
import urllib.parse

from google.protobuf import json_format
from tensorflow_serving.apis import get_model_metadata_pb2, model_pb2

from ..capi.library import ServingError, as_serving_error, invalid
from ..verification.graph import UsageError
from . import connection, metrics, rest
from .model import DEFAULT_SIGNATURE
from .rpc import metadata
from .versions import warn

# `ToHTTPStatusCode` of http_server.cc.
STATUSES = {
    "CANCELLED": 499, "INVALID_ARGUMENT": 400, "DEADLINE_EXCEEDED": 504, "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409, "PERMISSION_DENIED": 403, "RESOURCE_EXHAUSTED": 429,
    "FAILED_PRECONDITION": 400, "ABORTED": 409, "OUT_OF_RANGE": 400, "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503, "UNAUTHENTICATED": 401,
}  # fmt: skip
OTHERWISE = 500
WHICH = r"(?:/versions/(?P<version>[0-9]+)|/labels/(?P<label>[^/:]+))?"
PREDICT = re.compile(
    rf"/v1/models/(?P<name>[^/:]+){WHICH}:(?P<method>classify|regress|predict)", re.IGNORECASE
)
STATUS = re.compile(
    rf"/v1/models(?:/(?P<name>[^/:]+))?{WHICH}(?P<metadata>/metadata)?", re.IGNORECASE
)


def serve(versions, port, timeout=30.0):
    """Starts the REST routes on the loopback address; returns (the server, its port).

    Port 0 takes a free one. A taken port raises a UsageError.
    """
    handler = type("Handler", (_Handler,), {"versions": versions, "seconds": timeout})
    try:
        server = Server(("127.0.0.1", port), handler)
    except OSError as error:
        raise UsageError(f"--rest-port must be free, got {port}: {error}") from error
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, server.server_port


class Server(http.server.ThreadingHTTPServer):
    """An HTTP server with a daemon thread for each connection."""

    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, address):
        """Prints an error as one line. Ignores clients that closed the connection."""
        error = sys.exception()
        if not isinstance(error, ConnectionError):
            warn(f"REST: {type(error).__name__}: {error}")


class _Handler(connection.Connection):
    def respond(self, body):
        if self._route == metrics.PATH:  # the stock server answers any method here
            return self.send(200, self.versions.metrics.page().encode(), "text/plain")
        if self.command == "POST" and (match := PREDICT.fullmatch(self._route)):
            return self._answer(lambda: self._counted(match, body))
        if self.command == "GET" and (match := STATUS.fullmatch(self._route)):
            return self._answer(lambda: self._look_up(match))
        if not self._route.lower().startswith("/v1/"):
            return self.fail(404, "Not Found")
        return self.fail(400, f"Malformed request: {self.command} {self._route}")

    @property
    def _route(self):
        """The path without the query string."""
        return self.path.partition("?")[0]

    def _counted(self, match, body):
        name = urllib.parse.unquote(match["name"])
        with self.versions.metrics.request(name, match["method"].lower(), "REST"):
            return self._predict(match, body)

    def _predict(self, match, body):
        spec = _spec(match)
        if match["method"].lower() != "predict":
            raise ServingError("UNIMPLEMENTED", f"only predict is served, got {match['method']}")

        def find(name):
            model = self.versions.model(spec)
            signatures = model.graph.signatures
            name = name or DEFAULT_SIGNATURE
            if name not in signatures:
                raise invalid(f'Serving signature name: "{name}" not found in signature def')
            return signatures[name], model.max_rows

        request, by_rows = rest.parse(body, find, self.deadline)
        spec.signature_name = request.model_spec.signature_name
        request.model_spec.CopyFrom(spec)
        return rest.to_json(self.versions.predict(request, self.deadline.left()), by_rows)

    def _look_up(self, match):
        spec = _spec(match)
        if not match["metadata"]:
            return _to_dict(self.versions.status(spec))
        request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
        request.model_spec.CopyFrom(spec)
        found = metadata(self.versions, request)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        found.metadata["signature_def"].Unpack(signatures)
        return {
            "model_spec": _to_dict(found.model_spec),
            "metadata": {"signature_def": _to_dict(signatures)},
        }

    def _answer(self, respond):
        try:
            body = respond()
        except Exception as error:  # each request must get an answer
            fault = as_serving_error(error)
            self.fail(STATUSES.get(fault.code_name, OTHERWISE), fault.message)
        else:
            self.send(200, body if isinstance(body, bytes) else json.dumps(body).encode())


def _spec(match):
    if not match["name"]:
        raise invalid("Missing model name in request.")
    spec = model_pb2.ModelSpec(name=urllib.parse.unquote(match["name"]))
    if match["version"]:
        # `ParseModelInfo` of http_rest_api_util.cc. Python's `int` refuses thousands of digits.
        if len(match["version"].lstrip("0")) > 19 or int(match["version"][-20:]) >= 2**63:
            raise invalid(f"Failed to convert version: {match['version']} to numeric.")
        spec.version.value = int(match["version"][-20:])
    elif match["label"]:
        spec.version_label = urllib.parse.unquote(match["label"])
    return spec


def _to_dict(message):
    return json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )

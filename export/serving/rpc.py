"""The gRPC services, with the stubs of tensorflow-serving-api.

Status codes follow `model_servers/prediction_service_impl.cc`, `model_service_impl.cc` and
`servables/tensorflow/get_model_metadata_impl.cc`. The services implement `Predict`,
`GetModelMetadata`, `GetModelStatus` and `HandleReloadConfigRequest`; other calls return
UNIMPLEMENTED. If a model of a new configuration has no version to serve, the status is UNKNOWN
(`model_servers/server_core.cc`).
"""

import concurrent.futures
import re

import grpc
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    model_management_pb2,
    model_service_pb2_grpc,
    prediction_service_pb2_grpc,
)

from ..capi.library import CODES, as_serving_error, invalid
from ..verification.graph import UsageError
from .tensors import MAX_BYTES

MAX_CALLS = 128  # calls at the same time; more calls wait
MAX_MESSAGE = 1024  # characters of an error message, as in `model_servers/grpc_status_util.cc`


def serve(versions, port):
    """Starts the gRPC services on the loopback address; returns (the `grpc.Server`, its port).

    Port 0 takes a free one. A taken port raises a UsageError.
    """
    server = grpc.server(
        concurrent.futures.ThreadPoolExecutor(MAX_CALLS),
        options=[
            ("grpc.max_receive_message_length", MAX_BYTES),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),
        ],
    )
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
        _PredictionService(versions), server
    )
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(_ModelService(versions), server)
    try:
        port = server.add_insecure_port(f"127.0.0.1:{port}")
    except RuntimeError as error:
        raise UsageError(f"--port must be free, got {port}") from error
    server.start()
    return server, port


class _PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    def __init__(self, versions):
        self._versions = versions

    def Predict(self, request, context):
        def predict():
            with self._versions.metrics.request(request.model_spec.name, "Predict", "GRPC"):
                _require_model_spec(request)
                return self._versions.predict(request, context.time_remaining())

        return _answer(predict, context)

    def GetModelMetadata(self, request, context):
        return _answer(lambda: metadata(self._versions, request), context)


class _ModelService(model_service_pb2_grpc.ModelServiceServicer):
    def __init__(self, versions):
        self._versions = versions

    def GetModelStatus(self, request, context):
        def status():
            _require_model_spec(request)
            return self._versions.status(request.model_spec)

        return _answer(status, context)

    def HandleReloadConfigRequest(self, request, context):
        def reload():
            if request.config.WhichOneof("config") != "model_config_list":
                raise invalid(
                    "ServerModelConfig type not supported by HandleReloadConfigRequest. Only "
                    "ModelConfigList is currently supported"
                )
            try:
                self._versions.configure(request.config)
            except UsageError as error:
                raise invalid(str(error)) from error
            self._versions.require_all()
            return model_management_pb2.ReloadConfigResponse()

        return _answer(reload, context)


def metadata(versions, request):
    """Answers a GetModelMetadataRequest with the model's signatures."""
    _require_model_spec(request)
    fields = list(request.metadata_field)
    if not fields:
        raise invalid("GetModelMetadataRequest must specify at least one metadata_field")
    if fields != ["signature_def"]:
        raise invalid(f"Metadata field {fields[0]} is not supported")
    model = versions.model(request.model_spec)
    response = get_model_metadata_pb2.GetModelMetadataResponse()
    response.model_spec.name, response.model_spec.version.value = model.name, model.version
    signatures = get_model_metadata_pb2.SignatureDefMap()
    for name, definition in model.graph.definitions.items():
        signatures.signature_def[name].CopyFrom(definition)
    response.metadata["signature_def"].Pack(signatures)
    return response


def _require_model_spec(request):
    if not request.HasField("model_spec"):
        raise invalid("Missing ModelSpec")


def cut(message):
    """An error message for the client: surrogates are replaced, and a long message is cut."""
    message = re.sub("[\ud800-\udfff]", "\N{REPLACEMENT CHARACTER}", message)
    return message if len(message) <= MAX_MESSAGE else f"{message[:MAX_MESSAGE]}...TRUNCATED"


def _answer(respond, context):
    try:
        return respond()
    except Exception as error:  # each call must get an answer
        # Only the message is kept: a traceback would keep the request in memory.
        fault = as_serving_error(error)
        name, message = fault.code_name, fault.message
        del fault
    code = next(c for c in grpc.StatusCode if c.value[0] == CODES.index(name))
    context.abort(code, cut(message))

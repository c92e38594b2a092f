"""Asks a served model: `python -m export.client --model NAME`, lines in, translations out.

    echo "A man walks." | python -m export.client --model multi30k
    python -m export.client --model multi30k --grpc localhost:8500 <test.en >test.de
    python -m export.client --model multi30k --url https://mt.example --token-file token <test.en

It speaks REST by Python's standard library alone, or gRPC where tensorflow-serving-api is
installed, with a TensorFlow Serving of 2.14 or newer or with `export.local_server`. A line is a
text, and its translation is the line of the same number; with --document it may be many sentences.

Behind a proxy with TLS give an https:// URL or a grpcs:// address, with --ca for an authority of
your own. A token goes into the header `Authorization: Bearer`, over TLS alone.

A request that fails with UNAVAILABLE (nobody listens, the model is not loaded yet, a queue is full)
is made again after 0.2, 0.4, 0.8, ... seconds; any other error is the answer. Progress is shown on
standard error when it is a terminal.

Exit codes: 0 translated; 1 the server refused or did not answer, and what was translated before is
on standard output; 2 wrong usage; 130 interrupted.
"""

import http.client
import json
import os
import socket
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

from export.answers import KINDS, as_text, message_of, scalar, without_graph
from export.command import Parser, close_stdout
from export.credentials import (
    HIDDEN,
    channel_credentials,
    check_token,
    check_transport,
    distrust,
    read_token,
    tls_context,
)
from export.lines import as_line, batches, read_lines

FIRST_WAIT = 0.2
# What a status of HTTP says of the status that the server had.
CODES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class RequestError(Exception):
    """What the server answered in place of a prediction.

    Attributes:
        code: the name of a gRPC status, as `"INVALID_ARGUMENT"`. REST has one for several:
            FAILED_PRECONDITION comes as INVALID_ARGUMENT.
        message: what the server says.
    """

    def __init__(self, code, message):
        super().__init__(f"{code}: {message}")
        self.code, self.message = code, message


class Client:
    """A model on a server; `RestClient` and `GrpcClient` say how it is asked.

    Args:
        model: its name.
        version: a number. Default: the newest.
        label: of a version, in place of a number.
        timeout: seconds that a request may take. Default 30.
        retries: how often a request is made again that was UNAVAILABLE. Default 4.
        ca: a PEM file of the authorities that the server's certificate is checked with. Default:
            those of the system, for gRPC those that it brings along.
        token: sent as `Authorization: Bearer`, over TLS alone. Default: none.

    Raises:
        ValueError: naming the argument, the rule and the value received, but for a token's.
    """

    def __init__(
        self, model, *, version=None, label=None, timeout=30.0, retries=4, ca=None, token=None
    ):
        if version is not None and label is not None:
            raise ValueError(f"version and label exclude each other, got {version} and {label!r}")
        if not timeout > 0:
            raise ValueError(f"timeout must be positive, got {timeout}")
        if retries < 0:
            raise ValueError(f"retries must not be negative, got {retries}")
        self.model, self.version, self.label = model, version, label
        self.timeout, self.retries = timeout, retries
        self.ca, self._token = ca, None if token is None else check_token(token)

    def predict(self, inputs, signature="serving_default"):
        """The outputs of a signature.

        Args:
            inputs: {name: a string, a number, or nested lists of them}. An input with a default
                value may be left out.
            signature: its name. Default `"serving_default"`.

        Returns:
            {name: nested lists}; strings are str.

        Raises:
            RequestError: the server's answer, or that there was none.
        """
        for attempt in range(self.retries + 1):
            try:
                return self._predict(inputs, signature)
            except RequestError as error:
                if error.code != "UNAVAILABLE" or attempt == self.retries:
                    if self._token and self._token in error.message:  # a server may say it again
                        hidden = error.message.replace(self._token, HIDDEN)
                        raise RequestError(error.code, hidden) from None
                    raise
                time.sleep(FIRST_WAIT * 2**attempt)

    def translate(self, texts, batch_size=32, document=False):
        """The translations of texts, in order.

        Args:
            texts: strings, in any number.
            batch_size: how many go in a request. Default 32.
            document: ask `translate_document`: a text is many sentences. Default False.

        Returns:
            A generator of strings; a request is made when its first translation is wanted.
        """
        signature = "translate_document" if document else "serving_default"
        for batch in batches(texts, batch_size):
            yield from self.predict({"text": batch}, signature)["translation"]


class RestClient(Client):
    """A model that is asked by REST, with the standard library alone.

    Args:
        model: its name.
        url: of the server. Default `"http://localhost:8501"`.
        options: see `Client`.
    """

    def __init__(self, model, url="http://localhost:8501", **options):
        super().__init__(model, **options)
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"url must begin with http:// or https://, got {url!r}")
        if "@" in url:  # errors say the url
            raise ValueError("url must name no user and no password: give a token")
        encrypted = url.startswith("https://")
        check_transport(url, encrypted, self.ca, self._token)
        self._tls = tls_context(self.ca) if encrypted else None
        self.url, self._defaults = url.rstrip("/"), None

    def _predict(self, inputs, signature):
        # The server fills in defaults for gRPC alone.
        if self._defaults is None:
            self._defaults = self._read_defaults()
        defaults = self._defaults.get(signature, {})
        body = {"signature_name": signature, "inputs": {**defaults, **inputs}}
        outputs = self._ask(":predict", json.dumps(body).encode(), "outputs")
        return outputs if isinstance(outputs, dict) else {"outputs": outputs}

    def _read_defaults(self):
        """{signature: {input: value}} of all inputs that have one."""
        found = self._ask("/metadata", None, "metadata", "signature_def", "signature_def")
        return {
            name: {
                key: scalar(proto)
                for key, proto in (parts.get("defaults") or {}).items()
                if proto["dtype"] in KINDS
            }
            for name, parts in found.items()
        }

    def _ask(self, what, body, *keys):
        """What stands under these keys in the JSON that a route of the model answers."""
        path = f"/v1/models/{urllib.parse.quote(self.model, safe='')}"
        if self.version is not None:
            path += f"/versions/{self.version}"
        elif self.label is not None:
            path += f"/labels/{urllib.parse.quote(self.label, safe='')}"
        request = urllib.request.Request(self.url + path + what, body)
        if self._token:  # where a server sends us on to, it does not go
            request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        try:
            with urllib.request.urlopen(
                request, timeout=self.timeout, context=self._tls
            ) as response:
                answer = json.load(response)
            for key in keys:
                answer = answer[key]
            return answer
        except urllib.error.HTTPError as error:
            message = message_of(error, self._token)
            raise RequestError(CODES.get(error.code, "UNKNOWN"), message) from error
        except (urllib.error.URLError, OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, TimeoutError | socket.timeout):
                message = f"no answer from {self.url} within {self.timeout:g} seconds"
                raise RequestError("DEADLINE_EXCEEDED", message) from error
            if why := distrust(reason):
                raise _distrusted(self.url, why) from error
            raise RequestError("UNAVAILABLE", f"{self.url}: {reason}") from error
        except ValueError as error:
            raise RequestError("UNKNOWN", f"{self.url} answered no JSON: {error}") from error
        except (KeyError, TypeError) as error:
            message = f"{self.url} is no server of models: its answer has no {'.'.join(keys)}"
            raise RequestError("UNKNOWN", message) from error


class GrpcClient(Client):
    """A model that is asked by gRPC; needs tensorflow-serving-api, and with it TensorFlow.

    Args:
        model: its name.
        address: of the server, with `grpcs://` before it for TLS. Default `"localhost:8500"`.
        options: see `Client`.
    """

    def __init__(self, model, address="localhost:8500", **options):
        super().__init__(model, **options)
        encrypted, self.address = address.startswith("grpcs://"), address
        check_transport(address, encrypted, self.ca, self._token)
        import grpc
        from tensorflow_serving.apis import prediction_service_pb2_grpc

        # gRPC's own limit of 4 MB is smaller than an answer may be.
        sizes = ("grpc.max_send_message_length", "grpc.max_receive_message_length")
        sizes = [(size, -1) for size in sizes]
        if encrypted:
            credentials = channel_credentials(self.ca)
            target = address.removeprefix("grpcs://")
            self._channel = grpc.secure_channel(target, credentials, options=sizes)
        else:
            self._channel = grpc.insecure_channel(address, options=sizes)
        self._stub = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)
        self._dtypes = None

    def close(self):
        self._channel.close()

    def _predict(self, inputs, signature):
        import tensorflow as tf
        from tensorflow_serving.apis import predict_pb2

        if self._dtypes is None:
            self._dtypes = self._read_dtypes()
        dtypes = self._dtypes.get(signature, {})
        request = predict_pb2.PredictRequest(model_spec=self._model_spec(signature))
        for name, value in inputs.items():
            request.inputs[name].CopyFrom(tf.make_tensor_proto(value, dtypes.get(name)))
        response = self._call(self._stub.Predict, request)
        arrays = {name: tf.make_ndarray(proto) for name, proto in response.outputs.items()}
        return {name: as_text(array.tolist()) for name, array in arrays.items()}

    def _read_dtypes(self):
        """{signature: {input: dtype}}: a number alone does not say which it is."""
        from tensorflow_serving.apis import get_model_metadata_pb2

        request = get_model_metadata_pb2.GetModelMetadataRequest(
            model_spec=self._model_spec(), metadata_field=["signature_def"]
        )
        response = self._call(self._stub.GetModelMetadata, request)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        response.metadata["signature_def"].Unpack(signatures)
        return {
            name: {key: info.dtype for key, info in definition.inputs.items()}
            for name, definition in signatures.signature_def.items()
        }

    def _model_spec(self, signature=""):
        from tensorflow_serving.apis import model_pb2

        spec = model_pb2.ModelSpec(name=self.model, signature_name=signature)
        if self.version is not None:
            spec.version.value = self.version
        elif self.label is not None:
            spec.version_label = self.label
        return spec

    def _call(self, method, request):
        import grpc

        metadata = [("authorization", f"Bearer {self._token}")] if self._token else None
        try:
            return method(request, timeout=self.timeout, metadata=metadata)
        except grpc.RpcError as error:
            if why := distrust(error.details()):
                raise _distrusted(self.address, why) from error
            message = without_graph(error.details() or "")
            raise RequestError(error.code().name, message) from error


def _distrusted(where, why):
    """The answer in place of one: it is not asked again, for a certificate stays what it is."""
    return RequestError("UNAUTHENTICATED", f"the certificate of {where} is not trusted: {why}")


def parser():
    """The command's arguments."""
    parser = Parser("export.client", __doc__)
    parser.add_argument("--model", required=True, help="the model's name on the server")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--url", default="http://localhost:8501", help="REST; default %(default)s")
    where.add_argument(
        "--grpc",
        metavar="ADDRESS",
        help="gRPC, for instance localhost:8500, grpcs://mt.example:443",
    )
    parser.add_argument("--ca", metavar="FILE", help="PEM; whom to trust in place of the system's")
    secret = parser.add_mutually_exclusive_group()
    secret.add_argument("--token-env", metavar="NAME", help="a variable that holds a token")
    secret.add_argument("--token-file", metavar="FILE", help="a file that holds a token")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--version", type=int, help="default: the newest")
    which.add_argument("--label", help="of a version, for instance stable")
    parser.add_argument("--document", action="store_true", help="a line is many sentences")
    parser.add_argument("--batch-size", type=int, default=32, help="lines a request; default 32")
    parser.add_argument("--timeout", type=float, default=30.0, help="seconds; default 30")
    parser.add_argument("--retries", type=int, default=4, help="when UNAVAILABLE; default 4")
    return parser


def main(arguments=None):
    """The command; returns its exit code."""
    command = parser()
    return command.run(lambda options: _run(command, options), arguments)


def _run(command, options):
    if options.batch_size < 1:
        command.error(f"--batch-size must be at least 1, got {options.batch_size}")
    names = ("version", "label", "timeout", "retries", "ca")
    how = {name: getattr(options, name) for name in names}
    try:
        how["token"] = read_token(options.token_env, options.token_file)
        if options.grpc:
            # Else its library says besides, in words of its own, what becomes our one line.
            os.environ.setdefault("GRPC_VERBOSITY", "NONE")
            client = GrpcClient(options.model, options.grpc, **how)
        else:
            client = RestClient(options.model, options.url, **how)
    except ValueError as error:
        return command.fail(error, 2)
    except ImportError as error:
        return command.fail(f"--grpc needs tensorflow-serving-api: {error}", 2)
    start, shown = time.monotonic(), sys.stderr.isatty()
    lines = read_lines(sys.stdin.buffer)
    try:
        translations = client.translate(lines, options.batch_size, options.document)
        for count, translation in enumerate(translations, 1):
            sys.stdout.buffer.write(as_line(translation).encode() + b"\n")
            if count % options.batch_size == 0:
                sys.stdout.flush()
                if shown:
                    rate = count / (time.monotonic() - start)
                    print(f"\r{count:,} lines, {rate:,.1f} a second", end="", file=sys.stderr)
        sys.stdout.flush()
    except BrokenPipeError:
        close_stdout()
    except RequestError as error:
        sys.stdout.flush()
        return command.fail(error)
    finally:
        if shown:
            print(file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Translates lines of standard input with a server: `tfformer client --model NAME`.

    echo "A man walks." | tfformer client --model multi30k
    tfformer client --model multi30k --grpc localhost:8500 <test.en >test.de
    tfformer client --model multi30k --url https://mt.example --token-file token <test.en

It uses REST, with Python's standard library only, or gRPC, if tensorflow-serving-api is installed.
The server is TensorFlow Serving 2.14 or newer, or `tfformer serve`. Each line is a text, and its
translation has the same line number. With --document, a line may contain many sentences. For a
server on this machine, proxy settings of the environment are ignored.

If the server is behind a proxy with TLS, give an https:// URL or a grpcs:// address, and --ca for
your own authority. A token is sent in the header `Authorization: Bearer`, and only over TLS.

A request that fails with UNAVAILABLE is repeated after 0.2, 0.4, 0.8, ... seconds: no server
listens, the model is not loaded yet, or a queue is full. Other errors are not repeated. A terminal
shows the progress on standard error.

Exit codes: 0 translated; 1 the server refused or did not answer, earlier translations are on
standard output; 2 wrong usage; 130 or 143 interrupted.
"""

import functools
import http.client
import json
import os
import sys
import time
import urllib.parse
import urllib.request

from tfformer.terminal.command import Number, Parser, close_stdout, count, main_of

from .remote import answers, credentials, tensors, transport
from .remote.answers import RequestError
from .remote.lines import as_line, batches, read_lines

FIRST_WAIT = 0.2
LONGEST_TIMEOUT = 7 * 24 * 3600  # a socket accepts at most 24 days
LARGEST_VERSION = 2**63 - 1


class Client:
    """A model on a server. Use `RestClient` or `GrpcClient`.

    Args:
        model: its name.
        version: a number. Default: the newest.
        label: the label of a version, instead of a number.
        timeout: maximum seconds of a request, from its first byte to the last byte of the answer;
            at most a week. Default 30.
        retries: how often a request that was UNAVAILABLE is repeated. Default 4.
        ca: a PEM file of the authorities that may sign the server's certificate. Default: those of
            the system, or for gRPC its own.
        token: sent as `Authorization: Bearer`, only over TLS. Default: none.

    Raises:
        ValueError: the message names argument, rule and value, but never the value of a token.
    """

    def __init__(
        self, model, *, version=None, label=None, timeout=30.0, retries=4, ca=None, token=None
    ):
        if version is not None and label is not None:
            raise ValueError(f"version and label exclude each other, got {version} and {label!r}")
        if version is not None and not 0 <= version <= LARGEST_VERSION:
            raise ValueError(f"version must be in [0, {LARGEST_VERSION}], got {version}")
        if not timeout > 0:
            raise ValueError(f"timeout must be positive, got {timeout}")
        if timeout > LONGEST_TIMEOUT:
            raise ValueError(f"timeout must be at most {LONGEST_TIMEOUT}, got {timeout}")
        if retries < 0:
            raise ValueError(f"retries must not be negative, got {retries}")
        for name, text in (("model", model), ("label", label)):
            if text is not None and not answers.is_text(text):
                raise ValueError(f"{name} must be text, got {text!r}")
        self.model, self.version, self.label = model, version, label
        self.timeout, self.retries = timeout, retries
        self.ca, self._token = ca, None if token is None else credentials.check_token(token)

    def close(self):
        """Closes the connection, if it stays open between requests."""

    def predict(self, inputs, signature="serving_default"):
        """The outputs of a signature.

        Args:
            inputs: {name: a string, a number, or nested lists of them}. An input with a default
                value may be left out.
            signature: its name. Default `"serving_default"`.

        Returns:
            {name: nested lists}; strings are str.

        Raises:
            RequestError: the server's error, or there was no answer.
        """
        for attempt in range(self.retries + 1):
            try:
                return self._predict(inputs, signature)
            except RequestError as error:
                if error.code != "UNAVAILABLE" or attempt == self.retries:
                    # The server's message may contain the token.
                    said = answers.plain(error.message, self._token)
                    if said != error.message:
                        raise RequestError(error.code, said) from None
                    raise
                time.sleep(FIRST_WAIT * 2**attempt)

    def translate(self, texts, batch_size=32, document=False, **languages):
        """The translations of texts, in order.

        Args:
            texts: any number of strings.
            batch_size: texts in a request. Default 32.
            document: whether to use `translate_document`, for texts of many sentences. Default
                False.
            **languages: `source_language` and `target_language`, for a multilingual model. Default:
                those of the model.

        Returns:
            A generator of strings. Each request is made when its first translation is needed.
        """
        signature = "translate_document" if document else "serving_default"
        for batch in batches(texts, batch_size):
            # One for each text, so that a server can batch the requests of several clients.
            asked = {name: [one] * len(batch) for name, one in languages.items() if one is not None}
            outputs = self.predict({"text": batch, **asked}, signature)
            yield from answers.texts_of(outputs, len(batch))


class RestClient(Client):
    """A client by REST. It needs only the standard library.

    Args:
        model: its name.
        url: the server's URL. Default `"http://localhost:8501"`.
        options: see `Client`.
    """

    def __init__(self, model, url="http://localhost:8501", **options):
        super().__init__(model, **options)
        self.url = transport.check_url(url)
        encrypted = url.startswith("https://")
        credentials.check_transport(url, encrypted, self.ca, self._token)
        self._tls = credentials.tls_context(self.ca) if encrypted else None

    @functools.cached_property
    def _signatures(self):
        return self.signatures()

    def _predict(self, inputs, signature):
        # The server fills in defaults only for gRPC.
        defaults, declared = self._signatures.get(signature, ({}, {}))
        body = {"signature_name": signature, "inputs": {**defaults, **inputs}}
        outputs = self._ask(":predict", json.dumps(body).encode(), "outputs")
        if not isinstance(outputs, dict):  # the only output of a signature comes without its name
            name, *_ = declared or ["outputs"]
            outputs = {name: outputs}
        answers.check_outputs(outputs, declared)
        return outputs

    def signatures(self):
        """Requests the signatures: {signature: (defaults, outputs)}.

        `defaults` is {input: value} of the inputs with a default, `outputs` is {output: (type,
        shape)}.

        Raises:
            RequestError: as `predict`.
        """
        found = self._ask("/metadata", None, "metadata", "signature_def", "signature_def")
        return answers.signatures_of(found)

    def _ask(self, what, body, *keys):
        """Makes a request. Returns the value under these keys in the JSON of the answer."""
        path = f"/v1/models/{urllib.parse.quote(self.model, safe='')}"
        if self.version is not None:
            path += f"/versions/{self.version}"
        elif self.label is not None:
            path += f"/labels/{urllib.parse.quote(self.label, safe='')}"
        request = urllib.request.Request(self.url + path + what, body)
        if self._token:  # not sent to the target of a redirect
            request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        status, answer = self._answer(request)
        if not 200 <= status < 300:
            message = answers.message_of(status, answer, self._token)
            raise RequestError(answers.CODES.get(status, "UNKNOWN"), message) from None
        try:
            answer = json.loads(answer)
        except (ValueError, RecursionError) as error:
            raise RequestError("UNKNOWN", f"{self.url} did not answer JSON: {error}") from error
        try:
            for key in keys:
                answer = answer[key]
            return answer
        except (KeyError, TypeError) as error:
            message = f"{self.url} is not a model server: its answer has no {'.'.join(keys)}"
            raise RequestError("UNKNOWN", message) from error

    def _answer(self, request):
        """The status and the body of the server's answer."""
        try:
            return transport.ask(request, self.timeout, self._tls)
        except transport.TooLargeError as error:
            maximum = transport.room_for(request.data)
            message = f"the answer of {self.url} is larger than {maximum:,} bytes"
            raise RequestError("RESOURCE_EXHAUSTED", message) from error
        except (OSError, http.client.HTTPException) as error:  # a URLError is an OSError
            reason = getattr(error, "reason", error)
            if isinstance(reason, TimeoutError):
                message = f"no answer from {self.url} within {self.timeout:g} seconds"
                raise RequestError("DEADLINE_EXCEEDED", message) from error
            if why := credentials.distrust(reason):
                raise _distrusted(self.url, why) from error
            raise RequestError("UNAVAILABLE", f"{self.url}: {reason}") from error
        except ValueError as error:
            raise RequestError("UNKNOWN", f"{self.url} did not answer HTTP: {error}") from error


class GrpcClient(Client):
    """A client by gRPC. It needs tensorflow-serving-api, and with it TensorFlow.

    Args:
        model: its name.
        address: the server's address; for TLS, with `grpcs://`. Default `"localhost:8500"`.
        options: see `Client`.
    """

    def __init__(self, model, address="localhost:8500", **options):
        super().__init__(model, **options)
        transport.check_address(address)
        encrypted, self.address = address.startswith("grpcs://"), address
        credentials.check_transport(address, encrypted, self.ca, self._token)
        import grpc
        from tensorflow_serving.apis import prediction_service_pb2_grpc

        channel = transport.channel_options(address)
        if encrypted:
            trust = credentials.channel_credentials(self.ca)
            target = address.removeprefix("grpcs://")
            self._channel = grpc.secure_channel(target, trust, options=channel)
        else:
            self._channel = grpc.insecure_channel(address, options=channel)
        self._stub = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)

    def close(self):
        self._channel.close()

    def _predict(self, inputs, signature):
        from tensorflow_serving.apis import predict_pb2

        types, declared = self._signatures.get(signature, ({}, {}))
        request = predict_pb2.PredictRequest(model_spec=self._model_spec(signature))
        for name, value in inputs.items():
            request.inputs[name].CopyFrom(tensors.tensor(name, value, types.get(name)))
        outputs = tensors.outputs_of(self._call(self._stub.Predict, request))
        answers.check_outputs(outputs, declared)
        return outputs

    @functools.cached_property
    def _signatures(self):
        from tensorflow_serving.apis import get_model_metadata_pb2

        request = get_model_metadata_pb2.GetModelMetadataRequest(
            model_spec=self._model_spec(), metadata_field=["signature_def"]
        )
        return tensors.signatures_of(self._call(self._stub.GetModelMetadata, request))

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
            if why := credentials.distrust(error.details()):
                raise _distrusted(self.address, why) from error
            message = answers.without_graph(error.details() or "")
            raise RequestError(error.code().name, message) from error


def _distrusted(where, why):
    """The error for a certificate. It is not repeated: the certificate would be the same."""
    return RequestError("UNAUTHENTICATED", f"the certificate of {where} is not trusted: {why}")


def parser():
    """The command's arguments."""
    parser = Parser("export.client", __doc__)
    parser.add_argument("--model", required=True, help="the model's name on the server")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--url", default="http://localhost:8501", help="REST; default %(default)s")
    where.add_argument(
        "--grpc", metavar="ADDRESS",
        help="gRPC, for example localhost:8500 or grpcs://mt.example:443",
    )  # fmt: skip
    parser.add_argument(
        "--ca", metavar="FILE", help="PEM file of trusted authorities, instead of the system's"
    )
    secret = parser.add_mutually_exclusive_group()
    secret.add_argument("--token-env", metavar="NAME", help="environment variable with a token")
    secret.add_argument("--token-file", metavar="FILE", help="file with a token")
    which = parser.add_mutually_exclusive_group()
    version = Number(int, 0, LARGEST_VERSION)
    which.add_argument("--version", type=version, help="default: the newest")
    which.add_argument("--label", help="label of a version, for example stable")
    parser.add_argument("--document", action="store_true", help="a line may contain many sentences")
    for side in ("source", "target"):
        parser.add_argument(
            f"--{side}-language", metavar="CODE",
            help=f"for a multilingual model: the {side} language; default: the model's",
        )  # fmt: skip
    size = count()
    parser.add_argument("--batch-size", type=size, default=32, help="lines a request; default 32")
    seconds = Number(float, maximum=LONGEST_TIMEOUT, positive=True)
    parser.add_argument("--timeout", type=seconds, default=30.0, help="seconds; default 30")
    parser.add_argument(
        "--retries", type=Number(int), default=4, help="after UNAVAILABLE; default 4"
    )
    return parser


def _run(command, options):
    names = ("version", "label", "timeout", "retries", "ca")
    how = {name: getattr(options, name) for name in names}
    try:
        how["token"] = credentials.read_token(options.token_env, options.token_file)
        if options.grpc is not None:
            # Otherwise its library prints the error too.
            os.environ.setdefault("GRPC_VERBOSITY", "NONE")
            client = GrpcClient(options.model, options.grpc, **how)
        else:
            client = RestClient(options.model, options.url, **how)
    except ValueError as error:
        return command.fail(error, 2)
    except ImportError as error:
        return command.fail(f"--grpc needs tensorflow-serving-api: {error}", 2)
    if sys.stdin is None or sys.stdout is None:
        return command.fail("standard input and standard output must be open")
    translations = client.translate(
        read_lines(sys.stdin.buffer), options.batch_size, options.document,
        source_language=options.source_language, target_language=options.target_language,
    )  # fmt: skip
    failed = None
    try:
        try:
            _write(translations, options.batch_size)
        except RequestError as error:
            failed = error
        sys.stdout.flush()
    except BrokenPipeError:
        close_stdout()
    except OSError as error:  # for example a full disk
        close_stdout()
        return command.fail(error)
    finally:
        client.close()
    return command.fail(failed) if failed else 0


def _write(translations, batch_size):
    """Writes translations to standard output, line by line, and their number to a terminal."""
    start, shown = time.monotonic(), sys.stderr is not None and sys.stderr.isatty()
    try:
        for count, translation in enumerate(translations, 1):
            sys.stdout.buffer.write(as_line(translation).encode() + b"\n")
            if count % batch_size == 0:
                sys.stdout.flush()
                if shown:
                    rate = count / (time.monotonic() - start)
                    print(f"\r{count:,} lines, {rate:,.1f} a second", end="", file=sys.stderr)
    finally:
        if shown:
            print(file=sys.stderr)


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())

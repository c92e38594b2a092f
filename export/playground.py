"""Opens a web page for an exported model: `tfformer playground DIRECTORY`.

    tfformer playground exported/dates
    tfformer playground --url http://mt.example:8501 --model multi30k

The page is on this machine and shows the results of the model's signatures. For a translator:
translations with alternatives, the attention of each word, a forced beginning, documents. For other
families: their texts, labels or answers. If the model was exported with `tfformer export
--explain`, the page also shows each layer and head, the probability of each word, and the beam
search step by step.

DIRECTORY is the base directory that `tfformer export` wrote; the model is loaded as by
`tfformer serve`. With --url, the page uses a server by REST, for example TensorFlow Serving. This
process forwards the requests, so the server needs no CORS. The page is one file and needs no other
network. It listens only on the loopback address and is not for production. Ctrl-C ends it.

Exit codes: 0 ended by Ctrl-C or SIGTERM; 1 no version could be loaded, or the server does not
answer; 2 wrong usage.
"""

import base64
import contextlib
import hashlib
import json
import os
import re
import sys
import threading
from pathlib import Path

from tfformer.terminal.command import Number, Parser, main_of

from .verification.errors import UsageError
from .verification.paths import require_model

PAGE = Path(__file__).with_name("templates") / "playground.html"
# Enough for what a person types.
MAX_BYTES = 2**20


def parser():
    """The command's arguments."""
    parser = Parser("export.playground", __doc__)
    parser.add_argument("directory", nargs="?", type=Path, help="the base directory of a model")
    parser.add_argument("--url", help="the URL of a server, instead of a directory")
    parser.add_argument("--model", help="the model's name on that server")
    port = Number(int, 0, 65535, rule="be in [0, 65535]")
    parser.add_argument("--port", type=port, default=8080, help="0: any free port. Default 8080")
    seconds = Number(float, maximum=3600, positive=True)
    parser.add_argument(
        "--timeout", type=seconds, default=60.0, help="maximum seconds of a request. Default 60"
    )
    return parser


def _run(command, options):
    if (options.directory is None) == (options.url is None):
        command.error("give either a directory or --url")
    if (options.url is None) != (options.model is None):
        command.error("--url and --model, the model's name on that server, need each other")
    from .local_server import Signals

    if options.directory is not None:
        directory = os.path.realpath(options.directory)
        try:
            require_model(os.path.basename(directory), directory)
        except UsageError as error:
            return command.fail(error, 2)
    with Signals() as signals, contextlib.ExitStack() as open_ones:
        return _serve(command, options, signals, open_ones)
    return 0  # ended before the model was loaded


def _serve(command, options, signals, open_ones):
    from .capi.library import ServingError
    from .client import RestClient
    from .remote.answers import RequestError
    from .serving.versions import warn

    try:
        name, url = options.model, options.url
        if url is None:
            name, url = _load(options.directory, open_ones)
        client = RestClient(name, url, timeout=options.timeout, retries=0)
        page = Playground(client, options.port)
    except ServingError as error:
        return command.fail(error.message)
    except RequestError as error:
        return command.fail(error)
    except (UsageError, ValueError, OSError) as error:
        return command.fail(error, 2)
    open_ones.callback(page.close)
    signals.loading = False
    with contextlib.suppress(OSError):  # it serves even if nobody reads this
        print(f"http://localhost:{page.port}", flush=True)
    warn("open it in a browser; Ctrl-C ends it")
    signals.wait()
    return 0


def _load(directory, open_ones):
    """Loads the model of a directory. Returns its name and the URL of its server."""
    from tfformer.terminal.progress_bar import Bar

    from .local_server import LocalServer
    from .serving.versions import one_model, warn

    directory = Path(os.path.realpath(directory))
    with Bar("loading the model"):
        server = open_ones.enter_context(
            LocalServer(one_model(directory.name, directory), say=warn)
        )
    server.versions.require_all()
    return directory.name, f"http://127.0.0.1:{server.rest_port}"


class Playground(contextlib.AbstractContextManager):
    """Serves the page on the loopback address at `port` (0: any free port), and makes its requests
    with a `RestClient`.

    Raises:
        RequestError: the server does not return the model's signatures.
        ValueError: the port is in use.
    """

    def __init__(self, client, port=0):
        from .serving.http import Server

        signatures = {
            name: {"defaults": defaults, "outputs": list(outputs)}
            for name, (defaults, outputs) in client.signatures().items()
        }
        known = {"model": client.model, "signatures": signatures}
        kind = type("Handler", (_handler(),), {"client": client, "known": known})
        try:
            self._server = Server(("127.0.0.1", port), kind)
        except OSError as error:
            raise ValueError(f"--port must be free, got {port}: {error}") from error
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self):
        """Stops listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __exit__(self, *_):
        self.close()


def _security_headers():
    """The page runs only its own script, uses only its own server, and is never in a frame."""
    page = PAGE.read_text(encoding="utf-8")
    own = {}
    for tag in ("script", "style"):
        [content] = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        own[tag] = f"'sha256-{digest}'"
    policy = {
        "default-src": "'none'",
        "script-src": own["script"],
        "style-src": own["style"],
        "connect-src": "'self'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    return {
        "Content-Security-Policy": "; ".join(" ".join(rule) for rule in policy.items()),
        "X-Frame-Options": "DENY",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
    }


def _handler():
    """The class that answers the page's requests."""
    from .remote.answers import RequestError
    from .serving.connection import Connection

    headers = _security_headers()

    class Handler(Connection):
        """`client` makes the requests; `known` is what the page gets to know about the model."""

        seconds = 3600.0

        def end_headers(self):
            for name, value in headers.items():
                self.send_header(name, value)
            super().end_headers()

        def respond(self, body):
            route = self.command, self.path.partition("?")[0]
            if route in (("GET", "/"), ("HEAD", "/")):
                self.send(200, PAGE.read_bytes(), "text/html; charset=utf-8")
            elif route == ("GET", "/model"):
                self.send(200, json.dumps(self.known).encode())
            elif route == ("POST", "/predict"):
                self._predict(body)
            else:
                self.fail(404, f"there is no {self.command} {self.path}")

        def _predict(self, body):
            # A form of another site cannot send this type without a preflight request.
            if self.headers.get_content_type() != "application/json":
                return self.fail(415, "Content-Type must be application/json")
            if len(body) > MAX_BYTES:
                return self.fail(413, f"a request must have at most {MAX_BYTES:,} bytes")
            try:
                asked = json.loads(body)
                signature, inputs = str(asked["signature"]), dict(asked["inputs"])
            except (ValueError, KeyError, TypeError, RecursionError):
                return self.fail(400, 'a request must be {"signature": name, "inputs": {...}}')
            if signature not in self.known["signatures"]:
                return self.fail(404, f"the model has no signature {signature!r}")
            try:
                outputs = self.client.predict(inputs, signature)
            except RequestError as error:
                return self.fail(502, str(error))
            except (ValueError, TypeError, RecursionError) as error:
                return self.fail(400, str(error))
            return self.send(200, json.dumps(outputs).encode())

    return Handler


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())

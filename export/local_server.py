"""Serves a SavedModel on this machine: `tfformer serve DIRECTORY`.

    tfformer serve exported/dates
    tfformer serve --config exported/dates/models.config

It has TensorFlow Serving's gRPC and REST, and runs the model in the same way: in the C++ session,
with XLA off. It replays warm-up requests, fills in defaults of inputs, and loads and unloads
versions when their folders appear and disappear. But it is not TensorFlow Serving and not for
production: it is for tests and for people without Docker, and listens only on the loopback address.
(The server's own command is `model_servers/main.cc`; `export.serving` names the rest of its
source.)

DIRECTORY is the base directory of numbered versions that `tfformer export` wrote. The model has the
directory's name. Standard error shows what is loaded, and in how many seconds. Once the server is
ready, it prints a `curl` command that you can use. Metrics for Prometheus are at
/monitoring/prometheus/metrics on the REST port, with TensorFlow Serving's names.

Ctrl-C or SIGTERM ends it: running requests have 10 seconds to finish, and new connections are
refused. A second signal ends it at once.

With --config, a base_path below `/models` that does not exist here means the same path below the
parent folder of the file's folder, where docker-compose.yml mounts it.

Exit codes: 0 ended by Ctrl-C or SIGTERM; 1 no version could be loaded, with the reason; 2 wrong
usage; 130 or 143 ended at once by a second Ctrl-C or SIGTERM.
"""

import contextlib
import os
import queue
import signal
import sys
from pathlib import Path

from tfformer.terminal.command import Number, Parser, count, main_of, unreadable

from .verification.errors import UsageError
from .verification.paths import require_model

LONGEST_TIMEOUT = 7 * 24 * 3600
MAX_THREADS = 4096
DRAIN = 10  # seconds for running requests to finish


def parser():
    """The command's arguments."""
    parser = Parser("export.local_server", __doc__)
    parser.add_argument("directory", nargs="?", type=Path, help="the base directory of a model")
    parser.add_argument("--name", help="the model's name; default: the directory's")
    parser.add_argument("--config", type=Path, help="a models.config, instead of a directory")
    port = Number(int, 0, 65535, rule="be in [0, 65535]")
    parser.add_argument(
        "--port", type=port, default=8500, help="gRPC; 0: any free port. Default 8500"
    )
    parser.add_argument(
        "--rest-port", type=port, default=8501, help="REST; 0: any free port. Default 8501"
    )
    seconds = Number(float, maximum=LONGEST_TIMEOUT, positive=True)
    parser.add_argument(
        "--rest-timeout",
        type=seconds,
        default=30.0,
        help="maximum seconds of a request. Default 30",
    )
    parser.add_argument(
        "--batching",
        type=Path,
        metavar="FILE",
        help="join requests to batches, as this batching_parameters.txt says",
    )
    threads = count(MAX_THREADS)
    parser.add_argument("--intra-op-threads", type=threads, help="threads for one operation")
    parser.add_argument("--inter-op-threads", type=threads, help="operations in parallel")
    parser.add_argument(
        "--xla", action="store_true", help="leave XLA on, for an export made with --xla"
    )
    return parser


class LocalServer(contextlib.AbstractContextManager):
    """The server as an object: `with LocalServer(config) as server: ...`.

    Args:
        config: a ModelServerConfig; see `export.serving.versions.one_model`.
        port, rest_port: the ports of gRPC and REST. Default 0: any free ports.
        rest_timeout: maximum seconds of a prediction by REST. Default 30.
        say: called with a line when a version is loaded, unloaded or refused.
        options: options of `export.serving.model.Model`: batching, threads, XLA.

    Raises:
        UsageError: a port is in use, or the configuration names a path that does not exist.
    """

    def __init__(
        self, config, port=0, rest_port=0, rest_timeout=30.0, say=lambda line: None, **options
    ):
        from .serving import http, rpc
        from .serving.versions import Versions

        self.versions = Versions(config, say, **options)
        try:
            self._grpc, self.port = rpc.serve(self.versions, port)
            self._http, self.rest_port = http.serve(self.versions, rest_port, rest_timeout)
        except BaseException:
            self.close()
            raise
        self.versions.watch()

    def close(self):
        """Stops listening, waits up to `DRAIN` seconds for running requests, unloads all models."""
        from .serving.deadline import Deadline

        deadline = Deadline(DRAIN)
        stopped = self._grpc.stop(grace=DRAIN) if hasattr(self, "_grpc") else None
        if hasattr(self, "_http"):
            self._http.shutdown()
            self._http.server_close()
        if stopped:
            stopped.wait(deadline.left())
        self.versions.close(deadline)

    def __exit__(self, *_):
        self.close()


def curl_line(server, name):
    """A command that requests a prediction of a model's newest version."""
    from tensorflow_serving.apis.model_pb2 import ModelSpec

    from .artifacts.deployment import curl, instances
    from .verification.graph import plain

    model = server.versions.model(ModelSpec(name=name))
    # The model may be from elsewhere, or its report was removed.
    text = model.deployment.get("sample", "Hello.")
    signature = model.graph.signatures.get("serving_default")
    defaults = {key: plain(value) for key, value in signature.defaults.items()} if signature else {}
    return curl(name, instances(text, defaults), f"127.0.0.1:{server.rest_port}")


class _Ended(BaseException):
    """Ctrl-C or SIGTERM came while the models were loaded."""


class Signals:
    """Handles Ctrl-C and SIGTERM: the first one ends the command in order, a second one at once.

    Attributes:
        loading: whether a signal interrupts the main thread by `_Ended`.
    """

    NUMBERS = (signal.SIGINT, signal.SIGTERM)
    LOOK = 1  # seconds between two looks at what the handler received

    def __init__(self):
        # Unlike an Event, a SimpleQueue has no lock for which a handler could wait forever.
        self.loading, self._signals = True, queue.SimpleQueue()

    def __enter__(self):
        self._before = [signal.signal(number, self._handle) for number in self.NUMBERS]
        return self

    def __exit__(self, kind, *_):
        for number, handler in zip(self.NUMBERS, self._before, strict=True):
            signal.signal(number, handler)
        return kind is _Ended

    def wait(self):
        """Returns once a signal has come.

        The main thread wakes up every `LOOK` seconds: the kernel may give the signal to another
        thread, and Python's handler runs in this one.
        """
        received = None
        while received is None:
            with contextlib.suppress(queue.Empty):
                received = self._signals.get(timeout=self.LOOK)

    def _handle(self, number, frame):
        for each in self.NUMBERS:
            signal.signal(each, signal.SIG_DFL)
        self._signals.put(number)
        if self.loading:
            raise _Ended


def _run(command, options):
    if (options.directory is None) == (options.config is None):
        command.error("give either a directory or --config")
    try:
        require_paths(options)
    except UsageError as error:
        return command.fail(error, 2)
    with Signals() as signals:
        return _serve(command, options, signals)
    return 0  # ended before the model was loaded


def require_paths(options):
    """Raises a UsageError if a path does not exist."""
    if options.config and (reason := unreadable(options.config)):
        raise UsageError(f"the models' configuration cannot be read: {options.config}: {reason}")
    if options.batching and (reason := unreadable(options.batching)):
        raise UsageError(
            "--batching must be a batching_parameters.txt, which `tfformer export RUN "
            f"DIRECTORY --batching` writes into DIRECTORY, got {options.batching}: {reason}"
        )
    if options.directory:
        directory = os.path.realpath(options.directory)
        require_model(options.name or os.path.basename(directory), directory)


def _serve(command, options, signals):
    from tfformer.terminal.progress_bar import Bar

    from .capi.library import ServingError
    from .serving.batching import BatchingParameters
    from .serving.versions import one_model, read_config, warn

    try:
        if options.config:
            config = read_config(options.config)
        else:
            directory = Path(os.path.realpath(options.directory))
            config = one_model(options.name or directory.name, directory)
        batching = None
        if options.batching:
            batching = BatchingParameters.parse(options.batching.read_text(encoding="utf-8"))
        with Bar("loading the models"):
            names = ("rest_port", "rest_timeout", "intra_op_threads", "inter_op_threads", "xla")
            known = {name: getattr(options, name) for name in names}
            server = LocalServer(config, options.port, say=warn, batching=batching, **known)
            signals.loading = False
    except (UsageError, OSError, ValueError) as error:
        return command.fail(error, 2)
    with server:
        try:
            server.versions.require_all()
            with contextlib.suppress(OSError):  # it serves even if nobody reads this
                for model in config.model_config_list.config:
                    print(curl_line(server, model.name), flush=True)
        except ServingError as error:
            return command.fail(error.message)
        warn(f"gRPC at 127.0.0.1:{server.port}, REST at 127.0.0.1:{server.rest_port}")
        signals.wait()
        warn(f"shutting down: ends within {DRAIN} seconds; a second Ctrl-C ends it at once")
    return 0


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())

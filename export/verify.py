"""Checks that a SavedModel serves: `tfformer verify DIRECTORY`.

    tfformer verify exported/1 --requests requests.json --report report.json

A SavedModel can load in Python and fail on the server: Keras variables that restore into the wrong
copy, `tf.py_function`, `jit_compile=True`, a lost `variables/` folder. So this command searches the
graph for what a stock server cannot run, and compares every weight with its checksum. Then it makes
real requests to every signature twice: in a fresh process through the server's own loader
(`export.capi`), and here through `tf.saved_model.load`. Strings, integers and booleans must be
equal, floats to 1e-4. As on a server, the fresh process answers the warm-up requests first; their
answers are not compared.

--xla is for an export that XLA compiles (`tfformer export --xla`), which a stock server refuses. It
is served with XLA on, and XLA is not an error.

A request has inputs by name, as in `{"serving_default": [{"text": ["a", "b"]}]}`. As on the server,
a missing input gets the default value of the signature.

Exit codes: 0 verified; 1 not verified, with the reasons, or an error of the disk; 2 wrong usage;
130 or 143 interrupted.
"""

import sys
from collections.abc import Callable
from pathlib import Path

from tfformer.terminal.command import Parser

from .capi.library import ServingError
from .verification.errors import BrokenModel, UsageError
from .verification.paths import find_saved_model, read_requests
from .verification.report import Report, show


def verify(
    directory,
    requests: dict[str, list[dict]] | None = None,
    progress: Callable[[str], None] | None = None,
    *,
    xla: bool = False,
    quick: bool = False,
) -> Report:
    """Checks the SavedModel in `directory` (or its newest version) from its bytes to its answers.

    A signature without `requests` gets random ones. Errors of the model are in the report; a
    `UsageError` is an error of the call. With `xla`, the process serves with XLA on, and XLA is not
    an error. With `quick`, each signature gets only its first request, and answers are not
    compared.
    """
    # Here, not above: they import TensorFlow.
    from .verification.compare import compare_python
    from .verification.graph import read_files, read_graph
    from .verification.requests import to_feeds
    from .verification.serve import serve, serve_in_python

    say = progress or (lambda line: None)
    path = find_saved_model(directory)
    report = Report(str(path))

    say("hashing the files")
    report.files = read_files(path)
    say("reading the graph")
    try:
        graph = report.graph = read_graph(path)
    except BrokenModel as error:
        report.add("graph", [str(error)], "")
        return report
    feeds = to_feeds(graph, requests or {})
    if quick:
        feeds = {name: batch[:1] for name, batch in feeds.items()}
    _check_graph(graph, report, xla)
    say("reading the weights")
    _check_weights(path, graph, report)

    warmup, num_requests = _warmup(path, graph, report), sum(map(len, feeds.values()))
    first = f"{len(warmup)} warm-up requests and " if warmup else ""
    say(f"serving {first}{num_requests} requests in a fresh process, without Python TensorFlow")
    served = serve(path, graph, feeds, report, xla, warmup)
    if quick:
        report.not_compared.append("the served answers with those of tf.saved_model.load")
    else:
        say(f"making the same {num_requests} requests through tf.saved_model.load")
        python = serve_in_python(path, feeds, report)
        if served and python:
            compare_python(served, python, report)
    return report


def _check_graph(graph, report: Report, xla: bool):
    """Checks that the graph has signatures, and only ops of the server."""
    num_ops = sum(places.total() for places in graph.ops.values())
    report.add("graph", [], f"{num_ops} ops of {len(graph.ops)} kinds")
    report.add(
        "signatures", [] if graph.signatures else ["there is none"], ", ".join(graph.signatures)
    )
    report.add("no Python ops", graph.python_ops(), "none")
    if xla:
        report.add("XLA", [], f"on; needed in {len(graph.xla_ops())} places")
    else:
        report.add("no XLA", graph.xla_ops(), "none")
    report.add("no custom ops", graph.custom_ops(), "only TensorFlow's and tensorflow-text's")


def _check_weights(path: Path, graph, report: Report):
    """Checks that each weight can be read."""
    from .verification.graph import read_variables

    try:
        report.weights = read_variables(path, graph)
        good = "{variables} variables, {parameters:,} parameters".format(**report.weights)
        report.add("weights", [], good)
    except BrokenModel as error:
        report.add("weights", [str(error)], "")


def _warmup(path: Path, graph, report: Report) -> list | None:
    """The calls of the model's warm-up requests. None if it has none, or if they are damaged: then
    the report has the error."""
    from .verification.serve import said
    from .verification.warmup import WARMUP_FILE

    if not (path / WARMUP_FILE).exists():
        return None
    from .serving.model import warmup_calls

    try:
        return warmup_calls(path, graph)
    except ServingError as error:
        report.add("warm-up", [said(error)], "")
        return None


def main(arguments: list[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = Parser("export.verify", __doc__, prints=True)
    parser.add_argument("directory", help="a SavedModel, or a base directory of numbered versions")
    parser.add_argument("--requests", metavar="FILE", help="JSON: {signature: [{input: value}]}")
    parser.add_argument("--report", metavar="FILE", help="write the whole report here, as JSON")
    parser.add_argument(
        "--xla", action="store_true", help="serve with XLA on, unlike a stock server"
    )
    return parser.run(lambda options: _run(parser, options), arguments)


def _run(parser: Parser, options) -> int:
    if options.report and not Path(options.report).parent.is_dir():
        error = f"--report must be in a folder that exists, got {options.report!r}"
        return parser.fail(error, 2)

    from tfformer.terminal.progress_bar import Bar

    try:
        find_saved_model(options.directory)
        requests = read_requests(options.requests) if options.requests else None
        with Bar("verifying", unit="steps") as bar:
            report = verify(
                options.directory, requests, lambda line: bar.step(f"{line} ..."), xla=options.xla
            )
        if options.report:
            from tfformer.files import write_json  # imports Keras

            write_json(options.report, report.to_dict())
    except UsageError as error:
        return parser.fail(error, 2)
    except OSError as error:  # the disk
        return parser.fail(error)
    show(report)
    for check in report.checks:
        if not check.passed:
            parser.fail(f"not verified: {check.name}: {check.detail}")
    if report.passed:
        print("verified")
    return 0 if report.passed else 1


if __name__ == "__main__":
    sys.exit(main())

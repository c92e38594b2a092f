"""Does a SavedModel serve? Ask it as the server would, and compare with Python's answers.

A SavedModel can load in Python and fail on the server: Keras variables that restore into the
wrong copy, `tf.py_function`, `jit_compile=True`, a lost `variables/` folder. So `verify` reads the
graph for what no stock server runs, reads every weight against its checksum, and then makes real
requests to every signature twice, in a fresh process through the server's own loader
(`export.capi`) and here through `tf.saved_model.load`. The two must agree: strings, integers
and booleans exactly, floats to 1e-4. In the fresh process warm-up requests come first, as on a
server; they need only be answered.

    tfformer verify exported/1 --requests requests.json --report report.json

`--xla` is for an export that XLA compiles (`export.saved_model --xla`), which a stock server
refuses: such a one is served with XLA on, and XLA is no fault.

A request is keyed by input name, as in `{"serving_default": [{"text": ["a", "b"]}]}`; an input
that it leaves out takes the default value that the signature declares, as on the server.
Exit codes: 0 verified; 1 not verified, with the reasons, or the disk is at fault; 2 wrong usage;
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
    """Check the SavedModel in `directory` (or its newest version) from its bytes to its answers.

    A signature without `requests` of its own gets made-up ones. What is wrong with the model is in
    the report; `UsageError` is for what is wrong with the call. With `xla`, what XLA compiles is no
    fault, and is served by a process with XLA on. With `quick`, a signature gets its first request
    alone, and the answers are compared with nothing.
    """
    # Here, not above: they bring TensorFlow with them.
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
    """Whether it holds signatures, and only ops that the server has."""
    num_ops = sum(places.total() for places in graph.ops.values())
    report.add("graph", [], f"{num_ops} ops of {len(graph.ops)} kinds")
    report.add(
        "signatures", [] if graph.signatures else ["none to serve"], ", ".join(graph.signatures)
    )
    report.add("no Python ops", graph.python_ops(), "none")
    if xla:
        report.add("XLA", [], f"on; needed in {len(graph.xla_ops())} places")
    else:
        report.add("no XLA", graph.xla_ops(), "none")
    report.add("no custom ops", graph.custom_ops(), "only TensorFlow's and tensorflow-text's")


def _check_weights(path: Path, graph, report: Report):
    """Whether each weight reads back."""
    from .verification.graph import read_variables

    try:
        report.weights = read_variables(path, graph)
        good = "{variables} variables, {parameters:,} parameters".format(**report.weights)
        report.add("weights", [], good)
    except BrokenModel as error:
        report.add("weights", [str(error)], "")


def _warmup(path: Path, graph, report: Report) -> list | None:
    """The calls of its warm-up requests; None if it has none, or if the report says why not."""
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
        "--xla", action="store_true", help="serve with XLA on, as no stock server does"
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

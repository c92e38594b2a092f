"""Does a SavedModel serve? Ask it as the server would, and compare with Python's answers.

A SavedModel can load in Python and fail on the server: Keras variables that restore into the
wrong copy, `tf.py_function`, `jit_compile=True`, a lost `variables/` folder. So `verify` reads the
graph for what no stock server runs, reads every weight against its checksum, and then makes real
requests to every signature twice, in a fresh process through the server's own loader
(`export.capi`) and here through `tf.saved_model.load`. The two must agree: strings, integers
and booleans exactly, floats to 1e-4.

    python -m export.verify exported/1 --requests requests.json --report report.json

`--xla` is for an export that XLA compiles (`export.saved_model --xla`), which a stock server
refuses: such a one is served with XLA on, and XLA is no fault.

A request is keyed by input name, as in `{"serving_default": [{"text": ["a", "b"]}]}`; an input
that it leaves out takes the default value that the signature declares, as on the server.
Exit codes: 0 verified; 1 not verified, with the reasons; 2 wrong usage; 130 interrupted.
"""

import importlib.util
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

from export.capi.job import serve_calls
from export.capi.library import ServingError
from export.command import Parser
from export.verification.graph import (
    BrokenModel,
    Graph,
    Signature,
    UsageError,
    find_saved_model,
    one_line,
    read_files,
    read_graph,
    read_variables,
)
from export.verification.requests import Requests, read_requests, to_feeds
from export.verification.warmup import WARMUP_FILE

TOLERANCE = 1e-4

Answer = dict[str, np.ndarray]


@dataclass(frozen=True)
class Check:
    name: str
    passed: bool
    detail: str


@dataclass
class Report:
    directory: str
    checks: list[Check] = field(default_factory=list)
    files: dict[str, dict] = field(default_factory=dict)  # path -> bytes, sha256
    weights: dict[str, int] = field(default_factory=dict)  # variables, parameters
    graph: Graph | None = None
    deployment: dict | None = None  # limits, FLOPs, latency: `export.deployment.facts`
    served: dict[str, list[Answer | None]] = field(default_factory=dict)  # None: it failed

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)

    def add(self, name: str, faults: list[str], good: str):
        """One check: passed with what is `good`, or failed with the first of its faults."""
        more = [f"and {len(faults) - 3} more"] if len(faults) > 3 else []
        self.checks.append(Check(name, not faults, "; ".join(faults[:3] + more) or good))

    def to_dict(self) -> dict:
        return {
            "directory": self.directory,
            "passed": self.passed,
            "checks": [asdict(check) for check in self.checks],
            "files": self.files,
            "weights": self.weights,
            "graph": self.graph and self.graph.to_dict(),
            "deployment": self.deployment,
            "served": {
                name: [answer and {k: _to_list(v) for k, v in answer.items()} for answer in answers]
                for name, answers in self.served.items()
            },
        }


def verify(
    directory,
    requests: Requests | None = None,
    progress: Callable[[str], None] | None = None,
    *,
    xla: bool = False,
) -> Report:
    """Check the SavedModel in `directory` (or its newest version) from its bytes to its answers.

    A signature without `requests` of its own gets made-up ones. What is wrong with the model is in
    the report; `UsageError` is for what is wrong with the call. With `xla`, what XLA compiles is no
    fault, and is served by a process with XLA on.
    """
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

    say("reading the weights")
    try:
        report.weights = read_variables(path, graph)
        good = "{variables} variables, {parameters:,} parameters".format(**report.weights)
        report.add("weights", [], good)
    except BrokenModel as error:
        report.add("weights", [str(error)], "")

    num_requests = sum(map(len, feeds.values()))
    say(f"serving {num_requests} requests in a fresh process, without Python TensorFlow")
    served = _serve(path, graph, feeds, report, xla)
    say(f"making the same {num_requests} requests through tf.saved_model.load")
    python = _run_in_python(path, feeds, report)
    if served and python:
        _compare(served, python, report)
    if served and (path / WARMUP_FILE).exists():
        say("loading it as a server does, with its warm-up requests")
        _warm_up(path, report, xla)
    return report


def _warm_up(path, report: Report, xla: bool):
    """Whether the version answers its warm-up requests: else a server would not take it."""
    from export.serving.model import Model

    try:
        model = Model("model", 1, path, xla=xla)
    except ServingError as error:
        report.add("warm-up", [f"{error.code_name}: {one_line(error)}"], "")
    else:
        model.close()
        report.add("warm-up", [], f"{len(model.warmup_requests)} requests")


def _serve(
    path, graph: Graph, feeds: dict, report: Report, xla: bool
) -> dict[str, list[Answer | None]]:
    calls = [
        _call(graph.signatures[name], answer) for name, batch in feeds.items() for answer in batch
    ]
    try:
        results = iter(serve_calls(path, calls, xla=xla))
    except ServingError as error:
        report.add("served", [f"{error.code_name}: {one_line(error)}"], "")
        return {}
    for name, batch in feeds.items():
        outputs = graph.signatures[name].outputs
        answers, faults = [], []
        for _ in batch:
            result = next(results)
            if isinstance(result, ServingError):
                faults.append(f"{result.code_name}: {one_line(result)}")
                answers.append(None)
            else:
                answers.append({key: result[info.name] for key, info in outputs.items()})
        report.served[name] = answers
        report.add(f"served: {name}", _first(faults, batch), f"{len(batch)} requests")
    return report.served


def _call(signature: Signature, feeds: Answer) -> tuple[dict[str, np.ndarray], list[str]]:
    """A request by input names, as feeds and fetches by tensor names."""
    by_tensor = {info.name: feeds[key] for key, info in signature.inputs.items()}
    return by_tensor, sorted({info.name for info in signature.outputs.values()})


def _run_in_python(path, feeds: dict, report: Report) -> dict[str, list[Answer | None]]:
    if importlib.util.find_spec("tensorflow_text"):
        import tensorflow_text  # noqa: F401  registers its ops
    answers: dict[str, list[Answer | None]] = {}
    try:
        with tf.device("CPU:0"):  # where the served answers come from
            loaded = tf.saved_model.load(str(path))
    except Exception as error:  # of any type: that it does not load is the verdict
        report.add("in Python", [f"{type(error).__name__}: {one_line(error)}"], "")
        return {}
    for name, batch in feeds.items():
        answers[name], faults = [], []
        for request in batch:
            try:
                with tf.device("CPU:0"):
                    inputs = {key: tf.constant(array) for key, array in request.items()}
                    outputs = loaded.signatures[name](**inputs)
                answers[name].append({key: tensor.numpy() for key, tensor in outputs.items()})
            except (tf.errors.OpError, ValueError, TypeError) as error:
                faults.append(f"{type(error).__name__}: {one_line(error)}")
                answers[name].append(None)
        report.add(f"in Python: {name}", _first(faults, batch), f"{len(batch)} requests")
    return answers


def _first(faults: list[str], batch: list) -> list[str]:
    """Requests to one signature mostly fail for one reason: say it once."""
    return [f"{len(faults)} of {len(batch)} requests: {faults[0]}"] if faults else []


def _compare(served: dict, python: dict, report: Report):
    for name, answers in served.items():
        pairs = zip(answers, python[name], strict=True)
        pairs = [(a, b) for a, b in pairs if a is not None and b is not None]
        faults = [fault for a, b in pairs for fault in differences(a, b)]
        if pairs:
            report.add(f"agreement: {name}", faults, f"{len(pairs)} answers")


def differences(served: Answer, python: Answer) -> list[str]:
    """How two answers to one request differ: nothing where they agree."""
    faults = []
    for key, ours in served.items():
        theirs = np.asarray(python[key], dtype=object if ours.dtype == object else None)
        if (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape):
            shapes = f"{ours.dtype} {ours.shape}, in Python {theirs.dtype} {theirs.shape}"
            faults.append(f"{key} served as {shapes}")
        elif tf.as_dtype(ours.dtype).is_floating:
            ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
            if not np.allclose(ours, theirs, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True):
                gap = np.nanmax(np.abs(ours - theirs))
                faults.append(f"{key} differs by {gap:.2g}, more than {TOLERANCE:g}")
        elif not np.array_equal(ours, theirs):
            faults.append(f"{key} differs in {np.sum(ours != theirs)} of {ours.size} places")
    return faults


def _to_list(array: np.ndarray) -> list:
    if array.dtype != object:
        return array.tolist()
    texts = [value.decode(errors="replace") for value in array.ravel().tolist()]
    return np.array(texts, object).reshape(array.shape).tolist()


def show(report: Report):
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    size = sum(fact["bytes"] for fact in report.files.values())
    title = f"{report.directory} ({len(report.files)} files, {size:,} bytes)"
    table = Table("check", "", "detail", title=Text(title), title_justify="left")
    for check in report.checks:
        verdict = Text("passed", "green") if check.passed else Text("FAILED", "red")
        table.add_row(Text(check.name), verdict, Text(check.detail))
    Console().print(table)


def main(arguments: list[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = Parser("export.verify", __doc__)
    parser.add_argument("directory", help="a SavedModel, or a base directory of numbered versions")
    parser.add_argument("--requests", metavar="FILE", help="JSON: {signature: [{input: value}]}")
    parser.add_argument("--report", metavar="FILE", help="write the whole report here, as JSON")
    parser.add_argument(
        "--xla", action="store_true", help="serve with XLA on, as no stock server does"
    )
    return parser.run(lambda options: _run(parser, options), arguments)


def _run(parser: Parser, options) -> int:
    try:
        if options.report and not Path(options.report).parent.is_dir():
            raise UsageError(f"--report must be in a folder that exists, got {options.report!r}")
        requests = read_requests(options.requests) if options.requests else None
        report = verify(
            options.directory,
            requests,
            lambda line: print(f"{line} ...", file=sys.stderr),
            xla=options.xla,
        )
        if options.report:
            from tfformer.run import write_json  # imports Keras

            write_json(options.report, report.to_dict())
    except (UsageError, OSError) as error:
        return parser.fail(error, 2)
    show(report)
    for check in report.checks:
        if not check.passed:
            parser.fail(f"not verified: {check.name}: {check.detail}")
    if report.passed:
        print("verified")
    return 0 if report.passed else 1


if __name__ == "__main__":
    sys.exit(main())

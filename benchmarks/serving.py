"""Measures the local server with many clients: `python -m benchmarks.serving DIRECTORY`.

    python -m export.saved_model runs/multi30k exported/batched --batching
    python -m benchmarks.serving exported/multi30k --source data/multi30k/val.en \\
        --batching exported/batched/batching_parameters.txt

`export.local_server` serves DIRECTORY in a separate process, with one thread for an operation and
as many parallel operations as there are cores. Each client is a thread that sends texts one after
the other, by gRPC or REST, and waits for each answer. With --batching, the same is repeated with a
server that joins the requests of several clients, with the parameters of that file.

Before that, one thread translates every text alone. Every answer is compared: the text must be the
same, and the score equal to 1e-4. The table goes to standard output, all numbers to --out as JSON.
`foreign` is the number of cores that other processes used meanwhile; if it is above 0.1, measure
again.

The local server is not TensorFlow Serving, whose own work for a request is less than Python's.

Exit codes: 0 measured; 1 an error of the model or the machine; 2 wrong usage; 130 interrupted.
"""

import dataclasses
import datetime
import importlib.metadata
import json
import os
import sys
import tempfile
from pathlib import Path

from benchmarks import machine, work
from tfformer.terminal.command import Parser, main_of

WARM_UP = 5  # seconds at most
COLUMNS = {
    "clients": "{:,}",
    "batching": "{}",
    "requests_a_second": "{:.1f}",
    "p50_ms": "{:.0f}",
    "p95_ms": "{:.0f}",
    "p99_ms": "{:.0f}",
    "errors": "{:,}",
    "different": "{:,}",
    "answers": "{:,}",
    "foreign": "{:.2f}",
}
HEAD = ["clients", "batching", "requests a second", "p50 ms", "p95 ms", "p99 ms", "errors"]
HEAD += ["differ", "of answers", "foreign"]


def parser():
    """The command's arguments."""
    parser = Parser("benchmarks.serving", __doc__)
    parser.add_argument("directory", type=Path, help="a SavedModel, or a base directory of them")
    parser.add_argument("--source", type=Path, help="lines of text; default: dates")
    parser.add_argument(
        "--clients", nargs="+", type=int, default=[8, 64], metavar="N", help="default 8 64"
    )
    parser.add_argument(
        "--seconds", type=float, default=60, help="measured seconds of each row; default 60"
    )
    parser.add_argument(
        "--batching", type=Path, metavar="FILE", help="with it too: a batching_parameters.txt"
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--grpc", action="store_true", help="use gRPC; the default")
    how.add_argument("--rest", action="store_true", help="use REST")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the report, as JSON")
    return parser


def _run(command, options):
    from benchmarks import load
    from export.capi.library import ServingError
    from export.serving.batching import BatchingParameters
    from export.verification.errors import BrokenModel, UsageError
    from export.verification.paths import find_saved_model

    work.require_at_least(command, options, clients=1, seconds=1)
    parameters = None
    try:
        path = find_saved_model(options.directory)
        texts, named = read_texts(options.source)
        if options.batching:
            given = options.batching.read_text(encoding="utf-8")
            parameters = dataclasses.asdict(BatchingParameters.parse(given))
        if options.out:
            options.out.parent.mkdir(parents=True, exist_ok=True)
    except (UsageError, OSError, ValueError) as error:
        return command.fail(error, 2)
    hardware, averages, rows = machine.describe(), os.getloadavg(), []
    try:
        _say(f"translating {len(texts)} texts alone")
        expected = load.translate_alone(path, texts)
        for batching in [None, *filter(None, [options.batching])]:
            with tempfile.TemporaryDirectory() as folder:
                base = load.link_version(path, Path(folder, load.MODEL), warm_up=not batching)
                with load.Server(base, batching, hardware["cores"]) as server:
                    rows += measure(server, texts, expected, options, "on" if batching else "off")
    except UsageError as error:
        return command.fail(error, 2)
    except (load.LoadError, ServingError, BrokenModel, OSError) as error:
        return command.fail(error)
    record = {
        "date": datetime.date.today().isoformat(),
        "machine": hardware,
        "load_average": averages[0],
        "versions": versions(),
        "text": named,
        "language": "REST" if options.rest else "gRPC",
        "seconds": options.seconds,
        "batching": parameters,
        "rows": rows,
    }
    if options.out:
        options.out.write_text(json.dumps(record, indent=1) + "\n")
    print(report(record))
    return 0


def read_texts(path=None):
    """(texts, description): the lines of a file that are not blank, or dates if there is no file.

    Raises:
        OSError, ValueError: the file cannot be read, or has none.
    """
    if path is None:
        text = work.read_text()
        return text.decoded, text.name
    lines = path.read_text(encoding="utf-8").split("\n")
    texts = [line for line in lines if line.strip()]
    if not texts:
        raise ValueError(f"--source must have a line of text, got {path}")
    return texts, f"{len(texts):,} lines of {path.name}"


def measure(server, texts, expected, options, batching):
    """The rows of one server, one for each number of clients."""
    from benchmarks import load

    rows = []
    for clients in options.clients:
        _say(f"batching {batching}, {clients} clients, {options.seconds:g} seconds")
        warm_up = min(WARM_UP, options.seconds)
        found = load.measure(
            server, texts, expected, clients, options.seconds, warm_up, options.rest
        )
        rows.append({"batching": batching, **found.row()})
    return rows


def versions():
    """What the server runs with, as a line."""
    import tfformer

    tensorflow, grpc = map(importlib.metadata.version, ("tensorflow", "grpcio"))
    return f"tfformer {tfformer.__version__}, TensorFlow {tensorflow}, gRPC {grpc}"


def report(record):
    """Where and when, the table, and the first error of each row that has one."""
    lines = [
        f"{machine.sentence(record['machine'])}, {record['date']}, {record['versions']}; load "
        f"average {record['load_average']:.2f} at the start. Text: {record['text']}. "
        f"{record['language']}, {record['seconds']:g} seconds a row."
    ]
    if record["batching"]:
        given = ", ".join(f"{name} {value}" for name, value in record["batching"].items() if value)
        lines.append(f"Batching: {given}.")
    lines += ["", markdown(record["rows"])]
    for row in record["rows"]:
        if row["first_error"]:
            which = f"{row['clients']} clients, batching {row['batching']}"
            lines.append(f"\n{which}: the first error was {row['first_error']}")
    return "\n".join(lines)


def markdown(rows):
    """The table."""
    lines = [f"| {' | '.join(HEAD)} |", f"|{' --: |' * len(HEAD)}"]
    for row in rows:
        cells = [form.format(row[name]) for name, form in COLUMNS.items()]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _say(line):
    print(f"{line} ...", file=sys.stderr)


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())

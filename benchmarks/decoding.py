"""Measures decoding, compared with other systems: `python -m benchmarks.decoding`.

    python -m benchmarks.decoding
    python -m benchmarks.decoding --size S B --data data/multi30k --out decoding.json \\
        --python opennmt=/envs/opennmt/bin/python marian=/envs/torch/bin/python

Beam search with models of random weights: every system computes exactly the same number of tokens
for every sentence. Each system has a separate process for each number of threads. The processes
take turns, and medians over the rounds are compared. Systems that are not installed in their Python
are left out. For installation, and how to read the table, see benchmarks/README.md.

`shallow` systems have twice the layers in the encoder and one in the decoder. `tfformer-smallest`
is also in int8 and has a shortlist. For their cost in BLEU see docs/guide/export.md. For
`reading` see `benchmarks/peers/with_reading.py`.

The table goes to standard output, all measured times to the JSON file.

Exit codes: 0 measured; 1 nothing could be measured; 2 wrong usage; 130 interrupted.
"""

import datetime
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from benchmarks import machine, work
from benchmarks.workers import Progress, Worker, WorkerError, take_turns
from tfformer.terminal.command import Parser, main_of

BEAM_WIDTH = 4
FOREIGN = 0.1  # cores; above, other processes disturb the measurement


class System(NamedTuple):
    """A row of the table.

    Attributes:
        name: its name in the table and in `--systems`.
        peer: the worker, `benchmarks.peers.with_PEER`.
        options: options of the worker; for tfformer, of the `Translator`.
        is_shallow: for tfformer and CTranslate2, whether the encoder has twice the layers and the
            decoder one.
        has_shortlist: for tfformer, whether the search uses a lexical shortlist.
    """

    name: str
    peer: str
    options: dict = {}
    is_shallow: bool = False
    has_shortlist: bool = False


class Setting(NamedTuple):
    """A system with a number of threads. None: the system's default."""

    system: str
    threads: int | None

    def __str__(self):
        return f"{self.system}, threads: {_threads(self.threads)}"


SYSTEMS = [
    System("tfformer", "tfformer"),
    System("tfformer-bfloat16", "tfformer", {"dtype": "bfloat16"}),
    System("tfformer-xla", "tfformer", {"xla": True}),
    System("tfformer-low-latency", "tfformer", {"low_latency": True}),
    System("tfformer-int8", "tfformer", {"dtype": "int8"}),
    System("tfformer-int8-low-latency", "tfformer", {"dtype": "int8", "low_latency": True}),
    System("tfformer-shortlist", "tfformer", {"low_latency": True}, has_shortlist=True),
    System("tfformer-shallow", "tfformer", {"low_latency": True}, is_shallow=True),
    System(
        "tfformer-smallest",
        "tfformer",
        {"dtype": "int8", "low_latency": True},
        is_shallow=True,
        has_shortlist=True,
    ),
    System("ctranslate2-float32", "ctranslate2", {"compute_type": "float32"}),
    System("ctranslate2-int8", "ctranslate2", {"compute_type": "int8_float32"}),
    System("ctranslate2-float32-parts", "ctranslate2", {"compute_type": "float32", "parts": True}),
    System(
        "ctranslate2-int8-parts", "ctranslate2", {"compute_type": "int8_float32", "parts": True}
    ),
    System("ctranslate2-float32-shallow", "ctranslate2", {"compute_type": "float32"}, True),
    System("ctranslate2-int8-shallow", "ctranslate2", {"compute_type": "int8_float32"}, True),
    System("ctranslate2-bfloat16", "ctranslate2", {"compute_type": "bfloat16"}),
    System("opennmt", "opennmt"),
    System("marian", "marian"),
    System("keras_hub", "keras_hub", {"jit_compile": False}),
    System("keras_hub-xla", "keras_hub", {"jit_compile": True}),
    System("reading", "reading"),
]
PEERS = sorted({system.peer for system in SYSTEMS} - {"tfformer"})
COMPARED = ("ctranslate2-float32", "opennmt")  # a column of ratios for each


def parser():
    """The command's arguments."""
    names = [system.name for system in SYSTEMS]
    parser = Parser("benchmarks.decoding", __doc__)
    parser.add_argument("--size", nargs="+", choices=work.SIZES, default=["S"], help="default S")
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 8, 32], metavar="N")
    parser.add_argument("--steps", type=int, default=32, help="target tokens; default 32")
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds; default 5")
    parser.add_argument(
        "--threads", nargs="+", type=int, default=[1, 2], metavar="N", help="default: 1 2"
    )
    parser.add_argument(
        "--systems", nargs="+", choices=names, default=names, metavar="NAME",
        help=f"default: all of {', '.join(names)}",
    )  # fmt: skip
    parser.add_argument(
        "--python", nargs="+", default=[], metavar="PEER=PATH",
        help=f"the interpreter of {', '.join(PEERS)}; default: this one",
    )  # fmt: skip
    work.add_beside(parser)
    parser.add_argument("--data", type=Path, help="a folder with Multi30K; default: dates")
    parser.add_argument("--out", type=Path, default=Path("runs/decoding.json"), help="the JSON")
    return parser


def _run(command, options):
    work.require_at_least(command, options, batch=1, threads=1, steps=1, rounds=1)
    pythons = dict(pair.partition("=")[::2] for pair in options.python)
    if not set(pythons) <= set(PEERS):
        command.error(f"--python must be of PEER=PATH with PEER in {PEERS}, got {options.python}")
    try:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        beside = work.name_beside(options.beside)
        text = work.read_text(options.data)
        hardware = machine.describe()
        print(f"{machine.sentence(hardware)}\ntext: {text.name}", file=sys.stderr)
        rows = [
            row for size in options.size for row in measure(size, text, pythons, beside, options)
        ]
    except (ValueError, OSError) as error:
        return command.fail(error)
    if not rows:
        return command.fail("no system could be measured")
    record = {
        "date": datetime.date.today().isoformat(),
        "machine": hardware,
        "text": text.name,
        "beam_width": BEAM_WIDTH,
        "steps": options.steps,
        "beside": {name: str(checkout) for name, checkout in beside.items()},
        "rows": rows,
    }
    options.out.write_text(json.dumps(record, indent=1) + "\n")
    print(f"{machine.sentence(hardware)}, {record['date']}. Text: {text.name}.")
    for size in options.size:
        print(f"\nSize {size}, beam {BEAM_WIDTH}, {options.steps} tokens\n")
        print(markdown([row for row in rows if row["size"] == size]))
    print("\n" + "\n".join(sorted({f"- {row['system']}: {row['version']}" for row in rows})))
    disturbed = sum(row["foreign"] > FOREIGN for row in rows)
    if disturbed:
        print(
            f"warning: other processes used more than {FOREIGN} cores during {disturbed} of "
            f"{len(rows)} measurements: measure again on an idle machine",
            file=sys.stderr,
        )
    return 0


def measure(size_name, text, pythons, beside, options):
    """The rows of one size: a dict for each system, number of threads and batch size.

    `ms_per_sentence` is the median over the rounds, `least` the minimum, `greatest` the maximum;
    `foreign` is the number of cores that other processes used meanwhile; `best` marks the number
    of threads with which the system is fastest at this batch size. `threads` None: its default.
    """
    size = dict(work.SIZES[size_name])
    tokenizer = work.learn_vocabulary(text, size.pop("vocabulary"))
    batches = {
        str(batch): work.make_batches(text.decoded, tokenizer, batch) for batch in options.batch
    }
    job = {
        "size": size,
        "vocabulary": tokenizer.pieces("source"),
        "beam_width": BEAM_WIDTH,
        "steps": options.steps,
        "batches": batches,
    }
    chosen = [system for system in SYSTEMS if system.name in options.systems]
    chosen += [System(name, "tfformer") for name in beside]
    workers = {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            for system in chosen:
                own_size, own = of_system(system, size, text, tokenizer)
                if system.peer == "tfformer":
                    print(f"{size_name}: exporting {system.name}", file=sys.stderr)
                    what = Path(folder, system.name), own_size, tokenizer, BEAM_WIDTH, options.steps
                    if system.name in beside:
                        own = work.export_beside(beside[system.name], *what)
                    else:
                        own = work.export(*what, **own)
                python = pythons.get(system.peer, sys.executable)
                own_job = {**job, "size": own_size, "options": own}
                start(workers, system, own_job, python, options.threads)
            progress = Progress((options.rounds + 1) * len(batches) * len(workers))
            answers = take_turns(workers, batches, options.rounds, progress)
        finally:
            for worker in workers.values():
                worker.close()
    return rows_of(size_name, workers, batches, answers)


def of_system(system, size, text, tokenizer):
    """(the size, the options) of a system."""
    from training.data.reader import Pair
    from training.shortlist import CANDIDATES, FREQUENT, learn, tokenise

    options = system.options
    if system.is_shallow:
        layers = {"num_encoder_layers": 2 * size["num_layers"], "num_decoder_layers": 1}
        size = size | {"changes": layers}
    if system.has_shortlist:
        tokens = tokenise(map(Pair, text.sources, text.targets), tokenizer)
        options = options | {"shortlist": learn(tokens, tokenizer, CANDIDATES, FREQUENT)}
    return size, options


def rows_of(size_name, workers, batches, answers):
    """The rows of `measure`, from the workers' answers to these batches."""
    rows = []
    for (setting, batch), given in answers.items():
        sentences = sum(len(part["texts"]) for part in batches[batch])
        times = [1000 * answer["seconds"] / sentences for answer in given]
        foreign = sum(a["foreign"] for a in given) / sum(a["seconds"] for a in given)
        rows.append(
            {
                "size": size_name,
                "batch": int(batch),
                **setting._asdict(),
                "version": workers[setting].version,
                "python": workers[setting].python,
                "ms_per_sentence": statistics.median(times),
                "least": min(times),
                "greatest": max(times),
                "rounds": times,
                "foreign": max(0.0, foreign),
            }
        )
    for row in rows:
        row["best"] = row is fastest(rows, row["system"], row["batch"])
    return rows


def start(workers, system, job, python, threads):
    """Adds a worker of the system for each number of threads; for tfformer also the default."""
    for count in [*threads, None] if system.peer == "tfformer" else threads:
        setting = Setting(system.name, count)
        try:
            worker = Worker(f"with_{system.peer}", {**job, "threads": count}, python)
        except WorkerError as error:
            print(f"skipped: {system.name}: {error}", file=sys.stderr)
            return
        workers[setting] = worker
        memory = f"{machine.resident_mib(worker.process_id):.0f} MiB"
        print(f"loaded: {setting}: {worker.version}, {memory}", file=sys.stderr)


def fastest(rows, system, batch):
    """The system's fastest row for this batch size, or None if it was not measured."""
    own = [row for row in rows if (row["system"], row["batch"]) == (system, batch)]
    return min(own, key=lambda row: row["ms_per_sentence"], default=None)


def markdown(rows):
    """The rows of one size as a table: every system at its best, tfformer also by default."""
    systems = dict.fromkeys(row["system"] for row in rows)
    compared = [*COMPARED, *(name for name in systems if name.startswith(work.BESIDE))]
    heads = ["batch", "system", "threads", "ms a sentence", "minimum to maximum"]
    heads += [f"/ {name}" for name in compared] + ["foreign"]
    lines = [heads, ["--:", "---", "---", "--:", "--:", *["--:"] * len(compared), "--:"]]
    for row in sorted(rows, key=lambda row: row["batch"]):
        if not (row["best"] or row["threads"] is None):
            continue
        cells = [str(row["batch"]), row["system"], _threads(row["threads"])]
        cells += [f"{row['ms_per_sentence']:.2f}", f"{row['least']:.2f} to {row['greatest']:.2f}"]
        for name in compared:
            other = fastest(rows, name, row["batch"])
            ratio = other and row["ms_per_sentence"] / other["ms_per_sentence"]
            cells.append(f"{ratio:.2f}" if ratio else "")
        lines.append([*cells, f"{row['foreign']:.2f}" + " (!)" * (row["foreign"] > FOREIGN)])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _threads(count):
    return "default" if count is None else str(count)


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())

"""Measures training speed, compared with other systems: `python -m benchmarks.training`.

    python -m benchmarks.training --data data/multi30k
    python -m benchmarks.training --size S tiny B --data data/multi30k --out training.json \\
        --python opennmt=/envs/opennmt/bin/python torch=/envs/torch/bin/python

All systems get the same batches of 64 pairs, padded to the same few lengths, and make the same
steps: forward, label-smoothed loss, backward, Adam. Each system has a separate process; they take
turns. The medians over the rounds are compared, in tokens per second: source and target, without
padding. Systems that are not installed in their Python are left out. For installation, and how to
read the table, see benchmarks/README.md.

The table goes to standard output, all measured times to the JSON file.

Exit codes: 0 measured; 1 nothing could be measured; 2 wrong usage; 130 interrupted.
"""

import datetime
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import machine, work
from benchmarks.decoding import FOREIGN, System
from benchmarks.workers import ROOT, Progress, Worker, WorkerError, take_turns
from tfformer.terminal.command import Parser, main_of
from training.step.allocator import HUGE_PAGES
from training.train import ENVIRONMENT

DROPOUT, SMOOTHING = 0.1, 0.1
SYSTEMS = [
    System("tfformer", "train_tfformer"),
    System("tfformer-plain", "train_tfformer", {"plain": True}),
    System("tfformer-bfloat16", "train_tfformer", {"dtype": "mixed_bfloat16"}),
    System("torch", "train_torch"),
    System("torch-bfloat16", "train_torch", {"bfloat16": True}),
    System("opennmt", "train_opennmt"),
    System("keras_hub", "train_keras_hub", {"jit_compile": False}),
    System("keras_hub-xla", "train_keras_hub", {"jit_compile": True}),
    System(
        "keras_hub-bfloat16", "train_keras_hub", {"jit_compile": False, "dtype": "mixed_bfloat16"}
    ),
]
PEERS = ("keras_hub", "opennmt", "torch")
FOR_BFLOAT16 = {"avx512_bf16", "amx_bf16"}  # Without them bfloat16 is emulated, which is slower.


def parser():
    """The command's arguments."""
    names = [system.name for system in SYSTEMS]
    parser = Parser("benchmarks.training", __doc__)
    parser.add_argument("--size", nargs="+", choices=work.SIZES, default=["S"], help="default S")
    parser.add_argument("--batches", type=int, default=24, help="batches in a round; default 24")
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds; default 5")
    parser.add_argument(
        "--systems", nargs="+", choices=names, metavar="NAME",
        help=f"of {', '.join(names)}; default: all, those of bfloat16 where the processor has it",
    )  # fmt: skip
    parser.add_argument(
        "--python", nargs="+", default=[], metavar="PEER=PATH",
        help=f"the interpreter of {', '.join(PEERS)}; default: this one",
    )  # fmt: skip
    work.add_beside(parser)
    parser.add_argument("--data", type=Path, help="a folder with Multi30K; default: dates")
    parser.add_argument("--out", type=Path, default=Path("runs/training.json"), help="the JSON")
    return parser


def _run(command, options):
    work.require_at_least(command, options, batches=1, rounds=1)
    pythons = dict(pair.partition("=")[::2] for pair in options.python)
    if not set(pythons) <= set(PEERS):
        command.error(f"--python must be of PEER=PATH with PEER in {PEERS}, got {options.python}")
    hardware = machine.describe()
    if not options.systems:
        has = FOR_BFLOAT16 & set(hardware["instructions"])
        options.systems = [s.name for s in SYSTEMS if has or not s.name.endswith("bfloat16")]
    try:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        text = work.read_text(options.data)
        print(f"{machine.sentence(hardware)}\ntext: {text.name}", file=sys.stderr)
        beside = work.name_beside(options.beside)
        reading = pipeline(text, work.SIZES[options.size[0]]["vocabulary"])
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
        "pipeline": reading,
        "beside": {name: str(checkout) for name, checkout in beside.items()},
        "rows": rows,
    }
    options.out.write_text(json.dumps(record, indent=1) + "\n")
    print(f"{machine.sentence(hardware)}, {record['date']}. Text: {text.name}.")
    for size in options.size:
        print(f"\nSize {size}\n\n{markdown([row for row in rows if row['size'] == size])}")
    print(f"\nThe input pipeline alone: {reading:,.0f} tokens/s.\n")
    print("\n".join(sorted({f"- {row['system']}: {row['version']}" for row in rows})))
    if any(row["foreign"] > FOREIGN for row in rows):
        print("warning: other processes used the machine meanwhile: measure again", file=sys.stderr)
    return 0


def measure(size_name, text, pythons, beside, options):
    """The rows of one size, a dict for each system.

    `tokens_per_second` is the median over the rounds, `minimum` and `largest` are of the same unit;
    `foreign` is the number of cores that other processes used meanwhile.
    """
    size = dict(work.SIZES[size_name])
    tokenizer = work.learn_vocabulary(text, size.pop("vocabulary"))
    batches = work.make_training_batches(text, tokenizer, options.batches)
    tokens = sum(len(row) for b in batches for side in ("source", "target") for row in b[side])
    job = {
        "size": size,
        "vocabulary": tokenizer.pieces("source"),
        "dropout": DROPOUT,
        "smoothing": SMOOTHING,
        "batches": {"train": [{"batches": batches}]},
    }
    workers = {}
    try:
        for system in SYSTEMS:
            if system.name in options.systems:
                python = pythons.get(system.peer.removeprefix("train_"), sys.executable)
                start(workers, system, {**job, "options": system.options}, python)
        for name, checkout in beside.items():
            system = System(name, "train_tfformer")
            start(workers, system, {**job, "options": {}}, sys.executable, checkout)
        progress = Progress((options.rounds + 1) * len(workers))
        answers = take_turns(workers, ["train"], options.rounds, progress)
    finally:
        for worker in workers.values():
            worker.close()
    rows = []
    for (name, _), given in answers.items():
        speeds = [tokens / answer["seconds"] for answer in given]
        foreign = sum(a["foreign"] for a in given) / sum(a["seconds"] for a in given)
        rows.append(
            {
                "size": size_name,
                "system": name,
                "version": workers[name].version,
                "tokens_per_second": statistics.median(speeds),
                "least": min(speeds),
                "greatest": max(speeds),
                "rounds": speeds,
                "foreign": max(0.0, foreign),
            }
        )
    return rows


def start(workers, system, job, python, root=ROOT):
    """Adds the system's worker, after it has made all steps once."""
    started = time.monotonic()
    try:
        ours = system.peer == "train_tfformer" and not system.options.get("plain")
        environment = {n: v for n, v in HUGE_PAGES.items() if n not in os.environ} | ENVIRONMENT
        worker = Worker(system.peer, job, python, environment if ours else None, root)
    except WorkerError as error:
        print(f"skipped: {system.name}: {error}", file=sys.stderr)
        return
    workers[system.name] = worker
    memory = f"{machine.resident_mib(worker.process_id):.0f} MiB"
    seconds = time.monotonic() - started
    print(f"loaded: {system.name}: {worker.version}, {memory}, {seconds:.0f} s", file=sys.stderr)


def pipeline(text, vocabulary_size):
    """Real tokens a second of `training.data.batches` alone, tokenising included."""
    from training.data.batches import Batches
    from training.data.corpus import write_corpus
    from training.data.reader import CorpusReport, Pair
    from training.tasks import TASKS

    tokenizer = work.learn_vocabulary(text, vocabulary_size)
    pairs = (Pair(*pair) for pair in zip(text.sources, text.targets, strict=True))
    with tempfile.TemporaryDirectory() as folder:
        report = CorpusReport(kept=len(text.sources))
        corpus = write_corpus(Path(folder, "corpus"), pairs, tokenizer, 96, report)
        batches = Batches(TASKS["translation"], corpus, tokenizer, 2048)
        started = time.perf_counter()
        for _ in batches.dataset():
            pass
        seconds = time.perf_counter() - started
        return sum(batches.tokens(0)) / seconds


def markdown(rows):
    """The rows of one size as a table, the fastest first; ratios to the fastest of others."""
    rows = sorted(rows, key=lambda row: -row["tokens_per_second"])
    speeds = {row["system"]: row["tokens_per_second"] for row in rows}
    beside = {name: speed for name, speed in speeds.items() if name.startswith(work.BESIDE)}
    own = ("tfformer", work.BESIDE)
    others = [speed for name, speed in speeds.items() if not name.startswith(own)]
    heads = ["system", "tokens a second", "minimum to maximum", "/ best of others"]
    heads += [f"/ {name}" for name in beside] + ["foreign"]
    lines = [heads, ["---", *["--:"] * (len(heads) - 1)]]
    for row in rows:
        ratio = f"{row['tokens_per_second'] / max(others):.2f}" if others else ""
        spread = f"{row['least']:,.0f} to {row['greatest']:,.0f}"
        foreign = f"{row['foreign']:.2f}" + " (!)" * (row["foreign"] > FOREIGN)
        ratios = [ratio, *(f"{row['tokens_per_second'] / speed:.2f}" for speed in beside.values())]
        lines.append([row["system"], f"{row['tokens_per_second']:,.0f}", spread, *ratios, foreign])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())

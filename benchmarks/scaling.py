"""Measures how the cost of an exported model grows: `python -m benchmarks.scaling`.

    python -m benchmarks.scaling --data data/multi30k --out scaling.png

Output length, beam width, batch size and vocabulary grow one at a time, from batch 8, beam 4, 32
tokens and the size's own vocabulary. The models of one factor take turns. Then the memory of the
serving process is measured while it answers requests of many lengths and batch sizes: if it leaks,
its memory grows.

The tables go to standard output, a picture to --out, and all numbers to a JSON file beside it.

Exit codes: 0 measured; 1 an error of the model or the machine; 2 wrong usage; 130 interrupted.
"""

import datetime
import json
import random
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks import machine, work
from benchmarks.workers import Progress, Worker, WorkerError, take_turns
from tfformer.terminal.command import Parser, main_of

FACTORS = {
    "length": [16, 32, 64, 128, 256],
    "beam": [1, 2, 4, 8, 16],
    "batch": [1, 2, 4, 8, 16, 32, 64, 128],
    "vocabulary": [8000, 16000, 32000, 64000],
}
NAMES = {
    "length": "output length, tokens",
    "beam": "beam width",
    "batch": "batch size, sentences",
    "vocabulary": "vocabulary, ids",
}
BASE = {"length": 32, "beam": 4, "batch": 8}  # and the size's own vocabulary
PORTIONS = 30  # of the requests: memory is read after each
MAX_TEXTS, MAX_SENTENCES = 8, 4  # texts of a request, sentences of a text


def parser():
    """The command's arguments."""
    parser = Parser("benchmarks.scaling", __doc__)
    parser.add_argument("--size", choices=work.SIZES, default="S", help="default S")
    for factor, values in FACTORS.items():
        parser.add_argument(
            f"--{factor}", nargs="+", type=int, default=values, metavar="N",
            help=f"{NAMES[factor]}; default {' '.join(map(str, values))}",
        )  # fmt: skip
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds; default 5")
    parser.add_argument("--requests", type=int, default=3000, help="default 3000")
    parser.add_argument("--threads", type=int, help="default: TensorFlow's own choice")
    parser.add_argument("--data", type=Path, help="a folder with Multi30K; default: dates")
    parser.add_argument("--out", type=Path, default=Path("runs/scaling.png"), help="the picture")
    return parser


def _run(command, options):
    minimum = {"rounds": 1, "threads": 1, "requests": PORTIONS, "length": 2, "beam": 1, "batch": 1}
    minimum["vocabulary"] = work.SIZES[options.size]["vocabulary"]
    work.require_at_least(command, options, **minimum)
    hardware = machine.describe()
    print(machine.sentence(hardware), file=sys.stderr)
    try:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        text = work.read_text(options.data)
        with tempfile.TemporaryDirectory() as folder:
            models = Models(folder, options.size, text, options.threads)
            rows = [row for factor in FACTORS for row in measure(factor, models, options)]
            memory = measure_memory(models, options.requests)
    except (WorkerError, ValueError, OSError) as error:
        return command.fail(error)
    record = {
        "date": datetime.date.today().isoformat(),
        "machine": hardware,
        "text": text.name,
        "size": options.size,
        "base": models.base,
        "threads": options.threads,
        "version": models.version,
        "rows": rows,
        "memory_mib": memory,
    }
    options.out.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n")
    draw(rows, models.base, options.out)
    print(f"{machine.sentence(hardware)}, {record['date']}, {models.version}. Text: {text.name}.")
    for factor in FACTORS:
        print(f"\n{markdown([row for row in rows if row['factor'] == factor])}")
    growth = memory[-1] - memory[0]
    print(
        f"\nResident memory: {memory[0]:.0f} MiB after {options.requests // PORTIONS} requests, "
        f"{memory[-1]:.0f} MiB after {options.requests // PORTIONS * PORTIONS} ({growth:+.1f} MiB)"
    )
    return 0


class Models:
    """The exports of one size, each made when it is first used.

    Attributes:
        base: the value of every factor while another one grows.
        version: what the workers run with; None before the first.
    """

    def __init__(self, folder, size, text, threads):
        self.size = dict(work.SIZES[size])
        self.base = {**BASE, "vocabulary": self.size.pop("vocabulary")}
        self.folder, self.text, self.threads, self.version = Path(folder), text, threads, None
        self.tokenizer = work.learn_vocabulary(text, self.base["vocabulary"])
        self.exported = {}

    def worker(self, batches, length, beam, vocabulary, **_):
        """A `Worker` of the model of these values, with these batches."""
        key = (length, beam, vocabulary)
        if key not in self.exported:
            name = f"length {length}, beam {beam}, vocabulary {vocabulary}"
            print(f"exporting: {name}", file=sys.stderr)
            tokenizer = work.fill_up(self.tokenizer, vocabulary)
            self.exported[key] = work.export(
                self.folder / name, self.size, tokenizer, beam, steps=length
            )
        job = {
            "steps": length,
            "threads": self.threads,
            "batches": batches,
            "options": self.exported[key],
        }
        worker = Worker("with_tfformer", job)
        self.version = worker.version
        return worker

    def batches(self, batch_size):
        return work.make_batches(self.text.decoded, self.tokenizer, batch_size)


def measure(factor, models, options):
    """The rows of one factor: a dict for each of its values.

    `ms_per_sentence` is the median over the rounds, `minimum` and `largest` are of the same unit;
    `foreign` is the number of cores that other processes used meanwhile.
    """
    values = sorted(set(getattr(options, factor)))
    sizes = values if factor == "batch" else [models.base["batch"]]
    batches = {str(size): models.batches(size) for size in sizes}
    shapes = [models.base if factor == "batch" else {**models.base, factor: v} for v in values]
    workers = {}
    try:
        for value, shape in zip(values, shapes, strict=True):
            if factor != "batch" or not workers:  # one model serves every batch size
                workers[f"{factor} {value}"] = models.worker(batches, **shape)
        progress = Progress((options.rounds + 1) * len(batches) * len(workers))
        answers = take_turns(workers, batches, options.rounds, progress)
    finally:
        for worker in workers.values():
            worker.close()
    if len(answers) < len(values):
        raise WorkerError(f"not every {factor} could be measured")
    rows = []
    for value, ((_, name), given) in zip(values, answers.items(), strict=True):
        sentences = sum(len(batch["texts"]) for batch in batches[name])
        times = [1000 * answer["seconds"] / sentences for answer in given]
        foreign = sum(a["foreign"] for a in given) / sum(a["seconds"] for a in given)
        rows.append(
            {
                "factor": factor,
                "value": value,
                "ms_per_sentence": statistics.median(times),
                "least": min(times),
                "greatest": max(times),
                "foreign": max(0.0, foreign),
            }
        )
    return rows


def measure_memory(models, count):
    """The resident MiB of a serving process after each portion of varied requests."""
    chance = random.Random(0)

    def request():
        texts = [
            " ".join(chance.choices(models.text.decoded, k=chance.randint(1, MAX_SENTENCES)))
            for _ in range(chance.randint(1, MAX_TEXTS))
        ]
        return {"texts": texts}

    portions = {
        str(n): [request() for _ in range(count // PORTIONS)] for n in range(1, PORTIONS + 1)
    }
    worker, sizes = models.worker(portions, **models.base), []
    try:
        progress = Progress(PORTIONS)
        for name in portions:
            progress.step(f"memory, portion {name} of {PORTIONS}")
            worker.decode(name)
            sizes.append(machine.resident_mib(worker.process_id))
        progress.say("memory: done")
    finally:
        worker.close()
    return sizes


def markdown(rows):
    """The rows of one factor as a table; the last column is the growth from value to value."""
    lines = [
        f"| {NAMES[rows[0]['factor']]} | ms a sentence | minimum to maximum | / the one before |",
        "| --: | --: | --: | --: |",
    ]
    for before, row in zip([None, *rows], rows, strict=False):
        ratio = f"{row['ms_per_sentence'] / before['ms_per_sentence']:.2f}" if before else ""
        lines.append(
            f"| {row['value']:,} | {row['ms_per_sentence']:.2f} "
            f"| {row['least']:.2f} to {row['greatest']:.2f} | {ratio} |"
        )
    return "\n".join(lines)


def draw(rows, base, path):
    """Writes the picture: a panel for each factor, both axes logarithmic."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker

    figure, panels = pyplot.subplots(2, 2, figsize=(7, 5), layout="constrained")
    for factor, axes in zip(FACTORS, panels.flat, strict=True):
        own = [row for row in rows if row["factor"] == factor]
        values = [row["value"] for row in own]
        times = [row["ms_per_sentence"] for row in own]
        axes.loglog(values, times, marker="o", markersize=4)
        if factor != "batch":
            proportional = [times[0] * value / values[0] for value in values]
            axes.loglog(values, proportional, color="0.6", linestyle="--", linewidth=1)
        axes.set(xlabel=NAMES[factor], ylabel="ms a sentence")
        axes.set_xticks(values, [f"{value:,}" for value in values])
        axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.minorticks_off()
    around = ", ".join(f"{factor} {value:,}" for factor, value in base.items())
    figure.suptitle(f"one at a time around {around}; dashed: in proportion", fontsize="medium")
    figure.savefig(path, format="png", dpi=120)
    pyplot.close(figure)


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())

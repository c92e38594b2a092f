"""Compares models of other systems with their exports: `python -m benchmarks.originals`.

    python -m benchmarks.originals transformers=models/opus exported/opus --source val.en \\
        --python /envs/torch/bin/python --beam-width 4
    python -m benchmarks.originals opennmt=model_dir exported/onmt --source val.en --python PYTHON
    python -m benchmarks.originals keras_hub=presets/dates exported/dates --source dates.txt

The same weights run twice: in the original system (transformers, OpenNMT-tf, KerasHub's
`generate`), and in the SavedModel of an export, as in TensorFlow Serving. The export must have the
same --beam-width. Both translate the first `--sentences` lines of a file, in requests of 1, 8 and
32 lines in their order. The two processes take turns. A result is the median over the rounds, after
one warm-up round.

It prints milliseconds per sentence of both, their ratio, and how many translations are the same. A
folder of OpenNMT-tf is one made by `tests/support/opennmt_training.py`, with a vocabulary.

Exit codes: 0 measured; 1 one of the two does not run; 2 wrong usage; 130 interrupted.
"""

import statistics
import sys
from pathlib import Path

from benchmarks import machine, work
from benchmarks.workers import Progress, Worker, WorkerError, take_turns
from tfformer.terminal.command import Parser, main_of

ORIGINALS = ("transformers", "opennmt", "keras_hub")


def parser():
    """The command's arguments."""
    parser = Parser("benchmarks.originals", __doc__)
    parser.add_argument("original", metavar="SYSTEM=FOLDER", help=f"of {', '.join(ORIGINALS)}")
    parser.add_argument("export", type=Path, metavar="EXPORT", help="its SavedModel")
    parser.add_argument("--source", type=Path, required=True, help="lines to translate")
    parser.add_argument("--python", default=sys.executable, help="with the original's packages")
    parser.add_argument("--beam-width", type=int, default=4, help="default 4; 1 is greedy")
    parser.add_argument("--max-length", type=int, default=100, help="maximum tokens; default 100")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 32], help="default 1 8 32")
    parser.add_argument("--sentences", type=int, default=96, help="default 96")
    parser.add_argument("--threads", type=int, default=2, help="of each; default 2")
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds; default 5")
    return parser


def _run(command, options):
    minimum = dict.fromkeys(("beam_width", "batch", "sentences", "threads", "rounds"), 1)
    work.require_at_least(command, options, max_length=2, **minimum)
    system, _, folder = options.original.partition("=")
    if system not in ORIGINALS or not folder:
        command.error(f"SYSTEM=FOLDER must be of {', '.join(ORIGINALS)}, got {options.original!r}")
    try:
        lines = options.source.read_text(encoding="utf-8").splitlines()[: options.sentences]
    except (OSError, UnicodeDecodeError) as error:
        return command.fail(error)
    if not lines:
        return command.fail(f"{options.source} has no lines")
    job = {
        "folder": str(Path(folder).resolve()),
        "beam_width": options.beam_width,
        "max_length": options.max_length,
        "threads": options.threads,
        "batches": {
            str(size): [{"texts": lines[n : n + size]} for n in range(0, len(lines), size)]
            for size in options.batch
        },
    }
    workers = {}
    try:
        workers[system] = Worker(f"original_{system}", job, options.python)
        own = {**job, "folder": str(options.export.resolve())}
        workers["export"] = Worker("exported", own)
        versions = [worker.version for worker in workers.values()]
        same = {
            size: sum(map(str.__eq__, *(worker.say(size) for worker in workers.values())))
            for size in job["batches"]
        }
        steps = (options.rounds + 1) * len(job["batches"]) * len(workers)
        answers = take_turns(workers, job["batches"], options.rounds, Progress(steps))
        if len(workers) < len(versions):
            return command.fail("one of the two systems failed")
    except WorkerError as error:
        return command.fail(error)
    finally:
        for worker in workers.values():
            worker.close()
    print(f"{machine.today()}.")
    print(f"{'; '.join(versions)}. {options.threads} threads, {options.rounds} rounds.\n")
    for row in table(system, job["batches"], answers, same, len(lines)):
        print(row)
    return 0


def table(system, sizes, answers, same, count):
    """The rows of the table, Markdown."""
    yield f"| batch | {system}, ms a sentence | the export | × | the same, of {count} |"
    yield "|--:|--:|--:|--:|--:|"
    for size in sizes:
        theirs, ours = (
            1000 * statistics.median(one["seconds"] for one in answers[name, size]) / count
            for name in (system, "export")
        )
        yield f"| {size} | {theirs:.1f} | {ours:.1f} | {theirs / ours:.2f} | {same[size]} |"


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())

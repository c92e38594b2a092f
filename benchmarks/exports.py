"""Compares several exported translators on one test set: `python -m benchmarks.exports`.

    python -m benchmarks.exports beam=exported/teacher at-once=exported/student \\
        --source data/multi30k/val.en --target data/multi30k/val.de

Each SavedModel runs as in TensorFlow Serving, through the C API without Python TensorFlow, in a
separate process, with one thread for an operation and `--threads` parallel operations. They take
turns, round by round. After one warm-up round, a result is the median over the rounds. Milliseconds
are per sentence: in requests of one sentence each (the first `--singles` of the file), and in
requests of `--batch` sentences of similar length (all of them).

It prints BLEU, repeated words, milliseconds, and the speed relative to the first.

Exit codes: 0 measured; 1 an error of a SavedModel or a file; 2 wrong usage; 130 interrupted.
"""

import statistics
import sys
import time
from pathlib import Path

from benchmarks import machine, work
from tfformer.terminal.command import Parser, main_of


def parser():
    """The command's arguments."""
    parser = Parser("benchmarks.exports", __doc__)
    parser.add_argument("exports", nargs="+", metavar="NAME=DIRECTORY", help="a SavedModel each")
    parser.add_argument("--source", type=Path, required=True, help="lines to translate")
    parser.add_argument("--target", type=Path, required=True, help="their references")
    parser.add_argument("--batch", type=int, default=32, help="sentences in a request; default 32")
    parser.add_argument("--singles", type=int, default=200, help="requests of one; default 200")
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds; default 5")
    parser.add_argument("--threads", type=int, default=2, help="operations at once; default 2")
    return parser


def _run(command, options):
    from export.capi.library import ServingError
    from export.verification.graph import UsageError
    from training.data.reader import read_pairs

    work.require_at_least(command, options, batch=2, singles=1, rounds=1, threads=1)
    exports = work.named(command, options.exports, "NAME=DIRECTORY")
    try:
        pairs = list(read_pairs(options.source, options.target))
        sources, references = zip(*[(pair.source, pair.target) for pair in pairs], strict=True)
        found, times = measure(exports, list(sources), options)
    except UsageError as error:
        return command.fail(error, 2)
    except (ValueError, OSError, ServingError) as error:
        return command.fail(error)
    print(machine.sentence(machine.describe()))
    print(
        f"{options.source.name}, {len(sources)} sentences, {options.threads} operations at once\n"
    )
    for row in table(found, times, list(references), options.batch):
        print(row)
    return 0


def measure(exports, sources, options):
    """{name: translations} and {(name, sentences in a request): milliseconds of each round}."""
    from export.serving.bulk import BulkTranslator

    models, found, times = {}, {}, {}
    try:
        for name, directory in exports.items():
            for size in (1, options.batch):
                models[name, size] = BulkTranslator(
                    directory, size, requests=1, inter_op_threads=options.threads
                )
        for number in range(options.rounds + 1):
            what = f"round {number} of {options.rounds}" if number else "warming up"
            print(f"{what} ...", file=sys.stderr)
            for (name, size), model in models.items():
                lines = sources[: options.singles] if size == 1 else sources
                start = time.perf_counter()
                answers = model.translate(lines)
                seconds = time.perf_counter() - start
                if size != 1:
                    found[name] = answers
                if number:
                    times.setdefault((name, size), []).append(1000 * seconds / len(lines))
    finally:
        for model in models.values():
            model.close()
    return found, times


def table(found, times, references, batch):
    """The rows of the table, in Markdown."""
    from training.evaluate import repeated_words
    from training.metrics.bleu import bleu

    first = next(iter(found))
    medians = {key: statistics.median(rounds) for key, rounds in times.items()}
    yield f"| | BLEU | repeated words, % | ms, batch 1 | × | ms, batch {batch} | × |"
    yield "|---|---|---|---|---|---|---|"
    for name, translations in found.items():
        cells = [f"{bleu(translations, references)[0]:.2f}", f"{repeated_words(translations):.2f}"]
        for size in (1, batch):
            own = medians[name, size]
            cells += [f"{own:.2f}", f"{medians[first, size] / own:.2f}"]
        yield f"| {name} | {' | '.join(cells)} |"


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())

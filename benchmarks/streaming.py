"""Memory and speed of training's input by the size of the corpus: `python -m benchmarks.streaming`.

    python -m benchmarks.streaming --pairs 200000 2000000 20000000

Random sentences are written to two files and prepared as in `training.train` (vocabulary, then the
indexed corpus). Batches are taken from them, shuffled and tokenised, without training: from the
beginning of an epoch, and from its middle, as in a resumed training. Each phase has a separate
process.

Memory is the peak of the process's private memory, RssAnon of Linux, in each phase. The corpus is
mapped, and its pages fill free memory of the machine. The system removes them if it needs the
memory, so they are not counted.

The table goes to standard output. The files are in --folder, and are removed at the end.

Exit codes: 0 measured; 1 an error of the machine; 2 wrong usage; 130 interrupted.
"""

import concurrent.futures
import contextlib
import itertools
import multiprocessing
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from benchmarks import machine, work
from tfformer.terminal.command import Parser, main_of

LENGTHS = (3, 19)  # words of a sentence
WORDS = 50_000
BATCH_TOKENS = 4096
COLUMNS = {
    "pairs": "{:,}",
    "vocabulary_seconds": "{:,.0f}",
    "vocabulary_mib": "{:,.0f}",
    "corpus_pairs_a_second": "{:,.0f}",
    "corpus_mib": "{:,.0f}",
    "batches_an_epoch": "{:,}",
    "first_batch_seconds": "{:.1f}",
    "middle_batch_seconds": "{:.1f}",
    "tokens_a_second": "{:,.0f}",
    "batches_mib": "{:,.0f}",
}


def parser():
    """The command's arguments."""
    parser = Parser("benchmarks.streaming", __doc__)
    parser.add_argument(
        "--pairs", nargs="+", type=int, default=[20_000, 200_000], metavar="N",
        help="sizes of the corpus; default 20000 200000",
    )  # fmt: skip
    parser.add_argument("--batches", type=int, default=2000, metavar="N", help="default 2000")
    parser.add_argument("--folder", type=Path, help="of the files; default: the temporary one")
    return parser


def _run(command, options):
    work.require_at_least(command, options, pairs=1000, batches=1)
    print(machine.sentence(machine.describe()), file=sys.stderr)
    spawn = multiprocessing.get_context("spawn")
    print(" | ".join(name.replace("_", " ") for name in COLUMNS), flush=True)
    try:
        for pairs in options.pairs:
            with tempfile.TemporaryDirectory(dir=options.folder) as folder:
                row = {"pairs": pairs}
                for phase in (write_sentences, vocabulary, corpus, batches):
                    with concurrent.futures.ProcessPoolExecutor(1, spawn) as pool:
                        row |= pool.submit(phase, Path(folder), pairs, options.batches).result()
            cells = [form.format(row[name]) for name, form in COLUMNS.items()]
            print(" | ".join(cells), flush=True)
    except (OSError, ValueError, concurrent.futures.BrokenExecutor) as error:
        return command.fail(error)
    return 0


def write_sentences(folder, pairs, _):
    """Writes two files of random sentences. The frequencies of the words follow Zipf's law."""
    rng = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = ["".join(rng.choice(letters, rng.integers(2, 10))) for _ in range(WORDS)]
    ranks = 1 / np.arange(1, WORDS + 1)
    cumulated = np.cumsum(ranks / ranks.sum())
    for side in ("source", "target"):
        with open(folder / f"{side}.txt", "w") as file:
            for start in range(0, pairs, 10_000):
                lengths = rng.integers(*LENGTHS, size=min(10_000, pairs - start))
                numbers = np.searchsorted(cumulated, rng.random(lengths.sum())).tolist()
                chosen = map(words.__getitem__, numbers)
                lines = (" ".join(itertools.islice(chosen, n)) for n in lengths.tolist())
                file.write("\n".join(lines) + "\n")
    return {}


def cleaned(folder, report):
    """The pairs as training reads them."""
    from training.data.reader import clean_pairs, read_pairs

    return clean_pairs(read_pairs(folder / "source.txt", folder / "target.txt"), report)


def vocabulary(folder, *_):
    """Learns a vocabulary from all sentences, as `training.preparation.prepare` does."""
    from tfformer.text.tokenizer import Tokenizer
    from training.data.reader import CorpusReport

    def side(name):
        return (getattr(pair, name) for pair in cleaned(folder, CorpusReport()))

    with measured("vocabulary") as row:
        tokenizer = Tokenizer.train(side("source"), side("target"), vocabulary_size=8000)
    (folder / "shared.model").write_bytes(tokenizer.source_model)
    return row


def corpus(folder, pairs, _):
    """Writes the indexed corpus."""
    from tfformer.text.tokenizer import Tokenizer
    from training.data.corpus import write_corpus
    from training.data.reader import CorpusReport

    tokenizer, report = Tokenizer((folder / "shared.model").read_bytes()), CorpusReport()
    with measured("corpus") as row:
        write_corpus(folder / "train", cleaned(folder, report), tokenizer, 128, report)
    return row | {"corpus_pairs_a_second": pairs / row["corpus_seconds"]}


def batches(folder, _, count):
    """Takes batches from the beginning and from the middle of an epoch."""
    from tfformer.text.tokenizer import Tokenizer
    from training.data.batches import Batches
    from training.data.corpus import Corpus
    from training.tasks import TASKS

    tokenizer, tokens, seconds = Tokenizer((folder / "shared.model").read_bytes()), 0, 0.0
    with measured("batches") as row:
        data = Batches(TASKS["translation"], Corpus(folder / "train"), tokenizer, BATCH_TOKENS)
        row["batches_an_epoch"] = len(data)
        for place, skip in (("first", 0), ("middle", len(data) // 2)):
            started = time.monotonic()
            for n, (inputs, labels) in enumerate(data.dataset(0, skip).take(count)):
                if n == 0:
                    row[f"{place}_batch_seconds"] = time.monotonic() - started
                    started = time.monotonic()
                    continue
                tokens += np.count_nonzero(inputs["source_ids"]) + np.count_nonzero(labels)
            seconds += time.monotonic() - started
    return row | {"tokens_a_second": tokens / seconds}


@contextlib.contextmanager
def measured(phase):
    """Yields a dict; after the phase it has the seconds and the peak of anonymous memory in MiB."""
    row, maximum, done = {}, [machine.anonymous_mib()], threading.Event()

    def watch():
        while not done.wait(0.05):
            maximum[0] = max(maximum[0], machine.anonymous_mib())

    watcher = threading.Thread(target=watch)
    watcher.start()
    started = time.monotonic()
    try:
        yield row
    finally:
        row[f"{phase}_seconds"] = time.monotonic() - started
        done.set()
        watcher.join()
        row[f"{phase}_mib"] = maximum[0]


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())

"""Measures the gain of shared parameters in decoding: `python -m benchmarks.sharing`.

    python -m benchmarks.sharing --size B --length 32 256 --batch 8 32

Exports with random weights, one for each kind of sharing and each length of the output, decode the
same sentences in turns. The results are milliseconds per sentence, compared with the model that
shares only its embeddings. For the quality, see benchmarks/learning/methods/sharing.toml.

`cache` is what a step reads besides weights: the keys and values of a sentence, of all its beams
and of its source, computed from the sizes. Tables go to standard output.

Exit codes: 0 measured; 1 an error of the model or the machine; 2 wrong usage; 130 interrupted.
"""

import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks import machine, work
from benchmarks.workers import Progress, Worker, WorkerError, take_turns
from tfformer.terminal.command import Parser, main_of

BEAM = 4
SOURCE = 16  # tokens, about as many as a caption has
# {kind of sharing: the options of such a model}.
ROWS = {
    "nothing but the embeddings": {},
    "one layer for all of a half": {"unique_layers": 1},
    "one layer for both halves": {"unique_layers": 1, "share_halves": True},
    "keys and values of two heads": {"num_key_value_heads": 2},
    "keys and values of one head": {"num_key_value_heads": 1},
}


def parser():
    """The command's arguments."""
    parser = Parser("benchmarks.sharing", __doc__)
    parser.add_argument("--size", choices=work.SIZES, default="B", help="default B")
    parser.add_argument(
        "--length", nargs="+", type=int, default=[32, 256], metavar="N",
        help="output tokens; default 32 256",
    )  # fmt: skip
    parser.add_argument(
        "--batch", nargs="+", type=int, default=[8, 32], metavar="N", help="sentences; default 8 32"
    )
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds; default 5")
    parser.add_argument("--threads", type=int, help="default: TensorFlow's own choice")
    parser.add_argument("--data", type=Path, help="a folder with Multi30K; default: dates")
    return parser


def _run(command, options):
    work.require_at_least(command, options, length=2, batch=1, rounds=1, threads=1)
    try:
        text = work.read_text(options.data)
        size = dict(work.SIZES[options.size])
        tokenizer = work.learn_vocabulary(text, size.pop("vocabulary"))
        batches = {str(n): work.make_batches(text.decoded, tokenizer, n) for n in options.batch}
        with tempfile.TemporaryDirectory() as folder:
            known = Path(folder), size, tokenizer, batches
            tables = [measure(*known, length, options) for length in options.length]
    except (WorkerError, ValueError, OSError) as error:
        return command.fail(error)
    print(f"{machine.today()}. Text: {text.name}.")
    for length, table in zip(options.length, tables, strict=True):
        print(f"\nSize {options.size}, {length} tokens, {BEAM} beams:\n\n{table}")
    return 0


def measure(folder, size, tokenizer, batches, length, options):
    """The table of outputs of one length."""
    job = {"steps": length, "threads": options.threads, "batches": batches}
    workers, models = {}, {}
    try:
        for row, changes in ROWS.items():
            models[row] = size | {"changes": changes}
            directory = folder / f"{row}, {length}"
            print(f"exporting: {row}, {length} tokens", file=sys.stderr)
            exported = work.export(directory, models[row], tokenizer, BEAM, steps=length)
            workers[row] = Worker("with_tfformer", job | {"options": exported})
        progress = Progress((options.rounds + 1) * len(batches) * len(workers))
        answers = take_turns(workers, batches, options.rounds, progress)
    finally:
        for worker in workers.values():
            worker.close()
    if len(workers) < len(ROWS):
        raise WorkerError("not every row could be measured")
    times = {key: [answer["seconds"] for answer in found] for key, found in answers.items()}
    heads = [f"batch {name} | ratio" for name in batches]
    lines = [
        f"| shared | cache, KiB | {' | '.join(heads)} |",
        f"|---|--:|{'--:|--:|' * len(batches)}",
    ]
    plain = next(iter(ROWS))
    for row, model in models.items():
        cells = [f"{cache_bytes(model, length) / 1024:,.0f}"]
        for name, group in batches.items():
            sentences = sum(len(batch["texts"]) for batch in group)
            pairs = list(zip(times[row, name], times[plain, name], strict=True))
            cells.append(f"{1000 * statistics.median(a for a, _ in pairs) / sentences:.2f}")
            cells.append(f"{statistics.median(a / b for a, b in pairs):.2f}")
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return "\n".join(lines)


def cache_bytes(model, length):
    """Bytes of the keys and values of a sentence, in float32: of its beams and of its source."""
    heads = model["changes"].get("num_key_value_heads", model["num_heads"])
    width = heads * model["d_model"] // model["num_heads"]
    return 2 * 4 * model["num_layers"] * width * (BEAM * length + SOURCE)


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())

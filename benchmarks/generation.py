"""Measures generation by a language model and by KerasHub: `python -m benchmarks.generation`.

    python -m benchmarks.generation --data data/multi30k

It compares two models of the same size with random weights: tfformer's, exported, with text as
input and output, and KerasHub's `GPT2CausalLM` by its `generate`, with and without XLA, with ids as
input and output. Both continue prompts of one length greedily by exactly the same number of tokens.
Each system has a separate process for each number of threads; they take turns. The medians over the
rounds are compared, in tokens per second. How to read the table: benchmarks/README.md.

Exit codes: 0 measured; 1 nothing could be measured; 2 wrong usage; 130 interrupted.
"""

import sys
import tempfile
from pathlib import Path

from benchmarks import machine, work
from benchmarks.decoding import FOREIGN, System, fastest, rows_of, start
from benchmarks.workers import Progress, take_turns
from tfformer.terminal.command import Parser, main_of

SYSTEMS = [
    System("tfformer", "tfformer"),
    System("tfformer-bfloat16", "tfformer", {"dtype": "bfloat16"}),
    System("gpt2", "gpt2", {"jit_compile": False}),
    System("gpt2-xla", "gpt2", {"jit_compile": True}),
]


def parser():
    """The command's arguments."""
    parser = Parser("benchmarks.generation", __doc__)
    parser.add_argument("--size", choices=work.SIZES, default="S", help="default S")
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 8, 32], metavar="N")
    parser.add_argument("--prompt", type=int, default=6, help="tokens of a prompt; default 6")
    parser.add_argument("--steps", type=int, default=64, help="tokens to generate; default 64")
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds; default 5")
    parser.add_argument(
        "--threads", nargs="+", type=int, default=[1, 2], metavar="N", help="default: 1 2"
    )
    parser.add_argument("--data", type=Path, help="a folder with Multi30K; default: dates")
    return parser


def _run(command, options):
    work.require_at_least(command, options, batch=1, prompt=1, steps=1, rounds=1, threads=1)
    try:
        text = work.read_text(options.data)
        rows = measure(text, options)
    except (ValueError, OSError) as error:
        return command.fail(error)
    if not rows:
        return command.fail("no system could be measured")
    print(f"{machine.today()}. Text: {text.name}.\n")
    print(f"Size {options.size}, {options.steps} tokens behind {options.prompt}\n")
    for line in table(rows, options.steps):
        print(line)
    print("\n" + "\n".join(sorted({f"- {row['system']}: {row['version']}" for row in rows})))
    if any(row["foreign"] > FOREIGN for row in rows):
        print("warning: other processes used the machine meanwhile: measure again", file=sys.stderr)
    return 0


def measure(text, options):
    """The rows, in the form of `benchmarks.decoding.measure`."""
    size = dict(work.SIZES[options.size])
    tokenizer = work.learn_vocabulary(text, size.pop("vocabulary"))
    batches = {
        str(batch): work.make_prompts(text.decoded, tokenizer, batch, options.prompt)
        for batch in options.batch
    }
    job = {
        "size": size,
        "vocabulary": tokenizer.pieces("source"),
        "steps": options.steps,
        "batches": batches,
    }
    workers = {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            for system in SYSTEMS:
                own = system.options
                if system.peer == "tfformer":
                    own = work.export_generator(
                        Path(folder, system.name), size, tokenizer, options.steps, **own
                    )
                start(workers, system, {**job, "options": own}, sys.executable, options.threads)
            progress = Progress((options.rounds + 1) * len(batches) * len(workers))
            answers = take_turns(workers, batches, options.rounds, progress)
        finally:
            for worker in workers.values():
                worker.close()
    return rows_of(options.size, workers, batches, answers)


def table(rows, steps):
    """A table in Markdown: every system with its best number of threads, in tokens per second."""
    yield "| batch | system | threads | tokens a second | × gpt2 | × gpt2-xla | foreign |"
    yield "|--:|---|--:|--:|--:|--:|--:|"
    for row in sorted(rows, key=lambda row: row["batch"]):
        if not row["best"]:
            continue
        cells = [row["batch"], row["system"], row["threads"] or "default"]
        cells.append(f"{1000 * steps / row['ms_per_sentence']:,.0f}")
        for name in ("gpt2", "gpt2-xla"):
            other = fastest(rows, name, row["batch"])
            cells.append(
                f"{other['ms_per_sentence'] / row['ms_per_sentence']:.2f}" if other else ""
            )
        cells.append(f"{row['foreign']:.2f}" + " (!)" * (row["foreign"] > FOREIGN))
        yield f"| {' | '.join(map(str, cells))} |"


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())

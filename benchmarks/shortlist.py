"""Measures what a lexical shortlist gains and changes: `python -m benchmarks.shortlist`.

    python -m benchmarks.shortlist --data data/multi30k
    python -m benchmarks.shortlist --data data/multi30k --run runs/multi30k --vocabulary

For each vocabulary, models with random weights are exported with and without a shortlist.
`training.shortlist` learns it from the same pairs as the vocabulary. Both search exactly 32 tokens
for every sentence, with 4 beams, in turns, through the C API.

With --run, a trained run translates the sentences of `val.en` with and without a shortlist learned
from `train.en` and `train.de` with its tokenizer. The results are the number of different
translations, and the BLEU of both against `val.de`.

The tables go to standard output, all numbers to the JSON file.

Exit codes: 0 measured; 1 an error of the run, the data or the machine; 2 wrong usage; 130
interrupted.
"""

import datetime
import json
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks import machine, work
from benchmarks.workers import Progress, Worker, WorkerError, take_turns
from tfformer.terminal.command import Parser, main_of
from training.data.reader import Pair, read_pairs
from training.shortlist import CANDIDATES, FREQUENT, coverage, learn, split, tokenise

BEAM_WIDTH, STEPS = 4, 32
KINDS = ("whole", "shortlist")


def parser():
    """The command's arguments."""
    parser = Parser("benchmarks.shortlist", __doc__)
    parser.add_argument("--size", choices=work.SIZES, default="S", help="default S")
    parser.add_argument(
        "--vocabulary", nargs="*", type=int, default=[8000, 32000], metavar="N",
        help="ids; default 8000 32000; nothing: only --run",
    )  # fmt: skip
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 8, 32], metavar="N")
    parser.add_argument(
        "--candidates", type=int, default=CANDIDATES, metavar="N", help=f"default {CANDIDATES}"
    )
    parser.add_argument(
        "--frequent", type=int, default=FREQUENT, metavar="M", help=f"default {FREQUENT}"
    )
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds; default 5")
    parser.add_argument("--threads", type=int, help="default: TensorFlow's own choice")
    parser.add_argument("--data", type=Path, help="a folder with Multi30K; default: dates")
    parser.add_argument("--run", type=Path, help="a trained run of Multi30K; needs --data")
    parser.add_argument("--out", type=Path, default=Path("runs/shortlist.json"), help="the JSON")
    return parser


def _run(command, options):
    minimum = {"batch": 1, "candidates": 1, "frequent": 1, "rounds": 1, "threads": 1}
    if options.vocabulary:
        minimum["vocabulary"] = 261  # special pieces and bytes, and one more
    work.require_at_least(command, options, **minimum)
    if options.run and not options.data:
        command.error("--run needs --data, the folder of its corpus")
    hardware = machine.describe()
    try:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        text = work.read_text(options.data)
        rows, changes = [], None
        for vocabulary in sorted(set(options.vocabulary)):
            rows += measure(vocabulary, text, options)
        if options.run:
            changes = compare(options)
    except (WorkerError, ValueError, OSError) as error:
        return command.fail(error)
    record = {
        "date": datetime.date.today().isoformat(),
        "machine": hardware,
        "text": text.name,
        "size": options.size,
        "candidates": options.candidates,
        "frequent": options.frequent,
        "threads": options.threads,
        "rows": rows,
        "changes": changes,
    }
    options.out.write_text(json.dumps(record, indent=1) + "\n")
    print(f"{machine.sentence(hardware)}, {record['date']}. Text: {text.name}.")
    print(f"{options.candidates} candidates a source piece, {options.frequent} frequent pieces.")
    if rows:
        print(f"{rows[0]['version']}, size {options.size}\n\n{markdown(rows)}")
    if changes:
        print(f"\n{sentence(changes)}")
    return 0


def measure(vocabulary, text, options):
    """The rows of one vocabulary: a dict for each batch size.

    `whole` and `shortlist` have the median milliseconds a sentence, the minimum and the maximum;
    `sentence` and `request` are the mean numbers of candidates; `foreign` is the number of cores
    that other processes used meanwhile.
    """
    print(f"learning: vocabulary {vocabulary}", file=sys.stderr)
    tokenizer = work.learn_vocabulary(text, vocabulary)
    pairs = map(Pair, text.sources, text.targets)
    tokens = tokenise(pairs, tokenizer)
    shortlist = learn(tokens, tokenizer, options.candidates, options.frequent)
    size = {name: n for name, n in work.SIZES[options.size].items() if name != "vocabulary"}
    batches = {
        str(n): work.make_batches(text.decoded, tokenizer, n) for n in sorted(set(options.batch))
    }
    with tempfile.TemporaryDirectory() as folder:
        workers = {}
        try:
            for kind in KINDS:
                print(f"exporting: vocabulary {vocabulary}, {kind}", file=sys.stderr)
                more = {"shortlist": shortlist} if kind == "shortlist" else {}
                place = Path(folder, kind)
                exported = work.export(place, size, tokenizer, BEAM_WIDTH, STEPS, **more)
                job = {"steps": STEPS, "threads": options.threads, "batches": batches}
                workers[kind] = Worker("with_tfformer", {**job, "options": exported})
            version = workers["whole"].version
            progress = Progress((options.rounds + 1) * len(batches) * len(workers))
            answers = take_turns(workers, batches, options.rounds, progress)
        finally:
            for worker in workers.values():
                worker.close()
    if len(answers) < len(KINDS) * len(batches):
        raise WorkerError(f"vocabulary {vocabulary} could not be measured")
    rows = []
    for name, own in batches.items():
        row = {"vocabulary": vocabulary, "batch": int(name), "version": version, "foreign": 0.0}
        given = {kind: answers[kind, name] for kind in KINDS}
        sentences = [ids for batch in own for ids in batch["ids"]]
        for kind, timed in given.items():
            times = [1000 * answer["seconds"] / len(sentences) for answer in timed]
            row[kind] = [statistics.median(times), min(times), max(times)]
            foreign = sum(a["foreign"] for a in timed) / sum(a["seconds"] for a in timed)
            row["foreign"] = max(row["foreign"], foreign)
        requests = [sum(batch["ids"], []) for batch in own]
        for what, of in (("sentence", sentences), ("request", requests)):
            row[what] = statistics.mean(len(shortlist.allowed(ids)) for ids in of)
        rows.append(row)
    return rows


def compare(options):
    """A trained run with and without a shortlist, on `val`: a dict."""
    from tfformer.run import load_translator
    from training.metrics.bleu import bleu

    print("translating val with and without a shortlist", file=sys.stderr)
    folder, whole = options.data, load_translator(options.run)
    tokens = tokenise(read_pairs(folder / "train.en", folder / "train.de"), whole.tokenizer)
    learned, held_out = split(tokens)
    shortlist = learn(learned, whole.tokenizer, options.candidates, options.frequent)
    short = load_translator(options.run, shortlist=shortlist)
    val = list(read_pairs(folder / "val.en", folder / "val.de"))
    sources, references = [pair.source for pair in val], [pair.target for pair in val]
    found = {"whole": whole.translate(sources), "shortlist": short.translate(sources)}
    scores = {kind: bleu(lines, references) for kind, lines in found.items()}
    return {
        "run": str(options.run),
        "vocabulary": whole.model.config.target_vocabulary_size,
        "lines": len(val),
        "changed": sum(a != b for a, b in zip(*found.values(), strict=True)),
        "bleu": {kind: score for kind, (score, _) in scores.items()},
        "signature": scores["whole"][1],
        "held_out": coverage(shortlist, held_out)._asdict(),
    }


def markdown(rows):
    """The rows as a table."""
    lines = [
        "| vocabulary | batch | whole, ms a sentence | shortlist, ms a sentence | / whole "
        "| candidates of a sentence / of a request | foreign |",
        "| --: | --: | --: | --: | --: | --: | --: |",
    ]
    for row in rows:
        times = [f"{row[kind][0]:.2f} ({row[kind][1]:.2f} to {row[kind][2]:.2f})" for kind in KINDS]
        lines.append(
            f"| {row['vocabulary']:,} | {row['batch']} | {times[0]} | {times[1]} "
            f"| {row['shortlist'][0] / row['whole'][0]:.2f} "
            f"| {row['sentence']:,.0f} / {row['request']:,.0f} | {row['foreign']:.2f} |"
        )
    return "\n".join(lines)


def sentence(changes):
    """The result of `compare` as a sentence."""
    bleu, held_out = changes["bleu"], changes["held_out"]
    return (
        f"{changes['run']} ({changes['vocabulary']:,} pieces): {changes['changed']} of "
        f"{changes['lines']:,} translations of val differ; BLEU {bleu['whole']:.2f} without and "
        f"{bleu['shortlist']:.2f} with a shortlist ({changes['signature']}). Of the target tokens "
        f"of held-out pairs of train {held_out['covered']:.2%} are candidates of their source, "
        f"which has {held_out['size']:,.0f} on average."
    )


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())

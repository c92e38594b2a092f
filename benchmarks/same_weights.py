"""Compares a run's SavedModel with CTranslate2: `python -m benchmarks.same_weights`.

    python -m benchmarks.same_weights runs/multi30k --source data/multi30k/test_2016_flickr.en

Both translate the same lines of text with the same float32 weights, the run's beam width and no
length penalty. tfformer runs through the C API, in requests of `--batch` lines. CTranslate2 is used
with SentencePiece and makes its own batches of the same size. Both sort by length. Each has a
separate process for each number of threads, and they take turns.

It prints the seconds for all lines, medians over the rounds, and every line with different
translations, with the log-probability that each system gives its own translation.

Exit codes: 0 measured; 1 an error of the run, the file or the installation; 2 wrong usage;
130 interrupted.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import machine, work
from tfformer.terminal.command import Parser, main_of

SYSTEMS = ("tfformer", "ctranslate2")


def parser():
    """The command's arguments."""
    parser = Parser("benchmarks.same_weights", __doc__)
    parser.add_argument("run", type=Path, help="the run directory")
    parser.add_argument("--source", type=Path, required=True, help="lines to translate")
    parser.add_argument("--batch", type=int, default=32, help="lines at a time; default 32")
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds; default 5")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2], metavar="N")
    return parser


def _run(command, options):
    from export import ctranslate2 as to_ctranslate2
    from export.verification.graph import read_graph
    from tfformer.run import load_translator

    work.require_at_least(command, options, batch=1, rounds=1, threads=1)

    def progress(line):
        print(line, file=sys.stderr)

    try:
        lines = options.source.read_text(encoding="utf-8").rstrip("\n").split("\n")
        translator = load_translator(options.run, length_penalty=0.0)
        with tempfile.TemporaryDirectory() as folder:
            progress("exporting ...")
            translator.save(f"{folder}/tfformer")
            to_ctranslate2.export(options.run, f"{folder}/ctranslate2", progress)
            signature = read_graph(f"{folder}/tfformer").signatures["serving_default"]
            limits = {
                "tensors": {
                    key: info.name
                    for key, info in {**signature.inputs, **signature.outputs}.items()
                },
                "beam_width": translator.beam_width,
                "max_source_length": translator.max_source_length,
                "max_target_length": translator.max_target_length,
            }
            job = {"folder": folder, "lines": lines, "batch": options.batch, **limits}
            times, found = take_turns(job, options.threads, options.rounds, progress)
    except (ImportError, ValueError, OSError, RuntimeError) as error:
        return command.fail(error)
    print(machine.sentence(machine.describe()))
    print(f"{len(lines)} lines, beam {translator.beam_width}, {options.batch} at a time\n")
    for (system, threads), seconds in times.items():
        print(
            f"{system}, {threads} threads: {statistics.median(seconds):.2f} s "
            f"({min(seconds):.2f} to {max(seconds):.2f})"
        )
    compare(lines, *(found[system] for system in SYSTEMS))
    return 0


def take_turns(job, threads, rounds, progress):
    """{(system, threads): seconds of each round} and {system: [(translation, log prob)]}."""
    workers, times, found = {}, {}, {}
    for system in SYSTEMS:
        for count in threads:
            workers[system, count] = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.same_weights", "--worker", system, str(count)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
    try:
        for worker in workers.values():
            print(json.dumps(job), file=worker.stdin, flush=True)
        for number in range(rounds + 1):
            progress(f"round {number} of {rounds} ..." if number else "warming up ...")
            for (system, count), worker in workers.items():
                print("go", file=worker.stdin, flush=True)
                answer = worker.stdout.readline()
                if not answer:
                    raise RuntimeError(f"{system} with {count} threads has ended: see above")
                answer = json.loads(answer)
                found[system] = answer["found"]
                if number:
                    times.setdefault((system, count), []).append(answer["seconds"])
    finally:
        for worker in workers.values():
            worker.kill()
            worker.communicate()
    return times, found


def compare(lines, ours, theirs):
    """Prints the lines that are not translated alike."""
    different = [n for n in range(len(lines)) if ours[n][0] != theirs[n][0]]
    lower = [n for n in different if ours[n][1] < theirs[n][1]]
    print(f"\nalike: {1 - len(different) / len(lines):.2%}; of {len(different)} others tfformer's")
    print(f"log-probability is the lower one in {len(lower)}")
    for n in different:
        print(f"\n{n + 1}: {lines[n]}")
        for system, (text, log_prob) in zip(SYSTEMS, (ours[n], theirs[n]), strict=True):
            print(f"  {system:12} {log_prob:9.4f}  {text}")


def worker(system, threads):
    """The life of a worker: a job, then a pass over all lines for each line of input."""
    job = json.loads(sys.stdin.readline())
    translate = {"tfformer": with_tfformer, "ctranslate2": with_ctranslate2}[system](job, threads)
    for _ in sys.stdin:
        start = time.perf_counter()
        found = translate(job["lines"])
        seconds = time.perf_counter() - start
        print(json.dumps({"seconds": seconds, "found": found}), flush=True)


def with_tfformer(job, threads):
    """Lines -> [(translation, log prob)] through `serving_default` of the SavedModel."""
    import numpy as np

    from export.capi.session import ServingSession

    session = ServingSession(
        Path(job["folder"], "tfformer"), intra_op_threads=1, inter_op_threads=threads
    )
    names = job["tensors"]

    def translate(lines):
        order = sorted(range(len(lines)), key=lambda n: len(lines[n]))
        found = [None] * len(lines)
        for start in range(0, len(order), job["batch"]):
            chosen = order[start : start + job["batch"]]
            texts = np.array([lines[n].encode() for n in chosen], object)
            answers = session.run({names["text"]: texts}, [names["translation"], names["score"]])
            for n, text, score in zip(chosen, *answers, strict=True):
                found[n] = text.decode(), float(score)
        return found

    return translate


def with_ctranslate2(job, threads):
    """Lines -> [(translation, log prob)] through CTranslate2 between two SentencePiece models."""
    import ctranslate2
    import sentencepiece  # as its users do: here the models are the peer's own

    folder = Path(job["folder"], "ctranslate2")
    source = sentencepiece.SentencePieceProcessor(model_file=str(folder / "source.model"))
    target = folder / "target.model"
    target = sentencepiece.SentencePieceProcessor(
        model_file=str(target if target.exists() else folder / "source.model")
    )
    translator = ctranslate2.Translator(
        str(folder), compute_type="float32", inter_threads=1, intra_threads=threads
    )

    def translate(lines):
        results = translator.translate_batch(
            source.encode(lines, out_type=str),
            max_batch_size=job["batch"],
            beam_size=job["beam_width"],
            length_penalty=0,
            max_input_length=job["max_source_length"],
            max_decoding_length=job["max_target_length"],
            min_decoding_length=0,
            return_scores=True,
        )
        texts = target.decode([result.hypotheses[0] for result in results])
        return [(text, result.scores[0]) for text, result in zip(texts, results, strict=True)]

    return translate


main = main_of(parser, _run)

if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(sys.argv[2], int(sys.argv[3]))
    else:
        sys.exit(main())

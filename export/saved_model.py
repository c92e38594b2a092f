"""Exports a run: `python -m export.saved_model RUN DIRECTORY`.

    python -m export.saved_model runs/dates exported/dates

It writes the next version into DIRECTORY, where TensorFlow Serving polls, but only after it has
been verified as the server will run it: every signature answers in a fresh process, through the C
API, without Python TensorFlow and with XLA off; the answers are those of the in-process
translator; and both are those of a plain beam search in NumPy over the uncached model. Then one
rename makes it visible, and DIRECTORY/N.report.json says what was checked.

Exit codes: 0 exported; 1 the run or the disk is at fault, or it did not verify: nothing is
published; 2 wrong usage.
"""

import argparse
import os
import shutil
import sys
from pathlib import Path

TOLERANCE = 1e-4
SAMPLES = 5


def parser():
    """The command's arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m export.saved_model",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", type=Path, help="the run directory")
    parser.add_argument("directory", type=Path, help="the base directory of the versions")
    parser.add_argument("--beam-width", type=int, help="of serving_default; default: the run's own")
    parser.add_argument("--length-penalty", type=float, help="likewise")
    return parser


def sample_requests(translator):
    """Requests to every signature: texts of the vocabulary's own pieces, and awkward ones.

    Returns:
        {signature: [{input: value}]}, the same for the same tokenizer.
    """
    import numpy as np

    tokenizer = translator.tokenizer
    texts = [*sample_texts(tokenizer), "", " \u00a0 ", "Grüße, 你好 🎉", "a\x00b\tc"]
    source_ids = tokenizer.encode_source(np.array(texts[:SAMPLES], object)).to_tensor().numpy()
    source_ids = source_ids[:, : translator.max_source_length]
    targets = texts[::-1]
    prefixes = [target.split(" ")[0] for target in targets]
    small = {"beam_width": 2, "length_penalty": 0.0, "max_length": 7}
    narrow = {"seed": 7, "temperature": 0.5, "top_k": 5, "top_p": 0.9}
    return {
        "serving_default": [{"text": texts}, {"text": texts[:1]}],
        "beam_search": [{"text": texts}, {"text": texts, **small}],
        "beam_search_ids": [{"source_ids": source_ids.tolist()}],
        "score": [{"source": texts, "target": targets}],
        "sample": [{"text": texts}, {"text": texts, **narrow}],
        "complete": [{"text": texts, "prefix": prefixes}],
        "align": [{"source": texts, "target": targets}],
    }


def sample_texts(tokenizer):
    """A few texts of one to nine random pieces of the source vocabulary."""
    import numpy as np
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.source_model)
    pieces = [i for i in range(4, processor.vocab_size()) if not processor.is_byte(i)]
    random = np.random.default_rng(0)
    drawn = (random.choice(pieces, 1 + 2 * n) for n in range(SAMPLES))
    return [processor.decode([int(i) for i in ids]) or "a" for ids in drawn]


def compare_in_process(translator, requests, report):
    """Adds to the report whether the served answers are those of the translator here."""
    import tensorflow as tf

    from export.verify import differences

    for name, asked in requests.items():
        function, faults = translator.functions[name], []
        for request, served in zip(asked, report.served[name], strict=True):
            specs = {spec.name: spec.dtype for spec in function.input_signature}
            inputs = {key: tf.constant(value, specs[key]) for key, value in request.items()}
            here = {key: value.numpy() for key, value in function(**inputs).items()}
            faults += differences(served, here)
        report.add(f"in process: {name}", faults, f"{len(asked)} answers")


def compare_reference(translator, requests, report):
    """Adds to the report whether the served beam search is the plain one, sentence by sentence."""
    import numpy as np
    import tensorflow as tf

    from export import reference

    ids = tf.TensorSpec([None, None], tf.int32)
    model = tf.function(
        lambda inputs: translator.model(inputs, training=False),
        input_signature=[{"source_ids": ids, "target_ids": ids}],
        autograph=False,
    )
    served, faults = report.served["beam_search_ids"][0], []
    rows = requests["beam_search_ids"][0]["source_ids"]
    for row, source_ids in enumerate(rows):
        found = reference.beam_search(
            model,
            np.trim_zeros(np.array(source_ids, "int32"), "b"),
            translator.max_target_length,
            translator.beam_width,
            translator.length_penalty,
            translator.length_penalty_form,
        )
        for place, hypothesis in enumerate(found):
            score = reference.score(
                hypothesis, translator.length_penalty, translator.length_penalty_form
            )
            gap = abs(score - float(served["scores"][row, place]))
            if gap > TOLERANCE * max(1, abs(score)):
                faults.append(f"the score of sentence {row}, place {place} differs by {gap:.2g}")
        tokens = tuple(served["token_ids"][row, 0, : served["lengths"][row, 0]].tolist())
        if tokens != found[0].tokens:
            faults.append(f"sentence {row} is {tokens}, by the reference {found[0].tokens}")
    report.add("plain beam search in NumPy", faults, f"{len(rows)} sentences")


def export(run, directory, progress=print, **options):
    """Writes and verifies the next version.

    Args:
        run: a run directory.
        directory: the base directory of the versions; made if missing.
        progress: called with a line for each step.
        options: of the `Translator`, in place of the run's own.

    Returns:
        (the directory of the version or None, the report). None when it did not verify: then
        nothing is published.

    Raises:
        RunError, OSError.
    """
    from export.verify import verify, write_json
    from tfformer.run import load_translator

    directory = Path(directory)
    translator = load_translator(run, **options)
    directory.mkdir(parents=True, exist_ok=True)
    # TensorFlow Serving looks only at folders whose name is a number.
    partial = directory / f"partial-{os.getpid()}"
    try:
        progress("writing the SavedModel ...")
        translator.save(str(partial))
        requests = sample_requests(translator)
        report = verify(partial, requests, lambda line: progress(f"{line} ..."))
        if report.passed:
            progress("comparing with the in-process translator ...")
            compare_in_process(translator, requests, report)
            progress("comparing with a plain beam search in NumPy ...")
            compare_reference(translator, requests, report)
        if not report.passed:
            return None, report
        sync(partial)
        version = publish(partial, directory)
        report.directory = str(version)
        write_json(directory / f"{version.name}.report.json", report.to_dict())
        return version, report
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def sync(directory):
    """Everything below `directory` onto the disk, before a rename makes it visible."""
    for path in [*directory.rglob("*"), directory]:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def publish(partial, directory):
    """Renames `partial` to the next version; another exporter may be a step ahead."""
    while True:
        taken = [int(path.name) for path in directory.iterdir() if path.name.isdigit()]
        version = directory / str(max(taken, default=0) + 1)
        try:
            partial.rename(version)
        except OSError:
            if not version.exists():
                raise
            continue
        return version


def main(arguments=None):
    """The command; returns its exit code."""
    arguments = parser().parse_args(arguments)
    options = {"beam_width": arguments.beam_width, "length_penalty": arguments.length_penalty}
    options = {name: value for name, value in options.items() if value is not None}

    def progress(line):
        print(line, file=sys.stderr)

    try:
        version, report = export(arguments.run, arguments.directory, progress, **options)
    except (ValueError, OSError) as error:
        return _fail(error)

    from export.verify import show

    show(report)
    if version is None:
        faults = [check for check in report.checks if not check.passed]
        return _fail(f"not exported: {faults[0].name}: {faults[0].detail}")
    print(f"exported and verified: {version}")
    return 0


def _fail(error):
    print(f"export.saved_model: error: {error}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())

"""Exports a run: `python -m export.saved_model RUN DIRECTORY`.

    python -m export.saved_model runs/dates exported/dates

It writes the next version into DIRECTORY, where TensorFlow Serving polls, but only after it has
been verified as the server will run it: every signature answers in a fresh process, through the C
API, without Python TensorFlow and with XLA off; the answers are those of the in-process
translator; and what `beam_search_ids` finds for a few sentences is what a plain beam search in
NumPy over the uncached model finds (in bfloat16, which is another model, the report says instead
how many translations differ from float32's; with a shortlist, the plain search has the same
candidates; what XLA compiles is compared with the stock operations). Then one rename makes it
visible, and DIRECTORY/N.report.json says what was checked and measured.

Beside the versions it writes what a deployment needs: README.md of this model, with commands that
work, docker-compose.yml, models.config and monitoring.config. What you change there stays.

With `--xla`, XLA compiles `serving_default` when it is served, and the export is verified with XLA
on. A stock TensorFlow Serving refuses such a request unless it is started with
`--xla_cpu_compilation_enabled`, on a GPU too: this is for a server of your own. The first request
of each shape waits some seconds until it is compiled. The other signatures need no XLA.

Exit codes: 0 exported; 1 the run or the disk is at fault, or it did not verify: nothing is
published; 2 wrong usage; 130 interrupted.
"""

import os
import re
import sys
import tempfile
from pathlib import Path

from export.command import Parser

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

SAMPLES = 5
MAX_LENGTH = 24  # of what the slow search is asked: its time grows with the square
WARMUP_LENGTHS = (4, 16, 64, 256)  # source tokens


def parser():
    """The command's arguments."""
    parser = Parser("export.saved_model", __doc__)
    parser.add_argument("run", type=Path, help="the run directory")
    parser.add_argument("directory", type=Path, help="the base directory of the versions")
    parser.add_argument("--beam-width", type=int, help="of serving_default; default: the run's own")
    parser.add_argument("--length-penalty", type=float, help="likewise")
    parser.add_argument(
        "--min-target-length", type=int, help="tokens at least; default: the run's, else 0"
    )
    parser.add_argument("--max-target-length", type=int, help="tokens at most; default: the run's")
    parser.add_argument("--max-length-factor", type=float, help="target per source token at most")
    parser.add_argument("--coverage-penalty", type=float, help="beta; default: the run's, else 0")
    parser.add_argument("--repetition-penalty", type=float, help="default: the run's, else 1, none")
    parser.add_argument(
        "--no-repeat-ngram", type=int, help="no n tokens twice; default: the run's, else 0"
    )
    parser.add_argument(
        "--dtype",
        choices=["float32", "bfloat16"],
        help="of what is multiplied; bfloat16 is for batches on a processor with AMX, and changes "
        "some translations. Default: float32",
    )
    parser.add_argument("--max-batch-size", type=int, help="rows of a request; default: 256")
    parser.add_argument(
        "--batching",
        action="store_true",
        help="for a server that joins the requests of several clients: only signatures whose "
        "inputs are all texts, and a batching_parameters.txt",
    )
    parser.add_argument(
        "--shortlist",
        type=Path,
        metavar="FILE",
        help="by training.shortlist: search among the candidates of a text alone, which is for "
        "large vocabularies, and changes some translations. Default: among all pieces",
    )
    parser.add_argument(
        "--xla",
        action="store_true",
        help="serving_default compiled by XLA: for a server with --xla_cpu_compilation_enabled; a "
        "stock server refuses it",
    )
    return parser


def warmup_requests(translator):
    """One request for each signature, and for `serving_default` one for each bucket of lengths."""
    requests = sample_requests(translator)
    chosen = {name: asked[:1] for name, asked in requests.items()}
    longest = translator.max_source_length - 1
    buckets = [
        sample_text(translator.tokenizer, size, seed=size)
        for size in sorted({min(size, longest) for size in WARMUP_LENGTHS})
    ]
    together = in_rows({"text": buckets}, translator.max_batch_size)
    chosen["serving_default"] = [{"text": [text]} for text in buckets] + together
    return chosen


def in_rows(request, most):
    """A request as requests of at most `most` rows; a number is said in each of them."""
    rows = max(len(value) for value in request.values() if isinstance(value, list))
    return [
        {
            name: value[start : start + most] if isinstance(value, list) else value
            for name, value in request.items()
        }
        for start in range(0, rows, most)
    ]


def batchable(signatures):
    """The names of those that a server can batch: every input is a string [B]."""
    return [
        name
        for name, function in signatures.items()
        if all(spec.dtype == "string" and spec.shape.rank == 1 for spec in function.input_signature)
    ]


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
    longest = translator.max_target_length
    # What the slow search knows: no rules, whatever the export's own are.
    short = {"max_length": min(MAX_LENGTH, longest), "min_length": 0, "max_length_factor": 0.0}
    short |= {"coverage_penalty": 0.0, "repetition_penalty": 1.0, "no_repeat_ngram": 0}
    small = {"beam_width": 2, "length_penalty": 0.0, "max_length": 7}
    rules = {"min_length": min(3, longest), "max_length_factor": 1.5, "coverage_penalty": 0.2}
    rules |= {"repetition_penalty": 1.3, "no_repeat_ngram": 2}
    narrow = {"seed": 7, "temperature": 0.5, "top_k": 5, "top_p": 0.9}
    requests = {
        "serving_default": [{"text": texts}, {"text": texts[:1]}],
        "translate_document": [{"text": [". ".join(texts), "\n".join(texts), ""]}],
        "beam_search": [{"text": texts}, {"text": texts, **small}, {"text": texts, **rules}],
        "beam_search_ids": [{"source_ids": source_ids.tolist(), **short}],
        "score": [{"source": texts, "target": targets}],
        "sample": [{"text": texts}, {"text": texts, **narrow}],
        "complete": [{"text": texts, "prefix": prefixes}],
        "align": [{"source": texts, "target": targets}],
    }
    most = translator.max_batch_size
    return {
        name: [part for request in asked for part in in_rows(request, most)]
        for name, asked in requests.items()
    }


def sample_texts(tokenizer):
    """A few texts of one to nine random pieces of the source vocabulary."""
    return [sample_text(tokenizer, 1 + 2 * n, seed=n) for n in range(SAMPLES)]


def sample_text(tokenizer, size, seed):
    """A text of so many random pieces of the source vocabulary, the same for the same seed."""
    import numpy as np
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.source_model)
    pieces = [i for i in range(4, processor.vocab_size()) if not processor.is_byte(i)]
    ids = np.random.default_rng(seed).choice(pieces, size)
    return processor.decode([int(i) for i in ids]) or "a"


def answer(translator, name, request):
    """What the translator here answers to a request to a signature: {output: array}."""
    import tensorflow as tf

    function = translator.functions[name]
    specs = {spec.name: spec.dtype for spec in function.input_signature}
    inputs = {key: tf.constant(value, specs[key]) for key, value in request.items()}
    with tf.device("CPU:0"):  # where the served answers come from
        return {key: value.numpy() for key, value in function(**inputs).items()}


def compare_in_process(translator, requests, report):
    """Adds to the report whether the served answers are those of the translator here."""
    from export.verify import differences

    for name, asked in requests.items():
        pairs = zip(asked, report.served[name], strict=True)
        faults = [
            fault
            for request, served in pairs
            for fault in differences(served, answer(translator, name, request))
        ]
        report.add(f"in process: {name}", faults, f"{len(asked)} answers")


def compare_reference(translator, requests, report):
    """Adds to the report whether the served beam search is the plain one, sentence by sentence.

    Where two hypotheses are as good as each other, rounding decides: other tokens are a fault only
    if the plain model scores them otherwise than its own best.
    """
    import numpy as np
    import tensorflow as tf

    from export.verification import reference
    from export.verify import TOLERANCE

    alpha, form = translator.length_penalty, translator.length_penalty_form
    ids = tf.TensorSpec([None, None], tf.int32)
    model = tf.function(
        lambda inputs: translator.model(inputs, training=False),
        input_signature=[{"source_ids": ids, "target_ids": ids}],
        autograph=False,
    )

    def gap(score, expected):
        """How far apart they are; 0 within the tolerance."""
        distance = abs(float(score) - expected)
        return 0 if distance <= TOLERANCE * max(1, abs(expected)) else distance

    asked, faults, whole = requests["beam_search_ids"], [], model
    answers = report.served.get("beam_search_ids")
    if answers is None:  # not exported
        answers = [answer(translator, "beam_search_ids", request) for request in asked]
    rows = [
        (row, source_ids, served, request["max_length"])
        for request, served in zip(asked, answers, strict=True)
        for row, source_ids in enumerate(request["source_ids"])
    ]
    for row, source_ids, served, max_length in rows:
        source_ids = np.trim_zeros(np.array(source_ids, "int32"), "b")
        if translator.shortlist:
            model = reference.restricted(whole, translator.shortlist.allowed(source_ids))
        with tf.device("CPU:0"):
            found = reference.beam_search(
                model, source_ids, max_length, translator.beam_width, alpha, form
            )
        scores = [reference.score(hypothesis, alpha, form) for hypothesis in found]
        for place, score in enumerate(scores):
            if off := gap(served["scores"][row, place], score):
                faults.append(f"the score of sentence {row}, place {place} differs by {off:.2g}")
        tokens = tuple(served["token_ids"][row, 0, : served["lengths"][row, 0]].tolist())
        if tokens != found[0].tokens:
            with tf.device("CPU:0"):
                log_prob = reference.log_prob(model, source_ids, tokens, max_length)
            score = reference.score(reference.Hypothesis(tokens, log_prob), alpha, form)
            if gap(score, scores[0]):
                faults.append(f"sentence {row} is {tokens}, by the reference {found[0].tokens}")
    report.add("plain beam search in NumPy", faults, f"{len(rows)} sentences")


def compare_float32(run, requests, report, options):
    """Adds to the report how many of the sample texts a float32 export translates otherwise."""
    import tensorflow as tf

    from tfformer.run import load_translator

    translator = load_translator(run, **{**options, "dtype": "float32"})
    served, texts = report.served["serving_default"][0], requests["serving_default"][0]["text"]
    with tf.device("CPU:0"):
        here = translator.functions["serving_default"](tf.constant(texts))["translation"].numpy()
    changed = sum(served["translation"] != here)
    report.add("bfloat16", [], f"{changed} of {len(texts)} translations differ from float32's")


def compare_stock(report):
    """Adds to the report whether XLA finds what the stock operations of `beam_search` find."""
    from export.verify import TOLERANCE

    compiled, stock = (report.served[name][0] for name in ("serving_default", "beam_search"))
    faults = [
        f"text {row} is {ours!r}, by stock operations {theirs!r}"
        for row, (ours, theirs, score, expected) in enumerate(
            zip(
                compiled["translation"],
                stock["translations"][:, 0],
                compiled["score"],
                stock["scores"][:, 0],
                strict=True,
            )
        )
        # Of two that are as good as each other, rounding chooses.
        if ours != theirs and abs(score - expected) > TOLERANCE * max(1, abs(expected))
    ]
    report.add("XLA = stock operations", faults, f"{len(compiled['score'])} texts")


def export(run, directory, progress=print, batching=False, **options):
    """Writes and verifies the next version.

    Args:
        run: a run directory.
        directory: the base directory of the versions; made if missing. Its name is the model's.
        progress: called with a line for each step.
        batching: write only the signatures that a server can batch. Default False.
        options: of the `Translator`, in place of the run's own.

    Returns:
        (the directory of the version or None, the report). None when it did not verify: then
        nothing is published.

    Raises:
        UsageError: the directory's name cannot be a model's.
        RunError, OSError, tf.errors.OpError: nothing is published.
    """
    from export.deployment import facts, write_deployment
    from export.verification.graph import UsageError
    from export.verification.warmup import write_warmup
    from export.verify import verify
    from tfformer.run import load_translator, read_config, sync

    directory = Path(directory)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", directory.resolve().name):
        raise UsageError(
            f"directory must have a name of letters, digits, '.', '_' and '-', which the model "
            f"takes, got {directory.resolve().name!r}"
        )
    translator = load_translator(run, **options)
    directory.mkdir(parents=True, exist_ok=True)
    # TensorFlow Serving looks only at folders whose name is a number.
    with tempfile.TemporaryDirectory(
        prefix="partial-", dir=directory, ignore_cleanup_errors=True
    ) as partial:
        model = Path(partial, "model")
        progress("writing the SavedModel ...")
        names = batchable(translator.functions) if batching else list(translator.functions)
        translator.save(str(model), names)
        requests = sample_requests(translator)
        asked = {name: requests[name] for name in names}
        warmup = {name: some for name, some in warmup_requests(translator).items() if name in names}
        write_warmup(model, warmup, translator.functions)
        report = verify(model, asked, lambda line: progress(f"{line} ..."), xla=translator.xla)
        if translator.shortlist:
            report.add("shortlist", [], translator.shortlist.describe())
        if report.passed:
            progress("comparing with the in-process translator ...")
            compare_in_process(translator, asked, report)
            if translator.xla and "beam_search" in asked:
                compare_stock(report)
            if translator.dtype == "bfloat16":
                progress("comparing with float32 ...")
                compare_float32(run, requests, report, options)
            else:
                progress("comparing with a plain beam search in NumPy ...")
                compare_reference(translator, requests, report)
        if not report.passed:
            return None, report
        progress("measuring how long it takes ...")
        texts = read_config(run).get("training", {}).get("examples")
        texts = texts or [sample_text(translator.tokenizer, 16, seed=n) for n in range(32)]
        report.deployment = facts(translator, model, texts)
        sync(*model.rglob("*"), model)
        version = publish(model, report, directory, progress)
        try:
            for line in write_deployment(directory, report.to_dict(), batching, translator.xla):
                progress(f"warning: {line}")
        except OSError as error:  # the model is served by now
            progress(f"warning: {version} is published, but not all that goes with it: {error}")
        return version, report


def publish(model, report, directory, progress):
    """Renames `model` to the next version, and the report after it; returns the version.

    The report is on the disk before anything is visible: a full disk publishes nothing. Another
    exporter may be a step ahead.
    """
    from tfformer.run import sync, write_json

    beside = model.with_name("report.json")
    while True:
        taken = [int(path.name) for path in directory.iterdir() if path.name.isdecimal()]
        version = directory / str(max(taken, default=0) + 1)
        report.directory = str(version)
        write_json(beside, report.to_dict())
        try:
            model.rename(version)
        except OSError:
            if not version.exists():
                raise
            continue
        break
    try:
        beside.replace(directory / f"{version.name}.report.json")
        sync(directory)
    except OSError as error:  # the model is served by now
        progress(f"warning: {version} is published, its report is not safe on the disk: {error}")
    return version


def main(arguments=None):
    """The command; returns its exit code."""
    command = parser()
    return command.run(lambda arguments: _run(command, arguments), arguments)


def _run(command, arguments):
    import tensorflow as tf

    from export.capi.library import ServingError
    from export.verification.graph import UsageError, one_line
    from export.verify import show
    from tfformer.shortlist import Shortlist

    options = {**vars(arguments)}
    del options["run"], options["directory"]
    options = {name: value for name, value in options.items() if value is not None}

    def progress(line):
        print(line, file=sys.stderr)

    try:
        if arguments.shortlist:
            options["shortlist"] = Shortlist.load(arguments.shortlist)
        version, report = export(arguments.run, arguments.directory, progress, **options)
    except UsageError as error:
        return command.fail(error, 2)
    except (ValueError, OSError, ServingError) as error:
        return command.fail(error)
    except tf.errors.OpError as error:
        return command.fail(one_line(error))
    show(report)
    if version is None:
        faults = [check for check in report.checks if not check.passed]
        return command.fail(f"not exported: {faults[0].name}: {faults[0].detail}")
    print(f"exported and verified: {version}")
    if options["xla"]:
        print(
            "A stock TensorFlow Serving refuses its serving_default: start a server of your own "
            "with --xla_cpu_compilation_enabled."
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Exports a run for CTranslate2: `tfformer export-ctranslate2 RUN DIRECTORY`.

    tfformer export-ctranslate2 runs/dates exported/dates-ctranslate2

`ctranslate2.Translator(DIRECTORY)` loads the result: the run's weights in float32, the pieces in
the order of their ids, and the SentencePiece models `source.model` and, if it differs,
`target.model`. It needs neither TensorFlow nor tfformer:

    pieces = sentencepiece.SentencePieceProcessor(model_file="DIRECTORY/source.model")
    translator = ctranslate2.Translator("DIRECTORY")
    [result] = translator.translate_batch([pieces.encode("4 July 2031", out_type=str)], ...)
    pieces.decode(result.hypotheses[0])

Every version of SentencePiece splits a text into the server's pieces. For a vocabulary that was
imported, or learned before its scores were rounded, this is true only before version 0.2.2; the
command prints a warning.

If source or target is a table of pieces, there is `source.pieces` or `target.pieces` instead, with
one piece per line. Then the tokens of a text are its words between spaces.

CTranslate2 adds bos before a target and eos after a source. Its defaults differ from those of a
run. The arguments of `translate_batch` that correspond:

    beam_width W                          beam_size=W (its default is 2)
    length_penalty 0                      length_penalty=0 (its default is 1): a score is log P
    length_penalty alpha, "power"         length_penalty=alpha: its length includes eos
    length_penalty alpha, "gnmt"          none: request several hypotheses with length_penalty=0
                                          and divide their scores by ((5 + length) / 6)^alpha
    max_source_length S                   max_input_length=S
    max_target_length T                   max_decoding_length=T: a text that is cut has no eos
    the first token may be eos            min_decoding_length=0 (its default is 1)
    no answer contains pad or bos         suppress_sequences=[["<pad>"], ["<s>"]], which also
                                          removes them from the softmax

Greedy translations are the same. The beam searches have different rules. In tfformer, a finished
hypothesis keeps its place in the beam, and all hypotheses are ranked by their penalised scores. In
CTranslate2, the next best hypothesis takes its place, and open hypotheses are ranked by log P.
Without a length penalty the results rarely differ.

Sinusoids are written for 1,024 positions, or for the run's limits if they are higher; learned
positions are written as they are. For a longer text CTranslate2 reports an error.

Before DIRECTORY appears, CTranslate2 loads the model. Its log-probabilities for the tokens of
random sentences must be equal to those of the run's model.

Exit codes: 0 exported; 1 an error of the run, the disk or the installation, or different results:
nothing is written; 2 wrong usage; 130 or 143 interrupted.
"""

import sys
from pathlib import Path

from tfformer.terminal.command import Parser, main_of

SINUSOIDS = 1024  # by default, CTranslate2 cuts a source at so many tokens
SENTENCES = 5
OLDER = (
    "the scores of source.model are not rounded: pip install 'sentencepiece<0.2.2', because later "
    "versions split some texts differently from the server"
)


def parser():
    """The command's arguments."""
    parser = Parser("export.ctranslate2", __doc__, reads=["run"], new={"directory": "directory"})
    parser.add_argument("run", type=Path, help="the run directory")
    parser.add_argument("directory", type=Path, help="the model's folder; must not exist yet")
    return parser


def save(spec, tokenizer, directory):
    """Writes the model and the tokenizer's files into `directory`, which exists and is empty."""
    spec.optimize()  # writes a matrix that is used twice only once
    spec.save(str(directory))
    for name, content in tokenizer.files.items():
        directory.joinpath(name).write_bytes(content)


def random_pairs(model, source_size, target_size):
    """Pairs of random ids without eos, as long as the model's positions allow."""
    import numpy as np

    from tfformer.config import EOS

    longest = model.config.longest - 1
    random, pairs = np.random.default_rng(0), []
    for n in range(SENTENCES):
        lengths = min(1 + 3 * n, longest), min(13 - 2 * n, longest)
        sides = zip(lengths, (source_size, target_size), strict=True)
        pairs.append([random.integers(EOS + 1, size, length) for length, size in sides])
    return pairs


def largest_difference(directory, model, tokenizer):
    """The largest difference between the log-probabilities of CTranslate2 and of the model.

    It is over the tokens of random sentences, relative if a log-probability is beyond 1. If the
    numbers of tokens differ, it is inf.
    """
    import ctranslate2
    import numpy as np

    from tfformer.config import BOS, EOS

    from .verification.reference import log_softmax

    source_pieces, target_pieces = tokenizer.pieces("source"), tokenizer.pieces("target")
    pairs = random_pairs(model, len(source_pieces), len(target_pieces))
    translator = ctranslate2.Translator(str(directory), device="cpu", compute_type="float32")
    results = translator.score_batch(
        [[source_pieces[id] for id in source] for source, _ in pairs],
        [[target_pieces[id] for id in target] for _, target in pairs],
    )
    differences = []
    for (source, target), result in zip(pairs, results, strict=True):
        source_ids, labels = np.append(source, EOS), np.append(target, EOS)
        inputs = {"source_ids": source_ids[None], "target_ids": np.insert(target, 0, BOS)[None]}
        log_probs = log_softmax(np.asarray(model(inputs, training=False), "float64")[0])
        expected = log_probs[np.arange(len(labels)), labels]
        if len(result.log_probs) != len(expected):
            return np.inf
        distance = np.abs(np.subtract(result.log_probs, expected))
        differences.append((distance / np.maximum(1, np.abs(expected))).max())
    return float(np.max(differences))  # NaN stays NaN


def export(run, directory, progress=print):
    """Writes the model's folder, which must not exist. The model is compared before that.

    Returns:
        Whether every version of SentencePiece splits a source into the server's pieces.

    Raises:
        ImportError: ctranslate2 is not installed.
        ValueError: the run is not valid (`RunError`), or CTranslate2 does not support its model, or
            its probabilities differ. Nothing is written.
        OSError, RuntimeError: nothing is written.
    """
    try:
        import ctranslate2
    except ImportError as error:
        raise ImportError(
            f"ctranslate2 is needed: pip install 'ctranslate2>=4.8' ({error})"
        ) from error

    import tfformer
    from tfformer.files import sync
    from tfformer.models import ENCODER_DECODER
    from tfformer.run import read_config, require_family, require_new

    from .artifacts.publish import scratch
    from .artifacts.specification import specification
    from .verification.compare import TOLERANCE

    directory = Path(directory)
    require_new("directory", directory)
    progress("reading the run ...")
    config = read_config(run)
    require_family(run, config, ENCODER_DECODER)
    model, tokenizer = tfformer.load(run)
    search = config["search"]
    limits = (search.get(name, 0) for name in ("max_source_length", "max_target_length"))
    spec = specification(model, tokenizer, max(SINUSOIDS, *limits))
    directory.parent.mkdir(parents=True, exist_ok=True)
    with scratch(directory.parent) as partial:
        folder = Path(partial, "model")
        folder.mkdir()
        progress("writing the model ...")
        save(spec, tokenizer, folder)
        progress(f"comparing CTranslate2 {ctranslate2.__version__} with the model ...")
        difference = largest_difference(folder, model, tokenizer)
        if not difference <= TOLERANCE:
            raise ValueError(
                f"not exported: log-probabilities of CTranslate2 {ctranslate2.__version__} must be "
                f"equal to the model's to {TOLERANCE:g}, got a difference of {difference:.2g}"
            )
        sync(*folder.iterdir(), folder)
        folder.rename(directory)
        sync(directory.parent)
    return tokenizer.source.has_exact_scores


def _run(command, arguments):
    from tfformer.terminal.progress_bar import Bar

    try:
        with Bar("exporting", unit="steps") as bar:
            exact = export(arguments.run, arguments.directory, bar.step)
    except (ImportError, ValueError, OSError, RuntimeError) as error:
        return command.fail(error)
    with command.remarks():
        print(f"exported and compared: {arguments.directory}")
        if not exact:
            print(f"warning: {OLDER}")
    return 0


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())

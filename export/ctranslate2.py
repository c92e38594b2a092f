"""Exports a run for CTranslate2: `tfformer export-ctranslate2 RUN DIRECTORY`.

    tfformer export-ctranslate2 runs/dates exported/dates-ctranslate2

DIRECTORY then holds what `ctranslate2.Translator(DIRECTORY)` loads: the run's own weights in
float32, the pieces in the order of their ids, and the SentencePiece models, `source.model` and,
where the two sides differ, `target.model`. Neither TensorFlow nor this repository is needed there:

    pieces = sentencepiece.SentencePieceProcessor(model_file="DIRECTORY/source.model")
    translator = ctranslate2.Translator("DIRECTORY")
    [result] = translator.translate_batch([pieces.encode("4 July 2031", out_type=str)], ...)
    pieces.decode(result.hypotheses[0])

The pieces are the server's, with any version of SentencePiece. Of a vocabulary that was imported,
or learned before its scores were rounded, they are with versions before 0.2.2; the command says so.

A side that is a table of pieces has `source.pieces` or `target.pieces` in its place, one a line:
its tokens are what stands between the spaces of a text.

Bos before a target and eos after a source are added by CTranslate2. Its defaults are not those of
a run; what corresponds, in a call of `translate_batch`:

    beam_width W                          beam_size=W (its default is 2)
    length_penalty 0                      length_penalty=0 (its default is 1): a score is log P
    length_penalty alpha, "power"         length_penalty=alpha: its length counts eos too
    length_penalty alpha, "gnmt"          none: divide the scores of several hypotheses, asked for
                                          with length_penalty=0, by ((5 + length) / 6)^alpha
    max_source_length S                   max_input_length=S
    max_target_length T                   max_decoding_length=T: there, what is cut has no eos
    the first token may be eos            min_decoding_length=0 (its default is 1)
    no answer holds pad or bos            suppress_sequences=[["<pad>"], ["<s>"]], which takes them
                                          out of the softmax too

Greedy translations are the same. The two beam searches have their own rules: in tfformer, a
finished hypothesis keeps its place in the beam and all are ranked by their penalised scores; in
CTranslate2, the next best takes its place and open ones are ranked by log P. Without a length
penalty they rarely differ. Sinusoids are written for 1,024 positions, or the run's limits if they
are higher, learned positions as they are; after them CTranslate2 gives an error.

Before DIRECTORY appears, CTranslate2 has loaded it, and has given the tokens of random sentences
the log-probabilities that the model gives them.

Exit codes: 0 exported; 1 the run, the disk or the installation is at fault, or the two do not
agree: nothing is written; 2 wrong usage; 130 or 143 interrupted.
"""

import sys
from pathlib import Path

from tfformer.terminal.command import Parser

SINUSOIDS = 1024  # CTranslate2 cuts a source at as many tokens unless told otherwise
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
    """Writes the model and the tokenizer's files into `directory`, which is there and empty."""
    spec.optimize()  # a matrix that is used twice is written once
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
    """How far the log-probabilities of CTranslate2 are from the model's, relative where those are
    beyond 1, over the tokens of random sentences; inf where it has another number of tokens."""
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
    """Writes the model's folder, which must not exist; it is compared before it is there.

    Returns:
        Whether every version of SentencePiece finds the pieces of a source that the server finds.

    Raises:
        ImportError: ctranslate2 is not installed.
        ValueError: the run is none (`RunError`), or CTranslate2 cannot express its model, or
            gives other probabilities. Nothing is written.
        OSError, RuntimeError: likewise.
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
                f"not exported: log-probabilities by CTranslate2 {ctranslate2.__version__} must be "
                f"the model's to {TOLERANCE:g}, got a difference of {difference:.2g}"
            )
        sync(*folder.iterdir(), folder)
        folder.rename(directory)
        sync(directory.parent)
    return tokenizer.source.has_exact_scores


def main(arguments=None):
    """The command; returns its exit code."""
    command = parser()
    return command.run(lambda arguments: _run(command, arguments), arguments)


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


if __name__ == "__main__":
    sys.exit(main())

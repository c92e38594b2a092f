"""Prepares a corpus for a machine without TensorFlow: `python -m benchmarks.on_jax.pack`.

    python -m benchmarks.on_jax.pack runs/multi30k --out multi30k.npz
    python -m benchmarks.on_jax.pack runs/multi30k --source data/diverse/source.txt \\
        --target data/diverse/target.txt --out diverse.npz

The run is a translator that was begun; it need not be trained. The file gets its vocabulary, the
sizes of its model, the settings of its recipe, and the texts of its corpora. Other training texts
may replace its own.

Exit codes: 0 written; 1 an error of the run or a file; 2 wrong usage; 130 or 143 interrupted.
"""

import io
import json
import sys
from pathlib import Path

import numpy as np

from tfformer.terminal.command import Parser, main_of
from training.recipe.families import TRANSLATION

# Settings of which `benchmarks.on_jax.train` supports only one value.
ONE_WAY = {
    "task": TRANSLATION,
    "optimizer": "muon",
    "warmup": True,
    "vocabulary_kind": ("unigram", "bpe"),
    "word_dropout": 0.0,
    "both_ways": 0,
    "objective": "cross-entropy",
    "scheduled_sampling": 0.0,
    "guided_attention": 0.0,
    "reward": "none",
    "r_drop": 0.0,
    "freeze": "",
}
MAX_IDS = 2**15  # of int16


def parser():
    """The command's arguments."""
    parser = Parser("benchmarks.on_jax.pack", __doc__)
    parser.add_argument("run", type=Path, help="a run directory, of a training that was begun")
    parser.add_argument("--source", type=Path, help="a text file, in place of its own corpus")
    parser.add_argument("--target", type=Path, help="its translation, line by line")
    parser.add_argument("--out", type=Path, required=True, help="the file, .npz")
    return parser


def pack(run, files=None):
    """The arrays of the file, as bytes: "settings" and "tokenizer"; for "train" and "val", the
    lines of "-source" and "-target".

    Args:
        run: the run directory.
        files: source and target files that replace the run's training corpus.

    Raises:
        RunError: an error of the run.
        CorpusError, OSError: an error of the files.
        ValueError: the run needs something that `train` does not support.
    """
    from tfformer.text.vocabularies import clean
    from training.data.corpus import Corpus
    from training.data.reader import CorpusReport, read_pairs
    from training.preparation.prepare import PREPARED

    prepared = run / PREPARED
    recipe, task, tokenizer, begun = read_begun(run)
    require_known(recipe, begun, tokenizer)
    settings = {"model": begun.config.to_dict(), "recipe": recipe.settings()}
    found = {"settings": json.dumps(settings).encode()}
    [found["tokenizer"]] = set(tokenizer.files.values())
    for split in ("train", "val"):
        if split == "train" and files:
            report = CorpusReport(unit=task.unit)
            pairs = list(task.clean(read_pairs(*files, report=report), report, recipe))
            report.require_some("the training corpus")
            texts = [pair.source for pair in pairs], [pair.target for pair in pairs]
        else:
            corpus = Corpus(prepared / split)
            texts = corpus.texts(np.arange(len(corpus)))
        for side, lines in zip(("source", "target"), texts, strict=True):
            found[f"{split}-{side}"] = b"\n".join(clean(lines).numpy().tolist())
    return {name: np.frombuffer(content, np.uint8) for name, content in found.items()}


def read_begun(run):
    """Recipe, task, tokenizer and `Beginning` of a run that was begun. Raises RunError."""
    from training.preparation.initialisation import beginning
    from training.preparation.prepare import PREPARED, read_settings, read_tokenizer
    from training.recipe import Recipe
    from training.tasks import TASKS

    recipe, prepared = read_settings(run, Recipe()), run / PREPARED
    task, tokenizer = TASKS[recipe.task], read_tokenizer(prepared)
    return recipe, task, tokenizer, beginning(prepared, task, recipe, tokenizer)


def require_known(recipe, begun, tokenizer):
    """Raises a ValueError if a run needs something that `benchmarks.on_jax.train` does not
    support."""
    for name, known in ONE_WAY.items():
        known = known if isinstance(known, tuple) else (known,)
        if (value := getattr(recipe, name)) not in known:
            raise ValueError(f"{name} must be {' or '.join(map(repr, known))}, got {value!r}")
    if not isinstance(recipe.batch_tokens, int):
        raise ValueError(f"batch_tokens must be a number, got {recipe.batch_tokens!r}")
    if begun.weights is not None:
        raise ValueError("the run must begin with random weights, got one with --init")
    config = begun.config
    if not config.source_eos or config.normalization == "batch":
        raise ValueError("the model must see the source's eos and have no batch normalization")
    if not tokenizer.is_shared or not all(name.endswith(".model") for name in tokenizer.files):
        raise ValueError("both sides must have one SentencePiece model")
    if config.target_vocabulary_size > MAX_IDS:
        raise ValueError(
            f"the vocabulary must have at most {MAX_IDS:,} ids, got "
            f"{config.target_vocabulary_size:,}"
        )


def _run(command, options):
    files = [options.source, options.target]
    if any(files) and not all(files):
        return command.fail("--source and --target come together", 2)

    from tfformer.files import write_atomically

    try:
        content = io.BytesIO()
        np.savez_compressed(content, **pack(options.run, files if all(files) else None))
        write_atomically(options.out, content.getvalue())
    except (ValueError, OSError) as error:
        return command.fail(error)
    print(f"{options.out}: written", file=sys.stderr)
    return 0


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())

"""Prepares studies for a machine without TensorFlow: `python -m benchmarks.on_jax.pack_studies`.

    python -m benchmarks.on_jax.pack_studies recurrent norms --data data/multi30k --out studies.npz

A study is a file of `benchmarks/learning/methods`, see `benchmarks.learning.study`. The file gets
the corpora as ids, their vocabularies, and the sizes and settings of each row. A row of several
studies is there once. Rows that `benchmarks.on_jax.train_studies` cannot train are left out.

Exit codes: 0 written; 1 an error of a corpus or a file; 2 wrong usage; 130 or 143 interrupted.
"""

import io
import json
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.learning import methods
from benchmarks.learning.study import Study
from tfformer.terminal.command import Parser, main_of
from training.recipe.families import FAMILY_TASKS

FOLDER = Path(methods.__file__).parent
# Settings for which only these values can be trained on JAX.
KNOWN = {
    "task": (FAMILY_TASKS["transformer"], FAMILY_TASKS["recurrent"]),
    "optimizer": ("adam", "muon"),
    "subword_sampling": (0.0,),
    "word_dropout": (0.0,),
    "both_ways": (0,),
    "reward": ("none",),
    "r_drop": (0.0,),
    "freeze": ("",),
}


def parser():
    """The command's arguments."""
    parser = Parser("benchmarks.on_jax.pack_studies", __doc__)
    parser.add_argument("studies", nargs="+", help="their names, the most important one first")
    parser.add_argument("--data", type=Path, help="a folder of data that the studies name")
    parser.add_argument("--out", type=Path, required=True, help="the file, .npz")
    return parser


def read_studies(options):
    """{name: `Study`} of the options of a command. Raises a ValueError or an OSError."""
    return {n: Study(FOLDER / f"{n}.toml", Path(), options.data) for n in options.studies}


def pack(studies, say):
    """The arrays of the file. `say` is called with a line.

    "rows" is JSON, a list of dicts: "rows", the names of study and row; "corpus"; "settings", those
    of `Models` with "greedy", whether each epoch is searched; and "shares" for scheduled sampling.
    Each corpus has "CORPUS/tokenizer", and "CORPUS/train" and "CORPUS/val" as in `Corpus.ids`.

    Args:
        studies: {name: `Study`}.

    Raises:
        ValueError, OSError: an error of a study or its corpus.
    """
    from training.recipe import VOCABULARY
    from training.tasks import TASKS

    arrays, tokenizers, vocabularies, rows = {}, {}, {}, {}
    for study, content in studies.items():
        for row, words in content.rows.items():
            options, recipe = read_words(words)
            if why := fault(options, recipe):
                say(f"left out: {study}, {row}: {why}")
                continue
            corpus = Path(options.recipe).stem
            vocabulary = {name: getattr(recipe, name) for name in VOCABULARY}
            if vocabularies.setdefault(corpus, vocabulary) != vocabulary:
                say(f"left out: {study}, {row}: it needs a vocabulary of its own")
                continue
            if corpus not in tokenizers:
                found, tokenizers[corpus] = prepared(recipe, options.data, say)
                arrays |= {f"{corpus}/{name}": array for name, array in found.items()}
            task, tokenizer = TASKS[recipe.task], tokenizers[corpus]
            sizes = tokenizer.source_vocabulary_size, tokenizer.target_vocabulary_size
            config = task.configuration(recipe, *sizes, tokenizer.is_shared)
            settings = {
                "family": task.family,
                "model": config.to_dict(),
                "recipe": recipe.settings(),
                "greedy": "epochs_to_99" in content.figures,
            }
            made = {"rows": [], "corpus": corpus, "settings": settings}
            if recipe.scheduled_sampling:
                made["shares"] = shares(recipe, arrays[f"{corpus}/train"])
            key = json.dumps([corpus, settings], sort_keys=True)
            rows.setdefault(key, made)["rows"].append([study, row])
    arrays["rows"] = np.frombuffer(json.dumps([*rows.values()]).encode(), np.uint8)
    return arrays


def read_words(words):
    """The options and the `Recipe` of these arguments of `training.train`."""
    from training.command_line.options import read_recipe
    from training.train import parser

    options = parser().parse_args(words)
    return options, read_recipe(options)


def fault(options, recipe):
    """Why a row cannot be trained on JAX, or None."""
    from training.command_line.arguments import RUNS

    for name, known in KNOWN.items():
        if (value := getattr(recipe, name)) not in known:
            return f"{name} must be {' or '.join(map(repr, known))}, got {value!r}"
    given = [name for name in RUNS if getattr(options, name)]
    return f"it needs another run, {given[0]}" if given else None


def prepared(recipe, data, say):
    """The arrays of a corpus, and its tokenizer."""
    from training.data.corpus import Corpus
    from training.preparation.prepare import prepare, read_tokenizer

    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder) / "prepared"
        prepare(folder, recipe, data, say)
        tokenizer, corpus = read_tokenizer(folder), Corpus(folder / "train")
        train = ids(tokenizer, *corpus.texts(slice(None)))
    # All pairs, because all are scored.
    val = zip(*((pair.source, pair.target) for pair in recipe.read("val", data)), strict=True)
    [model] = set(tokenizer.files.values())
    found = {"train": train, "val": ids(tokenizer, *val)}
    return found | {"tokenizer": np.frombuffer(model, np.uint8)}, tokenizer


def ids(tokenizer, sources, targets):
    """The ids of texts with eos, padded: int16 [2, 1, N, S]."""
    sides = tokenizer.encode_source(list(sources)), tokenizer.encode_target(list(targets))
    longest = max(int(side.bounding_shape()[1]) for side in sides)
    padded = [side.to_tensor(shape=[None, longest]).numpy() for side in sides]
    return np.stack(padded)[:, None].astype("int16")


def shares(recipe, train):
    """The share of replaced tokens in each step, a list."""
    from benchmarks.on_jax.train_studies import batches_of
    from training.methods.scheduled_sampling import ScheduledSampling

    steps = recipe.epochs * len(batches_of(train, recipe.batch_tokens, [0]))
    share = recipe.scheduled_sampling, recipe.scheduled_sampling_decay
    return ScheduledSampling(*share, "argmax", 2, steps).share_at(np.arange(steps)).numpy().tolist()


def _run(command, options):
    from tfformer.files import write_atomically

    try:
        studies = read_studies(options)
    except (ValueError, OSError) as error:
        return command.fail(error, 2)
    try:
        content = io.BytesIO()
        arrays = pack(studies, lambda line: print(line, file=sys.stderr))
        np.savez_compressed(content, **arrays)
        write_atomically(options.out, content.getvalue())
    except (ValueError, OSError) as error:
        return command.fail(error)
    print(f"{options.out}: written", file=sys.stderr)
    return 0


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())

"""What a training takes over from other runs.

That is a whole run (`--init`), a half of each (`--init-encoder`, `--init-decoder`), or the
vocabulary and the predictions of teachers (`--distill`, `--teachers`).

`init.json` in the prepared folder is the configuration of a model that is initialised from other
runs. `init.npz` has all of its weights; `halves.npz` has those of its halves, and the others are
random.
"""

import dataclasses
from pathlib import Path
from typing import NamedTuple

from tfformer import run
from tfformer.config import NumberedOptions
from tfformer.files import (
    RunError,
    pack,
    read_arrays,
    read_json,
    unpack,
    write_atomically,
    write_json,
)
from tfformer.models import FAMILIES, RECURRENT
from tfformer.text.tokenizer import Tokenizer

from ..recipe.rules import require_positions
from ..tasks import TASKS

# The weights with a row, a column or an element for each piece of the vocabulary.
BY_PIECE = (
    "source_embedding/embeddings",
    "target_embedding/embeddings",
    "output_projection/kernel",
    "output_projection/bias",
)
WHOLE, HALVES, CONFIGURATION = "init.npz", "halves.npz", "init.json"
# The residual connection of self-attention: in a decoder, and in a language model.
IN_A_DECODER, IN_A_LANGUAGE_MODEL = "/self_residual/", "/attention_residual/"
# Options that do not affect the weights.
WITHOUT_WEIGHTS = ("dropout", "attention_dropout", "activation_dropout")


class Runs(NamedTuple):
    """Other runs that a training takes something from, as run directories; None means no run.

    `init` gives its sizes, vocabulary and weights, `encoder` and `decoder` those of one half. A
    `teacher` gives its vocabulary, and its translations as targets. Several `teachers` with one
    vocabulary give it, and a distribution for each token.
    """

    init: Path | None = None
    encoder: Path | None = None
    decoder: Path | None = None
    teacher: Path | None = None
    teachers: tuple | None = None

    @property
    def halves(self):
        """{half: its run} for the halves that are given."""
        given = {"encoder": self.encoder, "decoder": self.decoder}
        return {half: directory for half, directory in given.items() if directory is not None}

    def facts(self):
        """{role: name and weights of a run, a list of these, or None}, for the model card."""
        return {name: _named(given) for name, given in self._asdict().items()}

    @property
    def told_by(self):
        """The teachers, whose vocabulary the training must use."""
        return [directory for directory in (self.teacher, *(self.teachers or ())) if directory]


NO_RUNS = Runs()


def _named(directory):
    if directory is None:
        return None
    if isinstance(directory, list | tuple):
        return [_named(each) for each in directory]
    return {"run": Path(directory).resolve().name, "weights": run.read_config(directory)["weights"]}


def take_over(folder, runs, recipe, side, learn):
    """Writes initial weights from other runs, if any, into `folder`; returns the tokenizer.

    `side` is a function of `"source"` or `"target"` that returns these texts of the corpus; `learn`
    returns the tokenizer of a training without other runs.

    Raises:
        RunError, ValueError: the runs do not match each other or the recipe.
    """
    if runs.init is not None:
        tokenizer = _begin_with(folder, runs.init, recipe, side)
    elif runs.halves:
        tokenizer = _begin_with_halves(folder, runs.halves, recipe, side, learn)
    elif runs.told_by:
        tokenizer = run.load_tokenizer(runs.told_by[0])
    else:
        return learn()
    begins = runs.init is not None or runs.halves
    for directory in runs.told_by:
        if run.load_tokenizer(directory).sha256 != tokenizer.sha256:
            whose = "the run to begin with" if begins else runs.told_by[0]
            raise RunError(f"{directory} must have the vocabulary of {whose}, got another")
    return tokenizer


def _begin_with(folder, init, recipe, side):
    """Writes a run's sizes and weights into `folder`; returns its tokenizer.

    The embedding of a new piece is the mean of the embeddings of the pieces that its text had
    before. A dropout of the recipe replaces the run's, because dropout has no weights.
    """
    # Weights are read from the file: building a model would change the random generators of the
    # run.
    known, old = run.read_config(init), run.load_tokenizer(init)
    task = TASKS[recipe.task]
    run.require_family(init, known, task.family)
    config = read_configuration_of(task, known["model"], Path(init) / "config.json")
    config = dataclasses.replace(
        config, dropout=recipe.model_changes.get("dropout", config.dropout)
    )
    require_positions(config, recipe.max_tokens)
    if recipe.new_pieces and config.one_vocabulary and not old.is_shared:
        raise RunError(
            f"new_pieces must be 0 with {config.one_vocabulary} of {init}, whose source and target "
            f"split texts differently, so their new pieces would differ, got {recipe.new_pieces}"
        )
    weights = unpack(run.read_checked(init, known, known["weights"]))
    tokenizer = old
    if recipe.new_pieces:
        tokenizer = old.extended(side("source"), side("target"), recipe.new_pieces)
        sizes = (tokenizer.source_vocabulary_size, tokenizer.target_vocabulary_size)
        config = dataclasses.replace(
            config, source_vocabulary_size=sizes[0], target_vocabulary_size=sizes[1]
        )
        made_of = {"source": tokenizer.made_of(old, "source")}
        made_of["target"] = tokenizer.made_of(old, "target")
        weights = {name: _longer(name, weight, made_of) for name, weight in weights.items()}
    write_json(folder / CONFIGURATION, config.to_dict())
    write_atomically(folder / WHOLE, pack(weights))
    return tokenizer


def _longer(name, weight, made_of):
    """A weight with a row (or, in the output projection, a column) for each new piece."""
    import numpy as np

    if name not in BY_PIECE:
        return weight
    layer = name.split("/")[0]
    side = "source" if layer == "source_embedding" else "target"
    rows = weight.T if layer == "output_projection" else weight  # for a bias, elements
    new = [rows[ids].mean(axis=0) for ids in made_of[side]]
    rows = np.concatenate([rows, np.array(new, rows.dtype).reshape(-1, *rows.shape[1:])])
    return rows.T if layer == "output_projection" else rows


# Halves.


def _begin_with_halves(folder, halves, recipe, side, learn):
    """Writes sizes and weights of one half, or of both, into `folder`; returns the tokenizer.

    Source and target use the vocabulary of the run that gives their half. If only one half is
    given, the other language uses the same vocabulary, or learns its own with
    `shared_vocabulary=False`, or has a table of labels. Each half brings its embedding, so two runs
    need two embeddings. Cross-attention is random unless both halves come from one run.
    """
    task = TASKS[recipe.task]
    kind = FAMILIES[task.family].configuration
    if wrong := sorted(set(halves) - {getattr(kind, "HALF", half) for half in halves}):
        raise RunError(
            f"--init-{wrong[0]} is for a model that has one, got the family {task.family!r}"
        )
    if task.family == RECURRENT:
        raise RunError(
            "--init-encoder and --init-decoder are for Transformers, got a recurrent model"
        )
    found = {half: _Half(half, directory, kind) for half, directory in halves.items()}
    labels = task.label_table(side("target"))
    tokenizer = _tokenizer(found, recipe, labels, learn)
    sizes = {}
    for half in found.values():
        for name, value in half.sizes().items():
            if sizes.setdefault(name, value) != value:
                raise RunError(
                    f"{name} of both halves must be one, got {sizes[name]!r} of the encoder's run "
                    f"and {value!r} of the decoder's"
                )
    is_one = len({Path(directory).resolve() for directory in halves.values()}) == 1
    changes = dict(recipe.model_changes)
    if len(found) == 2 and not is_one:
        changes.setdefault("tie_embeddings", "target")
    recipe = dataclasses.replace(recipe, model_changes={**changes, **sizes}, profile="none")
    vocabularies = tokenizer.source_vocabulary_size, tokenizer.target_vocabulary_size
    config = task.configuration(recipe, *vocabularies, tokenizer.is_shared)
    if len(found) == 2 and not is_one and config.shares_embeddings:
        raise RunError(
            "tie_embeddings must be 'target' or 'none' with halves of two runs, which have two "
            f"embeddings, got {config.tie_embeddings!r}"
        )
    require_positions(config, recipe.max_tokens)
    weights = {}
    for half in found.values():
        weights |= half.weights(config, with_cross_attention=is_one and len(found) == 2)
    write_json(folder / CONFIGURATION, config.to_dict())
    write_atomically(folder / HALVES, pack(weights))
    return tokenizer


def _tokenizer(halves, recipe, labels, learn):
    """The tokenizer of a model with these halves; `labels` is its target side, or None."""
    sides = {half.into: half.vocabulary for half in halves.values()}
    if labels is not None:
        sides["target"] = labels
    elif len(sides) == 1 and not recipe.shared_vocabulary:
        learned = learn()
        sides = {"source": learned.source, "target": learned.target, **sides}
    source = sides.get("source") or sides["target"]
    return Tokenizer(source, sides.get("target") or source)


class _Half:
    """The encoder or the decoder of a run, for a model whose configuration is of class `kind`."""

    def __init__(self, half, directory, kind):
        self.half, self.directory = half, directory
        self.side = "source" if half == "encoder" else "target"
        # A model with one stack uses the source side of the tokenizer.
        self.alone = hasattr(kind, "HALF")
        self.into = "source" if self.alone else self.side
        self.known = run.read_config(directory)
        self.family = run.read_family(directory, self.known)
        path = Path(directory) / "config.json"
        self.config = read_configuration_of(FAMILIES[self.family], self.known["model"], path)
        self.has_two = hasattr(self.config, "num_encoder_layers")
        if self.family == RECURRENT:
            raise RunError(f"{directory} is a run of the family {self.family!r}: it has no halves")
        if half == "decoder" and getattr(self.config, "share_halves", False):
            raise RunError(
                f"{directory} has no decoder of its own, but its encoder's layers: share_halves is "
                "True"
            )
        self._weights = unpack(run.read_checked(directory, self.known, self.known["weights"]))
        if not any(name.startswith(f"{half}/") for name in self._weights):
            raise RunError(f"{directory} is a run of the family {self.family!r}: it has no {half}")
        tokenizer = run.load_tokenizer(directory)
        self.vocabulary = getattr(tokenizer, self.side if self.has_two else "source")

    def sizes(self):
        """The options that determine its weights, by name."""
        options = dataclasses.fields(NumberedOptions)
        found = {f.name: getattr(self.config, f.name) for f in options}
        layers = f"num_{self.half}_layers"
        number = getattr(self.config, layers if self.has_two else "num_layers")
        found["num_layers" if self.alone else layers] = number
        if getattr(self.config, "add_bos", False):
            if self.alone:
                found["add_bos"] = True  # the positions count from bos
            else:
                found["max_positions"] -= 1  # a source has no bos
        return {name: value for name, value in found.items() if name not in WITHOUT_WEIGHTS}

    def weights(self, config, with_cross_attention):
        """Its weights, by their names in a model with this configuration."""
        found = {}
        for name, weight in self._weights.items():
            if name.startswith(f"{self.half}/") and ("/cross_" not in name or with_cross_attention):
                found[self._named(name)] = weight
        side = "" if self.alone else f"{self.side}_"
        shared = not self.alone and config.shares_embeddings
        found[f"{'target_' if shared else side}embedding/embeddings"] = self._of_side("embedding")
        if config.positions == "learned":
            found[f"{side}positions/embeddings"] = self._positions(config, found)
        for part in ("gamma", "beta", "moving_mean", "moving_variance"):
            name = f"embedding_norm/{part}"
            own = f"{self.side}_{name}" if self.has_two else name
            if own in self._weights:
                found[f"{side}{name}"] = self._weights[own]
        kernel, bias = "output_projection/kernel", "output_projection/bias"
        untied = getattr(config, "tie_embeddings", "all") in ("none", "embeddings")
        if self.half == "decoder" and untied and kernel in self._weights:
            found[kernel] = self._weights[kernel]
        if self.half == "decoder" and getattr(config, "output_bias", False):
            if bias in self._weights:
                found[bias] = self._weights[bias]
        return found

    def _positions(self, config, found):
        """The table of positions, with the type of all tokens unless the new model has types."""
        positions = self._of_side("positions")
        if getattr(self.config, "add_bos", False) and not self.alone:
            positions = positions[1:]  # the first one is that of bos
        types = self._weights.get("token_types/embeddings")
        if types is None:
            return positions
        if getattr(config, "token_types", False):
            found["token_types/embeddings"] = types
            return positions
        return positions + types[0]

    def _named(self, name):
        """The name of a weight of the half in the new model. A language model is a decoder with the
        layers of an encoder."""
        if self.half == "encoder" or self.alone != self.has_two:
            return name
        renamed = (IN_A_DECODER, IN_A_LANGUAGE_MODEL)
        return name.replace(*(renamed if self.alone else renamed[::-1]))

    def _of_side(self, what):
        """The embedding, or the positions, of its source or target side."""
        names = [f"{self.side}_{what}", f"target_{what}"] if self.has_two else [what]
        return next(
            self._weights[n] for name in names if (n := f"{name}/embeddings") in self._weights
        )


# Reading what was written.


class Beginning(NamedTuple):
    """The initial model of a training: its configuration, and its weights by name or None.

    `partly`: `weights` has only some of the weights, and the others are random.
    """

    config: object
    weights: dict | None = None
    partly: bool = False


def beginning(prepared, task, recipe, tokenizer):
    """The `Beginning` of a training: from its prepared folder, or the sizes of its recipe."""
    if (begun := read_init(prepared, task)) is not None:
        return begun
    sizes = (tokenizer.source_vocabulary_size, tokenizer.target_vocabulary_size)
    return Beginning(task.configuration(recipe, *sizes, tokenizer.is_shared))


def read_init(folder, task):
    """The `Beginning` that was taken over from other runs, or None. Raises a RunError."""
    config, partly = read_init_configuration(folder, task), (folder / HALVES).exists()
    if config is None:
        return None
    return Beginning(config, read_arrays(folder / (HALVES if partly else WHOLE)), partly)


def read_init_configuration(folder, task):
    """The configuration of a model initialised from other runs, or None. Raises RunError."""
    path = folder / CONFIGURATION
    return read_configuration_of(task, read_json(path), path) if path.exists() else None


def read_configuration_of(reader, fields, path):
    """The configuration with the fields of a file; `reader` is a task or a family. Raises RunError,
    which names the file."""
    try:
        return reader.read_configuration(fields)
    except (TypeError, ValueError) as error:
        raise RunError(f"{path} is damaged: {error}") from error

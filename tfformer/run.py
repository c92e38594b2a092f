"""The run directory: everything that a trained model is; what `config.json` names is checked.

    config.json          format, family, model, search limits, training; the names of the other
                         files with their sha256; without a family it is an encoder-decoder
    source.model         SentencePiece; target.model too, where the two sides differ. A side that
                         is a table of pieces has source.pieces or target.pieces in its place
    weights-<sha>.npz    one array a variable, by its path in the model

`config.json` names the other files by content, and is replaced in one rename: a reader sees the
old run or the new one whole, whatever kills the writer in between.
"""

import concurrent.futures
import functools
import hashlib
import os
import random
from pathlib import Path

import keras
import numpy as np
from keras import ops

from tfformer.files import (
    RunError,
    hidden_file,
    is_file_name,
    publish,
    read_bytes,
    read_json,
    unpack,
    whole_folder,
    write_atomically,
    write_json,
)
from tfformer.layers.matrices import float_matrix
from tfformer.models import ENCODER_DECODER, FAMILIES, family_of

FORMAT = 1
# The names of the files of a run.
PARTS = r"config\.json|weights-[0-9a-f]{16}\.npz|(source|target)\.[a-z]+"


def variable_name(variable):
    """The path of a variable inside its model: "encoder/layer_0/self_attention/query/kernel"."""
    return variable.path.split("/", 1)[1]


def model_weights(model):
    """The weights of a model by name, as NumPy arrays: those of a model that was never quantized,
    and had no LoRA, and computes the same. See `float_matrix`."""
    weights = {variable_name(v): np.asarray(v).copy() for v in model.weights}
    for layer in model._flatten_layers():
        if layer.quantization_mode is None and not getattr(layer, "lora_enabled", False):
            continue
        own = {v.name: variable_name(v) for v in layer.weights}
        for name in set(own) - {"bias"}:
            del weights[own[name]]
        weights[own["kernel"]] = ops.convert_to_numpy(float_matrix(layer))
    return weights


@functools.lru_cache(maxsize=8)
def _weight_shapes(family, sizes):
    """{name: shape} of the weights of a model, by its family and its configuration."""

    def found():
        with keras.StatelessScope(initialize_variables=False):  # no weight has memory there
            model = FAMILIES[family].model(sizes)
        return {variable_name(v): tuple(v.shape) for v in model.weights}

    state = random.getstate()
    try:  # Keras seeds the initial weights by `random`, whose numbers are the caller's
        # In a thread of its own, with which Keras forgets weights that were never made.
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            return thread.submit(found).result()
    finally:
        random.setstate(state)


def save(directory, model, tokenizer, search=None, training=None, weights=None):
    """Writes a run directory, or replaces the model in one.

    Args:
        directory: made if missing.
        model: of one of `tfformer.models.FAMILIES`, as a `Transformer` is.
        tokenizer: its `Tokenizer`.
        search: keyword arguments of the `Translator`. Default: its own defaults.
        training: anything JSON that is worth remembering of the training.
        weights: arrays by name in place of the model's own, as `model_weights` gives.

    A model that Keras has quantized, or that has LoRA, is saved with float matrices: `load` gives
    a plain model that computes the same.

    Raises:
        RunError: the directory holds a model with another tokenizer; or `load` could not read the
            weights, because the model has others than its configuration says.
        ValueError: the model is of no family, `tokenizer` no `Tokenizer`, or `search` no dict.
        OSError: nothing of what was there before is lost.

    Example:
        >>> tokenizer = Tokenizer.train(["ein Haus", "a house"], vocabulary_size=300)
        >>> size = tokenizer.source_vocabulary_size
        >>> model = Transformer(TransformerConfig.preset("test", size))
        >>> save("runs/house", model, tokenizer, search={"max_target_length": 11})
        >>> sorted(os.listdir("runs/house"))
        ['config.json', 'source.model', 'weights-....npz']
    """
    from tfformer.text.tokenizer import Tokenizer

    family = family_of(model)
    if not isinstance(tokenizer, Tokenizer):
        raise ValueError(f"tokenizer must be a Tokenizer, got {tokenizer!r}")
    if not isinstance(search or {}, dict):
        raise ValueError(f"search must be a dict of options, got {search!r}")
    weights = model_weights(model) if weights is None else weights
    save_weights(directory, family, model.config, weights, tokenizer, search, training)


def save_weights(directory, family, sizes, weights, tokenizer, search=None, training=None):
    """What `save` does, of a model by its family, configuration and weights, arrays by name."""
    directory = Path(directory)
    _check_shapes(_weight_shapes(family, sizes), weights)
    directory.mkdir(parents=True, exist_ok=True)
    if (directory / "config.json").exists():
        _refuse_other_tokenizer(directory, tokenizer)
    with hidden_file(directory, "weights-new.npz") as file:
        np.savez(file, **weights)
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        weights_name = f"weights-{digest[:16]}.npz"
        publish(file, directory / weights_name)
    checksums = {weights_name: digest}
    for name, content in tokenizer.files.items():
        checksums[name] = hashlib.sha256(content).hexdigest()
        path = directory / name
        if not path.exists() or path.read_bytes() != content:
            write_atomically(path, content)
    config = {
        "format": FORMAT,
        **({"family": family} if family != ENCODER_DECODER else {}),
        "model": sizes.to_dict(),
        "search": search or {},
        "weights": weights_name,
        "sha256": checksums,
        "training": training or {},
    }
    write_json(directory / "config.json", config)
    for path in directory.glob("weights-*.npz"):
        if path.name != weights_name:
            path.unlink()


def _refuse_other_tokenizer(directory, tokenizer):
    """A run keeps its tokenizer: the files of two cannot be exchanged in one rename."""
    from tfformer.text.tokenizer import FILES

    expected, files = read_config(directory)["sha256"], tokenizer.files
    for name in FILES:
        received = hashlib.sha256(files[name]).hexdigest() if name in files else None
        if expected.get(name) != received:
            raise RunError(
                f"{directory} holds a model with another {name}: choose another directory"
            )


def require_new(name, directory):
    """Raises FileExistsError if there is something at a directory, the argument of this name."""
    if os.path.lexists(directory):
        raise FileExistsError(f"{name} must not exist yet, got {directory}")


def save_new(directory, *run, write=save):
    """A run directory that is not there yet, whole or not at all. What processes that were killed
    here have left beside it is removed.

    Args:
        directory: its path.
        *run: the rest of what `write` takes.
        write: `save` (default) or `save_weights`.

    Raises:
        FileExistsError: there is something by that name.
        RunError, ValueError, OSError: see `save`.
    """
    directory = Path(directory)
    require_new("directory", directory)
    directory.parent.mkdir(parents=True, exist_ok=True)
    with whole_folder(directory, PARTS) as partial:
        write(partial, *run)


def read_config(directory):
    """The parsed `config.json` of a run directory.

    Raises:
        RunError: there is none, it is no JSON, incomplete, or of a format that this version does
            not know.
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise RunError(f"{directory} is no directory")
    try:
        config = read_json(directory / "config.json")
    except FileNotFoundError as error:
        raise RunError(f"{directory} is no run directory: it has no config.json") from error
    if config.get("format") != FORMAT:
        found = config.get("format")
        raise RunError(f"{directory / 'config.json'} must be of format {FORMAT}, got {found!r}")
    for name, kind in (("model", dict), ("search", dict), ("weights", str), ("sha256", dict)):
        if not isinstance(config.get(name), kind):
            raise RunError(f"{directory / 'config.json'} is damaged: it has no {name!r}")
    for name in (config["weights"], *config["sha256"]):
        if not is_file_name(name):
            raise RunError(
                f"{directory / 'config.json'} is damaged: {name!r} must be the name of a file in "
                "the run directory"
            )
    return config


def read_checked(directory, config, name):
    """The bytes of a file of the run, refused unless they are those that `config` names."""
    path = Path(directory) / name
    try:
        content = read_bytes(path)
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}") from error
    expected, received = config["sha256"].get(name), hashlib.sha256(content).hexdigest()
    if received != expected:
        raise RunError(
            f"{path} is damaged or belongs to another run: its sha256 must be {expected}, "
            f"got {received} ({len(content)} bytes)"
        )
    return content


def read_family(directory, config):
    """The name of the family that a run's `config` (of `read_config`) is of.

    Raises:
        RunError: this version knows no such family.
    """
    name = config.get("family", ENCODER_DECODER)
    if not isinstance(name, str) or name not in FAMILIES:
        path = Path(directory) / "config.json"
        raise RunError(f"{path}: family must be one of {list(FAMILIES)}, got {name!r}")
    return name


def require_family(directory, config, *wanted):
    """Raises a RunError unless a run's `config` is of one of the families `wanted`."""
    family = read_family(directory, config)
    if family not in wanted:
        names = " or ".join(repr(name) for name in wanted)
        raise RunError(f"{directory} must be a run of the family {names}, got {family!r}")


def read_sizes(directory, config):
    """The configuration of the model that a run's `config` (of `read_config`) is of.

    Raises:
        RunError: it is none, or of a family that this version does not know.
    """
    family = FAMILIES[read_family(directory, config)]
    try:
        return family.configuration.from_dict(config["model"])
    except (TypeError, ValueError) as error:
        raise RunError(f"{Path(directory) / 'config.json'} is damaged: {error}") from error


def load_model(directory, dtype="float32"):
    """The model of a run directory, without its tokenizer (needs no TensorFlow)."""
    config = read_config(directory)
    sizes = read_sizes(directory, config)
    model = FAMILIES[read_family(directory, config)].model(sizes, dtype=dtype)
    weights = unpack(read_checked(directory, config, config["weights"]))
    try:
        set_weights(model, weights)
    except RunError as error:
        raise RunError(f"{Path(directory) / config['weights']}: {error}") from error
    return model


def set_weights(model, weights, partly=False):
    """Puts arrays by name into a model; every weight, and no other, must be there, or `partly` some
    of them, and the others stay as they are."""
    variables = {variable_name(v): v for v in model.weights}
    if partly:
        variables = {name: v for name, v in variables.items() if name in weights}
    _check_shapes({name: tuple(v.shape) for name, v in variables.items()}, weights)
    for name, variable in variables.items():
        variable.assign(weights[name])


def _check_shapes(shapes, weights):
    """Raises a RunError unless `weights` are arrays of just these names and shapes."""
    if set(shapes) != set(weights):
        missing = sorted(set(shapes) - set(weights)) or sorted(set(weights) - set(shapes))
        raise RunError(f"weights must be the model's own, got a difference at {missing[0]}")
    for name, expected in shapes.items():
        received = np.shape(weights[name])
        if expected != received:
            raise RunError(f"{name} must be of shape {expected}, got {received}")


def load(directory, dtype="float32"):
    """The model and the tokenizer of a run directory.

    Args:
        directory: a run directory.
        dtype: the compute dtype (a Keras dtype policy). Default `"float32"`, in whatever dtype
            the model was trained.

    Returns:
        (model, Tokenizer): a `Transformer`, of an encoder-decoder's run.

    Raises:
        RunError: naming the file and what is wrong with it. A tokenizer that is not the one of
            the weights is refused.
        ValueError: there is no such `dtype`.

    Example:
        >>> tokenizer = Tokenizer.train(["ein Haus", "a house"], vocabulary_size=300)
        >>> size = tokenizer.source_vocabulary_size
        >>> model = Transformer(TransformerConfig.preset("test", size))
        >>> save("runs/house", model, tokenizer)
        >>> model, tokenizer = load("runs/house")
        >>> model.config.target_vocabulary_size == tokenizer.target_vocabulary_size
        True
    """
    return load_model(directory, dtype), load_tokenizer(directory)


def load_tokenizer(directory):
    """The tokenizer of a run directory. Raises RunError, as `load`."""
    from tfformer.text.tokenizer import FILES, Tokenizer

    config = read_config(directory)
    names = [name for name in FILES if name in config["sha256"]]
    files = {name: read_checked(directory, config, name) for name in names}
    try:
        return Tokenizer.from_files(files)
    except ValueError as error:
        raise RunError(f"{directory} has no tokenizer: {error}") from error


def load_service(directory, **options):
    """What serves the model of a run directory, with the run's own options or these.

    Returns:
        A `tfformer.service.service.Service` of the run's family: of an encoder-decoder's run, a
        `Translator`.

    Raises:
        RunError: see `load`.
        ValueError: the family has no such option.
    """
    from tfformer.service.families import SERVICES

    config = read_config(directory)
    family = read_family(directory, config)
    service = SERVICES[family]
    if unknown := service.unknown(options):
        raise ValueError(
            f"{unknown[0]} is no option of the family {family!r}, of which {directory} is a run"
        )
    return service(*load(directory), **service.merged(config["search"], options))


def load_translator(directory, **options):
    """The `Translator` of a run directory with the run's own search limits, or `options`.

    Args:
        directory: a run directory.
        **options: arguments of the `Translator`, in place of those that the run keeps.

    Raises:
        RunError: as `load`; or the model of the run is no encoder-decoder.
        ValueError: there is no such option, or it breaks its rule.

    Example:
        >>> tokenizer = Tokenizer.train(["ein Haus", "a house"], vocabulary_size=300)
        >>> size = tokenizer.source_vocabulary_size
        >>> model = Transformer(TransformerConfig.preset("test", size))
        >>> save("runs/house", model, tokenizer, search={"max_target_length": 11})
        >>> translator = load_translator("runs/house", beam_width=5)
        >>> translator.beam_width, translator.max_target_length
        (5, 11)
    """
    require_family(directory, read_config(directory), ENCODER_DECODER)
    return load_service(directory, **options)

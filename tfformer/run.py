"""The run directory: all files of a trained model, checked against the checksums in `config.json`.

    config.json          format, family, model, search limits, training; the names of the other
                         files with their sha256; without a family it is an encoder-decoder
    source.model         SentencePiece; target.model too, if source and target differ. A table of
                         pieces is stored as source.pieces or target.pieces instead
    weights-<sha>.npz    one array for each variable, by its path in the model

`config.json` names the other files by content, and one rename replaces it. So a reader sees either
the whole old run or the whole new one, even if the writer is killed.
"""

import concurrent.futures
import functools
import hashlib
import os
import random
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
from keras import ops

from tfformer.annotations import StrPath
from tfformer.files import (
    RunError,
    hidden_file,
    is_file_name,
    publish,
    read_bytes,
    read_json,
    unpack,
    whole_folder,
    write_arrays,
    write_atomically,
    write_json,
)
from tfformer.layers.weight_matrices import float_matrix
from tfformer.models import ENCODER_DECODER, FAMILIES, family_of
from tfformer.models.configured import ConfiguredModel

if TYPE_CHECKING:
    from tfformer.service.translator import Translator
    from tfformer.text.tokenizer import Tokenizer

FORMAT = 1
# The names of the files of a run.
PARTS = r"config\.json|weights-[0-9a-f]{16}\.npz|(source|target)\.[a-z]+"


def variable_name(variable):
    """The path of a variable in its model: "encoder/layer_0/self_attention/query/kernel"."""
    return variable.path.split("/", 1)[1]


def model_weights(model):
    """The weights of a model by name, as NumPy arrays. A quantized model, or one with LoRA, gives
    the weights of a plain model that computes the same. See `float_matrix`."""
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
    """{name: shape} of a model's weights, from its family and its configuration."""

    def found():
        with keras.StatelessScope(initialize_variables=False):  # allocates no memory for weights
            model = FAMILIES[family].model(sizes)
        return {variable_name(v): tuple(v.shape) for v in model.weights}

    state = random.getstate()
    try:  # Keras draws seeds from `random`, whose state belongs to the caller
        # In a separate thread: when it ends, Keras forgets these weights that were never made.
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            return thread.submit(found).result()
    finally:
        random.setstate(state)


def save(
    directory: StrPath,
    model: ConfiguredModel,
    tokenizer: "Tokenizer",
    search: dict[str, Any] | None = None,
    training: dict[str, Any] | None = None,
    weights: Mapping[str, np.ndarray] | None = None,
) -> None:
    """Writes a run directory, or replaces the model in one.

    Args:
        directory: created if missing.
        model: of a family in `tfformer.models.FAMILIES`, such as a `Transformer`.
        tokenizer: the model's `Tokenizer`.
        search: keyword arguments of the `Translator`. Default: the defaults of the `Translator`.
        training: facts about the training to keep, as JSON.
        weights: arrays by name to save instead of the model's own, as from `model_weights`.

    A model that Keras has quantized, or that has LoRA, is saved with float matrices. `load` then
    gives a plain model that computes the same.

    Raises:
        RunError: the directory holds a model with another tokenizer; or the weights of the model do
            not match its configuration, so `load` could not read them.
        ValueError: the model belongs to no family, `tokenizer` is not a `Tokenizer`, or `search` is
            not a dict.
        OSError: writing failed; what was there before stays intact.

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
    """As `save`, for a model given by its family, configuration and weights, arrays by name."""
    directory = Path(directory)
    _check_shapes(_weight_shapes(family, sizes), weights)
    directory.mkdir(parents=True, exist_ok=True)
    if (directory / "config.json").exists():
        _refuse_other_tokenizer(directory, tokenizer)
    with hidden_file(directory, "weights-new.npz") as file:
        write_arrays(file, weights)
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
    """A run keeps its tokenizer, because one rename cannot replace the files of two tokenizers."""
    from tfformer.text.tokenizer import FILES

    expected, files = read_config(directory)["sha256"], tokenizer.files
    for name in FILES:
        received = hashlib.sha256(files[name]).hexdigest() if name in files else None
        if expected.get(name) != received:
            raise RunError(
                f"{directory} holds a model with another {name}: choose another directory"
            )


def require_new(name, directory):
    """Raises a FileExistsError if `directory` exists; `name` is that of the argument."""
    if os.path.lexists(directory):
        raise FileExistsError(f"{name} must not exist yet, got {directory}")


def save_new(directory, *run, write=save):
    """Writes a new run directory, whole or not at all. Removes what killed processes have left
    beside it.

    Args:
        directory: the path.
        *run: the other arguments of `write`.
        write: `save` (default) or `save_weights`.

    Raises:
        FileExistsError: the path exists.
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
        RunError: it is missing, is not JSON, is incomplete, or has a format that this version does
            not support.
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
    """The content of a file of the run. Refused if it does not match the sha256 in `config`."""
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
    """The family name in a run's `config` (from `read_config`).

    Raises:
        RunError: this version has no such family.
    """
    name = config.get("family", ENCODER_DECODER)
    if not isinstance(name, str) or name not in FAMILIES:
        path = Path(directory) / "config.json"
        raise RunError(f"{path}: family must be one of {list(FAMILIES)}, got {name!r}")
    return name


def require_family(directory, config, *wanted):
    """Raises a RunError unless the family of a run's `config` is among `wanted`."""
    family = read_family(directory, config)
    if family not in wanted:
        names = " or ".join(repr(name) for name in wanted)
        raise RunError(f"{directory} must be a run of the family {names}, got {family!r}")


def read_sizes(directory, config):
    """The model's configuration in a run's `config` (from `read_config`).

    Raises:
        RunError: it is not valid, or this version has no such family.
    """
    family = FAMILIES[read_family(directory, config)]
    try:
        return family.configuration.from_dict(config["model"])
    except (TypeError, ValueError) as error:
        raise RunError(f"{Path(directory) / 'config.json'} is damaged: {error}") from error


def load_model(directory: StrPath, dtype: str | keras.DTypePolicy = "float32") -> ConfiguredModel:
    """The model of a run directory, without its tokenizer. Needs no TensorFlow."""
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
    """Assigns arrays by name to a model's weights. The names must match exactly. With `partly` some
    weights may be missing, and keep their values."""
    variables = {variable_name(v): v for v in model.weights}
    if partly:
        variables = {name: v for name, v in variables.items() if name in weights}
    _check_shapes({name: tuple(v.shape) for name, v in variables.items()}, weights)
    for name, variable in variables.items():
        variable.assign(weights[name])


def _check_shapes(shapes, weights):
    """Raises a RunError unless `weights` has exactly these names and shapes."""
    if set(shapes) != set(weights):
        missing = sorted(set(shapes) - set(weights)) or sorted(set(weights) - set(shapes))
        raise RunError(f"weights must be the model's own, got a difference at {missing[0]}")
    for name, expected in shapes.items():
        received = np.shape(weights[name])
        if expected != received:
            raise RunError(f"{name} must be of shape {expected}, got {received}")


def load(
    directory: StrPath, dtype: str | keras.DTypePolicy = "float32"
) -> tuple[ConfiguredModel, "Tokenizer"]:
    """The model and the tokenizer of a run directory.

    Args:
        directory: a run directory.
        dtype: the compute dtype (a Keras dtype policy). Default `"float32"`, whatever dtype the
            training used.

    Returns:
        (model, Tokenizer). For an encoder-decoder's run the model is a `Transformer`.

    Raises:
        RunError: a file is missing or damaged, or the tokenizer is not that of the weights. The
            message names the file and the problem.
        ValueError: the `dtype` is unknown.

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


def load_tokenizer(directory: StrPath) -> "Tokenizer":
    """The tokenizer of a run directory. Raises a RunError, as `load`."""
    from tfformer.text.tokenizer import FILES, Tokenizer

    config = read_config(directory)
    names = [name for name in FILES if name in config["sha256"]]
    files = {name: read_checked(directory, config, name) for name in names}
    try:
        return Tokenizer.from_files(files)
    except ValueError as error:
        raise RunError(f"{directory} has no tokenizer: {error}") from error


def load_service(directory: StrPath, **options: Any) -> Any:
    """The service that runs the model of a run directory; `options` replace those of the run.

    Returns:
        A `tfformer.service.service.Service` for the run's family; for an encoder-decoder's run, a
        `Translator`.

    Raises:
        RunError: see `load`.
        ValueError: the family does not have such an option.
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


def load_translator(directory: StrPath, **options: Any) -> "Translator":
    """The `Translator` of a run directory; `options` replace the search limits of the run.

    Args:
        directory: a run directory.
        **options: arguments of the `Translator`, which replace those stored in the run.

    Raises:
        RunError: as `load`; or the run's model is not an encoder-decoder.
        ValueError: an option is unknown or breaks its rule.

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

"""Reads and checks the option files of Hugging Face folders, such as `config.json`.

For encoder-decoders of BART's design, it also converts the options to a configuration.
"""

import json
from pathlib import Path

from tfformer.config import TransformerConfig
from tfformer.files import LONGEST_TEXT, read_bytes

# The whole numbers that every encoder-decoder of BART's design names in its `config.json`.
SIZES = (
    "vocab_size", "d_model", "encoder_layers", "decoder_layers", "encoder_attention_heads",
    "decoder_attention_heads", "encoder_ffn_dim", "decoder_ffn_dim", "max_position_embeddings",
    "pad_token_id", "decoder_start_token_id", "eos_token_id",
)  # fmt: skip
EPSILON = 1e-5  # of PyTorch's LayerNorm
# The activations of Hugging Face by name, and ours.
ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
}


def read_json_object(path):
    """Reads a JSON file that contains an object. Raises a ValueError that names the file."""
    content = read_bytes(path, LONGEST_TEXT)
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path} must be a JSON object, got {type(found).__name__}")
    return found


def require_fixed(found, path, fixed):
    """Raises a ValueError unless options have their only value here.

    `fixed` is {name: (the value, the default of a missing option)}.
    """
    for name, (value, default) in fixed.items():
        if found.get(name, default) != value:
            raise ValueError(f"{path}: {name} must be {value!r}, got {found.get(name)!r}")


def require_whole(found, path, names):
    """Raises a ValueError unless options are integers: of at least 1, or of at least 0 for ids.

    A list of one eos becomes that eos.
    """
    if isinstance(found.get("eos_token_id"), list) and len(found["eos_token_id"]) == 1:
        found["eos_token_id"] = found["eos_token_id"][0]
    for name in names:
        minimum = 0 if name.endswith("_id") else 1
        if type(found.get(name)) is not int or found[name] < minimum:
            rule = f"must be an integer of at least {minimum}"
            raise ValueError(f"{path}: {name} {rule}, got {found.get(name)!r}")


def require_fractions(found, path, names):
    """Raises a ValueError unless options are numbers in [0, 1)."""
    for name in names:
        if type(found[name]) not in (int, float) or not 0 <= found[name] < 1:
            raise ValueError(f"{path}: {name} must be in [0, 1), got {found[name]!r}")


def require_flags(found, path, flags):
    """Adds the defaults of `flags`, {name: default}. A flag that is no boolean is a ValueError."""
    for name, default in flags.items():
        if type(found.setdefault(name, default)) is not bool:
            raise ValueError(f"{path}: {name} must be true or false, got {found[name]!r}")


def activation_of(name, path, option="activation_function"):
    """Our name of an activation. Raises a ValueError if there is none."""
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise ValueError(f"{path}: {option} must be one of {list(ACTIVATIONS)}, got {name!r}")
    return ACTIVATIONS[name]


def configuration(options, tokenizer, tied, **own):
    """Converts the options of an encoder-decoder of BART's design to a `TransformerConfig`.

    `own` are the fields in which one such model differs.
    """
    return TransformerConfig(
        tokenizer.source_vocabulary_size, tokenizer.target_vocabulary_size,
        d_model=options["d_model"], num_heads=options["encoder_attention_heads"],
        d_ff=max(options["encoder_ffn_dim"], options["decoder_ffn_dim"]),
        num_encoder_layers=options["encoder_layers"], num_decoder_layers=options["decoder_layers"],
        dropout=options.get("dropout", 0.1),
        attention_dropout=options.get("attention_dropout", 0.0),
        activation_dropout=options.get("activation_dropout", 0.0),
        activation=ACTIVATIONS[options["activation_function"]],
        epsilon=EPSILON, tie_embeddings=tied, output_bias=True, **own,
    )  # fmt: skip


def require_files(folder, names):
    """Raises a ValueError if one of these files is missing."""
    for name in names:
        if not Path(folder, name).is_file():
            raise ValueError(f"{folder} must have {name}, got none")

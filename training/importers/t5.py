"""Imports T5 models of Hugging Face: T5, Flan-T5, mT5, umT5, MADLAD-400.

The weights are converted once for these differences, so the resulting model needs no options for
them:

- T5's scores are not divided by sqrt(K). Here they are, so W_Q is multiplied by it.
- T5 does not multiply embeddings by sqrt(D). Here they are divided by it. T5 1.0 divides its logits
  by sqrt(D), so there the output layer can still share the matrix.
- The layers of a T5 stack share one table of relative biases. Here each layer gets a copy.
- The pad begins a target, so it becomes our bos. Our pad is new and has probability 0.
"""

from pathlib import Path

from tfformer.config import TransformerConfig

from .generation import read_generation
from .imported import Imported
from .options import (
    activation_of,
    read_json_object,
    require_files,
    require_flags,
    require_fractions,
    require_whole,
)
from .t5_text import FILES, read_text
from .t5_weights import read_weights, require_size
from .weights import Weights

NEEDED = ("config.json",)
OTHERS = (
    *FILES, "generation_config.json", "model-*.safetensors",
)  # fmt: skip
SIZES = (
    "vocab_size", "d_model", "d_kv", "d_ff", "num_layers", "num_decoder_layers", "num_heads",
    "pad_token_id", "decoder_start_token_id", "eos_token_id",
)  # fmt: skip
# Of T5's relative biases: our layers have these.
FIXED = {"relative_attention_num_buckets": 32, "relative_attention_max_distance": 128}
GATED = {"gelu": "geglu", "gelu_new": "geglu", "silu": "swiglu"}
POSITIONS = 512  # the lengths that T5 was trained on, if `n_positions` names no others


def read(folder):
    """Reads a T5 folder of Hugging Face into an `Imported`.

    Raises:
        ValueError: a file is missing or damaged, or an option has no counterpart here.
        OSError: a file cannot be read.
    """
    folder = Path(folder)
    require_files(folder, NEEDED)
    options = _read_options(folder / "config.json")
    generation = read_generation(folder, options, options["n_positions"])
    pad, eos, size = options["pad_token_id"], options["eos_token_id"], options["vocab_size"]
    weights = Weights.of_folder(folder)
    require_size(weights, options)  # before tables of this size are allocated
    tokenizer, numbering, notes = read_text(folder, pad, eos, size)
    tied, found = read_weights(weights, options, numbering, generation.impossible)
    config = TransformerConfig(
        tokenizer.source_vocabulary_size,
        d_model=options["d_model"], num_heads=options["num_heads"], head_size=options["d_kv"],
        d_ff=options["d_ff"], num_encoder_layers=options["num_layers"],
        num_decoder_layers=options["num_decoder_layers"], activation=options["activation"],
        dropout=options["dropout_rate"], attention_dropout=options["dropout_rate"],
        activation_dropout=options["dropout_rate"], norm="pre", normalization="rms",
        epsilon=options["layer_norm_epsilon"], positions="none", attention_positions="relative",
        tie_embeddings=tied, use_bias=False, output_bias=True,
    )  # fmt: skip
    origin = {"system": "T5 of Hugging Face", "file": weights.path.name}
    return Imported(config, found, tokenizer, generation.search, origin, notes)


def _read_options(path):
    """The options of a `config.json`, with the defaults of those that we use."""
    found = read_json_object(path)
    defaults = {"num_decoder_layers": found.get("num_layers"), "dropout_rate": 0.1}
    defaults |= {"layer_norm_epsilon": 1e-6, "feed_forward_proj": "relu", "n_positions": POSITIONS}
    defaults |= {"decoder_start_token_id": found.get("pad_token_id"), **FIXED}
    for name, default in defaults.items():
        if found.get(name) is None:
            found[name] = default
    require_whole(found, path, (*SIZES, "n_positions"))
    for name, value in FIXED.items():
        if found[name] != value:
            raise ValueError(f"{path}: {name} must be {value}, got {found[name]!r}")
    require_fractions(found, path, ("dropout_rate", "layer_norm_epsilon"))
    if found["decoder_start_token_id"] != found["pad_token_id"]:
        raise ValueError(
            f"{path}: decoder_start_token_id must be pad_token_id = {found['pad_token_id']}, got "
            f"{found['decoder_start_token_id']}"
        )
    if not found["pad_token_id"] != found["eos_token_id"] < found["vocab_size"]:
        raise ValueError(
            f"{path}: pad_token_id and eos_token_id must be two ids below vocab_size, got "
            f"{found['pad_token_id']} and {found['eos_token_id']}"
        )
    found["activation"] = _activation(found["feed_forward_proj"], path)
    # T5 1.0 divides the decoder's states by sqrt(D); mT5 never does. In older files, the ties say
    # which one it is.
    require_flags(found, path, {"tie_word_embeddings": True})
    scales = found["tie_word_embeddings"] and found["model_type"] != "mt5"
    require_flags(found, path, {"scale_decoder_outputs": scales})
    return found


def _activation(name, path):
    kind, _, activation = str(name).rpartition("-")
    if kind == "":
        return activation_of(activation, path, "feed_forward_proj")
    if kind == "gated" and activation in GATED:
        return GATED[activation]
    known = [f"gated-{one}" for one in GATED]
    raise ValueError(f"{path}: feed_forward_proj must be ungated or one of {known}, got {name!r}")

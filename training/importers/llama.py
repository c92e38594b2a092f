"""Imports Llama, SmolLM, Qwen2, Qwen3 and Mistral models of Hugging Face.

`decoder_text` reads their tokenizers: byte-level BPE or SentencePiece. The weights are converted
once for these differences, so the resulting model needs no options for them:

- The original rotates feature i of a head together with feature i + K / 2; here, with its
  neighbour. So the features of queries and keys, and of their norms in Qwen3, are reordered.
- If only some layers have biases, as in Qwen2, the others get biases of zeros.
"""

import sys
from pathlib import Path

import numpy as np

from tfformer.config import LanguageModelConfig

from .decoder_options import read_generation
from .decoder_text import FILES, read_text
from .decoder_weights import DecoderWeights, require_table
from .options import (
    activation_of,
    read_json_object,
    require_files,
    require_flags,
    require_fractions,
    require_whole,
)
from .weights import Weights

NEEDED = ("config.json",)
OTHERS = (*FILES, "generation_config.json", "model-*.safetensors", "tokenizer.model")
QWEN_2, QWEN_3, MISTRAL = "qwen2", "qwen3", "mistral"
SIZES = (
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "max_position_embeddings", "head_dim",
)  # fmt: skip
FRACTIONS = {"attention_dropout": 0.0, "rms_norm_eps": 1e-6}
FLAGS = {
    "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False,
    "use_sliding_window": False,
}  # fmt: skip
GATED = {"silu": "swiglu", "gelu_tanh": "geglu"}
TABLE = "model.embed_tokens.weight"
NORM = {"weight": "gamma"}
WINDOW = 4096  # the originals' default
QWEN_3_HEAD = 128  # the same
LARGEST = sys.float_info.max
# Of the rotary positions of Llama 3.1: our layers have these.
LLAMA_3 = {"low_freq_factor": 1, "high_freq_factor": 4}


def read(folder):
    """Reads a folder of these families into an `Imported`.

    Raises:
        ValueError: a file is missing or damaged, or an option has no counterpart here.
        OSError: a file cannot be read.
    """
    folder = Path(folder)
    require_files(folder, NEEDED)
    options = _read_options(folder / "config.json")
    size, width = options["vocab_size"], options["hidden_size"]
    generation = read_generation(folder, options, options["max_position_embeddings"])
    weights = Weights.of_folder(folder)
    require_table(weights, TABLE, options, "hidden_size")
    tokenizer, numbering = read_text(folder, size, generation.special)
    tied, heads = options["tie_word_embeddings"], options["num_attention_heads"]
    config = LanguageModelConfig(
        tokenizer.source_vocabulary_size,
        d_model=width, num_heads=heads, num_layers=options["num_hidden_layers"],
        num_key_value_heads=options["num_key_value_heads"], head_size=options["head_dim"],
        d_ff=options["intermediate_size"], activation=options["activation"], norm="pre",
        normalization="rms", epsilon=options["rms_norm_eps"], dropout=0.0,
        attention_dropout=options["attention_dropout"], positions="none",
        attention_positions="rotary", tie_embeddings="all" if tied else "none", output_bias=True,
        query_key_norm=options["model_type"] == QWEN_3, use_bias=any(_biases(options)),
        **options["rotary"],
    )  # fmt: skip
    reading = DecoderWeights(weights, width, numbering)
    reading.read_norm("model.norm", "decoder/final_norm", NORM)
    # First, because converting the largest matrices takes twice their memory.
    reading.read_tables(TABLE, size, tied, generation.impossible)
    for n in range(options["num_hidden_layers"]):
        _read_layer(reading, f"model.layers.{n}", f"decoder/layer_{n}", options)
    return reading.imported(config, tokenizer, generation.search, options["model_type"])


def _read_options(path):
    """The options of a `config.json`, with the defaults of those that we use."""
    found = read_json_object(path)
    heads = found.get("num_attention_heads")
    if found.get("num_key_value_heads") is None:
        found["num_key_value_heads"] = heads
    if found["model_type"] == QWEN_3:
        found.setdefault("head_dim", QWEN_3_HEAD)
    if found.get("head_dim") is None and type(heads) is int and heads:
        found["head_dim"] = found["hidden_size"] // heads if _divides(found, heads) else None
    for name, default in FRACTIONS.items():
        found.setdefault(name, default)
    require_whole(found, path, SIZES)
    require_fractions(found, path, FRACTIONS)
    require_flags(found, path, FLAGS)
    activation = activation_of(found.get("hidden_act", "silu"), path, "hidden_act")
    if activation not in GATED:
        raise ValueError(f"{path}: hidden_act must be silu or gelu_new, got {found['hidden_act']}")
    found["activation"] = GATED[activation]
    found["rotary"] = _rotary(found, path)
    _require_full_attention(found, path)
    return found


def _divides(found, heads):
    return type(found.get("hidden_size")) is int and found["hidden_size"] % heads == 0


def _rotary(found, path):
    """The options of our rotary positions, from the older or newer form of `config.json`."""
    scaling = found.get("rope_parameters") or found.get("rope_scaling") or {}
    scaling = scaling if isinstance(scaling, dict) else {"rope_type": scaling}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    own = {"rope_theta": scaling.get("rope_theta", found.get("rope_theta", 10000.0))}
    if kind == "llama3":
        own |= {name: scaling.get(name) for name in ("factor", *LLAMA_3)}
    elif kind != "default":
        raise ValueError(f"{path}: rope_type must be default or llama3, got {kind!r:.99}")
    for name, value in own.items():
        if type(value) not in (int, float) or not 1 <= value <= LARGEST:
            raise ValueError(f"{path}: {name} must be a number of at least 1, got {value!r:.99}")
        if value != LLAMA_3.get(name, value):
            raise ValueError(f"{path}: {name} must be {LLAMA_3[name]}, got {value!r}")
    for options in (found, scaling):
        if options.get("partial_rotary_factor") not in (None, 1, 1.0):
            raise ValueError(
                f"{path}: partial_rotary_factor must be 1, got {options['partial_rotary_factor']!r}"
            )
    rotary = {"rotary_base": float(own["rope_theta"])}
    if kind == "llama3":
        length = "original_max_position_embeddings"
        scaling.setdefault(length, found["max_position_embeddings"])
        require_whole(scaling, path, [length])
        rotary |= {"rotary_factor": float(own["factor"]), "rotary_length": scaling[length]}
    return rotary


def _require_full_attention(found, path):
    """Raises a ValueError if a token may not attend to all tokens before it."""
    slides = found["model_type"] == MISTRAL or found["use_sliding_window"]
    window, longest = found.get("sliding_window", WINDOW), found["max_position_embeddings"]
    if slides and window is not None and not (type(window) is int and window >= longest):
        raise ValueError(
            f"{path}: sliding_window must be None, or at least max_position_embeddings = "
            f"{longest}, got {window!r:.99}"
        )
    kinds = found.get("layer_types") or []
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if wrong := [one for one in kinds if one != "full_attention"]:
        raise ValueError(f"{path}: layer_types must be full_attention, got {wrong[0]!r:.99}")


def _biases(options):
    """Whether there are biases: of queries, keys and values; of attention's output; of the
    feed-forward layer."""
    if options["model_type"] == QWEN_2:
        return True, False, False
    return options["attention_bias"], options["attention_bias"], options["mlp_bias"]


def _read_layer(reading, theirs, ours, options):
    width, inner, size = (options[n] for n in ("hidden_size", "intermediate_size", "head_dim"))
    of_queries, of_keys = (
        options[name] * size for name in ("num_attention_heads", "num_key_value_heads")
    )
    biases = _biases(options)
    of_attention, of_output, of_mlp = biases
    pairs = np.arange(size).reshape(2, -1).T.ravel()  # feature i, then i + K / 2
    for their_name, our_name, inputs, outputs, is_biased, is_rotated in (
        ("self_attn.q_proj", "self_attention/query", width, of_queries, of_attention, True),
        ("self_attn.k_proj", "self_attention/key", width, of_keys, of_attention, True),
        ("self_attn.v_proj", "self_attention/value", width, of_keys, of_attention, False),
        ("self_attn.o_proj", "self_attention/output", of_queries, width, of_output, False),
        ("mlp.gate_proj", "feed_forward/inner", width, inner, of_mlp, False),
        ("mlp.up_proj", "feed_forward/gate", width, inner, of_mlp, False),
        ("mlp.down_proj", "feed_forward/outer", inner, width, of_mlp, False),
    ):
        name = f"{theirs}.{their_name}"
        kernel = reading.take(f"{name}.weight", outputs, inputs).T
        bias = np.zeros(outputs, "float32")
        if is_biased:
            bias = reading.take(f"{name}.bias", outputs)
        if is_rotated:
            order = np.add.outer(np.arange(0, outputs, size), pairs).ravel()
            kernel, bias = kernel[:, order], bias[order]
        reading.put(f"{ours}/{our_name}", kernel, bias if any(biases) else None)
    if options["model_type"] == QWEN_3:
        for name in ("query", "key"):
            gain = reading.take(f"{theirs}.self_attn.{name[0]}_norm.weight", size)
            reading.found[f"{ours}/self_attention/{name}_norm/gamma"] = gain[pairs]
    for their_name, our_name in (
        ("input_layernorm", "attention_residual/layer_norm"),
        ("post_attention_layernorm", "feed_forward_residual/layer_norm"),
    ):
        reading.read_norm(f"{theirs}.{their_name}", f"{ours}/{our_name}", NORM)
    reading.weights.pass_over(f"{theirs}.self_attn.rotary_emb.inv_freq")  # in older files

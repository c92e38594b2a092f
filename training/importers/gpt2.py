"""Imports GPT-2 models of Hugging Face.

The weights are converted once for these differences, so the resulting model needs no options for
them:

- One matrix makes queries, keys and values. It is split.
- With `scale_attn_weights` off or `scale_attn_by_inverse_layer_idx`, scores have another scale.
  W_Q is multiplied by it.
- Before each text comes <|endoftext|>, which is also eos. So our bos has its embedding.
"""

from pathlib import Path

from tfformer.config import LanguageModelConfig

from .decoder_options import read_generation
from .decoder_text import FILES, read_text
from .decoder_weights import DecoderWeights, require_table
from .options import (
    activation_of,
    read_json_object,
    require_files,
    require_fixed,
    require_flags,
    require_fractions,
    require_whole,
)
from .weights import Weights

NEEDED = ("config.json",)
OTHERS = (*FILES, "generation_config.json", "model-*.safetensors")
SIZES = {"vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12}
FRACTIONS = {
    "embd_pdrop": 0.1, "resid_pdrop": 0.1, "attn_pdrop": 0.1, "layer_norm_epsilon": 1e-5,
}  # fmt: skip
FLAGS = {
    "scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False,
    "tie_word_embeddings": True,
}  # fmt: skip
NORM = {"weight": "gamma", "bias": "beta"}


def read(folder):
    """Reads a GPT-2 folder of Hugging Face into an `Imported`.

    Raises:
        ValueError: a file is missing or damaged, or an option has no counterpart here.
        OSError: a file cannot be read.
    """
    folder = Path(folder)
    require_files(folder, NEEDED)
    options = _read_options(folder / "config.json")
    size, width = options["vocab_size"], options["n_embd"]
    generation = read_generation(folder, options, options["n_positions"])
    weights = Weights.of_folder(folder)
    prefix = "transformer." if "transformer.wte.weight" in weights else ""
    require_table(weights, f"{prefix}wte.weight", options, "n_embd")
    tokenizer, numbering = read_text(folder, size, generation.special)
    tied = options["tie_word_embeddings"]
    config = LanguageModelConfig(
        tokenizer.source_vocabulary_size,
        d_model=width, num_heads=options["n_head"], num_layers=options["n_layer"],
        d_ff=options["n_inner"], activation=options["activation"], norm="pre",
        epsilon=options["layer_norm_epsilon"], dropout=options["resid_pdrop"],
        attention_dropout=options["attn_pdrop"], positions="learned",
        max_positions=options["n_positions"], tie_embeddings="all" if tied else "none",
        output_bias=True,
    )  # fmt: skip
    reading = DecoderWeights(weights, width, numbering)
    reading.found["positions/embeddings"] = reading.take(
        f"{prefix}wpe.weight", options["n_positions"], width
    )
    for n in range(options["n_layer"]):
        _read_layer(reading, f"{prefix}h.{n}", f"decoder/layer_{n}", options, _scale(options, n))
    reading.read_norm(f"{prefix}ln_f", "decoder/final_norm", NORM)
    reading.read_tables(f"{prefix}wte.weight", size, tied, generation.impossible)
    return reading.imported(config, tokenizer, generation.search, "GPT-2")


def _read_options(path):
    """The options of a `config.json`, with the defaults of those that we use."""
    found = read_json_object(path)
    for name, default in {**SIZES, **FRACTIONS}.items():
        found.setdefault(name, default)
    if found.get("n_inner") is None and type(found["n_embd"]) is int:
        found["n_inner"] = 4 * found["n_embd"]
    require_whole(found, path, (*SIZES, "n_inner"))
    require_fractions(found, path, FRACTIONS)
    require_flags(found, path, FLAGS)
    require_fixed(found, path, {"add_cross_attention": (False, False)})
    if found["n_embd"] % found["n_head"]:
        raise ValueError(
            f"{path}: n_embd must be a multiple of n_head = {found['n_head']}, got "
            f"{found['n_embd']}"
        )
    if found["embd_pdrop"] != found["resid_pdrop"]:
        raise ValueError(
            f"{path}: embd_pdrop must be resid_pdrop = {found['resid_pdrop']}, got "
            f"{found['embd_pdrop']}"
        )
    found["activation"] = activation_of(found.get("activation_function", "gelu_new"), path)
    return found


def _scale(options, n):
    """The scale of the scores in layer n, besides 1 / sqrt(K)."""
    head_size = options["n_embd"] // options["n_head"]
    scale = 1.0 if options["scale_attn_weights"] else head_size**0.5
    return scale / (n + 1) if options["scale_attn_by_inverse_layer_idx"] else scale


def _read_layer(reading, theirs, ours, options, scale):
    width, inner = options["n_embd"], options["n_inner"]
    reading.read_norm(f"{theirs}.ln_1", f"{ours}/attention_residual/layer_norm", NORM)
    reading.read_norm(f"{theirs}.ln_2", f"{ours}/feed_forward_residual/layer_norm", NORM)
    kernel = reading.take(f"{theirs}.attn.c_attn.weight", width, 3 * width)
    bias = reading.take(f"{theirs}.attn.c_attn.bias", 3 * width)
    for n, (name, factor) in enumerate({"query": scale, "key": 1.0, "value": 1.0}.items()):
        own = slice(n * width, (n + 1) * width)
        reading.put(f"{ours}/self_attention/{name}", kernel[:, own] * factor, bias[own] * factor)
    for their_name, our_name, inputs, outputs in (
        ("attn.c_proj", "self_attention/output", width, width),
        ("mlp.c_fc", "feed_forward/inner", width, inner),
        ("mlp.c_proj", "feed_forward/outer", inner, width),
    ):
        kernel = reading.take(f"{theirs}.{their_name}.weight", inputs, outputs)
        bias = reading.take(f"{theirs}.{their_name}.bias", outputs)
        reading.put(f"{ours}/{our_name}", kernel, bias)
    # Masks that older files store.
    reading.weights.pass_over(f"{theirs}.attn.bias", f"{theirs}.attn.masked_bias")

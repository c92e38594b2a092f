"""Converts the weights of a T5 model of Hugging Face to our variables."""

import math

import numpy as np

from tfformer.config import PAD

from .id_mapping import NEVER
from .weights import compact

SHARED, OUTPUT = "shared.weight", "lm_head.weight"
COPIES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
# The parts of a layer, in T5's order: (T5's name, ours, that of the norm before it).
SELF = ("SelfAttention", "self_attention")
ENCODER_LAYER = (
    (*SELF, "attention_residual"),
    ("DenseReluDense", "feed_forward", "feed_forward_residual"),
)
DECODER_LAYER = (
    (*SELF, "self_residual"),
    ("EncDecAttention", "cross_attention", "cross_residual"),
    ("DenseReluDense", "feed_forward", "feed_forward_residual"),
)
BIASES = "relative_attention_bias.weight"


def require_size(weights, options):
    """Raises a ValueError unless the table of embeddings has `vocab_size` rows."""
    name = next((one for one in (SHARED, *COPIES) if one in weights), SHARED)
    rows = (weights.shape(name) or (0,))[0]
    if rows != options["vocab_size"]:
        size = options["vocab_size"]
        raise ValueError(f"vocab_size must be the rows of {name}, {rows}, got {size}")


def read_weights(weights, options, numbering, impossible):
    """How the embeddings are tied, and {our name: array} of the weights.

    The ids `impossible` have probability 0. A weight that is missing, has another shape, is not
    finite or is not used is a ValueError.
    """
    layers = _Layers(weights, options)
    for stack, parts in (("encoder", ENCODER_LAYER), ("decoder", DECODER_LAYER)):
        layers.read_stack(stack, parts)
    tied, tables = _tables(weights, options, numbering)
    if tied == "all" and not options["scale_decoder_outputs"]:
        # Only the output layer reads this norm. It makes up for the division of the table.
        layers.found["decoder/final_norm/gamma"] *= math.sqrt(options["d_model"])
    bias = np.zeros(len(numbering.old), "float32")
    bias[PAD] = NEVER
    bias[np.isin([-1 if old is None else old for old in numbering.old], impossible)] = NEVER
    weights.require_all_taken()
    return tied, {**tables, **layers.found, "output_projection/bias": bias}


def _tables(weights, options, numbering):
    """How the embeddings are tied, and the embedding and the output layer."""
    size, width = options["vocab_size"], options["d_model"]
    scale = math.sqrt(width)
    weights.require_same(SHARED, *COPIES)
    name = next((one for one in (SHARED, *COPIES) if one in weights), SHARED)
    embedding = weights.take(name, size, width)
    weights.pass_over(SHARED, *COPIES)
    output = weights.take(OUTPUT, size, width) if OUTPUT in weights else None
    found = {"target_embedding/embeddings": numbering.rows(embedding) / scale}
    if output is None or np.array_equal(output, embedding):
        return "all", found
    if options["scale_decoder_outputs"]:
        output /= scale
    found["output_projection/kernel"] = numbering.rows(output).T
    return "embeddings", found


class _Layers:
    """Converts the weights of the layers; `found` has them by our names."""

    def __init__(self, weights, options):
        self.weights, self.found = weights, {}
        self.width, self.inner = options["d_model"], options["d_ff"]
        self.num_heads = options["num_heads"]
        self.heads_width = self.num_heads * options["d_kv"]
        self.scale = math.sqrt(options["d_kv"])
        self.gated = options["activation"] in ("geglu", "swiglu")
        self.counts = {"encoder": options["num_layers"], "decoder": options["num_decoder_layers"]}

    def read_stack(self, stack, parts):
        for n in range(self.counts[stack]):
            for m, (part, name, residual) in enumerate(parts):
                theirs, ours = f"{stack}.block.{n}.layer.{m}", f"{stack}/layer_{n}"
                self._norm(f"{theirs}.layer_norm", f"{ours}/{residual}/layer_norm")
                read = self._feed_forward if name == "feed_forward" else self._attention
                read(f"{theirs}.{part}", f"{ours}/{name}")
            own = f"{stack}.block.{n}.layer.0.SelfAttention.{BIASES}"
            if n == 0 or own in self.weights:  # the layers of umT5 have a table each
                table = self.weights.take(own, 32, self.num_heads)
            self.found[f"{stack}/layer_{n}/self_attention/places/table"] = table
        self._norm(f"{stack}.final_layer_norm", f"{stack}/final_norm")
        # Older files have a table that no version of T5 reads.
        self.weights.pass_over(f"decoder.block.0.layer.1.EncDecAttention.{BIASES}")

    def _norm(self, theirs, ours):
        self.found[f"{ours}/gamma"] = self.weights.take(f"{theirs}.weight", self.width)

    def _linear(self, theirs, ours, inputs, outputs, scale=1.0):
        kernel = self.weights.take(f"{theirs}.weight", outputs, inputs).T * scale
        self.found[f"{ours}/kernel"] = compact(kernel)

    def _attention(self, theirs, ours):
        sizes = self.width, self.heads_width
        self._linear(f"{theirs}.q", f"{ours}/query", *sizes, self.scale)
        self._linear(f"{theirs}.k", f"{ours}/key", *sizes)
        self._linear(f"{theirs}.v", f"{ours}/value", *sizes)
        self._linear(f"{theirs}.o", f"{ours}/output", *reversed(sizes))

    def _feed_forward(self, theirs, ours):
        first = {"wi_0": "inner", "wi_1": "gate"} if self.gated else {"wi": "inner"}
        for their_name, name in first.items():
            self._linear(f"{theirs}.{their_name}", f"{ours}/{name}", self.width, self.inner)
        self._linear(f"{theirs}.wo", f"{ours}/outer", self.inner, self.width)

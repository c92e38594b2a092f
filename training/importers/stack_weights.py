"""Converts the weights of an encoder-decoder in the form of Bart to our variables: Marian, M2M100.

These models name their weights alike. They differ in their positions and in their norms.
"""

import math

import numpy as np

from .id_mapping import NEVER
from .weights import compact

# The three embedding tables, and the names of a shared table and of the output bias.
TABLES = {
    "encoder": "model.encoder.embed_tokens.weight",
    "decoder": "model.decoder.embed_tokens.weight",
    "output": "lm_head.weight",
}
SHARED, BIAS = "model.shared.weight", "final_logits_bias"
# The parts of a layer: {theirs: ours}.
PROJECTIONS = {"q_proj": "query", "k_proj": "key", "v_proj": "value"}
ENCODER_LAYER = {
    "self_attn": "self_attention",
    "self_attn_layer_norm": "attention_residual/layer_norm",
    "final_layer_norm": "feed_forward_residual/layer_norm",
}
DECODER_LAYER = {
    "self_attn": "self_attention",
    "self_attn_layer_norm": "self_residual/layer_norm",
    "encoder_attn": "cross_attention",
    "encoder_attn_layer_norm": "cross_residual/layer_norm",
    "final_layer_norm": "feed_forward_residual/layer_norm",
}


def read_stacks(
    weights, options, numberings, impossible, order, final_norm=None, embedding_norm=None
):
    """Which embeddings are tied, and {our name: array} of the embeddings and the layers.

    Args:
        weights: the `Weights` of the file.
        options: those of Marian's `config.json`, by name.
        numberings: those of source and target: one object if they share a vocabulary.
        impossible: their ids with probability 0.
        order: the features between layers in our order, [D].
        final_norm: the name of the norm after the last layer of each stack. Default: there is none.
        embedding_norm: the name of the norm after the embeddings of each stack. Default: none.

    Raises:
        ValueError: a weight is missing, has another shape or is not finite.
    """
    tied, found = _tables(weights, options, numberings, impossible, order)
    layers = _Layers(weights, options, order)
    if embedding_norm:
        for stack, side in (("encoder", "source"), ("decoder", "target")):
            layers.read_norm(f"model.{stack}.{embedding_norm}", f"{side}_embedding_norm")
    found |= layers.read(final_norm)
    if not options["scale_embedding"]:
        _unscale(found, options, tied, final_norm)
    return tied, found


def require_sizes(weights, options):
    """Raises a ValueError if no table of the file has as many rows as the vocabulary sizes."""
    tables = [name for name in (SHARED, *TABLES.values()) if name in weights]
    rows = sorted({weights.shape(name)[0] for name in tables})
    for name in ("vocab_size", "decoder_vocab_size"):
        if options[name] not in rows:
            raise ValueError(f"{name} must be the rows of a table, of {rows}, got {options[name]}")


# The tables of pieces.


def _tables(weights, options, numberings, impossible, order):
    """How the embeddings are tied, and our arrays of them and of the output layer's bias."""
    source_size, target_size = options["vocab_size"], options["decoder_vocab_size"]
    counts = {"encoder": source_size, "decoder": target_size, "output": target_size}
    names = {part: _name(part, weights, options) for part in counts}
    tables = {names[part]: count for part, count in counts.items()}
    width = options["d_model"]
    tables = {name: weights.take(name, n, width)[:, order] for name, n in tables.items()}
    encoder, decoder, output = (tables[name] for name in names.values())
    weights.pass_over(SHARED, *TABLES.values())  # a file may have one matrix under several names
    source, target = numberings
    found = {"target_embedding/embeddings": target.rows(decoder)}
    shared = source is target and np.array_equal(encoder, decoder)
    tied = "all" if shared else "target"
    if not np.array_equal(decoder, output):
        tied = "embeddings" if shared else "none"
        found["output_projection/kernel"] = target.rows(output).T
    if not shared:
        found["source_embedding/embeddings"] = source.rows(encoder)
    # If there is no bias in the file, it is zero.
    bias = weights.take(BIAS, 1, target_size) if BIAS in weights else np.zeros((1, target_size))
    bias = target.rows(bias.astype("float32").T)[:, 0]
    bias[[*target.unknown, *(n for n, old in enumerate(target.old) if old is None)]] = NEVER
    bias[np.isin([-1 if old is None else old for old in target.old], impossible)] = NEVER
    found["output_projection/bias"] = bias
    return tied, found


def _name(part, weights, options):
    """The name of a table in the file: its own, or that of a table it is tied to."""
    names = [TABLES[part]]
    ties, shares = options["tie_word_embeddings"], options["share_encoder_decoder_embeddings"]
    if shares and (ties or part != "output"):
        names += [SHARED, TABLES["decoder"], TABLES["encoder"]]
    if ties and (shares or part != "encoder"):
        names += [TABLES["decoder"], TABLES["output"]]
    if ties:  # without ties, these names may have different matrices
        weights.require_same(*names)
    return next((name for name in names if name in weights), names[0])


def _unscale(found, options, tied, final_norm):
    """Divides embeddings by sqrt(D), because our model multiplies them by it."""
    scale = math.sqrt(options["d_model"])
    for name in ("source_embedding/embeddings", "target_embedding/embeddings"):
        if name in found:
            found[name] = found[name] / scale
    if tied in ("target", "all"):  # only the output layer reads this norm
        last = f"decoder/layer_{options['decoder_layers'] - 1}/feed_forward_residual/layer_norm"
        last = "decoder/final_norm" if final_norm else last
        for name in ("gamma", "beta"):
            found[f"{last}/{name}"] = found[f"{last}/{name}"] * scale


# The layers.


class _Layers:
    """Converts the weights of encoder and decoder layers.

    The D features between layers get the given order. Features inside a head, and inside a
    feed-forward layer, keep theirs.
    """

    def __init__(self, weights, options, order):
        self.weights, self.options, self.order = weights, options, order
        self.width = options["d_model"]
        self.inner = max(options["encoder_ffn_dim"], options["decoder_ffn_dim"])
        self.found = {}

    def read(self, final_norm=None):
        """{our name: array} of all layers, and of the norm after the last one if it has a name."""
        for stack, parts in (("encoder", ENCODER_LAYER), ("decoder", DECODER_LAYER)):
            if final_norm:
                self.read_norm(f"model.{stack}.{final_norm}", f"{stack}/final_norm")
            for n in range(self.options[f"{stack}_layers"]):
                theirs, ours = f"model.{stack}.layers.{n}", f"{stack}/layer_{n}"
                for part, name in parts.items():
                    read = self.read_norm if part.endswith("norm") else self._attention
                    read(f"{theirs}.{part}", f"{ours}/{name}")
                size = self.options[f"{stack}_ffn_dim"]
                self._feed_forward(theirs, f"{ours}/feed_forward", size)
        return self.found

    def _linear(self, name, inputs, outputs):
        """The kernel [in, out] and the bias of a linear layer."""
        kernel = self.weights.take(f"{name}.weight", outputs, inputs).T
        return kernel, self.weights.take(f"{name}.bias", outputs)

    def _put(self, name, kernel, bias):
        self.found[f"{name}/kernel"], self.found[f"{name}/bias"] = compact(kernel), bias

    def read_norm(self, theirs, ours):
        for their_name, our_name in (("weight", "gamma"), ("bias", "beta")):
            array = self.weights.take(f"{theirs}.{their_name}", self.width)
            self.found[f"{ours}/{our_name}"] = array[self.order]

    def _attention(self, theirs, ours):
        for their_name, our_name in PROJECTIONS.items():
            kernel, bias = self._linear(f"{theirs}.{their_name}", self.width, self.width)
            self._put(f"{ours}/{our_name}", kernel[self.order], bias)
        kernel, bias = self._linear(f"{theirs}.out_proj", self.width, self.width)
        self._put(f"{ours}/output", kernel[:, self.order], bias[self.order])

    def _feed_forward(self, theirs, ours, size):
        """Converts a feed-forward layer. In the narrower stack, zero inner units are added."""
        more = self.inner - size
        kernel, bias = self._linear(f"{theirs}.fc1", self.width, size)
        kernel = np.pad(kernel[self.order], [(0, 0), (0, more)])
        self._put(f"{ours}/inner", kernel, np.pad(bias, (0, more)))
        kernel, bias = self._linear(f"{theirs}.fc2", size, self.width)
        kernel = np.pad(kernel[:, self.order], [(0, more), (0, 0)])
        self._put(f"{ours}/outer", kernel, bias[self.order])

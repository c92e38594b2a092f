"""Converts a model to CTranslate2: a `TransformerSpec` with its weights and pieces."""

import numpy as np
from ctranslate2.specs import common_spec, transformer_spec
from keras import ops

from tfformer.config import BOS, EOS, UNK
from tfformer.layers.attention import MultiHeadAttention
from tfformer.layers.feed_forward import GATED, FeedForward
from tfformer.layers.norm import LayerNorm
from tfformer.layers.output import Dense
from tfformer.layers.weight_matrices import float_bias, float_matrix

# Options that must have this value, because CTranslate2 has no other.
EXPRESSED = {
    "residual": True,
    "attention_positions": "none",
    "key_value_heads": "num_heads",
    "location_width": 0,
    "heads_width": "d_model",
    "query_key_norm": False,
}
# Names of `ctranslate2.specs.common_spec.Activation`; GELU is the exact one.
ACTIVATIONS = {
    "relu": "RELU",
    "gelu": "GELU",
    "gelu_tanh": "GELUTanh",
    "silu": "SWISH",
    "swiglu": "SWISH",
    "geglu": "GELUTanh",
}


def specification(model, tokenizer, num_positions):
    """A model with its weights and pieces as a validated `ctranslate2.specs.TransformerSpec`.

    Sinusoids are written for `num_positions`, the maximum length of source and target.

    Raises:
        ValueError: CTranslate2 cannot express the model.
    """
    config = model.config
    if tokenizer.languages:
        raise ValueError(
            "the tokenizer must be of one language pair for CTranslate2, got "
            f"{', '.join(tokenizer.languages)}"
        )
    if tokenizer.target.first is not None:
        raise ValueError("no given token may begin each target for CTranslate2, as <s> in BART")
    written(model.output_projection, "output_projection", {Dense: None})
    if config.ends_with_norm != (config.norm == "pre"):
        raise ValueError(
            "last_norm must be what norm has for CTranslate2, got "
            f"last_norm={config.last_norm} and norm={config.norm!r}"
        )
    for name, only in EXPRESSED.items():
        only = getattr(config, str(only), only)  # another option must be equal
        if getattr(config, name) != only:
            raise ValueError(
                f"{name} must be {only!r} for CTranslate2, got {getattr(config, name)!r}"
            )
    if config.activation not in ACTIVATIONS:
        raise ValueError(
            f"activation must be one of {tuple(ACTIVATIONS)} for CTranslate2, "
            f"got {config.activation!r}"
        )
    spec = transformer_spec.TransformerSpec.from_config(
        (config.num_encoder_layers, config.num_decoder_layers),
        config.num_heads,
        pre_norm=config.norm == "pre",
        activation=common_spec.Activation[ACTIVATIONS[config.activation]],
        ffn_glu=config.activation in GATED,
        layernorm_embedding=config.embedding_norm,
    )
    set_pieces(spec, tokenizer.pieces("source"), tokenizer.pieces("target"))
    spec.config.add_source_eos = config.source_eos
    set_embeddings(spec, model)
    if config.positions == "learned":
        num_positions = config.max_positions
    for part, positions in (
        (spec.encoder, model.source_positions),
        (spec.decoder, model.target_positions),
    ):
        zeros = ops.zeros((1, num_positions, config.d_model))
        part.position_encodings.encodings = as_array(positions(zeros)[0])  # [P, D]
    if config.embedding_norm:
        set_norm(spec.encoder.layernorm_embedding, model.source_embedding_norm)
        set_norm(spec.decoder.layernorm_embedding, model.target_embedding_norm)
    set_stack(spec.encoder, model.encoder)
    set_stack(spec.decoder, model.decoder)
    residual = model.encoder.layers[0].feed_forward_residual
    spec.config.layer_norm_epsilon = residual.layer_norm.epsilon  # CTranslate2's default is 1e-5
    spec.validate()
    return spec


def set_pieces(spec, source, target):
    """Sets the pieces of source and target, and the special pieces."""
    if source[UNK : EOS + 1] != target[UNK : EOS + 1]:
        raise ValueError(
            "unk, bos and eos must have one name on both sides for CTranslate2, got "
            f"{source[UNK : EOS + 1]} and {target[UNK : EOS + 1]}"
        )
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = target[UNK : EOS + 1]
    spec.config.decoder_start_token = target[BOS]


def set_embeddings(spec, model):
    """Sets both embeddings, which CTranslate2 scales as we do, and the output projection."""
    target, output = as_array(model.target_embedding.embeddings), model.output_projection
    spec.encoder.embeddings[0].weight = as_array(model.source_embedding.embeddings)
    spec.decoder.embeddings.weight = target
    spec.decoder.projection.weight = target if output.tied else as_array(float_matrix(output)).T
    if output.use_bias:
        spec.decoder.projection.bias = as_array(output.bias)


def set_stack(spec, stack):
    """Sets the layers of an encoder or decoder, and the norm after the last layer if it has one."""
    for layer_spec, layer in zip(spec.layer, stack.layers, strict=True):
        for part, (sublayer, residual) in zip(layer.PARTS, layer.parts(), strict=True):
            if part.name not in SPECIFICATIONS:
                raise ValueError(
                    f"{layer.name} must be made of {list(SPECIFICATIONS)} for CTranslate2, "
                    f"got {part.name}"
                )
            part_spec = getattr(layer_spec, SPECIFICATIONS[part.name])
            written(sublayer, part.name, SUBLAYERS)(part_spec, sublayer)
            set_norm(part_spec.layer_norm, residual.layer_norm)
    if stack.options.ends_with_norm:
        set_norm(spec.layer_norm, stack.final_norm)


def written(layer, name, table):
    """The function in `table` that converts a layer of this class."""
    if type(layer) not in table:
        raise ValueError(
            f"{name} must be one of {[kind.__name__ for kind in table]} for CTranslate2, "
            f"got {type(layer).__name__}"
        )
    return table[type(layer)]


def set_attention(spec, layer):
    """Sets an attention. In self-attention, queries, keys and values share one linear layer."""
    query, key, value = layer.query_projection, layer.key_projection, layer.value_projection
    *inputs, output = spec.linear
    if len(inputs) == 1:
        set_linear(inputs[0], query, key, value)
    else:
        set_linear(inputs[0], query)
        set_linear(inputs[1], key, value)
    set_linear(output, layer.output_projection)


def set_feed_forward(spec, layer):
    """Sets two dense layers, and a third one if the inner layer is gated."""
    set_linear(spec.linear_0, layer.inner)
    if layer.gated:
        set_linear(spec.linear_0_noact, layer.gate)
    set_linear(spec.linear_1, layer.outer)


def set_linear(spec, *layers):
    """Joins dense layers into one. Our kernel [in, out] becomes a weight [out, in]."""
    spec.weight = np.concatenate([as_array(float_matrix(layer)).T for layer in layers])
    if any(layer.use_bias for layer in layers):
        spec.bias = np.concatenate([as_array(float_bias(layer)) for layer in layers])


def set_norm(spec, layer):
    """Sets a norm's gain and shift."""
    written(layer, layer.name, NORMS)(spec, layer)


def set_layer_norm(spec, layer):
    spec.gamma, spec.beta = as_array(layer.gamma), as_array(layer.beta)


def as_array(variable):
    """A copy of a variable or tensor as a NumPy array."""
    return np.array(ops.convert_to_numpy(variable))


# {part of our layers: its name in CTranslate2}.
SPECIFICATIONS = {
    "self_attention": "self_attention",
    "cross_attention": "attention",
    "feed_forward": "ffn",
}
SUBLAYERS = {MultiHeadAttention: set_attention, FeedForward: set_feed_forward}
NORMS = {LayerNorm: set_layer_norm}

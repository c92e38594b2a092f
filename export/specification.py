"""A model as CTranslate2 describes it: a `TransformerSpec` with its weights and its pieces."""

import numpy as np
from ctranslate2.specs import common_spec, transformer_spec
from keras import ops

from tfformer.config import BOS, EOS, UNK
from tfformer.run import model_weights

# Names of `ctranslate2.specs.common_spec.Activation`; the GELU of both is the exact one.
ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "silu": "SWISH", "swiglu": "SWISH"}


def specification(model, tokenizer, num_positions):
    """The model as CTranslate2 describes it, with its weights and pieces.

    Args:
        model: a `Transformer`.
        tokenizer: its `Tokenizer`.
        num_positions: the longest source or target; learned positions have a number of their own.

    Returns:
        A validated `ctranslate2.specs.TransformerSpec`.

    Raises:
        ValueError: CTranslate2 cannot express the model.
    """
    config = model.config
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
        ffn_glu=config.activation == "swiglu",
    )
    set_pieces(spec, *vocabularies(tokenizer))
    weights = model_weights(model)
    set_embeddings(spec, config, weights)
    if config.positions == "learned":
        num_positions = config.max_positions
    for part, positions in (
        (spec.encoder, model.source_positions),
        (spec.decoder, model.target_positions),
    ):
        part.position_encodings.encodings = encodings(positions, num_positions, config.d_model)
    set_layers(spec, config, weights)
    residual = model.encoder.layers[0].feed_forward_residual
    spec.config.layer_norm_epsilon = residual.layer_norm.epsilon  # its default is 1e-5
    spec.validate()
    return spec


def vocabularies(tokenizer):
    """The pieces of the source and of the target, in the order of their ids: two lists."""
    return tokenizer.pieces("source"), tokenizer.pieces("target")


def set_pieces(spec, source, target):
    """The pieces of both sides, and which of them are special."""
    if source[UNK : EOS + 1] != target[UNK : EOS + 1]:
        raise ValueError(
            "unk, bos and eos must have one name on both sides for CTranslate2, got "
            f"{source[UNK : EOS + 1]} and {target[UNK : EOS + 1]}"
        )
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = target[UNK : EOS + 1]
    spec.config.decoder_start_token, spec.config.add_source_eos = target[BOS], True


def set_embeddings(spec, config, weights):
    """Both embeddings and the output projection, which may be one matrix.

    The specification's `scale_embeddings` is True by default: embeddings times sqrt(d_model).
    """
    target = weights["target_embedding/embeddings"]
    shared = config.tie_embeddings == "all"
    source = target if shared else weights["source_embedding/embeddings"]
    tied = config.tie_embeddings != "none"
    output = target if tied else weights["output_projection/kernel"].T
    spec.encoder.embeddings[0].weight = source
    spec.decoder.embeddings.weight = target
    spec.decoder.projection.weight = output


def encodings(positions, num_positions, d_model):
    """What a layer of positions adds at each of them: [P, D]."""
    return ops.convert_to_numpy(positions(ops.zeros((1, num_positions, d_model)))[0])


def set_layers(spec, config, weights):
    """The layers of the encoder and of the decoder, and what normalises behind the last."""
    for n, layer in enumerate(spec.encoder.layer):
        name = f"encoder/layer_{n}"
        set_attention(
            layer.self_attention, weights, f"{name}/self_attention", f"{name}/attention_residual"
        )
        set_feed_forward(layer.ffn, weights, f"{name}/feed_forward")
    for n, layer in enumerate(spec.decoder.layer):
        name = f"decoder/layer_{n}"
        set_attention(
            layer.self_attention, weights, f"{name}/self_attention", f"{name}/self_residual"
        )
        set_attention(layer.attention, weights, f"{name}/cross_attention", f"{name}/cross_residual")
        set_feed_forward(layer.ffn, weights, f"{name}/feed_forward")
    if config.norm == "pre":
        set_norm(spec.encoder.layer_norm, weights, "encoder/final_norm")
        set_norm(spec.decoder.layer_norm, weights, "decoder/final_norm")


def set_attention(spec, weights, name, residual):
    """Of one sequence to itself, with queries, keys and values in one; or to the memory."""
    own = len(spec.linear) == 2
    parts = [["query", "key", "value"]] if own else [["query"], ["key", "value"]]
    for linear_spec, names in zip(spec.linear, [*parts, ["output"]], strict=True):
        set_linear(linear_spec, weights, *(f"{name}/{part}" for part in names))
    set_norm(spec.layer_norm, weights, f"{residual}/layer_norm")


def set_feed_forward(spec, weights, name):
    """Two dense layers, and a third where the inner one is gated."""
    set_linear(spec.linear_0, weights, f"{name}/inner")
    if f"{name}/gate/kernel" in weights:
        set_linear(spec.linear_0_noact, weights, f"{name}/gate")
    set_linear(spec.linear_1, weights, f"{name}/outer")
    set_norm(spec.layer_norm, weights, f"{name}_residual/layer_norm")


def set_linear(spec, weights, *names):
    """Dense layers, side by side in one; a kernel [in, out] is a weight [out, in] there."""
    spec.weight = np.concatenate([weights[f"{name}/kernel"].T for name in names])
    spec.bias = np.concatenate([weights[f"{name}/bias"] for name in names])


def set_norm(spec, weights, name):
    """A layer norm's gain and shift."""
    spec.gamma, spec.beta = weights[f"{name}/gamma"], weights[f"{name}/beta"]

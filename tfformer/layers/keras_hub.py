"""Copy weights from KerasHub's Transformer layers into ours, and back. KerasHub is not imported."""

import keras
from keras import ops

from tfformer.config import StackOptions
from tfformer.layers.decoder import DecoderLayer
from tfformer.layers.encoder import EncoderLayer
from tfformer.layers.weight_matrices import float_matrix

THEIRS = ("TransformerEncoder", "TransformerDecoder")
# The activations of Keras that our layers have too.
ACTIVATIONS = ("relu", "gelu", "silu")
SAME = ("d_model", "num_heads", "d_ff", "activation", "norm", "epsilon")
OURS_ALONE = (
    "normalization",
    "residual",
    "attention_positions",
    "num_key_value_heads",
    "location_width",
    "query_key_norm",
    "use_bias",
)


def from_keras_hub(layer: keras.layers.Layer) -> EncoderLayer | DecoderLayer:
    """Make one of our layers that computes the same as a layer of KerasHub.

    Args:
        layer: a built `TransformerEncoder` or `TransformerDecoder` of `keras_hub.layers` (or of
            `keras_nlp.layers`). Its weights are copied.

    Returns:
        A `DecoderLayer`, if `layer` is a decoder that attends to an encoder's output. Otherwise an
        `EncoderLayer`; for a decoder, call it with `causal=True`.

    Raises:
        ValueError: `layer` is of another class or not built, or our layers lack its activation or
            its head size, or the widths of its memory and of the layer differ.

    Example, a layer of width 22:
        >>> from keras_hub.layers import TransformerEncoder
        >>> theirs, x = TransformerEncoder(intermediate_dim=13, num_heads=2), np.eye(22)[None]
        >>> expected = theirs(x)
        >>> ours = from_keras_hub(theirs)
        >>> ours.d_ff, ours.epsilon, bool(np.allclose(ours(x), expected, atol=1e-5))
        (13, 1e-05, True)
    """
    options = _options(layer)
    options |= {"dropout": layer.dropout, "attention_dropout": layer.dropout}
    shape = (None, None, options["d_model"])
    if getattr(layer, "_cross_attention_layer", None) is None:
        ours: EncoderLayer | DecoderLayer = EncoderLayer(**options, dtype=layer.dtype_policy)
        ours.build(shape)
    else:
        ours = DecoderLayer(**options, dtype=layer.dtype_policy)
        ours.build(shape, shape)
    for mine, theirs in _dense_pairs(ours, layer):
        mine.kernel.assign(ops.reshape(float_matrix(theirs), mine.kernel.shape))  # [D, H * K]
    for mine, theirs in _vector_pairs(ours, layer):
        mine.assign(ops.reshape(theirs, mine.shape))  # [H, K] -> [H * K]
    return ours


def to_keras_hub(
    layer: EncoderLayer | DecoderLayer, target: keras.layers.Layer
) -> keras.layers.Layer:
    """Copy the weights of one of our layers into a layer of KerasHub, which then computes the same.

    Args:
        layer: a built `EncoderLayer` or `DecoderLayer`.
        target: a built `TransformerEncoder` or `TransformerDecoder` of the same sizes, activation,
            norm and epsilon, with float weights; they are overwritten.

    Returns:
        `target`.

    Raises:
        ValueError: one of the two is of another class or not built, or they do not compute the
            same.

    Example, a layer of width 22:
        >>> from keras_hub.layers import TransformerEncoder
        >>> ours, x = EncoderLayer(d_model=22, num_heads=2, d_ff=13), np.eye(22)[None]
        >>> expected, theirs = ours(x), TransformerEncoder(13, 2, layer_norm_epsilon=1e-6)
        >>> theirs.build(x.shape)
        >>> bool(np.allclose(to_keras_hub(ours, theirs)(x), expected, atol=1e-5))
        True
    """
    if not isinstance(layer, EncoderLayer | DecoderLayer) or not layer.built:
        raise ValueError(f"layer must be a built EncoderLayer or DecoderLayer, got {layer!r}")
    options = _options(target)
    for name in SAME:
        if getattr(layer, name) != options[name]:
            raise ValueError(
                f"target must have the layer's {name}, {getattr(layer, name)!r}, got "
                f"{options[name]!r}"
            )
    for name in OURS_ALONE:
        default, value = getattr(StackOptions, name), getattr(layer, name)
        of_each = name == "num_key_value_heads" and value == layer.num_heads
        if value != default and not of_each:
            raise ValueError(
                f"layer must have {name}={default!r}, as in {' and '.join(THEIRS)}, got {value!r}"
            )
    attends = getattr(target, "_cross_attention_layer", None) is not None
    if attends != isinstance(layer, DecoderLayer):
        reads = "a decoder that attends to a memory" if not attends else "a layer without a memory"
        raise ValueError(f"target must be {reads}, as the layer, got {type(target).__name__}")
    pairs = list(_dense_pairs(layer, target))
    for _, theirs in pairs:
        if theirs.quantization_mode is not None or theirs.lora_enabled:
            state = "enable_lora" if theirs.lora_enabled else "quantize"
            raise ValueError(f"target must be a layer of float weights, got one after {state}")
    for mine, theirs in pairs:
        theirs.kernel.assign(ops.reshape(float_matrix(mine), theirs.kernel.shape))  # [D, H, K]
    for mine, theirs in _vector_pairs(layer, target):
        theirs.assign(ops.reshape(mine, theirs.shape))  # [H * K] -> [H, K]
    return target


def _options(layer):
    """The options of a KerasHub layer under our names; a ValueError for any other layer."""
    if not {cls.__name__ for cls in type(layer).__mro__} & set(THEIRS) or not layer.built:
        raise ValueError(f"layer must be a built {' or '.join(THEIRS)} of KerasHub, got {layer!r}")
    d_model, num_heads, head_size = layer._self_attention_layer.query_dense.kernel.shape
    if num_heads * head_size != d_model:
        raise ValueError(
            f"the heads of the layer must be as wide as it is, {d_model}, together, got "
            f"{num_heads} of {head_size}"
        )
    cross = getattr(layer, "_cross_attention_layer", None)
    if cross is not None and cross.key_dense.kernel.shape[0] != d_model:
        raise ValueError(
            f"the memory of the layer must be as wide as it is, {d_model}, got "
            f"{cross.key_dense.kernel.shape[0]}"
        )
    known = {getattr(keras.activations, name): name for name in ACTIVATIONS}
    if layer.activation not in known:
        raise ValueError(
            f"the activation of the layer must be one of {ACTIVATIONS}, got {layer.activation!r}"
        )
    return {
        "d_model": d_model,
        "num_heads": num_heads,
        "d_ff": layer.intermediate_dim,
        "activation": known[layer.activation],
        "norm": "pre" if layer.normalize_first else "post",
        "epsilon": layer.layer_norm_epsilon,
    }


def _dense_pairs(ours, theirs):
    """Yield each (our dense layer, theirs). Our kernels hold the heads side by side, [D, H * K];
    theirs have an axis for the heads, [D, H, K], in the same order."""
    for part, (sublayer, _) in zip(ours.PARTS, ours.parts(), strict=True):
        if part.name == "feed_forward":
            yield sublayer.inner, theirs._feedforward_intermediate_dense
            yield sublayer.outer, theirs._feedforward_output_dense
        else:
            other = getattr(theirs, f"_{part.name}_layer")
            for name in ("query", "key", "value", "output"):
                yield getattr(sublayer, f"{name}_projection"), getattr(other, f"{name}_dense")


def _vector_pairs(ours, theirs):
    """Yield each (our bias, gain or shift, theirs)."""
    for mine, dense in _dense_pairs(ours, theirs):
        yield mine.bias, dense.bias
    for part, (_, residual) in zip(ours.PARTS, ours.parts(), strict=True):
        name = "feedforward" if part.name == "feed_forward" else part.name
        norm = getattr(theirs, f"_{name}_layer_norm")
        yield residual.layer_norm.gamma, norm.gamma
        yield residual.layer_norm.beta, norm.beta

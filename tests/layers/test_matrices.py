"""The float matrix of a layer, in each form in which Keras stores it, and all code that reads
it."""

import keras
import numpy as np
import pytest
from tiers import slow_or_nightly

import tfformer
from tfformer.layers.weight_matrices import Matrix, float_matrix

D, V = 22, 29
IDS = np.array([[5, 7, 11, 3], [13, 3, 0, 0]])
INPUTS = {"source_ids": IDS, "target_ids": IDS[:, ::-1]}
GROUPED = keras.quantizers.Int4QuantizationConfig(block_size=11)
FORMS = ["int8", "int4", "grouped int4", "lora", "int8 lora", "int4 lora"]
# Keras takes half a second to quantize a layer.


def change(layer, form, rng):
    """Quantizes a layer, or gives it LoRA, or both."""
    if "int" in form:
        config = {"config": GROUPED} if "grouped" in form else {}
        layer.quantize("int8" if "int8" in form else "int4", **config)
    if "lora" in form:
        layer.enable_lora(3)
        layer.lora_kernel_b.assign(rng.normal(scale=0.3, size=layer.lora_kernel_b.shape))


def dense_layers(model):
    return [layer for layer in model._flatten_layers() if type(layer) is keras.layers.Dense]


def changed_model(form, rng, vocabulary_size=V):
    layers = {"num_encoder_layers": 1, "num_decoder_layers": 1}
    config = tfformer.TransformerConfig.preset(
        "test", vocabulary_size, d_model=D, num_heads=2, **layers
    )
    model = tfformer.Transformer(config)
    for layer in dense_layers(model):
        change(layer, form, rng)
    return model


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "equation, shape, size",
    [(None, D, 13), ("abc,cde->abde", (None, 2, 7), D), ("abcd,cde->abe", (None, D), 22)],
)
def test_float_matrix_equals_the_outputs_for_one_hot_rows(form, equation, shape, size, rng):
    """For an input that is 1 at one position and 0 elsewhere, a layer gives a row of its matrix.
    Such an input is quantized without an error."""
    rows = np.eye(D, dtype="float32")[None]  # [1, D, D]
    if equation is None:
        layer = keras.layers.Dense(size)
    else:
        layer = keras.layers.EinsumDense(equation, shape)
        if equation.startswith("abcd"):
            rows = rows.reshape(1, D, 2, D // 2)
    layer.build(rows.shape)
    change(layer, form, rng)
    matrix = keras.ops.convert_to_numpy(float_matrix(layer))
    assert matrix.shape == tuple(layer.kernel.shape)
    np.testing.assert_allclose(
        matrix.reshape(D, -1), layer(rows)[0].numpy().reshape(D, -1), atol=1e-5
    )


def test_error_names_an_unsupported_quantization():
    layer = keras.layers.Dense(3, dtype=keras.DTypePolicy("float32"))
    layer.build((None, 5))
    layer.quantize("int8")
    layer._dtype_policy = keras.dtype_policies.get("gptq/4/-1_from_float32")
    with pytest.raises(ValueError, match="must be quantized by one of .*, got 'gptq'"):
        float_matrix(layer)


@pytest.mark.parametrize("form", slow_or_nightly(FORMS, ["int8 lora"]))
def test_search_log_probs_are_those_of_the_changed_model(form, rng):
    """The search's log-probability is the model's own; in int8 the inputs of layers are rounded
    too."""
    model = changed_model(form, rng)
    found = tfformer.generate(model, IDS, max_length=4, beam_width=2)
    tokens = found.token_ids.numpy()[:, 0]
    target = np.concatenate([np.full((2, 1), 2), tokens[:, :-1]], axis=1)
    logits = model({"source_ids": IDS, "target_ids": target})
    log_probs = keras.ops.convert_to_numpy(keras.ops.log_softmax(logits))
    expected = np.take_along_axis(log_probs, tokens[..., None], axis=2)[..., 0]
    expected = np.where(tokens > 0, expected, 0).sum(axis=1)
    tolerance = 0.3 if "int8" in form else 1e-3
    np.testing.assert_allclose(found.log_probs.numpy()[:, 0], expected, atol=tolerance)


@pytest.mark.parametrize("form", slow_or_nightly(FORMS, ["int8 lora"]))
def test_quantized_or_lora_model_is_saved_as_plain_float_matrices(form, rng, tmp_path):
    tokenizer = tfformer.Tokenizer.train(["ein Haus", "a house"], vocabulary_size=280)
    model = changed_model(form, rng, tokenizer.source_vocabulary_size)
    tfformer.save(tmp_path / "run", model, tokenizer)
    again, _ = tfformer.load(tmp_path / "run")
    assert not any(layer.lora_enabled or layer.quantization_mode for layer in dense_layers(again))
    tolerance = 0.05 if "int8" in form else 1e-5
    np.testing.assert_allclose(again(INPUTS), model(INPUTS), atol=tolerance)


@pytest.mark.parametrize("form", FORMS)
def test_quantized_or_lora_keras_hub_layer_is_converted(form, rng):
    hub = pytest.importorskip("keras_hub", reason="needs the extra keras-nlp")
    theirs = hub.layers.TransformerEncoder(intermediate_dim=13, num_heads=2)
    x = rng.normal(size=(3, 5, D)).astype("float32")
    theirs(x)
    kinds = keras.layers.Dense, keras.layers.EinsumDense
    for layer in theirs._flatten_layers():
        if type(layer) in kinds:
            change(layer, form.replace("grouped ", ""), rng)
    ours = tfformer.from_keras_hub(theirs)
    tolerance = 0.1 if "int8" in form else 1e-4
    np.testing.assert_allclose(ours(x), theirs(x), atol=tolerance)
    with pytest.raises(ValueError, match="target must be a layer of float weights, got one after"):
        tfformer.to_keras_hub(ours, theirs)


def test_matrix_of_a_changed_layer_has_its_float_shape_and_path(rng):
    for form in ("int4", "lora"):
        layer = keras.layers.Dense(13, name="inner")
        layer.build((None, D))
        change(layer, form, rng)
        assert Matrix.of(layer, heads=3) == ("inner/kernel", (D, 13), 3, 1, False)

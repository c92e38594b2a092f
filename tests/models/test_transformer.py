"""The model: the oracle, no access to padding or the future, cached = uncached, fit, save, load."""

import functools
import os
import subprocess
import sys

import keras
import numpy as np
import oracle
import pytest
import tensorflow as tf
from paths import ROOT
from variants import VARIANTS, VOCABULARY, make

from tfformer import (
    Perplexity,
    SmoothedCrossEntropy,
    TokenAccuracy,
    Transformer,
    TransformerConfig,
    WarmupSchedule,
)

B, S, T, V, W = 2, 7, 5, VOCABULARY, 3

variants = pytest.mark.parametrize("variant", VARIANTS)


@pytest.fixture(scope="module")
def model_of(randomise):
    """One model with random weights for each variant; the tests do not change them."""
    return functools.cache(lambda variant: randomise(make(variant)))


@pytest.fixture
def inputs(rng):
    source_ids = rng.integers(4, V, size=(B, S))
    target_ids = rng.integers(4, V, size=(B, T))
    target_ids[:, 0] = 2
    source_ids[0, 4], source_ids[1, -1] = 3, 3  # the ends of the sources
    source_ids[0, 5:], target_ids[0, 3:] = 0, 0
    return {"source_ids": source_ids, "target_ids": target_ids}


@variants
def test_logits_equal_the_oracle(variant, inputs, model_of):
    model = model_of(variant)
    logits = model(inputs)
    assert logits.shape == (B, T, model.config.target_vocabulary_size)
    expected = oracle.transformer(model, **inputs)
    np.testing.assert_allclose(logits, expected, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("variant", ["paper", "pre", "swiglu"])
@pytest.mark.parametrize("training", [False, True])
def test_logits_do_not_see_the_future(variant, training, inputs, rng, randomise, same_dropout):
    model = randomise(make(variant, dropout=0.3))
    rewind = same_dropout(model)
    logits = model(inputs, training=training).numpy()
    for t in (0, T - 2):
        changed = inputs["target_ids"].copy()
        # Other ids, some of them padding, at all positions after t.
        changed[:, t + 1 :] = rng.integers(0, V, size=(B, T - t - 1))
        rewind()
        first = model(inputs, training=training).numpy()
        rewind()
        other = model({**inputs, "target_ids": changed}, training=training).numpy()
        oracle.assert_close(other[:, : t + 1], first[:, : t + 1])
        np.testing.assert_array_equal(first, logits)
    if training:
        assert np.abs(model(inputs, training=False) - logits).max() > 1e-2


@variants
def test_padding_changes_no_logits(variant, inputs, model_of):
    model = model_of(variant)
    logits = model(inputs).numpy()
    longer = {name: np.pad(ids, ((0, 0), (0, 3))) for name, ids in inputs.items()}
    oracle.assert_close(model(longer)[:, :T], logits)
    # The first row alone, without the padding that the batch adds.
    alone = {"source_ids": inputs["source_ids"][:1, :5], "target_ids": inputs["target_ids"][:1, :3]}
    oracle.assert_close(model(alone)[0], logits[0, :3])


def test_wholly_padded_source_is_finite_with_finite_gradient(inputs):
    model = make()
    inputs["source_ids"][1] = 0
    with tf.GradientTape() as tape:
        logits = model(inputs)
        loss = SmoothedCrossEntropy()(inputs["target_ids"], logits)
    assert np.isfinite(logits).all()
    gradients = tape.gradient(loss, model.trainable_variables)
    dense = [tf.convert_to_tensor(gradient).numpy() for gradient in gradients]
    assert all(np.isfinite(gradient).all() for gradient in dense)


# The cached step.


def steps(model, source_ids, beams):
    """beams [B, W, T] through `decode_step`, one position at a time: logits [B, W, T, V]."""
    source_ids = model.seen(source_ids)
    memory = model.encode(source_ids)
    projected = model.decoder.project_memory(memory)
    cache = model.decoder.empty_cache(B, W)
    outputs = []
    for t in range(beams.shape[-1]):
        ids, position = tf.constant(beams[:, :, t]), tf.constant(t)
        known = projected, source_ids != 0, cache, source_ids
        logits, cache = model.decode_step(ids, position, *known)
        outputs.append(logits.numpy())
    return np.stack(outputs, axis=2)


@pytest.fixture
def beams(rng):
    beams = rng.integers(4, V, size=(B, W, T))
    beams[..., 0] = 2
    return beams


@variants
def test_cached_steps_equal_the_whole_model(variant, inputs, beams, model_of):
    model = model_of(variant)
    source_ids = inputs["source_ids"]
    logits = steps(model, source_ids, beams)
    for w in range(W):
        whole = model({"source_ids": source_ids, "target_ids": beams[:, w]})
        oracle.assert_close(logits[:, w], whole)


def test_cached_step_does_not_see_the_future_nor_other_beams(inputs, beams, model_of):
    model = model_of("paper")
    changed = beams.copy()
    changed[:, 1, 3:] = 4 + (changed[:, 1, 3:] - 3) % (V - 4)
    assert (changed != beams).sum() == B * (T - 3)
    logits = steps(model, inputs["source_ids"], beams)
    others = steps(model, inputs["source_ids"], changed)
    np.testing.assert_array_equal(others[:, [0, 2]], logits[:, [0, 2]])
    np.testing.assert_array_equal(others[:, 1, :3], logits[:, 1, :3])
    assert np.abs(others[:, 1, 3:] - logits[:, 1, 3:]).min(axis=-1).max() > 1e-4


# Attention for pictures.


@pytest.mark.parametrize("variant", ["paper", "pre"])
def test_cross_attention_weights_equal_the_oracle(variant, inputs, model_of):
    model = model_of(variant)
    expected = oracle.cross_attention_weights(model, **inputs)
    oracle.assert_close(model.cross_attention_weights(inputs), expected)


# Sizes and sharing.


def parameters(config):
    """By hand, from the sizes in the paper and the biases of Keras layers."""
    D, F = config.d_model, config.d_ff
    keys = D * config.key_value_heads // config.num_heads
    biases = 1 if config.use_bias else 0
    attention = 2 * (D * D + D * biases) + 2 * (D * keys + keys * biases)
    norm = D * {"layer": 2, "simple": 0, "ada": 0, "rms": 1, "batch": 4}[config.normalization]
    self_attention = attention
    if config.attention_positions == "relative":
        self_attention += 32 * config.num_heads
    if config.query_key_norm:
        self_attention += 2 * D // config.num_heads
    layers = [config.num_encoder_layers, config.num_decoder_layers]
    encoder_layers, decoder_layers = (min(config.unique_layers or n, n) for n in layers)
    matrices = 3 if config.activation == "swiglu" else 2
    feed_forward = matrices * D * F + ((matrices - 1) * F + D) * biases
    total = encoder_layers * (self_attention + feed_forward + 2 * norm)
    total += decoder_layers * (attention + 3 * norm)
    total += decoder_layers * config.location_width * config.num_heads**2
    own = 0 if config.share_halves else decoder_layers
    total += own * (self_attention + feed_forward)
    if config.ends_with_norm:
        total += 2 * norm
    if config.embedding_norm:
        total += 2 * norm
    if config.positions == "learned":
        total += 2 * config.max_positions * D
    if config.copy:
        total += D + 1
    if config.output_bias:
        total += config.target_vocabulary_size
    source, target = config.source_vocabulary_size * D, config.target_vocabulary_size * D
    return (
        total
        + {"all": target, "target": source + target, "none": source + 2 * target}[
            config.tie_embeddings
        ]
    )


@variants
def test_number_of_parameters(variant, model_of):
    model = model_of(variant)
    assert model.count_params() == parameters(model.config)


@pytest.mark.parametrize("preset", ["base", "tiny"])
def test_number_of_parameters_of_a_preset(preset):
    config = TransformerConfig.preset(preset, {"base": 37000, "tiny": 8000}[preset])
    model = Transformer(config)
    assert model.count_params() == parameters(config)
    if preset == "base":
        # Table 3 of the paper says 65 million, with about 37,000 shared ids; 63.1 here.
        assert 62e6 < model.count_params() < 66e6


@pytest.mark.parametrize(("tied", "matrices"), [("all", 1), ("target", 2), ("none", 3)])
def test_tied_matrices_are_one_variable(tied, matrices):
    model = make(tie_embeddings=tied)
    D = model.config.d_model
    assert sum(set(v.shape) == {V, D} for v in model.trainable_variables) == matrices
    assert (model.source_embedding is model.target_embedding) == (tied == "all")
    assert len(model.output_projection.weights) == (tied == "none")


def test_wrong_inputs_and_wrong_configuration_are_refused(inputs, model_of):
    ids = inputs["source_ids"]
    for given, said in (([ids, ids], "list"), ({"source": ids, "target_ids": ids}, "'source'")):
        with pytest.raises(ValueError, match=f'inputs must be .*"target_ids": .*, got .*{said}'):
            model_of("paper")(given)
    with pytest.raises(ValueError, match="config must be a TransformerConfig, got 512"):
        Transformer(512)


def test_a_model_that_copies_needs_the_ids_of_the_source(inputs):
    model = make("silu")
    memory = model.encode(inputs["source_ids"])
    with pytest.raises(ValueError, match="source_ids must be given to a model with copy=True, got"):
        model.decode(inputs["target_ids"], memory)
    with pytest.raises(ValueError, match="copy=True needs one vocabulary for source and target"):
        make("silu", tie_embeddings="none", target_vocabulary_size=V + 2)


def test_encoder_and_decoder_may_differ_in_depth_and_vocabulary(inputs):
    model = make(
        target_vocabulary_size=23, num_encoder_layers=3, num_decoder_layers=1, activation="relu"
    )
    assert (len(model.encoder.layers), len(model.decoder.layers)) == (3, 1)
    assert model.source_embedding.embeddings.shape == (V, model.config.d_model)
    assert model(inputs).shape == (B, T, 23)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize("variant", ["paper", "swiglu"])
def test_mixed_precision_keeps_float32_variables(variant, policy, inputs, beams):
    model = make(variant, dtype=policy)
    for training in (False, True):
        logits = model(inputs, training=training)
        assert logits.dtype == policy.removeprefix("mixed_")
        assert np.isfinite(tf.cast(logits, "float32")).all()
    assert np.isfinite(model.cross_attention_weights(inputs)).all()
    logits = tf.cast(steps(model, inputs["source_ids"], beams)[:, 0], "float32")
    whole = model({**inputs, "target_ids": beams[:, 0]})
    np.testing.assert_allclose(logits, tf.cast(whole, "float32"), atol=0.1)
    assert {variable.dtype for variable in model.weights} == {"float32"}


# Configuration, training, files.


def copying(rng, rows=96):
    """A task that a model can learn: the target is the source."""
    length = 5
    source = rng.integers(4, V, size=(rows, length))
    source *= np.arange(length) < rng.integers(2, length + 1, size=(rows, 1))
    end = np.zeros((rows, 1), int)
    labels = np.concatenate([source, end], axis=1)
    labels[np.arange(rows), (source != 0).sum(axis=1)] = 3
    target = np.concatenate([np.full((rows, 1), 2), labels[:, :-1]], axis=1)
    target[target == 3] = 0
    return {"source_ids": source, "target_ids": target}, labels


def compiled(**changes):
    model = make(tie_embeddings="all", num_decoder_layers=1, **changes)
    model.compile(
        optimizer=keras.optimizers.Adam(
            WarmupSchedule(model.config.d_model, warmup_steps=40, scale=0.5),
            beta_1=0.9,
            beta_2=0.98,
            epsilon=1e-9,
        ),
        loss=SmoothedCrossEntropy(),
        metrics=[TokenAccuracy(), Perplexity()],
        jit_compile=False,  # compiling would take longer than all the steps
    )
    return model


@pytest.mark.slow
def test_fit_learns_and_the_reloaded_model_trains_the_same(rng, reload):
    keras.utils.set_random_seed(3)
    model = compiled(dropout=0.0)
    inputs, labels = copying(rng)
    dataset = tf.data.Dataset.from_tensor_slices((inputs, labels)).batch(16)
    history = model.fit(dataset, epochs=10, verbose=0, shuffle=False).history
    assert int(model.optimizer.iterations) == 10 * len(dataset)
    assert set(history) == {"loss", "accuracy", "perplexity"}
    first, last = ({name: values[n] for name, values in history.items()} for n in (0, -1))
    assert last["loss"] < first["loss"] - 0.3
    assert last["perplexity"] < first["perplexity"] / 1.3
    assert last["accuracy"] > first["accuracy"] + 0.05

    again = reload(model)
    np.testing.assert_allclose(again(inputs), model(inputs), atol=1e-6)
    assert int(again.optimizer.iterations) == 10 * len(dataset)
    # Training continues exactly, because the optimizer's moments are in the file too.
    model.fit(dataset.take(2), verbose=0, shuffle=False)
    again.run_eagerly = True  # two steps take less time than tracing one
    again.fit(dataset.take(2), verbose=0, shuffle=False)
    np.testing.assert_allclose(again(inputs), model(inputs), atol=1e-4)


@pytest.mark.parametrize("variant", ["paper", "learned", "vocabularies"])
def test_keras_file_gives_the_same_logits(variant, inputs, model_of, reload):
    model = model_of(variant)
    again = reload(model)
    assert isinstance(again, Transformer)
    assert again.config == model.config
    np.testing.assert_array_equal(again(inputs), model(inputs))


@pytest.mark.parametrize(
    "imports",
    [
        "import keras\nimport tfformer",
        pytest.param("from tfformer import Encoder\nimport keras", marks=pytest.mark.slow),
    ],
)
def test_another_process_loads_a_compiled_model(imports, inputs, tmp_path):
    model = compiled()
    model.optimizer.build(model.trainable_variables)
    model.save(tmp_path / "model.keras")
    np.savez(tmp_path / "inputs.npz", **inputs)
    program = f"""{imports}
import numpy as np
model = keras.saving.load_model("model.keras")
np.save("logits.npy", model(dict(np.load("inputs.npz"))).numpy())
"""
    subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "KERAS_BACKEND": "tensorflow"},
        check=True,
        timeout=120,
    )
    np.testing.assert_allclose(np.load(tmp_path / "logits.npy"), model(inputs), atol=1e-6)


@pytest.mark.parametrize("activation", ["relu", "swiglu"])
def test_flops_equal_the_matrix_products_in_the_graph(activation):
    """The products in the graph of the layers, without those of attention, which grow with the
    length."""
    sizes = {"num_encoder_layers": 2, "num_decoder_layers": 3, "d_model": 20, "num_heads": 5}
    sizes |= {"d_ff": 28, "source_vocabulary_size": 300, "target_vocabulary_size": 310}
    config = TransformerConfig(**sizes, tie_embeddings="none", activation=activation)
    model, length = Transformer(config), 11
    specs = {name: tf.TensorSpec([1, length], tf.int32) for name in ("source_ids", "target_ids")}
    function = tf.function(lambda inputs: model(inputs, training=False), autograph=False)
    total = 0
    for operation in function.get_concrete_function(specs).graph.get_operations():
        if operation.type in ("MatMul", "BatchMatMulV2"):
            left, right = (tensor.shape.as_list() for tensor in operation.inputs)
            assert not operation.get_attr("transpose_a" if operation.type == "MatMul" else "adj_x")
            total += 2 * np.prod(left) * right[-1]
        elif operation.type == "Einsum":
            inputs = operation.get_attr("equation").decode().partition("->")[0].split(",")
            sizes = {}
            for letters, tensor in zip(inputs, operation.inputs, strict=True):
                sizes |= dict(zip(letters, tensor.shape.as_list(), strict=True))
            total += 2 * np.prod(list(sizes.values()))
    attentions = config.num_encoder_layers + 2 * config.num_decoder_layers
    total -= attentions * 4 * length * length * config.d_model
    counted = model.flops()
    assert total == length * (counted["source_token"] + counted["target_token"])

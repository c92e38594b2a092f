"""Muon compared with singular values, NumPy, and Keras's own."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfformer import SmoothedCrossEntropy, Transformer, TransformerConfig
from training.step.adam import Adam
from training.step.model import part_of
from training.step.muon import Muon, orthogonal
from training.step.muon_matrices import matrices_of
from training.step.parallel import in_parts

V, D, H = 31, 12, 3
RATE = 0.01


def iterated(s):
    """The published polynomial applied five times to a singular value."""
    for _ in range(5):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    return s


@pytest.mark.parametrize("shape", [(7, 7), (5, 13), (13, 5), (3, 7, 11)])
def test_orthogonal_keeps_directions_and_sets_singular_values_near_one(rng, shape):
    x = rng.normal(size=shape)
    u, s, vt = np.linalg.svd(x, full_matrices=False)
    size = iterated(s / np.linalg.norm(x, axis=(-2, -1))[..., None])
    expected = u @ (size[..., None] * vt)
    found = orthogonal(tf.constant(x))
    np.testing.assert_allclose(found, expected, atol=1e-12)
    sizes = np.linalg.svd(found, compute_uv=False)
    assert ((sizes > 0.68) & (sizes < 1.21)).all()


def test_bfloat16_keeps_directions_and_singular_values_near_one(rng):
    x = rng.normal(size=(3, 7, 11)).astype("float32")
    u, _, vt = np.linalg.svd(x, full_matrices=False)
    found = orthogonal(tf.constant(x), "bfloat16")
    assert found.dtype == "float32"
    turned = np.swapaxes(u, -1, -2) @ found.numpy() @ np.swapaxes(vt, -1, -2)
    sizes = np.diagonal(turned, axis1=-2, axis2=-1)
    assert ((sizes > 0.6) & (sizes < 1.3)).all()
    np.testing.assert_allclose(turned - sizes[..., None] * np.eye(7), 0, atol=0.1)
    assert np.abs(found - orthogonal(tf.constant(x))).max() > 1e-4


def transformer(make, **changes):
    """A model trained with the optimizer that `make` returns for its matrices."""
    keras.utils.set_random_seed(7)
    sizes = dict(num_encoder_layers=1, num_decoder_layers=1, d_model=D, num_heads=H, d_ff=17)
    model = Transformer(TransformerConfig(V, **{**sizes, "dropout": 0.0, **changes}))
    model.compile(make(matrices_of(model)), SmoothedCrossEntropy(), jit_compile=False)
    model.optimizer.build(model.trainable_variables)
    return model


def batch(rng):
    ids = rng.integers(4, V, size=(5, 7)).astype("int32")
    return {"source_ids": ids, "target_ids": ids}, ids


def gradients(model, inputs, labels):
    with tf.GradientTape() as tape:
        loss = model.compute_loss(inputs, labels, model(inputs, training=True))
    return [tf.convert_to_tensor(g) for g in tape.gradient(loss, model.trainable_weights)]


def by_path(variables):
    return {variable.path.split("/", 1)[1]: variable.numpy() for variable in variables}


def test_three_steps_by_hand(rng):
    """Kernels by the formula, head by head; all other weights by Adam."""
    model = transformer(lambda matrices: Muon(RATE, matrices, momentum=0.9, beta_2=0.98))
    other = transformer(lambda _: Adam(RATE, beta_2=0.98))
    expected, memory = by_path(model.trainable_variables), {}
    rate, first = 0.2 * RATE, list(expected)
    for _ in range(3):
        found = gradients(model, *batch(rng))
        model.optimizer.apply(found)
        other.optimizer.apply(found)
        for path, gradient in zip(first, found, strict=True):
            if not path.endswith("kernel") or path.startswith("output_projection"):
                continue
            gradient = gradient.numpy().astype("float64")
            memory[path] = 0.9 * memory.get(path, 0) + 0.1 * gradient
            ahead = 0.1 * gradient + 0.9 * memory[path]
            axis = 0 if path.endswith("attention/output/kernel") else 1
            for head in np.split(np.arange(ahead.shape[axis]), H if "attention" in path else 1):
                part = (head, slice(None)) if axis == 0 else (slice(None), head)
                u, s, vt = np.linalg.svd(ahead[part], full_matrices=False)
                step = u @ (iterated(s / np.linalg.norm(s))[:, None] * vt)
                expected[path][part] -= rate * max(step.shape) ** 0.5 * step
    assert len(memory) == 3 * 4 + 2 * 2
    adams = by_path(other.trainable_variables)
    for path, value in by_path(model.trainable_variables).items():
        if path in memory:
            np.testing.assert_allclose(value, expected[path], atol=2e-4, err_msg=path)
            assert np.abs(value - adams[path]).max() > 1e-2
        else:
            np.testing.assert_array_equal(value, adams[path], err_msg=path)
    assert {"output_projection/kernel", "target_embedding/embeddings"} < adams.keys()


def test_steps_equal_keras_muon_with_one_head(rng):
    """Ours with one head; Keras's without weight decay, its Adam on the same matrices."""
    ours = transformer(
        lambda matrices: Muon(RATE, matrices, beta_2=0.98, epsilon=1e-9), num_heads=1
    )
    peer = keras.optimizers.Muon(
        RATE,
        adam_beta_2=0.98,
        epsilon=1e-9,
        weight_decay=None,
        adam_weight_decay=None,
        exclude_layers=["output_projection"],
    )
    theirs = transformer(lambda _: peer, num_heads=1)
    for _ in range(3):
        found = gradients(ours, *batch(rng))
        ours.optimizer.apply(found)
        theirs.optimizer.apply(found)
    theirs = by_path(theirs.trainable_variables)
    for path, value in by_path(ours.trainable_variables).items():
        np.testing.assert_allclose(value, theirs[path], atol=2e-4, err_msg=path)


@pytest.mark.slow
def test_fit_lowers_the_loss_and_optimizer_config_round_trips(rng):
    inputs, labels = batch(rng)
    model = transformer(lambda matrices: Muon(0.003, matrices), dropout=0.1, tie_embeddings="all")
    losses = model.fit(inputs, labels, batch_size=5, epochs=30, verbose=0).history["loss"]
    assert losses[-1] < 0.7 * losses[0]
    again = Muon.from_config(model.optimizer.get_config())
    assert again.matrices == matrices_of(model) and len(again.matrices) == 3 * 4 + 2 * 2
    assert (again.momentum, again.compute_dtype) == (0.95, "float32")


def test_matrices_of_another_model_are_refused():
    with pytest.raises(ValueError, match="matrices must be paths of the model's variables"):
        transformer(lambda _: Muon(RATE, {"other/encoder/kernel": (1, 1)}))


def test_a_model_that_is_computed_in_parts_has_the_same_matrices():
    sizes = dict(num_encoder_layers=1, num_decoder_layers=1, d_model=D, num_heads=H, d_ff=17)
    config = TransformerConfig(V, **sizes)
    whole, apart = (
        Transformer(config, name="one"),
        in_parts(Transformer)(config, name="one", parts=3),
    )
    assert matrices_of(apart) == matrices_of(whole)
    assert part_of(apart, "encoder") == [apart.encoder]
    with pytest.raises(ValueError, match="parts that the model has, .* got 'tail'"):
        part_of(apart, "tail")

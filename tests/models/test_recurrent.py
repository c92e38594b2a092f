"""The recurrent model: its equations, no access to the future, steps = the whole, no export."""

import functools

import numpy as np
import oracle
import pytest
import tensorflow as tf
from variants import VOCABULARY as V
from walk import steps

import tfformer
from export import saved_model
from tfformer import Tokenizer
from tfformer.config import RecurrentConfig
from tfformer.inference.recurrent import RecurrentInference
from tfformer.models.recurrent import Recurrent
from tfformer.run import load_service
from tfformer.service.recurrent_translator import RecurrentTranslator

B, S, T, W, D = 2, 7, 5, 3, 14
VARIANTS = {
    "attention": {"tie_embeddings": "all"},
    "two layers": {"num_encoder_layers": 2, "num_decoder_layers": 2, "tie_embeddings": "target"},
    "one vector": {"attention": False, "target_vocabulary_size": 19},
}
variants = pytest.mark.parametrize("variant", VARIANTS)


def make(variant, **changes):
    sizes = {"num_encoder_layers": 1, "num_decoder_layers": 1, "dropout": 0.3}
    config = RecurrentConfig.preset("test", V, **{**sizes, **VARIANTS[variant], **changes})
    return Recurrent(config)


@pytest.fixture(scope="module")
def model_of(randomise):
    return functools.cache(lambda variant: randomise(make(variant)))


@pytest.fixture
def inputs(rng):
    source_ids = rng.integers(4, V, size=(B, S)).astype("int32")
    target_ids = rng.integers(4, V, size=(B, T)).astype("int32")
    target_ids[:, 0] = 2
    source_ids[0, 5:] = 0
    return {"source_ids": source_ids, "target_ids": target_ids}


def gru(cell, x, h):
    """Keras's GRU: the update gate z keeps the old state, and r is applied after the product."""
    kernel, recurrent, bias = (oracle.array(w) for w in cell.trainable_weights)
    of_x = np.split(x @ kernel + bias[0], 3, axis=-1)
    of_h = np.split(h @ recurrent + bias[1], 3, axis=-1)
    z, r = (oracle.sigmoid(a + b) for a, b in zip(of_x[:2], of_h[:2], strict=True))
    return z * h + (1 - z) * np.tanh(of_x[2] + r * of_h[2])


def read(model, ids):
    """One sentence [S] without padding: h [S, D]."""
    x = oracle.embed(model.source_embedding, ids)
    for layer in model.encoder.layers:
        sides = []
        for cell, step in ((layer.forward_layer.cell, 1), (layer.backward_layer.cell, -1)):
            h, found = np.zeros(D // 2), []
            for one in x[::step]:
                h = gru(cell, one, h)
                found.append(h)
            sides.append(np.stack(found)[::step])
        x = np.concatenate(sides, axis=-1)
    return x


def written(model, ids, target):
    """Logits [T, V] and attention [T, S] of one sentence."""
    h, decoder = read(model, ids), model.decoder
    first = np.tanh(oracle.dense(decoder.first_states, h[0, D // 2 :]))
    states, logits, attention = np.split(first, len(decoder.cells)), [], []
    for y in oracle.embed(model.target_embedding, target):
        if decoder.attention:
            energy = oracle.dense(decoder.of_state, states[-1]) + oracle.dense(decoder.of_memory, h)
            weights = oracle.softmax(oracle.dense(decoder.energy, np.tanh(energy))[:, 0])
            context = weights @ h
        else:
            weights = np.full(len(h), 1 / len(h))
            context = np.concatenate([h[-1, : D // 2], h[0, D // 2 :]])
        x = np.concatenate([y, context])
        for n, cell in enumerate(decoder.cells):
            states[n] = x = gru(cell, x, states[n])
        t = np.tanh(oracle.dense(decoder.behind, np.concatenate([x, context, y])))
        tied = model.output_projection.tied
        matrix = model.target_embedding.embeddings if tied else model.output_projection.kernel
        logits.append(t @ (oracle.array(matrix).T if tied else oracle.array(matrix)))
        attention.append(weights)
    return np.stack(logits), np.stack(attention)


@variants
def test_logits_and_attention_equal_the_equations(variant, inputs, model_of):
    model = model_of(variant)
    logits, (attention,) = model.with_attention(inputs)
    assert logits.shape == (B, T, model.config.target_vocabulary_size)
    assert attention.shape == (B, 1, T, S)
    for b, ids in enumerate(inputs["source_ids"]):
        ids = ids[ids != 0]
        expected, weights = written(model, ids, inputs["target_ids"][b])
        oracle.assert_close(logits[b], expected)
        oracle.assert_close(attention[b, 0, :, : len(ids)], weights)
        np.testing.assert_allclose(attention[b, 0, :, len(ids) :], 0, atol=1e-7)


@variants
@pytest.mark.parametrize("training", [False, True])
def test_no_logits_see_the_future(variant, training, inputs, rng, same_dropout):
    model = make(variant)
    rewind = same_dropout(model)
    logits = model(inputs, training=training).numpy()
    changed = inputs["target_ids"].copy()
    changed[:, 3:] = 4 + (changed[:, 3:] - 3) % (V - 4)
    rewind()
    other = model({**inputs, "target_ids": changed}, training=training).numpy()
    oracle.assert_close(other[:, :3], logits[:, :3])
    assert np.abs(other[:, 3:] - logits[:, 3:]).max() > 1e-3


@variants
def test_padding_and_batch_mates_change_nothing(variant, inputs, model_of):
    model = model_of(variant)
    logits = model(inputs).numpy()
    longer = {name: np.pad(ids, ((0, 0), (0, 3))) for name, ids in inputs.items()}
    oracle.assert_close(model(longer)[:, :T], logits)
    alone = {"source_ids": inputs["source_ids"][:1, :5], "target_ids": inputs["target_ids"][:1]}
    oracle.assert_close(model(alone)[0], logits[0])


@variants
def test_steps_equal_the_whole_model_when_beams_are_permuted(variant, inputs, rng, model_of):
    """When a hypothesis moves among the beams, its state moves too."""
    model = model_of(variant)
    beams = rng.integers(4, V, (B, W, T)).astype("int32")
    beams[:, :, 0] = 2
    places = [rng.permutation(W) for _ in range(T)]
    logits = steps(RecurrentInference(model), inputs["source_ids"], beams, places)
    for w in range(W):
        oracle.assert_close(logits[:, w], model({**inputs, "target_ids": beams[:, w]}))


@variants
def test_every_weight_has_a_gradient_and_is_restored_from_a_file(variant, model_of, inputs, reload):
    model = model_of(variant)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(inputs) ** 2)
    for weight, gradient in zip(
        model.trainable_weights, tape.gradient(loss, model.trainable_weights), strict=True
    ):
        assert np.abs(tf.convert_to_tensor(gradient)).max() > 0, weight.path
    np.testing.assert_allclose(reload(model)(inputs), model(inputs), atol=1e-6)


@variants
@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_half_precision_is_close_to_float32(variant, dtype, model_of, inputs):
    model = model_of(variant)
    half = Recurrent(model.config, dtype=dtype)
    half(inputs)
    half.set_weights(model.get_weights())
    whole, near = oracle.array(model(inputs)), oracle.array(half(inputs))
    assert np.abs(near - whole).max() < 0.05 * np.abs(whole).max()


def test_unsupported_options_are_refused():
    for change in ({"norm": "pre"}, {"attention_positions": "rotary"}, {"share_halves": True}):
        (name,) = change
        with pytest.raises(ValueError, match=name):
            RecurrentConfig(V, **change)
    with pytest.raises(ValueError, match="d_model must be even"):
        RecurrentConfig(V, d_model=15)
    assert RecurrentConfig(V, d_model=300).d_model == 300  # there are no heads


def test_recurrent_run_translates_but_is_not_exported(tmp_path, capsys):
    tokenizer = Tokenizer.train(["ein Haus", "a house"], vocabulary_size=300)
    size = tokenizer.source_vocabulary_size
    layers = {"num_encoder_layers": 1, "num_decoder_layers": 1}
    model = Recurrent(RecurrentConfig.preset("test", size, **layers))
    tfformer.save(tmp_path / "run", model, tokenizer, search={"max_target_length": 11})
    translator = load_service(tmp_path / "run")
    assert isinstance(translator, RecurrentTranslator)
    texts = ["ein Haus", "", "Haus"]
    assert translator.translate(texts, batch_size=1) == translator.translate(texts)
    scores = translator.functions["score"](tf.constant(texts), tf.constant(["a", "", "house"]))
    assert np.isfinite(scores["log_prob"]).all()
    assert saved_model.main([str(tmp_path / "run"), str(tmp_path / "model")]) != 0
    error = capsys.readouterr().err.splitlines()[-1]
    assert "a recurrent model is not exported" in error
    assert not (tmp_path / "model").exists()
    with pytest.raises(ValueError, match="xla must be off for a recurrent model"):
        RecurrentTranslator(model, tokenizer, xla=True)

"""The language model: the oracle, no access to the future or to neighbours, packed rows =
separate rows."""

import functools

import keras
import numpy as np
import oracle
import pytest
import tensorflow as tf

import tfformer
from tfformer import LanguageModel, LanguageModelConfig, SmoothedCrossEntropy
from tfformer.inference.fuse import fuse
from tfformer.inference.language_model import LanguageModelInference

B, T, V = 3, 7, 17
# fmt: off
VARIANTS = {
    "paper": {},
    "learned": {"positions": "learned", "max_positions": 23, "norm": "pre"},
    "a norm after the embeddings": {"embedding_norm": True, "epsilon": 1e-3},
    "swiglu": {"activation": "swiglu", "tie_embeddings": "none", "last_norm": True},
    "rotary": {
        "positions": "none", "attention_positions": "rotary", "num_heads": 7,
        "num_key_value_heads": 1, "normalization": "rms", "norm": "pre", "query_key_norm": True,
    },
    "rotary, wider heads": {
        "positions": "none", "attention_positions": "rotary", "head_size": 10, "rotary_base": 90.0,
        "rotary_factor": 3.0, "rotary_length": 40, "output_bias": True,
    },
    "relative": {"attention_positions": "relative", "normalization": "ada", "unique_layers": 1},
    "alibi": {"positions": "none", "attention_positions": "alibi", "normalization": "simple"},
}
# fmt: on
PROMPTS = [[2, 7, 11, 5], [2], [2, 9]]
variants = pytest.mark.parametrize("variant", VARIANTS)


def make(variant="paper", **changes):
    options = {"num_layers": 2, **VARIANTS[variant], **changes}
    config = LanguageModelConfig.preset("test", V, **options)
    return LanguageModel(config)


@pytest.fixture(scope="module")
def model_of(randomise):
    """One model with random weights for each variant; the tests do not change them."""
    return functools.cache(lambda variant: randomise(make(variant)))


@pytest.fixture
def ids(rng):
    ids = rng.integers(4, V, size=(B, T))
    ids[:, 0], ids[0, 5:], ids[2, 2:] = 2, 0, 0
    return ids.astype("int32")


@variants
def test_logits_equal_the_oracle(variant, ids, model_of):
    model = model_of(variant)
    logits = model(ids)
    assert logits.shape == (B, T, V)
    np.testing.assert_allclose(logits, oracle.language_model(model, ids), atol=1e-4, rtol=1e-5)


@variants
def test_logits_see_neither_the_future_nor_padding(variant, ids, rng, model_of):
    model = model_of(variant)
    logits = model(ids).numpy()
    for t in (0, T - 2):
        changed = ids.copy()
        changed[:, t + 1 :] = rng.integers(0, V, size=(B, T - t - 1))
        oracle.assert_close(model(changed)[:, : t + 1], logits[:, : t + 1])
    oracle.assert_close(model(np.pad(ids, ((0, 0), (0, 4))))[:, :T], logits)
    oracle.assert_close(model(ids[2:, :2])[0], logits[2, :2])


@variants
def test_packed_texts_give_the_same_logits_as_separate_texts(variant, ids, model_of):
    """Logits, loss and all gradients; a text does not see earlier texts of its row."""
    model = model_of(variant)
    first, second, third = ids[1], ids[0, :5], ids[2, :2]
    rows = [[*first, *second], [*third, *first]]
    texts = [[5] * 7 + [2] * 5, [1] * 2 + [7] * 7]
    joined = {
        name: keras.utils.pad_sequences(value, 13, padding="post")
        for name, value in (("ids", rows), ("texts", texts))
    }
    found = tf.reshape(model(joined), [2, 13, V])
    alone = model(ids)
    oracle.assert_close(found[0, :7], alone[1])
    oracle.assert_close(found[0, 7:12], alone[0, :5])
    oracle.assert_close(found[1, :2], alone[2, :2])
    oracle.assert_close(found[1, 2:9], alone[1])

    def gradients(inputs, labels):
        with tf.GradientTape() as tape:
            loss = SmoothedCrossEntropy()(labels, model(inputs))
        of = tape.gradient(loss, model.trainable_variables)
        return loss, [tf.convert_to_tensor(one).numpy() for one in of]

    labels = np.where(joined["ids"] > 0, (joined["ids"] * 5) % V, 0).reshape(-1)
    kept = np.stack([first, np.pad(second, (0, 2)), np.pad(third, (0, 5)), first])
    loss, of = gradients(joined, labels)
    expected, of_alone = gradients(kept, np.where(kept > 0, (kept * 5) % V, 0))
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    for variable, a, b in zip(model.trainable_variables, of, of_alone, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5, rtol=1e-3, err_msg=variable.path)


@variants
def test_inference_of_whole_texts_equals_token_by_token(variant, ids, model_of):
    """The inference layers: a whole text, a prompt in one pass, then one token at a time."""
    model = model_of(variant)
    inference = LanguageModelInference(*fuse(model, 23))
    logits, attention = inference.decode(tf.constant(ids), {})
    real = ids > 0
    np.testing.assert_allclose(logits[real], model(ids)[real], atol=1e-5, rtol=1e-4)
    assert attention is None
    labels = tf.constant(np.roll(ids, -1, axis=1))
    expected = tf.nn.log_softmax(logits)
    expected = tf.gather(expected, labels, batch_dims=2)
    oracle.assert_close(inference.log_probs(tf.constant(ids), labels, {}, block=5), expected)
    state = inference.start(tf.constant(ids), width=1)
    for t in range(3):
        visible = tf.reshape(tf.range(16) <= t, [1, 1, 16, 1])
        visible = tf.tile(visible, [B, 1, 1, 1])
        if t == 0:
            room = [[0, 0], [0, 0], [0, 15], [0, 0]]
            state = state._replace(
                cache=tf.nest.map_structure(lambda leaf: tf.pad(leaf, room), state.cache)  # noqa: B023
            )
        step = inference.step(tf.constant(ids[:, t : t + 1]), t, visible, state)
        state = state._replace(cache=step.cache)
        oracle.assert_close(step.logits[:, 0][real[:, t]], logits[:, t][real[:, t]])


@pytest.mark.parametrize("search", ["beam", "greedy", "sample", "exhaustive"])
def test_cached_generation_equals_uncached_generation(search, model_of):
    """Cached = uncached; prompts of unequal lengths = each alone."""
    model = model_of("paper")
    options = {
        "beam": {"beam_width": 4, "length_penalty": 0.7},
        "sample": {"seed": 11, "top_k": 5},
        "exhaustive": {"num_results": 3},
    }.get(search, {})
    length = 3 if search == "exhaustive" else T
    options |= {"search": search, "max_length": length}
    cached = tfformer.generate(model, prompt=PROMPTS, **options)
    uncached = tfformer.generate(
        functools.partial(model, training=False), prompt=PROMPTS, **options
    )
    np.testing.assert_array_equal(cached.token_ids, uncached.token_ids)
    np.testing.assert_allclose(cached.scores, uncached.scores, rtol=1e-4, atol=1e-5)
    if search != "sample":  # sampling draws for the whole batch
        for row, prompt in enumerate(PROMPTS):
            alone = tfformer.generate(model, prompt=[prompt], **options)
            size = alone.token_ids.shape[-1]
            np.testing.assert_array_equal(cached.token_ids[row, :, :size], alone.token_ids[0])


@pytest.mark.slow
def test_fit_learns_and_the_saved_model_gives_the_same_logits(tmp_path, rng):
    """Each id is followed by the next."""
    starts = rng.integers(4, V - T, size=(64, 1))
    texts = np.concatenate([np.full((64, 1), 2), starts + np.arange(T)], axis=1)
    model = make(num_layers=1, dropout=0.0)
    model.compile(keras.optimizers.Adam(0.01), SmoothedCrossEntropy(0.0), jit_compile=False)
    model.fit(texts[:, :-1], texts[:, 1:], batch_size=16, epochs=12, verbose=0)
    found = tfformer.generate(model, prompt=[[2, 5], [2, 8]], max_length=4, search="greedy")
    assert found.token_ids.numpy()[:, 0, :3].tolist() == [[6, 7, 8], [9, 10, 11]]
    path = tmp_path / "model.keras"
    model.save(path)
    again = keras.models.load_model(path)
    np.testing.assert_array_equal(again(texts[:2]), model(texts[:2]))


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (np.ones([T], int), "ids must be \\[B, T\\], got shape"),
        ({"ids": np.ones([B, T], int)}, "inputs must be ids \\[B, T\\] or .*, got \\['ids'\\]"),
    ],
)
def test_other_inputs_are_refused(inputs, message, model_of):
    with pytest.raises(ValueError, match=message):
        model_of("paper")(inputs)


def test_generate_refuses_a_source_too_many_tokens_or_other_ids(model_of):
    model = model_of("learned")
    with pytest.raises(ValueError, match="a LanguageModel has no source: source_ids must be None"):
        tfformer.generate(model, source_ids=[[5, 3]], prompt=[[2]])
    with pytest.raises(ValueError, match="at most max_positions = 23 tokens, got 24"):
        tfformer.generate(model, prompt=[[2, 5]], max_length=23)
    with pytest.raises(ValueError, match="special_ids of a LanguageModel must be"):
        tfformer.generate(model, prompt=[[2]], special_ids=tfformer.SpecialIds(eos=5))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocabulary_size": 4}, "vocabulary_size must be an integer of at least 5, got 4"),
        ({"num_layers": 0}, "num_layers must be an integer of at least 1, got 0"),
        ({"tie_embeddings": "target"}, "tie_embeddings must be one of .*, got 'target'"),
        ({"num_encoder_layers": 2}, "got also \\['num_encoder_layers'\\]"),
    ],
)
def test_wrong_configuration_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        LanguageModelConfig.from_dict({"vocabulary_size": V, **changes})

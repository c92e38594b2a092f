"""`generate` with any model: cached = uncached, other special ids, prompts of unequal lengths."""

import functools

import keras
import numpy as np
import pytest
import search_oracle as oracle
import tensorflow as tf

import tfformer
from tfformer import SpecialIds, Transformer, TransformerConfig
from tfformer.config import BOS, EOS, PAD

B, S, V, T = 3, 5, 13, 7
PROMPTS = [[BOS, 7, 11, 5], [BOS], [BOS, 9]]
SEARCHES = {
    "beam": {"beam_width": 4, "length_penalty": 0.7},
    "greedy": {},
    "sample": {"seed": 11, "top_k": 5},
    "exhaustive": {"num_results": 3},
}
# Special ids of known vocabularies: GPT-2 has one id for two of them, T5 begins with pad.
OTHERS = [
    SpecialIds(pad=None, unk=None, bos=12, eos=12),
    SpecialIds(pad=0, unk=2, bos=0, eos=1),
    SpecialIds(pad=1, unk=3, bos=0, eos=2),
    SpecialIds(pad=None, unk=None, bos=None, eos=8),
]


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(5)
    sizes = {"source_vocabulary_size": 17, "target_vocabulary_size": V}
    sizes |= {"num_encoder_layers": 1, "num_decoder_layers": 2}
    model = Transformer(TransformerConfig.preset("test", **sizes, tie_embeddings="target"))
    for n, weight in enumerate(model.trainable_variables):
        weight.assign_add(0.3 * tf.random.stateless_normal(weight.shape, [n, 7]))
    return model


@pytest.fixture(scope="module")
def source_ids():
    ids = np.random.default_rng(2).integers(4, 17, [B, S])
    ids[1, 3:] = PAD
    return ids.astype("int32")


def causal_logits(ids, weights):
    """Logits of a causal function of the whole prefix, [N, T] -> [N, T, V], by NumPy's rules."""
    table = tf.constant(weights, tf.float32)  # [V, V]
    read = tf.gather(table, ids)  # [N, T, V]
    places = tf.cast(tf.range(1, tf.shape(ids)[1] + 1), tf.float32)[:, None]
    return tf.cumsum(read, axis=1) * tf.sin(places) + read


@pytest.fixture(scope="module")
def language_model():
    weights = np.random.default_rng(3).normal(size=[V, V])
    return functools.partial(causal_logits, weights=weights)


def equal(found, expected):
    np.testing.assert_array_equal(found.token_ids, expected.token_ids)
    np.testing.assert_array_equal(found.lengths, expected.lengths)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("prompt", [None, PROMPTS], ids=["bos", "prompt"])
@pytest.mark.parametrize("search", SEARCHES)
def test_cached_search_equals_uncached_search(model, source_ids, search, prompt):
    length = 3 if search == "exhaustive" else T
    options = {"prompt": prompt, "max_length": length, "search": search, **SEARCHES[search]}
    cached = tfformer.generate(model, source_ids, **options)
    # A function instead of a Transformer computes each prefix again.
    uncached = tfformer.generate(functools.partial(model, training=False), source_ids, **options)
    equal(cached, uncached)
    count = {"beam": 4, "exhaustive": 3}.get(search, 1)
    assert cached.token_ids.shape[:2] == (B, count)
    assert (cached.lengths.numpy() > 0).all()


@pytest.mark.parametrize("search", SEARCHES)
def test_batch_gives_the_same_results_as_single_rows(language_model, search):
    length = 3 if search == "exhaustive" else T
    options = {"max_length": length, "search": search, **SEARCHES[search]}
    together = tfformer.generate(language_model, prompt=PROMPTS, **options)
    for b, prompt in enumerate(PROMPTS):
        if search == "sample" and b:
            break  # each row of a batch has its own noise
        alone = tfformer.generate(language_model, prompt=[prompt], **options)
        longest = alone.token_ids.shape[2]
        np.testing.assert_array_equal(together.token_ids[b, :, :longest], alone.token_ids[0])
        np.testing.assert_allclose(together.scores[b], alone.scores[0], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("special", [SpecialIds(), *OTHERS], ids=str)
def test_beam_search_equals_the_plain_search(language_model, special):
    """The plain search in Python uses the model's own ids."""
    starts = [[4, 7, 11, 5], [6], [10, 9]]
    found = tfformer.generate(
        language_model, prompt=starts, max_length=5, special_ids=special, beam_width=4
    )
    for b, start in enumerate(starts):

        def log_probs(prefix, start=start):
            prefix = special.to_model(tf.constant(prefix, tf.int32))
            ids = tf.concat([start, prefix], axis=0)[None]
            logits = special.logits_to_search(language_model(ids)[:, -1])
            return oracle.log_softmax(logits[0].numpy())

        size = V if special == SpecialIds() else V + 4
        for w, (ids, score, log_prob) in enumerate(oracle.beam(log_probs, size, 5, 4, 0.6, "gnmt")):
            expected = special.to_model(tf.constant(ids))
            np.testing.assert_array_equal(found.token_ids[b, w, : len(ids)], expected)
            np.testing.assert_allclose(found.scores[b, w], score, rtol=1e-5)
            np.testing.assert_allclose(found.log_probs[b, w], log_prob, rtol=1e-5)


@pytest.mark.parametrize("search", ["greedy", "beam"])
def test_end_ids_are_given_in_the_ids_of_the_model(search):
    """After each id, the model predicts the next number, up to eos (10)."""

    def follows(ids):
        return 9.0 * tf.one_hot(ids + 1, 11)

    options = {"search": search, "special_ids": SpecialIds(None, None, None, 10), "ends": [8]}
    options |= {"num_results": 1} if search == "beam" else {}
    found = tfformer.generate(follows, prompt=[[3, 4, 5], [7], [8]], **options)
    assert found.token_ids[:, 0].numpy().tolist() == [[6, 7, 8], [8, 10, 10], [9, 10, 10]]
    assert found.lengths[:, 0].numpy().tolist() == [3, 1, 2]


@pytest.mark.parametrize("special", OTHERS, ids=str)
def test_renumbered_ids_and_logits_round_trip(special):
    ids = tf.range(V)
    np.testing.assert_array_equal(special.to_model(special.to_search(ids)), ids)
    logits = np.random.default_rng(1).normal(size=[2, V]).astype("float32")
    renumbered = special.logits_to_search(tf.constant(logits)).numpy()
    np.testing.assert_array_equal(renumbered[:, special.to_search(ids)], logits)
    finite = np.isfinite(renumbered).sum(axis=1)
    np.testing.assert_array_equal(finite, V)  # each once
    assert special.to_search(tf.constant(special.eos)) == EOS


def test_prompt_may_be_ragged_or_padded_left_or_right(language_model):
    generate = functools.partial(tfformer.generate, language_model, max_length=T, search="greedy")
    ragged = generate(prompt=tf.ragged.constant(PROMPTS, tf.int32))
    right = tf.ragged.constant(PROMPTS, tf.int64).to_tensor()
    left = np.array([[0] * (4 - len(row)) + row for row in PROMPTS])
    for prompt in (PROMPTS, right, right.numpy(), right.numpy().tolist(), left, tf.constant(left)):
        equal(generate(prompt=prompt), ragged)


def test_prefix_uses_the_ids_of_the_model_and_its_padding(language_model):
    special, prompt = SpecialIds(pad=1, unk=None, bos=12, eos=12), [[4], [4]]
    options = {"max_length": 5, "special_ids": special, "num_results": 1}
    found = tfformer.generate(language_model, prompt=prompt, prefix=[[6, 9], [3, 1]], **options)
    np.testing.assert_array_equal(found.token_ids[0, 0, :2], [6, 9])
    alone = tfformer.generate(language_model, prompt=prompt[1:], prefix=[[3]], **options)
    length = int(alone.lengths[0, 0])
    assert int(found.token_ids[1, 0, 0]) == 3 and int(found.lengths[1, 0]) == length
    np.testing.assert_array_equal(found.token_ids[1, 0, :length], alone.token_ids[0, 0])


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"beam_width": 1},
        {"beam_width": 3},
        {"search": "greedy"},
    ],
)
def test_generate_in_a_graph_equals_eager(model, source_ids, options):
    prompts = np.array([[0] * (4 - len(row)) + row for row in PROMPTS])
    generate = functools.partial(tfformer.generate, model, max_length=T, **options)
    free = tf.TensorSpec([None, None], tf.int64)
    in_graph = tf.function(generate, input_signature=[free, free])
    equal(in_graph(source_ids, prompts), generate(source_ids, prompts))


@pytest.mark.slow
def test_generate_refuses_more_tokens_than_max_positions(source_ids):
    """At the last position the layers refuse to continue, and so does the search."""
    sizes = {"target_vocabulary_size": V, "positions": "learned", "max_positions": 16}
    sizes |= {"num_encoder_layers": 1, "num_decoder_layers": 1}
    model = Transformer(TransformerConfig.preset("test", 17, **sizes))
    generate = functools.partial(tfformer.generate, model, source_ids, search="greedy")
    uncached = functools.partial(model, training=False)
    options = {"prompt": [[7] * 10] * B, "min_length": 7, "max_length": 7, "search": "greedy"}
    equal(tfformer.generate(model, source_ids, **options),
          tfformer.generate(uncached, source_ids, **options))  # fmt: skip
    with pytest.raises(ValueError, match="at most max_positions = 16 tokens, got 17"):
        generate(prompt=[[7] * 10] * B, max_length=8)
    with pytest.raises(ValueError, match="max_positions = 16 tokens, got 64"):
        generate()


def test_dropout_is_off_when_generating_with_a_keras_model():
    """With this much dropout, two searches agree only if dropout is off."""
    ids = keras.Input([None], dtype="int32")
    x = keras.layers.Dropout(0.9)(keras.layers.Embedding(V, 7)(ids))
    model = keras.Model(ids, keras.layers.Dense(V)(x))
    one, two = (tfformer.generate(model, prompt=[[BOS]], max_length=T) for _ in range(2))
    equal(one, two)


@pytest.mark.slow
def test_coverage_needs_attention(model, source_ids):
    covered = tfformer.generate(model, source_ids, max_length=T, coverage_penalty=0.4)
    plain = tfformer.generate(model, source_ids, max_length=T)
    assert not np.allclose(covered.scores, plain.scores)
    with pytest.raises(ValueError, match="gives its attention, got None"):
        tfformer.generate(
            functools.partial(model, training=False), source_ids, coverage_penalty=0.4
        )


@pytest.mark.parametrize(
    "error, message, given",
    [
        (ValueError, "search must be one of .*, got 'best'", {"search": "best"}),
        (ValueError, "source_ids or prompt must be given", {"prompt": None}),
        (ValueError, r"prompt must have a token in each row, got \[\[2\], \[0\]\]",
         {"prompt": tf.constant([[BOS], [PAD]])}),
        (ValueError, r"prompt must have a token in each row, got \[\]", {"prompt": []}),
        (ValueError, "prompt must have a row for each of source_ids, got 3", {"source_ids": [[5]]}),
        (ValueError, "eos of special_ids must be an id, at least 0, got None",
         {"special_ids": (0, 1, 2, None)}),
        (ValueError, "bos of special_ids must be an id, at least 0, got -1",
         {"special_ids": (0, 1, -1, 3)}),
        (ValueError, "special_ids must be below V = 13, got 13",
         {"special_ids": (0, 1, 2, np.int64(V))}),
        (ValueError, "prompt must be given where special_ids has no bos",
         {"prompt": None, "source_ids": [[5]], "special_ids": (0, 1, None, 3)}),
        (TypeError, "beam_size", {"beam_size": 3}),
        (ValueError, "max_length must be at least 1, got 0", {"max_length": 0}),
        (ValueError, "max_length must be an integer, got '7'", {"max_length": "7"}),
        (ValueError, "beam_width must be at least 1, got 0", {"beam_width": 0}),
        (ValueError, "xla must be False", {"xla": True}),
        (ValueError, "bos of special_ids must be an id, at least 0, got 'b'",
         {"special_ids": (0, 1, "b", 3)}),
        (ValueError, r"prompt must be rows of ids, got shape \(2,\)", {"prompt": [2, 5]}),
        (ValueError, "prompt must be rows of ids, got 'ab'", {"prompt": "ab"}),
        (ValueError, r"prompt must be rows of ids, got shape \(1, 1, 2\)",
         {"prompt": np.ones([1, 1, 2], int)}),
        (ValueError, r"source_ids must be rows of ids, got shape \(2,\)", {"source_ids": [5, 3]}),
        (ValueError, "model must be a Transformer, a LanguageModel or a function of ids, got None",
         {"model": None}),
    ],
)  # fmt: skip
def test_error_names_a_wrong_argument(language_model, error, message, given):
    with pytest.raises(error, match=message):
        tfformer.generate(**{"model": language_model, "prompt": PROMPTS, **given})


def test_transformer_needs_source_ids_and_its_own_special_ids(model, source_ids):
    with pytest.raises(ValueError, match="a Transformer needs source_ids"):
        tfformer.generate(model, prompt=PROMPTS)
    with pytest.raises(ValueError, match="special_ids of a Transformer must be"):
        tfformer.generate(model, source_ids, special_ids=OTHERS[0])

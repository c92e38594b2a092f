"""The search among a sentence's own candidates, compared with plain NumPy; and the file."""

import functools

import numpy as np
import pytest
import search_oracle
import tensorflow as tf
import words
from served_table import ALPHA, LIMITS, MAX_SOURCE, MAX_TARGET, WIDTH
from words import make_model, make_shortlist, make_tokenizer, sentences

from tfformer import Translator
from tfformer.files import RunError, pack
from tfformer.inference.fuse import fuse
from tfformer.shortlist import Shortlist

# Together they take minutes.
pytestmark = pytest.mark.slow

# Of several lengths; one has characters without a piece.
TEXTS = [*sentences(3, 5), "你好 🎉"]
RULES = {"min_length": 4, "repetition_penalty": 1.6, "no_repeat_ngram": 2}


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer()


@pytest.fixture(scope="module")
def model(tokenizer):
    return make_model(tokenizer)


@pytest.fixture(scope="module")
def shortlist(tokenizer):
    return make_shortlist(tokenizer)


@pytest.fixture(scope="module")
def translator(model, tokenizer, shortlist):
    return Translator(model, tokenizer, **LIMITS, shortlist=shortlist)


@pytest.fixture(scope="module")
def whole(model, tokenizer):
    return Translator(model, tokenizer, **LIMITS)


def call(translator, name, *texts, **options):
    """The outputs of a signature as arrays."""
    outputs = translator.functions[name](*(tf.constant(x, tf.string) for x in texts), **options)
    return {key: value.numpy() for key, value in outputs.items()}


@pytest.fixture(scope="module")
def allowed(tokenizer, shortlist):
    """The candidates of each of TEXTS, by Python sets."""
    found = []
    for ids in tokenizer.encode_source(TEXTS).to_list():
        own = set(shortlist.always.tolist())
        for piece in ids:
            own |= set(shortlist.candidates[piece].tolist())
        found.append(sorted(own))
    return found


@pytest.fixture(scope="module")
def logits_of(model, tokenizer):
    """`logits_of(b)(prefix)` of TEXTS[b]: the whole model in NumPy, with all pieces."""
    return lambda b: words.logits_of(model, *tokenizer.encode_source(TEXTS[b : b + 1]).to_list())


def restricted(logits_of, allowed):
    def of(prefix):
        logits = np.full_like(logits_of(prefix), -np.inf)
        logits[allowed] = logits_of(prefix)[allowed]
        return logits

    return of


# ---------------------------------------------------------------- the search


def test_beam_search_equals_the_plain_search_among_candidates(
    translator, allowed, logits_of, model
):
    found, size = call(translator, "beam_search", TEXTS), model.config.target_vocabulary_size
    for b in range(len(TEXTS)):
        short = restricted(logits_of(b), allowed[b])

        @functools.cache
        def log_probs_of(prefix, short=short):
            return search_oracle.log_softmax(short(prefix))

        expected = search_oracle.beam(log_probs_of, size, MAX_TARGET, WIDTH, ALPHA)
        np.testing.assert_allclose(found["scores"][b], [e[1] for e in expected], rtol=1e-4)
        assert tuple(found["token_ids"][b, 0, : found["lengths"][b, 0]]) == expected[0][0]
        # Normalised over fewer pieces, the log-probability is higher than the model's.
        everything = search_oracle.log_prob(
            lambda prefix, b=b: search_oracle.log_softmax(logits_of(b)(prefix)), expected[0][0]
        )
        assert everything < expected[0][2]


@pytest.mark.parametrize("rule", RULES)
def test_search_rule_equals_the_plain_search_among_candidates(
    rule, translator, allowed, logits_of, model
):
    found = call(translator, "beam_search", TEXTS, **{rule: RULES[rule]})
    names = {"repetition_penalty": "repetition", "no_repeat_ngram": "ngram"}
    for b in range(len(TEXTS)):
        expected = search_oracle.beam_with(
            restricted(logits_of(b), allowed[b]),
            model.config.target_vocabulary_size,
            MAX_TARGET,
            WIDTH,
            ALPHA,
            **{names.get(rule, rule): RULES[rule]},
        )
        np.testing.assert_allclose(found["scores"][b], [e[1] for e in expected], rtol=1e-4)
    without = call(translator, "beam_search", TEXTS)["scores"]
    assert (without != found["scores"]).any()


def test_a_shortlist_of_all_pieces_changes_nothing(model, tokenizer, whole):
    none = np.zeros((tokenizer.source_vocabulary_size, 1), "int32")
    everything = np.arange(tokenizer.target_vocabulary_size)
    shortlist = Shortlist(none, everything, tokenizer.sha256)
    full = Translator(model, tokenizer, **LIMITS, shortlist=shortlist)
    every_rule = {**RULES, "coverage_penalty": 0.4, "max_length_factor": 1.5, "beam_width": 5}
    for options in ({}, every_rule):
        expected, found = (call(t, "beam_search", TEXTS, **options) for t in (whole, full))
        for key, value in expected.items():
            if value.dtype == np.float32:
                np.testing.assert_allclose(found[key], value, rtol=1e-4, atol=1e-5)
            else:
                np.testing.assert_array_equal(found[key], value)
    assert full.translate(TEXTS) == whole.translate(TEXTS)
    assert full.translate(TEXTS, greedy=True) == whole.translate(TEXTS, greedy=True)


def test_tokens_are_candidates_of_their_own_sentence_in_any_batch(translator, allowed, whole):
    together = call(translator, "beam_search", TEXTS, beam_width=5)
    for b, text in enumerate(TEXTS):
        for w, length in enumerate(together["lengths"][b]):
            assert set(together["token_ids"][b, w, :length].tolist()) <= set(allowed[b])
        alone = call(translator, "beam_search", [text], beam_width=5)
        length = alone["token_ids"].shape[2]
        np.testing.assert_array_equal(alone["token_ids"][0], together["token_ids"][b, :, :length])
        np.testing.assert_allclose(alone["scores"][0], together["scores"][b], rtol=1e-4)
    assert translator.translate(TEXTS[::-1], batch_size=2)[::-1] == translator.translate(TEXTS)
    assert translator.translate(TEXTS) != whole.translate(TEXTS)


def test_forced_and_sampled_outputs_ignore_the_shortlist(translator, whole):
    targets = TEXTS[::-1]
    for name, *texts in (
        ("score", TEXTS, targets),
        ("align", TEXTS, targets),
        ("sample", TEXTS),
        ("complete", TEXTS, ["by the", "1987", "", "lake", "trees", "x"]),
    ):
        expected, found = (call(t, name, *texts) for t in (whole, translator))
        for key, value in expected.items():
            np.testing.assert_array_equal(found[key], value)


@pytest.mark.parametrize("size", [1, 3, 31, 32, 33, 64, 331, 2049])
@pytest.mark.parametrize("count", [1, 5, 67])
def test_most_likely_tokens_equal_argsort_for_any_size_and_count(size, count, rng):
    from tfformer.search.rules import likeliest

    graph = tf.function(
        likeliest,
        input_signature=[tf.TensorSpec([None, 2, None]), tf.TensorSpec([], tf.int32)],
        autograph=False,
    )
    logits = rng.permuted(np.tile(np.arange(size, dtype="float32"), (3, 2, 1)), axis=-1)
    values, tokens = graph(tf.constant(logits), tf.constant(count))
    expected = np.argsort(-logits)[..., :count]
    np.testing.assert_array_equal(tokens, expected)
    np.testing.assert_array_equal(values, np.take_along_axis(logits, expected, axis=-1))
    assert graph(tf.zeros([0, 2, size]), tf.constant(count))[0].shape[0] == 0


# ---------------------------------------------------------------- the SavedModel


def test_saved_model_stores_each_array_once(translator, model, shortlist, tmp_path):
    translator.save(str(tmp_path / "1"))
    stored = tf.train.list_variables(str(tmp_path / "1/variables/variables"))
    sizes = sorted(tuple(shape) for name, shape in stored if "VARIABLE_VALUE" in name)
    arrays = [*tf.nest.flatten(fuse(model, MAX_SOURCE)[1]), *shortlist_arrays(shortlist)]
    assert sizes == sorted(tuple(array.shape) for array in arrays)


def shortlist_arrays(shortlist):
    return shortlist.candidates, shortlist.always


# ---------------------------------------------------------------- the file


@pytest.fixture
def saved(shortlist, tmp_path):
    shortlist.save(tmp_path / "shortlist.npz")
    return tmp_path / "shortlist.npz"


def test_loaded_file_equals_the_saved_shortlist(shortlist, saved):
    shortlist.save(saved)  # over the existing file
    found = Shortlist.load(saved)
    for before, after in zip(*map(shortlist_arrays, (shortlist, found)), strict=True):
        np.testing.assert_array_equal(after, before)
        assert after.dtype == np.int32 and not after.flags.writeable
    assert found.tokenizer_sha256 == shortlist.tokenizer_sha256
    assert found.describe() == (
        f"at most 7 candidates for each of {len(found.candidates)} source pieces, "
        "17 for every sentence"
    )
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


def test_damaged_file_is_refused_or_loads_the_same(shortlist, saved, tmp_path):
    content, refused = saved.read_bytes(), 0
    rng, path = np.random.default_rng(3), tmp_path / "damaged.npz"
    for place in rng.choice(len(content), 211, replace=False):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x55]) + content[place + 1 :])
        try:
            found = Shortlist.load(path)
        except RunError as error:
            assert str(path) in str(error)
            refused += 1
        else:  # a byte without effect
            np.testing.assert_array_equal(found.candidates, shortlist.candidates)
            np.testing.assert_array_equal(found.always, shortlist.always)
    assert refused > 150
    for length in (0, 1, 100, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(RunError, match="damaged|no shortlist"):
            Shortlist.load(path)


def test_file_that_is_no_shortlist_is_refused(tmp_path):
    path = tmp_path / "file"
    good = {"candidates": np.zeros((5, 2), "int32"), "always": np.arange(4, dtype="int32")}
    good |= {"format": np.array(1), "tokenizer_sha256": np.array("ab")}
    for content, message in (
        (b"text", "is no shortlist: it is no .npz file"),
        (pack({"weights": np.zeros(3)}), "is no shortlist: it holds"),
        (pack({**good, "format": np.array(2)}), "must be of format 1, got 2"),
        (pack({**good, "always": np.arange(3)}), "is damaged: always must ascend from 0, 1, 2, 3"),
        (pack({**good, "candidates": np.zeros(5)}), "is damaged: candidates must be integers"),
    ):
        path.write_bytes(content)
        with pytest.raises(RunError, match=f"{path} {message}"):
            Shortlist.load(path)
    path.write_bytes(pack(good))
    assert Shortlist.load(path).candidates.shape == (5, 2)
    for missing, message in (
        (tmp_path / "missing", "cannot be read"),
        (tmp_path, "must be a regular file, got a folder"),
    ):
        with pytest.raises(RunError, match=f"{missing} {message}"):
            Shortlist.load(missing)


@pytest.mark.parametrize(
    "candidates, always, message",
    [
        ([[1]], [0, 1, 2], "always must ascend from 0, 1, 2, 3, got"),
        ([[1]], [0, 1, 2, 3, 7, 7], "always must ascend"),
        ([[1]], [0, 1, 2, 3, 7, 5], "always must ascend"),
        ([[1.5]], [0, 1, 2, 3], "candidates must be integers of rank 2, got float64"),
        ([1], [0, 1, 2, 3], r"candidates must be integers of rank 2, got int64 \(1,\)"),
        ([[-1]], [0, 1, 2, 3], "candidates must be ids in .* got -1 to -1"),
        ([[2**31]], [0, 1, 2, 3], "candidates must be ids in"),
    ],
)
def test_error_names_a_wrong_argument(candidates, always, message):
    with pytest.raises(ValueError, match=message):
        Shortlist(np.array(candidates), np.array(always), "ab")


def test_the_shortlist_of_another_vocabulary_is_refused(model, tokenizer, shortlist):
    other = Shortlist(*shortlist_arrays(shortlist), "0" * 64)
    with pytest.raises(ValueError, match="shortlist must be made for this tokenizer, .* 00000"):
        Translator(model, tokenizer, shortlist=other)
    size = tokenizer.target_vocabulary_size
    for candidates, always in (
        (shortlist.candidates[1:], shortlist.always),
        (np.where(shortlist.candidates == 0, size, 5), shortlist.always),
        (shortlist.candidates, [*shortlist.always, size]),
    ):
        wrong = Shortlist(candidates, np.array(always), tokenizer.sha256)
        with pytest.raises(ValueError, match=f"shortlist must be for .* {size} target pieces, got"):
            Translator(model, tokenizer, shortlist=wrong)

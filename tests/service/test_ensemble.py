"""An ensemble compared with the mean of its models in NumPy; saved and served."""

import functools

import numpy as np
import pytest
import search_oracle
import tensorflow as tf
from served_table import ALPHA, LIMITS, MAX_TARGET, TEXTS, WIDTH
from words import FEW_LAYERS, logits_of, make_model, make_tokenizer

from export.verification.graph import read_graph
from tfformer import Translator
from tfformer.config.search_options import ENSEMBLE_MEANS
from tfformer.inference.ensemble import MINIMUM, mixed

means = pytest.mark.parametrize("mean", ENSEMBLE_MEANS)


@pytest.fixture(scope="module")
def models(tokenizer):
    """Three models of different depth and width."""
    wide = {"d_model": 20, "num_heads": 5, "d_ff": 23}
    deep = {**FEW_LAYERS, "num_decoder_layers": 3}
    return [
        make_model(tokenizer, seed=seed, **options)
        for seed, options in ((13, FEW_LAYERS), (17, deep), (19, {**FEW_LAYERS, **wide}))
    ]


@pytest.fixture(scope="module")
def make(models, tokenizer):
    """`make(mean)` returns the translator of all three."""

    @functools.cache
    def translator(mean):
        others = [Translator(model, tokenizer) for model in models[1:]]
        return Translator(models[0], tokenizer, ensemble=others, ensemble_mean=mean, **LIMITS)

    return translator


@pytest.fixture(scope="module")
def log_probs_of(models, tokenizer):
    """`log_probs_of(mean, text)(prefix)`: the mean of the whole models in NumPy, without a cache.

    The models' results for a prefix are computed once for both means.
    """

    @functools.cache
    def each_of(text):
        (source_ids,) = tokenizer.encode_source(tf.constant([text])).numpy().tolist()
        return [logits_of(model, source_ids) for model in models]

    @functools.cache
    def made(mean, text):
        each = each_of(text)

        @functools.cache
        def of(prefix):
            found = np.array([search_oracle.log_softmax(logits(prefix)) for logits in each])
            if mean == "probabilities":
                return np.log(np.exp(found).mean(axis=0))
            return search_oracle.log_softmax(found.mean(axis=0))

        return of

    return made


def ask(translator, name, *texts):
    found = translator.functions[name](*[tf.constant(one, tf.string) for one in texts])
    return {key: value.numpy() for key, value in found.items()}


@pytest.mark.slow
@means
def test_best_translation_equals_a_plain_search_over_the_mean(
    make, models, tokenizer, log_probs_of, mean
):
    """In a batch, and each text alone."""
    found = ask(make(mean), "serving_default", [*TEXTS, ""])
    size = models[0].config.target_vocabulary_size
    for b, text in enumerate(TEXTS):
        of = log_probs_of(mean, text)
        ids, score, _ = search_oracle.beam(of, size, MAX_TARGET, WIDTH, ALPHA)[0]
        expected = tokenizer.decode(tf.constant([ids])).numpy()[0]
        for answer in (found, ask(make(mean), "serving_default", [text])):
            row = b if answer is found else 0
            assert answer["translation"][row] == expected
            np.testing.assert_allclose(answer["score"][row], score, rtol=1e-4)
    assert (found["translation"][-1], found["score"][-1]) == (b"", 0.0)


@means
def test_score_equals_the_mean_of_the_models(make, tokenizer, log_probs_of, mean):
    translator = make(mean)
    targets = ["a house", "lake with", "", "by the lake", "little"]
    found = ask(translator, "score", TEXTS, targets)
    labels = tokenizer.encode_target(tf.constant(targets)).numpy().tolist()
    for b, text in enumerate(TEXTS):
        of = log_probs_of(mean, text)
        total = search_oracle.log_prob(of, tuple(labels[b]))
        np.testing.assert_allclose(found["log_prob"][b], total, rtol=1e-4)


def test_the_means_by_hand():
    """0.8 and 0.2 beside 0.4 and 0.6: their mean is 0.6 and 0.4; geometric, 0.32 : 0.12."""
    logits = [np.log([[0.8, 0.2]]) + 5, np.log([[0.4, 0.6]])]
    assert np.exp(mixed(logits, "probabilities"))[0] == pytest.approx([0.6, 0.4])
    odds = np.exp(mixed(logits, "log-probabilities"))[0]
    assert odds[0] / odds[1] == pytest.approx((0.32 / 0.12) ** 0.5)
    impossible = mixed([np.array([[0.0, -999.0]])] * 2, "probabilities").numpy()
    assert impossible[0, 1] == pytest.approx(np.log(MINIMUM))


def test_the_report_counts_all_models(make, models, tokenizer, translator):
    ensemble = make("probabilities")
    assert ensemble.flops()["source_token"] == sum(m.flops()["source_token"] for m in models)
    own = ensemble.largest_request(), translator.largest_request()
    assert own[0] > 2 * own[1]
    assert ensemble.search_facts()["search"] == "beam 3, ensemble of 3 by probabilities"
    assert "3 of them" in ensemble.page().about


@pytest.mark.slow
@means
def test_a_saved_ensemble_answers_the_same_and_stores_each_weight_once(make, mean, tmp_path):
    translator = make(mean)
    translator.save(str(tmp_path / "model"), ["serving_default", "score"])
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    pairs = {"source": tf.constant(TEXTS), "target": tf.constant(TEXTS[::-1])}
    for name, given in (("serving_default", {"text": tf.constant(TEXTS)}), ("score", pairs)):
        found, expected = loaded.signatures[name](**given), translator.functions[name](**given)
        for key, value in expected.items():
            if value.dtype == tf.float32:
                np.testing.assert_allclose(found[key], value, rtol=1e-5)
            else:
                np.testing.assert_array_equal(found[key], value)
    assert read_graph(tmp_path / "model")
    stored = tf.train.list_variables(str(tmp_path / "model" / "variables" / "variables"))
    count = len(tf.nest.flatten(translator.fused("float32")[1]))
    assert sum(name.startswith("weights/") for name, _ in stored) == count


@pytest.mark.parametrize("option", ["xla", "explain", "shortlist", "attention_window"])
def test_options_unsupported_with_an_ensemble_are_refused(model, tokenizer, translator, option):
    with pytest.raises(ValueError, match=f"{option} must be off with an ensemble, got 7"):
        Translator(model, tokenizer, ensemble=[translator], **{option: 7})


def test_wrong_ensemble_is_refused(model, tokenizer, translator, make):
    for ensemble, message in (
        ([translator, model], r"ensemble\[1\] must be a Translator, got Transformer"),
        ([make("probabilities")], r"ensemble\[0\] must be a Translator of one model"),
    ):
        with pytest.raises(ValueError, match=message):
            Translator(model, tokenizer, ensemble=ensemble)
    for ensemble in ([translator], []):
        with pytest.raises(ValueError, match="ensemble_mean must be one of .* got 'median'"):
            Translator(model, tokenizer, ensemble=ensemble, ensemble_mean="median")


def test_another_vocabulary_is_refused(model, tokenizer):
    other = make_tokenizer()
    swapped = type(other)(other.source_model, other.source_model)
    stranger = Translator(make_model(swapped), swapped)
    with pytest.raises(ValueError, match=r"ensemble\[0\] must have the vocabulary of the model"):
        Translator(model, tokenizer, ensemble=[stranger])

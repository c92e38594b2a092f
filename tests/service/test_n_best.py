"""Served beam search and greedy search, compared with a plain search in NumPy."""

import numpy as np
import pytest
import search_oracle
import tensorflow as tf
from search_oracle import PAD
from served_table import ALPHA, LIMITS, MAX_SOURCE, MAX_TARGET, TEXTS, WIDTH, arguments

from tfformer import Translator


def test_cached_beam_search_equals_the_plain_search(served, log_probs_of, model):
    found, size = served["beam_search"], model.config.target_vocabulary_size
    ended_early = False
    for b, text in enumerate(TEXTS):
        expected = search_oracle.beam(log_probs_of(text), size, MAX_TARGET, WIDTH, ALPHA)
        lengths = found["lengths"][b]
        np.testing.assert_allclose(found["scores"][b], [e[1] for e in expected], rtol=1e-5)
        # Two sequences may have equal scores in float32, so each score is checked separately.
        for ids, length, score in zip(
            found["token_ids"][b], lengths, found["scores"][b], strict=True
        ):
            assert not ids[length:].any()
            total = search_oracle.log_prob(log_probs_of(text), tuple(ids[:length].tolist()))
            expected_score = total / search_oracle.penalty(int(length), ALPHA)
            np.testing.assert_allclose(score, expected_score, rtol=1e-5)
        assert len({tuple(ids) for ids in found["token_ids"][b].tolist()}) == WIDTH
        ended_early |= bool((lengths < MAX_TARGET).any() and (lengths > 1).any())
    assert ended_early, "every hypothesis is cut off or empty, which proves little"


def test_greedy_equals_the_plain_search(translator, log_probs_of, model, tokenizer):
    size = model.config.target_vocabulary_size
    expected = [search_oracle.greedy(log_probs_of(text), size, MAX_TARGET) for text in TEXTS]
    decoded = [tokenizer.decode(tf.constant([ids])).numpy()[0].decode() for ids in expected]
    assert translator.translate(TEXTS, greedy=True) == decoded


def test_translations_are_the_decoded_ids(served, tokenizer):
    beams = served["beam_search"]
    for w in range(WIDTH):
        decoded = tokenizer.decode(tf.constant(beams["token_ids"][:, w]))
        np.testing.assert_array_equal(decoded, beams["translations"][:, w])


def test_beam_search_of_ids_equals_that_of_the_text(served):
    for key, value in served["beam_search_ids"].items():
        np.testing.assert_allclose(value, served["beam_search"][key], rtol=1e-5)


def test_padding_after_source_ids_changes_nothing(serve, served, tokenizer):
    (ids,) = arguments("beam_search_ids", tokenizer)
    room = MAX_SOURCE - ids.shape[1]
    assert room > 0
    padded = serve("beam_search_ids", tf.pad(ids, [[0, 0], [0, room]]))
    np.testing.assert_array_equal(padded["token_ids"], served["beam_search_ids"]["token_ids"])
    scores = served["beam_search_ids"]["scores"]
    np.testing.assert_allclose(padded["scores"], scores, rtol=1e-4)


def test_options_of_a_request_reach_the_search(serve, log_probs_of, model):
    size = model.config.target_vocabulary_size
    options = {"beam_width": 2, "length_penalty": 1.3, "max_length": 4}
    found = serve("beam_search", TEXTS[:2], **options)
    for b in (0, 1):
        expected = search_oracle.beam(log_probs_of(TEXTS[b]), size, 4, 2, 1.3)
        np.testing.assert_allclose(found["scores"][b], [e[1] for e in expected], rtol=1e-4)


RULES = {
    "min_length": 4,
    "max_length_factor": 1.5,
    "coverage_penalty": 0.4,
    "repetition_penalty": 1.6,
    "no_repeat_ngram": 2,
}


@pytest.mark.slow
def test_request_options_equal_translator_options(serve, model, tokenizer):
    renamed = dict(RULES)
    renamed["min_target_length"] = renamed.pop("min_length")
    own = Translator(model, tokenizer, **LIMITS, **renamed)
    best = own.functions["serving_default"](tf.constant(TEXTS))
    asked = serve("beam_search", TEXTS, **RULES)
    np.testing.assert_array_equal(best["translation"], asked["translations"][:, 0])
    np.testing.assert_allclose(best["score"], asked["scores"][:, 0], rtol=1e-4)
    default = own.functions["beam_search"](tf.constant(TEXTS))
    np.testing.assert_allclose(default["scores"], asked["scores"], rtol=1e-4)
    # Each rule changes the result beside the others.
    for name in RULES:
        others = {key: value for key, value in RULES.items() if key != name}
        found = serve("beam_search", TEXTS, **others)
        assert not np.allclose(found["scores"], asked["scores"], rtol=1e-3), name


def test_max_length_factor_counts_source_tokens(serve, tokenizer):
    tokens = (arguments("beam_search_ids", tokenizer)[0].numpy() != PAD).sum(axis=1)
    for factor in (0.3, 0.5, 1.0):
        lengths = serve("beam_search", TEXTS, max_length_factor=factor)["lengths"]
        limits = np.clip(np.ceil(np.float32(factor) * tokens), 1, MAX_TARGET)
        assert (lengths <= limits[:, None]).all()
        long = serve("beam_search", TEXTS, max_length_factor=factor, min_length=MAX_TARGET)
        np.testing.assert_array_equal(long["lengths"][:, 0], limits)


def test_token_log_probs_add_up_and_alignment_points_into_the_source(served, tokenizer):
    found = served["beam_search"]
    totals = found["token_log_probs"].sum(axis=-1)
    penalties = search_oracle.penalty(found["lengths"].astype(float), ALPHA)
    np.testing.assert_allclose(totals / penalties, found["scores"], rtol=1e-4)
    tokens = (arguments("beam_search_ids", tokenizer)[0].numpy() != PAD).sum(axis=1)
    assert (found["alignment"] < tokens[:, None, None]).all()
    assert found["alignment"].max() > 0


def test_alignment_is_the_maximum_attention_of_align(serve, served, tokenizer):
    found = served["beam_search"]
    best = served["serving_default"]["translation"]
    aligned = serve("align", TEXTS, best)
    compared = 0
    for b, ids in enumerate(tokenizer.encode_target(best).to_list()):
        # A text may be tokenised differently than it was found; then it cannot be compared.
        n = found["lengths"][b, 0]
        if ids[:n] == found["token_ids"][b, 0, :n].tolist():
            expected = aligned["attention"][b, :n].argmax(axis=-1)
            np.testing.assert_array_equal(found["alignment"][b, 0, :n], expected)
            compared += 1
    assert compared


def test_bfloat16_scores_differ_but_are_close(model, tokenizer, served):
    limits = {"max_source_length": MAX_SOURCE, "max_target_length": MAX_TARGET}
    half = Translator(model, tokenizer, beam_width=WIDTH, dtype="bfloat16", **limits)
    scores = half.functions["score"](tf.constant(TEXTS), tf.constant(TEXTS))["log_prob"]
    assert (scores != served["score"]["log_prob"]).numpy().all()
    np.testing.assert_allclose(scores, served["score"]["log_prob"], rtol=0.1)


def test_where_every_continuation_is_forbidden_the_score_is_finite(model, tokenizer):
    own = Translator(
        model, tokenizer, max_target_length=40, min_target_length=40, no_repeat_ngram=1
    )
    assert np.isfinite(own.functions["serving_default"](tf.constant(TEXTS))["score"]).all()


def test_results_without_a_sequence_have_a_finite_score(serve):
    found = serve("beam_search", TEXTS[:2], beam_width=5, max_length=1)
    assert found["lengths"].tolist() == [[1, 0, 0, 0, 0]] * 2
    assert np.isfinite(found["scores"]).all()
    assert (found["scores"][:, 1:] < found["scores"][:, :1]).all()
    assert (found["translations"] == b"").all()

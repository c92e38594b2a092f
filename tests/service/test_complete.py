"""Translations that begin with a given prefix."""

import numpy as np
import pytest
import search_oracle
from served_table import ALPHA, MAX_TARGET, TEXTS, WIDTH, B


@pytest.mark.parametrize("prefix", ["ein", "der Garten", "Straße 1", "a"])
def test_a_completion_begins_with_its_prefix(serve, prefix):
    found = serve("complete", TEXTS, [prefix] * B)
    for translation in found["translation"]:
        assert translation.decode().startswith(prefix)


def test_completion_equals_the_plain_beam_after_the_prefix(serve, log_probs_of, tokenizer, model):
    size = model.config.target_vocabulary_size
    found = serve("complete", TEXTS[:2], ["ein", "der Garten"])
    for b, prefix in enumerate(["ein", "der Garten"]):
        forced = tokenizer.encode_target([prefix]).numpy()[0][:-1].tolist()
        expected = search_oracle.beam(
            log_probs_of(TEXTS[b]), size, MAX_TARGET, WIDTH, ALPHA, forced=forced
        )
        np.testing.assert_allclose(found["score"][b], expected[0][1], rtol=1e-4)


def test_an_empty_prefix_leaves_the_translation_as_it_is(serve, served):
    found = serve("complete", TEXTS, ["", " ", "\t", "", ""])
    best = served["serving_default"]
    np.testing.assert_array_equal(found["translation"], best["translation"])
    np.testing.assert_allclose(found["score"], best["score"], rtol=1e-5)


def test_a_prefix_over_the_limit_is_cut(serve):
    long = " ".join(["Haus"] * 40)
    (translation,) = serve("complete", TEXTS[:1], [long])["translation"]
    assert translation and long.startswith(translation.decode())

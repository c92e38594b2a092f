"""The log-probability of a given translation, compared with NumPy."""

import numpy as np
import search_oracle
import tensorflow as tf
from served_table import ALPHA, MAX_TARGET, TEXTS, B
from words import sentences


def test_score_is_the_log_prob_under_teacher_forcing(serve, log_probs_of, tokenizer):
    targets = sentences(5, B, maximum=2)
    found = serve("score", TEXTS, targets)
    for b, row in enumerate(tokenizer.encode_target(tf.constant(targets)).numpy()):
        assert found["length"][b] == len(row) <= MAX_TARGET
        expected = search_oracle.log_prob(log_probs_of(TEXTS[b]), tuple(row.tolist()))
        np.testing.assert_allclose(found["log_prob"][b], expected, rtol=1e-4)


def test_score_of_a_translation_equals_the_beam_search_score(serve, tokenizer):
    found = serve("beam_search", TEXTS[:1], beam_width=64, max_length=3)
    translations = found["translations"][0]
    encoded = tokenizer.encode_target(tf.constant(translations)).numpy()
    # The text of a random model may be tokenised differently than it was found.
    same = [
        n
        for n, (ids, length) in enumerate(
            zip(found["token_ids"][0], found["lengths"][0], strict=True)
        )
        if ids[:length].tolist() == encoded[n].tolist()
    ]
    assert len(same) >= 3
    scores = serve("score", TEXTS[:1] * len(same), translations[same].tolist())
    lengths = found["lengths"][0][same]
    np.testing.assert_array_equal(scores["length"], lengths)
    penalty = [search_oracle.penalty(int(n), ALPHA) for n in lengths]
    np.testing.assert_allclose(scores["log_prob"] / penalty, found["scores"][0][same], rtol=1e-4)

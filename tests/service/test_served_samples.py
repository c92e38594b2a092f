"""Sampled translations."""

import numpy as np
from served_table import TEXTS


def test_same_seed_gives_the_same_sample(serve):
    texts = TEXTS * 3
    first, again, other = (serve("sample", texts, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first["translation"], again["translation"])
    np.testing.assert_array_equal(first["log_prob"], again["log_prob"])
    assert first["translation"].tolist() != other["translation"].tolist()


def test_sampling_only_the_most_likely_is_greedy(serve, translator):
    greedy = translator.translate(TEXTS, greedy=True)
    for options in ({"top_k": 1}, {"top_p": 1e-6}):
        sampled = serve("sample", TEXTS, seed=3, **options)
        assert [text.decode() for text in sampled["translation"]] == greedy

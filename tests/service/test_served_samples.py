"""Sampled translations."""

import numpy as np
from served_table import TEXTS


def test_a_sample_is_a_function_of_its_seed(serve):
    texts = TEXTS * 3
    first, again, other = (serve("sample", texts, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first["translation"], again["translation"])
    np.testing.assert_array_equal(first["log_prob"], again["log_prob"])
    assert first["translation"].tolist() != other["translation"].tolist()


def test_a_sample_of_the_likeliest_alone_is_the_greedy_translation(serve, translator):
    greedy = translator.translate(TEXTS, greedy=True)
    for options in ({"top_k": 1}, {"top_p": 1e-6}):
        sampled = serve("sample", TEXTS, seed=3, **options)
        assert [text.decode() for text in sampled["translation"]] == greedy

"""KerasHub models as a service: the texts of their `generate`, and searches that they lack."""

import hub
import numpy as np
import pytest
import tensorflow as tf

from export.verification import reference
from tfformer.service.keras_hub import KerasHubTranslator

LIMITS = {"max_source_length": 31, "max_target_length": 13, "beam_width": 3, "length_penalty": 0.7}
TEXTS = hub.TEXTS[:17]
SECOND = {name: hub.FURTHER[name] for name in ("t5, untied and not gated",)}
MODELS = {**hub.SMALLEST, **SECOND}


@pytest.mark.slow
@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_greedy_equals_generate_and_beam_equals_the_plain_search(make):
    model = make()
    translator = KerasHubTranslator(model, **LIMITS)

    # 1. Greedy search gives the text of `generate` with the same number of tokens: its length
    # counts the beginning of a target, ours counts eos.
    begins = len(translator.kind.target_begins) + 1
    model.compile(sampler="greedy", jit_compile=False)
    theirs = model.generate(TEXTS, max_length=LIMITS["max_target_length"] - 1 + begins)
    ours = translator.translate(TEXTS, greedy=True)
    assert ours == theirs
    assert len(set(ours)) > 3

    # 2. A beam, in a batch and one by one.
    found = translator.functions["beam_search"](tf.constant([*TEXTS[:5], ""]))
    assert set(found) == {
        "translations", "scores", "token_ids", "lengths", "token_log_probs", "truncated"
    }  # fmt: skip
    assert found["translations"].numpy()[-1].tolist() == [b""] * 3
    for row, text in enumerate(TEXTS[:3]):
        alone = translator.functions["beam_search"](tf.constant([text]))
        assert (
            alone["translations"][0].numpy().tolist() == found["translations"][row].numpy().tolist()
        )
        np.testing.assert_allclose(alone["scores"][0], found["scores"][row], atol=1e-4, rtol=1e-4)

    # 3. The beam equals a plain search over the whole model, without a cache.
    whole = tf.function(translator.logits, autograph=False, reduce_retracing=True)
    for row, text in enumerate(TEXTS[:3]):
        [source_ids] = translator.tokenizer.encode_source(tf.constant([text])).to_list()
        plain = reference.beam_search(whole, np.array(source_ids, "int32"), 13, 3, 0.7, "gnmt")
        scores = [reference.score(one, 0.7, "gnmt") for one in plain]
        np.testing.assert_allclose(found["scores"][row], scores, atol=1e-4, rtol=1e-4)
        tokens = found["token_ids"][row, 0, : found["lengths"][row, 0]].numpy().tolist()
        assert tuple(tokens) == plain[0].tokens

    # 4. Scores are the log-probabilities of the model.
    said = translator.functions["score"](tf.constant(TEXTS[:2]), tf.constant(TEXTS[5:7]))
    for row in range(2):
        pair = [
            translator.tokenizer.encode_source(tf.constant([text])).to_list()[0]
            for text in (TEXTS[row], TEXTS[5 + row])
        ]
        target = pair[1] if len(pair[1]) <= 13 else [*pair[1][:12], 3]
        expected = reference.log_prob(whole, np.array(pair[0], "int32"), target, 13)
        np.testing.assert_allclose(said["log_prob"][row], expected, rtol=1e-4, atol=1e-3)


def test_wrong_options_are_refused():
    model = hub.bart()
    with pytest.raises(TypeError, match="got 'coverage_penalty'"):
        KerasHubTranslator(model, coverage_penalty=0.2)
    for options, said in (
        ({"beam_width": 0}, r"beam_width must be in \[1, 64\], got 0"),
        ({"max_source_length": 41}, r"max_source_length must be in \[2, 40\], got 41"),
        ({"max_target_length": 1}, "max_target_length must be an integer of at least 2, got 1"),
        ({"max_target_length": 5, "min_length": 6}, "min_length must be at most .* = 5, got 6"),
    ):
        with pytest.raises(ValueError, match=said):
            KerasHubTranslator(model, **options)

"""Decoder-only KerasHub models as a service: the texts of their `generate`, and more."""

import hub
import numpy as np
import pytest
import tensorflow as tf
from tiers import slow_or_nightly

from tfformer.service.keras_hub_generator import KerasHubGenerator

LIMITS = {"max_source_length": 23, "max_target_length": 11, "top_k": 1, "beam_width": 3}
TOKENS = 2, 5, 11  # of a prompt: `generate` is traced anew for each number


def prompts_of(tokenizer):
    """Nine beginnings of texts, three for each number of tokens."""
    found = {count: {} for count in TOKENS}
    for n, text in enumerate(hub.TEXTS):
        begins = [text[:end] for end in range(1, len(text)) if text[end - 1] != " "]
        counts = [len(ids) for ids in tokenizer(begins)]
        if (count := TOKENS[n % 3]) in counts:
            found[count][begins[counts.index(count)]] = None
    return [one for row in zip(*found.values(), strict=False) for one in row][:9]


@pytest.mark.parametrize("name", slow_or_nightly(hub.CAUSAL, ["gemma"]))
def test_greedy_equals_generate_and_beam_scores_equal_the_whole_model(name):
    model = hub.CAUSAL[name]()
    generator = KerasHubGenerator(model, **LIMITS)
    tokenizer = model.preprocessor.tokenizer
    prompts = prompts_of(tokenizer)
    assert [len(ids) for ids in tokenizer(prompts)] == 3 * [*TOKENS]

    # 1. Greedy search gives the text of `generate`, whose length counts the prompt and bos.
    model.compile(sampler="greedy", jit_compile=False)
    ours = generator.answer(prompts)
    for prompt, found in zip(prompts, ours, strict=True):
        [begin] = tokenizer([prompt])
        length = 1 + len(begin) + LIMITS["max_target_length"]
        assert prompt + found == model.generate([prompt], max_length=length)[0]
    assert len(set(ours)) > 3

    # 2. Batches of different prompts, and each alone; a beam, by the whole model.
    found = generator.functions["beam_search"](tf.constant(prompts[:5]))
    whole = tf.function(generator.logits, autograph=False, reduce_retracing=True)
    for row, prompt in enumerate(prompts[:3]):
        alone = generator.functions["beam_search"](tf.constant([prompt]))
        assert alone["continuations"][0].numpy().tolist() == (
            found["continuations"][row].numpy().tolist()
        )
        np.testing.assert_allclose(alone["scores"][0], found["scores"][row], atol=1e-4, rtol=1e-4)
        begin, _ = generator.writing.prompts(tf.constant([prompt]))
        for beam in range(3):
            tokens = found["token_ids"][row, beam, : found["lengths"][row, beam]].numpy()
            ids = np.concatenate([begin.numpy()[0], tokens])[None].astype("int32")
            log_probs = tf.nn.log_softmax(whole(tf.constant(ids[:, :-1]))).numpy()[0]
            own = log_probs[np.arange(len(ids[0]) - 1), ids[0, 1:]][-len(tokens) :]
            said = found["token_log_probs"][row, beam, : len(tokens)]
            np.testing.assert_allclose(said, own, atol=1e-4, rtol=1e-4)

    # 3. The score of a text is the sum over its tokens, including eos.
    said = generator.functions["score"](tf.constant(prompts[:2]))
    for row, prompt in enumerate(prompts[:2]):
        [ids] = generator.tokenizer.encode_source(tf.constant([prompt])).to_list()
        log_probs = tf.nn.log_softmax(whole(tf.constant([[2, *ids[:-1]]], tf.int32))).numpy()[0]
        expected = log_probs[np.arange(len(ids)), ids].sum()
        np.testing.assert_allclose(said["log_prob"][row], expected, rtol=1e-4, atol=1e-4)


def test_newlines_are_tokenized_as_in_keras_hub():
    generator = KerasHubGenerator(hub.CAUSAL["gemma"](), **LIMITS)
    ids, _ = generator.writing.prompts(tf.constant(["a\nb"]))
    [theirs] = generator.model.preprocessor.tokenizer(["a\nb"])
    assert ids.numpy()[0].tolist() == [2, *(int(n) + 4 for n in theirs)]


def test_unsupported_models_and_options_are_refused():
    model = hub.CAUSAL["llama"]()
    with pytest.raises(TypeError, match="got 'max_length_factor'"):
        KerasHubGenerator(model, max_length_factor=2.0)
    for options, said in (
        ({"beam_width": 0}, r"beam_width must be in \[1, 64\], got 0"),
        ({"max_source_length": 0}, "max_source_length must be an integer of at least 1, got 0"),
        ({"max_target_length": 5, "min_length": 6}, "min_length must be at most .* = 5, got 6"),
        ({"top_p": 0.0}, "top_p must be in .*, got 0.0"),
    ):
        with pytest.raises(ValueError, match=said):
            KerasHubGenerator(model, **options)
    with pytest.raises(ValueError, match="GemmaCausalLM, .* got T5Seq2SeqLM"):
        KerasHubGenerator(hub.t5())
    model.preprocessor.tokenizer = hub.bart_tokenizer()
    with pytest.raises(ValueError, match="must have a SentencePiece vocabulary, got a LlamaCausal"):
        KerasHubGenerator(model)

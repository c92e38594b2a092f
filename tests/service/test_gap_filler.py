"""A masked language model's signatures: the gaps of a text and the words that fill them."""

import numpy as np
import pytest
import tensorflow as tf
import tiny

from tfformer import GapFiller, MaskedLanguageModel, Tokenizer
from tfformer.config import BOS, EOS, MaskedLanguageModelConfig

LIMITS = {"max_source_length": 17, "max_batch_size": 7}
TEXTS = [
    "a [MASK] by the  lake", "[MASK]", "", "no gap", "[MASK][MASK] in it",
    "\ue000 \udcff[MASK]", "(a[MASK]) lake",
]  # fmt: skip
TEXTS = [text.encode(errors="surrogatepass") for text in TEXTS]


@pytest.fixture(scope="module")
def filler(randomise):
    tokenizer = Tokenizer.train(tiny.sentences(97), vocabulary_size=331)
    config = MaskedLanguageModelConfig.preset("test", tokenizer.source_vocabulary_size)
    return GapFiller(randomise(MaskedLanguageModel(config)), tokenizer, **LIMITS)


def ask(filler, texts=TEXTS, name="fill"):
    found = filler.functions[name](tf.constant(texts, tf.string, [len(texts)]))
    return {key: value.numpy() for key, value in found.items()}


def test_text_around_gaps_is_encoded_unchanged(filler):
    """The text between two gaps is unchanged; a space before a gap is no piece."""
    gaps, pieces = filler.gaps, filler.tokenizer.source.pieces
    text = gaps.marked(tf.constant(["a [MASK] by the lake", "[MASK]", "lake[MASK]", "\ue000"]))
    found = [[pieces[n] for n in row] for row in gaps.encode(text).to_list()]

    def plain(text):
        return [pieces[n] for n in filler.tokenizer.encode_source([text])[0].numpy()[:-1]]

    assert found[0] == [*plain("a"), "<s>", *plain("by the lake"), "</s>"]
    assert found[1] == ["<s>", "</s>"]
    assert found[2] == [*plain("lake"), "<s>", "</s>"]
    assert found[3] == [*plain("\ufffd"), "</s>"]


def test_each_gap_is_filled_with_the_most_likely_piece(filler):
    found, pieces = ask(filler), filler.tokenizer.source.pieces
    bytes_of = filler.tokenizer.source.byte_ids
    for row, text in enumerate(TEXTS):
        marked = filler.gaps.marked(tf.constant([text]))
        ids = filler.gaps.encode(marked).to_tensor().numpy()
        log_probs = tf.nn.log_softmax(filler.model(ids, training=False))[0].numpy()
        log_probs[:, [*range(EOS + 1), *bytes_of]] = -np.inf
        total, expected = 0.0, marked.numpy()[0].decode()
        for place in np.flatnonzero(ids[0] == BOS):
            total += log_probs[place].max()
            word = pieces[log_probs[place].argmax()].replace("▁", "")
            expected = expected.replace("\ue000", word, 1)
        assert found["filled"][row].decode() == expected
        np.testing.assert_allclose(found["log_prob"][row], total, rtol=1e-4, atol=1e-5)
    assert found["gaps"].tolist() == [1, 1, 0, 0, 2, 1, 1]
    assert found["filled"][3] == b"no gap" and found["filled"][2] == b""


def test_gaps_after_the_limit_are_not_filled(filler):
    long = " ".join(["lake"] * 16)
    found = ask(filler, [f"[MASK] {long} [MASK] x", "a [MASK]"])
    assert found["truncated"].tolist() == [True, False] and found["gaps"].tolist() == [1, 1]
    assert found["filled"][0].endswith(b" lake [MASK] x")
    assert not found["filled"][0].startswith(b"[MASK]")


def test_embedding_is_the_mean_state_and_ignores_batch_mates(filler):
    vectors = ask(filler, TEXTS, "embed")["vector"]
    together = ask(filler)
    for row, text in enumerate(TEXTS):
        alone = ask(filler, [text])
        assert alone["filled"][0] == together["filled"][row]
        np.testing.assert_allclose(alone["log_prob"][0], together["log_prob"][row], atol=1e-4)
        vector = ask(filler, [text], "embed")["vector"][0]
        np.testing.assert_allclose(vector, vectors[row], atol=1e-5)
    ids = filler.tokenizer.encode_source(["no gap"]).numpy()
    expected = filler.model.states(ids)[0].numpy().mean(axis=0)
    np.testing.assert_allclose(vectors[3], expected, atol=1e-5, rtol=1e-4)


def test_mask_marker_can_be_changed_and_bad_requests_are_refused(filler):
    other = GapFiller(filler.model, filler.tokenizer, mask="___", **LIMITS)
    assert other.answer(["a ___"]) == filler.answer(["a [MASK]"])
    assert other.answer(["a [MASK]"]) == ["a [MASK]"]
    with pytest.raises(ValueError, match="mask must be a string that shows something, got ' '"):
        GapFiller(filler.model, filler.tokenizer, mask=" ")
    assert all(len(value) == 0 for value in ask(filler, []).values())
    with pytest.raises(tf.errors.InvalidArgumentError, match="number of texts must be in"):
        ask(filler, TEXTS * 2)

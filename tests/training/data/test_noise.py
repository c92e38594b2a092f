"""Noise comes from seeds, changes the input and not the target, and keeps its limits."""

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf

from tfformer import Tokenizer
from tfformer.config import EOS, UNK
from tfformer.text.sampling import SubwordSampler
from training import dates
from training.data.noise import Noise

TEXTS = [pair.target.encode() for pair in dates.pairs("train", 41)]


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def model(request):
    texts = [text.decode() for text in TEXTS]
    return Tokenizer.train(texts, vocabulary_size=331, kind=request.param).source_model


@pytest.fixture(scope="module")
def tokenizer(model):
    return Tokenizer(model)


def test_sampled_segmentations_decode_to_the_same_text(model):
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    usual = processor.encode(TEXTS, add_eos=True)
    drawn = SubwordSampler(model, 0.3)(TEXTS, 1000, 7)
    assert drawn != usual
    assert all(ids[-1] == EOS for ids in drawn)
    assert processor.decode(drawn) == processor.decode(usual)


def test_sampling_depends_only_on_the_seed(model):
    sampler = SubwordSampler(model, 0.3)
    first, second = sampler(TEXTS, 1000, 7), sampler(TEXTS, 1000, 2**32 - 2)
    assert first != second
    assert sampler(TEXTS, 1000, 7) == first
    # Neither earlier draws nor the sampler object matter.
    assert SubwordSampler(model, 0.3)(TEXTS, 1000, 2**32 - 2) == second


def test_a_segmentation_that_is_too_long_gives_way_to_the_usual_one(model):
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    usual = processor.encode(TEXTS, add_eos=True)
    longest = max(map(len, usual))
    sampler = SubwordSampler(model, 0.3)
    # Threads learn the model, so its scores differ a little each time.
    seed, free = next(
        (seed, free)
        for seed, free in ((n, sampler(TEXTS, 1000, n)) for n in range(1000))
        if any(len(ids) > longest for ids in free)
    )
    drawn = SubwordSampler(model, 0.3)(TEXTS, longest, seed)
    for given, wanted, short in zip(drawn, free, usual, strict=True):
        assert given == (wanted if len(wanted) <= longest else short)


@pytest.mark.parametrize("side", ["source", "target"])
def test_without_noise_ids_equal_the_tokenizer_s(tokenizer, side):
    encode = getattr(Noise(tokenizer), f"encode_{side}")
    texts = tf.constant(TEXTS)
    expected = getattr(tokenizer, f"encode_{side}")(texts)
    assert encode(texts, 1000, [3, 5], epoch=0).to_list() == expected.to_list()


@pytest.mark.parametrize("side", ["source", "target"])
def test_subword_sampling_begins_in_epoch_sampling_from(tokenizer, side):
    noise = Noise(tokenizer, subword_sampling=0.3, sampling_from=3)
    encode = getattr(noise, f"encode_{side}")
    texts, seed = tf.constant(TEXTS), tf.constant([3, 5], tf.int64)
    usual = getattr(tokenizer, f"encode_{side}")(texts).to_list()
    drawn = [encode(texts, 1000, seed, epoch).to_list() for epoch in range(5)]
    assert drawn[:3] == [usual] * 3
    assert drawn[3] == drawn[4] != usual


def test_word_dropout_drops_the_given_share_and_no_special_ids(tokenizer):
    noise = Noise(tokenizer, word_dropout=0.2)
    ids = np.tile(np.arange(1, 331, dtype="int32"), (37, 1))
    ids[:, :7] = 0
    dropped = noise.drop_words(ids, tf.constant([3, 5], tf.int64)).numpy()
    changed = dropped != ids
    assert (dropped[changed] == UNK).all()
    assert not changed[ids <= EOS].any()
    share = changed.sum() / (ids > EOS).sum()
    # 37 x 323 draws: five standard deviations are 0.018.
    assert abs(share - 0.2) < 0.018
    again = noise.drop_words(ids, tf.constant([3, 5], tf.int64)).numpy()
    np.testing.assert_array_equal(dropped, again)
    other = noise.drop_words(ids, tf.constant([4, 5], tf.int64)).numpy()
    assert (other != dropped).any()

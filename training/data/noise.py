"""Noise in training texts, against overfitting on a small corpus.

Subword sampling gives another segmentation of the same text in every epoch. A model that has seen
"Haus" also as "H aus" and "Ha us" learns what pieces consist of (Kudo 2018, "Subword
Regularization"; for BPE, Provilkov et al. 2020, "BPE-Dropout"). Word dropout hides pieces from
both the encoder and the decoder, which must work with the rest (Gal and Ghahramani 2016; for
a small corpus, Sennrich and Zhang 2019). Noise applies to training only, not to validation or the
served model. Word dropout depends only on seeds, so a resumed run continues with the same noise.
Segmentations do not: SentencePiece's seed also depends on the process, so a resumed run samples
other segmentations than an uninterrupted one.
"""

import numpy as np
import tensorflow as tf

from tfformer.config import EOS, UNK
from tfformer.text.vocabularies import clean


class Noise:
    """The noise of a training.

    Args:
        subword_sampling: alpha of a `tfformer.text.sampling.SubwordSampler`; 0: none.
        word_dropout: the share of pieces that are replaced by unk.
        sampling_from: number of epochs at the start that sample no segmentations.

    Raises:
        ValueError: subword sampling with a vocabulary that has one segmentation for each text:
            pieces that are characters, or two tables of pieces.
    """

    def __init__(self, tokenizer, subword_sampling=0.0, word_dropout=0.0, sampling_from=0):
        self.tokenizer, self.word_dropout = tokenizer, word_dropout
        self.sampling_from = sampling_from
        self.samplers = None
        if subword_sampling:
            sides = (tokenizer.source, tokenizer.target)
            self.samplers = [side.sampler(subword_sampling) for side in sides]
            if self.samplers == [None, None]:
                raise ValueError(
                    "subword_sampling must be 0 with this vocabulary: a table of pieces splits a "
                    f"text in only one way, got {subword_sampling}"
                )

    def encode_source(self, texts, longest, seed, epoch):
        """string [B] -> RaggedTensor of int32 ids [B, (S)], each row ending with eos.

        A sampled segmentation with more than `longest` tokens is replaced by the usual one. `seed`
        is integers [2].
        """
        return self._encode(0, self.tokenizer.encode_source, texts, longest, seed, epoch)

    def encode_target(self, texts, longest, seed, epoch):
        """string [B] -> RaggedTensor of int32 ids [B, (T)], each row ending with eos, no bos."""
        return self._encode(1, self.tokenizer.encode_target, texts, longest, seed, epoch)

    def _encode(self, side, encode, texts, longest, seed, epoch):
        if self.samplers is None or self.samplers[side] is None or epoch < self.sampling_from:
            return encode(texts)

        def sample(texts, longest, seed):
            rows = self.samplers[side](texts.tolist(), longest, int(seed[side]))
            return np.array(sum(rows, []), "int32"), np.array([len(row) for row in rows], "int64")

        types = (tf.int32, tf.int64)
        ids, lengths = tf.numpy_function(sample, [clean(texts), longest, seed], types)
        ids, lengths = tf.ensure_shape(ids, [None]), tf.ensure_shape(lengths, [None])
        return tf.RaggedTensor.from_row_lengths(ids, lengths)

    def drop_words(self, ids, seed):
        """int32 ids [B, T], with some pieces, but no special ids, replaced by unk."""
        if not self.word_dropout:
            return ids
        chance = tf.random.stateless_uniform(tf.shape(ids), tf.cast(seed, tf.int64))
        return tf.where((chance < self.word_dropout) & (ids > EOS), UNK, ids)

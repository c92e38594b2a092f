"""Noise: what training does to its texts so that a small corpus is not learned by heart.

Subword sampling gives another segmentation of the same text in every epoch: a model that has seen
"Haus" also as "H aus" and "Ha us" learns what pieces are made of (Kudo 2018, "Subword
Regularization"; for BPE, Provilkov et al. 2020, "BPE-Dropout"). Word dropout hides pieces from
both the encoder and the decoder, which have to do with what is left (Gal and Ghahramani 2016; for
a small corpus, Sennrich and Zhang 2019). Training alone is disturbed; validation and the served
model are not. Words are dropped by seeds, so a run that is resumed goes on with the same noise.
Segmentations are not: SentencePiece mixes into its seed what differs from process to process, and a
resumed run draws others than it would have drawn.
"""

import threading

import numpy as np
import sentencepiece
import tensorflow as tf

from tfformer.config import EOS, UNK
from tfformer.text.tokenizer import clean

# SentencePiece has one seed for the whole process.
_SEEDING = threading.Lock()


class SubwordSampler:
    """Draws segmentations of texts; in one process, of the same seed the same ones.

    Args:
        model: the bytes of a SentencePiece model, unigram or BPE.
        alpha: of a unigram model, the power to which the probability of a segmentation is raised
            before one is drawn of all: the smaller, the more even the draw (0.2 gives about a third
            more tokens, 0.5 a twentieth). Of a BPE model, the share of merges that are left out.
    """

    def __init__(self, model, alpha):
        self.processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self.alpha = alpha
        try:
            self._draw(b"a")
        except RuntimeError as error:
            raise ValueError(f"subword_sampling must be 0 with this vocabulary: {error}") from error

    def __call__(self, texts, longest, seed):
        """Ids with eos of each text; where a drawn one is too long, the usual segmentation.

        Args:
            texts: cleaned texts, a list of UTF-8 bytes.
            longest: tokens at most.
            seed: an integer in [0, 2^32 - 1); that number itself is SentencePiece's word for none.

        Returns:
            A list of lists of ids.
        """
        drawn = []

        def draw():
            # One by one: a list would be shared out among SentencePiece's own threads.
            drawn.extend(map(self._draw, texts))

        # SentencePiece's generator belongs to a thread and is seeded when the thread first draws.
        with _SEEDING:
            sentencepiece.set_random_generator_seed(seed)
            thread = threading.Thread(target=draw)
            thread.start()
            thread.join()
        return [
            ids if len(ids) <= longest else self.processor.encode(text, add_eos=True)
            for text, ids in zip(texts, drawn, strict=True)
        ]

    def _draw(self, text):
        return self.processor.encode(
            text, enable_sampling=True, alpha=self.alpha, nbest_size=-1, add_eos=True
        )


class Noise:
    """The noise of a training.

    Args:
        tokenizer: a `Tokenizer`.
        subword_sampling: alpha of a `SubwordSampler`; 0 draws no segmentations.
        word_dropout: the share of pieces that is replaced by unk.
        sampling_from: epochs, the first, that draw no segmentations.
    """

    def __init__(self, tokenizer, subword_sampling=0.0, word_dropout=0.0, sampling_from=0):
        self.tokenizer, self.word_dropout = tokenizer, word_dropout
        self.sampling_from = sampling_from
        self.samplers = None
        if subword_sampling:
            models = (tokenizer.source_model, tokenizer.target_model)
            self.samplers = [SubwordSampler(model, subword_sampling) for model in models]

    def encode_source(self, texts, longest, seed, epoch):
        """string [B] -> RaggedTensor of int32 ids [B, (S)], each row ending with eos.

        Args:
            texts: string [B].
            longest: tokens at most that a drawn segmentation may have; a longer one gives way to
                the usual one.
            seed: integers [2], of what is drawn.
            epoch: from 0.
        """
        return self._encode(0, self.tokenizer.encode_source, texts, longest, seed, epoch)

    def encode_target(self, texts, longest, seed, epoch):
        """string [B] -> RaggedTensor of int32 ids [B, (T)], each row ending with eos, no bos.

        With the arguments of `encode_source`.
        """
        return self._encode(1, self.tokenizer.encode_target, texts, longest, seed, epoch)

    def _encode(self, side, encode, texts, longest, seed, epoch):
        if self.samplers is None or epoch < self.sampling_from:
            return encode(texts)

        def sample(texts, longest, seed):
            rows = self.samplers[side](texts.tolist(), longest, int(seed[side]))
            return np.array(sum(rows, []), "int32"), np.array([len(row) for row in rows], "int64")

        types = (tf.int32, tf.int64)
        ids, lengths = tf.numpy_function(sample, [clean(texts), longest, seed], types)
        ids, lengths = tf.ensure_shape(ids, [None]), tf.ensure_shape(lengths, [None])
        return tf.RaggedTensor.from_row_lengths(ids, lengths)

    def drop_words(self, ids, seed):
        """int32 ids [B, T] of which some pieces, but no special ids, have become unk."""
        if not self.word_dropout:
            return ids
        chance = tf.random.stateless_uniform(tf.shape(ids), tf.cast(seed, tf.int64))
        return tf.where((chance < self.word_dropout) & (ids > EOS), UNK, ids)

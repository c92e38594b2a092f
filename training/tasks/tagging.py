"""Tagging: each word of a text has a label; macro F1 over all words selects the best model."""

import re

import tensorflow as tf

from tfformer.config import PAD
from tfformer.models import TAGGER
from tfformer.text.words import encode_words, words_of

from .labelled import CONTROLS, LabelledTask, Reading, label_scores, numbers

# Marks the first piece of each word: added to its id when a corpus is read, until a batch is built.
# It is higher than all ids.
FIRST = 1 << 24


class TaggedTexts(Reading):
    """Encodes each word separately; a word's label belongs to its first piece."""

    def encode_source(self, texts):
        """The ids; the first id of each word is `FIRST` higher."""
        ids, places = encode_words(self.source, words_of(texts))
        starts = tf.repeat(ids.row_starts(), places.row_lengths())
        firsts = starts + tf.cast(places.flat_values, starts.dtype)
        flat = tf.tensor_scatter_nd_add(
            ids.flat_values, firsts[:, None], tf.fill([tf.size(firsts)], FIRST)
        )
        return ids.with_flat_values(flat)

    def example(self, source, target, padded, seed=(0, 0)):
        """The labels are [B, S]."""
        marked, labels = padded(source), numbers(padded(target))
        first = marked >= FIRST
        word = tf.maximum(tf.cumsum(tf.cast(first, tf.int32), axis=1) - 1, 0)
        labels = tf.where(first, tf.gather(labels, word, batch_dims=1), PAD)
        return {"ids": marked % FIRST}, labels


class Tagging(LabelledTask):
    """The task of a `Tagger` and of its `TextTagger`."""

    family, reading, labelled = TAGGER, TaggedTexts, "word"
    pipeline_tag = "token-classification"
    description = "A tagger of words, the encoder of a Transformer (Vaswani et al. 2017)"

    def units(self, text):
        return text.split()

    def labels_of(self, line, model):
        return re.sub(CONTROLS, " ", line).split()

    def may_be(self, labels, pair, report):
        """Requires one label for each word."""
        count = len([*filter(None, re.sub(CONTROLS, " ", pair.source).split(" "))])
        if labels and len(labels) != count:
            report.unmatched += 1
            return False
        return super().may_be(labels, pair, report)

    def label_columns(self, columns):
        return columns

    def judged(self, served, pairs, batch_size):
        """Scores word by word; a word after the length limit has no prediction."""
        found = served.outputs([pair.source for pair in pairs], batch_size)
        true = [pair.target.split("\t") for pair in pairs]
        predicted = [
            [label.decode() for label in row[:size]]
            for row, size in zip(found["labels"], found["length"], strict=True)
        ]
        scores, confused = label_scores(
            served.tokenizer.target.labels, sum(true, []), sum(predicted, [])
        )
        exact = [a == b for a, b in zip(true, predicted, strict=True)]
        scores["exact_match"] = 100 * sum(exact) / len(exact)
        return scores, [tags.decode() for tags in found["tags"]], confused

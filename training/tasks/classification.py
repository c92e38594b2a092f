"""Classification: each text has one of several labels; macro F1 selects the best model."""

import numpy as np
import tensorflow as tf

from tfformer.config import EOS, PAD
from tfformer.loss import LabelCrossEntropy
from tfformer.models import CLASSIFIER

from ..metrics import labels as measures
from .labelled import LabelledTask, Reading, cut, label, label_scores, numbers

BALANCED = "balanced"


class ClassifiedTexts(Reading):
    """Cuts a text that is too long, as the server does."""

    def encode_source(self, texts):
        return cut(super().encode_source(texts), self.longest)

    def example(self, source, target, padded, seed=(0, 0)):
        """The labels are [B, 1]."""
        return {"ids": padded(source)}, numbers(padded(target[:, :1], 1))


class Classification(LabelledTask):
    """The task of a `Classifier` and of its `TextClassifier`."""

    family, reading, multi_label = CLASSIFIER, ClassifiedTexts, False
    class_weights = ("none", BALANCED)
    pipeline_tag = "text-classification"
    description = "A classifier of texts, the encoder of a Transformer (Vaswani et al. 2017)"

    def labels_of(self, line, model):
        return [found] if (found := label(line)) else []

    def configuration(self, recipe, source_size, target_size=None, shared=True):
        sizes, kind = (source_size, target_size, shared), {"multi_label": self.multi_label}
        return self._of_task(super().configuration(recipe, *sizes, **kind))

    def read_configuration(self, fields):
        return self._of_task(super().read_configuration(fields))

    def _of_task(self, config):
        """Returns the configuration; raises a ValueError if it is for the other task."""
        if config.multi_label != self.multi_label:
            raise ValueError(
                f"multi_label must be {self.multi_label} for this task, got {config.multi_label}"
            )
        return config

    def is_of(self, model):
        return model.get("multi_label", False) == self.multi_label

    def loss(self, recipe, corpus=None):
        """Balanced weights are n / (C n_c) for a label that n_c of the n texts have."""
        weights = None
        if recipe.class_weights == BALANCED:
            counts = np.maximum(corpus.counts, 1)
            weights = corpus.counts.sum() / (len(counts) * counts)
        return LabelCrossEntropy(recipe.smoothing, weights=weights)

    def label_columns(self, columns):
        return 1

    def judged(self, served, pairs, batch_size):
        answers = served.outputs([pair.source for pair in pairs], batch_size)["label"]
        answers = [answer.decode() for answer in answers]
        true = [pair.target for pair in pairs]
        scores, confused = label_scores(served.tokenizer.target.labels, true, answers)
        return scores, answers, confused


class TextsOfSeveralLabels(ClassifiedTexts):
    """Texts with any number of labels."""

    def example(self, source, target, padded, seed=(0, 0)):
        """The labels are [B, C]: 1 is no, 2 is yes, and 0 is a row of padding."""
        ids, labels = padded(source), numbers(padded(target, self.target.size))
        has = tf.reduce_any(tf.equal(labels[:, :, None], tf.range(1, self.count + 1)), axis=1)
        real = tf.not_equal(ids[:, :1], PAD)
        return {"ids": ids}, tf.where(real, tf.where(has, 2, 1), PAD)

    @property
    def count(self):
        """C, the number of labels."""
        return self.target.size - EOS - 1


class MultiLabelClassification(Classification):
    """The task of a `Classifier` whose texts have any number of labels. The best model is the one
    with the highest macro F1 over the labels."""

    reading, multi_label, class_weights = TextsOfSeveralLabels, True, ("none",)

    def labels_of(self, line, model):
        """The labels in alphabetical order, without duplicates."""
        return sorted({found for part in line.split(",") if (found := label(part))})

    def may_be(self, labels, pair, report):
        return True

    def label_columns(self, columns):
        return self.config.num_labels

    def judged(self, served, pairs, batch_size):
        names = served.tokenizer.target.labels
        number = {name: n for n, name in enumerate(names)}
        found = served.outputs([pair.source for pair in pairs], batch_size)
        predicted = np.array(found["probabilities"]) >= served.threshold
        true, unknown = np.zeros_like(predicted), np.zeros(len(pairs), bool)
        for row, pair in enumerate(pairs):
            for name in filter(None, pair.target.split("\t")):
                if name in number:
                    true[row, number[name]] = True
                else:
                    unknown[row] = True
        counts = [array.sum(axis=0) for array in (predicted & true, predicted, true)]
        exact = (predicted == true).all(axis=1) & ~unknown
        scores = {
            "macro_f1": measures.macro_f1(*counts),
            "accuracy": float((predicted == true).mean()),
            "exact_match": 100 * float(exact.mean()),
            "labels": measures.by_label(names, *counts),
        }
        answers = [answer.decode() for answer in found["label"]]
        return scores, answers, true.T.astype("int64") @ predicted.astype("int64")

"""Scores of predicted labels: confusion matrix, F1, precision and recall."""

import collections
import re

import numpy as np


def confusion(labels, predicted, count):
    """The confusion matrix, int64 [count, count]: a row for each true label, a number below
    `count`."""
    found = np.zeros((count, count), "int64")
    np.add.at(found, (np.asarray(labels, "int64"), np.asarray(predicted, "int64")), 1)
    return found


def label_counts(confused):
    """(true positives, predicted, true) of each label from a confusion matrix: int64 [C] each."""
    return np.diag(confused).copy(), confused.sum(axis=0), confused.sum(axis=1)


def f1_of_each(hits, predicted, true):
    """2 hits / (predicted + true) of each label, [C]; NaN for a label that never occurs."""
    total = (predicted + true).astype("float64")
    return np.divide(2.0 * hits, total, out=np.full(total.shape, np.nan), where=total > 0)


def macro_f1(hits, predicted, true):
    """The mean F1 of the labels that occur, as true or predicted label; 0 if none does."""
    found = f1_of_each(hits, predicted, true)
    found = found[~np.isnan(found)]
    return float(found.mean()) if len(found) else 0.0


def word_f1(found, true):
    """The F1 of the words that two texts share. A word counts as often as both texts have it.

    See Rajpurkar et al. 2016, "SQuAD".
    """
    words = [collections.Counter(re.findall(r"\w+", text.lower())) for text in (found, true)]
    if not (words[0] and words[1]):
        return float(found == true)
    shared = sum((words[0] & words[1]).values())
    return 2 * shared / (words[0].total() + words[1].total())


def by_label(names, hits, predicted, true):
    """{label: {"f1", "precision", "recall", "count"}} of the labels that occur."""
    found, f1 = {}, f1_of_each(hits, predicted, true)
    for n, name in enumerate(names):
        if predicted[n] or true[n]:
            found[name] = {
                "f1": float(f1[n]),
                "precision": float(hits[n] / max(predicted[n], 1)),
                "recall": float(hits[n] / max(true[n], 1)),
                "count": int(true[n]),
            }
    return found

"""The similarity of candidates: sentence BLEU and chrF of each pair, computed together.

The values are those of sacreBLEU, up to rounding: BLEU cased, 13a, with exponential smoothing and
n-grams no longer than the candidate; chrF2 with up to 6 characters, without spaces. The n-grams of
each candidate are counted once. Two candidates share the sum of the smaller counts.

Papineni et al. 2002, "BLEU"; Popovic 2015, "chrF: character n-gram F-score".
"""

from collections import Counter

import numpy as np
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

WORDS, CHARACTERS = 4, 6  # the longest n-grams of BLEU and of chrF
BETA = 2  # of chrF: the weight of recall against precision

_tokenized = Tokenizer13a()


def bleu(hypotheses, references):
    """Sentence BLEU of each hypothesis against each reference, in 0 ... 100: float64 [n, m]."""
    sides = [
        [_tokenized(text.rstrip()).split() for text in one] for one in (hypotheses, references)
    ]
    lengths = [np.array([len(words) for words in side]) for side in sides]
    sizes = lengths[0][:, None], lengths[1][None]  # [n, 1], [1, m]
    logs, orders = np.zeros([len(hypotheses), len(references)]), np.zeros([len(hypotheses), 1])
    halving = np.ones_like(logs)
    anything = np.zeros(logs.shape, bool)
    for n in range(1, WORDS + 1):
        there = np.maximum(sizes[0] - n + 1, 0)  # [n, 1]
        hits = _shared(*sides, n)
        anything |= hits > 0
        # The first order without a shared n-gram counts as 1/2 n-gram, the next as 1/4.
        halving = np.where((hits == 0) & (there > 0), 2 * halving, halving)
        share = np.where(hits > 0, hits, 1 / halving) / np.maximum(there, 1)
        logs += np.where(there > 0, np.log(share), 0.0)
        orders += there > 0
    with np.errstate(divide="ignore", invalid="ignore"):
        brevity = np.where(sizes[0] < sizes[1], np.exp(1 - sizes[1] / sizes[0]), 1.0)
        found = 100 * brevity * np.exp(logs / np.maximum(orders, 1))
    return np.where(anything, found, 0.0)


def chrf(hypotheses, references):
    """chrF2 of each hypothesis against each reference, in 0 ... 100: float64 [n, m]."""
    sides = [["".join(text.split()) for text in one] for one in (hypotheses, references)]
    lengths = [np.array([len(text) for text in side]) for side in sides]
    precision = np.zeros([len(hypotheses), len(references)])
    recall, orders = np.zeros_like(precision), np.zeros_like(precision)
    for n in range(1, CHARACTERS + 1):
        theirs = [np.maximum(count - n + 1, 0) for count in lengths]
        theirs = theirs[0][:, None], theirs[1][None]  # [n, 1], [1, m]
        both = (theirs[0] > 0) & (theirs[1] > 0)
        hits = _shared(*sides, n)
        precision += np.where(both, hits / np.maximum(theirs[0], 1), 0.0)
        recall += np.where(both, hits / np.maximum(theirs[1], 1), 0.0)
        orders += both
    precision, recall = (one / np.maximum(orders, 1) for one in (precision, recall))
    total = BETA**2 * precision + recall
    return np.where(
        total > 0, 100 * (1 + BETA**2) * precision * recall / np.maximum(total, 1e-9), 0
    )


UTILITIES = {"bleu": bleu, "chrf": chrf}


def _shared(hypotheses, references, size):
    """The number of n-grams of `size` that each hypothesis shares with each reference, [n, m]."""
    numbers = {}
    counts = [_counts(side, size, numbers) for side in (hypotheses, references)]
    tables = []
    for side in counts:
        table = np.zeros([len(side), len(numbers)], "int32")
        for row, found in enumerate(side):
            table[row, [*found]] = [*found.values()]
        tables.append(table)
    # Row by row, because [n, m, G] would take gigabytes for long texts.
    return np.stack([np.minimum(row, tables[1]).sum(axis=1) for row in tables[0]])


def _counts(side, size, numbers):
    """{number of an n-gram: count} of each sequence. New n-grams are added to `numbers`."""
    found = []
    for one in side:
        grams = Counter(tuple(one[i : i + size]) for i in range(len(one) - size + 1))
        found.append({numbers.setdefault(gram, len(numbers)): n for gram, n in grams.items()})
    return found

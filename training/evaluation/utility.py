"""How much candidates are alike: sentence BLEU and chrF of each against each, at once.

The figures are sacreBLEU's, to rounding: BLEU cased, 13a, with exponential smoothing and n-grams no
longer than the candidate; chrF2 of up to 6 characters, without spaces. The n-grams of all
candidates of a sentence are counted once, and what two share is the sum of the lesser counts.

Papineni et al. 2002, "BLEU"; Popovic 2015, "chrF: character n-gram F-score".
"""

from collections import Counter

import numpy as np
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

WORDS, CHARACTERS = 4, 6  # the longest n-gram of BLEU, of chrF
BETA = 2  # of chrF: recall counts so much more than precision

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
        # An order that no n-gram fits counts as half, then a quarter, of one n-gram.
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
    """How many n-grams of `size` each hypothesis has in common with each reference, [n, m]."""
    numbers = {}
    counts = [_counts(side, size, numbers) for side in (hypotheses, references)]
    tables = []
    for side in counts:
        table = np.zeros([len(side), len(numbers)], "int32")
        for row, found in enumerate(side):
            table[row, [*found]] = [*found.values()]
        tables.append(table)
    # Row by row: [n, m, G] of long texts would be gigabytes.
    return np.stack([np.minimum(row, tables[1]).sum(axis=1) for row in tables[0]])


def _counts(side, size, numbers):
    """{the number of an n-gram: how often} of each sequence; `numbers` gets the new ones."""
    found = []
    for one in side:
        grams = Counter(tuple(one[i : i + size]) for i in range(len(one) - size + 1))
        found.append({numbers.setdefault(gram, len(numbers)): n for gram, n in grams.items()})
    return found

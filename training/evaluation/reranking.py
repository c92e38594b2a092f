"""Chooses the best of several translations, with more than the score of the search.

There are two ways. Both can be combined with an ensemble.

- Minimum Bayes risk: takes the candidate with the highest mean utility (BLEU or chrF) against
  other translations. These are samples from the model, or the hypotheses of the beam weighted by
  their probabilities (Kumar and Byrne 2004; Eikema and Aziz 2022).
- Reranking: adds weighted scores of other models to the score of the search. Each score is the mean
  log-probability of a token. A backward model scores the source given the candidate, a noisy
  channel (Yee et al. 2019). A right-to-left model, which makes mistakes at other positions, scores
  the candidate (Liu et al. 2016).
"""

import dataclasses

import numpy as np
import tensorflow as tf

from .utility import UTILITIES


@dataclasses.dataclass(frozen=True)
class Choice:
    """How to choose the best candidate.

    Args:
        utility: for minimum Bayes risk, a name in `UTILITIES`. Default None: the scores decide.
        samples: number of translations sampled from the model. The utility is averaged over them,
            and they are candidates too. Default 0: it is averaged over the hypotheses of the beam.
        backward: a `Translator` from the target language to the source language.
        right_to_left: a `Translator` whose targets have their words in reverse order.
        backward_weight, right_to_left_weight: of their scores; the search has weight 1.

    Raises:
        ValueError: there is no such utility.
    """

    utility: str | None = None
    samples: int = 0
    backward: object = None
    backward_weight: float = 0.0
    right_to_left: object = None
    right_to_left_weight: float = 0.0

    def __post_init__(self):
        if self.utility not in (None, *UTILITIES):
            raise ValueError(f"utility must be one of {[*UTILITIES]}, got {self.utility!r}")

    def describe(self):
        """A short description for a table of scores."""
        if self.utility:
            drawn = f" over {self.samples} samples" if self.samples else ""
            return f"minimum Bayes risk by {self.utility}{drawn}"
        by = [f"backward {self.backward_weight:g}"] if self.backward else []
        by += [f"right-to-left {self.right_to_left_weight:g}"] if self.right_to_left else []
        return f"reranked by {', '.join(by)}" if by else "not reranked"


@dataclasses.dataclass
class Candidates:
    """The n different candidates of one source: first those of the search, the best first.

    texts: n strings.
    scores: [n], the scores of the search; -inf for candidates that were only sampled.
    log_probs: [n], the log-probabilities of the search; -inf for the same candidates.
    drawn: [n], how often each candidate was sampled.
    """

    texts: list
    scores: np.ndarray
    log_probs: np.ndarray
    drawn: np.ndarray


class BestOf:
    """A `Translator` that chooses among the hypotheses of its beam and samples of its model."""

    def __init__(self, translator, choice):
        self.translator, self.choice = translator, choice
        self.tokenizer = translator.tokenizer
        self.signatures, self.functions = translator.signatures, translator.functions

    def translate(self, texts, batch_size=None, greedy=False):
        """The best candidate of each text, in order. `greedy` must be False: it finds only one."""
        if greedy:
            raise ValueError("greedy must be False with reranking, got True")
        return self.translator.in_batches(texts, batch_size, self._best)

    answer = translate

    def _best(self, texts):
        """The best candidates of a batch of texts, both string tensors [B]."""
        texts = [text.decode() for text in texts.numpy()]
        found = candidates_of(self.translator, texts, self.choice.samples)
        features = features_of(texts, found, self.choice)
        return tf.constant(
            [best(one, self.choice, own) for one, own in zip(found, features, strict=True)]
        )

    def search_facts(self, greedy=False):
        """A description of search and choice, for a table of scores."""
        facts = self.translator.search_facts(greedy)
        return {**facts, "search": f"{facts['search']}, {self.choice.describe()}"}


def candidates_of(translator, texts, samples=0):
    """The `Candidates` of each text of a batch: the hypotheses of the beam, and samples."""
    found = [_hypotheses(*row) for row in zip(*_beams(translator, texts), strict=True)]
    for one, text in zip(found, texts, strict=True):
        for candidate in _drawn(translator, text, samples):
            one.setdefault(candidate, [-np.inf, -np.inf, 0])[2] += 1
    columns = [(list(one), *np.array([*one.values()]).T) for one in found]
    return [Candidates(*one) for one in columns]


def _beams(translator, texts):
    """Translations of the beam of each text, their scores, their log-probabilities: each [B, W]."""
    answer = translator.functions["beam_search"](tf.constant(texts))
    totals = tf.reduce_sum(answer["token_log_probs"], axis=-1)
    return [x.numpy() for x in (answer["translations"], answer["scores"], totals)]


def _hypotheses(texts, scores, log_probs):
    """{text: [score, log-probability, 0 times sampled]} of a beam.

    A text that it has twice, in two segmentations, gets the better score and the sum of the
    probabilities.
    """
    found = {}
    for text, score, log_prob in zip(texts, scores, log_probs, strict=True):
        one = found.setdefault(text.decode(), [score, -np.inf, 0])
        one[1] = np.logaddexp(one[1], log_prob)
    return found


def _drawn(translator, text, samples):
    """Samples of a text, drawn in a batch of its own: they do not depend on other texts."""
    found, maximum = [], translator.max_batch_size
    for start in range(0, samples, maximum):
        rows = tf.fill([min(maximum, samples - start)], text)
        found += [*translator.functions["sample"](rows, seed=start)["translation"].numpy()]
    return [one.decode() for one in found]


def features_of(texts, found, choice):
    """The scores [n, 2] of the other models for the candidates of each text: the mean
    log-probability of a token by `backward` and `right_to_left`; 0 if there is no such model."""
    pairs = [(n, text) for n, one in enumerate(found) for text in one.texts]
    columns = []
    for model, asked in (
        (choice.backward, [(text, texts[n]) for n, text in pairs]),
        (choice.right_to_left, [(texts[n], reversed_words(text)) for n, text in pairs]),
    ):
        columns.append(_mean_log_probs(model, asked) if model else np.zeros(len(pairs)))
    rows = np.stack(columns, axis=1)  # [all candidates, 2]
    return np.split(rows, np.cumsum([len(one.texts) for one in found])[:-1])


def best(one, choice, features):
    """The best of the `Candidates` of a text, whose `features` are [n, 2]."""
    if choice.utility:
        return one.texts[int(np.argmax(expected_utility(one, choice.utility)))]
    weights = np.array([choice.backward_weight, choice.right_to_left_weight])
    return one.texts[int(np.argmax(one.scores + features @ weights))]


def expected_utility(one, utility):
    """The expected utility of each candidate, [n]: its mean over the samples, or without samples
    over the hypotheses of the search, weighted by their probabilities."""
    if one.drawn.sum():
        weights = one.drawn / one.drawn.sum()
    else:
        weights = np.exp(one.log_probs - one.log_probs.max())
        weights /= weights.sum()
    likely = weights > 0
    references = [text for text, there in zip(one.texts, likely, strict=True) if there]
    return UTILITIES[utility](one.texts, references) @ weights[likely]


def reversed_words(text):
    """A text with its words in reverse order, as a right-to-left model writes it."""
    return " ".join(reversed(text.split()))


def _mean_log_probs(translator, pairs):
    """The mean log-probability per target token, including eos, of each (source, target)."""
    # Texts of similar length share a batch, which needs less padding.
    order = sorted(range(len(pairs)), key=lambda n: len(pairs[n][0]))
    found, size = np.zeros(len(pairs)), translator.max_batch_size
    for start in range(0, len(order), size):
        chosen = order[start : start + size]
        sides = [tf.constant([pairs[n][side] for n in chosen]) for side in (0, 1)]
        answer = translator.functions["score"](*sides)
        found[chosen] = answer["log_prob"].numpy() / np.maximum(answer["length"].numpy(), 1)
    return found

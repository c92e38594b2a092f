"""The best of several translations, by more than the score of the search that found them.

Two ways, which go together with any ensemble:

- Minimum Bayes risk: the candidate that is most like what the model says on the whole, by the mean
  of a utility, BLEU or chrF, over translations that are drawn from the model, or over the
  hypotheses of the beam, each by its probability (Kumar and Byrne 2004; Eikema and Aziz 2022).
- Reranking: to the score of the search is added, by weights, what other models say of a candidate.
  One that translates the other way says how well the source can be read out of it, a noisy channel
  (Yee et al. 2019); one that writes from right to left, whose mistakes are at other places, how
  likely it is (Liu et al. 2016). Of both it is the mean log-probability of a token.
"""

import dataclasses

import numpy as np
import tensorflow as tf

from training.evaluation.utility import UTILITIES


@dataclasses.dataclass(frozen=True)
class Choice:
    """Which of the candidates is the best.

    Args:
        utility: of minimum Bayes risk, a name of `UTILITIES`. Default None: the scores decide.
        samples: translations drawn from the model that the utility is asked of, and that are
            candidates too. Default 0: it is asked of the hypotheses of the beam.
        backward: a `Translator` from the target's language to the source's. Default: none.
        backward_weight: of its score, to the 1 of the search. Default 0.
        right_to_left: a `Translator` whose targets have their words in reverse order. Default:
            none.
        right_to_left_weight: of its score. Default 0.

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
        """In a few words, for a table of scores."""
        if self.utility:
            drawn = f" over {self.samples} samples" if self.samples else ""
            return f"minimum Bayes risk by {self.utility}{drawn}"
        by = [f"backward {self.backward_weight:g}"] if self.backward else []
        by += [f"right-to-left {self.right_to_left_weight:g}"] if self.right_to_left else []
        return f"reranked by {', '.join(by)}" if by else "not reranked"


@dataclasses.dataclass
class Candidates:
    """The candidates of one source, no two alike: of the search first, best first.

    texts: strings, n of them.
    scores: of the search, [n]; -inf of those that were drawn alone.
    log_probs: of the search, [n]; the same.
    drawn: how often each was drawn, [n].
    """

    texts: list
    scores: np.ndarray
    log_probs: np.ndarray
    drawn: np.ndarray


class BestOf:
    """A `Translator` that chooses among several translations of a text: the hypotheses of its beam,
    and what is drawn from it.

    Args:
        translator: the `Translator`.
        choice: a `Choice`.

    Attributes:
        tokenizer, signatures, functions: the translator's.
    """

    def __init__(self, translator, choice):
        self.translator, self.choice = translator, choice
        self.tokenizer = translator.tokenizer
        self.signatures, self.functions = translator.signatures, translator.functions

    def translate(self, texts, batch_size=None, greedy=False):
        """Texts -> the best of their candidates, in order.

        Args:
            texts, batch_size: as `Translator.translate` has them.
            greedy: must be False: there is nothing to choose from.
        """
        if greedy:
            raise ValueError("greedy must be False where candidates are chosen from, got True")
        return self.translator.in_batches(texts, batch_size, self._best)

    answer = translate

    def _best(self, texts):
        """The best candidates of a batch, strings [B] both."""
        texts = [text.decode() for text in texts.numpy()]
        found = candidates_of(self.translator, texts, self.choice.samples)
        features = features_of(texts, found, self.choice)
        return tf.constant(
            [best(one, self.choice, own) for one, own in zip(found, features, strict=True)]
        )

    def search_facts(self, greedy=False):
        """How `translate` searches and chooses, for a table of scores."""
        facts = self.translator.search_facts(greedy)
        return {**facts, "search": f"{facts['search']}, {self.choice.describe()}"}


def candidates_of(translator, texts, samples=0):
    """The `Candidates` of each text of a batch: the hypotheses of the beam, and what is drawn."""
    found = [_hypotheses(*row) for row in zip(*_beams(translator, texts), strict=True)]
    for one, text in zip(found, texts, strict=True):
        for candidate in _drawn(translator, text, samples):
            one.setdefault(candidate, [-np.inf, -np.inf, 0])[2] += 1
    columns = [(list(one), *np.array([*one.values()]).T) for one in found]
    return [Candidates(*one) for one in columns]


def _beams(translator, texts):
    """Translations [B, W] of the beam of each text, their scores and their log-probabilities."""
    answer = translator.functions["beam_search"](tf.constant(texts))
    totals = tf.reduce_sum(answer["token_log_probs"], axis=-1)
    return [x.numpy() for x in (answer["translations"], answer["scores"], totals)]


def _hypotheses(texts, scores, log_probs):
    """{text: [score, log-probability, 0 times drawn]} of a beam. Of a text that is there in two
    segmentations, the score is the better one's and the probability both's."""
    found = {}
    for text, score, log_prob in zip(texts, scores, log_probs, strict=True):
        one = found.setdefault(text.decode(), [score, -np.inf, 0])
        one[1] = np.logaddexp(one[1], log_prob)
    return found


def _drawn(translator, text, samples):
    """Translations of a text that are drawn, whatever others are asked for: all in a batch of their
    own, in which each row has its own noise."""
    found, most = [], translator.max_batch_size
    for start in range(0, samples, most):
        rows = tf.fill([min(most, samples - start)], text)
        found += [*translator.functions["sample"](rows, seed=start)["translation"].numpy()]
    return [one.decode() for one in found]


def features_of(texts, found, choice):
    """What the other models say of each candidate of each text, [n, 2]: the mean log-probability of
    a token by `backward` and by `right_to_left`; 0 where there is none."""
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
    """The best of the `Candidates` of a text, with `features` [n, 2] of them."""
    if choice.utility:
        return one.texts[int(np.argmax(expected_utility(one, choice.utility)))]
    weights = np.array([choice.backward_weight, choice.right_to_left_weight])
    return one.texts[int(np.argmax(one.scores + features @ weights))]


def expected_utility(one, utility):
    """The expected utility of each candidate, [n]: over what was drawn, as often as it was; if
    nothing was, over the hypotheses of the search, by their probabilities."""
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
    """Of each (source, target) the mean log-probability of a token of the target, eos counted."""
    # Texts of like length together: less padding.
    order = sorted(range(len(pairs)), key=lambda n: len(pairs[n][0]))
    found, size = np.zeros(len(pairs)), translator.max_batch_size
    for start in range(0, len(order), size):
        chosen = order[start : start + size]
        sides = [tf.constant([pairs[n][side] for n in chosen]) for side in (0, 1)]
        answer = translator.functions["score"](*sides)
        found[chosen] = answer["log_prob"].numpy() / np.maximum(answer["length"].numpy(), 1)
    return found

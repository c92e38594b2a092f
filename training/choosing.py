"""The best of several translations, by more than the score of the search that found them.

Two ways, which go together with any search and any ensemble:

- Minimum Bayes risk: the candidate that is most like what the model says on the whole, by the mean
  of a utility, BLEU or chrF, over translations that are drawn from the model, or over the n best,
  each by its probability (Kumar and Byrne 2004; Eikema and Aziz 2022).
- Reranking: to the score of the search is added, by weights, what other models say of a candidate.
  One that translates the other way says how well the source can be read out of it, a noisy channel
  (Yee et al. 2019); one that writes from right to left, whose mistakes are at other places, how
  likely it is (Liu et al. 2016). Of both it is the mean log-probability of a token.
"""

import dataclasses

import numpy as np
import tensorflow as tf

from training.utility import UTILITIES

# Of a search for candidates alone; scores are asked of more texts at once.
BATCH = 16


@dataclasses.dataclass(frozen=True)
class Choice:
    """What candidates there are, and which is the best.

    Args:
        n_best: hypotheses of the beam search that are candidates, at most 64.
        samples: translations drawn from the model that are candidates too. Default 0.
        utility: of minimum Bayes risk, a name of `UTILITIES`; None: the candidates' scores decide.
        backward: a `Translator` from the target's language to the source's, or None.
        backward_weight: of its score, to the 1 of the search. Default 0.
        right_to_left: a `Translator` whose targets have their words in reverse order, or None.
        right_to_left_weight: of its score. Default 0.
    """

    n_best: int
    samples: int = 0
    utility: str | None = None
    backward: object = None
    backward_weight: float = 0.0
    right_to_left: object = None
    right_to_left_weight: float = 0.0

    def describe(self):
        """In a few words, for a table of scores."""
        of = f"{self.n_best} best" + (f" and {self.samples} samples" if self.samples else "")
        if self.utility:
            return f"minimum Bayes risk by {self.utility}, {of}"
        by = [f"backward {self.backward_weight:g}"] if self.backward else []
        by += [f"right-to-left {self.right_to_left_weight:g}"] if self.right_to_left else []
        return f"reranked by {', '.join(by)}, {of}"


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
    """A `Translator` that chooses among several translations of a text.

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
        """Texts -> the best of their candidates, in order; `greedy` must be False."""
        if greedy:
            raise ValueError("greedy must be False where candidates are chosen from")
        found = candidates_of(self.translator, texts, self.choice.n_best, self.choice.samples)
        return [
            best(text, one, self.choice, features)
            for text, one, features in zip(
                texts, found, features_of(texts, found, self.choice), strict=True
            )
        ]

    answer = translate

    def search_facts(self, greedy=False):
        """How `translate` searches and chooses, for a table of scores."""
        facts = self.translator.search_facts(greedy)
        return {**facts, "search": f"{facts['search']}, {self.choice.describe()}"}


def candidates_of(translator, texts, n_best, samples=0):
    """The `Candidates` of each text: hypotheses of a beam of `n_best`, and translations drawn."""
    found = [{} for _ in texts]  # text -> [score, log prob, how often drawn]
    for chosen in _batches(texts, BATCH):
        asked = tf.constant([texts[n] for n in chosen])
        answer = translator.functions["beam_search"](asked, beam_width=tf.constant(n_best))
        totals = tf.reduce_sum(answer["token_log_probs"], axis=-1).numpy()
        hypotheses = answer["translations"].numpy(), answer["scores"].numpy(), totals
        for n, row in zip(chosen, zip(*hypotheses, strict=True), strict=True):
            for text, score, log_prob in zip(*row, strict=True):
                # Two ways to cut a text into pieces are one candidate.
                found[n].setdefault(text.decode(), [score, log_prob, 0])
    for one, text in zip(found, texts, strict=True):
        for candidate in _drawn(translator, text, samples):
            one.setdefault(candidate, [-np.inf, -np.inf, 0])[2] += 1
    columns = [(list(one), *np.array([*one.values()]).T) for one in found]
    return [Candidates(*one) for one in columns]


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


def best(text, one, choice, features):
    """The best of the `Candidates` of a text; a blank one has a blank translation."""
    if not text.strip():
        return one.texts[0]
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
    found = np.zeros(len(pairs))
    for chosen in _batches([source for source, _ in pairs], 8 * BATCH):
        sides = [tf.constant([pairs[n][side] for n in chosen]) for side in (0, 1)]
        answer = translator.functions["score"](*sides)
        found[chosen] = answer["log_prob"].numpy() / np.maximum(answer["length"].numpy(), 1)
    return found


def _batches(texts, size):
    """The numbers of the texts, `size` at a time, texts of like length together."""
    order = sorted(range(len(texts)), key=lambda n: len(texts[n]))
    return [order[start : start + size] for start in range(0, len(order), size)]

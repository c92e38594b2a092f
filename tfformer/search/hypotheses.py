"""The hypotheses of a search, and its result."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfformer.config import BOS, PAD
from tfformer.config.search_options import LARGEST_NGRAM, OPTIONS, PENALTY_FORMS

IMPOSSIBLE = float("-inf")
FRACTIONS = ("temperature", "top_p")  # numbers that are not in the table of options


class SearchSteps(NamedTuple):
    """The content of each of W beams after each of T steps: the search tree.

    token_ids: int32 [B, T, W], the newest token; 0 after a hypothesis is finished.
    parents: int32 [B, T, W], the beam of the previous step that a hypothesis continues; -1 if a
        settled sentence took no step. Its tokens and scores are then 0.
    scores: float32 [B, T, W], the sort key of the beams; -inf in an empty beam.
    """

    token_ids: tf.Tensor
    parents: tf.Tensor
    scores: tf.Tensor


class SearchResult(NamedTuple):
    """The result of a search, best hypothesis first. W is 1 for searches of one hypothesis.

    token_ids: int32 [B, W, T], each ending with eos, then padding.
    scores: float32 [B, W], log_probs / penalty(lengths), plus the coverage penalty if it is on.
    log_probs: float32 [B, W].
    lengths: int32 [B, W], including eos.
    token_log_probs: float32 [B, W, T], 0 at padding; their sum is log_probs. Or None.
    alignment: int32 [B, W, T], the source position with the most attention from each token. Or
        None.
    steps: `SearchSteps`. Or None.

    If there are fewer sequences than beams, an empty beam has length 0 and score -inf.
    """

    token_ids: tf.Tensor
    scores: tf.Tensor
    log_probs: tf.Tensor
    lengths: tf.Tensor
    token_log_probs: tf.Tensor | None = None
    alignment: tf.Tensor | None = None
    steps: SearchSteps | None = None


class Hypotheses(NamedTuple):
    """W hypotheses for each of B sentences, over C positions. The positions are those of the prompt
    (only bos by default), and one for each later token.

    ids: int32 [B, W], the newest token.
    log_probs: float32 [B, W].
    scores: float32 [B, W], the sort key.
    lengths: int32 [B, W], including eos.
    finished: boolean [B, W].
    ancestors: int32 [B, W, C]; [b, w, c] is the beam that held, at position c, the token of
        hypothesis w. At the newest position it is w. -1 means none: padding of a prompt, or a
        future position. (A picture: docs/guide/search.md.)
    history: {"token_ids": [B, C, W], ...}, the values in each beam. A hypothesis finds its own
        values by its ancestors.
    coverage: float32 [B, W, S], the total attention on each source token, or ().
    given: {name: [B, ...]}, the request's values for each sentence.
    """

    ids: tf.Tensor
    log_probs: tf.Tensor
    scores: tf.Tensor
    lengths: tf.Tensor
    finished: tf.Tensor
    ancestors: tf.Tensor
    history: dict
    coverage: tf.Tensor | tuple
    given: dict

    @classmethod
    def start(cls, batch_size, width, log_probs, skip, given, kept=(), prompt=None):
        """Start with the prompt, or bos, in each beam.

        Args:
            batch_size, width, log_probs, given: B, W, and two of the attributes above.
            skip: boolean [B], sentences that are finished from the start, or None.
            kept: names of the history besides "token_ids".
            prompt: int32 [B, P], padded on the left, or None.
        """
        own = tf.tile(tf.range(width)[None, :, None], [batch_size, 1, 1])  # [B, W, 1]
        if prompt is None:
            ids = tf.fill([batch_size, width], BOS)
            token_ids, ancestors = ids[:, None], own
        else:
            ids = tf.tile(prompt[:, -1][:, None], [1, width])  # keeps W static if P is unknown
            token_ids = tf.tile(prompt[:, :, None], [1, 1, width])
            # The prompt's cached values are in the first beam, for all hypotheses. The step of its
            # last token is still to come, for each hypothesis by itself.
            before = tf.where(prompt[:, None, :-1] == PAD, -1, 0)
            ancestors = tf.concat([tf.tile(before, [1, width, 1]), own], axis=2)  # [B, W, P]
        if skip is None:
            finished = tf.zeros([batch_size, width], tf.bool)
        else:
            finished = tf.tile(skip[:, None], [1, width])
        kinds = {"token_log_probs": tf.float32, "scores": tf.float32}
        shape = [batch_size, 1 if prompt is None else tf.shape(prompt)[1], width]
        return cls(
            ids=ids,
            log_probs=log_probs,
            scores=log_probs,
            lengths=tf.zeros([batch_size, width], tf.int32),
            finished=finished,
            ancestors=ancestors,
            history={
                "token_ids": token_ids,
                **{name: tf.zeros(shape, kinds.get(name, tf.int32)) for name in kept},
            },
            coverage=(),
            given={"row": tf.range(batch_size), **given},
        )

    @property
    def newest(self):
        """The last position of the prompt, before the first step: an integer if it is known."""
        size = self.ancestors.shape[2]
        return tf.shape(self.ancestors)[2] - 1 if size is None else size - 1

    @property
    def width(self):
        """W, an integer if it is known, else a tensor."""
        return self.ids.shape[1] or tf.shape(self.ids)[1]

    def visible(self):
        """Whether hypothesis w may attend to beam v at position c, which it may if v is its
        ancestor: boolean [B, W, C, W], [b, w, c, v]."""
        return self.ancestors[..., None] == tf.range(self.width)

    def descend(self, parents):
        """Put hypothesis `parents[b, w]` in beam w. The history does not move."""

        def take(leaf):
            return tf.gather(leaf, parents, batch_dims=1)

        return self._replace(
            log_probs=take(self.log_probs),
            scores=take(self.scores),
            lengths=take(self.lengths),
            finished=take(self.finished),
            ancestors=take(self.ancestors),
            coverage=tf.nest.map_structure(take, self.coverage),
        )

    def write(self, position, **values):
        """Write `values` [B, W] to the history at a position; each beam is its ancestor there."""
        now = tf.range(tf.shape(self.ancestors)[2]) == position
        beams = tf.range(self.width)
        return self._replace(
            ancestors=tf.where(now, beams[:, None], self.ancestors),  # [B, W, C]
            history={
                name: tf.where(now[:, None], values[name][:, None], before)  # [B, C, W]
                for name, before in self.history.items()
            },
        )

    def paths(self, name="token_ids"):
        """A value of the history along each hypothesis: [B, W, C], bos first, 0 if empty."""
        beams = tf.transpose(tf.maximum(self.ancestors, 0), [0, 2, 1])  # [B, C, W]
        found = tf.gather(self.history[name], beams, batch_dims=2)
        return tf.transpose(found, [0, 2, 1])  # [B, W, C]


def length_penalty(length, alpha, form="gnmt"):
    """The divisor of a log-probability; float32, in the shape of `length`."""
    if form not in PENALTY_FORMS:
        raise ValueError(f"form must be one of {PENALTY_FORMS}, got {form!r}")
    length = tf.cast(length, tf.float32)
    return tf.pow((5.0 + length) / 6.0 if form == "gnmt" else length, alpha)


def result(hypotheses, count, first=0):
    """The `count` best of `Hypotheses`, best first, as a `SearchResult`.

    `first` is the last position of the prompt; the result starts after it.
    """
    _, order = tf.math.top_k(hypotheses.scores, k=count)
    best = hypotheses.descend(order)
    lengths = tf.where(best.log_probs > IMPOSSIBLE, best.lengths, 0)
    longest = tf.reduce_max(tf.concat([tf.reshape(lengths, [-1]), [0]], axis=0))  # of [B W]
    inside = tf.range(longest) < lengths[..., None]

    def path(name, nothing):
        return tf.where(inside, best.paths(name)[:, :, first + 1 : first + 1 + longest], nothing)

    history = hypotheses.history
    kept = {name: path(name, 0) for name in ("token_log_probs", "alignment") if name in history}
    if "parents" in history:
        kept["steps"] = steps(history, first)
    return SearchResult(path("token_ids", PAD), best.scores, best.log_probs, lengths, **kept)


def steps(history, first):
    """The `SearchSteps` of a history, after the position `first`. The history stores 1 + parent,
    and 0 if there was no step."""
    token_ids, parents, scores = (history[n][:, first + 1 :] for n in SearchSteps._fields)
    taken = parents > 0  # [B, C, W]
    count = tf.math.count_nonzero(tf.reduce_any(taken, axis=[0, 2]), dtype=tf.int32)
    found = tf.where(taken, token_ids, PAD), parents - 1, tf.where(taken, scores, 0.0)
    return SearchSteps(*(values[:, :count] for values in found))


def check(max_length, **at_least):
    """Checks arguments that are Python numbers. The service checks tensors."""
    for name, (value, minimum) in {"max_length": (max_length, 1), **at_least}.items():
        check_number(name, value)
        if not tf.is_tensor(value) and not np.all(np.asarray(value) >= minimum):
            raise ValueError(f"{name} must be at least {minimum}, got {value}")


def check_rules(max_length, **rules):
    """Checks, as `check`, the rules of a search by name: `coverage_penalty`, `repetition_penalty`
    and `no_repeat_ngram`. None means off."""
    for name, value in rules.items():
        if value is not None:
            check(max_length, **{name: (value, OPTIONS[name].minimum)})
    ngram = rules.get("no_repeat_ngram")
    if not tf.is_tensor(ngram) and (ngram or 0) > LARGEST_NGRAM:
        raise ValueError(f"no_repeat_ngram must be at most {LARGEST_NGRAM}, got {ngram}")


def check_number(name, value):
    """Raises a ValueError unless the value is one number or several, of the option's type."""
    fraction = name in FRACTIONS or (name in OPTIONS and OPTIONS[name].kind is float)
    kinds, words = ("biuf", "a number") if fraction else ("biu", "an integer")
    if not tf.is_tensor(value) and np.asarray(value).dtype.kind not in kinds:
        raise ValueError(f"{name} must be {words}, got {value!r}")


def prompt_ids(prompt, batch_size):
    """A prompt as int32 [B, P]; a ValueError if it is not valid."""
    ids = tf.convert_to_tensor(prompt)
    fits = ids.shape.rank is None or (
        ids.shape.rank == 2 and (tf.is_tensor(batch_size) or ids.shape[0] in (None, batch_size))
    )
    if not fits or not ids.dtype.is_integer:
        raise ValueError(
            f"prompt must be integers [B, P] with B = batch_size = {batch_size}, got "
            f"{ids.dtype.name} {ids.shape}"
        )
    return tf.cast(ids, tf.int32)


def limits(max_length, batch_size):
    """`max_length`, one number or one for each sentence, as int32 [B]."""
    return tf.broadcast_to(tf.convert_to_tensor(max_length, tf.int32), [batch_size])

"""A simple reference beam search in NumPy: the served search must agree with it.

It has no cache, no batch and no graph. Each step runs the whole model over every hypothesis from
the start, and Python lists hold the beam. The rules are those of `tfformer.search`. They are
implemented a second time here, because only an independent implementation is a check.
"""

from typing import NamedTuple

import numpy as np

from tfformer.config import BOS, EOS, PAD


class Hypothesis(NamedTuple):
    tokens: tuple
    log_prob: float

    @property
    def finished(self):
        return self.tokens[-1:] == (EOS,)


def score(hypothesis, alpha, form):
    """log P / penalty(length). The penalty is that of GNMT (equation 14) or a power."""
    length = len(hypothesis.tokens)
    return hypothesis.log_prob / (((5 + length) / 6 if form == "gnmt" else length) ** alpha)


def log_softmax(logits):
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def log_prob(model, source_ids, tokens, max_length):
    """log P of the tokens (without bos); -inf if no search may return them. See `beam_search`."""
    *before, last = tokens or (PAD,)
    if last != EOS or {PAD, BOS, EOS} & set(before) or len(tokens) > max_length:
        return -np.inf
    target_ids = np.array([(BOS, *before)], "int32")
    inputs = {"source_ids": np.array([source_ids], "int32"), "target_ids": target_ids}
    log_probs = log_softmax(np.asarray(model(inputs))[0].astype("float64"))
    if not all(0 <= token < log_probs.shape[-1] for token in tokens):
        return -np.inf
    return log_probs[np.arange(len(tokens)), list(tokens)].sum()


def restricted(model, allowed):
    """`model` with a shortlist: the logits are -inf except for the ids `allowed`, int32 [c]."""

    def of(inputs):
        logits = np.asarray(model(inputs))
        short = np.full_like(logits, -np.inf)
        short[..., allowed] = logits[..., allowed]
        return short

    return of


def begun(model, first):
    """`model` with a given first token, the code of a language: it has probability 1."""

    def of(inputs):
        logits = np.array(model(inputs))
        logits[:, 0], logits[:, 0, first] = -np.inf, 0.0
        return logits

    return of


def beam_search(model, source_ids, max_length, beam_width, alpha, form):
    """The `beam_width` best `Hypothesis` of one sentence, best first, each ending with eos.

    `model` is a function of {"source_ids": [N, S], "target_ids": [N, T]} that returns logits
    [N, T, V]; `source_ids` is int32 [S]; `max_length` counts eos.
    """
    beam = [Hypothesis((), 0.0)]
    for length in range(1, max_length + 1):
        open_ones = [h for h in beam if not h.finished]
        if not open_ones:
            break
        target_ids = np.array([(BOS, *h.tokens) for h in open_ones], "int32")
        sources = np.tile(source_ids, (len(open_ones), 1))
        logits = np.asarray(model({"source_ids": sources, "target_ids": target_ids}))[:, -1]
        candidates = [h for h in beam if h.finished]
        for hypothesis, gains in zip(open_ones, log_softmax(logits.astype("float64")), strict=True):
            # At most `beam_width` candidates of one hypothesis can stay; pad and bos are skipped.
            likeliest = np.argsort(-gains, kind="stable")[: beam_width + 2]
            for token in [EOS] if length == max_length else likeliest.tolist():
                if token not in (PAD, BOS):
                    tokens = (*hypothesis.tokens, token)
                    candidates.append(Hypothesis(tokens, hypothesis.log_prob + gains[token]))
        candidates.sort(key=lambda h: score(h, alpha, form), reverse=True)
        beam = candidates[:beam_width]
    return beam

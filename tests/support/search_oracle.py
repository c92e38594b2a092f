"""Search in plain Python: the second route. `log_probs_of(prefix)` returns a list of V numbers."""

import itertools
import math

import numpy as np

PAD, UNK, BOS, EOS = range(4)


def penalty(length, alpha, form="gnmt"):
    return (((5 + length) / 6) if form == "gnmt" else length) ** alpha


def log_softmax(x):
    x = np.asarray(x, "float64")
    shifted = x - x.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def log_prob(log_probs_of, ids):
    """log P of a sequence that ends with eos, by the chain rule."""
    return math.fsum(log_probs_of(ids[:n])[ids[n]] for n in range(len(ids)))


def continuations(prefix, size, max_length, forced=()):
    """The tokens that may follow: only eos at the last position, never pad or bos."""
    if len(prefix) == max_length - 1:
        return [EOS]
    if len(prefix) < len(forced):
        return [forced[len(prefix)]]
    return [token for token in range(size) if token not in (PAD, BOS)]


def every_sequence(size, max_length):
    """All y_1 ... y_n = eos with n <= max_length."""
    inner = [token for token in range(size) if token not in (PAD, BOS, EOS)]
    for length in range(max_length):
        for body in itertools.product(inner, repeat=length):
            yield (*body, EOS)


def ranked(found, alpha, form):
    """(ids, log prob) pairs as (ids, score, log prob), best first."""
    scored = [(ids, total / penalty(len(ids), alpha, form), total) for ids, total in found]
    return sorted(scored, key=lambda hypothesis: -hypothesis[1])


def best_of_all(log_probs_of, size, max_length, alpha, form="gnmt"):
    sequences = every_sequence(size, max_length)
    return ranked([(ids, log_prob(log_probs_of, ids)) for ids in sequences], alpha, form)


def greedy(log_probs_of, size, max_length):
    ids = ()
    while EOS not in ids:
        log_probs = log_probs_of(ids)
        ids += (max(continuations(ids, size, max_length), key=lambda token: log_probs[token]),)
    return ids


def beam(log_probs_of, size, max_length, width, alpha, form="gnmt", forced=()):
    """A beam of W hypotheses; a finished one keeps its position; no early end."""
    *_, last = beams(log_probs_of, size, max_length, width, alpha, form, forced)
    return ranked(last, alpha, form)


def steps(log_probs_of, size, max_length, width, alpha, form="gnmt"):
    """After each step the W hypotheses, (ids, score) each, best first."""
    found = beams(log_probs_of, size, max_length, width, alpha, form)
    return [[(ids, score) for ids, score, _ in ranked(one, alpha, form)] for one in found]


def beams(log_probs_of, size, max_length, width, alpha, form="gnmt", forced=()):
    """Yields the W hypotheses after each step, (ids, log prob) each."""
    beam = [((), 0.0)]
    for _ in range(max_length):
        found = [(ids, total) for ids, total in beam if EOS in ids]
        for ids, total in beam:
            if EOS not in ids:
                log_probs = log_probs_of(ids)
                for token in continuations(ids, size, max_length, forced):
                    found.append(((*ids, token), total + log_probs[token]))
        beam = [(ids, total) for ids, _, total in ranked(found, alpha, form)[:width]]
        yield beam


def repeats_ngram(ids, n):
    """Whether the last n of `ids` occur together before."""
    return n > 0 and any(ids[k : k + n] == ids[-n:] for k in range(len(ids) - n))


def penalised(logits, ids, penalty):
    """The logits of tokens in `ids`, divided where positive, multiplied where negative."""
    logits = np.array(logits, "float64")
    for token in set(ids):
        logits[token] = logits[token] / penalty if logits[token] > 0 else logits[token] * penalty
    return logits


def coverage(attentions, beta):
    """beta * sum over the source of log(min(sum over the target of the attention, 1))."""
    had = np.clip(np.sum(attentions, axis=0), 1e-6, 1)
    return beta * np.log(had).sum()


def beam_with(
    logits_of,
    size,
    max_length,
    width,
    alpha,
    form="gnmt",
    *,
    min_length=0,
    repetition=1.0,
    ngram=0,
    beta=0.0,
    attention_of=None,
):
    """`beam` with all options. `attention_of(prefix)` returns a list of S numbers."""

    def score(hypothesis):
        ids, gains = hypothesis
        prefixes = [ids[:n] for n in range(len(ids))]
        covered = coverage([attention_of(prefix) for prefix in prefixes], beta) if beta else 0
        return math.fsum(gains) / penalty(len(ids), alpha, form) + covered

    beam = [((), ())]
    for _ in range(max_length):
        found = [hypothesis for hypothesis in beam if EOS in hypothesis[0]]
        for ids, gains in beam:
            if EOS in ids:
                continue
            log_probs = log_softmax(penalised(logits_of(ids), ids, repetition))
            for token in continuations(ids, size, max_length):
                last = len(ids) == max_length - 1
                early = token == EOS and len(ids) < min_length - 1 and not last
                if not early and (last or not repeats_ngram((*ids, token), ngram)):
                    found.append(((*ids, token), (*gains, log_probs[token])))
        beam = sorted(found, key=score, reverse=True)[:width]
    return [(ids, score((ids, gains)), gains) for ids, gains in beam]

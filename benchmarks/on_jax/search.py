"""Beam search in JAX, by the rules of `tfformer.search.beam`, which needs TensorFlow."""

import jax
import jax.numpy as jnp

from tfformer.config import BOS, EOS, PAD

IMPOSSIBLE = -1e9


def beam_search(logits_of, source, width, alpha, longest, limit):
    """The best hypothesis of each source, with eos, padded: int32 [B, longest].

    Each step computes all positions anew. On a large GPU this is cheap for short sentences.

    Args:
        logits_of: a function of source [N, S] and target [N, T] that returns logits [N, T, V].
        source: int32 [B, S].
        width: W, the number of beams.
        alpha: the length penalty, ((5 + length) / 6)^alpha.
        longest: maximum number of tokens of a hypothesis here, T.
        limit: the maximum on which the search decides that no other hypothesis can win.
    """
    rows = len(source)
    sources = jnp.repeat(source, width, axis=0)  # [B * W, S]

    def penalty(length):
        return ((5.0 + length) / 6.0) ** alpha

    def unsettled(state):
        position, _, log_probs, scores, _, finished = state
        hope = jnp.max(jnp.where(finished, IMPOSSIBLE, log_probs), axis=1) / penalty(limit)
        settled = finished[:, 0] & (scores[:, 0] > hope)
        return (position < longest) & ~jnp.all(settled | (source[:, 0] == PAD))

    def advance(state):
        position, ids, log_probs, _, lengths, finished = state
        logits = logits_of(sources, ids[:, :, :longest].reshape(rows * width, longest))
        logits = logits[:, position].astype("float32").reshape(rows, width, -1)  # [B, W, V]
        tokens = jnp.arange(logits.shape[-1])
        gains = jax.nn.log_softmax(logits)
        allowed = (tokens != PAD) & (tokens != BOS)
        allowed &= (position < longest - 1) | (tokens == EOS)
        gains = jnp.where(allowed, gains, IMPOSSIBLE)
        ended = jnp.where(tokens == PAD, 0.0, IMPOSSIBLE)
        gains = jnp.where(finished[..., None], ended, gains)
        lengths = lengths + ~finished
        totals = log_probs[..., None] + gains  # [B, W, V]
        scores = (totals / penalty(lengths)[..., None]).reshape(rows, -1)  # [B, W * V]
        scores, chosen = jax.lax.top_k(scores, width)  # [B, W]
        parents, token = chosen // len(tokens), chosen % len(tokens)

        def of_parents(x):
            return jnp.take_along_axis(x, parents, axis=1)

        ids = jnp.take_along_axis(ids, parents[..., None], axis=1)
        ids = ids.at[:, :, position + 1].set(token)
        log_probs = jnp.take_along_axis(totals.reshape(rows, -1), chosen, axis=1)
        finished = of_parents(finished) | (token == EOS)
        return position + 1, ids, log_probs, scores, of_parents(lengths), finished

    ids = jnp.full((rows, width, longest + 1), PAD).at[:, :, 0].set(BOS)
    log_probs = jnp.tile(jnp.where(jnp.arange(width) == 0, 0.0, IMPOSSIBLE), (rows, 1))
    nothing = jnp.zeros((rows, width), "int32")
    start = jnp.int32(0), ids, log_probs, log_probs, nothing, nothing > 0
    return jax.lax.while_loop(unsettled, advance, start)[1][:, 0, 1:]

"""Scheduled sampling: the decoder learns to continue after its own tokens, including mistakes.

With teacher forcing, a decoder reads true tokens in training, but its own tokens when it is used.
After one wrong token, it has a prefix that it has never seen (exposure bias; Bengio et al. 2015).
Scheduled sampling replaces true tokens by the model's own, with a probability that rises during
training. A Transformer learns all positions at once. So its own tokens come from a first pass over
the same batch, where all earlier tokens are true (Mihaylova and Martins 2019; several passes:
Duckworth et al. 2019).
"""

import math

import tensorflow as tf

from tfformer.config import PAD

from .method import note
from .own_tokens import mixed, never, replaced

REPLACED = "replaced"


class ScheduledSampling:
    """The passes of scheduled sampling before the training pass.

    Args:
        share: S in (0, 1), the share of tokens that are replaced at the end of the training.
        decay: how the share rises from 0 to S over the steps; see `share_at`.
        by: the replacement of a token: `"argmax"`, the likeliest token; `"sampled"`, a sampled
            token; `"mixed"`, the mean of the embeddings of the 5 likeliest tokens, weighted by
            their probabilities.
        passes: 2 or more. The last pass trains; each earlier pass produces the input of the next.
        steps: the number of steps of the whole training.

    Call arguments:
        model: a `Transformer`.
        inputs, labels: a padded batch.
        seed: integers [2].

    Returns:
        (inputs, labels, None). The inputs have changed "target_ids", or additional mixed ids and
        weights.
    """

    def __init__(self, share, decay, by, passes, steps):
        self.share, self.decay, self.by, self.passes, self.steps = share, decay, by, passes, steps

    def share_at(self, step):
        """The share of replaced tokens after `step` steps, a float32 tensor.

        After a part x of all N steps it is
            linear               S x
            exponential          1 - k^i, k^N = 1 - S
            inverse-sigmoid      1 - k / (k + exp(i / k)), with k so that it ends at S
        where i = x N  (Bengio et al. 2015, section 2.4).
        """
        i = tf.cast(step, tf.float32)
        if self.decay == "linear":
            return self.share * tf.minimum(i / self.steps, 1.0)
        if self.decay == "exponential":
            return 1 - (1 - self.share) ** tf.minimum(i / self.steps, 1.0)
        k = inverse_sigmoid_k(self.share, self.steps)
        return 1 - k / (k + tf.exp(tf.minimum(i, self.steps) / k))

    def __call__(self, model, inputs, labels, seed):
        ids = inputs["target_ids"]  # [B, T]
        share = self.share_at(model.optimizer.iterations)
        read, found = inputs, ids
        for n in range(self.passes - 1):
            of_pass = tf.cast(seed, tf.int64) + 2 * n
            # The input at t + 1 is the previous pass's prediction at t.
            logits = model(read, training=False)[:, :-1]
            logits = tf.cast(logits, tf.float32) + never(logits.shape[-1])
            inside = (ids[:, 1:] != PAD) & (
                tf.random.stateless_uniform(tf.shape(ids[:, 1:]), of_pass) < share
            )
            if self.by == "mixed":
                read, found = mixed(inputs, logits, inside)
            else:
                found = replaced(ids, self._own(logits, ids, of_pass + 1), inside)
                read = {**inputs, "target_ids": found}
        tokens = tf.math.count_nonzero(ids[:, 1:], dtype=tf.float32)
        note(model, REPLACED, tf.math.count_nonzero(found != ids, dtype=tf.float32), tokens)
        return read, labels, None

    def _own(self, logits, ids, seed):
        """The model's own tokens, [B, T - 1]."""
        if self.by == "argmax":
            return tf.argmax(logits, axis=-1, output_type=ids.dtype)
        rows = tf.reshape(logits, [-1, logits.shape[-1]])  # [B * (T - 1), V]
        own = tf.random.stateless_categorical(rows, 1, seed, ids.dtype)
        return tf.reshape(own, tf.shape(ids[:, 1:]))  # [B, T - 1]


def inverse_sigmoid_k(share, steps):
    """The k with 1 - k / (k + exp(N / k)) = S, by bisection: the left side falls as k grows."""
    low, high = 1e-6 * steps, 1e3 * steps + 1e3
    for _ in range(200):
        k = math.sqrt(low * high)
        # Compare log(exp(N / k) / k) with log(S / (1 - S)).
        too_much = steps / k - math.log(k) > math.log(share / (1 - share))
        low, high = (k, high) if too_much else (low, k)
    return k

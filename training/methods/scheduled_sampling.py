"""Scheduled sampling: the decoder learns to go on from words of its own, mistakes among them.

With teacher forcing a decoder reads the true words before each word, and in use its own: one wrong
step, and it stands where it has never been (exposure bias; Bengio et al. 2015). Their remedy reads,
at each position, the model's own word with a probability that rises in training. A Transformer
learns all positions at once, so the words of its own come from a first pass over the same batch, as
if all before them were true (Mihaylova and Martins 2019; several passes: Duckworth et al. 2019).
"""

import math

import tensorflow as tf

from tfformer.config import BOS, EOS, PAD
from training.methods.method import note

REPLACED = "replaced"
# Of mixed embeddings, as many as Mihaylova and Martins mix.
MIXED = 5
# No target has these in its middle.
NEVER = (PAD, BOS, EOS)


class ScheduledSampling:
    """The first pass, or the first passes, of scheduled sampling.

    Args:
        share: S in (0, 1), of the tokens that are replaced at the end of the training.
        decay: how the share rises to it over the steps, from 0: see `share_at`.
        by: what stands for a token: `"argmax"`, the likeliest one; `"sampled"`, one that is drawn;
            `"mixed"`, the mean of the embeddings of the 5 likeliest, weighted by their
            probabilities.
        passes: 2, or more: the last one learns, and each before it makes what the next one reads.
        steps: of the whole training.

    Call arguments:
        model: a `Transformer`.
        inputs, labels: a padded batch.
        seed: integers [2].

    Returns:
        (inputs, labels, None), in the inputs other "target_ids", or what is mixed besides.
    """

    def __init__(self, share, decay, by, passes, steps):
        self.share, self.decay, self.by, self.passes, self.steps = share, decay, by, passes, steps

    def share_at(self, step):
        """The share after so many steps, a float32 tensor.

        Of a part x of all N steps it is
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
            # What is read at t + 1 is what the pass before says at t.
            logits = model(read, training=False)[:, :-1]
            logits = tf.cast(logits, tf.float32) + never(logits.shape[-1])
            inside = (ids[:, 1:] != PAD) & (
                tf.random.stateless_uniform(tf.shape(ids[:, 1:]), of_pass) < share
            )
            if self.by == "mixed":
                read, found = self._mixed(inputs, logits, inside)
            else:
                found = self._own(logits, ids, inside, of_pass + 1)
                read = {**inputs, "target_ids": found}
        tokens = tf.math.count_nonzero(ids[:, 1:], dtype=tf.float32)
        note(model, REPLACED, tf.math.count_nonzero(found != ids, dtype=tf.float32), tokens)
        return read, labels, None

    def _own(self, logits, ids, inside, seed):
        """The target ids, with the model's own where `inside` [B, T - 1] says so."""
        if self.by == "argmax":
            own = tf.argmax(logits, axis=-1, output_type=ids.dtype)
        else:
            rows = tf.reshape(logits, [-1, logits.shape[-1]])  # [B * (T - 1), V]
            own = tf.random.stateless_categorical(rows, 1, seed, ids.dtype)
            own = tf.reshape(own, tf.shape(inside))  # [B, T - 1]
        return tf.concat([ids[:, :1], tf.where(inside, own, ids[:, 1:])], axis=1)

    @staticmethod
    def _mixed(inputs, logits, inside):
        """The inputs with what is mixed at each place, and the likeliest ids in place of the true
        ones: it is by them that a share of replaced tokens can be told."""
        ids = inputs["target_ids"]
        best, own = tf.math.top_k(logits, MIXED)  # [B, T - 1, 5]
        own, weights = tf.cast(own, ids.dtype), tf.nn.softmax(best)
        true = tf.repeat(ids[:, 1:, None], MIXED, axis=2)
        one = tf.one_hot(tf.zeros_like(ids), MIXED)  # all weight on the first
        own = tf.where(inside[:, :, None], own, true)
        weights = tf.where(inside[:, :, None], weights, one[:, 1:])
        first = tf.repeat(ids[:, :1, None], MIXED, axis=2)
        mixed = {
            "mixed_ids": tf.concat([first, own], axis=1),
            "mixed_weights": tf.concat([one[:, :1], weights], axis=1),
        }
        return {**inputs, **mixed}, tf.concat([ids[:, :1], own[:, :, 0]], axis=1)


def never(size):
    """What is added to logits [..., V] so that pad, bos and eos are never read: float32 [V]."""
    return tf.reduce_sum(tf.one_hot(NEVER, size, on_value=-1e9, off_value=0.0), axis=0)


def inverse_sigmoid_k(share, steps):
    """The k with 1 - k / (k + exp(N / k)) = S, by halving: the left side falls with k."""
    low, high = 1e-6 * steps, 1e3 * steps + 1e3
    for _ in range(200):
        k = math.sqrt(low * high)
        # log of exp(N / k) / k against log of S / (1 - S).
        too_much = steps / k - math.log(k) > math.log(share / (1 - share))
        low, high = (k, high) if too_much else (low, k)
    return k

"""BLEU as a reward: a trained translator learns from samples of its own translations.

BLEU has no gradient, because it counts. But its expectation over the model's translations has one.
Both methods sample translations of each source, score each against its reference, and train on each
with a weight. The weight is positive for samples that are better than expected. (REINFORCE,
Williams 1992: the gradient of an expectation is one of weighted log-likelihoods.)

This holds only for the probabilities that the samples were drawn with. Most samples are worse than
expected, so their weights sum to less than 0. On average this must cancel out, but it does not if
another model gives the likelihoods. For this reason the training pass has no dropout: with it, the
remainder would make the model worse. An eos at the length limit was not sampled, so its weight is
0.
"""

import numpy as np
import tensorflow as tf
from sacrebleu.metrics import BLEU

from tfformer.config import PAD
from tfformer.inference.fuse import fuse
from tfformer.inference.masks import behind_bos
from tfformer.inference.transformer import Inference
from tfformer.search import State, greedy_search, sample_search

from .method import note

REWARD = "reward"
MINIMUM_RISK, SELF_CRITICAL = "minimum-risk", "self-critical"
# How sharp the distribution over the candidates is (Shen et al. 2016, section 4.2).
SHARPNESS = 5e-3
OF_SENTENCES = BLEU(effective_order=True)


class Reward:
    """The first pass of a training by reward: replaces the pairs of a batch by candidates.

    `"minimum-risk"`: the candidates of a source are its samples and its reference, without
    duplicates; see `risk_weights`. `"self-critical"`: its samples; see `advantage_weights`.

    Args:
        kind: `"minimum-risk"` or `"self-critical"`.
        samples: n, the number of samples for each source.
        tokenizer: the tokenizer of the run.
        longest: maximum number of tokens of a translation.

    Call arguments:
        model: a `Transformer`.
        inputs, labels: a padded batch of B pairs.
        seed: integers [2].

    Returns:
        (inputs, labels, weights) of all candidates, B n or B (n + 1) rows. The weights are those of
        the tokens, float32.
    """

    def __init__(self, kind, samples, tokenizer, longest):
        self.kind, self.samples, self.tokenizer = kind, samples, tokenizer
        self.longest = longest

    def __call__(self, model, inputs, labels, seed):
        source_ids, labels = (tf.cast(x, tf.int32) for x in (inputs["source_ids"], labels))
        batch = tf.shape(labels)[0]
        # A bucket may be a little longer than the longest text.
        positions = [self.longest, tf.shape(source_ids)[1], tf.shape(labels)[1]]
        inference = Inference(*fuse(model, tf.reduce_max(positions)))
        memory = inference.memory(source_ids)
        # No good translation is twice as long as the reference. Rows of padding are skipped.
        sizes = tf.math.count_nonzero(labels, axis=1, dtype=tf.int32)  # [B]
        limit, blank = tf.minimum(2 * sizes + 8, self.longest), sizes == 0

        def drawn(count, search, *options):
            """`count` translations of each source: ids [B, count, L], log P [B, count]."""
            of_rows = tf.nest.map_structure(lambda x: tf.repeat(x, count, axis=0), memory)
            state = State(of_rows, inference.caches(batch * count, 1))
            limits, skip = (tf.repeat(x, count) for x in (limit, blank))
            found = search(inference.step, state, batch * count, limits, *options, skip=skip)
            ids = tf.reshape(found.token_ids, [batch, count, -1])  # [B, n, L]
            return ids, tf.reshape(found.log_probs, [batch, count])

        seed = tf.cast(tf.reduce_sum(seed) % 2147483647, tf.int32)
        ids, log_probs = drawn(self.samples, sample_search, seed)
        rewards = self.rewards(ids, labels)
        real = tf.cast(~blank, tf.float32)
        mean = tf.reduce_mean(rewards, axis=1)
        note(model, REWARD, tf.reduce_sum(mean * real), tf.reduce_sum(real))
        if self.kind == SELF_CRITICAL:
            baseline = self.rewards(drawn(1, greedy_search)[0], labels)
            weights = advantage_weights(rewards, baseline)
        else:
            ids = with_last(ids, labels)
            of_reference = inference.log_probs(behind_bos(labels), labels, memory)  # [B, T]
            of_reference = tf.reduce_sum(tf.where(labels == PAD, 0.0, of_reference), axis=1)
            log_probs = tf.concat([log_probs, of_reference[:, None]], axis=1)
            rewards = tf.concat([rewards, tf.ones([batch, 1])], axis=1)
            weights = risk_weights(log_probs, rewards, first_of_equal(ids))
        return candidates(source_ids, ids, weights * real[:, None], limit)

    def rewards(self, ids, labels):
        """BLEU of each of the translations ids [B, n, L] against its reference, float32 [B, n] in
        [0, 1]."""
        batch, count, length = tf.unstack(tf.shape(ids))
        texts = self.tokenizer.decode(tf.reshape(ids, [batch * count, length]))  # [B * n]
        references = tf.repeat(self.tokenizer.decode(labels), count)
        found = tf.numpy_function(bleus, [texts, references], tf.float32)
        return tf.reshape(found, [batch, count])  # [B, n]


def bleus(texts, references):
    """BLEU in [0, 1] of texts against their references, both byte strings. NumPy float32."""
    pairs = zip(texts, references, strict=True)
    return np.array([sentence_bleu(*(x.decode() for x in pair)) / 100 for pair in pairs], "float32")


def sentence_bleu(hypothesis, reference):
    """sacreBLEU's sentence BLEU in 0 ... 100, cased, 13a.

    N-grams are at most as long as the sentence, and counts of 0 get exponential smoothing.
    """
    return OF_SENTENCES.sentence_score(hypothesis, [reference]).score


def risk_weights(log_probs, rewards, known=None):
    """The weight of each candidate's log-likelihood in minimum risk training (Shen et al. 2016).

    The risk of a source is sum_i Q_i (1 - r_i), with Q = softmax(a log P) over its candidates
    (their section 3). Its derivative by log P_i is a Q_i (R - r_i) with R = sum_i Q_i r_i. So the
    weight of the log-likelihood of i is n Q_i (r_i - R) for n candidates. The factor a is left out,
    because the scale of a gradient does not matter to Adam.

    All are float32 [B, n]; `known`, boolean, is False where there is no candidate. The weights of a
    source sum to 0.
    """
    scores = SHARPNESS * log_probs
    if known is not None:
        scores = tf.where(known, scores, -1e9)
    q = tf.nn.softmax(scores)
    expected = tf.reduce_sum(q * rewards, axis=1, keepdims=True)
    return tf.cast(tf.shape(q)[1], tf.float32) * q * (rewards - expected)


def advantage_weights(rewards, baseline):
    """The weight of each candidate's log-likelihood in self-critical training: its reward, [B, n],
    minus that of the greedy translation, [B, 1] (Rennie et al. 2017)."""
    return rewards - baseline


def with_last(ids, labels):
    """The ids [B, n, L] followed by the labels [B, T] as last row: [B, n + 1, max(L, T)]."""
    length = tf.maximum(tf.shape(ids)[2], tf.shape(labels)[1])

    def filled(x):
        return tf.pad(x, [[0, 0], [0, 0], [0, length - tf.shape(x)[2]]])

    return tf.concat([filled(ids), filled(labels[:, None])], axis=1)


def first_of_equal(ids):
    """Whether a row of ids [B, n, L] equals no earlier row of its source: boolean [B, n]."""
    equal = tf.reduce_all(ids[:, :, None] == ids[:, None], axis=3)  # [B, n, n]
    earlier = tf.linalg.band_part(tf.cast(equal, tf.int32), -1, 0)
    return tf.reduce_sum(earlier, axis=2) == 1


def candidates(source_ids, ids, weights, limit):
    """A training batch of candidates [B, n, L] with their weights [B, n].

    A token at the limit, int32 [B], is always eos. Its weight is 0.
    """
    batch, count, length = tf.unstack(tf.shape(ids))
    labels = tf.reshape(ids, [batch * count, length])  # [B * n, L]
    inputs = {"source_ids": tf.repeat(source_ids, count, axis=0), "target_ids": behind_bos(labels)}
    free = tf.cast(tf.range(length) < limit[:, None] - 1, tf.float32)  # [B, L]
    of_tokens = tf.reshape(weights[..., None] * free[:, None], [-1, length])  # [B * n, L]
    return inputs, labels, of_tokens

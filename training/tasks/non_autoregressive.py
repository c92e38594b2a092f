"""Non-autoregressive translation: predicts all target tokens in parallel, from the same pairs."""

import math

import tensorflow as tf

from tfformer.config import BOS, CTC, EOS, FIRST_EOS, MASK_PREDICT, PAD
from tfformer.config.search_options import PARALLEL
from tfformer.ctc import CTCAccuracy, CTCLoss
from tfformer.loss import LengthCrossEntropy
from tfformer.models import NON_AUTOREGRESSIVE

from ..methods.method import Methods
from .translation import Translation


class NonAutoregressiveTranslation(Translation):
    """The task of a `NonAutoregressive` model and of its `ParallelTranslator`."""

    family = NON_AUTOREGRESSIVE
    figure_how = "all tokens at once"
    description = (
        "A non-autoregressive Transformer, which writes all tokens at once (Gu et al. 2018)"
    )
    columns = {**Translation.columns, "val_bleu": ("BLEU", "{:.2f}")}
    searched, known_methods, taught = tuple(PARALLEL), ("glancing",), False
    without_padding = None

    def configuration(self, recipe, source_size, target_size=None, shared=True):
        config = super().configuration(recipe, source_size, target_size, shared)
        if config.decoding == CTC and recipe.r_drop:
            raise ValueError(f"r_drop must be 0 with decoding='ctc', got {recipe.r_drop}")
        return config

    def example(self, source, target, padded, seed=(0, 0)):
        y = target[:, :-1]  # without eos
        source_ids, labels = padded(source), padded(y)
        if self.config.decoding == MASK_PREDICT:
            target_ids, hidden = masked(labels, seed)
            inputs = {"source_ids": source_ids, "target_ids": target_ids}
            lengths = length_ids(source_ids, labels, self.config.max_length_difference)
            return inputs, tf.concat([lengths, tf.where(hidden, labels, PAD)], axis=1)
        if self.config.decoding == FIRST_EOS:
            labels = filled_up(source_ids, labels, self.config.upsampling)
        return {"source_ids": source_ids}, labels

    def require_methods(self, recipe):
        super().require_methods(recipe)
        if not recipe.glancing:
            return
        if self.config.decoding != MASK_PREDICT:
            raise ValueError(
                f"glancing must be 0 with decoding={self.config.decoding!r}, got {recipe.glancing}"
            )
        if recipe.r_drop:
            raise ValueError(f"r_drop must be 0 with glancing, got {recipe.r_drop}")

    def methods(self, recipe, steps=1, tokenizer=None):
        if not recipe.glancing:
            return Methods()

        def first_pass(*batch):
            return *glanced(*batch, share=recipe.glancing), None

        return Methods(first_pass)

    def loss(self, recipe, corpus=None):
        if self.config.decoding == MASK_PREDICT:
            return LengthCrossEntropy(recipe.smoothing)
        return CTCLoss() if self.config.decoding == CTC else super().loss(recipe, corpus)

    def metrics(self, recipe):
        # Keras's own running loss is the only measure of the sum over all paths: another metric
        # would compute it twice.
        return [CTCAccuracy()] if self.config.decoding == CTC else super().metrics(recipe)

    def figures(self, results):
        if self.config.decoding == CTC:
            return {"loss": results["loss"], "accuracy": results["accuracy"]}
        return super().figures(results)

    def validation(self, results, score, corpus):
        if self.config.decoding == CTC:
            results = {**results, "perplexity": math.exp(min(results["loss"], 700.0))}
        return super().validation(results, score, corpus)

    def search(self, recipe):
        return {
            **recipe.search,
            "max_source_length": recipe.max_tokens,
            "max_target_length": recipe.max_tokens,
        }

    def sizes(self, config, settings):
        yield "decoding", config["model"]["decoding"]
        yield from super().sizes(config, settings)


def masked(ids, seed):
    """Replaces some of the ids [B, T] by bos; returns them and which were replaced, boolean [B, T].

    Of the N tokens of a row, a random number from 1 to N is hidden (Ghazvininejad et al. 2019,
    section 3.1). `seed` is integers [2].
    """
    real = ids != PAD
    seed = tf.cast(tf.convert_to_tensor(seed), tf.int64)
    count = tf.reduce_sum(tf.cast(real, tf.float32), axis=1)
    share = tf.random.stateless_uniform([tf.shape(ids)[0]], seed)
    hidden = drawn(real, tf.cast(1.0 + tf.floor(share * count), tf.int32), seed + 1)
    return tf.where(hidden, BOS, ids), hidden


def drawn(real, count, seed):
    """Chooses `count` positions, int32 [B], at random in each row among those that are `real`,
    boolean [B, T]; `seed` is integers [2]."""
    order = tf.where(real, tf.random.stateless_uniform(tf.shape(real), seed), 2.0)
    rank = tf.argsort(tf.argsort(order, axis=1), axis=1)
    return real & (rank < count[:, None])


def glanced(model, inputs, labels, seed, share):
    """A mask-predict batch for glancing training (Qian et al. 2021, "Glancing Transformer for
    Non-Autoregressive Neural Machine Translation", section 3.1).

    The model predicts all tokens in parallel. If d tokens are wrong, `share` d random tokens of the
    target are shown to it, and it learns the others. So a better model is shown fewer tokens. The
    result is (inputs, labels) of `example` with other tokens hidden.
    """
    lengths, tokens = labels[:, :1], labels[:, 1:]
    tokens = tf.where(tokens == PAD, inputs["target_ids"], tokens)  # [B, T]
    real = tokens != PAD
    asked = {**inputs, "target_ids": tf.where(real, BOS, PAD)}
    found = tf.argmax(model(asked, training=False)[:, 1:], axis=-1, output_type=tokens.dtype)
    wrong = tf.math.count_nonzero(real & (found != tokens), axis=1, dtype=tf.float32)
    hidden = real & ~drawn(real, tf.cast(share * wrong, tf.int32), seed)
    inputs = {**inputs, "target_ids": tf.where(hidden, BOS, tokens)}
    return inputs, tf.concat([lengths, tf.where(hidden, tokens, PAD)], axis=1)


def length_ids(source_ids, target_ids, maximum):
    """The difference between the lengths of target and source as a class id, [B, 1].

    1: `maximum` tokens fewer than the source; 2 `maximum` + 1: `maximum` more. A row without tokens
    has padding.
    """
    sizes = [
        tf.math.count_nonzero(ids, axis=1, keepdims=True, dtype=tf.int32)
        for ids in (source_ids, target_ids)
    ]
    difference = tf.clip_by_value(
        sizes[1] - (sizes[0] - 1), -maximum, maximum
    )  # eos is not counted
    return tf.where(sizes[1] > 0, difference + maximum + 1, PAD)


def filled_up(source_ids, labels, places):
    """Fills labels [B, T] without eos to [B, k S]: with eos, up to `places` for each source token.
    Longer labels are cut."""
    maximum = places * tf.math.count_nonzero(source_ids, axis=1, keepdims=True, dtype=tf.int32)
    size = places * tf.shape(source_ids)[1]
    labels = tf.pad(labels, [[0, 0], [0, tf.maximum(size - tf.shape(labels)[1], 0)]])[:, :size]
    filled = tf.where(labels == PAD, EOS, labels)
    return tf.where(tf.range(size) < maximum, filled, PAD)

"""The inference layers of the non-autoregressive model, and its forward pass."""

import tensorflow as tf

from tfformer.config import EOS, PAD
from tfformer.inference.masks import padding_bias, padding_mask
from tfformer.inference.transformer import ReadsSource, Transformer
from tfformer.models.non_autoregressive import NEVER
from tfformer.search.parallel import (
    Written,
    collapsed,
    likeliest_lengths,
    mask_predict,
    up_to_eos,
)


class NonAutoregressive(Transformer):
    """The inference layers of a Transformer, and of its length predictor or upsampling."""

    def __init__(self, model, fusing):
        super().__init__(model, fusing)
        self.length = self.upsampling = None
        if model.length is not None:
            self.length = fusing.inference_layer(model.length, "length")
        else:
            self.upsampling = fusing.inference_layer(model.upsampling, "upsampling")


class ParallelInference(ReadsSource):
    """The forward pass of a non-autoregressive model.

    Args:
        inference_layer, weights: from `fuse`; the weights may be tensors or variables.
    """

    def __init__(self, inference_layer, weights):
        self.inference_layer, self.weights = (
            inference_layer,
            tf.nest.map_structure(tf.convert_to_tensor, weights),
        )

    def start(self, source_ids):
        """source_ids [B, S] -> the memory. For mask-predict it has `lengths`, logits float32
        [B, 2 n + 1] of the target lengths; otherwise `states`, rows [B * k S, D]."""
        x, bias, shape = self.encoded(source_ids)
        memory = self.projected(x, bias, shape)
        if self.inference_layer.length is not None:
            return {
                **memory,
                "lengths": self.inference_layer.length(self.weights, x, padding_mask(source_ids)),
            }
        return {**memory, "states": self.inference_layer.upsampling(self.weights, x)}

    def logits(self, target_ids, memory):
        """target_ids [B, T], with bos at tokens to predict -> logits float32 [B, T, V]."""
        x = self.inference_layer.written(self.weights, target_ids)
        return self._written(x, padding_bias(target_ids), memory)

    def logits_of_places(self, source_ids, memory):
        """Logits of the k positions for each source token, float32 [B, k S, V]."""
        batch, length = tf.unstack(tf.shape(source_ids))
        places = self.inference_layer.upsampling.factor
        positions = self.inference_layer.target_positions.table(self.weights)[: places * length]
        x = memory["states"] + tf.tile(positions, [batch, 1])
        x = self.inference_layer.written.normed(self.weights, x)
        bias = tf.repeat(memory["bias"], places, axis=3)  # [B, 1, 1, k S]
        return self._written(x, bias, memory)

    def _written(self, x, bias, memory):
        """Run the decoder and the output layer: rows [B * T, D] -> float32 [B, T, V]."""
        batch, length = tf.shape(bias)[0], tf.shape(bias)[3]
        attend = self.inference_layer.decoder.sees(self.weights, bias)
        x, _ = self.inference_layer.decoder(self.weights, x, batch, length, attend, memory)
        logits = self.inference_layer.output(self.weights, x)
        return tf.reshape(
            logits, tf.stack([batch, length, self.inference_layer.vocabulary_size])
        )  # [B, T, V]

    # Predictions.

    def from_places(self, source_ids, up_to_first_eos=False):
        """source_ids [B, S] -> the target, by CTC or up to the first eos: a `Written`."""
        memory = self.start(source_ids)
        logits = self.logits_of_places(source_ids, memory)
        # Positions after the end of a source give no token.
        real = tf.repeat(padding_mask(source_ids), self.inference_layer.upsampling.factor, axis=1)
        size, nothing = self.inference_layer.vocabulary_size, EOS if up_to_first_eos else PAD
        silent = tf.one_hot(nothing, size, on_value=0.0, off_value=NEVER)
        logits = tf.where(real[:, :, None], logits, silent)
        return up_to_eos(logits) if up_to_first_eos else collapsed(logits)

    def by_mask_predict(self, source_ids, passes, count, longest):
        """source_ids [B, S] -> targets of `count` lengths for each: a `Written` of [B * count, T].

        Args:
            passes: see `mask_predict`.
            count: the number of lengths, an integer.
            longest: the maximum number of target tokens, scalar.
        """
        memory = self.start(source_ids)
        # eos is the source's last token.
        sizes = tf.math.count_nonzero(source_ids, axis=1, dtype=tf.int32) - 1
        lengths = likeliest_lengths(memory.pop("lengths"), sizes, longest, count)
        memory = tf.nest.map_structure(lambda part: tf.repeat(part, count, axis=0), memory)
        lengths = tf.reshape(lengths, [-1])  # [B * count]
        places = tf.reduce_max(tf.concat([lengths, [1]], axis=0))
        return mask_predict(lambda ids: self.logits(ids, memory), lengths, passes, places)


def best_of(written, scores, count):
    """The candidate with the maximum score among the `count` candidates of each source; the first
    one wins a tie.

    Args:
        written: a `Written` of [B * count, T].
        scores: float32 [B * count].

    Returns:
        A `Written` of [B, T], and the scores [B].
    """
    scores = tf.reshape(scores, [-1, count])  # [B, count]
    best = tf.argmax(scores, axis=1, output_type=tf.int32)
    chosen = tf.range(tf.shape(scores)[0]) * count + best
    found = Written(*[tf.gather(part, chosen) for part in written])
    return found, tf.gather(scores, best, batch_dims=1)

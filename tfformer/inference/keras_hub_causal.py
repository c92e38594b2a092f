"""Makes a decoder-only model of KerasHub searchable."""

import keras
import tensorflow as tf

from tfformer.config import PAD
from tfformer.inference.keras_hub_common import CacheSize, Wrapped, one_by_one, stock_slice_update
from tfformer.search.special_ids import SpecialIds
from tfformer.search.step import State, StepResult


class Llama:
    """`LlamaCausalLM` and `MistralCausalLM`.

    Attributes:
        model: the KerasHub model.
        special_ids: its `SpecialIds`.
        cache: the `CacheSize` of the decoder.
    """

    def __init__(self, model, unk=None):
        tokenizer, self.model = model.preprocessor.tokenizer, model
        pad, bos, eos = (getattr(tokenizer, f"{n}_token_id") for n in ("pad", "start", "end"))
        self.special_ids = SpecialIds(pad, unk, bos, eos)
        backbone = model.backbone
        size = getattr(backbone, "head_dim", None)
        size = size or backbone.hidden_dim // backbone.num_query_heads
        self.cache = CacheSize(backbone.num_layers, backbone.num_key_value_heads, size)

    def decode(self, ids, index, cache, mask):
        """Decode ids [B, n] at the positions from `index` on. It follows the model's
        `call_with_cache`, which does not support padding on the left.

        Args:
            cache: [B, N, 2, T, H, K].
            mask: boolean [B, T], True = token; positions after the ids are ignored.

        Returns:
            Logits [B, n, V], and the cache.
        """
        backbone, caches = self.model.backbone, []
        x = self._embedded(backbone, ids)
        for n, layer in enumerate(backbone.transformer_layers):
            x, new = self._through(layer, x, cache[:, n], index, mask)
            caches.append(new)
        x = backbone.layer_norm(x)
        return backbone.token_embedding(x, reverse=True), tf.stack(caches, axis=1)

    @staticmethod
    def _embedded(backbone, ids):
        return backbone.token_embedding(ids)

    @staticmethod
    def _through(layer, x, cache, index, mask):
        """Run a layer of the decoder with its own cache [B, 2, T, H, K]."""
        return layer(
            x,
            decoder_padding_mask=mask,
            self_attention_cache=cache,
            self_attention_cache_update_index=index,
        )


class Gemma(Llama):
    """`GemmaCausalLM`, for the first and the second Gemma."""

    @staticmethod
    def _embedded(backbone, ids):
        x = backbone.token_embedding(ids)
        return x * tf.cast(keras.ops.sqrt(backbone.hidden_dim), x.dtype)

    @staticmethod
    def _through(layer, x, cache, index, mask):
        return layer(x, padding_mask=mask, cache=cache, cache_update_index=index)


class Gemma3(Gemma):
    """`Gemma3CausalLM` without images. Its layers cache keys and values separately."""

    def __init__(self, model, unk=None):
        if model.backbone.vision_encoder is not None:
            raise ValueError("model must read texts alone, got a Gemma3CausalLM with pictures")
        super().__init__(model, unk)

    @staticmethod
    def _through(layer, x, cache, index, mask):
        cache = cache[:, 0], cache[:, 1]
        x, cache = layer(x, padding_mask=mask, cache=cache, cache_update_index=index)
        return x, tf.stack(cache, axis=1)


KINDS = {
    "GemmaCausalLM": Gemma,
    "Gemma3CausalLM": Gemma3,
    "LlamaCausalLM": Llama,
    "MistralCausalLM": Llama,
}


class KerasHubCausalInference(Wrapped):
    """The forward pass of a decoder-only model.

    If prompts differ in length, they are padded on the left, and the padding is masked. This works
    because these models use only the distance between positions.
    """

    def prefill(self, prompt, width):
        """The `State` after a prompt, int32 [B, P], padded on the left. The cache holds the entries
        of all its tokens but the last, in the first of W = `width` beams."""
        size, model = self.kind.cache, self.kind.model
        batch, length = tf.unstack(tf.shape(prompt))
        empty = size.empty(batch, length, model.compute_dtype)
        with stock_slice_update():
            ids = self.special_ids.to_model(prompt)
            _, cache = self.kind.decode(ids, 0, empty, prompt != PAD)
        # It also holds an entry of the last token, which a step overwrites.
        cache = tf.transpose(cache, [0, 3, 1, 2, 4, 5])  # [B, P, N, 2, H, K]
        cache = tf.reshape(cache, tf.stack([batch, length, size.numbers]))  # [B, P, F]
        others = (width - 1) * size.numbers
        return State({}, tf.pad(cache, [[0, 0], [0, 0], [0, others]]))

    def step(self, ids, position, visible, state):
        """The step function of `tfformer.search`. Its cache is [B, C, W * F], with F numbers for
        each position and beam."""
        size = self.kind.cache
        batch, width = tf.shape(ids)[0], ids.shape[1] or tf.shape(ids)[1]
        capacity = tf.shape(visible)[2]
        there = tf.reduce_any(visible, axis=-1)  # [B, W, C]
        there = tf.reshape(there, tf.stack([batch * width, capacity]))  # [B * W, C]
        past = size.past(state.cache, visible)  # [B * W, N, 2, C, H, K]
        ids = tf.reshape(self.special_ids.to_model(ids), [-1, 1])  # [B * W, 1]
        with stock_slice_update():
            logits, cache = self.kind.decode(ids, position, past, there)
        cache = size.written(state.cache, cache[:, :, :, position], position)
        logits = self._to_search(logits)  # [B * W, 1, V]
        logits = tf.reshape(logits, [batch, width, logits.shape[-1]])  # [B, W, V]
        return StepResult(logits, cache)

    def logits(self, ids):
        """Run the whole model without a cache: ids [N, T], padded at the end -> logits [N, T, V],
        float32, for ids of a search."""
        return self._to_search(self._whole(ids))

    def log_probs(self, ids, labels, memory):
        """log P(label) at all positions of ids [B, T], float32 [B, T]."""
        return one_by_one(lambda ids, labels: self._labels(self._whole(ids), labels), (ids, labels))

    def _whole(self, ids):
        """Logits float32 [N, T, V], for the model's ids. All padding is at the end, where a causal
        model does not attend to it."""
        inputs = {"token_ids": self.special_ids.to_model(ids), "padding_mask": tf.ones_like(ids)}
        return tf.cast(self.kind.model(inputs, training=False), tf.float32)

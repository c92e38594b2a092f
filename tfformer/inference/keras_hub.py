"""Makes a sequence-to-sequence model of KerasHub searchable."""

import tensorflow as tf

from tfformer.config import EOS, PAD
from tfformer.inference.keras_hub_common import CacheSize, Wrapped, one_by_one, stock_slice_update
from tfformer.search.special_ids import SpecialIds
from tfformer.search.step import State, StepResult


class T5:
    """`T5Seq2SeqLM`: a source ends with eos, a target begins with padding.

    Attributes:
        model: the KerasHub model.
        special_ids: its `SpecialIds`.
        source_begins: ids in front of a source.
        source_ends: whether eos ends a source.
        target_begins: ids in front of bos, with which a search begins.
        cache: the `CacheSize` of the decoder.
        longest: the maximum number of positions, or None for no limit.
    """

    source_begins, source_ends, target_begins, longest = (), True, (), None

    def __init__(self, model, unk=None):
        tokenizer, backbone = model.preprocessor.tokenizer, model.backbone
        self.model = model
        pad, eos = tokenizer.pad_token_id, tokenizer.end_token_id
        self.special_ids = SpecialIds(pad, unk, self._bos(tokenizer), eos)
        self._begin(tokenizer, backbone)

    @staticmethod
    def _bos(tokenizer):
        return tokenizer.pad_token_id

    def _begin(self, tokenizer, backbone):
        size = backbone.key_value_dim or backbone.hidden_dim // backbone.num_heads
        self.cache = CacheSize(backbone.num_layers, backbone.num_heads, size)

    def encode(self, ids, mask):
        """ids and mask [B, S] -> the encoder's output [B, S, D]."""
        return self.model.call_encoder(ids, mask)

    def decode(self, ids, index, cache, memory, mask, keys=None):
        """Decode ids [B, n] at the positions from `index` on.

        Args:
            cache: [B, N, 2, T, H, K].
            memory: the encoder's output. If `keys` are given, only its dtype is read.
            mask: boolean [B, S], of the source.
            keys: the memory's keys and values [B, N, 2, S, H, K]. Default: computed here.

        Returns:
            Logits [B, n, V], the cache, and the keys.
        """
        made = 0 if keys is None else None  # the index at which to write new keys
        if keys is None:
            keys = self.cache.empty(tf.shape(ids)[0], tf.shape(memory)[1], memory.dtype)
        logits, _, cache, keys = self.model.call_decoder_with_cache(
            memory, mask, ids, cache, index, keys, made
        )
        return logits, cache, keys


class Bart(T5):
    """`BartSeq2SeqLM`: a source begins with bos, and a target begins with eos, then bos."""

    @staticmethod
    def _bos(tokenizer):
        return tokenizer.start_token_id

    def _begin(self, tokenizer, backbone):
        self.source_begins = (tokenizer.start_token_id,)
        self.target_begins = (tokenizer.end_token_id,)
        size = backbone.hidden_dim // backbone.num_heads
        self.cache = CacheSize(backbone.num_layers, backbone.num_heads, size)
        self.longest = backbone.max_sequence_length


class T5Gemma(T5):
    """`T5GemmaSeq2SeqLM`: a source consists of its pieces only, as in its `generate`."""

    source_ends = False

    @staticmethod
    def _bos(tokenizer):
        return tokenizer.start_token_id

    def _begin(self, tokenizer, backbone):
        if self.model.preprocessor.add_start_token:
            self.source_begins = (tokenizer.start_token_id,)
        self.cache = CacheSize(
            backbone.decoder_num_layers,
            backbone.decoder_num_key_value_heads,
            backbone.decoder_head_dim,
        )

    def encode(self, ids, mask):
        return self.model.call_encoder(ids, mask)[0]

    def decode(self, ids, index, cache, memory, mask, keys=None):
        logits, _, (cache, keys) = self.model.call_decoder_with_cache(
            decoder_token_ids=ids,
            decoder_padding_mask=None,
            cache=(cache, keys),
            cache_update_index=index,
            encoder_output=memory,
            encoder_padding_mask=mask,
        )
        return logits, cache, keys


KINDS = {"T5Seq2SeqLM": T5, "T5GemmaSeq2SeqLM": T5Gemma, "BartSeq2SeqLM": Bart}


class KerasHubInference(Wrapped):
    """The forward pass of a sequence-to-sequence model, by its own encoder and cached decoder."""

    def start(self, source_ids, width):
        """The `State` of a search with W = `width` beams of source_ids [B, S], before the first
        step. Its memory holds W copies, because the model's attention requires them."""
        ids, mask = self._source(source_ids)
        batch = tf.shape(ids)[0]
        with stock_slice_update():
            memory = self.kind.encode(ids, mask)
            # Decoding the fixed first tokens also computes the keys of the memory.
            first = self.kind.target_begins or (self.special_ids.bos,)
            empty = self.kind.cache.empty(batch, len(first), memory.dtype)
            first = tf.tile([first], [batch, 1])
            _, before, keys = self.kind.decode(first, 0, empty, memory, mask)
        before = before[:, :, :, : len(self.kind.target_begins)]
        copies = [tf.repeat(one[:, None], width, axis=1) for one in (keys, mask, before)]
        names = ("keys", "mask", "before")
        memory = {"memory": memory, **dict(zip(names, copies, strict=True))}  # [B, W, ...]
        row = width * self.kind.cache.numbers
        return State(memory, tf.zeros(tf.stack([batch, 1, row]), memory["keys"].dtype))

    def step(self, ids, position, visible, state):
        """The step function of `tfformer.search`. Its cache is [B, C, W * F], with F numbers for
        each position and beam."""
        size, known = self.kind.cache, state.memory
        # 1. The past of each hypothesis.
        batch, width = tf.shape(ids)[0], ids.shape[1] or tf.shape(ids)[1]
        past = size.past(state.cache, visible)  # [B * W, N, 2, C, H, K]
        # 2. The model's own step, after the tokens in front of bos.
        ours = {name: _joined(known[name]) for name in ("keys", "mask", "before")}  # [B * W, ...]
        index = position + len(self.kind.target_begins)
        with stock_slice_update():
            logits, cache, _ = self.kind.decode(
                tf.reshape(self.special_ids.to_model(ids), [-1, 1]),  # [B * W, 1]
                index,
                tf.concat([ours["before"], past], axis=3) if self.kind.target_begins else past,
                known["memory"],
                ours["mask"],
                ours["keys"],
            )
        # 3. Its new cache entry, for all beams.
        cache = size.written(state.cache, cache[:, :, :, index], position)
        logits = self._to_search(logits)  # [B * W, 1, V]
        logits = tf.reshape(logits, [batch, width, logits.shape[-1]])  # [B, W, V]
        return StepResult(logits, cache)

    def memory(self, source_ids):
        """The memory for `log_probs`."""
        return {"source_ids": source_ids}

    def log_probs(self, target_ids, labels, memory):
        """log P(label) at all positions of target_ids [B, T], float32 [B, T]."""
        return one_by_one(
            lambda source_ids, target_ids, labels: self._labels(
                self._whole(source_ids, target_ids), labels
            ),
            (memory["source_ids"], target_ids, labels),
        )

    def logits(self, inputs):
        """Run the whole model without a cache: {"source_ids": [N, S], "target_ids": [N, T]}, with
        targets that begin with bos -> logits [N, T, V] for ids of a search."""
        return self._to_search(self._whole(inputs["source_ids"], inputs["target_ids"]))

    def _whole(self, source_ids, target_ids):
        """Logits float32 [N, T, V], for the model's ids."""
        ids, mask = self._source(source_ids)
        target = self.special_ids.to_model(target_ids)
        begins = self.kind.target_begins
        if begins:
            before = tf.tile([begins], [tf.shape(target)[0], 1])
            target = tf.concat([before, target], axis=1)
        inputs = {
            "encoder_token_ids": ids,
            "encoder_padding_mask": tf.cast(mask, tf.int32),
            "decoder_token_ids": target,
            # All padding is at the end, where a causal model does not attend to it.
            "decoder_padding_mask": tf.ones_like(target),
        }
        return tf.cast(self.kind.model(inputs, training=False), tf.float32)[:, len(begins) :]

    def _source(self, source_ids):
        """Source ids of a search [B, S], padded, each row with eos -> ids and mask of the model."""
        mask = source_ids != PAD
        if not self.kind.source_ends:
            mask &= source_ids != EOS
        ids = self.special_ids.to_model(tf.where(mask, source_ids, PAD))
        if self.kind.source_begins:
            before = tf.tile([self.kind.source_begins], [tf.shape(ids)[0], 1])
            ids = tf.concat([before, ids], axis=1)
            mask = tf.concat([tf.ones_like(before, tf.bool), mask], axis=1)
        return ids, mask


def _joined(copies):
    """[B, W, ...] -> [B * W, ...]; known sizes stay known."""
    sizes, shape = tf.shape(copies), copies.shape.as_list()
    inner = [size or sizes[axis] for axis, size in enumerate(shape)]
    return tf.reshape(copies, tf.stack([sizes[0] * sizes[1], *inner[2:]]))  # [B * W, ...]

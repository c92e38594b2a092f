"""The Transformer: from source ids and target ids to logits of the next target token."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from tfformer.annotations import Tensor
from tfformer.config import TransformerConfig
from tfformer.layers.masks import padding_mask
from tfformer.layers.norm import normed
from tfformer.layers.output import Dense, Mixture, PointerGenerator
from tfformer.layers.packing import Packed, Padded, Rows
from tfformer.models.encoder_decoder import EncoderDecoder


@keras.saving.register_keras_serializable("tfformer")
class Transformer(EncoderDecoder):
    """The encoder-decoder model of "Attention Is All You Need" (Vaswani et al. 2017, figure 1).

        memory = Encoder(Dropout(E_s[source] sqrt(D) + PE))
        logits = W_out Decoder(Dropout(E_t[target] sqrt(D) + PE), memory)

    Args:
        config: a `TransformerConfig`.

    Call arguments:
        inputs: {"source_ids": integers [B, S], "target_ids": integers [B, T]}. A source ends with
            eos (3), a target begins with bos (2); both are padded with 0 at the end. The inputs may
            also have "source_places" [N] and "target_places" [M], the positions of the tokens,
            b * S + s and b * T + t, in ascending order. Then everything except attention skips the
            padding, see `tfformer.layers.packing`. A few positions of padding may follow.

    Returns:
        logits [B, T, V]: [:, t] scores the token that follows target_ids[:, :t + 1]. With
        "target_places", [M, V], for those positions only.

    Raises:
        ValueError: `config` is of another class, or the inputs have another form; or, with learned
            positions, the inputs are longer than `max_positions`.

    A plain `compile` and `fit` trains it on elements (inputs, labels [B, T]). The labels are the
    targets without bos and with eos.

    Example:
        >>> model = Transformer(TransformerConfig.preset("test", source_vocabulary_size=17))
        >>> source_ids = np.array([[5, 4, 3], [7, 3, 0]])
        >>> target_ids = np.array([[2, 9, 8, 6, 5], [2, 4, 7, 0, 0]])
        >>> tuple(model({"source_ids": source_ids, "target_ids": target_ids}).shape)
        (2, 5, 17)
    """

    configuration = TransformerConfig
    config: TransformerConfig

    def __init__(self, config: TransformerConfig | dict[str, Any], **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        # The configuration contains all sizes, so the weights can exist from the start.
        self.build()

    @property
    def output_layer(self) -> type[Dense]:
        return PointerGenerator if self.config.copy else Dense

    @property
    def sees_eos(self) -> bool:
        return self.config.source_eos

    @property
    def output_options(self) -> dict[str, Any]:
        return {**super().output_options, "use_bias": self.config.output_bias}

    def call(self, inputs: dict[str, Tensor], training: bool | None = None) -> Tensor:
        x, memory, target, source, source_ids = self._read(inputs, training)
        return self._decoded(x, memory, training, target, source, source_ids)

    def with_attention(
        self, inputs: dict[str, Tensor], training: bool | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """The output of a call, and for each decoder layer its cross-attention weights, float32
        [B, H, T, S]. For a loss that depends on attention."""
        x, memory, target, source, source_ids = self._read(inputs, training)
        x, attention = self.decoder.with_attention(x, memory, training, target, source)
        return self._logits_of(x, attention, target, source_ids), attention

    def _read(self, inputs, training):
        """Prepare the inputs of a call for the decoder: the embedded target, the memory, the rows
        of target and source, and the source ids."""
        if not isinstance(inputs, dict) or not {"source_ids", "target_ids"} <= set(inputs):
            names = sorted(inputs) if isinstance(inputs, dict) else type(inputs).__name__
            raise ValueError(
                f'inputs must be {{"source_ids": [B, S], "target_ids": [B, T]}}, got {names}'
            )
        source_ids = self.seen(ops.convert_to_tensor(inputs["source_ids"]))
        target_ids = ops.convert_to_tensor(inputs["target_ids"])
        if (len(source_ids.shape), len(target_ids.shape)) != (2, 2):
            raise ValueError(
                "source_ids must be [B, S] and target_ids [B, T], got shapes "
                f"{tuple(source_ids.shape)} and {tuple(target_ids.shape)}"
            )
        if ("source_places" in inputs) != ("target_places" in inputs):
            raise ValueError(f"source_places and target_places come together, got {sorted(inputs)}")
        source, target = Padded(padding_mask(source_ids)), Padded(padding_mask(target_ids))
        if "source_places" in inputs:
            source = Packed(inputs["source_places"], source.mask)
            target = Packed(inputs["target_places"], target.mask)
        memory = self.encode(source_ids, training, source)
        if "mixed_ids" in inputs:
            x = self._mixed(inputs["mixed_ids"], inputs["mixed_weights"], target)
            x = self._numbered(x, target, training)
        else:
            x = self._target(target_ids, target, training)
        return x, memory, target, source, source_ids

    def _mixed(self, ids, weights, rows):
        """The target where each token is a weighted mean of k embeddings: both are [B, T, k]."""
        mean = 0.0
        for n in range(ids.shape[-1]):
            x = self.target_embedding(rows.pack(ids[..., n]))
            weight = ops.cast(rows.pack(weights[..., n]), x.dtype)
            mean += ops.expand_dims(weight, -1) * x  # [B, T, D], or [N, D]
        return mean

    def decode(
        self,
        target_ids: Tensor,
        memory: Tensor,
        memory_mask: Tensor | None = None,
        training: bool | None = None,
        rows: Rows | None = None,
        memory_rows: Rows | None = None,
        source_ids: Tensor | None = None,
    ) -> Tensor:
        """target_ids [B, T] and memory [B, S, D] -> logits [B, T, V], all positions at once.

        If the rows of both are `Packed`, memory is [N, D] and the logits are [M, V]. A model that
        copies needs source_ids [B, S] too.

        Raises:
            ValueError: the model copies and source_ids is missing.
        """
        rows = rows or Padded(padding_mask(target_ids))
        memory_rows = memory_rows or Padded(memory_mask)
        x = self._target(target_ids, rows, training)
        return self._decoded(x, memory, training, rows, memory_rows, source_ids)

    def _decoded(self, x, memory, training, rows, memory_rows, source_ids):
        """The embedded target and the memory -> logits."""
        if self.output_projection.reads_source:
            x, attention = self.decoder.with_attention(x, memory, training, rows, memory_rows)
            return self._logits_of(x, attention, rows, source_ids)
        x = self.decoder(x, memory, training=training, rows=rows, memory_rows=memory_rows)
        return self.logits(x)

    def _logits_of(self, x, attention, rows, source_ids):
        """The logits from the decoder's states and the cross-attention weights of its layers."""
        if not self.output_projection.reads_source:
            return self.logits(x)
        attention = self._last(attention, rows)
        return self.logits(x, attention, rows.of_sentences(self._given(source_ids)))

    @staticmethod
    def _last(attention, rows):
        """The last layer's attention weights, averaged over the heads: [B, T, S], or [N, S] for
        `Packed` rows."""
        return rows.merge_heads(ops.mean(attention[-1], axis=1, keepdims=True))

    def decode_step(
        self,
        ids: Tensor,
        position: int | Tensor,
        projected_memory: Sequence[tuple[Tensor, Tensor]],
        memory_mask: Tensor | None,
        cache: Sequence[tuple[Tensor, Tensor]],
        source_ids: Tensor | None = None,
    ) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """Decode one position of W targets for each sentence, with a cache of earlier positions.

        Args:
            ids: [B, W], the tokens at `position`.
            position: an integer or scalar tensor, 0 for bos.
            projected_memory: `model.decoder.project_memory(memory)`.
            memory_mask: boolean [B, S], True = token, or None.
            cache: `model.decoder.empty_cache(B, W)`, or the cache that the previous step returned.
            source_ids: integers [B, S], required for a model that copies.

        Returns:
            logits [B, W, V] of the next position, and the cache with this position added.

        Raises:
            ValueError: the model copies and source_ids is missing; or `position` is beyond
                `max_positions`.
        """
        x = self.target_embedding(ids)
        # Positions must be on axis 1, where the beams are: [B, W, D] -> [B * W, 1, D].
        shape = ops.shape(x)
        x = ops.reshape(x, (-1, 1, self.config.d_model))  # [B * W, 1, D]
        x = ops.reshape(self.target_positions(x, start=position), shape)  # [B, W, D]
        x = normed(self.target_embedding_norm, x)
        known = projected_memory, memory_mask, cache
        x, cache, attention = self.decoder.step_with_attention(x, *known)
        if not self.output_projection.reads_source:
            return self.logits(x), cache
        return self.logits(x, attention, self._given(source_ids)[:, None]), cache

    def logits(
        self, x: Tensor, attention: Tensor | None = None, source_ids: Tensor | None = None
    ) -> Tensor:
        """The output layer: [..., D] -> [..., V].

        A layer that copies also needs the attention weights of each row, float32 [..., S], and the
        source ids, integers that broadcast to [..., S].
        """
        embedding = self.target_embedding if self.output_projection.tied else None
        if not self.output_projection.reads_source:
            return self.output_projection(x, embedding=embedding)
        return self.output_projection(
            x, embedding=embedding, attention=attention, source_ids=source_ids
        )

    @staticmethod
    def _given(source_ids):
        """The ids as a tensor; a ValueError if they are missing."""
        if source_ids is None:
            raise ValueError("source_ids must be given to a model with copy=True, got None")
        return ops.convert_to_tensor(source_ids)

    def cross_attention_weights(self, inputs: dict[str, Tensor]) -> Tensor:
        """The cross-attention weights of the decoder, for plots: float32 [N, B, H, T, S].

        Row t belongs to the prediction of the token after target_ids[:, t].
        """
        return ops.stack(self.with_attention(inputs)[1])

    def mixture(self, inputs: dict[str, Tensor]) -> Mixture:
        """The parts that a model with `copy` mixes at each position, for plots: a `Mixture` [B, T].

        Position t belongs to the prediction of the token after target_ids[:, t]. Its attention is
        the last layer of `cross_attention_weights`, averaged over the heads. The logarithm of its
        probabilities equals the logits of a call.

        Raises:
            ValueError: the model does not copy.

        Example:
            >>> config = TransformerConfig.preset("test", 17, copy=True)
            >>> ids = {"source_ids": [[5, 9, 6, 3]], "target_ids": [[2, 9, 5]]}
            >>> mixture = Transformer(config).mixture(ids)
            >>> tuple(mixture.gate.shape), tuple(mixture.attention.shape)
            ((1, 3), (1, 3, 4))
        """
        if not self.output_projection.reads_source:
            raise ValueError("mixture is of a model with copy=True, got copy=False")
        x, memory, target, source, source_ids = self._read(inputs, training=False)
        x, attention = self.decoder.with_attention(x, memory, False, target, source)
        return self.output_projection.mixture(
            x,
            self.target_embedding if self.output_projection.tied else None,
            self._last(attention, target),
            target.of_sentences(source_ids),
        )

"""The non-autoregressive model: computes all tokens of a target at once."""

from typing import Any

import keras
from keras import ops

from tfformer.annotations import Shape, Tensor
from tfformer.config import MASK_PREDICT, NonAutoregressiveConfig
from tfformer.layers.length import LengthPredictor
from tfformer.layers.masks import padding_mask
from tfformer.layers.packing import Padded
from tfformer.layers.upsampling import Upsampling
from tfformer.models.encoder_decoder import EncoderDecoder

# The logit of an impossible id. Its probability is 0, also in half precision.
NEVER = -1e4


@keras.saving.register_keras_serializable("tfformer")
class NonAutoregressive(EncoderDecoder):
    """The Transformer whose decoder attends to all positions of the target and computes them at
    once. One step replaces T sequential steps (Gu et al. 2018).

        memory = Encoder(Dropout(E_s[source] sqrt(D) + PE))
        logits = W_out Decoder(Dropout(x + PE), memory), not causal

    With `decoding="mask-predict"`, x = E_t[target] sqrt(D), where bos (2) marks the tokens to
    predict; the model also predicts the number of tokens (Ghazvininejad et al. 2019). With `"ctc"`
    and `"eos"`, x is the memory, with each state split into k positions (Libovický and Helcl 2018).

    Args:
        config: a `NonAutoregressiveConfig`.

    Call arguments:
        inputs: {"source_ids": integers [B, S]}, each row ending with eos (3), then padded with 0.
            `"mask-predict"` needs "target_ids" too: integers [B, T], tokens without eos, some of
            them bos, padded with 0.

    Returns:
        Logits. With `"ctc"` and `"eos"`: [B, k S, V], of the token at each position. Positions
        after the end of a source are padding with probability 1 (id 0, the blank of CTC). With
        `"mask-predict"`: [B, 1 + T, V]; [:, 1 + t] is for the token at position t, and [:, 0] for
        the length of the target. There, id n + 1 + d means d tokens more than the source, |d| <= n;
        neither length counts eos.

    Raises:
        ValueError: `config` is of another class, or the inputs have another form; or, with learned
            positions, the inputs are longer than `max_positions`.

    Example:
        >>> config = NonAutoregressiveConfig.preset("test", 17, max_length_difference=5)
        >>> model = NonAutoregressive(config)
        >>> source_ids = np.array([[5, 4, 3], [7, 3, 0]])
        >>> target_ids = np.array([[2, 9, 2, 6, 5], [2, 2, 7, 0, 0]])
        >>> tuple(model({"source_ids": source_ids, "target_ids": target_ids}).shape)
        (2, 6, 17)
    """

    configuration = NonAutoregressiveConfig
    config: NonAutoregressiveConfig

    def __init__(self, config: NonAutoregressiveConfig | dict[str, Any], **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        config, dtype = self.config, self.dtype_policy
        self.length: Any = None
        self.upsampling: Any = None
        if config.decoding == MASK_PREDICT:
            difference = config.max_length_difference
            self.length = LengthPredictor(difference, dtype=dtype, name="length")
        else:
            sizes = config.d_model, config.upsampling
            self.upsampling = Upsampling(*sizes, dtype=dtype, name="upsampling")
        self.build()

    @property
    def places(self) -> int:
        """Target positions for each source token; 1 for mask-predict, which predicts the length."""
        return 1 if self.upsampling is None else self.upsampling.factor

    def parts(self) -> dict[str, list[keras.layers.Layer]]:
        parts, own = super().parts(), self.upsampling or self.length
        return {**parts, "output": [own, *parts["output"]]}

    def build(self, input_shape: Shape | None = None) -> None:
        (self.upsampling or self.length).build((None, None, self.config.d_model))
        super().build()

    def input_specs(self) -> dict[str, keras.InputSpec]:
        specs = super().input_specs()
        return specs if self.length else {"source_ids": specs["source_ids"]}

    def call(self, inputs: dict[str, Tensor], training: bool | None = None) -> Tensor:
        wanted = set(self.input_specs())
        if not isinstance(inputs, dict) or set(inputs) != wanted:
            names = sorted(inputs) if isinstance(inputs, dict) else type(inputs).__name__
            raise ValueError(f"inputs must be a dict of {sorted(wanted)}, got {names}")
        ids = {name: ops.convert_to_tensor(value) for name, value in inputs.items()}
        for name, value in ids.items():
            if len(value.shape) != 2:
                raise ValueError(f"{name} must be [B, T], got shape {tuple(value.shape)}")
        source_ids = ids["source_ids"]
        memory, source = self.encode(source_ids, training), Padded(padding_mask(source_ids))
        if self.upsampling:
            return self._all_places(memory, source, training)
        logits = self.decode(ids["target_ids"], memory, source.mask, training)
        return ops.concatenate([self.length_logits(memory, source.mask), logits], axis=1)

    def decode(
        self,
        target_ids: Tensor,
        memory: Tensor,
        memory_mask: Tensor | None = None,
        training: bool | None = None,
    ) -> Tensor:
        """Mask-predict: target_ids [B, T], with bos at the tokens to predict, and memory [B, S, D]
        -> logits [B, T, V]."""
        rows = Padded(padding_mask(target_ids))
        x = self._target(target_ids, rows, training)
        return self._written(x, memory, rows, Padded(memory_mask), training)

    def length_logits(self, memory: Tensor, memory_mask: Tensor | None = None) -> Tensor:
        """Mask-predict: logits of the target's length, [B, 1, V]; see `NonAutoregressive`."""
        logits = self.length(memory, mask=memory_mask)
        others = self.config.target_vocabulary_size - 1 - self.config.num_lengths
        logits = ops.pad(logits, ((0, 0), (1, others)), constant_values=NEVER)
        return logits[:, None]

    def _all_places(self, memory, source, training):
        """Ctc and eos: logits [B, k S, V] from a memory [B, S, D]."""
        k, size = self.config.upsampling, self.config.target_vocabulary_size
        mask = ops.repeat(source.mask, k, axis=1)  # [B, k S]
        rows = Padded(mask)
        x = self._numbered(self.upsampling(memory), rows, training)
        logits = self._written(x, memory, rows, source, training)
        padding = ops.where(ops.equal(ops.arange(size), 0), 0.0, NEVER)  # [V]
        return ops.where(mask[:, :, None], logits, ops.cast(padding, logits.dtype))

    def _written(self, x, memory, rows, memory_rows, training):
        """Run the decoder and the output layer: x [B, T, D] -> [B, T, V]."""
        lie = {"rows": rows, "memory_rows": memory_rows}
        x = self.decoder(x, memory, training=training, causal=False, **lie)
        tied = self.output_projection.tied
        return self.output_projection(x, embedding=self.target_embedding if tied else None)

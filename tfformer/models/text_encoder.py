"""The base class of the encoder-only models: from a text to a state of each token."""

from keras import ops

from tfformer.annotations import Tensor
from tfformer.config import BOS, TextEncoderOptions
from tfformer.models.one_stack import OneStack


class TextEncoder(OneStack):
    """An encoder-only model (Devlin et al. 2019, "BERT").

    Its input has the form of an encoder-decoder's source: ids, then eos, then padding. A subclass
    makes its head in `make_head` and sets `configuration`, the class of its `config`.
    """

    config: TextEncoderOptions

    def read(self, ids: Tensor) -> Tensor:
        """The ids that the encoder reads: [B, S] -> [B, S], or [B, 1 + S] with a bos in front."""
        if not self.config.added:
            return ids
        return ops.concatenate([ops.full_like(ids[:, :1], BOS), ids], axis=1)

    def token_states(self, ids: Tensor, training: bool | None = None) -> Tensor:
        """ids [B, S] -> a state of each of them, [B, S, D], without those of added tokens."""
        return self.states(self.read(ids), training)[:, self.config.added :]

    @staticmethod
    def _ids_of(inputs):
        """The ids [B, S] from inputs that are ids or {"ids": ids}."""
        if isinstance(inputs, dict):
            if set(inputs) != {"ids"}:
                raise ValueError(f'inputs must be ids [B, S] or {{"ids"}}, got {sorted(inputs)}')
            inputs = inputs["ids"]
        ids = ops.convert_to_tensor(inputs)
        if len(ids.shape) != 2:
            raise ValueError(f"ids must be [B, S], got shape {tuple(ids.shape)}")
        return ids

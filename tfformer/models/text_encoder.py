"""The base class of the encoder-only models: from a text to a state of each token."""

from keras import ops

from tfformer.models.one_stack import OneStack


class TextEncoder(OneStack):
    """An encoder-only model (Devlin et al. 2019, "BERT").

    Its input has the form of an encoder-decoder's source: ids, then eos, then padding. A subclass
    makes its head in `make_head` and sets `configuration`, the class of its `config`.
    """

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

"""The base of the encoder-only models: a text in, a state of each token."""

from keras import ops

from tfformer.models.one_stack import OneStack


class TextEncoder(OneStack):
    """What the encoder-only models have in common (Devlin et al. 2019, "BERT").

    A text is read as the source of an encoder-decoder is: its ids, then eos; padding behind. A
    subclass makes its head in `make_head`, and has `configuration`, the class of its `config`.
    """

    @staticmethod
    def _ids_of(inputs):
        """The ids [B, S] of inputs that are these, or {"ids": these}."""
        if isinstance(inputs, dict):
            if set(inputs) != {"ids"}:
                raise ValueError(f'inputs must be ids [B, S] or {{"ids"}}, got {sorted(inputs)}')
            inputs = inputs["ids"]
        ids = ops.convert_to_tensor(inputs)
        if len(ids.shape) != 2:
            raise ValueError(f"ids must be [B, S], got shape {tuple(ids.shape)}")
        return ids

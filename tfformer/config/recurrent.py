"""What the recurrent encoder-decoder is made of."""

import dataclasses

from tfformer.config.encoder_decoder import TwoSidedOptions
from tfformer.config.options import StackOptions, option

# The options of a stack that say something to a recurrent one.
KNOWN = ("d_model", "num_heads", "d_ff", "dropout")


@dataclasses.dataclass(frozen=True)
class RecurrentConfig(TwoSidedOptions):
    """The configuration of a `Recurrent` model; frozen and validated.

    Args:
        attention: whether the decoder attends to the source at each step; otherwise all that it
            knows of the source is one vector. Default True.
        d_model: D, the width of embeddings and states; even, for the encoder reads in both
            directions, with half of it each.
        **options: num_encoder_layers, num_decoder_layers, dropout, tie_embeddings: see
            `TwoSidedOptions` and `StackOptions`. A preset's num_heads and d_ff say nothing here;
            no other option of a stack may be given.

    Raises:
        ValueError: a value breaks its rule; it names the argument, the rule and the value received.
        TypeError: there is no such argument.

    Example:
        >>> config = RecurrentConfig.preset("tiny", 8000, num_encoder_layers=1, attention=False)
        >>> config.d_model, config.num_encoder_layers, config.longest
        (128, 1, inf)
    """

    _: dataclasses.KW_ONLY
    attention: bool = option(True, "of a recurrent decoder, to the source at each step")

    # As of every model of an encoder and a decoder: no words are copied, and eos is seen.
    copy, source_eos = False, True
    HAS_HEADS = False

    def __post_init__(self):
        super().__post_init__()
        if self.d_model % 2:
            raise ValueError(f"d_model must be even for two directions, got {self.d_model}")
        for field in dataclasses.fields(StackOptions):
            value = getattr(self, field.name)
            if field.name not in KNOWN and value != field.default:
                raise ValueError(
                    f"{field.name} must be {field.default!r} for a recurrent model, got {value!r}"
                )
        for name, only in (
            ("positions", "sinusoidal"),
            ("max_positions", 512),
            ("share_halves", False),
        ):
            if getattr(self, name) != only:
                raise ValueError(
                    f"{name} says nothing to a recurrent model, got {getattr(self, name)!r}"
                )

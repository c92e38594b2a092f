"""The configuration of the recurrent encoder-decoder."""

import dataclasses

from tfformer.config.encoder_decoder import TwoSidedOptions
from tfformer.config.options import StackOptions, option

# The options of a stack that a recurrent model accepts.
KNOWN = ("d_model", "num_heads", "d_ff", "dropout")


@dataclasses.dataclass(frozen=True)
class RecurrentConfig(TwoSidedOptions):
    """The configuration of a `Recurrent` model; frozen and validated.

    Args:
        attention: whether the decoder attends to the source at each step. If False, it gets one
            vector for the whole source. Default True.
        d_model: D, the width of embeddings and states. It is even, because the encoder uses half of
            it for each direction.
        **options: num_encoder_layers, num_decoder_layers, dropout, tie_embeddings: see
            `TwoSidedOptions` and `StackOptions`. num_heads and d_ff are accepted, because presets
            have them, and have no effect. All other options of a stack must keep their defaults.

    Raises:
        ValueError: a value breaks its rule; the message names argument, rule and value.
        TypeError: an argument is unknown.

    Example:
        >>> config = RecurrentConfig.preset("tiny", 8000, num_encoder_layers=1, attention=False)
        >>> config.d_model, config.num_encoder_layers, config.longest
        (128, 1, inf)
    """

    _: dataclasses.KW_ONLY
    attention: bool = option(True, "a recurrent decoder attends to the source at each step")

    # As in every encoder-decoder by default: no copying, and the encoder reads eos.
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
            ("embedding_norm", False),
            ("share_halves", False),
        ):
            if getattr(self, name) != only:
                raise ValueError(
                    f"{name} must be {only!r} for a recurrent model, got {getattr(self, name)!r}"
                )

"""The configurations of the models with an encoder and a decoder."""

import dataclasses
from typing import Any, Self

from tfformer.config.options import NumberedOptions, option, preset

TIED = ("none", "target", "embeddings", "all")
MASK_PREDICT, CTC, FIRST_EOS = "mask-predict", "ctc", "eos"
DECODINGS = (MASK_PREDICT, CTC, FIRST_EOS)


@dataclasses.dataclass(frozen=True)
class TwoSidedOptions(NumberedOptions):
    """The options of a model with an encoder and a decoder.

    Args:
        source_vocabulary_size: the number of source ids, including the four special ones.
        target_vocabulary_size: the number of target ids. Default: as the source.
        num_encoder_layers, num_decoder_layers: N. They may differ. Default 6.
        tie_embeddings: which matrices are shared. `"none"`; `"target"`: the target embedding and
            the output projection; `"embeddings"`: the source and the target embedding; `"all"`: all
            three (Press and Wolf 2017; section 3.4). The last two need one vocabulary for source
            and target.
        share_halves: whether the decoder uses the self-attention and feed-forward layers of the
            encoder, layer by layer (Xia et al. 2019, "Tied Transformers"). Default False.
        **options: see `NumberedOptions`.

    Raises:
        ValueError: a value breaks its rule; the message names argument, rule and value.
    """

    source_vocabulary_size: int = option(dataclasses.MISSING, "ids of the source", minimum=5)
    target_vocabulary_size: int = option(None, "ids of the target", minimum=5)
    _: dataclasses.KW_ONLY
    num_encoder_layers: int = option(6, "layers of the encoder", minimum=1)
    num_decoder_layers: int = option(6, "layers of the decoder", minimum=1)
    tie_embeddings: str = option("none", "embedding matrices that are shared", choices=TIED)
    share_halves: bool = option(False, "encoder and decoder share the layers that both have")

    def __post_init__(self):
        if self.target_vocabulary_size is None:
            object.__setattr__(self, "target_vocabulary_size", self.source_vocabulary_size)
        super().__post_init__()
        if self.one_vocabulary and self.source_vocabulary_size != self.target_vocabulary_size:
            raise ValueError(
                f"{self.one_vocabulary} needs one vocabulary for source and target, got "
                f"source_vocabulary_size={self.source_vocabulary_size} and "
                f"target_vocabulary_size={self.target_vocabulary_size}"
            )

    @property
    def one_vocabulary(self) -> str | None:
        """The option that requires one vocabulary, written as in code; None if there is none."""
        if self.shares_embeddings:
            return f"tie_embeddings={self.tie_embeddings!r}"
        return None

    @property
    def shares_embeddings(self) -> bool:
        """Whether source and target have one embedding."""
        return self.tie_embeddings in ("embeddings", "all")

    @property
    def ties_output(self) -> bool:
        """Whether the output projection is the target embedding."""
        return self.tie_embeddings in ("target", "all")

    @classmethod
    def preset(cls, name: str, source_vocabulary_size: int, **changes: Any) -> Self:
        """The configuration of a published size by name; `changes` replace fields of the preset.

        | name | source |
        |---|---|
        | `base`, `big` | Vaswani et al. 2017, Table 3 |
        | `tiny` | Wu et al. 2021, "Good for Misconceived Reasons": text-only Multi30K |
        | `test` | none: small enough for a test, all sizes different primes if possible |

        Raises:
            ValueError: the preset or a field is unknown, or a value breaks its rule.
        """
        sizes = preset(name)
        return cls.from_dict({"source_vocabulary_size": source_vocabulary_size, **sizes, **changes})


@dataclasses.dataclass(frozen=True)
class TransformerConfig(TwoSidedOptions):
    """The configuration of a `Transformer`; frozen and validated.

    The defaults are the base model of "Attention Is All You Need" (Vaswani et al. 2017, Table 3).

    Args:
        source_vocabulary_size, target_vocabulary_size, num_encoder_layers, num_decoder_layers,
            tie_embeddings, share_halves: see `TwoSidedOptions`.
        copy: whether the model can copy words of the source, by a pointer-generator (See et al.
            2017). It needs one vocabulary for source and target. Default False.
        output_bias: whether the output layer has a bias, logits = x W + b. Default False, as in the
            paper.
        source_eos: whether the encoder reads the eos at the end of a source. Default True. If
            False, it is masked like padding, for imported models that were trained without eos.
        **options: positions, max_positions: see `NumberedOptions`; d_model, num_heads, d_ff,
            dropout, activation, norm: see `StackOptions`. Dropout also applies to the sums of
            embeddings and positions.

    Raises:
        ValueError: a value breaks its rule; the message names argument, rule and value.
        TypeError: an argument is unknown.

    Example:
        >>> config = TransformerConfig(37000, num_encoder_layers=3, norm="pre")
        >>> config.d_model, config.num_decoder_layers, config.target_vocabulary_size
        (512, 6, 37000)
        >>> TransformerConfig(37000, num_heads=7)
        Traceback (most recent call last):
        ...
        ValueError: d_model must be a multiple of num_heads, got d_model=512 and num_heads=7
    """

    _: dataclasses.KW_ONLY
    copy: bool = option(False, "the model can copy words of the source (See et al. 2017)")
    output_bias: bool = option(False, "the output layer has a bias")
    source_eos: bool = option(True, "the encoder sees the eos at the end of a source")

    @property
    def one_vocabulary(self) -> str | None:
        return super().one_vocabulary or ("copy=True" if self.copy else None)


@dataclasses.dataclass(frozen=True)
class NonAutoregressiveConfig(TwoSidedOptions):
    """The configuration of a `NonAutoregressive` model; frozen and validated.

    Args:
        decoding: how all tokens of a target are predicted at once.
            `"mask-predict"` (default): first their number, then the tokens, in one pass or in
            several passes that predict the least certain ones again (Ghazvininejad et al. 2019).
            `"ctc"`: `upsampling` positions for each token of the source, some of which stay blank
            (Libovický and Helcl 2018).
            `"eos"`: the same positions, and the target ends at the first eos.
        upsampling: k, for `"ctc"` and `"eos"`. Default 3.
        max_length_difference: n. With `"mask-predict"`, a target has between n tokens less and n
            tokens more than its source. Default 32.
        **options: see `TwoSidedOptions`. `"ctc"` and `"eos"` read no target, so the target
            embedding serves only as the output matrix: `tie_embeddings` must be `"target"` or
            `"all"`.

    Raises:
        ValueError: a value breaks its rule; the message names argument, rule and value.
        TypeError: an argument is unknown.

    Example:
        >>> config = NonAutoregressiveConfig.preset("tiny", 8000, decoding="ctc")
        >>> config.decoding, config.upsampling, config.num_decoder_layers
        ('ctc', 3, 4)
    """

    _: dataclasses.KW_ONLY
    decoding: str = option(
        DECODINGS[0], "how all tokens of a target are predicted at once", choices=DECODINGS
    )
    upsampling: int = option(3, "for ctc and eos: positions for each source token", minimum=1)
    max_length_difference: int = option(
        32, "for mask-predict: maximum difference of target and source length in tokens", minimum=1
    )

    def __post_init__(self):
        super().__post_init__()
        if self.decoding != MASK_PREDICT:
            if not self.ties_output:
                raise ValueError(
                    f"tie_embeddings must be 'target' or 'all' with decoding={self.decoding!r}, "
                    f"which reads no target, got {self.tie_embeddings!r}"
                )
        elif self.num_lengths >= self.target_vocabulary_size:
            raise ValueError(
                "2 max_length_difference + 1 must be less than target_vocabulary_size="
                f"{self.target_vocabulary_size}, got max_length_difference="
                f"{self.max_length_difference}"
            )

    @property
    def num_lengths(self) -> int:
        """The number of possible target lengths for a source: 2 n + 1."""
        return 2 * self.max_length_difference + 1

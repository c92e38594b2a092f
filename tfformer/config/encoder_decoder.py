"""What the models of an encoder and a decoder are made of."""

import dataclasses

from tfformer.config.options import NumberedOptions, option, preset

TIED = ("none", "target", "all")
MASK_PREDICT, CTC, FIRST_EOS = "mask-predict", "ctc", "eos"
DECODINGS = (MASK_PREDICT, CTC, FIRST_EOS)


@dataclasses.dataclass(frozen=True)
class TwoSidedOptions(NumberedOptions):
    """The sizes of a model of an encoder and a decoder.

    Args:
        source_vocabulary_size: number of source ids, the four special ones included.
        target_vocabulary_size: number of target ids. Defaults to the source's.
        num_encoder_layers, num_decoder_layers: N. They may differ. Default 6.
        tie_embeddings: which matrices are one: `"none"`; `"target"`, the target embedding and the
            output projection; `"all"`, the source embedding too (Press and Wolf 2017; section
            3.4), for which both vocabularies must be one.
        share_halves: whether the decoder's self-attention and feed-forward layers are the
            encoder's, layer by layer (Xia et al. 2019, "Tied Transformers"). Default False.
        **options: see `NumberedOptions`.

    Raises:
        ValueError: naming the argument, the rule and the value received.
    """

    source_vocabulary_size: int = option(dataclasses.MISSING, "ids of the source", least=5)
    target_vocabulary_size: int = option(None, "ids of the target", least=5)
    _: dataclasses.KW_ONLY
    num_encoder_layers: int = option(6, "layers of the encoder", least=1)
    num_decoder_layers: int = option(6, "layers of the decoder", least=1)
    tie_embeddings: str = option("none", "matrices that are one", choices=TIED)
    share_halves: bool = option(False, "encoder and decoder share what both have")

    def __post_init__(self):
        if self.target_vocabulary_size is None:
            object.__setattr__(self, "target_vocabulary_size", self.source_vocabulary_size)
        super().__post_init__()
        if self.one_vocabulary and self.source_vocabulary_size != self.target_vocabulary_size:
            raise ValueError(
                f"{self.one_vocabulary} needs one vocabulary for both sides, got "
                f"source_vocabulary_size={self.source_vocabulary_size} and "
                f"target_vocabulary_size={self.target_vocabulary_size}"
            )

    @property
    def one_vocabulary(self) -> str | None:
        """The option that needs one vocabulary for both sides, as it would be written; or None."""
        if self.tie_embeddings == "all":
            return "tie_embeddings='all'"
        return None

    @classmethod
    def preset(cls, name: str, source_vocabulary_size: int, **changes):
        """A published size by its name; `changes` are fields that replace the preset's.

        | name | source |
        |---|---|
        | `base`, `big` | Vaswani et al. 2017, Table 3 |
        | `tiny` | Wu et al. 2021, "Good for Misconceived Reasons": text-only Multi30K |
        | `test` | none: small enough for a test, each size another prime where it can be |

        Raises:
            ValueError: there is no such preset or field, or a value breaks its rule.
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
        copy: whether words of the source can be copied, by a pointer-generator (See et al. 2017),
            for which both vocabularies must be one. Default False.
        output_bias: whether the output layer has a bias, logits = x W + b. Default False: the
            paper's has none.
        source_eos: whether the encoder sees the eos that ends a source. Default True. Otherwise it
            is hidden as padding is: for models from elsewhere, which have learned from texts alone.
        **options: positions, max_positions: see `NumberedOptions`; d_model, num_heads, d_ff,
            dropout, activation, norm: see `StackOptions`. Dropout is on the sums of embeddings and
            positions as well.

    Raises:
        ValueError: a value breaks its rule; it names the argument, the rule and the value received.
        TypeError: there is no such argument.

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
    copy: bool = option(False, "words of the source can be copied (See et al. 2017)")
    output_bias: bool = option(False, "the output layer has a bias")
    source_eos: bool = option(True, "the encoder sees the eos that ends a source")

    @property
    def one_vocabulary(self) -> str | None:
        return super().one_vocabulary or ("copy=True" if self.copy else None)


@dataclasses.dataclass(frozen=True)
class NonAutoregressiveConfig(TwoSidedOptions):
    """The configuration of a `NonAutoregressive` model; frozen and validated.

    Args:
        decoding: how all tokens of a target are written at once.
            `"mask-predict"` (default): their number is predicted, then each of them, in one pass or
            in several that write the least sure again (Ghazvininejad et al. 2019).
            `"ctc"`: `upsampling` places for each token of the source, of which some stay blank
            (Libovický and Helcl 2018).
            `"eos"`: as many places, and the target ends at the first eos.
        upsampling: k, of `"ctc"` and `"eos"`. Default 3.
        max_length_difference: n; `"mask-predict"` knows targets that have from n tokens less to n
            more than their source. Default 32.
        **options: see `TwoSidedOptions`. `"ctc"` and `"eos"` read no target, so that its embedding
            is the output layer's matrix or nothing: `tie_embeddings` is not `"none"`.

    Raises:
        ValueError: a value breaks its rule; it names the argument, the rule and the value received.
        TypeError: there is no such argument.

    Example:
        >>> config = NonAutoregressiveConfig.preset("tiny", 8000, decoding="ctc")
        >>> config.decoding, config.upsampling, config.num_decoder_layers
        ('ctc', 3, 4)
    """

    _: dataclasses.KW_ONLY
    decoding: str = option(DECODINGS[0], "how a whole target is written at once", choices=DECODINGS)
    upsampling: int = option(3, "places for each source token, of ctc and eos", least=1)
    max_length_difference: int = option(
        32, "tokens that a target has more or less than its source, of mask-predict", least=1
    )

    def __post_init__(self):
        super().__post_init__()
        if self.decoding != MASK_PREDICT:
            if self.tie_embeddings == "none":
                raise ValueError(
                    f"tie_embeddings must be 'target' or 'all' with decoding={self.decoding!r}, "
                    "which reads no target, got 'none'"
                )
        elif self.num_lengths >= self.target_vocabulary_size:
            raise ValueError(
                "2 max_length_difference + 1 must be less than target_vocabulary_size="
                f"{self.target_vocabulary_size}, got max_length_difference="
                f"{self.max_length_difference}"
            )

    @property
    def num_lengths(self) -> int:
        """The lengths that a target may have beside a source: 2 n + 1."""
        return 2 * self.max_length_difference + 1

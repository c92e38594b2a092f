"""What a model is made of: the options of its stacks, and every number of the paper's Table 3."""

import dataclasses
import math
import numbers

# The special ids of every vocabulary.
PAD, UNK, BOS, EOS = 0, 1, 2, 3

TIED = ("none", "target", "all")
TIED_OR_NOT = ("none", "all")
NORMS = ("post", "pre")
POSITIONS = ("sinusoidal", "learned")
ACTIVATIONS = ("relu", "gelu", "silu", "swiglu")
POOLINGS = ("mean", "bos")
COMBINED = ("mean", "lstm", "transformer")


def option(default, help, *, least=None, below=None, choices=None):
    """A field of a configuration, with its rule and what the command line says of it.

    Args:
        default: its value, of its type.
        help: what it is, in a few words.
        least: the least number that it may be. Default: any.
        below: a number that it must be below. Default: none.
        choices: the words that it may be. Default: any.
    """
    rules = {"help": help, "least": least, "below": below, "choices": choices}
    return dataclasses.field(default=default, metadata=rules)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StackOptions:
    """The options of a stack of layers; every configuration of a model has them.

    The defaults are those of the base model (Vaswani et al. 2017, Table 3). A new option is a line
    here, and one in the layer that it is for.

    Args:
        d_model: D, the width of every layer's input and output. Default 512.
        num_heads: h; `d_model` is a multiple of it. Default 8.
        d_ff: the width between the two matrices of the feed-forward layer. Default 2048.
        dropout: P_drop, on the output of each sub-layer before it is added (section 5.4).
            Default 0.1.
        activation: of the feed-forward layer: `"relu"` (the paper's), `"gelu"`, `"silu"` or
            `"swiglu"` (Shazeer 2020).
        norm: `"post"`, LayerNorm(x + Sublayer(x)), the paper's, or `"pre"`,
            x + Sublayer(LayerNorm(x)) with a last LayerNorm on each stack (Xiong et al. 2020).
        last_norm: whether a stack ends with that last LayerNorm. Default None: with pre-norm it
            does, with post-norm it does not; `torch.nn.Transformer` has one with post-norm too.
        epsilon: what LayerNorm adds to the variance. Default 1e-6.
        attention_dropout: of the attention weights. Default 0.
        activation_dropout: inside the feed-forward layer, after the activation. Default 0.

    Raises:
        ValueError: naming the argument, the rule and the value received.
    """

    d_model: int = option(512, "width of every layer's input and output", least=2)
    num_heads: int = option(8, "heads of an attention; d_model is a multiple of it", least=1)
    d_ff: int = option(2048, "width inside the feed-forward layer", least=1)
    dropout: float = option(0.1, "P_drop, of each sub-layer's output", least=0, below=1)
    activation: str = option("relu", "of the feed-forward layer", choices=ACTIVATIONS)
    norm: str = option("post", "LayerNorm after the sum, or before the layer", choices=NORMS)
    last_norm: bool | None = option(None, "LayerNorm after the last layer; default as norm has it")
    epsilon: float = option(1e-6, "what LayerNorm adds to the variance", least=0, below=1)
    attention_dropout: float = option(0.0, "P_drop of the attention weights", least=0, below=1)
    activation_dropout: float = option(0.0, "P_drop after the activation", least=0, below=1)

    def __post_init__(self):
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, _checked(field, getattr(self, field.name)))
        if self.d_model % self.num_heads:
            raise ValueError(
                f"d_model must be a multiple of num_heads, got d_model={self.d_model} and "
                f"num_heads={self.num_heads}"
            )

    def to_dict(self) -> dict:
        """All fields by name; `from_dict` is its inverse."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, fields: dict):
        """The configuration of `fields`.

        Raises:
            ValueError: a name is no field, or a value breaks its rule.
        """
        known = {field.name for field in dataclasses.fields(cls)}
        unknown = sorted(set(fields) - known)
        if unknown:
            raise ValueError(f"fields must be among {sorted(known)}, got also {unknown}")
        return cls(**fields)

    @property
    def ends_with_norm(self) -> bool:
        """Whether a stack has a LayerNorm after its last layer."""
        return self.norm == "pre" if self.last_norm is None else self.last_norm

    def stack(self) -> dict:
        """The options of a stack alone, by name."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(StackOptions)}


def whole(name, value, least=1):
    """The value as Python's integer; a ValueError unless it is one of at least `least`, and no
    bool."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
    return int(value)


def number(name, value, least, below):
    """The value as Python's number; a ValueError unless it is in [least, below)."""
    if not isinstance(value, numbers.Real) or not least <= value < below:
        raise ValueError(f"{name} must be a number in [{least}, {below}), got {value!r}")
    return value if isinstance(value, int) else float(value)


def _checked(field, value):
    """The value, a Python number also where it is one of NumPy; a ValueError if it is not what its
    field says."""
    rules = field.metadata
    if field.type is int:
        return whole(field.name, value, rules["least"])
    if field.type is float:
        return number(field.name, value, rules["least"], rules["below"])
    if field.type in (bool, bool | None):
        if value is None and field.default is None:
            return None
        if type(value).__name__ not in ("bool", "bool_"):  # Python's, NumPy's
            raise ValueError(f"{field.name} must be True or False, got {value!r}")
        return bool(value)
    if rules["choices"] and value not in rules["choices"]:
        raise ValueError(f"{field.name} must be one of {rules['choices']}, got {value!r}")
    return value


@dataclasses.dataclass(frozen=True, kw_only=True)
class NumberedOptions(StackOptions):
    """Those, and how a model numbers the places of its tokens.

    Args:
        positions: `"sinusoidal"` (section 3.5, any length; `d_model` is even) or `"learned"`.
        max_positions: the longest sequence that learned positions can number. Default 512;
            sinusoidal positions ignore it.
        **stack: see `StackOptions`.

    Raises:
        ValueError: naming the argument, the rule and the value received.
    """

    positions: str = option("sinusoidal", "how places are numbered", choices=POSITIONS)
    max_positions: int = option(512, "places that learned positions can number", least=1)

    def __post_init__(self):
        super().__post_init__()
        if self.positions == "sinusoidal" and self.d_model % 2:
            raise ValueError(
                f"d_model must be even for sinusoidal positions, got d_model={self.d_model}"
            )

    @property
    def longest(self) -> float:
        """The most tokens of a sequence that the model can number; infinity, where it has no
        limit."""
        return self.max_positions if self.positions == "learned" else math.inf


@dataclasses.dataclass(frozen=True)
class TransformerConfig(NumberedOptions):
    """The configuration of a `Transformer`; frozen and validated.

    The defaults are the base model of "Attention Is All You Need" (Vaswani et al. 2017, Table 3).

    Args:
        source_vocabulary_size: number of source ids, the four special ones included.
        target_vocabulary_size: number of target ids. Defaults to the source's.
        num_encoder_layers, num_decoder_layers: N. They may differ. Default 6.
        tie_embeddings: which matrices are one: `"none"`; `"target"`, the target embedding and the
            output projection; `"all"`, the source embedding too (Press and Wolf 2017; section
            3.4), for which both vocabularies must be one.
        copy: whether words of the source can be copied, by a pointer-generator (See et al. 2017),
            for which both vocabularies must be one. Default False.
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

    source_vocabulary_size: int = option(dataclasses.MISSING, "ids of the source", least=5)
    target_vocabulary_size: int = option(None, "ids of the target", least=5)
    _: dataclasses.KW_ONLY
    num_encoder_layers: int = option(6, "layers of the encoder", least=1)
    num_decoder_layers: int = option(6, "layers of the decoder", least=1)
    tie_embeddings: str = option("none", "matrices that are one", choices=TIED)
    copy: bool = option(False, "words of the source can be copied (See et al. 2017)")

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
        return "copy=True" if self.copy else None

    @classmethod
    def preset(cls, name: str, source_vocabulary_size: int, **changes) -> "TransformerConfig":
        """A published size by its name; `changes` are fields that replace the preset's.

        | name | source |
        |---|---|
        | `base`, `big` | Vaswani et al. 2017, Table 3 |
        | `tiny` | Wu et al. 2021, "Good for Misconceived Reasons": text-only Multi30K |
        | `test` | none: small enough for a test, each size another prime where it can be |

        Raises:
            ValueError: there is no such preset or field, or a value breaks its rule.
        """
        if name not in tuple(PRESETS):
            raise ValueError(f"name must be one of {tuple(PRESETS)}, got {name!r}")
        return cls.from_dict(
            {"source_vocabulary_size": source_vocabulary_size, **PRESETS[name], **changes}
        )


@dataclasses.dataclass(frozen=True)
class OneStackOptions(NumberedOptions):
    """Those of a model of one stack.

    Args:
        vocabulary_size: number of ids, the four special ones included.
        num_layers: N. Default 6.
        **options: see `NumberedOptions` and `StackOptions`.
    """

    vocabulary_size: int = option(dataclasses.MISSING, "ids", least=5)
    _: dataclasses.KW_ONLY
    num_layers: int = option(6, "layers of a model of one stack", least=1)

    _LAYERS = "num_encoder_layers"  # of a preset

    @classmethod
    def preset(cls, name: str, vocabulary_size: int, **changes):
        """The sizes of a `TransformerConfig` by its name; N is that of its stack of the same kind,
        encoder or decoder. `changes` are fields that replace them.

        Raises:
            ValueError: there is no such preset or field, or a value breaks its rule.
        """
        if name not in tuple(PRESETS):
            raise ValueError(f"name must be one of {tuple(PRESETS)}, got {name!r}")
        known = {field.name for field in dataclasses.fields(StackOptions)}
        sizes = {key: value for key, value in PRESETS[name].items() if key in known}
        sizes["num_layers"] = PRESETS[name].get(cls._LAYERS, cls.num_layers)
        return cls.from_dict({"vocabulary_size": vocabulary_size, **sizes, **changes})


@dataclasses.dataclass(frozen=True)
class LanguageModelConfig(OneStackOptions):
    """The configuration of a `LanguageModel`; frozen and validated.

    Args:
        vocabulary_size, num_layers, **options: see `OneStackOptions`.
        tie_embeddings: `"all"`, the embedding is the output layer's matrix too (default), or
            `"none"`.

    Raises:
        ValueError: a value breaks its rule; it names the argument, the rule and the value received.

    Example:
        >>> config = LanguageModelConfig.preset("tiny", 8000, norm="pre")
        >>> config.d_model, config.num_layers, config.tie_embeddings
        (128, 4, 'all')
    """

    _: dataclasses.KW_ONLY
    tie_embeddings: str = option("all", "matrices that are one", choices=TIED_OR_NOT)

    _LAYERS = "num_decoder_layers"


@dataclasses.dataclass(frozen=True)
class MaskedLanguageModelConfig(LanguageModelConfig):
    """The configuration of a `MaskedLanguageModel`: that of a language model."""

    _LAYERS = "num_encoder_layers"  # of a preset


@dataclasses.dataclass(frozen=True)
class SpanConfig(OneStackOptions):
    """The configuration of a `SpanReader`; its arguments are those of one stack."""


@dataclasses.dataclass(frozen=True)
class TaggerConfig(OneStackOptions):
    """The configuration of a `Tagger`: that of one stack, and `num_labels`, C."""

    num_labels: int = option(dataclasses.MISSING, "labels", least=1)


@dataclasses.dataclass(frozen=True)
class ClassifierConfig(TaggerConfig):
    """The configuration of a `Classifier`; frozen and validated.

    Args:
        vocabulary_size, num_layers, num_labels, **options: see `TaggerConfig`.
        pooling: what a text's vector is: `"mean"` (default), the mean over its tokens, or `"bos"`,
            that of a bos which is set before it.
        multi_label: whether a text may have several labels, or none. Default False.
        piece_length, piece_overlap: a longer text is read in pieces of so many tokens, of which
            neighbours share so many. Default 0: at once.
        pieces: how the vectors of the pieces become that of the text: `"mean"` (default), `"lstm"`
            or `"transformer"`, a layer over the pieces.

    Raises:
        ValueError: a value breaks its rule; it names the argument, the rule and the value received.

    Example:
        >>> config = ClassifierConfig.preset("tiny", 8000, num_labels=3, pooling="bos")
        >>> config.d_model, config.num_layers, config.num_labels
        (128, 4, 3)
    """

    _: dataclasses.KW_ONLY
    pooling: str = option("mean", "the vector of a text", choices=POOLINGS)
    multi_label: bool = option(False, "a text has any number of labels, split at commas")
    piece_length: int = option(0, "tokens of a piece of a long text; 0 reads it at once", least=0)
    piece_overlap: int = option(0, "tokens that two neighbouring pieces share", least=0)
    pieces: str = option("mean", "what makes one vector of those of the pieces", choices=COMBINED)

    def __post_init__(self):
        super().__post_init__()
        if self.piece_overlap >= max(self.piece_length, 1):
            raise ValueError(
                f"piece_overlap must be less than piece_length = {self.piece_length}, got "
                f"{self.piece_overlap}"
            )
        most = super().longest - (self.pooling == "bos")  # which takes a place
        if self.piece_length > most:
            raise ValueError(
                f"piece_length must be at most {most}, the places that the model can number, got "
                f"{self.piece_length}"
            )

    @property
    def longest(self) -> float:
        return math.inf if self.piece_length else super().longest - (self.pooling == "bos")


PRESETS = {
    "base": dict(tie_embeddings="all"),
    "big": dict(d_model=1024, d_ff=4096, num_heads=16, dropout=0.3, tie_embeddings="all"),
    "tiny": dict(
        num_encoder_layers=4,
        num_decoder_layers=4,
        d_model=128,
        d_ff=256,
        num_heads=4,
        dropout=0.3,
        tie_embeddings="all",
    ),  # fmt: skip
    "test": dict(
        num_encoder_layers=2, num_decoder_layers=3, d_model=14, d_ff=29, num_heads=2, dropout=0.1
    ),
}

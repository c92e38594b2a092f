"""The configurations of the models with one stack, an encoder or a decoder."""

import dataclasses
import math
from typing import Any, Self

from tfformer.config.options import NumberedOptions, StackOptions, option, preset

TIED_OR_NOT = ("none", "all")
POOLINGS = ("mean", "bos")
POOLERS = ("none", "tanh", "relu")
COMBINED = ("mean", "lstm", "transformer")


@dataclasses.dataclass(frozen=True)
class OneStackOptions(NumberedOptions):
    """The options of a model with one stack.

    Args:
        vocabulary_size: the number of ids, including the four special ones.
        num_layers: N. Default 6.
        **options: see `NumberedOptions` and `StackOptions`.
    """

    vocabulary_size: int = option(dataclasses.MISSING, "ids", minimum=5)
    _: dataclasses.KW_ONLY
    num_layers: int = option(6, "layers of a model with one stack", minimum=1)

    # Which half of an encoder-decoder its stack is.
    HALF = "encoder"

    def __post_init__(self):
        super().__post_init__()
        if self.location_width:
            raise ValueError(
                "location_width must be 0 for a model with one stack, which attends to no source, "
                f"got {self.location_width}"
            )

    @classmethod
    def preset(cls, name: str, vocabulary_size: int, **changes: Any) -> Self:
        """The sizes of a `TransformerConfig` preset by name. N is the number of layers of the same
        half, encoder or decoder. `changes` replace fields of the preset.

        Raises:
            ValueError: the preset or a field is unknown, or a value breaks its rule.
        """
        sizes = preset(name)
        known = {field.name for field in dataclasses.fields(StackOptions)}
        own = {key: value for key, value in sizes.items() if key in known}
        own["num_layers"] = sizes.get(f"num_{cls.HALF}_layers", cls.num_layers)
        return cls.from_dict({"vocabulary_size": vocabulary_size, **own, **changes})


@dataclasses.dataclass(frozen=True)
class LanguageModelConfig(OneStackOptions):
    """The configuration of a `LanguageModel`; frozen and validated.

    Args:
        vocabulary_size, num_layers, **options: see `OneStackOptions`.
        tie_embeddings: `"all"` (default), the output layer shares the embedding's matrix; or
            `"none"`.
        output_bias: whether the output layer has a bias, logits = x W + b. Default False.

    Raises:
        ValueError: a value breaks its rule; the message names argument, rule and value.

    Example:
        >>> config = LanguageModelConfig.preset("tiny", 8000, norm="pre")
        >>> config.d_model, config.num_layers, config.tie_embeddings
        (128, 4, 'all')
    """

    _: dataclasses.KW_ONLY
    tie_embeddings: str = option("all", "embedding matrices that are shared", choices=TIED_OR_NOT)
    output_bias: bool = option(False, "the output layer has a bias")

    HALF = "decoder"


@dataclasses.dataclass(frozen=True)
class TextEncoderOptions(OneStackOptions):
    """The options of an encoder-only model.

    Args:
        add_bos: whether the model reads a bos before each text, as BERT reads [CLS]. It inserts
            this bos itself and drops its output. Default False.
        **options: see `OneStackOptions`.
    """

    _: dataclasses.KW_ONLY
    add_bos: bool = option(False, "the model reads a bos before each text")

    @property
    def added(self) -> int:
        """The number of tokens that the model adds to its input."""
        return int(self.add_bos)

    @property
    def longest(self) -> float:
        return super().longest - self.added


@dataclasses.dataclass(frozen=True)
class EmbedderConfig(TextEncoderOptions):
    """The configuration of an `Embedder`; frozen and validated.

    Args:
        pooling: how the vector of a text is made, see `ClassifierConfig`.
        normalize: whether the vector is divided by its length. Default False.
        **options: see `TextEncoderOptions`.

    Raises:
        ValueError: a value breaks its rule; the message names argument, rule and value.

    Example:
        >>> config = EmbedderConfig.preset("tiny", 8000, normalize=True)
        >>> config.d_model, config.pooling
        (128, 'mean')
    """

    _: dataclasses.KW_ONLY
    pooling: str = option("mean", "how the vector of a text is made", choices=POOLINGS)
    normalize: bool = option(False, "the vector of a text is divided by its length")

    IS_TRAINED = False

    @property
    def added(self) -> int:
        return int(self.add_bos or self.pooling == "bos")


@dataclasses.dataclass(frozen=True)
class MaskedLanguageModelConfig(TextEncoderOptions, LanguageModelConfig):
    """The configuration of a `MaskedLanguageModel`.

    Args:
        transform: whether a dense layer, the activation and a LayerNorm come before the output
            layer, as in BERT. Default False.
        output_bias: always True, as in BERT.
        **options: see `LanguageModelConfig` and `TextEncoderOptions`.

    Raises:
        ValueError: a value breaks its rule; the message names argument, rule and value.

    Example:
        >>> config = MaskedLanguageModelConfig.preset("tiny", 8000, norm="pre")
        >>> config.d_model, config.num_layers, config.tie_embeddings
        (128, 4, 'all')
    """

    _: dataclasses.KW_ONLY
    transform: bool = option(False, "a dense layer and LayerNorm come before the output layer")
    output_bias: bool = option(True, "the output layer has a bias")

    HALF = "encoder"

    def __post_init__(self):
        super().__post_init__()
        if not self.output_bias:
            raise ValueError("output_bias must be True for a masked language model, got False")
        if self.transform and self.activation in ("swiglu", "geglu"):
            raise ValueError(
                f"activation must not be gated with transform=True, got {self.activation!r}"
            )


@dataclasses.dataclass(frozen=True)
class SpanConfig(TextEncoderOptions):
    """The configuration of a `SpanReader`.

    Args:
        token_types: whether question and text have an embedding each, which is added to the
            positions, as in BERT. Default False.
        separators: the number of eos between question and text, 1 (default) or 2, as in RoBERTa.
            The model inserts the second one itself.
        **options: see `TextEncoderOptions`.

    Raises:
        ValueError: a value breaks its rule; the message names argument, rule and value.

    Example:
        >>> config = SpanConfig.preset("tiny", 8000, num_layers=2)
        >>> config.d_model, config.num_layers
        (128, 2)
    """

    _: dataclasses.KW_ONLY
    token_types: bool = option(False, "question and text have an embedding each")
    separators: int = option(1, "number of eos between question and text, 1 or 2", minimum=1)

    def __post_init__(self):
        super().__post_init__()
        if self.separators > 2:
            raise ValueError(f"separators must be 1 or 2, got {self.separators}")

    @property
    def added(self) -> int:
        return super().added + self.separators - 1


@dataclasses.dataclass(frozen=True)
class TaggerConfig(TextEncoderOptions):
    """The configuration of a `Tagger`. Its arguments are those of `TextEncoderOptions`, and
    `num_labels`, C.

    Raises:
        ValueError: a value breaks its rule; the message names argument, rule and value.

    Example:
        >>> config = TaggerConfig.preset("tiny", 8000, num_labels=5)
        >>> config.d_model, config.num_labels
        (128, 5)
    """

    num_labels: int = option(dataclasses.MISSING, "labels", minimum=1)


@dataclasses.dataclass(frozen=True)
class ClassifierConfig(TaggerConfig):
    """The configuration of a `Classifier`; frozen and validated.

    Args:
        vocabulary_size, num_layers, num_labels, **options: see `TaggerConfig`.
        pooling: how the vector of a text is made. `"mean"` (default): the mean over its tokens;
            `"bos"`: the vector of a bos inserted before the text.
        pooler: the layer between that vector and the output layer: `"none"` (default); or a dense
            layer of the same width with `"tanh"`, as in BERT, or with `"relu"`.
        multi_label: whether a text may have several labels or none. Default False.
        piece_length, piece_overlap: a longer text is split into pieces of `piece_length` tokens;
            neighbouring pieces share `piece_overlap` tokens. Default 0: no pieces.
        pieces: how the vectors of the pieces become one vector of the text: `"mean"` (default),
            `"lstm"` or `"transformer"`, a layer over the pieces.

    Raises:
        ValueError: a value breaks its rule; the message names argument, rule and value.

    Example:
        >>> config = ClassifierConfig.preset("tiny", 8000, num_labels=3, pooling="bos")
        >>> config.d_model, config.num_layers, config.num_labels
        (128, 4, 3)
    """

    _: dataclasses.KW_ONLY
    pooling: str = option("mean", "how the vector of a text is made", choices=POOLINGS)
    pooler: str = option("none", "dense layer before the output layer", choices=POOLERS)
    multi_label: bool = option(
        False, "a text may have several labels, with commas between, or none"
    )
    piece_length: int = option(0, "tokens of a piece of a long text; 0: no pieces", minimum=0)
    piece_overlap: int = option(0, "tokens that neighbouring pieces share", minimum=0)
    pieces: str = option(
        "mean", "how the vectors of the pieces become one vector", choices=COMBINED
    )

    def __post_init__(self):
        super().__post_init__()
        if self.piece_overlap >= max(self.piece_length, 1):
            raise ValueError(
                f"piece_overlap must be less than piece_length = {self.piece_length}, got "
                f"{self.piece_overlap}"
            )
        maximum = super().longest
        if self.piece_length > maximum:
            raise ValueError(
                f"piece_length must be at most {maximum}, the positions of the model, got "
                f"{self.piece_length}"
            )

    @property
    def longest(self) -> float:
        return math.inf if self.piece_length else super().longest

    @property
    def added(self) -> int:
        return int(self.add_bos or self.pooling == "bos")

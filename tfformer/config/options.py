"""The options of all stacks, their rules, and the sizes of the paper's Table 3."""

import dataclasses
import math
import numbers
from collections.abc import Mapping
from typing import Any, Self

# The special ids of every vocabulary.
PAD, UNK, BOS, EOS = 0, 1, 2, 3

NORMS = ("post", "pre")
NORMALIZATIONS = ("layer", "simple", "ada", "rms", "batch")
POSITIONS = ("sinusoidal", "learned", "none")
ATTENTION_POSITIONS = ("none", "rotary", "alibi", "relative")
ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu", "swiglu", "geglu")


def option(default, help, *, minimum=None, below=None, choices=None):
    """A field of a configuration, with its rule and its help text on the command line.

    Args:
        default: its default value, of its type.
        help: a short description.
        minimum: the minimum of a number. Default: none.
        below: an upper limit, which a number must not reach. Default: none.
        choices: the allowed words. Default: any.
    """
    rules = {"help": help, "minimum": minimum, "below": below, "choices": choices}
    return dataclasses.field(default=default, metadata=rules)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StackOptions:
    """The options of a stack of layers. The configuration of every model has them.

    The defaults are the base model (Vaswani et al. 2017, Table 3). To add an option, add a line
    here and use it in its layer.

    Args:
        d_model: D, the width of every layer's input and output. Default 512.
        num_heads: h. Default 8.
        d_ff: the width between the two matrices of the feed-forward layer. Default 2048.
        dropout: P_drop, on the output of each sub-layer before the residual sum (section 5.4).
            Default 0.1.
        activation: of the feed-forward layer: `"relu"` (the paper's), `"gelu"`, `"silu"`; the
            gated `"swiglu"` and `"geglu"` (Shazeer 2020); or `"gelu_tanh"`, the approximation of
            GELU that GPT-2 uses. `"geglu"` uses that approximation too, as T5 does.
        norm: `"post"`, LayerNorm(x + Sublayer(x)), as in the paper (default); or `"pre"`,
            x + Sublayer(LayerNorm(x)), with a final LayerNorm on each stack (Xiong et al. 2020).
        last_norm: whether a stack ends with that final LayerNorm. Default None: yes with pre-norm,
            no with post-norm. (`torch.nn.Transformer` has it with post-norm too.)
        epsilon: the number that a norm adds to the variance or the mean square. Default 1e-6.
        attention_dropout: P_drop of the attention weights. Default 0.
        activation_dropout: P_drop inside the feed-forward layer, after the activation. Default 0.
        normalization: `"layer"`, LayerNorm, as in the paper (default); `"simple"`, LayerNorm
            without gain and bias, and `"ada"` (Xu et al. 2019); `"rms"` (Zhang and Sennrich 2019);
            or `"batch"`, over the tokens of a batch. See `tfformer.layers.norm`.
        residual: whether the input of a sub-layer is added to its output. Default True.
        attention_positions: positions inside self-attention, in addition to `positions` or instead
            of it: `"none"` (default), `"rotary"` (Su et al. 2021), `"alibi"` (Press et al. 2022) or
            `"relative"`, the biases of T5 (Raffel et al. 2020); see
            `tfformer.layers.relative_positions`.
        num_key_value_heads: the number of key and value heads; `num_heads` is a multiple of it.
            Each serves an equal number of query heads (Ainslie et al. 2023); 1 is multi-query
            attention (Shazeer 2019). Default None: `num_heads`.
        unique_layers: M, the number of layers in a stack with their own weights. Layer n uses the
            weights of layer n modulo M ("cycle" of Takase and Kiyono 2021); 1 shares all. Default
            None: each layer has its own.
        location_width: for a decoder, the width of the convolution over the cross-attention weights
            of the layer below, an odd number of source positions; see `tfformer.layers.location`.
            Default 0: none.
        head_size: K, the width of a head. Default None: `d_model` / `num_heads`, as in the paper.
            In some models, such as T5, it is another number.
        rotary_base, rotary_factor, rotary_length: of rotary positions, see
            `tfformer.layers.relative_positions.Rotary`. Default 10000, as in the paper; 1, none;
            and 8192, as in Llama 3.1. Other positions ignore them.
        query_key_norm: whether self-attention normalises the queries and keys of each head by an
            RMSNorm, as in Qwen3; see `tfformer.layers.attention.MultiHeadAttention`. Default False.
        use_bias: whether the projections of attention and the matrices of the feed-forward layer
            have biases. Default True, as in the paper; Llama and T5 have none. The output layer
            has its own option, `output_bias`; a LayerNorm keeps its shift.

    Raises:
        ValueError: a value breaks its rule; the message names argument, rule and value.
    """

    d_model: int = option(512, "width of every layer's input and output", minimum=2)
    num_heads: int = option(
        8, "attention heads; d_model is a multiple of it, unless head_size is given", minimum=1
    )
    d_ff: int = option(2048, "width inside the feed-forward layer", minimum=1)
    dropout: float = option(0.1, "P_drop of each sub-layer's output", minimum=0, below=1)
    activation: str = option("relu", "activation of the feed-forward layer", choices=ACTIVATIONS)
    norm: str = option(
        "post", "LayerNorm after the residual sum, or before the layer", choices=NORMS
    )
    last_norm: bool | None = option(
        None, "LayerNorm after the last layer; by default only with pre-norm"
    )
    epsilon: float = option(1e-6, "number that LayerNorm adds to the variance", minimum=0, below=1)
    attention_dropout: float = option(0.0, "P_drop of the attention weights", minimum=0, below=1)
    activation_dropout: float = option(0.0, "P_drop after the activation", minimum=0, below=1)
    normalization: str = option("layer", "kind of normalization", choices=NORMALIZATIONS)
    residual: bool = option(True, "the output of a sub-layer is added to its input")
    attention_positions: str = option(
        "none", "positions inside self-attention", choices=ATTENTION_POSITIONS
    )
    num_key_value_heads: int | None = option(
        None, "heads of keys and values; 1 is multi-query attention; default num_heads", minimum=1
    )
    unique_layers: int | None = option(
        None, "layers of a stack with their own weights, which are repeated; default all", minimum=1
    )
    location_width: int = option(
        0,
        "source positions around which cross-attention sees the weights of the layer below, odd; "
        "0: none",
        minimum=0,
    )
    head_size: int | None = option(
        None, "width of an attention head; default d_model / num_heads", minimum=1
    )
    rotary_base: float = option(
        10000.0, "base of the wavelengths of rotary positions", minimum=1, below=math.inf
    )
    rotary_factor: float = option(
        1.0, "factor of the long wavelengths of rotary positions; 1: none", minimum=1,
        below=math.inf,
    )  # fmt: skip
    rotary_length: int = option(
        8192, "with rotary_factor: the text length before the wavelengths grew", minimum=1
    )
    query_key_norm: bool = option(False, "RMSNorm of the queries and keys of each head")
    use_bias: bool = option(True, "attention and the feed-forward layer have biases")

    # Whether the model has attention heads, and whether it can be trained here.
    HAS_HEADS, IS_TRAINED = True, True

    def __post_init__(self):
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, _checked(field, getattr(self, field.name)))
        if self.HAS_HEADS and self.head_size is None and self.d_model % self.num_heads:
            raise ValueError(
                f"d_model must be a multiple of num_heads, got d_model={self.d_model} and "
                f"num_heads={self.num_heads}"
            )
        if self.attention_positions == "rotary" and self.heads_width // self.num_heads % 2:
            raise ValueError(
                "d_model must be an even multiple of num_heads for rotary positions, got "
                f"d_model={self.d_model} and num_heads={self.num_heads}"
                if self.head_size is None
                else f"head_size must be even for rotary positions, got {self.head_size}"
            )
        if self.normalization == "batch" and self.unique_layers is not None:
            raise ValueError(
                "unique_layers must be None with normalization='batch', whose averages belong to "
                f"one layer, got {self.unique_layers}"
            )
        if self.location_width and self.location_width % 2 == 0:
            raise ValueError(f"location_width must be 0 or odd, got {self.location_width}")
        if self.num_heads % self.key_value_heads:
            raise ValueError(
                "num_heads must be a multiple of num_key_value_heads, got "
                f"num_heads={self.num_heads} and num_key_value_heads={self.num_key_value_heads}"
            )

    def to_dict(self) -> dict[str, Any]:
        """All fields by name; `from_dict` is its inverse."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Make the configuration from `fields`.

        Raises:
            ValueError: a name is unknown, or a value breaks its rule.
        """
        known = {field.name for field in dataclasses.fields(cls)}
        unknown = sorted(set(fields) - known)
        if unknown:
            raise ValueError(f"fields must be among {sorted(known)}, got also {unknown}")
        return cls(**fields)

    @property
    def key_value_heads(self) -> int:
        """The number of key and value heads."""
        return self.num_key_value_heads or self.num_heads

    @property
    def heads_width(self) -> int:
        """h K, the total width of all query heads: `d_model`, unless `head_size` is given."""
        return self.d_model if self.head_size is None else self.num_heads * self.head_size

    @property
    def key_value_width(self) -> int:
        """The total width of all key heads, which is also that of all value heads."""
        return self.heads_width // self.num_heads * self.key_value_heads

    @property
    def rotary(self) -> dict[str, float]:
        """The arguments of `tfformer.layers.relative_positions.Rotary` by name."""
        names = ("base", "factor", "length")
        return {name: getattr(self, f"rotary_{name}") for name in names}

    @property
    def ends_with_norm(self) -> bool:
        """Whether a stack has a LayerNorm after its last layer."""
        return self.norm == "pre" if self.last_norm is None else self.last_norm

    def stack(self) -> dict[str, Any]:
        """Only the options of `StackOptions`, by name."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(StackOptions)}


def whole(name, value, minimum=1):
    """The value as a Python integer. Raises a ValueError unless it is an integer of at least
    `minimum`; a bool is refused."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < minimum:
        raise ValueError(f"{name} must be an integer of at least {minimum}, got {value!r}")
    return int(value)


def number(name, value, minimum, below):
    """The value as a Python number. Raises a ValueError unless it is in [least, below)."""
    if not isinstance(value, numbers.Real) or not minimum <= value < below:
        raise ValueError(f"{name} must be a number in [{minimum}, {below}), got {value!r}")
    return value if isinstance(value, int) else float(value)


def _checked(field, value):
    """The checked value of a field; a NumPy number becomes a Python number. Raises a ValueError if
    it breaks the rule of the field."""
    rules = field.metadata
    if field.type == int | None and value is None:
        return None
    if field.type in (int, int | None):
        return whole(field.name, value, rules["minimum"])
    if field.type is float:
        return number(field.name, value, rules["minimum"], rules["below"])
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
    """The options of a stack, and the positions that are added to the embeddings.

    Args:
        positions: the positions added to the embeddings: `"sinusoidal"` (section 3.5, any length,
            `d_model` even), `"learned"`, or `"none"`, for a model with positions in its attention.
        max_positions: the maximum length of a sequence with learned positions. Default 512. Other
            positions ignore it.
        embedding_norm: whether a norm follows the sum of embeddings and positions, before dropout,
            as in BERT and BART. Default False.
        **stack: see `StackOptions`.

    Raises:
        ValueError: a value breaks its rule; the message names argument, rule and value.
    """

    positions: str = option(
        "sinusoidal", "positions that are added to the embeddings", choices=POSITIONS
    )
    max_positions: int = option(
        512, "maximum length of a sequence with learned positions", minimum=1
    )
    embedding_norm: bool = option(False, "LayerNorm after the sum of embeddings and positions")

    def __post_init__(self):
        super().__post_init__()
        if self.positions == "sinusoidal" and self.d_model % 2:
            raise ValueError(
                f"d_model must be even for sinusoidal positions, got d_model={self.d_model}"
            )

    @property
    def longest(self) -> float:
        """The maximum number of tokens in a sequence; infinity if the positions set no limit."""
        return self.max_positions if self.positions == "learned" else math.inf


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
    ),
    "test": dict(
        num_encoder_layers=2, num_decoder_layers=3, d_model=14, d_ff=29, num_heads=2, dropout=0.1
    ),
}


def preset(name):
    """The fields of a preset by name. Raises a ValueError if the name is unknown."""
    if name not in tuple(PRESETS):  # a tuple, because `name` may be unhashable
        known = tuple(one for one in PRESETS if one != "test")
        raise ValueError(f"name must be one of {known}, got {name!r}")
    return PRESETS[name]

"""The base classes of encoder and decoder: the parts of a layer, and the stack of layers."""

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tfformer.annotations import Tensor
from tfformer.config import StackOptions
from tfformer.layers.attention import MultiHeadAttention
from tfformer.layers.feed_forward import FeedForward
from tfformer.layers.layer import Layer, check_whole
from tfformer.layers.norm import norm_of, normed
from tfformer.layers.packing import Rows
from tfformer.layers.residual import Residual
from tfformer.layers.weight_matrices import Matrix

OPTIONS = tuple(field.name for field in dataclasses.fields(StackOptions))
REQUIRED = ("d_model", "num_heads", "d_ff")  # of a layer; a model has the paper's sizes by default


def cross_attention(options, **common):
    """Make the attention to the memory from `StackOptions`; `common` are arguments of every Keras
    layer."""
    sizes = options.d_model, options.num_heads, options.attention_dropout
    names = "num_key_value_heads", "location_width", "head_size", "use_bias"
    own = {name: getattr(options, name) for name in names}
    return MultiHeadAttention(*sizes, **own, **common)


def self_attention(options, **common):
    """Make the attention of a sequence to itself, which may use relative positions."""
    sizes = options.d_model, options.num_heads, options.attention_dropout
    known = options.num_key_value_heads, options.attention_positions
    names = "head_size", "rotary", "query_key_norm", "epsilon", "use_bias"
    own = {name: getattr(options, name) for name in names}
    return MultiHeadAttention(*sizes, *known, **own, **common)


def feed_forward(options, **common):
    """Make the feed-forward layer from `StackOptions`."""
    sizes = options.d_model, options.d_ff
    known = options.activation, options.activation_dropout, options.use_bias
    return FeedForward(*sizes, *known, **common)


class Part(NamedTuple):
    """A sub-layer of a `Block` and the residual connection around it, both by name.

    make: a function that makes the sub-layer from `StackOptions`.
    reads_memory: whether the sub-layer attends to the encoder's output. Default False.
    """

    name: str
    residual: str
    make: Callable[..., Layer]
    reads_memory: bool = False


class Configured(Layer):
    """A layer with the options of a stack, each as an attribute.

    Args:
        *sizes, **options: those of `StackOptions`, in its order or by name; and the arguments of
            every Keras layer. d_model, num_heads and d_ff have no default.
    """

    def __init__(self, *sizes: Any, **options: Any) -> None:
        given = stack_options(sizes, options)
        super().__init__(**options)
        self.supports_masking = True
        self.options = StackOptions(**given)
        for name, value in self.options.to_dict().items():
            setattr(self, name, value)

    def __init_subclass__(cls, **more):
        """Make `help` and `inspect.signature` show the options by name."""
        super().__init_subclass__(**more)
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        own = inspect.signature(cls.__init__).parameters.values()
        first = [p for p in own if p.kind is kind and p.name != "self"]
        options = [
            inspect.Parameter(
                field.name,
                kind,
                default=inspect.Parameter.empty if field.name in REQUIRED else field.default,
                annotation=field.type,
            )
            for field in dataclasses.fields(StackOptions)
        ]
        rest = [p for p in own if p.kind is inspect.Parameter.VAR_KEYWORD]
        cls.__signature__ = inspect.Signature([*first, *options, *rest])

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **self.options.to_dict()}


class Block(Configured):
    """A sequence of sub-layers, each inside a residual connection: [..., D] -> [..., D].

    `PARTS` lists the sub-layers in order. All code that builds, fuses, counts or converts a block
    iterates over that list.

    Args:
        *sizes, **options: see `Configured`.
        lender: another block. This block shares all of its sub-layers of the same name, except
            those that read the memory. Default: no sharing. (Only a model sets this; the
            configuration of a layer does not.)
    """

    PARTS: tuple[Part, ...] = ()

    def __init__(self, *sizes: Any, lender: Any = None, **options: Any) -> None:
        super().__init__(*sizes, **options)
        for part in self.PARTS:
            layer = None if part.reads_memory else getattr(lender, part.name, None)
            if layer is None:
                layer = part.make(self.options, dtype=self.dtype_policy, name=part.name)
            setattr(self, part.name, layer)
        for part in self.PARTS:
            common = {"dtype": self.dtype_policy, "name": part.residual}
            known = self.epsilon, self.normalization, self.residual
            layer = Residual(self.dropout, self.norm, *known, **common)
            setattr(self, part.residual, layer)

    def parts(self) -> list[tuple[Layer, Residual]]:
        """(sub-layer, its residual connection) for each part, in order."""
        return [(getattr(self, part.name), getattr(self, part.residual)) for part in self.PARTS]

    def _build(self, x_shape, memory_shape=None):
        """(Keras requires `build` to take the arguments of `call`, which differ by class.)"""
        for part, (sublayer, residual) in zip(self.PARTS, self.parts(), strict=True):
            if part.reads_memory:
                sublayer.build(x_shape, memory_shape)
            elif not sublayer.built:  # a lender's is built already
                sublayer.build(x_shape)
            residual.build(x_shape)


class Stack(Configured):
    """`num_layers` layers of one class. With `norm="pre"` or `last_norm`, a final norm follows.

    With `unique_layers` M, there are M different layers, which repeat in order.

    Args:
        num_layers: N.
        *sizes, **options: of each layer, see `Configured`.
        lender: another stack. Its layer n lends to layer n of this one, see `Block`; after its last
            layer it starts again from the first. Default: none.
    """

    layer_class: type[Block]
    layers: list[Block]

    def __init__(self, num_layers: int, *sizes: Any, lender: Any = None, **options: Any) -> None:
        super().__init__(*sizes, **options)
        check_whole(num_layers=num_layers)
        self.num_layers = num_layers
        common: dict[str, Any] = {"dtype": self.dtype_policy}
        unique: list[Block] = []
        for n in range(min(self.unique_layers or num_layers, num_layers)):
            other = lender.layers[n % len(lender.layers)] if lender else None
            known = {**self.options.to_dict(), "lender": other, **common}
            unique.append(self.layer_class(**known, name=f"layer_{n}"))
        self.layers = [unique[n % len(unique)] for n in range(num_layers)]
        if self.options.ends_with_norm:
            self.final_norm = norm_of(self.normalization, self.epsilon, name="final_norm", **common)

    def _build(self, x_shape, *memory_shape):
        for layer in self.layers:
            if not layer.built:
                layer.build(x_shape, *memory_shape)
        if self.options.ends_with_norm:
            self.final_norm.build(x_shape)

    def matrices(self) -> Iterator[Matrix]:
        """The `Matrix` of each product, in order; a shared layer counts each time it runs."""
        for layer in self.layers:
            for part, (sublayer, _) in zip(layer.PARTS, layer.parts(), strict=True):
                for matrix in sublayer.matrices():
                    yield matrix._replace(of_memory=matrix.of_memory and part.reads_memory)

    def normed(self, x: Tensor, rows: Rows | None = None, training: bool | None = None) -> Tensor:
        """Apply the final norm, if the stack has one."""
        if not self.options.ends_with_norm:
            return x
        return normed(self.final_norm, x, rows, training)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "num_layers": self.num_layers}


def stack_options(sizes, options):
    """Take the options of a stack out of a layer's arguments; they are removed from `options`."""
    if len(sizes) > len(OPTIONS):
        raise TypeError(f"sizes must be at most {len(OPTIONS)}, {OPTIONS}, got {len(sizes)}")
    given = dict(zip(OPTIONS, sizes, strict=False))
    twice = sorted(set(given) & set(options))
    if twice:
        raise TypeError(f"{twice[0]} must be given once, got it by place and by name")
    given |= {name: options.pop(name) for name in OPTIONS if name in options}
    missing = [name for name in REQUIRED if name not in given]
    if missing:
        raise TypeError(f"{missing[0]} must be given, got {sorted(given)}")
    return given

"""A served signature: a `tf.function` of tensors, and the requests that show what it is asked."""

import dataclasses
import functools
import inspect
from collections.abc import Callable

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Signature:
    """What a server answers to one kind of request.

    Args:
        name: of the signature.
        function: a `tf.function` with an input signature, which gives a dict of tensors.
        examples: a function of `Samples` that gives requests, [{input: value}]: an export makes
            them to prove itself. Rows are a list, and one input has them; an answer must be the
            same each time, numbers to 1e-4.
        warmup: a function of `Samples` that gives the requests which warm a server up. Default:
            the first example.
    """

    name: str
    function: Callable
    examples: Callable
    warmup: Callable | None = None

    @property
    def inputs(self):
        """{name: `tf.TensorSpec`}"""
        return {spec.name: spec for spec in self.function.input_signature}

    @property
    def is_batchable(self):
        """Whether a server can join its requests: every input is a string [B]."""
        specs = self.function.input_signature
        return all(spec.dtype == "string" and spec.shape.rank == 1 for spec in specs)


@dataclasses.dataclass(frozen=True)
class Samples:
    """What example requests are made of, the same for the same tokenizer.

    texts: of the vocabulary's own pieces, and awkward ones.
    source_ids: int rows [n][S] of some of them, padded.
    longest: target tokens at most.
    of_length: a function of a number of tokens that gives a text of about so many.
    source_length: source tokens at most.
    """

    texts: list
    source_ids: list
    longest: int
    of_length: Callable
    source_length: int

    @property
    def pairs(self):
        """The texts, each with another as its translation."""
        return {"source": self.texts, "target": self.texts[::-1]}


def graph(inputs):
    """A decorator that makes a `tf.function` with these inputs and checks their shapes.

    TensorFlow Serving does not compare shapes with those of the signature. Without this check an
    operation could accept a wrong shape and return a wrong answer. With it the server answers
    INVALID_ARGUMENT. All loops are `tf.while_loop`s, so AutoGraph is off.
    """

    def make(function):
        @functools.wraps(function)
        def checked(*values):
            pairs = zip(values, inputs, strict=True)
            return function(*[tf.ensure_shape(value, spec.shape) for value, spec in pairs])

        return tf.function(checked, input_signature=inputs, autograph=False)

    return make


def graph_with_options(name, inputs, options, answer):
    """`tf.function` of tensors and of scalars that have defaults, which a server fills in.

    Args:
        name: of the function.
        inputs: a `tf.TensorSpec` of each input without a default.
        options: {name: default} of the others.
        answer: a function of the inputs, in their order, and of {name: value} of the options.
    """
    defaults = {key: tf.constant(value) for key, value in options.items()}

    def function(*values):
        given, asked = values[: len(inputs)], values[len(inputs) :]
        return answer(*given, dict(zip(defaults, asked, strict=True)))

    # A `tf.function` reads from this how it may be called, and which input has which default.
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(spec.name, kind) for spec in inputs]
    parameters += [inspect.Parameter(key, kind, default=v) for key, v in defaults.items()]
    function.__name__, function.__signature__ = name, inspect.Signature(parameters)
    scalars = [tf.TensorSpec([], value.dtype, key) for key, value in defaults.items()]
    return graph([*inputs, *scalars])(function)


def texts(*names):
    """The specs of inputs that are texts, string [B] each."""
    return [tf.TensorSpec([None], tf.string, name) for name in names]

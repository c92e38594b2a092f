"""A served signature: a `tf.function` of tensors, with example requests."""

import dataclasses
import functools
import inspect
from collections.abc import Callable

import tensorflow as tf

WARMUP_LENGTHS = (4, 16, 64, 256)  # source tokens


@dataclasses.dataclass(frozen=True)
class Signature:
    """One kind of request that a server answers.

    Args:
        name: the name of the signature.
        function: a `tf.function` with an input signature, which returns a dict of tensors.
        examples: a function of `Samples` that returns requests, [{input: value}]. An export makes
            these requests to verify itself. The rows are a list, in one of the inputs. The answer
            must be the same each time, numbers to 1e-4.
        warmup: a function of `Samples` that returns requests to warm up a server. Default: the
            first example.
    """

    name: str
    function: tf.types.experimental.PolymorphicFunction
    examples: Callable
    warmup: Callable | None = None

    @property
    def inputs(self) -> dict[str, tf.TensorSpec]:
        """{name: `tf.TensorSpec`}"""
        return {spec.name: spec for spec in self.function.input_signature}

    @property
    def is_batchable(self) -> bool:
        """Whether a server can batch its requests: every input is a string [B]."""
        specs = self.function.input_signature
        return all(spec.dtype == "string" and spec.shape.rank == 1 for spec in specs)


@dataclasses.dataclass(frozen=True)
class Samples:
    """The data for example requests, which depend only on the tokenizer.

    texts: texts of the vocabulary's own pieces, and unusual texts.
    source_ids: int rows [n][S] of some of them, padded.
    longest: maximum target tokens.
    of_length: a function that returns a text of about a given number of tokens.
    source_length: maximum source tokens.
    """

    texts: list
    source_ids: list
    longest: int
    of_length: Callable
    source_length: int

    @property
    def pairs(self):
        """The texts, each paired with another one as its translation."""
        return {"source": self.texts, "target": self.texts[::-1]}


def text_examples(samples):
    """Example requests with texts only."""
    return [{"text": samples.texts}, {"text": samples.texts[:1]}]


def text_warmup(samples):
    """A request for each of a few text lengths, and one with all of them."""
    longest = max(1, samples.source_length - 1)
    sizes = sorted({min(size, longest) for size in WARMUP_LENGTHS})
    buckets = [samples.of_length(size) for size in sizes]
    return [*({"text": [text]} for text in buckets), {"text": buckets}]


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
    """`tf.function` of tensors, and of inputs with defaults that a server fills in.

    Args:
        name: the name of the function.
        inputs: a `tf.TensorSpec` for each input without a default.
        options: {name: default} of the other inputs: scalars; or lists, for inputs of any length.
        answer: a function of the inputs, in order, and of {name: value} of the options.
    """
    defaults = {key: tf.constant(value) for key, value in options.items()}

    def function(*values):
        given, asked = values[: len(inputs)], values[len(inputs) :]
        return answer(*given, dict(zip(defaults, asked, strict=True)))

    # `tf.function` reads its arguments and their defaults from this signature.
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(spec.name, kind) for spec in inputs]
    parameters += [inspect.Parameter(key, kind, default=v) for key, v in defaults.items()]
    function.__name__, function.__signature__ = name, inspect.Signature(parameters)
    # TensorFlow counts traces by code object. With one for all signatures it warns of retracing.
    function.__code__ = function.__code__.replace(co_name=name)
    specs = [
        tf.TensorSpec([None] * value.shape.rank, value.dtype, key)
        for key, value in defaults.items()
    ]
    return graph([*inputs, *specs])(function)


def texts(*names):
    """The specs of text inputs, string [B] each."""
    return [tf.TensorSpec([None], tf.string, name) for name in names]

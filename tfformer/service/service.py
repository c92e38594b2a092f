"""The base class of all services: signatures for a model and its tokenizer."""

import abc
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfformer.annotations import Fuse, StrPath, Tensor
from tfformer.config import whole
from tfformer.config.search_options import OPTIONS, first_names
from tfformer.inference.fuse import fuse
from tfformer.service.limits import USUAL_WIDTH
from tfformer.service.signature import Signature
from tfformer.shortlist import Shortlist
from tfformer.text.tokenizer import Tokenizer


class Page(NamedTuple):
    """The facts on the page of an exported model, besides those that the signatures contain.

    about: a description, the beginning of a sentence.
    asked: commands that query it; @text@ stands for an example and @name@ for the model's name.
    inputs: how unusual inputs are treated, in sentences.
    limits, costs: rows of tables, {name: text}.
    command: the command that exports it, without the directory.
    """

    about: str
    asked: list[str]
    inputs: str
    limits: dict[str, str]
    costs: dict[str, str]
    command: str = "export RUN DIRECTORY"


class Service(abc.ABC):
    """A model and its tokenizer as functions of tensors, called in Python or saved for a server.

    A subclass sets the attributes, then calls `make_signatures`.

    Attributes:
        model, tokenizer: the model and the tokenizer.
        dtype: the dtype of products, `"float32"` or `"bfloat16"`. None: the model's compute dtype,
            but float32 in a SavedModel.
        max_batch_size: maximum rows of a request.
        max_source_length: maximum tokens of a source, with eos.
        max_target_length: maximum generated tokens; 0 if the service generates none.
        shortlist: a `Shortlist` for the tokenizer, or None.
        xla: whether XLA compiles `serving_default`.
        signatures: {name: `Signature`}, all served signatures, in the order of the list on a
            model's page. One of them is "serving_default", with the input "text".
        functions: {name: `tf.function`}; each maps tensors to a dict of tensors.
    """

    model: Any  # a subclass has its own class of model
    tokenizer: Tokenizer
    dtype: str | None
    max_batch_size: int
    max_source_length: int
    max_target_length = 0
    shortlist: Shortlist | None = None
    xla = False
    signatures: dict[str, Signature]
    functions: dict[str, tf.types.experimental.PolymorphicFunction]
    # The reason why the service cannot be exported; empty if it can.
    not_exported = ""
    # The output of `serving_default` that a command prints, string [B].
    output = ""

    @abc.abstractmethod
    def served(self, fused: Fuse, shortlist: Sequence[Tensor]) -> dict[str, Signature]:
        """{name: `Signature`}, the signatures of the service.

        Args:
            fused: a function that returns the result of `fuse`; it is called in each graph.
            shortlist: the arrays of the shortlist, tensors or variables; empty without one.
        """

    @abc.abstractmethod
    def answer(
        self, texts: Iterable[str], batch_size: int | None = None, greedy: bool = False
    ) -> list[str]:
        """The `output` of `serving_default` for any number of texts: a list of strings. `greedy`:
        if tokens are searched, take the most probable one at each step."""

    def flops(self) -> dict[str, int]:
        """The cost of a token: {name: operations}, for a report."""
        return self.model.flops()

    @abc.abstractmethod
    def limits(self) -> dict[str, int]:
        """The limits of a request: {"max_batch_size": rows, ...}, numbers for a report."""

    @abc.abstractmethod
    def largest_request(self) -> int:
        """The maximum memory of a request in bytes, without the weights."""

    @abc.abstractmethod
    def page(self) -> Page:
        """The `Page` of an export."""

    def choose_form(self) -> None:
        """Set `low_latency`: the form of a SavedModel that is fastest without flags of threads."""
        self.low_latency = False  # most families have one form

    @classmethod
    def unknown(cls, options: Mapping[str, Any]) -> list[str]:
        """The names, first or second ones, that are not arguments of the class."""
        return sorted(set(first_names(options)) - set(inspect.signature(cls).parameters))

    @staticmethod
    def merged(kept: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """The options of a run, replaced by those in `given`; under their first names."""
        return {**first_names(kept), **first_names(given)}

    def make_signatures(self) -> None:
        """Sets `signatures` and `functions`. They read the variables of the model, which may still
        be in training."""
        self._constants = self.arrays(tf.constant)
        self.signatures = self.served(self.fused, self._constants)
        self.functions = {name: one.function for name, one in self.signatures.items()}

    def fused(self, dtype: str | None = None) -> tuple[Any, ...]:
        """The inference layers of the model, and its current weights."""
        positions = max(self.max_source_length, self.max_target_length)
        return self.fused_for(positions, dtype)

    def fused_for(
        self, positions: int, dtype: str | None = None, few_rows: bool = False
    ) -> tuple[Any, ...]:
        """As `fused`, with tables of `positions` positions; `few_rows`: see `fuse`."""
        return fuse(self.model, positions, dtype or self.dtype, few_rows)

    def in_batches(
        self, texts: Iterable[str], batch_size: int | None, function: Callable[[Tensor], Tensor]
    ) -> list[str]:
        """Apply a function to any number of texts, in order: a list of strings.

        Args:
            texts: strings.
            batch_size: the number of texts at once, at most `max_batch_size`; None: 32, or
                `max_batch_size` if that is less.
            function: maps a string tensor [B] to another one.

        Raises:
            ValueError: `texts` is one string, or an item is not a string; or `batch_size` is not
                in [1, max_batch_size].
        """
        if isinstance(texts, str):
            raise ValueError(f"texts must be a list of strings, got the string {texts!r}")
        if batch_size is None:
            batch_size = min(32, self.max_batch_size)
        if not 1 <= whole("batch_size", batch_size, minimum=0) <= self.max_batch_size:
            raise ValueError(f"batch_size must be in [1, {self.max_batch_size}], got {batch_size}")
        rows: list[Any] = list(texts) if hasattr(texts, "__iter__") else [texts]
        for text in rows:
            if not isinstance(text, (str, bytes)):
                raise ValueError(f"texts must be a list of strings, got {text!r} among them")
        # Texts of similar length together: less padding, and fewer idle steps.
        order = sorted(range(len(rows)), key=lambda n: len(rows[n]))
        answers = [""] * len(rows)
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            found = function(tf.constant([rows[n] for n in chosen])).numpy()
            for n, answer in zip(chosen, found, strict=True):
                answers[n] = answer.decode()
        return answers

    def arrays(self, made: Callable[[np.ndarray], Any]) -> list[Any]:
        """The arrays of the shortlist, each converted by `made`; none without a shortlist."""
        short = self.shortlist
        return [] if short is None else [made(short.candidates), made(short.always)]

    def save(self, directory: StrPath, signatures: Sequence[str] | None = None) -> None:
        """Writes a SavedModel into `directory`, which must not exist yet.

        The exported root is a plain `tf.Module` over raw `tf.Variable`s. Keras makes a second copy
        of its variables, which the server would restore. So a root with a Keras object loads in
        Python, but fails on the server. The weights are stored once, in the form of the inference
        layers (`tfformer.inference`).

        Args:
            directory: the folder of the SavedModel.
            signatures: the names of the signatures to write. Default: all.

        Raises:
            FileExistsError: `directory` exists; it is not changed.
            ValueError: a name in `signatures` is unknown, or the service cannot be exported.
        """
        if self.not_exported:
            raise ValueError(self.not_exported)
        unknown = [name for name in signatures or () if name not in self.signatures]
        if unknown:
            raise ValueError(f"signatures must be of {[*self.signatures]}, got {unknown[0]!r}")
        if tf.io.gfile.exists(directory):
            raise FileExistsError(f"directory must not exist yet, got {directory}")
        root = tf.Module()
        root.tokenizer = self.tokenizer
        served = self.saved(root)
        chosen = {name: served[name].function for name in signatures or served}
        tf.saved_model.save(root, directory, signatures=chosen)

    def saved(self, root: tf.Module) -> dict[str, Signature]:
        """The signatures to write; `root`, a `tf.Module`, receives their variables."""

        def variable(value):
            return tf.Variable(value, trainable=False)

        inference_layer, weights = self.fused(self.dtype or "float32")
        root.weights = tf.nest.map_structure(variable, weights)
        root.shortlist = self.arrays(variable)
        return self.served(lambda: (inference_layer, root.weights), root.shortlist)


def checked_dtype(dtype, also=()):
    """The argument `dtype` of a service, in which `also` is allowed too; a ValueError if it is not
    valid."""
    known = ("float32", "bfloat16", *also)
    if dtype not in (None, *known):
        listed = f"{', '.join(map(repr, known[:-1]))} or {known[-1]!r}"
        raise ValueError(f"dtype must be {listed}, got {dtype!r}")
    return dtype


class Searching(Service):
    """A service that searches its answers token by token, with beams.

    Attributes:
        options: {name: number} of the searches.
    """

    options: dict[str, Any]

    def largest_request(self) -> int:
        """The maximum memory of a request in bytes, without the weights.

        It is the larger of two extremes: the maximum number of rows, or the maximum beam width.
        """
        usual = max(self.options["beam_width"], USUAL_WIDTH)
        maximum = self.max_batch_size * usual  # rows * width of a request
        widest = int(min(OPTIONS["beam_width"].maximum, maximum))
        return max(
            self.request_bytes(self.max_batch_size, usual),
            self.request_bytes(maximum // widest, widest),
        )

    @abc.abstractmethod
    def request_bytes(self, rows: int, width: int) -> int:
        """The maximum memory of a request of `rows` rows and `width` beams, in bytes, without the
        weights."""

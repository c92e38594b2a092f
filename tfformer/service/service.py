"""What every family is served by: signatures over a model and its tokenizer."""

import abc
import inspect
from typing import NamedTuple

import tensorflow as tf

from tfformer.config import whole
from tfformer.inference.fuse import fuse
from tfformer.search.options import OPTIONS, first_names
from tfformer.service.limits import USUAL_WIDTH


class Page(NamedTuple):
    """What a page about an exported model says of it, besides what its signatures say themselves.

    about: what it is, the beginning of a sentence.
    asked: commands that ask it, in which @text@ is an example and @name@ the model's name.
    inputs: what becomes of odd inputs, in sentences.
    limits, costs: rows of tables, {what: words}.
    command: what exports it, without the directory.
    """

    about: str
    asked: list
    inputs: str
    limits: dict
    costs: dict
    command: str = "export.saved_model RUN"


class Service(abc.ABC):
    """A model and its tokenizer as functions of tensors: called here, saved for a server.

    A subclass sets the attributes, then calls `make_signatures`.

    Attributes:
        model, tokenizer: what is served.
        dtype: of what is multiplied, `"float32"` or `"bfloat16"`; None: the model's compute dtype,
            and float32 in what is saved.
        max_batch_size: rows of a request at most.
        max_source_length: tokens of a source at most, eos counted.
        max_target_length: of what is generated; 0 where nothing is.
        shortlist: a `Shortlist` of the tokenizer, or None.
        xla: whether XLA compiles `serving_default`.
        signatures: {name: `Signature`} of all that is served, in the order in which a page of a
            model lists it; "serving_default" is among them, and its input is "text".
        functions: the same by name, each a `tf.function` of tensors that gives a dict of tensors.
    """

    max_target_length, shortlist, xla = 0, None, False
    # Why nothing of it is exported, if that is so.
    not_exported = ""
    # The output of `serving_default` that a command prints, string [B].
    output = ""

    @abc.abstractmethod
    def served(self, fused, shortlist):
        """{name: `Signature`}

        Args:
            fused: a function that gives what `fuse` does; it is called in each graph.
            shortlist: the arrays of the shortlist, tensors or variables; empty without one.
        """

    @abc.abstractmethod
    def answer(self, texts, batch_size=None, greedy=False):
        """What `serving_default` answers, its `output`, of texts in any number: a list of strings;
        `greedy`: by the likeliest token at each step, where tokens are searched."""

    def flops(self):
        """What a token costs: {"what": operations}, for a report."""
        return self.model.flops()

    @abc.abstractmethod
    def limits(self):
        """How large a request may be: {"max_batch_size": rows, ...}, numbers for a report."""

    @abc.abstractmethod
    def page(self):
        """The `Page` of an export."""

    @classmethod
    def unknown(cls, options):
        """Those of these names, first or second ones, that are no arguments of the class."""
        return sorted(set(first_names(options)) - set(inspect.signature(cls).parameters))

    @staticmethod
    def merged(kept, given):
        """The options that a run keeps, and in their place those that are given; by first names."""
        return {**first_names(kept), **first_names(given)}

    def make_signatures(self):
        """Sets `signatures` and `functions`, over the variables of the model, which may still be
        training."""
        self._constants = self.arrays(tf.constant)
        self.signatures = self.served(self.fused, self._constants)
        self.functions = {name: one.function for name, one in self.signatures.items()}

    def fused(self, dtype=None, few_rows=False):
        """The twin of the model and its weights as they are now; `few_rows`: see `fuse`."""
        positions = max(self.max_source_length, self.max_target_length)
        return self.fused_for(positions, dtype, few_rows)

    def fused_for(self, positions, dtype=None, few_rows=False):
        """The same, with tables of so many positions."""
        return fuse(self.model, positions, dtype or self.dtype, few_rows)

    def in_batches(self, texts, batch_size, function):
        """What a function answers of texts in any number, in order: a list of strings.

        Args:
            texts: strings.
            batch_size: how many at once, at most `max_batch_size`; None: 32, if there may be so
                many.
            function: of a string tensor [B], which gives another.

        Raises:
            ValueError: `texts` is one string, or has what is none; or `batch_size` is not in
                [1, max_batch_size].
        """
        if isinstance(texts, str):
            raise ValueError(f"texts must be a list of strings, got the string {texts!r}")
        if batch_size is None:
            batch_size = min(32, self.max_batch_size)
        if not 1 <= whole("batch_size", batch_size, least=0) <= self.max_batch_size:
            raise ValueError(f"batch_size must be in [1, {self.max_batch_size}], got {batch_size}")
        texts = list(texts) if hasattr(texts, "__iter__") else [texts]
        for text in texts:
            if not isinstance(text, (str, bytes)):
                raise ValueError(f"texts must be a list of strings, got {text!r} among them")
        # Texts of like length together: less padding, fewer idle steps.
        order = sorted(range(len(texts)), key=lambda n: len(texts[n]))
        answers = [""] * len(texts)
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            found = function(tf.constant([texts[n] for n in chosen])).numpy()
            for n, answer in zip(chosen, found, strict=True):
                answers[n] = answer.decode()
        return answers

    def arrays(self, made):
        """The arrays of the shortlist, each as `made` gives it back; none without one."""
        short = self.shortlist
        return [] if short is None else [made(short.candidates), made(short.always)]

    def save(self, directory, signatures=None):
        """Writes a SavedModel into `directory`, which must not exist yet.

        The exported root is a plain `tf.Module` over raw `tf.Variable`s: one that reached a Keras
        object would load in Python and fail on the server, which restores the second copy that
        Keras makes of its variables. The weights are stored once, in the form in which they are
        used (`tfformer.inference`).

        Args:
            directory: of the SavedModel.
            signatures: the names of those to write. Default: all.

        Raises:
            FileExistsError: there is something at `directory`, which stays as it is.
            ValueError: `signatures` names one that there is not.
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

    def saved(self, root):
        """The signatures to write, over variables that `root`, a `tf.Module`, gets here."""

        def variable(value):
            return tf.Variable(value, trainable=False)

        twin, weights = self.fused(self.dtype or "float32")
        root.weights = tf.nest.map_structure(variable, weights)
        root.shortlist = self.arrays(variable)
        return self.served(lambda: (twin, root.weights), root.shortlist)


def checked_dtype(dtype):
    """The argument `dtype` of a service; a ValueError if it cannot be that."""
    if dtype not in (None, "float32", "bfloat16"):
        raise ValueError(f"dtype must be 'float32' or 'bfloat16', got {dtype!r}")
    return dtype


class Searching(Service):
    """A service whose answers are searched, token by token, in beams.

    Attributes:
        options: {name: number} of the searches.
    """

    def largest_request(self):
        """Bytes, besides the weights, of a request that is as large as it may be; at most.

        The worse of two corners: as many rows as there may be, or as wide a beam.
        """
        usual = max(self.options["beam_width"], USUAL_WIDTH)
        most = self.max_batch_size * usual  # rows * width of a request
        widest = int(min(OPTIONS["beam_width"].most, most))
        return max(
            self.request_bytes(self.max_batch_size, usual),
            self.request_bytes(most // widest, widest),
        )

    @abc.abstractmethod
    def request_bytes(self, rows, width):
        """Bytes, besides the weights, of a request of so many rows and beams; at most."""

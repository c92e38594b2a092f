"""What every family is served by: signatures over a model and its tokenizer."""

import abc
import inspect
from typing import NamedTuple

import tensorflow as tf

from tfformer.inference.fuse import fuse
from tfformer.search.options import first_names


class Page(NamedTuple):
    """What a page about an exported model says of it, besides what its signatures say themselves.

    about: what it is, the beginning of a sentence.
    asked: commands that ask it, in which @text@ is an example and @name@ the model's name.
    inputs: what becomes of odd inputs, in sentences.
    limits, costs: rows of tables, {what: words}.
    """

    about: str
    asked: list
    inputs: str
    limits: dict
    costs: dict


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

    @abc.abstractmethod
    def served(self, fused, shortlist):
        """{name: `Signature`}

        Args:
            fused: a function that gives what `fuse` does; it is called in each graph.
            shortlist: the arrays of the shortlist, tensors or variables; empty without one.
        """

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

    def fused(self, dtype=None):
        """The twin of the model and its weights as they are now."""
        most = max(self.max_source_length, self.max_target_length)
        return fuse(self.model, most, dtype or self.dtype)

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
        unknown = [name for name in signatures or () if name not in self.signatures]
        if unknown:
            raise ValueError(f"signatures must be of {[*self.signatures]}, got {unknown[0]!r}")
        if tf.io.gfile.exists(directory):
            raise FileExistsError(f"directory must not exist yet, got {directory}")
        root = tf.Module()

        def variable(value):
            return tf.Variable(value, trainable=False)

        twin, weights = self.fused(self.dtype or "float32")
        root.weights = tf.nest.map_structure(variable, weights)
        root.tokenizer = self.tokenizer
        root.shortlist = self.arrays(variable)
        served = self.served(lambda: (twin, root.weights), root.shortlist)
        chosen = {name: served[name].function for name in signatures or served}
        tf.saved_model.save(root, directory, signatures=chosen)

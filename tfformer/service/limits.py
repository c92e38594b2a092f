"""The limits of a request, for every family: its rows, and the lengths of its texts."""

from typing import NamedTuple

import tensorflow as tf

from tfformer.service.checks import counted, require_in

# A SentencePiece piece has at most 16 characters. A text is cut to this many characters per token
# before tokenisation, which takes 6 seconds for 8 MB.
CHARACTERS_PER_TOKEN = 16
# Up to this beam width a request may have `max_batch_size` rows, whatever the export's own width.
USUAL_WIDTH = 4


class Limits(NamedTuple):
    """The maximum sizes of a request: see `tfformer.service.translator.Translator`."""

    max_source_length: int
    max_target_length: int
    max_batch_size: int


class Limited:
    """A model with its tokenizer and its limits, for the signatures.

    Args:
        config: the model's configuration.
        fused: a function that returns the result of `fuse`; it is called in each graph.
        tokenizer: a `Tokenizer`.
        options: {name: number} of the searches.
        limits: `Limits`; its numbers become attributes.
        penalty_form: for beam search.
    """

    def __init__(self, config, fused, tokenizer, options, limits, penalty_form):
        self.config, self.fused, self.tokenizer = config, fused, tokenizer
        self.options, self.penalty_form = options, penalty_form
        self.max_source_length, self.max_target_length, self.max_batch_size = limits

    def checked_rows(self, name, rows, width=None):
        """`rows`, checked against the maximum number; with `width`, also rows times `width`."""
        count = tf.shape(rows)[0]
        counts = [(name, count, self.max_batch_size)]
        if width is not None:
            maximum = self.max_batch_size * max(USUAL_WIDTH, self.options["beam_width"])
            counts.append((f"{name} * beam_width", count * width, maximum))
        return counted(rows, *counts)

    def longest_written(self, max_length):
        """The maximum number of tokens to generate; `max_length` 0 means the service's limit."""
        maximum = self.max_target_length
        if not tf.is_tensor(max_length):
            return max_length or maximum
        max_length = require_in("max_length", max_length, 0, maximum)
        return tf.where(tf.equal(max_length, 0), maximum, max_length)


def unless_off(options, off):
    """The values of the options named in `off`. An option with its off value becomes None, which
    adds no operations; a tensor stays."""

    def value(name):
        number = options[name]
        return None if not tf.is_tensor(number) and number == off[name] else number

    return {name: value(name) for name in off}

"""What a request may ask of a model, however its family searches: so many rows, so long a text."""

from typing import NamedTuple

import tensorflow as tf

from tfformer.service.checks import counted, require_in

# A piece of SentencePiece has at most 16 characters: more than this many for each token are cut
# before they are tokenised, which takes 6 seconds for 8 MB.
CHARACTERS_PER_TOKEN = 16
# With this many beams a request may have `max_batch_size` rows, whatever the export's own number.
USUAL_WIDTH = 4


class Limits(NamedTuple):
    """How large a request may be: see `tfformer.service.translator.Translator`."""

    max_source_length: int
    max_target_length: int
    max_batch_size: int


class Limited:
    """A model, its tokenizer and its limits, as the signatures use them.

    Args:
        config: the model's configuration.
        fused: a function that gives what `fuse` does; it is called in each graph.
        tokenizer: a `Tokenizer`.
        options: {name: number} of the searches.
        limits: `Limits`; its numbers are attributes here.
        penalty_form: of the beam search.
    """

    def __init__(self, config, fused, tokenizer, options, limits, penalty_form):
        self.config, self.fused, self.tokenizer = config, fused, tokenizer
        self.options, self.penalty_form = options, penalty_form
        self.max_source_length, self.max_target_length, self.max_batch_size = limits

    def checked_rows(self, name, rows, width=None):
        """`rows`, if a request may have so many; and so many times `width`, if it is given."""
        count = tf.shape(rows)[0]
        counts = [(name, count, self.max_batch_size)]
        if width is not None:
            most = self.max_batch_size * max(USUAL_WIDTH, self.options["beam_width"])
            counts.append((f"{name} * beam_width", count * width, most))
        return counted(rows, *counts)

    def longest_written(self, max_length):
        """Tokens to write at most; `max_length` 0 stands for the own limit."""
        most = self.max_target_length
        if not tf.is_tensor(max_length):
            return max_length or most
        max_length = require_in("max_length", max_length, 0, most)
        return tf.where(tf.equal(max_length, 0), most, max_length)


def unless_off(options, off):
    """The rules of a search that are on: those of these options that `off` names, each with its
    number, or with None where that is known to do nothing."""

    def value(name):
        number = options[name]
        return None if not tf.is_tensor(number) and number == off[name] else number

    return {name: value(name) for name in off}

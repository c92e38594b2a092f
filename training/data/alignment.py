"""Word alignments: which words of a source and of its target belong together.

In Pharaoh format, as fast_align, eflomal and awesome-align write it: a line for each pair, such as
`0-0 1-2 2-1`, of the numbers of a word of the source and of one of the target, from 0. Words are
what stands between blanks.
"""

import itertools
import re

import tensorflow as tf

from tfformer.config import EOS
from tfformer.text.sides import SPACE, PieceTable
from training.data.reader import CorpusError, read_lines

LINK = re.compile(r"(\d{1,6})-(\d{1,6})", re.ASCII)


def with_links(pairs, path):
    """Yields the pairs with the links that a file has for them, line by line.

    Raises:
        CorpusError: it is no such file, or of other pairs.
    """
    both = itertools.zip_longest(pairs, read_lines(path))
    for number, (pair, line) in enumerate(both, start=1):
        if pair is None or line is None:
            what = "more" if pair is None else "fewer"
            raise CorpusError(f"{path} has {what} lines than there are pairs: it must have as many")
        try:
            _check(line, pair)
        except ValueError as error:
            raise CorpusError(f"{path}, line {number:,}: {error}") from error
        yield pair._replace(links=" ".join(line.split()))


def _check(line, pair):
    """Raises a ValueError unless a line has links alone, between words that the pair has."""
    sizes = len(pair.source.split()), len(pair.target.split())
    for link in line.split():
        found = LINK.fullmatch(link)
        if not found:
            raise ValueError(f"a link must be two numbers such as 0-1, got {link!r}")
        for place, size, side in zip(found.groups(), sizes, ("source", "target"), strict=True):
            if int(place) >= size:
                raise ValueError(
                    f"{link} links word {place} of the {side}, counted from 0, which has {size}"
                )


class Links:
    """Which words the tokens of a batch are of, and which of these are linked.

    Words are told by their pieces, so it does not matter how a word is taken apart this time.

    Args:
        tokenizer: a `Tokenizer`.
    """

    def __init__(self, tokenizer):
        self.begins = []
        for side in (tokenizer.source, tokenizer.target):
            # In a table of pieces each is what stood between blanks: a word.
            first = "" if isinstance(side, PieceTable) else SPACE
            self.begins.append(tf.constant([piece.startswith(first) for piece in side.pieces]))

    def inputs(self, source, target, links, padded):
        """What `GuidedAttention` needs besides ids.

        Args:
            source, target: RaggedTensors of ids [B, (S)] and [B, (T)], each row ending with eos.
            links: string [B].
            padded: see `training.tasks.task.Task.example`.

        Returns:
            {"source_words": int32 [B, S], "target_words": int32 [B, T], "links": int32 [B, 2 L]}:
            the word of each token of the source, and of each label, from 1 on; eos and padding are
            of none, 0. Links are words too, of the source and of the target in turn, and 0.
        """
        numbers = tf.strings.split(tf.strings.regex_replace(links, "-", " "))
        numbers = numbers.with_flat_values(tf.strings.to_number(numbers.flat_values, tf.int32) + 1)
        width = tf.maximum(tf.cast(numbers.bounding_shape()[1], tf.int32), 2)
        return {
            "source_words": padded(words_of(source, self.begins[0])),
            "target_words": padded(words_of(target, self.begins[1])),
            "links": padded(numbers, width),
        }


def words_of(ids, begins):
    """The number of the word that each of the ids [B, (T)] is of, from 1 on; eos is of none."""
    first = tf.cast(tf.gather(begins, ids.flat_values), tf.int32)
    before = tf.cumsum(first)
    # Of each row what was before it is taken away.
    starts = tf.gather(tf.concat([[0], before], axis=0), ids.row_starts())
    words = before - tf.repeat(starts, ids.row_lengths())
    return ids.with_flat_values(tf.where(ids.flat_values == EOS, 0, words))

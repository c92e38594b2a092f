"""Gaps in a text: the marker that a user writes, and the id that the model reads."""

import abc
import re

import tensorflow as tf

from tfformer.config import BOS, EOS
from tfformer.text.vocabularies import SPACE

# One character of the Private Use Area. A vocabulary that has not learned it writes it as three
# bytes.
GAP = "\ue000"


class Gaps(abc.ABC):
    """Handles the gaps in texts.

    Args:
        side: a `tfformer.text.vocabularies.Side`.
        mask: the text with which a user marks a gap.
    """

    def __init__(self, side, mask):
        self.side, self.mask = side, mask

    def marked(self, text):
        """string [B] with the user's marker -> cleaned text with `GAP` instead. A `GAP` that was
        already in the text becomes U+FFFD."""
        text = tf.strings.regex_replace(self.side.clean(text), GAP, "\ufffd")
        return tf.strings.regex_replace(text, re.escape(self.mask), GAP)

    @abc.abstractmethod
    def encode(self, text):
        """string [B] with `GAP` -> RaggedTensor of int32 ids [B, (S)], with `side.mask_id` for each
        gap and eos at the end."""

    def filled(self, text, found):
        """string [B] with `GAP`, and ids of pieces [B, (N)] -> the texts with these pieces in their
        first N gaps. The other gaps get the user's marker again."""
        words = self.side.spelled(found.flat_values)
        parts = tf.strings.split(text, GAP)  # [B, (G + 1)]
        missing = parts.row_lengths() - found.row_lengths() - 1
        rest = tf.RaggedTensor.from_row_lengths(
            tf.fill([tf.reduce_sum(missing)], self.mask), missing
        )
        nothing = tf.fill([parts.nrows(), 1], "")
        words = tf.concat([found.with_flat_values(words), rest, nothing], axis=1)
        flat = tf.strings.join([parts.flat_values, words.flat_values])
        return tf.strings.reduce_join(parts.with_flat_values(flat), axis=1)


class GapsAsBytes(Gaps):
    """The gaps of a side that has an id for each byte: a gap becomes bos.

    Raises:
        ValueError: the side has no bytes, or it has a piece with the gap character.
    """

    def __init__(self, side, mask):
        super().__init__(side, mask)
        if len(side.byte_ids) != 256 or GAP in "".join(side.pieces):
            raise ValueError(
                "tokenizer must have an id for each byte, and no piece with U+E000, got "
                f"{len(side.byte_ids)} bytes"
            )
        self.bytes = [side.byte_ids[byte] for byte in GAP.encode()]
        self.space = side.pieces.index(SPACE) if SPACE in side.pieces else None

    def encode(self, text):
        """See `Gaps`. A gap begins a word, so a space before it adds no piece."""
        ids = self.side.encode(text)
        flat = ids.flat_values
        after = [tf.concat([flat[n:], tf.zeros([n], tf.int32)], axis=0)[: tf.size(flat)]
                 for n in range(1, 3)]  # fmt: skip
        first, second, third = self.bytes
        begins = (flat == first) & (after[0] == second) & (after[1] == third)
        before = [tf.concat([tf.zeros([n], tf.bool), begins], axis=0)[: tf.size(flat)]
                  for n in range(1, 3)]  # fmt: skip
        left_out = before[0] | before[1]
        if self.space is not None:
            following = tf.concat([begins, [False]], axis=0)[1:]
            left_out |= following & (flat == self.space)
        flat = tf.where(begins, BOS, flat)
        kept = ids.with_flat_values(~left_out)
        return tf.ragged.boolean_mask(ids.with_flat_values(flat), kept)


class GapsBetweenParts(Gaps):
    """The gaps of a side with a mask token: the parts between gaps are encoded one by one."""

    def encode(self, text):
        if self.side.mask_takes_blanks:
            text = tf.strings.regex_replace(text, rf"[\s\p{{Z}}]+{GAP}", GAP)
        parts = tf.strings.split(text, GAP)
        ids = self.side.encode(parts.flat_values)[:, :-1]  # without eos
        ids = tf.concat([ids, tf.fill([ids.nrows(), 1], self.side.mask_id)], axis=1)
        ids = parts.with_values(ids).merge_dims(1, 2)[:, :-1]  # no gap after the last part
        return tf.concat([ids, tf.fill([ids.nrows(), 1], EOS)], axis=1)

    def filled(self, text, found):
        return self.side.clean(super().filled(text, found))  # a piece may be half a character


def gaps_of(side, mask):
    """The `Gaps` for a side. Raises a ValueError if the side has neither bytes nor a mask token."""
    return (GapsAsBytes if side.mask_id == BOS else GapsBetweenParts)(side, mask)

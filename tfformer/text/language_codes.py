"""Language codes, each of which is one id: at the start of a text, such as ">>de<<", or requested
beside the text."""

import tensorflow as tf

from tfformer.config import UNK
from tfformer.text.lookup import lookup_table

# The shortest match, whatever it contains; a code that is not in the table becomes unk.
PATTERN = ">>.*?<<"


class Codes(tf.Module):
    """The codes that a text may begin with. Text that only looks like a code becomes unk.

    Args:
        ids: {code: its id}, at least one.
    """

    def __init__(self, ids):
        super().__init__(name="codes")
        self._ids = dict(ids)
        self._table = lookup_table(list(ids), ids.values(), UNK)

    def split(self, text):
        """string [B] -> the ids of the codes, RaggedTensor int32 [B, (0 or 1)], and the rest of the
        texts, string [B]."""
        coded = tf.strings.regex_full_match(text, f"(?s){PATTERN}.*")
        code = tf.boolean_mask(text, coded)
        code = tf.strings.regex_replace(code, f"(?s)^({PATTERN}).*", r"\1")
        rest = tf.strings.regex_replace(text, f"(?s)^{PATTERN}", "", replace_global=False)
        lengths = tf.cast(coded, tf.int64)
        return tf.RaggedTensor.from_row_lengths(self._table.lookup(code), lengths), rest

    def split_bytes(self, text):
        """As `split`, for one text in UTF-8 bytes and without a graph: a list of ids, and bytes."""
        end = text.find(b"<<") if text.startswith(b">>") else -1
        if end < 0:
            return [], text
        code = text[: end + 2].decode(errors="replace")
        return [self._ids.get(code, UNK)], text[end + 2 :]


class Languages(tf.Module):
    """The languages of a multilingual model. Every text begins with the code of one.

    No text contains a code: a request names its language beside its text. The interface is that of
    `Codes`.

    Args:
        ids: {piece: its id} of the codes. The language of the piece "__de__" is "de", that of
            "deu_Latn" is "deu_Latn".
        default: the piece of the language of a text without a request.
    """

    def __init__(self, ids, default):
        super().__init__(name="languages")
        self.ids = {language_of(piece): n for piece, n in ids.items()}
        self.default, self.pieces = language_of(default), list(ids)
        self._table = lookup_table(list(self.ids), self.ids.values(), UNK)

    def lookup(self, languages):
        """string [B] -> the ids of their codes, int32 [B]; UNK if there is no such language."""
        return self._table.lookup(languages)

    def contains(self, ids):
        """Whether ids of any shape are codes; boolean."""
        return tf.reduce_any(ids[..., None] == tf.constant(list(self.ids.values())), axis=-1)

    def split(self, text, codes=None):
        """string [B] and the ids of their codes, int32 [B] -> the codes, RaggedTensor int32 [B, 1],
        and the texts. Without `codes`, they are those of the default language."""
        if codes is None:
            codes = tf.fill(tf.shape(text), self.ids[self.default])
        return tf.RaggedTensor.from_row_lengths(codes, tf.ones_like(codes, tf.int64)), text

    def split_bytes(self, text):
        """As `split` with the default language, for one text in UTF-8 bytes: a list of ids, and
        bytes."""
        return [self.ids[self.default]], text


class Beginning(tf.Module):
    """One piece that every text begins with, such as the <s> of BART. The interface is that of
    `Codes`.

    Args:
        number: the id of the piece.
    """

    def __init__(self, number):
        super().__init__(name="beginning")
        self.number = number

    def contains(self, ids):
        """Whether ids of any shape are the piece; boolean."""
        return tf.equal(ids, self.number)

    def split(self, text, codes=None):
        """string [B] -> the id, RaggedTensor int32 [B, 1], and the texts."""
        rows = tf.shape(text)[:1]
        lengths = tf.fill(rows, tf.constant(1, tf.int64))
        return tf.RaggedTensor.from_row_lengths(tf.fill(rows, self.number), lengths), text

    def split_bytes(self, text):
        """As `split`, for one text in UTF-8 bytes: a list of the id, and bytes."""
        return [self.number], text


def language_of(piece):
    """The language whose code is this piece."""
    return piece[2:-2] if piece.startswith("__") and piece.endswith("__") else piece

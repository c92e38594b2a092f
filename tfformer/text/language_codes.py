"""Language codes at the start of a text, such as ">>de<<". Each is one id."""

import tensorflow as tf

from tfformer.config import UNK

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
        self._table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                tf.constant(list(ids)), tf.constant(list(ids.values()), tf.int32)
            ),
            default_value=UNK,
        )

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

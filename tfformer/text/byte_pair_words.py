r"""Splits a text into the words that byte-level BPE merges, by stock operations.

A model has an expression for its words. That of GPT-2 is

    's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+

and that of Llama 3 is

    (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|
    \s*[\r\n]+|\s+(?!\S)|\s+

RE2 cannot look ahead. But `\s+(?!\S)` has one effect: if another character follows a run of blanks,
the last blank does not belong to the run. So the text is first split before that blank, and `\s+`
alone then gives the same. In the second expression, a run up to its last line break is one word
anyway, so a blank that is a line break needs no split.
"""

from typing import NamedTuple

import tensorflow as tf

CUT = b"\xff"  # occurs in no UTF-8, and no expression matches it
# Blanks of Unicode, as `\s` in these expressions; and those that are no line breaks.
BLANK = r"\x{9}-\x{d}\x{85}\p{Z}"
SPACE = r"\x{9}\x{b}\x{c}\x{85}\p{Z}"
ENDINGS = "'s|'t|'re|'ve|'m|'ll|'d"
OTHER = rf"[^{BLANK}\p{{L}}\p{{N}}]+"
GPT_2 = rf"{ENDINGS}| ?\p{{L}}+| ?\p{{N}}+| ?{OTHER}|[{BLANK}]+"


class Words(NamedTuple):
    """How a text is split into words.

    expression: of one word, after the runs of blanks were split.
    last: the characters that are cut off if they end a run of blanks before another character.
    digits: whether each digit is first split from the text around it. Default False.
    """

    expression: str
    last: str
    digits: bool = False

    def split(self, text):
        """UTF-8 -> the same with `CUT` between the words, string [N]."""
        if self.digits:
            text = tf.strings.regex_replace(text, r"(\p{N})", CUT + rb"\1" + CUT)
        runs = f"([{BLANK}]+)([{self.last}][^{BLANK}])"
        text = tf.strings.regex_replace(text, runs, rb"\1" + CUT + rb"\2")
        return tf.strings.regex_replace(text, f"({self.expression})", CUT + rb"\1")


def _llama(numbers):
    """The expression of Llama 3, or another with other `numbers`."""
    return (
        rf"(?i:{ENDINGS})|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{numbers}| ?{OTHER}[\r\n]*|"
        rf"[{BLANK}]*[\r\n]+|[{BLANK}]+"
    )


# The kinds by name. True is GPT-2's.
KINDS = {
    True: Words(GPT_2, BLANK),
    "digits": Words(GPT_2, BLANK, digits=True),
    "llama-3": Words(_llama(r"\p{N}{1,3}"), SPACE),
    "qwen-2": Words(_llama(r"\p{N}"), SPACE),
}

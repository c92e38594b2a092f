"""A SentencePiece BPE with the rules of Llama 2's tokenizer, for a language model."""

import json

import tensorflow as tf

from tfformer.text.symbols import SymbolModel
from tfformer.text.vocabularies import FILLING

# How a text gets a space in front, by name: the beginning that gets one.
UNSPACED = r"^([^ ▁])"
SPACES = {"never": None, "first": UNSPACED, "always": UNSPACED, "prepend": r"^((?s:.))"}
FIRST = "first"


class LlamaPieces(SymbolModel):
    """A `SymbolModel` whose control pieces, such as `</s>`, are symbols too; no text shows them.

    A character that the model lacks becomes its bytes. Control characters stay, because the model
    has pieces for them.

    Args:
        content: a line of JSON, {"space", "prompt_bos", "ends"}, and the bytes of the model. The
            model adds no space itself. `content_of` makes it.
        name: the name of the bytes in an error. Default `"content"`.

    Attributes:
        space: which parts of a text get a space in front: "never" one; "first", the text itself;
            "always" and "prepend", also each part after a symbol. Only "prepend" adds one to a part
            that begins with a space.

    Raises:
        ValueError: the bytes are no such content.
    """

    suffix = ".llama"
    replaces_control = False

    def __init__(self, content, name="content"):
        line, _, model = content.partition(b"\n")
        try:
            settings = json.loads(line)
            self.space, self.prompt_bos = settings["space"], settings["prompt_bos"]
            self._space = SPACES[self.space]
            ends = tuple(settings["ends"])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{name} must begin with a line of its settings: {error}") from error
        super().__init__(model, name)
        self.content, self.ends = content, ends
        if wrong := [n for n in ends if type(n) is not int or not 0 <= n < self.size]:
            raise ValueError(f"{name}: ends must be ids below {self.size}, got {wrong[0]!r}")

    @staticmethod
    def content_of(model, space, prompt_bos, ends):
        """The content of the bytes of a SentencePiece model, and settings as in the class."""
        settings = {"space": space, "prompt_bos": prompt_bos, "ends": list(ends)}
        return json.dumps(settings).encode() + b"\n" + model

    @staticmethod
    def symbols_of(pieces):
        return [
            p.piece
            for p in pieces
            if p.type in (p.USER_DEFINED, p.CONTROL) and not p.piece.startswith(FILLING)
        ]

    def spaced(self, parts):
        texts = parts.flat_values
        if self._space is None:
            return texts
        found = tf.strings.regex_replace(texts, self._space, r" \1")
        if self.space != FIRST:
            return found
        starts = tf.gather(parts.row_starts(), parts.value_rowids())
        return tf.where(tf.equal(tf.range(tf.size(texts, tf.int64)), starts), found, texts)

    def decode(self, ids):
        text = self._kernel.detokenize(ids)
        return text if self._space is None else tf.strings.regex_replace(text, "^ ", "")

    def filled_up(self, size):
        line, _, model = self.content.partition(b"\n")
        return LlamaPieces(line + b"\n" + SymbolModel(model).filled_up(size).content)

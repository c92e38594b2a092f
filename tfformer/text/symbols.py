"""A SentencePiece model with symbols, such as `<extra_id_0>`, anywhere in a text."""

import re

import tensorflow as tf

from tfformer.config import EOS
from tfformer.text.byte_pair_words import CUT
from tfformer.text.lookup import lookup_table
from tfformer.text.vocabularies import SentencePieceModel


class SymbolModel(SentencePieceModel):
    """A SentencePiece model whose user-defined pieces are symbols.

    A text is cut at its symbols, and each part between them is split into pieces by itself, as in
    the tokenizers of Hugging Face. SentencePiece alone would write a space before a symbol.

    Args:
        content: the bytes of the model.
        name: the name of the bytes in an error. Default `"content"`.
    """

    suffix = ".symbols"

    def __init__(self, content, name="content"):
        from sentencepiece.sentencepiece_model_pb2 import ModelProto

        super().__init__(content, name)
        pieces = ModelProto.FromString(content).pieces
        symbols = self.symbols_of(pieces)
        self._symbols = {symbol: self.pieces.index(symbol) for symbol in symbols}
        if symbols:
            longest_first = sorted(symbols, key=len, reverse=True)
            self._pattern = f"({'|'.join(map(re.escape, longest_first))})"
            self._table = lookup_table(symbols, self._symbols.values(), -1)

    @staticmethod
    def symbols_of(pieces):
        """The names of the symbols among the pieces of a `ModelProto`."""
        return [p.piece for p in pieces if p.type == p.USER_DEFINED]

    def spaced(self, parts):
        """The parts of texts, RaggedTensor of strings [B, (P)] -> the same as SentencePiece reads
        them, string [N]. A symbol is an empty part. SentencePiece itself adds a space in front."""
        return parts.flat_values

    def encode(self, text):
        if not self._symbols:
            return super().encode(text)
        text = tf.strings.regex_replace(self.clean(text), self._pattern, CUT + rb"\1" + CUT)
        parts = tf.strings.split(text, CUT)  # [B, (P)]
        symbols = self._table.lookup(parts.flat_values)
        is_symbol = symbols >= 0
        texts = parts.with_values(tf.where(is_symbol, "", parts.flat_values))
        pieces = self._kernel.tokenize(self.spaced(texts))[:, :-1]
        lengths = tf.cast(is_symbol, tf.int64)
        symbols = tf.boolean_mask(symbols, is_symbol)
        symbols = tf.RaggedTensor.from_row_lengths(symbols, lengths)
        ids = parts.with_values(tf.concat([symbols, pieces], axis=1))  # [B, (P), (S)]
        ids = ids.merge_dims(1, 2)  # [B, (S)]
        return tf.concat([ids, tf.fill([ids.nrows(), 1], EOS)], axis=1)

    def ids_of(self, piece):
        return [self._symbols[piece]] if piece in self._symbols else super().ids_of(piece)

    def sampler(self, alpha):
        raise ValueError("subword_sampling must be 0 with this vocabulary, which has symbols")

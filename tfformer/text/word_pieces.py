"""WordPiece, the vocabulary of BERT, in the graph by operations that a stock server has."""

import functools
import json

import numpy as np
import tensorflow as tf
import tensorflow_text

from tfformer.config import BOS, EOS, UNK
from tfformer.text.vocabularies import FILLING, SPECIAL, Side

INSIDE = "##"  # the beginning of a piece that continues a word
MASKED = "[MASK]"  # in no text, because its brackets are words
LONGEST_WORD = 100  # characters; a longer word is unknown
# Characters are classified as in the tokenizers library, by the tables of Unicode 8. For the
# characters that have come since, RE2 has newer tables: an expression (NEWER)|class keeps them.
CONTROL = r"\x{0}-\x{8}\x{b}\x{c}\x{e}-\x{1f}\x{7f}-\x{9f}\p{Cf}\p{Co}\x{fffd}"
NEWER_CONTROL = r"\x{890}-\x{891}\x{8e2}\x{110cd}\x{13430}-\x{1343f}"
BLANK = r"\t\n\r\p{Z}"
CHINESE = (
    r"\x{4e00}-\x{9fff}\x{3400}-\x{4dbf}\x{20000}-\x{2a6df}\x{2a700}-\x{2b73f}"
    r"\x{2b740}-\x{2b81f}\x{2b920}-\x{2ceaf}\x{f900}-\x{faff}\x{2f800}-\x{2fa1f}"
)
NEWER_ACCENTS = (
    r"\x{7fd}\x{898}-\x{8e1}\x{9fe}\x{afa}-\x{aff}\x{b55}\x{c04}-\x{c3c}\x{d00}\x{d3b}-\x{d3c}"
    r"\x{d81}\x{eba}\x{ece}\x{180f}-\x{1886}\x{1abf}-\x{1ace}\x{1df6}-\x{1dfb}\x{a82c}\x{a8c5}"
    r"\x{a8ff}\x{a9bd}\x{10d24}-\x{10f85}\x{11070}-\x{11074}\x{110c2}\x{111c9}\x{111cf}"
    r"\x{1123e}-\x{11241}\x{1133b}\x{11438}-\x{1145e}\x{1182f}-\x{13455}\x{16f4f}\x{16fe4}"
    r"\x{1cf00}-\x{1cf46}\x{1e000}-\x{1e4ef}\x{1e944}-\x{1e94a}"
)
PUNCTUATION = r"!-/:-@\[-`{-~\p{P}\x{166d}\x{111c9}"
NEWER_PUNCTUATION = (
    r"\x{61d}\x{9fd}-\x{a76}\x{c77}-\x{c84}\x{1b7d}-\x{1b7e}\x{2e43}-\x{2e5d}\x{10ead}-\x{10f89}"
    r"\x{1144b}-\x{1145d}\x{11660}-\x{116b9}\x{1183b}-\x{11fff}\x{12ff1}-\x{12ff2}"
    r"\x{16e97}-\x{16fe2}\x{1e95e}-\x{1e95f}"
)
MARK = "\x01"  # stands around punctuation; `CONTROL` has been removed before
BYTES_PER_CHARACTER = 4


class WordPieces(Side):
    """A WordPiece vocabulary (Schuster and Nakajima 2012; Devlin et al. 2019).

    A text is split at blanks and around punctuation. Each word is written with the longest piece
    that begins it, then the longest one that continues it with "##", and so on. If that is not
    possible, or the word is longer than `longest_word`, the whole word is unknown.

    (`FastBertNormalizer` of TensorFlow Text gives other words than the tokenizers of Hugging Face:
    it puts blanks in place of control characters and keeps invisible ones. So regular expressions
    normalise here, and `FastWordpieceTokenizer` finds the pieces.)

    Args:
        pieces: strings, in the order of their ids, from 4 on.
        lowercase: whether texts are lowercased. Default True.
        strip_accents: whether accents are removed. Default None: if texts are lowercased.
        split_chinese: whether each Chinese character is a word. Default True.
        longest_word: maximum characters of a word. Default 100.

    Raises:
        ValueError: the pieces cannot form a vocabulary.
    """

    replaces_control = False
    suffix = ".wordpieces"

    def __init__(
        self, pieces, lowercase=True, strip_accents=None, split_chinese=True,
        longest_word=LONGEST_WORD,
    ):  # fmt: skip
        pieces = list(pieces)
        _require_pieces(pieces)
        options = [lowercase, strip_accents, split_chinese, longest_word]
        super().__init__(json.dumps([pieces, *options]).encode(), "word_pieces")
        self.lowercase, self.split_chinese = lowercase, split_chinese
        self.strip_accents = lowercase if strip_accents is None else strip_accents
        self.longest_word = longest_word
        self._pieces = [*SPECIAL, *pieces]
        self._kernel = _kernel(self._pieces, longest_word)
        self._names = tf.constant(self._pieces)

    @classmethod
    def from_content(cls, content, name="content"):
        try:
            return cls(*json.loads(content))
        except (TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"{name} must be a vocabulary of WordPiece: {error}") from error

    @property
    def pieces(self):
        return self._pieces

    @functools.cached_property
    def _ids(self):
        return {piece: n for n, piece in enumerate(self._pieces) if n > EOS}

    @property
    def byte_ids(self):
        return []

    @functools.cached_property
    def mask_id(self):
        return self._ids.get(MASKED, BOS)

    @functools.cached_property
    def begins_word(self):
        return [not piece.startswith(INSIDE) for piece in self._pieces]

    def spelled(self, ids):
        return tf.strings.regex_replace(self.names(ids), f"^{INSIDE}", "")

    def encode(self, text):
        words = tf.strings.split(self._spaced(self.clean(text)))  # [B, (W)]
        ids = self._kernel.tokenize(self._short(words.flat_values))  # [all W, (N)]
        ids = words.with_values(ids).merge_dims(1, 2)
        return tf.concat([ids, tf.fill([words.nrows(), 1], EOS)], axis=1)

    def encode_with_offsets(self, text):
        """string [B] -> ids without eos, and the byte offsets of each piece in the text, start and
        end (exclusive): RaggedTensors of int32 [B, (S)]."""
        characters, starts = tf.strings.unicode_split_with_offsets(text, "UTF-8")  # [B, (C)]
        normal = self._spaced(characters.flat_values)
        ends = starts.flat_values + _size(characters.flat_values)
        sizes = _size(normal)
        spaced = tf.strings.reduce_join(characters.with_flat_values(normal), axis=1)
        words, begins, _ = tensorflow_text.WhitespaceTokenizer().tokenize_with_offsets(spaced)
        ids, first, last = self._kernel.tokenize_with_offsets(self._short(words.flat_values))
        first, last = (tf.cast(one.values, tf.int64) for one in (first, last))
        whole = _size(words.flat_values)
        rows = ids.value_rowids()
        last = tf.where(ids.values == UNK, tf.gather(whole, rows), last)
        # The positions in all normalised texts, one after the other.
        before = tf.cumsum(_size(spaced), exclusive=True)
        before = tf.gather(before, words.value_rowids())
        before = tf.gather(before + tf.cast(begins.flat_values, tf.int64), rows)  # of each word
        character = tf.repeat(tf.range(tf.size(sizes)), sizes)  # of each byte
        first, last = (tf.gather(character, before + one) for one in (first, last - 1))
        nested = words.with_values(ids).merge_dims(1, 2)
        offsets = (tf.gather(starts.flat_values, first), tf.gather(ends, last))
        return nested, *(nested.with_flat_values(tf.cast(one, tf.int32)) for one in offsets)

    def _spaced(self, text):
        """Valid UTF-8 of any shape, whole texts or single characters -> normalised texts with
        blanks between words."""
        text = tf.strings.regex_replace(text, f"([{NEWER_CONTROL}])|[{CONTROL}]", r"\1")
        text = tf.strings.regex_replace(text, f"[{BLANK}]", " ")
        if self.split_chinese:
            text = tf.strings.regex_replace(text, f"([{CHINESE}])", r" \1 ")
        if self.strip_accents:
            text = tensorflow_text.normalize_utf8(text, "NFD")
            text = tf.strings.regex_replace(text, f"([{NEWER_ACCENTS}])|\\p{{Mn}}", r"\1")
        if self.lowercase:
            # A sigma at the end of a word would become another letter than elsewhere.
            text = tf.strings.lower(tf.strings.regex_replace(text, "Σ", "σ"), "utf-8")
        text = tf.strings.regex_replace(text, f"([{PUNCTUATION}])", rf"{MARK}\1{MARK}")
        text = tf.strings.regex_replace(text, f"{MARK}([{NEWER_PUNCTUATION}]){MARK}", r"\1")
        return tf.strings.regex_replace(text, MARK, " ")

    def _short(self, words):
        """The words [N], but a word over the limit becomes one that is unknown."""
        is_long = tf.strings.length(words, unit="UTF8_CHAR") > self.longest_word
        return tf.where(is_long, MARK, words)

    def decode(self, ids):
        names = ids.with_flat_values(self.names(ids.flat_values))
        text = tf.strings.reduce_join(names, axis=1, separator=" ")
        return tf.strings.regex_replace(text, f" {INSIDE}", "")

    def names(self, ids):
        return tf.gather(self._names, ids)

    def ids_of(self, piece):
        known = self._ids.get(piece)
        if known is not None:
            return [known]
        return self.encode(tf.constant([piece]))[0, :-1].numpy().tolist() or [UNK]

    def sampler(self, alpha):
        return None

    def filled_up(self, size):
        pieces, *options = json.loads(self.content)
        more = (f"{FILLING}{n}" for n in range(self.size, size))
        return WordPieces([*pieces, *more], *options)

    def _text_of(self, ids):
        return " ".join(self._pieces[n] for n in ids).replace(f" {INSIDE}", "")


def _size(text):
    """The number of bytes, int64."""
    return tf.cast(tf.strings.length(text), tf.int64)


def _kernel(pieces, longest_word):
    """The operation that splits words into these pieces. Raises a ValueError if none can be."""
    try:
        return tensorflow_text.FastWordpieceTokenizer(
            model_buffer=_model(pieces, longest_word), token_out_type=tf.int32
        )
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"pieces cannot form a vocabulary of WordPiece: {error}") from error


def _model(pieces, longest_word):
    """The vocabulary in the form of the operation, as a constant tensor."""
    from tensorflow_text.core.pybinds import pywrap_fast_wordpiece_tokenizer_model_builder as build

    model = build.build_fast_wordpiece_model(
        pieces, longest_word * BYTES_PER_CHARACTER, INSIDE, SPECIAL[UNK], True, False
    )
    return tf.constant(np.frombuffer(model, np.uint8))


def _require_pieces(pieces):
    """Raises a ValueError unless the pieces can form a vocabulary."""
    if not pieces:
        raise ValueError("pieces must be at least one, got none")
    seen = set()
    for number, piece in enumerate(pieces, 1):
        if not isinstance(piece, str) or not piece or piece in SPECIAL:
            raise ValueError(
                f"piece {number} must be a string, not empty, and none of {SPECIAL}, got {piece!r}"
            )
        if piece in seen:
            raise ValueError(f"pieces must each be there once, got {piece!r} twice")
        seen.add(piece)

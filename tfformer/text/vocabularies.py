"""The text sides, source and target: a SentencePiece model, a table of pieces, or of labels.

Each side converts text to ids and back, by operations in the graph. Training and the server use the
same operations, so both tokenise alike. Code outside this folder does not depend on the kind of a
side.
"""

import abc
import functools
import hashlib
import re

import numpy as np
import sentencepiece
import tensorflow as tf
import tensorflow_text

from tfformer.annotations import Tensor
from tfformer.config import BOS, EOS, PAD, UNK
from tfformer.text.language_codes import Beginning, Codes, Languages, language_of
from tfformer.text.lookup import lookup_table
from tfformer.text.sampling import SubwordSampler

SPACE = "▁"  # U+2581, by which SentencePiece writes a space
SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")  # the names of ids 0 to 3
MASK = "<mask>"  # the name of the mask token in RoBERTa and XLM-R
FILLING = "\ue000"  # of the Private Use Area: the first character of a piece that is in no text
CODE = ">>.*<<"  # the code of a language, at the start of a text


def valid_utf8(text):
    """Any bytes, string [B] -> valid UTF-8; invalid bytes become U+FFFD."""
    return tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace")


def clean(text):
    """Any bytes -> valid UTF-8 without control characters; string [B] -> string [B].

    An invalid byte becomes U+FFFD, and a run of control characters (NUL, tab, newline, ...) becomes
    a space. SentencePiece then normalises (NFKC) and merges spaces itself.
    """
    return tf.strings.regex_replace(valid_utf8(text), r"\p{Cc}+", " ")


class Side(tf.Module, abc.ABC):
    """Base class of a side, source or target. Ids: pad 0, unk 1, bos 2, eos 3, then the pieces.

    A side is identified by its class and its `content`: if both are equal, two sides are equal. It
    is stored as a file with that content, whose suffix gives the class. A SavedModel that tracks
    the side, as an attribute of a `tf.Module`, contains everything that the side needs.

    Attributes:
        suffix: of the file, with its dot.
        content: the bytes of the file.
        pieces: a list of their names in the order of the ids, the four special ones first.
        byte_ids: a list of the ids that stand for single UTF-8 bytes.
        codes: the `Codes` that a text may begin with, or None; or its `languages`; or the
            `Beginning` of every text.
        languages: the `Languages` of a multilingual model, whose code every text begins with, or
            None.
        prompt_bos: whether bos comes before the prompt of a language model. If not, it comes only
            before an empty prompt.
        ends: a tuple of the ids that end a generated text, besides eos.
    """

    suffix, codes, languages, prompt_bos, ends = "", None, None, True, ()
    # Whether `clean` puts a space in place of control characters.
    replaces_control = True
    # Whether blanks before a gap belong to it.
    mask_takes_blanks = True

    def __init__(self, content: bytes, name: str) -> None:
        super().__init__(name=name)
        self.content = content

    @classmethod
    @abc.abstractmethod
    def from_content(cls, content: bytes, name: str = "content") -> "Side":
        """Make a side from the content of its file.

        Args:
            content: its bytes.
            name: the name of the bytes in an error.

        Raises:
            ValueError: they are not such a file.
        """

    def clean(self, text: Tensor) -> Tensor:
        """Clean any bytes before tokenisation: string [B] -> string [B]."""
        return clean(text) if self.replaces_control else valid_utf8(text)

    @property
    @abc.abstractmethod
    def pieces(self) -> list[str]:
        """See the class."""

    @property
    @abc.abstractmethod
    def byte_ids(self) -> list[int]:
        """See the class."""

    @functools.cached_property
    def mask_id(self) -> int:
        """The id of a gap in a text, for a masked language model: that of a piece which is in no
        text, such as "[MASK]", or bos."""
        return BOS

    @functools.cached_property
    def begins_word(self) -> list[bool]:
        """Whether each piece begins a word: a list of booleans in the order of the ids."""
        return [piece.startswith(SPACE) for piece in self.pieces]

    def spelled(self, ids: Tensor) -> Tensor:
        """int32 ids [N] -> the text of each piece alone, string [N]."""
        return tf.strings.regex_replace(self.names(ids), SPACE, "")

    @property
    def size(self) -> int:
        """The number of ids."""
        return len(self.pieces)

    @property
    def has_exact_scores(self) -> bool:
        """Whether every version of SentencePiece splits a text into the same pieces."""
        return True

    @abc.abstractmethod
    def encode(self, text: Tensor) -> Tensor:
        """string [B] -> RaggedTensor of int32 ids [B, (S)], each row ending with eos."""

    @property
    def first(self) -> int | None:
        """The id that a text begins with, unless a request names another; None: there is none."""
        if self.languages is not None:
            return self.languages.ids[self.languages.default]
        return self.codes.number if isinstance(self.codes, Beginning) else None

    @abc.abstractmethod
    def decode(self, ids: Tensor) -> Tensor:
        """RaggedTensor of int32 ids [B, (S)], without special ids -> string [B]."""

    @abc.abstractmethod
    def names(self, ids: Tensor) -> Tensor:
        """int32 ids of any shape -> the names of their pieces, a string tensor of that shape."""

    @abc.abstractmethod
    def ids_of(self, piece: str) -> list[int]:
        """The ids with which this side writes one piece of another side; a list, not empty."""

    @abc.abstractmethod
    def sampler(self, alpha: float) -> SubwordSampler | None:
        """A sampler of segmentations, such as a `SubwordSampler`; None if a text has only one.

        Raises:
            ValueError: this side does not support sampling.
        """

    @abc.abstractmethod
    def filled_up(self, size: int) -> "Side":
        """A side of `size` ids that gives the same ids; the added pieces occur in no text."""

    @abc.abstractmethod
    def _text_of(self, ids):
        """The text of a list of ids."""

    def is_same(self, other: "Side") -> bool:
        """Whether `other` is a side of the same class and content."""
        return type(self) is type(other) and self.content == other.content

    def sample_text(self, size: int, seed: int) -> str:
        """A text of `size` random pieces, determined by the seed; never empty."""
        pieces = np.setdiff1d(np.arange(EOS + 1, self.size), self.byte_ids)
        ids = np.random.default_rng(seed).choice(pieces, size)
        return self._text_of(ids.tolist()) or "a"


class SentencePieceModel(Side):
    """A SentencePiece model (Kudo and Richardson 2018): pieces of words, learned from raw text.

    The server needs only tensorflow-text, which a stock TensorFlow Serving contains.

    Args:
        content: the bytes of the model.
        name: the name of the bytes in an error. Default `"content"`.

    Set seeds first: `keras.utils.set_random_seed` and `tf.random.set_seed` clear TensorFlow's
    kernels, which own the models of all earlier sides ("Resource ... does not exist").
    """

    suffix = ".model"

    SCORE_STEP = 1 / 1024  # the scores of `learn_model` are multiples of it

    def __init__(self, content, name="content"):
        super().__init__(content, "sentencepiece")
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=content)
        except RuntimeError as error:
            raise ValueError(
                f"{name} must be a SentencePiece model, got {len(content)} bytes"
            ) from error
        model = self._processor
        special = (model.pad_id(), model.unk_id(), model.bos_id(), model.eos_id())
        if special != (PAD, UNK, BOS, EOS):
            raise ValueError(
                f"{name} must have pad, unk, bos, eos = {(PAD, UNK, BOS, EOS)}, got {special}"
            )
        # A unique name: `tf.saved_model.load` shares one kernel among all models of one name in a
        # process. Two sides, or two SavedModels, would then use the first model.
        unique = f"sentencepiece_{hashlib.sha256(content).hexdigest()}"
        self._kernel = tensorflow_text.SentencepieceTokenizer(
            content, out_type=tf.int32, add_eos=True, name=unique
        )
        codes = {piece: n for n, piece in enumerate(self.pieces) if re.fullmatch(CODE, piece)}
        # A learned piece may look like a code. Real codes are marked as unused.
        codes = {piece: n for piece, n in codes.items() if model.is_unused(n)}
        self.codes = Codes(codes) if codes else None
        if languages := self._language_pieces():
            self.codes = self.languages = Languages(languages, next(iter(languages)))

    def _language_pieces(self):
        """{piece: id} of the languages, the default first: the model names them as those that it
        accepts, and they are control pieces."""
        model, own = self._processor, range(EOS + 1, self.size)
        control = (self.pieces[n] for n in own if model.is_control(n))
        if not any(not piece.startswith(FILLING) for piece in control):
            return {}  # without `sentencepiece_model_pb2`, which needs a newer protobuf
        from sentencepiece.sentencepiece_model_pb2 import ModelProto

        found = {}
        for piece in ModelProto.FromString(self.content).trainer_spec.accept_language:
            n = self._processor.piece_to_id(piece)
            if self._processor.is_control(n):
                found[piece] = n
        return found

    def with_language(self, language):
        """This model with another of its `languages` as the default."""
        from sentencepiece.sentencepiece_model_pb2 import ModelProto

        model = ModelProto.FromString(self.content)
        pieces = sorted(self.languages.pieces, key=lambda piece: language_of(piece) != language)
        del model.trainer_spec.accept_language[:]
        model.trainer_spec.accept_language.extend(pieces)
        return SentencePieceModel(model.SerializeToString())

    @classmethod
    def from_content(cls, content, name="content"):
        return cls(content, name)

    @functools.cached_property
    def pieces(self):
        return [self._processor.id_to_piece(n) for n in range(self.size)]

    @functools.cached_property
    def byte_ids(self):
        return [n for n in range(self.size) if self._processor.is_byte(n)]

    @property
    def size(self):
        return self._processor.vocab_size()

    @functools.cached_property
    def mask_id(self):
        model, found = self._processor, self._processor.piece_to_id(MASK)
        is_mask = model.id_to_piece(found) == MASK
        return found if is_mask and (model.is_unused(found) or model.is_control(found)) else BOS

    @property
    def has_exact_scores(self):
        scores = (self._processor.get_score(n) for n in range(self.size))
        return all((score / self.SCORE_STEP).is_integer() for score in scores)

    def encode(self, text, codes=None):
        """As `Side.encode`. `codes`, int32 [B], are the ids of the texts' languages, if the model
        has `languages`. Default: the default language."""
        text = self.clean(text)
        if self.codes is None:
            return self._kernel.tokenize(text)
        code, text = self.codes.split(text) if codes is None else self.codes.split(text, codes)
        return tf.concat([code, self._kernel.tokenize(text)], axis=1)

    def encode_with_offsets(self, text):
        """string [B] -> ids without eos, and the byte offsets of each piece in the text, start and
        end (exclusive): RaggedTensors of int32 [B, (S)].

        The text is not cleaned. If a character is split into bytes, each a piece, the last one
        stands for the whole character.
        """
        found = self._kernel.tokenize_with_offsets(text)
        ids, starts, ends = (tf.cast(one[:, :-1], tf.int32) for one in found)  # without eos
        is_byte = tf.gather(tf.constant([self._processor.is_byte(n) for n in range(self.size)]),
                            ids.flat_values)  # fmt: skip
        flat = ends.flat_values
        for _ in range(3):  # a character has at most four bytes
            after = tf.concat([flat[1:], flat[-1:]], axis=0)
            flat = tf.where(is_byte & tf.equal(flat, starts.flat_values), after, flat)
        return ids, starts, ends.with_flat_values(flat)

    def decode(self, ids):
        return self._kernel.detokenize(ids)

    def names(self, ids):
        return self._kernel.id_to_string(ids)

    def ids_of(self, piece):
        ids = self._processor.encode(piece.replace(SPACE, " "))
        # SentencePiece adds a space at the start of a text; a piece from inside a word has none.
        space = self._processor.piece_to_id(SPACE)
        inside = not piece.startswith(SPACE) and ids[:1] == [space] and len(ids) > 1
        return ids[1:] if inside else ids

    def sampler(self, alpha):
        return SubwordSampler(self.content, alpha, self.codes)

    def filled_up(self, size):
        from sentencepiece.sentencepiece_model_pb2 import ModelProto

        model = ModelProto.FromString(self.content)
        minimum = min(piece.score for piece in model.pieces)
        for number in range(len(model.pieces), size):
            model.pieces.add(piece=f"{FILLING}{number}", score=minimum - 1)
        model.trainer_spec.vocab_size = size
        return type(self)(model.SerializeToString())

    def _text_of(self, ids):
        return self._processor.decode(ids)


class PieceTable(Side):
    """A table of pieces. Text between two blanks is one piece, or unknown.

    For labels, one for each line or each word, and for text that another program has split into
    pieces. A text is cleaned as for all sides, but not normalised: pieces and words match byte by
    byte. A blank is a space, U+0020.

    Args:
        pieces: strings, in the order of their ids, from 4 on.
        name: the name of the pieces in an error. Default `"pieces"`.

    Raises:
        ValueError: there are no pieces; or a piece is empty, contains a blank or a control
            character, appears twice, or has the name of a special id.
    """

    suffix = ".pieces"
    separator = " "  # between two pieces of a text

    def __init__(self, pieces, name="pieces"):
        pieces = list(pieces)
        _require_pieces(pieces, name, self.separator)
        super().__init__("".join(f"{piece}\n" for piece in pieces).encode(), "pieces")
        self._table = lookup_table(pieces, range(EOS + 1, EOS + 1 + len(pieces)), UNK)
        self._names = tf.constant([*SPECIAL, *pieces])

    @classmethod
    def from_content(cls, content, name="content"):
        try:
            lines = content.decode().removesuffix("\n")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{name} must be pieces in UTF-8, one a line, got {len(content)} bytes: {error}"
            ) from error
        return cls(lines.split("\n") if lines else [], name)

    @functools.cached_property
    def pieces(self):
        return [*SPECIAL, *self.content.decode().split("\n")[:-1]]

    @functools.cached_property
    def _ids(self):
        return {piece: n for n, piece in enumerate(self.pieces) if n > EOS}

    @property
    def byte_ids(self):
        return []

    def encode(self, text):
        words = self.words(text)
        ids = words.with_flat_values(self._table.lookup(words.flat_values))
        return tf.concat([ids, tf.fill([words.nrows(), 1], EOS)], axis=1)

    def words(self, text):
        """string [B] -> RaggedTensor of strings [B, (S)], each a piece or unknown."""
        return tf.strings.split(clean(text))

    def decode(self, ids):
        names = ids.with_flat_values(self.names(ids.flat_values))
        return tf.strings.reduce_join(names, axis=1, separator=self.separator)

    def names(self, ids):
        return tf.gather(self._names, ids)

    def ids_of(self, piece):
        return [self._ids.get(piece, UNK)]

    def sampler(self, alpha):
        return None

    def filled_up(self, size):
        return type(self)(
            [*self.pieces[EOS + 1 :], *(f"{FILLING}{n}" for n in range(self.size, size))]
        )

    def _text_of(self, ids):
        return self.separator.join(self.pieces[n] for n in ids)


class LabelTable(PieceTable):
    """A table of labels. Text between two tabs is one label, so a label may contain blanks.

    Args:
        pieces: the labels, in the order of their ids, from 4 on.
        name: the name of the labels in an error. Default `"pieces"`.

    Raises:
        ValueError: as `PieceTable`, except that a label may contain blanks.
    """

    suffix = ".labels"
    separator = "\t"

    @property
    def labels(self):
        """The labels in the order of their ids; a list."""
        return self.pieces[EOS + 1 :]

    def words(self, text):
        parts = tf.strings.split(text, self.separator)
        parts = parts.with_flat_values(clean(parts.flat_values))
        return tf.ragged.boolean_mask(parts, tf.not_equal(parts, ""))


def _require_pieces(pieces, name, separator):
    """Raises a ValueError unless the pieces can form a table."""
    if not pieces:
        raise ValueError(f"{name} must have at least one piece, got none")
    # `clean` changes a string that is not valid text.
    encoded = [str(piece).encode(errors="replace") for piece in pieces]
    seen, cleaned = set(), clean(tf.constant(encoded)).numpy()
    for number, (piece, text) in enumerate(zip(pieces, cleaned, strict=True), 1):
        if not isinstance(piece, str):
            wrong = "be a string"
        elif not piece:
            wrong = "not be empty"
        elif piece in SPECIAL:
            wrong = f"have another name than the special ones, {' '.join(SPECIAL)}"
        elif piece in seen:
            wrong = "be there once"
        elif separator in piece or text.decode() != piece:
            blank = "a blank or " if separator == " " else ""
            wrong = f"be UTF-8 without {blank}a control character"
        else:
            seen.add(piece)
            continue
        raise ValueError(f"{name}: piece {number} must {wrong}, got {piece!r}")

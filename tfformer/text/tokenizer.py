"""Converts text to ids and back in the graph, for a source and a target."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Self

import tensorflow as tf

from tfformer.annotations import Tensor
from tfformer.config import EOS, PAD, whole
from tfformer.text import learn_vocabulary
from tfformer.text.byte_pairs import BytePairs
from tfformer.text.language_codes import Languages
from tfformer.text.llama_pieces import LlamaPieces
from tfformer.text.symbols import SymbolModel
from tfformer.text.vocabularies import LabelTable, PieceTable, SentencePieceModel, Side
from tfformer.text.word_pieces import WordPieces

SIDES = ("source", "target")
# The classes by file suffix.
CLASSES = {
    side.suffix: side
    for side in (
        SentencePieceModel, PieceTable, LabelTable, SymbolModel, LlamaPieces, WordPieces,
        BytePairs,
    )
}  # fmt: skip
# All possible file names of a tokenizer: `source.model`, ...
FILES = tuple(f"{side}{suffix}" for side in SIDES for suffix in CLASSES)


class Tokenizer(tf.Module):
    """Converts text to ids and back, for a source side and a target side, which may be the same.

    Ids: pad 0, unk 1, bos 2, eos 3, then the pieces.

    Args:
        source_model: the bytes of a SentencePiece model; or a side, such as a
            `tfformer.text.vocabularies.PieceTable`.
        target_model: the same for the target. Default: that of the source.

    Attributes:
        source, target: the sides; one object if they are the same.

    Set seeds first: `keras.utils.set_random_seed` and `tf.random.set_seed` clear TensorFlow's
    kernels, which own the SentencePiece models of all earlier tokenizers ("Resource ... does not
    exist").

    Raises:
        ValueError: a side is neither the bytes of a SentencePiece model nor a `Side`, or it has
            other special ids.

    Example:
        >>> tokenizer = Tokenizer.train(["ein Haus", "a house"], vocabulary_size=300)
        >>> ids = tokenizer.encode_source(["ein Haus"])
        >>> int(ids[0, -1])  # eos
        3
        >>> tokenizer.decode(ids).numpy().tolist()
        [b'ein Haus']
    """

    source: Side
    target: Side

    def __init__(
        self, source_model: bytes | Side, target_model: bytes | Side | None = None
    ) -> None:
        super().__init__(name="tokenizer")
        self.source = self.target = _side(source_model, "source_model")
        if target_model is not None and not _is_of(target_model, self.source):
            self.target = _side(target_model, "target_model")

    @classmethod
    def train(
        cls,
        source_texts: Iterable[str],
        target_texts: Iterable[str] | None = None,
        *,
        vocabulary_size: int = 8000,
        kind: str = "unigram",
        shared: bool = True,
        split_digits: bool = False,
    ) -> Self:
        """Learns the pieces of SentencePiece models from text.

        Args:
            source_texts, target_texts: iterables of strings; up to 1,000,000 of each are used.
            vocabulary_size: the maximum number of ids, including special ones and the 256 bytes. A
                small corpus gives fewer. Default 8000.
            kind: `"unigram"` (default), `"bpe"` or `"char"`.
            shared: one model for source and target (default), or one each.
            split_digits: whether every digit is a separate piece. Default False.

        Raises:
            ValueError: a value breaks its rule; the message names argument, rule and value.
        """
        if kind not in learn_vocabulary.KINDS:
            raise ValueError(f"kind must be one of {learn_vocabulary.KINDS}, got {kind!r}")
        sides = [source_texts] if target_texts is None else [source_texts, target_texts]
        for side, texts in zip(SIDES, sides, strict=False):
            if isinstance(texts, (str, bytes)) or not hasattr(texts, "__iter__"):
                raise ValueError(f"{side}_texts must be an iterable of strings, got {texts!r}")

        def learn(*texts):
            return learn_vocabulary.learn_model(texts, vocabulary_size, kind, split_digits)

        return cls(learn(*sides)) if shared or len(sides) == 1 else cls(*map(learn, sides))

    @classmethod
    def from_files(cls, files: Mapping[str, bytes]) -> Self:
        """Make the tokenizer from the files of the property `files`.

        Args:
            files: {name: bytes} of one file for the source and at most one for the target, with
                names from `FILES`. Without a target file, the source serves both.

        Raises:
            ValueError: a side has no file or too many, or a file is damaged; the message names it.
        """
        sides: list[Side] = []
        for side in SIDES:
            names = [name for name in FILES if name in files and name.startswith(side)]
            if len(names) > 1 or (side == "source" and not names):
                known = " or ".join(name for name in FILES if name.startswith(side))
                raise ValueError(f"the {side} must have one file, {known}, got {names}")
            for name in names:
                kind = CLASSES[name.removeprefix(side)]
                if not (sides and type(sides[0]) is kind and sides[0].content == files[name]):
                    sides.append(kind.from_content(files[name], name))
        return cls(*sides)

    @property
    def files(self) -> dict[str, bytes]:
        """{name: bytes} of the files to store; a side used for both is stored once."""
        files = {f"source{self.source.suffix}": self.source.content}
        if not self.is_shared:
            files[f"target{self.target.suffix}"] = self.target.content
        return files

    def extended(
        self, source_texts: Iterable[str], target_texts: Iterable[str], count: int
    ) -> "Tokenizer":
        """A tokenizer with more pieces, added after those of this one, whose ids stay.

        First come characters that this tokenizer writes as bytes, the most frequent first, then
        pieces that a SentencePiece model of the same kind learns from the texts. A table of pieces
        gets the most frequent words that it lacks.

        Args:
            source_texts, target_texts: iterables of strings.
            count: the maximum number of new pieces for each side; 0 or more.

        Raises:
            ValueError: `count` is not an integer of at least 0, or the texts are not enough to
                learn from.
        """
        whole("count", count, minimum=0)
        if self.is_shared:
            return Tokenizer(
                learn_vocabulary.extend(self.source, [source_texts, target_texts], count)
            )
        pairs = ((self.source, source_texts), (self.target, target_texts))
        return Tokenizer(*(learn_vocabulary.extend(side, [texts], count) for side, texts in pairs))

    @property
    def languages(self) -> dict[str, Languages]:
        """{"source_language" or "target_language": its `Languages`} of a multilingual model; empty
        for any other.

        If both sides begin with a code, each with that of its own language. If only the source
        does, its code names the target language.
        """
        source, target = self.source.languages, self.target.languages
        if source is not None and target is not None:
            return {"source_language": source, "target_language": target}
        one = source if source is not None else target
        return {} if one is None else {"target_language": one}

    def require_languages(self, **languages: str | None) -> None:
        """Check that the tokenizer has these languages, by name; None is any.

        Raises:
            ValueError: it has no such language.
        """
        for name, language in languages.items():
            known = self.languages[name].ids if name in self.languages else {}
            if language is not None and language not in tuple(known):  # it may be unhashable
                rule = f"one of {', '.join(sorted(known))}" if known else "None for this model"
                raise ValueError(f"{name} must be {rule}, got {language!r}")

    def with_languages(
        self, source_language: str | None = None, target_language: str | None = None
    ) -> "Tokenizer":
        """This tokenizer with other default languages. Default: its own.

        Raises:
            ValueError: it has no such language.
        """
        self.require_languages(source_language=source_language, target_language=target_language)
        source, target = self.source, self.target
        of_source = source_language if target.languages is not None else target_language
        if of_source is not None:
            source = source.with_language(of_source)
        if target_language is not None and target.languages is not None:
            target = target.with_language(target_language)
        return self if (source, target) == (self.source, self.target) else Tokenizer(source, target)

    def made_of(self, old: "Tokenizer", side: str) -> list[list[int]]:
        """For each piece that this tokenizer adds to `old`, the ids with which `old` writes it.

        Args:
            old: the `Tokenizer` that this one extends.
            side: `"source"` or `"target"`.

        Returns:
            A list of lists of ids, in the order of the new ids.

        Raises:
            ValueError: `side` is unknown.
        """
        _check_name(side)
        return learn_vocabulary.made_of(getattr(self, side), getattr(old, side))

    def pieces(self, side: str) -> list[str]:
        """The pieces of a side, `"source"` or `"target"`, in the order of their ids.

        Raises:
            ValueError: `side` is unknown.
        """
        _check_name(side)
        return list(getattr(self, side).pieces)

    def sample_text(self, size: int, seed: int) -> str:
        """A text of `size` random pieces of the source side, determined by the seed."""
        return self.source.sample_text(size, seed)

    @property
    def is_shared(self) -> bool:
        """Whether source and target use the same side."""
        return self.source is self.target

    @property
    def is_one_vocabulary(self) -> bool:
        """Whether an id is the same piece on both sides, even if they split texts differently."""
        return self.is_shared or self.source.pieces == self.target.pieces

    @property
    def source_model(self) -> bytes:
        """The bytes of the source side: of its SentencePiece model or its table of pieces."""
        return self.source.content

    @property
    def target_model(self) -> bytes:
        """The bytes of the target side."""
        return self.target.content

    @property
    def source_vocabulary_size(self) -> int:
        return self.source.size

    @property
    def target_vocabulary_size(self) -> int:
        return self.target.size

    @property
    def sha256(self) -> str:
        """The sha256 of both sides. A run's weights are valid only for this tokenizer."""
        contents = (self.source.content, self.target.content)
        parts = [hashlib.sha256(content).digest() for content in contents]
        return hashlib.sha256(b"".join(parts)).hexdigest()

    def encode_source(self, text: Tensor) -> Tensor:
        """string [B] -> RaggedTensor of int32 ids [B, (S)], each row ending with eos."""
        return self.source.encode(text)

    def encode_target(self, text: Tensor) -> Tensor:
        """string [B] -> RaggedTensor of int32 ids [B, (T)], each row ending with eos, no bos."""
        return self.target.encode(text)

    def decode(self, ids: Tensor) -> Tensor:
        """int32 ids [B, T], dense or ragged -> string [B], without special ids.

        Raises:
            ValueError: the ids are not int32, or eager ids are outside the target vocabulary.
        """
        if isinstance(ids, tf.RaggedTensor):
            ids = ids.to_tensor(PAD)
        ids = tf.convert_to_tensor(ids)
        pieces = tf.ragged.boolean_mask(ids, ids > EOS)
        _check_ids(pieces, self.target)
        return self.target.decode(pieces)

    def source_pieces(self, ids: Tensor) -> Tensor:
        """int32 ids -> string pieces of the same shape, "" for padding.

        Raises:
            ValueError: the ids are not int32, or eager ids are outside the source vocabulary.
        """
        _check_ids(ids, self.source)
        return tf.where(ids == PAD, "", self.source.names(ids))

    def target_pieces(self, ids: Tensor) -> Tensor:
        """int32 ids -> string pieces of the same shape, "" for padding.

        Raises:
            ValueError: the ids are not int32, or eager ids are outside the target vocabulary.
        """
        _check_ids(ids, self.target)
        return tf.where(ids == PAD, "", self.target.names(ids))


def _check_name(side):
    """Raises a ValueError unless this is the name of a side."""
    if side not in SIDES:
        raise ValueError(f"side must be one of {SIDES}, got {side!r}")


def _check_ids(ids, side):
    """Raises a ValueError for ids that are not int32 or, outside a graph, not ids of the side.

    SentencePiece would abort the process for the name of an unknown id.
    """
    ids = ids.flat_values if isinstance(ids, tf.RaggedTensor) else tf.convert_to_tensor(ids)
    if ids.dtype != tf.int32:
        raise ValueError(f"ids must be int32, got {ids.dtype.name}")
    if tf.executing_eagerly() and tf.size(ids) > 0:
        minimum, maximum = int(tf.reduce_min(ids)), int(tf.reduce_max(ids))
        if not 0 <= minimum <= maximum < side.size:
            raise ValueError(f"ids must be in [0, {side.size}), got {minimum} to {maximum}")


def _is_of(model, side):
    """Whether an argument is this side, or its bytes."""
    if isinstance(model, Side):
        return side.is_same(model)
    return isinstance(side, SentencePieceModel) and side.content == model


def _side(model, name):
    """The side for an argument that is a side or the bytes of a model."""
    if isinstance(model, Side):
        return model
    if isinstance(model, bytes):
        return SentencePieceModel(model, name)
    raise ValueError(
        f"{name} must be the bytes of a SentencePiece model, or a side, got {type(model).__name__}"
    )

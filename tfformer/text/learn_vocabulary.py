"""Learns the pieces of a vocabulary from text: a SentencePiece model, or a table of whole words."""

import collections
import io
import itertools
import re

import sentencepiece
import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tfformer.config import BOS, EOS, PAD, UNK
from tfformer.text.symbols import SymbolModel
from tfformer.text.vocabularies import SPECIAL, LabelTable, PieceTable, SentencePieceModel, clean

KINDS = ("unigram", "bpe", "char")
SCORE_STEP = SentencePieceModel.SCORE_STEP
MAX_TEXTS = 1_000_000  # the maximum number of texts of an iterable from which pieces are learned


def learn_model(texts, vocabulary_size, kind="unigram", split_digits=False):
    """Learn the `SentencePieceModel` that fits these texts best.

    Args:
        texts: a list of iterables of strings; up to 1,000,000 of each are used.
        vocabulary_size: the maximum number of ids, including special ones and the 256 bytes.
        kind: `"unigram"` (default), `"bpe"` or `"char"`.
        split_digits: whether every digit is a separate piece. Default False.

    Raises:
        ValueError: `vocabulary_size` is not possible, or the texts are not enough to learn from.
    """
    if not isinstance(vocabulary_size, int) or vocabulary_size < 261:
        raise ValueError(
            "vocabulary_size must be an integer over 260 (4 special ids and 256 bytes), "
            f"got {vocabulary_size!r}"
        )
    model = io.BytesIO()
    # SentencePiece draws its sample of a large corpus from this generator.
    sentencepiece.set_random_generator_seed(0)
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_cleaned(texts),
            model_writer=model,
            model_type=kind,
            vocab_size=vocabulary_size,
            hard_vocab_limit=False,
            character_coverage=1.0 if kind == "char" else 0.9995,
            byte_fallback=True,
            split_digits=split_digits,
            pad_id=PAD,
            unk_id=UNK,
            bos_id=BOS,
            eos_id=EOS,
            input_sentence_size=MAX_TEXTS * len(texts),
            shuffle_input_sentence=True,
            max_sentence_length=16_384,
            num_threads=1,
            minloglevel=2,
        )
    except (RuntimeError, OSError) as error:
        if too_small := re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error)):
            raise ValueError(
                f"vocabulary_size must be at least {too_small[1]} for the characters of these "
                f"texts, got {vocabulary_size}"
            ) from error
        raise ValueError(
            f"no {kind} vocabulary of vocabulary_size={vocabulary_size} can be learned from "
            f"these texts: {str(error).strip().splitlines()[-1]}"
        ) from error
    return SentencePieceModel(_with_exact_scores(model.getvalue()))


def _with_exact_scores(content):
    """A SentencePiece model with each score rounded to a multiple of `SCORE_STEP`.

    "ff" then "f" has the same score as "f" then "ff". Before SentencePiece 0.2.2, and in TensorFlow
    Text, rounding errors of float32 decide such a tie; later versions have other errors. Sums of
    rounded scores are exact down to -16,384, about 1,500 pieces. So all versions find the same
    pieces.
    """
    model = _scores_message().FromString(content)
    for piece in model.pieces:
        piece.score = round(piece.score / SCORE_STEP) * SCORE_STEP
    return model.SerializeToString()


def _scores_message():
    """A protocol buffer of the scores of a `ModelProto`, which keeps all other fields.

    The message that SentencePiece brings along needs as new a protobuf as it was generated with.
    """
    file = descriptor_pb2.FileDescriptorProto(name="scores.proto", package="tfformer")
    kind = descriptor_pb2.FieldDescriptorProto
    # Known fields are written first, in the order of their numbers; so all of a piece are named.
    piece = file.message_type.add(name="Piece")
    for number, name, type_ in (
        (1, "piece", kind.TYPE_STRING), (2, "score", kind.TYPE_FLOAT), (3, "type", kind.TYPE_INT32)
    ):  # fmt: skip
        piece.field.add(name=name, number=number, type=type_, label=kind.LABEL_OPTIONAL)
    file.message_type.add(name="Model").field.add(
        name="pieces", number=1, type=kind.TYPE_MESSAGE, label=kind.LABEL_REPEATED,
        type_name=".tfformer.Piece",
    )  # fmt: skip
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tfformer.Model"))


def learn_table(texts, vocabulary_size):
    """Learn the `PieceTable` of the most frequent words, most frequent first; ties by spelling.

    Args:
        texts: a list of iterables of strings. Words are separated by spaces.
        vocabulary_size: the maximum number of ids, including the 4 special ones. Texts with fewer
            words give fewer.

    Raises:
        ValueError: `vocabulary_size` is not possible, or the texts have no word.
    """
    if not isinstance(vocabulary_size, int) or vocabulary_size < 5:
        raise ValueError(
            f"vocabulary_size must be an integer over 4, the special ids, got {vocabulary_size!r}"
        )
    words = _frequent_words(texts, SPECIAL)
    if not words:
        raise ValueError("no table of pieces can be learned from these texts: they have no word")
    return PieceTable(words[: vocabulary_size - len(SPECIAL)])


def extend(side, texts, count):
    """A side with more pieces, added after those of `side`, whose ids stay.

    A SentencePiece model first gets the characters that it writes as bytes, the most frequent
    first, then pieces that a model of the same kind learns from the texts. A table gets the most
    frequent words that it lacks.

    Args:
        side: a `Side`.
        texts: a list of iterables of strings.
        count: the maximum number of new pieces; 0 or more.

    Raises:
        ValueError: the side is a table of labels; only the head of a model could extend it.
    """
    if isinstance(side, LabelTable):
        raise ValueError("side must be no table of labels, which cannot be extended, got one")
    if isinstance(side, PieceTable):
        pieces = side.pieces[len(SPECIAL) :]
        return PieceTable([*pieces, *_frequent_words(texts, side.pieces)[:count]])
    if type(side) not in (SentencePieceModel, SymbolModel):
        raise ValueError(
            "side must be a SentencePiece model or a table, which can be extended, got "
            f"{type(side).__name__}"
        )
    return _extend_model(side, texts, count)


def made_of(new, old):
    """For each piece that `new` adds to `old`, the ids with which `old` writes it: a list of lists,
    in the order of the new ids."""
    return [old.ids_of(piece) for piece in new.pieces[old.size :]]


def _extend_model(side, texts, count):
    from sentencepiece.sentencepiece_model_pb2 import ModelProto

    old, known = ModelProto.FromString(side.content), set(side.pieces)
    texts = [itertools.islice(part, MAX_TEXTS) for part in texts]
    texts = [text.decode() for text in _cleaned(texts)]
    processor = sentencepiece.SentencePieceProcessor(model_proto=side.content)
    characters = collections.Counter()
    for text in texts:
        characters.update(processor.normalize(text))
    missing = [c for c, _ in characters.most_common() if c not in known]
    kind = KINDS[old.trainer_spec.model_type - 1] if old.trainer_spec.model_type < 3 else "char"
    size = 261 + len(characters) + 2 * count
    learned = learn_model([texts], size, kind, old.trainer_spec.split_digits)
    learned = ModelProto.FromString(learned.content)
    normal = [piece for piece in learned.pieces if piece.type == ModelProto.SentencePiece.NORMAL]
    scores = {piece.piece: piece.score for piece in normal}
    longer = [piece.piece for piece in normal if piece.piece not in known | set(missing)]
    minimum = min(piece.score for piece in old.pieces)
    for rank, piece in enumerate([*missing, *longer][:count], 1):
        # A unigram score is a log-probability; a BPE score is the order of the merges.
        score = scores.get(piece, minimum - 1) if kind == "unigram" else minimum - rank
        old.pieces.add(piece=piece, score=score, type=ModelProto.SentencePiece.NORMAL)
    old.trainer_spec.vocab_size = len(old.pieces)
    return type(side)(old.SerializeToString())


def _frequent_words(texts, known):
    """The words of texts that are not `known`, the most frequent first; ties by spelling."""
    counts = collections.Counter()
    for text in _cleaned(texts):
        counts.update(text.split())
    words = sorted((-count, word.decode()) for word, count in counts.items())
    known = set(known)
    return [word for _, word in words if word not in known]


def _cleaned(parts, batch=1024):
    """Every text of every part, cleaned as `Tokenizer` will clean it."""
    for texts in parts:
        rest = iter(texts)
        while pending := list(itertools.islice(rest, batch)):
            yield from clean(tf.constant(pending)).numpy()

"""Learning pieces from text: those of a SentencePiece model, or a table of whole words."""

import collections
import io
import itertools
import re

import sentencepiece
import tensorflow as tf

from tfformer.config import BOS, EOS, PAD, UNK
from tfformer.text.sides import SPECIAL, LabelTable, PieceTable, SentencePieceModel, clean

KINDS = ("unigram", "bpe", "char")
SCORE_STEP = SentencePieceModel.SCORE_STEP
MOST_TEXTS = 1_000_000  # of an iterable, of which pieces are learned


def learn_model(texts, vocabulary_size, kind="unigram", split_digits=False):
    """The `SentencePieceModel` whose pieces write these texts best.

    Args:
        texts: a list of iterables of strings; up to 1,000,000 of each are used.
        vocabulary_size: the most ids, special ones and the 256 bytes included.
        kind: `"unigram"` (default), `"bpe"` or `"char"`.
        split_digits: every digit is a piece of its own. Default False.

    Raises:
        ValueError: `vocabulary_size` cannot be, or nothing can be learned from these texts.
    """
    if not isinstance(vocabulary_size, int) or vocabulary_size < 261:
        raise ValueError(
            "vocabulary_size must be an integer over 260 (4 special ids and 256 bytes), "
            f"got {vocabulary_size!r}"
        )
    model = io.BytesIO()
    # The sample of a large corpus is drawn from this generator.
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
            input_sentence_size=MOST_TEXTS * len(texts),
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

    "ff" and "f" score what "f" and "ff" do. Before SentencePiece 0.2.2, and in TensorFlow Text, the
    rounding errors of float32 decide such a tie; later versions have others. Sums of rounded scores
    have none down to -16,384, about 1,500 pieces: all versions find the same pieces.
    """
    from sentencepiece.sentencepiece_model_pb2 import ModelProto

    model = ModelProto.FromString(content)
    for piece in model.pieces:
        piece.score = round(piece.score / SCORE_STEP) * SCORE_STEP
    return model.SerializeToString()


def learn_table(texts, vocabulary_size):
    """The `PieceTable` of the most frequent words of texts, those first; ties by spelling.

    Args:
        texts: a list of iterables of strings. A word is what stands between two spaces.
        vocabulary_size: the most ids, the 4 special ones included. Texts of fewer words give fewer.

    Raises:
        ValueError: `vocabulary_size` cannot be, or the texts have no word.
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
    """A side that knows more pieces, after those of `side`, whose ids stay.

    Of a SentencePiece model come first the characters that it writes as bytes, the most frequent
    first, then pieces that a model of the same kind learns from the texts. Of a table come the most
    frequent words that it lacks.

    Args:
        side: a `Side`.
        texts: a list of iterables of strings.
        count: new pieces at most; 0 or more.

    Raises:
        ValueError: the side is a table of labels, which nothing but a model's head could extend.
    """
    if isinstance(side, LabelTable):
        raise ValueError("side must be no table of labels, which cannot be extended, got one")
    if isinstance(side, PieceTable):
        pieces = side.pieces[len(SPECIAL) :]
        return PieceTable([*pieces, *_frequent_words(texts, side.pieces)[:count]])
    return _extend_model(side, texts, count)


def made_of(new, old):
    """For each piece that `new` has after those of `old`, which it extends, the ids that `old`
    writes it with: a list of lists, in the order of the new ids."""
    return [old.ids_of(piece) for piece in new.pieces[old.size :]]


def _extend_model(side, texts, count):
    from sentencepiece.sentencepiece_model_pb2 import ModelProto

    old, known = ModelProto.FromString(side.content), set(side.pieces)
    texts = [itertools.islice(part, MOST_TEXTS) for part in texts]
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
    least = min(piece.score for piece in old.pieces)
    for rank, piece in enumerate([*missing, *longer][:count], 1):
        # Of the unigram model a score is a log-probability; of BPE it is the order of the merges.
        score = scores.get(piece, least - 1) if kind == "unigram" else least - rank
        old.pieces.add(piece=piece, score=score, type=ModelProto.SentencePiece.NORMAL)
    old.trainer_spec.vocab_size = len(old.pieces)
    return SentencePieceModel(old.SerializeToString())


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
        pending = []
        for text in texts:
            pending.append(text)
            if len(pending) == batch:
                yield from clean(tf.constant(pending)).numpy()
                pending = []
        if pending:
            yield from clean(tf.constant(pending)).numpy()

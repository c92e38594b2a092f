"""Text to ids and back, by SentencePiece inside the graph.

The same ops run in training and on the server, so nothing can tokenise differently there.
SentencePiece (Kudo and Richardson 2018) learns its pieces from raw text; the server needs no
library but tensorflow-text, which a stock TensorFlow Serving has linked in.
"""

import collections
import hashlib
import io
import itertools

import numpy as np
import sentencepiece
import tensorflow as tf
import tensorflow_text

from tfformer.config import BOS, EOS, PAD, UNK

KINDS = ("unigram", "bpe", "char")
MOST_TEXTS = 1_000_000  # of a side, of which pieces are learned
SPACE = "▁"  # U+2581, as which SentencePiece writes a space


def clean(text):
    """Any bytes -> valid UTF-8 without control characters; string [B] -> string [B].

    An invalid byte becomes U+FFFD, a run of control characters (NUL, tab, newline, ...) a space.
    SentencePiece then normalises (NFKC) and squeezes spaces itself.
    """
    text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace")
    return tf.strings.regex_replace(text, r"\p{Cc}+", " ")


class Tokenizer(tf.Module):
    """A source and a target SentencePiece model, which may be the same.

    Ids: pad 0, unk 1, bos 2, eos 3, then the pieces.

    Args:
        source_model: the bytes of a SentencePiece model.
        target_model: the same for the target side. Default: the source's.

    Seed first: `keras.utils.set_random_seed` and `tf.random.set_seed` clear TensorFlow's kernels,
    which own the models of every tokenizer made before ("Resource ... does not exist").

    Example:
        >>> tokenizer = Tokenizer.train(["ein Haus", "a house"], vocabulary_size=300)
        >>> tokenizer.decode(tokenizer.encode_target(tf.constant(["ein Haus"])))
        <tf.Tensor: ... numpy=array([b'ein Haus'], ...)>
    """

    def __init__(self, source_model, target_model=None):
        super().__init__(name="tokenizer")
        self.source_model = source_model
        self.target_model = source_model if target_model is None else target_model
        self._source = _side(self.source_model, "source_model")
        self._target = self._source if self.is_shared else _side(self.target_model, "target_model")

    @classmethod
    def train(
        cls,
        source_texts,
        target_texts=None,
        *,
        vocabulary_size=8000,
        kind="unigram",
        shared=True,
        split_digits=False,
    ):
        """Learns the pieces from text.

        Args:
            source_texts, target_texts: iterables of strings; up to 1,000,000 a side are used.
            vocabulary_size: the most ids, special ones and the 256 bytes included. A corpus that
                has fewer pieces gives fewer. Default 8000.
            kind: `"unigram"` (default), `"bpe"` or `"char"`.
            shared: one model for both sides (default), or one each.
            split_digits: every digit is a piece of its own. Default False.

        Raises:
            ValueError: naming the argument, the rule and the value received.
        """
        if kind not in KINDS:
            raise ValueError(f"kind must be one of {KINDS}, got {kind!r}")
        sides = [source_texts] if target_texts is None else [source_texts, target_texts]

        def learn(*texts):
            return _train(texts, vocabulary_size, kind, split_digits)

        return cls(learn(*sides)) if shared or len(sides) == 1 else cls(*map(learn, sides))

    def extended(self, source_texts, target_texts, count):
        """A tokenizer that knows more pieces, behind those of this one, whose ids stay.

        First come characters that this one writes as bytes, the most frequent first, then pieces
        that a SentencePiece model of the same kind learns from the texts.

        Args:
            source_texts, target_texts: iterables of strings.
            count: new pieces at most, in each of the two models; 0 or more.
        """
        if self.is_shared:
            return Tokenizer(_extend(self.source_model, [source_texts, target_texts], count))
        pairs = ((self.source_model, source_texts), (self.target_model, target_texts))
        return Tokenizer(*(_extend(model, [texts], count) for model, texts in pairs))

    def made_of(self, old, side):
        """For each piece that this one has and `old` has not, the ids that `old` writes it with.

        Args:
            old: the `Tokenizer` that this one extends.
            side: `"source"` or `"target"`.

        Returns:
            A list of lists of ids, in the order of the new ids.
        """
        new, old = self._processor(side), old._processor(side)
        pieces = [new.id_to_piece(n) for n in range(old.vocab_size(), new.vocab_size())]
        # A text begins with a space of its own, which a piece from inside a word has not.
        space = old.piece_to_id(SPACE)
        found = []
        for piece in pieces:
            ids = old.encode(piece.replace(SPACE, " "))
            inside = not piece.startswith(SPACE) and ids[:1] == [space] and len(ids) > 1
            found.append(ids[1:] if inside else ids)
        return found

    def pieces(self, side):
        """The pieces of a side, `"source"` or `"target"`, in the order of their ids."""
        processor = self._processor(side)
        return [processor.id_to_piece(n) for n in range(processor.vocab_size())]

    def sample_text(self, size, seed):
        """A text of so many random pieces of the source side, the same for the same seed."""
        processor = self._processor("source")
        pieces = [n for n in range(EOS + 1, processor.vocab_size()) if not processor.is_byte(n)]
        ids = np.random.default_rng(seed).choice(pieces, size)
        return processor.decode([int(n) for n in ids]) or "a"

    def _processor(self, side):
        return sentencepiece.SentencePieceProcessor(model_proto=getattr(self, f"{side}_model"))

    @property
    def is_shared(self):
        """Whether both sides are one model."""
        return self.source_model == self.target_model

    @property
    def source_vocabulary_size(self):
        return self._processor("source").vocab_size()

    @property
    def target_vocabulary_size(self):
        return self._processor("target").vocab_size()

    @property
    def sha256(self):
        """Of both models: what a run's weights are bound to."""
        models = (self.source_model, self.target_model)
        parts = [hashlib.sha256(model).digest() for model in models]
        return hashlib.sha256(b"".join(parts)).hexdigest()

    def encode_source(self, text):
        """string [B] -> RaggedTensor of int32 ids [B, (S)], each row ending with eos."""
        return self._source.tokenize(clean(text))

    def encode_target(self, text):
        """string [B] -> RaggedTensor of int32 ids [B, (T)], each row ending with eos, no bos."""
        return self._target.tokenize(clean(text))

    def decode(self, ids):
        """int32 ids [B, T], dense or ragged -> string [B]; special ids are left out."""
        if isinstance(ids, tf.RaggedTensor):
            ids = ids.to_tensor(PAD)
        return self._target.detokenize(tf.ragged.boolean_mask(ids, ids > EOS))

    def source_pieces(self, ids):
        """int32 ids -> string pieces of the same shape, "" for padding."""
        return tf.where(ids == PAD, "", self._source.id_to_string(ids))

    def target_pieces(self, ids):
        """int32 ids -> string pieces of the same shape, "" for padding."""
        return tf.where(ids == PAD, "", self._target.id_to_string(ids))


def _side(model, name):
    """The in-graph tokenizer of one side, its special ids checked."""
    try:
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    except RuntimeError as error:
        raise ValueError(f"{name} must be a SentencePiece model, got {len(model)} bytes") from error
    special = (processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id())
    if special != (PAD, UNK, BOS, EOS):
        raise ValueError(
            f"{name} must have pad, unk, bos, eos = {(PAD, UNK, BOS, EOS)}, got {special}"
        )
    # `tf.saved_model.load` gives models of one name one kernel, in all that a process loads: two
    # sides, or two SavedModels, would be tokenised by the first of them.
    unique = f"sentencepiece_{hashlib.sha256(model).hexdigest()}"
    return tensorflow_text.SentencepieceTokenizer(
        model, out_type=tf.int32, add_eos=True, name=unique
    )


def _train(sides, vocabulary_size, kind, split_digits):
    """The bytes of a SentencePiece model of all the texts of `sides`."""
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
            sentence_iterator=_cleaned(sides),
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
            input_sentence_size=MOST_TEXTS * len(sides),
            shuffle_input_sentence=True,
            max_sentence_length=16_384,
            num_threads=1,
            minloglevel=2,
        )
    except (RuntimeError, OSError) as error:
        raise ValueError(
            f"no {kind} vocabulary of vocabulary_size={vocabulary_size} can be learned from "
            f"these texts: {str(error).strip().splitlines()[-1]}"
        ) from error
    return model.getvalue()


def _extend(model, sides, count):
    """The bytes of a SentencePiece model with up to `count` pieces more."""
    from sentencepiece.sentencepiece_model_pb2 import ModelProto

    old = ModelProto.FromString(model)
    known = {piece.piece for piece in old.pieces}
    sides = [itertools.islice(side, MOST_TEXTS) for side in sides]
    texts = [text.decode() for text in _cleaned(sides)]
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    characters = collections.Counter()
    for text in texts:
        characters.update(processor.normalize(text))
    missing = [c for c, _ in characters.most_common() if c not in known]
    kind = KINDS[old.trainer_spec.model_type - 1] if old.trainer_spec.model_type < 3 else "char"
    size = 261 + len(characters) + 2 * count
    learned = ModelProto.FromString(_train([texts], size, kind, old.trainer_spec.split_digits))
    normal = [piece for piece in learned.pieces if piece.type == ModelProto.SentencePiece.NORMAL]
    scores = {piece.piece: piece.score for piece in normal}
    longer = [piece.piece for piece in normal if piece.piece not in known | set(missing)]
    least = min(piece.score for piece in old.pieces)
    for rank, piece in enumerate([*missing, *longer][:count], 1):
        # Of the unigram model a score is a log-probability; of BPE it is the order of the merges.
        score = scores.get(piece, least - 1) if kind == "unigram" else least - rank
        old.pieces.add(piece=piece, score=score, type=ModelProto.SentencePiece.NORMAL)
    old.trainer_spec.vocab_size = len(old.pieces)
    return old.SerializeToString()


def _cleaned(sides, batch=1024):
    """Every text of every side, cleaned as `Tokenizer` will clean it."""
    for texts in sides:
        pending = []
        for text in texts:
            pending.append(text)
            if len(pending) == batch:
                yield from clean(tf.constant(pending)).numpy()
                pending = []
        if pending:
            yield from clean(tf.constant(pending)).numpy()

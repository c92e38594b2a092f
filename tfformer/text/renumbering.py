"""A SentencePiece model whose ids are those of another table: surgery on models from elsewhere.

Systems such as Marian number the pieces of a SentencePiece model by a table of their own, which two
models may share. Here the model itself gets that numbering, so that nobody needs the table again.
"""

import re

from tfformer.config import BOS, EOS, PAD, UNK
from tfformer.text.sides import CODE, FILLING, SPECIAL, SentencePieceModel

# What SentencePiece adds to the score of the least likely piece for each unknown character.
UNKNOWN_PENALTY = -10.0


def regular_pieces(content, name="content"):
    """The pieces that a model writes texts with, in order; a list of strings.

    Args:
        content: the bytes of a SentencePiece model, whatever its special ids are.
        name: what an error calls them.

    Raises:
        ValueError: they are no such model.
    """
    return [piece.piece for piece in _regular(parsed(content, name))]


def renumbered(content, pieces, name="content", unwritten=(), codes=False):
    """The side that writes texts as a SentencePiece model does, with ids of its own.

    Pieces keep their scores, and texts are normalised as before. A character that the model does
    not know is written as the piece of that name, if there is one: such systems look up in their
    table how an unknown piece is spelled. So is a run of characters that are in no piece of the
    model. Any other piece that the model does not have is in no text, but it has a name and can be
    decoded. A piece that begins with `FILLING` is not even decoded. Pieces of the model that are
    not wanted are left out, and what was written with them is written with others.

    Args:
        content: the bytes of a SentencePiece model, whatever its special ids are.
        pieces: the names of all pieces in the order of their ids, from 4 on, each once.
        name: what an error calls the bytes.
        unwritten: those of the pieces that texts are not to be written with, though the model has
            them. Default: none.

        codes: whether a piece such as ">>de<<" is one of `Codes`, and in no text. Default False.

    Raises:
        ValueError: they are no such model; a name is one of a special id or stands there twice; or
            pieces are merged, as in BPE, and some are not the model's, which would be merged too,
            or some of the model's are left out, without which others are never reached; or some of
            the 256 pieces for single bytes are there, and others are not.
    """
    model = parsed(content, name)
    kinds, regular = type(model.pieces[0]), {piece.piece: piece for piece in _regular(model)}
    own = {name: piece for name, piece in regular.items() if name not in set(unwritten)}
    if len({*SPECIAL, *pieces}) < len(SPECIAL) + len(pieces):
        raise ValueError(f"pieces of {name} must each be there once, and none of {SPECIAL}")
    spec, wanted = model.trainer_spec, set(pieces)
    # Of what nobody can write, nothing is merged.
    foreign = [piece for piece in pieces if piece not in own and not piece.startswith(FILLING)]
    left_out = [piece for piece in own if piece not in wanted]
    for kind, odd in (("more", foreign), ("fewer", left_out)):
        if odd and spec.model_type != spec.UNIGRAM:
            raise ValueError(
                f"{name} must be a unigram model where the vocabulary has {kind} pieces, as "
                f"{odd[0]!r}, got another kind"
            )
    bytes_left_out = [piece for piece in left_out if own[piece].type == kinds.BYTE]
    if 0 < len(bytes_left_out) < 256:
        raise ValueError(
            f"pieces of {name} must have all 256 bytes or none, got none for {bytes_left_out[0]}"
        )
    fallback = spec.byte_fallback
    spec.byte_fallback &= not bytes_left_out
    least = min((piece.score for piece in own.values()), default=0.0)
    unknown_score = UNKNOWN_PENALTY + min(
        (piece.score for piece in model.pieces if piece.type == kinds.NORMAL), default=0.0
    )
    spelled = set() if fallback else _spelled(foreign, regular)
    del model.pieces[:]
    special_kinds = (kinds.CONTROL, kinds.UNKNOWN, kinds.CONTROL, kinds.CONTROL)
    for special, kind in zip(SPECIAL, special_kinds, strict=True):
        model.pieces.add(piece=special, score=0.0, type=kind)
    for piece in pieces:
        is_code = codes and re.fullmatch(CODE, piece)
        if piece in own and not is_code:
            model.pieces.add().CopyFrom(own[piece])
        elif piece in spelled and not is_code:
            model.pieces.add(piece=piece, score=unknown_score, type=kinds.NORMAL)
        else:
            # An unused one that looks like a code would be taken for one.
            is_hidden = piece.startswith(FILLING) or (not codes and re.fullmatch(CODE, piece))
            kind = kinds.CONTROL if is_hidden else kinds.UNUSED
            model.pieces.add(piece=piece, score=least - 1, type=kind)
    name_special(model)
    return SentencePieceModel(model.SerializeToString(), name)


def _spelled(pieces, regular):
    """Those of the pieces that spell text which a model, of the pieces `regular`, does not know."""
    known = set("".join(regular))
    return {
        one for one in pieces if (one not in regular if len(one) == 1 else known.isdisjoint(one))
    }


def name_special(model):
    """Tells a `ModelProto` that its first four pieces are pad, unk, bos and eos, and how many there
    are."""
    spec = model.trainer_spec
    spec.pad_id, spec.unk_id, spec.bos_id, spec.eos_id = PAD, UNK, BOS, EOS
    names = [piece.piece for piece in model.pieces[: len(SPECIAL)]]
    spec.pad_piece, spec.unk_piece, spec.bos_piece, spec.eos_piece = names
    spec.vocab_size = len(model.pieces)


def parsed(content, name="content"):
    """The `ModelProto` of the bytes of a SentencePiece model; a ValueError if they are none."""
    from google.protobuf.message import DecodeError
    from sentencepiece.sentencepiece_model_pb2 import ModelProto

    try:
        model = ModelProto.FromString(content)
    except DecodeError as error:
        raise ValueError(
            f"{name} must be a SentencePiece model, got {len(content)} bytes"
        ) from error
    if not model.pieces:
        raise ValueError(f"{name} must be a SentencePiece model with pieces, got none")
    return model


def _regular(model):
    """Those of its pieces that stand for text."""
    kinds = type(model.pieces[0])
    texts = (kinds.NORMAL, kinds.USER_DEFINED, kinds.BYTE)
    return [piece for piece in model.pieces if piece.type in texts]

"""Gives a SentencePiece model of another system the ids of another table.

Systems such as Marian number the pieces of a SentencePiece model by their own table, which two
models may share. This file writes that numbering into the model, so the table is no longer needed.
"""

import re

from tfformer.config import BOS, EOS, PAD, UNK
from tfformer.text.symbols import SymbolModel
from tfformer.text.vocabularies import CODE, FILLING, SPECIAL, SentencePieceModel

# SentencePiece scores an unknown character by this much below the minimum score of a piece.
UNKNOWN_PENALTY = -10.0


def regular_pieces(content, name="content"):
    """The pieces of a model that stand for text, in order; a list of strings.

    Args:
        content: the bytes of a SentencePiece model, with any special ids.
        name: the name of these bytes in an error.

    Raises:
        ValueError: the bytes are not such a model.
    """
    return [piece.piece for piece in _regular(parsed(content, name))]


def piece_kinds(content, name="content"):
    """(piece, the name of its kind) of all pieces of a model, in order of their ids.

    The kinds are NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED and BYTE. One piece is UNKNOWN.

    Args:
        content: the bytes of a SentencePiece model, with any special ids.
        name: the name of these bytes in an error.

    Raises:
        ValueError: the bytes are not such a model.
    """
    model = parsed(content, name)
    kinds = type(model.pieces[0]).Type
    found = [(piece.piece, kinds.Name(piece.type)) for piece in model.pieces]
    if (count := sum(kind == "UNKNOWN" for _, kind in found)) != 1:
        raise ValueError(f"{name} must have one piece of the kind UNKNOWN, got {count}")
    return found


def renumbered(
    content,
    pieces,
    name="content",
    unwritten=(),
    codes=False,
    symbols=(),
    languages=(),
    default=None,
):
    """Make a SentencePiece model that splits texts as before, with the ids of `pieces`.

    - Pieces of the model keep their scores, and texts are normalised as before.
    - If the model lacks a character and `pieces` has it, the character becomes that piece, because
      other systems look up the spelling of an unknown piece in their table. The same holds for a
      run of characters that occur in no piece of the model.
    - The tokenizer never produces any other piece that the model lacks, but it can decode it. A
      piece that starts with `FILLING` cannot be decoded either.
    - A piece of the model that is not in `pieces` is removed. Texts then use other pieces.
    - No text contains a piece of `languages`, and it decodes to an empty string.

    Args:
        content: the bytes of a SentencePiece model, with any special ids.
        pieces: the names of all pieces in the order of their ids, from 4 on, each once.
        name: the name of the bytes in an error.
        unwritten: pieces of the model that the tokenizer must not produce. Default: none.
        codes: whether a piece such as ">>de<<" is one of `Codes`, and in no text. Default False.
        symbols: pieces that are recognised wherever they stand in a text. If there are some, the
            result is a `SymbolModel`. Default: none.
        languages: those of the `pieces` that are codes of `Languages`. Default: none.
        default: the code of the default language. Default: no text begins with a code.

    Raises:
        ValueError: the bytes are not such a model; a name is that of a special id or appears twice;
            some of the 256 pieces of single bytes are missing; or the model is BPE, and `pieces`
            would change its merges: one of its own is missing, or a new one could be part of it.
    """
    model = parsed(content, name)
    kinds, regular = type(model.pieces[0]), {piece.piece: piece for piece in _regular(model)}
    is_bpe = model.trainer_spec.model_type == model.trainer_spec.BPE
    unwritten, language_pieces = set(unwritten), set(languages)
    own = {name: piece for name, piece in regular.items() if name not in unwritten}
    if len({*SPECIAL, *pieces}) < len(SPECIAL) + len(pieces):
        raise ValueError(f"pieces of {name} must each be there once, and none of {SPECIAL}")
    spec, wanted = model.trainer_spec, set(pieces)
    # A piece that starts with `FILLING` is in no text, so it takes part in no merge.
    known = {*own, *symbols, *language_pieces}
    foreign = [piece for piece in pieces if piece not in known and not piece.startswith(FILLING)]
    left_out = [piece for piece in own if piece not in wanted]
    # BPE merges foreign pieces last and splits them again, so only those inside its own count.
    halves = _halves(regular, foreign) if is_bpe else set()
    more = [one for one in foreign if one not in regular and one in halves]
    for kind, odd in (("more", more if is_bpe else foreign), ("fewer", left_out)):
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
    minimum = min((piece.score for piece in own.values()), default=0.0)
    unknown_score = UNKNOWN_PENALTY + min(
        (piece.score for piece in model.pieces if piece.type == kinds.NORMAL), default=0.0
    )
    spelled = set() if fallback else _spelled(foreign, regular)
    if is_bpe:  # it merges pairs only, so it cannot write a longer piece of unknown characters
        spelled = {piece for piece in spelled if len(piece) == 1}
    del model.pieces[:]
    special_kinds = (kinds.CONTROL, kinds.UNKNOWN, kinds.CONTROL, kinds.CONTROL)
    for special, kind in zip(SPECIAL, special_kinds, strict=True):
        model.pieces.add(piece=special, score=0.0, type=kind)
    for piece in pieces:
        is_code = codes and re.fullmatch(CODE, piece)
        if piece in symbols:
            model.pieces.add(piece=piece, score=0.0, type=kinds.USER_DEFINED)
        elif piece in own and not is_code:
            model.pieces.add().CopyFrom(own[piece])
        elif piece in spelled and not is_code:
            model.pieces.add(piece=piece, score=unknown_score, type=kinds.NORMAL)
        else:
            # SentencePieceModel would take an unused piece that looks like a code for a code.
            is_hidden = piece.startswith(FILLING) or (not codes and re.fullmatch(CODE, piece))
            kind = kinds.CONTROL if is_hidden or piece in language_pieces else kinds.UNUSED
            # BPE still merges an unused piece, then splits it again.
            score = regular[piece].score if piece in regular else minimum - 1
            model.pieces.add(piece=piece, score=score, type=kind)
    del spec.accept_language[:]
    if default is not None:
        spec.accept_language.extend([default, *sorted(language_pieces - {default})])
    name_special(model)
    kind = SymbolModel if symbols else SentencePieceModel
    return kind(model.SerializeToString(), name)


def _halves(regular, foreign):
    """The pieces of `foreign` that a merge could join with another piece to one of `regular`."""
    foreign = set(foreign)
    return {
        half
        for piece in regular
        for n in range(1, len(piece))
        for half in (piece[:n], piece[n:])
        if half in foreign
    }


def _spelled(pieces, regular):
    """The pieces that spell text unknown to a model with the pieces `regular`."""
    known = set("".join(regular))
    return {
        one for one in pieces if (one not in regular if len(one) == 1 else known.isdisjoint(one))
    }


def name_special(model):
    """Set the special pieces of a `ModelProto`: its first four are pad, unk, bos and eos. Also set
    its number of pieces."""
    spec = model.trainer_spec
    spec.pad_id, spec.unk_id, spec.bos_id, spec.eos_id = PAD, UNK, BOS, EOS
    names = [piece.piece for piece in model.pieces[: len(SPECIAL)]]
    spec.pad_piece, spec.unk_piece, spec.bos_piece, spec.eos_piece = names
    spec.vocab_size = len(model.pieces)


def parsed(content, name="content"):
    """The `ModelProto` from the bytes of a SentencePiece model; a ValueError for other bytes."""
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
    """The pieces of the model that stand for text."""
    kinds = type(model.pieces[0])
    texts = (kinds.NORMAL, kinds.USER_DEFINED, kinds.BYTE)
    return [piece for piece in model.pieces if piece.type in texts]

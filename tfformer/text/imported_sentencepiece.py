"""SentencePiece models of other programs, whose special ids are not 0 to 3."""

import sentencepiece

from tfformer.config import BOS, EOS, PAD, UNK
from tfformer.text.renumbering import name_special, parsed
from tfformer.text.vocabularies import FILLING, SPECIAL, SentencePieceModel


class ForeignModel(SentencePieceModel):
    """A SentencePiece model with other special ids, renumbered: 0 to 3 are pad, unk, bos and eos,
    and 4 + n is the model's id n. (The numbers 4 + n of those four occur in no text.)

    It reads texts as the other program does. Invalid UTF-8 is replaced, but control characters
    stay, because such a model may have pieces for them.

    Args:
        content: the bytes of that model.
        special_ids: its ids of pad, unk, bos and eos; None: it has none. Two may be equal.
        size: the number of ids in the other program, which may exceed the number of pieces.
            Default: the number of pieces.

    Raises:
        ValueError: the bytes are not such a model, an id is outside the model, or `size` is below
            the number of pieces.
    """

    replaces_control = False

    def __init__(self, content, special_ids, size=None):
        super().__init__(renumbered(content, special_ids, size))


def renumbered(content, special_ids, size=None):
    """The bytes of the model with its pieces in the order of `ForeignModel`; same arguments."""
    model = parsed(content)
    pieces, kind = list(model.pieces), type(model.pieces[0])
    size = len(pieces) if size is None else size
    if size < len(pieces):
        raise ValueError(f"size must be at least {len(pieces)}, the pieces, got {size}")
    own = dict(zip((PAD, UNK, BOS, EOS), special_ids, strict=True))
    if wrong := [one for one in own.values() if one is not None and not 0 <= one < len(pieces)]:
        raise ValueError(f"special_ids must be below {len(pieces)}, the pieces, got {wrong[0]}")
    minimum = min(piece.score for piece in pieces)
    order, named = [], set()
    for ours in (EOS, UNK, BOS, PAD):  # of two equal ids, the first one keeps the name
        own_id, name = own[ours], f"{FILLING}{SPECIAL[ours]}"
        if own_id is not None and own_id not in named:
            named.add(own_id)
            name = pieces[own_id].piece
        which = kind.UNKNOWN if ours == UNK else kind.CONTROL
        order.append(kind(piece=name, score=minimum - 1, type=which))
    order = [order[3], order[1], order[2], order[0]]  # pad, unk, bos, eos
    for n in range(size):
        if n < len(pieces) and n not in named:
            order.append(pieces[n])
        else:
            order.append(kind(piece=f"{FILLING}{n}", score=minimum - 1, type=kind.CONTROL))
    del model.pieces[:]
    model.pieces.extend(order)
    name_special(model)
    return model.SerializeToString()


def unknown_id(content):
    """The unk id of a SentencePiece model, given as bytes.

    Raises:
        ValueError: the bytes are not such a model.
    """
    try:
        return sentencepiece.SentencePieceProcessor(model_proto=content).unk_id()
    except RuntimeError as error:
        raise ValueError(
            f"content must be a SentencePiece model, got {len(content)} bytes"
        ) from error

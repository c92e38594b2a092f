"""Reads the tokenizer of a T5 folder: a SentencePiece model, or `tokenizer.json`."""

from pathlib import Path

from tfformer.files import LONGEST_TEXT, read_bytes
from tfformer.text.renumbering import piece_kinds, renumbered
from tfformer.text.tokenizer import Tokenizer
from tfformer.text.tokenizer_json import sentencepiece_of
from tfformer.text.vocabularies import FILLING, SPECIAL

from .id_mapping import Numbering
from .options import read_json_object

MODEL, JSON, SETTINGS = "spiece.model", "tokenizer.json", "tokenizer_config.json"
FILES = (MODEL, JSON, SETTINGS)
SENTINELS = 100  # the default of T5's tokenizer
SENTINEL = "<extra_id_{}>"


def read_text(folder, pad, eos, size):
    """Reads the `Tokenizer` of a folder, its `Numbering`, and notes for the user.

    `pad`, `eos` and `size` are T5's ids and number of ids.
    """
    path = Path(folder, MODEL)
    if path.exists():
        content, count = read_bytes(path, LONGEST_TEXT), _sentinels(Path(folder, SETTINGS))
    else:
        path, count = Path(folder, JSON), 0  # which lists its sentinels
        if not path.exists():
            raise ValueError(f"{folder} must have {MODEL} or {JSON}, got neither")
        content = sentencepiece_of(read_json_object(path), path)
    new = [SENTINEL.format(n) for n in reversed(range(count))]
    side, numbering = numbered_model(content, path, pad, eos, size, new=new)
    return Tokenizer(side), numbering, ()


def numbered_model(content, path, pad, eos, size, between=0, new=()):
    """A side of a SentencePiece model whose pad and eos are its first pieces, and its `Numbering`.

    Args:
        content, path: the bytes of the model, and their name in an error.
        pad, eos, size: the original's ids, and its number of ids.
        between: how many ids the original has between its first two pieces and the others.
        new: symbols that it has after the pieces of the model, unless they are in the model.

    Raises:
        ValueError: the bytes are no such model, or it does not fit the ids.
    """
    kinds = dict(found := piece_kinds(content, path))
    names = [name for name, _ in found]
    names[2:2] = [None] * between  # they are in no text
    names += [name for name in new if name not in kinds]
    if len(names) > size:
        raise ValueError(f"{path} must have at most vocab_size = {size:,} ids, got {len(names):,}")
    unk = names.index(next(name for name, kind in found if kind == "UNKNOWN"))
    if len({pad, eos, unk}) < 3 or max(pad, eos) > 1:
        raise ValueError(
            f"{path} must have the pad {pad} and eos {eos} as its first pieces, and the unknown "
            f"word after them, got {unk} for the unknown word"
        )
    symbols = {name for name, kind in kinds.items() if kind == "USER_DEFINED"} | set(new)
    symbols |= {name for name in kinds if name.startswith(SENTINEL.partition("{")[0])}
    hidden = {name for name, kind in kinds.items() if kind == "CONTROL"} - symbols
    hidden |= {None, *SPECIAL}
    others = [n for n in range(size) if n not in (pad, eos, unk)]
    pieces = [
        names[n] if n < len(names) and names[n] not in hidden else f"{FILLING}{n}" for n in others
    ]
    side = renumbered(content, pieces, path, symbols=symbols & set(pieces))
    return side, Numbering([None, unk, pad, eos, *others], [])


def _sentinels(path):
    """How many sentinels the tokenizer adds to the SentencePiece model."""
    found = read_json_object(path).get("extra_ids", SENTINELS) if path.exists() else SENTINELS
    if type(found) is not int or not 0 <= found <= 100_000:
        raise ValueError(f"{path}: extra_ids must be a number of pieces, got {found!r}")
    return found

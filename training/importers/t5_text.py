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
    kinds = piece_kinds(content, path)
    names = [name for name, _ in kinds]
    new = [SENTINEL.format(n) for n in reversed(range(count))]
    names += [name for name in new if name not in set(names)]
    if len(names) > size:
        raise ValueError(f"{path} must have at most vocab_size = {size:,} ids, got {len(names):,}")
    unk = next(n for n, (_, kind) in enumerate(kinds) if kind == "UNKNOWN")
    if len({pad, eos, unk}) < 3 or max(pad, eos) >= len(kinds):
        raise ValueError(
            f"{path} must have the pad {pad}, eos {eos} and the unknown word as three pieces, got "
            f"{unk} for the unknown word"
        )
    symbols = {name for name, kind in kinds if kind == "USER_DEFINED"}
    symbols |= {name for name in names if name.startswith("<extra_id_")}
    others = [n for n in range(size) if n not in (pad, eos, unk)]
    hidden = {name for name, kind in kinds if kind == "CONTROL"} - symbols
    pieces = [
        names[n] if n < len(names) and names[n] not in {*SPECIAL, *hidden} else f"{FILLING}{n}"
        for n in others
    ]
    side = renumbered(content, pieces, path, symbols=symbols & set(pieces))
    notes = (f"{path} has {len(names):,} pieces, {len(symbols):,} of them symbols",)
    return Tokenizer(side), Numbering([None, unk, pad, eos, *others], []), notes


def _sentinels(path):
    """How many sentinels the tokenizer adds to the SentencePiece model."""
    found = read_json_object(path).get("extra_ids", SENTINELS) if path.exists() else SENTINELS
    if type(found) is not int or not 0 <= found <= 100_000:
        raise ValueError(f"{path}: extra_ids must be a number of pieces, got {found!r}")
    return found

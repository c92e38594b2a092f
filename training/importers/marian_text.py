"""Reads the tokenizer of a Marian folder: two SentencePiece models and a table of ids."""

from pathlib import Path

from tfformer.files import LONGEST_TEXT, read_bytes
from tfformer.text.renumbering import regular_pieces, renumbered
from tfformer.text.tokenizer import Tokenizer

from .id_mapping import UNK, known_pieces, numbered, read_table
from .options import read_json_object


def read_text(folder, pad, eos, sizes, shares):
    """Reads the `Tokenizer` of a folder, the `Numbering` of each side, and notes for the user.

    `pad`, `eos` and `sizes` are Marian's ids and numbers of ids of source and target; with
    `shares`, both have one embedding and one vocabulary.

    Source pieces that the table lacks are the unknown word to Marian. Here each gets its own id, so
    that texts are segmented as in Marian. Such target pieces are left out: the text is written in
    smaller pieces instead of with an unknown label.
    """
    paths = [Path(folder, "source.spm"), Path(folder, "target.spm")]
    models = [read_bytes(path, LONGEST_TEXT) for path in paths]
    table, second = Path(folder, "vocab.json"), Path(folder, "target_vocab.json")
    tables = [read_table(table, sizes[0], pad, eos)]
    _require_no_more_pieces(folder, tables[0], second)
    if second.exists():
        if shares:
            raise ValueError(
                f"share_encoder_decoder_embeddings must be false beside {second}, got true"
            )
        tables.append(read_table(second, sizes[1], pad, eos))
    elif sizes[0] != sizes[1]:
        raise ValueError(
            f"{second} must exist, because source and target have {sizes} ids, got none"
        )
    pieces = [regular_pieces(*one) for one in zip(models, paths, strict=True)]
    files = [(tables[0], table, paths[0]), (tables[-1], second if tables[1:] else table, paths[1])]
    notes = [known_pieces(own, *one) for own, one in zip(pieces, files, strict=True)]
    unknown = [one for one in pieces[0] if one not in tables[0]]
    source = numbered(tables[0], sizes[0], _first(tables[0], pad, eos), unknown)
    target, unwritten = source, unknown
    if len(tables) > 1:
        target, unwritten = numbered(tables[1], sizes[1], _first(tables[1], pad, eos)), []
    sides = [renumbered(models[0], source[0], paths[0], codes=True)]
    sides.append(renumbered(models[1], target[0], paths[1], unwritten, codes=True))
    return Tokenizer(*sides), (source[1], target[1]), tuple(notes)


def _require_no_more_pieces(folder, table, second):
    """Raises a ValueError if other files of the tokenizer have pieces that the tables lack."""
    path = Path(folder, "added_tokens.json")
    added = read_json_object(path) if path.exists() else {}
    settings = Path(folder, "tokenizer_config.json")
    said = read_json_object(settings) if settings.exists() else {}
    decoded = said.get("added_tokens_decoder") or {}
    if isinstance(decoded, dict):
        rows = [row for row in decoded.values() if isinstance(row, dict)]
        added = [*added, *(row.get("content") for row in rows)]
    if more := [piece for piece in added if piece not in table]:
        raise ValueError(f"{folder} must have no pieces besides its tables, got {more[0]!r} added")
    if said.get("separate_vocabs", second.exists()) != second.exists():
        raise ValueError(
            f"{settings}: separate_vocabs must be true beside {second.name} and false without, "
            f"got {said['separate_vocabs']!r}"
        )


def _first(table, pad, eos):
    """Marian's ids for our ids 0 to 3: a target begins with the pad, and our pad is new."""
    return None, table[UNK], pad, eos

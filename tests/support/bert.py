"""The small original models of BERT and its relatives in tests/data/bert, with their stored
results."""

import json

import numpy as np
from paths import DATA
from stored import Stored

SPECIAL = ("pad", "unk", "cls", "sep")
BRACKETS = dict(zip(("[PAD]", "[UNK]", "[CLS]", "[SEP]"), SPECIAL, strict=True))
ANGLES = dict(zip(("<pad>", "<unk>", "<s>", "</s>"), SPECIAL, strict=True))


_stored = Stored("bert")
folder, answers, copied = _stored.folder, _stored.answers, _stored.copied


def names():
    return sorted(path.name for path in (DATA / "bert").iterdir())


def outputs(name):
    """{name: array} that the original computed."""
    with np.load(folder(name) / "outputs.npz") as file:
        return {key: file[key] for key in file.files}


def piece_names(path):
    """{the original's id: its piece} of a folder, from its own files."""
    path = path if hasattr(path, "exists") else folder(path)
    if (path / "tokenizer.json").exists():
        table = json.loads((path / "tokenizer.json").read_text())["model"]["vocab"]
        if isinstance(table, list):
            table = {piece: n for n, (piece, _) in enumerate(table)}
    elif (path / "vocab.json").exists():
        table = json.loads((path / "vocab.json").read_text())
    elif (path / "vocab.txt").exists():
        lines = (path / "vocab.txt").read_text().split("\n")[:-1]
        table = {piece: n for n, piece in enumerate(lines)}
    else:
        from sentencepiece import SentencePieceProcessor

        model = SentencePieceProcessor(model_file=str(path / "sentencepiece.bpe.model"))
        pieces = [model.id_to_piece(n) for n in range(3, model.vocab_size())]
        table = {p: n for n, p in enumerate(["<s>", "<pad>", "</s>", "<unk>", *pieces, "<mask>"])}
    special = {**BRACKETS, **ANGLES}
    return {n: special.get(piece, piece) for piece, n in table.items()}


def our_names(side):
    """A list of the names of our ids."""
    return [*SPECIAL, *side.pieces[4:]]

"""The stored folders of Marian models, with the results of the original."""

import json
import struct

from stored import Stored

from tfformer.config import BOS, EOS, PAD, UNK

FOLDERS = ("joint", "separate", "codes", "untied")
SPECIAL = {"<unk>": UNK, "<pad>": BOS, "</s>": EOS}


STORED = Stored("marian")
folder, answers, logits, copied = STORED.folder, STORED.answers, STORED.logits, STORED.copied


def table(name, side):
    """{the original's id: its piece}"""
    path = folder(name) / "target_vocab.json"
    if side == "source" or not path.exists():
        path = folder(name) / "vocab.json"
    return {n: piece for piece, n in json.loads(path.read_text()).items()}


def our_ids(name, side, tokenizer):
    """{the original's id: ours}, by the names of the pieces."""
    own = {piece: n for n, piece in enumerate(tokenizer.pieces(side))}
    assert len(own) == len(tokenizer.pieces(side)) and own["<pad>"] == PAD
    return {n: SPECIAL.get(piece, own.get(piece)) for n, piece in table(name, side).items()}


def changed(path, **options):
    """Writes options into a JSON file."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **options}))


def write_safetensors(path, arrays, **changes):
    """The format by hand; `changes` are entries of the header."""
    header, content = {}, b""
    for name, array in arrays.items():
        end = len(content) + array.nbytes
        header[name] = {
            "dtype": {2: "F16", 4: "F32", 8: "F64"}[array.itemsize],
            "shape": array.shape,
            "data_offsets": [len(content), end],
        }
        content += array.tobytes()
    header = json.dumps({**header, **changes}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + content)

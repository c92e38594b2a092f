"""The stored folders of T5, BART and Pegasus models, and what the originals say of them."""

from stored import Stored

from tfformer.config import BOS, EOS, PAD, UNK

FOLDERS = (
    *(f"t5/{name}" for name in ("t5", "flan", "mt5", "madlad", "umt5")),
    *(f"bart/{name}" for name in ("bart", "bart-scaled", "pegasus", "pegasus-json")),
)
PEGASUS_UNK = 7  # 2 in its SentencePiece model, and 5 ids between


STORED = Stored()
folder, answers, logits, copied = STORED.folder, STORED.answers, STORED.logits, STORED.copied


def our_ids(name, ids):
    """Ids of the original as ours. What begins a target is our bos: the pad of T5 and Pegasus."""
    if name.startswith("bart/bart"):
        return [{1: PAD, 2: EOS, 3: UNK}.get(n, 4 + n) for n in ids]
    unk = PEGASUS_UNK if name.startswith("bart/") else 2
    special = {0: BOS, 1: EOS, unk: UNK}
    return [special.get(n, n + 1 + (n < unk)) for n in ids]


def unknown(name):
    """The original's id of the unknown word."""
    return 3 if name.startswith("bart/bart") else PEGASUS_UNK if name.startswith("bart/") else 2

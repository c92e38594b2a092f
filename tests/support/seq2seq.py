"""The stored folders of T5, BART and Pegasus models, with the results of the originals."""

from stored import Stored

from tfformer.config import BOS, EOS, PAD, UNK

FOLDERS = (
    *(f"t5/{name}" for name in ("t5", "flan", "mt5", "madlad", "umt5")),
    *(f"bart/{name}" for name in ("bart", "bart-scaled", "pegasus", "pegasus-json")),
)
PEGASUS_UNK = 7  # 2 in its SentencePiece model, plus 5 other ids


STORED = Stored()
folder, answers, logits, copied = STORED.folder, STORED.answers, STORED.logits, STORED.copied


def our_ids(name, ids):
    """The original's ids as ours. The first id of a target is our bos; in T5 and Pegasus it is
    pad."""
    if name.startswith("bart/bart"):
        return [{1: PAD, 2: EOS, 3: UNK}.get(n, 4 + n) for n in ids]
    unk = PEGASUS_UNK if name.startswith("bart/") else 2
    special = {0: BOS, 1: EOS, unk: UNK}
    return [special.get(n, n + 1 + (n < unk)) for n in ids]


def unknown(name):
    """The original's id of an unknown word."""
    return 3 if name.startswith("bart/bart") else PEGASUS_UNK if name.startswith("bart/") else 2

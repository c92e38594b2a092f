"""The stored folders of M2M100, NLLB-200, SMALL-100 and mBART-50, with the originals' results."""

import json
import re

import numpy as np
import sentencepiece
from stored import Stored

from tfformer.config import BOS, EOS, PAD, UNK
from tfformer.text.vocabularies import FILLING

# The folders, and the target language that an import needs if the folder names none.
FOLDERS = {"m2m": "de", "nllb": None, "whole": "deu_Latn", "small100": None, "mbart": "de_DE"}
PAIRS = {name: ("en-de", "fr-en") for name in ("m2m", "small100")}
PAIRS |= {name: ("eng_Latn-deu_Latn", "fra_Latn-eng_Latn") for name in ("nllb", "whole")}
PAIRS["mbart"] = ("en_XX-de_DE", "fr_XX-en_XX")
SPECIAL = {"<pad>": PAD, "<unk>": UNK, "</s>": EOS}


STORED = Stored("m2m100")
folder, answers, copied = STORED.folder, STORED.answers, STORED.copied


def arguments(name, run, at=None):
    """The arguments of the command that imports a folder."""
    language = FOLDERS[name]
    given = ["--target-language", language] if language else []
    return [str(at or folder(name)), str(run), *given]


def states(name):
    """{"PAIR/NUMBER/logits" or "PAIR/NUMBER/states": array}, by the original's ids."""
    with np.load(folder(name) / "states.npz") as file:
        return dict(file)


def table(name):
    """{the original's id: its piece}, without language codes."""
    path = folder(name) / "vocab.json"
    if path.exists():
        return {n: piece for piece, n in json.loads(path.read_text()).items()}
    if name == "mbart":
        model = sentencepiece.SentencePieceProcessor(
            model_file=str(folder(name) / "sentencepiece.bpe.model")
        )
        pieces = [model.id_to_piece(n) for n in range(3, model.vocab_size())]
        return dict(enumerate(["<s>", "<pad>", "</s>", "<unk>", *pieces]))
    pieces = json.loads((folder(name) / "tokenizer.json").read_text())["model"]["vocab"]
    return {n: piece for piece, n in pieces.items()}


def our_ids(name, tokenizer):
    """{the original's id: ours}, by the names of the pieces."""
    own = {piece: n for n, piece in enumerate(tokenizer.pieces("source"))}
    names = table(name)
    if name in ("m2m", "small100", "mbart"):
        code = r"[a-z]{2}_[A-Z]{2}" if name == "mbart" else "__.*"
        codes = [piece for piece in own if re.fullmatch(code, piece)]
        names |= dict(enumerate(sorted(codes, key=own.get), len(names)))
    return {
        n: SPECIAL[piece] if piece in SPECIAL else own.get(piece, own.get(f"{FILLING}{n}"))
        for n, piece in names.items()
        if piece != "<s>"
    } | {0: own[f"{FILLING}0"]}


def languages(name, pair):
    """The languages of a request for a pair."""
    source, target = pair.split("-")
    asked = {"source_language": source, "target_language": target}
    return {"target_language": target} if name == "small100" else asked


def with_bos(target_ids):
    return [BOS, *target_ids[:-1]]

"""Reads `tokenizer.json`, the file of the `tokenizers` library, as a SentencePiece model.

Newer folders of Hugging Face have no other file of their tokenizer.
"""

import base64
import binascii
import re

SPACE = "▁"
# The patterns by which runs of blanks become one space: SentencePiece does so too.
BLANKS = ({"Regex": " {2,}"}, {"Regex": "\\n"})


def sentencepiece_of(content, name="tokenizer.json"):
    """The bytes of the SentencePiece model that a `tokenizer.json` was made from.

    Its pieces have the ids of the file. Special pieces become control pieces; other added pieces
    become user-defined ones. Only a BPE with `byte_fallback` falls back to bytes; its caller reads
    how it normalises texts.

    Args:
        content: the object in the file, a dictionary.
        name: its name in an error.

    Raises:
        ValueError: it is neither a Unigram nor a BPE model over spaces, is damaged, or normalises
            texts in another way than SentencePiece.
    """
    from sentencepiece.sentencepiece_model_pb2 import ModelProto

    try:
        model, found = content["model"], ModelProto()
        spec, kinds = found.trainer_spec, ModelProto.SentencePiece
        if model["type"] == "Unigram":
            spec.model_type, unk = spec.UNIGRAM, model["unk_id"]
            scored = [(piece, float(score)) for piece, score in model["vocab"]]
        elif model["type"] == "BPE":
            spec.model_type, scored = spec.BPE, _scored_by_merges(model)
            spec.byte_fallback = model.get("byte_fallback") is True
            unk = [piece for piece, _ in scored].index(model.get("unk_token") or "<unk>")
        else:
            raise ValueError(f"model must be Unigram or BPE, got {model['type']!r:.99}")
        added = content.get("added_tokens") or []
        special = {row["content"]: bool(row["special"]) for row in added}
        more = {row["id"]: row["content"] for row in added if row["id"] >= len(scored)}
        if sorted(more) != list(range(len(scored), len(scored) + len(more))):
            raise ValueError("added_tokens must follow the ids of the vocabulary")
        scored += [(more[number], 0.0) for number in sorted(more)]
        for number, (piece, score) in enumerate(scored):
            is_byte = spec.byte_fallback and re.fullmatch("<0x[0-9A-F]{2}>", piece)
            kind = kinds.BYTE if is_byte else kinds.NORMAL
            kind = kinds.UNKNOWN if number == unk else kind
            if number != unk and piece in special:
                kind = kinds.CONTROL if special[piece] else kinds.USER_DEFINED
            if not piece or not abs(score) < 1e30:
                raise ValueError(f"piece {number} must have a name and a score, got {piece!r:.99}")
            found.pieces.add(piece=piece, score=score, type=kind)
        if spec.byte_fallback:
            _require_all_merges(model, {piece for piece, _ in scored} - set(special))
            found.normalizer_spec.remove_extra_whitespaces = False
        else:
            _set_normalizer(found.normalizer_spec, content)
        spec.unk_id = unk
        return found.SerializeToString()
    except (KeyError, TypeError, AttributeError, ValueError, binascii.Error) as error:
        what = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{name} must be a tokenizer of the tokenizers library: {what}") from error


def _scored_by_merges(model):
    """[(piece, score)] of a BPE model, by id: the earlier the merge that makes a piece, the higher
    its score."""
    ids = model["vocab"]
    if sorted(ids.values()) != list(range(len(ids))):
        raise ValueError("vocab must have each id once")
    ranks = {}
    for number, (left, right) in enumerate(_merges(model)):
        ranks.setdefault(left + right, number)
    pieces = sorted(ids, key=ids.__getitem__)
    return [(piece, -float(ranks.get(piece, len(ranks)))) for piece in pieces]


def _merges(model):
    """The merges of a BPE model, pairs of pieces."""
    return [one.split(" ") if isinstance(one, str) else one for one in model["merges"]]


def _require_all_merges(model, pieces):
    """Raises a ValueError unless a piece is made of any two others, as SentencePiece makes it: the
    merges of one piece follow each other in the list."""
    ranks = {(left, right): number for number, (left, right) in enumerate(_merges(model))}
    for piece in pieces:
        halves = ((piece[:n], piece[n:]) for n in range(1, len(piece)))
        found = [ranks.get(pair, -1) for pair in halves if pieces.issuperset(pair)]
        if found and (min(found) < 0 or max(found) - min(found) >= len(found)):
            raise ValueError(f"merges must have all pairs that make {piece!r:.99}, in a row")


def _set_normalizer(spec, content):
    """Sets how texts are normalised and split at spaces."""
    spec.name = "identity"
    for step in _steps(content.get("normalizer"), "normalizers"):
        if step["type"] == "Replace" and step["pattern"] in BLANKS and step["content"] == " ":
            continue
        if step["type"] != "Precompiled":
            raise ValueError(f"normalizer must be Precompiled, got {step['type']!r:.99}")
        spec.name = "precompiled"
        spec.precompiled_charsmap = base64.b64decode(step["precompiled_charsmap"], validate=True)
    split = {step["type"]: step for step in _steps(content["pre_tokenizer"], "pretokenizers")}
    space = split.pop("Metaspace", {})
    if set(split) - {"WhitespaceSplit"} or space.get("replacement") != SPACE:
        raise ValueError(f"pre_tokenizer must be a Metaspace, got {sorted(split)}")
    if space.get("prepend_scheme", "always") != "always":
        raise ValueError(f"prepend_scheme must be 'always', got {space['prepend_scheme']!r:.99}")
    spec.add_dummy_prefix = spec.remove_extra_whitespaces = spec.escape_whitespaces = True


def _steps(part, inside):
    """The steps of a part that may be one step, a sequence, or None."""
    if part is None:
        return []
    return part[inside] if part["type"] == "Sequence" else [part]

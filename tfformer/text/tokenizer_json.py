"""Reads `tokenizer.json`, the file of the `tokenizers` library, as a SentencePiece model.

Newer folders of Hugging Face have no other file of their tokenizer.
"""

import base64
import binascii

UNIGRAM, SPACE = "Unigram", "▁"
# The patterns by which runs of blanks become one.
BLANKS = ({"Regex": " {2,}"}, {"Regex": "\\n"})


def sentencepiece_of(content, name="tokenizer.json"):
    """The bytes of the SentencePiece model that a Unigram `tokenizer.json` was made from.

    Its special pieces become control pieces; other added pieces become user-defined ones. (In such
    a file, a model never falls back to bytes.)

    Args:
        content: the object in the file, a dictionary.
        name: its name in an error.

    Raises:
        ValueError: it is no Unigram model, is damaged, or splits or normalises texts in another way
            than SentencePiece.
    """
    from sentencepiece.sentencepiece_model_pb2 import ModelProto

    try:
        model, added = content["model"], content.get("added_tokens") or []
        if model.get("type") != UNIGRAM:
            raise ValueError(f"model must be {UNIGRAM}, got {model.get('type')!r}")
        found = ModelProto()
        kinds = ModelProto.SentencePiece
        special = {row["content"]: bool(row["special"]) for row in added}
        ids = {row["content"]: row["id"] for row in added}
        names = [piece for piece, _ in model["vocab"]]
        for number, (piece, score) in enumerate(model["vocab"]):
            kind = kinds.NORMAL
            if number == model["unk_id"]:
                kind = kinds.UNKNOWN
            elif piece in special:
                kind = kinds.CONTROL if special[piece] else kinds.USER_DEFINED
            found.pieces.add(piece=piece, score=score, type=kind)
        more = sorted((ids[piece], piece) for piece in ids if piece not in set(names))
        if [number for number, _ in more] != list(range(len(names), len(names) + len(more))):
            raise ValueError("added_tokens must follow the ids of the vocabulary")
        for _, piece in more:
            kind = kinds.CONTROL if special[piece] else kinds.USER_DEFINED
            found.pieces.add(piece=piece, score=0.0, type=kind)
        found.trainer_spec.model_type = found.trainer_spec.UNIGRAM
        found.trainer_spec.unk_id = model["unk_id"]
        _set_normalizer(found.normalizer_spec, content)
        return found.SerializeToString()
    except (KeyError, TypeError, AttributeError, ValueError, binascii.Error) as error:
        what = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{name} must be a tokenizer of the tokenizers library: {what}") from error


def _set_normalizer(spec, content):
    """Sets how texts are normalised and split at spaces."""
    steps = _steps(content.get("normalizer"), "normalizers")
    for step in steps:
        if step["type"] == "Replace" and step["pattern"] in BLANKS and step["content"] == " ":
            continue  # SentencePiece does so too
        if step["type"] != "Precompiled":
            raise ValueError(f"normalizer must be Precompiled, got {step['type']!r}")
        spec.precompiled_charsmap = base64.b64decode(step["precompiled_charsmap"], validate=True)
    spec.name = "identity" if not steps else "precompiled"
    split = {step["type"]: step for step in _steps(content["pre_tokenizer"], "pretokenizers")}
    space = split.pop("Metaspace", {})
    if set(split) - {"WhitespaceSplit"} or space.get("replacement") != SPACE:
        raise ValueError(f"pre_tokenizer must be a Metaspace, got {sorted(split)}")
    if space.get("prepend_scheme", "always") != "always":
        raise ValueError(f"prepend_scheme must be 'always', got {space['prepend_scheme']!r}")
    spec.add_dummy_prefix = spec.remove_extra_whitespaces = spec.escape_whitespaces = True


def _steps(part, inside):
    """The steps of a part that may be one step, a sequence, or None."""
    if part is None:
        return []
    return part[inside] if part["type"] == "Sequence" else [part]

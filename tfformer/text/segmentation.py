"""The tables of a SentencePiece model, for a program that splits text without SentencePiece."""

from tfformer.text.vocabularies import SentencePieceModel

KINDS = {1: "unigram", 2: "bpe", 4: "char"}  # by the type of the model
USER_DEFINED, UNUSED = 4, 5  # types of its pieces


def tables_of(side):
    """What splits a text into the pieces of a side, and joins them again.

    Returns:
        kind: `"unigram"`, `"bpe"` or `"char"`.
        pieces, scores, types: of each id; the types are those of SentencePiece: 1 normal, 2
            unknown, 3 control, 6 byte.
        byteFallback: whether unknown characters are written as bytes.
        normalizer: the rules, the bytes of a double array; and whether a text gets a space at its
            beginning (`prefix`), repeated spaces become one (`merge`), and spaces become "▁"
            (`escape`).

    Raises:
        ValueError: the side is of another kind, or uses more of SentencePiece than these tables.
    """
    if type(side) is not SentencePieceModel:  # a subclass splits in another way
        raise ValueError(f"must be a SentencePiece model, got {type(side).__name__}")
    from sentencepiece.sentencepiece_model_pb2 import ModelProto

    model = ModelProto.FromString(side.content)
    trainer, rules = model.trainer_spec, model.normalizer_spec
    for is_other, words in (
        (side.codes is not None, "no language codes"),
        (
            any(piece.type in (USER_DEFINED, UNUSED) for piece in model.pieces),
            "no user-defined or unused pieces",
        ),
        (trainer.model_type not in KINDS, "pieces inside words, not whole words"),
        (trainer.treat_whitespace_as_suffix, "the space before a word, not after it"),
    ):
        if is_other:
            raise ValueError(f"must be a SentencePiece model with {words}")
    return {
        "kind": KINDS[trainer.model_type],
        "pieces": [piece.piece for piece in model.pieces],
        "scores": [piece.score for piece in model.pieces],
        "types": [piece.type for piece in model.pieces],
        "byteFallback": trainer.byte_fallback,
        "normalizer": {
            "rules": rules.precompiled_charsmap,
            "prefix": rules.add_dummy_prefix,
            "merge": rules.remove_extra_whitespaces,
            "escape": rules.escape_whitespaces,
        },
    }

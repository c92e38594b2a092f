"""Reads the SentencePiece tokenizers of decoder-only models, such as Llama 2, with our ids."""

from tfformer.files import LONGEST_TEXT, read_bytes
from tfformer.text.imported_sentencepiece import renumbered
from tfformer.text.llama_pieces import LlamaPieces
from tfformer.text.renumbering import parsed
from tfformer.text.tokenizer_json import sentencepiece_of
from tfformer.text.vocabularies import FILLING, SPACE

from .decoder_files import begins_with_bos, steps_of, vocabulary_of
from .tokenizer_files import TOKENIZER

MODEL = "tokenizer.model"
# The classes of these tokenizers in Hugging Face; with or without "Fast" at the end.
CLASSES = ("LlamaTokenizer", "CodeLlamaTokenizer")
# The steps of tokenizer.json.
TO_PIECES = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
PREPENDED = [{"type": "Prepend", "prepend": SPACE}, TO_PIECES]
METASPACE = {"type": "Metaspace", "replacement": SPACE, "split": False}
TO_TEXT = [
    {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
    {"type": "ByteFallback"}, {"type": "Fuse"},
]  # fmt: skip
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}


def has_pieces(files):
    """Whether the tokenizer of these `Files` is one of SentencePiece."""
    if files.whole:
        return files.model.get("byte_fallback") is True
    named = str(files.settings.get("tokenizer_class")).removesuffix("Fast")
    return named in CLASSES or (files.folder / MODEL).exists()


def read_side(files, size, special):
    """The `LlamaPieces` of a folder; the arguments are those of `decoder_text.read_text`.

    If there is no tokenizer.json, the spaces are those of the class LlamaTokenizer.
    """
    path = files.folder / (TOKENIZER if files.whole else MODEL)
    if files.whole:
        content, space = sentencepiece_of(files.whole, path), _space_of(files)
    elif path.exists():
        content, space = read_bytes(path, LONGEST_TEXT), _space_of_settings(files)
    else:
        raise ValueError(f"{files.folder} must have {MODEL} or {TOKENIZER}, got none")
    model = parsed(content, path)
    _require_kind(model, path)
    table = {piece.piece: n for n, piece in enumerate(model.pieces)}
    vocabulary = vocabulary_of(files, table, size, special)
    kind = type(model.pieces[0])
    for n in range(len(model.pieces), max(vocabulary.by_id) + 1):
        name = vocabulary.by_id.get(n, f"{FILLING}{n}")
        model.pieces.add(piece=name, score=0.0, type=kind.CONTROL)
    for n, piece in enumerate(model.pieces):
        if vocabulary.by_id.get(n, piece.piece) != piece.piece:
            raise ValueError(
                f"{files.folder} must have one piece for id {n}, got {piece.piece!r:.99} and "
                f"{vocabulary.by_id[n]!r:.99}"
            )
        if piece.piece in vocabulary.hidden or piece.type == kind.UNKNOWN:
            piece.type = kind.CONTROL
        elif piece.piece in vocabulary.added:
            piece.type = kind.USER_DEFINED
    model.normalizer_spec.add_dummy_prefix = False
    bos = begins_with_bos(files, vocabulary.by_id[special.bos], default=not files.whole)
    try:
        content = renumbered(model.SerializeToString(), (None, None, None, special.eos), size)
        ends = [4 + n for n in special.ends]
        return LlamaPieces(LlamaPieces.content_of(content, space, bos, ends), path)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _require_kind(model, path):
    """Raises a ValueError unless the model is a BPE with bytes that does not normalise texts."""
    spec, norm = model.trainer_spec, model.normalizer_spec
    for name, found, rule in (
        ("model_type", spec.ModelType.Name(spec.model_type), "BPE"),
        ("byte_fallback", spec.byte_fallback, True),
        ("bytes", sum(piece.type == piece.BYTE for piece in model.pieces), 256),
        ("treat_whitespace_as_suffix", spec.treat_whitespace_as_suffix, False),
        ("remove_extra_whitespaces", norm.remove_extra_whitespaces, False),
        ("escape_whitespaces", norm.escape_whitespaces, True),
        ("normalization_rule", bool(norm.precompiled_charsmap) and norm.name, False),
    ):
        if found != rule:
            raise ValueError(f"{path}: {name} must be {rule}, got {found!r:.99}")


def _space_of_settings(files):
    """The `space` of `LlamaPieces` by tokenizer_config.json."""
    if not files.flag("add_prefix_space", True):
        return "never"
    return "always" if files.flag("legacy", False) else "first"


def _space_of(files):
    """The `space` of `LlamaPieces` by tokenizer.json."""
    files.require_model("BPE")
    files.require_off("continuing_subword_prefix", "end_of_word_suffix", "dropout", "ignore_merges")
    normalizer = steps_of(files.whole.get("normalizer"), "normalizers")
    split = files.whole.get("pre_tokenizer")
    scheme = split.get("prepend_scheme") if isinstance(split, dict) else None
    if normalizer == [None] and split == {**METASPACE, "prepend_scheme": scheme}:
        space = scheme
    elif split is None:
        space = {str(PREPENDED): "prepend", str([TO_PIECES]): "never"}.get(str(normalizer))
    else:
        space = None
    if space not in ("never", "first", "always", "prepend"):
        raise ValueError(
            f"{files.folder / TOKENIZER}: normalizer and pre_tokenizer must replace spaces as "
            f"Llama 2 or a Metaspace without split, got {normalizer!r:.200} and {split!r:.200}"
        )
    decoder = steps_of(files.whole.get("decoder"), "decoders")
    if decoder != TO_TEXT + [STRIP] * (space != "never"):
        raise ValueError(
            f"{files.folder / TOKENIZER}: decoder must turn pieces and bytes into text as that of "
            f"Llama 2, got {decoder!r:.300}"
        )
    return space

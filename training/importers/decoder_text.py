"""Reads the tokenizers of decoder-only models, with our ids: byte-level BPE, or SentencePiece.

Pieces that a folder adds to its vocabulary, such as "<|im_end|>", are one id wherever they stand in
a text. Special ones are hidden in a decoded text.
"""

from tfformer.text.byte_pairs import BytePairs
from tfformer.text.tokenizer import Tokenizer

from . import decoder_pieces
from .decoder_files import begins_with_bos, steps_of, vocabulary_of
from .id_mapping import Numbering
from .tokenizer_files import SETTINGS, TOKENIZER, Files, merges

FILES = (
    TOKENIZER, SETTINGS, "vocab.json", "merges.txt", "special_tokens_map.json", "added_tokens.json",
)  # fmt: skip
# The classes of these tokenizers in Hugging Face; with or without "Fast" at the end.
CLASSES = ("GPT2Tokenizer", "Qwen2Tokenizer", "PreTrainedTokenizer", "TokenizersBackend")
# The expressions of words in tokenizer.json, and our names of them.
QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
EXPRESSIONS = {QWEN: "qwen-2", QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|"): "llama-3"}


def read_text(folder, size, special):
    """Reads the `Tokenizer` of a folder and its `Numbering`.

    Args:
        folder: its path.
        size: the number of the original's ids.
        special: its `SpecialTokens`.

    Raises:
        ValueError: a file is missing or damaged, or the tokenizer has no counterpart here.
    """
    files = Files(folder, (*CLASSES, *decoder_pieces.CLASSES))
    read_side = decoder_pieces.read_side if decoder_pieces.has_pieces(files) else _read_side
    side = read_side(files, size, special)
    # Our bos has the embedding of the original's; its own probability is 0. There is no pad, and no
    # unknown word.
    others = [None if n == special.eos else n for n in range(size)]
    return Tokenizer(side), Numbering([None, None, special.bos, special.eos, *others], [2])


def _read_side(files, size, special):
    """The `BytePairs` of a folder; the arguments are those of `read_text`."""
    if files.whole:
        words, prefix_space, nfc = _splitting(files)
    elif str(files.settings.get("tokenizer_class")).startswith("Qwen2"):
        words, prefix_space, nfc = "qwen-2", False, True
    else:
        words, prefix_space, nfc = True, files.flag("add_prefix_space", False), False
    vocabulary = vocabulary_of(files, files.table(size, "vocab.json"), size, special)
    by_id, hidden = vocabulary.by_id, vocabulary.hidden
    settings = {
        "whole": sorted({*vocabulary.added, *hidden}), "words": words, "nfc": nfc,
        "prefix_space": prefix_space, "hidden": sorted(hidden),
        "ends": [by_id[n] for n in special.ends],
        "prompt_bos": begins_with_bos(files, by_id[special.bos]),
        "whole_words": bool(files.whole and files.model.get("ignore_merges")),
    }  # fmt: skip
    try:
        tables = vocabulary.table, merges(files), [None, None, None, special.eos], size
        return BytePairs(*tables, **settings)
    except ValueError as error:
        raise ValueError(f"{files.folder}: {TOKENIZER} or merges.txt: {error}") from error


def _splitting(files):
    """Reads from tokenizer.json how texts are split into words, whether they get a space in front,
    and whether they are normalised to NFC."""
    files.require_model("BPE")
    files.require_off("continuing_subword_prefix", "end_of_word_suffix", "dropout")
    files.require_steps(decoder="ByteLevel")
    normalizer = files.whole.get("normalizer")
    if normalizer not in (None, {"type": "NFC"}):
        raise ValueError(
            f"{files.folder / TOKENIZER}: normalizer must be None or NFC, got {normalizer!r:.99}"
        )
    steps = steps_of(files.whole.get("pre_tokenizer"), "pretokenizers")
    words = _kind_of_words(steps)
    if words is None:
        raise ValueError(
            f"{files.folder / TOKENIZER}: pre_tokenizer must split words as GPT-2, SmolLM, Llama 3 "
            f"or Qwen2, got {steps!r:.300}"
        )
    prefix_space = steps[-1].get("add_prefix_space", True)
    files.require_prefix_space(prefix_space)
    return words, prefix_space, normalizer is not None


def _kind_of_words(steps):
    """The kind of words that the steps of a `pre_tokenizer` split; None if there is none here."""
    if not all(isinstance(step, dict) for step in steps) or not steps:
        return None
    *before, last = steps
    by_itself = last.get("use_regex", True)
    space = last.get("add_prefix_space", True)
    if last.get("type") != "ByteLevel" or type(by_itself) is not bool or type(space) is not bool:
        return None
    if not before:
        return True if by_itself else None
    if space or len(before) > 1:
        return None
    first = before[0]
    if by_itself:
        return "digits" if first == {"type": "Digits", "individual_digits": True} else None
    pattern, split = first.get("pattern"), {"type": "Split", "behavior": "Isolated"}
    split |= {"pattern": pattern, "invert": False}
    expression = pattern.get("Regex") if isinstance(pattern, dict) else None
    return EXPRESSIONS.get(str(expression)) if first == split else None

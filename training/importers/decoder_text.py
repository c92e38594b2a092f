"""Reads the byte-level BPE tokenizers of decoder-only models, with our ids.

Pieces that a folder adds to its vocabulary, such as "<|im_end|>", are one id wherever they stand in
a text. Special ones are hidden in a decoded text.
"""

from pathlib import Path
from typing import NamedTuple

from tfformer.text.byte_pairs import BytePairs
from tfformer.text.tokenizer import Tokenizer

from . import bert_text
from .bert_text import SETTINGS, TOKENIZER
from .id_mapping import Numbering

FILES = (
    TOKENIZER, SETTINGS, "vocab.json", "merges.txt", "special_tokens_map.json", "added_tokens.json",
)  # fmt: skip
# The classes of these tokenizers in Hugging Face; with or without "Fast" at the end.
CLASSES = ("GPT2Tokenizer", "Qwen2Tokenizer", "PreTrainedTokenizer", "TokenizersBackend")
SENTENCEPIECE = ("LlamaTokenizer", "CodeLlamaTokenizer")
DEFAULT = "<|endoftext|>"  # a special token of a folder that names none
NAMES = ("bos_token", "eos_token", "unk_token", "pad_token")
# The expressions of words in tokenizer.json, and our names of them.
QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
EXPRESSIONS = {QWEN: "qwen-2", QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|"): "llama-3"}
# Attributes of an added token that must be false.
FALSE = ("lstrip", "rstrip", "single_word")


class SpecialTokens(NamedTuple):
    """The original's ids of special tokens: bos; eos; and others that end a text too."""

    bos: int
    eos: int
    ends: tuple


def read_text(folder, size, special):
    """Reads the `Tokenizer` of a folder and its `Numbering`.

    Args:
        folder: its path.
        size: the number of the original's ids.
        special: its `SpecialTokens`.

    Raises:
        ValueError: a file is missing or damaged, or the tokenizer has no counterpart here.
    """
    path = Path(folder)
    files = bert_text.Files(path, (*CLASSES, *SENTENCEPIECE))
    _require_byte_level(files)
    is_qwen = str(files.settings.get("tokenizer_class")).startswith("Qwen2")
    if files.whole:
        words, prefix_space, nfc = _splitting(files)
    elif is_qwen:
        words, prefix_space, nfc = "qwen-2", False, True
    else:
        words, prefix_space, nfc = True, files.flag("add_prefix_space", False), False
    table = files.table(size, "vocab.json")
    added = _added(files, table, size)
    table = {**table, **{name: n for name, (n, _) in added.items()}}
    by_id = {n: piece for piece, n in table.items()}
    ids = special.bos, special.eos, *special.ends
    if missing := [n for n in ids if n not in by_id]:
        raise ValueError(f"the vocabulary of {path} must have a piece for id {missing[0]}")
    hidden = {by_id[n] for n in ids} | {name for name, (_, is_hidden) in added.items() if is_hidden}
    settings = {
        "whole": sorted({*added, *hidden}), "words": words, "prefix_space": prefix_space,
        "hidden": sorted(hidden), "ends": [by_id[n] for n in special.ends], "nfc": nfc,
        "prompt_bos": _begins_with_bos(files, by_id[special.bos]),
        "whole_words": bool(files.whole and files.model.get("ignore_merges")),
    }  # fmt: skip
    try:
        tables = table, bert_text.merges(files), [None, None, None, special.eos], size
        side = BytePairs(*tables, **settings)
    except ValueError as error:
        raise ValueError(f"{path}: {TOKENIZER} or merges.txt: {error}") from error
    # Our bos has the embedding of the original's; its own probability is 0. There is no pad, and no
    # unknown word.
    others = [None if n == special.eos else n for n in range(size)]
    return Tokenizer(side), Numbering([None, None, special.bos, special.eos, *others], [2])


def _require_byte_level(files):
    """Raises a ValueError for a tokenizer of SentencePiece."""
    if files.whole:
        is_one = files.model.get("byte_fallback") is True
    else:
        named = str(files.settings.get("tokenizer_class")).removesuffix("Fast")
        is_one = named in SENTENCEPIECE or (files.folder / "tokenizer.model").exists()
    if is_one:
        raise ValueError(
            f"the tokenizer of {files.folder} must be a byte-level BPE, got SentencePiece: "
            "`tfformer export-keras-hub` exports Mistral and Gemma folders with one"
        )


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
    steps = _steps(files.whole.get("pre_tokenizer"), "pretokenizers")
    words = _kind_of_words(steps)
    if words is None:
        raise ValueError(
            f"{files.folder / TOKENIZER}: pre_tokenizer must split words as GPT-2, SmolLM, Llama 3 "
            f"or Qwen2, got {steps!r:.300}"
        )
    prefix_space = steps[-1].get("add_prefix_space", True)
    files.require_prefix_space(prefix_space)
    return words, prefix_space, normalizer is not None


def _steps(part, inside):
    """The steps of a part that may be one step or a sequence."""
    if isinstance(part, dict) and part.get("type") == "Sequence":
        part = part.get(inside)
    return part if isinstance(part, list) else [part]


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


def _added(files, table, size):
    """{piece: (id, whether it is hidden)} of the pieces that a folder adds to its vocabulary, and
    of the special tokens that it names."""
    rows = [{**row, "id": row.get("id")} for row in files.rows_of_tokenizer()]
    rows += [{**row, "id": int(n)} for n, row in files.rows_of_settings().items()]
    rows += [{"content": name, "id": n} for name, n in files.object_of("added_tokens.json").items()]
    named = {files.named(option, DEFAULT) for option in NAMES} & set(table)
    found = {name: (table[name], True) for name in named}
    for row in rows:
        name, n = row.get("content"), row["id"]
        if not isinstance(name, str) or not name or type(n) is not int or not 0 <= n < size:
            raise ValueError(
                f"{files.folder}: an added token must have a name and an id below {size:,}, got "
                f"{name!r:.99} and {n!r:.99}"
            )
        if wrong := [one for one in FALSE if row.get(one)]:
            raise ValueError(f"{files.folder}: {wrong[0]} of {name!r:.99} must be false")
        if table.get(name, n) != n:
            raise ValueError(f"{files.folder} must have one id for {name!r:.99}, got {n} too")
        found[name] = n, bool(row.get("special")) or found.get(name, (n, False))[1]
    return found


def _begins_with_bos(files, bos):
    """Whether the tokenizer puts bos before a text."""
    if files.flag("add_eos_token", False):
        raise ValueError(f"{files.folder / SETTINGS}: add_eos_token must be false, got True")
    if files.settings.get("add_bos_token") is not None:
        return files.flag("add_bos_token", False)
    for step in _steps(files.whole.get("post_processor"), "processors"):
        step = step if isinstance(step, dict) else {"type": step}
        kind = step.get("type")
        if kind in (None, "ByteLevel"):
            continue
        before = [{"SpecialToken": {"id": bos, "type_id": 0}}]
        text = [{"Sequence": {"id": "A", "type_id": 0}}]
        if kind == "TemplateProcessing" and step.get("single") == before + text:
            return True
        if kind != "TemplateProcessing" or step.get("single") != text:
            raise ValueError(
                f"{files.folder / TOKENIZER}: post_processor must add {bos} before a text, or "
                f"nothing, got {step!r:.300}"
            )
    return False

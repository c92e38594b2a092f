"""Reads what all tokenizers of decoder-only models have: special tokens and added pieces."""

from typing import NamedTuple

from .tokenizer_files import SETTINGS, TOKENIZER

DEFAULT = "<|endoftext|>"  # a special token of a folder that names none
NAMES = ("bos_token", "eos_token", "unk_token", "pad_token")
# Attributes of an added token that must be false.
FALSE = ("lstrip", "rstrip", "single_word")


class SpecialTokens(NamedTuple):
    """The original's ids of special tokens: bos; eos; and others that end a text too."""

    bos: int
    eos: int
    ends: tuple


def steps_of(part, inside):
    """The steps of a part that may be one step or a sequence."""
    if isinstance(part, dict) and part.get("type") == "Sequence":
        part = part.get(inside)
    return part if isinstance(part, list) else [part]


class Vocabulary(NamedTuple):
    """The original's vocabulary with the pieces that a folder adds.

    table: {piece: id}.
    by_id: {id: piece}.
    added: the added pieces and the special tokens, a set.
    hidden: those that no decoded text shows, a set.
    """

    table: dict
    by_id: dict
    added: set
    hidden: set


def vocabulary_of(files, table, size, special):
    """The `Vocabulary` of a table, {piece: id}, and what the folder adds to it.

    Args:
        files: its `Files`.
        table: the vocabulary without added pieces.
        size: the number of the original's ids.
        special: its `SpecialTokens`.
    """
    added = _added(files, table, size)
    table = {**table, **{name: n for name, (n, _) in added.items()}}
    by_id = {n: piece for piece, n in table.items()}
    ids = special.bos, special.eos, *special.ends
    if missing := [n for n in ids if n not in by_id]:
        raise ValueError(f"the vocabulary of {files.folder} must have a piece for id {missing[0]}")
    hidden = {by_id[n] for n in ids} | {name for name, (_, is_hidden) in added.items() if is_hidden}
    return Vocabulary(table, by_id, set(added), hidden)


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


def begins_with_bos(files, bos, default=False):
    """Whether the tokenizer puts bos before a text; `default`, if no file says so."""
    if files.flag("add_eos_token", False):
        raise ValueError(f"{files.folder / SETTINGS}: add_eos_token must be false, got True")
    if files.settings.get("add_bos_token") is not None:
        return files.flag("add_bos_token", False)
    for step in steps_of(files.whole.get("post_processor"), "processors"):
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
    return default

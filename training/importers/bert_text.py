"""Reads the tokenizers of BERT, DistilBERT, RoBERTa and XLM-R, with our ids."""

from pathlib import Path
from typing import NamedTuple

from tfformer.config import EOS
from tfformer.files import LONGEST_TEXT, read_bytes
from tfformer.text.byte_pairs import BytePairs
from tfformer.text.renumbering import piece_kinds, renumbered
from tfformer.text.tokenizer_json import sentencepiece_of
from tfformer.text.vocabularies import FILLING, MASK, SPECIAL
from tfformer.text.word_pieces import LONGEST_WORD, MASKED, WordPieces

from .options import read_json_object

TOKENIZER, SETTINGS = "tokenizer.json", "tokenizer_config.json"
# The files of each tokenizer: any of those of one row.
FILES = ("vocab.txt", "vocab.json", "merges.txt", "sentencepiece.bpe.model", TOKENIZER, SETTINGS,
         "special_tokens_map.json", "added_tokens.json")  # fmt: skip
# The options that name special tokens, in the order of our ids, and the mask.
NAMES = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
BRACKETS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", MASKED)
ANGLES = ("<pad>", "<unk>", "<s>", "</s>", MASK)
# The classes of these tokenizers in Hugging Face; with or without "Fast" at the end.
CLASSES = (
    "BertTokenizer", "DistilBertTokenizer", "RobertaTokenizer", "XLMRobertaTokenizer",
    "BartTokenizer", "PreTrainedTokenizer", "TokenizersBackend",
)  # fmt: skip
FAIRSEQ = ("<s>", "<pad>", "</s>", "<unk>")  # ids 0 to 3 of XLM-R


class Text(NamedTuple):
    """A source side, and the original's id for each id of ours; None: it has none."""

    side: object
    old: list


def read_text(folder, model_type, size):
    """Reads the tokenizer of a folder as `Text`. `size` is the number of the original's ids.

    Raises:
        ValueError: a file is missing or damaged, or the tokenizer has no counterpart here.
    """
    readers = {"roberta": _byte_pairs, "xlm-roberta": _sentence_pieces}
    return readers.get(model_type, _word_pieces)(Files(folder), size)


class Files:
    """The files of a tokenizer: `whole` is the content of tokenizer.json, `settings` that of
    tokenizer_config.json and older files; empty if there is none. `classes` are the possible
    tokenizers."""

    def __init__(self, folder, classes=CLASSES):
        self.folder = Path(folder)
        self.whole = self.object_of(TOKENIZER)
        self.settings = {**self.object_of("special_tokens_map.json"), **self.object_of(SETTINGS)}
        self.model = self.whole.get("model")
        named = self.settings.get("tokenizer_class")
        if named is not None and str(named).removesuffix("Fast") not in classes:
            raise ValueError(
                f"{self.folder / SETTINGS}: tokenizer_class must be one of {classes}, got "
                f"{named!r:.99}"
            )
        if self.whole and not isinstance(self.model, dict):
            raise ValueError(f"{self.folder / TOKENIZER}: model must be an object")

    def object_of(self, name):
        """The object in a JSON file; empty if there is no such file."""
        path = self.folder / name
        return read_json_object(path) if path.exists() else {}

    def flag(self, option, default):
        """A setting that is true or false. None is the default."""
        value = self.settings.get(option)
        value = default if value is None else value
        if type(value) is not bool:
            raise ValueError(
                f"{self.folder / SETTINGS}: {option} must be true or false, got {value!r:.99}"
            )
        return value

    def require_prefix_space(self, found):
        """Raises a ValueError if the settings say otherwise than tokenizer.json, which has
        `found`: the original's versions differ in which of them they follow."""
        if self.settings.get("add_prefix_space") not in (None, found):
            raise ValueError(
                f"{self.folder / SETTINGS}: add_prefix_space must be that of {TOKENIZER}, "
                f"{found}, got {self.settings['add_prefix_space']!r:.99}"
            )

    def named(self, option, default):
        """The name of a special token."""
        value = self.settings.get(option) or default
        value = value.get("content") if isinstance(value, dict) else value
        if not isinstance(value, str):
            raise ValueError(f"{self.folder / SETTINGS}: {option} must be a string")
        return value

    def special(self, defaults):
        """The names of `NAMES`, and a check that there are no more added tokens."""
        names = [self.named(*pair) for pair in zip(NAMES, defaults, strict=True)]
        known = {*names, *defaults}
        rows = [row.get("content") for row in self._rows()]
        for one in (*rows, *self.object_of("added_tokens.json")):
            if one not in known:
                raise ValueError(
                    f"{self.folder} must have no pieces besides its vocabulary, got {one!r:.99}"
                )
        return names

    def takes_blanks(self, name):
        """Whether blanks before the token with this name belong to it: its `lstrip`."""
        rows = [self.settings.get("mask_token"), *self._rows()]
        rows = [row for row in rows if isinstance(row, dict) and row.get("content") == name]
        return any(row.get("lstrip") is True for row in rows)

    def _rows(self):
        return [*self.rows_of_settings().values(), *self.rows_of_tokenizer()]

    def rows_of_settings(self):
        """{id as a string: added token} of tokenizer_config.json."""
        found = self.settings.get("added_tokens_decoder") or {}
        found = found if isinstance(found, dict) else {"": found}
        self._require_rows(found.values())
        if wrong := [n for n in found if not n.isdecimal()]:
            raise ValueError(f"{self.folder / SETTINGS}: {wrong[0]!r:.99} must be an id")
        return found

    def rows_of_tokenizer(self):
        """The added tokens of tokenizer.json."""
        found = self.whole.get("added_tokens") or []
        found = found if isinstance(found, list) else [found]
        self._require_rows(found)
        return found

    def _require_rows(self, rows):
        if wrong := [row for row in rows if not isinstance(row, dict)]:
            raise ValueError(f"{self.folder}: added tokens must be objects, got {wrong[0]!r:.99}")

    def require_model(self, kind):
        """Raises a ValueError unless tokenizer.json has a model of this kind."""
        if self.model.get("type", kind) != kind:
            raise ValueError(
                f"{self.folder / TOKENIZER}: model type must be {kind}, got "
                f"{self.model.get('type')!r:.99}"
            )

    def require_off(self, *names):
        """Raises a ValueError if the model of tokenizer.json has one of these options."""
        for name in names:
            if self.model.get(name):
                raise ValueError(
                    f"{self.folder / TOKENIZER}: {name} must be empty or false, got "
                    f"{self.model[name]!r:.99}"
                )

    def require_steps(self, **steps):
        """Raises a ValueError unless parts of tokenizer.json have these types, or are not there."""
        for name, kind in steps.items():
            part = self.whole.get(name)
            found = part.get("type") if isinstance(part, dict) else part
            if found != kind:
                raise ValueError(
                    f"{self.folder / TOKENIZER}: {name} must be {kind}, got {found!r:.99}"
                )

    def table(self, size, name):
        """{piece: id} of the vocabulary in tokenizer.json, or else in the file `name`."""
        path = self.folder / (TOKENIZER if self.whole else name)
        if self.whole:
            table = self.model.get("vocab")
        elif not path.exists():
            raise ValueError(f"{self.folder} must have {name} or {TOKENIZER}, got none")
        elif name.endswith(".json"):
            table = read_json_object(path)
        else:
            lines = _lines(path)
            table = {piece: n for n, piece in enumerate(lines)}
            if len(table) < len(lines):
                raise ValueError(f"{path} must have each piece once")
        if not isinstance(table, dict) or any(type(n) is not int for n in table.values()):
            raise ValueError(f"{path} must have an id for each piece")
        ids = sorted(table.values())
        if not ids or len(set(ids)) < len(ids) or not 0 <= ids[0] <= ids[-1] < size:
            raise ValueError(f"{path} must have each id once, from 0 to {size - 1:,}, got others")
        return table


def _lines(path):
    """The lines of a text file in UTF-8."""
    try:
        text = read_bytes(path, LONGEST_TEXT).decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be of UTF-8: {error}") from error
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n")


def _require(table, names, folder):
    """The ids of the special tokens. Raises a ValueError if one is missing."""
    for name in names:
        if name not in table:
            raise ValueError(f"the vocabulary of {folder} must have {name!r:.99}, got none")
    ids = [table[name] for name in names]
    if len(set(ids)) < len(ids):
        raise ValueError(f"the special tokens of {folder} must be different, got {names}")
    return ids


# WordPiece.


def _word_pieces(files, size):
    longest = LONGEST_WORD
    if files.whole:
        files.require_model("WordPiece")
        files.require_steps(pre_tokenizer="BertPreTokenizer")
        longest = files.model.get("max_input_chars_per_word", LONGEST_WORD)
        if files.model.get("continuing_subword_prefix", "##") != "##":
            raise ValueError(f"{files.folder / TOKENIZER}: continuing_subword_prefix must be '##'")
        if type(longest) is not int or not 1 <= longest <= 10_000:
            raise ValueError(
                f"{files.folder / TOKENIZER}: max_input_chars_per_word must be in [1, 10000], got "
                f"{longest!r:.99}"
            )
    table = files.table(size, "vocab.txt")
    names = files.special(BRACKETS)
    if names[-1] not in table:
        names = names[:-1]
    special = _require(table, names, files.folder)
    by_id = {n: piece for piece, n in table.items()}
    others = [n for n in range(size) if n not in special[:4]]
    pieces = [by_id.get(n, f"{FILLING}{n}") for n in others]
    if special[4:]:
        pieces[others.index(special[4])] = MASKED
    for n, piece in enumerate(pieces):
        if piece in SPECIAL or not piece:
            pieces[n] = f"{FILLING}{others[n]}"
    side = WordPieces(pieces, *_normalisation(files), longest)
    return Text(side, [*special[:4], *others])


def _normalisation(files):
    """Whether texts are lowercased, accents removed (None: as lowercased), and Chinese split."""
    found = files.whole.get("normalizer") or {}
    found = found if isinstance(found, dict) else {}
    if files.whole and found.get("type") != "BertNormalizer":
        raise ValueError(
            f"{files.folder / TOKENIZER}: normalizer must be BertNormalizer, got "
            f"{found.get('type')!r:.99}"
        )
    if found.get("clean_text", True) is not True:
        raise ValueError(f"{files.folder / TOKENIZER}: clean_text must be true")
    options = []
    for name, older, default in (
        ("do_lower_case", "lowercase", True),
        ("strip_accents", "strip_accents", None),
        ("tokenize_chinese_chars", "handle_chinese_chars", True),
    ):
        value = files.settings.get(name, found.get(older, default))
        if type(value) is not bool and (default is not None or value is not None):
            raise ValueError(
                f"{files.folder / SETTINGS}: {name} must be true or false, got {value!r:.99}"
            )
        options.append(value)
    return options


# Byte-level BPE.


def _byte_pairs(files, size):
    table, merges, names, settings = byte_pair_tables(files, size)
    special = [table[name] for name in names[:4]]
    side = byte_pairs(files, table, merges, special, size, **settings)
    taken = set(special)
    return Text(side, [*special, *(None if n in taken else n for n in range(size))])


def byte_pairs(files, *tables, **settings):
    """A `BytePairs` whose texts are split into words. A ValueError names the folder."""
    try:
        return BytePairs(*tables, [], words=True, **settings)
    except ValueError as error:
        raise ValueError(f"{files.folder}: {TOKENIZER} or merges.txt: {error}") from error


def byte_pair_tables(files, size):
    """{piece: id}, the merges, the names of the special pieces (`NAMES`) and the other arguments of
    a `BytePairs` whose texts are split into words."""
    names = files.special(ANGLES)
    if files.whole:
        files.require_model("BPE")
        files.require_steps(normalizer=None, pre_tokenizer="ByteLevel")
        files.require_off("continuing_subword_prefix", "end_of_word_suffix", "ignore_merges")
        if files.whole["pre_tokenizer"].get("use_regex", True) is not True:
            raise ValueError(f"{files.folder / TOKENIZER}: use_regex must be true")
        files.require_prefix_space(files.whole["pre_tokenizer"].get("add_prefix_space", True))
    pairs = merges(files)
    table = files.table(size, "vocab.json")
    _require(table, names, files.folder)
    takes_blanks = files.takes_blanks(names[4])
    # Another name of the mask is no name here.
    table = {(MASK if piece == names[4] else piece): n for piece, n in table.items()}
    names[4] = MASK
    prefix = files.flag("add_prefix_space", False)
    settings = {"prefix_space": prefix, "mask_takes_blanks": takes_blanks}
    return table, pairs, names, settings


def merges(files):
    """The merges of tokenizer.json or merges.txt, "a b" each."""
    if files.whole:
        found = files.model.get("merges")
        if not isinstance(found, list):
            raise ValueError(f"{files.folder / TOKENIZER}: merges must be a list")
        found = [" ".join(one) if _is_pair(one) else one for one in found]
    else:
        path = files.folder / "merges.txt"
        if not path.exists():
            raise ValueError(f"{files.folder} must have merges.txt or {TOKENIZER}, got none")
        found = _lines(path)
    if wrong := [one for one in found if not isinstance(one, str)]:
        raise ValueError(f"merges of {files.folder} must be pairs of pieces, got {wrong[0]!r:.99}")
    return found


def _is_pair(one):
    return isinstance(one, list) and len(one) == 2 and all(isinstance(part, str) for part in one)


# SentencePiece, with the ids of fairseq.


def _sentence_pieces(files, size):
    path = files.folder / "sentencepiece.bpe.model"
    names = files.special(ANGLES)
    if tuple(names) != ANGLES:
        raise ValueError(f"the special tokens of {files.folder} must be {ANGLES}, got {names}")
    if path.exists():
        content = read_bytes(path, LONGEST_TEXT)
        pieces = [piece for piece, _ in piece_kinds(content, path)]
        # Its pieces <unk>, <s> and </s> become the four of fairseq; a mask follows the last one.
        table = [*FAIRSEQ, *pieces[3:], MASK]
    else:
        path = files.folder / TOKENIZER
        table, content = _from_whole(files, path)
    if len(table) > size:
        raise ValueError(f"{path} must have at most {size:,} pieces, got {len(table):,}")
    if tuple(table[:4]) != FAIRSEQ or table.count(MASK) != 1:
        raise ValueError(f"{path} must begin with {FAIRSEQ} and have {MASK}, got {table[:4]}")
    table += [f"{FILLING}{n}" for n in range(len(table), size)]
    side = renumbered(content, table[EOS + 1 :], path)
    return Text(side, [1, 3, 0, 2, *range(4, size)])


def _from_whole(files, path):
    """The pieces of the model in tokenizer.json, and the same as a SentencePiece model."""
    if not files.whole:
        raise ValueError(
            f"{files.folder} must have sentencepiece.bpe.model or {TOKENIZER}, got none"
        )
    files.require_model("Unigram")
    content = sentencepiece_of(files.whole, path)
    return [piece for piece, _ in piece_kinds(content, path)], content

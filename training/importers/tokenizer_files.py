"""Reads the files of a tokenizer of Hugging Face, which several families have."""

from pathlib import Path

from tfformer.files import LONGEST_TEXT, read_bytes

from .options import read_json_object

TOKENIZER, SETTINGS = "tokenizer.json", "tokenizer_config.json"
# The options that name special tokens, in the order of our ids, and the mask.
NAMES = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
# The classes of BERT, BART and their relatives in Hugging Face; with or without "Fast" at the end.
CLASSES = (
    "BertTokenizer", "DistilBertTokenizer", "RobertaTokenizer", "XLMRobertaTokenizer",
    "BartTokenizer", "PreTrainedTokenizer", "TokenizersBackend",
)  # fmt: skip


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
            lines = lines_of(path)
            table = {piece: n for n, piece in enumerate(lines)}
            if len(table) < len(lines):
                raise ValueError(f"{path} must have each piece once")
        if not isinstance(table, dict) or any(type(n) is not int for n in table.values()):
            raise ValueError(f"{path} must have an id for each piece")
        ids = sorted(table.values())
        if not ids or len(set(ids)) < len(ids) or not 0 <= ids[0] <= ids[-1] < size:
            raise ValueError(f"{path} must have each id once, from 0 to {size - 1:,}, got others")
        return table


def lines_of(path):
    """The lines of a text file in UTF-8."""
    try:
        text = read_bytes(path, LONGEST_TEXT).decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be of UTF-8: {error}") from error
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n")


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
        found = lines_of(path)
    if wrong := [one for one in found if not isinstance(one, str)]:
        raise ValueError(f"merges of {files.folder} must be pairs of pieces, got {wrong[0]!r:.99}")
    return found


def _is_pair(one):
    return isinstance(one, list) and len(one) == 2 and all(isinstance(part, str) for part in one)

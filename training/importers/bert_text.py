"""Reads the tokenizers of BERT, DistilBERT, RoBERTa and XLM-R, with our ids."""

from typing import NamedTuple

from tfformer.config import EOS
from tfformer.files import LONGEST_TEXT, read_bytes
from tfformer.text.byte_pairs import BytePairs
from tfformer.text.renumbering import piece_kinds, renumbered
from tfformer.text.tokenizer_json import sentencepiece_of
from tfformer.text.vocabularies import FILLING, MASK, SPECIAL
from tfformer.text.word_pieces import LONGEST_WORD, MASKED, WordPieces

from .tokenizer_files import SETTINGS, TOKENIZER, Files, merges

# The files of each tokenizer: any of those of one row.
FILES = ("vocab.txt", "vocab.json", "merges.txt", "sentencepiece.bpe.model", TOKENIZER, SETTINGS,
         "special_tokens_map.json", "added_tokens.json")  # fmt: skip
BRACKETS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", MASKED)
ANGLES = ("<pad>", "<unk>", "<s>", "</s>", MASK)
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
    """{piece: id}, the merges, the names of the special pieces and the other arguments of
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

"""Reads the tokenizer of an OpenNMT-tf model: vocabulary files, perhaps SentencePiece models."""

import re

from tfformer.files import LONGEST_TEXT, read_bytes
from tfformer.text.renumbering import regular_pieces, renumbered
from tfformer.text.tokenizer import Tokenizer
from tfformer.text.vocabularies import FILLING, SPECIAL, PieceTable

from .id_mapping import Numbering, known_pieces

BEGINNING = ["<blank>", "<s>", "</s>"]  # of each vocabulary file
SCORED = r"[^\t]+\t-?\d+(\.\d+)?(e[+-]?\d+)?"
PAD, BOS, EOS = range(3)  # their ids in OpenNMT-tf; the unknown word has the last id


def read_text(files):
    """Reads the `Tokenizer` of `Files`, the `Numbering` of each side, and notes for the user.

    Pieces that the vocabulary lacks are the unknown word to OpenNMT-tf. Here each such source piece
    gets its own id, so that texts are segmented as in OpenNMT-tf. Such target pieces are left out:
    the text is written in smaller pieces instead of with an unknown label.
    """
    same = (files.source_vocabulary, files.source_model) == (
        files.target_vocabulary, files.target_model,
    )  # fmt: skip
    source, source_numbering, note = _side(files.source_vocabulary, files.source_model, True)
    if same and not source_numbering.unknown:
        return Tokenizer(source, source), (source_numbering, source_numbering), note
    target, target_numbering, more = _side(files.target_vocabulary, files.target_model, False)
    notes = tuple(dict.fromkeys(note + more))
    return Tokenizer(source, target), (source_numbering, target_numbering), notes


def _side(path, model, is_source):
    """One side of the tokenizer from a vocabulary file, its `Numbering`, and a note."""
    words = read_vocabulary(path)
    unk = len(words)
    others = range(len(BEGINNING), unk)
    # A piece named like one of our special pieces gets a filling name, which no text contains.
    names = [f"{FILLING}{n}" if words[n] in SPECIAL else words[n] for n in others]
    old, unknown = [PAD, unk, BOS, EOS, *others], []
    if model is None:
        return PieceTable(names, str(path)), Numbering(old, []), ()
    content = read_bytes(model, LONGEST_TEXT)
    pieces, known = regular_pieces(content, model), set(names)
    note = known_pieces(pieces, words, path, model)
    if is_source:
        unknown = [piece for piece in pieces if piece not in known]
    more = list(range(len(old), len(old) + len(unknown)))
    side = renumbered(content, [*names, *unknown], model)
    return side, Numbering(old + [unk] * len(unknown), more), (note,)


def read_vocabulary(path):
    """Reads the lines of a vocabulary file. Raises a ValueError if it is none of OpenNMT-tf.

    Lines may have scores of SentencePiece after a tab, which are removed. A vocabulary file of
    SentencePiece itself is read as `onmt-build-vocab --from_format sentencepiece` does.
    """
    try:
        text = read_bytes(path, LONGEST_TEXT).decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be UTF-8, a word a line: {error}") from error
    words = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
    if all(re.fullmatch(SCORED, word) for word in words if word not in BEGINNING):
        words = [word.partition("\t")[0] for word in words]
        if words[: len(BEGINNING)] != BEGINNING:
            words = BEGINNING + [word for word in words if word not in SPECIAL]
    if words[: len(BEGINNING)] != BEGINNING:
        raise ValueError(f"{path} must begin with the lines {BEGINNING}, got {words[:3]}")
    if "" in words:
        raise ValueError(f"{path} must have a word in each line, got none in {words.index('') + 1}")
    if len(set(words)) < len(words):
        twice = next(word for word in words if words.count(word) > 1)
        raise ValueError(f"{path} must have each word once, got {twice!r} twice")
    return words

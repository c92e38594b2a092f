"""Reads the tokenizers of BART and Pegasus, with our ids."""

from pathlib import Path

from tfformer.files import LONGEST_TEXT, read_bytes
from tfformer.text.tokenizer import Tokenizer
from tfformer.text.tokenizer_json import sentencepiece_of

from . import bert_text, t5_text
from .id_mapping import Numbering
from .options import read_json_object
from .tokenizer_files import Files

MODEL, JSON, SETTINGS = t5_text.FILES
FILES = ("merges.txt", "vocab.json", "special_tokens_map.json", "added_tokens.json", *t5_text.FILES)
OFFSET = 103  # of Pegasus's ids after those of its SentencePiece model


def read_bart(folder, options):
    """The `Tokenizer` of a BART folder, and its `Numbering`."""
    size = options["vocab_size"]
    files = Files(folder)
    table, merges, names, settings = bert_text.byte_pair_tables(files, size)
    pad, unk, begin, eos = (table[name] for name in names[:4])
    expected = {"pad_token_id": pad, "bos_token_id": begin, "eos_token_id": eos}
    for name, number in expected.items():
        if options[name] != number:
            raise ValueError(
                f"{name} must be that of the vocabulary, {number}, got {options[name]}"
            )
    special, begin = [pad, unk, None, eos], names[2]
    side = bert_text.byte_pairs(files, table, merges, special, size, beginning=begin, **settings)
    taken = {pad, unk, eos}
    old = [pad, unk, eos, eos, *(None if n in taken else n for n in range(size))]
    # Our bos has the embedding of eos; its own probability is 0.
    return Tokenizer(side), Numbering(old, [2])


def read_pegasus(folder, options):
    """The `Tokenizer` of a Pegasus folder, and its `Numbering`."""
    path = Path(folder, MODEL)
    if path.exists():
        content = read_bytes(path, LONGEST_TEXT)
        settings = Path(folder, SETTINGS)
        found = read_json_object(settings) if settings.exists() else {}
        offset = found.get("offset", OFFSET)
        if type(offset) is not int or not 4 <= offset <= 100_000:
            raise ValueError(f"{settings}: offset must be a number of pieces, got {offset!r:.99}")
    else:
        path, offset = Path(folder, JSON), 0  # which lists all ids
        if not path.exists():
            raise ValueError(f"{folder} must have {MODEL} or {JSON}, got neither")
        content = sentencepiece_of(read_json_object(path), path)
    pad, eos, size = options["pad_token_id"], options["eos_token_id"], options["vocab_size"]
    side, numbering = t5_text.numbered_model(content, path, pad, eos, size, offset)
    return Tokenizer(side), numbering

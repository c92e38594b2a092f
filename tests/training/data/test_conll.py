"""Files in CoNLL style: how they are recognised, and the pairs in them."""

import os
import threading

import pytest

from training.command_line.own_files import pairs_of
from training.data.conll import is_conll, read_conll
from training.data.reader import CorpusError, CorpusReport, Pair, read_lines

CONLL_2003 = """\
-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O
# # B-NP O
. . O O

Peter NNP B-NP B-PER
Blackburn NNP I-NP I-PER
"""
CONLL_U = """\
# sent_id = 1
# text = Du 10 000 mots .
1-2\tDu\t_\t_\t_\t_\t_\t_\t_\t_
1\tDe\tde\tADP\tP\t_\t3\tcase\t_\t_
2\tle\tle\tDET\tD\t_\t3\tdet\t_\t_
3\t10 000\t10 000\tNUM\tN\t_\t0\troot\t_\t_
3.1\tde\tde\tADP\tP\t_\t_\t_\t_\t_
4\tmots\tmot\tNOUN\tN\t_\t3\tobj\t_\tSpaceAfter=No

# sent_id = 2
1\t#\t#\tSYM\tS\t_\t0\troot\t_\t_

"""


@pytest.fixture
def write(tmp_path):
    def make(text):
        path = tmp_path / "corpus"
        path.write_text(text, encoding="utf-8")
        return path

    return make


@pytest.mark.parametrize(
    ("text", "columns", "pairs"),
    [
        (
            CONLL_2003,
            None,
            [("EU rejects # .", "B-ORG O O O"), ("Peter Blackburn", "B-PER I-PER")],
        ),
        (CONLL_2003, "1,2", [("EU rejects # .", "NNP VBZ # ."), ("Peter Blackburn", "NNP NNP")]),
        # A word with a space stays one word.
        (CONLL_U, None, [("De le 10\u00a0000 mots", "ADP DET NUM NOUN"), ("#", "SYM")]),
        (CONLL_U, "3,5", [("de le 10\u00a0000 mot", "P D N N"), ("#", "S")]),
        ("a\tX\nb\tY\n\t\nc\tX\n", None, [("a b", "X Y"), ("c", "X")]),
        ("a X\r\n\r\n\r\nb  Y\r\n", None, [("a", "X"), ("b", "Y")]),
        # A hashtag or a number sign is a word, also at the start of a sentence and of the file.
        ("#wow UH\n\n#fail NN\nis VB\n", None, [("#wow", "UH"), ("#fail is", "NN VB")]),
        ("# # B-NP\n5 CD I-NP\n\n", None, [("# 5", "B-NP I-NP")]),
        ("# a comment of it\na X\n\n# id 5\n# another one\nb Y\n", None, [("a", "X"), ("b", "Y")]),
        ("a\u00a0b\tX\nc\tY\n\n\u3000\tZ\n", None, [("a\u00a0b c", "X Y"), ("\u3000", "Z")]),
    ],
)
def test_sentences_are_pairs_of_words_and_tags(write, text, columns, pairs):
    path = write(text)
    assert is_conll(read_lines(path), columns)
    assert list(read_conll(path, columns=columns)) == [Pair(*pair) for pair in pairs]


@pytest.mark.parametrize("ending", ["\tX\n", " X\n\n"])
def test_a_pipe_is_read_once_and_whole(ending, tmp_path):
    """Like `<(zcat test.gz)`, for a TSV and for CoNLL."""
    os.mkfifo(tmp_path / "pipe")
    words = ["some words" if "\t" in ending else "word"] + [f"word{n}" for n in range(50_000)]
    text = "".join(f"{word}{ending}" for word in words)
    writing = threading.Thread(target=(tmp_path / "pipe").write_text, args=[text])
    writing.start()
    found = [pair.source for pair in pairs_of(tmp_path / "pipe", tagged=True)]
    writing.join()
    assert found == words


def test_the_columns_that_were_read_are_reported(write):
    report = CorpusReport()
    list(read_conll(write(CONLL_U), report))
    assert str(report).endswith("; read as CoNLL, words in column 2 and tags in column 4")


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("a dog\tDET NOUN\n", None),
        ("dogs\tNOUN\na dog\tDET NOUN\n\n", None),
        ("NOUN\tdogs\nDET NOUN\ta dog\n", "2,1"),
        ("words\tkinds\nx\ty\n", "words,kinds"),
        ("", None),
    ],
)
def test_tsv_is_not_recognised_as_conll(write, text, columns):
    assert not is_conll(read_lines(write(text)), columns)


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        ("a X\nb Y\nc X\n", None, "must have an empty line after each sentence, got 3 lines"),
        ("a\tX\nb\tY\n", None, "must have an empty line after each sentence, got 2 lines"),
        ("a X\nb Y Z\n\n", None, "line 2: must have 2 columns, .*, got 3: 'b Y Z'"),
        ("a\tX\n\nb\t\n", None, r"line 3: must have a word and a tag .* got \('b', ''\)"),
        ("a\tX\n\na dog\tX Y\n", None, r"line 3: must have a word and a tag .*'X Y'\)"),
        ("word\n\n", None, "line 1: a word and its tag are 2 columns, .* got 1: 'word'"),
        ("a X\n\n", "1,3", "line 1: --columns 1,3 needs 3 columns, .* got 2: 'a X'"),
    ],
)
def test_invalid_conll_file_is_refused(write, text, columns, message):
    path = write(text)
    assert is_conll(read_lines(path), columns)
    with pytest.raises(CorpusError, match=message):
        list(read_conll(path, columns=columns))

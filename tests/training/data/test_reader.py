"""The reader of parallel text has one rule for lines, and counts each dropped pair."""

import gzip
import math
import sys
import tracemalloc
import unicodedata
from pathlib import Path

import pytest

from training.data import reader
from training.data.reader import (
    MAX_CHARACTERS,
    MAX_LENGTH_RATIO,
    RATIO_FREE_CHARACTERS,
    CorpusError,
    CorpusReport,
    Pair,
    clean_pairs,
    is_blank,
    read_lines,
    read_pairs,
)

BOM = b"\xef\xbb\xbf"

# All bytes that readers treat differently, with the lines that they make.
HARD_BYTES = b"\n".join(
    [
        BOM + b"begins after a byte order mark",
        b"ends with CRLF\r",
        b"",
        b"\r",
        b"two\r\r",
        b"lone\rcarriage return",
        "line\u2028separator, paragraph\u2029separator, next\u0085line".encode(),
        b"vertical\x0btab, form\x0cfeed, \x1c\x1d\x1e, NUL\x00, tab\t",
        b"invalid \xff\xfe and cut \xe2\x82",
        BOM + b"a later byte order mark stays",
        "größer 日本語 🙂".encode(),
        b" spaces stay ",
        b"no newline at the end",
    ]
)
HARD_LINES = [
    "begins after a byte order mark",
    "ends with CRLF",
    "",
    "",
    "two\r",
    "lone\rcarriage return",
    "line\u2028separator, paragraph\u2029separator, next\u0085line",
    "vertical\x0btab, form\x0cfeed, \x1c\x1d\x1e, NUL\x00, tab\t",
    "invalid \ufffd\ufffd and cut \ufffd",
    "\ufeffa later byte order mark stays",
    "größer 日本語 🙂",
    " spaces stay ",
    "no newline at the end",
]


@pytest.fixture
def write(tmp_path):
    def write(name: str, content: bytes | str) -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def test_only_a_newline_ends_a_line(write):
    report = CorpusReport()
    assert list(read_lines(write("hard", HARD_BYTES), report=report)) == HARD_LINES
    assert report == CorpusReport(invalid_utf8=1)


def test_gzip_is_detected_by_content_not_by_name(write):
    members = gzip.compress(HARD_BYTES[:50]) + gzip.compress(HARD_BYTES[50:])
    assert list(read_lines(write("packed.txt", gzip.compress(HARD_BYTES)))) == HARD_LINES
    assert list(read_lines(write("members.txt", members))) == HARD_LINES
    assert list(read_lines(write("plain.gz", HARD_BYTES))) == HARD_LINES


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_chunk_boundaries_change_nothing(write, pack):
    path = write("hard", pack(HARD_BYTES))
    for size in range(1, len(HARD_BYTES) + 2):  # cuts each CRLF, character and byte order mark
        assert list(read_lines(path, chunk_size=size)) == HARD_LINES


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (BOM, []),
        (b"\n", [""]),
        (b"\r", [""]),
        (b"\r\n", [""]),
        (BOM + b"\n", [""]),
        (BOM[:2], ["\ufffd"]),
        (b"\xef\xbb\nx", ["\ufffd", "x"]),
        (BOM + BOM, ["\ufeff"]),
        (b"a", ["a"]),
        (b"a\n", ["a"]),
        (b"a\n\n", ["a", ""]),
        (b"\na", ["", "a"]),
        (b"\x1f", ["\x1f"]),
    ],
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_short_files_give_the_expected_lines(write, content, lines, pack):
    assert list(read_lines(write("short", pack(content)))) == lines


def test_a_very_long_line_is_a_line(write):
    long = "0123456789é" * 200_000
    path = write("long", f"before\n{long}\r\nafter")
    assert list(read_lines(path, chunk_size=4096)) == ["before", long, "after"]


def test_memory_does_not_grow_with_the_file(write):
    path = write("many", gzip.compress(b"a line of some length\n" * 100_000))  # 2.2 MB
    tracemalloc.start()
    try:
        assert sum(1 for _ in read_lines(path, chunk_size=1 << 14)) == 100_000
        assert tracemalloc.get_traced_memory()[1] < 500_000
    finally:
        tracemalloc.stop()


def test_error_names_an_unreadable_file(tmp_path, write, monkeypatch):
    for path, reason in {
        tmp_path / "missing": "No such file or directory",
        tmp_path: "Is a directory",
        write("file", "") / "below a file": "Not a directory",
    }.items():
        with pytest.raises(CorpusError) as caught:
            list(read_lines(path))
        assert str(caught.value) == f"cannot read {path}: {reason}"

    def refuse(path, mode):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(reader, "open", refuse, raising=False)
    with pytest.raises(CorpusError, match="cannot read secret: Permission denied"):
        list(read_lines("secret"))


def test_error_names_a_damaged_gzip_file(write):
    good = gzip.compress(bytes(range(256)) * 64)
    for name, damaged in {
        "cut": good[:-9],
        "header": good[:2],
        "content": good[:20] + b"\xff\xff\xff\xff" + good[24:],
        "checksum": good[:-8] + b"\0\0\0\0" + good[-4:],
        "garbage behind": good + b"garbage",
    }.items():
        path = write(name, damaged)
        with pytest.raises(CorpusError) as caught:
            list(read_lines(path))
        assert str(caught.value).startswith(f"{path} is a damaged gzip file: ")


def test_line_n_of_source_pairs_with_line_n_of_target(write):
    source = write("source", "one\r\ntwo\u2028still two\n\nfour")
    target = write("target", gzip.compress(b"eins\nzwei\ndrei\nvier\n"))
    assert list(read_pairs(source, target)) == [
        Pair("one", "eins", ""),
        Pair("two\u2028still two", "zwei", ""),
        Pair("", "drei", ""),
        Pair("four", "vier", ""),
    ]


@pytest.mark.parametrize(("sources", "targets"), [(5, 3), (3, 5), (1, 0), (0, 1), (1000, 1001)])
def test_files_of_different_length_are_refused(write, sources, targets):
    source, target = write("source", "s\n" * sources), write("target", "t\n" * targets)
    pairs = read_pairs(source, target)
    common = [next(pairs) for _ in range(min(sources, targets))]
    assert common == [Pair("s", "t")] * min(sources, targets)
    with pytest.raises(CorpusError) as caught:
        next(pairs)
    assert f"{source} has {sources:,} line" in str(caught.value)
    assert f"{target} has {targets:,} line" in str(caught.value)


def test_invalid_utf8_is_counted_in_source_and_target(write):
    report = CorpusReport()
    source, target = write("source", b"\xff\xff\na\n"), write("target", b"\xff\nb\xff\n")
    pairs = list(read_pairs(source, target, report=report))
    assert pairs == [Pair("\ufffd\ufffd", "\ufffd"), Pair("a", "b\ufffd")]
    assert report == CorpusReport(invalid_utf8=3)


def test_columns_are_source_target_and_perhaps_group(write):
    path = write("pairs.tsv", 'a\tb\r\n"c\td"\tde\n\t\t\n')
    assert list(read_pairs(path)) == [Pair("a", "b"), Pair('"c', 'd"', "de"), Pair("", "", "")]


@pytest.mark.parametrize(
    ("line", "columns"), [("", "1 column"), ("a", "1 column"), ("a\tb\tc\td", "4 columns")]
)
def test_another_number_of_columns_is_refused(write, line, columns):
    path = write("pairs.tsv", f"a\tb\n{line}\na\tb\n")
    pairs = read_pairs(path)
    assert next(pairs) == Pair("a", "b")
    with pytest.raises(CorpusError) as caught:
        next(pairs)
    assert str(caught.value).startswith(f"{path}, line 2: {columns}, ")


@pytest.mark.parametrize(
    ("text", "columns", "pairs"),
    [
        ("good\tnice\nbad\tpoor\n", "2,1", [("nice", "good"), ("poor", "bad")]),
        ("1\tnice\tgood\tx\n2\t\tbad\ty\n", "2,3", [("nice", "good"), ("", "bad")]),
        ("1\tnice\tgood\tx\n", "2,3,4", [("nice", "good", "x")]),
        ("id\tReview\tstars\n1\tnice\t5\n", "Review,stars", [("nice", "5")]),
        ("stars\tReview\n5\tnice\n", "Review,stars", [("nice", "5")]),
        # A certain header, with and without --columns.
        ("sentence\tlabel\nnice\tgood\n", None, [("nice", "good")]),
        ("Label\tText\ngood\tnice\n", None, [("nice", "good")]),
        ("id\ttext\tlabel\tsplit\n1\tnice\tgood\tx\n", None, [("nice", "good")]),
        ("source\ttarget\tgroup\na\tb\tde\n", None, [("a", "b", "de")]),
        ("language\tsource\ttarget\nde\ta\tb\n", None, [("a", "b", "de")]),
        (
            "question\ttext\tlabel\nq\ta\tb\n",
            None,
            [("question", "text", "label"), ("q", "a", "b")],
        ),
        ("text\tlabel\nnice\tgood\n", "1,2", [("nice", "good")]),
        # Two columns that may be a pair, and a header further down.
        ("review\tstars\nnice\t5\n", None, [("review", "stars"), ("nice", "5")]),
        ("text\tText\nnice\tgut\n", None, [("text", "Text"), ("nice", "gut")]),
        ("nice\tgood\ntext\tlabel\n", None, [("nice", "good"), ("text", "label")]),
    ],
)
def test_columns_are_chosen_by_option_or_header(write, text, columns, pairs):
    path = write("pairs.tsv", text)
    assert list(read_pairs(path, columns=columns)) == [Pair(*pair) for pair in pairs]


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        ("good\tnice\n", "1,3", "line 1: --columns 1,3 needs 3 columns, got 2 columns: 'good', 'n"),
        ("good\tnice\n", "text,label", "needs a header with 'text', got 'good', 'nice'; without a"),
        ("a\tb\tc\nd\te\n", "3,1", "line 2: 2 columns, but the first line has 3; got 'd', 'e'"),
        (
            "id\tfilm\tstars\tx\n",
            None,
            "line 1: 4 columns, .* 'x'; --columns 1,2 .* --columns id,f",
        ),
        (
            "-DOCSTART- -X- O O\n",
            None,
            "line 1: 1 column, .* got '-DOCSTART- -X- O O'; or give a s",
        ),
    ],
)
def test_missing_or_ambiguous_columns_are_refused(write, text, columns, message):
    path = write("pairs.tsv", text)
    with pytest.raises(CorpusError, match=message):
        list(read_pairs(path, columns=columns))


def test_a_header_is_reported(write):
    report = CorpusReport()
    assert len(list(read_pairs(write("a.tsv", "text\tlabel\na\tb\n"), report=report))) == 1
    assert str(report).endswith("; read as a TSV with a header, columns 'text' and 'label'")


@pytest.mark.parametrize(
    "text",
    ["", " ", "\t\r\x0b", "\u00a0", "\u3000", "\u2009\u202f", "\u2028\u2029\u0085"]
    + ["\ufeff", "\u200b\u200c\u200d\u2060", "\u00ad", "\x00\x01\x7f", " \ufeff\u3000 "],
)
def test_invisible_text_is_blank(text):
    assert is_blank(text)
    for visible in ("a", ".", "日", "\u0301", "\ufffd", "🙂"):
        assert not is_blank(text + visible + text)


def test_nfkc_normalisation_does_not_change_blankness():
    for number in range(sys.maxunicode + 1):
        character = chr(number)
        normal = unicodedata.normalize("NFKC", character)
        if normal != character:
            assert is_blank(normal) == is_blank(character), hex(number)


def dropped(source: str, target: str, **limits) -> CorpusReport:
    """The report on one pair, and on the same pair reversed."""
    reports = []
    for pair in (Pair(source, target, "g"), Pair(target, source, "g")):
        report = CorpusReport()
        assert list(clean_pairs([pair], report, **limits)) == [pair] * report.kept
        reports.append(report)
    assert reports[0] == reports[1]
    return reports[0]


def test_blank_source_or_target_drops_the_pair():
    assert dropped("", "a") == CorpusReport(blank=1)
    assert dropped("\u3000\ufeff", "a") == CorpusReport(blank=1)
    assert dropped(" " * 2 * MAX_CHARACTERS, "a") == CorpusReport(blank=1)
    assert dropped(" a ", "\x00b") == CorpusReport(kept=1)


def test_too_long_source_or_target_drops_the_pair():
    limit = "x" * MAX_CHARACTERS
    assert dropped(limit, limit) == CorpusReport(kept=1)
    assert dropped(limit, limit + "x") == CorpusReport(too_long=1)
    assert dropped("abc", "a", max_characters=3) == CorpusReport(kept=1)
    assert dropped("abcd", "a", max_characters=3) == CorpusReport(too_long=1)


def test_an_absurd_ratio_of_lengths_drops_the_pair():
    twenty = "x" * 20
    at_the_limit = "y" * int(20 * MAX_LENGTH_RATIO)
    assert dropped(twenty, at_the_limit) == CorpusReport(kept=1)
    assert dropped(twenty, at_the_limit + "y") == CorpusReport(ratio=1)
    assert dropped("x" * 10, "y" * 200, max_length_ratio=20) == CorpusReport(kept=1)
    assert dropped("x", "y" * 1000, max_length_ratio=math.inf) == CorpusReport(kept=1)


def test_length_ratio_is_ignored_for_short_texts():
    assert dropped("x", "y" * RATIO_FREE_CHARACTERS) == CorpusReport(kept=1)
    assert dropped("x", "y" * (RATIO_FREE_CHARACTERS + 1)) == CorpusReport(ratio=1)
    idiom = ("画蛇添足", "to ruin the effect by adding something superfluous")
    assert dropped(*idiom) == CorpusReport(kept=1)


def test_pairs_are_kept_in_order_and_all_are_counted():
    texts = ["a", "b", "", "x" * 2000, "c"]
    report = CorpusReport()
    kept = list(clean_pairs([Pair(text, text) for text in texts], report))
    assert kept == [Pair("a", "a"), Pair("b", "b"), Pair("c", "c")]
    assert report == CorpusReport(kept=3, blank=1, too_long=1)


@pytest.mark.parametrize("limit", ["max_characters", "max_length_ratio"])
@pytest.mark.parametrize("value", [0, -1, 0.5, math.nan])
def test_a_limit_below_one_is_refused_at_once(limit, value):
    with pytest.raises(ValueError, match=f"{limit} must be at least 1, got {value}"):
        clean_pairs([], CorpusReport(), **{limit: value})


def test_a_report_reads_as_a_sentence():
    assert str(CorpusReport(kept=29_000)) == "29,000 pairs kept; nothing dropped"
    assert str(CorpusReport(kept=1, blank=3, too_long=2, ratio=1000, too_many_tokens=5)) == (
        "1 pair kept; dropped 3 blank, 2 too long, 1,000 of absurd length ratio, "
        "5 of too many tokens"
    )
    assert str(CorpusReport(kept=2, invalid_utf8=1)) == (
        "2 pairs kept; nothing dropped; 1 line with invalid UTF-8, replaced by U+FFFD"
    )


def test_error_explains_why_no_pair_is_left(write):
    CorpusReport(kept=1, blank=7).require_some("a, b")
    report = CorpusReport()
    source, target = write("source", "\n\n"), write("target", "a\nb\n")
    assert list(clean_pairs(read_pairs(source, target, report=report), report)) == []
    with pytest.raises(CorpusError) as caught:
        report.require_some(f"{source}, {target}")
    assert str(caught.value) == (
        f"no pair to use in {source}, {target}: 0 pairs kept; dropped 2 blank"
    )

"""The findings in a corpus: each planted fault is found, and nothing else is."""

import gzip
import json
import os
import random
import shlex

import numpy as np
import pytest

from tfformer import Tokenizer
from training import inspect as command
from training import train as trains
from training.data.batches import EDGES
from training.data.corpus_checks import FAULTS, Letters, inspect, placeholders, suggestions
from training.data.reader import Pair, read_pairs

ENGLISH = "the house that stands by the lake where nobody lives with three white trees".split()
GERMAN = "das Haus das am See steht wo niemand wohnt mit drei weißen Bäumen und Straßen".split()


def pairs(count, seed=0):
    rng = random.Random(seed)
    for number in range(count):
        length = rng.randint(4, 12)
        source, target = rng.choices(ENGLISH, k=length), rng.choices(GERMAN, k=length)
        yield Pair(f"{' '.join(source)} {number}", f"{' '.join(target)} {number}")


CLEAN = list(pairs(499))
FAULTY = {
    "blank": Pair(" \u200b", "etwas"),
    "too long": Pair("a " * 501, "b " * 501),
    "length ratio": Pair("kurz", "sehr " * 40),
    "source = target": Pair("the house by the lake", "the house by the lake "),
    "replaced bytes": Pair("the \ufffd house", "das Haus"),
    "UTF-8 read as Latin-1": Pair("three trees", "drei BÃ¤ume"),
    "control characters": Pair("the\x07 house", "das Haus"),
    "markup": Pair("the <b>house</b>", "das Haus"),
    "placeholders differ": Pair("the house of %s", "das Haus"),
    "source looks like the target's language": Pair(CLEAN[7].target + " x", "das Haus am See"),
    "target looks like the source's language": Pair("the lake", CLEAN[8].source + " x"),
}


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(*zip(*[pair[:2] for pair in CLEAN], strict=True), vocabulary_size=347)


@pytest.fixture(scope="module")
def letters():
    return Letters(CLEAN)


def test_a_clean_corpus_has_no_suspects(tokenizer, letters):
    found = inspect(CLEAN, tokenizer, letters)
    assert found.suspects == []
    assert +found.counts == {"pairs": 499}
    assert found.characters.tolist() == [[len(p.source), len(p.target)] for p in CLEAN]


@pytest.mark.parametrize("reason", FAULTY)
def test_a_fault_is_found_in_its_line_and_no_other_is(tokenizer, letters, reason):
    found = inspect([*CLEAN[:211], FAULTY[reason], *CLEAN[211:]], tokenizer, letters)
    reasons = {name for _, name, _, _ in found.suspects}
    also = {"target looks like the source's language"} if reason == "source = target" else set()
    assert reasons == {reason} | also
    assert {line for line, *_ in found.suspects} == {212}
    assert found.counts[reason] == 1


def test_repetitions_are_counted_whatever_their_case_and_spaces(tokenizer, letters):
    first = CLEAN[3]
    again = [first, Pair(f" {first.source.upper()}", first.target), Pair(first.source, "anders")]
    found = inspect([*CLEAN, *again], tokenizer, letters)
    assert found.counts["occur before"] == 2
    assert found.counts["other translation of a source"] == 1


def test_overlap_with_other_corpora_is_counted(tokenizer, letters):
    others = {
        "val": [CLEAN[5], Pair(CLEAN[6].source, "anders"), Pair("new", "neu")],
        "test": iter([Pair("new", "neu")]),
    }
    found = inspect(CLEAN, tokenizer, letters, others)
    assert found.overlap["val"] == {"pairs": 3, "source": 2, "pair": 1}
    assert found.overlap["test"] == {"pairs": 1, "source": 0, "pair": 0}
    text = " ".join(suggestions(found))
    assert "2 of 3 sources of val" in text and "test" not in text


def test_lengths_and_padding_are_those_of_the_batches(tokenizer, letters):
    found = inspect(CLEAN, tokenizer, letters)
    sides = zip(*[pair[:2] for pair in CLEAN], strict=True)
    encoders = (tokenizer.encode_source, tokenizer.encode_target)
    lengths = [e(list(s)).row_lengths().numpy() for e, s in zip(encoders, sides, strict=True)]
    np.testing.assert_array_equal(found.tokens, np.stack(lengths, axis=1))
    real = padded = 0
    for row in found.tokens:
        edge = next(edge for edge in EDGES if edge >= row.max())
        real, padded = real + row.sum(), padded + 2 * edge
    waste = sum(count * 2 * edge * share for edge, count, share in found.padding())
    assert waste == pytest.approx(padded - real)
    assert f"{100 * (padded - real) / padded:.0f} % of a batch" in " ".join(suggestions(found))


def test_byte_pieces_are_counted(tokenizer, letters):
    strange = [Pair("the lake", "☃" * 7)] * 3
    found = inspect([*CLEAN, *strange], tokenizer, letters)
    assert found.bytes.tolist() == [0, 3 * 7 * 3]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("%s has %d files", ["d", "s"]),
        ("%2$s, %1$s: %(name)s", ["(name)s", "s", "s"]),
        ("%5.2f MB, %-10s", ["-10s", "5.2f"]),
        ("{0} and {name}, {0:.2f}, {}", ["{0:.2f}", "{0}", "{name}", "{}"]),
        ("100 % sure, 50%ige Loesung, 3 {a b}, %%s, 1,234.5", []),
    ],
)
def test_placeholders_are_found(text, found):
    assert placeholders(text) == found


def test_numbers_and_the_order_of_placeholders_may_differ(tokenizer, letters):
    pairs = [Pair("page %1$s of 7: {x}", "{x}: %s, Seite")]
    assert not inspect([*CLEAN, *pairs], tokenizer, letters).counts["placeholders differ"]


# The command.


def write(folder, name, corpus):
    paths = [folder / f"{name}.{side}" for side in ("en", "de")]
    for side, path in enumerate(paths):
        path.write_text("".join(f"{pair[side]}\n" for pair in corpus))
    return [str(path) for path in paths]


def test_command_writes_its_findings(tmp_path, capsys):
    faulty = [pair for reason, pair in FAULTY.items() if reason != "blank"]
    train = write(tmp_path, "train", [*CLEAN, *faulty])
    val = write(tmp_path, "val", CLEAN[:5])
    out = tmp_path / "out"
    arguments = [*train, "--val", *val, "--vocabulary", "400", "--out", str(out)]
    assert command.main(arguments) == 0
    printed = capsys.readouterr().out
    assert "5 of 5 sources of val" in printed.replace("\n", " ")
    # The last line is the command that trains on this corpus.
    line = shlex.split(printed.splitlines()[-1])
    assert line[:4] == ["to", "train:", "tfformer", "train"]
    given = trains.parser().parse_args(line[4:])
    assert [str(path) for path in (*given.source, *given.target)] == train
    assert [str(given.val_source), str(given.val_target)] == val
    found = json.loads((out / "inspect.json").read_text())
    assert found["counts"]["pairs"] == 499 + len(faulty)
    assert found["counts"]["markup"] == 1
    rows = (out / "suspects.tsv").read_text().splitlines()
    assert rows[0].split("\t") == ["line", "reason", "source", "target"]
    lines = {row.split("\t")[0] for row in rows[1:]}
    assert lines == {str(500 + n) for n in range(len(faulty))}
    assert (out / "lengths.png").read_bytes().startswith(b"\x89PNG")


def test_the_clean_corpus_has_the_pairs_without_a_fault(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")  # no row of the table is wrapped
    sound = [Pair("the lake", "der See"), Pair("the lake", "am See")]  # two translations
    # Faults of the encoding and markup can be repaired, so --clean keeps these pairs.
    faulty = [pair for reason, pair in FAULTY.items() if reason not in FAULTS]
    held_out = Pair(CLEAN[5].source.upper(), CLEAN[5].target)
    corpus = [*CLEAN[:200], *faulty, held_out, CLEAN[3], *sound, *CLEAN[200:]]
    train, val = write(tmp_path, "train", corpus), write(tmp_path, "val", CLEAN[5:7])
    folder = tmp_path / "new" / "clean"
    arguments = [*train, "--val", *val, "--vocabulary", "400"]
    assert command.main([*arguments, "--clean", str(folder)]) == 0
    printed = capsys.readouterr().out
    assert sorted(path.name for path in folder.iterdir()) == ["train.de", "train.en"]
    kept = [*CLEAN[:5], *CLEAN[7:200], *sound, *CLEAN[200:]]
    files = [folder / "train.en", folder / "train.de"]
    assert list(read_pairs(*files)) == kept
    # The table counts each pair once, by its first reason.
    rows = [line.split("│")[1:-1] for line in printed.partition("clean corpus")[2].splitlines()]
    counts = {row[1].strip() or row[0].strip(): row[2].strip() for row in rows if len(row) == 4}
    assert counts == {
        "kept": f"{len(kept)}", "blank": "1", "too long": "1", "length ratio": "1",
        "source = target": "1", "placeholders differ": "1",
        "source looks like the target's language": "1",
        "target looks like the source's language": "1",
        "in validation or test": "3", "occurs before": "1",
    }  # fmt: skip
    # The command at the end trains on the clean files.
    given = trains.parser().parse_args(shlex.split(printed.splitlines()[-1])[4:])
    assert [*given.source, *given.target] == files
    # The same folder is not written into again.
    assert command.main([*arguments, "--clean", str(folder)]) == 1
    error = capsys.readouterr().err.strip()
    assert error.endswith(f"error: --clean must not exist yet or be an empty folder, got {folder}")
    assert list(read_pairs(*files)) == kept


@pytest.mark.parametrize(
    ("kind", "pair"),
    [
        ("lengths", FAULTY["length ratio"]),
        ("copies", Pair("Haus", "Haus")),
        ("placeholders", FAULTY["placeholders differ"]),
        ("language", FAULTY["target looks like the source's language"]),
        ("held-out", Pair("a lake", "ein See")),
        ("repetitions", CLEAN[3]),
    ],
)
def test_keep_option_disables_one_filter(tmp_path, kind, pair):
    """The clean corpus stays a gzip file; the folder may exist if it is empty."""
    train = tmp_path / "train.tsv.gz"
    text = "".join(f"{source}\t{target}\n" for source, target, *_ in [*CLEAN, pair])
    train.write_bytes(gzip.compress(text.encode()))
    val = tmp_path / "val.tsv"
    val.write_text("a lake\tein See\n")
    for name, keep, kept in (("all", [], CLEAN), (kind, ["--keep", kind], [*CLEAN, pair])):
        folder = tmp_path / name
        folder.mkdir()
        words = ["--val", str(val), "--vocabulary", "400", "--clean", str(folder), *keep]
        assert command.main([str(train), *words]) == 0
        assert list(read_pairs(folder / "train.tsv.gz")) == kept
        assert (folder / "train.tsv.gz").read_bytes().startswith(b"\x1f\x8b")


def test_clean_tsv_keeps_groups_and_drops_the_header(tmp_path):
    train = tmp_path / "train.tsv"
    rows = [f"{pair.target}\t{pair.source}\tnews" for pair in CLEAN]
    train.write_text("\n".join(["target\tsource\tdomain", *rows]))
    folder = tmp_path / "clean"
    assert command.main([str(train), "--vocabulary", "400", "--clean", str(folder)]) == 0
    expected = [Pair(pair.source, pair.target, "news") for pair in CLEAN]
    assert list(read_pairs(folder / "train.tsv")) == expected


def test_a_clean_corpus_that_cannot_be_written_is_refused_in_one_line(tmp_path, capsys):
    train = write(tmp_path, "train", CLEAN)
    (tmp_path / "other").mkdir()
    twice = [train[0], str(tmp_path / "other" / "train.en")]
    write(tmp_path / "other", "train", CLEAN)
    copies = write(tmp_path, "copies", [Pair("a lake", "a lake")])
    folder = tmp_path / "clean"
    for words, message in (
        (
            [*twice, "--clean", str(folder)],
            "needs different names of SOURCE and TARGET",
        ),
        ([*train, "--clean", train[0]], "--clean must not exist yet or be an empty folder"),
        ([*train, "--clean", str(folder), "--out", str(folder)], "must not be the folder of --out"),
        ([*copies, "--vocabulary", "265", "--clean", str(folder)], "no pair is left"),
    ):
        assert command.main(words) == 1
        assert message in capsys.readouterr().err.splitlines()[-1]
        assert not folder.exists()
    with pytest.raises(SystemExit) as ended:
        command.main([*train, "--keep", "copies"])
    assert ended.value.code == 2
    assert "--keep needs --clean" in capsys.readouterr().err


def test_empty_validation_file_or_pipe_is_refused(tmp_path, capsys):
    source, target = write(tmp_path, "train", CLEAN)
    empty = tmp_path / "empty.tsv"
    empty.write_text("")
    assert command.main([source, target, "--val", str(empty)]) == 1
    assert "--val: there is no pair" in capsys.readouterr().err
    os.mkfifo(tmp_path / "pipe")
    assert command.main([str(tmp_path / "pipe"), target]) == 1
    assert "pipe must be a regular file" in capsys.readouterr().err


def test_mistakes_give_one_line_errors(tmp_path, capsys):
    train = write(tmp_path, "train", CLEAN)
    (tmp_path / "short").write_text("a\n")
    (tmp_path / "empty").write_text("")
    empty = [str(tmp_path / "empty")] * 2
    for arguments, message in (
        ([train[0], str(tmp_path / "short")], "line N of one must belong to line N"),
        ([str(tmp_path / "none"), train[1]], "cannot read"),
        (empty, "no pair to use"),
        ([*train, "--run", str(tmp_path)], "is no run directory"),
        ([*train, "--vocabulary", "7"], "vocabulary_size must be"),
    ):
        assert command.main(arguments) == 1
        error = capsys.readouterr().err.strip().splitlines()[-1]
        assert error.startswith("python -m training.inspect: error: ") and message in error


def test_the_sample_is_of_the_whole_corpus_and_the_same_each_time(monkeypatch):
    monkeypatch.setattr(command, "SAMPLE", 211)
    sample = command.drawn(range(10_007))
    assert sample == command.drawn(range(10_007))
    assert len(set(sample)) == 211
    # Each tenth of it, to four standard deviations.
    parts = np.bincount(np.array(sample) * 10 // 10_007, minlength=10)
    assert abs(parts - 21.1).max() < 4 * (211 * 0.1 * 0.9) ** 0.5
    assert command.drawn(range(13)) == list(range(13))

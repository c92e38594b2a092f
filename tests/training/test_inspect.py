"""The findings in a corpus: every planted fault is found, and nothing else is."""

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
from training.data.faults import Letters, inspect, suggestions
from training.data.reader import Pair

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


def test_overlap_with_other_corpora(tokenizer, letters):
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


def test_single_bytes_are_counted(tokenizer, letters):
    strange = [Pair("the lake", "☃" * 7)] * 3
    found = inspect([*CLEAN, *strange], tokenizer, letters)
    assert found.bytes.tolist() == [0, 3 * 7 * 3]


# The command.


def write(folder, name, corpus):
    paths = [folder / f"{name}.{side}" for side in ("en", "de")]
    for side, path in enumerate(paths):
        path.write_text("".join(f"{pair[side]}\n" for pair in corpus))
    return [str(path) for path in paths]


def test_the_command_writes_what_it_found(tmp_path, capsys):
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


def test_what_cannot_be_compared_is_refused_at_once(tmp_path, capsys):
    source, target = write(tmp_path, "train", CLEAN)
    empty = tmp_path / "empty.tsv"
    empty.write_text("")
    assert command.main([source, target, "--val", str(empty)]) == 1
    assert "--val: there is no pair" in capsys.readouterr().err
    os.mkfifo(tmp_path / "pipe")
    assert command.main([str(tmp_path / "pipe"), target]) == 1
    assert "pipe is no file" in capsys.readouterr().err


def test_mistakes_are_one_line(tmp_path, capsys):
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

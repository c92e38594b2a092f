"""The command training.train on the user's own text files, valid and invalid ones."""

import json
import os
import re

import pytest
from workers import fails

from training import train
from training.command_line import own_files
from training.data.corpus import Corpus
from training.data.reader import Pair
from training.preparation.prepare import PREPARED, prepare


def prepared_by(arguments):
    """What the command prepares before it trains."""
    parsed = train.parser().parse_args(arguments)
    folder = parsed.run / PREPARED
    prepare(folder, train.read_recipe(parsed), None, print)
    return folder


def test_missing_file_is_refused_before_any_work(files, capsys, tmp_path):
    arguments = files()
    arguments += ["--val-source", arguments[1], "--val-target", str(tmp_path / "val.typo")]
    error = fails(arguments, capsys, 1)
    assert error.endswith(f"cannot read {tmp_path / 'val.typo'}: No such file or directory")
    assert not (tmp_path / "run").exists()


def test_several_files_are_concatenated(tmp_path, capsys):
    lines = [f"{word} {n}\n" for n in range(7) for word in ("ab", "cd", "ef")]
    text = {"a": lines[:8], "b": lines[8:], "whole": lines, "val": lines[:5]}
    for name, content in text.items():
        (tmp_path / name).write_text("".join(content))

    def corpus(run, *names):
        files = [str(tmp_path / name) for name in names]
        command = ["--source", *files, "--target", *files, "--run", str(tmp_path / run)]
        val = ["--val-source", str(tmp_path / "val"), "--val-target", str(tmp_path / "val")]
        prepared = prepared_by([*command, *val, "--preset", "test"])
        found = Corpus(prepared / "train")
        return found.texts(slice(None)), json.loads((prepared / "corpus.json").read_text())

    (parts, facts), (whole, _) = corpus("parts", "a", "b"), corpus("one", "whole")
    assert parts == whole and len(whole[0]) == 21
    assert facts["origin"] == "`a` and `a`, `b` and `b`, for validation `val` and `val`"
    capsys.readouterr()
    files = [str(tmp_path / name) for name in "ab"]
    error = fails(["--source", *files, "--target", files[0], "--run", str(tmp_path)], capsys, 2)
    assert "--target must name as many files as --source, got 1 and 2" in error


@pytest.mark.parametrize("content", [b"", b"\n\n \n", b"\xef\xbb\xbf"])
def test_empty_files_are_refused(files, capsys, content, tmp_path):
    fails(files(source=content, target=content), capsys, 1)
    assert not (tmp_path / "run" / "prepared").exists()


def test_invalid_utf8_is_counted(files, tmp_path):
    bad = "für \n".encode("latin-1") * 3
    arguments = files(source=b"a b c\n" * 7 + bad, target=b"c b a\n" * 10)
    for side in ("source", "target"):
        path = tmp_path / f"val.{side}"
        path.write_bytes(b"x y\n" * 5 + (bad if side == "target" else b"z\n" * 3))
        arguments += [f"--val-{side}", str(path)]
    prepared = prepared_by([*arguments, "--vocabulary-size", "300"])
    facts = json.loads((prepared / "corpus.json").read_text())
    assert facts["train"]["invalid_utf8"] == facts["val"]["invalid_utf8"] == 3


def test_pipe_is_refused(files, tmp_path, capsys):
    arguments = files()
    os.mkfifo(tmp_path / "pipe")
    arguments[3] = str(tmp_path / "pipe")
    assert "pipe must be a regular file" in fails(arguments, capsys, 2)
    assert not (tmp_path / "run").exists()


def test_corpus_without_held_out_pairs_is_refused(files, capsys, tmp_path):
    text = next(f"text {n}\n" for n in range(99) if not own_files.held_out(Pair(f"text {n}", "")))
    assert "could be held out" in fails(files(text.encode(), text.encode()), capsys, 1)
    assert not (tmp_path / "run").exists()


def test_validation_excludes_blank_and_repeated_sources(tmp_path):
    path = tmp_path / "pairs.tsv"
    chosen = next(s for n in range(99) if own_files.held_out(Pair(s := f"often {n}", "")))
    lines = ["\tno source\n"] * 1500 + [f"{chosen}\ttarget {n}\n" for n in range(1500)]
    lines += [f"source {n}\ttarget {n}\n" for n in range(30_000)]
    path.write_text("".join(lines))
    pairs = list(own_files.file_pairs([(path, None)], None, "val", None))
    assert len(pairs) == len({pair.source for pair in pairs}) == own_files.HELD_OUT
    assert pairs[0] == Pair(chosen, "target 0")


def test_held_out_sources_are_not_in_training(tmp_path):
    path = tmp_path / "pairs.tsv"
    lines = [f"source {n % 23_003}\ttarget {n}\n" for n in range(40_000)]
    path.write_text("".join(lines))
    sides = {
        split: list(own_files.file_pairs([(path, None)], None, split, None))
        for split in ("train", "val")
    }
    assert len(sides["val"]) == own_files.HELD_OUT
    assert not {p.source for p in sides["train"]} & {p.source for p in sides["val"]}
    assert Pair("source 0", "target 0") in sides["train"] + sides["val"]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["multi30k", "--target", "a.fr"], "--source"),
        (["multi30k", "--val-source", "a.en"], "--source"),
        (["multi30k", "--source", "a.en", "--data", "folder"], "--data"),
        (["multi30k"], "needs --data"),
        (["multi30k", "--columns", "2,1"], "--columns needs a --source"),
        (["--source", "a", "--target", "b", "--columns", "2,1"], "--columns needs a --source"),
        (["multi30k", "--data", "folder", "--language", "xx"], "language must be one of"),
    ],
)
def test_incompatible_file_options_are_refused(options, named, tmp_path, capsys):
    assert named in fails([*options, "--run", str(tmp_path / "run")], capsys, 2)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_training_runs_on_awkward_text(files, tmp_path, capsys):
    """CRLF, BOM, invalid UTF-8, NUL, blank lines and a line of 1 MB among valid ones."""
    awkward = b"\xef\xbb\xbfone two\r\n\xff\xfe bad\na\x00b\n\n" + b"x" * 1_000_000 + b"\n"
    good = b"".join(b"word %d and more\n" % n for n in range(80))
    arguments = files(source=awkward + good, target=awkward + good)
    arguments += ["--batch-tokens", "256", "--vocabulary-size", "300", "--max-tokens", "48"]
    arguments += ["--num-encoder-layers", "1", "--num-decoder-layers", "1"]
    assert train.main(arguments) == 0
    assert (tmp_path / "run" / "config.json").exists()
    # The plan, and the translations of three texts.
    said = capsys.readouterr().err
    assert "pairs;" in said and "the learning rate" in said
    assert said.count("    reference: ") == said.count("    model:     ") == 3


@pytest.mark.parametrize(
    ("family", "text", "message"),
    [
        ("transformer", "a text\nanother\n", "1 column, .* give a second file, --target or --lab"),
        (
            "classifier",
            "a text\nanother\n",
            "1 column, .* give a second file, --target or --labels",
        ),
        ("classifier", "good\tnice\ngood\twell\nbad\tpoor\n" * 40, "3 labels and 2 texts: are te"),
        ("tagger", "N V\ta dog\nN V\tthe cat\n" * 40, "4 labels and 2 words: are texts"),
        (
            "tagger",
            "a\tDET\ndog\tNOUN\n" * 40,
            "must have an empty line after each sentence, got 80",
        ),
        ("tagger", "a dog\nthe big cat\n", "line 2: must have 2 columns, .* got 3: .* --labels"),
    ],
)
def test_unsuitable_columns_are_refused(family, text, message, tmp_path, capsys):
    path = tmp_path / "corpus.tsv"
    path.write_text(text)
    command = ["--family", family, "--source", str(path), "--run", str(tmp_path / "run")]
    command += ["--val-source", str(path), "--vocabulary-size", "280"]
    assert re.search(message, fails(command, capsys, 1))
    assert not (tmp_path / "run" / "config.json").exists()


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("1", "must be two or three different columns, such as 2,1 or review,stars, got 1"),
        ("1,01", "must be two or three different columns, such as 2,1 or review,stars, got 1,01"),
        ("0,1", "must be two or three different"),
        ("2,2", "must be two or three different"),
        (
            "label,text",
            "must name the column of the text first: text,label; got label,text",
        ),
    ],
)
def test_invalid_columns_option_is_refused(columns, message, capsys):
    with pytest.raises(SystemExit):
        train.main(["--source", "a.tsv", "--columns", columns, "--run", "run"])
    assert message in capsys.readouterr().err


def test_swapped_label_and_text_columns_are_refused(tmp_path, capsys):
    path = tmp_path / "corpus.tsv"
    path.write_text("".join(f"{'good' if n % 2 else 'bad'}\ttext {n}\n" for n in range(200)))
    command = ["--family", "classifier", "--source", str(path), "--run", str(tmp_path / "run")]
    assert "--columns 2,1 if the texts are the second column" in fails(command, capsys, 1)
    folder = prepared_by([*command, "--columns", "2,1", "--vocabulary-size", "280"])
    texts, labels = Corpus(folder / "train").texts(slice(None))
    assert {*labels} == {b"good", b"bad"}
    assert {*texts} <= {b"text %d" % n for n in range(200)}


def test_printed_config_keeps_columns(tmp_path, capsys):
    path = tmp_path / "corpus.tsv"
    path.write_text("good\tnice\n")
    command = ["--family", "classifier", "--columns", "2,1"]
    command += ["--source", str(path), "--val-source", str(path)]
    assert train.main([*command, "--print-config"]) == 0
    options = tmp_path / "options.toml"
    options.write_text(capsys.readouterr().out)
    parsed = train.parser().parse_args(["--config", str(options), "--run", str(tmp_path / "run")])
    for split in ("train", "val"):
        assert list(train.read_recipe(parsed).pairs(split, None)) == [Pair("nice", "good")]


@pytest.mark.parametrize("side", ["target", "val_target"])
def test_unequal_numbers_of_lines_are_refused_before_any_work(side, tmp_path, capsys):
    lines = {"source": 40, "target": 40, "val_source": 3, "val_target": 3}
    lines[side] += 1
    for name, count in lines.items():
        (tmp_path / name).write_text("a b\n" * count)
    command = [
        word for name in lines for word in (f"--{name}".replace("_", "-"), f"{tmp_path}/{name}")
    ]
    error = fails([*command, "--run", str(tmp_path / "run")], capsys, 1)
    assert f"{side} has {lines[side]} lines: line N of one must" in error
    assert not (tmp_path / "run").exists()

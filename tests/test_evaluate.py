"""The commands training.evaluate and training.translate, on a tiny run."""

import io
import json
import sys

import keras
import pytest

import tfformer
from tfformer import Tokenizer, Transformer, TransformerConfig
from training import evaluate, translate

TEXTS = [f"word {n} and {n * 7} more" for n in range(97)]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    keras.utils.set_random_seed(3)
    tokenizer = Tokenizer.train(TEXTS, vocabulary_size=290)
    config = TransformerConfig.preset(
        "test", tokenizer.source_vocabulary_size, num_encoder_layers=1, num_decoder_layers=1
    )
    directory = tmp_path_factory.mktemp("run") / "run"
    search = {"max_source_length": 17, "max_target_length": 13}
    tfformer.save(directory, Transformer(config), tokenizer, search)
    return directory


@pytest.fixture
def test_set(tmp_path):
    path = tmp_path / "test.tsv"
    lines = [f"{text}\t{text[::-1]}\t{'odd' if n % 2 else 'even'}" for n, text in enumerate(TEXTS)]
    path.write_text("\n".join(lines[:11]) + "\n")
    return path


def test_scores_are_printed_and_written(run, test_set, tmp_path, capsys):
    translations = tmp_path / "translations.txt"
    arguments = [str(run), "--source", str(test_set), "--translations", str(translations)]
    arguments += ["--language", "de"]
    assert evaluate.main(arguments) == 0
    scores = json.loads((run / "evaluation.json").read_text())
    assert scores["pairs"] == 11
    assert scores["perplexity"] > 1
    assert "tok:13a" in scores["bleu_signature"]
    assert "lowercase" in scores["bleu_multi30k_signature"]
    assert {name: group["pairs"] for name, group in scores["groups"].items()} == {
        "even": 6,
        "odd": 5,
    }
    assert "tok:13a" in capsys.readouterr().out
    assert translations.read_text().count("\n") == 11


def test_exact_match_counts_what_is_equal_to_the_letter():
    assert evaluate.exact_match(["a", "b", "c ", "d"], ["a", "B", "c", "d"]) == 50


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["{run}"], 2),
        (["{run}", "--recipe", "dates", "--source", "x"], 2),
        (["{run}", "--recipe", "no-such-recipe"], 2),
        (["{run}", "--recipe", "multi30k"], 2),
        (["{run}", "--recipe", "dates", "--batch-size", "0"], 2),
        (["{run}", "--source", "missing.tsv"], 1),
        (["{tmp}", "--source", "{test_set}"], 1),
        (["{run}", "--source", "{test_set}", "--beam-width", "0"], 1),
        (["{run}", "--source", "{test_set}", "--output", "{tmp}/no/such/folder"], 1),
    ],
)
def test_bad_arguments_are_one_line(arguments, code, run, test_set, tmp_path, capsys):
    places = {"run": run, "tmp": tmp_path, "test_set": test_set}
    assert evaluate.main([argument.format(**places) for argument in arguments]) == code
    lines = [line for line in capsys.readouterr().err.splitlines() if "error:" in line]
    assert len(lines) == 1


def feed(monkeypatch, content, tmp_path):
    path = tmp_path / "input"
    path.write_bytes(content)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(open(path, "rb")))


def test_translate_gives_a_line_for_a_line(run, tmp_path, monkeypatch, capsys):
    feed(monkeypatch, b"word 1\r\n\n\xff bad\nlast without an end", tmp_path)
    picture = tmp_path / "attention.png"
    assert translate.main([str(run), "--picture", str(picture)]) == 0
    lines = capsys.readouterr().out.split("\n")
    assert len(lines) == 5 and lines[1] == "" and lines[4] == ""
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_translate_refuses_what_is_no_run(tmp_path, monkeypatch, capsys):
    feed(monkeypatch, b"x\n", tmp_path)
    assert translate.main([str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("python -m training.translate: error: ")

"""The commands training.evaluate and training.translate, on a tiny run."""

import io
import json
import os
import shutil
import sys

import keras
import pytest

import tfformer
from tfformer import Tokenizer, Transformer, TransformerConfig
from training import evaluate, translate
from training.report.scores import add_scores, read_scores

pytestmark = pytest.mark.usefixtures("loaded_once")
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


@pytest.mark.slow
def test_latest_score_is_kept_per_test_set_and_search(run, test_set, tmp_path):
    copy = shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("scores.json"))
    other = tmp_path / "other.tsv"
    other.write_text("".join(f"{text}\t{text}\n" for text in TEXTS[:7]))
    for name, *options in (
        (test_set, "--greedy"),
        (test_set, "--greedy", "--language", "de"),
        (other, "--greedy"),
        (test_set, "--beam-width", "2"),
    ):
        assert evaluate.main([str(copy), "--source", str(name), *options]) == 0
    found = read_scores(copy)
    assert [(entry["test_set"], entry["search"]) for entry in found] == [
        ("test.tsv", "greedy"),
        ("other.tsv", "greedy"),
        ("test.tsv", "beam 2"),
    ]
    assert "bleu_multi30k" in found[0], "it is the second evaluation that is kept"
    assert [entry["pairs"] for entry in found] == [11, 7, 11]
    text = (copy / "README.md").read_text()
    for entry in found:
        start = f"| {entry['test_set']}, {entry['pairs']} pairs, {entry['date']}"
        penalty = "" if entry["search"] == "greedy" else ", length penalty 0.6"
        for key, name in (("bleu", "BLEU"), ("chrf", "chrF2")):
            signature = entry[f"{key}_signature"].replace("|", "\\|")
            score = f"{name} | {entry[key]:.2f} | `{signature}`"
            assert text.count(f"\n{start} | {entry['search']}{penalty} | {score} |\n") == 1
        assert f"perplexity, teacher forcing | {entry['perplexity']:.3f} |" in text
    # With the same name and other content: two sets, which the model card distinguishes.
    renamed = test_set.with_name("again") / test_set.name
    renamed.parent.mkdir()
    shutil.copy(other, renamed)
    assert evaluate.main([str(copy), "--source", str(renamed), "--greedy"]) == 0
    assert [entry["test_set"] for entry in read_scores(copy)] == ["test.tsv"] * 3
    text = (copy / "README.md").read_text()
    for entry in read_scores(copy):
        assert f"\n| test.tsv `{entry['sha256'][:8]}`, {entry['pairs']} pairs" in text
    # Another model has none of these scores.
    model, tokenizer = tfformer.load(copy)
    kernel = model.weights[0]
    kernel.assign(kernel + 1.0)
    tfformer.save(copy, model, tokenizer)
    assert read_scores(copy) == []
    add_scores(copy, {"search": "greedy", "length_penalty": 0.0}, "new", [], "weights-of-another")
    assert read_scores(copy) == []


def test_evaluating_a_read_only_run_adds_no_files(run, test_set, tmp_path, monkeypatch):
    copy = shutil.copytree(run, tmp_path / "run")
    before = {path.name for path in copy.iterdir()}
    monkeypatch.setattr(os, "access", lambda path, mode: path != copy)
    output = tmp_path / "scores.json"
    arguments = [str(copy), "--source", str(test_set), "--greedy"]
    assert evaluate.main(arguments) == 0
    assert {path.name for path in copy.iterdir()} == before
    assert evaluate.main([*arguments, "--output", str(output)]) == 0
    assert output.exists() and {path.name for path in copy.iterdir()} == before


def test_scores_are_printed_even_if_they_cannot_be_kept(run, test_set, tmp_path, capsys):
    copy = shutil.copytree(run, tmp_path / "copy")
    (copy / "evaluation.json").unlink(missing_ok=True)
    (copy / "evaluation.json").mkdir()
    assert evaluate.main([str(copy), "--source", str(test_set), "--greedy"]) == 1
    captured = capsys.readouterr()
    assert "BLEU" in captured.out and "error" in captured.err


def test_scores_are_written_even_if_the_card_cannot_be(run, test_set, tmp_path, capsys):
    copy = shutil.copytree(run, tmp_path / "copy")
    (copy / "sessions.json").write_text('[{"of": "another version"}]')
    assert evaluate.main([str(copy), "--source", str(test_set), "--greedy"]) == 0
    assert "no model card" in capsys.readouterr().err
    assert read_scores(copy)


def test_the_language_is_that_of_the_run(run, test_set, tmp_path):
    copy = shutil.copytree(run, tmp_path / "copy")
    (copy / "prepared").mkdir()
    (copy / "prepared" / "recipe.json").write_text('{"language": "fr"}')
    assert evaluate.main([str(copy), "--source", str(test_set), "--greedy"]) == 0
    assert "bleu_multi30k" in json.loads((copy / "evaluation.json").read_text())


def test_group_names_are_not_parsed_as_markup(run, tmp_path, capsys):
    path = tmp_path / "groups.tsv"
    path.write_text("word 1\tdrow\t[news]\nword 2\tdrow\t[/b]\n")
    assert evaluate.main([str(run), "--source", str(path), "--greedy"]) == 0
    out = capsys.readouterr().out
    assert "[news]" in out and "[/b]" in out


def test_a_third_column_of_many_values_is_no_group(run, tmp_path, capsys):
    """Tatoeba's third column is the attribution, which differs from line to line."""
    path = tmp_path / "tatoeba.tsv"
    for count in (100, 101):
        path.write_text("".join(f"word\tdrow\tCC-BY 2.0 #{n}\n" for n in range(count)))
        assert evaluate.main([str(run), "--source", str(path), "--greedy"]) == 0
        out, scores = capsys.readouterr().out, json.loads((run / "evaluation.json").read_text())
        assert len(scores.get("groups", {})) == (100 if count == 100 else 0)
        assert ("101 groups, more than 100" in out) == (count == 101)
    assert scores["groups_left_out"] == 101


def test_exact_match_counts_only_identical_texts():
    assert evaluate.exact_match(["a", "b", "c ", "d"], ["a", "B", "c", "d"]) == 50


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["{run}"], 2),
        (["{run}", "--recipe", "dates", "--source", "{test_set}"], 2),
        (["{run}", "--recipe", "dates", "--target", "{test_set}"], 2),
        (["{run}", "--source", "{test_set}", "--data", "x"], 2),
        (["{run}", "--source", "{test_set}", "--greedy", "--beam-width", "3"], 2),
        (["{run}", "--recipe", "multi30k"], 2),
        (["{run}", "--recipe", "dates", "--batch-size", "0"], 2),
        (["{run}", "--source", "{test_set}", "--beam-width", "0"], 2),
    ],
)
def test_bad_arguments_give_one_line_error(arguments, code, run, test_set, tmp_path, capsys):
    places = {"run": run, "tmp": tmp_path, "test_set": test_set}
    try:
        found = evaluate.main([argument.format(**places) for argument in arguments])
    except SystemExit as ended:
        found = ended.code
    assert found == code
    lines = [line for line in capsys.readouterr().err.splitlines() if "error:" in line]
    assert len(lines) == 1


def feed(monkeypatch, content, tmp_path):
    path = tmp_path / "input"
    path.write_bytes(content)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(open(path, "rb")))


def test_translate_writes_one_line_per_input_line(run, tmp_path, monkeypatch, capsys):
    feed(monkeypatch, b"word 1\r\n\n\xff bad\nlast without an end", tmp_path)
    picture = tmp_path / "attention.png"
    assert translate.main([str(run), "--picture", str(picture)]) == 0
    lines = capsys.readouterr().out.split("\n")
    assert len(lines) == 5 and lines[1] == "" and lines[4] == ""
    assert picture.read_bytes().startswith(b"\x89PNG")

"""Ensembles, and the choice among several translations, by the commands."""

import io
import json
import shutil
import sys

import numpy as np
import pytest
import tensorflow as tf
import tiny

import tfformer
from tfformer import Tokenizer, load_translator
from tfformer.run import model_weights
from training import evaluate, translate
from training.evaluation.reranking import BestOf, Choice

pytestmark = pytest.mark.usefixtures("loaded_once")
TEXTS = tiny.sentences(7, seed=11)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs with one vocabulary and different weights."""
    folder = tmp_path_factory.mktemp("runs")
    texts = tiny.sentences(97)
    search = {"max_source_length": 17, "max_target_length": 11, "beam_width": 2}
    one = tiny.save_run(folder / "one", lambda: Tokenizer.train(texts, vocabulary_size=347), search)
    model, tokenizer = tfformer.load(one)
    rng = np.random.default_rng(5)
    weights = {
        name: value + 0.1 * rng.normal(size=value.shape)
        for name, value in model_weights(model).items()
    }
    tfformer.save(folder / "two", model, tokenizer, search, weights=weights)
    return [str(one), str(folder / "two")]


@pytest.fixture
def test_set(tmp_path):
    path = tmp_path / "test.tsv"
    path.write_text("".join(f"{text}\t{text[::-1]}\n" for text in TEXTS))
    return str(path)


def lines_of(runs, monkeypatch, capsys, *options):
    text = "".join(f"{text}\n" for text in TEXTS).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert translate.main([runs[0], *options]) == 0
    return capsys.readouterr().out.split("\n")[:-1]


def in_lines(answers):
    """As they are printed: a byte that the model writes may end a line."""
    return [" ".join(one.splitlines()) for one in answers]


@pytest.mark.slow
def test_command_ensemble_equals_python_ensemble(runs, monkeypatch, capsys):
    one, two = map(load_translator, runs)
    mean = "log-probabilities"
    both = load_translator(runs[0], ensemble=[two], ensemble_mean=mean)
    found = lines_of(runs, monkeypatch, capsys, "--ensemble", runs[1], "--ensemble-mean", mean)
    assert found == in_lines(both.translate(TEXTS))
    assert found != in_lines(one.translate(TEXTS))


@pytest.mark.slow
def test_command_reranking_equals_python_best_of(runs, monkeypatch, capsys):
    one, two = map(load_translator, runs)
    asked = (
        (["--utility", "chrf", "--samples", "3"], {"utility": "chrf", "samples": 3}),
        (
            ["--backward", runs[1], "--backward-weight", "2"],
            {"backward": two, "backward_weight": 2},
        ),
    )
    for words, fields in asked:
        expected = BestOf(one, Choice(**fields)).translate(TEXTS)
        found = lines_of(runs, monkeypatch, capsys, *words)
        assert found == in_lines(expected)


@pytest.mark.slow
def test_scores_record_the_search_options(runs, test_set, tmp_path):
    copy = shutil.copytree(runs[0], tmp_path / "run")
    asked = [[], ["--ensemble", runs[1]], ["--utility", "bleu", "--beam-width", "3"]]
    for words in asked:
        assert evaluate.main([str(copy), "--source", test_set, *words]) == 0
    found = json.loads((copy / "scores.json").read_text())
    assert [one["search"] for one in found] == [
        "beam 2",
        "beam 2, ensemble of 2 by probabilities (two)",
        "beam 3, minimum Bayes risk by bleu",
    ]
    # With teacher forcing, the ensemble has two models, and the choice among candidates has no
    # effect.
    perplexities = [one["perplexity"] for one in found]
    assert perplexities[0] == perplexities[2] != perplexities[1]
    both = load_translator(runs[0], ensemble=[load_translator(runs[1])])
    sides = [tf.constant(TEXTS), tf.constant([text[::-1] for text in TEXTS])]
    answer = both.functions["score"](*sides)
    total = -tf.reduce_sum(answer["log_prob"]) / float(tf.reduce_sum(answer["length"]))
    assert perplexities[1] == pytest.approx(float(tf.exp(total)), rel=1e-5)


@pytest.mark.parametrize(
    "words, message",
    [
        ("--ensemble-mean probabilities", "--ensemble-mean needs --ensemble"),
        ("--samples 3", "--samples needs --utility"),
        ("--backward RUN --samples 3", "--samples needs --utility"),
        ("--backward-weight 1", "--backward-weight needs --backward"),
        (
            "--utility bleu --backward RUN",
            "--utility and --backward cannot be combined",
        ),
        ("--utility bleu --greedy", "--greedy finds only one translation"),
        ("--utility bleu --picture p.png", "--picture cannot be given with --utility"),
    ],
)
def test_incompatible_options_give_one_line_error(words, message, tmp_path, capsys):
    (tmp_path / "config.json").touch()  # of a run that is not read before
    words = [str(tmp_path) if word == "RUN" else word for word in words.split()]
    assert translate.main([str(tmp_path), *words]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_ensemble_and_utility_are_refused_for_another_family(runs, tmp_path, capsys):
    copy = shutil.copytree(runs[0], tmp_path / "run")
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "family": "language-model"}))
    for words in (["--ensemble", runs[1]], ["--utility", "bleu"]):
        assert translate.main([str(copy), *words]) == 1
        error = capsys.readouterr().err
        assert "language-model" in error and error.count("\n") == 1

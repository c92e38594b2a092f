"""A training uses its task's methods: another task than translation needs no change to it."""

import dataclasses
import json
import math

import pytest
import tensorflow as tf
from killing_recipe import RECIPE

from tfformer.files import RunError
from tfformer.run import read_config
from training.preparation.prepare import read_settings
from training.recipe import Recipe
from training.report.card import write_card
from training.report.history import read_history
from training.tasks import TASKS
from training.tasks.translation import Translation
from training.trainer.fit import Training


class Lengths(Translation):
    """A task whose score is better if it is lower, and that has no BLEU."""

    figure, figure_name, figure_how, figure_max = "val_offset", "offset", "", 10.0
    columns = {"val_offset": ("mean offset", "{:.1f}")}
    without_padding = None

    def __init__(self, scores):
        self.scores = iter(scores)

    def served(self, model, tokenizer, search):
        return "a service"

    def shown(self, served, sources):
        return [f"{len(source)} letters" for source in sources]

    def score(self, served, sources, references):
        assert served == "a service" and len(sources) == len(references) == 13
        return next(self.scores), "characters"

    def better(self, score, than):
        return score < than

    def chosen(self, config, history):
        return {"exact_match": config["training"]["val_offset"]}


@pytest.fixture(scope="module")
def lengths(tmp_path_factory):
    """Three epochs of which the second is the best; then their mean, which is better than all."""
    run = tmp_path_factory.mktemp("lengths") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(TASKS, "lengths", Lengths([7.0, 3.0, 5.0, 2.0]))
        recipe = dataclasses.replace(RECIPE, task="lengths", r_drop=0.0)
        training = Training(run, recipe)
        training.run()
        yield training
        assert read_settings(run, RECIPE).task == "lengths"


@pytest.mark.slow
def test_task_decides_which_score_is_better(lengths):
    history = read_history(lengths.directory)
    assert [row["val_offset"] for row in history] == [7, 3, 5]
    assert "val_bleu" not in history[0] and "val_loss" in history[0]
    best = lengths.state.progress["best"]
    assert best == {"average_of_epochs": [2, 3], "val_offset": 2.0}
    published = read_config(lengths.directory)["training"]
    assert published["val_offset"] == 2 and published["val_offset_signature"] == "characters"
    assert lengths.selection.since_best() == 1
    assert lengths.task.figure_words(2.04) == "offset 2.0"


@pytest.mark.slow
def test_settings_have_the_task_name_and_card_its_score(lengths):
    settings = json.loads((lengths.directory / "prepared" / "recipe.json").read_text())
    assert settings["task"] == "lengths"
    write_card(lengths.directory)
    text = (lengths.directory / "README.md").read_text()
    assert "| mean offset |" in text and "greedy BLEU" not in text


@pytest.mark.slow
def test_card_of_an_unknown_task_is_refused(lengths, monkeypatch):
    monkeypatch.delitem(TASKS, "lengths")
    with pytest.raises(RunError, match=r"recipe.json: task must be one of .*, got 'lengths'"):
        write_card(lengths.directory)


def test_a_recipe_of_an_unknown_task_is_refused():
    with pytest.raises(ValueError, match="task must be one of .*, got 'sleeping'"):
        dataclasses.replace(RECIPE, task="sleeping")


def test_of_equal_scores_the_first_is_the_best():
    task = TASKS["translation"]
    assert task.best([1.0, 3.0, 2.0, 3.0]) == 1
    assert Lengths([]).best([4.0, 3.0, 2.0, 2.0]) == 2


def test_example_has_target_after_bos_and_labels_ending_with_eos():
    source = tf.ragged.constant([[5, 6, 3], [7, 3]], dtype=tf.int32)
    target = tf.ragged.constant([[8, 3], [9, 10, 3]], dtype=tf.int32)

    def padded(ids, columns=4):
        return ids.to_tensor(0, shape=[2, columns])

    inputs, labels = TASKS["translation"].example(source, target, padded)
    assert inputs["source_ids"].numpy().tolist() == [[5, 6, 3, 0], [7, 3, 0, 0]]
    assert inputs["target_ids"].numpy().tolist() == [[2, 8, 0, 0], [2, 9, 10, 0]]
    assert labels.numpy().tolist() == [[8, 3, 0, 0], [9, 10, 3, 0]]


def test_a_uniform_batch_is_full():
    inputs, labels = TASKS["translation"].uniform(3, 5, 7)
    assert inputs["source_ids"].numpy().tolist() == labels.numpy().tolist() == [[7] * 5] * 3
    assert inputs["target_ids"].numpy().tolist() == [[2, 7, 7, 7, 7]] * 3


def test_loss_is_the_log_of_the_perplexity():
    task, results = TASKS["translation"], {"loss": 9.0, "accuracy": 0.3, "perplexity": math.e**2}
    assert task.figures(results) == {"loss": pytest.approx(2), "accuracy": 0.3}
    found = task.validation(results, 37.9, None)
    assert list(found) == ["val_loss", "val_accuracy", "val_perplexity", "val_bleu"]
    assert task.sentence(found) == "loss 2.000, perplexity 7.39, greedy BLEU 37.90"


def test_separate_vocabularies_tie_only_target_matrices():
    recipe = Recipe(preset="tiny")
    configuration = TASKS["translation"].configuration
    assert configuration(recipe, 101).tie_embeddings == "all"
    apart = configuration(recipe, 101, 211, shared=False)
    assert apart.tie_embeddings == "target" and apart.target_vocabulary_size == 211

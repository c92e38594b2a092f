"""Recipes and their settings: what is refused, and which settings also hold for other files."""

import json

import pytest
from workers import RECIPE, fails

from training import compare, evaluate, multi30k, train
from training.data.reader import Pair
from training.recipe import Recipe, load_recipe
from training.tasks import TASKS


def test_both_ways_needs_one_vocabulary(tmp_path, capsys):
    command = [RECIPE, "--run", str(tmp_path / "run"), "--both-ways", "2"]
    error = fails([*command, "--no-shared-vocabulary"], capsys, 2)
    assert "both_ways must be 0 without a shared vocabulary" in error
    assert not (tmp_path / "run").exists()


def test_mistake_in_a_recipe_file_gives_one_line_error(tmp_path, capsys):
    path = tmp_path / "mine.py"
    path.write_text("from training.recipe import Recipe\nRECIPE = Recipe(pairs=None, epoch=3)\n")
    said = fails([str(path), "--run", str(tmp_path / "run")], capsys, 2)
    assert "mine.py: TypeError" in said and "epoch" in said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--preset", "tinny"),
        ("--profile", "speed"),
        ("--max-tokens", "2048"),
        ("--vocabulary-kind", "words"),
        ("--r-drop", "nan"),
        ("--weight-decay", "nan"),
        ("--cores", "-1"),
        ("--learning-rate-scale", "nan"),
        ("--learning-rate-scale", "inf"),
        ("--max-length-ratio", "0.5"),
        ("--no-repeat-ngram", "9"),
        ("--length-penalty-form", "log"),
        ("--freeze", "encoder,decoder,embeddings,encoder"),
    ],
)
def test_settings_are_refused_before_anything_is_made(files, capsys, tmp_path, option, value):
    arguments = [*files(), option, value]
    assert value in fails(arguments, capsys, 2)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"vocabulary_kind": "char", "subword_sampling": 0.3}, "subword_sampling"),
        ({"model_changes": {"layers": 2}}, "layers"),
        ({"profile": "latency", "task": "classifier"}, "profile must be 'none' for the task"),
        ({"profile": "latency", "model_changes": {"share_halves": True}}, "with share_halves"),
        ({"search": {"beams": 2}}, "search options of the family .* must be of .* got 'beams'"),
        ({"search": {"min_length": 129}}, "min_length must be at most max_tokens=128, got 129"),
        ({"model_changes": {"d_model": 30, "num_heads": 7}}, "num_heads"),
        ({"model_changes": {"positions": "learned"}, "max_tokens": 1024}, "max_positions=512"),
    ],
)
def test_recipe_that_cannot_be_trained_raises_value_error(settings, named):
    with pytest.raises(ValueError, match=named):
        Recipe(pairs=lambda split, data: (), **settings)


def test_the_profile_latency_has_a_deep_encoder_and_one_decoder_layer():
    sizes = {"num_encoder_layers": 3, "num_decoder_layers": 4}
    recipe = Recipe(preset="test", profile="latency", model_changes=sizes)
    config = TASKS["translation"].configuration(recipe, 300)
    assert (config.num_encoder_layers, config.num_decoder_layers) == (6, 1)


def test_unknown_recipe_or_option_is_refused(capsys, tmp_path):
    run = ["--run", str(tmp_path / "run")]
    assert "dates" in fails(["no-such-recipe", *run], capsys, 2)
    assert "--epoch-count" in fails(["dates", *run, "--epoch-count", "3"], capsys, 2)
    assert "epochs" in fails(["dates", *run, "--epochs", "0"], capsys, 2)
    assert "--source" in fails(run, capsys, 2)
    assert not (tmp_path / "run").exists()


def test_recipe_settings_apply_to_other_files(tmp_path):
    """The numbers are taken from the recipe, the pairs and the language are not."""
    for name in ("a.en", "a.fr", "b.en", "b.fr"):
        (tmp_path / name).write_text(f"text of {name}\n")
    files = [f"--{option}={tmp_path / name}" for option, name in (
        ("source", "a.en"), ("target", "a.fr"), ("val-source", "b.en"), ("val-target", "b.fr")
    )]  # fmt: skip
    arguments = train.parser().parse_args(["multi30k", "--run=run", *files, "--epochs=7"])
    recipe, original = train.read_recipe(arguments), load_recipe("multi30k")
    assert list(recipe.pairs("train", None)) == [Pair("text of a.en", "text of a.fr")]
    assert list(recipe.pairs("val", None)) == [Pair("text of b.en", "text of b.fr")]
    assert "`a.fr`" in recipe.origin and str(tmp_path) not in recipe.origin
    assert recipe.model_changes == original.model_changes
    assert recipe.settings() == original.settings() | {
        "epochs": 7,
        "source_language": "",
        "language": "",
    }
    arguments.language = "fr"
    assert train.read_recipe(arguments).language == "fr"


def test_recipe_corpus_is_read_in_the_given_languages(tmp_path, monkeypatch):
    """The recipe's own corpus; only the names of the languages change."""
    monkeypatch.setattr(multi30k, "SHA256", {})
    monkeypatch.setattr(multi30k, "SPLITS", {"train": 1, "test_2016_flickr": 1})
    for name in ("train.de", "train.fr", "test_2016_flickr.de", "test_2016_flickr.fr"):
        (tmp_path / name).write_text(f"text of {name}\n")
    languages = ["--source-language", "de", "--language", "fr"]
    arguments = train.parser().parse_args(["multi30k", "--run=run", *languages])
    recipe = train.read_recipe(arguments)
    assert list(recipe.read("train", tmp_path)) == [Pair("text of train.de", "text of train.fr")]

    corpus = ["--recipe", "multi30k", "--data", str(tmp_path)]
    prepared = tmp_path / "french" / "prepared"
    prepared.mkdir(parents=True)
    (prepared / "recipe.json").write_text(json.dumps(recipe.settings()))
    for command, runs in ((evaluate, ["run"]), (compare, ["a", "b"])):
        for run, given in ((tmp_path / "new", languages), (tmp_path / "french", [])):
            options = [*runs, *corpus, "--split", "test", *given]
            pairs, language = evaluate.read_test_set(command.parser().parse_args(options), run)
            assert [pair.target for pair in pairs] == ["text of test_2016_flickr.fr"]
            assert language == "fr"


def test_search_options_of_a_recipe_are_saved_and_served(tmp_path):
    from training.preparation.prepare import read_settings
    from training.tasks import TASKS
    from training.train import parser, read_recipe

    given = ["--run", str(tmp_path), "--coverage-penalty", "0.2", "--beam-width", "3"]
    recipe = read_recipe(parser().parse_args([RECIPE, *given]))
    served = TASKS[recipe.task].search(recipe)
    assert served["coverage_penalty"] == 0.2 and served["beam_width"] == 3
    settings = tmp_path / "prepared" / "recipe.json"
    settings.parent.mkdir()
    settings.write_text(json.dumps(recipe.settings()))
    # The settings of the begun run hold, whatever another recipe has now.
    plain = load_recipe(RECIPE)
    assert read_settings(tmp_path, plain).search == {"coverage_penalty": 0.2}
    settings.write_text(json.dumps(plain.settings()))
    assert "search" not in plain.settings() and read_settings(tmp_path, recipe).search == {}

"""The architecture from the command line: any field of the configuration, in addition to the
preset."""

import dataclasses
import json

import pytest
from workers import RECIPE, fails

from tfformer.config import TransformerConfig
from tfformer.models import FAMILIES
from tfformer.run import load_model, read_config
from training import train
from training.command_line.arguments import COMMON
from training.command_line.options import fields_of, model_options
from training.preparation.initialisation import Runs
from training.recipe import load_recipe, options
from training.tasks import TASKS
from training.trainer import fit

# Another value for each field, which is the default of no preset.
OTHERS = {
    "num_encoder_layers": 5,
    "num_decoder_layers": 7,
    "d_model": 18,
    "num_heads": 3,
    "d_ff": 31,
    "dropout": 0.23,
    "activation": "silu",
    "norm": "pre",
    "positions": "learned",
    "max_positions": 129,
    "tie_embeddings": "target",
    "copy": True,
    "output_bias": True,
    "last_norm": True,
    "epsilon": 1e-5,
    "attention_dropout": 0.19,
    "activation_dropout": 0.17,
}


# Two vocabularies; the recipe has one.
APART = ["--no-shared-vocabulary", "--both-ways", "0"]


def arguments(run, *given):
    return train.parser().parse_args([RECIPE, "--run", str(run), *given])


def test_short_help_shows_only_common_options():
    parser = train.parser()
    assert COMMON <= {action.dest for action in parser._actions}
    shown = parser.format_help()
    assert len(shown.splitlines()) < 100 and "--help-all" in shown
    assert "--epochs" in shown and "--location-width" not in shown


def test_every_field_of_the_configuration_is_an_option():
    fields = {field.name for field in dataclasses.fields(TransformerConfig)}
    sizes = {"source_vocabulary_size", "target_vocabulary_size"}
    assert {name for name, *_ in model_options()} >= fields - sizes
    # The help reads the table without its package; a training reads the families of the tasks. If
    # two configurations have the same field, it is one option, with the help of the first.
    served = [FAMILIES[task.family].configuration for task in TASKS.values()]
    known = {name: rest for of in reversed(served) for name, *rest in fields_of(of)}
    assert {name: rest for name, *rest in model_options()} == known
    assert not fields & {name for name, *_ in options()}
    assert OTHERS.keys() <= fields - sizes
    parser = train.parser()
    parser.common_only = False
    shown = " ".join(parser.format_help().split())
    for name, kind, help, choices in model_options():
        flag = f"--{name.replace('_', '-')}"
        # A flag with a negative form stands before that form, another option before its value.
        value = f"{{{','.join(choices)}}}" if choices else {int: "N", float: "X"}.get(kind)
        assert f"{flag}, --no-" in shown or f"{flag} {value}" in shown
        assert " ".join(help.split()) in shown


@pytest.mark.parametrize("name", OTHERS)
def test_option_overrides_preset_and_recipe(tmp_path, name):
    value = OTHERS[name]
    # With three heads, d_model must be a multiple of three.
    sizes = {"d_model": 18} if name == "num_heads" else {}
    flags = {name: value, **sizes}
    given = [
        f"--{flag.replace('_', '-')}" + ("" if value is True else f"={value}")
        for flag, value in flags.items()
    ]
    recipe = train.read_recipe(arguments(tmp_path / "run", *given))
    assert recipe.model_changes == load_recipe(RECIPE).model_changes | flags
    config = TASKS[recipe.task].configuration(recipe, 301)
    assert getattr(config, name) == value
    assert type(getattr(config, name)) is type(value)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (["--norm", "middle"], "norm must be one of ('post', 'pre'), got 'middle'"),
        (["--d-model", "wide"], "--d-model"),
        (["--d-model", "0"], "d_model must be an integer of at least 2, got 0"),
        (["--num-heads", "3"], "d_model must be a multiple of num_heads"),
        (["--dropout", "nan"], "dropout must be a number in [0, 1), got nan"),
        (["--positions", "learned", "--max-positions", "15"], "max_positions=15, got 16"),
        (
            ["--tie-embeddings", "all", *APART],
            "tie_embeddings='all' needs one vocabulary for source and target, got two",
        ),
        (["--copy", *APART], "copy=True needs one vocabulary for source and target, got two"),
    ],
)
def test_invalid_value_gives_one_line_error(tmp_path, capsys, given, named):
    assert named in fails([RECIPE, "--run", str(tmp_path / "run"), *given], capsys, 2)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_run_stores_chosen_options_and_refuses_others_on_resume(tmp_path, capsys):
    run = tmp_path / "run"
    chosen = ["--norm", "pre", "--activation", "swiglu", "--d-model", "12", "--num-heads", "3"]
    chosen += ["--positions", "learned", "--max-positions", "17", "--tie-embeddings", "target"]
    assert train.main([RECIPE, "--run", str(run), "--epochs", "1", *chosen]) == 0
    sizes = {"norm": "pre", "activation": "swiglu", "d_model": 12, "num_heads": 3}
    sizes |= {"positions": "learned", "max_positions": 17, "tie_embeddings": "target"}
    settings = json.loads((run / "prepared" / "recipe.json").read_text())
    expected = load_recipe(RECIPE).model_changes | sizes
    assert settings["model_changes"] == expected
    model = read_config(run)["model"]
    assert {name: model[name] for name in expected} == expected
    assert load_model(run).config.norm == "pre"
    # The same values are accepted again; other values are not.
    assert train.main(["--run", str(run), "--resume", *chosen]) == 0
    capsys.readouterr()
    for given, message in (
        (["--norm", "post"], "--norm was 'pre' when the run was begun and cannot become 'post'"),
        (["--d-ff", "31"], "--d-ff was 29 when the run was begun and cannot become 31"),
        (
            ["--profile", "latency"],
            "--profile was 'none' when the run was begun and cannot become 'latency'",
        ),
        (["--dropout", "0.3"], "--dropout was 0.2 when the run was begun and cannot become 0.3"),
    ):
        said = fails(["--run", str(run), "--resume", *chosen[:4], *given], capsys, 2)
        assert f"{message}: choose another --run" in said
    assert json.loads((run / "prepared" / "recipe.json").read_text()) == settings


@pytest.mark.slow
@pytest.mark.parametrize("given", [["--norm", "pre"], ["--d-model", "256"], ["--num-heads", "5"]])
def test_architecture_options_are_refused_with_init(finished, tmp_path, capsys, given):
    command = [RECIPE, "--run", str(tmp_path / "run"), "--init", str(finished)]
    said = fails([*command, *given], capsys, 2)
    assert f"{given[0]} cannot be given with --init: that run decides it" in said
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_dropout_overrides_init_but_cannot_change_on_resume(finished, tmp_path, capsys):
    run = tmp_path / "run"
    recipe = train.read_recipe(arguments(run, "--dropout", "0.47"))
    assert fit.Training(run, recipe, runs=Runs(init=finished)).model.config.dropout == 0.47
    resume = [RECIPE, "--run", str(run), "--resume"]
    said = fails([*resume, "--dropout", "0.3"], capsys, 2)
    assert "--dropout was 0.47 when the run was begun and cannot become 0.3" in said

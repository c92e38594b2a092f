"""The settings that are chosen from the corpus, and the plan that is printed before the first
step."""

import dataclasses
import json

import pytest
from workers import RECIPE

from training import train
from training.preparation.prepare import prepare, read_settings
from training.recipe import CHOSEN, FOR_LARGE, FOR_SMALL, plan
from training.report.progress import Forecast, duration


@pytest.fixture
def command(tmp_path):
    """Arguments of the command for 60 pairs of text, of which 57 are for training."""
    text = tmp_path / "text.txt"
    text.write_text("".join(f"word {n} and more\n" for n in range(60)))
    return ["--source", str(text), "--target", str(text), "--run", str(tmp_path / "run")]


def prepared(command, *more):
    """The settings of the run that this command begins, and the printed text."""
    arguments = train.parser().parse_args([*command, "--vocabulary-size", "300", *more])
    recipe, said = train.read_recipe(arguments), []
    prepare(arguments.run / "prepared", recipe, None, said.append)
    return read_settings(arguments.run, recipe), said


def test_missing_settings_are_chosen_from_the_corpus_and_saved(command):
    recipe, said = prepared(command, "--max-tokens", "16", "--batch-tokens", "64")
    assert {name: getattr(recipe, name) for name in FOR_SMALL} == FOR_SMALL | {"batch_tokens": 64}
    # 57 pairs of 6 to 8 tokens, in batches of 64 with padding: about 12 steps in each of 20 epochs.
    assert 14 <= recipe.warmup_steps <= 30
    peak = recipe.learning_rate_scale * (128 * recipe.warmup_steps) ** -0.5
    assert peak == pytest.approx(plan.PEAK, rel=0.01)
    assert said[-1] == (
        "chosen from the corpus: --preset tiny, --optimizer muon, --weight-decay 0.7, "
        f"--cooldown 0.2, --warmup-steps {recipe.warmup_steps}, "
        f"--learning-rate-scale {recipe.learning_rate_scale}"
    )
    settings = json.loads((plan_run(command) / "prepared" / "recipe.json").read_text())
    assert "choose" not in settings and settings["preset"] == "tiny"


def plan_run(command):
    """The run directory of a command."""
    return train.parser().parse_args(command).run


def test_large_corpus_gets_large_defaults_and_capped_warm_up(command, monkeypatch):
    monkeypatch.setattr(plan, "SMALL_CORPUS", 50)
    monkeypatch.setattr(plan, "WARMUP_MAX", 1)
    recipe, _ = prepared(command)
    assert {name: getattr(recipe, name) for name in FOR_LARGE} == FOR_LARGE
    assert recipe.warmup_steps == 1


def test_given_options_are_not_changed(command):
    given = ["--preset", "test", "--warmup-steps", "7", "--learning-rate-scale", "1.3"]
    recipe, said = prepared(command, *given)
    chosen = (recipe.preset, recipe.warmup_steps, recipe.learning_rate_scale)
    assert chosen == ("test", 7, 1.3)
    chosen = next(line for line in said if line.startswith("chosen"))
    assert not any(option in chosen for option in given[::2])


def test_nothing_is_chosen_with_a_recipe_or_init(command, tmp_path):
    for more in ([RECIPE], ["--init", str(tmp_path)]):
        assert train.read_recipe(train.parser().parse_args([*command, *more])).choose == ()
    assert train.read_recipe(train.parser().parse_args(command)).choose == CHOSEN


def test_nothing_is_chosen_on_resume(command):
    prepared(command)
    again = train.parser().parse_args([*command, "--resume", "--epochs", "31"])
    recipe = train.read_recipe(again)
    assert recipe.choose == () and recipe.epochs == 31


def test_optimizer_and_weight_decay_are_chosen_both_or_neither(command):
    for given in (["--optimizer", "adam"], ["--weight-decay", "0.1"]):
        choose = train.read_recipe(train.parser().parse_args([*command, *given])).choose
        assert not {"optimizer", "weight_decay"} & set(choose) and "cooldown" in choose


def test_plan_gives_steps_parameters_and_warm_up(command):
    recipe = train.read_recipe(train.parser().parse_args(command))
    recipe = dataclasses.replace(recipe, epochs=20, warmup_steps=268)
    assert list(plan.lines(recipe, "27,612 pairs", 134, 1_671_552)) == [
        "plan: 27,612 pairs; 134 steps an epoch, 2,680 in 20 epochs; 1,671,552 parameters",
        "the learning rate rises until step 268",
    ]
    late = list(plan.lines(dataclasses.replace(recipe, warmup_steps=4000), "27,612 pairs", 134, 1))[
        1
    ]
    assert "rises until step 4,000, after the end" in late and "--warmup-steps 268" in late


def test_forecast_prints_the_remaining_time_once(monkeypatch):
    from types import SimpleNamespace

    clock, said = [0.0], []
    monkeypatch.setattr("training.report.progress.time.monotonic", lambda: clock[0])
    forecast = Forecast(epochs=3, steps=1000, say=said.append)
    forecast.set_model(SimpleNamespace(optimizer=SimpleNamespace(iterations=0)))
    for step in range(120):
        # Half a second each; the first batch of each of 7 lengths is traced.
        clock[0] += 60 if step in (0, 1, 2, 5, 11, 23, 47) else 0.5
        forecast.model.optimizer.iterations += 1
        forecast.on_train_batch_end(step)
    assert said == ["an epoch takes about 8 min, the rest 25 min, without the validations"]
    assert [duration(s) for s in (41, 720, 12_600)] == ["41 s", "12 min", "3.5 h"]

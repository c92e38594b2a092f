"""Options from a file, --config: they work as on the command line, which has priority."""

import pytest
from workers import RECIPE, fails

from training import train
from training.recipe import Recipe


@pytest.fixture
def parsed(tmp_path):
    """Writes a file; returns the arguments of it and of a command line."""

    def run(text, *line):
        path = tmp_path / "mine.toml"
        path.write_text(text, encoding="utf-8")
        return train.parser().parse_args([f"--config={path}", *line])

    return run


def test_config_file_equals_command_line_options(parsed, tmp_path):
    (tmp_path / "a b").write_text("x\n")
    text = f"""
    # A comment; hyphens or underscores.
    run = "runs/größer"
    source = ["{tmp_path / "a b"}", "{tmp_path / "a b"}"]
    warmup-steps = 7
    learning_rate_scale = 1.5
    shared-vocabulary = false
    copy = true
    max-length-ratio = inf
    norm = "pre"
    """
    line = ["--run", "runs/größer", "--source", *(2 * [str(tmp_path / "a b")])]
    line += ["--warmup-steps=7", "--learning-rate-scale=1.5", "--no-shared-vocabulary", "--copy"]
    line += ["--max-length-ratio=inf", "--norm=pre"]
    found, expected = vars(parsed(text)), vars(train.parser().parse_args(line))
    assert found.pop("config") and expected.pop("config") is None
    assert found == expected


def test_the_command_line_wins(parsed):
    text = f"recipe = '{RECIPE}'\nepochs = 7\nsplit-digits = true\nsource = ['a', 'b']"
    found = parsed(text, "dates", "--epochs", "11", "--no-split-digits", "--source", "c")
    assert (found.recipe, found.epochs, found.split_digits) == ("dates", 11, False)
    assert [path.name for path in found.source] == ["c"]
    assert parsed(text, RECIPE).recipe == RECIPE
    assert parsed("recipe = 'dates'").recipe == "dates"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epochs = ", "mine.toml: "),
        ("epoch = 7", "epoch is no option: did you mean epochs?"),
        ("help = true", "help is no option"),
        ("resume = true", "resume is no option"),
        ("[model]\nd-model = 7", "model is no option"),
        ("epochs = true", "epochs must be a number or a word, got True"),
        ("epochs = [3]", "epochs must be a number or a word, got [3]"),
        (
            "source = 'a'",
            "source must be a list of words without a hyphen at the start, got 'a'",
        ),
        (
            "source = [['a']]",
            "source must be a list of words without a hyphen at the start, got [['a']]",
        ),
        ("recipe = 5", "recipe must be a word, got 5"),
        ("copy = 1", "copy must be true or false, got 1"),
        ("epochs = 'seven'", "--epochs"),
    ],
)
def test_invalid_config_file_is_refused(tmp_path, capsys, text, message):
    (tmp_path / "mine.toml").write_text(text)
    command = [RECIPE, "--run", str(tmp_path / "run"), "--config", str(tmp_path / "mine.toml")]
    assert message in fails(command, capsys, 2)
    assert not (tmp_path / "run").exists()


def test_missing_config_file_is_refused(tmp_path, capsys):
    assert "no.toml" in fails([RECIPE, "--run=run", f"--config={tmp_path}/no.toml"], capsys, 2)


def test_printed_config_gives_the_same_settings(tmp_path, capsys):
    line = [RECIPE, "--run", str(tmp_path / "run"), "--d-model", "16", "--no-shared-vocabulary"]
    line += ["--both-ways=0", "--length-penalty-form", "power", "--max-length-ratio", "inf"]
    assert train.main([*line, "--print-config"]) == 0
    path = tmp_path / "printed.toml"
    path.write_text(capsys.readouterr().out, encoding="utf-8")
    assert not (tmp_path / "run").exists()
    expected = train.read_recipe(train.parser().parse_args(line))
    found = train.read_recipe(train.parser().parse_args([RECIPE, f"--config={path}"]))
    assert isinstance(found, Recipe) and found.settings() == expected.settings()
    # The command accepts it.
    assert train.main([RECIPE, f"--config={path}", "--print-config"]) == 0


def test_print_config_omits_settings_chosen_from_the_corpus(tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("a b\n" * 40)
    line = ["--source", str(text), "--target", str(text), "--print-config"]
    assert train.main([*line, "--warmup-steps", "7"]) == 0
    printed = capsys.readouterr().out
    assert "warmup-steps = 7" in printed and "epochs = 20" in printed
    assert "preset" not in printed and "learning-rate-scale" not in printed


def test_print_config_omits_settings_of_the_init_run(tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("a b\n" * 40)
    line = ["--source", str(text), "--target", str(text), "--init", str(tmp_path)]
    assert train.main([*line, "--print-config", "--epochs", "3"]) == 0
    printed = capsys.readouterr().out
    assert "epochs = 3" in printed and f'init = "{tmp_path}"' in printed
    assert "preset" not in printed and "vocabulary-size" not in printed
    assert "--print-config cannot be given with --resume" in fails(
        [RECIPE, "--run", str(tmp_path), "--resume", "--print-config"], capsys, 2
    )


def test_missing_run_option_is_refused(capsys):
    assert "required: --run" in fails([RECIPE], capsys, 2)


def test_an_options_file_executes_no_recipe(tmp_path, capsys):
    """A file of data cannot name a program: the command line must name it too."""
    recipe, ran = tmp_path / "mine.py", tmp_path / "ran"
    recipe.write_text(
        f"import pathlib\npathlib.Path({str(ran)!r}).touch()\n"
        "from training.recipes.dates import RECIPE\n"
    )
    config = tmp_path / "options.toml"
    config.write_text(f'recipe = "{recipe}"\n')
    words = ["--config", str(config), "--print-config"]
    with pytest.raises(SystemExit) as stop:
        train.main(words)
    assert stop.value.code == 2 and not ran.exists()
    assert "names the recipe" in capsys.readouterr().err
    config.write_text(f'source = ["a.txt", "--split-digits", "{recipe}"]\n')
    with pytest.raises(SystemExit) as stop:
        train.main(words)
    assert stop.value.code == 2 and not ran.exists()
    assert "source must be a list of words without a hyphen at the start" in (
        capsys.readouterr().err
    )
    config.write_text(f'recipe = "{recipe}"\n')
    assert train.main([str(recipe), *words]) == 0
    assert ran.exists()

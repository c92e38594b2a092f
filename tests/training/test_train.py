"""The command training.train: exact resume, signals, divergence, bad input."""

import dataclasses
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from paths import ROOT
from workers import RECIPE, last_state

import tfformer
from tfformer.run import load_model, model_weights, read_config
from training import compare, evaluate, fit, multi30k, train
from training.data.batches import Batches
from training.data.corpus import Corpus
from training.data.reader import Pair
from training.lock import alone
from training.prepare import read_settings
from training.recipe import Recipe, load_recipe
from training.report import machine
from training.state import Keeper
from training.tasks import TASKS


def start(run, *options, die=None, **kwargs):
    """Runs the command in a process of its own, each batch in two parts side by side."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    if die:
        environment["DIE"] = die
    return subprocess.run(
        [sys.executable, "-m", "training.train", RECIPE, "--run", str(run), "--cores=2", *options],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        **kwargs,
    )


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    run = tmp_path_factory.mktemp("uninterrupted") / "run"
    done = start(run)
    assert done.returncode == 0, done.stderr
    return run


@pytest.fixture
def begun(uninterrupted, tmp_path):
    """A copy, to be damaged."""
    return Path(shutil.copytree(uninterrupted, tmp_path / "run"))


def test_resumed_equals_uninterrupted_whatever_killed_it(uninterrupted, tmp_path):
    run = tmp_path / "run"
    for moment in (
        "during a save",
        "during validation",
        "end of an epoch",
        "middle of an epoch",  # the second, with R-Drop
    ):
        killed = start(run, "--resume", die=moment)
        assert killed.returncode == -signal.SIGKILL, f"{moment}: {killed.stderr}"
    done = start(run, "--resume")
    assert done.returncode == 0, done.stderr
    arrays, progress = last_state(run)
    expected_arrays, expected_progress = last_state(uninterrupted)
    assert progress == expected_progress
    assert arrays.keys() == expected_arrays.keys()
    for name, value in arrays.items():
        np.testing.assert_array_equal(value, expected_arrays[name], err_msg=name)
    ours, theirs = model_weights(load_model(run)), model_weights(load_model(uninterrupted))
    for name, value in ours.items():
        np.testing.assert_array_equal(value, theirs[name], err_msg=name)


def test_sigterm_at_the_last_batch_saves_and_resume_goes_on(uninterrupted, tmp_path):
    run = tmp_path / "run"
    stopped = start(run, die="terminated at the last batch")
    assert stopped.returncode == 128 + signal.SIGTERM, stopped.stderr
    assert "--resume" in stopped.stderr and "Traceback" not in stopped.stderr
    assert start(run, "--resume").returncode == 0
    (arrays, progress), (expected, expected_progress) = last_state(run), last_state(uninterrupted)
    assert progress == expected_progress
    for name, value in arrays.items():
        np.testing.assert_array_equal(value, expected[name], err_msg=name)


def test_nan_stops_names_the_step_and_keeps_the_last_good_checkpoint(tmp_path):
    run = tmp_path / "run"
    stopped = start(run, die="nan")
    assert stopped.returncode == 3, stopped.stderr
    assert "diverged" in stopped.stderr and "step 13" in stopped.stderr
    assert "Traceback" not in stopped.stderr
    arrays, progress = last_state(run)
    assert progress["batch"] == 10
    assert all(np.isfinite(value).all() for value in arrays.values())


def test_a_full_disk_is_one_line_and_loses_nothing(uninterrupted, tmp_path):
    run = tmp_path / "run"
    stopped = start(run, die="terminated")
    assert stopped.returncode == 128 + signal.SIGTERM
    before = last_state(run)[0]
    size = (run / "checkpoints" / "last.npz").stat().st_size

    def no_large_files():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, size // 2))

    full = start(run, "--resume", preexec_fn=no_large_files)
    assert full.returncode == 1
    assert full.stderr.strip().splitlines()[-1].startswith("python -m training.train: error: ")
    assert "Traceback" not in full.stderr
    for name, value in last_state(run)[0].items():
        np.testing.assert_array_equal(value, before[name], err_msg=name)
    assert not list(run.rglob("*.partial"))


def test_a_run_holds_what_it_promises(uninterrupted):
    history = (uninterrupted / "log.csv").read_text().splitlines()
    assert len(history) == 1 + 3
    assert (uninterrupted / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert list((uninterrupted / "tensorboard").glob("events*"))
    config = read_config(uninterrupted)
    assert config["search"]["max_source_length"] == 16
    model, tokenizer = tfformer.load(uninterrupted)
    assert tfformer.Translator(model, tokenizer, max_target_length=16).translate(["abc"])


def test_r_drop_and_sampling_begin_behind_their_epochs(uninterrupted, tmp_path):
    """The recipe's three epochs: the first without R-Drop, and only that one."""
    never = ("--r-drop-from=2", "--subword-sampling=0.5", "--subword-sampling-from=2")
    for name, options in (("never", never), ("none", ("--r-drop=0",))):
        done = start(tmp_path / name, "--epochs", "2", *options)
        assert done.returncode == 0, done.stderr
    (never, progress), (none, _) = (last_state(tmp_path / name) for name in ("never", "none"))
    for name, value in none.items():
        np.testing.assert_array_equal(never[name], value, err_msg=name)
    first, second, _ = last_state(uninterrupted)[1]["history"]
    assert progress["history"][0] == first
    assert progress["history"][1]["loss"] != second["loss"]


def test_iterations_are_the_batches(uninterrupted):
    prepared = uninterrupted / "prepared"
    batches = Batches(TASKS["translation"], Corpus(prepared / "train"), None, batch_tokens=128)
    _, progress = last_state(uninterrupted)
    assert [row["step"] for row in progress["history"]] == [n * len(batches) for n in (1, 2, 3)]


@pytest.fixture
def files(tmp_path):
    """Writes text files and gives the arguments that name them."""

    def write(source=b"a b c\n" * 7, target=b"c b a\n" * 7):
        paths = []
        for name, content in (("source", source), ("target", target)):
            path = tmp_path / f"{name}.txt"
            if content is not None:
                path.write_bytes(content)
            paths += [f"--{name}", str(path)]
        return [*paths, "--run", str(tmp_path / "run"), "--preset", "test", "--epochs", "1"]

    return write


def fails(arguments, capsys, code):
    """The one line that the command fails with."""
    try:
        assert train.main(arguments) == code
    except SystemExit as stop:
        assert stop.code == code
    lines = [line for line in capsys.readouterr().err.splitlines() if "error:" in line]
    assert len(lines) == 1, lines
    return lines[0]


def test_missing_file(files, capsys):
    arguments = files(source=None)
    assert "source.txt" in fails(arguments, capsys, 1)


def test_directory_instead_of_a_file(files, capsys, tmp_path):
    arguments = files()
    arguments[1] = str(tmp_path)
    assert str(tmp_path) in fails(arguments, capsys, 1)


def test_files_of_different_lengths_name_both_counts(files, capsys):
    line = fails(files(source=b"a\n" * 11, target=b"a\n" * 13), capsys, 1)
    assert "11" in line and "13" in line


def test_several_files_are_one_after_the_other(tmp_path, capsys):
    lines = [f"{word} {n}\n" for n in range(7) for word in ("ab", "cd", "ef")]
    text = {"a": lines[:8], "b": lines[8:], "whole": lines, "val": lines[:5]}
    for name, content in text.items():
        (tmp_path / name).write_text("".join(content))

    def corpus(run, *names):
        files = [str(tmp_path / name) for name in names]
        command = ["--source", *files, "--target", *files, "--run", str(tmp_path / run)]
        val = ["--val-source", str(tmp_path / "val"), "--val-target", str(tmp_path / "val")]
        assert train.main([*command, *val, "--preset", "test", "--epochs", "1"]) == 0
        prepared = tmp_path / run / "prepared"
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
def test_nothing_to_learn_from(files, capsys, content, tmp_path):
    fails(files(source=content, target=content), capsys, 1)
    assert not (tmp_path / "run" / "prepared").exists()


def test_what_a_run_was_prepared_with_cannot_change(uninterrupted, capsys):
    resume = [RECIPE, "--run", str(uninterrupted), "--resume"]
    assert "--seed was 0" in fails([*resume, "--seed", "1"], capsys, 2)

    assert "--optimizer was 'adam'" in fails([*resume, "--optimizer", "muon"], capsys, 2)


@pytest.mark.parametrize(("fast", "policy"), [(True, "mixed_bfloat16"), (False, "float32")])
def test_dtype_auto_is_what_the_machine_is_fast_with(tmp_path, capsys, monkeypatch, fast, policy):
    monkeypatch.setattr(machine, "has_bfloat16", lambda: fast)
    run = tmp_path / "run"
    assert train.main([RECIPE, "--run", str(run), "--epochs", "1", "--dtype", "auto"]) == 0
    assert f"dtype: {policy}\n" in capsys.readouterr().err
    recipe = dataclasses.replace(load_recipe(RECIPE), dtype="auto", optimizer="muon")
    trained = fit.Training(run, recipe).model
    assert trained.dtype_policy.name == policy
    assert trained.optimizer.compute_dtype == trained.compute_dtype


def test_a_run_from_before_there_was_a_setting_goes_on_without_it(begun):
    path = begun / "prepared" / "recipe.json"
    settings = json.loads(path.read_bytes())
    assert settings.pop("cores") == 2 and settings.pop("weight_decay") == 0
    path.write_text(json.dumps(settings))
    now = dataclasses.replace(load_recipe(RECIPE), weight_decay=0.3, cores=7, epochs=9)
    then = read_settings(begun, now)
    assert (then.weight_decay, then.cores, then.epochs) == (0, 1, settings["epochs"])


def test_both_ways_needs_one_vocabulary(tmp_path, capsys):
    command = [RECIPE, "--run", str(tmp_path / "run"), "--both-ways", "2"]
    error = fails([*command, "--no-shared-vocabulary"], capsys, 2)
    assert "both_ways must be 0 without a shared vocabulary" in error
    assert not (tmp_path / "run").exists()


def test_a_resume_that_is_refused_changes_no_setting(begun, capsys):
    settings = (begun / "prepared" / "recipe.json").read_bytes()
    resume = [RECIPE, "--run", str(begun), "--resume", "--epochs", "4"]
    assert "--dtype" in fails([*resume, "--dtype", "mixed_float16"], capsys, 1)
    with alone(begun):
        assert "in training already" in fails(resume, capsys, 1)
    assert (begun / "prepared" / "recipe.json").read_bytes() == settings


def test_a_run_that_is_cut_short_is_validated_and_one_that_is_made_longer_goes_on(
    tmp_path, capsys, monkeypatch
):
    run = [RECIPE, "--run", str(tmp_path / "run"), "--validate-every", "3"]

    def finish_and_stop(training, row, original=fit.Training._finish_epoch):
        original(training, row)
        training.signals.number = signal.SIGTERM

    with monkeypatch.context() as patch:
        patch.setattr(fit.Training, "_finish_epoch", finish_and_stop)
        assert train.main(run) == 128 + signal.SIGTERM
    assert not (tmp_path / "run" / "config.json").exists()
    for epochs in (1, 2):
        assert train.main([*run, "--resume", "--epochs", str(epochs)]) == 0
        assert "best model" in capsys.readouterr().err
        assert (tmp_path / "run" / "config.json").exists()
        _, progress = last_state(tmp_path / "run")
        assert progress["epoch"] == len(progress["history"]) == epochs
        assert "val_bleu" in progress["history"][-1]
        settings = json.loads((tmp_path / "run" / "prepared" / "recipe.json").read_bytes())
        assert (settings["epochs"], settings["validate_every"]) == (epochs, 3)


def test_a_run_in_the_middle_of_an_epoch_cannot_end_before_it(tmp_path, capsys, monkeypatch):
    run = [RECIPE, "--run", str(tmp_path / "run")]

    def stop(keeper, batch, logs=None, original=Keeper.on_train_batch_end):
        if keeper.state.progress["epoch"] == 1:
            keeper.signals.number = signal.SIGTERM
        original(keeper, batch, logs)

    with monkeypatch.context() as patch:
        patch.setattr(Keeper, "on_train_batch_end", stop)
        assert train.main(run) == 128 + signal.SIGTERM
    settings = (tmp_path / "run" / "prepared" / "recipe.json").read_bytes()
    capsys.readouterr()
    assert "at least 2, in whose middle" in fails([*run, "--resume", "--epochs", "1"], capsys, 1)
    assert (tmp_path / "run" / "prepared" / "recipe.json").read_bytes() == settings


def test_a_model_without_its_training_is_not_overwritten(begun, capsys):
    shutil.rmtree(begun / "prepared")
    before = (begun / "config.json").read_bytes()
    for options in ([], ["--resume"], ["--init", str(begun)]):
        said = fails([RECIPE, "--run", str(begun), *options], capsys, 1)
        assert "holds a model, and not what it was trained with" in said
    assert (begun / "config.json").read_bytes() == before
    (begun / "config.json").unlink()
    assert "not what it was trained with" in fails([RECIPE, "--run", str(begun)], capsys, 1)


def test_a_run_goes_on_with_its_own_corpus(begun, files, capsys):
    resume = ["--run", str(begun), "--resume"]
    assert "begun with the recipe `killing_recipe.py`" in fails(["dates", *resume], capsys, 2)
    assert "not with `source.txt`" in fails([*files()[:4], *resume], capsys, 2)
    assert train.main(resume) == 0


def test_a_finished_run_serves_another_search_if_it_is_asked(begun):
    before = read_config(begun)
    assert train.main(["--run", str(begun), "--resume", "--beam-width", "7"]) == 0
    assert read_config(begun) == before | {"search": before["search"] | {"beam_width": 7}}


def test_validation_takes_batches_no_larger_than_a_part(tmp_path):
    perplexities = []
    for parts in (1, 4):
        recipe = dataclasses.replace(load_recipe(RECIPE), accumulate=parts)
        training = fit.Training(tmp_path / "run", recipe)
        batches = training.setup.validation.batches
        shapes = [batches.shape(bucket) for bucket in batches.buckets]
        assert all(rows * edge <= 128 // parts for rows, edge in shapes)
        data = batches.dataset()
        scores = training.model.evaluate(data, verbose=0, return_dict=True)
        perplexities.append(scores["perplexity"])
    assert perplexities[0] == pytest.approx(perplexities[1], rel=1e-5)


def test_what_is_no_utf8_is_counted(files, tmp_path):
    bad = "für \n".encode("latin-1") * 3
    arguments = files(source=b"a b c\n" * 7 + bad, target=b"c b a\n" * 10)
    for side in ("source", "target"):
        path = tmp_path / f"val.{side}"
        path.write_bytes(b"x y\n" * 5 + (bad if side == "target" else b"z\n" * 3))
        arguments += [f"--val-{side}", str(path)]
    assert train.main([*arguments, "--vocabulary-size", "300"]) == 0
    facts = json.loads((tmp_path / "run" / "prepared" / "corpus.json").read_text())
    assert facts["train"]["invalid_utf8"] == facts["val"]["invalid_utf8"] == 3


def test_a_pipe_cannot_be_read_again(files, tmp_path, capsys):
    arguments = files()
    os.mkfifo(tmp_path / "pipe")
    arguments[3] = str(tmp_path / "pipe")
    assert "pipe is no file" in fails(arguments, capsys, 2)
    assert not (tmp_path / "run").exists()


def test_a_corpus_of_which_nothing_is_held_out(files, capsys, tmp_path):
    text = next(f"text {n}\n" for n in range(99) if not train.held_out(Pair(f"text {n}", "")))
    assert "could be held out" in fails(files(text.encode(), text.encode()), capsys, 1)
    assert not (tmp_path / "run").exists()


def test_files_that_are_not_the_training_s_own_are_let_be(begun):
    kept = shutil.copy(begun / "checkpoints" / "epoch-3.npz", begun / "checkpoints/epoch-best.npz")
    assert train.main(["--run", str(begun), "--resume", "--epochs", "4"]) == 0
    assert Path(kept).exists()


def test_a_damaged_file_of_an_epoch_is_named(begun, capsys):
    path = begun / "checkpoints" / "epoch-3.npz"
    path.write_bytes(path.read_bytes()[:-100])
    longer = ["--run", str(begun), "--resume", "--epochs", "4"]
    assert "epoch-3.npz is damaged" in fails(longer, capsys, 1)


def test_a_recipe_file_with_a_mistake_is_one_line(tmp_path, capsys):
    path = tmp_path / "mine.py"
    path.write_text("from training.recipe import Recipe\nRECIPE = Recipe(pairs=None, epoch=3)\n")
    said = fails([str(path), "--run", str(tmp_path / "run")], capsys, 2)
    assert "mine.py: TypeError" in said and "epoch" in said
    assert not (tmp_path / "run").exists()


def test_blank_and_repeated_sources_take_no_place_in_validation(tmp_path):
    path = tmp_path / "pairs.tsv"
    chosen = next(s for n in range(99) if train.held_out(Pair(s := f"often {n}", "")))
    lines = ["\tno source\n"] * 1500 + [f"{chosen}\ttarget {n}\n" for n in range(1500)]
    lines += [f"source {n}\ttarget {n}\n" for n in range(30_000)]
    path.write_text("".join(lines))
    pairs = list(train.file_pairs([(path, None)], None, "val", None))
    assert len(pairs) == len({pair.source for pair in pairs}) == train.HELD_OUT
    assert pairs[0] == Pair(chosen, "target 0")


def test_resume_without_a_training(capsys, tmp_path):
    assert "--source" in fails(["--run", str(tmp_path), "--resume"], capsys, 2)


def test_held_out_sources_are_on_one_side_alone(tmp_path):
    path = tmp_path / "pairs.tsv"
    lines = [f"source {n % 23_003}\ttarget {n}\n" for n in range(40_000)]
    path.write_text("".join(lines))
    sides = {
        split: list(train.file_pairs([(path, None)], None, split, None))
        for split in ("train", "val")
    }
    assert len(sides["val"]) == train.HELD_OUT
    assert not {p.source for p in sides["train"]} & {p.source for p in sides["val"]}
    assert Pair("source 0", "target 0") in sides["train"] + sides["val"]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--preset", "tinny"),
        ("--max-tokens", "2048"),
        ("--vocabulary-kind", "words"),
        ("--r-drop", "nan"),
        ("--weight-decay", "nan"),
        ("--cores", "-1"),
        ("--learning-rate-scale", "nan"),
        ("--learning-rate-scale", "inf"),
        ("--max-length-ratio", "0.5"),
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
        ({"model_changes": {"d_model": 30, "num_heads": 7}}, "num_heads"),
        ({"model_changes": {"positions": "learned"}, "max_tokens": 1024}, "max_positions=512"),
    ],
)
def test_a_recipe_that_cannot_be_trained_is_refused_before_anything_is_made(settings, named):
    with pytest.raises(ValueError, match=named):
        Recipe(pairs=lambda split, data: (), **settings)


def test_unknown_recipe_and_option(capsys, tmp_path):
    run = ["--run", str(tmp_path / "run")]
    assert "dates" in fails(["no-such-recipe", *run], capsys, 2)
    assert "--epoch-count" in fails(["dates", *run, "--epoch-count", "3"], capsys, 2)
    assert "epochs" in fails(["dates", *run, "--epochs", "0"], capsys, 2)
    assert "--source" in fails(run, capsys, 2)
    assert not (tmp_path / "run").exists()


def test_a_recipe_s_settings_for_other_files(tmp_path):
    """The numbers are the recipe's, the pairs and the language are not."""
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


def test_a_recipe_in_other_languages(tmp_path, monkeypatch):
    """The recipe's own corpus, with no change but the names of the languages."""
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


def test_a_run_keeps_its_language(begun, capsys):
    changed = [RECIPE, "--run", str(begun), "--resume", "--language", "fr"]
    assert "--language was" in fails(changed, capsys, 2)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["multi30k", "--target", "a.fr"], "--source"),
        (["multi30k", "--val-source", "a.en"], "--source"),
        (["multi30k", "--source", "a.en", "--data", "folder"], "--data"),
        (["multi30k"], "needs --data"),
        (["multi30k", "--data", "folder", "--language", "xx"], "language must be one of"),
    ],
)
def test_files_that_do_not_go_together(options, named, tmp_path, capsys):
    assert named in fails([*options, "--run", str(tmp_path / "run")], capsys, 2)
    assert not (tmp_path / "run").exists()


def test_damaged_settings_are_no_wrong_usage(begun, capsys):
    (begun / "prepared" / "recipe.json").write_bytes(b"{")
    assert "recipe.json" in fails([RECIPE, "--run", str(begun), "--resume"], capsys, 1)


def test_a_begun_run_is_not_overwritten(uninterrupted, capsys):
    before = (uninterrupted / "config.json").read_bytes()
    assert "--resume" in fails([RECIPE, "--run", str(uninterrupted)], capsys, 2)
    assert (uninterrupted / "config.json").read_bytes() == before


def test_a_damaged_checkpoint_is_named(begun, capsys):
    last = begun / "checkpoints" / "last.npz"
    last.write_bytes(last.read_bytes()[:-100])
    assert "last.npz is damaged" in fails([RECIPE, "--run", str(begun), "--resume"], capsys, 1)


def test_awkward_text_trains(files, tmp_path):
    """CRLF, BOM, invalid UTF-8, NUL, blank lines and a line of 1 MB among good ones."""
    awkward = b"\xef\xbb\xbfone two\r\n\xff\xfe bad\na\x00b\n\n" + b"x" * 1_000_000 + b"\n"
    good = b"".join(b"word %d and more\n" % n for n in range(80))
    arguments = files(source=awkward + good, target=awkward + good)
    arguments += ["--batch-tokens", "256", "--vocabulary-size", "300", "--max-tokens", "48"]
    assert train.main(arguments) == 0
    assert (tmp_path / "run" / "config.json").exists()

"""A run directory is written completely or not at all, and its files are checked when they are
read."""

import errno
import json
import os
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfformer
from export import ctranslate2
from tfformer import RunError, Tokenizer, Transformer, TransformerConfig, Translator, run
from tfformer.files import sweep, unpack
from tfformer.models import FAMILIES, Family
from tfformer.service.families import SERVICES


@pytest.fixture(scope="module")
def tokenizer():
    source, target = (
        Tokenizer.train([text] * 20, vocabulary_size=300).source_model
        for text in ("ein Haus am See", "a house by the lake")
    )
    return Tokenizer(source, target)


def make_model(tokenizer, seed=0, dtype=None, **changes):
    changes = {"num_encoder_layers": 1, "num_decoder_layers": 2} | changes
    config = TransformerConfig.preset(
        "test",
        tokenizer.source_vocabulary_size,
        target_vocabulary_size=tokenizer.target_vocabulary_size,
        **changes,
    )
    model, rng = Transformer(config, dtype=dtype), np.random.default_rng(seed)
    for variable in model.trainable_variables:
        variable.assign(rng.normal(scale=0.3, size=variable.shape))
    return model


@pytest.fixture(scope="module")
def model(tokenizer):
    return make_model(tokenizer)


@pytest.fixture(scope="module")
def other(tokenizer):
    """A model of the same sizes with other weights."""
    return make_model(tokenizer, seed=1)


@pytest.fixture(scope="module")
def original(model, tokenizer, tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs") / "original"
    search = {"beam_width": 2, "max_source_length": 11, "max_target_length": 5}
    run.save(directory, model, tokenizer, search, {"note": "größer"})
    return directory


@pytest.fixture
def directory(original, tmp_path):
    """A copy for the test to damage."""
    return shutil.copytree(original, tmp_path / "run")


def logits(model):
    ids = np.array([[5, 7, 11, 3], [13, 3, 0, 0]])
    return model({"source_ids": ids, "target_ids": ids[:, ::-1]}).numpy()


def weights_file(directory):
    (path,) = directory.glob("weights-*.npz")
    return path


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def assert_refused(directory, *words):
    """Checks that loading raises a `RunError` with one line that contains these words."""
    with pytest.raises(RunError) as error:
        tfformer.load(directory)
    message = str(error.value)
    assert "\n" not in message
    for word in words:
        assert word in message


# ---------------------------------------------------------------- round trips


def test_load_returns_the_saved_model_and_tokenizer(original, model, tokenizer):
    loaded, its_tokenizer = tfformer.load(original)
    assert loaded.config == model.config
    np.testing.assert_array_equal(logits(loaded), logits(model))
    for one, other in zip(loaded.weights, model.weights, strict=True):
        np.testing.assert_array_equal(one, other)
    assert its_tokenizer.sha256 == tokenizer.sha256
    text = tf.constant(["ein Haus"])
    np.testing.assert_array_equal(
        its_tokenizer.encode_source(text).to_tensor(), tokenizer.encode_source(text).to_tensor()
    )


def test_config_describes_the_run(original, model):
    config = run.read_config(original)
    assert config["format"] == run.FORMAT
    assert TransformerConfig.from_dict(config["model"]) == model.config
    assert config["training"] == {"note": "größer"}
    assert set(config["sha256"]) == set(names(original)) - {"config.json"}


def test_a_shared_vocabulary_is_stored_once(tmp_path, tokenizer):
    shared = Tokenizer(tokenizer.source_model)
    run.save(tmp_path / "new", make_model(shared), shared)
    assert not (tmp_path / "new" / "target.model").exists()
    assert tfformer.load(tmp_path / "new")[1].is_shared


@pytest.mark.parametrize("tie", ["target", "all"])
def test_tied_weights_are_stored_once(tmp_path, tokenizer, tie):
    shared = Tokenizer(tokenizer.source_model)
    tied = make_model(shared, tie_embeddings=tie)
    run.save(tmp_path / "new", tied, shared)
    stored = unpack(weights_file(tmp_path / "new").read_bytes())
    assert len(stored) == len(tied.weights)
    np.testing.assert_array_equal(logits(tfformer.load(tmp_path / "new")[0]), logits(tied))


def test_a_model_of_mixed_precision_loads_in_float32(tmp_path, tokenizer):
    mixed = make_model(tokenizer, dtype="mixed_bfloat16")
    run.save(tmp_path / "new", mixed, tokenizer)
    loaded, _ = tfformer.load(tmp_path / "new")
    assert loaded.compute_dtype == "float32"
    for one, other in zip(loaded.weights, mixed.weights, strict=True):
        assert one.dtype == other.dtype == "float32"
        np.testing.assert_array_equal(one, other)
    again, _ = tfformer.load(tmp_path / "new", dtype="mixed_bfloat16")
    assert again.compute_dtype == "bfloat16"


def test_given_weights_are_saved_instead_of_the_model_weights(tmp_path, model, other, tokenizer):
    run.save(tmp_path / "new", model, tokenizer, weights=run.model_weights(other))
    np.testing.assert_array_equal(logits(tfformer.load(tmp_path / "new")[0]), logits(other))


def test_translator_uses_the_limits_of_the_run_unless_overridden(original):
    translator = run.load_translator(original)
    assert (translator.beam_width, translator.max_source_length) == (2, 11)
    wider = run.load_translator(original, beam_width=3)
    assert (wider.beam_width, wider.max_target_length) == (3, 5)


# ---------------------------------------------------------------- replacing


def test_the_weights_of_a_replaced_model_are_removed(directory, other, tokenizer):
    before = weights_file(directory)
    run.save(directory, other, tokenizer)
    assert weights_file(directory) != before
    np.testing.assert_array_equal(logits(tfformer.load(directory)[0]), logits(other))


def test_saving_the_same_again_changes_no_file(directory, model, tokenizer):
    search = {"beam_width": 2, "max_source_length": 11, "max_target_length": 5}
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    run.save(directory, model, tokenizer, search, {"note": "größer"})
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before


def test_other_files_of_the_directory_stay(directory, other, tokenizer):
    (directory / "notes.txt").write_text("mine")
    run.save(directory, other, tokenizer)
    assert (directory / "notes.txt").read_text() == "mine"


# ---------------------------------------------------------------- a disk that is full


def assert_untouched(directory, original, model):
    assert names(directory) == names(original)
    np.testing.assert_array_equal(logits(tfformer.load(directory)[0]), logits(model))


@pytest.mark.parametrize("function", ["replace", "fsync"])
def test_a_failing_write_leaves_the_old_run(
    directory, original, model, other, tokenizer, monkeypatch, function
):
    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, function, full)
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            run.save(directory, other, tokenizer)
    assert_untouched(directory, original, model)


def test_a_config_that_cannot_be_written_leaves_the_old_run_loadable(
    directory, model, other, tokenizer, monkeypatch
):
    replace = os.replace

    def full_at_the_config(source, target):
        if target.name == "config.json":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full_at_the_config)
        with pytest.raises(OSError):
            run.save(directory, other, tokenizer)
    assert not [name for name in names(directory) if "partial" in name]
    np.testing.assert_array_equal(logits(tfformer.load(directory)[0]), logits(model))


# ---------------------------------------------------------------- damage


@pytest.mark.parametrize("kind", ["empty", "half", "no_end", "flipped", "longer"])
@pytest.mark.parametrize("which", ["weights", "source.model", "target.model"])
def test_error_names_a_damaged_file(directory, which, kind):
    path = weights_file(directory) if which == "weights" else directory / which
    content = bytearray(path.read_bytes())
    if kind == "flipped":
        content[len(content) // 2] ^= 1
    elif kind == "longer":
        content += b"\0"
    else:
        content = content[: {"empty": 0, "half": len(content) // 2, "no_end": -1}[kind]]
    path.write_bytes(content)
    assert_refused(directory, str(path), "sha256", f"{len(content)} bytes")


@pytest.mark.parametrize("which", ["weights", "source.model", "target.model"])
def test_error_names_a_missing_file(directory, which):
    path = weights_file(directory) if which == "weights" else directory / which
    path.unlink()
    assert_refused(directory, str(path), "cannot be read")


def test_a_tokenizer_of_another_run_is_refused_even_if_it_has_the_same_size(directory, tokenizer):
    for text in ("ein Maus am Fee", "ein Baum am Zaun", "ein Haus im Tal"):
        stranger = Tokenizer.train([text] * 20, vocabulary_size=300)
        if stranger.source_vocabulary_size == tokenizer.source_vocabulary_size:
            break
    assert stranger.source_vocabulary_size == tokenizer.source_vocabulary_size
    (directory / "source.model").write_bytes(stranger.source_model)
    assert_refused(directory, "source.model", "another run")


def test_a_directory_without_a_config_is_no_run(directory):
    (directory / "config.json").unlink()
    assert_refused(directory, str(directory), "config.json")


def test_a_missing_directory_and_a_file_are_no_run(tmp_path):
    assert_refused(tmp_path / "none", "none is no directory")
    (tmp_path / "file").write_bytes(b"")
    assert_refused(tmp_path / "file", "file is no directory")


@pytest.mark.parametrize(
    "content", ["", "{", "no json", "[]", "1", "null", "[" * 99_999, "{}", '{"format": 2}']
)
def test_malformed_config_is_refused(directory, content):
    (directory / "config.json").write_text(content)
    words = f"format {run.FORMAT}" if content in ("{}", '{"format": 2}') else "is damaged"
    assert_refused(directory, "config.json", words)


@pytest.mark.parametrize("name", ["../weights.npz", "/etc/passwd", "a/b", "..", ""])
@pytest.mark.parametrize("key", ["weights", "sha256"])
def test_config_must_name_files_in_its_own_directory(directory, key, name):
    config = json.loads((directory / "config.json").read_text())
    config[key] = name if key == "weights" else {**config[key], name: "0"}
    (directory / "config.json").write_text(json.dumps(config))
    assert_refused(directory, f"{name!r} must be the name of a file in the run directory")


@pytest.mark.parametrize("key", ["model", "search", "weights", "sha256"])
def test_a_config_that_lacks_something_is_refused(directory, key):
    path = directory / "config.json"
    config = json.loads(path.read_text())
    del config[key]
    path.write_text(json.dumps(config))
    assert_refused(directory, "config.json", key)


@pytest.mark.parametrize(
    "fields", [{"d_model": 15}, {"d_model": "large"}, {"colour": "red"}, {"norm": "none"}]
)
def test_config_with_invalid_model_settings_is_refused(directory, fields):
    path = directory / "config.json"
    config = json.loads(path.read_text())
    config["model"].update(fields)
    path.write_text(json.dumps(config))
    assert_refused(directory, "config.json", next(iter(fields)))


def test_weights_of_other_sizes_are_refused(directory):
    path = directory / "config.json"
    config = json.loads(path.read_text())
    config["model"]["d_ff"] += 2
    path.write_text(json.dumps(config))
    assert_refused(directory, "weights-", "shape")


# ---------------------------------------------------------------- other families


def test_family_is_optional_for_an_encoder_decoder(directory, model, tmp_path):
    assert "family" not in run.read_config(directory)
    path = directory / "config.json"
    named = run.read_config(directory) | {"family": "encoder-decoder"}
    path.write_text(json.dumps(named))
    np.testing.assert_array_equal(logits(tfformer.load(directory)[0]), logits(model))


@pytest.mark.parametrize("family", ["decoder-encoder", None, 3, ["encoder-decoder"]])
def test_an_unknown_family_is_refused_with_its_name(directory, family):
    path = directory / "config.json"
    path.write_text(json.dumps(run.read_config(directory) | {"family": family}))
    rule = f"family must be one of {list(FAMILIES)}"
    assert_refused(directory, "config.json", rule, f"got {family!r}")


class TwoSided(Transformer):
    """A model of another family."""


def test_run_of_another_family_loads_its_own_classes(
    directory, model, tokenizer, tmp_path, monkeypatch
):
    monkeypatch.setitem(FAMILIES, "two-sided", Family(TransformerConfig, TwoSided))
    run.save(tmp_path / "new", TwoSided(model.config), tokenizer)
    assert run.read_config(tmp_path / "new")["family"] == "two-sided"
    assert type(run.load_model(tmp_path / "new")) is TwoSided
    assert type(run.load_model(directory)) is Transformer
    rule = "must be a run of the family 'encoder-decoder', got 'two-sided'"
    with pytest.raises(RunError, match=rule):
        run.load_translator(tmp_path / "new")
    with pytest.raises(RunError, match=rule):
        ctranslate2.export(tmp_path / "new", tmp_path / "out", lambda line: None)
    monkeypatch.setitem(SERVICES, "two-sided", Translator)
    assert type(run.load_service(tmp_path / "new", beam_width=2)) is Translator


def test_an_option_that_the_family_lacks_is_refused_by_name(directory):
    rule = "width is no option of the family 'encoder-decoder', of which .* is a run"
    with pytest.raises(ValueError, match=rule):
        run.load_service(directory, width=3)
    assert run.load_translator(directory, min_target_length=2).options["min_length"] == 2


def test_given_option_replaces_that_of_the_run_under_either_name(model, tokenizer, tmp_path):
    run.save(tmp_path / "old", model, tokenizer, {"min_target_length": 3})
    for given, expected in (({}, 3), ({"min_length": 5}, 5), ({"min_target_length": 4}, 4)):
        assert run.load_translator(tmp_path / "old", **given).options["min_length"] == expected


def test_a_model_of_no_family_is_not_saved(tokenizer, tmp_path):
    with pytest.raises(ValueError, match="family of .*, got Sequential"):
        run.save(tmp_path / "new", keras.Sequential(), tokenizer)
    assert not (tmp_path / "new").exists()


def test_unloadable_model_is_refused_and_the_old_run_stays(tokenizer, directory):
    model = make_model(tokenizer, seed=1)
    model._tracker.unlock()
    model.adapter = keras.layers.Dense(3, name="adapter")
    with keras.name_scope(model.name):
        model.adapter.build((None, 5))
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    with pytest.raises(RunError, match="weights must be the model's own, .* adapter/bias"):
        run.save(directory, model, tokenizer)
    weights = run.model_weights(make_model(tokenizer))
    name = sorted(weights)[0]
    with pytest.raises(RunError, match=f"{name} must be of shape"):
        run.save(directory, make_model(tokenizer), tokenizer, weights=weights | {name: [1.0]})
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before


def test_leftover_of_a_killed_save_is_swept(directory, monkeypatch):
    """A training deletes the leftovers by this pattern."""

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", killed)
    monkeypatch.setattr("pathlib.Path.unlink", lambda *_, **__: None)
    with pytest.raises(KeyboardInterrupt):
        run.save(directory, *run.load(directory))
    monkeypatch.undo()
    [left] = [path for path in directory.iterdir() if path.suffix == ".partial"]
    sweep(directory / "weights-*")
    assert not left.exists()

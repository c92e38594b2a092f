"""A run directory of format 1, written once, must load and translate the same in all later
versions.

`tests/data/README.md` says how it was made. If this test fails, repair the reader and not the
stored run, because other runs have its format.
"""

import json
import shutil

import pytest
import tensorflow as tf
from paths import DATA

import tfformer
from export import saved_model
from tfformer import RunError, run

STORED = DATA / "run-format-1"
TRANSLATIONS = json.loads(STORED.with_suffix(".json").read_text(encoding="utf-8"))
TOLERANCE = 1e-4  # of a score


def as_bytes(row):
    return bytes.fromhex(row["hex"]) if "hex" in row else row["text"].encode()


@pytest.fixture(scope="module")
def translator():
    return run.load_translator(STORED)


@pytest.fixture(scope="module")
def texts():
    return [as_bytes(row) for row in TRANSLATIONS]


def assert_answers(found, which):
    """Checks pairs of (bytes, score) against the stored ones."""
    for (translation, score), row in zip(found, TRANSLATIONS, strict=True):
        assert translation.decode() == row[which][0], row
        assert score == pytest.approx(row[which][1], abs=TOLERANCE, rel=0), row


def test_stored_texts_include_empty_invalid_and_truncated_ones(texts):
    assert len(texts) >= 12 and b"" in texts
    assert any("🎉".encode() in text for text in texts)
    with pytest.raises(UnicodeDecodeError):
        [text.decode() for text in texts]
    assert any(row["truncated"] for row in TRANSLATIONS)
    assert len({row["beam"][0] for row in TRANSLATIONS}) >= 8
    assert any(row["beam"][0] != row["greedy"][0] for row in TRANSLATIONS)


def test_stored_run_loads(translator):
    assert run.read_config(STORED)["format"] == 1
    assert run.read_config(STORED)["training"]["note"].startswith("größer")
    model, tokenizer = tfformer.load(STORED)
    assert (model.config.d_model, model.config.num_heads, model.config.d_ff) == (16, 2, 32)
    assert not tokenizer.is_shared
    assert (translator.beam_width, translator.length_penalty) == (3, 0.7)
    assert (translator.max_source_length, translator.max_target_length) == (17, 13)


def test_beam_search_translations_equal_the_stored_ones(translator, texts):
    found = translator.functions["serving_default"](tf.constant(texts))
    assert_answers(zip(found["translation"].numpy(), found["score"].numpy(), strict=True), "beam")
    assert found["truncated"].numpy().tolist() == [row["truncated"] for row in TRANSLATIONS]
    assert translator.translate(texts) == [row["beam"][0] for row in TRANSLATIONS]


def test_greedy_translations_equal_the_stored_ones(translator, texts):
    assert translator.translate(texts, greedy=True) == [row["greedy"][0] for row in TRANSLATIONS]
    found = translator.functions["beam_search"](
        tf.constant(texts), beam_width=tf.constant(1), length_penalty=tf.constant(0.0)
    )
    best = found["translations"][:, 0].numpy(), found["scores"][:, 0].numpy()
    assert_answers(zip(*best, strict=True), "greedy")


def test_later_format_is_refused_with_one_line_error(tmp_path, capsys):
    later = shutil.copytree(STORED, tmp_path / "run")
    config = json.loads((later / "config.json").read_text(encoding="utf-8"))
    config["format"] = run.FORMAT + 1
    (later / "config.json").write_text(json.dumps(config), encoding="utf-8")
    message = f"{later / 'config.json'} must be of format {run.FORMAT}, got {run.FORMAT + 1}"
    for load in (tfformer.load, run.load_translator):
        with pytest.raises(RunError) as error:
            load(later)
        assert str(error.value) == message
    assert saved_model.main([str(later), str(tmp_path / "exported")]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line == f"python -m export.saved_model: error: {message}"

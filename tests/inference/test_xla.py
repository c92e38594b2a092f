"""The XLA form gives the results of the stock form, in process and served; its report names it."""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf
import tiny

import tfformer
from export import saved_model, verify
from export.capi import library
from export.capi.job import serve_calls
from export.capi.library import ServingError
from export.capi.session import ServingSession
from export.verification.graph import read_graph
from tfformer import Tokenizer
from tfformer.files import read_json, write_json
from tfformer.inference.xla import in_bucket
from tfformer.service.n_best import beam_search, beam_search_ids
from tfformer.service.translation import serving_default

# Together they take minutes.
pytestmark = pytest.mark.slow

WORDS = [f"word {n} and {n * 7} more" for n in range(97)]
LONGEST = 40  # tokens of a target: more than the first stage has
SEARCH = {"max_source_length": 20, "max_target_length": LONGEST}
TEXTS = {
    1: [b"word 3"],
    3: [b"", b"word 3", b" \t "],
    5: [b"\xff\xfe 12", "Grüße".encode(), b"more", b"word 9 and 63 more " * 9, b"a\0b"],
    7: [text.encode() for text in WORDS[:7]],
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of a tiny model whose distributions are not flat and whose answers are not all
    short."""
    directory = tmp_path_factory.mktemp("run") / "run"
    return tiny.save_run(directory, lambda: Tokenizer.train(WORDS, vocabulary_size=290), SEARCH)


@pytest.fixture(scope="module")
def stock(run):
    return tfformer.load_translator(run)


@pytest.fixture(scope="module")
def compiled(run):
    return tfformer.load_translator(run, xla=True)


@pytest.fixture(scope="module")
def saved(compiled, tmp_path_factory):
    """A SavedModel with one signature that is compiled and one that needs no XLA."""
    directory = tmp_path_factory.mktemp("saved") / "model"
    compiled.save(str(directory), ["serving_default", "beam_search"])
    return directory


def answers(translator, texts, name="serving_default"):
    found = translator.functions[name](tf.constant(texts, tf.string))
    return {key: value.numpy() for key, value in found.items()}


def assert_same(found, expected):
    assert set(found) == set(expected)
    for key in ("translation", "truncated"):
        np.testing.assert_array_equal(found[key], expected[key])
    np.testing.assert_allclose(found["score"], expected["score"], atol=1e-4)


# In-process.


@pytest.mark.parametrize("batch", TEXTS)
def test_xla_answers_equal_the_stock_form(stock, compiled, batch):
    assert len(TEXTS[batch]) == batch
    expected = answers(stock, TEXTS[batch])
    assert any(expected["translation"])
    assert_same(answers(compiled, TEXTS[batch]), expected)


def test_empty_batch_gives_empty_outputs(stock, compiled):
    found, expected = answers(compiled, []), answers(stock, [])
    assert {k: (v.shape, v.dtype) for k, v in found.items()} == {
        k: (v.shape, v.dtype) for k, v in expected.items()
    }


def test_xla_applies_every_search_rule_as_the_stock_form(run):
    rules = {"coverage_penalty": 0.3, "repetition_penalty": 1.4, "no_repeat_ngram": 2}
    rules |= {"min_target_length": 5, "max_length_factor": 1.7, "length_penalty_form": "power"}
    found, expected = (
        answers(tfformer.load_translator(run, **rules, xla=xla), TEXTS[7]) for xla in (True, False)
    )
    assert len(set(expected["translation"])) > 1
    assert_same(found, expected)


def test_bfloat16_scores_are_close_to_float32(run):
    """XLA rounds to bfloat16 at other points than the stock form, so neither is the reference."""
    short = {"max_target_length": 3, "min_target_length": 3}
    scores, expected = (
        answers(tfformer.load_translator(run, **short, **options), TEXTS[7])["score"]
        for options in ({"dtype": "bfloat16", "xla": True}, {})
    )
    assert (scores != expected).any()
    np.testing.assert_allclose(scores, expected, rtol=0.1)


def test_padding_buckets_are_few_and_keep_the_input():
    shapes = set()
    for rows in range(10):
        for length in range(1, 41):
            given = 4 + tf.reshape(tf.range(rows * length), [rows, length])
            padded = in_bucket(given, 40)
            shapes.add(tuple(padded.shape))
            np.testing.assert_array_equal(padded[:rows, :length], given)
            assert tf.reduce_sum(padded) == tf.reduce_sum(given)
    assert shapes == {(rows, length) for rows in (1, 2, 4, 8, 16) for length in (16, 32, 40)}
    assert in_bucket(tf.ones([3, 5], tf.int32), 7).shape == (4, 7)


# Exported and served.


def test_without_xla_only_uncompiled_signatures_are_served(saved, stock):
    text = np.array(TEXTS[3], object)
    signatures, calls = read_graph(saved).signatures, []
    for name in ("beam_search", "serving_default"):
        signature = signatures[name]
        feeds = {signature.inputs[key].name: value for key, value in signature.defaults.items()}
        scores = signature.outputs["scores" if name == "beam_search" else "score"].name
        calls.append(({**feeds, signature.inputs["text"].name: text}, [scores]))
    found, refused = serve_calls(saved, calls)
    [scores] = found.values()
    np.testing.assert_allclose(scores, answers(stock, TEXTS[3], "beam_search")["scores"], atol=1e-4)
    assert isinstance(refused, ServingError) and "XLA" in refused.message


def test_command_exports_and_verifies_the_xla_form(run, tmp_path, monkeypatch):
    # The compiled one, and those that it is compared with.
    signatures = (serving_default, beam_search, beam_search_ids)
    monkeypatch.setattr("tfformer.service.translator.SIGNATURES", signatures)
    # Rows of one length, one at a time, have one shape to compile.
    one = shutil.copytree(run, tmp_path / "one")
    config = read_json(one / "config.json")
    config["search"]["max_source_length"] = 16
    write_json(one / "config.json", config)
    few = ["--max-batch-size", "1", "--max-target-length", "13"]
    assert saved_model.main([str(one), str(tmp_path / "exported"), "--xla", *few]) == 0
    report = json.loads((tmp_path / "exported" / "1.report.json").read_text())
    checks = {check["name"]: check["passed"] for check in report["checks"]}
    assert checks["XLA"] and checks["plain beam search in NumPy"] and all(checks.values())
    assert "no XLA" not in checks


@pytest.mark.parametrize("options", [[], ["--xla"]])
def test_verify_uses_xla_only_with_the_option(tmp_path, monkeypatch, options):
    asked = []

    def verified(*_, xla, **__):
        asked.append(xla)
        return verify.Report("")

    monkeypatch.setattr(verify, "verify", verified)
    (tmp_path / "saved_model.pb").touch()
    assert verify.main([str(tmp_path), *options]) == 0
    assert asked == [bool(options)]


def test_command_warns_that_a_stock_server_refuses_xla(run, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(saved_model, "export", lambda *_, **__: (tmp_path, verify.Report("")))
    for options, said in (([], False), (["--xla"], True)):
        assert saved_model.main([str(run), str(tmp_path), *options]) == 0
        output = capsys.readouterr().out
        assert ("stock" in output and "--xla_cpu_compilation_enabled" in output) is said


def test_all_sessions_of_a_process_must_agree_on_xla(tmp_path, monkeypatch):
    for first in (True, False):
        monkeypatch.setattr(library, "_xla", [first])
        with pytest.raises(ValueError, match=f"xla must be {first}, .* got {not first}"):
            ServingSession(tmp_path, xla=not first)

"""The whole road: a run is exported, verified as the server loads it, and answers on its own."""

import json
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfformer
from export import saved_model, verify
from export.graph import read_graph
from export.session import ServingError, serve_calls
from export.translate import translate
from tfformer import Tokenizer, Transformer, TransformerConfig, Translator

TEXTS = [f"word {n} and {n * 7} more" for n in range(97)]
SEARCH = {"max_source_length": 17, "max_target_length": 13}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run directory of a tiny model whose answers are not flat."""
    keras.utils.set_random_seed(3)
    tokenizer = Tokenizer.train(TEXTS, vocabulary_size=290)
    config = TransformerConfig.preset(
        "test", tokenizer.source_vocabulary_size, num_encoder_layers=1, num_decoder_layers=1
    )
    model = Transformer(config)
    for n, weight in enumerate(model.weights):
        weight.assign_add(0.4 * tf.random.stateless_normal(weight.shape, [n, 5]))
    directory = tmp_path_factory.mktemp("run") / "run"
    tfformer.save(directory, model, tokenizer, SEARCH)
    return directory


@pytest.fixture(scope="module")
def translator(run):
    return Translator(*tfformer.load(run), **SEARCH)


@pytest.fixture(scope="module")
def exported(run, tmp_path_factory):
    """An export that was verified, moved away from where it was written, its run deleted."""
    copy = tmp_path_factory.mktemp("copy") / "run"
    shutil.copytree(run, copy)
    base = tmp_path_factory.mktemp("exported")
    (base / "7").mkdir()
    assert saved_model.main([str(copy), str(base)]) == 0
    shutil.rmtree(copy)
    (base / "7").rmdir()
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "model"
    shutil.move(base, elsewhere)
    return elsewhere


def served(directory, name, **inputs):
    """The answer of a signature, by the server's loader."""
    signature = read_graph(directory / "8").signatures[name]
    feeds = {signature.inputs[key].name: value for key, value in signature.defaults.items()}
    feeds |= {signature.inputs[key].name: np.array(v, object) for key, v in inputs.items()}
    outputs = {key: info.name for key, info in signature.outputs.items()}
    (answer,) = serve_calls(directory / "8", [(feeds, list(outputs.values()))])
    if isinstance(answer, ServingError):
        raise answer
    return {key: answer[name] for key, name in outputs.items()}


def test_report_says_what_was_checked(exported, translator):
    report = json.loads((exported / "8.report.json").read_text())
    assert report["passed"]
    names = {check["name"] for check in report["checks"]}
    assert {"no Python ops", "no XLA", "no custom ops", "plain beam search in NumPy"} <= names
    assert {f"served: {name}" for name in translator.functions} <= names


def test_it_is_the_next_version_and_nothing_else_is_left(exported):
    assert sorted(path.name for path in exported.iterdir()) == ["8", "8.report.json"]


def test_exported_equals_in_process(exported, translator):
    texts = [text.encode() for text in TEXTS[:5]] + [b"", b"\xff\xfe", "Grüße 🎉".encode()]
    answer = served(exported, "serving_default", text=texts)
    here = translator.functions["serving_default"](tf.constant(texts))
    assert answer["translation"].tolist() == here["translation"].numpy().tolist()
    np.testing.assert_allclose(answer["score"], here["score"], atol=1e-4)
    assert translate(exported, TEXTS[:5]) == translator.translate(TEXTS[:5])


def test_a_blank_text_is_empty_and_leaves_the_others_alone(exported):
    alone = served(exported, "serving_default", text=[b"word 5"])
    mixed = served(exported, "serving_default", text=[b" \t ", b"word 5", b""])
    assert mixed["translation"].tolist() == [b"", alone["translation"][0], b""]
    np.testing.assert_allclose(mixed["score"], [0, alone["score"][0], 0], atol=1e-5)


def test_defaults_are_in_the_signature(exported):
    signatures = read_graph(exported / "8").signatures
    assert set(signatures["beam_search"].defaults) == {
        "beam_width",
        "length_penalty",
        "max_length",
    }
    assert set(signatures["serving_default"].inputs) == {"text"}
    assert not signatures["serving_default"].defaults


def test_options_out_of_range_are_invalid_arguments(exported):
    for name, option, value in (
        ("beam_search", "beam_width", np.array(0, "int32")),
        ("beam_search", "length_penalty", np.array(-1, "float32")),
        ("sample", "top_p", np.array(2, "float32")),
    ):
        signature = read_graph(exported / "8").signatures[name]
        feeds = {signature.inputs[k].name: v for k, v in signature.defaults.items()}
        feeds |= {
            signature.inputs["text"].name: np.array([b"word"], object),
            signature.inputs[option].name: value,
        }
        fetches = [info.name for info in signature.outputs.values()]
        (answer,) = serve_calls(exported / "8", [(feeds, fetches)])
        assert isinstance(answer, ServingError) and answer.code_name == "INVALID_ARGUMENT"
        assert option in str(answer)


def test_a_rank_2_text_is_an_invalid_argument(exported):
    with pytest.raises(ServingError, match="INVALID_ARGUMENT"):
        served(exported, "serving_default", text=[[b"a", b"b"]])


def test_what_does_not_verify_is_not_published(run, tmp_path, monkeypatch, capsys):
    def refuse(directory, requests, progress):
        report = verify.Report(str(directory))
        report.add("weights", ["they are gone"], "")
        return report

    monkeypatch.setattr(verify, "verify", refuse)
    monkeypatch.setattr(Translator, "save", lambda self, directory: Path(directory).mkdir())
    assert saved_model.main([str(run), str(tmp_path / "exported")]) == 1
    assert "not exported: weights: they are gone" in capsys.readouterr().err
    assert list((tmp_path / "exported").iterdir()) == []


def test_a_wrong_search_is_caught_by_the_reference(translator):
    requests = saved_model.sample_requests(translator)
    source_ids = tf.constant(requests["beam_search_ids"][0]["source_ids"])
    right = translator.functions["beam_search_ids"](source_ids)
    right = {key: value.numpy() for key, value in right.items()}
    for key, wrong in (("scores", right["scores"] - 0.01), ("token_ids", right["token_ids"] + 1)):
        faults = []
        for answer in (right, {**right, key: wrong}):
            report = verify.Report("", served={"beam_search_ids": [answer]})
            saved_model.compare_reference(translator, requests, report)
            faults.append(not report.passed)
        assert faults == [False, True]


def test_bad_arguments_are_one_line(run, tmp_path, capsys):
    file = tmp_path / "file"
    file.write_text("x")
    for arguments in (
        [str(tmp_path / "missing"), str(tmp_path / "out")],
        [str(tmp_path), str(tmp_path / "out")],
        [str(run), str(file)],
        [str(run), str(tmp_path / "out"), "--beam-width", "0"],
    ):
        assert saved_model.main(arguments) == 1
        assert capsys.readouterr().err.strip().startswith("export.saved_model: error: ")

"""The export of a KerasHub preset serves what the model computes here."""

import json
import shutil

import hub
import numpy as np
import pytest
import tensorflow as tf
from few_texts import prove_by_few

from export import keras_hub
from export.capi.job import serve_calls
from export.verification.graph import read_graph
from tfformer.service import generator_service
from tfformer.service import keras_hub as service
from tfformer.service.keras_hub import KerasHubTranslator

SHORT = ["--max-source-length", "23", "--max-target-length", "7", "--beam-width", "2"]


def saved(make, folder):
    make().save_to_preset(str(folder))
    return folder


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    return saved(hub.t5, tmp_path_factory.mktemp("presets") / "t5")


def exported(preset, base, monkeypatch, *names):
    """The version that the complete command has written, with some signatures."""
    chosen = [make for make in service.SIGNATURES if not names or make.__name__ in names]
    monkeypatch.setattr(service, "SIGNATURES", tuple(chosen))
    prove_by_few(monkeypatch)
    assert keras_hub.main([str(preset), str(base), *SHORT]) == 0
    return base / "1"


@pytest.mark.slow
def test_a_preset_is_exported_verified_and_served(preset, tmp_path, monkeypatch):
    version = exported(preset, tmp_path / "t5", monkeypatch, "serving_default", "beam_search_ids")
    report = json.loads((tmp_path / "t5" / "1.report.json").read_text())
    checks = {check["name"] for check in report["checks"]}
    assert report["passed"]
    assert {
        "no XLA",
        "no custom ops",
        "KerasHub's tokenizer",
        "plain beam search in NumPy",
    } <= checks
    page = (tmp_path / "t5" / "README.md").read_text()
    assert "T5Seq2SeqLM of KerasHub as a SavedModel for a stock" in page
    assert "gives no attention weights" in page
    assert "tfformer export-keras-hub PRESET DIRECTORY" in page
    assert (tmp_path / "t5" / "docker-compose.yml").is_file()

    graph = read_graph(version)
    assert "coverage_penalty" not in graph.signatures["beam_search_ids"].inputs
    assert "alignment" not in graph.signatures["beam_search_ids"].outputs
    asked = [text.encode() for text in hub.TEXTS[:5]] + [b"", b"\xff"]
    signature = graph.signatures["serving_default"]
    feeds = {signature.inputs["text"].name: np.array(asked, object)}
    [answers] = serve_calls(version, [(feeds, [signature.outputs["translation"].name])])
    here = KerasHubTranslator(
        keras_hub.load(str(preset)), max_source_length=23, max_target_length=7, beam_width=2
    )
    expected = here.functions["serving_default"](tf.constant(asked))["translation"]
    assert [*answers.values()][0].tolist() == expected.numpy().tolist()


@pytest.mark.nightly
def test_decoder_only_preset_is_exported_and_generates_the_same_text(tmp_path, monkeypatch):
    folder = saved(hub.CAUSAL["gemma"], tmp_path / "preset")
    prove_by_few(monkeypatch)
    chosen = (generator_service.serving_default, generator_service.beam_search)
    monkeypatch.setattr(generator_service, "SIGNATURES", chosen)
    assert keras_hub.main([str(folder), str(tmp_path / "gemma"), *SHORT, "--top-k", "1"]) == 0
    report = json.loads((tmp_path / "gemma" / "1.report.json").read_text())
    checks = {check["name"] for check in report["checks"]}
    assert report["passed"]
    assert {"no XLA", "KerasHub's tokenizer", "the model, without a cache"} <= checks
    page = (tmp_path / "gemma" / "README.md").read_text()
    assert "how it goes on out: GemmaCausalLM of KerasHub as a SavedModel for a stock" in page
    signatures = read_graph(tmp_path / "gemma" / "1").signatures
    assert set(signatures) == {"serving_default", "beam_search"}
    asked = [text.encode() for text in hub.TEXTS[:5]] + [b"", b"a\nb", b"\xff"]
    signature = signatures["serving_default"]
    feeds = {signature.inputs["text"].name: np.array(asked, object)}
    names = [signature.outputs["continuation"].name]
    [answers] = serve_calls(tmp_path / "gemma" / "1", [(feeds, names)])
    here = keras_hub.service_of(
        keras_hub.load(str(folder)), max_source_length=23, max_target_length=7, top_k=1
    )
    expected = here.functions["serving_default"](tf.constant(asked))["continuation"]
    assert [*answers.values()][0].tolist() == expected.numpy().tolist()


def half(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


DAMAGES = {
    "no configuration": ("config.json", lambda path: path.unlink(), "config.json"),
    "half the weights": ("model.weights.h5", half, "does not load"),
    "half a vocabulary": ("assets/tokenizer/vocabulary.spm", half, "does not load"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_preset_gives_one_line_error_and_writes_nothing(name, preset, tmp_path, capsys):
    file, change, said = DAMAGES[name]
    folder = tmp_path / "preset"
    shutil.copytree(preset, folder)
    change(folder / file)
    refused(folder, tmp_path, capsys, said)


def test_foreign_or_missing_preset_gives_one_line_error(tmp_path, capsys):
    from keras_nlp import models

    empty = tmp_path / "empty"
    empty.mkdir()
    refused(empty, tmp_path, capsys, "does not load as a Seq2SeqLM or CausalLM of KerasHub")
    refused(tmp_path / "none", tmp_path, capsys, "PRESET must be a folder, or a preset in Kera")
    refused("gpt2_base_en", tmp_path, capsys, "PRESET must be a folder, or a preset in Kera")
    other = tmp_path / "other"
    backbone = models.GPT2Backbone(31, 1, 2, 14, 19, max_sequence_length=7)
    backbone.save_to_preset(str(other))
    refused(other, tmp_path, capsys, "does not load as a Seq2SeqLM or CausalLM of KerasHub")
    whole = tmp_path / "whole"
    bart = hub.bart_tokenizer()
    words = models.GPT2Tokenizer({**bart.vocabulary, "<|endoftext|>": 331}, bart.merges)
    backbone = models.GPT2Backbone(332, 1, 2, 14, 19, max_sequence_length=7)
    preprocessor = models.GPT2CausalLMPreprocessor(words, sequence_length=7)
    models.GPT2CausalLM(backbone, preprocessor).save_to_preset(str(whole))
    refused(whole, tmp_path, capsys, "MistralCausalLM, got one of GPT2CausalLM")


@pytest.mark.slow
def test_option_of_another_model_kind_is_refused(preset, tmp_path, capsys):
    assert keras_hub.main([str(preset), str(tmp_path / "exported"), "--top-k", "5"]) == 1
    said = capsys.readouterr().err
    assert "for a T5Seq2SeqLM, options must be of" in said and "got 'top_k'" in said
    assert not (tmp_path / "exported").exists()


def refused(preset, folder, capsys, said):
    capsys.readouterr()
    assert keras_hub.main([str(preset), str(folder / "exported")]) == 1
    written = capsys.readouterr()
    lines = [line for line in written.err.splitlines() if ": error: " in line]
    assert len(lines) == 1 and said in lines[0]
    assert written.out == "" and "Traceback" not in written.err
    assert not (folder / "exported").exists()


def test_error_without_keras_nlp_gives_the_install_command(tmp_path, capsys, monkeypatch):
    find = keras_hub.importlib.util.find_spec
    monkeypatch.setattr(
        keras_hub.importlib.util,
        "find_spec",
        lambda name: None if name == "keras_nlp" else find(name),
    )
    refused(tmp_path, tmp_path, capsys, "pip install 'tfformer[keras-nlp]'")


@pytest.mark.nightly
def test_quantized_preset_is_refused(tmp_path, capsys):
    def quantized():
        model = hub.t5()
        model.backbone.quantize("int8")
        return model

    preset = saved(quantized, tmp_path / "int8")
    refused(preset, tmp_path, capsys, "must have float weights, got int8")

"""What the command for CTranslate2 refuses; it then writes nothing."""

import json
import os
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from pairs import CASES, SOURCES, TARGETS, make_tokenizers, random_model
from sentencepiece.sentencepiece_model_pb2 import ModelProto

import tfformer
from export import ctranslate2 as command
from export.artifacts import specification as spec
from export.artifacts.specification import specification
from tfformer import Tokenizer, Translator
from tfformer.config import ACTIVATIONS, EOS
from tfformer.layers.feed_forward import FeedForward
from tfformer.layers.norm import LayerNorm
from tfformer.text.learn_vocabulary import learn_table
from tfformer.text.vocabularies import SentencePieceModel

ctranslate2 = pytest.importorskip("ctranslate2")


@pytest.fixture(scope="module")
def tokenizers():
    return make_tokenizers()


@pytest.fixture(scope="module")
def run(tokenizers, tmp_path_factory):
    directory = tmp_path_factory.mktemp("run") / "run"
    tfformer.save(directory, random_model(tokenizers[1], **CASES["gated"]), tokenizers[1])
    return directory


@pytest.mark.slow
def test_sentencepiece_scores_prone_to_ties_give_a_warning(run, tokenizers, tmp_path, capsys):
    assert command.main([str(run), str(tmp_path / "exact")]) == 0
    assert "warning" not in capsys.readouterr().out
    content = ModelProto.FromString(tokenizers[1].source.content)
    for piece in content.pieces:
        piece.score *= 1.1
    tokenizer = Tokenizer(SentencePieceModel(content.SerializeToString()))
    tfformer.save(tmp_path / "run", random_model(tokenizer, **CASES["gated"]), tokenizer)
    assert command.main([str(tmp_path / "run"), str(tmp_path / "model")]) == 0
    assert "pip install 'sentencepiece<0.2.2'" in capsys.readouterr().out


@pytest.mark.slow
def test_model_agrees_only_with_its_own_layer_norm_epsilon(tokenizers, tmp_path):
    """For embeddings of variance 1e-6, CTranslate2's own epsilon of 1e-5 gives other results."""
    model = random_model(tokenizers[1], norm="pre", positions="learned", max_positions=19)
    for weight in model.weights:
        if weight.path.endswith("embeddings"):
            weight.assign(weight * (1e-3 / keras.ops.std(weight)))
    for epsilon, agree in ((1e-6, True), (1e-5, False)):
        directory = tmp_path / str(epsilon)
        directory.mkdir()
        made = specification(model, tokenizers[1], 19)
        if not agree:
            made.config.layer_norm_epsilon = epsilon
        command.save(made, tokenizers[1], directory)
        assert json.loads((directory / "config.json").read_text())["layer_norm_epsilon"] == epsilon
        difference = command.largest_difference(directory, model, tokenizers[1])
        assert (difference < 1e-4) == agree


def test_sinusoids_cover_max_source_length(tokenizers, tmp_path):
    tfformer.save(
        tmp_path / "run",
        random_model(tokenizers[0], num_encoder_layers=1, num_decoder_layers=1),
        tokenizers[0],
        {"max_source_length": 1031, "max_target_length": 13},
    )
    command.export(tmp_path / "run", tmp_path / "model", lambda line: None)
    translator = ctranslate2.Translator(str(tmp_path / "model"), device="cpu")
    options = {"max_input_length": 0, "max_decoding_length": 2}
    translator.translate_batch([["▁word"] * 1030], **options)
    with pytest.raises(RuntimeError, match="positions >= 1031"):
        translator.translate_batch([["▁word"] * 1031], **options)


def test_every_activation_has_a_ctranslate2_name():
    assert set(spec.ACTIVATIONS) == set(ACTIVATIONS)


def test_error_names_an_unsupported_layer_class(tokenizers):
    class Other(FeedForward):
        pass

    class OtherNorm(LayerNorm):
        pass

    model = random_model(tokenizers[1], **CASES["learned"])
    layer = model.decoder.layers[0]
    layer.feed_forward.__class__ = Other
    with pytest.raises(ValueError, match="feed_forward must be one of .* got Other$"):
        specification(model, tokenizers[1], 19)
    layer.feed_forward.__class__ = FeedForward
    layer.cross_residual.layer_norm.__class__ = OtherNorm
    with pytest.raises(ValueError, match="layer_norm must be one of .* got OtherNorm$"):
        specification(model, tokenizers[1], 19)


def test_different_special_pieces_of_source_and_target_are_refused(tokenizers):
    model = random_model(tokenizers[1], **CASES["learned"])
    other = ModelProto.FromString(tokenizers[1].target_model)
    other.pieces[EOS].piece = other.trainer_spec.eos_piece = "<e/>"
    tokenizer = Tokenizer(tokenizers[1].source_model, other.SerializeToString())
    with pytest.raises(ValueError, match="one name on both sides .*'</s>'.*'<e/>'"):
        specification(model, tokenizer, 19)


@pytest.mark.slow
def test_piece_tables_are_exported_unchanged(tmp_path):
    tokenizer = Tokenizer(learn_table([SOURCES], 60), learn_table([TARGETS], 50))
    model = random_model(tokenizer, num_encoder_layers=1, num_decoder_layers=1)
    # Fixed weights, with which a translation has words, whatever was drawn before.
    for n, weight in enumerate(model.weights):
        weight.assign(0.6 * tf.random.stateless_normal(weight.shape, [n, 7]))
    tfformer.save(tmp_path / "run", model, tokenizer)
    command.export(tmp_path / "run", tmp_path / "model", lambda line: None)
    for name, content in tokenizer.files.items():
        assert (tmp_path / "model" / name).read_bytes() == content
    assert set(tokenizer.files) == {"source.pieces", "target.pieces"}
    texts = SOURCES[:9]
    ours = Translator(model, tokenizer, max_target_length=13).translate(texts, greedy=True)
    results = ctranslate2.Translator(str(tmp_path / "model"), device="cpu").translate_batch(
        [text.split(" ") for text in texts],
        beam_size=1,
        max_decoding_length=12,
        min_decoding_length=0,
    )
    theirs = [[word for word in r.hypotheses[0] if word != "<unk>"] for r in results]
    assert [" ".join(words) for words in theirs] == ours and any(ours)


def failed(capsys):
    """The error in the last line of standard error; only progress may come before it."""
    *before, last = capsys.readouterr().err.splitlines()
    start = "python -m export.ctranslate2: error: "
    assert last.startswith(start)
    assert all(line.endswith(" ...") for line in before), before
    return last.removeprefix(start)


def test_bad_arguments_give_one_line_error(run, tmp_path, capsys):
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("nowhere")
    for source, directory, message in (
        (tmp_path / "missing", "out", "is no directory"),
        (tmp_path / "empty", "out", "is no run directory"),
        (run, "file", "directory must not exist yet, got "),
        (run, "empty", "directory must not exist yet, got "),
        (run, "link", "directory must not exist yet, got "),
        (run, "file/out", "File exists"),
    ):
        assert command.main([str(source), str(tmp_path / directory)]) == 1
        assert message in failed(capsys)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "file", "link"]


def test_error_without_ctranslate2_gives_the_install_command(run, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    assert command.main([str(run), str(tmp_path / "out")]) == 1
    assert failed(capsys).startswith("ctranslate2 is needed: pip install 'ctranslate2>=4.8'")
    assert not os.listdir(tmp_path)


def test_export_that_differs_from_the_model_is_not_published(run, tmp_path, monkeypatch, capsys):
    for difference in (0.25, np.nan):
        monkeypatch.setattr(command, "largest_difference", lambda *_, d=difference: d)
        assert command.main([str(run), str(tmp_path / "out")]) == 1
        assert f"got a difference of {difference:.2g}" in failed(capsys)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    "error, code, message",
    [
        (OSError("no\nspace"), 1, "no space"),
        (RuntimeError("CTranslate2 says\n\nno"), 1, "CTranslate2 says no"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_failed_write_gives_one_line_error_and_leaves_no_files(
    error, code, message, run, tmp_path, monkeypatch, capsys
):
    def fail(spec, tokenizer, directory):
        (directory / "model.bin").write_text("half")
        raise error

    monkeypatch.setattr(command, "save", fail)
    assert command.main([str(run), str(tmp_path / "out")]) == code
    assert failed(capsys) == message
    assert not os.listdir(tmp_path)

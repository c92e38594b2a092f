"""`explain` returns what the layers compute and how the search goes, also when served."""

import json

import numpy as np
import pytest
import tensorflow as tf
import tiny
from few_texts import prove_by_few
from variants import VARIANTS

import tfformer
from export import saved_model
from tfformer import Tokenizer, Transformer, TransformerConfig, Translator
from tfformer.config import BOS, RecurrentConfig
from tfformer.inference.fuse import fuse
from tfformer.inference.transformer import Inference
from tfformer.layers.watcher import watched
from tfformer.models.recurrent import Recurrent
from tfformer.search import beam_search
from tfformer.service.n_best import beam_search_ids
from tfformer.service.translation import serving_default

TEXTS = ["a little house by the lake", "", "trees"]


@pytest.fixture(scope="module")
def translator():
    return tiny.make_translator(**tiny.SERVED, explain=True)


@pytest.fixture(scope="module")
def found(translator):
    answer = translator.functions["explain"](tf.constant(TEXTS), beam_width=tf.constant(3))
    return {name: value.numpy() for name, value in answer.items()}


def test_explain_signature_exists_only_with_the_option(translator):
    assert "explain" in translator.signatures
    assert "explain" not in tiny.translator_served().signatures


def test_shapes(found):
    b, s, t = 3, found["source_tokens"].shape[1], found["target_tokens"].shape[1]
    steps = found["step_tokens"].shape[1]
    assert {name: value.shape for name, value in found.items()} == {
        "translation": (b,), "truncated": (b,), "source_tokens": (b, s), "target_tokens": (b, t),
        "probabilities": (b, t), "encoder_attention": (b, 1, 2, s, s),
        "decoder_attention": (b, 1, 2, t, t), "cross_attention": (b, 1, 2, t, s),
        "step_tokens": (b, steps, 3), "step_parents": (b, steps, 3), "step_scores": (b, steps, 3),
    }  # fmt: skip


@pytest.mark.parametrize("row", [0, 2])
def test_explain_equals_the_keras_layers_and_a_single_search(translator, found, row):
    """The other route uses the Keras layers, without a cache, for this text alone."""
    model, tokenizer = translator.model, translator.tokenizer
    source_ids = tokenizer.encode_source([TEXTS[row]]).to_tensor()
    names = tokenizer.pieces("target")
    labels = [names.index(token.decode()) for token in found["target_tokens"][row] if token]
    inputs = {"source_ids": source_ids, "target_ids": np.array([[BOS, *labels[:-1]]])}
    with watched(model) as seen:
        logits = model(inputs)
    s, t = source_ids.shape[1], len(labels)
    for kind, shape in (("encoder", (s, s)), ("decoder", (t, t)), ("cross", (t, s))):
        weights = found[f"{kind}_attention"][row]
        expected = tf.concat(seen[kind], axis=0)
        np.testing.assert_allclose(weights[:, :, : shape[0], : shape[1]], expected, atol=1e-5)
        assert not weights[:, :, shape[0] :].any() and not weights[..., shape[1] :].any()
    probs = tf.nn.softmax(logits[0]).numpy()[range(t), labels]
    np.testing.assert_allclose(found["probabilities"][row, :t], probs, rtol=1e-4)
    (said,) = tokenizer.decode(tf.constant([labels])).numpy()
    assert said == found["translation"][row]
    inference = Inference(*fuse(model, translator.max_source_length))
    alone = beam_search(
        inference.step, inference.start(source_ids, 3), 1, translator.max_target_length, 3,
        translator.length_penalty, num_results=1, keep=("steps",),
    ).steps  # fmt: skip
    size = alone.token_ids.shape[1]
    np.testing.assert_array_equal(
        found["step_tokens"][row, :size], tokenizer.target_pieces(alone.token_ids[0])
    )
    np.testing.assert_array_equal(found["step_parents"][row, :size], alone.parents[0])
    np.testing.assert_allclose(found["step_scores"][row, :size], alone.scores[0], rtol=1e-4)
    assert (found["step_parents"][row, size:] == -1).all()


def test_blank_text_has_an_empty_translation_and_no_steps(translator, found):
    assert found["translation"][1] == b"" and not found["probabilities"][1].any()
    assert (found["step_parents"][1] == -1).all() and not found["step_scores"][1].any()
    for texts in ([""], []):
        alone = translator.functions["explain"](tf.constant(texts, tf.string))
        assert alone["translation"].numpy().tolist() == [b""] * len(texts)


def test_more_than_4_rows_are_refused(translator):
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"rows of explain must be in \[0, 4\]"
    ):
        translator.functions["explain"](tf.constant(["a"] * 5))


def test_explain_covers_both_stacks_and_ignores_the_window():
    """It explains the whole model, also if the search of the other signatures uses a window."""
    tokenizer = Tokenizer.train(tiny.sentences(97), vocabulary_size=347)
    changes = {**VARIANTS["relative, ada, one layer twice"], "num_decoder_layers": 3}
    config = TransformerConfig.preset("test", tokenizer.source_vocabulary_size, **changes)
    limits = {"max_source_length": 17, "max_target_length": 7}
    model = Transformer(config)
    plain, windowed = (
        Translator(model, tokenizer, **limits, explain=True, attention_window=window)
        for window in (0, 2)
    )
    answers = [one.functions["explain"](tf.constant(TEXTS)) for one in (plain, windowed)]
    assert answers[0]["decoder_attention"].shape[1] == 3
    assert answers[0]["encoder_attention"].shape[1] == config.num_encoder_layers
    for name, value in answers[0].items():
        np.testing.assert_array_equal(value, answers[1][name])


@pytest.mark.slow
def test_explain_is_exported_verified_and_served(tmp_path, monkeypatch):
    run, translator = tmp_path / "run", tiny.translator_served()
    tfformer.save(run, translator.model, translator.tokenizer, dict(tiny.SERVED))
    monkeypatch.setattr(
        "tfformer.service.translator.SIGNATURES", (serving_default, beam_search_ids)
    )
    prove_by_few(monkeypatch)
    assert saved_model.main([str(run), str(tmp_path / "out"), "--explain"]) == 0
    report = json.loads((tmp_path / "out" / "1.report.json").read_text())
    assert report["passed"] and "served: explain" in {one["name"] for one in report["checks"]}


def test_explain_is_refused_for_a_recurrent_run(tmp_path, capsys):
    tokenizer = Tokenizer.train(["a"], vocabulary_size=300)
    config = RecurrentConfig.preset("test", tokenizer.source_vocabulary_size)
    tfformer.save(tmp_path / "run", Recurrent(config), tokenizer)
    assert saved_model.main([str(tmp_path / "run"), str(tmp_path / "out"), "--explain"]) == 1
    said = capsys.readouterr().err
    assert "explain is no option of the family 'recurrent'" in said

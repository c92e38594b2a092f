"""A window over the source that only moves forward: what each hypothesis sees."""

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from walk import steps

import tfformer
from export.verification import translation
from export.verification.report import Report
from tfformer import Tokenizer, Transformer, TransformerConfig, Translator
from tfformer.inference.fuse import fuse
from tfformer.inference.monotonic_attention import WindowedInference
from tfformer.inference.transformer import Inference
from tfformer.search import beam_search

B, S, T, W, V = 3, 11, 7, 2, 17


@pytest.fixture(scope="module")
def model():
    layers = {"num_encoder_layers": 1, "num_decoder_layers": 2}
    model = Transformer(TransformerConfig.preset("test", V, **layers))
    rng = np.random.default_rng(5)
    for variable in model.trainable_variables:
        variable.assign(variable + rng.normal(scale=0.2, size=variable.shape))
    return model


@pytest.fixture
def source_ids(rng):
    ids = rng.integers(4, V, (B, S)).astype("int32")
    ids[1, 7:] = 0
    return tf.constant(ids)


class Watched(WindowedInference):
    """Records what each step attends to; runs eagerly."""

    def __init__(self, *known):
        super().__init__(*known)
        self.steps = []

    def step(self, ids, position, visible, state):
        found = super().step(ids, position, visible, state)
        *_, (places,) = found.cache
        self.steps.append((found.attention.numpy(), places[:, 0, position].numpy()))
        return found


def test_step_attends_only_to_its_window_and_never_moves_back(model, source_ids):
    inference = Watched(*fuse(model, S), 3)
    beams = np.random.default_rng(3).integers(4, V, (B, W, T)).astype("int32")
    steps(inference, source_ids, beams, [[0, 1]] * T)
    assert len(inference.steps) == T
    place = np.zeros((B, W), int)
    for attention, found in inference.steps:
        ahead = np.arange(S) - place[..., None]
        inside = (ahead >= 0) & (ahead < 3)
        assert attention[~inside].max() < 1e-6
        np.testing.assert_array_equal(found, np.where(inside, attention, -1).argmax(-1))
        place = found
    _, place = inference.steps[-2]
    assert (place > 0).any()  # the last step has positions before its window


def test_each_hypothesis_keeps_its_own_window_position(model, source_ids):
    """When beams move, a hypothesis keeps the position of its ancestor."""
    inference = Inference(*fuse(model, S))
    windowed = WindowedInference(*fuse(model, S), 4)
    beams = np.random.default_rng(3).integers(4, V, (B, W, T)).astype("int32")
    beams[:, :, 0] = 2

    def stepped(columns):
        """The logits of the last step of the hypotheses in these beams, step by step."""
        return steps(windowed, source_ids, beams, columns)[:, :, -1]

    straight = stepped([[0, 1]] * T)
    crossed = stepped([[0, 1], [1, 0]] * (T // 2) + [[0, 1]])
    np.testing.assert_allclose(crossed, straight, atol=1e-4)
    whole, _ = inference.decode(tf.constant(beams[:, 0]), inference.memory(source_ids))
    assert np.abs(whole[:, -1] - straight[:, 0]).max() > 1e-3  # the window hides something


@pytest.mark.parametrize("prompt", [None, [[0, 2, 5], [2, 9, 4], [2, 7, 7]]])
def test_window_over_the_whole_source_changes_nothing(model, source_ids, prompt):
    found = []
    for inference in (Inference(*fuse(model, 32)), WindowedInference(*fuse(model, 32), S)):
        state = inference.start(source_ids, W)
        more = {}
        if prompt is not None:
            more["prompt"] = tf.constant(prompt)
            state = inference.prefill(more["prompt"], W, state)
        # At the first position all is visible; later the window moves, so one step is compared.
        found.append(beam_search(inference.step, state, B, 1, W, **more))
    np.testing.assert_array_equal(found[0].token_ids, found[1].token_ids)
    np.testing.assert_allclose(found[0].log_probs, found[1].log_probs, atol=1e-5)


def test_batch_gives_the_same_results_as_single_rows(model, source_ids):
    inference = WindowedInference(*fuse(model, S), 2)
    together = beam_search(inference.step, inference.start(source_ids, W), B, T, W)
    for b in range(B):
        row = source_ids[b : b + 1, : 7 if b == 1 else S]
        alone = beam_search(inference.step, inference.start(row, W), 1, T, W)
        np.testing.assert_allclose(alone.scores[0], together.scores[b], atol=1e-4)


@pytest.mark.slow
def test_attention_window_is_kept_from_run_to_saved_model(tmp_path):
    tokenizer = Tokenizer.train(["ein rotes Haus", "a red house"], vocabulary_size=300)
    config = TransformerConfig.preset(
        "test", tokenizer.source_vocabulary_size, num_encoder_layers=1, num_decoder_layers=2
    )
    model = Transformer(config)
    tfformer.save(tmp_path / "run", model, tokenizer, search={"attention_window": 3})
    translator = tfformer.load_translator(tmp_path / "run", max_target_length=13)
    texts = ["ein rotes Haus ein rotes Haus", "Haus", ""]
    narrow = translator.translate(texts)
    assert narrow != Translator(model, tokenizer, max_target_length=13).translate(texts)
    translator.save(str(tmp_path / "saved"), ["serving_default", "beam_search"])
    served = tf.saved_model.load(str(tmp_path / "saved")).signatures["serving_default"]
    found = served(text=tf.constant(texts))["translation"].numpy()
    assert [text.decode() for text in found] == narrow
    with pytest.raises(ValueError, match="attention_window must be 0 with xla or a shortlist, got"):
        Translator(model, tokenizer, attention_window=3, xla=True)
    with pytest.raises(ValueError, match=r"attention_window must be in \[0, 1024\], got -1"):
        Translator(model, tokenizer, attention_window=-1)


def test_export_report_notes_that_no_plain_search_supports_the_window():
    translator = SimpleNamespace(xla=False, dtype=None, options={"attention_window": 3})
    report = Report("model")
    translation.compare(translator, {}, report, "run", {}, lambda line: None)
    (check,) = report.checks
    assert check.passed and check.detail == translation.NO_WINDOW

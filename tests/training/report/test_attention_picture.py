"""The picture of the attention: the attention of a model, also of one that copies."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfformer import Tokenizer, Transformer, TransformerConfig, Translator
from training.report import picture
from training.report.attention import attention_figure
from training.report.picture import pyplot
from training.translate import draw_attention

SOURCE, TARGET = "ab ж", "b жa"


@pytest.fixture
def drawn(monkeypatch):
    """A function that draws two texts by a translator and returns the figure's axes."""
    figures = []
    monkeypatch.setattr(picture, "write_picture", lambda path, figure: figures.append(figure))

    def draw(translator):
        draw_attention(translator, SOURCE, TARGET, "x.png")
        pyplot().close(figures[-1])
        return figures[-1].axes

    return draw


def image(axes):
    return axes.images[0].get_array().data


def test_attention_figure_shows_the_given_values_and_labels():
    attention, gate = np.array([[0.25, 0.75], [1.0, 0.0], [0.5, 0.5]]), np.array([0.0, 1.0, 0.5])
    figure = attention_figure(attention, ["$a", "b"], ["x", "y", "z"], gate)
    heat_map, column = [axes for axes in figure.axes if axes.images]
    np.testing.assert_array_equal(image(heat_map), attention)
    np.testing.assert_array_equal(image(column), gate[:, None])
    assert [label.get_text() for label in heat_map.get_xticklabels()] == ["$a", "b"]
    for axes in (heat_map, column):
        assert [label.get_text() for label in axes.get_yticklabels()] == ["x", "y", "z"]
    assert {axes.images[0].get_clim() for axes in (heat_map, column)} == {(0, 1)}
    pyplot().close(figure)


@pytest.mark.slow
def test_copy_model_picture_shows_gate_and_copy_attention(drawn):
    keras.utils.set_random_seed(3)  # before the tokenizer, which seeding would end
    # The letter ж is two bytes, so two pieces and one row.
    tokenizer = Tokenizer.train(["ab ba", "a b"], vocabulary_size=300, kind="char")
    size, alike = tokenizer.source_vocabulary_size, {"tie_embeddings": "all"}
    alike |= {"num_encoder_layers": 1, "num_decoder_layers": 2}
    plain, copying = (
        Transformer(TransformerConfig.preset("test", size, copy=copy, **alike))
        for copy in (False, True)
    )
    assert len([axes for axes in drawn(Translator(plain, tokenizer)) if axes.images]) == 1
    gate, translator = copying.output_projection.gate, Translator(copying, tokenizer)
    for number in (-99.0, 99.0):
        gate.set_weights([np.zeros(gate.kernel.shape), np.array([number])])
        heat_map, column = [axes for axes in drawn(translator) if axes.images]
        rows = len(heat_map.get_yticklabels())
        np.testing.assert_allclose(image(column), np.full((rows, 1), float(number > 0)), atol=1e-6)
        np.testing.assert_allclose(image(heat_map).sum(axis=-1), np.ones(rows), rtol=1e-5)
    # By hand: ▁, b, ▁, the character of two bytes, a, and the end.
    assert rows == 6
    # If the model copies by this attention, its output is P of each id of the target's first row.
    gate.set_weights([np.zeros(gate.kernel.shape), np.array([-99.0])])
    heat_map = next(axes for axes in drawn(translator) if axes.images)
    scored = copying({"source_ids": tokenizer.encode_source([SOURCE]).to_tensor(),
                      "target_ids": tf.constant([[2]])})  # fmt: skip
    ids = tokenizer.encode_source([SOURCE])[0].numpy()
    of_a_letter = tf.exp(scored)[0, 0, ids[1]].numpy()
    assert image(heat_map)[0, 1] == pytest.approx(of_a_letter, rel=1e-5)

"""The drawing of a model has its layers and the shapes of its tensors."""

import numpy as np
import pytest

from tfformer import (
    Classifier,
    ClassifierConfig,
    Embedder,
    EmbedderConfig,
    LanguageModel,
    LanguageModelConfig,
    NonAutoregressiveConfig,
    SpanConfig,
    TaggerConfig,
    Transformer,
    TransformerConfig,
)
from tfformer.config import RecurrentConfig
from training.pictures.architecture import architecture_figure, columns_of
from training.report.picture import pyplot

SIZES = {"B": 3, "S": 5, "T": 4}


def size(shape):
    """A shape as in the drawing, with numbers for its letters."""
    parts = shape.replace(",", "").strip("[]").split(" ")
    return tuple(SIZES.get(part) or int(part) for part in parts)


def kinds(boxes):
    return [box.kind or box.text for box in boxes]


def test_base_preset_has_the_layers_of_the_paper():
    encoder, decoder = columns_of(TransformerConfig.preset("base", 37000))
    assert encoder.num_layers == decoder.num_layers == 6
    assert kinds(encoder.layer) == ["attention", "+", "norm", "feed-forward", "+", "norm"]
    assert kinds(decoder.layer)[3:6] == ["cross", "+", "norm"]
    assert [box.text for box in decoder.layer if box.kind == "cross"] == [
        "cross-attention\n8 heads of 64"
    ]
    assert not encoder.after  # the paper's norm is after each sum
    assert [box.skips for box in decoder.layer if box.text == "+"] == [1, 1, 1]


def test_with_pre_norm_a_residual_also_skips_the_norm():
    config = TransformerConfig.preset("test", 17, norm="pre", normalization="rms", head_size=5)
    encoder, decoder = columns_of(config)
    assert kinds(encoder.layer) == ["norm", "attention", "+", "norm", "feed-forward", "+"]
    assert kinds(encoder.after) == ["norm"] and kinds(decoder.after)[0] == "norm"
    assert [box.skips for box in encoder.layer if box.text == "+"] == [2, 2]
    assert "self-attention\n2 heads of 5" in [box.text for box in encoder.layer]
    assert {box.text for box in encoder.layer if box.kind == "norm"} == {"RMSNorm"}


def test_drawn_shapes_match_the_model():
    config = TransformerConfig.preset("test", 17, target_vocabulary_size=19)
    model, (encoder, decoder) = Transformer(config), columns_of(config)
    source, target = np.ones((3, 5), int), np.ones((3, 4), int)
    assert size(encoder.before[0].shape) == source.shape
    assert size(encoder.layer[-1].shape) == tuple(model.encode(source).shape)
    inputs = {"source_ids": source, "target_ids": target}
    assert size(decoder.after[-1].shape) == tuple(model(inputs).shape)
    assert encoder.num_layers == len(model.encoder.layers) == 2
    assert decoder.num_layers == len(model.decoder.layers) == 3
    parts = [part.name for part in model.decoder.layers[0].PARTS]
    assert len([box for box in decoder.layer if box.text == "+"]) == len(parts)


@pytest.mark.parametrize(
    "model",
    [
        LanguageModel(LanguageModelConfig.preset("test", 17)),
        Classifier(ClassifierConfig.preset("test", 17, num_labels=7)),
    ],
)
def test_single_stack_drawing_ends_with_the_output_shape(model):
    [column] = columns_of(model.config)
    assert size(column.after[-1].shape) == tuple(model(np.ones((3, 5), int)).shape)
    masked = "masked self-attention" in column.layer[0].text
    assert masked == isinstance(model, LanguageModel)


@pytest.mark.parametrize(
    "config",
    [
        TransformerConfig.preset("base", 37000, embedding_norm=True),
        SpanConfig.preset("test", 17),
        TaggerConfig.preset("test", 17, num_labels=5, positions="none"),
    ],
)
def test_every_box_is_drawn_with_its_shape(config):
    figure = architecture_figure(config)
    written = [text.get_text() for text in figure.axes[0].texts]
    for column in columns_of(config):
        for box in (*column.before, *column.layer, *column.after):
            assert box.text in written and box.shape in written
        assert f"{column.num_layers} ×" in written
    pyplot().close(figure)


def test_extra_parts_of_a_family_are_drawn():
    """Two models without a target, whose encoder output is upsampled; and the heads of BERT."""
    for decoding in ("ctc", "eos"):
        config = NonAutoregressiveConfig.preset(
            "test", 17, decoding=decoding, tie_embeddings="all", upsampling=3
        )
        decoder = columns_of(config)[1]
        assert [box.text for box in decoder.before[:2]] == ["memory", "upsampling to T = 3 S"]
        assert not any("masked" in box.text for box in decoder.layer)
    [column] = columns_of(ClassifierConfig.preset("test", 17, num_labels=3, pooler="tanh"))
    assert [box.text for box in column.after[:2]] == ["pooling: mean", "dense layer, tanh"]
    model = Embedder(EmbedderConfig.preset("test", 17, normalize=True, add_bos=True))
    [column] = columns_of(model.config)
    assert column.before[0].text == "bos and text ids"
    assert size(column.after[-1].shape) == tuple(model(np.ones((3, 5), int)).shape)
    assert len(column.after) == 2


def test_a_recurrent_model_is_refused():
    with pytest.raises(ValueError, match="must be a Transformer, got a RecurrentConfig"):
        columns_of(RecurrentConfig.preset("test", 17))

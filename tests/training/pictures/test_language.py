"""The words of a picture are in the chosen language, and pieces and titles stay as they are."""

import re

import numpy as np
import pytest
from matplotlib.text import Text

from tfformer import TransformerConfig
from tfformer.config import (
    ClassifierConfig,
    EmbedderConfig,
    LanguageModelConfig,
    MaskedLanguageModelConfig,
    NonAutoregressiveConfig,
    SpanConfig,
)
from training.pictures import attention, beams, curves, masks, positions, probabilities
from training.pictures.architecture import architecture_figure
from training.pictures.inside import Tree
from training.report import picture_language
from training.report.picture import pyplot

# Names that have no usual Chinese form.
NAMES = {"LayerNorm", "RMSNorm", "logits", "softmax", "sigmoid", "token", "relu", "swiglu"}
NAMES |= {"bos", "nat", "log", "mean", "tanh", "ALiBi", "gelu", "first", "BLEU"}
CONFIGS = {
    "all of attention": TransformerConfig.preset(
        "test", 17, num_heads=2, num_key_value_heads=1, head_size=4, attention_positions="rotary",
        query_key_norm=True, positions="learned", activation="swiglu", normalization="rms",
    ),
    "alibi": TransformerConfig.preset("test", 17, attention_positions="alibi", positions="none"),
    "relative": TransformerConfig.preset("test", 17, attention_positions="relative"),
    "CTC": NonAutoregressiveConfig.preset("test", 17, decoding="ctc", tie_embeddings="all"),
    "language model": LanguageModelConfig.preset("test", 17),
    "masked": MaskedLanguageModelConfig.preset("test", 17, add_bos=True, transform=True),
    "embedder": EmbedderConfig.preset("test", 17, normalize=True),
    "classifier": ClassifierConfig.preset("test", 17, num_labels=3, pooler="tanh"),
    "labels": ClassifierConfig.preset("test", 17, num_labels=3, multi_label=True),
    "span": SpanConfig.preset("test", 17, token_types=True),
}  # fmt: skip


@pytest.fixture(autouse=True)
def language():
    picture_language.choose("zh")
    yield
    picture_language.choose("en")
    pyplot().close("all")


def english(figure):
    """The English words of a figure that are no names."""
    texts = [text.get_text() for text in figure.findobj(Text)]
    return {one for text in texts for one in re.findall("[A-Za-z]{3,}", text)} - NAMES


@pytest.mark.parametrize("name", CONFIGS)
def test_architecture_is_in_chinese(name):
    assert english(architecture_figure(CONFIGS[name])) == set()


def test_all_other_pictures_are_in_chinese(rng):
    pieces = ["▁1", "2", "3"]
    weights, real = rng.dirichlet(np.ones(3), (2, 2, 3)), np.ones(3, bool)
    probs, ids = np.full((3, 5), 0.2), np.tile(np.arange(3), (3, 1))
    tree = Tree([["1", "2"], ["1", "2"]], [[0, 0], [0, 0]], [[-1.0, -2.0]] * 2, [0, 0])
    rows = [{"epoch": 1, "learning_rate": 1.0, "loss": 2.0, "val_loss": 2.0, "val_bleu": 3.0}]
    for figure in (
        attention.heads_figure(weights, pieces, pieces),
        attention.heads_figure(weights[:1], pieces, pieces),
        attention.lines_figure(weights, pieces, pieces),
        beams.beams_figure(tree),
        masks.masks_figure(pieces, pieces, real, real),
        positions.positions_figure(weights[0, 0]),
        probabilities.tokens_figure(pieces, np.zeros(3)),
        probabilities.distributions_figure(ids[:, 0], probs, ids, [pieces] * 3, 0.1),
        curves.curves_figure(rows, "val_bleu", "BLEU"),
    ):
        assert english(figure) == set()


def test_pieces_and_unknown_titles_stay(rng):
    pieces = ["key", "{0}", "step"]
    figure = attention.lines_figure(rng.dirichlet(np.ones(3), (1, 1, 3)), pieces, pieces, "a {}")
    texts = [text.get_text() for text in figure.findobj(Text)]
    assert all(texts.count(piece) == 2 for piece in pieces) and "a {}" in texts


def test_english_is_back_after_chinese():
    picture_language.choose("en")
    assert picture_language.word("head {}", 3) == "head 3"


def test_unknown_language_is_refused_and_changes_nothing():
    with pytest.raises(ValueError, match="language must be one of .*, got 'de'"):
        picture_language.choose("de")
    assert picture_language.word("head {}", 3) == "第 3 个头"


def test_both_languages_have_the_same_values():
    for text, chinese in picture_language.CHINESE.items():
        assert re.findall("{.*?}", text) == re.findall("{.*?}", chinese), text

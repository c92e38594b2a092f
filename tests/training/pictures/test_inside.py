"""The pictures show what the model computes: attention, probabilities, the tree of a search."""

import numpy as np
import pytest
import tensorflow as tf
import tiny
from variants import make

import tfformer
from tfformer.inference.masks import behind_bos
from tfformer.layers.watcher import watched
from training.pictures import inside

SOURCE, TARGET = "a little house by the lake", "nobody in it"


@pytest.fixture(scope="module")
def translator():
    return tiny.make_translator(**tiny.SERVED, explain=True)


@pytest.fixture(scope="module")
def seen(translator):
    return inside.look_inside(translator.model, translator.tokenizer, SOURCE, TARGET)


def test_labels_are_the_pieces(seen, translator):
    def text(labels):
        return "".join(labels).replace("▁", " ").strip()

    assert text(seen.source) == f"{SOURCE}</s>" and text(seen.target) == f"{TARGET}</s>"
    assert seen.read == ["<s>", *seen.target[:-1]]
    assert len(seen.pieces) == len(seen.labels) == len(seen.log_probs)


def test_attention_is_that_of_the_layers(seen, translator):
    """By another route: the layers called one after the other."""
    model, tokenizer = translator.model, translator.tokenizer
    ids = tokenizer.encode_source([SOURCE]).to_tensor()
    x = model.source_positions(model.source_embedding(ids))
    first = model.encoder.layers[0].self_attention.attention_weights(x)
    np.testing.assert_allclose(seen.attention["encoder"][0], first[0], atol=1e-5)
    labels = tokenizer.encode_target([TARGET]).to_tensor()
    inputs = {"source_ids": ids, "target_ids": behind_bos(labels)}
    logits, cross = model.with_attention(inputs)
    np.testing.assert_allclose(seen.attention["cross"][0], cross[0][0], atol=1e-5)
    np.testing.assert_allclose(seen.log_probs, tf.nn.log_softmax(logits[0]), atol=1e-4)


@pytest.mark.parametrize("variant", ["paper", "relative, ada, one layer twice"])
def test_attention_is_recorded_by_kind_even_for_shared_layers(variant):
    """Three layers, one after the other; afterwards none is recorded."""
    model = make(variant)
    ids = np.array([[5, 6, 7, 8, 3]])
    with watched(model) as found:
        model({"source_ids": ids, "target_ids": ids[:, :3]})
    assert {kind: [x.shape[2:] for x in layers] for kind, layers in found.items()} == {
        "encoder": [(5, 5)], "decoder": [(3, 3)] * 2, "cross": [(3, 5)] * 2
    }  # fmt: skip
    model({"source_ids": ids, "target_ids": ids})
    assert len(found["cross"]) == 2


def test_watcher_is_removed_after_an_error():
    model = make()
    with pytest.raises(ValueError, match="inputs must be"), watched(model):
        model({"source_ids": np.array([[5]])})
    assert model.encoder.layers[0].self_attention.watcher is None


SEARCHES = {
    "plain": {},
    "alone": {"beam_width": 1},
    "ruled": {"length_penalty_form": "power", "min_length": 9, "no_repeat_ngram": 1},
}


@pytest.mark.slow
@pytest.mark.parametrize("options", SEARCHES.values(), ids=SEARCHES)
def test_best_path_of_the_search_tree_is_the_translation(translator, options):
    """Its best path is the translation, with any search rules."""
    own = tfformer.Translator(
        translator.model, translator.tokenizer, **tiny.SERVED, **options, explain=True
    )
    for text in tiny.sentences(5):
        tree = inside.search_tree(own, text)
        assert all(len(row) == own.beam_width for part in tree[:3] for row in part)
        names = own.tokenizer.pieces("target")
        ids = [names.index(tree.pieces[n][beam]) for n, beam in enumerate(tree.best)]
        (said,) = own.tokenizer.decode(tf.constant([ids])).numpy()
        assert said.decode() == own.translate([text])[0]
        for step in range(1, len(tree.best)):
            assert tree.parents[step][tree.best[step]] == tree.best[step - 1]


def test_position_vectors_exist_only_for_added_positions():
    assert inside.places(make()).shape == (64, 14)
    assert inside.places(make("learned")).shape == (13, 14)
    assert inside.places(make("rotary, rms, one head of keys")) is None

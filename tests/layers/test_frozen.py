"""Frozen layers stay frozen when a model is saved, loaded or cloned."""

import keras
import numpy as np
import pytest

import tfformer

IDS = np.array([[5, 4, 0], [7, 9, 3]])


def classifier():
    return keras.Sequential(
        [
            keras.Input([None], dtype="int32"),
            tfformer.TokenEmbedding(17, 22),
            tfformer.SinusoidalPositionalEncoding(22),
            tfformer.Encoder(num_layers=2, d_model=22, num_heads=2, d_ff=13),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(3),
        ]
    )


def saved(model, folder):
    model.save(folder / "model.keras")
    return keras.saving.load_model(folder / "model.keras")


def names(model):
    return [variable.path.split("/", 1)[1] for variable in model.trainable_variables]


@pytest.mark.slow
@pytest.mark.parametrize("again", [saved, lambda model, _: keras.models.clone_model(model)])
@pytest.mark.parametrize("part", ["all", "layer", "attention"])
def test_a_frozen_part_of_a_layer_stays_frozen(again, part, tmp_path):
    model = classifier()
    encoder = model.layers[2]
    inner = encoder.layers[1]
    {"all": encoder, "layer": inner, "attention": inner.self_attention}[part].trainable = False
    after = again(model, tmp_path)
    assert [v.shape for v in after.trainable_variables] == [
        v.shape for v in model.trainable_variables
    ]
    assert len(model.trainable_variables) == {"all": 3, "layer": 19, "attention": 27}[part]
    before = after.layers[2].get_weights()
    after.compile("sgd", "sparse_categorical_crossentropy")
    after.fit(IDS, np.array([1, 2]), verbose=0)
    trainable = {id(variable) for variable in after.layers[2].trainable_variables}
    moved = []
    for variable, old in zip(after.layers[2].weights, before, strict=True):
        if id(variable) in trainable:
            moved.append(not np.array_equal(variable.numpy(), old))
        else:
            np.testing.assert_array_equal(variable.numpy(), old)
    assert any(moved) == (part != "all")


def test_unbuilt_copy_keeps_its_frozen_layers():
    encoder = tfformer.Encoder(2, 12, 2, 13)
    encoder(np.ones((1, 3, 12), "float32"))
    encoder.layers[0].trainable = False
    config = encoder.get_config()
    unbuilt = tfformer.Encoder.from_config(config)
    assert unbuilt.get_config()["frozen"] == config["frozen"] == ["layer_0"]


def test_unfrozen_layer_is_trainable_again(tmp_path):
    model = classifier()
    model.layers[2].layers[0].trainable = False
    after = saved(model, tmp_path)
    assert len(after.trainable_variables) == 19
    after.layers[2].layers[0].trainable = True
    assert len(after.trainable_variables) == 35
    assert "frozen" not in after.layers[2].get_config()


@pytest.mark.slow
def test_a_frozen_part_of_a_model_stays_frozen(tmp_path):
    model = tfformer.Transformer(tfformer.TransformerConfig.preset("test", 17))
    model.encoder.trainable = False
    model.decoder.layers[0].feed_forward.trainable = False
    config = model.get_config()
    assert config["frozen"] == ["decoder/layer_0/feed_forward", "encoder"]
    after = saved(model, tmp_path)
    assert names(after) == names(model)
    assert not any(name.startswith("encoder/") for name in names(after))
    thawed = tfformer.Transformer(model.config)
    assert "frozen" not in thawed.get_config()
    assert len(names(thawed)) > len(names(after))

"""TransformerConfig: validated, frozen, the same after a round trip; presets have the paper's
sizes."""

import dataclasses
import json
import math

import numpy as np
import pytest

from tfformer.config import BOS, EOS, PAD, PRESETS, UNK, LanguageModelConfig, TransformerConfig


def test_special_ids_are_the_first_four():
    assert (PAD, UNK, BOS, EOS) == (0, 1, 2, 3)


def test_defaults_are_the_base_model_of_the_paper():
    config = TransformerConfig(37000)
    assert (config.num_encoder_layers, config.num_decoder_layers) == (6, 6)
    assert (config.d_model, config.num_heads, config.d_ff, config.dropout) == (512, 8, 2048, 0.1)
    assert (config.activation, config.norm, config.positions) == ("relu", "post", "sinusoidal")


def test_target_vocabulary_defaults_to_the_source_vocabulary():
    assert TransformerConfig(11).target_vocabulary_size == 11
    assert TransformerConfig(11, 13).target_vocabulary_size == 13


def test_config_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        TransformerConfig(11).d_model = 7


@pytest.mark.parametrize("name", PRESETS)
def test_dict_round_trip_through_json(name):
    config = TransformerConfig.preset(name, 101, norm="pre")
    assert TransformerConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_preset_takes_changes():
    config = TransformerConfig.preset("tiny", 101, dropout=0.0, d_ff=7)
    assert (config.dropout, config.d_ff, config.d_model) == (0.0, 7, 128)


def test_big_preset_has_the_sizes_of_the_paper():
    config = TransformerConfig.preset("big", 37000)
    assert (config.d_model, config.d_ff, config.num_heads, config.dropout) == (1024, 4096, 16, 0.3)
    assert (config.num_encoder_layers, config.num_decoder_layers) == (6, 6)


def test_tiny_is_the_published_multi30k_model():
    config = TransformerConfig.preset("tiny", 8000)
    assert (config.d_model, config.d_ff, config.num_heads, config.dropout) == (128, 256, 4, 0.3)
    assert (config.num_encoder_layers, config.num_decoder_layers) == (4, 4)
    assert config.tie_embeddings == "all"


def test_error_names_an_unknown_field():
    with pytest.raises(ValueError, match="depth"):
        TransformerConfig.from_dict({"source_vocabulary_size": 11, "depth": 3})


def test_error_names_an_unknown_preset():
    with pytest.raises(ValueError, match="name must be one of .*'base'.*'huge'"):
        TransformerConfig.preset("huge", 11)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("source_vocabulary_size", 4),
        ("target_vocabulary_size", 0),
        ("num_encoder_layers", 0),
        ("num_decoder_layers", -1),
        ("num_encoder_layers", 2.0),
        ("num_encoder_layers", True),
        ("d_model", 1),
        ("d_model", "512"),
        ("num_heads", 0),
        ("num_heads", 3),
        ("d_ff", 0),
        ("max_positions", 0),
        ("dropout", 1.0),
        ("dropout", -0.1),
        ("dropout", float("nan")),
        ("dropout", "0.1"),
        ("attention_dropout", 1.0),
        ("epsilon", 1),
        ("activation", "tanh"),
        ("norm", "both"),
        ("positions", "rotary"),
        ("tie_embeddings", True),
        ("normalization", "group"),
        ("attention_positions", "sinusoidal"),
        ("num_key_value_heads", 0),
        ("num_key_value_heads", 3),
        ("unique_layers", 0),
        ("rotary_base", 0.5),
        ("rotary_factor", float("inf")),
        ("rotary_length", 0),
        ("residual", None),
        ("share_halves", 1),
    ],
)
def test_bad_value_is_refused_with_argument_and_value(field, value):
    with pytest.raises(ValueError) as error:
        TransformerConfig(**{"source_vocabulary_size": 11, field: value})
    assert field in str(error.value)
    assert repr(value) in str(error.value)


def test_sinusoidal_positions_need_an_even_width():
    with pytest.raises(ValueError, match="even.*d_model=15"):
        TransformerConfig(11, d_model=15, num_heads=3)
    assert TransformerConfig(11, d_model=15, num_heads=3, positions="learned").d_model == 15


def test_rotary_positions_need_heads_of_an_even_width():
    sizes = {"d_model": 14, "attention_positions": "rotary"}
    with pytest.raises(ValueError, match="even multiple .* d_model=14 and num_heads=2"):
        TransformerConfig(11, num_heads=2, **sizes)
    assert TransformerConfig(11, num_heads=7, **sizes).attention_positions == "rotary"


def test_batch_normalization_with_unique_layers_is_refused():
    with pytest.raises(ValueError, match="unique_layers must be None with normalization='batch'"):
        TransformerConfig(11, normalization="batch", unique_layers=1)


def test_location_width_is_refused_for_a_language_model():
    with pytest.raises(ValueError, match="location_width must be 0 for a model with one stack"):
        LanguageModelConfig(11, location_width=3)


def test_key_value_heads_and_width_follow_num_key_value_heads():
    config = TransformerConfig(11, d_model=24, num_heads=6)
    assert (config.key_value_heads, config.key_value_width) == (6, 24)
    config = TransformerConfig(11, d_model=24, num_heads=6, num_key_value_heads=2)
    assert (config.key_value_heads, config.key_value_width) == (2, 8)


def test_tying_all_embeddings_needs_one_vocabulary_size():
    with pytest.raises(ValueError, match="source_vocabulary_size=11.*target_vocabulary_size=13"):
        TransformerConfig(11, 13, tie_embeddings="all")
    assert TransformerConfig(11, 13, tie_embeddings="target").target_vocabulary_size == 13


def test_longest_sequence_is_max_positions_for_learned_positions():
    assert TransformerConfig(37).longest == math.inf
    assert TransformerConfig(37, positions="learned", max_positions=17).longest == 17


def test_numpy_numbers_are_accepted():
    config = TransformerConfig(
        np.int64(37), d_model=np.int32(8), num_heads=2, dropout=np.float32(0.5)
    )
    assert config == TransformerConfig(37, d_model=8, num_heads=2, dropout=0.5)
    assert json.loads(json.dumps(config.to_dict())) == config.to_dict()


def test_sizes_must_be_given_by_name():
    with pytest.raises(TypeError, match="positional arguments"):
        TransformerConfig(37, 41, 2, 3)

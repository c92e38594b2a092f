"""The inference pass equals the layers: encoder, whole decoder, and one step at a time."""

import functools

import numpy as np
import oracle
import pytest
import tensorflow as tf
from walk import steps

from tfformer import Transformer, TransformerConfig
from tfformer.inference.fuse import fuse
from tfformer.inference.transformer import Inference
from tfformer.search import beam_search

B, S, T, W, V = 3, 5, 7, 2, 37
VARIANTS = {
    "paper": {},
    "other vocabularies, a last norm": {
        "tie_embeddings": "target",
        "target_vocabulary_size": 31,
        "last_norm": True,
        "epsilon": 1e-3,
    },
    "untied, pre-norm": {
        "tie_embeddings": "none",
        "target_vocabulary_size": 31,
        "norm": "pre",
        "activation": "gelu",
    },
    "learned, swiglu": {"positions": "learned", "max_positions": 23, "activation": "swiglu"},
    "pre-norm, silu": {"norm": "pre", "activation": "silu"},
    "copying": {"copy": True},
    "copying, eos unseen": {"copy": True, "source_eos": False},
    "biased": {"output_bias": True, "tie_embeddings": "target", "target_vocabulary_size": 31},
    "copying, biased": {"output_bias": True, "tie_embeddings": "all", "copy": True},
    "rotary, one head of keys": {
        "positions": "none", "attention_positions": "rotary", "num_key_value_heads": 1,
        "normalization": "rms", "norm": "pre",
    },
    "alibi, no residual, two layers in turn": {
        "positions": "none", "attention_positions": "alibi", "normalization": "simple",
        "residual": False, "num_heads": 4, "num_key_value_heads": 2, "unique_layers": 2,
        "num_encoder_layers": 2, "num_decoder_layers": 3,
    },
    "relative, one layer for all": {
        "attention_positions": "relative", "normalization": "ada", "unique_layers": 1,
        "tie_embeddings": "all", "num_encoder_layers": 2,
    },
    "a norm after the embeddings": {"embedding_norm": True, "tie_embeddings": "all"},
    "batch": {"normalization": "batch", "norm": "pre"},
    "no biases, swiglu": {"use_bias": False, "activation": "swiglu", "normalization": "rms"},
    "location-aware": {"location_width": 5, "num_key_value_heads": 1},
    "one half for both": {"share_halves": True, "norm": "pre", "attention_positions": "relative"},
    # Rows of a multiple of 2 KiB, which are stored wider.
    "512 wide, swiglu": {"d_model": 512, "num_heads": 2, "d_ff": 512, "activation": "swiglu"},
    "512 wide, tied": {"source_vocabulary_size": 512, "target_vocabulary_size": 512},
    "256 wide, gated": {"d_ff": 256, "activation": "swiglu"},
    "512 wide, untied": {"d_ff": 512, "tie_embeddings": "none", "target_vocabulary_size": 512},
}  # fmt: skip
variants = pytest.mark.parametrize("variant", VARIANTS)


def make(variant, dtype=None):
    sizes = {
        "source_vocabulary_size": V,
        "target_vocabulary_size": V,
        "num_encoder_layers": 1,
        "num_decoder_layers": 2,
        "d_model": 20,
        "num_heads": 5,
        "d_ff": 11,
    }
    return Transformer(TransformerConfig(**{**sizes, **VARIANTS[variant]}), dtype=dtype)


@pytest.fixture(scope="module")
def model_of():
    """One model for each variant; the tests do not change them.

    All weights are changed, but so little that no LayerNorm divides by a small number and no
    softmax saturates.
    """

    @functools.cache
    def run(variant):
        model, rng = make(variant), np.random.default_rng(7)
        scale = 0.4 / model.config.d_model**0.5
        for variable in model.trainable_variables:
            variable.assign(variable + rng.normal(scale=scale, size=variable.shape))
        for variable in model.non_trainable_variables:
            if variable.name == "moving_mean":
                variable.assign(rng.normal(scale=scale, size=variable.shape))
            if variable.name == "moving_variance":
                variable.assign(rng.uniform(3, 9, size=variable.shape))
        return model

    return run


@pytest.fixture
def source_ids(rng):
    ids = rng.integers(4, V, (B, S)).astype("int32")
    ids[1, 3:] = 0
    return ids


@pytest.fixture
def beams(rng):
    """int32 [B, W, T], each with bos in front."""
    ids = rng.integers(4, 31, (B, W, T)).astype("int32")
    ids[:, :, 0] = 2
    return ids


@variants
def test_decode_and_attention_equal_the_model(variant, source_ids, beams, model_of):
    model = model_of(variant)
    inference = Inference(*fuse(model, T))
    inputs = {"source_ids": source_ids, "target_ids": beams[:, 0].copy()}
    inputs["target_ids"][2, 4:] = 0
    memory = inference.memory(tf.constant(source_ids))
    logits, attention = inference.decode(tf.constant(inputs["target_ids"]), memory)
    assert logits.shape == (B, T, model.config.target_vocabulary_size)
    oracle.assert_close(logits, model(inputs))
    expected = model.cross_attention_weights(inputs)[-1].numpy().mean(axis=1)
    assert attention.shape == (B, T, S)
    oracle.assert_close(attention, expected)
    for layer, keys in zip(model.decoder.layers, memory["keys"], strict=True):
        expected, _ = layer.cross_attention.keys_and_values(model.encode(source_ids))
        real = (source_ids != 0)[:, None, :, None]
        oracle.assert_close(keys * real, expected * real)


@variants
def test_steps_equal_the_whole_model_when_beams_are_permuted(
    variant, source_ids, beams, model_of, rng
):
    model = model_of(variant)
    inference = Inference(*fuse(model, T))
    places = np.array([rng.permutation(W) for _ in range(T)])
    logits = steps(inference, source_ids, beams, places)
    for w in range(W):
        whole = model({"source_ids": source_ids, "target_ids": beams[:, w]})
        oracle.assert_close(logits[:, w], whole)


def test_a_step_sees_neither_the_future_nor_other_hypotheses(source_ids, beams, model_of):
    model = model_of("paper")
    inference = Inference(*fuse(model, T))
    places = np.tile(np.arange(W), (T, 1))
    changed = beams.copy()
    changed[:, 0, 4:], changed[:, 1] = 4, 5
    logits = steps(inference, source_ids, beams, places)[:, 0]
    others = steps(inference, source_ids, changed, places)[:, 0]
    np.testing.assert_array_equal(logits[:, :4], others[:, :4])
    assert (logits[:, 4] != others[:, 4]).any()


def test_appended_padding_changes_nothing(source_ids, beams, model_of):
    model = model_of("paper")
    inference = Inference(*fuse(model, T))
    padded = np.pad(source_ids, [[0, 0], [0, T - S]])
    target_ids = tf.constant(beams[:, 0])
    logits, _ = inference.decode(target_ids, inference.memory(tf.constant(source_ids)))
    others, _ = inference.decode(target_ids, inference.memory(tf.constant(padded)))
    oracle.assert_close(logits, others)


def test_bfloat16_logits_are_float32_and_close_to_the_model(source_ids, beams):
    model = make("paper")
    inference = Inference(*fuse(model, T, "bfloat16"))
    places = np.tile(np.arange(W), (T, 1))
    logits = steps(inference, source_ids, beams, places)[:, 0]
    whole = model({"source_ids": source_ids, "target_ids": beams[:, 0]}).numpy()
    assert logits.dtype == np.float32
    assert np.abs(logits - whole).max() < 0.05 * np.abs(whole).max()


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_fused_weights_have_the_size_of_the_model_plus_positions(policy):
    model = make("paper", policy)
    weights = tf.nest.flatten(fuse(model, T, "float32")[1])
    table = T * model.config.d_model
    assert sum(w.shape.num_elements() for w in weights) == model.count_params() + table
    assert {w.dtype for w in weights} == {tf.float32}


def test_no_matrix_is_stored_in_rows_of_a_multiple_of_2_kib():
    """Such a product takes twice as long, and all rows of the paper's base model have such a
    size."""
    layers = {"num_encoder_layers": 1, "num_decoder_layers": 1}
    for change in ({}, {"d_ff": 256, "activation": "swiglu"}):
        config = TransformerConfig.preset("base", 512, **layers, **change)
        _, weights = fuse(Transformer(config), T)
        matrices = [w for w in tf.nest.flatten(weights) if w.shape.rank == 2 and w.shape[0] != T]
        assert len(matrices) == 12
        assert all(4 * matrix.shape[1] % 2048 for matrix in matrices)


@pytest.mark.slow
def test_search_loop_is_stateless_and_parallel():
    """If a loop had a stateful operation, its iterations would run one after the other."""
    model = make("paper")

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)])
    def search(source_ids):
        inference = Inference(*fuse(model, T))
        state = inference.start(source_ids, W)
        return beam_search(inference.step, state, tf.shape(source_ids)[0], T, W).token_ids

    operations = search.get_concrete_function().graph.get_operations()
    (loop,) = [operation for operation in operations if "While" in operation.type]
    assert loop.type == "StatelessWhile"
    assert loop.get_attr("parallel_iterations") > 1

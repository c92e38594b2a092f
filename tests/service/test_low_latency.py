"""`low_latency` gives the same answers; one text has its own graph."""

import collections
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from served_table import LIMITS, TEXTS
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel
from words import FEW_LAYERS, make_model, make_shortlist

from export.verification.graph import read_graph
from tfformer import Transformer, TransformerConfig, Translator
from tfformer.inference import low_latency
from tfformer.inference.fuse import fuse
from tfformer.inference.transformer import Inference

KINDS = {
    "options": {
        **FEW_LAYERS,
        "norm": "pre",
        "num_key_value_heads": 1,
        "output_bias": True,
        "activation": "swiglu",
    },
    "one embedding": {**FEW_LAYERS, "tie_embeddings": "all", "unique_layers": 1},
    "ensemble": FEW_LAYERS,
    "shortlist": FEW_LAYERS,
}


@pytest.fixture(scope="module", params=KINDS)
def saved(request, tokenizer, tmp_path_factory):
    """A translator, and the folder where it was saved."""
    others, short, options = [], None, KINDS[request.param]
    if "tie_embeddings" in options:
        tokenizer = type(tokenizer)(tokenizer.source_model, tokenizer.source_model)
        model = Transformer(
            TransformerConfig.preset("test", tokenizer.source_vocabulary_size, **options)
        )
    else:
        model = make_model(tokenizer, **options)
    if request.param == "ensemble":
        other = {**FEW_LAYERS, "d_ff": 23, "num_decoder_layers": 1}
        others = [Translator(make_model(tokenizer, seed=17, **other), tokenizer)]
    if request.param == "shortlist":
        short = make_shortlist(tokenizer)
    options = {"ensemble": others, "shortlist": short, **LIMITS}
    translator = Translator(model, tokenizer, low_latency=True, **options)
    folder = tmp_path_factory.mktemp("constants") / "model"
    translator.save(str(folder), ["serving_default"])
    return translator, folder


@pytest.mark.slow
def test_saved_answers_for_one_or_several_texts_equal_the_translator(saved):
    translator, folder = saved
    served = tf.saved_model.load(str(folder)).signatures["serving_default"]
    for texts in ([text] for text in TEXTS), [TEXTS], [[]]:
        for asked in texts:
            asked = tf.constant(asked, tf.string)
            found = served(text=asked)
            for name, value in translator.functions["serving_default"](asked).items():
                if value.dtype == tf.float32:
                    np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5)
                else:
                    np.testing.assert_array_equal(found[name], value)


def constants(folder):
    """{shape: how many products have a constant matrix of it}, over all functions."""
    parsed = SavedModel.FromString(Path(folder, "saved_model.pb").read_bytes())
    found = collections.Counter()
    for function in parsed.meta_graphs[0].graph_def.library.function:
        nodes = {node.name: node for node in function.node_def}
        for node in nodes.values():
            second = nodes.get(node.input[1].split(":")[0]) if node.op == "MatMul" else None
            if second is not None and second.op == "Const":
                shape = second.attr["value"].tensor.tensor_shape.dim
                found[tuple(dim.size for dim in shape)] += 1
    return found


def of_each_step(config):
    """The shapes of the matrices that a decoder step multiplies by, as stored: by hand."""
    d, inner, size = config.d_model, config.d_ff, config.target_vocabulary_size
    keys = d // config.num_heads * (config.num_key_value_heads or config.num_heads)
    gated = 2 if config.activation == "swiglu" else 1
    layer = [(d, d + 2 * keys), *[(d, d)] * 3, (d, gated * inner), (inner, d)]
    layers = config.num_decoder_layers
    return [*layers * layer, (d, size)]


def test_each_step_matrix_is_stored_once_as_a_constant(saved):
    translator, folder = saved
    of_each = collections.Counter()
    for model in translator.models:
        of_each.update(of_each_step(model.config))
    if translator.shortlist is not None:  # a request chooses the columns of the output matrix
        del of_each[model.config.d_model, model.config.target_vocabulary_size]
    assert constants(folder) == of_each and of_each.total() > 10


def test_saved_graph_has_only_stock_operations(saved):
    _, folder = saved
    graph = read_graph(folder)
    assert graph.xla_ops() == graph.custom_ops() == graph.python_ops() == []


def test_without_low_latency_no_matrix_is_a_constant(tokenizer, model, tmp_path):
    Translator(model, tokenizer, **LIMITS).save(str(tmp_path / "model"), ["serving_default"])
    assert not constants(tmp_path / "model")


@pytest.mark.parametrize("other", ["xla", "beam_width", "dtype"])
def test_low_latency_is_refused_with_xla_width_1_or_bfloat16(model, tokenizer, other):
    given = {"xla": True, "beam_width": 1, "dtype": "bfloat16"}[other]
    with pytest.raises(ValueError, match=f"low_latency must be False with {other}.*, got True"):
        Translator(model, tokenizer, low_latency=True, **{other: given})


def test_few_rows_form_equals_the_usual_form(model, tokenizer, rng):
    """All positions at once, and one step of a search."""
    source_ids = rng.integers(4, tokenizer.source_vocabulary_size, (2, 7)).astype("int32")
    target_ids = rng.integers(4, tokenizer.target_vocabulary_size, (2, 5)).astype("int32")
    found = []
    for few_rows in (False, True):
        inference = Inference(*fuse(model, 11, "float32", few_rows))
        logits, attention = inference.decode(target_ids, inference.memory(source_ids))
        state = inference.start(source_ids, 3)
        own = np.broadcast_to(np.eye(3, dtype=bool)[:, None], (2, 3, 1, 3))
        step = inference.step(target_ids[:, :3], 0, own, state)
        found.append([logits, attention, step.logits])
    for mine, other in zip(*found, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-5)


def test_replacement_operations_equal_tensorflow(rng):
    a, b = (tf.constant(rng.normal(size=(2, 3, 5, 7)), tf.float32) for _ in range(2))
    np.testing.assert_array_equal(
        low_latency.transposed(a, [3, 0, 2, 1]), tf.transpose(a, [3, 0, 2, 1])
    )
    found = low_latency.product(a, b, transpose_b=True)
    assert found.shape == (2, 3, 5, 5)
    np.testing.assert_allclose(found, tf.matmul(a, b, transpose_b=True), rtol=1e-5, atol=1e-5)
    hidden = a + tf.constant([0.0] * 5 + [-1e9] * 2)
    np.testing.assert_allclose(low_latency.softmax(hidden), tf.nn.softmax(hidden), atol=1e-6)


def test_too_large_constants_are_refused(model, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(low_latency, "LARGEST", 17)
    translator = Translator(model, tokenizer, low_latency=True, **LIMITS)
    with pytest.raises(ValueError, match="low_latency must be False of matrices of more than 17 b"):
        translator.save(str(tmp_path / "model"))
    assert not (tmp_path / "model").exists()


def test_low_latency_is_chosen_only_for_small_matrices(model, tokenizer, monkeypatch):
    def chosen(**options):
        translator = Translator(model, tokenizer, **{**LIMITS, **options})
        translator.choose_form()
        return translator.low_latency

    assert chosen() and not chosen(beam_width=1) and not chosen(dtype="bfloat16")
    monkeypatch.setattr("tfformer.service.translator.SMALL", 17)
    assert not chosen()


def test_constant_bytes_equal_the_matrices_of_a_step(model):
    expected = 4 * sum(rows * columns for rows, columns in of_each_step(model.config))
    assert low_latency.constant_bytes(fuse(model, 7)[1]) == expected

"""int8: integer products of large matrices, in NumPy and on each kind of processor."""

import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from served_table import LIMITS, TEXTS
from words import FEW_LAYERS, make_model, make_shortlist

from export.capi.job import serve_calls
from export.verification.graph import read_graph
from tfformer import Transformer, TransformerConfig, Translator
from tfformer.inference import int8


def served_product(kernel):
    """A function that multiplies rows by the matrix, which is a variable."""
    parts = {name: tf.Variable(value) for name, value in int8.quantized(kernel).items()}
    return tf.function(lambda x: int8.product(x, parts), autograph=False), parts


def test_product_equals_the_integer_product(rng):
    x, kernel = rng.normal(size=(5, 70)), rng.normal(size=(70, 33)) * rng.exponential(size=33)
    rows = np.rint(x / np.abs(x).max(1, keepdims=True) * 127).astype(int)
    matrix = np.rint(kernel / np.abs(kernel).max(0) * 63).astype(int)
    factors = np.abs(x).max(1, keepdims=True) * np.abs(kernel).max(0) / (127 * 63)
    product, parts = served_product(tf.constant(kernel, tf.float32))
    np.testing.assert_array_equal(parts["int8"].numpy(), matrix)
    found = product(tf.constant(x, tf.float32))
    np.testing.assert_allclose(found, rows @ matrix * factors, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found, x @ kernel, atol=0.02 * np.abs(x @ kernel).max())


def test_a_row_does_not_depend_on_the_others(rng):
    x = tf.constant(rng.normal(size=(9, 40)) * 10.0 ** np.arange(-4, 5)[:, None], tf.float32)
    product, _ = served_product(tf.constant(rng.normal(size=(40, 24)), tf.float32))
    alone = tf.concat([product(row[None]) for row in x], axis=0)
    np.testing.assert_array_equal(product(x), alone)


def test_zeros_stay_zeros():
    kernel = tf.constant([[1.0, 0.0], [-2.0, 0.0]])
    product, _ = served_product(kernel)
    np.testing.assert_allclose(product([[0.0, 0.0], [3.0, 0.0]]), [[0, 0], [3, 0]], atol=0.05)


def test_columns_are_close_to_those_of_the_matrix(rng):
    kernel = tf.constant(rng.normal(size=(40, 24)), tf.float32)
    ids = tf.constant([3, 23, 3])
    found = int8.columns(int8.quantized(kernel), ids)
    np.testing.assert_allclose(found, tf.gather(kernel, ids, axis=1), atol=0.03)


LARGEST = """
import numpy as np, tensorflow as tf
from tfformer.inference import int8
parts = {name: tf.Variable(value) for name, value in int8.quantized(tf.ones([600, 32])).items()}
product = tf.function(lambda x: int8.product(x, parts), autograph=False)
for sign in 1, -1:
    np.testing.assert_allclose(product(tf.fill([3, 600], 1.0 * sign)), 600.0 * sign, rtol=1e-5)
"""


@pytest.mark.slow
def test_the_largest_values_do_not_overflow_on_older_processors():
    """Without VNNI, two products of 8 bits are added in 16 bits."""
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2", "PYTHONPATH": os.getcwd()}
    done = subprocess.run([sys.executable, "-c", LARGEST], env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


@pytest.fixture(params=["one embedding", "ensemble", "low latency", "low latency, shortlist"])
def translator(request, tokenizer, monkeypatch):
    """A translator in int8 for which each matrix counts as large."""
    monkeypatch.setattr(int8, "MINIMUM_SIZE", 1)
    options = {"dtype": "int8", **LIMITS}
    if request.param == "one embedding":
        tokenizer = type(tokenizer)(tokenizer.source_model, tokenizer.source_model)
        size = tokenizer.source_vocabulary_size
        config = TransformerConfig.preset("test", size, **FEW_LAYERS, tie_embeddings="all")
        return Translator(Transformer(config), tokenizer, **options)
    model = make_model(tokenizer, **FEW_LAYERS)
    if request.param == "low latency":
        return Translator(model, tokenizer, low_latency=True, **options)
    if request.param == "low latency, shortlist":
        short = make_shortlist(tokenizer)
        return Translator(model, tokenizer, low_latency=True, shortlist=short, **options)
    other = Translator(make_model(tokenizer, seed=17, **FEW_LAYERS), tokenizer)
    return Translator(model, tokenizer, ensemble=[other], **options)


@pytest.mark.slow
def test_served_int8_answers_equal_this_process(translator, tmp_path):
    folder = tmp_path / "model"
    translator.save(str(folder), ["serving_default"])
    graph = read_graph(folder)
    assert graph.custom_ops() == graph.xla_ops() == graph.python_ops() == []
    assert graph.ops[int8.OPERATION].total() > 5
    signature = graph.signatures["serving_default"]
    outputs = {name: info.name for name, info in signature.outputs.items()}
    requests = [TEXTS[:1], TEXTS]
    feed = signature.inputs["text"].name
    calls = [
        ({feed: np.array([text.encode() for text in texts], object)}, [*outputs.values()])
        for texts in requests
    ]
    for texts, answer in zip(requests, serve_calls(folder, calls), strict=True):
        here = translator.functions["serving_default"](tf.constant(texts))
        for name, value in here.items():
            if value.dtype == tf.float32:
                np.testing.assert_allclose(answer[outputs[name]], value, rtol=1e-3, atol=1e-3)
            else:
                np.testing.assert_array_equal(answer[outputs[name]], value)


def test_scores_are_close_to_those_in_float32(translator):
    model, tokenizer = translator.model, translator.tokenizer
    others = [Translator(one, tokenizer) for one in translator.models[1:]]
    exact = Translator(model, tokenizer, ensemble=others, **LIMITS)
    texts = tf.constant(TEXTS)
    found, expected = (
        one.functions["score"](texts, texts)["log_prob"] for one in (translator, exact)
    )
    assert (found != expected).numpy().any()
    np.testing.assert_allclose(found, expected, rtol=0.02)


def test_int8_is_refused_with_xla_or_small_matrices(model, tokenizer):
    with pytest.raises(ValueError, match="dtype must not be 'int8' with xla, got 'int8'"):
        Translator(model, tokenizer, dtype="int8", xla=True)
    small = Translator(model, tokenizer, dtype="int8")
    with pytest.raises(ValueError, match="without a matrix of 100,000 numbers"):
        small.translate(["a"])

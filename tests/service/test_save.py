"""A saved translator gives the same answers, and a stock server can run it."""

import math

import numpy as np
import pytest
import tensorflow as tf
import tiny
from served_table import arguments, signatures
from tiny import sentences

from tfformer.inference.fuse import fuse

TEXTS = sentences(5, 3)


@pytest.fixture(scope="module")
def saved_directory(served_model):
    return served_model / "1"


@pytest.fixture(scope="module")
def saved(saved_directory):
    return tf.saved_model.load(str(saved_directory))


@pytest.mark.parametrize("text", ["a scalar", [["a", "matrix"]]])
def test_a_text_of_another_rank_is_refused(saved, text):
    with pytest.raises((TypeError, ValueError, tf.errors.InvalidArgumentError)):
        saved.signatures["serving_default"](text=tf.constant(text))


@pytest.fixture(scope="module")
def meta_graph(saved_directory):
    from tensorflow.core.protobuf import saved_model_pb2

    content = (saved_directory / "saved_model.pb").read_bytes()
    (graph,) = saved_model_pb2.SavedModel.FromString(content).meta_graphs
    return graph


@signatures
def test_a_saved_signature_gives_the_same(saved, translator_served, meta_graph, name):
    function = translator_served.functions[name]
    names = [spec.name for spec in function.input_signature]
    values = [tf.constant(x) for x in arguments(name, translator_served.tokenizer, TEXTS)]
    # Python's loader omits the default values, which a server fills in.
    defaults = {
        key: tf.constant(tf.make_ndarray(value))
        for key, value in meta_graph.signature_def[name].defaults.items()
    }
    given = dict(zip(names, values, strict=False))
    found = saved.signatures[name](**{**defaults, **given})
    expected = function(*values)
    assert set(found) == set(expected)
    for key, value in expected.items():
        if value.dtype == np.float32:
            np.testing.assert_allclose(found[key], value, rtol=1e-5, atol=1e-6)
        else:
            np.testing.assert_array_equal(found[key], value)


def test_the_saved_root_holds_no_keras_object_and_each_weight_once(
    meta_graph, saved_directory, translator_served
):
    model, maximum = translator_served.model, tiny.SERVED["max_source_length"]
    nodes = meta_graph.object_graph_def.nodes
    identifiers = {node.user_object.identifier for node in nodes if node.HasField("user_object")}
    assert identifiers
    assert not [identifier for identifier in identifiers if "keras" in identifier]
    stored = tf.train.list_variables(str(saved_directory / "variables" / "variables"))
    sizes = sorted(tuple(shape) for name, shape in stored if "VARIABLE_VALUE" in name)
    weights = tf.nest.flatten(fuse(model, maximum)[1])
    assert sizes == sorted(tuple(weight.shape) for weight in weights)
    table = maximum * model.config.d_model
    assert sum(map(math.prod, sizes)) == model.count_params() + table


def test_the_saved_graph_has_no_op_that_a_stock_server_lacks(meta_graph):
    functions = meta_graph.graph_def.library.function
    ops = {node.op for function in functions for node in function.node_def}
    assert not ops & {"PyFunc", "PyFuncStateless", "EagerPyFunc", "XlaLaunch"}
    compiled = [f.signature.name for f in functions if f.attr["_XlaMustCompile"].b]
    assert not compiled


def test_existing_model_directory_is_not_overwritten(translator_served, saved_directory):
    before = (saved_directory / "saved_model.pb").read_bytes()
    with pytest.raises(FileExistsError, match=str(saved_directory)):
        translator_served.save(str(saved_directory))
    assert (saved_directory / "saved_model.pb").read_bytes() == before

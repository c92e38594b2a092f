"""What a translator writes: it answers the same, and a stock server can run it."""

import math

import numpy as np
import pytest
import tensorflow as tf
from served_table import ALPHA, MAX_SOURCE, SIGNATURES, WIDTH, arguments, signatures

from tfformer.inference.fuse import fuse


@pytest.mark.parametrize("text", ["a scalar", [["a", "matrix"]]])
def test_a_text_of_another_rank_is_refused(saved, text):
    with pytest.raises((TypeError, ValueError, tf.errors.InvalidArgumentError)):
        saved.signatures["serving_default"](text=tf.constant(text))


@pytest.fixture(scope="module")
def saved_directory(translator, tmp_path_factory):
    directory = tmp_path_factory.mktemp("saved") / "1"
    translator.save(str(directory))
    return directory


@pytest.fixture(scope="module")
def saved(saved_directory):
    return tf.saved_model.load(str(saved_directory))


@pytest.fixture(scope="module")
def meta_graph(saved_directory):
    from tensorflow.core.protobuf import saved_model_pb2

    content = (saved_directory / "saved_model.pb").read_bytes()
    (graph,) = saved_model_pb2.SavedModel.FromString(content).meta_graphs
    return graph


@signatures
def test_a_saved_signature_gives_the_same(saved, served, tokenizer, translator, meta_graph, name):
    names = [spec.name for spec in translator.functions[name].input_signature]
    values = [tf.constant(x) for x in arguments(name, tokenizer)]
    # Python's loader leaves out the default values, which a server fills in.
    defaults = {
        key: tf.constant(tf.make_ndarray(value))
        for key, value in meta_graph.signature_def[name].defaults.items()
    }
    given = dict(zip(names, values, strict=False))
    found = saved.signatures[name](**{**defaults, **given})
    assert set(found) == set(served[name])
    for key, value in served[name].items():
        if value.dtype == np.float32:
            np.testing.assert_allclose(found[key], value, rtol=1e-5, atol=1e-6)
        else:
            np.testing.assert_array_equal(found[key], value)


def test_defaults_of_the_options_are_written_into_the_signatures(meta_graph):
    search = {"beam_width": WIDTH, "length_penalty": ALPHA, "max_length": 0, "min_length": 0}
    search |= {"max_length_factor": 0, "coverage_penalty": 0}
    search |= {"repetition_penalty": 1, "no_repeat_ngram": 0}
    sample = {"seed": 0, "temperature": 1, "top_k": 0, "top_p": 1, "max_length": 0}
    expected = {"beam_search": search, "beam_search_ids": search, "sample": sample}
    for name in SIGNATURES:
        defaults = meta_graph.signature_def[name].defaults
        values = {key: float(tf.make_ndarray(value)) for key, value in defaults.items()}
        assert values == pytest.approx(expected.get(name, {}))


def test_the_saved_root_holds_no_keras_object_and_each_weight_once(
    meta_graph, saved_directory, model
):
    nodes = meta_graph.object_graph_def.nodes
    identifiers = {node.user_object.identifier for node in nodes if node.HasField("user_object")}
    assert identifiers
    assert not [identifier for identifier in identifiers if "keras" in identifier]
    stored = tf.train.list_variables(str(saved_directory / "variables" / "variables"))
    sizes = sorted(tuple(shape) for name, shape in stored if "VARIABLE_VALUE" in name)
    weights = tf.nest.flatten(fuse(model, MAX_SOURCE)[1])
    assert sizes == sorted(tuple(weight.shape) for weight in weights)
    table = MAX_SOURCE * model.config.d_model
    assert sum(map(math.prod, sizes)) == model.count_params() + table


def test_the_saved_graph_has_no_op_that_a_stock_server_lacks(meta_graph):
    functions = meta_graph.graph_def.library.function
    ops = {node.op for function in functions for node in function.node_def}
    assert not ops & {"PyFunc", "PyFuncStateless", "EagerPyFunc", "XlaLaunch"}
    compiled = [f.signature.name for f in functions if f.attr["_XlaMustCompile"].b]
    assert not compiled


def test_a_directory_that_holds_a_model_is_not_written_over(translator, saved_directory):
    before = (saved_directory / "saved_model.pb").read_bytes()
    with pytest.raises(FileExistsError, match=str(saved_directory)):
        translator.save(str(saved_directory))
    assert (saved_directory / "saved_model.pb").read_bytes() == before

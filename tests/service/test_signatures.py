"""The table of signatures: names, dtypes, shapes, and what each refuses."""

import pytest
import tensorflow as tf
from search_oracle import EOS
from served_table import MAX_SOURCE, MAX_TARGET, SIGNATURES, WIDTH, B, arguments, signatures


def test_translator_has_exactly_the_listed_signatures(translator):
    assert set(translator.functions) == set(SIGNATURES)


@signatures
def test_inputs_and_outputs_have_their_names_dtypes_and_shapes(translator, served, name):
    inputs, outputs = SIGNATURES[name]
    specs = translator.functions[name].input_signature
    assert {spec.name: spec.dtype.name for spec in specs} == inputs
    for spec in specs:
        rank = 2 if spec.name == "source_ids" else int(spec.dtype == tf.string)
        assert spec.shape.as_list() == [None] * rank
    assert set(served[name]) == set(outputs)
    for key, (dtype, rank) in outputs.items():
        value = served[name][key]
        assert value.ndim == rank
        assert value.shape[0] == B
        assert value.dtype == (object if dtype == "string" else dtype), key


def test_output_shapes_share_the_documented_dimensions(served):
    for name in ("beam_search", "beam_search_ids"):
        found = served[name]
        assert found["scores"].shape == found["lengths"].shape == (B, WIDTH)
        assert found["token_ids"].shape[:2] == (B, WIDTH)
        assert found["token_ids"].shape[2] <= MAX_TARGET
    assert served["beam_search"]["translations"].shape == (B, WIDTH)
    align = served["align"]
    expected = (B, align["target_tokens"].shape[1], align["source_tokens"].shape[1])
    assert align["attention"].shape == expected


@signatures
def test_empty_batch_gives_empty_outputs(serve, name):
    given = sum(n in ("text", "source", "target", "prefix") for n in SIGNATURES[name][0])
    inputs = [tf.zeros([0, 3], tf.int32)] if name == "beam_search_ids" else [[]] * given
    for value in serve(name, *inputs).values():
        assert value.shape[0] == 0


@pytest.mark.parametrize(
    "name, option, value",
    [
        ("beam_search", "beam_width", 0),
        ("beam_search", "beam_width", -1),
        ("beam_search", "beam_width", 65),
        ("beam_search", "length_penalty", -0.1),
        ("beam_search", "length_penalty", 10.1),
        ("beam_search", "length_penalty", float("nan")),
        ("beam_search", "max_length", -1),
        ("beam_search", "max_length", MAX_TARGET + 1),
        ("beam_search_ids", "beam_width", 0),
        ("beam_search_ids", "max_length", MAX_TARGET + 1),
        ("sample", "temperature", 0.0),
        ("sample", "temperature", -1.0),
        ("sample", "top_k", -1),
        ("sample", "top_k", 100_000),
        ("sample", "top_p", 0.0),
        ("sample", "top_p", 1.1),
        ("sample", "max_length", -7),
    ],
)
def test_error_names_an_option_out_of_range(serve, tokenizer, name, option, value):
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"{option} must be in "):
        serve(name, *arguments(name, tokenizer), **{option: value})


@pytest.mark.parametrize("value", [-1, 100_000])
def test_ids_outside_of_the_vocabulary_are_refused(serve, value):
    with pytest.raises(tf.errors.InvalidArgumentError, match="source_ids must be in "):
        serve("beam_search_ids", tf.constant([[value, EOS]]))


def test_too_many_ids_are_refused(serve):
    ids = tf.fill([1, MAX_SOURCE + 1], 5)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="the length of source_ids must be in "
    ):
        serve("beam_search_ids", ids)


@pytest.mark.parametrize("name", ["score", "complete", "align"])
def test_texts_of_unequal_number_are_refused(serve, name):
    with pytest.raises(tf.errors.InvalidArgumentError, match="must have as many rows"):
        serve(name, ["a", "b"], ["a", "b", "c"])

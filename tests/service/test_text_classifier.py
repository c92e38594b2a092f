"""A classifier's signatures return the model's numbers, for any batch, saved and loaded."""

import numpy as np
import pytest
import tensorflow as tf
import tiny

from tfformer import Classifier, ClassifierConfig, TextClassifier, Tokenizer
from tfformer.text.vocabularies import LabelTable

LABELS = ["animal", "fruit salad", "größer"]
LIMITS = {"max_source_length": 11, "max_batch_size": 7}
TEXTS = ["a house", "", "nobody in the little lake", "a\x00b \udcff"]
TEXTS = [text.encode(errors="surrogateescape") for text in TEXTS]


@pytest.fixture(scope="module")
def tokenizer():
    source = Tokenizer.train(tiny.sentences(97), vocabulary_size=331).source
    return Tokenizer(source, LabelTable(LABELS))


@pytest.fixture(scope="module", params=["mean", "bos"])
def classifier(request, tokenizer, randomise):
    config = ClassifierConfig.preset(
        "test", tokenizer.source_vocabulary_size, num_labels=3, pooling=request.param
    )
    return TextClassifier(randomise(Classifier(config)), tokenizer, **LIMITS)


def ask(classifier, name, texts=TEXTS):
    found = classifier.functions[name](tf.constant(texts, tf.string, [len(texts)]))
    return {key: value.numpy() for key, value in found.items()}


def ids_of(tokenizer, text):
    return tokenizer.encode_source([text]).numpy()


def test_answers_equal_the_model_on_each_text_alone(classifier, tokenizer):
    found, vectors = ask(classifier, "classify"), ask(classifier, "embed")
    for row, text in enumerate(TEXTS):
        ids = ids_of(tokenizer, text)
        assert ids.shape[1] <= 11
        expected = tf.nn.softmax(classifier.model(ids, training=False))[0].numpy()
        np.testing.assert_allclose(found["probabilities"][row], expected, atol=1e-5)
        assert found["label"][row].decode() == LABELS[expected.argmax()]
        assert [label.decode() for label in found["labels"][row]] == LABELS
        vector = classifier.model.embed(ids)[0]
        np.testing.assert_allclose(vectors["vector"][row], vector, atol=1e-5, rtol=1e-4)
    assert not found["truncated"].any()
    default = ask(classifier, "serving_default")
    np.testing.assert_array_equal(default["probabilities"], found["probabilities"])


def test_a_long_text_is_cut_before_its_eos(classifier, tokenizer):
    long = " ".join(tiny.sentences(9, seed=4))
    whole = ids_of(tokenizer, long)
    cut = np.concatenate([whole[:, :10], [[3]]], axis=1)
    found = ask(classifier, "embed", [long, "a house"])
    assert found["truncated"].tolist() == [True, False]
    np.testing.assert_allclose(found["vector"][:1], classifier.model.embed(cut), atol=1e-5)


def test_python_answers_are_in_order(classifier):
    labels = classifier.answer([text.decode(errors="replace") for text in TEXTS], batch_size=2)
    assert labels == [label.decode() for label in ask(classifier, "classify")["label"]]
    with pytest.raises(ValueError, match="greedy must be False, because this model does not"):
        classifier.answer(["a house"], greedy=True)
    vectors = classifier.embed(["a house", "the lake"], batch_size=1)
    np.testing.assert_allclose(vectors[0], ask(classifier, "embed")["vector"][0], atol=1e-5)
    assert classifier.embed([]).shape == (0, 14)


def test_empty_batch_is_accepted_and_wrong_requests_are_refused(classifier):
    for name in classifier.functions:
        assert all(len(value) == 0 for value in ask(classifier, name, []).values())
        with pytest.raises(tf.errors.InvalidArgumentError, match="number of texts must be in"):
            ask(classifier, name, TEXTS * 2)
        with pytest.raises((ValueError, TypeError, tf.errors.InvalidArgumentError)):
            classifier.functions[name](tf.constant([["a"]]))


def test_mismatched_model_tokenizer_or_options_are_refused(classifier, tokenizer):
    model = classifier.model
    with pytest.raises(ValueError, match="must have a table of 3 labels .* got 2 labels"):
        TextClassifier(model, Tokenizer(tokenizer.source, LabelTable(["a", "b"])))
    with pytest.raises(ValueError, match="must have a table of 3 labels .* got none"):
        TextClassifier(model, Tokenizer(tokenizer.source))
    other = Tokenizer.train(["ein Haus"], vocabulary_size=300).source
    with pytest.raises(ValueError, match="tokenizer must have \\d+ ids of the source"):
        TextClassifier(model, Tokenizer(other, tokenizer.target))
    with pytest.raises(ValueError, match="model must be a Classifier"):
        TextClassifier(None, tokenizer)
    for options, message in (
        ({"max_batch_size": 0}, "max_batch_size must be an integer of at least 1, got 0"),
        ({"dtype": "float16"}, "dtype must be 'float32' or 'bfloat16', got 'float16'"),
    ):
        with pytest.raises(ValueError, match=message):
            TextClassifier(model, tokenizer, **options)


def test_label_table_accepts_labels_with_spaces():
    table = LabelTable(LABELS)
    texts = ["fruit salad\tanimal", "größer", "", "\t\tanimal\t", "fruit  salad", "fruit\x01salad"]
    ids = table.encode(tf.constant(texts)).to_list()
    assert ids == [[5, 4, 3], [6, 3], [3], [4, 3], [1, 3], [5, 3]]
    assert table.decode(tf.ragged.constant([[5, 4]], tf.int32)).numpy()[0] == b"fruit salad\tanimal"
    assert LabelTable.from_content(table.content).is_same(table)
    assert table.filled_up(9).is_same(LabelTable([*LABELS, "\ue0007", "\ue0008"]))
    for label, rule in (("a\tb", "control"), ("</s>", "special"), ("", "not be empty")):
        with pytest.raises(ValueError, match=rule):
            LabelTable([label])

"""A tagger's signatures: a label for each word, at its first piece, and words after the limit."""

import numpy as np
import pytest
import tensorflow as tf
import tiny

from tfformer import Tagger, TextTagger, Tokenizer
from tfformer.config import TaggerConfig
from tfformer.text.vocabularies import LabelTable
from tfformer.text.words import encode_words, words_of

LABELS = ["ART", "NOUN", "X"]
TEXTS = [
    "a house",
    "",
    "nobody  in the\tlake",
    "\u200b größer \u00a0 x\u00a0y",
    "日本 e\u0301 lake",
]


@pytest.fixture(scope="module")
def tagger(randomise):
    source = Tokenizer.train(tiny.sentences(97), vocabulary_size=331).source
    model = Tagger(TaggerConfig.preset("test", source.size, num_labels=3))
    tokenizer = Tokenizer(source, LabelTable(LABELS))
    return TextTagger(randomise(model), tokenizer, max_source_length=31, max_batch_size=7)


def ask(tagger, texts=TEXTS):
    found = tagger.functions["tag"](tf.constant(texts, tf.string, [len(texts)]))
    return {key: value.numpy() for key, value in found.items()}


def by_hand(tagger, text):
    """The words of a text, its ids, and the position of each word's first piece."""
    words, ids, places = [*filter(None, text.replace("\t", " ").split(" "))], [], []
    for word in words:
        places.append(len(ids))
        ids += tagger.tokenizer.encode_source([word])[0].numpy().tolist()[:-1] or [1]
    return words, ids, places


def test_each_word_has_the_label_of_its_first_piece(tagger):
    found = ask(tagger)
    for row, text in enumerate(TEXTS):
        words, ids, places = by_hand(tagger, text)
        assert len(ids) < 31
        chances = tf.nn.softmax(tagger.model(np.array([[*ids, 3]]), training=False))[0].numpy()
        labels = [LABELS[chances[place].argmax()] for place in places]
        size = len(words)
        assert [one.decode() for one in found["words"][row][:size]] == words
        assert [one.decode() for one in found["labels"][row][:size]] == labels
        assert found["tags"][row].decode() == " ".join(labels)
        expected = [chances[place].max() for place in places]
        np.testing.assert_allclose(found["probabilities"][row][:size], expected, atol=1e-5)
        assert found["length"][row] == size and not found["truncated"][row]
        assert set(found["words"][row][size:]) <= {b""}
        alone = ask(tagger, [text])
        assert alone["tags"][0] == found["tags"][row]


def test_words_after_the_limit_have_no_label(tagger):
    text = " ".join(["house"] * 64)
    _, ids, places = by_hand(tagger, text)
    kept = sum(place < 30 for place in places)
    assert 0 < kept < 64
    found = ask(tagger, [text, "a house"])
    assert found["truncated"].tolist() == [True, False] and found["length"].tolist() == [64, 2]
    labels = found["labels"][0].tolist()
    assert set(labels[:kept]) <= {one.encode() for one in LABELS} and set(labels[kept:]) == {b""}
    assert not found["probabilities"][0][kept:].any() and found["probabilities"][0][:kept].all()
    cut = np.array([[*ids[:30], 3]])
    chances = tf.nn.softmax(tagger.model(cut, training=False))[0].numpy()
    expected = [LABELS[chances[place].argmax()].encode() for place in places[:kept]]
    assert labels[:kept] == expected
    long = "x" * 9000
    assert ask(tagger, [long])["length"].tolist() == [1]


def test_encode_words_gives_ids_and_first_piece_positions(tagger):
    ids, places = encode_words(tagger.tokenizer.source, words_of(tf.constant(TEXTS)))
    for row, text in enumerate(TEXTS):
        _, expected, begins = by_hand(tagger, text)
        assert ids[row].numpy().tolist() == [*expected, 3]
        assert places[row].numpy().tolist() == begins

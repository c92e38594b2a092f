"""Texts of any order, blank, damaged or too long are translated."""

import numpy as np
import pytest
import tensorflow as tf
from served_table import MAX_SOURCE, MAX_TARGET, TEXTS, B
from words import sentences


def test_translations_do_not_depend_on_order_or_batch(translator, served):
    texts = TEXTS + sentences(4, 7, maximum=5)
    together = translator.translate(texts)
    assert together[:B] == [text.decode() for text in served["serving_default"]["translation"]]
    assert translator.translate(texts[::-1], batch_size=5) == together[::-1]
    assert [translator.translate([text])[0] for text in texts] == together
    assert len(set(together)) > 5


def test_no_texts_give_no_translations(translator):
    assert translator.translate([]) == []
    assert translator.translate(iter(["", ""])) == ["", ""]


@pytest.mark.parametrize("blank", ["", " ", "\n\t", "\0", "\u3000"])
def test_blank_texts_are_empty_and_leave_the_others_as_they_are(serve, served, blank):
    texts = [blank, *TEXTS, blank]
    found = serve("serving_default", texts)
    assert found["translation"][[0, -1]].tolist() == [b"", b""]
    assert found["score"][[0, -1]].tolist() == [0, 0]
    np.testing.assert_array_equal(
        found["translation"][1:-1], served["serving_default"]["translation"]
    )
    np.testing.assert_allclose(found["score"][1:-1], served["serving_default"]["score"], rtol=1e-5)
    beams = serve("beam_search", texts)
    assert (beams["lengths"][[0, -1]] == 0).all()
    assert (beams["scores"][[0, -1]] == 0).all()
    assert (beams["translations"][[0, -1]] == b"").all()
    np.testing.assert_array_equal(
        beams["translations"][1:-1], served["beam_search"]["translations"]
    )
    sampled = serve("sample", [blank])
    assert (sampled["translation"][0], sampled["log_prob"][0]) == (b"", 0)
    completed = serve("complete", [blank], ["ein"])
    assert (completed["translation"][0], completed["score"][0]) == (b"", 0)


def test_only_blank_texts_are_searched_without_an_error(serve):
    found = serve("serving_default", ["", " "])
    assert found["translation"].tolist() == [b"", b""]
    assert found["score"].tolist() == [0, 0]


def test_invalid_bytes_do_not_affect_other_texts(serve, served):
    found = serve("serving_default", [b"\xff\xfe\0", *TEXTS])
    np.testing.assert_array_equal(
        found["translation"][1:], served["serving_default"]["translation"]
    )


def test_a_text_is_truncated_exactly_when_it_has_too_many_tokens(serve, tokenizer):
    # 1, 2, 3, ... words: one of them is the first that is too long.
    texts = [" ".join(["Haus"] * n) for n in range(1, MAX_SOURCE + 2)]
    lengths = tokenizer.encode_source(tf.constant(texts)).row_lengths().numpy()
    assert MAX_SOURCE in lengths and lengths[-1] > MAX_SOURCE
    found = serve("serving_default", texts)
    np.testing.assert_array_equal(found["truncated"], lengths > MAX_SOURCE)
    cut = texts[MAX_SOURCE - 2]
    assert tokenizer.encode_source([cut]).row_lengths() == MAX_SOURCE
    assert set(found["translation"][lengths > MAX_SOURCE]) == set(
        serve("serving_default", [cut])["translation"]
    )


@pytest.mark.parametrize(
    ("name", "inputs", "limits"),
    [
        ("beam_search", ("text",), (MAX_SOURCE,)),
        ("sample", ("text",), (MAX_SOURCE,)),
        ("complete", ("text", "prefix"), (MAX_SOURCE, MAX_TARGET)),
        ("score", ("source", "target"), (MAX_SOURCE, MAX_TARGET)),
        ("align", ("source", "target"), (MAX_SOURCE, MAX_TARGET)),
    ],
)
def test_every_signature_marks_truncated_rows(serve, tokenizer, name, inputs, limits):
    """A row with short inputs only, and for each input a row in which only this one is too long."""
    rows = [["Haus"] * len(inputs)]
    for n, limit in enumerate(limits):
        long = " ".join(["Haus"] * (limit + 1))
        rows.append(["Haus"] * n + [long] + ["Haus"] * (len(inputs) - n - 1))
    found = serve(name, *map(list, zip(*rows, strict=True)))
    assert found["truncated"].tolist() == [False] + [True] * len(inputs)


def test_a_text_of_too_many_characters_is_cut_before_it_is_tokenised(serve):
    # Spaces cost no token, but they have to be read.
    texts = ["Haus" + " " * 16 * MAX_SOURCE + "See", "Haus", "ä" * 16 * MAX_SOURCE * 3]
    found = serve("serving_default", texts)
    assert found["truncated"].tolist() == [True, False, True]
    assert found["translation"][0] == found["translation"][1]


def test_character_limit_does_not_count_bytes(serve):
    # The maximum number of characters, of four bytes each, most of them spaces.
    text = "🦀" + "\u3000" * (16 * MAX_SOURCE - 1)
    assert serve("serving_default", [text])["truncated"].tolist() == [False]

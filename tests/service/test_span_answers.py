"""A span reader's signatures: the best span, and its position in the given text."""

import numpy as np
import pytest
import tensorflow as tf
import tiny

from tfformer import SpanAnswers, SpanReader, Tokenizer
from tfformer.config import SpanConfig
from tfformer.text.question import encode_question, whole_characters

TEXTS = [
    "a house by the lake", "  größer   als ein\u0301 Haus ", "日本 lake ﬁsh\u00a0x", "", "x",
    "a\u0000b\tc \u3000 ½ 🎉 end",
]  # fmt: skip
QUESTION = "where is it?"
L, A = 41, 3


@pytest.fixture(scope="module")
def reader(randomise):
    tokenizer = Tokenizer.train(tiny.sentences(97), vocabulary_size=331)
    config = SpanConfig.preset("test", tokenizer.source_vocabulary_size)
    model = randomise(SpanReader(config))
    limits = {"max_source_length": L, "max_batch_size": 7, "max_answer_length": A}
    return SpanAnswers(model, tokenizer, **limits)


def ask(reader, texts=TEXTS, questions=None):
    questions = [QUESTION] * len(texts) if questions is None else questions
    sides = (tf.constant(side, tf.string, [len(side)]) for side in (questions, texts))
    return {key: value.numpy() for key, value in reader.functions["answer"](*sides).items()}


def by_hand(reader, text):
    """(probability, first token, last token) of the best span, by the Keras model."""
    side = reader.tokenizer.source
    read = encode_question(side, *(whole_characters(side, one) for one in ([QUESTION], [text])), L)
    begin, end = tf.nn.log_softmax(reader.model(read.ids, training=False))[0].numpy()
    first, count = int(read.first[0]), int(read.starts.row_lengths()[0])
    spans = [
        (begin[i] + end[j], i - first, j - first)
        for i in range(first, first + count)
        for j in range(i, min(i + A, first + count))
    ]
    score, i, j = max(spans)
    starts, ends = read.starts[0].numpy(), read.ends[0].numpy()
    return np.exp(score), starts[i], max(starts[i], ends[j])


def test_best_span_equals_the_text_at_its_offsets(reader):
    found = ask(reader)
    for row, text in enumerate(TEXTS):
        answer = found["answer"][row].decode()
        start, end = found["start"][row], found["end"][row]
        assert text[start:end] == answer == answer.strip()
        if not text:
            assert (answer, start, end, found["score"][row]) == ("", 0, 0, 0)
            continue
        score, first, last = by_hand(reader, text)
        np.testing.assert_allclose(found["score"][row], score, rtol=1e-4)
        assert text.encode()[first:last].decode().strip() == answer
        alone = ask(reader, [text])
        for key, value in alone.items():
            np.testing.assert_allclose(value[0], found[key][row], rtol=1e-4) if (
                value.dtype != object
            ) else np.testing.assert_array_equal(value[0], found[key][row])
    assert not found["truncated"].any()


ODD = {
    "control characters": [*map(chr, range(32)), "\x7f", "\x80", "\x85", "\x9f", "\r\n"],
    "spaces": ["\xa0", "\u1680", "\u2003", "\u2028", "\u2029", "\u202f", "\u3000"],
    "of no width": ["\u200b", "\u200c", "\u200d", "\u200e", "\u2060", "\ufeff", "\xad"],
    "changed by NFKC": ["ﬁ", "½", "ﷺ", "①", "Å", "ｶﾞ", "e\u0301", "\u0301", "\u3099"],
    "outside the vocabulary": ["日本", "🎉", "👩\u200d🚀", "\ue000", "\U0010ffff", "\ufffd"],
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_answer_equals_the_characters_at_its_offsets(reader, odd):
    texts = [
        made.replace("?", one)
        for one in odd
        for made in ("a?house", "?a house?", "a house ?? by?the", "?\ta\n?lake", "日本?🎉", "?")
    ]
    inside = 0
    for start in range(0, len(texts), 7):
        some = texts[start : start + 7]
        found = ask(reader, some)
        default = reader.functions["serving_default"](
            tf.constant([f"{QUESTION}\t{text}" for text in some])
        )
        for row, text in enumerate(some):
            first, last = found["start"][row], found["end"][row]
            answer = found["answer"][row].decode()
            assert answer == text[first:last]
            assert default["answer"].numpy()[row].decode() == answer
            inside += any(one in answer for one in odd)
    assert inside > len(odd) / 2  # odd characters were in answers, not only beside them


def test_offsets_count_replacement_characters_for_invalid_utf8(reader):
    texts = [b"a\xffhouse\n\xc3", b"\x80a\xffb lake\xf0"]
    found = ask(reader, texts)
    for row, text in enumerate(texts):
        start, end = found["start"][row], found["end"][row]
        assert found["answer"][row].decode() == text.decode(errors="replace")[start:end]


def test_every_span_consists_of_whole_characters(reader):
    """For each pair of positions, the offsets give whole characters."""
    side = reader.tokenizer.source
    for text in filter(None, TEXTS):
        [given] = whole_characters(side, [text]).numpy()
        _, starts, ends = (one[0].numpy() for one in side.encode_with_offsets(tf.constant([given])))
        for i in range(len(starts)):
            for j in range(i, len(starts)):
                given[starts[i] : max(starts[i], ends[j])].decode()
        assert ends[-1] >= len(given.rstrip())


def test_question_and_text_joined_by_a_tab_give_the_same_answer(reader):
    texts = ["a house by the lake", "no", "a\tb lake"]
    default = reader.functions["serving_default"]
    found = default(tf.constant([f"{QUESTION}\t{text}" for text in texts]))
    expected = ask(reader, texts)
    for key, value in found.items():
        np.testing.assert_array_equal(value, expected[key])
    alone = default(tf.constant(["where?", ""]))
    assert alone["answer"].numpy().tolist() == [b"", b""]


def test_too_long_question_and_text_are_truncated(reader):
    side, long = reader.tokenizer.source, " ".join(["lake"] * 60)
    read = encode_question(side, tf.constant([long, "a"]), tf.constant([long, long]), L)
    assert read.ids.shape == (2, L) and read.truncated.numpy().all()
    asked = side.encode(tf.constant([long]))[0].numpy().tolist()[:-1]
    ids = read.ids.numpy().tolist()
    assert ids[0][:20] == [*asked[:19], 3] and ids[0][-1] == ids[1][-1] == 3
    assert ids[0].count(3) == 2 and int(read.first[0]) == 20
    assert ids[1][int(read.first[1]) : -1] == asked[: L - 1 - int(read.first[1])]
    assert ask(reader, [long])["truncated"].tolist() == [True]


def test_saved_reader_gives_the_same_answers_and_refuses_bad_requests(reader, tmp_path):
    reader.save(tmp_path / "1")
    loaded = tf.saved_model.load(tmp_path / "1").signatures
    assert set(loaded) == {"serving_default", "answer"}
    found = loaded["answer"](question=tf.constant([QUESTION] * 6), text=tf.constant(TEXTS))
    expected = ask(reader)
    np.testing.assert_array_equal(found["answer"], expected["answer"])
    np.testing.assert_allclose(found["score"], expected["score"], rtol=1e-4)
    assert all(len(value) == 0 for value in ask(reader, []).values())
    for texts, questions, message in (
        (TEXTS * 2, None, "number of texts must be in"),
        (TEXTS, ["a"], "question and text must have as many rows"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            ask(reader, texts, questions)
    for options in ({"max_answer_length": 0}, {"max_source_length": 3}):
        with pytest.raises(ValueError, match=f"{[*options][0]} must be an integer of at least"):
            SpanAnswers(reader.model, reader.tokenizer, **options)

"""Long texts are cut into sentences and windows and joined again, compared with plain Python."""

import random

import numpy as np
import oracle
import pytest
import tensorflow as tf
import tiny

from tfformer import Translator
from tfformer.config import EOS
from tfformer.inference.fuse import fuse
from tfformer.inference.transformer import Inference
from tfformer.service.document import DOCUMENT_SOURCES
from tfformer.service.limits import CHARACTERS_PER_TOKEN
from tfformer.text.document import (
    cut_documents,
    join_sentences,
    join_windows,
    split_sentences,
    split_windows,
)
from training import dates


def sentences(*texts):
    found, space = split_sentences(tf.constant(texts, tf.string))
    return [[s.decode() for s in row] for row in found.to_list()], space


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three? Four… Five", ["One.", "Two!", "Three?", "Four…", "Five"]),
        (
            'He said: "Go." She went. (Really?) Yes.',
            ['He said: "Go."', "She went.", "(Really?)", "Yes."],
        ),
        ("Mr. Smith met Dr. No. J. R. Tolkien too.", ["Mr. Smith met Dr. No. J. R. Tolkien too."]),
        (
            "Am 14. Juli war es 3.5 Grad. Über 1999. Ja",
            ["Am 14. Juli war es 3.5 Grad.", "Über 1999. Ja"],
        ),
        ("In 1999! Then. z. B. this, e.g. That", ["In 1999!", "Then. z. B. this, e.g. That"]),
        ("no capital. follows here", ["no capital. follows here"]),
        # A number after an abbreviation never begins a sentence, whatever its case.
        ("On 3 Feb. 2018. Den 12 jan. 1967", ["On 3 Feb. 2018. Den 12 jan. 1967"]),
        ("4 окт. 2021 г. и 4 ОКТ. 2021", ["4 окт. 2021 г. и 4 ОКТ. 2021"]),
        ("Nach Abs. 2, s. (Fig. 3) und FIG. 4", ["Nach Abs. 2, s. (Fig. 3) und FIG. 4"]),
        (
            "To us. 3 men. In red. 2 stood up. 4",
            ["To us.", "3 men.", "In red.", "2 stood up.", "4"],
        ),
        ("In Feb. We left. 3 came", ["In Feb.", "We left.", "3 came"]),
        ("Cats. 3 dogs. 2 Xfeb. 4", ["Cats.", "3 dogs.", "2 Xfeb.", "4"]),
        ("Сто. 3 окна. Фокт. 4", ["Сто.", "3 окна.", "Фокт.", "4"]),
        ("Été. Âge\xa0mûr. Ÿes", ["Été.", "Âge\xa0mûr.", "Ÿes"]),
        ("你好。我是！他？", ["你好。", "我是！", "他？", ""]),
        ("a\nb\r\nc\rd", ["a", "b", "c", "d"]),
        ("", [""]),
        (" \n ", ["", ""]),
    ],
)
def test_text_is_split_into_the_expected_sentences(text, expected):
    [found], _ = sentences(text)
    assert found == expected


def test_a_date_is_one_sentence_in_every_language():
    """(Only a new line would split it; there is none.)"""
    written = sorted({pair.source for pair in dates.pairs("test", 1000)})
    found, _ = sentences(*written)
    assert found == [[date] for date in written]


def test_sentences_and_separators_join_to_the_original_text():
    texts = ["A b. C d!  E.\n\n F. G", "", "one", "你好。我。 OK. Yes", "\n\nx\n", "a.\tB"]
    found, space = split_sentences(tf.constant(texts))
    assert found.row_lengths().numpy().tolist() == space.row_lengths().numpy().tolist()
    pairs = tf.strings.join([found.flat_values, space.flat_values])
    again = tf.strings.reduce_join(found.with_flat_values(pairs), axis=1)
    assert [text.decode() for text in again.numpy()] == texts


def test_joining_keeps_newlines_and_uses_single_spaces():
    texts = ["One.  Two.\n\n  Three. Four", "你好。我是。\nOK. Yes", "x", ""]
    found, space = split_sentences(tf.constant(texts))
    upper = found.with_flat_values(tf.strings.upper(found.flat_values, "utf-8"))
    joined = [text.decode() for text in join_sentences(upper, space).numpy()]
    assert joined == ["ONE. TWO.\n\n  THREE. FOUR", "你好。我是。\nOK. YES", "X", ""]


def test_control_character_in_a_text_ends_no_sentence():
    assert sentences("a\x1eb\x1e\x1ec")[0] == [["a b  c"]]


def test_windows_have_maximum_length_and_overlap():
    rows = [list(range(100, 100 + size)) for size in (0, 1, 7, 8, 11, 29)]
    windows, origin = split_windows(tf.ragged.constant(rows, tf.int32), 7, 2)
    expected, expected_rows = [], []
    for number, row in enumerate(rows):
        start = 0
        while True:
            expected.append(row[start : start + 7])
            expected_rows.append(number)
            if start + 7 >= len(row):
                break
            start += 5
    assert windows.to_list() == expected
    assert origin.numpy().tolist() == expected_rows


def lengths_of(windows):
    return tf.cast(windows.row_lengths(), tf.int32)


@pytest.mark.parametrize("seed", range(5))
def test_joined_windows_equal_the_text(seed):
    random.seed(seed)
    rows = [[random.randrange(4, 997) for _ in range(random.randrange(151))] for _ in range(7)]
    windows, origin = split_windows(tf.ragged.constant(rows, tf.int32), 23, 6)
    assert join_windows(windows, origin, lengths_of(windows), 6).to_list() == rows


@pytest.mark.parametrize("period", [*range(1, 31), 63, 240])
@pytest.mark.parametrize("size", [64, 77, 111, 240])
def test_joined_windows_of_a_repetitive_text_equal_the_text(period, size):
    """Refrains and price lists."""
    row = [4 + n % period for n in range(size)]
    windows, origin = split_windows(tf.ragged.constant([row], tf.int32), 63, 15)
    assert join_windows(windows, origin, lengths_of(windows), 15).to_list() == [row]


def test_windows_that_differ_at_the_edges_are_joined_where_they_agree():
    # A window's end is translated without what follows, and its beginning without what came before.
    first, second = [11, 12, 13, 14, 15, 16, 17, 91], [92, 15, 16, 17, 18, 19, 20, 21]
    ids = tf.ragged.constant([first, second, [5, 6]], tf.int32)
    joined = join_windows(ids, tf.constant([0, 0, 1]), lengths_of(ids), 4).to_list()
    assert joined == [list(range(11, 22)), [5, 6]]


def test_windows_that_never_agree_lose_half_the_overlap_each():
    first, second = list(range(10, 20)), list(range(30, 40))
    ids = tf.ragged.constant([first, second], tf.int32)
    assert join_windows(ids, tf.constant([0, 0]), lengths_of(ids), 4).to_list() == [
        [*first[:8], *second[2:]]
    ]


# In the served signature.

LENGTH = 13


@pytest.fixture(scope="module")
def translator():
    return tiny.make_translator(max_source_length=LENGTH, max_target_length=11, max_batch_size=5)


def translate(translator, *texts):
    found = translator.functions["translate_document"](tf.constant(texts, tf.string))
    found = {name: value.numpy().tolist() for name, value in found.items()}
    return {**found, "translation": [text.decode() for text in found["translation"]]}


@pytest.mark.slow
def test_document_equals_its_sentences_translated_alone(translator):
    texts = ["A little house.", "Nobody in it!", "The lake?", "With the trees"]
    alone = translator.translate(texts)
    assert all(alone)
    document = f"{texts[0]} {texts[1]}\n\n{texts[2]}\n{texts[3]}"
    found = translate(translator, document, texts[1], "", " \n")
    expected = f"{alone[0]} {alone[1]}\n\n{alone[2]}\n{alone[3]}"
    assert found["translation"] == [expected, alone[1], "", " \n"]
    assert found["sentences"] == [4, 1, 1, 2]
    assert found["truncated"] == [False] * 4


def test_document_does_not_depend_on_its_batch_mates(translator):
    random.seed(1)
    texts = [
        ". ".join(" ".join(random.choices(tiny.WORDS, k=random.randint(1, 40))) for _ in range(n))
        for n in (1, 7, 0, 3)
    ]
    together = translate(translator, *texts)["translation"]
    assert together == [translate(translator, text)["translation"][0] for text in texts]


@pytest.mark.slow
def test_too_long_sentence_is_translated_in_windows(translator):
    text = " ".join(tiny.WORDS * 7)
    ids = translator.tokenizer.encode_source(tf.constant([text]))[:, :-1]
    length, overlap = LENGTH - 1, (LENGTH - 1) // 4
    windows, rows = split_windows(ids, length, overlap)
    assert windows.nrows() > 7
    eos = tf.fill([windows.nrows(), 1], EOS)
    padded = tf.concat([windows, eos], axis=1).to_tensor()
    asked = [padded[start : start + 5] for start in range(0, len(padded), 5)]
    answers = [translator.functions["beam_search_ids"](batch) for batch in asked]
    tokens = [
        row[: length - 1].tolist()
        for answer in answers
        for row, length in zip(
            answer["token_ids"][:, 0].numpy(), answer["lengths"][:, 0].numpy(), strict=True
        )
    ]
    joined = join_windows(
        tf.ragged.constant(tokens, tf.int32, ragged_rank=1), rows, lengths_of(windows), overlap
    )
    expected = translator.tokenizer.decode(joined).numpy()[0].decode()
    assert translate(translator, text)["translation"] == [expected]


def test_a_document_over_the_limit_is_cut_and_flagged(translator):
    maximum = LENGTH * CHARACTERS_PER_TOKEN * DOCUMENT_SOURCES
    line = " ".join(tiny.WORDS[:3]).ljust(101) + "\n"  # few tokens for many characters
    text = line * (maximum // len(line) + 3)
    found, cut = (translate(translator, part) for part in (text, text[:maximum]))
    assert found["truncated"] == [True] and cut["truncated"] == [False]
    assert found["translation"] == cut["translation"]
    assert found["sentences"] == cut["sentences"]


@pytest.mark.parametrize("tokens, pieces", [(1, 99), (7, 99), (23, 3), (999, 2), (999, 999)])
def test_documents_are_cut_by_tokens_and_by_pieces(tokens, pieces):
    """Compared with a plain loop: three documents, of several sentences, of one, and of an empty
    one."""
    length, overlap = 5, 1
    documents = [[[7] * n for n in (3, 11, 0, 6, 2)], [[9] * 29], [[]]]
    flat = tf.ragged.constant(sum(documents, []), tf.int32, ragged_rank=1)
    names = [[f"{d}{n}" for n in range(len(one))] for d, one in enumerate(documents)]
    names = tf.ragged.constant(names)
    found = cut_documents(names, names, flat, tokens, pieces, length, overlap)
    left, ids, cut = [], [], []
    for d, document in enumerate(documents):
        room, windows, kept = tokens, 0, []
        for n, sentence in enumerate(document):
            part = sentence[:room]
            windows += 1 + max(0, -(-(len(part) - length) // (length - overlap)))
            if room == 0 or windows > pieces:
                break
            kept.append(f"{d}{n}".encode())
            ids.append(part)
            room -= len(part)
        left.append(kept)
        cut.append(tokens - room < sum(map(len, document)) or len(kept) < len(document))
    assert found[0].to_list() == found[1].to_list() == left
    assert found[2].to_list() == ids
    assert found[3].numpy().tolist() == cut


@pytest.mark.parametrize("character", ["\ufdfa", "🎉"])
def test_one_character_of_many_tokens_is_cut_like_a_long_text(translator, character):
    """U+FDFA is 18 letters by NFKC, an emoji four bytes."""
    limits = translator.limits()
    count = limits["max_document_tokens"] // 4 + 3
    found = translate(translator, character * count, "A house.")
    assert found["truncated"] == [True, False]
    assert found["translation"][1] == translator.translate(["A house."])[0]
    assert count < limits["max_document_characters"]


def test_too_many_sentences_are_cut_per_document_and_refused_per_request(translator):
    pieces, rows = translator.limits()["max_document_pieces"], translator.max_batch_size
    assert translator.limits()["max_request_pieces"] == pieces  # this one allows few rows
    line = "\u3000\n"  # a sentence without a token
    found = translate(translator, line * (pieces + 7))
    assert found["truncated"] == [True] and found["sentences"] == [pieces]
    function = translator.functions["translate_document"]
    with pytest.raises(tf.errors.InvalidArgumentError, match=rf"pieces of all texts.*{pieces}\]"):
        function(tf.constant([line * (pieces // 2)] * min(3, rows)))


def test_invalid_bytes_are_replaced(translator):
    found = translator.functions["translate_document"](
        tf.constant([b"A \xff\x00 house.\x1f B\xc3"])
    )
    [text] = found["translation"].numpy()
    alone = translator.translate(["A \ufffd house.", "B\ufffd"])
    assert text.decode() == " ".join(filter(None, alone)) != ""


# The limits of a request.


@pytest.mark.slow
def test_a_wider_beam_may_have_fewer_rows(translator):
    function = translator.functions["beam_search"]
    function(tf.constant(["a"] * 2), beam_width=tf.constant(10))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"beam_width must be in \[0, 20\]"):
        function(tf.constant(["a"] * 3), beam_width=tf.constant(10))


def test_a_batch_size_over_the_limit_is_refused(translator):
    with pytest.raises(ValueError, match=r"batch_size must be in \[1, 5\], got 6"):
        translator.translate(["a"], batch_size=6)
    with pytest.raises(ValueError, match="max_batch_size must be at least 1, got 0"):
        Translator(translator.model, translator.tokenizer, max_batch_size=0)


def test_scores_do_not_depend_on_how_many_positions_are_computed_at_once(translator):
    inference = Inference(*fuse(translator.model, LENGTH, "float32"))
    rng = np.random.default_rng(3)
    source_ids = tf.constant(rng.integers(4, 280, (3, 7)), tf.int32)
    target_ids = tf.constant(rng.integers(4, 280, (3, 11)), tf.int32)
    labels = tf.constant(rng.integers(4, 280, (3, 11)), tf.int32)
    memory = inference.memory(source_ids)
    logits, _ = inference.decode(target_ids, memory)
    expected = tf.gather(tf.nn.log_softmax(logits), labels, batch_dims=2)
    for block in (1, 5, 33, 34, 1024):
        found = inference.log_probs(target_ids, labels, memory, block)
        oracle.assert_close(found, expected)

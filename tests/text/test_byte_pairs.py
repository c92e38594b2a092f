"""Byte-level BPE in a graph gives the ids and texts of KerasHub's tokenizer."""

import json
import random
import unicodedata

import hub
import pytest
import tensorflow as tf
from hard_lines import hard_lines
from tokenizers import Regex, pre_tokenizers

from tfformer import SpecialIds, Tokenizer
from tfformer.text.byte_pair_words import CUT, KINDS
from tfformer.text.byte_pairs import BytePairs, byte_names

SPECIAL = SpecialIds(pad=1, unk=None, bos=0, eos=2)
PARTS = [
    " ", "  ", "\n", "\t", "\r\n", "\u00a0", "\u3000", "a", "the", " house", "'s", "'LL", "123",
    "45", "!", "?!", "...", "€", "你好", "é", "<s>", "</s>", "<pad>", "<unk>", "x", "\u2028",
    "🎉", "\x0b", "\x85", "\x1c", "²", "\u0300", "\u200b",
]  # fmt: skip


@pytest.fixture(scope="module")
def side():
    theirs = hub.bart_tokenizer()
    return BytePairs(theirs.vocabulary, theirs.merges, SPECIAL, 337)


def texts():
    rng = random.Random(3)
    mixed = ["".join(rng.choices(PARTS, k=rng.randint(1, 12))) for _ in range(997)]
    return [*mixed, *hub.TEXTS, "", " ", "  a"]


def test_ids_and_texts_equal_keras_hub(side):
    theirs, asked = hub.bart_tokenizer(), texts()
    expected = [list(ids) for ids in theirs(asked)]
    found = tf.function(side.encode, autograph=False)(tf.constant(asked))
    ours = {1: 0, 0: 2, 2: 3}
    for text, ids, own in zip(asked, found.to_list(), expected, strict=True):
        assert ids == [*(ours.get(n, 4 + n) for n in own), 3], text
    said = [text.decode() for text in side.decode(found[:, :-1]).numpy()]
    assert said == theirs.detokenize(expected)


def test_merges_follow_their_order_and_the_leftmost_pair():
    vocabulary = {piece: n for n, piece in enumerate(["a", "b", "c", "ab", "bc", "aa", "abc"])}
    side = BytePairs(vocabulary, ["b c", "a b", "a a", "ab c"], (None, None, None, None))

    def pieces(text):
        [ids] = side.encode(tf.constant([text])).to_list()
        return [side.pieces[n] for n in ids[:-1]]

    assert pieces("abc") == ["a", "bc"]  # not ab, c
    assert pieces("abab") == ["ab", "ab"]
    assert pieces("aaa") == ["aa", "a"]
    assert pieces("axbc") == ["a", "bc"]  # x is no piece, so it is left out
    assert pieces("") == pieces("xyz") == []


def test_byte_pairs_are_restored_from_their_content(side):
    again = BytePairs.from_content(side.content)
    assert again.is_same(side) and again.pieces == side.pieces
    larger = side.filled_up(side.size + 7)
    assert larger.size == side.size + 7 and larger.pieces[: side.size] == side.pieces
    assert len(set(byte_names())) == 256 and len(side.byte_ids) == 256
    text = side.sample_text(7, seed=5)
    assert text and text == side.sample_text(7, seed=5)
    assert side.ids_of("Ġhouse") == [side.pieces.index("Ġhouse")]
    with pytest.raises(ValueError, match="tables of byte pairs"):
        BytePairs.from_content(side.content[:-3])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"merges": ["a q"]}, "merge 0 must be two pieces that make one, got 'a q'"),
        ({"vocabulary": {"a": 0, "b": 0}}, r"vocabulary must have ids in \[0, 1\), each once"),
        ({"vocabulary": {}}, r"vocabulary must have ids in \[0, 0\), each once"),
        ({"special_ids": (7, None, None, None)}, "special_ids must be of the vocabulary, got 7"),
        ({"words": "gpt-4"}, "words must be False or one of .*, got 'gpt-4'"),
        ({"ends": ["b"]}, "ends must be of the vocabulary, got 'b'"),
        ({"hidden": ["b"]}, "hidden must be of the vocabulary, got 'b'"),
    ],
)
def test_tables_that_do_not_fit_are_refused(changes, said):
    known = {"vocabulary": {"a": 0}, "merges": [], "special_ids": [None] * 4}
    with pytest.raises(ValueError, match=said):
        BytePairs(**{**known, **changes})


def test_saved_model_encodes_and_decodes_the_same(side, tmp_path):
    root = tf.Module()
    root.tokenizer = Tokenizer(side)
    spec = tf.TensorSpec([None], tf.string, "text")
    there_and_back = tf.function(
        lambda text: {"text": side.decode(side.encode(text)[:, :-1])}, [spec], autograph=False
    )
    tf.saved_model.save(root, tmp_path, signatures=there_and_back)
    served = tf.saved_model.load(tmp_path).signatures["serving_default"]
    asked = [text.encode() for text in hub.TEXTS[:7]] + [b"\xff\xfea", b""]
    expected = [*asked[:7], "\ufffd\ufffda".encode(), b""]
    assert served(tf.constant(asked))["text"].numpy().tolist() == expected


def words_of(text):
    """The words of GPT-2's regular expression, by a scanner in Python, one alternative after the
    other."""
    found, at = [], 0
    while at < len(text):
        end = _word_end(text, at)
        found.append(text[at:end])
        at = end
    return found


def _word_end(text, at):
    for ending in ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d"):
        if text.startswith(ending, at):
            return at + len(ending)
    begin = at + (text[at] == " ")
    for kind in "LNO":
        end = begin
        while end < len(text) and _kind(text[end]) == kind:
            end += 1
        if end > begin:
            return end
    end = at
    while end < len(text) and _kind(text[end]) == "S":
        end += 1
    return end if end == len(text) or end == at + 1 else end - 1


def _kind(character):
    if character in "\t\n\x0b\x0c\r\x85" or unicodedata.category(character)[0] == "Z":
        return "S"
    category = unicodedata.category(character)[0]
    return category if category in "LN" else "O"


def test_words_equal_the_gpt_2_regular_expression():
    table = {name: n for n, name in enumerate([*byte_names(), "<s>", "<pad>", "</s>", "<unk>"])}
    side = BytePairs(table, [], (257, 259, 256, 258), None, [], words=True)
    prefixed = BytePairs(table, [], (257, 259, 256, 258), None, [], words=True, prefix_space=True)
    lines = [*hard_lines(2000), "a  b", "a \n\n b ", "\n\nb", "x 's", "x  's  "]
    for line, split in zip(lines, side._split(tf.constant(lines)).numpy(), strict=True):
        found = [part.decode() for part in split.split(CUT) if part]
        assert found == words_of(line), repr(line)
    for line, split in zip(lines, prefixed._split(tf.constant(lines)).numpy(), strict=True):
        begins = line if line.startswith(" ") or not line else f" {line}"
        assert [part.decode() for part in split.split(CUT) if part] == words_of(begins)
    again = BytePairs.from_content(prefixed.content)
    assert again.is_same(prefixed) and again.prefix_space and again.words


# The regular expressions of other models, as in their tokenizer.json.
QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
EXPRESSIONS = {"llama-3": QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|"), "qwen-2": QWEN}
BYTES = {name: n for n, name in enumerate(byte_names())}
MORE_PARTS = [*PARTS, "\n\n", "\r", "'S", "'\u017f", "'re", "1234567", "\u00bd", "\u0663", "-", "_"]


def of_tokenizers(kind):
    """A function from a text to its words, by the original's library."""
    at_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=kind not in EXPRESSIONS)
    first = pre_tokenizers.Digits(individual_digits=True)
    if kind in EXPRESSIONS:
        first = pre_tokenizers.Split(Regex(EXPRESSIONS[kind]), behavior="isolated")
    steps = [at_bytes] if kind is True else [first, at_bytes]
    split = pre_tokenizers.Sequence(steps).pre_tokenize_str
    return lambda text: [bytes(BYTES[name] for name in word) for word, _ in split(text)]


@pytest.mark.parametrize("kind", KINDS)
def test_words_of_each_kind_equal_the_tokenizers_library(kind):
    rng, expected = random.Random(7), of_tokenizers(kind)
    side = BytePairs(BYTES, [], [None] * 4, words=kind)
    mixed = ["".join(rng.choices(MORE_PARTS, k=rng.randint(1, 12))) for _ in range(997)]
    lines = [*hard_lines(997), *mixed]
    for line, split in zip(lines, side._split(tf.constant(lines)).numpy(), strict=True):
        assert [part for part in split.split(CUT) if part] == expected(line), repr(line)


@pytest.fixture(scope="module")
def chat():
    """A side with the tokens of a chat model. One of them is shown in texts."""
    names = ["<|end|>", "<|turn|>", "<tool>", "\u00e9t", "th", "the", "Ġ", "Ġthe"]
    vocabulary = {**BYTES, **{name: 256 + n for n, name in enumerate(names)}}
    return BytePairs(
        vocabulary, ["t h", "Ġ the"], [None, None, None, 256], 300, names[:3], words="qwen-2",
        hidden=names[:2], ends=["<|turn|>"], prompt_bos=False, nfc=True, whole_words=True,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("<|turn|>the<|end|>", ["<|turn|>", "the", "<|end|>"]),
        ("the  the", ["the", "Ġ", "Ġthe"]),
        ("<tool>  <|turn|>", ["<tool>", "Ġ", "Ġ", "<|turn|>"]),
        ("th<|turn|", ["th", "<", "|", "t", "u", "r", "n", "|"]),
        ("e\u0301", ["Ã", "©"]),
    ],
)
def test_special_pieces_are_cut_out_before_the_words(text, pieces, chat):
    """Then a word that is a piece stays whole, even if no merges make it."""
    [ids] = chat.encode(tf.constant([text])).to_list()
    assert [chat.pieces[n] for n in ids] == [*pieces, "<|end|>"]  # at the end, as eos
    assert ids[-1] == 3 and chat.pieces[3] == "<|end|>"


def test_hidden_pieces_are_left_out_when_decoding(chat):
    ids = chat.encode(tf.constant(["<|turn|>the <tool>", "<|turn|>"]))
    assert [text.decode() for text in chat.decode(ids[:, :-1]).numpy()] == ["the <tool>", ""]
    assert [chat.pieces[n] for n in chat.ends] == ["<|turn|>"] and chat.prompt_bos is False
    again = BytePairs.from_content(chat.content)
    assert again.is_same(chat) and again.ends == chat.ends and again.prompt_bos is False
    larger = chat.filled_up(chat.size + 7)
    assert larger.size == chat.size + 7 and larger.ends == chat.ends
    assert (
        larger.encode(tf.constant(["the <tool>"])).to_list()
        == chat.encode(tf.constant(["the <tool>"])).to_list()
    )


def test_content_without_special_options_is_unchanged(side):
    assert json.loads(side.content)[5:] == []
    plain = BytePairs(BYTES, [], [None] * 4, words=True, prefix_space=True)
    assert json.loads(plain.content)[5:] == [True, True, False]

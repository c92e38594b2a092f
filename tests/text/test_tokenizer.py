"""Text -> ids -> text: nothing is lost, nothing breaks it, and SentencePiece agrees."""

import io
import random
import re
import unicodedata

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf

from tfformer import Tokenizer
from tfformer.text.learn_vocabulary import KINDS
from tfformer.text.vocabularies import clean

WORDS = (
    "ein kleines Haus steht am See und der Garten blüht schön Äpfel Straße über größer Mädchen "
    "a little house by the lake with trees year 1987 2031 4.5 quickly isn't over-the-top"
).split()

UNSEEN = [
    "quite unseen: Ξένος, 東京, Привет",
    "emoji 🦀🏳️‍🌈 and 𝔘nicode",
    "ﬁne ligatures ½ ™",
    "one",
    "(1987) [2031] {4.5} <html> & %",
]


def sentences(seed, count=300):
    chosen = random.Random(seed)
    return [" ".join(chosen.choices(WORDS, k=chosen.randint(1, 9))) for _ in range(count)]


def normal(text):
    """What a tokenizer keeps of a text: NFKC, single spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).split())


def rows(ragged):
    return [row.tolist() for row in ragged.numpy()] if ragged.shape[0] else []


@pytest.fixture(scope="module")
def tokenizers():
    return {kind: Tokenizer.train(sentences(1), vocabulary_size=353, kind=kind) for kind in KINDS}


@pytest.fixture(scope="module")
def unigram(tokenizers):
    return tokenizers["unigram"]


@pytest.fixture(scope="module")
def separate():
    return Tokenizer.train(
        ["the lake", "a house", *sentences(2)],
        ["東京 の 家", "家 と 東京"] * 20,
        vocabulary_size=400,
        shared=False,
    )


kinds = pytest.mark.parametrize("kind", KINDS)


# ---------------------------------------------------------------- ids


@kinds
def test_special_ids_are_0_to_3_and_the_pieces_follow(tokenizers, kind):
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizers[kind].source_model)
    ids = (processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id())
    assert ids == (0, 1, 2, 3)
    assert tokenizers[kind].source_vocabulary_size == processor.vocab_size()
    assert 260 < processor.vocab_size() <= 353


@kinds
def test_ids_equal_sentencepiece_and_end_with_eos(tokenizers, kind):
    tokenizer = tokenizers[kind]
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.source_model)
    texts = sentences(3, 50) + UNSEEN + ["", "   ", "tab\tand\r\nline", "nul\0"]
    expected = [processor.encode(text.decode()) + [3] for text in clean(texts).numpy()]
    for encode in (tokenizer.encode_source, tokenizer.encode_target):
        ids = encode(tf.constant(texts))
        assert ids.dtype == tf.int32
        assert rows(ids) == expected


@kinds
def test_no_text_has_an_unknown_id(tokenizers, kind):
    ids = rows(tokenizers[kind].encode_source(tf.constant(UNSEEN + sentences(4, 50))))
    for row in ids:
        assert row[-1] == 3
        assert min(row[:-1]) > 3


@pytest.mark.parametrize("text", ["", " ", "\t\r\n", "\0", "\u3000", "\x7f \x01"])
def test_blank_text_encodes_to_eos_only(unigram, text):
    assert rows(unigram.encode_source(tf.constant([text]))) == [[3]]


# ---------------------------------------------------------------- round trips


@kinds
def test_decode_is_the_inverse_of_encode(tokenizers, kind):
    texts = [normal(text) for text in sentences(5, 50) + UNSEEN] + ["", "x"]
    ids = tokenizers[kind].encode_target(tf.constant(texts))
    for form in (ids, ids.to_tensor(0)):
        assert [text.decode() for text in tokenizers[kind].decode(form).numpy()] == texts


def test_decode_leaves_out_special_ids_wherever_they_are(unigram):
    (ids,) = rows(unigram.encode_target(tf.constant(["ein Haus"])))
    row = [2, *ids[:2], 0, 1, *ids[2:], 0, 3, 0]
    assert unigram.decode(tf.constant([row, [0] * len(row)])).numpy().tolist() == [b"ein Haus", b""]


def test_any_ids_decode_to_valid_utf_8(unigram):
    ids = np.random.default_rng(6).integers(0, unigram.target_vocabulary_size, size=(200, 17))
    # Bytes alone, which rarely form a character.
    ids[100:] = np.random.default_rng(7).integers(4, 260, size=(100, 17))
    for text in unigram.decode(tf.constant(ids, tf.int32)).numpy():
        text.decode("utf-8")


def test_pieces_joined_are_the_text(unigram):
    ids = unigram.encode_source(tf.constant(["ein kleines Haus", "am See"])).to_tensor(0)
    for pieces_of in (unigram.source_pieces, unigram.target_pieces):
        pieces = pieces_of(ids)
        assert pieces.shape == ids.shape
        assert (pieces.numpy()[ids.numpy() == 0] == b"").all()
        joined = [b"".join(row).decode().replace("▁", " ").strip() for row in pieces.numpy()]
        assert joined == ["ein kleines Haus</s>", "am See</s>"]


# ---------------------------------------------------------------- cleaning


@pytest.mark.parametrize(
    "raw, cleaned",
    [
        (b"plain", "plain"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"caf\xc3", "caf\ufffd"),
        (b"a\0b", "a b"),
        (b"one\r\ntwo", "one two"),
        (b"a\t\v\f\x1b\x7fb", "a b"),
        (b"\xed\xa0\x80", "\ufffd"),
        ("größer 🦀".encode(), "größer 🦀"),
        (b"", ""),
    ],
)
def test_clean_text_is_valid_and_without_control_characters(raw, cleaned):
    (found,) = clean(tf.constant([raw])).numpy()
    # The number of U+FFFD for a run of invalid bytes may differ.
    assert found.decode().replace("\ufffd\ufffd", "\ufffd").replace("\ufffd\ufffd", "\ufffd") == (
        cleaned.replace("\ufffd\ufffd", "\ufffd")
    )


@pytest.mark.parametrize(
    "one, other",
    [("ﬁne", "fine"), ("A\u0308pfel", "Äpfel"), ("ein   Haus ", "ein Haus"), ("１９８７", "1987")],
)
def test_texts_equal_under_nfkc_have_the_same_ids(unigram, one, other):
    assert rows(unigram.encode_source([one])) == rows(unigram.encode_source([other]))


# ---------------------------------------------------------------- graph and pipeline


def test_graph_and_pipeline_equal_eager_results(unigram):
    texts = tf.constant(sentences(9, 20) + UNSEEN)
    eager = rows(unigram.encode_source(texts))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def graph(texts):
        ids = unigram.encode_source(texts)
        return ids, unigram.decode(ids)

    ids, decoded = graph(texts)
    assert rows(ids) == eager
    np.testing.assert_array_equal(decoded, unigram.decode(unigram.encode_target(texts)))
    mapped = tf.data.Dataset.from_tensor_slices(texts).batch(7).map(unigram.encode_source)
    assert [row for batch in mapped for row in rows(batch)] == eager


# ---------------------------------------------------------------- two sides, two tokenizers


def test_tokenizer_is_shared_unless_source_and_target_are_separate(unigram, separate):
    assert unigram.is_shared
    assert unigram.target_model == unigram.source_model
    assert not separate.is_shared
    text = tf.constant(["東京 の 家"])
    source, target = rows(separate.encode_source(text)), rows(separate.encode_target(text))
    assert source != target
    assert len(target[0]) < len(source[0])
    assert separate.decode(tf.constant(target)).numpy()[0].decode() == "東京 の 家"
    for side in ("source", "target"):
        processor = sentencepiece.SentencePieceProcessor(
            model_proto=getattr(separate, f"{side}_model")
        )
        assert getattr(separate, f"{side}_vocabulary_size") == processor.vocab_size()
    assert separate.source_vocabulary_size != separate.target_vocabulary_size
    pieces = separate.target_pieces(tf.constant(target)).numpy()[0]
    assert "東京" in b"".join(pieces).decode()


def test_shared_pieces_are_learned_from_source_and_target():
    shared = Tokenizer.train(["the lake"] * 30, ["東京 の 家"] * 30, vocabulary_size=350)
    assert shared.is_shared
    (ids,) = rows(shared.encode_source(tf.constant(["lake 東京"])))
    processor = sentencepiece.SentencePieceProcessor(model_proto=shared.source_model)
    assert not any(processor.is_byte(i) for i in ids)


# ---------------------------------------------------------------- identity


def test_sha256_depends_on_the_content_of_source_and_target(tokenizers, separate):
    tokenizer = tokenizers["unigram"]
    assert Tokenizer(tokenizer.source_model).sha256 == tokenizer.sha256
    source, target = separate.source_model, separate.target_model
    everything = [tokenizer.sha256 for tokenizer in (*tokenizers.values(), separate)]
    for models in ((source,), (target,), (target, source)):
        everything.append(Tokenizer(*models).sha256)
    assert len(set(everything)) == len(everything)
    assert all(len(digest) == 64 for digest in everything)


def test_training_is_a_pure_function_of_the_texts():
    first, again = (Tokenizer.train(sentences(11), vocabulary_size=313) for _ in range(2))
    assert first.sha256 == again.sha256
    assert Tokenizer.train(sentences(12), vocabulary_size=313).sha256 != first.sha256


def test_a_corpus_with_few_pieces_gives_a_smaller_vocabulary():
    small = Tokenizer.train(["ab", "ba"] * 10, vocabulary_size=8000)
    assert 260 < small.source_vocabulary_size < 300
    assert small.decode(small.encode_target(tf.constant(["ab ba"]))).numpy()[0] == b"ab ba"


@pytest.mark.parametrize("split", [True, False])
def test_split_digits_makes_every_digit_a_piece(split):
    tokenizer = Tokenizer.train(
        ["in 1987", "in 2031", "the year 1987"] * 20, vocabulary_size=300, split_digits=split
    )
    pieces = tokenizer.source_pieces(tokenizer.encode_source(tf.constant(["1987"])).to_tensor(0))
    digits = [piece for piece in pieces.numpy()[0] if any(48 <= byte < 58 for byte in piece)]
    assert (digits == [b"1", b"9", b"8", b"7"]) == split


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize("model", [b"", b"no model", b"\x0a\x03abc" * 9])
def test_invalid_model_is_refused(unigram, model):
    with pytest.raises(ValueError, match="source_model must .* got"):
        Tokenizer(model)
    with pytest.raises(ValueError, match="target_model must .* got"):
        Tokenizer(unigram.source_model, model)


def test_a_model_of_other_special_ids_is_refused():
    model = io.BytesIO()
    # SentencePiece's own defaults: unk 0, bos 1, eos 2, no pad.
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences(14)),
        model_writer=model,
        vocab_size=100,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    with pytest.raises(ValueError, match=r"source_model must have .*\(0, 1, 2, 3\), got \(-1, 0"):
        Tokenizer(model.getvalue())


@pytest.mark.parametrize("size", [0, -5, 260, 300.0, "300", None])
def test_invalid_vocabulary_size_is_refused(size):
    with pytest.raises(ValueError, match=f"vocabulary_size must be .*260.* got {size!r}"):
        Tokenizer.train(["ein Haus"], vocabulary_size=size)


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        ([], {"vocabulary_size": 300}, "vocabulary_size=300 can be learned"),
        (["ein Haus"], {"kind": "word"}, "kind must be one of .*'unigram'.* got 'word'"),
    ],
)
def test_empty_corpus_or_unknown_kind_is_refused(texts, options, message):
    with pytest.raises(ValueError, match=message):
        Tokenizer.train(texts, **options)


# ---------------------------------------------------------------- in a SavedModel


def save(tokenizer, directory):
    """A SavedModel that returns the ids of both sides."""
    root = tf.Module()
    root.tokenizer = tokenizer

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def encode(text):
        sides = {"source": tokenizer.encode_source(text), "target": tokenizer.encode_target(text)}
        return {side: ids.to_tensor(0) for side, ids in sides.items()}

    tf.saved_model.save(root, str(directory), signatures=encode)


def test_tokenizers_of_several_saved_models_in_one_process_do_not_mix(unigram, separate, tmp_path):
    tokenizers = {"separate": separate, "unigram": unigram}
    for name, tokenizer in tokenizers.items():
        save(tokenizer, tmp_path / name)
    loaded = {name: tf.saved_model.load(str(tmp_path / name)) for name in tokenizers}
    text = tf.constant(["the lake 東京 の 家", "ein Haus"])
    for name, tokenizer in tokenizers.items():
        found = loaded[name].signatures["serving_default"](text=text)
        source, target = tokenizer.encode_source(text), tokenizer.encode_target(text)
        np.testing.assert_array_equal(found["source"], source.to_tensor(0))
        np.testing.assert_array_equal(found["target"], target.to_tensor(0))


def test_too_small_vocabulary_error_gives_the_minimum_size():
    texts = ["".join(chr(0x4E00 + n + k) for k in range(9)) for n in range(0, 450, 3)]
    message = r"must be at least (\d+) for the characters .*, got 300"
    with pytest.raises(ValueError, match=message) as error:
        Tokenizer.train(texts, vocabulary_size=300)
    smallest = int(re.search(message, str(error.value))[1])
    Tokenizer.train(texts, vocabulary_size=smallest)
    with pytest.raises(ValueError):
        Tokenizer.train(texts, vocabulary_size=smallest - 1)

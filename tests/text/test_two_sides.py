"""A tokenizer with a SentencePiece model and a word table: files, graphs, a served model."""

import numpy as np
import pytest
import tensorflow as tf
from words import make_model, sentences

from export.capi.job import serve_calls
from export.verification.graph import read_graph
from tfformer import Tokenizer, Translator
from tfformer.text.vocabularies import PieceTable, SentencePieceModel

LABELS = ["noun", "verb", "größer", "ADJ"]
TEXTS = sentences(3, 5)


@pytest.fixture(scope="module")
def content():
    return Tokenizer.train(sentences(1, 200), vocabulary_size=330).source_model


@pytest.fixture(scope="module")
def tokenizer(content):
    return Tokenizer(content, PieceTable(LABELS))


def test_source_and_target_have_their_own_ids(tokenizer, content):
    text = tf.constant(["verb größer", "Haus"])
    assert tokenizer.encode_target(text).to_list() == [[5, 6, 3], [1, 3]]
    same = Tokenizer(content)
    assert tokenizer.encode_source(text).to_list() == same.encode_source(text).to_list()
    assert tokenizer.decode(tf.constant([[2, 4, 1, 6, 3, 0], [0] * 6])).numpy().tolist() == [
        *("noun größer".encode(), b"")
    ]
    pieces = tokenizer.target_pieces(tf.constant([[4, 1, 3, 0]])).numpy()
    assert pieces.tolist() == [[b"noun", b"<unk>", b"</s>", b""]]
    assert tokenizer.pieces("target") == ["<pad>", "<unk>", "<s>", "</s>", *LABELS]
    assert (tokenizer.target_vocabulary_size, tokenizer.is_shared) == (8, False)
    assert tokenizer.target_model == "noun\nverb\ngrößer\nADJ\n".encode()


def test_identical_source_and_target_are_shared(content):
    model, table = SentencePieceModel(content), PieceTable(LABELS)
    for sides in ((model,), (model, content), (content, model), (table, PieceTable(LABELS))):
        tokenizer = Tokenizer(*sides)
        assert tokenizer.is_shared and tokenizer.source is tokenizer.target
    assert not Tokenizer(table, PieceTable(LABELS[::-1])).is_shared
    assert Tokenizer(model).sha256 == Tokenizer(content).sha256
    assert len({Tokenizer(*sides).sha256 for sides in ((model,), (table,), (model, table))}) == 3


@pytest.mark.parametrize("wrong", ["a.model", 3, LABELS])
def test_wrong_source_or_target_is_refused(content, wrong):
    name = type(wrong).__name__
    with pytest.raises(ValueError, match=f"source_model must be the bytes .* a side, got {name}"):
        Tokenizer(wrong)
    with pytest.raises(ValueError, match=f"target_model must .* got {name}"):
        Tokenizer(content, wrong)
    with pytest.raises(ValueError, match="target_model must be a SentencePiece model, got 23 byt"):
        table = PieceTable(LABELS)
        Tokenizer(table, table.content)


def test_tokenizer_is_restored_from_its_files(tokenizer, content):
    assert tokenizer.files == {
        "source.model": content,
        "target.pieces": tokenizer.target_model,
    }
    assert Tokenizer.from_files(tokenizer.files).sha256 == tokenizer.sha256
    shared = Tokenizer(PieceTable(LABELS))
    assert list(shared.files) == ["source.pieces"]
    twice = shared.files | {"target.pieces": shared.source_model}
    assert Tokenizer.from_files(twice).is_shared


def test_invalid_tokenizer_files_are_refused(tokenizer, content):
    table = tokenizer.target_model
    for files, rule in (
        ({}, "source must have one file, source.model or source.pieces or .*, got "),
        ({"target.model": content}, "source must have one file"),
        ({"source.model": content, "source.pieces": table}, "got .*model.*pieces"),
        (
            {"source.model": content, "target.model": content, "target.pieces": table},
            "target must have one file, target.model or target.pieces or .*, got ",
        ),
        ({"source.model": table}, "source.model must be a SentencePiece model"),
        ({"source.model": content, "target.pieces": content}, "target.pieces.* must be "),
    ):
        with pytest.raises(ValueError, match=rule) as error:
            Tokenizer.from_files(files)
        assert "\n" not in str(error.value)


def test_extended_tokenizer_extends_source_and_target(tokenizer):
    more = tokenizer.extended(["☃"] * 5, ["pron pron"], 1)
    assert more.pieces("target") == [*tokenizer.pieces("target"), "pron"]
    assert more.pieces("source") == [*tokenizer.pieces("source"), "☃"]
    assert more.made_of(tokenizer, "target") == [[1]]
    assert more.made_of(tokenizer, "source") == [tokenizer.source.ids_of("☃")]


# ---------------------------------------------------------------- in a SavedModel


@pytest.fixture(scope="module")
def translator(tokenizer):
    model = make_model(tokenizer, bonus=2)
    return Translator(model, tokenizer, max_source_length=11, max_target_length=7)


@pytest.fixture(scope="module")
def exported(translator, tmp_path_factory):
    directory = tmp_path_factory.mktemp("exported") / "1"
    translator.save(str(directory), ["serving_default", "score"])
    return directory


@pytest.fixture(scope="module")
def expected(translator):
    found = translator.functions["serving_default"](tf.constant(TEXTS))
    words = {word for text in found["translation"].numpy() for word in text.decode().split()}
    assert len(words) > 1 and words <= set(LABELS)
    return {name: value.numpy() for name, value in found.items()}


@pytest.mark.slow
def test_saved_models_with_different_tables_do_not_mix(translator, exported, expected, tmp_path):
    other = Tokenizer(translator.tokenizer.source, PieceTable(LABELS[::-1]))
    Translator(translator.model, other, max_source_length=11, max_target_length=7).save(
        str(tmp_path / "2"), ["serving_default"]
    )
    first, again, second = (
        tf.saved_model.load(str(d)) for d in (exported, exported, tmp_path / "2")
    )
    text = tf.constant(TEXTS)
    found = first.signatures["serving_default"](text)["translation"].numpy()
    assert found.tolist() == expected["translation"].tolist()
    del first
    found = again.signatures["serving_default"](text)["translation"].numpy()
    assert found.tolist() == expected["translation"].tolist()
    swapped = dict(zip(LABELS, LABELS[::-1], strict=True))
    renamed = [
        " ".join(swapped[word] for word in text.decode().split())
        for text in expected["translation"]
    ]
    found = second.signatures["serving_default"](text)["translation"].numpy()
    assert [text.decode() for text in found] == renamed


def encoded(texts):
    return np.array([text.encode() for text in texts], object)


@pytest.mark.slow
def test_served_word_table_gives_the_same_answers(translator, exported, expected):
    targets = ["noun unseen", *LABELS]
    asked = {
        "serving_default": {"text": encoded(TEXTS)},
        "score": {"source": encoded(TEXTS), "target": encoded(targets)},
    }
    signatures, calls = read_graph(exported).signatures, []
    for name, inputs in asked.items():
        feeds = {signatures[name].inputs[key].name: value for key, value in inputs.items()}
        calls.append((feeds, [info.name for info in signatures[name].outputs.values()]))
    default, score = serve_calls(exported, calls)
    found = default[signatures["serving_default"].outputs["translation"].name]
    assert found.tolist() == expected["translation"].tolist()
    ours = translator.functions["score"](tf.constant(TEXTS), tf.constant(targets))
    for name, info in signatures["score"].outputs.items():
        np.testing.assert_allclose(score[info.name], ours[name], rtol=1e-5, atol=1e-5)

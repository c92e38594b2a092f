"""The tables with which other programs split texts; tests/export/test_page.py shows that they
suffice."""

import pytest
import tiny
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from tfformer import Tokenizer
from tfformer.text.segmentation import tables_of
from tfformer.text.vocabularies import PieceTable, SentencePieceModel


@pytest.fixture(scope="module")
def side():
    return Tokenizer.train(tiny.sentences(97), vocabulary_size=347).source


def test_tables_have_each_piece_with_its_score_and_type(side):
    found = tables_of(side)
    assert found["kind"] == "unigram" and found["pieces"] == side.pieces
    assert len(found["scores"]) == len(found["types"]) == side.size
    assert [n for n, kind in enumerate(found["types"]) if kind == 6] == side.byte_ids
    assert found["byteFallback"] and found["normalizer"]["prefix"]


def changed(side, change):
    model = ModelProto.FromString(side.content)
    change(model)
    return SentencePieceModel(model.SerializeToString())


def add(piece, kind):
    return lambda model: model.pieces.add(piece=piece, score=0.0, type=kind)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (add(">>fr<<", 5), "no language codes"),
        (add("<tag>", 4), "no user-defined or unused pieces"),
        (lambda model: setattr(model.trainer_spec, "model_type", 3), "not whole words"),
        (
            lambda model: setattr(model.trainer_spec, "treat_whitespace_as_suffix", True),
            "the space before a word",
        ),
    ],
)
def test_unsupported_model_features_are_refused(side, change, words):
    with pytest.raises(ValueError, match=words):
        tables_of(changed(side, change))


def test_a_table_of_pieces_is_refused():
    with pytest.raises(ValueError, match="must be a SentencePiece model, got PieceTable"):
        tables_of(PieceTable(["a"]))

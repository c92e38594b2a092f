"""KerasHub's SentencePiece models keep their own ids, 4 higher, and give the same texts."""

import hub
import pytest
import tensorflow as tf

from tfformer import SpecialIds, Tokenizer
from tfformer.text.imported_sentencepiece import ForeignModel, unknown_id

TEXTS = [
    *hub.TEXTS[:17],
    *("", " ", "  two  spaces ", "Grüße, 你好 🎉", "a\tb\nc\x01d"),
    *("<extra_id_0> a <extra_id_1>", "</s> <pad> <unk> <eos>"),
]


def special_ids(tokenizer, bos):
    pad, eos = tokenizer.pad_token_id, tokenizer.end_token_id
    return SpecialIds(pad, unknown_id(tokenizer.proto), bos, eos)


CASES = {
    "t5": lambda: (hub.t5_tokenizer(), special_ids(hub.t5_tokenizer(), 0)),
    "t5gemma": lambda: (hub.t5gemma_tokenizer(), special_ids(hub.t5gemma_tokenizer(), 2)),
}


@pytest.mark.parametrize("name", CASES)
def test_ids_and_texts_equal_keras_hub(name):
    theirs, special = CASES[name]()
    size = theirs.vocabulary_size()
    side = ForeignModel(theirs.proto, special, size + 5)
    assert side.size == 4 + size + 5
    ids = side.encode(tf.constant(TEXTS))
    for text, found, expected in zip(TEXTS, ids.to_list(), theirs(TEXTS), strict=True):
        expected = special.to_search(tf.constant([int(n) for n in expected], tf.int32))
        assert found == [*expected.numpy(), 3], text
    tokenizer = Tokenizer(side)
    known = [text for text in TEXTS if theirs.token_to_id("<unk>") not in theirs(text)]
    assert len(known) > 17
    said = tokenizer.decode(tokenizer.encode_source(tf.constant(known))).numpy().tolist()
    pieces = [[n for n in theirs(text) if n not in (special.pad, special.eos)] for text in known]
    # (tensorflow-text's library drops a text of spaces; the newer one keeps one space.)
    assert [text.decode().strip() for text in said] == [
        text.strip() for text in theirs.detokenize(pieces)
    ]
    # An id without a piece of theirs is written as nothing.
    holes = [4 + n for n in {special.pad, special.eos, special.unk, size, size + 4}]
    assert tokenizer.decode(tf.constant([holes])).numpy().tolist() == [b""]


def test_invalid_model_is_refused():
    content = hub.t5_tokenizer().proto
    with pytest.raises(ValueError, match="size must be at least 97, the pieces, got 96"):
        ForeignModel(content, SpecialIds(0, 2, 0, 1), 96)
    with pytest.raises(ValueError, match="special_ids must be below 97, the pieces, got 97"):
        ForeignModel(content, SpecialIds(0, 2, 0, 97))
    for damaged in (content[:-7], b"no model"):
        with pytest.raises(ValueError, match="content must be a SentencePiece model"):
            ForeignModel(damaged, SpecialIds(0, 2, 0, 1))
        with pytest.raises(ValueError, match="content must be a SentencePiece model"):
            unknown_id(damaged)

"""Imported BERT, DistilBERT, RoBERTa, XLM-R and sentence-transformers have the original's ids,
numbers and answers, which are stored in tests/data/bert."""

import functools

import bert
import numpy as np
import pytest
import tensorflow as tf
from hard_lines import hard_lines
from sentencepiece import SentencePieceProcessor

from tfformer import run
from tfformer.config import BOS, EOS
from training.importers import huggingface
from training.importers.imported import write

NAMES = bert.names()
MAXIMUM = 1e-4  # of the largest number


@pytest.fixture(scope="module")
def service_of(tmp_path_factory):
    """The service of each folder, imported, written and read again."""
    folder = tmp_path_factory.mktemp("runs")

    @functools.cache
    def service(name):
        write(huggingface.read(bert.folder(name)), folder / name)
        return run.load_service(folder / name)

    return service


def of(*ends):
    return pytest.mark.parametrize("name", [one for one in NAMES if one.endswith(ends)])


def near(found, expected):
    assert found.shape == expected.shape
    largest = max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(found, expected, rtol=0, atol=MAXIMUM * largest)


def score(side, pieces):
    """The log-probability of pieces, rounded, by the SentencePiece model of a side."""
    model = SentencePieceProcessor(model_proto=side.content)
    return round(sum(model.get_score(model.piece_to_id(one)) for one in pieces[1:-1]), 2)


@pytest.mark.parametrize("name", NAMES)
def test_token_ids_match_the_original(name, service_of):
    side = service_of(name).tokenizer.source
    expected = bert.answers(name)["ids"]
    theirs, ours = bert.piece_names(bert.folder(name)), bert.our_names(side)
    lines = hard_lines(len(expected))
    if name.startswith("xlm-roberta"):  # here, control characters become spaces, as in all models
        lines = [line for line in lines if side.clean(tf.constant(line)).numpy().decode() == line]
        assert len(lines) > 30
    asked = dict(zip(hard_lines(len(expected)), expected, strict=True))
    for line, ids in zip(lines, side.encode(tf.constant(lines)).to_list(), strict=True):
        found, wanted = ["cls", *(ours[n] for n in ids)], [theirs[n] for n in asked[line]]
        # If two segmentations are equally probable, the programs may differ.
        is_tie = name.startswith("xlm-roberta") and score(side, found) == score(side, wanted)
        assert found == wanted or is_tie, repr(line)


@of("classifier")
def test_a_classifier_gives_the_originals_logits_and_labels(name, service_of):
    service, found = service_of(name), bert.answers(name)
    expected = bert.outputs(name)["logits"]
    ids, _ = service.source_ids(tf.constant(found["lines"]))
    logits = service.model(ids).numpy()
    near(logits[..., 1] if service.model.config.multi_label else logits, expected)
    served = service.functions["classify"](tf.constant(found["lines"]))
    if service.model.config.multi_label:
        near(served["probabilities"].numpy(), 1 / (1 + np.exp(-expected)))
        rows = [[b"bad", b"good news", b"neutral"][n] for n in np.flatnonzero(expected[0] > 0)]
        assert served["label"][0].numpy() == b", ".join(rows)
    else:
        near(served["probabilities"].numpy(), tf.nn.softmax(expected).numpy())
        labels = np.array([b"bad", b"good news", b"neutral"])[expected.argmax(axis=1)]
        assert served["label"].numpy().tolist() == labels.tolist()
        assert len(set(labels.tolist())) > 1


@of("masked")
def test_a_masked_language_model_fills_the_originals_pieces(name, service_of):
    service, found = service_of(name), bert.answers(name)
    expected = bert.outputs(name)
    theirs = bert.piece_names(bert.folder(name))
    ours = bert.our_names(service.tokenizer.source)
    mask = service.tokenizer.source.mask_id
    own = {ours[mask]: mask, **{piece: n for n, piece in enumerate(ours)}}
    for n, text in enumerate(found["texts"]):
        marked = service.gaps.marked(tf.constant([text]))
        [ids] = service.gaps.encode(marked).to_list()
        read = ["cls", *(ours[one] for one in ids)]
        assert read == [theirs[one] for one in found["masked_ids"][n]]
        assert ids.count(mask) == len(found["filled"][n]) > 0
        logits = expected[str(n)][1:]
        columns = [own[theirs[one]] for one in sorted(theirs)]
        near(service.model(tf.constant([ids]))[0].numpy()[:, columns], logits[:, sorted(theirs)])
    served = service.functions["fill"](tf.constant(found["texts"]))
    special = {"pad", "unk", "cls", "sep", ours[mask]}
    for n, pieces in enumerate(found["filled"]):
        if {theirs.get(one) for one in pieces} & {*special, None}:
            continue  # here, no gap is filled with these
        side = service.tokenizer.source
        spelled = side.spelled(tf.constant([own[theirs[one]] for one in pieces]))
        text = found["texts"][n].encode()
        for piece in spelled.numpy():
            text = text.replace(service.mask.encode(), piece, 1)
        assert served["filled"][n].numpy().decode() == text.decode(errors="replace")


@of("tagger")
def test_a_tagger_gives_the_originals_tag_of_each_word(name, service_of):
    service, found = service_of(name), bert.answers(name)
    served = service.functions["tag"](tf.constant(found["lines"]))
    for n, tags in enumerate(found["tags"]):
        assert served["tags"][n].numpy().decode().split() == tags
        best = bert.outputs(name)[str(n)].max(axis=1)
        near(served["probabilities"][n].numpy()[: len(tags)], best)
    assert len({tag for tags in found["tags"] for tag in tags}) > 1


@of("span")
def test_a_span_reader_gives_the_originals_logits_and_answers(name, service_of):
    service, found = service_of(name), bert.answers(name)
    service = type(service)(
        service.model, service.tokenizer, max_answer_length=10,
        max_source_length=service.max_source_length,
    )  # fmt: skip
    questions, texts = (list(one) for one in zip(*found["questions"], strict=True))
    served = service.functions["answer"](tf.constant(questions), tf.constant(texts))
    theirs, count = bert.piece_names(bert.folder(name)), 0
    for n, (start, end) in enumerate(found["spans"]):
        expected = bert.outputs(name)[str(n)]
        own = {piece: n for n, piece in enumerate(bert.our_names(service.tokenizer.source))}
        ids = [own[theirs[one]] for one in found["pair_ids"][n]]
        assert ids[0] == BOS and ids.count(EOS) == 1 + service.model.config.separators
        first = ids.index(EOS) + service.model.config.separators
        # What the model inserts is not part of its input.
        logits = service.model(np.array([[*ids[1 : ids.index(EOS) + 1], *ids[first:]]]))[0].numpy()
        near(logits[:, ids.index(EOS) : -1], expected[:, first:-1])
        if end == 0:  # the original's answer ends with the space before the next word
            continue
        count += 1
        assert (served["start"][n], served["end"][n]) == (start, end), found["questions"][n]
        assert served["answer"][n].numpy().decode() == texts[n][start:end]
    assert count > 1


def test_vectors_are_those_of_the_original(service_of):
    service, found = service_of("sentences"), bert.answers("sentences")
    vectors = bert.outputs("sentences")["vectors"]
    near(service.embed(found["lines"]), vectors)
    near(service.model(service.source_ids(tf.constant(found["lines"]))[0]).numpy(), vectors)
    assert np.abs(vectors - vectors[0]).max() > 0.1
    assert service.max_source_length == 55
    numbers = np.array(service.answer(found["lines"][:2])[0].split(), float)
    np.testing.assert_allclose(numbers, vectors[0], atol=1e-4)

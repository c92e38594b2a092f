"""An imported Marian model has the original's stored ids, logits, scores and texts."""

import json
import re

import marian
import numpy as np
import pytest
import sentencepiece
import tensorflow as tf

import tfformer
from export.verification.reference import log_softmax
from tfformer.config import BOS, EOS, PAD, UNK
from tfformer.run import read_config
from training import import_marian
from training.importers import marian as importer


class Both:
    """A stored folder, its run, and the original's results."""

    def __init__(self, name, directory):
        self.name, self.directory = name, directory
        assert import_marian.main([str(marian.folder(name)), str(directory)]) == 0
        self.translator = tfformer.load_translator(directory)
        self.model, self.tokenizer = self.translator.model, self.translator.tokenizer
        self.answers = marian.answers(name)

    def ours(self, side, ids):
        """The original's ids as ours."""
        known = marian.our_ids(self.name, side, self.tokenizer)
        return [known[n] for n in ids]

    def logits(self, source_ids, target_ids):
        target_ids = [BOS, *target_ids[:-1]]
        inputs = {"source_ids": np.array([source_ids]), "target_ids": np.array([target_ids])}
        return np.array(self.model(inputs, training=False))[0]


@pytest.fixture(scope="module", params=marian.FOLDERS)
def both(request, tmp_path_factory):
    return Both(request.param, tmp_path_factory.mktemp("marian") / "run")


def test_token_ids_match_the_original(both):
    found = both.tokenizer.encode_source(tf.constant(both.answers["sources"])).to_list()
    extra = {n for n in range(both.tokenizer.source_vocabulary_size)}
    extra -= set(marian.our_ids(both.name, "source", both.tokenizer).values())
    for ids, expected in zip(found, both.answers["source_ids"], strict=True):
        # A piece that is not in the table has its own id; the original has unknown.
        ids = [UNK if n in extra else n for n in ids]
        assert ids == both.ours("source", expected)


def test_target_ids_match_the_original_except_unknown(both):
    found = both.tokenizer.encode_target(tf.constant(both.answers["targets"])).to_list()
    known = 0
    for ids, expected in zip(found, both.answers["target_ids"], strict=True):
        expected = both.ours("target", expected)
        if UNK not in expected:
            assert ids == expected
            known += 1
    assert known or both.name == "separate"


def test_logits_match_the_original(both):
    known = marian.our_ids(both.name, "target", both.tokenizer)
    # One folder has renormalize_logits, so pad is not counted there.
    known = {n: own for n, own in known.items() if own != BOS or both.name != "joint"}
    theirs, ours = list(known), list(known.values())
    pairs = zip(both.answers["source_ids"], both.answers["target_ids"], strict=False)
    for pair, expected in zip(pairs, marian.logits(both.name), strict=False):
        sides = zip(("source", "target"), pair, strict=True)
        found = both.logits(*(both.ours(side, ids) for side, ids in sides))
        expected = expected[:, theirs]
        np.testing.assert_allclose(found[:, ours], expected, atol=1e-4, rtol=1e-4)
        # All other ids have no probability.
        np.testing.assert_allclose(
            log_softmax(found)[:, ours], log_softmax(expected), atol=1e-4, rtol=1e-4
        )
        others = np.setdiff1d(np.arange(found.shape[1]), ours)
        assert PAD in others and np.all(np.exp(log_softmax(found)[:, others]) == 0)


def searched(both):
    """The texts that are not empty, and their numbers. For an empty text there is no search.

    (Spaces at the end of a translation, which the original removes, are no difference.)
    """
    return [(n, text) for n, text in enumerate(both.answers["sources"]) if text]


ONE_FAST = pytest.mark.parametrize(
    "both", ["joint", *(pytest.param(n, marks=pytest.mark.slow) for n in marian.FOLDERS[1:])],
    indirect=True,
)  # fmt: skip


@ONE_FAST
def test_greedy_search_finds_the_same_texts(both):
    numbers, texts = zip(*searched(both), strict=True)
    found = both.translator.translate(texts, greedy=True)
    assert [text.strip() for text in found] == [both.answers["greedy"][n] for n in numbers]


@ONE_FAST
def test_beam_search_finds_the_same_texts_of_the_same_scores(both):
    numbers, texts = zip(*searched(both), strict=True)
    found = both.translator.functions["serving_default"](tf.constant(texts))
    expected = [both.answers["beam"][n] for n in numbers]
    assert [text.decode().strip() for text in found["translation"].numpy()] == expected
    scores = [both.answers["scores"][n] for n in numbers]
    np.testing.assert_allclose(found["score"], scores, atol=1e-4)


def test_the_run_keeps_the_options_of_the_search(both):
    kept = read_config(both.directory)["search"]
    assert kept["length_penalty_form"] == "power" and kept["max_source_length"] == 64
    expected = {
        "joint": (3, 0.8, 39),
        "separate": (2, 1.2, 37),
        "codes": (4, 1.0, 40),
        "untied": (2, 1.0, 36),
    }[both.name]
    names = ("beam_width", "length_penalty", "max_target_length")
    assert tuple(kept[name] for name in names) == expected
    assert kept.get("no_repeat_ngram") == (2 if both.name == "untied" else None)
    assert both.model.config.tie_embeddings == {"separate": "target", "untied": "none"}.get(
        both.name, "all"
    )


# Cases of single folders.


@pytest.fixture(scope="module")
def codes():
    return importer.read(marian.folder("codes")).tokenizer


def test_language_code_is_one_id_only_at_text_start(codes):
    side = codes.source
    names = side.pieces
    ids = side.encode(tf.constant(["a tree", ">>de<< a tree", ">>xx<<a tree", "a >>de<< tree"]))
    plain, coded, unknown, inside = ids.to_list()
    assert coded == [names.index(">>de<<"), *plain] and unknown == [UNK, *plain]
    assert not {names.index(">>de<<"), names.index(">>fr<<")} & set(inside)
    assert side.encode(tf.constant([">>fr<<"])).to_list() == [[names.index(">>fr<<"), EOS]]
    assert codes.decode(tf.constant([coded])).numpy() == [b">>de<< a tree"]


def test_subword_sampling_keeps_the_language_code(codes):
    draw = codes.source.sampler(0.1)
    texts = [b">>de<< the old house", b"the old house", b">>xx<< the old house"] * 9
    found = draw(texts, longest=64, seed=3)
    assert len({tuple(ids) for ids in found}) > 6
    for text, ids in zip(texts, found, strict=True):
        code = {b">>d": [codes.source.pieces.index(">>de<<")], b">>x": [UNK]}.get(text[:3], [])
        assert ids[: len(code)] == code
        assert codes.decode(tf.constant([ids[len(code) :]], tf.int32)).numpy() == [b"the old house"]


@pytest.mark.slow
def test_language_code_of_a_document_applies_to_each_sentence(tmp_path):
    both = Both("codes", tmp_path / "run")
    texts, documents, expected = both.answers["sources"], [], []
    for code in (">>de<< ", ">>fr<< "):
        numbers = [n for n, text in enumerate(texts) if text.startswith(code) and text != code][:3]
        documents.append(code + "\n\n".join(texts[n].removeprefix(code).strip() for n in numbers))
        expected.append("\n\n".join(both.answers["beam"][n] for n in numbers))
    found = both.translator.functions["translate_document"](tf.constant(documents))
    translations = [text.decode() for text in found["translation"].numpy()]
    assert [re.sub(" *\n", "\n", text) for text in translations] == expected
    assert not any(found["truncated"].numpy())


def test_equal_source_and_target_spm_give_a_shared_tokenizer(tmp_path):
    folder = marian.copied("codes", tmp_path / "folder")
    (folder / "target.spm").write_bytes((folder / "source.spm").read_bytes())
    tokenizer = importer.read(folder).tokenizer
    assert tokenizer.is_shared and list(tokenizer.files) == ["source.model"]
    assert not importer.read(marian.folder("codes")).tokenizer.is_shared


def test_piece_missing_from_the_source_table_does_not_change_targets(tmp_path):
    before = importer.read(marian.folder("separate")).tokenizer
    folder = marian.copied("separate", tmp_path / "folder")
    table = json.loads((folder / "vocab.json").read_text())
    del table["a"]
    (folder / "vocab.json").write_text(json.dumps(table))
    after = importer.read(folder).tokenizer
    text = tf.constant(["a lake, alte Haus a"])
    assert after.encode_target(text).to_list() == before.encode_target(text).to_list()
    names = []
    for tokenizer in (before, after):
        [ids] = tokenizer.encode_source(text).to_list()
        names.append([tokenizer.pieces("source")[n] for n in ids])
    assert names[0] == names[1] and "a" in names[0]
    # Its id comes after those of the table, which has a nameless one in its place.
    assert after.pieces("source").index("a") > before.pieces("source").index("a")
    assert after.source_vocabulary_size == before.source_vocabulary_size + 1


def test_characters_unknown_to_sentencepiece_are_looked_up_in_the_vocabulary(tmp_path):
    """As in the original, where SentencePiece returns an unknown character itself."""
    tokenizer = importer.read(marian.folder("joint")).tokenizer
    original = sentencepiece.SentencePieceProcessor(
        model_file=str(marian.folder("joint") / "source.spm")
    )
    table, names = json.loads((marian.folder("joint") / "vocab.json").read_text()), []
    texts = ["the old Straße", "a lake ß", "ßa ☃"]
    for text, ids in zip(texts, tokenizer.encode_source(tf.constant(texts)).to_list(), strict=True):
        pieces = original.encode(text, out_type=str)
        names += [tokenizer.pieces("source")[n] for n in ids[:-1]]
        spelled = set(original.id_to_piece([*range(original.vocab_size())]))
        expected = [one if one in table or one in spelled else "<unk>" for one in pieces]
        assert names[-len(pieces) :] == expected
    assert names.count("ß") == 3 and "<unk>" in names


def test_bad_words_ids_are_excluded_by_the_output_bias(tmp_path):
    folder = marian.copied("joint", tmp_path / "folder")
    path = folder / "generation_config.json"
    table = json.loads((folder / "vocab.json").read_text())
    marian.changed(path, bad_words_ids=[[table["<pad>"]], [table["H"]]])
    before, after = importer.read(marian.folder("joint")), importer.read(folder)
    number = after.tokenizer.pieces("target").index("H")
    bias = "output_projection/bias"
    differs = before.weights[bias] != after.weights[bias]
    assert differs.nonzero()[0].tolist() == [number] and after.weights[bias][number] == -1e4
    for name in before.weights.keys() - {bias}:
        np.testing.assert_array_equal(before.weights[name], after.weights[name])


def test_narrower_feed_forward_layer_is_padded_with_zeros(tmp_path):
    layer = Both("separate", tmp_path / "run").model.encoder.layers[0].feed_forward
    assert layer.d_ff == 19 and not np.any(layer.outer.kernel.numpy()[13:])

"""Imported T5, BART and Pegasus models have the originals' ids, logits, texts and scores."""

import json

import numpy as np
import pytest
import seq2seq
import tensorflow as tf
from tiers import slow_or_nightly

import tfformer
from export import saved_model
from export.verification.reference import log_softmax
from tfformer.config import BOS, UNK
from tfformer.run import read_config
from training import import_hf


class Both:
    """A stored folder, its run, and the original's results."""

    def __init__(self, name, directory):
        self.name, self.directory = name, directory
        assert import_hf.main([str(seq2seq.folder(name)), str(directory)]) == 0
        self.translator = tfformer.load_translator(directory)
        self.model, self.tokenizer = self.translator.model, self.translator.tokenizer
        self.answers = seq2seq.answers(name)

    def ours(self, ids):
        return seq2seq.our_ids(self.name, ids)

    def other_reading(self, text, ids):
        """The reason why transformers tokenises a text differently from SentencePiece; or None.

        It ignores that a model writes unknown characters as bytes. For Pegasus, it keeps spaces at
        the end of a text, and white space other than spaces.
        """
        if self.name == "t5/madlad" and seq2seq.unknown(self.name) in ids:
            return "bytes"
        blanks = text.endswith(" ") or set(text) & {"\t", "\n"}
        return "blanks" if "pegasus" in self.name and text and blanks else None

    def alike(self):
        """The numbers of the texts that are not empty and that both tokenise alike."""
        pairs = zip(self.answers["sources"], self.answers["source_ids"], strict=True)
        return [n for n, one in enumerate(pairs) if one[0] and not self.other_reading(*one)]


@pytest.fixture(scope="module", params=seq2seq.FOLDERS)
def both(request, tmp_path_factory):
    return Both(request.param, tmp_path_factory.mktemp("imported") / "run")


def test_token_ids_match_the_original(both):
    found = both.tokenizer.encode_source(tf.constant(both.answers["sources"])).to_list()
    for n in both.alike():
        assert found[n] == both.ours(both.answers["source_ids"][n])
    assert len(both.alike()) >= 8


def test_unknown_characters_are_bytes_if_the_vocabulary_has_them(tmp_path):
    both, compared = Both("t5/madlad", tmp_path / "run"), 0
    found = both.tokenizer.encode_source(tf.constant(both.answers["sources"])).to_list()
    texts = zip(both.answers["sources"], both.answers["source_ids"], found, strict=True)
    for text, expected, ids in texts:
        if both.other_reading(text, expected) == "bytes":
            is_byte = np.isin(ids, both.tokenizer.source.byte_ids)
            assert any(is_byte) and UNK not in ids
            ids = [n for n, byte in zip(ids, is_byte, strict=True) if not byte]
            assert ids == [n for n in both.ours(expected) if n != UNK]
            compared += 1
    assert compared > 0


def test_logits_match_the_original(both):
    pairs = zip(both.answers["source_ids"], both.answers["target_ids"], strict=False)
    for (source, target), expected in zip(pairs, seq2seq.logits(both.name), strict=False):
        inputs = {
            "source_ids": np.array([both.ours(source)]),
            "target_ids": np.array([[BOS, *both.ours(target)[:-1]]]),
        }
        found = np.array(both.model(inputs, training=False))[0]
        ours = both.ours(range(expected.shape[1]))
        np.testing.assert_allclose(found[:, ours], expected, atol=1e-4)
        # All other ids have no probability.
        np.testing.assert_allclose(
            log_softmax(found)[:, ours], log_softmax(expected), atol=1e-4, rtol=1e-4
        )
        others = np.setdiff1d(np.arange(found.shape[1]), ours)
        assert np.all(np.exp(log_softmax(found)[:, others]) == 0)


FAST = ("t5/flan", "bart/bart")
SOME_FAST = pytest.mark.parametrize(
    "both",
    [pytest.param(n, marks=[] if n in FAST else pytest.mark.slow) for n in seq2seq.FOLDERS],
    indirect=True,
)


@SOME_FAST
def test_greedy_search_finds_the_same_texts(both):
    numbers = both.alike()
    found = both.translator.translate([both.answers["sources"][n] for n in numbers], greedy=True)
    assert [text.strip() for text in found] == [both.answers["greedy"][n].strip() for n in numbers]


@SOME_FAST
def test_beam_search_finds_texts_of_the_same_score_or_a_better_one(both):
    """For texts that end before the maximum length, at which the original counts eos as certain."""
    found = both.translator.functions["serving_default"](tf.constant(both.answers["sources"]))
    equal, limit = 0, both.translator.max_target_length - 2
    for n in both.alike():
        text, score = found["translation"][n].numpy().decode(), float(found["score"][n])
        expected = both.answers["beam"][n], both.answers["scores"][n]
        is_long = len(both.tokenizer.encode_target([expected[0]])[0]) > limit
        # Only a sentinel: spaces up to the maximum length.
        if found["truncated"][n] or is_long or both.answers["sources"][n] == "<extra_id_2>":
            continue
        if text.strip() == expected[0].strip():
            equal += 1
            # Without a forced <s>, the original counts its probability.
            given = 0.01 if both.name == "bart/bart-scaled" else 0.0
            assert expected[1] - 1e-4 < score < expected[1] + given + 1e-4
        else:
            assert score > expected[1]
    assert equal >= 6


# What the run keeps of each folder: heads and their size, tied embeddings, beam width, length
# penalty, maximum lengths.
KEPT = {
    "t5/t5": (2, 6, "all", 3, 0.8, 512, 39),
    "t5/flan": (3, 5, "embeddings", 2, 1, 512, 37),
    "t5/mt5": (2, 7, "embeddings", 2, 1, 512, 37),
    "t5/madlad": (2, 12, "embeddings", 4, 1, 512, 35),
    "t5/umt5": (2, 6, "embeddings", 2, 1, 512, 35),
    "bart/bart": (2, None, "all", 3, 2.0, 64, 41),
    "bart/bart-scaled": (2, None, "all", 2, 1, 64, 37),
    "bart/pegasus": (2, None, "all", 4, 0.6, 64, 35),
    "bart/pegasus-json": (2, None, "all", 2, 1, 64, 35),
}


def test_the_run_keeps_the_options(both):
    search, model = read_config(both.directory)["search"], both.model.config
    names = ("beam_width", "length_penalty", "max_source_length", "max_target_length")
    found = (model.num_heads, model.head_size, model.tie_embeddings)
    assert (*found, *(search[name] for name in names)) == KEPT[both.name]
    if both.name == "bart/bart":
        assert (search["min_length"], search["no_repeat_ngram"]) == (6, 3)


def test_layers_have_biases_only_if_some_of_the_original_have(both):
    """Otherwise fine-tuning would train what the original does not have."""
    paths = [one.path for one in both.model.trainable_variables if one.path.endswith("/bias")]
    assert any("output_projection" not in path for path in paths) == (both.name.startswith("bart/"))


@pytest.mark.slow
def test_bart_texts_begin_with_a_reserved_start_piece(tmp_path):
    both = Both("bart/bart", tmp_path / "run")
    begin = both.tokenizer.source.first
    ids = both.tokenizer.encode_source(["a tree", "<s>", ""]).to_list()
    assert [row[0] for row in ids] == [begin] * 3 and not any(begin in row[1:] for row in ids)
    assert both.tokenizer.decode([ids[1]]).numpy().tolist() == [b"<s>"]
    # The search adds it at no cost; the sentences of a document begin with it too.
    first, second = (both.answers["sources"][n] for n in (0, 1))
    best = both.translator.translate([first, second])
    document = both.translator.functions["translate_document"](tf.constant([f"{first}\n{second}"]))
    assert document["sentences"].numpy() == [2]
    assert document["translation"].numpy()[0].decode() == "\n".join(best)
    scored = both.translator.functions["score"](tf.constant([first]), tf.constant(best[:1]))
    found = both.translator.functions["serving_default"](tf.constant([first]))
    n = len(both.tokenizer.encode_target(best[:1])[0])
    total = float(scored["log_prob"][0])
    assert total / n**2.0 == pytest.approx(float(found["score"][0]), abs=1e-4)


def test_model_with_a_forced_first_token_refuses_shortlist_and_language(tmp_path):
    both = Both("bart/bart", tmp_path / "run")
    found = both.translator.functions["beam_search"](
        tf.constant(both.answers["sources"][:2]), max_length=tf.constant(1)
    )
    assert np.isfinite(found["scores"]).all()  # <s> and eos
    candidates = np.zeros((both.tokenizer.source_vocabulary_size, 2), "int32")
    shortlist = tfformer.Shortlist(candidates, np.arange(9, dtype="int32"), both.tokenizer.sha256)
    with pytest.raises(ValueError, match="shortlist must be None if a given token begins each"):
        limits = {"max_source_length": 9, "max_target_length": 9}
        tfformer.Translator(both.model, both.tokenizer, shortlist=shortlist, **limits)
    with pytest.raises(ValueError, match=r"target_language must be None for this model, got \["):
        both.translator.translate(["a"], target_language=["de", "fr"])


@pytest.mark.parametrize("name", slow_or_nightly(["bart/bart", "t5/flan"], ["t5/flan"]))
def test_export_passes_verification_and_gives_the_same_answers(name, tmp_path):
    options = ["--quick", "--signatures", "serving_default"] if name == "t5/flan" else []
    both = Both(name, tmp_path / "run")
    assert saved_model.main([str(both.directory), str(tmp_path / "exported"), *options]) == 0
    loaded = tf.saved_model.load(str(tmp_path / "exported" / "1"))
    texts = tf.constant([both.answers["sources"][n] for n in both.alike()])
    found = loaded.signatures["serving_default"](text=texts)
    expected = both.translator.functions["serving_default"](texts)
    assert found["translation"].numpy().tolist() == expected["translation"].numpy().tolist()


def test_special_symbol_is_one_piece_anywhere_in_a_text(tmp_path):
    tokenizer = Both("t5/madlad", tmp_path / "run").tokenizer
    texts = ["<2de>a house<extra_id_0>", "<2de>", "<extra_id_1><extra_id_1>", "<2xx> a"]
    ids = tokenizer.encode_source(texts)
    pieces = [
        [piece.decode() for piece in row if piece != b""]
        for row in tokenizer.source_pieces(ids.to_tensor()).numpy()
    ]
    assert pieces[0][0] == "<2de>" and pieces[0][-2:] == ["<extra_id_0>", "</s>"]
    assert pieces[0][1].startswith("▁")  # the text between two symbols begins a word
    assert pieces[1:3] == [["<2de>", "</s>"], ["<extra_id_1>", "<extra_id_1>", "</s>"]]
    assert "<2xx>" not in pieces[3] and len(pieces[3]) > 5  # a text like any other
    assert [text.decode() for text in tokenizer.decode(ids[1:3]).numpy()] == texts[1:3]


# What cannot be imported.

OPTIONS = {
    "d_kv": 0,
    "num_heads": 0,
    "vocab_size": 80,
    "relative_attention_num_buckets": 16,
    "feed_forward_proj": "gated-tanh",
    "decoder_start_token_id": 1,
    "eos_token_id": 0,
    "dropout_rate": 1.5,
    "layer_norm_epsilon": "small",
    "tie_word_embeddings": "yes",
    "scale_decoder_outputs": 1,
    "n_positions": -1,
}


def change(path, **options):
    path.write_text(json.dumps({**json.loads(path.read_text()), **options}))


@pytest.mark.parametrize("name", OPTIONS)
def test_unsupported_option_is_refused(name, tmp_path, refused):
    folder = seq2seq.copied("t5/flan", tmp_path / "folder")
    change(folder / "config.json", **{name: OPTIONS[name]})
    assert name in refused(folder)


BART = {
    "bos_token_id": 4,
    "decoder_start_token_id": 0,
    "decoder_attention_heads": 11,
    "activation_function": "tanh",
    "scale_embedding": 1,
    "max_position_embeddings": 99,
    "vocab_size": 331,
    "forced_bos_token_id": 7,
}


@pytest.mark.parametrize("name", BART)
def test_unsupported_bart_option_is_refused(name, tmp_path, refused):
    folder = seq2seq.copied("bart/bart", tmp_path / "folder")
    file = "generation_config.json" if name.startswith("forced") else "config.json"
    change(folder / file, **{name: BART[name]})
    named = "embed_positions" if name.startswith("max_pos") else name
    assert named in refused(folder)


def test_unsupported_pegasus_option_is_refused(tmp_path, refused):
    folder = seq2seq.copied("bart/pegasus", tmp_path / "folder")
    change(folder / "tokenizer_config.json", offset="x")
    assert "offset must be a number of pieces, got 'x'" in refused(folder)
    change(folder / "tokenizer_config.json", offset=103)
    assert "must have at most vocab_size" in refused(folder)
    change(folder / "generation_config.json", forced_bos_token_id=0)
    assert "forced_bos_token_id has no counterpart here, got 0" in refused(folder)


@pytest.mark.parametrize("name", ["num_heads", "d_ff", "d_model", "num_layers"])
def test_sizes_that_are_not_those_of_the_weights_are_refused(name, tmp_path, refused):
    folder = seq2seq.copied("t5/flan", tmp_path / "folder")
    change(folder / "config.json", **{name: 10**9})
    assert " must have a weight " in (error := refused(folder)) or "must be of shape" in error


@pytest.mark.parametrize(
    ("folder", "name"),
    [("t5/flan", "config.json"), ("t5/flan", "spiece.model"), ("t5/mt5", "tokenizer.json"),
     ("t5/flan", "model.safetensors"), ("t5/madlad", "model.safetensors.index.json"),
     ("t5/t5", "pytorch_model.bin"), ("bart/bart", "vocab.json"), ("bart/bart", "merges.txt"),
     ("bart/bart-scaled", "tokenizer.json"), ("bart/pegasus", "spiece.model")],
)  # fmt: skip
def test_missing_or_damaged_file_is_refused(folder, name, tmp_path, refused):
    folder = seq2seq.copied(folder, tmp_path / "folder")
    content = (folder / name).read_bytes()
    # Half of the merges may be valid merges too.
    half = [] if name == "merges.txt" else [content[: len(content) // 2]]
    for damaged in (b"", *half, b"\xff" * 99):
        (folder / name).write_bytes(damaged)
        assert name in refused(folder)
    (folder / name).unlink()
    assert name in refused(folder)


JSON = {
    "model": {"type": "BPE", "vocab": []},
    "added_tokens": [{"content": "x"}],
    "normalizer": {"type": "Lowercase"},
    "pre_tokenizer": {"type": "ByteLevel"},
}


@pytest.mark.parametrize("name", JSON)
def test_unsupported_tokenizer_json_is_refused(name, tmp_path, refused):
    folder = seq2seq.copied("t5/mt5", tmp_path / "folder")
    change(folder / "tokenizer.json", **{name: JSON[name]})
    assert "tokenizer.json must be a tokenizer of the tokenizers library" in refused(folder)


def test_vocabulary_larger_than_the_model_is_refused(tmp_path, refused):
    folder = seq2seq.copied("t5/flan", tmp_path / "folder")
    change(folder / "tokenizer_config.json", extra_ids=9)
    assert "must have at most vocab_size = 81 ids, got 82" in refused(folder)
    change(folder / "tokenizer_config.json", extra_ids="many")
    assert "extra_ids must be a number of pieces" in refused(folder)

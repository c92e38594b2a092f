"""An imported T5 model is the original: ids, logits, texts and scores, as they were stored."""

import json

import numpy as np
import pytest
import t5
import tensorflow as tf

import tfformer
from export.verification.reference import log_softmax
from tfformer.config import BOS, PAD, UNK
from tfformer.run import read_config
from training import import_hf


class Both:
    """A stored folder, its run, and what the original says."""

    def __init__(self, name, directory):
        self.name, self.directory = name, directory
        assert import_hf.main([str(t5.folder(name)), str(directory)]) == 0
        self.translator = tfformer.load_translator(directory)
        self.model, self.tokenizer = self.translator.model, self.translator.tokenizer
        self.answers = t5.answers(name)


@pytest.fixture(scope="module", params=t5.FOLDERS)
def both(request, tmp_path_factory):
    return Both(request.param, tmp_path_factory.mktemp("t5") / "run")


def test_texts_become_the_same_ids(both):
    found = both.tokenizer.encode_source(tf.constant(both.answers["sources"])).to_list()
    same = 0
    for ids, expected in zip(found, map(t5.our_ids, both.answers["source_ids"]), strict=True):
        if both.name == "madlad" and UNK in expected:
            # Its model writes unknown characters as bytes. The tokenizer of transformers ignores
            # that and reads unk.
            is_byte = np.isin(ids, both.tokenizer.source.byte_ids)
            ids = [n for n, byte in zip(ids, is_byte, strict=True) if not byte]
            expected = [n for n in expected if n != UNK]
        else:
            same += 1
        assert ids == expected
    assert same >= len(found) - 2


def test_logits_are_the_originals(both):
    pairs = zip(both.answers["source_ids"], both.answers["target_ids"], strict=False)
    for (source, target), expected in zip(pairs, t5.logits(both.name), strict=False):
        inputs = {
            "source_ids": np.array([t5.our_ids(source)]),
            "target_ids": np.array([[BOS, *t5.our_ids(target)[:-1]]]),
        }
        found = np.array(both.model(inputs, training=False))[0]
        ours = t5.our_ids(range(expected.shape[1]))
        np.testing.assert_allclose(found[:, ours], expected, atol=1e-4)
        # What is there besides has no probability.
        np.testing.assert_allclose(
            log_softmax(found)[:, ours], log_softmax(expected), atol=1e-4, rtol=1e-4
        )
        assert np.setdiff1d(np.arange(found.shape[1]), ours).tolist() == [PAD]


def alike(both):
    """The numbers of the texts whose ids are alike in both."""
    pairs = enumerate(both.answers["source_ids"])
    return [n for n, ids in pairs if both.name != "madlad" or 2 not in ids]


ONE_FAST = pytest.mark.parametrize(
    "both", ["flan", *(pytest.param(n, marks=pytest.mark.slow) for n in t5.FOLDERS if n != "flan")],
    indirect=True,
)  # fmt: skip


@ONE_FAST
def test_greedy_search_finds_the_same_texts(both):
    numbers = alike(both)
    found = both.translator.translate([both.answers["sources"][n] for n in numbers], greedy=True)
    assert [text.strip() for text in found] == [both.answers["greedy"][n].strip() for n in numbers]


@ONE_FAST
def test_beam_search_finds_texts_of_the_same_score_or_a_better_one(both):
    """Of texts that end before the length limit: there, the original counts eos as certain."""
    found = both.translator.functions["serving_default"](tf.constant(both.answers["sources"]))
    equal = 0
    for n in alike(both):
        text, score = found["translation"][n].numpy().decode(), float(found["score"][n])
        expected = both.answers["beam"][n], both.answers["scores"][n]
        if found["truncated"][n] or len(both.tokenizer.encode_target([expected[0]])[0]) > 33:
            continue
        if text.strip() == expected[0].strip():
            equal += 1
            assert score == pytest.approx(expected[1], abs=1e-4)
        else:
            assert score > expected[1]
    assert equal >= 7


def test_the_run_keeps_the_options_of_the_search(both):
    kept = read_config(both.directory)["search"]
    expected = {"t5": (3, 0.8, 39), "flan": (2, 1, 37), "mt5": (2, 1, 37), "madlad": (4, 1, 35),
                "umt5": (2, 1, 35)}[both.name]  # fmt: skip
    names = ("beam_width", "length_penalty", "max_target_length")
    assert tuple(kept[name] for name in names) == expected
    assert kept["max_source_length"] == 512
    config = both.model.config
    assert config.tie_embeddings == ("all" if both.name == "t5" else "embeddings")
    sizes = {"t5": (2, 6), "flan": (3, 5), "mt5": (2, 7), "madlad": (2, 12), "umt5": (2, 6)}
    assert (config.num_heads, config.head_size) == sizes[both.name]


def test_a_symbol_is_one_piece_wherever_it_stands(tmp_path):
    tokenizer = Both("madlad", tmp_path / "run").tokenizer
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


@pytest.fixture
def refused(tmp_path, capsys):
    """Imports a folder, which must fail; returns the error."""

    def run(folder):
        assert import_hf.main([str(folder), str(tmp_path / "run")]) == 1
        error = capsys.readouterr().err.splitlines()[-1]
        assert error.startswith("python -m training.import_hf: error: ")
        assert not (tmp_path / "run").exists()
        return error

    return run


def change(path, **options):
    path.write_text(json.dumps({**json.loads(path.read_text()), **options}))


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_without_counterpart_is_named(name, tmp_path, refused):
    folder = t5.copied("flan", tmp_path / "folder")
    change(folder / "config.json", **{name: OPTIONS[name]})
    assert name in refused(folder)


@pytest.mark.parametrize("name", ["num_heads", "d_ff", "d_model", "num_layers"])
def test_sizes_that_are_not_those_of_the_weights_are_refused(name, tmp_path, refused):
    folder = t5.copied("flan", tmp_path / "folder")
    change(folder / "config.json", **{name: 10**9})
    assert " must have a weight " in (error := refused(folder)) or "must be of shape" in error


@pytest.mark.parametrize(
    ("folder", "name"),
    [("flan", "config.json"), ("flan", "spiece.model"), ("mt5", "tokenizer.json"),
     ("flan", "model.safetensors"), ("madlad", "model.safetensors.index.json"),
     ("t5", "pytorch_model.bin")],
)  # fmt: skip
def test_a_missing_or_damaged_file_is_named(folder, name, tmp_path, refused):
    folder = t5.copied(folder, tmp_path / "folder")
    content = (folder / name).read_bytes()
    for damaged in (b"", content[: len(content) // 2], b"\xff" * 99):
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
def test_another_kind_of_tokenizer_is_named(name, tmp_path, refused):
    folder = t5.copied("mt5", tmp_path / "folder")
    change(folder / "tokenizer.json", **{name: JSON[name]})
    assert "tokenizer.json must be a tokenizer of the tokenizers library" in refused(folder)


def test_a_vocabulary_larger_than_the_model_is_named(tmp_path, refused):
    folder = t5.copied("flan", tmp_path / "folder")
    change(folder / "tokenizer_config.json", extra_ids=9)
    assert "must have at most vocab_size = 81 ids, got 82" in refused(folder)
    change(folder / "tokenizer_config.json", extra_ids="many")
    assert "extra_ids must be a number of pieces" in refused(folder)

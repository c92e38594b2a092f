"""For BERT and its relatives, what cannot be imported is refused in one line that names it."""

import json

import bert
import numpy as np
import pytest
from marian import changed
from safetensors.numpy import load_file, save_file

OPTIONS = {
    "model_type": "electra",
    "position_embedding_type": "relative_key",
    "is_decoder": True,
    "add_cross_attention": True,
    "hidden_act": ["gelu"],
    "hidden_size": 17,
    "num_attention_heads": 0,
    "num_hidden_layers": 10**9,
    "intermediate_size": "22",
    "max_position_embeddings": 10**10,
    "vocab_size": 10**10,
    "type_vocab_size": 3,
    "hidden_dropout_prob": "x",
    "layer_norm_eps": -1,
    "tie_word_embeddings": 1,
    "architectures": ["BertForMultipleChoice"],
    "problem_type": "regression",
    "id2label": {"0": "a", "2": "b"},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_unsupported_option_is_refused(name, tmp_path, refused):
    folder = bert.copied("bert-classifier", tmp_path / "folder")
    changed(folder / "config.json", **{name: OPTIONS[name]})
    named = {
        "num_hidden_layers": "encoder.layer.2.",
        "hidden_size": "word_embeddings",
        "vocab_size": "word_embeddings",
        "max_position_embeddings": "position_embeddings",
        "type_vocab_size": "token_type_embeddings",
        "hidden_dropout_prob": "dropout",
        "layer_norm_eps": "epsilon",
    }
    assert named.get(name, name) in refused(folder)


@pytest.mark.parametrize(
    "labels", [{"0": "one"}, {"0": "a", "1": "a"}, {"0": "a", "1": "b\tc"}, {"0": "a", "1": 5}, [1]]
)
def test_invalid_labels_are_refused(labels, tmp_path, refused):
    folder = bert.copied("bert-classifier", tmp_path / "folder")
    count = max(len(labels), 1)
    changed(folder / "config.json", id2label=labels)
    arrays = load_file(folder / "model.safetensors")
    arrays = {**arrays, "classifier.weight": arrays["classifier.weight"][:count],
              "classifier.bias": arrays["classifier.bias"][:count]}  # fmt: skip
    save_file(arrays, folder / "model.safetensors")
    said = refused(folder)
    assert "id2label" in said or "piece 2" in said


FILES = [
    ("bert-classifier", "config.json"), ("bert-classifier", "vocab.txt"),
    ("bert-classifier", "model.safetensors"), ("bert-classifier", "tokenizer_config.json"),
    ("bert-masked", "tokenizer.json"), ("roberta-classifier", "vocab.json"),
    ("roberta-classifier", "merges.txt"), ("xlm-roberta-masked", "sentencepiece.bpe.model"),
    ("distilbert-masked", "pytorch_model.bin"), ("sentences", "modules.json"),
    ("sentences", "1_Pooling/config.json"), ("sentences", "sentence_bert_config.json"),
]  # fmt: skip
# A folder may lack these; other files or the defaults replace them.
OPTIONAL = ("tokenizer_config.json", "modules.json", "sentence_bert_config.json")


@pytest.mark.parametrize(("name", "file"), FILES)
def test_missing_or_damaged_file_is_refused(name, file, tmp_path, refused):
    folder = bert.copied(name, tmp_path / "folder")
    content = (folder / file).read_bytes()
    damages = [b"\xff" * 99]
    if file != "merges.txt":  # half of the merges are merges
        damages.append(content[: len(content) // 2])
    for damaged in damages:
        (folder / file).write_bytes(damaged)
        assert file in refused(folder) or "the vocabulary of" in refused(folder)
    if file not in OPTIONAL:
        (folder / file).unlink()
        assert file in refused(folder)


TABLES = {
    "vocab.txt must have each piece once": "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\na\n",
    "must have '[SEP]'": "[PAD]\n[UNK]\n[CLS]\n[MASK]\na\n",
    "must have each id once": "\n".join(f"p{n}" for n in range(999)),
}


@pytest.mark.parametrize("said", TABLES)
def test_invalid_vocabulary_is_refused(said, tmp_path, refused):
    folder = bert.copied("bert-classifier", tmp_path / "folder")
    (folder / "vocab.txt").write_text(TABLES[said])
    assert said in refused(folder)


SETTINGS = {
    "do_lower_case": "yes",
    "strip_accents": 1,
    "tokenize_chinese_chars": None,
    "cls_token": 5,
    "added_tokens_decoder": {"7": {"content": "<new>"}},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_unsupported_tokenizer_setting_is_refused(name, tmp_path, refused):
    folder = bert.copied("bert-classifier", tmp_path / "folder")
    changed(folder / "tokenizer_config.json", **{name: SETTINGS[name]})
    assert ("<new>" if name == "added_tokens_decoder" else name) in refused(folder)


WHOLE = [
    ("bert-masked", "model", {"type": "BPE"}, "model type must be WordPiece"),
    ("bert-masked", "model", 5, "model must be an object"),
    ("bert-masked", "normalizer", {"type": "NFC"}, "normalizer must be BertNormalizer"),
    ("bert-masked", "added_tokens", [{"content": "<x>"}], "<x>"),
    ("roberta-masked", "model", {"type": "BPE", "merges": 1}, "merges must be a list"),
    ("roberta-masked", "model", {"type": "BPE", "merges": [5]}, "must be pairs of pieces"),
    ("xlm-roberta-span", "model", {"type": "Unigram", "vocab": [["a"]], "unk_id": 3}, "not enough"),
    ("xlm-roberta-span", "model", {"type": "Unigram", "vocab": [["a", 0.5]], "unk_id": 0},
     "added_tokens must follow"),
    ("roberta-masked", "normalizer", {"type": "Lowercase"}, "normalizer must be None"),
    ("roberta-masked", "pre_tokenizer", {"type": "Whitespace"}, "pre_tokenizer must be ByteLevel"),
    ("roberta-masked", "pre_tokenizer", {"type": "ByteLevel", "use_regex": False}, "use_regex"),
    ("xlm-roberta-span", "normalizer",
     {"type": "Precompiled", "precompiled_charsmap": "?"}, "Only base64 data"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "option", "value", "said"), WHOLE)
def test_unsupported_tokenizer_json_option_is_refused(name, option, value, said, tmp_path, refused):
    folder = bert.copied(name, tmp_path / "folder")
    changed(folder / "tokenizer.json", **{option: value})
    assert said in refused(folder)


MODULES = [
    ("modules.json", [], "must be a list of modules"),
    ("modules.json", [{"type": "a.Transformer"}], "must be a list of modules"),
    ("modules.json", [{"type": "a.Transformer", "path": ""}, {"type": "b.Dense", "path": "1"}],
     "must have modules of"),
    ("1_Pooling/config.json", {"pooling_mode_max_tokens": True}, "must have one of"),
    ("1_Pooling/config.json", {}, "must have one of"),
    ("1_Pooling/config.json", {"pooling_mode": "weightedmean"}, "must have one of"),
    ("sentence_bert_config.json", {"max_seq_length": "128"}, "max_seq_length"),
    ("sentence_bert_config.json", {"max_seq_length": 1}, "max_seq_length"),
]  # fmt: skip


@pytest.mark.parametrize(("file", "content", "said"), MODULES)
def test_unsupported_module_or_pooling_is_refused(file, content, said, tmp_path, refused):
    folder = bert.copied("sentences", tmp_path / "folder")
    (folder / file).write_text(json.dumps(content))
    assert said in refused(folder)


def test_missing_extra_misshapen_or_non_finite_weights_are_refused(tmp_path, refused):
    folder = bert.copied("bert-classifier", tmp_path / "folder")
    arrays = load_file(folder / "model.safetensors")
    name = "bert.encoder.layer.1.output.dense.weight"
    for wrong, said in (
        ({**arrays, "other": np.zeros(3, "float32")}, "has no weight other"),
        (
            {key: array for key, array in arrays.items() if key != name},
            f"must have a weight {name}",
        ),
        ({**arrays, name: arrays[name][:, :-1].copy()}, f"{name} must be of shape"),
        ({**arrays, name: arrays[name] * np.float32("nan")}, f"{name} must be finite"),
        ({**arrays, "bert.pooler.dense.bias": np.zeros(3, "float32")}, "pooler.dense.bias must be"),
    ):
        save_file(wrong, folder / "model.safetensors")
        assert said in refused(folder)

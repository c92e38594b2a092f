"""A folder of M2M100, NLLB-200 or SMALL-100 is refused in one line that names the fault."""

import json

import m2m100
import marian
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from training import import_hf


@pytest.fixture
def refused(tmp_path, capsys):
    """Imports a folder, which must fail; returns the message."""

    def run(name, folder, *languages):
        given = m2m100.arguments(name, tmp_path / "run", folder)
        assert import_hf.main([*given, *languages]) == 1
        said = capsys.readouterr().err.splitlines()[-1]
        assert said.startswith("python -m training.import_hf: error: ")
        assert not [path for path in tmp_path.iterdir() if "run" in path.name]
        return said

    return run


@pytest.fixture
def folder(tmp_path):
    return lambda name: m2m100.copied(name, tmp_path / "folder")


OPTIONS = {
    "tie_word_embeddings": False,
    "decoder_start_token_id": 0,
    "pad_token_id": 2,
    "d_model": 23,
    "encoder_layers": "2",
    "decoder_attention_heads": 11,
    "activation_function": "tanh",
    "scale_embedding": 1,
    "vocab_size": 10**10,
    "max_position_embeddings": -5,
}


@pytest.mark.parametrize("name", OPTIONS)
def test_unsupported_option_is_refused(name, folder, refused):
    at = folder("m2m")
    marian.changed(at / "config.json", **{name: OPTIONS[name]})
    assert name in refused("m2m", at)


def test_error_names_the_id_that_is_pad_and_eos(folder, refused):
    at = folder("m2m")
    marian.changed(at / "config.json", eos_token_id=1, decoder_start_token_id=1)
    assert refused("m2m", at).endswith("pad_token_id must not be eos_token_id, got 1")


@pytest.mark.parametrize(
    "name, value", [("do_sample", True), ("forced_bos_token_id", 7), ("forced_bos_token_id", [7])]
)
def test_unsupported_generation_option_is_refused(name, value, folder, refused):
    at = folder("m2m")
    marian.changed(at / "generation_config.json", **{name: value})
    assert name in refused("m2m", at)


@pytest.mark.parametrize(
    "family, name, value",
    [
        ("m2m", "tokenizer_class", "MBartTokenizer"),
        ("m2m", "tokenizer_class", ["x"]),
        ("m2m", "language_codes", "all"),
        ("m2m", "added_tokens_decoder", {"5": {"content": "<new>"}}),
        ("nllb", "legacy_behaviour", True),
    ],
)
def test_unsupported_tokenizer_setting_is_refused(family, name, value, folder, refused):
    at = folder(family)
    marian.changed(at / "tokenizer_config.json", **{name: value})
    said = refused(family, at)
    assert ("<new>" if name == "added_tokens_decoder" else name) in said


def test_invalid_or_missing_language_is_refused(folder, refused):
    at = folder("small100")
    assert "source_language must be None" in refused("small100", at, "--source-language", "en")
    assert "target_language must be one of af, am," in refused(
        "small100", at, "--target-language", "deu_Latn"
    )
    said = refused("nllb", m2m100.folder("nllb"), "--source-language", "en")
    assert "source_language must be one of ace_Latn, deu_Latn, eng_Latn, fra_Latn, zul_Latn" in said
    marian.changed(at / "tokenizer_config.json", tokenizer_class="M2M100Tokenizer")
    assert "target_language must be given" in refused("small100", at)
    said = refused("m2m", marian.folder("joint"))
    assert "target_language must be None for the family 'marian'" in said


@pytest.mark.parametrize(
    "family, file, content",
    [
        ("m2m", "vocab.json", None),
        ("m2m", "sentencepiece.bpe.model", None),
        ("m2m", "sentencepiece.bpe.model", b"no model"),
        ("m2m", "vocab.json", b"[" * 99_999),
        ("m2m", "vocab.json", b'{"<unk>": 3, "</s>": 2, "<pad>": 5}'),
        ("m2m", "vocab.json", b'{"<unk>": 3, "</s>": 2, "<pad>": 1, "xy": 1000000000000}'),
        ("m2m", "vocab.json", b'{"<unk>": 3, "</s>": 2, "<pad>": 1, "xy": "4"}'),
        ("m2m", "tokenizer_config.json", b"7"),
        ("whole", "tokenizer.json", None),
        ("whole", "tokenizer.json", b'{"model": 5}'),
        ("whole", "tokenizer.json", b"\xff\xfe"),
        ("m2m", "model.safetensors", None),
        ("m2m", "model.safetensors", b"\x00" * 64),
    ],
)
def test_missing_or_damaged_file_is_refused(family, file, content, folder, refused):
    at = folder(family)
    (at / file).unlink()
    if content is not None:
        (at / file).write_bytes(content)
    said = refused(family, at)
    instead = {"model.safetensors": "must have one of", "vocab.json": "<pad> = 1"}
    assert file in said or instead[file] in said


def test_invalid_tokenizer_json_is_refused(folder, refused):
    at = folder("whole")
    whole = json.loads((at / "tokenizer.json").read_text())
    vocabulary, charsmap = whole["model"]["vocab"], whole["normalizer"]["normalizers"][0]
    for part in (
        {"normalizer": {"type": "Lowercase"}},
        {"normalizer": {**charsmap, "precompiled_charsmap": "*"}},
        {"model": {"vocab": vocabulary, "merges": [["a"]]}},
        {"model": {"vocab": vocabulary, "merges": "ab"}},
        {"model": {"vocab": {**vocabulary, "x": 1.5}, "merges": []}},
        {"model": {"vocab": {**vocabulary, "new": 4}, "merges": []}},
        {"model": {"vocab": {**vocabulary, "new": -4}, "merges": []}},
        {"added_tokens": [{"content": "<new>", "id": 5}]},
        {"added_tokens": [{"content": "deu_Latn", "id": "x"}]},
        {"added_tokens": [{"content": "deu_Latn", "id": 10**9}]},
        {"added_tokens": 5},
    ):
        (at / "tokenizer.json").write_text(json.dumps({**whole, **part}))
        assert " must " in refused("whole", at), part


@pytest.mark.parametrize(
    "change", ["missing", "more", "shape", "nan", "infinite", "bias", "positions", "integers"]
)
def test_error_names_an_invalid_weight(change, folder, refused):
    at, name = folder("m2m"), "model.encoder.layers.1.fc1.weight"
    arrays = load_file(at / "model.safetensors")
    if change == "missing":
        del arrays[name]
    elif change == "shape":
        arrays[name] = np.ascontiguousarray(arrays[name].T)
    elif change == "nan":
        arrays[name] = np.full_like(arrays[name], np.nan)
    elif change == "infinite":
        arrays[name] = np.full_like(arrays[name], np.inf)
    elif change == "integers":
        arrays[name] = np.ones(arrays[name].shape, "int32")
    else:
        name = {
            "more": "model.encoder.layers.2.fc1.weight",
            "bias": "final_logits_bias",
            "positions": "model.decoder.embed_positions.weights",
        }[change]
        shape = {"positions": (66, 24), "bias": (1, 247)}.get(change, (17, 24))
        arrays[name] = np.ones(shape, "float32")
    save_file(arrays, at / "model.safetensors")
    assert name in refused("m2m", at)

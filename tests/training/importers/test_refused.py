"""What cannot be imported is refused in one line that names it; nothing is executed or written."""

import io
import json
import os
import pickle
import struct
import sys
import types
import zipfile

import marian
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tfformer import load_translator
from training import import_marian
from training.importers.torch_file import ALLOWED, read_torch
from training.importers.weights import read_safetensors


@pytest.fixture
def refused(tmp_path, capsys):
    """Imports a folder, which must fail; returns the message."""

    def run(folder):
        assert import_marian.main([str(folder), str(tmp_path / "run")]) == 1
        said = capsys.readouterr().err.splitlines()[-1]
        assert said.startswith("python -m training.import_marian: error: ")
        assert not [path for path in tmp_path.iterdir() if "run" in path.name]
        return said

    return run


OPTIONS = {
    "model_type": "bart",
    "normalize_before": True,
    "normalize_embedding": True,
    "add_final_layer_norm": True,
    "static_position_embeddings": False,
    "activation_function": "tanh",
    "decoder_attention_heads": 11,
    "decoder_start_token_id": 5,
    "d_model": 21,
    "encoder_layers": 0,
    "scale_embedding": 1,
    "eos_token_id": [0, 4],
    "vocab_size": 10**10,
}
GENERATION = {
    "do_sample": True,
    "min_length": 3,
    "repetition_penalty": 1.2,
    "forced_bos_token_id": 7,
    "num_beams": 65,
    "length_penalty": -1.0,
    "bad_words_ids": [[3, 4]],
    "max_length": "20",
    "forced_eos_token_id": 9,
    "min_new_tokens": 9,
    "stop_strings": ["x"],
    "eos_token_id": 5,
    "decoder_start_token_id": 7,
}


@pytest.mark.parametrize("name", OPTIONS)
def test_unsupported_option_is_refused(name, tmp_path, refused):
    folder = marian.copied("joint", tmp_path / "folder")
    marian.changed(folder / "config.json", **{name: OPTIONS[name]})
    assert name in refused(folder)


def test_invalid_bad_words_ids_are_refused(tmp_path, refused):
    folder = marian.copied("joint", tmp_path / "folder")
    for words in (5, [5], [["5"]], [[999]]):
        marian.changed(folder / "generation_config.json", bad_words_ids=words)
        assert "bad_words_ids" in refused(folder)


@pytest.mark.parametrize("name", GENERATION)
def test_unsupported_generation_option_is_refused(name, tmp_path, refused):
    folder = marian.copied("joint", tmp_path / "folder")
    marian.changed(folder / "generation_config.json", **{name: GENERATION[name]})
    assert name in refused(folder)


@pytest.mark.parametrize(
    "name", ["config.json", "source.spm", "target.spm", "vocab.json", "model.safetensors"]
)
def test_missing_or_damaged_file_is_refused(name, tmp_path, refused):
    folder = marian.copied("joint", tmp_path / "folder")
    content = (folder / name).read_bytes()
    for damaged in (b"", content[: len(content) // 2], b"\xff" * 99):
        (folder / name).write_bytes(damaged)
        assert name in refused(folder)
    (folder / name).unlink()
    assert name in refused(folder)


def test_invalid_vocabulary_is_refused(tmp_path, refused):
    folder = marian.copied("joint", tmp_path / "folder")
    table = json.loads((folder / "vocab.json").read_text())
    first, second, *_ = (piece for piece in table if not piece.startswith("<"))
    wrong = [{**table, first: one} for one in (table[second], 999, "1")] + [{**table}]
    wrong[-1].pop("<unk>")
    for one in wrong:
        (folder / "vocab.json").write_text(json.dumps(one))
        assert "vocab.json must have" in refused(folder)


def test_sentencepiece_model_of_another_vocabulary_is_refused(tmp_path, refused):
    folder = marian.copied("separate", tmp_path / "folder")
    path = folder / "target_vocab.json"
    table = json.loads(path.read_text())
    changed = {piece if piece in ("<unk>", "</s>", "<pad>") else f"{piece}~": n
               for piece, n in table.items()}  # fmt: skip
    path.write_text(json.dumps(changed))
    said = f"{path} must have pieces of {folder / 'target.spm'}, got none of its "
    assert said in refused(folder)


def test_tokens_added_to_the_vocabulary_are_refused(tmp_path, refused):
    folder = marian.copied("joint", tmp_path / "folder")
    path = folder / "added_tokens.json"
    path.write_text('{"<foo>": 40}')
    assert "no pieces besides its tables, got '<foo>' added" in refused(folder)
    path.write_text('{"</s>": 0}')
    settings = folder / "tokenizer_config.json"
    marian.changed(
        settings, added_tokens_decoder={"0": {"content": "</s>"}, "9": {"content": "<bar>"}}
    )
    assert "no pieces besides its tables, got '<bar>' added" in refused(folder)
    marian.changed(settings, added_tokens_decoder={}, separate_vocabs=True)
    assert "separate_vocabs must be true beside target_vocab.json" in refused(folder)
    table = json.loads((folder / "vocab.json").read_text())
    first = next(iter(table))
    table["\ud800"] = table.pop(first)
    (folder / "vocab.json").write_text(json.dumps(table))
    assert "vocab.json must be of characters of Unicode, got '\\ud800'" in refused(folder)


@pytest.fixture
def own(tmp_path):
    """A copy of a folder, a function that writes its weights, and the weights."""
    folder = marian.copied("joint", tmp_path / "folder")
    path = folder / "model.safetensors"
    return folder, lambda arrays: save_file(arrays, path), load_file(path)


def test_missing_extra_misshapen_or_non_finite_weights_are_refused(own, refused):
    folder, write, arrays = own
    name = "model.encoder.layers.0.fc1.weight"
    write({key: array for key, array in arrays.items() if key != name})
    assert f"must have a weight {name}, got none" in refused(folder)
    write({**arrays, "model.encoder.layernorm_embedding.weight": np.ones(22, "float32")})
    assert "the model here has no weight model.encoder.layernorm_embedding" in refused(folder)
    write({**arrays, name: arrays[name].T.copy()})
    assert f"{name} must be of shape (17, 22), got (22, 17)" in refused(folder)
    for number in (np.nan, np.inf):
        array = arrays[name].copy()
        array[3, 5] = number
        write({**arrays, name: array})
        assert f"{name} must be finite" in refused(folder)
    table = np.ones((64, 22), "float32")
    write({**arrays, "model.encoder.embed_positions.weight": table})
    assert "embed_positions.weight must be sinusoids" in refused(folder)


def test_safetensors_file_with_a_false_header_is_refused(tmp_path):
    path, array = tmp_path / "file.safetensors", np.arange(6, dtype="float32").reshape(2, 3)
    entry = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
    marian.write_safetensors(path, {"a": array}, b=entry)  # two arrays with the same bytes
    with pytest.raises(ValueError, match=f"{path} is damaged, or no safetensors file"):
        read_safetensors(path)
    marian.write_safetensors(path, {"a": array}, a={**entry, "dtype": "F8_E4M3", "shape": [24]})
    with pytest.raises(ValueError, match="a must be of floats that NumPy has"):
        read_safetensors(path)["a"].read()


@pytest.mark.parametrize("name", ["config.json", "vocab.json", "source.spm", "model.safetensors"])
def test_too_large_or_endless_file_is_refused(name, tmp_path, refused):
    folder = marian.copied("joint", tmp_path / "folder")
    path = folder / name
    os.truncate(path, 2**43)
    assert f"{path} must have at most " in (said := refused(folder))
    assert "got 8,796,093,022,208" in said
    path.unlink()
    path.symlink_to("/dev/zero")
    wrong = f"must have {name}, got none", f"{path} must be a regular file, got a device"
    assert refused(folder).endswith(wrong)


# Pickles.


class Hostile:
    """A pickle of it runs a command when it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def zipped(content, storage=bytes(24)):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", content)
        archive.writestr("archive/data/0", storage)
    return file.getvalue()


@pytest.mark.parametrize("packed", [zipped, lambda content: content], ids=["zip", "older"])
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_hostile_pickle_runs_nothing(packed, protocol, tmp_path, refused):
    trap = tmp_path / "trap"
    content = pickle.dumps({"lm_head.weight": Hostile(trap)}, protocol)
    pickle.loads(content)
    assert trap.exists(), "or it would prove nothing"
    trap.unlink()
    folder = marian.copied("separate", tmp_path / "folder")
    (folder / "pytorch_model.bin").write_bytes(packed(content))
    said = refused(folder)
    assert "pytorch_model.bin is refused: it must contain only tensors" in said
    assert ".system, which was not run" in said and not trap.exists()


@pytest.mark.parametrize("call", ["builtins eval", "builtins getattr", "torch load", "os system"])
def test_pickle_naming_a_forbidden_function_is_refused(call, tmp_path):
    path = tmp_path / "pytorch_model.bin"
    module, name = call.split()
    path.write_bytes(zipped(f"c{module}\n{name}\n(S'1'\ntR.".encode()))
    with pytest.raises(ValueError, match=f"names {module}.{name}, which was not run"):
        read_torch(path)


def test_pickle_cannot_change_the_functions_it_names(tmp_path):
    path, state = tmp_path / "pytorch_model.bin", b"N}U\x05trap!K\x01s\x86b"
    path.write_bytes(zipped(b"\x80\x02ctorch._utils\n_rebuild_parameter\n" + state + b"."))
    with pytest.raises(ValueError, match="must be a dictionary of tensors, got function"):
        read_torch(path)
    assert not hasattr(ALLOWED["torch._utils", "_rebuild_parameter"], "trap!")


# 20 nested tuples, each twice in the next: their hash takes a million steps; with 90 it would never
# end.
NESTED = b"K\x01" + b"q\x00h\x00\x86" * 20
STORAGE = b"(U\x07storagectorch\nFloatStorage\nU\x010U\x03cpuK\x06tQ"
TENSOR = b"ctorch._utils\n_rebuild_tensor_v2\n(" + STORAGE


LONG_LIST = b"](" + b"]" * 1000 + b"e"


@pytest.mark.parametrize(
    ("pickled", "said"),
    [
        (b"}" + NESTED + b"K\x01s.", "its keys must be strings, got a tuple"),
        (b"ccollections\nOrderedDict\n(](" + NESTED + b"K\x01\x86etR.",
         "its keys must be strings, got a tuple"),
        (b"\x8f(" + NESTED + b"\x90.", "is written with the opcode"),
        (b"(" + NESTED + STORAGE[10:] + b".", "it must refer to storages only"),
        (STORAGE.replace(b"U\x010", NESTED) + b".", "it must refer to storages only"),
        (b"}U\x01a" + TENSOR + b"K\x00" + NESTED + b")tRs.", "must have an offset, sizes"),
        (b"}U\x01a" + TENSOR + b"K\x00(\x8b\xff\x00\x00\x00" + b"\x7f" * 255 + b"t)tRs.",
         "must have an offset, sizes and strides of 64 bits"),
        (b"}U\x01a" + TENSOR + b"K\x00(" + b"K\x01" * 120 + b"t)tRs.", "of few dimensions"),
        (b"ccollections\nOrderedDict\n](" + LONG_LIST + b"q\x00" + b"h\x00" * 60_000 + b"e\x85R.",
         "its dictionaries must be of at most 100,000 pairs"),
        (b"](U\x01aU\x01b\x86q\x00" + b"h\x00" * 60_000 + b"eq\x01"
         + b"ccollections\nOrderedDict\nh\x01\x85R" * 9 + b".",
         "its dictionaries must be of at most 100,000 pairs"),
        (b"ctorch._utils\n_rebuild_parameter\n(" + b"K\x01" * 120 + b"tR.",
         "must have at most 99 arguments"),
    ],
    ids=[
        "SETITEM", "a dictionary of pairs", "ADDITEMS",
        "a nested class", "a nested key", "a nested shape", "a long integer", "many dimensions",
        "a dictionary of long lists", "many dictionaries", "many arguments",
    ],
)  # fmt: skip
def test_too_costly_or_invalid_pickle_is_refused(pickled, said, tmp_path):
    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(zipped(b"\x80\x02" + pickled))
    with pytest.raises(ValueError, match=said):
        read_torch(path)


@pytest.mark.parametrize("name", ["separate", "codes"])
def test_truncated_pytorch_file_is_refused(name, tmp_path):
    content = (marian.folder(name) / "pytorch_model.bin").read_bytes()
    path = tmp_path / "pytorch_model.bin"
    for size in (0, 1, 2, 9, 100, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:size])
        with pytest.raises(ValueError, match="damaged, or no file of PyTorch"):
            read_torch(path)


def test_tensors_outside_their_storage_are_refused(tmp_path):
    path = tmp_path / "pytorch_model.bin"

    def tensor(offset, shape, strides):
        pid = b"(S'storage'\nctorch\nFloatStorage\nS'0'\nS'cpu'\nI6\nt"
        numbers = ["".join(f"I{n}\n" for n in some) for some in (shape, strides)]
        parts = "".join(f"({some}t" for some in numbers)
        call = b"ctorch._utils\n_rebuild_tensor_v2\n(" + pid + b"Q" + f"I{offset}\n{parts}".encode()
        return b"(S'a'\n" + call + b"I00\nNtRd."

    path.write_bytes(zipped(tensor(0, (3, 2), (1, 3))))
    np.testing.assert_array_equal(read_torch(path)["a"], np.zeros((3, 2)))
    outside = (1, (3, 2), (1, 3)), (0, (3, 3), (2, 1)), (0, (2,), (-1,)), (-1, (2,), (1,))
    again_and_again = (0, (20_000_000,), (0,))  # one number, with a size beyond any memory
    for wrong in (*outside, again_and_again):
        path.write_bytes(zipped(tensor(*wrong)))
        with pytest.raises(ValueError, match="a must be inside its storage"):
            read_torch(path)


def test_storage_shared_by_too_many_tensors_is_refused(tmp_path):
    """A model with one table has it under four names; with more names, a small file would become
    large."""
    path = tmp_path / "pytorch_model.bin"
    tensor = TENSOR + b"K\x00K\x06\x85K\x01\x85\x89NtR"
    names = b"".join(b"X\x01\x00\x00\x00%c" % name + tensor for name in b"abcd")
    path.write_bytes(zipped(b"\x80\x02}(" + names + b"u."))
    assert sorted(read_torch(path)) == ["a", "b", "c", "d"]
    path.write_bytes(zipped(b"\x80\x02}(" + names + b"X\x01\x00\x00\x00e" + tensor + b"u."))
    with pytest.raises(ValueError, match="e must be inside .* 4 times its 6 numbers, got 30"):
        read_torch(path)


def test_storages_that_share_bytes_are_refused(tmp_path):
    """Otherwise a zip of 20 MB could become arrays of gigabytes."""
    tensor = TENSOR.replace(b"K\x06", b"M\x70\x17") + b"K\x00K\x06\x85K\x01\x85\x89NtR"
    content = zipped(b"\x80\x02}(X\x01\x00\x00\x00a" + tensor + b"u.", bytes(24_000))
    table, end = content.index(b"PK\x01\x02"), content.index(b"PK\x05\x06")
    entry = content[content.index(b"PK\x01\x02", table + 1) : end]
    again = b"".join(entry.replace(b"data/0", b"data/%c" % name) for name in b"123456789")
    size = end - table + len(again)
    new_end = struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, 11, 11, size, table, 0)
    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(content)
    np.testing.assert_array_equal(read_torch(path)["a"], np.zeros(6))
    path.write_bytes(content[:end] + again + new_end)
    with pytest.raises(ValueError, match="its members must each have bytes of their own"):
        read_torch(path)


def test_too_large_pickle_is_refused(tmp_path):
    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(zipped(b"\x80\x02}" + b"0" * 2_000_000 + b"."))
    with pytest.raises(ValueError, match="data.pkl must have at most 2,000,000 bytes"):
        read_torch(path)


# The folder and the run.


def test_existing_run_folder_is_not_touched(tmp_path, capsys):
    (tmp_path / "run").mkdir()
    assert import_marian.main([str(marian.folder("joint")), str(tmp_path / "run")]) == 1
    assert "RUN must not exist yet" in capsys.readouterr().err
    assert not list((tmp_path / "run").iterdir())


def test_model_name_is_fetched_from_the_hub(tmp_path, monkeypatch, capsys):
    asked = []

    def snapshot_download(name, revision, allow_patterns):
        asked.append((revision, allow_patterns[-1]))
        if name != "someone/opus-mt-en-de":
            raise OSError("there is\nno such model")
        return str(marian.folder("separate"))

    hub = types.SimpleNamespace(snapshot_download=snapshot_download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    assert import_marian.main(["someone/opus-mt-en-de@v2", str(tmp_path / "run")]) == 0
    files = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")
    assert asked == [("v2", name) for name in files]
    assert "fetching someone/opus-mt-en-de@v2 from the hub" in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    assert import_marian.main(["models/mistyped", str(tmp_path / "other")]) == 1
    assert "FOLDER must be a folder or a name on the hub" in capsys.readouterr().err
    assert import_marian.main(["someone/other", str(tmp_path / "other")]) == 1
    assert "someone/other could not be fetched from the hub: there is no" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert import_marian.main(["someone/opus-mt-en-de", str(tmp_path / "other")]) == 1
    assert "pip install huggingface_hub" in capsys.readouterr().err
    assert import_marian.main(["no/such/folder", str(tmp_path / "other")]) == 1
    assert "FOLDER must be a folder or a name on the hub" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


def test_different_values_of_tied_matrices_are_refused(own, refused):
    folder, write, arrays = own
    shared = arrays["model.shared.weight"]
    write({**arrays, "lm_head.weight": shared + 1})
    assert "lm_head.weight" in (said := refused(folder)) and "must be one matrix, got two" in said


def test_weights_in_several_files_are_put_together(own, tmp_path, capsys):
    folder, _, arrays = own
    half, whole = len(arrays) // 2, folder / "model.safetensors"
    names, places = ["model-00001-of-2.safetensors", "model-00002-of-2.safetensors"], {}
    for name, part in zip(names, (list(arrays)[:half], list(arrays)[half:]), strict=True):
        save_file({key: arrays[key] for key in part}, folder / name)
        places |= dict.fromkeys(part, name)
    assert import_marian.main([str(folder), str(tmp_path / "whole")]) == 0
    whole.unlink()
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": places}))
    assert import_marian.main([str(folder), str(tmp_path / "parts")]) == 0
    found, expected = (load_translator(tmp_path / name).model for name in ("parts", "whole"))
    for one, other in zip(found.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    for content, said in (
        ({"weight_map": {"x": "../x.safetensors"}}, "names ../x.safetensors, which is no file"),
        ({"weight_map": {"x": ".."}}, "names .., which is no file"),
        ({"weight_map": {"x": ""}}, "which is no file beside it"),
        ({"weight_map": {"x": "a\0b"}}, "which is no file beside it"),
        ({"weight_map": {"x": "other.safetensors"}}, "names other.safetensors, which is missing"),
        ({"weight_map": {"x": 5}}, "must say"),
        ({"weight_map": 5}, "must say which file has which weight"),
        ({}, "must say which file has which weight"),
    ):
        index.write_text(json.dumps(content))
        assert import_marian.main([str(folder), str(tmp_path / "more")]) == 1
        assert said in capsys.readouterr().err

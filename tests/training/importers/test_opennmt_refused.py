"""For OpenNMT-tf, what cannot be imported is refused in one line that names it."""

import os

import numpy as np
import opennmt_folders as opennmt
import pytest

from training import import_opennmt
from training.importers.opennmt_text import read_vocabulary


@pytest.fixture
def refused(tmp_path, capsys):
    """Imports a copy of a folder, which must fail; returns the message."""

    def run(name, folder, *more, code=1):
        words = opennmt.words(name, tmp_path / "run", folder)
        try:
            found = import_opennmt.main([*words, *more])
        except SystemExit as stop:
            found = stop.code
        assert found == code
        said = capsys.readouterr().err.splitlines()[-1]
        assert said.startswith("python -m training.import_opennmt: error: ")
        assert not [path for path in tmp_path.iterdir() if "run" in path.name]
        return said

    return run


def test_missing_or_damaged_checkpoint_is_refused(tmp_path, refused):
    folder = opennmt.copied("joint", tmp_path / "folder")
    index = next(folder.glob("*.index"))
    content = index.read_bytes()
    for damaged in (b"", content[: len(content) // 2], b"\xff" * 99):
        index.write_bytes(damaged)
        assert "must be a checkpoint of TensorFlow 2" in refused("joint", folder)
    (folder / "checkpoint").unlink()
    assert "must be a model directory with a checkpoint, got none" in refused("joint", folder)


def test_corrupted_checkpoint_data_is_refused(tmp_path, refused):
    folder = opennmt.copied("words", tmp_path / "folder")
    data = next(folder.glob("*.data-*"))
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 0xFF
    data.write_bytes(content)
    assert "must be a checkpoint of TensorFlow 2" in refused("words", folder)


@pytest.mark.parametrize("pattern", ["checkpoint", "*.index", "*.data-*"])
def test_checkpoint_file_that_is_a_pipe_is_refused(pattern, tmp_path, refused):
    folder = opennmt.copied("words", tmp_path / "folder")
    path = next(folder.glob(pattern))
    path.unlink()
    os.mkfifo(path)
    assert f"{path} must be a regular file, got a pipe" in refused("words", folder)


@pytest.mark.parametrize(
    ("name", "file", "old", "new", "message"),
    [
        ("words", "source.vocab", "<blank>\n", "", "must begin with the lines ['<blank>', '<s>'"),
        ("words", "source.vocab", "red\n", "old\n", "must have each word once, got 'old' twice"),
        ("words", "target.vocab", "rote\n", "", "as many words as the model, 13 and the unknown"),
        ("words", "source.vocab", "red\n", "\n", "source.vocab must have a word in each line"),
        ("words", "model_description.py", "num_heads=3", "num_heads=n()",
         "--num-heads must be given, because"),
        ("words", "model_description.py", "models.Transformer", "models.Mine",
         "--num-heads must be given, because"),
        ("words", "model_description.py", "num_layers=1, ", "None, None, ",
         "Transformer must be called with arguments by their names alone"),
        ("words", "model_description.py", "num_layers=1, ", "**P, ",
         "Transformer must be called with arguments by their names alone"),
        ("words", "model_description.py", "model =", "other = TransformerBig()\nmodel =",
         "must describe one model, got TransformerBig, Transformer, which differ"),
        ("words", "model_description.py", "num_heads=3", "num_heads=5",
         "d_model must be a multiple of num_heads, got d_model=18 and num_heads=5"),
        ("words", "model_description.py", "tf.nn.gelu", "opennmt.layers.gelu",
         "ffn_activation must be one of tf.nn.relu"),
        ("words", "model_description.py", "tf.nn.gelu", "gelu", "ffn_activation must be one of"),
        ("learned", "model_description.py", "PositionEmbedder", "Mine",
         "position_encoder_class must be one of"),
        ("words", "model_description.py", "lambda", "lambda lambda", "is no Python"),
    ],
)  # fmt: skip
def test_invalid_vocabulary_or_description_is_refused(
    tmp_path, refused, name, file, old, new, message
):
    folder = opennmt.copied(name, tmp_path / "folder")
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new, 1))
    said = refused(name, folder)
    assert message in said


def test_invalid_weights_are_refused(tmp_path, refused):
    inner = f"model/encoder/layers/0/ffn/layer/inner/bias{opennmt.SUFFIX}"
    table = f"model/examples_inputter/features_inputter/embedding{opennmt.SUFFIX}"
    for n, (change, said) in enumerate(
        (
            (
                lambda arrays: arrays | {inner: np.array([b"x"] * 13)},
                "bias must be of floats",
            ),
            (lambda arrays: arrays | {inner: arrays[inner] * np.nan}, "inner/bias must be finite"),
            (
                lambda arrays: {name: one for name, one in arrays.items() if name != table},
                "must have one source of words, got no model/examples_inputter/features_inputter",
            ),
        )
    ):
        folder = opennmt.copied("words", tmp_path / f"folder {n}")
        opennmt.rewrite(folder, change)
        assert said in refused("words", folder)


def test_vocabulary_of_another_sentencepiece_model_is_refused(tmp_path, refused):
    folder = opennmt.copied("joint", tmp_path / "folder")
    path = folder / "joint.vocab"
    lines = path.read_text().splitlines()
    changed = [*lines[:3], *(f"{line}\tx" for line in lines[3:])]
    path.write_text("".join(f"{line}\n" for line in changed))
    said = refused("joint", folder)
    assert f"{path} must have pieces of {folder / 'joint.model'}, got none of its " in said


def test_deeply_nested_description_is_refused(tmp_path, refused):
    folder = opennmt.copied("words", tmp_path / "folder")
    deep = "model = lambda: Transformer(ffn_activation=" + "-" * 900 + "x)"
    (folder / "model_description.py").write_text(deep)
    assert "model_description.py must not be nested so deep" in refused("words", folder)


def test_invalid_sentencepiece_model_is_refused(tmp_path, refused):
    folder = opennmt.copied("joint", tmp_path / "folder")
    (folder / "joint.model").write_bytes(b"none")
    assert "joint.model must be a SentencePiece model" in refused("joint", folder)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--vocabulary", __file__], "--vocabulary is for source and target: give it alone"),
        (
            ["--source-sentencepiece", __file__],
            "--sentencepiece must be given for both source and target, or for neither",
        ),
        (["--num-heads", "0"], "--num-heads"),
    ],
)
def test_wrong_usage_is_refused(refused, more, message):
    assert message in refused("words", opennmt.folder("words"), *more, code=2)


def test_existing_run_folder_is_not_touched(tmp_path, capsys):
    run = tmp_path / "run"
    run.mkdir()
    assert import_opennmt.main(opennmt.words("words", run)) == 1
    assert "RUN must not exist yet" in capsys.readouterr().err and not list(run.iterdir())


def test_vocabulary_is_split_at_newlines_only(tmp_path):
    path = tmp_path / "words.vocab"
    path.write_bytes("<blank>\n<s>\n</s>\na\u2028b\n \nc\r\n".encode())
    assert read_vocabulary(path) == ["<blank>", "<s>", "</s>", "a\u2028b", " ", "c"]

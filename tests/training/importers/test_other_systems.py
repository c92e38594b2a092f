"""For a folder of another system, the error names the command that reads it."""

import json

import marian
import opennmt_folders as opennmt
import pytest

from training import import_marian, import_opennmt
from training.importers.opennmt_weights import read_checkpoint
from training.importers.recognise import described


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model_type": "bart"}, "the family 'bart', which `tfformer import` reads"),
        (
            {"model_type": "t5gemma"},
            "the family 't5gemma', which `tfformer export-keras-hub` exports",
        ),
        ({"model_type": "switch"}, "the family 'switch', which nothing here reads"),
        ({}, "the family None, which nothing here reads"),
        ({"registered_name": "x"}, "a preset of KerasHub, which `tfformer export-keras-hub`"),
        ({"format": 1, "sha256": {}}, "a run, which needs no import"),
    ],
)
def test_error_names_the_family_and_the_command_that_reads_it(config, said, tmp_path, capsys):
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert import_marian.main([str(tmp_path), str(tmp_path / "run")]) == 1
    assert said in (error := capsys.readouterr().err.splitlines()[-1])
    assert error.startswith("python -m training.import_marian: error: ")
    words = [str(tmp_path), str(tmp_path / "run"), "--vocabulary", __file__]
    assert import_opennmt.main(words) == 1
    assert said in capsys.readouterr().err.splitlines()[-1]


def test_described_names_the_import_command_of_a_folder(tmp_path):
    assert "tfformer import-opennmt" in described(opennmt.folder("words"))
    assert "tfformer import`" in described(marian.folder("joint"))
    assert described(tmp_path) == "a folder without config.json"


@pytest.mark.parametrize("ending", ["", ".index", ".data-00000-of-00001"])
def test_a_checkpoint_is_named_by_its_path_or_by_one_of_its_files(ending):
    [index] = opennmt.folder("words").glob("*.index")
    prefix = str(index.with_suffix(""))
    found = read_checkpoint(f"{prefix}{ending}")
    assert found.path == prefix
    assert "model/encoder/layers/0/ffn/layer/inner/kernel" in found

"""Imports that must fail."""

import pytest

from training import import_hf


@pytest.fixture
def refused(tmp_path, capsys):
    """Imports a folder of Hugging Face, which must fail; returns the error."""

    def run(folder):
        assert import_hf.main([str(folder), str(tmp_path / "run")]) == 1
        error = capsys.readouterr().err.splitlines()[-1]
        assert error.startswith("python -m training.import_hf: error: ")
        assert not [path for path in tmp_path.iterdir() if "run" in path.name]
        return error

    return run

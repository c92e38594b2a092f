"""One file, whole or not at all; arrays there and back."""

import numpy as np
import pytest
from disk import no_file_over

from tfformer.files import pack, unpack, write_atomically


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "file"
    write_atomically(path, b"old")
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    with no_file_over(1000), pytest.raises(OSError):
        write_atomically(path, b"x" * 5000)
    assert path.read_bytes() == b"new"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_arrays_come_back_from_their_bytes():
    arrays = {"a/b": np.float32([[1, 2]]), "scalar": np.array(3), "empty": np.zeros((0, 3))}
    found = unpack(pack(arrays))
    assert set(found) == set(arrays)
    for name, value in arrays.items():
        np.testing.assert_array_equal(found[name], value)
        assert found[name].dtype == value.dtype


def test_pickles_are_refused():
    with pytest.raises(ValueError, match="pickle|Object"):
        unpack(pack({"object": np.array([{}], dtype=object)}))

"""One file, whole or not at all; arrays there and back."""

import io
import os
import zipfile

import numpy as np
import pytest
from disk import no_file_over

from tfformer import run
from tfformer.files import (
    RunError,
    is_file_name,
    pack,
    read_arrays,
    read_bytes,
    read_json,
    unpack,
    write_atomically,
)


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


def npz(*members, **options):
    """An .npz file with members of these names."""
    content, array = io.BytesIO(), io.BytesIO()
    np.save(array, np.zeros(1000))
    with zipfile.ZipFile(content, "w", **options) as file:
        for name in members:
            file.writestr(f"{name}.npy", array.getvalue())
    return content.getvalue()


def test_arrays_that_unpack_to_more_than_their_file_are_refused():
    assert len(unpack(npz("a", "b"))) == 2
    with pytest.raises(RunError, match="must not be compressed"):
        unpack(npz("a", compression=zipfile.ZIP_DEFLATED))
    content = npz("a", "b")  # with the second in the table of contents, but not in the file
    first, second = content.index(b"PK\x03\x04"), content.rindex(b"PK\x03\x04")
    table = content[content.index(b"PK\x01\x02") :].replace(
        second.to_bytes(4, "little"), first.to_bytes(4, "little")
    )
    table = table.replace(b"b.npy", b"a.npy")
    end = table.rindex(b"PK\x05\x06")
    table = table[: end + 16] + second.to_bytes(4, "little") + table[end + 20 :]
    with pytest.raises(RunError, match="must each have bytes of their own"):
        unpack(content[:second] + table)


READERS = (read_bytes, read_json, read_arrays)


@pytest.mark.parametrize("read", READERS)
def test_what_has_no_end_is_no_file_to_read(read, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    for name, kind in (("pipe", "a pipe"), ("link", "a device"), (".", "a folder")):
        with pytest.raises(RunError, match=f"must be a regular file, got {kind}"):
            read(tmp_path / name)


@pytest.mark.parametrize("read", READERS)
def test_what_no_memory_holds_is_not_read(read, tmp_path):
    path = tmp_path / "sparse"
    path.touch()
    os.truncate(path, 2**43)
    with pytest.raises(RunError, match="sparse must have at most .* bytes, got 8,796,093,022,208"):
        read(path)


def test_a_link_to_a_file_is_read(tmp_path):
    """A folder of Hugging Face's hub has its files so."""
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    assert read_bytes(tmp_path / "link") == b"content"


def test_a_run_of_pipes_and_devices_is_refused(tmp_path):
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(RunError, match="config.json must be a regular file, got a pipe"):
        run.read_config(tmp_path)
    os.mkfifo(tmp_path / "weights.npz")
    with pytest.raises(RunError, match="weights.npz must be a regular file, got a pipe"):
        run.read_checked(tmp_path, {"sha256": {}}, "weights.npz")


@pytest.mark.parametrize(
    "name", ["a/b", "..", ".", "", "/a", "a\0b", "\ud800", "a\nb", "a" * 256, 5]
)
def test_what_can_name_no_file(name):
    assert not is_file_name(name)
    assert is_file_name("model-00001-of-2.safetensors")

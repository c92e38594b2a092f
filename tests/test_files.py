"""A file is written completely or not at all; arrays are the same after a round trip."""

import io
import os
import resource
import zipfile

import ml_dtypes
import numpy as np
import pytest

from tfformer.files import (
    RunError,
    is_file_name,
    open_own,
    pack,
    read_arrays,
    read_bytes,
    read_json,
    sweep,
    unpack,
    whole_folder,
    write_atomically,
)


def test_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    write_atomically(path, b"old")
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))  # as on a full disk
    try:
        with pytest.raises(OSError):
            write_atomically(path, b"x" * 5000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == b"new"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_arrays_round_trip_through_bytes():
    arrays = {"a/b": np.float32([[1, 2]]), "scalar": np.array(3), "empty": np.zeros((0, 3))}
    found = unpack(pack(arrays))
    assert set(found) == set(arrays)
    for name, value in arrays.items():
        np.testing.assert_array_equal(found[name], value)
        assert found[name].dtype == value.dtype


def test_bfloat16_is_loaded_as_float32():
    half = np.array([[1.5, -2], [3e38, 0]], ml_dtypes.bfloat16)
    arrays = {"half": half, "whole": np.float32([7])}
    content = pack(arrays)
    found = unpack(content)
    assert {name: array.dtype for name, array in found.items()} == dict.fromkeys(arrays, "float32")
    np.testing.assert_array_equal(found["half"], half.astype("float32"))
    with np.load(io.BytesIO(content)) as file:
        assert file["half.bfloat16"].tobytes() == half.tobytes()
    with pytest.raises(RunError, match="half.bfloat16 must be of type uint16, got float32"):
        unpack(pack({"half.bfloat16": np.float32([1])}))
    with pytest.raises(RunError, match="each array once"):
        unpack(pack({"half": np.float32([1]), "half.bfloat16": np.array([1], "uint16")}))


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


def test_compressed_or_overlapping_arrays_are_refused():
    assert len(unpack(npz("a", "b"))) == 2
    with pytest.raises(RunError, match="must not be compressed"):
        unpack(npz("a", compression=zipfile.ZIP_DEFLATED))
    content = npz("a", "b")  # the table of contents has the second member, but the file does not
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
def test_pipe_device_or_folder_is_refused_as_a_file(read, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    for name, kind in (("pipe", "a pipe"), ("link", "a device"), (".", "a folder")):
        with pytest.raises(RunError, match=f"must be a regular file, got {kind}"):
            read(tmp_path / name)


@pytest.mark.parametrize("read", READERS)
def test_too_large_file_is_refused(read, tmp_path):
    path = tmp_path / "sparse"
    path.touch()
    os.truncate(path, 2**43)
    with pytest.raises(RunError, match="sparse must have at most .* bytes, got 8,796,093,022,208"):
        read(path)


def test_a_link_to_a_file_is_read(tmp_path):
    """The folders of Hugging Face's hub contain such links."""
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    assert read_bytes(tmp_path / "link") == b"content"


@pytest.mark.parametrize(
    "name", ["a/b", "..", ".", "", "/a", "a\0b", "\ud800", "a\nb", "a" * 256, 5]
)
def test_invalid_file_names_are_detected(name):
    assert not is_file_name(name)
    assert is_file_name("model-00001-of-2.safetensors")


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_open_own_refuses_links_and_pipes(link, tmp_path):
    with open_own(tmp_path / "new", "ab+") as file:
        file.write(b"more")
        file.seek(0)
        assert file.read() == b"more"
    (tmp_path / "precious").write_bytes(b"precious")
    link(tmp_path / "precious", tmp_path / "own")
    for mode in ("rb", "ab", "ab+"):
        with pytest.raises(OSError, match="own must be a file of its own, got a"):
            open_own(tmp_path / "own", mode)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="pipe must be a file of its own, got"):
        open_own(tmp_path / "pipe", "rb")
    assert (tmp_path / "precious").read_bytes() == b"precious"


def test_hidden_files_of_killed_processes_are_swept_and_no_others(tmp_path):
    for name in (".a.0123456789abcdef.partial", ".a.mine.partial", ".b.0123456789abcdef.partial"):
        (tmp_path / name).touch()
    sweep(tmp_path / "a")
    assert names(tmp_path) == [".a.mine.partial", ".b.0123456789abcdef.partial"]


# A folder is written completely or not at all.

LEFT = ".old.0123456789abcdef.partial"


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_folder_appears_only_when_complete(tmp_path):
    with whole_folder(tmp_path / "new", "file") as folder:
        (folder / "file").touch()
        assert names(tmp_path) == [folder.name]
    assert names(tmp_path) == ["new"] and names(tmp_path / "new") == ["file"]
    with pytest.raises(ZeroDivisionError), whole_folder(tmp_path / "other", "file"):
        raise ZeroDivisionError
    assert names(tmp_path) == ["new"]


def test_folder_left_by_a_killed_process_is_removed(tmp_path):
    left = tmp_path / LEFT
    left.mkdir()
    (left / "file").touch()
    (left / ".file.0123456789abcdef.partial").touch()
    with whole_folder(tmp_path / "new", "file"):
        assert not left.exists()


def test_folder_in_use_or_of_another_program_is_kept(tmp_path):
    for name in (LEFT, ".cache.partial", ".x.0123.partial", "old.0123456789abcdef.partial"):
        (tmp_path / name).mkdir()
    (tmp_path / LEFT / "thesis.txt").touch()
    (tmp_path / ".link.0123456789abcdef.partial").symlink_to(tmp_path / ".cache.partial")
    (tmp_path / ".file.0123456789abcdef.partial").touch()
    before = names(tmp_path)
    with whole_folder(tmp_path / "one", "file") as one, whole_folder(tmp_path / "two", "file"):
        (one / "file").touch()
        assert one.exists()
    assert names(tmp_path) == sorted([*before, "one", "two"])


def test_folder_swept_before_it_is_locked_is_created_again(tmp_path, monkeypatch):
    made = []
    mkdir = type(tmp_path).mkdir

    def swept_once(path, *options, **more):
        mkdir(path, *options, **more)
        made.append(path)
        if len(made) == 1:
            path.rmdir()

    monkeypatch.setattr(type(tmp_path), "mkdir", swept_once)
    with whole_folder(tmp_path / "new", "file") as folder:
        assert folder == made[1]
    assert names(tmp_path) == ["new"]


def test_without_file_locks_nothing_is_removed(tmp_path, monkeypatch):
    def unsupported(*_):
        raise OSError("no locks")

    monkeypatch.setattr("fcntl.flock", unsupported)
    (tmp_path / LEFT).mkdir()
    with whole_folder(tmp_path / "new", "file"):
        pass
    assert names(tmp_path) == sorted([LEFT, "new"])

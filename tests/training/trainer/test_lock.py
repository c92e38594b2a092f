"""A directory is used by one process at a time; its links are not followed to other users'
files."""

import os

import pytest

from training.trainer.lock import LOCK, alone


def test_only_one_process_can_lock_a_folder(tmp_path):
    with alone(tmp_path / "run"):
        (tmp_path / "run" / "file").touch()
        with pytest.raises(OSError, match="run is in use already"), alone(tmp_path / "run", "use"):
            raise AssertionError
    with alone(tmp_path / "run"):
        pass
    assert (tmp_path / "run" / LOCK).stat().st_mode & 0o111 == 0
    with alone(tmp_path / "other"):
        pass
    assert not (tmp_path / "other").exists(), "nothing was put into it"


def test_linked_lock_file_does_not_change_the_linked_file(tmp_path):
    precious, run = tmp_path / "precious", tmp_path / "run"
    precious.write_text("precious")
    run.mkdir()
    for link in (run / LOCK).symlink_to, (run / LOCK).hardlink_to:
        link(precious)
        if (run / LOCK).is_symlink():
            with pytest.raises(OSError, match=f"{LOCK} must be a file of its own, got a link"):
                with alone(run):
                    raise AssertionError
        else:
            with alone(run):
                pass
        assert precious.read_text() == "precious"
        (run / LOCK).unlink(missing_ok=True)
        run.mkdir(exist_ok=True)
    (run / LOCK).symlink_to(tmp_path / "new")
    with pytest.raises(OSError, match="got a link"), alone(run):
        raise AssertionError
    assert not (tmp_path / "new").exists()


def test_a_lock_that_is_a_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / LOCK)
    with pytest.raises(OSError), alone(tmp_path):
        raise AssertionError

"""The machine of a measurement in one line, and the commit of the checkout."""

import shutil
import subprocess

import pytest
import tensorflow as tf

from training.step import machine


def test_sentence_describes_machine_and_gpus_in_one_line():
    facts = machine.describe()
    line = machine.sentence(facts)
    assert facts["processor"] in line and f"{facts['cores']} cores" in line and "\n" not in line
    gpus = ["Some GPU", "Other GPU", "Some GPU"]
    assert machine.sentence({**facts, "gpus": gpus}) == f"2 x Some GPU, 1 x Other GPU, {line}"


@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
def test_commit_marks_a_changed_checkout_as_dirty(tmp_path):
    def git(*arguments):
        command = ["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=e"]
        done = subprocess.run([*command, *arguments], check=True, capture_output=True, text=True)
        return done.stdout.strip()

    git("init")
    (tmp_path / "file").write_text("a")
    git("add", "file")
    git("commit", "-m", "one")
    git("tag", "-a", "v1", "-m", "a name is no commit")
    head = git("rev-parse", "HEAD")
    assert machine.commit(tmp_path) == head
    (tmp_path / "file").write_text("b")
    assert machine.commit(tmp_path) == f"{head}-dirty"
    # A folder without a .git is not the checkout that contains it.
    (tmp_path / "inside").mkdir()
    assert machine.commit(tmp_path / "inside") is None


def test_without_git_there_is_no_commit(tmp_path, monkeypatch):
    (tmp_path / ".git").mkdir()
    assert machine.commit(tmp_path) is None
    monkeypatch.setenv("PATH", "")
    assert machine.commit(tmp_path) is None


@pytest.mark.parametrize(
    ("capabilities", "instructions", "expected"),
    [
        ([], ["avx2", "avx512_bf16"], False),
        ([], ["avx2", "amx_bf16"], True),
        ([(8, 0)], [], True),
        ([(9, 0), (7, 5)], ["amx_bf16"], False),
        ([None], ["amx_bf16"], False),  # no GPU of NVIDIA
    ],
)
def test_bfloat16_is_fast_with_amx_or_on_gpus_from_ampere_on(
    monkeypatch, capabilities, instructions, expected
):
    devices = [{"compute_capability": known} if known else {} for known in capabilities]
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: devices)
    monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda device: device)
    monkeypatch.setattr(machine, "describe", lambda: {"instructions": instructions})
    assert machine.has_bfloat16() is expected

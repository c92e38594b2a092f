"""If a prepared corpus has changed, a training notices it before the first step."""

import json
import shutil

import pytest
from workers import fails

from tfformer.files import RunError, read_json, write_json
from training.preparation.prepare import CORPUS, PREPARED, SETTINGS, prepare, require_undamaged
from training.train import parser, read_recipe


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that is prepared and has no steps."""
    folder = tmp_path_factory.mktemp("damage")
    for side in ("source", "target"):
        (folder / side).write_text("".join(f"{side} {n} {n * n}\n" for n in range(197)))
    arguments = ["--source", str(folder / "source"), "--target", str(folder / "target")]
    arguments += ["--preset", "test", "--run", str(folder / "run")]
    prepare(folder / "run" / PREPARED, read_recipe(parser().parse_args(arguments)), None, print)
    return folder / "run"


@pytest.fixture
def prepared(whole, tmp_path):
    """A copy for the test to damage."""
    return shutil.copytree(whole, tmp_path / "run") / PREPARED


def files(folder):
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def test_undamaged_files_are_accepted_and_not_changed(prepared):
    before = {name: (prepared / name).read_bytes() for name in files(prepared)}
    require_undamaged(prepared)
    assert before == {name: (prepared / name).read_bytes() for name in files(prepared)}
    assert set(read_json(prepared / CORPUS)["files"]) == set(before) - {CORPUS, SETTINGS}


@pytest.mark.parametrize("name", ["train/text.bin", "val/index.npy", "source.model"])
@pytest.mark.parametrize("damage", ["cut", "flipped", "removed"])
def test_error_names_a_changed_or_missing_file(prepared, name, damage, capsys):
    path = prepared / name
    content = path.read_bytes()
    if damage == "removed":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    else:
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    error = fails(["--run", str(prepared.parent), "--resume"], capsys, 1)
    assert f"{path} is {'missing' if damage == 'removed' else 'damaged'}: its sha256" in error


@pytest.mark.parametrize("name, key", [(SETTINGS, "seed"), (CORPUS, "origin")])
def test_changed_settings_are_refused_by_their_checksum(prepared, name, key, capsys):
    """They have their own checksum, because resuming a run changes settings."""
    text = json.loads((prepared / name).read_text())
    (prepared / name).write_text(json.dumps({**text, key: 13}))
    error = fails(["--run", str(prepared.parent), "--resume"], capsys, 1)
    assert f"{prepared / name} is damaged: its checksum must be" in error
    (prepared / name).unlink()
    if name == CORPUS:
        error = fails(["--run", str(prepared.parent), "--resume"], capsys, 1)
        assert f"{prepared / CORPUS} is missing" in error


def test_older_run_gets_missing_checksums_and_its_texts_are_checked(prepared):
    new = {name: (prepared / name).read_bytes() for name in files(prepared)}
    for name in (SETTINGS, CORPUS):
        value = read_json(prepared / name)
        value.pop("files", None)
        write_json(prepared / name, value)
    text = new["val/text.bin"]
    (prepared / "val/text.bin").write_bytes(text[:-1])
    with pytest.raises(RunError, match="val/text.bin is damaged"):
        require_undamaged(prepared)
    (prepared / "val/text.bin").write_bytes(text)
    require_undamaged(prepared)
    assert new == {name: (prepared / name).read_bytes() for name in files(prepared)}

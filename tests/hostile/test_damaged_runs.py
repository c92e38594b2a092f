"""Damages each file of a run in each way, and tries each command: it reports the fault in one line,
or gives the correct result.

If the exit code is 0, the result must be that of the undamaged run. Otherwise one line names the
fault. The command changes no other file of the run.
"""

import hashlib
import itertools
import json
import random
import shutil

import processes
import pytest
from shared import once
from workers import RECIPE, start

# Files that commands write again, whatever was there.
WRITTEN = {".lock", "README.md", "curve.png", "evaluation.json", "scores.json", "sessions.json"}


def cut(path, content, other):
    path.write_bytes(content[: len(content) // 2])


def flipped(path, content, other):
    place = len(content) // 2
    path.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])


def emptied(path, content, other):
    path.write_bytes(b"")


def null(path, content, other):
    path.write_bytes(b"null\n")


def exchanged(path, content, other):
    path.write_bytes(other)


def removed(path, content, other):
    path.unlink()


def linked(path, content, other):
    """A link to itself, which nobody can open."""
    path.unlink()
    path.symlink_to(path.name)


def folder(path, content, other):
    path.unlink()
    path.mkdir()


DAMAGES = [cut, flipped, emptied, null, exchanged, removed, linked, folder]
COMMANDS = {
    "translate": ("training.translate", []),
    "evaluate": ("training.evaluate", ["--recipe", RECIPE, "--split", "val"]),
    "compare": ("training.compare", ["--recipe", RECIPE, "--split", "val"]),
    "resume": ("training.train", [RECIPE, "--resume", "--run"]),
}


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """A finished run with an evaluation."""

    def make(folder):
        done = start(folder / "run", cores=1)
        assert done.returncode == 0, done.stderr
        code, said = ask("evaluate", folder / "run")
        assert code == 0, said

    return once(tmp_path_factory, "damaged", make) / "run"


def ask(command, run, *beside):
    module, options = COMMANDS[command]
    return processes.ended(module, [*options, run, *beside])


def files(run):
    """{path in the run: sha256} of the files that no command may change."""
    paths = (path for path in sorted(run.rglob("*")) if path.is_file())
    return {
        path.relative_to(run).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in paths
        if path.name not in WRITTEN and "tensorboard" not in path.parts
    }


def answer(command, run):
    """The part of a command's result that can be compared."""
    if command == "evaluate":
        return figures(json.loads((run / "evaluation.json").read_text()))
    if command == "compare":
        compared = json.loads((compared_at(run) / "compare.json").read_text())
        [found] = {figures(row) for row in compared.values()}
        return found
    return json.loads((run / "config.json").read_text())["weights"]


def figures(scores):
    return scores["bleu"], scores["perplexity"]


def compared_at(run):
    return run.with_name(f"{run.name}-compared")


def cases(run):
    names = sorted(p.relative_to(run).as_posix() for p in run.rglob("*") if p.is_file())
    names = [name for name in names if "tensorboard" not in name and name != ".lock"]
    found = list(itertools.product(names, DAMAGES, COMMANDS))
    random.Random(1).shuffle(found)
    return found


def faults(whole, expected, name, damage, command, run):
    """The faults in a command's reaction to a damaged file."""
    shutil.copytree(whole, run)
    path, names = run / name, sorted(files(whole))
    other = (
        whole / names[(names.index(name) + 1) % len(names)] if name in names else whole / "log.csv"
    )
    damage(path, path.read_bytes(), other.read_bytes())
    before = files(run)
    beside = [whole, "--out", compared_at(run)] if command == "compare" else []
    code, said = ask(command, run, *beside)
    lines = [line for line in said.splitlines() if "error:" in line]
    if code not in (0, 1, 2):
        yield f"exit code {code}"
    if "Traceback" in said:
        yield f"a traceback: {said.strip().splitlines()[-1]}"
    if code and len(lines) != 1:
        yield f"{len(lines)} lines of errors: {lines}"
    if code == 0 and answer(command, run) != expected[command]:
        yield "another answer, in silence"
    after = files(run)
    changed = [one for one in before if after.get(one) != before[one] and one != name]
    if changed:
        yield f"changed: {changed}"


def hold(whole, tmp_path, chosen):
    """Tries the cases and lists the faults of all."""
    expected = {command: answer(command, whole) for command in COMMANDS if command != "compare"}
    expected["compare"] = expected["evaluate"]  # its table has both runs
    found = []
    for number, (name, damage, command) in enumerate(chosen):
        run = tmp_path / str(number)
        for fault in faults(whole, expected, name, damage, command, run):
            found.append(f"{command}, {name} {damage.__name__}: {fault}")
        shutil.rmtree(run)
    print(f"{len(chosen)} tried, {len(chosen) - len(found)} held")
    return found


@pytest.mark.slow
def test_sampled_damage_is_reported_or_harmless(whole, tmp_path):
    """Tries two commands for each damage; `make test-hostile` tries all."""
    chosen = {case[1:]: case for case in cases(whole)}
    pairs = itertools.product(enumerate(DAMAGES), enumerate(COMMANDS))
    some = [chosen[damage, command] for (n, damage), (m, command) in pairs if (n + m) % 2 == 0]
    before = files(whole)
    assert not hold(whole, tmp_path, some)
    assert files(whole) == before


@pytest.mark.hostile
@pytest.mark.parametrize("part", range(8))
def test_every_damage_is_reported_or_harmless(whole, tmp_path, part):
    assert not hold(whole, tmp_path, cases(whole)[part::8])

"""The wheel alone, in a new environment: from two text files to an answered request."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import urllib.request
import venv
import zipfile

import pytest
from paths import ROOT

from tfformer.__main__ import MODULES

pytestmark = pytest.mark.slow
TRAIN = [
    "train", "--source", "a.en", "--target", "a.de", "--run", "runs/a", "--preset", "tiny",
    "--vocabulary-size", "300", "--checkpoint-steps", "2", "--batch-tokens", "128",
]  # fmt: skip


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder)]
    subprocess.run([*build, str(ROOT)], check=True, capture_output=True)
    [path] = folder.glob("*.whl")  # built from the sdist
    return path


def test_wheel_is_small_and_contains_one_package(wheel):
    assert wheel.stat().st_size < 2e6
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        [metadata] = (file.read(name).decode() for name in names if name.endswith("METADATA"))
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"tfformer"}
    for top in ("training", "export"):
        ours = [path.relative_to(ROOT / top).as_posix() for path in (ROOT / top).rglob("*.py")]
        assert {f"tfformer/{top}/{name}" for name in ours} <= set(names)
    templates = {path.name for path in (ROOT / "export/templates").iterdir()}
    assert {f"tfformer/export/templates/{name}" for name in templates} <= set(names)
    assert "tfformer/py.typed" in names and not any("__pycache__" in name for name in names)
    links = re.findall(r"\]\(([^)\s]+)\)", metadata)
    assert len(links) > 10 and all(link.startswith(("https://", "#")) for link in links)


def test_dockerfile_sources_build_the_same_wheel(wheel, tmp_path):
    for line in (ROOT / "Dockerfile").read_text().splitlines():
        if not line.startswith("COPY "):
            continue
        *sources, to = line.split()[1:]
        for name in sources:
            source, target = ROOT / name, tmp_path / to.removeprefix("/source").strip("/")
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, target)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "dist", "."]
    subprocess.run(build, check=True, capture_output=True, cwd=tmp_path)
    [built] = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(built) as one, zipfile.ZipFile(wheel) as other:
        assert sorted(one.namelist()) == sorted(other.namelist())


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Runs the installed program in an empty folder.

    The environment takes the packages that tfformer needs from this one.
    """
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder / "env", with_pip=True)
    python = folder / "env" / "bin" / "python"
    [packages] = (folder / "env").glob("lib/python*/site-packages")
    (packages / "needed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = [python, "-m", "pip", "install", "--no-deps", "--no-index", "--quiet", wheel]
    subprocess.run(pip, check=True)
    work = folder / "work"
    work.mkdir()
    pairs = [("a red house", "ein rotes Haus"), ("two dogs", "zwei Hunde")] * 40
    for side, name in enumerate(("a.en", "a.de")):
        (work / name).write_text("".join(f"{pair[side]} {n}\n" for n, pair in enumerate(pairs)))
    environment = {**os.environ, "PYTHONPATH": "", "TF_CPP_MIN_LOG_LEVEL": "3"}

    def begin(*words, **options):
        program = [folder / "env" / "bin" / "tfformer", *words]
        return subprocess.Popen(
            program, cwd=work, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options,
        )  # fmt: skip

    def run(*words, fed=None):
        process = begin(*words, stdin=subprocess.PIPE)
        output, error = process.communicate(fed, timeout=600)
        assert process.returncode == 0, error
        return output

    run.begin, run.folder, run.python = begin, work, python
    return run


def test_no_top_level_training_or_export_is_installed(installed):
    program = "import importlib.util as u; print(u.find_spec('training'), u.find_spec('export'))"
    command = [installed.python, "-I", "-c", program]
    assert subprocess.check_output(command, cwd="/", text=True) == "None None\n"


def test_every_command_has_its_help(installed):
    for name in MODULES:
        assert installed(name, "--help").startswith(f"usage: tfformer {name} ")


def test_from_two_text_files_to_an_answered_request(installed):
    killed = installed.begin(*TRAIN, "--epochs", "2")
    saved = installed.folder / "runs/a/checkpoints/last.npz"
    while not saved.exists() and killed.poll() is None:
        time.sleep(0.05)
    killed.kill()
    assert killed.wait() == -signal.SIGKILL, killed.stderr.read()
    installed("train", "--run", "runs/a", "--resume")
    assert installed("translate", "runs/a", fed="a red house 3\n").count("\n") == 1
    installed("evaluate", "runs/a", "--source", "a.en", "--target", "a.de", "--greedy")
    installed("export", "runs/a", "exported/a")
    report = json.loads((installed.folder / "exported/a/1.report.json").read_text())
    assert report["passed"] and report["checks"]
    server = installed.begin("serve", "exported/a", "--port", "0", "--rest-port", "0")
    try:
        line = next(line for line in server.stdout if "curl" in line)
        port = re.search(r"127\.0\.0\.1:(\d+)", line)[1]
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/v1/models/a:predict",
            json.dumps({"instances": ["a red house 3"]}).encode(),
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            [prediction] = json.load(answer)["predictions"]
        assert prediction
    finally:
        server.terminate()
        server.communicate(timeout=60)
    assert server.returncode == 0

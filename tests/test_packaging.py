"""The files that build, publish and cite the package agree, and name only what exists."""

import re
import tomllib

import pytest
from paths import ROOT

import tfformer

yaml = pytest.importorskip("yaml")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PYTHONS = [
    line.rpartition(" ")[2]
    for line in PROJECT["project"]["classifiers"]
    if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", line)
]


def workflow(name):
    found = yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text())
    found["on"] = found.pop(True)  # YAML 1.1 reads `on` as a boolean
    return found


@pytest.mark.parametrize("name", ["ci.yml", "nightly.yml", "publish.yml"])
def test_an_action_is_pinned_by_its_commit(name):
    steps = [step for job in workflow(name)["jobs"].values() for step in job["steps"]]
    used = [step["uses"] for step in steps if "uses" in step]
    assert used and all(re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", action) for action in used)
    assert workflow(name)["permissions"] == {"contents": "read"}


def test_ci_runs_on_every_python_that_the_package_names():
    job = workflow("ci.yml")["jobs"]["ci"]
    assert job["strategy"]["matrix"]["python"] == PYTHONS
    assert PROJECT["project"]["requires-python"] == f">={PYTHONS[0]}"
    assert job["steps"][-1] == {"run": ".ci/run"} and (ROOT / ".ci" / "run").stat().st_mode & 0o100


def test_nightly_and_hostile_tests_run_every_week():
    found = workflow("nightly.yml")
    assert found["on"]["schedule"] == [{"cron": "17 3 * * 6"}]
    commands = [step["run"] for step in found["jobs"]["nightly"]["steps"] if "run" in step]
    assert commands == ["make test-nightly", "make test-hostile"]


def test_only_a_tag_publishes_the_checked_build():
    found = workflow("publish.yml")
    assert found["on"] == {"push": {"tags": ["v*"]}}
    build, publish = found["jobs"]["build"], found["jobs"]["publish"]
    commands = " ; ".join(step["run"] for step in build["steps"] if "run" in step)
    order = [commands.index(part) for part in ("python -m build", "twine check", "tfformer --help")]
    assert order == sorted(order) and "permissions" not in build
    # PyPI trusts this job by its token, so no secret is stored.
    assert publish["needs"] == "build" and publish["permissions"] == {"id-token": "write"}
    assert "secrets." not in (ROOT / ".github" / "workflows" / "publish.yml").read_text()
    [upload] = [
        step["with"] for step in build["steps"] if "upload-artifact" in step.get("uses", "")
    ]
    [download] = [step["with"] for step in publish["steps"] if "download" in step["uses"]]
    assert upload == download == {"name": "dist", "path": "dist/"}


def test_dockerfile_copies_everything_the_build_needs():
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    copied = [word for line in lines if line.startswith("COPY ") for word in line.split()[1:-1]]
    assert all((ROOT / name).exists() for name in copied)
    hatch = PROJECT["tool"]["hatch"]
    needed = {"pyproject.toml", "LICENSE", *hatch["build"]["targets"]["wheel"]["packages"]}
    needed |= set(hatch["build"]["targets"]["wheel"]["force-include"])
    fragments = hatch["metadata"]["hooks"]["fancy-pypi-readme"]["fragments"]
    needed |= {fragment["path"] for fragment in fragments if "path" in fragment}
    assert needed <= set(copied)
    [image] = re.findall(r"FROM python:(3\.\d+)", "\n".join(lines))
    assert image in PYTHONS


def test_the_citation_names_this_version_and_repository():
    found = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert found["version"] == tfformer.__version__
    assert found["repository-code"] == PROJECT["project"]["urls"]["Homepage"]
    assert found["license"] == PROJECT["project"]["license"]

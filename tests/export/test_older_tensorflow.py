"""An older TensorFlow serves what this one exports: the newest stock server links 2.20.

Slow: it makes a virtual environment with TensorFlow 2.20, more than half a gigabyte. To keep it for
the next time, name a folder for it in TFFORMER_OLDER_TENSORFLOW.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny

from export.artifacts.examples import sample_requests
from export.capi.job import serve_calls
from export.capi.library import ServingError
from export.verification.compare import differences
from export.verification.graph import read_graph
from export.verification.requests import to_feeds

# Without the dependencies of TensorFlow's Python package, which the serving process never imports.
PACKAGES = ["tensorflow==2.20.0", "tensorflow-text==2.20.*", "numpy", "ml_dtypes"]
# pip's messages if it reaches no registry, or one without packages for this Python.
UNREACHABLE = ("Retrying (", "No matching distribution found", "ConnectionError")
VERSION = "import ctypes, importlib.util, pathlib; \
folder = pathlib.Path(importlib.util.find_spec('tensorflow').submodule_search_locations[0]); \
ctypes.CDLL(str(folder / 'libtensorflow_framework.so.2'), mode=ctypes.RTLD_GLOBAL); \
c = ctypes.CDLL(str(folder / 'libtensorflow_cc.so.2')); \
c.TF_Version.restype = ctypes.c_char_p; print(c.TF_Version().decode())"


def run(*command):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True)


@pytest.fixture(scope="module")
def older_python(tmp_path_factory):
    """The interpreter of an environment with the older TensorFlow."""
    kept = os.environ.get("TFFORMER_OLDER_TENSORFLOW")
    folder = Path(kept) if kept else tmp_path_factory.mktemp("older") / "venv"
    python = folder / "bin" / "python"
    if not python.exists():
        made = run(sys.executable, "-m", "venv", "--without-pip", folder)
        assert made.returncode == 0, made.stdout + made.stderr
    # Each time: pip skips what is installed in a second, and completes a partial installation.
    installed = run(
        sys.executable, "-m", "pip", "--python", python, "install", "--disable-pip-version-check",
        "--retries", "1", "--timeout", "15", "--no-deps", "--no-compile", *PACKAGES,
    )  # fmt: skip
    if installed.returncode and any(sign in installed.stderr for sign in UNREACHABLE):
        pytest.skip(f"pip cannot install {PACKAGES}: {installed.stderr.splitlines()[-1]}")
    assert installed.returncode == 0, installed.stderr
    return python


@pytest.fixture(scope="module")
def answers(served_model, translator_served, older_python):
    """{signature: [(the older TensorFlow's answer, this one's)]} for all kinds of requests.

    `"a mistake"` has the answers to a beam of width 0.
    """
    graph = read_graph(served_model / "1")
    requests = sample_requests(translator_served)
    requests["serving_default"].append({"text": tiny.sentences(37)})
    requests["serving_default"].append({"text": [b"\xff\xfe a house", b"the lake"]})
    asked, calls = [], []
    for name, given in to_feeds(graph, requests).items():
        signature = graph.signatures[name]
        fetches = sorted({info.name for info in signature.outputs.values()})
        for feeds in given:
            asked.append(name)
            calls.append(
                ({info.name: feeds[key] for key, info in signature.inputs.items()}, fetches)
            )
    signature = graph.signatures["beam_search"]
    feeds = {signature.inputs[key].name: value for key, value in signature.defaults.items()}
    feeds[signature.inputs["text"].name] = np.array([b"a house"], object)
    feeds[signature.inputs["beam_width"].name] = np.array(0, "int32")
    asked.append("a mistake")
    calls.append((feeds, [signature.outputs["scores"].name]))
    older = serve_calls(served_model / "1", calls, python=older_python)
    found = {}
    for name, *pair in zip(asked, older, serve_calls(served_model / "1", calls), strict=True):
        found.setdefault(name, []).append(pair)
    return found


@pytest.mark.slow
def test_the_other_environment_has_the_older_tensorflow(older_python):
    told = run(older_python, "-c", VERSION)
    assert told.stdout.strip() == "2.20.0", told.stderr


@pytest.mark.slow
def test_every_signature_answers_the_same_on_an_older_tensorflow(answers, translator_served):
    assert set(answers) == {*translator_served.functions, "a mistake"}
    for name in translator_served.functions:
        for older, newer in answers[name]:
            for answer in (older, newer):
                if isinstance(answer, ServingError):
                    raise answer
            assert not differences(older, newer), name


@pytest.mark.slow
def test_answers_contain_more_than_20_different_texts(answers):
    """Otherwise two empty answers would count as equal."""
    texts = [
        value
        for older, _ in answers["serving_default"]
        for array in older.values()
        if array.dtype == object
        for value in array.tolist()
    ]
    assert len(set(texts)) > 20 and all(isinstance(text, bytes) for text in texts)


@pytest.mark.slow
def test_bad_beam_width_is_refused_by_both_versions(answers):
    [(older, newer)] = answers["a mistake"]
    assert isinstance(older, ServingError) and isinstance(newer, ServingError)
    assert older.code_name == newer.code_name == "INVALID_ARGUMENT"
    assert "beam_width" in older.message and "beam_width" in newer.message

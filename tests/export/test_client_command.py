"""The command of the clients: one output line for each input line, and one line for a mistake."""

import subprocess
import sys

import pytest
import tiny
from paths import ROOT
from serving import SECONDS
from told import METADATA, Told


def run(*arguments, input=b"", **options):
    command = [sys.executable, "-m", "export.client", *arguments]
    return subprocess.run(
        command, cwd=ROOT, input=input, capture_output=True, timeout=SECONDS, **options
    )


@pytest.fixture(scope="module")
def url(asked):
    return f"http://127.0.0.1:{asked.server.rest_port}"


LINES = b"a house\r\n\n the lake \n\xff\xfe\n\nwith trees"


@pytest.mark.slow
def test_each_input_line_gives_one_translated_line(asked, url, translator_served):
    texts = ["a house", "", " the lake ", "\ufffd\ufffd", "", "with trees"]
    expected = "".join(f"{line}\n" for line in translator_served.translate(texts)).encode()
    for where in (["--url", url], ["--grpc", f"127.0.0.1:{asked.server.port}"]):
        done = run("--model", "tiny", *where, "--batch-size", "4", input=LINES)
        assert (done.returncode, done.stdout) == (0, expected), done.stderr
        assert b"Traceback" not in done.stderr
    assert run("--model", "tiny", "--url", url).stdout == b""


def test_newline_in_a_translation_is_replaced_by_a_space():
    with Told(METADATA, (200, {"outputs": {"translation": ["a\nb", "c\r\n", ""]}})) as told:
        done = run("--model", "tiny", "--url", told.url, input=b"x\ny\nz\n")
    assert (done.returncode, done.stdout) == (0, b"a b\nc \n\n")


def test_a_closed_pipe_is_no_error(url):
    command = (
        f"set -o pipefail; {sys.executable} -m export.client --model tiny --url {url} | head -1"
    )
    lines = "\n".join(tiny.sentences(200)).encode()
    done = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, input=lines, capture_output=True, timeout=SECONDS
    )
    assert done.returncode == 0 and done.stdout.count(b"\n") == 1
    assert done.stderr == b""


@pytest.mark.parametrize(
    ("arguments", "code", "match"),
    [
        ([], 2, "the following arguments are required: --model"),
        (["--model", "x", "--url", "ftp://x"], 2, "url must begin with http:// or https://"),
        (["--model", "x", "--url", "http://127.0.0.1:1", "--retries", "0"], 1, "UNAVAILABLE: "),
    ],
)
def test_a_mistake_gives_one_line_error(arguments, code, match):
    done = run(*arguments, input=b"a\n")
    assert done.returncode == code and not done.stdout
    [line] = done.stderr.decode().splitlines()
    assert line.startswith("python -m export.client: error: ") and match in line


BLOCKED = """
import sys
sys.modules.update(dict.fromkeys(["tensorflow", "numpy", "grpc", "tensorflow_serving", "keras"]))
from export.client import main
sys.exit(main(sys.argv[1:]))
"""


def test_rest_client_needs_only_the_standard_library(url, translator_served):
    def blocked(*arguments):
        command = [sys.executable, "-c", BLOCKED, "--model", "tiny", *arguments]
        return subprocess.run(
            command, cwd=ROOT, input=b"a house", capture_output=True, timeout=SECONDS
        )

    done = blocked("--url", url)
    expected = translator_served.translate(["a house"])[0].encode() + b"\n"
    assert (done.returncode, done.stdout) == (0, expected), done.stderr
    done = blocked("--grpc", "127.0.0.1:1")
    assert done.returncode == 2
    [line] = done.stderr.decode().splitlines()
    assert "--grpc needs tensorflow-serving-api" in line

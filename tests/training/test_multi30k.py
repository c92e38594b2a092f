"""Multi30K: after `fetch` the folder has the complete corpus or nothing."""

import gzip
import hashlib
import http.server
import os
import socket
import threading
from pathlib import Path

import pytest

from training import multi30k
from training.data.reader import CorpusError
from training.multi30k import SHA256, SPLITS, fetch, files, main, paths

TEXTS = {"train.en": b"one\ntwo\n", "train.de": b"eins\nzwei\n"}
CHECKSUMS = {name: hashlib.sha256(text).hexdigest() for name, text in TEXTS.items()}


class Home:
    """A server on this machine that returns `files` and records the requests."""

    def __init__(self, url: str):
        self.url = url
        self.files = {f"{name}.gz": gzip.compress(text) for name, text in TEXTS.items()}
        self.cut: set[str] = set()  # sent only in half
        self.silent: set[str] = set()  # not answered before `done`
        self.encoding: str | None = None  # the content encoding that the server declares
        self.done = threading.Event()
        self.requests: list[str] = []


@pytest.fixture
def home(monkeypatch):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            name = self.path.rpartition("/")[2]
            home.requests.append(name)
            if name in home.silent:
                home.done.wait(10)
                return
            if home.files.get(name) is None:
                self.send_error(404)
                return
            body = home.files[name]
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            if home.encoding:
                self.send_header("Content-Encoding", home.encoding)
            self.end_headers()
            self.wfile.write(body[: len(body) // 2] if name in home.cut else body)

        def log_message(self, *arguments):
            """Keeps request logs out of the tests' output."""

    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    home = Home(f"http://127.0.0.1:{server.server_port}/raw")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield home
    home.done.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def two_lines(monkeypatch):
    """A corpus of one split with two pairs."""
    monkeypatch.setattr(multi30k, "SHA256", CHECKSUMS)
    monkeypatch.setattr(multi30k, "SPLITS", {"train": 2})


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("encoding", [None, "gzip", "x-gzip"])
def test_fetch_unpacks_every_file(home, tmp_path, encoding):
    """Also if the server declares the compression of a gzip file as a content encoding."""
    home.encoding = encoding
    folder = tmp_path / "new" / "folder"
    assert fetch(folder, home.url, checksums=CHECKSUMS) == [folder / name for name in TEXTS]
    assert contents(folder) == TEXTS
    assert home.requests == ["train.en.gz", "train.de.gz"]


def test_existing_files_are_not_fetched_again(home, tmp_path):
    (tmp_path / "train.de").write_bytes(TEXTS["train.de"])
    assert fetch(tmp_path, home.url + "/", checksums=CHECKSUMS) == [tmp_path / "train.en"]
    assert fetch(tmp_path, home.url, checksums=CHECKSUMS) == []
    assert home.requests == ["train.en.gz"]
    assert contents(tmp_path) == TEXTS


def test_a_file_of_the_user_is_refused_and_not_overwritten(home, tmp_path):
    (tmp_path / "train.de").write_bytes(b"my own\n")
    with pytest.raises(CorpusError) as caught:
        fetch(tmp_path, home.url, checksums=CHECKSUMS)
    assert str(tmp_path / "train.de") in str(caught.value)
    assert hashlib.sha256(b"my own\n").hexdigest() in str(caught.value)
    assert CHECKSUMS["train.de"] in str(caught.value)
    assert contents(tmp_path) == {"train.de": b"my own\n"}
    assert home.requests == []


def test_a_download_with_another_checksum_is_refused(home, tmp_path):
    home.files["train.en.gz"] = gzip.compress(b"another\n")
    with pytest.raises(CorpusError) as caught:
        fetch(tmp_path, home.url, checksums=CHECKSUMS)
    assert f"{home.url}/train.en.gz" in str(caught.value)
    assert hashlib.sha256(b"another\n").hexdigest() in str(caught.value)
    assert CHECKSUMS["train.en"] in str(caught.value)
    assert contents(tmp_path) == {}


PACKED = gzip.compress(TEXTS["train.de"])
FAILURES = {
    "404": {"files": None},
    "IncompleteRead": {"cut": True},
    "timed out": {"silent": True},
    "ended before": {"files": PACKED[:-9]},
    "Not a gzipped file": {"files": b"<html>Please log in</html>"},
    "decompressing": {"files": PACKED[:10] + b"\xff\xff" + PACKED[12:]},
    "the unpacked file must have at most 16,777,216 bytes": {
        "files": gzip.compress(bytes(multi30k.LARGEST + 1))
    },
    ": the file must have at most 16,777,216 bytes": {"files": bytes(multi30k.LARGEST + 1)},
}


@pytest.mark.parametrize("reason", FAILURES)
def test_failed_download_gives_instructions_and_can_be_resumed(home, tmp_path, reason):
    good, failure = dict(home.files), FAILURES[reason]
    home.files["train.de.gz"] = failure.get("files", PACKED)
    home.cut = {"train.de.gz"} if "cut" in failure else set()
    home.silent = {"train.de.gz"} if "silent" in failure else set()
    with pytest.raises(CorpusError) as caught:
        fetch(tmp_path, home.url, checksums=CHECKSUMS, timeout=0.5)
    assert f"{home.url}/train.de.gz" in str(caught.value) and reason in str(caught.value)
    assert f"download by hand train.de.gz from {home.url}" in str(caught.value)
    assert contents(tmp_path) == {"train.en": TEXTS["train.en"]}

    home.files, home.cut, home.silent = good, set(), set()
    assert fetch(tmp_path, home.url, checksums=CHECKSUMS) == [tmp_path / "train.de"]
    assert contents(tmp_path) == TEXTS


def test_without_a_network_the_error_lists_all_files(tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.socket() as taken:  # bound, but it does not listen
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(CorpusError) as caught:
            fetch(tmp_path, url)
    for name in SHA256:
        assert f"{name}.gz" in str(caught.value)
    assert contents(tmp_path) == {}


def test_error_names_an_unwritable_folder(home, tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(CorpusError, match=f"cannot write to {file}: "):
        fetch(file, home.url, checksums=CHECKSUMS)

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    folder = tmp_path / "folder"
    with pytest.raises(CorpusError, match=f"cannot write to {folder}: No space left on device"):
        fetch(folder, home.url, checksums=CHECKSUMS)
    assert contents(folder) == {}


def test_paths_returns_only_verified_source_and_target(two_lines, tmp_path):
    with pytest.raises(CorpusError, match="train.en is missing: download it with `tfformer "):
        paths(tmp_path, "train")
    for name, text in TEXTS.items():
        (tmp_path / name).write_bytes(text)
    assert paths(tmp_path, "train") == (tmp_path / "train.en", tmp_path / "train.de")

    (tmp_path / "train.de").write_bytes(b"changed\n")
    with pytest.raises(CorpusError, match=CHECKSUMS["train.de"]):
        paths(tmp_path, "train")
    with pytest.raises(ValueError, match="split must be one of train, got 'dev'"):
        paths(tmp_path, "dev")


def test_there_is_a_checksum_for_english_and_german_of_each_split():
    assert set(SHA256) == {f"{split}.{side}" for split in SPLITS for side in ("en", "de")}
    assert all(len(bytes.fromhex(checksum)) == 32 for checksum in SHA256.values())
    assert files(["en", "de"]) == SHA256
    assert files(["fr"]) == {f"{split}.fr": None for split in SPLITS}


def test_the_languages_of_a_pair_may_be_named(two_lines, tmp_path):
    for name, text in (TEXTS | {"train.fr": b"un\ndeux\n"}).items():
        (tmp_path / name).write_bytes(text)
    assert paths(tmp_path, "train", language="fr")[1] == tmp_path / "train.fr"
    assert paths(tmp_path, "train", "de", "en") == (tmp_path / "train.de", tmp_path / "train.en")
    with pytest.raises(
        CorpusError, match="train.cs is missing: download it with .* --languages fr cs"
    ):
        paths(tmp_path, "train", "fr", "cs")
    with pytest.raises(ValueError, match="language must be one of en, de, fr, cs, got 'xx'"):
        paths(tmp_path, "train", language="xx")
    with pytest.raises(ValueError, match="must differ from source_language, got 'fr' for both"):
        paths(tmp_path, "train", "fr", "fr")


def test_without_a_checksum_the_lines_are_counted(two_lines, home, tmp_path, capsys):
    home.files["train.fr.gz"] = gzip.compress(b"un\n")
    command = [str(tmp_path), "--base-url", home.url, "--languages", "en", "fr"]
    assert main(command) == 1
    assert "1 lines, expected 2" in capsys.readouterr().err
    assert contents(tmp_path) == {"train.en": TEXTS["train.en"]}

    home.files["train.fr.gz"] = gzip.compress(b"un\ndeux")
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "2 files, 1 of them downloaded" in said
    assert "1 verified by checksum, 1 by number of lines" in said
    (tmp_path / "train.fr").write_bytes(b"un\ndeux\ntrois\n")
    with pytest.raises(CorpusError, match="not the file .* 3 lines, expected 2"):
        paths(tmp_path, "train", language="fr")


def test_the_command_fetches(two_lines, home, tmp_path, capsys):
    assert main([str(tmp_path), "--base-url", home.url]) == 0
    assert contents(tmp_path) == TEXTS
    said = capsys.readouterr()
    assert "2 of them downloaded" in said.out and "not for commercial use" in said.out

    (tmp_path / "train.en").write_bytes(b"damaged")
    assert main([str(tmp_path), "--base-url", home.url]) == 1
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1
    assert said.err.startswith("python -m training.multi30k: ") and "train.en" in said.err

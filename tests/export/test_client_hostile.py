"""A server that drips, floods or resets, bytes that are not HTTP, a full disk: one line, exit code
1."""

import random
import re
import time

import pytest
from certificates import Certificate
from hostile import METADATA, Raw, command, http, predicted, raw_grpc
from told import METADATA as TOLD_METADATA
from told import Told

from export.client import GrpcClient, RequestError, RestClient
from export.remote import transport
from export.remote.answers import CODES

HAUS = {"outputs": {"translation": ["Haus"]}}
LATE = "DEADLINE_EXCEEDED: no answer from .* within 0.3 seconds$"


def ask(told, timeout=20.0, text="house", **options):
    asking = RestClient("tiny", told.url, retries=0, timeout=timeout, **options)
    return asking.predict({"text": [text]})


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return Certificate(tmp_path_factory.mktemp("tls") / "mine", "IP:127.0.0.1")


@pytest.mark.parametrize(
    ("answer", "tls"),
    [
        (http(HAUS), False),
        (http(HAUS), True),
        (http(b"1\r\n \r\n" * 99, headers="Transfer-Encoding: chunked\r\n"), False),
        (http({"error": "no"}, "400 Bad Request"), False),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 9, False),
    ],
)
def test_dripping_answer_ends_at_the_timeout_of_the_whole_request(answer, tls, certificate):
    """Each byte arrives in time, so a socket's own timeout would never end it."""
    options = {"ca": str(certificate.file)} if tls else {}
    with Raw(METADATA, answer, pause=0.1, certificate=tls and certificate) as raw:
        start = time.monotonic()
        with pytest.raises(RequestError, match=LATE):
            ask(raw, 0.3, **options)
        assert time.monotonic() - start < len(answer) * 0.1


def test_request_that_the_server_does_not_read_times_out(certificate):
    """The request fills the buffers of both sides, and the server reads none of it."""
    with Raw(METADATA, pause=60) as raw, pytest.raises(RequestError, match=LATE):
        asking = RestClient("tiny", raw.url, retries=0, timeout=0.3)
        asking._signatures = {}
        raw._answer = lambda connection: raw.ended.wait(20)
        asking.predict({"text": ["x" * 2**25]})


@pytest.mark.parametrize("headers", ["", "Content-Length: 20000000\r\n", "Content-Length: %d\r\n"])
def test_rest_answer_over_the_maximum_size_is_refused(headers, monkeypatch):
    monkeypatch.setattr(transport, "MIN_ROOM", 2**16)
    monkeypatch.setattr(transport, "ROOM_OF_A_BYTE", 4)
    headers = headers.replace("%d", str(10**15))
    for status in ("200 OK", "400 Bad Request", "302 Found"):
        location = "Location: /other\r\n" if status.startswith("302") else ""
        with Raw(METADATA, http(b" " * 2**20, status, location + headers)) as raw:
            with pytest.raises(RequestError, match="RESOURCE_EXHAUSTED: the answer of .* larger"):
                ask(raw)


def test_grpc_answer_over_the_maximum_size_is_refused(monkeypatch):
    answer = predicted(translation=["x" * 5 * 2**20])  # gRPC's own limit is 4 MiB
    for maximum, found in ((6 * 2**20, 5 * 2**20), (2**20, None)):
        monkeypatch.setattr(transport, "MAX_BYTES_BY_GRPC", maximum)
        with raw_grpc(answer) as address:
            asking = GrpcClient("tiny", address, retries=0)
            if found:
                assert len(next(asking.translate(["x"]))) == found
            else:
                with pytest.raises(RequestError, match="RESOURCE_EXHAUSTED: .*larger than max"):
                    next(asking.translate(["x"]))
            asking.close()


GOOD = http(HAUS)
CHUNKED = "Transfer-Encoding: chunked\r\n"
BROKEN = {
    "a length that is too long": (http(HAUS, headers="Content-Length: 99\r\n"), "IncompleteRead"),
    "no status": (b"", "UNAVAILABLE: "),
    "no HTTP": (b"220 mail.example ESMTP\r\n", "UNAVAILABLE: "),
    "a status out of range": (http(HAUS, "1000 ok"), "UNAVAILABLE: "),
    "many headers": (http(HAUS, headers="X: y\r\n" * 200), "UNAVAILABLE: "),
    "a cut chunk": (http(b"ff\r\n{}", headers=CHUNKED), "UNAVAILABLE: "),
    "a cut error": (http(b'{"err', "400 Bad", "Content-Length: 99\r\n"), r'400: {"err \(the rest'),
    "to nowhere": (http(b"", "302 Found", "Location: http://[::1\r\n"), "UNKNOWN: "),
    "to another protocol": (http(b"", "302 Found", "Location: ftp://127.0.0.1/\r\n"), "UN"),
    "to itself": (http(b"", "302 Found", "Location: /x\r\n"), "UNKNOWN: HTTP 302"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_answer_gives_one_line_error(name, monkeypatch, capfdbinary):
    answer, why = BROKEN[name]
    with Raw(METADATA, GOOD, answer) as raw:
        where = ["--url", raw.url, "--batch-size", "1"]
        code, output, lines = command(monkeypatch, capfdbinary, b"x\ny\n", *where)
    assert (code, output, len(lines)) == (1, b"Haus\n", 1), lines
    assert lines[0].startswith("python -m export.client: error: ") and len(lines[0]) < 700
    assert re.search(why, lines[0]), lines[0]


def test_reset_connection_gives_one_line_error(monkeypatch, capfdbinary):
    with Raw(METADATA, GOOD, GOOD[:9], reset=True) as raw:
        where = ["--url", raw.url, "--batch-size", "1"]
        code, output, lines = command(monkeypatch, capfdbinary, b"x\ny\n", *where)
    assert (code, output, len(lines)) == (1, b"Haus\n", 1), lines


@pytest.mark.slow
def test_damaged_answer_is_read_or_raises_request_error():
    rng, answers = random.Random(7), 0
    for _ in range(300):
        at, size = rng.randrange(len(GOOD)), rng.randrange(1, 9)
        damaged = GOOD[:at] + rng.randbytes(rng.randrange(9)) + GOOD[at + size :]
        with Raw(METADATA, damaged) as raw:
            try:
                answers += isinstance(ask(raw), dict)
            except RequestError as error:
                assert error.code in {"UNKNOWN", *CODES.values()} and error.message
    assert 0 < answers < 300


TERMINAL = (
    "a\x1b[31mred\x1b[0m\x1b]0;title\x07 \x9b2J\r\nb\u202ereversed\u2066\u200f \x00\x85z\ud800"
)


def test_server_error_text_is_printed_without_control_characters(monkeypatch, capfdbinary):
    with Told(TOLD_METADATA, (400, {"error": TERMINAL + "y" * 10_000})) as told:
        code, _, [line] = command(monkeypatch, capfdbinary, b"x\n", "--url", told.url)
    said = line.removeprefix("python -m export.client: error: INVALID_ARGUMENT: ")
    assert code == 1 and said.startswith("ared 2J breversed zyyy") and said.endswith("y ...")
    assert line.isprintable() and len(said) == 504
    said = TERMINAL.removesuffix("\ud800").replace("\x00", "")
    with raw_grpc(said) as address:
        code, _, [line] = command(monkeypatch, capfdbinary, b"x\n", "--grpc", address)
    assert code == 1 and line.endswith("INTERNAL: ared 2J breversed z")


def test_token_is_hidden_in_errors_despite_control_characters(certificate):
    for said in ("who is s3cr3t?", "who is s3\u200bcr\x003t?", "who is s3\x1b[0mcr3t?"):
        with Told((401, {"error": said}), certificate=certificate) as told:
            with pytest.raises(RequestError, match=r"who is \[token\]\?$"):
                ask(told, ca=str(certificate.file), token="s3cr3t")


NO_ADDRESS = [
    *(("--url", url) for url in (
        "http://[::1", "http://h:99999", "http://h:x", "http://", "http://:80", "http://h h",
        "http://h/\x1b[2J", "http://h?x=1", "http://user:word@h", "http://a..b",
    )),
    *(("--grpc", address) for address in ("[::1", "h:99999", "h:x", "", ":80", "h\n:1")),
]  # fmt: skip


@pytest.mark.parametrize(("option", "value"), NO_ADDRESS)
def test_invalid_server_address_is_wrong_usage(option, value, monkeypatch, capfdbinary):
    code, output, lines = command(monkeypatch, capfdbinary, b"x\n", f"{option}={value}")
    name = {"--url": "url", "--grpc": "address"}[option]
    assert (code, output, len(lines)) == (2, b"", 1), lines
    assert f"error: {name} must be " in lines[0] and len(lines[0]) < 400 and lines[0].isprintable()


def test_valid_server_addresses_are_accepted():
    urls = {"http://h": "http://h", "https://bücher.example:8501/": "https://bücher.example:8501",
            "http://[::1]:8501": "http://[::1]:8501", "http://h/mt/": "http://h/mt"}  # fmt: skip
    assert {url: transport.check_url(url) for url in urls} == urls
    for address in ("h:1", "h", "::1", "[::1]:8500", "grpcs://h:443", "dns:///h:1", "unix:/x"):
        transport.check_address(address)
    for name in ("model", "label"):
        with pytest.raises(ValueError, match=f"{name} must be text, got '.udcff'"):
            RestClient(**{"model": "tiny", name: "\udcff"})
    with pytest.raises(ValueError, match="timeout must be at most 604800, got inf"):
        RestClient("tiny", timeout=float("inf"))
    with pytest.raises(ValueError, match="version must be in .0, 9223372036854775807., got -1"):
        RestClient("tiny", version=-1)

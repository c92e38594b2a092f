"""TLS and tokens of the clients: an untrusted server gets no token, and no error contains it."""

import os
import re
import subprocess
import sys

import pytest
from certificates import Certificate, Secured, grpc_server
from paths import ROOT
from serving import SECONDS
from told import ANSWER, BUSY, METADATA, Told

from export import client
from export.client import GrpcClient, RequestError, RestClient

TOKEN = "s3cr3t.to-ken~/+="
BEARER = f"Bearer {TOKEN}"
TEXT = {"text": ["house"]}
HAUS = {"translation": ["Haus"]}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """For the loopback address of this machine."""
    names = "IP:127.0.0.1,DNS:localhost"
    return Certificate(tmp_path_factory.mktemp("tls") / "mine", names)


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """For another machine."""
    return Certificate(tmp_path_factory.mktemp("tls") / "other", "DNS:elsewhere.example")


@pytest.fixture
def waits(monkeypatch):
    """The seconds that a client waits; the test itself does not wait."""
    waits = []
    monkeypatch.setattr(client.time, "sleep", waits.append)
    return waits


def test_rest_client_sends_its_token_on_every_retry_over_tls(certificate, waits):
    with Told(METADATA, BUSY, BUSY, ANSWER, certificate=certificate) as told:
        asking = RestClient("tiny", told.url, ca=str(certificate.file), token=TOKEN)
        assert asking.predict(TEXT) == HAUS
        assert told.tokens == [BEARER] * 4
    with Told(METADATA, ANSWER, certificate=certificate) as told:
        assert RestClient("tiny", told.url, ca=str(certificate.file)).predict(TEXT) == HAUS
        assert told.tokens == [None, None]
    assert len(waits) == 2


def test_grpc_client_sends_its_token_on_every_retry_over_tls(certificate, waits):
    secured = Secured(TOKEN, unavailable=2)
    with grpc_server(certificate, secured) as address:
        asking = GrpcClient("tiny", address, ca=str(certificate.file), token=TOKEN)
        assert asking.predict(TEXT) == HAUS
        asking.close()
        assert set(secured.headers) == {BEARER} and len(secured.headers) == 4
    assert len(waits) == 2


def test_refused_token_is_not_retried_and_not_in_the_error(certificate, waits):
    wrong, refused = "wr0ng", {"error": "invalid token: wr0ng"}
    options = {"ca": str(certificate.file), "token": wrong}
    with Told((401, refused), certificate=certificate) as told:
        with pytest.raises(RequestError, match="UNAUTHENTICATED: invalid token: .token.$") as rest:
            RestClient("tiny", told.url, **options).predict(TEXT)
        assert told.tokens == [f"Bearer {wrong}"]
    secured = Secured(TOKEN)
    with grpc_server(certificate, secured) as address:
        asking = GrpcClient("tiny", address, **options)
        with pytest.raises(RequestError, match="UNAUTHENTICATED: refused: Bearer .token.$") as rpc:
            asking.predict(TEXT)
        asking.close()
    page = b"x" * 197 + wrong.encode()  # not JSON; the message contains its first 200 characters
    with Told((401, page), certificate=certificate) as told:
        with pytest.raises(RequestError, match="UNAUTHENTICATED: HTTP 401: x{197}.to$"):
            RestClient("tiny", told.url, **options).predict(TEXT)
    for error in (rest.value, rpc.value):  # nor a traceback
        assert wrong not in f"{error!r} {error.message}" and error.__suppress_context__
    assert not waits


def test_server_with_an_untrusted_certificate_receives_nothing(certificate, other, waits):
    """By another authority, for another machine, or checked against the system's authorities."""
    for served, trusted in ((certificate, other.file), (other, other.file), (certificate, None)):
        options = {"ca": trusted and str(trusted), "token": TOKEN}
        with Told(METADATA, ANSWER, certificate=served) as told:
            with pytest.raises(RequestError, match="the certificate of https://.* is not trusted"):
                RestClient("tiny", told.url, **options).predict(TEXT)
            assert told.tokens == []
        secured = Secured(TOKEN)
        with grpc_server(served, secured) as address:
            asking = GrpcClient("tiny", address, **options)
            with pytest.raises(RequestError, match="the certificate of grpcs://.* not trusted"):
                asking.predict(TEXT)
            asking.close()
        assert secured.headers == []
    assert not waits


def test_redirect_to_another_server_sends_no_token(certificate):
    with Told(METADATA, certificate=certificate) as elsewhere:
        sent = (302, f"{elsewhere.url}/v1/models/tiny/metadata")
        with Told(sent, ANSWER, certificate=certificate) as told:
            asking = RestClient("tiny", told.url, ca=str(certificate.file), token=TOKEN)
            assert asking.predict(TEXT) == HAUS
            assert told.tokens == [BEARER, BEARER]
        assert elsewhere.tokens == [None]


@pytest.mark.parametrize(
    ("kind", "where"),
    [(RestClient, "http://127.0.0.1:8501"), (GrpcClient, "127.0.0.1:8500")],
)
def test_token_and_ca_are_refused_without_tls(kind, where, certificate):
    with pytest.raises(ValueError, match="^token needs https:// or grpcs://, got '") as error:
        kind("tiny", where, token=TOKEN)
    assert TOKEN not in str(error.value)
    with pytest.raises(ValueError, match="^ca needs https:// or grpcs://, got '"):
        kind("tiny", where, ca=str(certificate.file))


@pytest.mark.parametrize("kind", [RestClient, GrpcClient])
def test_ca_that_is_no_certificate_file_is_refused(kind, tmp_path):
    where = {RestClient: "https://127.0.0.1:1", GrpcClient: "grpcs://127.0.0.1:1"}[kind]
    (tmp_path / "text").write_text("no certificate")
    for ca in (str(tmp_path / "text"), str(tmp_path / "none"), ""):
        with pytest.raises(ValueError, match="ca must be a PEM file of certificates, got '.*': ."):
            kind("tiny", where, ca=ca)


@pytest.mark.parametrize("token", ["", "a b", "a\r\nX-Other: b", "ü"])
def test_token_that_is_not_visible_ascii_is_refused(token):
    with pytest.raises(ValueError, match="token must be visible ASCII characters") as error:
        RestClient("tiny", "https://127.0.0.1:1", token=token)
    assert not token or token not in str(error.value)


def test_password_in_a_url_is_refused_and_not_shown():
    with pytest.raises(ValueError, match="url must be without a user and a password") as error:
        RestClient("tiny", f"https://me:{TOKEN}@127.0.0.1:1")
    assert TOKEN not in str(error.value)


# The command.


def run(*arguments, **environment):
    command = [sys.executable, "-m", "export.client", "--model", "tiny", *map(str, arguments)]
    done = subprocess.run(
        command, cwd=ROOT, input=b"house\n", capture_output=True, timeout=SECONDS,
        env={**os.environ, **environment},
    )  # fmt: skip
    said = (done.stdout + done.stderr).decode()
    assert TOKEN not in said and "Traceback" not in said
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_command_reads_its_token_and_hides_it_in_errors(certificate, tmp_path):
    (tmp_path / "token").write_text(TOKEN + "\n")
    with Told(METADATA, ANSWER, certificate=certificate) as told:
        where = ["--url", told.url, "--ca", certificate.file]
        assert run(*where, "--token-env", "MT_TOKEN", MT_TOKEN=TOKEN)[:2] == (0, "Haus\n")
        assert told.tokens == [BEARER] * 2
    with Told((401, {"error": f"who\nis {TOKEN}?"}), certificate=certificate) as told:
        code, _, error = run("--url", told.url, *where[2:], "--token-file", tmp_path / "token")
        assert (code, error.count("\n")) == (1, 1)
        assert error.endswith("error: UNAUTHENTICATED: who is [token]?\n")


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["--token-env", "MT_NONE"], "token must be .*; the environment variable MT_NONE has"),
        (["--token-file", "/no/such"], "the token cannot be read: .*No such file"),
        (["--token-env", "A", "--token-file", "b"], "not allowed with argument --token-env"),
        (["--token-env", "MT_TOKEN"], "token needs https:// or grpcs://, got 'http://localhost"),
        (["--ca", "x"], "ca needs https:// or grpcs://, got 'http://localhost"),
        (["--token", TOKEN], "unrecognized arguments: --token"),
    ],
)
def test_a_mistake_gives_one_line_error(arguments, match, monkeypatch, capsys):
    monkeypatch.setenv("MT_TOKEN", TOKEN)
    try:
        code = client.main(["--model", "tiny", *arguments])
    except SystemExit as ended:
        code = ended.code
    [line] = capsys.readouterr().err.splitlines()
    assert code == 2 and re.search(match, line), line

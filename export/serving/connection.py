"""Reads HTTP requests from a socket for the REST routes: time limits, bodies, allowed hosts.

The stock server (`util/net_http/server/internal/evhttp_server.cc`) uses libevent's `http.c`. It
reads chunked bodies and unpacks gzip. It answers 400 if Content-Length is no number, and 413 if it
is over the limit. Cases for which it has no status follow RFC 9112. If it is unclear where the next
request begins, the connection is closed.
"""

import gzip
import http.server
import io
import json
import re
import zlib

from .deadline import LONGEST, Deadline
from .rpc import cut
from .tensors import MAX_BYTES

MAX_LINE, MAX_TRAILERS = 2**12, 100  # bytes of a line of a chunked body; lines after the chunks
PIECE = 2**20  # bytes that are read at once
WRITING = 30  # minimum timeout in seconds for sending an answer
LINGER = 1  # seconds of discarding an unread body, so that the client can read the answer
# A web page may point its own domain name at this address (DNS rebinding). Its requests have that
# name as Host and are refused.
HERE = {"localhost", "127.0.0.1", "[::1]"}


class Refused(Exception):
    """A request that is refused with (status, message); its connection is closed."""


class Connection(http.server.BaseHTTPRequestHandler):
    """Reads requests one after another. A subclass has `respond(body)`, which sends the answer.

    A request and its answer may take `seconds`, counted from its first byte.
    """

    protocol_version = "HTTP/1.1"
    # An answer is two writes. With Nagle's algorithm, the second waits until the first is
    # acknowledged.
    disable_nagle_algorithm = True
    seconds = 30.0

    def setup(self):
        super().setup()
        self.rfile.close()
        self._bytes = _Bytes(self.connection)
        self.rfile = io.BufferedReader(self._bytes)

    def handle_one_request(self):
        self._bytes.deadline = Deadline()
        if not self.rfile.peek(1):
            self.close_connection = True
            return
        self.deadline = self._bytes.deadline = Deadline(self.seconds)
        super().handle_one_request()

    def take(self):
        """Handles a request of any method: reads it whole, or refuses it and closes."""
        try:
            self._require_here()
            body = self._body()
            if self.headers.get("Content-Encoding", "").strip().lower() == "gzip":
                body = _unpacked(body)
        except TimeoutError:
            self._refuse(408, "the request was not received in time")
        except Refused as error:
            self._refuse(*error.args)
        else:
            self.respond(body)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_OPTIONS = do_PATCH = take

    def send(self, status, body, kind="application/json"):
        """Sends an answer; `body` is bytes."""
        self.request_version = self.protocol_version  # a request without a version gets headers too
        self.connection.settimeout(min(max(WRITING, self.deadline.left() or 0), LONGEST))
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def fail(self, status, message):
        """Sends {"error": message}."""
        self.send(status, json.dumps({"error": cut(message)}).encode())

    def send_error(self, code, message=None, explain=None):
        """Answers a request whose headers Python's parser refused. Its body is not read."""
        self._refuse(code, message or self.responses.get(code, ("",))[0])

    def log_message(self, *_):
        """Logs nothing: the client has the answer."""

    def _require_here(self):
        for host in (hosts := self.headers.get_all("Host", [])):
            name = re.sub(r":[0-9]*$", "", host.strip()).lower().removesuffix(".")
            if len(hosts) > 1 or name not in HERE | {self.server.server_address[0]}:
                raise Refused(403, f"Host must be one of {sorted(HERE)}, got {', '.join(hosts)}")

    def _body(self):
        for defect in self.headers.defects:
            if "MissingHeaderBodySeparator" in type(defect).__name__:
                raise Refused(400, "a line of the head is no header")
        lengths = self.headers.get_all("Content-Length", [])
        if codings := self.headers.get_all("Transfer-Encoding", []):
            if lengths:
                raise Refused(400, "Content-Length beside Transfer-Encoding")
            if [coding.strip().lower() for coding in codings] != ["chunked"]:
                raise Refused(501, f"Transfer-Encoding must be chunked, got {', '.join(codings)}")
            return self._chunks()
        if not lengths:
            return b""
        if len(set(lengths)) > 1 or not re.fullmatch(r"[0-9]+", lengths[0].strip()):
            raise Refused(400, f"Content-Length must be a number, got {', '.join(lengths)}")
        digits = lengths[0].strip().lstrip("0") or "0"
        if len(digits) > len(str(MAX_BYTES)) or int(digits) > MAX_BYTES:
            raise _too_large(digits)
        return self._read(int(digits))

    def _chunks(self):
        """Reads a chunked body (RFC 9112, section 7.1)."""
        body = bytearray()
        while True:
            size = re.fullmatch(rb"([0-9A-Fa-f]{1,16})[ \t]*(;.*)?", self._line())
            if not size:
                raise Refused(400, "a chunk must begin with its size")
            size = int(size[1], 16)
            if not size:
                break
            if len(body) + size > MAX_BYTES:
                raise _too_large(len(body) + size)
            body += self._read(size)
            if self._line():
                raise Refused(400, "a chunk must end with a new line")
        for _ in range(MAX_TRAILERS):
            if not self._line():
                return bytes(body)
        raise Refused(400, f"at most {MAX_TRAILERS} lines after the last chunk")

    def _line(self):
        line = self.rfile.readline(MAX_LINE)
        if not line.endswith(b"\r\n"):
            raise Refused(400, f"a line of a chunked body must end within {MAX_LINE} bytes")
        return line[:-2]

    def _read(self, size):
        body = bytearray()
        while len(body) < size:
            piece = self.rfile.read(min(PIECE, size - len(body)))
            if not piece:
                raise ConnectionResetError("the client has gone away")
            body += piece
        return bytes(body)

    def _refuse(self, status, message):
        """Answers and closes. Discards for `LINGER` seconds what the client still sends."""
        self.close_connection = True
        self.fail(status, message)
        self._bytes.deadline, left = Deadline(LINGER), MAX_BYTES
        try:
            while left > 0 and (piece := self.rfile.read1(PIECE)):
                left -= len(piece)
        except OSError:  # the time is over, or the client has closed the connection
            return


class _Bytes(io.RawIOBase):
    """Reads a socket. After the `deadline` it raises TimeoutError, even if bytes still arrive."""

    def __init__(self, socket):
        self._socket, self.deadline = socket, Deadline()

    def readable(self):
        return True

    def readinto(self, buffer):
        left = self.deadline.left()
        if left == 0:
            raise TimeoutError
        self._socket.settimeout(left)
        return self._socket.recv_into(buffer)


def _unpacked(body):
    """Decompresses a gzip body. Raises `Refused` if it is over the limit."""
    try:
        with gzip.open(io.BytesIO(body)) as file:
            plain = file.read(MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise Refused(400, f"the body must be whole gzip: {error}") from error
    if len(plain) > MAX_BYTES:
        raise _too_large("more from gzip")
    return plain


def _too_large(size):
    return Refused(413, f"a body must have at most {MAX_BYTES:,} bytes, got {size}")

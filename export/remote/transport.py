"""HTTP requests with a limit on total time and on the answer's size. Standard library only.

The timeout of `urllib` holds for one socket operation, so a server that sends a byte per second
never exceeds it. Here each operation gets the remaining part of the total time.
"""

import functools
import http.client
import io
import ipaddress
import re
import socket
import time
import urllib.error
import urllib.parse
import urllib.request

# The size limit of an answer: 16 MiB plus ROOM_OF_A_BYTE for each byte of the request. The
# attention of `align` as JSON is 2,600 times as large as its texts, if these have 1,024 tokens.
MIN_ROOM = 16 * 2**20
ROOM_OF_A_BYTE = 4096
MAX_ROOM = 2**31 - 1
# A gRPC channel has one limit for all requests. In binary form, this is the attention of 256 rows
# with 500 source and 500 target tokens. A translation needs hundreds of times less.
MAX_BYTES_BY_GRPC = 256 * 2**20
CHUNK = 2**16
HOST = re.compile(r"(\[[^\[\]]+\]|[^\[\]:]+)(:\d*)?")  # with an optional port


class TooLargeError(Exception):
    """The answer is larger than its limit."""


def room_for(body):
    """The maximum size in bytes of the answer to a request, including headers."""
    return min(MIN_ROOM + ROOM_OF_A_BYTE * len(body or b""), MAX_ROOM)


def check_url(url):
    """The URL of a server without a trailing slash. Raises a ValueError if it is not valid."""
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"url must begin with http:// or https://, got {_short(url)}")
    if "@" in url:  # error messages contain the url
        raise ValueError("url must be without a user and a password: give a token")
    try:
        parts = urllib.parse.urlsplit(url)
        parts.path.encode("ascii")
        (parts.hostname or "").encode("idna")
        # A wrong port is a ValueError too.
        fits = parts.hostname and parts.port != 0 and HOST.fullmatch(parts.netloc)
        fits = fits and url.isprintable() and not set("?# ") & set(url)
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"url must be http[s]://host[:port][/path], got {_short(url)}")
    return url.rstrip("/")


def check_address(address):
    """Raises a ValueError if a gRPC address is not valid, for example because of its port."""
    target = address.removeprefix("grpcs://")
    fits = target and target.isprintable()
    if "://" in target or target.startswith(("unix:", "dns:", "ipv4:", "ipv6:", "xds:")):
        pass  # a naming scheme of gRPC, which checks it
    elif "[" in target or "]" in target or target.count(":") == 1:
        try:
            parts = urllib.parse.urlsplit(f"//{target}")
            fits = fits and HOST.fullmatch(target) and parts.hostname and parts.port != 0
        except ValueError:
            fits = False
    if not fits:
        raise ValueError(f"address must be host:port, got {_short(address)}")


def is_loopback(host):
    """Whether a host name or IP address is this machine. It is then reached without a proxy."""
    host = host.lower().rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):  # RFC 6761
        return True
    try:  # an address as the system's resolver reads it: 127.1 and 0x7f000001 too
        number = host.partition("%")[0] if ":" in host else socket.inet_aton(host)
        address = ipaddress.ip_address(number)
    except (ValueError, OSError):  # a host name
        return False
    address = getattr(address, "ipv4_mapped", None) or address
    return address.is_loopback or address.is_unspecified


def channel_options(address):
    """The options of a gRPC channel to an address that passed `check_address`."""
    # An answer may be larger than gRPC's default limit of 4 MB.
    options = [("grpc.max_send_message_length", -1)]
    options += [("grpc.max_receive_message_length", MAX_BYTES_BY_GRPC)]
    # dns://authority/host:port, ipv4:host:port, host:port, [host]:port, or only an IPv6 address
    target = re.sub(r"^(grpcs://|dns:(//[^/]*/)?|ipv4:|ipv6:)", "", address)
    host = target if target.count(":") > 1 and "[" not in target else _host(target)
    if is_loopback(host):
        options += [("grpc.enable_http_proxy", 0)]
    return options


def _host(target):
    """The host in host[:port]; "" if there is none."""
    try:
        return urllib.parse.urlsplit(f"//{target}").hostname or ""
    except ValueError:
        return ""


def _short(text):
    return ascii(text if len(text) <= 100 else f"{text[:100]}...")


class _Limits:
    """The remaining time and bytes of a request."""

    def __init__(self, seconds, room):
        self._end, self.room = time.monotonic() + seconds, room

    def set(self, sock):
        """Sets the timeout of the socket's next operation to the remaining time."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        sock.settimeout(left)

    def received(self, count):
        self.room -= count
        self.require(0)

    def require(self, count):
        """Raises `TooLargeError` if the limit does not allow `count` more bytes."""
        if count > self.room:
            raise TooLargeError

    def connect(self, address, timeout=None, source_address=None):
        """Like `socket.create_connection`, with one time limit for all addresses of the host."""
        failed = OSError(f"{address[0]} has no address")
        for family, kind, protocol, _, where in socket.getaddrinfo(
            *address, type=socket.SOCK_STREAM
        ):
            sock = socket.socket(family, kind, protocol)
            try:
                self.set(sock)
                sock.connect(where)
                self.set(sock)  # for the TLS handshake, which is one operation
                return sock
            except OSError as error:
                sock.close()
                failed = error
        raise failed


class _Received(io.RawIOBase):
    """Reads what a server sends, within the remaining time and bytes."""

    def __init__(self, sock, raw, limits):
        super().__init__()
        self._sock, self._raw, self._limits = sock, raw, limits

    def readable(self):
        return True

    def readinto(self, buffer):
        self._limits.set(self._sock)
        count = self._raw.readinto(buffer)
        self._limits.received(count or 0)
        return count

    def close(self):
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    def __init__(self, sock, *arguments, limits, **options):
        super().__init__(sock, *arguments, **options)
        self._limits = limits
        self.fp = io.BufferedReader(_Received(sock, self.fp.detach(), limits), CHUNK)

    def begin(self):
        super().begin()
        self._limits.require(self.length or 0)  # before memory for all of it is allocated


class _Limited:
    """A connection of `http.client` with limits."""

    def __init__(self, *arguments, limits, **options):
        super().__init__(*arguments, **options)
        self._limits, self._create_connection = limits, limits.connect
        self.response_class = functools.partial(_Response, limits=limits)

    def _tunnel(self):
        super()._tunnel()
        self._limits.set(self.sock)

    def send(self, data):
        if self.sock is None:
            self.connect()
        rest = memoryview(data)
        while rest:
            self._limits.set(self.sock)
            rest = rest[self.sock.send(rest) :]


class _Connection(_Limited, http.client.HTTPConnection):
    """A limited connection over plain HTTP."""


class _SecureConnection(_Limited, http.client.HTTPSConnection):
    """A limited connection over HTTPS."""


class _Proxies(urllib.request.ProxyHandler):
    """The proxies of the environment, except for this machine; also checked after redirects."""

    def proxy_open(self, request, proxy, kind):
        if is_loopback(_host(request.host)):
            return None
        return super().proxy_open(request, proxy, kind)


class _Handler(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    def __init__(self, limits, context):
        urllib.request.HTTPSHandler.__init__(self, context=context)
        self._limits = limits

    def http_open(self, request):
        return self.do_open(functools.partial(_Connection, limits=self._limits), request)

    def https_open(self, request):
        connection = functools.partial(_SecureConnection, limits=self._limits)
        return self.do_open(connection, request, context=self._context)


def ask(request, timeout, context=None):
    """Sends a request within `timeout` seconds in total; returns (status, body).

    Follows redirects, and uses the environment's proxies except for this machine. The body of an
    error may be incomplete.

    Raises:
        TooLargeError: the answer is larger than its limit.
        OSError, http.client.HTTPException, ValueError: there is no answer, or it is not HTTP.
    """
    limits = _Limits(timeout, room_for(request.data))
    opener = urllib.request.OpenerDirector()
    for handler in (
        _Proxies(),
        urllib.request.UnknownHandler(),  # only HTTP: a redirect could lead to ftp://
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPRedirectHandler(),
        urllib.request.HTTPErrorProcessor(),
        _Handler(limits, context),
    ):
        opener.add_handler(handler)
    try:
        with opener.open(request) as response:
            return response.status, b"".join(_parts(response))
    except urllib.error.HTTPError as error:
        parts = []
        with error:
            try:
                for part in _parts(error.fp):
                    parts.append(part)
            except TimeoutError:
                raise
            except (OSError, ValueError, http.client.HTTPException):
                parts.append(b" (the rest was cut)")
        return error.code, b"".join(parts)


def _parts(response):
    """Yields the body in parts. One whole read would allocate the size that the headers claim."""
    while part := response.read(CHUNK):
        yield part
    if response.length:  # `http.client` checks this only for a whole read
        raise http.client.IncompleteRead(b"", response.length)

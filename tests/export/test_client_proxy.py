"""A proxy of the environment is used for other machines and never for this one."""

import numpy as np
import pytest
from hostile import predicted, raw_grpc
from told import ANSWER, METADATA, Told

from export.client import GrpcClient, RestClient
from export.remote import transport


@pytest.fixture
def proxy(monkeypatch):
    """The proxy of the environment for each protocol and host."""
    for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    with Told(METADATA, ANSWER) as told:
        for name in ("http_proxy", "https_proxy", "grpc_proxy", "all_proxy"):
            monkeypatch.setenv(name, told.url)
        yield told


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        *[(host, True) for host in ("localhost", "LOCALHOST.", "a.localhost", "127.0.0.1")],
        *[(host, True) for host in ("127.8.9.1", "127.1", "0x7f000001", "0.0.0.0", "::1", "::")],
        *[(host, True) for host in ("::ffff:127.0.0.1", "::1%lo", "0:0:0:0:0:0:0:1")],
        *[
            (host, False)
            for host in ("", "mt.example", "localhost.example", "128.0.0.1", "fe80::1")
        ],
        *[(host, False) for host in ("notlocalhost", "::ffff:1.2.3.4", "a:b", "127.0.0.1.example")],
    ],
)
def test_loopback_hosts_are_recognised(host, expected):
    assert transport.is_loopback(host) is expected


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1"])
def test_rest_client_bypasses_the_proxy_for_loopback(proxy, host):
    with Told(METADATA, ANSWER) as told:
        asking = RestClient("tiny", told.url.replace("127.0.0.1", host), retries=0)
        assert list(asking.translate(["house"])) == ["Haus"]
    assert len(told.asked) == 2 and proxy.asked == []


def test_rest_client_uses_the_proxy_for_other_hosts(proxy):
    asking = RestClient("tiny", "http://mt.example:8501", retries=0)
    assert list(asking.translate(["house"])) == ["Haus"]
    assert proxy.asked == [
        f"http://mt.example:8501/v1/models/tiny{what}" for what in ("/metadata", ":predict")
    ]


@pytest.mark.parametrize("form", ["{}", "ipv4:{}", "dns:{}", "dns:///{}"])
def test_grpc_client_bypasses_the_proxy_for_loopback(proxy, form):
    answer = predicted(translation=np.array([b"Haus"], object))
    with raw_grpc(answer) as address:
        asking = GrpcClient("tiny", form.format(address), retries=0)
        assert list(asking.translate(["house"])) == ["Haus"]
        asking.close()
    assert proxy.asked == []


@pytest.mark.parametrize(
    ("address", "direct"),
    [
        *[(address, True) for address in ("localhost:8500", "[::1]:8500", "::1", "localhost")],
        *[(address, True) for address in ("grpcs://localhost:443", "dns://8.8.8.8/localhost:1")],
        *[(address, True) for address in ("ipv6:[::1]:8500", "dns:localhost")],
        *[
            (address, False)
            for address in ("mt.example:8500", "grpcs://mt.example:443", "2001:db8::1")
        ],
        *[(address, False) for address in ("unix:/tmp/x", "xds:///localhost.example", "[")],
    ],
)
def test_grpc_channel_disables_the_proxy_only_for_loopback(address, direct):
    options = dict(transport.channel_options(address))
    assert options.get("grpc.enable_http_proxy") == (0 if direct else None)
    assert options["grpc.max_receive_message_length"] == transport.MAX_BYTES_BY_GRPC

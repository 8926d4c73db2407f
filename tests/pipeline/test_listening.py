"""Servers of this process are reached as their address says."""

import socket

import pytest

from rnnmem.errors import OptionError, RnnmemWarning
from rnnmem.pipeline import connect, listening, serve
from rnnmem.pipeline.listening import guard, is_loopback


@pytest.mark.parametrize(
    "address, expected",
    [
        ("localhost:1", True),
        ("LocalHost:1", True),
        ("127.0.0.1:1", True),
        ("127.9.9.9:1", True),
        ("[::1]:1", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("192.0.2.7:1", False),
        ("worker-0.example:1", False),
    ],
)
def test_loopback_addresses(address, expected):
    assert is_loopback(address) is expected


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_guarded_socket_is_reached_by_loopback_alone(family):
    """Before: as TensorFlow opens it, for any address."""
    try:
        server = socket.create_server(
            ("", 0), family=family, dualstack_ipv6=family != socket.AF_INET
        )
    except (OSError, ValueError) as error:
        pytest.skip(f"no such socket here: {error}")
    with server, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        port = server.getsockname()[1]
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
            own = probe.getsockname()[0]
        except OSError:
            own = "127.0.0.1"
        socket.create_connection((own, port), 30).close()
        guard(f"localhost:{port}")
        socket.create_connection(("127.0.0.1", port), 30).close()
        if family == socket.AF_INET6:
            socket.create_connection(("::1", port), 30).close()
        if own.startswith("127."):
            pytest.skip("this machine has no address on a network")
        with pytest.raises(OSError):
            socket.create_connection((own, port), 1)


def test_where_nothing_can_be_guarded_it_says_so():
    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
    with pytest.warns(
        RnnmemWarning, match=f"'localhost:{port}' listens on every interface.*firewall"
    ):
        guard(f"localhost:{port}")


def test_where_the_kernel_has_no_such_filter_it_says_so(monkeypatch):
    def refuse(one):
        raise OSError("no such option")

    monkeypatch.setattr(listening, "_accept_loopback_only", refuse)
    with socket.create_server(("localhost", 0)) as server:
        with pytest.warns(RnnmemWarning, match="no such option"):
            guard(f"localhost:{server.getsockname()[1]}")


def test_an_address_on_a_network_must_be_asked_for():
    with pytest.raises(OptionError, match=r"workers\[1\]='hostB:2222' .*trusted_network=True"):
        serve(["localhost:2222", "hostB:2222"], 0)
    with pytest.raises(OptionError, match=r"workers\[0\]='192.0.2.7:1' .*trusted_network=True"):
        connect(["192.0.2.7:1"], timeout=0.1)

"""Who may reach a server of TensorFlow's: it listens on every interface, whatever it is told.

TensorFlow's server runs what it is sent and asks nobody who they are. Its listening sockets are
opened for any address (``[::]``), also where the cluster names ``localhost``. For a cluster of
loopback addresses the kernel is told to drop whatever is not sent to a loopback address.
"""

from __future__ import annotations

import ctypes
import ipaddress
import os
import socket
import stat
import struct
import warnings
from collections.abc import Iterable, Iterator

from rnnmem.errors import OptionError, RnnmemWarning

_SO_ATTACH_FILTER = 26  # Linux; Python's socket module has no name for it
_NETWORK_HEADER = 0xFFF00000  # SKF_NET_OFF: offsets from here on count from the IP header
_ACCEPT, _DROP = 0xFFFFFFFF, 0
# Opcodes of the classic Berkeley packet filter (McCanne and Jacobson 1993).
_LOAD_BYTE, _LOAD_WORD, _AND, _SHIFT, _IF_EQUAL, _RETURN = 0x30, 0x20, 0x54, 0x74, 0x15, 0x06

# (opcode, jump if true, jump if false, value); jumps count instructions.
_LOOPBACK_ONLY = (
    (_LOAD_BYTE, 0, 0, _NETWORK_HEADER),
    (_SHIFT, 0, 0, 4),
    (_IF_EQUAL, 0, 3, 4),  # IPv4: the destination is in 127.0.0.0/8
    (_LOAD_WORD, 0, 0, _NETWORK_HEADER + 16),
    (_AND, 0, 0, 0xFF000000),
    (_IF_EQUAL, 9, 10, 0x7F000000),
    (_IF_EQUAL, 0, 9, 6),  # IPv6: it is ::1
    (_LOAD_WORD, 0, 0, _NETWORK_HEADER + 24),
    (_IF_EQUAL, 0, 7, 0),
    (_LOAD_WORD, 0, 0, _NETWORK_HEADER + 28),
    (_IF_EQUAL, 0, 5, 0),
    (_LOAD_WORD, 0, 0, _NETWORK_HEADER + 32),
    (_IF_EQUAL, 0, 3, 0),
    (_LOAD_WORD, 0, 0, _NETWORK_HEADER + 36),
    (_IF_EQUAL, 0, 1, 1),
    (_RETURN, 0, 0, _ACCEPT),
    (_RETURN, 0, 0, _DROP),
)


def is_loopback(address: str) -> bool:
    """Whether ``host:port`` names this machine to itself alone."""
    host = address.rsplit(":", 1)[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def check_trusted(workers: Iterable[str], trusted_network: bool) -> None:
    """Refuses addresses that a network reaches, unless the user says that it may.

    Raises:
      OptionError: an address is not a loopback address, and the network is not trusted.
    """
    for place, address in enumerate(workers):
        if not trusted_network and not is_loopback(address):
            raise OptionError(
                f"workers[{place}]={address!r} is reached over a network, and TensorFlow's server "
                "runs what anybody sends who reaches its port, on every interface; where all who "
                "do are trusted say trusted_network=True (--trusted_network), else use localhost"
            )


def guard(address: str) -> None:
    """Sees to it that a server of this process, at an address, is reached as the address says.

    A loopback address is reached from this machine alone; for any other the caller was asked.

    Warns:
      RnnmemWarning: that cannot be had on this machine: the port is open on every interface.
    """
    if not is_loopback(address):
        return
    port = int(address.rsplit(":", 1)[1])
    guarded, reason = 0, "no listening socket was found"
    try:
        for one in _listening(port):
            _accept_loopback_only(one)
            guarded += 1
    except OSError as error:
        guarded, reason = 0, str(error)
    if not guarded:
        warnings.warn(
            f"TensorFlow's server at {address!r} listens on every interface of this machine and "
            f"runs what it is sent; that could not be narrowed to loopback here ({reason}): close "
            f"port {port} in the firewall",
            RnnmemWarning,
            stacklevel=2,
        )


def _listening(port: int) -> Iterator[socket.socket]:
    """Every socket of this process that listens at a port; each is closed afterwards."""
    for name in os.listdir("/proc/self/fd"):
        try:
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            copy = os.dup(int(name))
        except OSError:  # closed meanwhile
            continue
        with socket.socket(fileno=copy) as one:
            if one.family not in (socket.AF_INET, socket.AF_INET6):
                continue
            if one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 0:
                continue
            if one.getsockname()[1] == port:
                yield one


def _accept_loopback_only(listening: socket.socket) -> None:
    """Lets the kernel drop what is sent to the socket at any address but a loopback one."""
    code = b"".join(
        struct.pack("HBBI", op, yes, no, value) for op, yes, no, value in _LOOPBACK_ONLY
    )
    buffer = ctypes.create_string_buffer(code)
    program = struct.pack("HP", len(_LOOPBACK_ONLY), ctypes.addressof(buffer))
    listening.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)

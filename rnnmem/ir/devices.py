"""Where ops run: the host, or an accelerator beside it."""

from __future__ import annotations

import re

from rnnmem.ir.graph import Net

HOST, ACCELERATOR = "/device:CPU:0", "/device:GPU:0"
"""The devices of a machine with one of each."""

_NUMBER = re.compile(r":(\d+|\*)$")
_DEVICE = re.compile(r"/(?:device:)?([A-Za-z_]+):(\d+|\*)$")


def kind_of(device: str) -> str:
    """``CPU``, ``GPU`` and so on; empty where the device says nothing of its kind."""
    found = _DEVICE.search(device)
    return found.group(1).upper() if found else ""


def is_on(device: str, wanted: str) -> bool:
    """Whether a device is the one that is wanted: ``GPU:0`` in short, ``GPU`` for any of them."""
    whole = wanted if wanted.startswith("/") else f"/device:{wanted}"
    if not _NUMBER.search(whole):
        device = _NUMBER.sub("", device)
    return device.upper().endswith(whole.upper())


def host_of(device: str) -> str:
    """The host of the same job and task."""
    return _DEVICE.sub("", device) + HOST


def where_is(net: Net, blob: str, default: str) -> str:
    """The device on which a blob of a step net is made.

    Args:
      net: the step net.
      blob: one of its blobs.
      default: where ops run that name no device.
    """
    producer = net.producer.get(blob)
    while producer is not None and producer.type == "Identity" and not producer.device:
        producer = net.producer.get(producer.inputs[0])
    named = producer.device if producer is not None else ""
    return named if kind_of(named) else default

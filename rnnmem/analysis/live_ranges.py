"""Which buffers a Net's names stand for, and from when to when each is alive along its order."""

from __future__ import annotations

from collections.abc import Mapping

from rnnmem.analysis.versions import OUTSIDE, SsaVersions
from rnnmem.ir.op_table import ASKS_SHAPE, VIEWS, types

HOST = types("host") | ASKS_SHAPE
"""Op types that write into host memory whatever the device."""

ALREADY = types("resident")
"""Op types that hand out memory which is there anyway."""


def views(past: SsaVersions) -> dict[str, str]:
    """View -> the name whose buffer it shows in the end; only what is written once."""
    found: dict[str, str] = {}
    for op in past.ops:
        if op.type not in VIEWS:
            continue
        pairs = list(zip(op.inputs, op.outputs, strict=False))
        for shown, view in pairs if op.type == "IdentityN" else pairs[:1]:
            if view != shown and len(past.versions[view]) == 1:
                found[view] = found.get(shown, shown)
    return found


def live_ranges(
    past: SsaVersions, shown: Mapping[str, str]
) -> tuple[dict[int, list[str]], dict[int, list[str]]]:
    """Op -> names that get a buffer with it, and op -> names that lose it after it.

    Names from outside and what is there anyway have none; outputs keep theirs to the end.
    """
    starts: dict[int, list[str]] = {}
    last: dict[str, int] = {}
    open_ended = {shown.get(name, name) for name in past.net.outputs}
    for name, versions in past.versions.items():
        first = past.writer[versions[0]]
        if first == OUTSIDE or past.ops[first].type in ALREADY:
            open_ended.add(name)
            continue
        used = max(max((past.writer[one], *past.readers[one])) for one in versions)
        root = shown.get(name, name)
        last[root] = max(last.get(root, 0), used)
        if name == root:
            starts.setdefault(first, []).append(name)
    ends: dict[int, list[str]] = {}
    for name, used in last.items():
        if name not in open_ended and name not in shown:
            ends.setdefault(used, []).append(name)
    return starts, ends

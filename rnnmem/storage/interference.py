"""Which ops of a Net interfere: one may not run before another, or values would be others."""

from __future__ import annotations

from collections.abc import Mapping

from rnnmem.ir.graph import Net
from rnnmem.storage.arguments import check_net


def interference_of_ops(net: Net) -> Mapping[str, frozenset[str]]:
    """The interference graph of a Net's ops, as they stand.

    An op interferes with a later one that reads what it writes, that writes what it reads, that
    writes what it writes, or that waits for it. Of a blob that is written several times, as those
    of a shared Net are, only the neighbours have an edge; the rest follows from these.

    Source: ``compute_interference_graph`` of Caffe2's memonger.

    Args:
      net: any Net; of its step nets each has a graph of its own.

    Returns:
      Op -> the later ops that it interferes with, for every op.

    Raises:
      OptionError: it is no Net.
    """
    check_net(net)
    found: dict[str, set[str]] = {op.name: set() for op in net.ops}
    writer: dict[str, str] = {}
    readers: dict[str, list[str]] = {}
    for op in net.ops:
        before = {writer[blob] for blob in op.inputs if blob in writer}
        before.update(name for name in op.controls if name in found)
        for blob in op.outputs:
            before.update(readers.pop(blob, ()))
            if blob in writer:
                before.add(writer[blob])
            writer[blob] = op.name
        for blob in op.inputs:
            if blob not in op.outputs:
                readers.setdefault(blob, []).append(op.name)
        for name in before - {op.name}:
            found[name].add(op.name)
    return {name: frozenset(later) for name, later in found.items()}

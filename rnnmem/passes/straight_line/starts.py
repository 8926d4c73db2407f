"""When the clones of a region begin: what of the gradient is there by then.

A region begins when the gradient that its first reader reads arrives. Where a loss reads every
layer (skip connections, deep supervision), that is so at once for all regions:

    loss ─┬─► gradient of layer 3 ─► layer 2 ─► layer 1     every layer's filter has its gradient
          ├────────────────────────► filter of layer 2      from the loss, long before what the
          └────────────────────────► filter of layer 1      layer above it hands down arrives
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable

from rnnmem.grappler.fusion import may_have_proxy
from rnnmem.ir.graph import Net
from rnnmem.ir.order import all_waiting_for, reached, waiting_for
from rnnmem.passes.straight_line.decision import Region
from rnnmem.passes.straight_line.segments import Line
from rnnmem.passes.straight_line.select import Candidate


def begun_earlier(net: Net, candidate: Candidate) -> Candidate:
    """The same regions, where each begins when what its first readers read is there.

    A filter's gradient reads what a layer was given, and the gradient that the layer below waits
    for is held until it has: that layer's clones would come too late for it.

    Args:
      net: the Net that the candidate was chosen for.
      candidate: a choice of regions.
    """
    line = net.once(Line)
    found = tuple(_begun_earlier(line, region) for region in candidate.regions)
    return dataclasses.replace(candidate, regions=found)


def _begun_earlier(line: Line, region: Region) -> Region:
    net, producer = line.net, line.net.producer
    made = {blob for name in region.ops for blob in net.op_by_name[name].outputs}
    behind = all_waiting_for(net, [producer[blob].name for blob in region.after])
    own = all_waiting_for(net, region.readers)
    found: dict[str, None] = {}
    for name in region.readers:
        if name not in behind:
            found.update(dict.fromkeys(net.op_by_name[name].inputs))
    after = [
        blob
        for blob in found
        if blob not in made
        and blob in producer
        and line.place[producer[blob].name] >= line.turn
        and producer[blob].name not in own
        and behind <= all_waiting_for(net, [producer[blob].name])
        and may_have_proxy(net, blob)
    ]
    return dataclasses.replace(region, after=tuple(after)) if after else region


def begun_in_turn(net: Net, candidate: Candidate) -> Candidate:
    """The same regions, where none begins before a gradient of the region before it arrives.

    No region waits for what waits for it, through other regions neither.

    Args:
      net: the Net that the candidate was chosen for.
      candidate: a choice of regions, in the order of the gradient.
    """
    line, waits = net.once(Line), _Waits(net, candidate.regions)
    found = list(candidate.regions[:1])
    for before, region in itertools.pairwise(candidate.regions):
        awaited = all_waiting_for(net, before.readers)
        if awaited.isdisjoint(net.producer[blob].name for blob in region.after):
            region = _begun_behind(line, region, awaited, waits)
        found.append(region)
    return dataclasses.replace(candidate, regions=tuple(found))


def can_run(net: Net, candidate: Candidate) -> bool:
    """Whether no clone waits for what waits for it, through the edges of sums neither."""
    if not any(region.edges for region in candidate.regions):
        return True
    waits = _Waits(net, candidate.regions)
    return not any(
        net.producer[blob].name in waits.following(region.readers)
        for region in candidate.regions
        for blob in region.after
    )


class _Waits:
    """What waits for what in a Net, clones of regions included."""

    def __init__(self, net: Net, regions: Iterable[Region]):
        self.net = net
        self._readers: dict[str, set[str]] = {}  # op -> readers of clones that wait for it
        for region in regions:
            self.add(region)
            for edge in region.edges:
                self._readers.setdefault(edge.after, set()).add(edge.op)

    def add(self, region: Region) -> None:
        """Readers of a region's clones wait for what the clones wait for."""
        for blob in region.after:
            self._readers.setdefault(self.net.producer[blob].name, set()).update(region.readers)

    def following(self, names: Iterable[str]) -> set[str]:
        """Names of ops, and of all that wait for them."""
        return set(reached(names, self._next))

    def _next(self, name: str) -> Iterable[str]:
        return (*waiting_for(self.net, name), *self._readers.get(name, ()))


def _begun_behind(line: Line, region: Region, awaited: set[str], waits: _Waits) -> Region:
    """The region, which begins when the first is there of what its readers need of some ops."""
    net, own = line.net, waits.following(region.readers)
    usable = awaited - own

    def above(blob: str) -> Iterable[str]:
        made = net.producer.get(blob)
        return () if made is None or made.name not in usable else made.inputs

    places = [line.place[name] for name in region.readers]
    span = net.ops[min(places) : max(places) + 1]
    read = (blob for op in span if op.name in own for blob in op.inputs)
    for blob in reached(read, above):
        made = net.producer.get(blob)
        if made is not None and made.name in usable and may_have_proxy(net, blob):
            later = dataclasses.replace(region, after=(*region.after, blob))
            waits.add(later)
            return later
    return region

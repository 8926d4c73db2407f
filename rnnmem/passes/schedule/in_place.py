"""The last reader of a buffer may write into it: control edges that make an op the last.

TensorFlow gives an elementwise op the buffer of its input if nobody else holds it when the op
starts. Where a blob has several readers, which of them that is, is a race:

    x ─► MatMul ─┬─► Sum ───┐ control edge      with the edge Tanh writes into the product,
                 └─ delayed input ◄──┘                   without it a second buffer may be needed
                      └──► Tanh ─► Sum

The delayed input stands between the op and what it reads, so it must hide nothing that a graph
optimizer would have looked at: a product, or another op that is never fused, whose result has
several readers anyway. A sum of three or more begins with the addend that nobody else holds
(:mod:`rnnmem.grappler.summation_order`), so what such sums read is left alone.
"""

from __future__ import annotations

from rnnmem.analysis.reachability import HappensBefore
from rnnmem.analysis.versions import SsaVersions
from rnnmem.grappler.fusion import PRODUCTS, Sources
from rnnmem.grappler.summation_order import sums_of
from rnnmem.ir.edges import Edge
from rnnmem.ir.graph import Blob, Net, Op
from rnnmem.ir.op_table import STACK, Work, facts
from rnnmem.passes.schedule.gradient_start import READING
from rnnmem.simulate.program import in_place_inputs

FRESH = PRODUCTS | READING | {STACK}
"""Op types whose result is a buffer of its own, and which are not fused once it has two readers."""

_KEEPING = frozenset({Work.POINTWISE, Work.PRODUCT, Work.READS})


def last_readers(
    net: Net,
    past: SsaVersions,
    congruent: frozenset[str],
    large: int,
    sized: Net | None = None,
) -> tuple[Net, list[Edge]]:
    """Makes ops that could write in place the last readers of what they read.

    Args:
      net: the Net, its names written once.
      past: the history of the same Net as it uses buffers (an op that writes in place is an Alias),
        in the order in which its ops shall run.
      congruent: ops that a graph optimizer may merge with others.
      large: bytes from which a buffer is worth an edge.
      sized: the same Net with the sizes of a call, where it does not tell its own.

    Returns:
      The Net of ``past`` with more ops in place, and the control edges that this takes.
    """
    finder = _Finder(net, past, congruent, large, sized or net)
    ops = tuple(finder.look(index) for index in range(len(past.ops)))
    return past.net.replace(ops=ops), finder.edges


class _Finder:
    def __init__(
        self, net: Net, past: SsaVersions, congruent: frozenset[str], large: int, sized: Net
    ):
        self.net, self.past, self.congruent, self.large = net, past, congruent, large
        self.sized = sized
        self.sources = Sources(net, past, congruent)
        self.edges: list[Edge] = []
        self._number = {op.name: index for index, op in enumerate(past.ops)}
        self._order = HappensBefore()

    def look(self, index: int) -> Op:
        """The op, as an Alias of an input where it may be made the last reader of that."""
        self._order.begin(self.past.before[index])
        op = self.past.ops[index]
        real = self.net.op_by_name[op.name]
        if op.type == real.type and op.name not in self.congruent:
            written = [self.sized.blobs[blob] for blob in real.outputs]
            for slot in in_place_inputs(real, written, self.sized):
                waited = self._waits(real, index, slot)
                if waited is not None:
                    for source in waited:
                        self.edges.append(Edge(op.name, slot, self.past.ops[source].name))
                        self._order.wait_for(source)
                    rest = op.inputs[:slot] + op.inputs[slot + 1 :]
                    op = op.replace(type="Alias", inputs=(op.inputs[slot], *rest))
                    break
        self._order.end()
        return op

    def _waits(self, op: Op, index: int, slot: int) -> list[int] | None:
        """The ops to wait for so that this is the last reader; None where it cannot be."""
        blob = op.inputs[slot]
        if not self._may_be_taken(op, blob):
            return None
        found = []
        for reader in self.net.readers[blob]:
            other = self._number[reader.name]
            if other == index or self._order.comes_before(other):
                continue
            if other > index or self._knows(op, slot, blob):
                return None
            source = self.sources.from_(other, index)
            if source is None:
                return None
            found.append(source)
        if found and self._is_summed(blob):
            return None
        return list(dict.fromkeys(found))

    def _may_be_taken(self, op: Op, blob: str) -> bool:
        """Whether nobody but its readers holds the buffer, and all of them let it go."""
        readers = self.net.readers[blob]
        producer = self.net.producer.get(blob)
        return (
            producer is not None
            and producer.type in FRESH
            and producer.name not in self.congruent
            and (self.sized.blobs[blob].bytes or 0) >= self.large
            and blob not in self.net.outputs
            and op.type != "AddN"
            and op.inputs.count(blob) == 1
            and len(readers) > 1
            and all(self._lets_go(reader, self.sized.blobs[blob]) for reader in readers)
        )

    def _lets_go(self, reader: Op, blob: Blob) -> bool:
        """Whether the op holds its input no longer than it runs."""
        known = facts(reader)
        if known is None or known.view or known.folds or known.work not in _KEEPING:
            return False
        # A reduction along no axis hands its input on.
        same = any(self.sized.blobs[one].bytes == blob.bytes for one in reader.outputs)
        return not (same and known.work is Work.READS)

    def _knows(self, op: Op, slot: int, blob: str) -> bool:
        """Whether another input is computed from the blob: a pattern that may be fused as one."""
        made = self._number[self.net.producer[blob].name]
        for place, other in enumerate(op.inputs):
            producer = self.net.producer.get(other)
            if place != slot and producer is not None:
                if self._order.comes_before(made, self._number[producer.name]):
                    return True
        return False

    def _is_summed(self, blob: str) -> bool:
        return blob in sums_of(self.net).addends

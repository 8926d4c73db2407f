"""Keep-alive uses: readers that cost nothing, so that a blob is fused, or not, as it was before.

A kept blob is pushed into a list and popped at once. A held one is put into a list where it
stays until the next iteration puts its own there: nobody may write into its buffer meanwhile. So
that the next iteration is not early, such a loop has one iteration under way. An awaited op keeps
that somebody waits for it, who now is the push of a number.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from rnnmem.analysis.liveness import needed
from rnnmem.ir.builders import INT, Encode, empty_list, made, number, pop, push
from rnnmem.ir.editor import LoopEditor
from rnnmem.ir.graph import BYTES_PER_ELEMENT, DType, Net, Op
from rnnmem.ir.op_table import BRANCHES, LOOPS, OPAQUE_SOURCES, PUTS, SET

_LIFETIME_PUT = "rnnmem/lifetime_put"
NEVER_FUSED = OPAQUE_SOURCES | {"Const"}
"""Types of ops that nothing is fused with, however many readers they have."""


def is_lifetime_extension(op: Op) -> bool:
    """Whether the op puts a blob where it is held until the iteration is over."""
    return op.name.startswith(_LIFETIME_PUT)


def results_read(net: Net, op: Op | None) -> set[int]:
    """Positions of the results of an op that somebody reads in the net; handles do not count."""
    return {
        place
        for place, blob in enumerate(() if op is None else op.outputs)
        if net.fan_out(blob) and net.blobs[blob].dtype != "resource"
    }


def missed_results(op: Op, read: Collection[int], before: Collection[int] = ()) -> set[int]:
    """Results of a branch or loop to be read too, so that ops inside keep as many readers.

    What only an unread result needs, TensorFlow prunes inside: an optional, say, that a gradient
    without a use was given. What had two readers would have one, and might be fused with it; not
    where that one puts it into a list or an optional, which holds it from then on.

    Args:
      op: any op.
      read: positions of the results that somebody reads.
      before: positions of those that somebody read of the op that this one repeats.
    """
    if op.type in LOOPS:  # what a variable without a reader keeps alive is not looked into
        return set(before).difference(read)
    if op.type not in BRANCHES:
        return set()
    unread = [place for place in range(len(op.outputs)) if place not in read]
    return {place for net in op.nets.values() for place in _missed(net, read, unread)}


def _missed(net: Net, read: Collection[int], unread: Iterable[int]) -> set[int]:
    runs = needed(net, read).ops
    handed = [net.outputs[place] for place in read]
    reads = [*handed, *(blob for op in runs for blob in op.inputs)]
    put_away = {op.inputs[PUTS[op.type]] for op in runs if op.type in PUTS}
    lonely = {
        blob
        for blob in reads
        if reads.count(blob) == 1 < net.fan_out(blob)
        and blob not in put_away
        and net.blobs[blob].dtype in BYTES_PER_ELEMENT
        and (source := net.producer.get(blob)) is not None
        and source.type not in NEVER_FUSED
    }
    names = {op.name for op in runs}
    found = set()
    for place in unread if lonely else ():
        more = [op for op in needed(net, (place,)).ops if op.name not in names]
        if not lonely.isdisjoint([net.outputs[place], *(one for op in more for one in op.inputs)]):
            found.add(place)
    return found


class Keepalives:
    """The blobs kept alive of one step net; one carried list for each dtype."""

    def __init__(self, loop: LoopEditor, constant: Encode):
        self.loop = loop
        self.constant = constant
        self.blobs: dict[str, None] = {}
        self.held: dict[str, None] = {}
        self.unread: dict[str, None] = {}
        self.awaited: dict[str, None] = {}
        self.dtypes: list[str] = []  # of the lists that were written

    def extend_lifetime(self, blobs: Iterable[str]) -> None:
        """Gives each of the blobs one more reader, which holds it until the iteration is over."""
        self.held.update(dict.fromkeys(blobs))

    def add(self, blobs: Iterable[str]) -> None:
        """Gives each of the blobs one more reader."""
        self.blobs.update(dict.fromkeys(blobs))

    def replace_push(self, blob: str, addends: Collection[str]) -> None:
        """Reads a blob in place of its accumulator, which held it if a sum might write into it."""
        (self.extend_lifetime if blob in addends else self.add)([blob])

    def replace_unread_push(self, blob: str) -> None:
        """Reads a blob in place of an accumulator that is handed on, and that nobody reads."""
        self.unread[blob] = None

    def wait_for(self, ops: Iterable[str]) -> None:
        """Waits for each of the ops, if nobody else does any more."""
        self.awaited.update(dict.fromkeys(ops))

    def write(self) -> list[str]:
        """Writes the uses; returns the outer blobs of their lists, which must not be pruned."""
        kept = {self.loop.body.resolve(blob) for blob in self.held}
        more = {self.loop.body.resolve(blob) for blob in self.blobs} - kept - self._opaque()
        ordered = self._in_order(kept | more)
        held = self._by_dtype([blob for blob in ordered if blob in kept])
        passed = self._by_dtype([blob for blob in ordered if blob in more])
        self.dtypes = [dtype for dtype, _ in (*passed, *held)]
        self.loop.one_at_a_time |= bool(held)
        written = [
            *(self._chain(dtype, blobs) for dtype, blobs in passed),
            *(self._lifetime_extension(dtype, blobs) for dtype, blobs in held),
        ]
        if awaited := self._no_longer_awaited():
            self.dtypes.append("int32")
            written.append(
                self._chain("int32", [number(self.loop.body, 0, self.constant)], awaited)
            )
        return written

    def _opaque(self) -> set[str]:
        """Blobs for which one more reader changes nothing, and nothing inside of what made them."""
        made = self.loop.body.ops.values()
        sources = (op for op in made if op.type in OPAQUE_SOURCES and not op.nets)
        return {blob for op in sources for blob in op.outputs}

    def write_unread(self) -> list[str]:
        """Writes what :meth:`replace_unread_push` asked for; its outer lists are handed on too."""
        unread = {self.loop.body.resolve(blob) for blob in self.unread}
        written = self._by_dtype(self._in_order(unread))
        return [self._chain(dtype, blobs) for dtype, blobs in written]

    def _no_longer_awaited(self) -> list[str]:
        ops = self.loop.body.ops
        still = {name for op in ops.values() for name in op.controls}
        return [name for name in self.awaited if name in ops and name not in still]

    def _by_dtype(self, blobs: Iterable[str]) -> list[tuple[str, list[str]]]:
        found: dict[str, list[str]] = {}
        for blob in blobs:
            found.setdefault(self.loop.body.blobs[blob].dtype, []).append(blob)
        return list(found.items())

    def _in_order(self, wanted: set[str]) -> list[str]:
        """The blobs as the step net writes them, so that each is let go early."""
        if not wanted:
            return []
        return [
            blob
            for blob in (
                *self.loop.body.inputs,
                *(one for op in self.loop.body.net().ops for one in op.outputs),
            )
            if blob in wanted
        ]

    def _chain(self, dtype: str, blobs: list[str], awaited: Iterable[str] = ()) -> str:
        outer, body = self.loop.outer, self.loop.body
        start = empty_list(outer, dtype, None, self.constant, name="rnnmem/keepalive")
        argument, held = self.loop.add_variable(start, "keepalive")
        unknown = number(body, -1, self.constant)
        current = argument
        for blob in blobs:
            current = push(body, current, blob, name="rnnmem/keepalive_push", controls=awaited)
            current, _ = pop(body, current, dtype, None, unknown, name="rnnmem/keepalive_pop")
        self.loop.set_next(argument, current)
        return held

    def _lifetime_extension(self, dtype: str, blobs: list[str]) -> str:
        outer, body = self.loop.outer, self.loop.body
        read = (number(outer, -1, self.constant), number(outer, len(blobs), self.constant))
        kinds = {"element_dtype": dtype, "shape_type": INT}
        start = made(outer, "TensorListReserve", read, "variant", name="rnnmem/lifetime", **kinds)
        argument, held = self.loop.add_variable(start, "lifetime")
        current = argument
        for place, blob in enumerate(blobs):
            put = (current, number(body, place, self.constant), blob)
            fixed = {"resize_if_index_out_of_bounds": False, "element_dtype": DType(dtype)}
            current = made(body, SET, put, "variant", name=_LIFETIME_PUT, **fixed)
        self.loop.set_next(argument, current)
        return held

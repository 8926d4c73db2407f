"""Lowering of chunked losses: undoes loops over chunks of rows, having proven that they are such.

A loop over chunks runs, in iteration i, some ops on rows ``i * length ...`` of what it is given, at
most ``length`` of them. Proven here, on the ops themselves:

    the loop runs ceil(rows / length) times, at least once; i counts from 0
    whatever is cut is cut into parts that follow each other and leave nothing out
    every op on the way works on rows one by one (`rnnmem.analysis.row_rules`, which tests hold
        against TensorFlow's kernels), or on sizes, where numbers of the whole stand for a part's
    what is pushed is joined again, in order; what is added up begins as 0

Rows may also be written in the place of those that the loop cuts, where nobody else has that buffer
(`rnnmem.verify.lowering.overwriting`), or into memory of their shape that is made for it: all of
them are written, and what was there is read by nobody.

So what is joined is what the ops give for all rows, and what is added up is the whole sum, in
another order: where no bit may change, nothing is added up, and every op is one that gives by so
many rows the bits of all of them. The Net handed out runs the ops on all rows, in place of the
loop; that these are the original's ops on the original's blobs is left to value numbering.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from rnnmem.analysis.row_rules import (
    ROW,
    Dim,
    Given,
    Partial,
    Rows,
    Sizes,
    Value,
    apply,
    rows_of,
    segments_stay_in_rows,
)
from rnnmem.analysis.shapes import KnownNet, known_net
from rnnmem.ir.editor import NetEditor
from rnnmem.ir.graph import ACCUMULATED, Net, Op
from rnnmem.ir.marks import CHUNKS, PART, SOURCE, WHOLE
from rnnmem.ir.op_table import EMPTY, LOOPS, MEMORY, OVERWRITES, PUSH, is_pure
from rnnmem.ir.order import topological
from rnnmem.verify.errors import refused
from rnnmem.verify.lowering.memory import fills, hidden_by, is_read_alone
from rnnmem.verify.lowering.overwriting import before_barrier, is_last_use, is_owned, is_read_before
from rnnmem.verify.lowering.patterns import (
    Variable,
    made_by,
    number,
    steps_by_one,
    variables,
)
from rnnmem.verify.lowering.row_bits import other_bits
from rnnmem.verify.lowering.row_counts import RowCounts
from rnnmem.verify.lowering.rows import (
    all_seen_alike,
    are_of_whole,
    flat_of,
    known_from,
    lead_of,
    picked_by,
)

_MASKS = ("begin", "end", "ellipsis", "new_axis", "shrink_axis")


def lower_chunked_losses(
    original: Net, net: Net, sums: bool, compiled: bool = False
) -> tuple[Net, Net]:
    """A Net of the same values, but for the order of sums, without loops over chunks.

    Args:
      original: the Net as it was.
      net: the Net with such loops.
      sums: whether sums may be added up by chunks.
      compiled: whether last bits of rows may depend on how many there are in a chunk.

    What both Nets know of a source's number of rows is written alike in both, however it is told.

    Returns:
      The original, and that Net.

    Raises:
      CheckError: a loop is marked as one over chunks, and is not shown to be one.
    """
    sources, flat = dict[str, tuple[int, ...]](), list[str]()
    first = net
    for op in net.ops:
        if op.type in LOOPS and CHUNKS in op.attributes:
            proof = _Proof(net, net.op_by_name[op.name], first, sums, compiled)
            proof.verify()
            net = proof.flattened()
            sources[before_barrier(proof.outer, proof.source)] = lead_of(op)
            flat += flat_of(op)
    return all_seen_alike(original, net, sources, flat)


class _Proof:
    """That one loop is one over chunks."""

    def __init__(self, net: Net, loop: Op, first: Net, sums: bool, compiled: bool):
        self.outer = net
        self.first = first  # with all the loops
        self.loop = loop
        self.sums, self.compiled = sums, compiled
        self.body = loop.nets["body"]
        self.variables = variables(loop)
        self.loop_invariant = {
            one.argument: one.start for one in self.variables if one.following == one.argument
        }
        self.known: KnownNet = known_net(net)

    def _demand(self, holds: object, sentence: str, op: str = "") -> None:
        if not holds:
            raise refused("chunks-not-understood", sentence, self.body, (op,) if op else ())

    def verify(self) -> None:
        """Refuses what is no loop over chunks."""
        for op in self.body.ops:
            known = is_pure(op) or op.type == OVERWRITES
            self._demand(not op.nets and known, f"{op.name!r} may not run twice", op.name)
        self._counts()
        self._results()
        self._verify_ops()
        if not self.sums:
            self._demand(not self.summed, "sums are added up in another order")
            for op in () if self.compiled else other_bits(self.body, self.values, self.length):
                other = f"{op.type} of some rows may have other last bits than of all"
                self._demand(False, other, op.name)

    # --- how often it runs, and on which rows

    def _counts(self) -> None:
        cond = self.loop.nets["cond"]
        less = made_by(cond, cond.outputs[0], "Less")
        right = less is not None and set(less.inputs) <= set(cond.inputs)
        self._demand(right, "the loop does not count up")
        self.index, chunks = (self.variables[cond.inputs.index(blob)] for blob in less.inputs)
        counts = steps_by_one(self.body, self.index, "AddV2")
        from_zero = number(self.outer, self.index.start) == 0
        self._demand(counts and from_zero, "the loop does not count its iterations")
        self._demand(chunks.argument in self.loop_invariant, "the number of chunks changes")
        if (counted := number(self.outer, chunks.start)) is not None:
            self._known_counts(counted)
            return
        most = self._made(chunks.start, "Maximum")
        self._demand(number(self.outer, most.inputs[1]) == 1, "there may be no chunk")
        quotient = self._made(most.inputs[0], "FloorDiv")
        self.length = number(self.outer, quotient.inputs[1])
        raised = self._made(quotient.inputs[0], "AddV2")
        self.whole = raised.inputs[0]
        self._demand(
            isinstance(self.length, int)
            and self.length > 0
            and number(self.outer, raised.inputs[1]) == self.length - 1,
            "the chunks do not cover all rows",
        )
        first = self._made(self.whole, "StridedSlice")
        self.source = self._made(first.inputs[0], "Shape").inputs[0]
        bounds = [number(self.outer, blob) for blob in first.inputs[1:]]
        masks = [first.attributes.get(f"{name}_mask") or 0 for name in _MASKS]
        right = bounds == [(0,), (1,), (1,)] and masks == [0, 0, 0, 0, 1]
        self._demand(right, "what is counted are no rows")
        dims = self.known.facts[self.source].shape
        self._demand(dims, "what is counted has no known rank")
        self.rows = dims[0]

    def _known_counts(self, chunks: object) -> None:
        """Of rows whose number is known, those that a mark names."""
        at, length = (self.loop.attributes.get(name) for name in (SOURCE, CHUNKS))
        known = isinstance(at, int) and at in range(len(self.loop.inputs))
        self._demand(known and isinstance(length, int) and length > 0, "no rows are counted")
        self.source, self.length, self.whole = self.loop.inputs[at], length, ""
        dims = self.known.facts[self.source].shape
        self.rows = dims[0] if dims else None
        covered = self.rows is not None and chunks == max(1, -(-self.rows // length))
        self._demand(covered, "the chunks do not cover all rows")

    def _made(self, blob: str, type: str) -> Op:
        op = made_by(self.outer, blob, type)
        self._demand(op is not None, f"{blob!r} is not made by {type}")
        return op

    def _starts_at(self, blob: str) -> int | None:
        """K where the blob is k times the first row of the chunk."""
        op = made_by(self.body, blob, "Mul")
        if op is None:
            return None
        factor = number(self.body, op.inputs[1])
        if op.inputs[0] == self.index.argument:
            return 1 if factor == self.length else None
        below = self._starts_at(op.inputs[0])
        return factor * below if below is not None and isinstance(factor, int) else None

    def _count_of(self, op: Op | None) -> str:
        """What tells how many rows there are, if the op tells how many the chunk has; or empty."""
        if op is None or op.type != "Minimum" or number(self.body, op.inputs[0]) != self.length:
            return ""
        if self._is_fixed and number(self.body, op.inputs[1]) == self.rows:
            same = (
                one
                for one in self.loop_invariant.values()
                if self.outer.blobs[one].dtype == "int32" and number(self.outer, one) == self.rows
            )
            return next(same, "")
        left = made_by(self.body, op.inputs[1], "Sub")
        if left is None or self._starts_at(left.inputs[1]) != 1:
            return ""
        counted = self.loop_invariant.get(left.inputs[0], "")
        told = counted == self.whole or number(self.outer, counted) == (self.rows or -1)
        return counted if told else ""

    @property
    def _is_fixed(self) -> bool:
        """Whether every chunk has as many rows."""
        return self.rows is not None and not self.rows % self.length

    # --- what it hands outside

    def _results(self) -> None:
        """Outer blob that is all of it together -> blob of the body."""
        self.joined: dict[str, str] = {}
        self.summed: dict[str, str] = {}
        self.sum_shapes: dict[str, object] = {}
        self.placed: dict[str, str] = {}  # blob of the body -> the buffer that it is written to
        self.filled: dict[str, object] = {}  # blob of the body -> shape of the memory that it fills
        self.gone: set[str] = {self.loop.name}
        for one in self.variables:
            if one.argument in self.loop_invariant or one is self.index:
                self._demand(not self.outer.fan_out(one.final), "its counter is read behind it")
                continue
            last = self.body.producer.get(one.following)
            self._demand(last is not None, "a variable becomes another")
            if last.type == OVERWRITES:
                self._place(one, last)
                continue
            readers = self.body.readers.get(one.argument, ())
            self._demand(
                [op.name for op in readers] == [last.name]
                and last.inputs.count(one.argument) == 1
                and self.body.fan_out(one.following) == 1,
                "what is gathered is read in between",
                last.name,
            )
            (self._list if last.type == PUSH else self._sum)(one, last)

    def _list(self, one: Variable, push: Op) -> None:
        readers = self.outer.readers.get(one.final, ())
        self._demand(
            push.inputs[0] == one.argument
            and made_by(self.outer, one.start, EMPTY) is not None
            and len(readers) == 1 == self.outer.fan_out(one.final)
            and readers[0].type == "TensorListConcatV2"
            and not self.outer.fan_out(readers[0].outputs[1]),
            "what is pushed is not joined again",
            push.name,
        )
        self.gone.add(readers[0].name)
        self.joined[readers[0].outputs[0]] = push.inputs[1]

    def _place(self, one: Variable, write: Op) -> None:
        """Rows that are written over those that were cut."""
        buffer, rows, blob = write.inputs
        ramp = made_by(self.body, rows, "Range")
        limit = made_by(self.body, ramp.inputs[1], "AddV2") if ramp is not None else None
        fresh = made_by(self.outer, one.start, MEMORY)
        self._demand(
            buffer == one.argument
            and (one.start == self.source or fresh is not None)
            and limit is not None
            and limit.inputs[0] == ramp.inputs[0]
            and self._starts_at(ramp.inputs[0]) == 1
            and self._count_of(self.body.producer.get(limit.inputs[1]))
            and number(self.body, ramp.inputs[2]) == 1,
            "what is written is not in the place of the chunk's rows",
            write.name,
        )
        last = is_last_use(self.body, write)
        self._demand(last, "rows are written over that are still read", write.name)
        loop = self.first.op_by_name[self.loop.name]
        place = loop.inputs[one.position]
        alone = is_owned(self.first, place) and is_read_before(self.first, loop, place)
        self._demand(alone, f"others may read {place!r}, which is written over", write.name)
        self.joined[one.final] = blob
        if fresh is None:
            self.placed[blob] = buffer
            return
        self._demand(
            is_read_alone(self.body, write, buffer) and is_read_alone(self.first, loop, place),
            "memory is read that nobody has written",
            write.name,
        )
        self.filled[blob] = number(self.outer, fresh.inputs[0])
        self.gone.add(fresh.name)

    def _sum(self, one: Variable, add: Op) -> None:
        start = made_by(self.outer, one.start, "Fill")
        self._demand(
            add.type == "AddV2"
            and add.inputs[0] == one.argument
            and start is not None
            and number(self.outer, start.inputs[1]) == 0.0,
            "what is added up does not begin as 0",
            add.name,
        )
        part, final = add.inputs[1], one.final
        cast = made_by(self.body, part, "Cast")
        narrow = self.body.blobs[cast.inputs[0]].dtype if cast is not None else ""
        if ACCUMULATED.get(narrow) == self.body.blobs[one.argument].dtype:
            readers = self.outer.readers.get(final, ())
            self._demand(
                len(readers) == 1 == self.outer.fan_out(final)
                and readers[0].type == "Cast"
                and self.outer.blobs[readers[0].outputs[0]].dtype == narrow,
                "a sum is not brought back to its dtype",
                add.name,
            )
            self.gone.add(readers[0].name)
            part, final = cast.inputs[0], readers[0].outputs[0]
        self.summed[final] = part
        self.sum_shapes[part] = number(self.outer, start.inputs[0])

    # --- that its ops work on rows one by one

    def _verify_ops(self) -> None:
        self.outside = known_from(self.outer, self.known, self.source, self.loop.name)
        program, counts = self._followed()
        if told := counts.told(self.known):
            self.outside = known_from(self.outer, self.known, self.source, self.loop.name, told)
            program, counts = self._followed()
        if (part := counts.unknown(self.known, self.outside)) is not None:
            cut, blob = self.body.producer[part].name, self.cuts[part][0]
            other = f"{blob!r} may have another number of rows than {self.source!r}"
            self._demand(False, other, cut)
        self._demand(
            segments_stay_in_rows(program, self.values, picked_by(self.known, self.stands_for)),
            "rows are added up in others' places",
        )
        for blob in self.joined.values():
            value = self.values.get(blob)
            right = isinstance(value, Rows) and value.ramp is None
            self._demand(right, f"{blob!r} is not made row by row")
        for blob, buffer in self.placed.items():
            there = self.values[buffer]
            self._demand(
                self.values[blob] == rows_of(self.source, there.fact.shape, ROW),
                f"{blob!r} is not as large as what it is written over",
            )
        for blob, shape in self.filled.items():
            filling = fills(self.values[blob], self.rows, shape)
            self._demand(filling, f"{blob!r} does not fill the memory that it is written to")
        for blob in self.summed.values():
            value = self.values.get(blob)
            self._demand(
                isinstance(value, Partial)
                and tuple(dim.number for dim in value.shape) == self.sum_shapes[blob],
                f"{blob!r} is no part of a sum",
            )

    def _followed(self) -> tuple[list[Op], RowCounts]:
        """The ops of the body that are understood, and what they allow of what is cut."""
        self.values: dict[str, Value] = {}
        self.stands_for: dict[str, str] = {}  # blob of the body -> outer blob
        self.cuts: dict[str, tuple[str, Dim]] = {}  # parts of what only a run can count
        for argument, start in self.loop_invariant.items():
            told = self.outside.get(start)
            self.values[argument] = (
                told if isinstance(told, Given) else Given(self.known.facts[start])
            )
            self.stands_for[argument] = start
        for argument in self.placed.values():
            self.values[argument] = Given(self.known.facts[self.source])
            self.stands_for[argument] = self.source
        program = []
        for op in topological(self.body.ops):
            if counted := self._count_of(op):
                self.values[op.outputs[0]] = Sizes(ROW)
                self.stands_for[op.outputs[0]] = counted
            elif op.type == "Slice" and (part := self._part(op)) is not None:
                self.values[op.outputs[0]] = part
                self.stands_for[op.outputs[0]] = self.stands_for[op.inputs[0]]
            elif (hidden := hidden_by(self.body, op)) in self.values:
                self.values[op.outputs[0]] = self.values[hidden]
                program.append(op)
            elif all(blob in self.values for blob in op.inputs):
                found = apply(op, [self.values[blob] for blob in op.inputs])
                if found is not None:
                    self.values.update(zip(op.outputs, found, strict=True))
                    program.append(op)
        needed = self._needed((self.joined | self.summed).values())
        return program, RowCounts(self.body, self.values, self.cuts, needed)

    def _part(self, op: Op) -> Rows | None:
        """The rows that a Slice cuts out of a blob given to the loop; None: it cuts otherwise."""
        outer = self.stands_for.get(op.inputs[0])
        begin, size = (self.body.producer.get(blob) for blob in op.inputs[1:])
        if outer is None or begin is None or size is None:
            return None
        if begin.type != "Pack" or size.type != "Pack":
            return None
        times = self._starts_at(begin.inputs[0])
        if times is None:
            return None
        sizes = self.values.get(size.inputs[0])
        first = Dim(times) * ROW
        shape = self.known.facts[outer].shape
        self._demand(
            sizes == Sizes(first)
            and shape is not None
            and len(shape) == len(begin.inputs) == len(size.inputs)
            and all(number(self.body, blob) == 0 for blob in begin.inputs[1:])
            and all(
                number(self.body, blob) in {-1, -1 if whole is None else whole}
                for blob, whole in zip(size.inputs[1:], shape[1:], strict=True)
            ),
            f"{op.name!r} leaves something out",
            op.name,
        )
        count = first.at(self.rows) if self.rows is not None else None
        if outer != self.source and not (count is not None and shape[0] == count):
            self.cuts[op.outputs[0]] = outer, first
            told = self.outside.get(outer)
            if isinstance(told, Rows) and told.shape[0] == first:
                return told
        return rows_of(outer, shape, first)

    # --- what stands for it

    def flattened(self) -> Net:
        """The Net with the loop's ops run once, on all rows."""
        results = self.joined | self.summed
        needed = self._needed(results.values())
        stem, editor = self.loop.name, NetEditor(self.outer)
        names = dict(self.stands_for)
        for op in needed:
            for blob in op.outputs:
                kind = self.body.blobs[blob]
                names[blob] = editor.new_blob(f"{stem}/{blob}", kind.dtype, None)
        for op in needed:
            name = editor.fresh(f"{stem}/{op.name}")
            editor.ops[name] = op.replace(
                name=name,
                inputs=tuple(whole or names[blob] for blob, whole in self._inputs(op)),
                outputs=tuple(names[blob] for blob in op.outputs),
                attributes={key: one for key, one in op.attributes.items() if key != PART},
                controls=(),
            )
        for outer, blob in results.items():
            editor.rename(outer, names[blob])
        producer = self.outer.producer
        waits = (producer[blob].name for blob in self.loop.inputs if blob in producer)
        for name in self.gone:
            editor.remove(name)
        if (shown := before_barrier(self.outer, self.source)) != self.source:
            editor.rename(self.source, shown)
        # Who waits for the loop waits for what it was given.
        editor.ops[stem] = Op(
            stem, "NoOp", controls=tuple(dict.fromkeys((*waits, *self.loop.controls)))
        )
        return editor.net()

    def _needed(self, roots: Iterable[str]) -> list[Op]:
        """The ops of the body that make the blobs."""
        found: dict[str, Op] = {}
        pending = list(roots)
        while pending:
            blob = pending.pop()
            if blob in self.stands_for:
                continue
            op = self.body.producer.get(blob)
            known = op is not None and all(one in self.values for one in op.outputs)
            self._demand(known, f"{blob!r} is not made row by row", op.name if op else "")
            if op.name not in found:
                found[op.name] = op
                pending += [one for one, whole in self._inputs(op) if not whole]
        return list(found.values())

    def _inputs(self, op: Op) -> list[tuple[str, str]]:
        """The op's inputs, each with the outer numbers of the whole that stand for a part's."""
        wholes = [""] * len(op.inputs)
        if (mark := op.attributes.get(WHOLE)) is not None:
            found = re.fullmatch(r"(\d+):(.*)", mark.decode())
            self._demand(found, f"{op.name!r} is marked wrongly", op.name)
            slot, argument = int(found[1]), found[2]
            self._demand(
                slot < len(wholes)
                and argument in self.loop_invariant
                and are_of_whole(
                    op, self.values.get(op.inputs[slot]), self.values[argument], self.rows
                ),
                f"the sizes of {op.name!r} are not those of the whole",
                op.name,
            )
            wholes[slot] = self.loop_invariant[argument]
        return list(zip(op.inputs, wholes, strict=True))

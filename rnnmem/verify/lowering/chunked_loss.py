"""Undoes loops over chunks of rows before a Net is judged, having proven that they are such loops.

A loop over chunks runs, in iteration i, some ops on rows ``i * length ...`` of what it is given, at
most ``length`` of them. Proven here, on the ops themselves:

    the loop runs ceil(rows / length) times, at least once; i counts from 0
    whatever is cut is cut into parts that follow each other and leave nothing out
    every op on the way works on rows one by one (`rnnmem.analysis.row_rules`, facts that are held
    against
        TensorFlow's kernels), or on sizes, where numbers of the whole stand for those of a part
    what is pushed is joined again, in order; what is added up begins as 0

So what is joined is what the ops give for all rows, and what is added up is the whole sum, in
another order. The Net handed out runs the ops on all rows, in place of the loop; that these are
the original's ops on the original's blobs is left to the judge.
"""

from __future__ import annotations

import dataclasses
import re

from rnnmem.analysis.row_rules import (
    ROW,
    Dim,
    Given,
    Partial,
    Rows,
    Sizes,
    Value,
    apply,
    apply_outside,
    product,
    resolved,
    rows_of,
    segments_stay_in_rows,
    whole_numbers,
)
from rnnmem.analysis.shapes import KnownNet, known_net
from rnnmem.ir.graph import ACCUMULATED, Blob, Constant, Net, Op
from rnnmem.ir.marks import CHUNKS, WHOLE
from rnnmem.ir.op_table import TABLE, Work, is_pure
from rnnmem.ir.order import topological
from rnnmem.verify.errors import refused

_LOOPS = ("While", "StatelessWhile")
_HANDS_ON = ("Identity", "PlaceholderWithDefault")
_LABELLED = (
    "GatherV2",
    "InTopKV2",
    "SoftmaxCrossEntropyWithLogits",
    "SparseSoftmaxCrossEntropyWithLogits",
)
"""Types that take one label, or as many, for each row of their first input."""

_KEEPS_ROWS = ("ExpandDims", "Identity", "OneHot", "Reshape", "Squeeze")
"""Types that have the rows of their first input, or as many times as many."""


def without_chunks(original: Net, net: Net) -> tuple[Net, Net]:
    """A Net of the same values, but for the order of sums, without loops over chunks.

    What both Nets know of a source's number of rows is written alike in both, however it is told.

    Returns:
      The original, and that Net.

    Raises:
      CheckError: a loop is marked as one over chunks, and is not shown to be one.
    """
    sources: dict[str, None] = {}
    for op in net.ops:
        if op.type in _LOOPS and CHUNKS in op.attributes:
            undone = _Undone(net, net.op_by_name[op.name])
            net = undone.net()
            sources[undone.source] = None
    for source in sources:
        if source in original.blobs:
            original, net = (_with_plain_sizes(one, source) for one in (original, net))
    return original, net


def _with_plain_sizes(net: Net, source: str) -> Net:
    """The Net with every size that follows from the source's rows told by one op of its own."""
    values = _known_from(net, known_net(net), source)
    ops = []
    for op in net.ops:
        found = [values.get(blob) for blob in op.outputs]
        if not found or not all(isinstance(one, Sizes) and _follows(one) for one in found):
            ops.append(op)
            continue
        for place, (blob, sizes) in enumerate(zip(op.outputs, found, strict=True)):
            dtype = net.blobs[blob].dtype
            ops.append(
                Op(
                    name=op.name if not place else f"{op.name}/{place}",
                    type="Shape",
                    inputs=(source,),
                    outputs=(blob,),
                    attributes={"of": repr(sizes.value), "as": dtype},
                    controls=op.controls,
                )
            )
    return net.replace(ops=tuple(ops))


def _follows(sizes: Sizes) -> bool:
    dims = sizes.value if isinstance(sizes.value, tuple) else (sizes.value,)
    return all(set(dim.symbols) <= {"n"} for dim in dims)


@dataclasses.dataclass(frozen=True)
class _Variable:
    start: str
    argument: str
    following: str
    final: str


class _Undone:
    """One loop over chunks that is undone."""

    def __init__(self, net: Net, loop: Op):
        self.outer = net
        self.loop = loop
        self.body = loop.nets["body"]
        self.variables = [
            _Variable(*names)
            for names in zip(
                loop.inputs, self.body.inputs, self.body.outputs, loop.outputs, strict=True
            )
        ]
        self.by_argument = {one.argument: one for one in self.variables}
        self.steady = {
            one.argument: one.start for one in self.variables if one.following == one.argument
        }
        self.known: KnownNet = known_net(net)

    def _demand(self, holds: object, sentence: str, op: str = "") -> None:
        if not holds:
            names = (op,) if op else ()
            raise refused("chunks-not-understood", sentence, self.body, names)

    def net(self) -> Net:
        """The Net with the loop's ops run once, on all rows."""
        for op in self.body.ops:
            self._demand(not op.nets and is_pure(op), f"{op.name!r} may not run twice", op.name)
        self._counts()
        self._results()
        self._judge_ops()
        return self._flat()

    # --- how often it runs, and on which rows

    def _counts(self) -> None:
        cond = self.loop.nets["cond"]
        less = cond.producer.get(cond.outputs[0])
        self._demand(
            less is not None and less.type == "Less" and set(less.inputs) <= set(cond.inputs),
            "the loop does not count up",
        )
        self.index, chunks = (self.variables[cond.inputs.index(blob)] for blob in less.inputs)
        step = self.body.producer.get(self.index.following)
        self._demand(
            step is not None
            and step.type == "AddV2"
            and step.inputs[0] == self.index.argument
            and self._number(self.body, step.inputs[1]) == 1
            and self._number(self.outer, self.index.start) == 0,
            "the loop does not count its iterations",
        )
        self._demand(chunks.argument in self.steady, "the number of chunks changes")
        most = self._made(self.outer, chunks.start, "Maximum")
        self._demand(self._number(self.outer, most.inputs[1]) == 1, "there may be no chunk")
        quotient = self._made(self.outer, most.inputs[0], "FloorDiv")
        self.length = self._number(self.outer, quotient.inputs[1])
        raised = self._made(self.outer, quotient.inputs[0], "AddV2")
        self.whole = raised.inputs[0]
        self._demand(
            isinstance(self.length, int)
            and self.length > 0
            and self._number(self.outer, raised.inputs[1]) == self.length - 1,
            "the chunks do not cover all rows",
        )
        first = self._made(self.outer, self.whole, "StridedSlice")
        shape = self._made(self.outer, first.inputs[0], "Shape")
        bounds = [self._number(self.outer, blob) for blob in first.inputs[1:]]
        masks = [first.attributes.get(f"{name}_mask") or 0 for name in _MASKS]
        self._demand(
            bounds == [(0,), (1,), (1,)] and masks == [0, 0, 0, 0, 1],
            "what is counted are no rows",
        )
        self.source = shape.inputs[0]
        dims = self.known.facts[self.source].shape
        self._demand(dims, "what is counted has no known rank")
        self.rows = dims[0]

    def _made(self, net: Net, blob: str, type: str) -> Op:
        op = net.producer.get(blob)
        self._demand(op is not None and op.type == type, f"{blob!r} is not made by {type}")
        return op

    def _number(self, net: Net, blob: str):
        op = net.producer.get(blob)
        held = op.attributes.get("value") if op is not None and op.type == "Const" else None
        value = held.value if isinstance(held, Constant) else None
        return None if isinstance(value, bool) else value

    def _starts_at(self, blob: str) -> int | None:
        """K where the blob is k times the first row of the chunk."""
        op = self.body.producer.get(blob)
        if op is None or op.type != "Mul":
            return None
        factor = self._number(self.body, op.inputs[1])
        if op.inputs[0] == self.index.argument:
            return 1 if factor == self.length else None
        below = self._starts_at(op.inputs[0])
        return factor * below if below is not None and isinstance(factor, int) else None

    def _is_count(self, op: Op) -> bool:
        """Whether the op tells how many rows the chunk has."""
        if op.type != "Minimum" or self._number(self.body, op.inputs[0]) != self.length:
            return False
        left = self.body.producer.get(op.inputs[1])
        return (
            left is not None
            and left.type == "Sub"
            and self.steady.get(left.inputs[0]) == self.whole
            and self._starts_at(left.inputs[1]) == 1
        )

    # --- what it hands outside

    def _results(self) -> None:
        """Blob of the body -> the outer blob that is all of it together."""
        self.joined: dict[str, str] = {}
        self.summed: dict[str, str] = {}
        self.sum_shapes: dict[str, object] = {}
        self.gone: set[str] = {self.loop.name}
        for one in self.variables:
            if one.argument in self.steady:
                self._demand(not self._is_read(one.final), "what is given is read behind the loop")
                continue
            if one is self.index:
                self._demand(not self._is_read(one.final), "the counter is read behind the loop")
                continue
            last = self.body.producer.get(one.following)
            self._demand(last is not None, "a variable becomes another")
            readers = self.body.readers.get(one.argument, ())
            self._demand(
                [op.name for op in readers] == [last.name]
                and last.inputs.count(one.argument) == 1
                and self.body.fan_out(one.following) == 1,
                "what is gathered is read in between",
                last.name,
            )
            if last.type == "TensorListPushBack":
                self._list(one, last)
            else:
                self._sum(one, last)

    def _is_read(self, blob: str) -> bool:
        return blob in self.outer.outputs or bool(self.outer.readers.get(blob))

    def _list(self, one: _Variable, push: Op) -> None:
        start = self.outer.producer.get(one.start)
        readers = self.outer.readers.get(one.final, ())
        self._demand(
            push.inputs[0] == one.argument
            and start is not None
            and start.type == "EmptyTensorList"
            and len(readers) == 1
            and readers[0].type == "TensorListConcatV2"
            and one.final not in self.outer.outputs
            and not self._is_read(readers[0].outputs[1]),
            "what is pushed is not joined again",
            push.name,
        )
        self.gone.add(readers[0].name)
        self.joined[readers[0].outputs[0]] = push.inputs[1]

    def _sum(self, one: _Variable, add: Op) -> None:
        start = self.outer.producer.get(one.start)
        self._demand(
            add.type == "AddV2"
            and add.inputs[0] == one.argument
            and start is not None
            and start.type == "Fill"
            and self._number(self.outer, start.inputs[1]) == 0.0,
            "what is added up does not begin as 0",
            add.name,
        )
        part, final = add.inputs[1], one.final
        kind = self.body.blobs[one.argument]
        cast = self.body.producer.get(part)
        if cast is not None and cast.type == "Cast":
            below = self.body.blobs[cast.inputs[0]].dtype
            if ACCUMULATED.get(below) == kind.dtype:
                readers = self.outer.readers.get(final, ())
                self._demand(
                    len(readers) == 1
                    and final not in self.outer.outputs
                    and readers[0].type == "Cast"
                    and self.outer.blobs[readers[0].outputs[0]].dtype == below,
                    "a sum is not brought back to its dtype",
                    add.name,
                )
                self.gone.add(readers[0].name)
                part, final = cast.inputs[0], readers[0].outputs[0]
        self.summed[final] = part
        self.sum_shapes[part] = self._number(self.outer, start.inputs[0])

    # --- that its ops work on rows one by one

    def _judge_ops(self) -> None:
        self.values: dict[str, Value] = {}
        self.stands_for: dict[str, str] = {}  # blob of the body -> outer blob
        self.outside = _known_from(self.outer, self.known, self.source, self.loop.name)
        for argument, start in self.steady.items():
            told = self.outside.get(start)
            self.values[argument] = (
                told if isinstance(told, Given) else Given(self.known.facts[start])
            )
            self.stands_for[argument] = start
        program = []
        for op in self._in_order():
            if self._is_count(op):
                self.values[op.outputs[0]] = Sizes(ROW)
                self.stands_for[op.outputs[0]] = self.whole
            elif op.type == "Slice" and (part := self._part(op)) is not None:
                self.values[op.outputs[0]] = part
                self.stands_for[op.outputs[0]] = self.stands_for[op.inputs[0]]
            elif all(blob in self.values for blob in op.inputs):
                found = apply(op, [self.values[blob] for blob in op.inputs])
                if found is not None:
                    self.values.update(zip(op.outputs, found, strict=True))
                    program.append(op)
        self._demand(
            segments_stay_in_rows(program, self.values), "rows are added up in others' places"
        )
        for blob in self.joined.values():
            value = self.values.get(blob)
            right = isinstance(value, Rows) and value.ramp is None
            self._demand(right, f"{blob!r} is not made row by row")
        for blob in self.summed.values():
            value = self.values.get(blob)
            self._demand(
                isinstance(value, Partial)
                and tuple(dim.number for dim in value.shape) == self.sum_shapes[blob],
                f"{blob!r} is no part of a sum",
            )

    def _in_order(self) -> list[Op]:
        made = set(self.body.inputs)
        pending, ordered = list(self.body.ops), []
        while pending:
            ready = [op for op in pending if made.issuperset(op.inputs)]
            self._demand(ready, "its ops run in a circle")
            ordered += ready
            made.update(blob for op in ready for blob in op.outputs)
            names = {op.name for op in ready}
            pending = [op for op in pending if op.name not in names]
        return ordered

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
            and all(self._number(self.body, blob) == 0 for blob in begin.inputs[1:])
            and all(self._number(self.body, blob) == -1 for blob in size.inputs[1:]),
            f"{op.name!r} leaves something out",
            op.name,
        )
        count = first.at(self.rows) if self.rows is not None else None
        if outer != self.source and not (count is not None and shape[0] == count):
            self._judge_rows(op, outer, shape, first)
        return rows_of(outer, shape, first)

    def _judge_rows(self, op: Op, outer: str, shape, first: Dim) -> None:
        """A blob whose size only a run can tell has as many rows as the source.

        A cut of fewer fails in the run. More are impossible where what it follows from, or every
        op that reads it, allows no other number.
        """
        value = self.outside.get(outer)
        if isinstance(value, Rows) and value.shape[0] == first:
            return
        self._demand(
            shape[0] is None and self._has_one_size(op.outputs[0]),
            f"{outer!r} may have another number of rows than {self.source!r}",
            op.name,
        )

    def _has_one_size(self, blob: str) -> bool:
        """Whether every op that reads the rows needs as many as the source has."""
        if blob in self.body.outputs:
            return False
        readers = self.body.readers.get(blob, ())
        return bool(readers) and all(self._fixes_size(reader, blob) for reader in readers)

    def _fixes_size(self, reader: Op, blob: str) -> bool:
        if reader.type in _LABELLED:
            return reader.inputs.index(blob) == 1
        given = [self._judged(one) for one in reader.inputs if one != blob]
        if reader.type == "Reshape" and isinstance(given[0], Sizes):
            return Dim(-1) not in given[0].value
        passes = reader.type in _KEEPS_ROWS or TABLE[reader.type].work is Work.POINTWISE
        alone = all(isinstance(one, Given) for one in given)
        return passes and alone and self._has_one_size(reader.outputs[0])

    def _judged(self, blob: str) -> Value | None:
        """What a blob of the body is, if that does not hang on rows that are being judged."""
        if blob in self.values:
            return self.values[blob]
        op = self.body.producer.get(blob)
        if op is None or op.type == "Slice":
            return None
        values = [self._judged(one) for one in op.inputs]
        found = None if None in values else apply(op, values)
        return None if found is None else found[op.outputs.index(blob)]

    # --- what stands for it

    def _flat(self) -> Net:
        roots = [*self.joined.values(), *self.summed.values()]
        needed: dict[str, Op] = {}
        pending = list(roots)
        while pending:
            blob = pending.pop()
            if blob in self.stands_for:
                continue
            op = self.body.producer.get(blob)
            known = op is not None and all(one in self.values for one in op.outputs)
            self._demand(known, f"{blob!r} is not made row by row", op.name if op else "")
            if op.name not in needed:
                needed[op.name] = op
                pending += [one for one in self._inputs(op) if one not in self._outer_names]
        stem = self.loop.name
        blobs = dict(self.outer.blobs)
        names = dict(self.stands_for)
        for op in needed.values():
            for blob in op.outputs:
                names[blob] = f"{stem}/{blob}"
                kind = self.body.blobs[blob]
                blobs[names[blob]] = Blob(names[blob], kind.dtype, None)
        ops = []
        for op in needed.values():
            inputs = tuple(
                blob if blob in self._outer_names else names[blob] for blob in self._inputs(op)
            )
            ops.append(
                op.replace(
                    name=f"{stem}/{op.name}",
                    inputs=tuple(one.removeprefix(_OUTER) for one in inputs),
                    outputs=tuple(names[blob] for blob in op.outputs),
                    controls=(),
                )
            )
        given = {outer: names[blob] for outer, blob in (self.joined | self.summed).items()}
        waits = [
            self.outer.producer[blob].name
            for blob in self.loop.inputs
            if blob in self.outer.producer
        ]
        rest = [
            op.replace(inputs=tuple(given.get(blob, blob) for blob in op.inputs))
            for op in self.outer.ops
            if op.name not in self.gone
        ]
        turn = Op(stem, "NoOp", controls=tuple(dict.fromkeys((*waits, *self.loop.controls))))
        return self.outer.replace(
            ops=(turn, *ops, *rest),
            outputs=tuple(given.get(blob, blob) for blob in self.outer.outputs),
            blobs=blobs,
        )

    @property
    def _outer_names(self) -> set[str]:
        return self.__dict__.setdefault("_outer_cache", set())

    def _inputs(self, op: Op) -> tuple[str, ...]:
        """The op's inputs; numbers of the whole where those of a part stand for them."""
        mark = op.attributes.get(WHOLE)
        if mark is None:
            return op.inputs
        found = re.fullmatch(r"(\d+):(.*)", mark.decode())
        self._demand(found, f"{op.name!r} is marked wrongly", op.name)
        slot, argument = int(found[1]), found[2]
        self._demand(
            slot < len(op.inputs)
            and argument in self.steady
            and self._is_whole(op, slot, argument),
            f"the sizes of {op.name!r} are not those of the whole",
            op.name,
        )
        outer = _OUTER + self.steady[argument]
        self._outer_names.add(outer)
        return (*op.inputs[:slot], outer, *op.inputs[slot + 1 :])

    def _is_whole(self, op: Op, slot: int, argument: str) -> bool:
        """Whether numbers given to the loop are those of a part, for all rows."""
        part, whole = self.values.get(op.inputs[slot]), whole_numbers(self.values[argument])
        if not isinstance(part, Sizes) or whole is None or self.rows is None:
            return False
        if isinstance(part.value, Dim):
            return isinstance(whole, Dim) and part.value.at(self.rows) == whole.number
        numbers = [dim.at(self.rows) for dim in part.value]
        if not isinstance(whole, tuple) or None in numbers or None in whole:
            return False
        if op.type == "Reshape":
            whole = resolved(product([Dim(one) for one in numbers]), whole)
        return whole is not None and [dim.number for dim in whole] == numbers


def _known_from(net: Net, known: KnownNet, source: str, but: str = "") -> dict[str, Value]:
    """Blob -> what is known of it, where that follows from the source's rows."""
    shape = known.facts[source].shape
    if not shape:
        return {}
    found: dict[str, Value] = {source: rows_of(source, shape, ROW)}
    for op in topological(net.ops):
        if not any(blob in found for blob in op.inputs) or op.name == but:
            continue
        values = [found.get(one) or Given(known.facts[one]) for one in op.inputs]
        if op.type in _LABELLED and isinstance(values[0], Rows):
            labels = known.facts[op.inputs[1]].shape
            if isinstance(values[1], Given) and labels:
                values[1] = rows_of(op.inputs[1], labels, values[0].shape[0])
        given = apply_outside(op, values)
        if given is None and shape[0] is not None:
            given = apply_outside(op, _with_as_many(op, values, shape[0]))
        if given is not None:
            found.update(zip(op.outputs, given, strict=True))
    return found


def _with_as_many(op: Op, values: list[Value], whole: int) -> list[Value]:
    """The values, with whole blobs of as many rows as another input has told as rows."""
    rows = [value for value in values if isinstance(value, Rows)]
    if not rows:
        return values
    first, rank = rows[0].shape[0], max(len(value.shape) for value in rows)
    found = []
    for name, value in zip(op.inputs, values, strict=True):
        shape = value.fact.shape if isinstance(value, Given) else None
        alike = shape is not None and len(shape) == rank and shape[0] == first.at(whole) != 1
        found.append(rows_of(name, shape, first) if alike else value)
    return found


_MASKS = ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
_OUTER = "outside "

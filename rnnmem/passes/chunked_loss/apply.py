"""Writes a region as loops over chunks of rows.

    i = 0;  sums = 0
    While i < chunks:
        rows = source[i * length : (i + 1) * length]       and of all that is cut like it
        losses, dh, dw = the region's ops, on these rows
        push losses, dh;  sums += dw;  i = i + 1
    losses, dh = all that was pushed, one after another

At least one chunk runs, with no rows where there are none, as the whole would. Sums of half
precision are added up in float32.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from rnnmem.analysis.row_rules import Dim, Rows, Sizes
from rnnmem.analysis.shapes import KnownNet, known_net
from rnnmem.errors import NetError
from rnnmem.grappler.barrier import SHOWN
from rnnmem.ir.builders import Encode, empty_list, integer, number, push
from rnnmem.ir.control_flow import add_input, counted_loop
from rnnmem.ir.editor import NetEditor
from rnnmem.ir.graph import ACCUMULATED, DType, Net, Op, ShapeValue
from rnnmem.ir.marks import CHUNKS, PART, WHOLE
from rnnmem.ir.order import without_dead_ops
from rnnmem.passes.chunked_loss.decision import ChunkedLoss
from rnnmem.passes.chunked_loss.region import NoRegion, Phase, Region, find


def apply_chunks(net: Net, losses: tuple[ChunkedLoss, ...], constant: Encode) -> Net:
    """The Net with each loss of the plan that is not closed run by chunks.

    Args:
      net: the Net that the plan was made for, inlined and without dead ops.
      losses: the decisions.
      constant: encodes a number as the exporter wants it: (value, dtype) -> Constant.

    Raises:
      NetError: the Net does not have what the plan names.
    """
    for loss in losses:
        if loss.closed:
            continue
        if loss.projection not in net.op_by_name or loss.source not in net.blobs:
            raise NetError(
                f"the plan is for another function: {net.name} has no projection "
                f"{loss.projection!r} of {loss.source!r}"
            )
        known = known_net(net)
        try:
            region = find(known, loss.projection, loss.source)
        except NoRegion as error:
            raise NetError(f"projection {loss.projection!r}: {error}") from error
        net = _Writer(known, net, region, loss.length, constant).net()
    return net


class _Writer:
    def __init__(self, known: KnownNet, net: Net, region: Region, length: int, constant: Encode):
        self.known = known
        self.editor = NetEditor(net)
        self.original = net
        self.stands: dict[str, str] = {}  # sizes -> what tells them beside the loops
        self.region = region
        self.length = length
        self.count = None if region.whole is None else max(1, -(-region.whole // length))
        self.constant = constant
        self.device = net.op_by_name[region.projection].device
        self.source_line = net.op_by_name[region.projection].source

    def net(self) -> Net:
        """The rewritten Net."""
        whole, chunks = self._counts()
        for blob, sizes in self.region.sizes.items():
            dtype = self.editor.blobs[blob].dtype
            found = written_sizes(self.editor, sizes, whole, dtype, self.constant)
            self.stands[blob] = found
        loop = ""
        for phase in self.region.phases:
            loop = _Loop(self, phase, whole, chunks).write()
        waiting = {
            op.name: tuple(
                dict.fromkeys(loop if name in self.region.ops else name for name in op.controls)
            )
            for op in self.editor.ops.values()
            if op.name not in self.region.ops and not self.region.ops.isdisjoint(op.controls)
        }
        for name, controls in waiting.items():
            self.editor.ops[name] = self.editor.ops[name].replace(controls=controls)
        for blob, found in self.stands.items():
            self.editor.rename(blob, found)
        return without_dead_ops(self.editor.net())

    def _counts(self) -> tuple[str, str]:
        """How many rows there are, and how many chunks: one at least."""
        editor, source = self.editor, self.region.source
        rank = len(self.known.facts[source].shape)
        kind = editor.blobs[source]
        shape = editor.add(
            "Shape",
            (source,),
            (("int32", (rank,)),),
            {"T": DType(kind.dtype), "out_type": DType("int32")},
            name="rnnmem/chunks/shape",
            device=self.device,
        ).outputs[0]
        zero, one = ([0], [1])
        whole = editor.add(
            "StridedSlice",
            (
                shape,
                number(editor, zero, self.constant),
                number(editor, one, self.constant),
                number(editor, one, self.constant),
            ),
            (("int32", ()),),
            {
                "T": DType("int32"),
                "Index": DType("int32"),
                "begin_mask": 0,
                "end_mask": 0,
                "ellipsis_mask": 0,
                "new_axis_mask": 0,
                "shrink_axis_mask": 1,
            },
            name="rnnmem/chunks/rows",
            device=self.device,
        ).outputs[0]
        length = number(editor, self.length, self.constant)
        most = integer(editor, "AddV2", whole, number(editor, self.length - 1, self.constant))
        count = integer(editor, "FloorDiv", most, length)
        return whole, integer(editor, "Maximum", count, number(editor, 1, self.constant))

    @functools.cached_property
    def there(self) -> str:
        """The op to wait for until the source is there."""
        kind = self.editor.blobs[self.region.source]
        return self.editor.add(
            SHOWN,
            (kind.name,),
            ((kind.dtype, kind.shape),),
            {"dtype": DType(kind.dtype), "shape": ShapeValue(None)},
            name="rnnmem/there",
            device=self.device,
        ).name


class _Loop:
    """One loop over chunks, while it is written."""

    def __init__(self, writer: _Writer, phase: Phase, whole: str, chunks: str):
        self.writer = writer
        self.editor = writer.editor
        self.region = writer.region
        self.phase = phase
        self.constant = writer.constant
        self.body = NetEditor(Net("rnnmem_chunk", (), (), (), {}))
        self.starts: list[str] = []
        self.argument: dict[str, str] = {}  # outer blob -> the body's
        self.parts: dict[tuple[str, Dim], str] = {}
        self.index = self._variable(number(self.editor, 0, self.constant))
        self.chunks = self._loop_invariant(chunks)
        self.whole = self._loop_invariant(whole)

    def write(self) -> str:
        """Writes the loop, and makes what it hands outside stand for the region's; its name."""
        lists = [self._variable(self._list(blob)) for blob in self.phase.rows]
        sums = [self._variable(self._zeros(blob)) for blob in self.phase.sums]
        self._cut()
        names = self._clone()
        following = {
            self.index: integer(
                self.body, "AddV2", self.index, number(self.body, 1, self.constant)
            ),
            **{
                held: push(self.body, held, names[blob], name="rnnmem/push")
                for held, blob in zip(lists, self.phase.rows, strict=True)
            },
            **{
                held: self._added(held, names[blob])
                for held, blob in zip(sums, self.phase.sums, strict=True)
            },
        }
        self.body.outputs = [following.get(blob, blob) for blob in self.body.inputs]
        loop = self._loop()
        finals = dict(zip(self.body.inputs, loop.outputs, strict=True))
        for held, blob in zip(lists, self.phase.rows, strict=True):
            self.editor.rename(blob, self._joined(finals[held], blob))
        for held, blob in zip(sums, self.phase.sums, strict=True):
            self.editor.rename(blob, self._narrowed(finals[held], blob))
        return loop.name

    def _variable(self, start: str) -> str:
        argument = add_input(self.body, self.editor.blobs[start])
        self.starts.append(start)
        return argument

    def _loop_invariant(self, blob: str) -> str:
        """The body's input for a blob that is the same in all chunks."""
        blob = self.editor.resolve(blob)
        if blob not in self.argument:
            self.argument[blob] = self._variable(blob)
        return self.argument[blob]

    def _list(self, blob: str) -> str:
        kind = self.editor.blobs[blob]
        return empty_list(
            self.editor, kind.dtype, self._element(blob), self.constant, name="rnnmem/rows"
        )

    def _element(self, blob: str) -> tuple[int | None, ...]:
        """The shape of a chunk's rows of a blob."""
        value = self.region.values[blob]
        assert isinstance(value, Rows)
        return (None, *(dim.number for dim in value.shape[1:]))

    def _zeros(self, blob: str) -> str:
        """Where a sum over the chunks begins; made once the source is there."""
        shape = tuple(dim.number for dim in self.region.values[blob].shape)
        dtype = self.editor.blobs[blob].dtype
        dtype = ACCUMULATED.get(dtype, dtype)
        zero = self.constant(0.0, dtype)
        value = self.editor.add(
            "Const", (), ((dtype, ()),), {"dtype": DType(dtype), "value": zero}, name="rnnmem/zero"
        ).outputs[0]
        return self.editor.add(
            "Fill",
            (number(self.editor, list(shape), self.constant), value),
            ((dtype, shape),),
            {"T": DType(dtype), "index_type": DType("int32")},
            name="rnnmem/zeros",
            controls=(self.writer.there,),
            device=self.writer.device,
        ).outputs[0]

    # --- inside

    def _cut(self) -> None:
        """The number of the first row, and of the rows."""
        body = self.body
        length = number(body, self.writer.length, self.constant)
        self.start = integer(body, "Mul", self.index, length)
        left = integer(body, "Sub", self.whole, self.start)
        self.count = integer(body, "Minimum", length, left)

    def _times(self, blob: str, factor: Dim) -> str:
        return times(self.body, blob, factor.factor, self.constant)

    def _part(self, blob: str, first: Dim) -> str:
        """The chunk's rows of an outer blob whose first size is ``first``."""
        blob = self.editor.resolve(blob)
        if (blob, first) not in self.parts:
            self.parts[blob, first] = self._slice(blob, first)
        return self.parts[blob, first]

    def _slice(self, blob: str, first: Dim) -> str:
        times = Dim(first.factor, tuple(s for s in first.symbols if s != "n"))
        kind = self.editor.blobs[blob]
        fact = self.writer.known.facts.get(blob)
        shape = kind.shape if fact is None else fact.shape
        begins = [self._times(self.start, times)]
        sizes = [self._times(self.count, times)]
        if len(shape) > 1:
            begins += [number(self.body, 0, self.constant)] * (len(shape) - 1)
            sizes += [number(self.body, -1, self.constant)] * (len(shape) - 1)
        given = self._loop_invariant(blob)
        return self.body.add(
            "Slice",
            (given, self._pack(begins), self._pack(sizes)),
            ((kind.dtype, (None, *shape[1:])),),
            {
                "T": DType(kind.dtype),
                "Index": DType("int32"),
                PART: self.writer.length * times.factor,
            },
            name="rnnmem/part",
            device=self.writer.device,
        ).outputs[0]

    def _pack(self, numbers: list[str]) -> str:
        return pack(self.body, numbers)

    def _clone(self) -> Mapping[str, str]:
        """The region's ops, on the chunk's rows; blob -> the body's."""
        names: dict[str, str] = {}
        for name in self.phase.ops:
            op = self.writer.original.op_by_name[name]
            inputs, marks = [], {}
            for slot, blob in enumerate(op.inputs):
                if (name, slot) in self.region.shaped:
                    kind = self.editor.blobs[blob]
                    inputs.append(self._sizes(self.region.shaped[name, slot], kind.dtype))
                    marks[WHOLE] = f"{slot}:{self._loop_invariant(blob)}".encode()
                elif blob in names and (name, slot) not in self.region.sliced:
                    inputs.append(names[blob])
                else:
                    inputs.append(self._read(name, slot, blob))
            added = self.body.add(
                op.type,
                inputs,
                [(self.editor.blobs[blob].dtype, self._chunk_shape(blob)) for blob in op.outputs],
                {k: v for k, v in op.attributes.items() if k != "_class"} | marks,
                name=name,
                device=op.device,
                source=op.source,
                stateful=op.stateful,
            )
            names.update(zip(op.outputs, added.outputs, strict=True))
        return names

    def _read(self, name: str, slot: int, blob: str) -> str:
        """What stands in the body for an outer blob."""
        if (name, slot) in self.region.sliced:
            return self._part(blob, self.region.sliced[name, slot])
        value = self.region.values.get(blob)
        if isinstance(value, Rows):
            return self._part(blob, value.shape[0])
        return self._loop_invariant(blob)

    def _chunk_shape(self, blob: str):
        """What is known of a blob's shape in every chunk."""
        value = self.region.values.get(blob)
        if isinstance(value, Rows):
            return (None, *(dim.number for dim in value.shape[1:]))
        return self.editor.blobs[blob].shape

    def _sizes(self, sizes: Sizes, dtype: str) -> str:
        """Numbers of the chunk that stand for those of the whole."""
        return written_sizes(self.body, sizes, self.count, dtype, self.constant)

    def _added(self, held: str, blob: str) -> str:
        """The sum with the chunk's part of it."""
        kind = self.body.blobs[held]
        part = self._cast(self.body, blob, kind.dtype)
        return self.body.add(
            "AddV2",
            (held, part),
            ((kind.dtype, kind.shape),),
            {"T": DType(kind.dtype)},
            name="rnnmem/sum",
            device=self.writer.device,
        ).outputs[0]

    def _cast(self, net: NetEditor, blob: str, dtype: str) -> str:
        kind = net.blobs[blob]
        if kind.dtype == dtype:
            return blob
        return net.add(
            "Cast",
            (blob,),
            ((dtype, kind.shape),),
            {"SrcT": DType(kind.dtype), "DstT": DType(dtype), "Truncate": False},
            name="rnnmem/cast",
            device=self.writer.device,
        ).outputs[0]

    # --- outside

    def _loop(self) -> Op:
        body = self.body
        return counted_loop(
            self.editor,
            self.starts,
            body,
            (body.inputs.index(self.index), body.inputs.index(self.chunks)),
            {CHUNKS: self.writer.length},
            name="rnnmem/chunks",
            controls=self.phase.controls,
            source=self.writer.source_line,
        )

    def _joined(self, held: str, blob: str) -> str:
        """All rows that were pushed, one chunk after another."""
        kind = self.editor.blobs[blob]
        shape = tuple(dim.at(self.region.whole) for dim in self.region.values[blob].shape)
        element = [-1 if size is None else size for size in self._element(blob)]
        none = self.constant([], "int64")
        leading = self.editor.add(
            "Const",
            (),
            (("int64", (0,)),),
            {"dtype": DType("int64"), "value": none},
            name="rnnmem/leading",
        ).outputs[0]
        return self.editor.add(
            "TensorListConcatV2",
            (held, number(self.editor, element, self.constant), leading),
            ((kind.dtype, shape), ("int64", (self.writer.count,))),
            {"element_dtype": DType(kind.dtype), "shape_type": DType("int32")},
            name="rnnmem/joined",
            device=self.writer.device,
        ).outputs[0]

    def _narrowed(self, held: str, blob: str) -> str:
        return self._cast(self.editor, held, self.editor.blobs[blob].dtype)


def times(net: NetEditor, blob: str, factor: int, constant: Encode) -> str:
    """A multiple of a whole number."""
    return blob if factor == 1 else integer(net, "Mul", blob, number(net, factor, constant))


def pack(net: NetEditor, numbers: list[str]) -> str:
    """Whole numbers as a vector."""
    return net.add(
        "Pack",
        numbers,
        (("int32", (len(numbers),)),),
        {"T": DType("int32"), "N": len(numbers), "axis": 0},
        name="rnnmem/pack",
    ).outputs[0]


def written_sizes(net: NetEditor, sizes: Sizes, rows: str, dtype: str, constant: Encode) -> str:
    """A blob that holds sizes, where so many rows are."""
    dims = sizes.value if isinstance(sizes.value, tuple) else (sizes.value,)
    parts = [
        times(net, rows, dim.factor, constant) if dim.rows else number(net, dim.factor, constant)
        for dim in dims
    ]
    found = pack(net, parts) if isinstance(sizes.value, tuple) else parts[0]
    if dtype == "int32":
        return found
    return net.add(
        "Cast",
        (found,),
        ((dtype, (len(dims),) if isinstance(sizes.value, tuple) else ()),),
        {"SrcT": DType("int32"), "DstT": DType(dtype), "Truncate": False},
        name="rnnmem/sizes",
    ).outputs[0]

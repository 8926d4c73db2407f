"""One loop over chunks of rows: its step net, and what it hands outside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rnnmem.analysis.machine import SMALL_CONSTANT
from rnnmem.analysis.row_rules import Dim, Partial, Rows, Sizes, Value
from rnnmem.ir.builders import empty_list, integer, number, push
from rnnmem.ir.control_flow import add_input, counted_loop
from rnnmem.ir.editor import NetEditor
from rnnmem.ir.graph import ACCUMULATED, DType, Net, Op, ShapeValue
from rnnmem.ir.marks import CHUNKS, PART, SOURCE, WHOLE
from rnnmem.ir.op_table import MAY_RERUN, OVERWRITES, slots
from rnnmem.ir.overwriting import awaited_by_write
from rnnmem.passes.chunked_loss.numbers import pack, times, written_sizes
from rnnmem.passes.chunked_loss.region import Phase

if TYPE_CHECKING:
    from rnnmem.passes.chunked_loss.apply import Writer

_SIZED = (*slots("sized"), "Range")
"""Types whose results are as large as a number says, which in a chunk only a run can tell."""


class ChunkLoop:
    """One loop over chunks, while it is written."""

    def __init__(
        self, writer: Writer, phase: Phase, whole: str, chunks: str, after: tuple[str, ...]
    ):
        self.writer = writer
        self.controls = (*phase.controls, *after)
        self.editor = writer.editor
        self.region = writer.region
        self.phase = phase
        self.constant = writer.constant
        self.body = NetEditor(Net("rnnmem_chunk", (), (), (), {}))
        self.starts: list[str] = []
        self.argument: dict[str, str] = {}  # outer blob -> the body's
        self.constants: dict[str, str] = {}  # outer blob -> what makes the same in the body
        self.parts: dict[tuple[str, Dim], str] = {}
        first = number(self.editor, 0, self.constant, controls=writer.after_logits)
        self.index = self._variable(first)
        self.chunks = self._loop_invariant(chunks)
        self.whole = self._loop_invariant(whole)
        if self._fixed:
            self._loop_invariant(self.region.source)  # whose rows the verifier counts

    def write(self) -> str:
        """Writes the loop, and makes what it hands outside stand for the region's; its name."""
        placed = self.phase.placed
        if placed:
            source = self.writer.source
            self.argument[source] = self._variable(source)
        lists = [self._variable(self._list(blob)) for blob in self.phase.rows]
        sums = [self._variable(self._zeros(blob)) for blob in self.phase.sums]
        self._cut()
        names = self._clone()
        following = {
            self.index: self._following_index(),
            **{
                held: push(self.body, held, names[blob], name="rnnmem/push")
                for held, blob in zip(lists, self.phase.rows, strict=True)
            },
            **{
                held: self._added(held, names[blob])
                for held, blob in zip(sums, self.phase.sums, strict=True)
            },
        }
        if placed:
            rows = self._shaped_as_source(names[placed], placed)
            following[self.argument[source]] = self._written(self.argument[source], rows)
        self.body.outputs = [following.get(blob, blob) for blob in self.body.inputs]
        loop = self._loop()
        finals = dict(zip(self.body.inputs, loop.outputs, strict=True))
        for held, blob in zip(lists, self.phase.rows, strict=True):
            self.editor.rename(blob, self._joined(finals[held], blob))
        for held, blob in zip(sums, self.phase.sums, strict=True):
            self.editor.rename(blob, self._narrowed(finals[held], blob))
        if placed:
            self.editor.rename(placed, self._taken(finals[self.argument[source]], placed))
        return loop.name

    def _following_index(self) -> str:
        """The number of the next chunk."""
        return integer(self.body, "AddV2", self.index, number(self.body, 1, self.constant))

    def _variable(self, start: str) -> str:
        argument = add_input(self.body, self.editor.blobs[start])
        self.starts.append(start)
        return argument

    def _loop_invariant(self, blob: str) -> str:
        """The body's input for a blob that is the same in all chunks."""
        blob = self._outer(blob)
        if blob not in self.argument:
            self.argument[blob] = self._variable(blob)
        return self.argument[blob]

    def _constant(self, blob: str) -> str | None:
        """The same made in the body, of constants alone: TensorFlow folds what it did outside."""
        if blob in self.constants:
            return self.constants[blob]
        known = self.writer.original
        op = known.producer.get(blob)
        if op is None or op.type not in MAY_RERUN or op.controls or len(op.outputs) != 1:
            return None
        if (known.blobs[blob].bytes or SMALL_CONSTANT) >= SMALL_CONSTANT:
            return None
        found = [self._constant(one) for one in op.inputs]
        inputs = [one for one in found if one is not None]
        if len(inputs) < len(found) or (not inputs and op.type != "Const"):
            return None
        kind = known.blobs[blob]
        added = self.body.add(
            op.type,
            inputs,
            ((kind.dtype, kind.shape),),
            {k: v for k, v in op.attributes.items() if k != "_class"},
            name=op.name,
            device=op.device,
            source=op.source,
        )
        self.constants[blob] = added.outputs[0]
        return added.outputs[0]

    def _outer(self, blob: str) -> str:
        """What is read in the loop's place for an outer blob."""
        same = blob == self.region.source
        return self.writer.source if same else self.editor.resolve(blob)

    def _list(self, blob: str) -> str:
        kind = self.editor.blobs[blob]
        element = self._element(blob)
        most = number(self.editor, self.writer.count, self.constant) if self._fixed else None
        return empty_list(
            self.editor, kind.dtype, element, self.constant, name="rnnmem/rows", most=most
        )

    @property
    def _fixed(self) -> int | None:
        """How many rows every chunk has, where that may not differ."""
        return self.writer.length if self.writer.compiled else None

    def _element(self, blob: str) -> tuple[int | None, ...]:
        """The shape of a chunk's rows of a blob."""
        first, *others = self._shape(blob)
        return (first.at(self._fixed), *(dim.number for dim in others))

    def _shape(self, blob: str) -> tuple[Dim, ...]:
        """The shape that the region has found for a blob of rows, or for a sum over them."""
        value = self.region.values[blob]
        assert isinstance(value, Rows | Partial)
        return value.shape

    def _zeros(self, blob: str) -> str:
        """Where a sum over the chunks begins; made once the source is there."""
        shape = tuple(dim.number for dim in self._shape(blob))
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
        if self._fixed:  # a constant, as the compiler wants sizes
            left = number(body, self.region.whole, self.constant)
        else:
            left = integer(body, "Sub", self.whole, self.start)
        self.count = integer(body, "Minimum", length, left)

    def _times(self, blob: str, factor: Dim) -> str:
        return times(self.body, blob, factor.factor, self.constant)

    def _part(self, blob: str, first: Dim) -> str:
        """The chunk's rows of an outer blob whose first size is ``first``."""
        blob = self._outer(blob)
        if (blob, first) not in self.parts:
            self.parts[blob, first] = self._slice(blob, first)
        return self.parts[blob, first]

    def _slice(self, blob: str, first: Dim) -> str:
        times = Dim(first.factor, tuple(s for s in first.symbols if s != "n"))
        kind = self.editor.blobs[blob]
        fact = self.writer.known.facts.get(blob)
        shape = (kind.shape if fact is None else fact.shape) or ()
        begins = [self._times(self.start, times)]
        sizes = [self._times(self.count, times)]
        if len(shape) > 1:
            begins += [number(self.body, 0, self.constant)] * (len(shape) - 1)
            rest = shape[1:] if self._fixed and None not in shape[1:] else [-1] * (len(shape) - 1)
            sizes += [number(self.body, size, self.constant) for size in rest]
        given = self._loop_invariant(blob)
        return self.body.add(
            "Slice",
            (given, self._pack(begins), self._pack(sizes)),
            ((kind.dtype, (first.at(self._fixed), *shape[1:])),),
            {
                "T": DType(kind.dtype),
                "Index": DType("int32"),
                PART: self.writer.length * times.factor,
            },
            name=self._part_name(blob),
            device=self.writer.device,
        ).outputs[0]

    def _part_name(self, blob: str) -> str:
        """What the op is called that cuts rows out of an outer blob."""
        return "rnnmem/part"

    def _pack(self, numbers: list[str]) -> str:
        return pack(self.body, numbers)

    def _clone(self) -> Mapping[str, str]:
        """The region's ops, on the chunk's rows; blob -> the body's."""
        names: dict[str, str] = {}
        for name in self.phase.ops:
            op = self.writer.original.op_by_name[name]
            inputs: list[str] = []
            marks: dict[str, Any] = {}
            for slot, blob in enumerate(op.inputs):
                if (name, slot) in self.region.shaped:
                    kind = self.editor.blobs[blob]
                    inputs.append(self._sizes(self.region.shaped[name, slot], kind.dtype))
                    marks[WHOLE] = f"{slot}:{self._loop_invariant(blob)}".encode()
                elif blob in names and (name, slot) not in self.region.sliced:
                    inputs.append(names[blob])
                else:
                    inputs.append(self._read(name, slot, blob))
            if op.type in _SIZED and isinstance(value := self._value(op), Rows):
                marks[PART] = self.writer.length * value.shape[0].factor
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

    def _value(self, op: Op) -> Value | None:
        """What the op's result is of the whole's."""
        return self.region.values.get(op.outputs[0])

    def _read(self, name: str, slot: int, blob: str) -> str:
        """What stands in the body for an outer blob."""
        if (name, slot) in self.region.sliced:
            return self._part(blob, self.region.sliced[name, slot])
        value = self.region.values.get(blob)
        if isinstance(value, Rows):
            return self._part(blob, value.shape[0])
        return self._constant(blob) or self._loop_invariant(blob)

    def _chunk_shape(self, blob: str):
        """What is known of a blob's shape in every chunk."""
        value = self.region.values.get(blob)
        if isinstance(value, Rows):
            first, *others = value.shape
            return (first.at(self._fixed), *(dim.number for dim in others))
        return self.editor.blobs[blob].shape

    def _sizes(self, sizes: Sizes, dtype: str) -> str:
        """Numbers of the chunk that stand for those of the whole."""
        return written_sizes(self.body, sizes, self.count, dtype, self.constant)

    def _shaped_as_source(self, blob: str, placed: str) -> str:
        """The rows that are written, in the shape of those that were cut."""
        wanted = self._shape(self.region.source)
        if self._shape(placed) == wanted:
            return blob
        sizes = [1 if dim.number is None else dim.number for dim in wanted[1:]]
        kind = self.body.blobs[blob]
        shape = number(self.body, [-1, *sizes], self.constant)
        return self.body.add(
            "Reshape",
            (blob, shape),
            ((kind.dtype, (None, *sizes)),),
            {"T": DType(kind.dtype), "Tshape": DType("int32")},
            name="rnnmem/shaped",
            device=self.writer.device,
        ).outputs[0]

    def _written(self, held: str, blob: str) -> str:
        """The buffer with the chunk's rows in their place, once nobody reads what was there."""
        body, kind = self.body, self.body.blobs[held]
        end = integer(body, "AddV2", self.start, self.count)
        rows = body.add(
            "Range",
            (self.start, end, number(body, 1, self.constant)),
            (("int32", (None,)),),
            {"Tidx": DType("int32"), PART: self.writer.length},
            name="rnnmem/rows",
        ).outputs[0]
        return body.add(
            OVERWRITES,
            (held, rows, blob),
            ((kind.dtype, kind.shape),),
            {"T": DType(kind.dtype)},
            name="rnnmem/place",
            controls=tuple(sorted(awaited_by_write(body.net(), held, blob))),
            device=self.writer.device,
        ).outputs[0]

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
        body, source = self.body, dict[str, Any](self.writer.marks)
        if self.writer.known_rows is not None:
            source[SOURCE] = self.starts.index(self.writer.source)
        return counted_loop(
            self.editor,
            self.starts,
            body,
            (body.inputs.index(self.index), body.inputs.index(self.chunks)),
            {CHUNKS: self.writer.length, **source},
            name="rnnmem/chunks",
            controls=self.controls,
            source=self.writer.source_line,
        )

    def _joined(self, held: str, blob: str) -> str:
        """All rows that were pushed, one chunk after another."""
        kind = self.editor.blobs[blob]
        shape = tuple(dim.at(self.region.whole) for dim in self._shape(blob))
        element = [-1 if size is None else size for size in self._element(blob)]
        none = self.constant([], "int64")
        leading = self.editor.add(
            "Const",
            (),
            (("int64", (0,)),),
            {"dtype": DType("int64"), "value": none},
            name="rnnmem/leading",
        ).outputs[0]
        joined = self.editor.add(
            "TensorListConcatV2",
            (held, number(self.editor, element, self.constant), leading),
            ((kind.dtype, shape), ("int64", (self.writer.count,))),
            {"element_dtype": DType(kind.dtype), "shape_type": DType("int32")},
            name="rnnmem/joined",
            device=self.writer.device,
        ).outputs[0]
        if None in shape or not self.writer.told:
            return joined
        return self.editor.add(  # TensorFlow knew the shape
            "EnsureShape",
            (joined,),
            ((kind.dtype, shape),),
            {"T": DType(kind.dtype), "shape": ShapeValue(shape)},
            name="rnnmem/sized",
            device=self.writer.device,
        ).outputs[0]

    def _taken(self, final: str, blob: str) -> str:
        """What was written in the source's place, in the shape in which it is read."""
        shape = tuple(dim.at(self.region.whole) for dim in self._shape(blob))
        if self._shape(blob) == self._shape(self.region.source):
            return self.writer.hidden(final, blob, columns=True)
        kind = self.editor.blobs[blob]
        hidden = self.writer.hidden(final, self.region.source, columns=True)
        known = [-1 if size is None else size for size in shape]
        return self.editor.add(
            "Reshape",
            (hidden, number(self.editor, known, self.constant)),
            ((kind.dtype, shape),),
            {"T": DType(kind.dtype), "Tshape": DType("int32")},
            name="rnnmem/shaped",
            device=self.writer.device,
        ).outputs[0]

    def _narrowed(self, held: str, blob: str) -> str:
        return self._cast(self.editor, held, self.editor.blobs[blob].dtype)

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

from rnnmem.analysis.flat_tokens import with_flat_tokens
from rnnmem.analysis.row_rules import Rows
from rnnmem.analysis.shapes import KnownNet, known_net
from rnnmem.errors import NetError
from rnnmem.grappler.barrier import SHOWN, hidden
from rnnmem.ir.builders import Encode, integer, number
from rnnmem.ir.editor import NetEditor
from rnnmem.ir.graph import Blob, DType, Net, ShapeValue
from rnnmem.ir.marks import FLAT, LEAD, OWNED
from rnnmem.ir.op_table import ASKS_SHAPE, types
from rnnmem.ir.order import without_dead_ops
from rnnmem.passes.chunked_loss.decision import ChunkedLoss
from rnnmem.passes.chunked_loss.early_sizes import asked_earlier
from rnnmem.passes.chunked_loss.loop import ChunkLoop
from rnnmem.passes.chunked_loss.numbers import written_sizes
from rnnmem.passes.chunked_loss.region import NoRegion, Region, find
from rnnmem.passes.chunked_loss.tokens import by_tokens

_ALIKE = types("alike")


def _counted(blob: Blob) -> bool:
    """Whether the trace tells how many rows a blob has."""
    return blob.shape is None or bool(blob.shape and blob.shape[0] is not None)


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
        net = with_flat_tokens(net, loss.flat, constant) if loss.flat else net
        net = asked_earlier(net, loss.projection) if loss.early else net
        try:
            if loss.lead:
                net, region = by_tokens(net, loss.projection, loss.lead, constant)
            else:
                found = known_net(net)
                region = find(found, loss.projection, loss.source, loss.exact, loss.compiled)
        except NoRegion as error:
            raise NetError(f"projection {loss.projection!r}: {error}") from error
        net = Writer(known_net(net), net, region, loss, constant).net()
    return net


class Writer:
    """The Net around the loops over chunks of one region, while these are written."""

    def __init__(
        self, known: KnownNet, net: Net, region: Region, loss: ChunkedLoss, constant: Encode
    ):
        self.known = known
        self.editor = NetEditor(net)
        self.original = net
        self.stands: dict[str, str] = {}  # sizes -> what tells them beside the loops
        self.region = region
        self.length, self.compiled = loss.length, loss.compiled
        self.marks: dict[str, bytes] = {}
        if loss.lead:
            self.marks[LEAD] = ",".join(map(str, loss.lead)).encode()
        if loss.flat:
            self.marks[FLAT] = loss.flat.encode()
        self.count = None if region.whole is None else max(1, -(-region.whole // loss.length))
        self.constant = constant
        self.device = net.op_by_name[region.projection].device
        self.source_line = net.op_by_name[region.projection].source

    def net(self) -> Net:
        """The rewritten Net."""
        self.source = self.region.source
        if self.region.owned:
            self.source = self.hidden(self.source, self.source, columns=False)
        whole, chunks = self._counts()
        for blob, sizes in self.region.sizes.items():
            dtype = self.editor.blobs[blob].dtype
            counted = whole if self.known_rows is None else self.known_rows
            found = written_sizes(self.editor, sizes, counted, dtype, self.constant)
            self.stands[blob] = found
        loop = ""
        for name in self.region.owned:
            op = self.editor.ops[name]
            attributes = {**op.attributes, OWNED: name.encode()}
            self.editor.ops[name] = op.replace(attributes=attributes)
        for phase in self.region.phases:
            loop = ChunkLoop(self, phase, whole, chunks, (loop,) if loop else ()).write()
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

    def hidden(self, blob: str, like: str, columns: bool) -> str:
        """The logits, or what is in their place, behind a barrier.

        So what makes and what reads them is fused as it was. Their size is not seen in the loop:
        TensorFlow would count each op that hands them on, and save memory at others' cost.

        Args:
          blob: what is handed on.
          like: the blob of the original that it is like.
          columns: whether more is seen than how many rows there are.
        """
        kind = Blob(like, self.editor.blobs[like].dtype, self.known.facts[like].shape)
        columns_seen = kind.shape[1:] if columns else (None,) * (len(kind.shape) - 1)
        return hidden(
            self.editor,
            blob,
            (kind.shape[0] if self.told else None, *columns_seen),
            name="rnnmem/logits",
            stands_for=like,
            optional=True,
            kind=kind,
        )

    @property
    def after_logits(self) -> tuple[str, ...]:
        """What a constant waits for where the logits' shape was asked for and is told no more.

        TensorFlow knew it of the labels, and made a constant of it that waits for the logits, by
        which nothing was fused with them.
        """
        source = self.region.source
        readers = self.original.readers.get(source, ())
        known = self.known.facts[source].shape != self.original.blobs[source].shape
        asked = known and any(op.type in ASKS_SHAPE for op in readers)
        return (self.original.producer[source].name,) if asked and self.region.owned else ()

    @property
    def known_rows(self) -> int | None:
        """How many rows there are, where nobody need ask."""
        known = self.compiled or (self.region.owned and self.told)
        return self.region.whole if known else None

    @functools.cached_property
    def told(self) -> bool:
        """Whether TensorFlow knows how many rows there are, too: of a constant it would fold more.

        Its trace says so, or an op for which a blob of so many rows must be like one of theirs.
        """
        blobs, rows = self.original.blobs, self.region.values
        if not self.region.owned or _counted(blobs[self.region.source]):
            return True
        return any(
            any(isinstance(rows.get(blob), Rows) for blob in op.inputs)
            and any(_counted(blobs[blob]) for blob in op.inputs)
            for op in self.original.ops
            if op.type in _ALIKE
        )

    def _counts(self) -> tuple[str, str]:
        """How many rows there are, and how many chunks: one at least."""
        if self.known_rows is not None:
            numbers = (self.known_rows, self.count)
            return tuple(number(self.editor, one, self.constant) for one in numbers)
        editor, source = self.editor, self.source
        rank = len(self.known.facts[self.region.source].shape)
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
        return self.shown(self.source)

    def shown(self, blob: str) -> str:
        """Adds an op to wait for until an outer blob is there."""
        kind = self.editor.blobs[blob]
        return self.editor.add(
            SHOWN,
            (kind.name,),
            ((kind.dtype, kind.shape),),
            {"dtype": DType(kind.dtype), "shape": ShapeValue(None)},
            name="rnnmem/there",
            device=self.device,
        ).name

"""Writes chains of elementwise ops as loops over chunks of rows.

    buffer = Empty([n, ...])
    While i < chunks:
        y = the chain's ops, on rows i * length ... of what they read
        rows i * length ... of the buffer = y;  i = i + 1

The bodies of such loops, and their chunks, are those of losses by chunks
(:mod:`rnnmem.passes.chunked_loss.loop`), with names in them by which sums and products are sorted
as before. What lost all readers but one, which might be fused with it, is read through a barrier.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping

from rnnmem.analysis.row_rules import ROW
from rnnmem.analysis.shapes import KnownNet, known_net
from rnnmem.errors import NetError
from rnnmem.grappler.barrier import hidden
from rnnmem.ir.builders import Encode, number
from rnnmem.ir.editor import NetEditor
from rnnmem.ir.graph import BYTES_PER_ELEMENT, DType, Net, Op
from rnnmem.ir.marks import OWNED
from rnnmem.ir.op_table import MEMORY, READ, may_fuse
from rnnmem.ir.order import without_dead_ops
from rnnmem.passes.chunked_loss.apply import Writer
from rnnmem.passes.chunked_loss.loop import ChunkLoop
from rnnmem.passes.chunked_loss.region import Phase, Region
from rnnmem.passes.elementwise_chunks.decision import ElementwiseChain
from rnnmem.passes.elementwise_chunks.select import cut_of, is_keepalive


def by_chunks(net: Net, chains: Iterable[ElementwiseChain], constant: Encode) -> Net:
    """The Net with the chains of a plan run by chunks.

    Args:
      net: the whole step.
      chains: the decisions, in the order of the Net.
      constant: encodes a number as the exporter wants it: (value, dtype) -> Constant.

    Raises:
      NetError: a chain is not one of this Net.
    """
    known, editor = known_net(net), NetEditor(net)
    chains = tuple(chains)
    for chain in chains:
        _Writer(known, editor, chain, constant).write()
    _let_go(editor, chains)
    return without_dead_ops(editor.net())


def _let_go(editor: NetEditor, chains: Iterable[ElementwiseChain]) -> None:
    """Takes out the keep-alive uses of what no longer exists whole."""
    net, roots = editor.original, {one.result for one in chains}
    made = dict.fromkeys(net.op_by_name[name].outputs[0] for one in chains for name in one.ops)
    for push in [op for blob in made if blob not in roots for op in net.readers.get(blob, ())]:
        if push.name in editor.ops and is_keepalive(net, push):
            (pop,) = net.readers[push.outputs[0]]
            editor.rename(pop.outputs[0], push.inputs[0])
            editor.remove(pop.name)
            editor.remove(push.name)


class _Writer(Writer):
    """What a loop over chunks of one chain stands in; all chunks have as many rows."""

    def __init__(
        self, known: KnownNet, editor: NetEditor, chain: ElementwiseChain, constant: Encode
    ):
        missing = [name for name in chain.ops if name not in known.net.op_by_name]
        cut = None if missing else cut_of(known, chain.ops)
        if cut is None or chain.result not in known.net.producer:
            raise NetError(f"the plan is for another function: no chain of {chain.result!r}")
        self.known, self.original, self.editor, self.chain = known, known.net, editor, chain
        self.cut, self.constant = cut, constant
        self.length, self.count = chain.length, chain.rows // chain.length
        self.marks, self.compiled = {}, True
        self.source = editor.resolve(chain.source)
        last = known.net.producer[chain.result]
        self.device, self.source_line = last.device, last.source
        self.region = Region(
            projection=last.name,
            source=chain.source,
            whole=chain.rows,
            values=cut.values,
            sliced=dict.fromkeys(cut.sliced, ROW),
            shaped={},
            phases=(),
            ops=frozenset(chain.ops),
            sizes={},
        )

    def write(self) -> None:
        """Adds the loop; what it makes stands for the chain's result."""
        rows = number(self.editor, self.chain.rows, self.constant)
        chunks = number(self.editor, self.count, self.constant)
        outside = dict.fromkeys(
            name for op in self.cut.ops for name in op.controls if name not in self.chain.ops
        )
        phase = Phase(self.chain.ops, (), (), tuple(outside))
        _Loop(self, phase, rows, chunks, ()).write()

    @functools.cached_property
    def told(self) -> bool:
        """TensorFlow knows how many rows there are."""
        return True

    @property
    def after_logits(self) -> tuple[str, ...]:
        """Nobody asks for shapes of what never exists whole."""
        return ()


class _Loop(ChunkLoop):
    """A loop over chunks that writes a chain's result into a buffer of its own."""

    writer: _Writer

    def write(self) -> str:
        """Writes the loop, and makes what it writes stand for the chain's result; its name."""
        result = self.writer.chain.result
        buffer = self._variable(self._buffer(result))
        self._cut()
        names = self._clone()
        following = {
            self.index: self._following_index(),
            buffer: self._written(buffer, names[result]),
        }
        self.body.outputs = [following.get(blob, blob) for blob in self.body.inputs]
        loop = self._loop()
        finals = dict(zip(self.body.inputs, loop.outputs, strict=True))
        kind = self.editor.blobs[result]
        shown = hidden(
            self.editor,
            finals[buffer],
            kind.shape,
            name=f"{self.writer.region.projection}/rnnmem/chunks",
            stands_for=result,
            optional=True,
            controls=(loop.name,),  # which has let go of what it cut
        )
        self.editor.rename(result, shown)
        return loop.name

    def _buffer(self, blob: str) -> str:
        """Memory for a result, taken once what is cut is there."""
        kind = self.editor.blobs[blob]
        waits = [self.writer.shown(self._outer(one)) for one in self._awaited()]
        name = self.editor.fresh("rnnmem/buffer")
        return self.editor.add(
            MEMORY,
            (number(self.editor, list(kind.shape or ()), self.constant),),
            ((kind.dtype, kind.shape),),
            {"dtype": DType(kind.dtype), "init": False, OWNED: name.encode()},
            name=name,
            controls=tuple(waits),
            device=self.writer.device,
            stateful=True,
        ).outputs[0]

    def _awaited(self) -> list[str]:
        """What the chain reads of others, but for constants and what is read of variables."""
        net, ops = self.writer.original, self.writer.cut.ops
        made = {blob for op in ops for blob in op.outputs}
        read = dict.fromkeys(blob for op in ops for blob in op.inputs if blob not in made)
        return [
            blob
            for blob in read
            if blob in net.producer
            and net.producer[blob].type not in ("Const", READ)
            and net.blobs[blob].dtype in BYTES_PER_ELEMENT
        ]

    def _part_name(self, blob: str) -> str:
        """What the op is called that cuts rows out of a blob: sorted as what makes it."""
        producer = self.writer.original.producer.get(blob)
        stem = blob.partition(":")[0] if producer is None else producer.name
        return f"{stem}/rnnmem/part"

    def _constant(self, blob: str) -> str | None:
        """The same made in the body; what waits for an op of the chain does so there."""
        op = self.writer.original.producer.get(blob)
        if op is None or op.type != "Const" or not op.controls or blob in self.constants:
            return super()._constant(blob)
        added = self.body.add(
            op.type,
            (),
            ((self.editor.blobs[blob].dtype, self.editor.blobs[blob].shape),),
            op.attributes,
            name=op.name,
            device=op.device,
            source=op.source,
        )
        self.constants[blob] = added.outputs[0]
        self.waiting[added.name] = op
        return added.outputs[0]

    def _clone(self) -> Mapping[str, str]:
        """The chain's ops, which wait for each other and see each other as they did."""
        self.waiting: dict[str, Op] = {}  # op of the body -> the outer one that it stands for
        names = super()._clone()
        producer = self.body.net().producer
        stand = {op.name: producer[names[op.outputs[0]]].name for op in self.writer.cut.ops}
        self.waiting.update((stand[op.name], op) for op in self.writer.cut.ops)
        for name, op in self.waiting.items():
            waits = tuple(stand[one] for one in op.controls if one in stand)
            self.body.ops[name] = self.body.ops[name].replace(controls=waits)
        for op in self.writer.cut.ops:
            self._keep_apart(op, names[op.outputs[0]])
        return names

    def _keep_apart(self, op: Op, blob: str) -> None:
        """Lets the only reader here of what had several read it through a barrier."""
        readers = [one for one in self.body.ops.values() if blob in one.inputs]
        alone = len(readers) == 1 and readers[0].inputs.count(blob) == 1
        if not alone or self.writer.original.fan_out(op.outputs[0]) < 2:
            return
        (reader,) = readers
        if may_fuse(op, reader):
            kind = self.body.blobs[blob]
            name = f"{op.name}/rnnmem/apart"
            shown = hidden(self.body, blob, kind.shape, name=name, stands_for=blob, optional=True)
            inputs = tuple(shown if one == blob else one for one in reader.inputs)
            self.body.ops[reader.name] = reader.replace(inputs=inputs)

"""Control edges around gradient loops: what may wait, waits, so that it is not held meanwhile.

The waiting ops are chosen so that none loses a fusion: TensorFlow's graph optimizer leaves ops with
control edges alone. What is waited for gets a completion proxy, which is waited for instead
(``rewrite``).

TensorFlow runs an op as soon as its inputs are there. The zeros that a gradient loop starts from
need nothing of the gradient, so they are made before the loss and held until the loop runs; and as
soon as one input of the loop is there, its first iteration begins while the loss still holds the
logits. Both are only an order: waiting changes no number.
"""

from __future__ import annotations

from collections.abc import Iterable

from rnnmem.analysis.liveness import Needed, needed
from rnnmem.analysis.loops import LoopPair
from rnnmem.analysis.trip_count import trip_count
from rnnmem.errors import NetError
from rnnmem.grappler.summation_order import sums_of
from rnnmem.ir.edges import Edge
from rnnmem.ir.editor import NetEditor
from rnnmem.ir.graph import BYTES_PER_ELEMENT, Net, Op
from rnnmem.ir.joint import is_joint
from rnnmem.ir.op_table import APART, CUT, FILLERS, MAY_RERUN, UNIFORM, VIEWS, types
from rnnmem.ir.order import all_needed_by, is_constant, reached, waiting_for
from rnnmem.passes.decision import Context, Offer, Site
from rnnmem.passes.schedule.apply import completion_proxy

TAKING = types("takes")
"""Op types that may write into their input's buffer, and that no graph optimizer ever fuses."""

READING = (APART & MAY_RERUN) - VIEWS - types("slices") - types("cross_entropy")
"""Op types that read without keeping, and that no graph optimizer fuses with what they read."""

LARGE = 2**18
"""Bytes from which a buffer is worth a control edge."""

StartEdges = dict[str, dict[str, None]]
"""Op name -> names of the ops that it is to wait for, in order."""


def offer(site: Site) -> Offer:
    """What loops that are rewritten bring along."""
    found: dict[tuple[tuple[str, ...], ...], tuple[Edge, ...]] = {}  # many plans open the same

    def decide(opened: Iterable[LoopPair], _: object) -> tuple[Edge, ...]:
        pairs = tuple(opened)
        paths = tuple(pair.path for pair in pairs)
        if paths not in found:
            found[paths] = waits_of(site.net, pairs)
        return found[paths]

    return Offer(decide)


def apply(net: Net, edges: Iterable[Edge], context: Context) -> Net:
    """Adds the edges, from a completion proxy of the op waited for where it might be rewritten."""
    editor = NetEditor(net)
    proxies: dict[str, str] = {}
    for edge in edges:
        if not {edge.op, edge.after} <= set(editor.ops):
            raise NetError(f"the plan is for another function: no op {edge.op!r} or {edge.after!r}")
        if edge.after not in proxies:
            source = editor.ops[edge.after]
            proxies[edge.after] = _proxy(editor, source) if context.keeps_alive else edge.after
        op = editor.ops[edge.op]
        editor.ops[edge.op] = op.replace(controls=(*op.controls, proxies[edge.after]))
    return editor.net()


def _proxy(editor: NetEditor, op: Op) -> str:
    """The op to wait for in place of ``op``: one that reads its result and is done once it is.

    TensorFlow's graph optimizer makes no sum of a tree of additions, and reorders no product, that
    somebody waits for. It rewrites no lists, which may be waited for themselves.
    """
    is_list = editor.blobs[op.outputs[0]].dtype not in BYTES_PER_ELEMENT
    return op.name if is_list else completion_proxy(editor, op)


def waits_of(net: Net, pairs: Iterable[LoopPair]) -> tuple[Edge, ...]:
    """The edges around the gradient loops of the pairs.

    Args:
      net: the Net around the loops.
      pairs: the loop pairs that are rewritten.
    """
    waits: StartEdges = {}
    live = needed(net)
    for pair in pairs:
        may_not_run = not trip_count(pair.forward)
        for gradient in pair.gradients:
            if may_not_run and _hands_on_an_addend(net, gradient.loop.op):
                continue
            sources = _needed_inputs(net, gradient.loop.op, live)
            _start_together(net, gradient.loop.op, sources, waits)
            _fill_late(net, gradient.loop.op, sources, waits)
            _read_before(net, gradient.loop.op, sources, waits)
    for op in net.ops:
        if op.type in TAKING and (net.blobs[op.inputs[0]].bytes or 0) >= LARGE:
            _write_in_place(net, op, waits)
    return tuple(Edge(op, None, other) for op, others in waits.items() for other in others)


def _hands_on_an_addend(net: Net, loop: Op) -> bool:
    """Whether a loop that runs no iteration hands what it was given to a sum of three or more.

    Such a sum begins with an addend that nobody else holds: who else does depends on when the loop
    began. What nobody reads, as the gradient of a first state, is in no sum behind the loop.
    """
    return any(net.fan_out(blob) for blob in sums_of(net).addends.intersection(loop.outputs))


def _needed_inputs(net: Net, loop: Op, live: Needed) -> list[Op]:
    """The ops that write what the loop needs; to wait for others would make them run."""
    variables = live.variables.get(loop.name, ())
    read = (blob for index, blob in enumerate(loop.inputs) if index in variables)
    return list({net.producer[b].name: net.producer[b] for b in read if b in net.producer}.values())


def _start_together(net: Net, loop: Op, sources: list[Op], waits: StartEdges) -> None:
    """No iteration of the loop begins before its inputs are there.

    Zeros are not waited for: where nobody reads what is added to them, they would be made and kept.
    """
    for source in sources:
        if source.type not in FILLERS and not is_constant(net, source):
            waits.setdefault(loop.name, {})[source.name] = None


def _fill_late(net: Net, loop: Op, sources: list[Op], waits: StartEdges) -> None:
    """What the loop starts from is made once its incoming gradient is there."""
    others = [op for op in sources if op.type not in FILLERS and not is_constant(net, op)]
    for filler in sources:
        if not _fills(net, filler):
            continue
        after = _descendants(net, filler, waits)
        for other in others:
            if other.name not in after:
                waits.setdefault(filler.name, {})[other.name] = None


def _fills(net: Net, op: Op) -> bool:
    """Whether the op makes much from little in the run, so that it may be made late.

    Equal numbers of constants a graph optimizer makes a constant, however large, and holds always:
    to wait would gain nothing, and two calls of the function in one graph would not share it.
    """
    return op.type in FILLERS and not (op.type in UNIFORM and is_constant(net, op))


def _read_before(net: Net, loop: Op, sources: list[Op], waits: StartEdges) -> None:
    """What the loop starts from is made once large buffers that it does not read are read.

    Those are what the incoming gradient is computed from; products and sums for the gradients of
    weights read them too, and need nothing else that is not there before the loop. What nobody may
    ask for is not waited for, since it would have to be made.
    """
    if is_joint(net):
        return
    before = all_needed_by(net, [loop.name])
    readers = [
        op.name
        for op in net.ops
        if op.name not in before
        and not (op.nets or op.stateful)
        and all(net.producer[b].name in before for b in op.inputs if b in net.producer)
        and _is_small(net, op)
    ]
    for op in sources if readers else ():
        if _fills(net, op) or op.type == CUT:
            after = _descendants(net, op, waits)
            early = (name for name in readers if name not in after)
            waits.setdefault(op.name, {}).update(dict.fromkeys(early))


def _is_small(net: Net, reader: Op) -> bool:
    """Whether an op reads a large buffer and writes a smaller one that no sum of values reads."""
    if len(reader.outputs) != 1 or reader.outputs[0] in sums_of(net).addends:
        return False
    written = net.blobs[reader.outputs[0]].bytes
    read = max((net.blobs[blob].bytes or 0 for blob in reader.inputs), default=0)
    return written is not None and written < read and read >= LARGE


def _write_in_place(net: Net, op: Op, waits: StartEdges) -> None:
    """The op runs after the other readers of its input, so that it may take the buffer over."""
    readers = [reader for reader in net.readers[op.inputs[0]] if reader.name != op.name]
    if op.inputs[0] in net.outputs or any(reader.type not in READING for reader in readers):
        return
    after = _descendants(net, op, waits)
    if not any(reader.name in after for reader in readers):
        waits.setdefault(op.name, {}).update(dict.fromkeys(reader.name for reader in readers))


def _descendants(net: Net, op: Op, waits: StartEdges) -> set[str]:
    """Names of the ops that surely run after ``op``, by data, by control, or by ``start_edges``."""
    waited_by: dict[str, list[str]] = {}
    for waiting, others in waits.items():
        for other in others:
            waited_by.setdefault(other, []).append(waiting)
    return set(reached([op.name], lambda name: (*waiting_for(net, name), *waited_by.get(name, ()))))

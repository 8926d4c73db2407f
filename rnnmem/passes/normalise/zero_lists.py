"""Zeros of second gradients are made one by one, not carried in lists.

TensorFlow takes the accumulators that a first gradient gave a loop for results of the loop. When
the loop is differentiated again it makes a list of zeros of each, and pops and adds them:

    acc ─► ZerosLike = zeros                               all iterations of it at once
    gradient step net   zeros ─► PopBack ─► zeros, zero ─► AddN(…, zero)
                        acc   ─► PopBack ─► acc, blob

What is popped is a zero of the shape of what the same iteration pops from the accumulator itself.
So it is made of that, in its iteration, and the list goes. The zero is still added, which takes the
sign off a negative zero; it stands behind an output barrier, or TensorFlow's graph optimizer would
see it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rnnmem.analysis.loops import GradientLoop, Loop, loop_pairs
from rnnmem.analysis.training_regions import nested_steps, step_net, with_step_net
from rnnmem.grappler.barrier import hidden
from rnnmem.ir.builders import pop_ahead
from rnnmem.ir.editor import LoopEditor, NetEditor
from rnnmem.ir.graph import DType, Net, Op
from rnnmem.ir.op_table import POP
from rnnmem.ir.order import through_identities, without_dead_ops

ZEROS = "ZerosLike"


def without_zero_lists(net: Net, *, keeps_alive: bool = True) -> Net:
    """The Net without lists of zeros in its gradient loops, at any depth; itself if there are none.

    Args:
      net: the whole step, inlined.
      keeps_alive: whether a graph optimizer that fuses by neighbourhood runs afterwards.
    """
    for place in reversed(nested_steps(net)):
        inner = step_net(net, place.path)
        if (changed := _without(inner, keeps_alive)) is not inner:
            net = with_step_net(net, place.path, changed)
    return _without(net, keeps_alive)


def _without(net: Net, keeps_alive: bool) -> Net:
    """The same of the loop pairs of one Net, and those inside them."""
    edited = _edited(net, net, {}, keeps_alive)
    return net if edited is net else without_dead_ops(edited)


def _edited(forward: Net, gradient: Net, stands_for: Mapping[str, str], keeps_alive: bool) -> Net:
    """The Net with the gradient loops, edited; the arguments are those of `loop_pairs`."""
    editor = NetEditor(gradient)
    changed = False
    for pair in loop_pairs(forward, gradient, stands_for):
        for one in () if pair.closed else pair.gradients:
            outer = _Outside(forward, gradient, stands_for)
            loop = LoopEditor(editor, editor.ops[one.loop.op.name])
            found = _take_out(pair.forward, one, loop, outer.stands_for, keeps_alive)
            if found:
                loop.finish()
            now = editor.ops[one.loop.op.name]
            known = {link.popped: link.pushed for link in one.links}
            inner = _edited(pair.forward.body, now.nets["body"], known, keeps_alive)
            if inner is not now.nets["body"]:
                editor.ops[now.name] = now.replace(nets={**now.nets, "body": inner})
            changed |= found or inner is not now.nets["body"]
    return editor.net() if changed else gradient


class _Outside:
    """What stands for what between the Nets around a pair."""

    def __init__(self, forward: Net, gradient: Net, known: Mapping[str, str]):
        self.forward, self.gradient, self.known = forward, gradient, known

    def stands_for(self, blob: str) -> str:
        """The forward blob whose value a blob of the gradient's Net holds; empty where unknown."""
        blob = through_identities(self.gradient, blob)
        blob = self.known.get(blob, blob if self.forward is self.gradient else "")
        return through_identities(self.forward, blob) if blob else ""


def _take_out(
    forward: Loop,
    gradient: GradientLoop,
    editor: LoopEditor,
    stands_for: Callable[[str], str],
    keeps_alive: bool,
) -> bool:
    """Takes the lists of zeros out of one gradient loop; whether there were any."""
    links = {forward.op.outputs[link.accumulator]: link for link in gradient.links}
    found = False
    for place, argument in enumerate(gradient.loop.body.inputs):
        start = through_identities(gradient.loop.net, gradient.loop.op.inputs[place])
        source = gradient.loop.net.producer.get(start)
        pop = _popped(gradient.loop, place)
        if source is None or source.type != ZEROS or pop is None:
            continue
        link = links.get(stands_for(source.inputs[0]))
        if link is None:
            continue
        popping = gradient.loop.pops[link.popped_by]
        pop_ahead(editor, popping.inputs[0], popping)
        _replace(editor, argument, pop, link.popped, keeps_alive)
        found = True
    return found


def _popped(loop: Loop, place: int) -> Op | None:
    """The pop of a variable that does nothing but hand back a list's elements."""
    body, cond = loop.body, loop.cond
    blob, passed = body.inputs[place], body.outputs[place]
    while (op := body.producer.get(passed)) is not None and op.type == "Identity":
        if body.fan_out(passed) != 1:
            return None
        passed = op.inputs[0]
    if op is None or op.type != POP or passed != op.outputs[0] or body.fan_out(passed) != 1:
        return None
    popped = op.inputs[0]
    while (source := body.producer.get(popped)) is not None and source.type == "Identity":
        if body.fan_out(popped) != 1:
            return None
        popped = source.inputs[0]
    dead = not cond.fan_out(cond.inputs[place]) and not loop.net.fan_out(loop.op.outputs[place])
    return op if popped == blob and body.fan_out(blob) == 1 and dead else None


def _replace(editor: LoopEditor, argument: str, pop: Op, popped: str, keeps_alive: bool) -> None:
    """Makes the zero of what the iteration popped, and takes the variable out."""
    body = editor.body
    zero = pop.outputs[1]
    passed = body.outputs[body.inputs.index(argument)]
    chain = [passed, pop.inputs[0]]
    body.remove(pop.name)
    for blob in chain:  # what handed the list on, before the pop and behind it
        while blob in body.blobs and (op := _writer(body, blob)) is not None:
            body.remove(op.name)
            blob = op.inputs[0]
    editor.remove_variable(argument)
    if not body.original.fan_out(zero):
        return
    kind = body.blobs[zero]
    made = body.add(
        ZEROS,
        (popped,),
        ((kind.dtype, kind.shape),),
        {"T": DType(kind.dtype)},
        name="rnnmem/zeros" if kind.dtype != "variant" else pop.name,
        device=pop.device,
        source=pop.source,
    )
    # Sums sort their addends by the names of the ops, and take in other sums where shapes are
    # known: the zero keeps the pop's name, and like a pop's its shape is not seen.
    shown = hidden(
        body,
        made.outputs[0],
        None,
        name=pop.name,
        stands_for=pop.name,
        optional=keeps_alive,
    )
    body.rename(zero, shown)


def _writer(body: NetEditor, blob: str) -> Op | None:
    """The Identity that hands a list on, where it has not been taken out yet."""
    op = body.original.producer.get(blob)
    return op if op is not None and op.type == "Identity" and op.name in body.ops else None

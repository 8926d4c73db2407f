"""Dead code of gradient loops is taken out, as TensorFlow does behind us.

TensorFlow pushes both factors of a product, for the gradients of both; where one is a constant the
other's list is popped for nobody. And gradient loops compute gradients that are not asked for. Once
the loops are inlined the graph optimizer prunes such variables, unless somebody waits for the loop:
all results of a loop that is waited for stay. So ops may have fewer readers than their step net
shows, and be fused. With a list goes what pushes it, unless somebody waits for the forward loop.

What stayed would come to life: a rewrite gives every blob that is no longer pushed a reader that
must run. So it goes at any depth, of gradient loops inside gradient loops and of those of a
training loop's body, too:

    gradient step net   inner gradient loop ─► gradient of x ─► sum that nobody reads
    pop ─► list of lists ──────┘                                                       all of it
"""

from __future__ import annotations

import collections
from collections.abc import Collection, Iterable, Iterator, Mapping

from rnnmem.analysis.liveness import Needed, Opened, needed_where
from rnnmem.analysis.loops import GradientLoop, LoopPair, inner_pairs, own_loop_pairs
from rnnmem.analysis.training_regions import nested_steps, step_net, with_step_net
from rnnmem.ir.builders import pop_freely, remove_pop
from rnnmem.ir.editor import LoopEditor, NetEditor
from rnnmem.ir.graph import Net, Op
from rnnmem.ir.order import all_needed_by, without_pruned_ops


def without_dead_gradients(net: Net) -> Net:
    """The Net without what nobody reads of the variables and lists of its gradient loops.

    Args:
      net: the whole step, inlined and without dead ops.

    Returns:
      The same Net if there are none.
    """
    for place in reversed(nested_steps(net)):
        inner = step_net(net, place.path)
        if (changed := _without(inner)) is not inner:
            net = with_step_net(net, place.path, changed, marked=False)
    return _without(net)


def _without(net: Net) -> Net:
    """The same of one Net's own gradient loops, and of those inside them."""
    pairs = own_loop_pairs(net)
    if (changed := _without_variables(net, pairs)) is not net:
        net, pairs = changed, own_loop_pairs(changed)
    awaited, editor = _awaited(net), NetEditor(net)
    for pair in pairs:
        names = {pair.forward.op.name, *(one.loop.op.name for one in pair.gradients)}
        if not pair.closed and awaited.isdisjoint(names):
            _take_lists_out(editor, pair, _dead(pair))
    return _edited(net, editor)


def _edited(net: Net, editor: NetEditor) -> Net:
    same = len(editor.ops) == len(net.ops) and all(editor.ops[op.name] is op for op in net.ops)
    return net if same else without_pruned_ops(editor.net())


def _without_variables(net: Net, pairs: Collection[LoopPair]) -> Net:
    """The Net without the variables of gradient loops that no result and no effect needs."""
    opened = _opened(net, pairs)
    if not opened:
        return net
    pops = {one.loop.op.name: one.loop.pops for pair in pairs for one in pair.gradients}
    live = needed_where(net, range(len(net.outputs)), opened, lambda op: pops[op.name])
    editor = NetEditor(net)
    if not _take_variables_out(editor, net, live, pops):
        return net
    for name in net.op_by_name.keys() - {op.name for op in live.ops}:
        editor.remove(name)
    return _edited(net, editor)


def _opened(net: Net, pairs: Iterable[LoopPair]) -> Opened:
    """The gradient loops of a Net for which nobody waits, and those inside them."""
    awaited = _awaited(net)
    return {
        one.loop.op.name: _opened(one.loop.body, inner_pairs(pair, one))
        for pair in pairs
        for one in (() if pair.closed else pair.gradients)
        if one.loop.op.name not in awaited
    }


def _take_variables_out(
    editor: NetEditor, net: Net, live: Needed, kept: Mapping[str, Mapping[int, Op]]
) -> bool:
    """Takes variables that are not needed out of the loops of a Net, and their ops.

    Args:
      editor: of the Net.
      net: the Net.
      live: what is needed of it.
      kept: of each loop, the pops that stay nevertheless, until the forward loop loses them too.

    Returns:
      Whether there were any.
    """
    changed = False
    for name, wanted in live.variables.items():
        inside = live.bodies[name]
        op = net.op_by_name[name]
        body, pops = op.nets["body"], kept.get(name, {})
        dead = [place for place in range(len(body.inputs)) if place not in wanted | pops.keys()]
        edited = LoopEditor(editor, op)
        if not _take_variables_out(edited.body, body, inside, {}) and not dead:
            continue
        for place in sorted(pops.keys() - wanted):
            pop_freely(edited.body, pops[place])
        popping = all_needed_by(edited.body.net(), [op.name for op in pops.values()])
        for name in body.op_by_name.keys() - popping - {op.name for op in inside.ops}:
            edited.body.remove(name)
        for place in dead:
            edited.remove_variable(body.inputs[place])
        edited.finish()
        changed = True
    return changed


def _dead(pair: LoopPair) -> list[int]:
    """The accumulators, by place, that all gradient loops pop and none reads."""
    net, outputs = pair.forward.net, pair.forward.op.outputs
    awaited = _awaited(pair.forward.body)
    popped = collections.Counter(
        place for gradient in pair.gradients for place in _popped_for_nobody(pair, gradient)
    )
    return [
        place
        for place, push in pair.forward.pushes.items()
        if 0 < popped[place] == net.fan_out(outputs[place]) and push.name not in awaited
    ]


def _popped_for_nobody(pair: LoopPair, gradient: GradientLoop) -> Iterator[int]:
    """The accumulators, by place, that a gradient loop pops as they come, to no end."""
    loop, awaited = gradient.loop, _awaited(gradient.loop.body)
    for link in gradient.links:
        given = pair.forward.op.outputs[link.accumulator] == loop.op.inputs[link.popped_by]
        needed = loop.body.fan_out(link.popped) or loop.pops[link.popped_by].name in awaited
        if given and not needed:
            yield link.accumulator


def _awaited(net: Net) -> set[str]:
    """Names of the ops that somebody waits for."""
    return {*net.control_outputs, *(name for op in net.ops for name in op.controls)}


def _take_lists_out(editor: NetEditor, pair: LoopPair, indices: list[int]) -> None:
    """Takes the accumulators out of both loops, with what pushes and what pops."""
    if not indices:
        return
    for gradient in pair.gradients:
        loop = LoopEditor(editor, editor.ops[gradient.loop.op.name])
        for link in gradient.links:
            if link.accumulator in indices:
                popping = gradient.loop.pops[link.popped_by]
                remove_pop(loop.body, popping)
                loop.remove_variable(popping.inputs[0])
        loop.finish()
    loop = LoopEditor(editor, editor.ops[pair.forward.op.name])
    for place in indices:
        pushing = pair.forward.pushes[place]
        loop.body.remove(pushing.name)
        loop.remove_variable(pushing.inputs[0])
    loop.finish()

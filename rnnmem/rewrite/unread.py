"""Takes out of gradient loops what nobody reads, as TensorFlow does behind us.

TensorFlow pushes both factors of a product, for the gradients of both; where one is a constant the
other's list is popped for nobody. And gradient loops compute gradients that are not asked for. Once
the loops are inlined the graph optimizer prunes such variables, unless somebody waits for the loop:
all results of a loop that is waited for stay. So ops may have fewer readers than their step net
shows, and be fused. With a list goes what pushes it, unless somebody waits for the forward loop.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator

from rnnmem.net.loops import GradientLoop, Loop, LoopPair, loop_pairs
from rnnmem.net.nouns import Net
from rnnmem.net.optypes import is_pure
from rnnmem.net.order import all_needed_by, without_dead_ops
from rnnmem.rewrite.editor import LoopEditor, NetEditor
from rnnmem.rewrite.lists import pop_freely, remove_pop


def without_unread(net: Net) -> Net:
    """The Net without what nobody reads of the variables and lists of its gradient loops.

    Args:
      net: the whole step, inlined and without dead ops. Loops inside loops are left as they are.

    Returns:
      The same Net if there are none.
    """
    awaited = _awaited(net)
    pairs = loop_pairs(net, net, {})
    editor = NetEditor(net)
    for pair in pairs:
        for gradient in () if pair.closed else pair.gradients:
            if gradient.loop.op.name not in awaited:
                _take_variables_out(editor, gradient.loop)
    edited = _edited(net, editor)
    if edited is not net:
        net, editor = edited, NetEditor(edited)
        pairs = loop_pairs(net, net, {})
    for pair in pairs:
        names = {pair.forward.op.name, *(one.loop.op.name for one in pair.gradients)}
        if not pair.closed and awaited.isdisjoint(names):
            _take_lists_out(editor, pair, _unread(pair))
    return _edited(net, editor)


def _edited(net: Net, editor: NetEditor) -> Net:
    same = all(editor.ops[op.name] is op for op in net.ops)
    return net if same else without_dead_ops(editor.net())


def _take_variables_out(editor: NetEditor, loop: Loop) -> None:
    """Takes variables out that no result needs, but no list that is popped, and their ops."""
    body = loop.body
    live = _live(loop)
    dead = [place for place in range(len(body.inputs)) if place not in live | loop.pops.keys()]
    if not dead:
        return
    edited = LoopEditor(editor, loop.op)
    for place in sorted(loop.pops.keys() - live):
        pop_freely(edited.body, loop.pops[place])
    pops = [op.name for op in loop.pops.values()]
    needed = _needed(body, live) | all_needed_by(edited.body.net(), pops)
    for op in body.ops:
        if op.name not in needed:
            edited.body.remove(op.name)
    for place in dead:
        edited.remove_variable(body.inputs[place])
    edited.finish()


def _live(loop: Loop) -> set[int]:
    """The variables, by place, that a result or an effect needs."""
    body, cond = loop.body, loop.cond
    place_of = {blob: place for place, blob in enumerate(body.inputs)}
    more = {
        place
        for place, blob in enumerate(loop.op.outputs)
        if loop.net.fan_out(blob) or cond.fan_out(cond.inputs[place])
    }
    live: set[int] = set()
    while more - live:
        live |= more
        read = {body.outputs[place] for place in live}
        for name in _needed(body, live):
            read.update(body.op_by_name[name].inputs)
        more = {place_of[blob] for blob in read if blob in place_of}
    return live


def _needed(body: Net, live: set[int]) -> set[str]:
    """Names of the ops that these variables' next values, and effects, need."""
    makers = (body.producer.get(body.outputs[place]) for place in live)
    effects = (op for op in body.ops if not is_pure(op))
    names = (op.name for op in (*makers, *effects) if op is not None)
    return all_needed_by(body, [*body.control_outputs, *names])


def _unread(pair: LoopPair) -> list[int]:
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


def _take_lists_out(editor: NetEditor, pair: LoopPair, places: list[int]) -> None:
    """Takes the accumulators out of both loops, with what pushes and what pops."""
    if not places:
        return
    for gradient in pair.gradients:
        loop = LoopEditor(editor, editor.ops[gradient.loop.op.name])
        for link in gradient.links:
            if link.accumulator in places:
                popping = gradient.loop.pops[link.popped_by]
                remove_pop(loop.body, popping)
                loop.remove_variable(popping.inputs[0])
        loop.finish()
    loop = LoopEditor(editor, editor.ops[pair.forward.op.name])
    for place in places:
        pushing = pair.forward.pushes[place]
        loop.body.remove(pushing.name)
        loop.remove_variable(pushing.inputs[0])
    loop.finish()

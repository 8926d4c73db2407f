"""Takes out of gradient loops what nobody reads, as TensorFlow does behind us.

TensorFlow pushes both factors of a product, for the gradients of both; where one is a constant the
other's list is popped for nobody. And gradient loops compute gradients that are not asked for. Once
the loops are inlined the graph optimizer prunes such variables, unless somebody waits for the loop:
all results of a loop that is waited for stay. So ops may have fewer readers than their step net
shows, and be fused. With a list goes what pushes it, unless somebody waits for the forward loop.
"""

from __future__ import annotations

from rnnmem.net.loops import Loop, LoopPair, loop_pairs
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
    awaited = {*net.control_outputs, *(name for op in net.ops for name in op.controls)}
    editor = NetEditor(net)
    for pair in loop_pairs(net, net, {}):
        for gradient in () if pair.closed else pair.gradients:
            if gradient.loop.op.name not in awaited:
                _take_variables_out(editor, gradient.loop)
    net = _edited(net, editor)
    editor = NetEditor(net)
    for pair in loop_pairs(net, net, {}):
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
    net, forward = pair.forward.net, pair.forward.op
    found = []
    for place in pair.forward.pushes:
        links = [
            (gradient.loop, link)
            for gradient in pair.gradients
            for link in gradient.links
            if link.accumulator == place
        ]
        popped_alone = net.fan_out(forward.outputs[place]) == len(links) and all(
            loop.op.inputs[link.popped_by] == forward.outputs[place]
            and not loop.body.fan_out(link.popped)
            and not _is_awaited(loop.body, loop.pops[link.popped_by].name)
            for loop, link in links
        )
        if links and popped_alone and not _is_awaited(pair.forward.body, _pusher(pair, place)):
            found.append(place)
    return found


def _pusher(pair: LoopPair, place: int) -> str:
    return pair.forward.pushes[place].name


def _is_awaited(net: Net, name: str) -> bool:
    return name in net.control_outputs or any(name in op.controls for op in net.ops)


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

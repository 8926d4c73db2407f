"""The checker on segments under a schedule: what goes on to a segment is proven too."""

import functools

import pytest
import tensorflow as tf

import rnnmem
from rnnmem.check import check
from rnnmem.errors import CheckError
from tests.forced_segments import forced_segments

pytestmark = pytest.mark.slow


@functools.cache
def nets():
    """A train step as it was, and with a schedule over its segments."""
    weight = tf.Variable([[0.6, -0.8], [0.8, 0.6]])

    def step(x):
        with tf.GradientTape() as tape:
            start = (0, tf.zeros([3, 2]), tf.zeros([3, 2]))
            _, h, c = tf.while_loop(
                lambda i, *_: i < 12,
                lambda i, h, c: (i + 1, tf.tanh(x[i] + h @ weight), tf.sin(c + h)),
                start,
            )
            loss = tf.reduce_sum(h * c)
        return tape.gradient(loss, weight)

    with forced_segments(scheduled=True):
        made = rnnmem.optimize(step, max_slowdown=float("inf")).inspect(tf.zeros([12, 3, 2]))
    assert made.plan.loops[0].segments.slots
    return made.net, made.rewritten


def edited(net, edit, path=()):
    """The Net with ``edit(path, op)`` in place of every op, however deep."""
    ops = []
    for op in net.ops:
        inner = {key: edited(one, edit, (*path, op.name)) for key, one in op.nets.items()}
        ops.append(edit(path, op.replace(nets=inner) if inner else op))
    return net.replace(ops=tuple(ops))


def on_the_way(path):
    return any("rnnmem/way" in name for name in path)


def refused(edit):
    original, rewritten = nets()
    changed = []

    def tried(path, op):
        made = edit(path, op)
        changed.extend([op.name] if made is not op else [])
        return made

    broken = edited(rewritten, tried)
    assert changed
    with pytest.raises(CheckError):
        check(original, broken)


def test_the_schedule_is_proven():
    check(*nets())


def test_another_step_on_the_way_is_found():
    refused(
        lambda path, op: op.replace(type="Cos") if on_the_way(path) and op.type == "Sin" else op
    )


def test_states_on_one_another_s_list_are_found():
    def edit(path, op):
        keeps = op.type == "StatelessIf" and on_the_way(path)
        if not keeps:
            return op
        first, second = op.inputs[-2:]  # the states that are pushed
        return op.replace(inputs=(*op.inputs[:-2], second, first))

    refused(edit)


def test_a_state_that_is_kept_behind_the_step_is_found():
    def edit(path, op):
        if op.type != "StatelessIf" or not on_the_way(path):
            return op
        return op.replace(inputs=(*op.inputs[:-1], made))

    (made,) = {
        op.outputs[0]
        for path, net in nets()[1].walk()
        if on_the_way(path)
        for op in net.ops
        if op.type == "Sin"
    }
    refused(edit)


def test_a_segment_that_runs_again_from_where_the_way_began_is_found():
    def edit(path, op):
        if op.name != "rnnmem/way":
            return op
        # nothing is counted any more: the loop hands out the start it was given
        body = op.nets["body"]
        outputs = (body.inputs[0], *body.outputs[1:])
        return op.replace(nets={**op.nets, "body": body.replace(outputs=outputs)})

    refused(edit)


def test_a_list_that_only_one_of_two_branches_would_lengthen_is_found():
    def edit(path, op):
        if op.type != "StatelessIf" or not on_the_way(path):
            return op
        then = op.nets["then_branch"]
        # the last list stays as it is
        outputs = (*then.outputs[:-1], then.inputs[len(then.outputs) - 1])
        return op.replace(nets={**op.nets, "then_branch": then.replace(outputs=outputs)})

    refused(edit)

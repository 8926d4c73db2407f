"""The checker on segments under a schedule: what goes on to a segment is proven too."""

import functools

import pytest
import tensorflow as tf

import rnnmem
from rnnmem.errors import CheckError
from rnnmem.verify import check
from tests.forced_segments import forced_segments

pytestmark = pytest.mark.slow


@functools.cache
def nets(online=False):
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

    with forced_segments(scheduled=True, online=online):
        made = rnnmem.optimize(step, max_slowdown=float("inf")).inspect(tf.zeros([12, 3, 2]))
    assert made.plan.loops[0].segments.slots
    assert made.plan.loops[0].segments.online == online
    return made.net, made.rewritten


def edited(net, edit, path=()):
    """The Net with ``edit(path, op)`` in place of every op, however deep."""
    ops = []
    for op in net.ops:
        inner = {key: edited(one, edit, (*path, op.name)) for key, one in op.nets.items()}
        ops.append(edit(path, op.replace(nets=inner) if inner else op))
    return net.replace(ops=tuple(ops))


def while_advancing(path):
    return any("rnnmem/way" in name for name in path)


def refused(edit, online=False):
    original, rewritten = nets(online)
    changed = []

    def tried(path, op):
        made = edit(path, op)
        changed.extend([op.name] if made is not op else [])
        return made

    broken = edited(rewritten, tried)
    assert changed
    with pytest.raises(CheckError):
        check(original, broken)


EITHER = pytest.mark.parametrize("online", [False, True])


@EITHER
def test_the_schedule_is_proven(online):
    check(*nets(online))


@EITHER
def test_another_step_on_the_way_is_found(online):
    refused(
        lambda path, op: (
            op.replace(type="Cos") if while_advancing(path) and op.type == "Sin" else op
        ),
        online,
    )


@EITHER
def test_states_on_one_another_s_list_are_found(online):
    def edit(path, op):
        keeps = op.type == "StatelessIf" and while_advancing(path)
        if not keeps:
            return op
        first, second = op.inputs[-2:]  # the states that are pushed
        return op.replace(inputs=(*op.inputs[:-2], second, first))

    refused(edit, online)


@EITHER
def test_a_state_that_is_kept_behind_the_step_is_found(online):
    def edit(path, op):
        if op.type != "StatelessIf" or not while_advancing(path):
            return op
        return op.replace(inputs=(*op.inputs[:-1], made))

    (made,) = {
        op.outputs[0]
        for path, net in nets(online)[1].walk()
        if while_advancing(path)
        for op in net.ops
        if op.type == "Sin"
    }
    refused(edit, online)


@EITHER
def test_a_segment_that_runs_again_from_where_the_way_began_is_found(online):
    def edit(path, op):
        if op.name != "rnnmem/way":
            return op
        # nothing is counted any more: the loop hands out the start it was given
        body = op.nets["body"]
        outputs = (body.inputs[0], *body.outputs[1:])
        return op.replace(nets={**op.nets, "body": body.replace(outputs=outputs)})

    refused(edit, online)


@EITHER
def test_a_list_that_only_one_of_two_branches_would_lengthen_is_found(online):
    def edit(path, op):
        if op.type != "StatelessIf" or not while_advancing(path):
            return op
        then = op.nets["then_branch"]
        # the last list stays as it is
        outputs = (*then.outputs[:-1], then.inputs[len(then.outputs) - 1])
        return op.replace(nets={**op.nets, "then_branch": then.replace(outputs=outputs)})

    refused(edit, online)


# --- slots


def keeps(op, path, advance):
    """Whether the op is a branch that keeps states, in the forward loop or on the way."""
    forward = path == ("while",)
    return op.name == "rnnmem/segment" and (while_advancing(path) if advance else forward)


def refused_where_states_are_kept(edit, advance):
    """Refused with an edit ``op -> op`` of what a branch does that keeps states in slots."""

    def tried(path, op):
        if not keeps(op, path, advance):
            return op
        then = op.nets["then_branch"]
        ops = tuple(map(edit, then.ops))
        if ops == then.ops:
            return op
        return op.replace(nets={**op.nets, "then_branch": then.replace(ops=ops)})

    refused(tried, online=True)


def with_input(op, place, blob):
    return op.replace(inputs=(*op.inputs[:place], blob, *op.inputs[place + 1 :]))


WHERE = pytest.mark.parametrize("advance", [False, True], ids=["forward", "way"])


def slot(advance):
    """The branch in which states are kept in slots, and the blob that says in which."""
    (found,) = {
        path: (net, net.op_by_name["rnnmem/slot"].inputs[1])
        for path, net in nets(online=True)[1].walk()
        if "rnnmem/slot" in net.op_by_name and while_advancing(path) == advance
    }.values()
    return found


@WHERE
def test_a_slot_below_the_first_is_found(advance):
    then, place = slot(advance)
    at_most = then.producer[place].inputs[0]
    refused_where_states_are_kept(
        lambda op: with_input(op, 1, at_most) if op.type == "TensorListSetItem" else op, advance
    )


@WHERE
def test_a_slot_behind_the_next_one_is_found(advance):
    then, place = slot(advance)
    least = then.producer[place]
    anywhere = then.producer[least.inputs[0]].inputs[0]
    refused_where_states_are_kept(
        lambda op: with_input(op, 0, anywhere) if op.name == least.name else op, advance
    )


@WHERE
def test_states_in_different_slots_are_found(advance):
    then, place = slot(advance)
    another = then.producer[place].inputs[1]  # always the first
    refused_where_states_are_kept(
        lambda op: with_input(op, 1, another) if op.name == "rnnmem/slot_1" else op, advance
    )


@WHERE
def test_a_state_that_is_pushed_while_others_are_put_is_found(advance):
    refused_where_states_are_kept(
        lambda op: (
            op.replace(type="TensorListPushBack", inputs=(op.inputs[0], op.inputs[2]))
            if op.name == "rnnmem/slot_1"
            else op
        ),
        advance,
    )


def test_lists_of_slots_that_do_not_begin_empty_are_found():
    refused(
        lambda path, op: (
            op.replace(type="TensorListReserve") if op.name == "rnnmem/checkpoints_1" else op
        ),
        online=True,
    )


def test_states_read_from_different_slots_are_found():
    def edit(path, op):
        another = "rnnmem/count_1:0"  # how many slots are in use
        return with_input(op, 1, another) if op.name == "rnnmem/checkpoint_1" else op

    refused(edit, online=True)


def test_a_state_read_from_the_list_of_another_is_found():
    def edit(path, op):
        return with_input(op, 0, "given_3") if op.name == "rnnmem/checkpoint_3" else op

    refused(edit, online=True)

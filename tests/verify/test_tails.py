"""The checker on loops whose last iterations save themselves what the gradient reads."""

import functools

import pytest
import tensorflow as tf

import rnnmem
from rnnmem.errors import CheckError
from rnnmem.ir.marks import SAVES_TAIL, SEGMENTS
from rnnmem.verify import check
from tests.forced_segments import forced_segments
from tests.verify.test_schedules import edited

pytestmark = pytest.mark.slow


@functools.cache
def nets():
    """A train step as it was, and with a tail behind its segments."""
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

    with forced_segments(tails=True):
        made = rnnmem.optimize(step, max_slowdown=float("inf")).inspect(tf.zeros([12, 3, 2]))
    assert made.plan.loops[0].segments.end
    return made.net, made.rewritten


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


def saves(op):
    return op.attributes.get(SEGMENTS) == SAVES_TAIL


def test_the_tail_is_proven():
    check(*nets())


def test_another_value_is_found():
    values = {
        blob
        for _, net in nets()[1].walk()
        for op in net.ops
        if saves(op)
        for blob in op.inputs[1:]
        if net.blobs[blob].dtype == "float32"
    }
    assert len(values) > 1

    def edit(path, op):
        if not saves(op):
            return op
        pushed = [blob for blob in op.inputs if blob in values]
        turned = dict(zip(pushed, [*pushed[1:], pushed[0]], strict=True))
        return op.replace(inputs=tuple(turned.get(blob, blob) for blob in op.inputs))

    refused(edit)


def test_another_end_in_the_forward_loop_is_found():
    def edit(path, op):
        counts = op.type == "Maximum" and path and op.name.startswith("rnnmem/count")
        return op.replace(type="Minimum") if counts else op

    refused(edit)


def test_an_end_that_only_one_loop_has_is_found():
    original, rewritten = nets()
    outer = [
        op
        for op in rewritten.ops
        if "segment_start" in " ".join(op.nets and op.nets["body"].inputs or ())
    ]
    (gradient,) = outer
    place = next(
        at for at, one in enumerate(gradient.nets["body"].inputs) if "segment_start" in one
    )
    inputs = list(gradient.inputs)
    inputs[place] = inputs[
        next(at for at, one in enumerate(gradient.nets["body"].inputs) if "iterations_left" in one)
    ]
    refused(lambda path, op: op.replace(inputs=tuple(inputs)) if op.name == gradient.name else op)


def test_a_push_that_is_missing_is_found():
    def edit(path, op):
        if not saves(op):
            return op
        then = op.nets["then_branch"]
        outputs = (then.inputs[0], *then.outputs[1:])
        return op.replace(nets={**op.nets, "then_branch": then.replace(outputs=outputs)})

    refused(edit)


def test_a_branch_not_taken_that_pushes_is_found():
    def edit(path, op):
        if not saves(op):
            return op
        swapped = {
            "then_branch": op.nets["else_branch"],
            "else_branch": op.nets["then_branch"],
        }
        return op.replace(nets=swapped)

    refused(edit)

"""Sums whose order depended on what had run long before: edges keep it in rewritten loops."""

import pytest
import tensorflow as tf

import rnnmem
from rnnmem.grappler.leads import head_starts
from rnnmem.ir.op_table import PUTS
from rnnmem.ir.order import all_needed_by, all_waiting_for
from rnnmem.passes.rematerialise.clone import AGAIN
from rnnmem.passes.schedule.leads import with_leads
from tests.cases import numbers, weights
from tests.handmade import make_net, op

pytestmark = [pytest.mark.filterwarnings("error::rnnmem.RnnmemWarning")]

T, B, U = 4, 2, 6
CLONE = f"{AGAIN}/"


def states_kept(kernel, x):
    """Each state goes into an array, whose gradient is one of three that are added up."""
    h, c = x[0], tf.sin(x[0])
    kept = tf.TensorArray(tf.float32, T + 1, element_shape=h.shape)
    for i in tf.range(T):
        kept = kept.write(i, h)
        h = h + tf.tanh((-h) * c + c) * 0.1 + tf.matmul(x[i], kernel) * 0.1
    return tf.reduce_mean(tf.square(h)) + tf.reduce_mean(tf.square(kept.stack()))


def addend_read_later(kernel, x):
    """The sum may not begin with ``m``, which waits for the sum's sine."""
    h = x[0]
    for i in tf.range(T):
        m = tf.matmul(h, kernel)
        h = tf.sin(tf.add_n([m, tf.tanh(x[i]), tf.negative(m)])) - m
    return tf.reduce_sum(h * h)


def addend_handed_on(kernel, x):
    """The sum may not begin with ``m``, which the next iteration is given."""
    h, m = x[0], x[1]
    for i in tf.range(T):
        before = m
        m = tf.matmul(h, kernel)
        h = tf.sin(tf.add_n([m, tf.tanh(x[i]), tf.negative(m)])) - before
    return tf.reduce_sum(h * h)


def sum_of_given(kernel, x):
    """Nothing may wait for the sum; so the loop keeps as many iterations under way as it had."""
    h = x[0]
    for i in tf.range(T):
        a = tf.exp(-tf.square(x[i]))
        given = tf.add_n([a, tf.cos(x[i]), tf.negative(a)])
        h = tf.tanh(tf.matmul(h * a, kernel) + given)
    return tf.reduce_sum(h * h)


def bias_of_few_rows(kernel, x):
    """Of one row, the sum over the batch hands on what a product of the gradient reads."""
    h, bias = x[0], kernel[0]
    for _ in tf.range(T):
        t = tf.sin(tf.cos(tf.sigmoid(h)) @ kernel + bias)
        h = tf.tanh(tf.tanh(t) @ kernel + bias)
    return tf.reduce_sum(h * h)


def sums_in_sums(kernel, x):
    """A gradient's sum of three, read by others, too; the next one adds up what reads an addend."""
    h, c = x[0], tf.sin(x[0])
    for i in tf.range(T):
        t = c + h * 0.1 + h * 0.8
        h = tf.tanh((t + t + tf.tanh(c)) @ kernel + x[i])
        c = tf.tanh(h * c + t)
    return tf.reduce_mean(tf.square(h)) + tf.reduce_sum(c) * 0.01


def step_of(loss, signature=None):
    (kernel,) = weights((U, U))

    @tf.function(input_signature=signature)
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            found = loss(kernel, x)
        return found, *tape.gradient(found, [kernel, x])

    return step


def loops_of(net):
    return [op for op in net.ops if op.type in ("While", "StatelessWhile")]


def rewritten(loss):
    found = rnnmem.optimize(step_of(loss), max_slowdown=9.0).inspect(numbers(T, B, U))
    assert found.rewritten is not None
    return found


def test_the_sum_waits_until_the_list_lets_its_item_go():
    found = rewritten(states_kept)
    _, gradient = loops_of(found.rewritten)
    body = gradient.nets["body"]
    (put,) = [op.name for op in body.ops if op.type == "TensorListSetItem"]
    (item,) = [op.outputs[0] for op in body.ops if op.type == "TensorListGetItem"]
    (sum_,) = [op for op in body.ops if op.type == "AddN" and item in op.inputs]
    assert len(sum_.inputs) == 3
    assert put in all_needed_by(body, [sum_.name])
    before = loops_of(found.net)[1].nets["body"]
    assert put not in all_needed_by(before, [sum_.name])


@pytest.mark.parametrize("loss", [addend_read_later, addend_handed_on, sum_of_given])
def test_a_sum_may_begin_with_nothing_that_was_held(loss):
    """Runs would show it by chance alone: with which of the others a sum begins is a race."""
    found = rewritten(loss)
    before = dict(sums_with_held(found.net))
    after = list(sums_with_held(found.rewritten))
    assert before and any(before.values())
    assert {name.removeprefix(CLONE) for name, _ in after} == before.keys()
    for name, held in after:
        assert {one.removeprefix(CLONE) for one in held} >= before[name.removeprefix(CLONE)]


def test_a_head_start_within_an_iteration_is_kept_by_an_edge():
    step = step_of(bias_of_few_rows, [tf.TensorSpec([T, None, U])])
    found = rnnmem.optimize(step, max_slowdown=9.0).inspect(numbers(T, 1, U))
    (before, after) = (loops_of(one)[1].nets["body"] for one in (found.net, found.rewritten))
    kept = [(first, last) for first, last in head_starts(before) if first in after.op_by_name]
    assert kept and not all(one in all_needed_by(before, [other]) for one, other in kept)
    assert all(one in all_needed_by(after, [other]) for one, other in kept)


def test_an_edge_keeps_it_for_a_sum_within_a_sum():
    found = rewritten(sums_in_sums)
    (before, after) = (loops_of(one)[1].nets["body"] for one in (found.net, found.rewritten))
    starts = head_starts(before)
    assert starts and not all(one in all_needed_by(before, [other]) for one, other in starts)
    assert all(one in all_needed_by(after, [other]) for one, other in starts)


def test_an_edge_keeps_it_in_a_branch_too():
    def around(*more):
        drawn = [
            op("t", "TanhGrad", "g g", "f[4]"),
            op("x", "Mul", "t g", "f[4]"),
            op("late", "OptionalGetValue", "o", "f[4]"),
            op("y", "Mul", "t late", "f[4]"),
            op("r", "SigmoidGrad", "x g", "f[4]"),
            op("s", "AddN", "g t y", "f[4]"),
            *more,
        ]
        branch = make_net({"g": "f[4]", "o": "v[]"}, drawn, ["s", "r"])
        nets = {"then_branch": branch, "else_branch": branch}
        made = op("if", "StatelessIf", "b g o", "f[4] f[4]", nets=nets)
        return make_net({"b": "z[]", "g": "f[4]", "o": "v[]"}, [made], ["if:0", "if:1"])

    found = with_leads(around(), around(op("unread", "Cos", "g", "f[4]")))
    for branch in found.op_by_name["if"].nets.values():
        assert "x" in all_needed_by(branch, ["s"])


def test_a_sum_that_runs_again_holds_what_it_held():
    found = rewritten(sum_of_given)
    after = dict(sums_with_held(found.rewritten))
    assert after[f"{CLONE}while/AddN"] == {f"{CLONE}while/Exp:0"}


def sums_with_held(net):
    """Each sum of three in a step net, and those of its addends that somebody surely holds."""
    for _, body in net.walk():
        for summing in body.ops:
            if summing.type == "AddN" and len(summing.inputs) > 2:
                later = all_waiting_for(body, [summing.name]) - {summing.name}
                yield summing.name, {blob for blob in summing.inputs if is_held(body, blob, later)}


def is_held(body, blob, later):
    """Whether a reader of the blob waits for the sum, or it is kept beyond the iteration."""
    readers = body.readers.get(blob, ())
    kept = any(op.type in PUTS and op.inputs[PUTS[op.type]] == blob for op in readers)
    return kept or blob in body.outputs or any(op.name in later for op in readers)

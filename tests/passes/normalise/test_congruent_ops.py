"""Ops that compute the same keep the names that TensorFlow keeps, so that sums keep their order."""

import pytest
import tensorflow as tf

import rnnmem
from rnnmem.compile import _unless_only_merged
from rnnmem.compiled import Compiled
from rnnmem.errors import NetError
from rnnmem.passes.accumulated_products.decision import AccumulatedProduct
from rnnmem.passes.normalise.congruent_ops import apply, merged_in
from rnnmem.passes.normalise.decision import CongruentOps
from rnnmem.passes.registry import PASSES
from rnnmem.planning.plan import Plan
from rnnmem.verify import check
from tests.cases import Case, assert_same_bits, numbers, thrice, values, weights
from tests.handmade import const, make_net, op

F = "f[4]"


def twice(*before, **fields):
    """Two sines of one value, and what reads each, behind some ops."""
    ops = [
        *before,
        op("a/x", "Sin", "x", F),
        op("b/x", "Sin", "x", F),
        op("a/y", "Mul", "a/x x", F),
        op("b/y", "Mul", "b/x x", F, **fields),
        op("s", "AddN", "a/y b/y g", F),
    ]
    return make_net({"x": F, "g": F, "c": "z[]"}, ops, ["s"])


BOTH = CongruentOps((), ("b/x", "b/y"), ("a/x", "a/y"))


def test_congruent_ops_are_merged_into_the_one_that_is_left():
    net = twice()
    assert merged_in(net, ["a/x", "a/y", "s"]) == (BOTH,)
    assert merged_in(net, ["b/x", "a/y"]) == (CongruentOps((), ("a/x", "b/y"), ("b/x", "a/y")),)
    merged = apply(net, [BOTH])
    assert [one.name for one in merged.ops] == ["a/x", "a/y", "s"]
    assert merged.op_by_name["s"].inputs == ("a/y", "a/y", "g")
    check(net, merged)


def test_assertions_that_are_the_same_are_left_alone():
    net = twice(op("a/fits", "Assert", "c x"), op("b/fits", "Assert", "c x"))
    assert merged_in(net, ["a/fits", "a/x", "a/y", "s"]) == (BOTH,)


@pytest.mark.parametrize("left", [[], ["a/x", "b/x", "a/y", "b/y"]], ids=["neither", "both"])
def test_nothing_is_merged_where_none_or_both_are_left(left):
    assert not merged_in(twice(), left)


def test_what_waits_for_one_that_is_gone_waits_for_the_other():
    net = twice(controls=("a/x",))
    assert merged_in(net, ["a/x", "a/y"]) == (CongruentOps((), ("b/x",), ("a/x",)),)
    waiting = twice().replace(control_outputs=("b/y",))
    assert apply(waiting, [BOTH]).control_outputs == ("a/y",)


def test_what_waits_for_congruent_ops_is_congruent_and_constants_are_where_they_do():
    ops = [
        *(op("a/x", "Sin", "x", F), op("b/x", "Sin", "x", F)),
        *(const("a/two", 2), const("b/two", 2)),
        const("a/one", 1.0),
        const("b/one", 1.0),
        op("a/y", "Mul", "x a/one", F),
        op("b/y", "Mul", "x b/one", F),
    ]

    def equal(a, b):
        waits = {"a/one": (a,), "b/one": (b,)}
        made = make_net({"x": F}, ops, ["a/x", "b/x", "a/y", "b/y"])
        changed = [one.replace(controls=waits.get(one.name, ())) for one in made.ops]
        found = merged_in(made.replace(ops=tuple(changed)), ["a/x", "a/y", "a/one"])
        return found[0].ops

    assert equal("a/x", "b/x") == ("b/x", "b/one", "b/y")
    assert equal("a/x", "a/y") == ("b/x",)


def test_ops_in_a_step_net_are_named_by_it():
    inner = twice()
    loop = op("loop", "While", "x g", f"{F} {F}", nets={"body": inner.replace(outputs=("s", "g"))})
    net = make_net({"x": F, "g": F}, [loop], ["loop:0"])
    (found,) = merged_in(net, ["loop/body/_3/a/x", "loop/body/_12/a/y", "loop"])
    assert found == CongruentOps(("loop", "body"), BOTH.ops, BOTH.into)
    merged = apply(net, [found])
    assert "b/x" not in merged.op_by_name["loop"].nets["body"].op_by_name


@pytest.mark.parametrize(
    "merged",
    [
        CongruentOps((), ("b/z",), ("a/x",)),
        CongruentOps((), ("b/x",), ("a/y",)),
        CongruentOps(("loop", "body"), ("b/x",), ("a/x",)),
    ],
    ids=["no such op", "not equal", "no such loop"],
)
def test_a_plan_for_another_function_is_refused(merged):
    with pytest.raises(NetError, match="the plan is for another function"):
        apply(twice(), [merged])


def adversaries(steps=20, batch=8, units=16):
    """A generator and a discriminator; both losses take the logarithm of the same exponential."""
    made = weights((units, units), (units, units), (units, 1))
    generator, discriminator = made[:1], made[1:]

    def run(kernel, x):
        def body(i, h, total):
            h = tf.tanh(tf.sin(h @ kernel) * tf.sigmoid(x[i]))
            return i + 1, h, total + tf.exp(h)

        start = (0, x[0], tf.zeros_like(x[0]))
        return tf.while_loop(lambda i, *_: i < steps, body, start)[2]

    def judge(h):
        kernel, last = discriminator
        return tf.tanh(h @ kernel) @ last

    def loss(label, logits):
        labels = label * tf.ones_like(logits)
        found = tf.nn.sigmoid_cross_entropy_with_logits(labels * 0.9 + 0.05, logits)
        return tf.reduce_mean(found)

    def step(x):
        with tf.GradientTape() as first, tf.GradientTape() as second:
            fake, real = judge(run(generator[0], x)), judge(run(tf.eye(units), x))
            of_generator = loss(1.0, fake)
            of_discriminator = loss(1.0, real) + loss(0.0, fake)
        given = (
            first.gradient(of_generator, generator),
            second.gradient(of_discriminator, discriminator),
        )
        for variable, gradient in zip(made, tf.nest.flatten(given), strict=True):
            variable.assign_sub(0.01 * gradient)
        return of_generator, of_discriminator

    return Case(step, thrice(numbers(steps, batch, units)), values(*made))


@pytest.mark.slow
def test_two_losses_of_one_value_keep_their_bits_and_the_loops_are_planned():
    assert_same_bits(adversaries, max_slowdown=1.35)
    args, _ = adversaries().calls[0]
    plan = rnnmem.optimize(adversaries().fn, max_slowdown=1.35).plan(*args)
    assert plan.loops and plan.of("congruent_ops")
    saved = rnnmem.Plan.from_json(plan.to_json())
    assert rnnmem.optimize(adversaries().fn, plan=saved).plan(*args).loops == plan.loops
    others = [one.name for one in PASSES if one.default and one.name != "congruent_ops"]
    left = rnnmem.optimize(adversaries().fn, max_slowdown=1.35, allow=others).plan(*args)
    assert "in another way" in "\n".join(left.notes)


def test_a_function_in_which_nothing_else_is_decided_runs_as_it_was():
    net = twice()
    plan = Plan().having(congruent_ops=(BOTH,))
    found = _unless_only_merged(Compiled(net, plan, apply(net, [BOTH])))
    assert found.rewritten is None and not found.plan.of("congruent_ops")


@pytest.mark.parametrize("decided", [(BOTH,), ()], ids=["merged", "nothing merged"])
def test_what_else_was_decided_before_the_loops_is_done(decided):
    net, added_up = twice(), AccumulatedProduct("a/y", "s", items=9, bytes=144)
    plan = Plan().having(congruent_ops=decided, accumulated_products=(added_up,))
    made = Compiled(net, plan, net)
    assert _unless_only_merged(made) is made

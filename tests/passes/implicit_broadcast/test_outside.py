"""Outside of loops ops broadcast an operand themselves, also where only a run tells its sizes."""

import pytest
import tensorflow as tf

import rnnmem
from rnnmem.compile import compile_function
from rnnmem.compiled import Target
from rnnmem.errors import CheckError
from rnnmem.ir.order import without_dead_ops
from rnnmem.passes.implicit_broadcast.apply import with_implicit_broadcasts
from rnnmem.passes.implicit_broadcast.decision import ImplicitBroadcast
from rnnmem.passes.implicit_broadcast.outside import broadcasts_outside
from rnnmem.planning.options import Options
from rnnmem.verify import check
from tests.cases import numbers, outcome, weights
from tests.handmade import const, make_net, op

X = "f[?,?,64]"
BOTH = (ImplicitBroadcast("by_x", 0), ImplicitBroadcast("by_scale", 1))


def net_of(*more, outputs=("by_x", "by_scale"), places=(0, 1, 2), maker="BroadcastTo", **given):
    """The gradient ``d`` of a sum of ``x`` along its last axis, times ``x`` and times a vector."""
    told = "s" if maker == "BroadcastTo" else "times"
    ops = [
        op("s", "Shape", "x", "i[3]"),
        const("places", places),
        const("axis", (2,)),
        const("one", (1,)),
        const("times", (1, 1, 64)),
        op("left", "DynamicStitch", "places axis s one", "i[3]"),
        op("row", "Reshape", "d left", "f[?,?,1]"),
        op("wide", maker, f"row {told}", X),
        op("by_x", "Mul", "wide x", X),
        op("by_scale", "Mul", "scale wide", X),
        *more,
    ]
    return make_net({"x": X, "d": "f[?,?]", "scale": "f[64]", **given}, ops, list(outputs))


def test_what_a_sum_was_made_of_and_a_vector_are_multiplied_by_it_as_it_is():
    net = net_of()
    assert broadcasts_outside(net) == BOTH
    made = with_implicit_broadcasts(net, BOTH)
    check(net, made)
    assert made.producer[made.op_by_name["by_x"].inputs[0]].type == "OptionalGetValue"


def test_what_is_read_whole_or_is_a_result_is_made():
    assert broadcasts_outside(net_of(op("t", "Tanh", "wide", X), outputs=["t"])) == ()
    assert broadcasts_outside(net_of(outputs=("by_x", "by_scale", "wide"))) == ()


def test_what_is_added_up_keeps_its_form():
    more = [op("sum", "AddV2", "by_x x", X)]
    assert broadcasts_outside(net_of(*more, outputs=["sum", "by_scale"])) == ()


def test_a_tile_along_the_last_axis_is_as_good():
    net = net_of(maker="Tile")
    assert broadcasts_outside(net) == BOTH
    check(net, with_implicit_broadcasts(net, BOTH))


def by_number(*more, outputs=("by_x", "by_scale"), n="f[]"):
    """The gradient of a mean: what is repeated is divided by a number before it is multiplied."""
    net = net_of(op("part", "RealDiv", "wide n", X), *more, outputs=outputs, n=n)
    ops = [
        one.replace(inputs=tuple("part" if blob == "wide" else blob for blob in one.inputs))
        if one.name in ("by_x", "by_scale")
        else one
        for one in net.ops
    ]
    return net.replace(ops=tuple(ops))


OF_PART = (ImplicitBroadcast("part", 0),)


def test_what_is_divided_by_a_number_first_is_divided_before_it_is_repeated():
    net = by_number()
    assert broadcasts_outside(net) == OF_PART
    made = with_implicit_broadcasts(net, OF_PART)
    check(net, made)
    assert made.blobs["part"].shape == (None, None, 1)
    assert made.blobs["by_x"].shape == (None, None, 64)


@pytest.mark.parametrize(
    "net",
    [
        by_number(outputs=("by_x", "by_scale", "part")),
        by_number(op("t", "Tanh", "part", X), outputs=("by_x", "by_scale", "t")),
        by_number(op("two", "Mul", "part part", X), outputs=("by_x", "by_scale", "two")),
        by_number(n="f[?,?,?]"),
    ],
    ids=["is a result", "is read whole", "by itself", "by what may be larger"],
)
def test_what_else_reads_the_quotient_keeps_it_whole(net):
    assert broadcasts_outside(net) == ()
    with pytest.raises(CheckError, match="value-changed"):
        check(net, with_implicit_broadcasts(net, OF_PART))


def test_a_quotient_that_is_added_up_keeps_its_form():
    more = op("sum", "AddV2", "part x", X)
    assert broadcasts_outside(by_number(more, outputs=("by_x", "by_scale", "sum"))) == ()


def test_two_quotients_do_not_broadcast_to_what_neither_is():
    net = by_number(
        op("wide2", "BroadcastTo", "row s", X),
        op("part2", "RealDiv", "wide2 n", X),
        op("two", "Mul", "part part2", X),
        outputs=("by_x", "by_scale", "two"),
    )
    assert len(broadcasts_outside(net)) == 1
    both = [*OF_PART, ImplicitBroadcast("part2", 0)]
    with pytest.raises(CheckError, match="value-changed"):
        check(net, with_implicit_broadcasts(net, both))


BESIDE_ANOTHER = net_of(
    op("y", "Tanh", "z", "f[?,?,?]"),
    op("by_y", "Mul", "wide y", X),
    outputs=["by_x", "by_scale", "by_y"],
    z="f[?,?,?]",
)
TWO_REPEATED = net_of(
    op("wide2", "BroadcastTo", "row s", X),
    op("by_two", "Mul", "wide wide2", X),
    outputs=["by_two"],
)


@pytest.mark.parametrize(
    ("net", "wrong"),
    [
        (BESIDE_ANOTHER, [ImplicitBroadcast("by_y", 0)]),
        (net_of(places=(0, 2, 1)), BOTH),
        (TWO_REPEATED, [ImplicitBroadcast("by_two", slot) for slot in (0, 1)]),
    ],
    ids=["beside what may be smaller", "along another axis", "nothing is as large"],
)
def test_sizes_that_may_differ_are_refused(net, wrong):
    assert not set(wrong) <= set(broadcasts_outside(net))
    with pytest.raises(CheckError, match="value-changed"):
        check(net, with_implicit_broadcasts(net, wrong))


def attention(words, told, reduce=tf.reduce_sum):
    """A train step of additive attention, all queries at once; its gradient repeats four axes."""
    query, key, scale = made = weights((16, 32), (16, 32), (1, 32))
    shape = [8, words, 16] if told else [None, None, 16]

    @tf.function(input_signature=[tf.TensorSpec(shape)] * 2)
    def step(x, memory):
        with tf.GradientTape() as tape:
            both = tf.tanh((x @ query)[:, :, None] + (memory @ key)[:, None])
            weight = tf.nn.softmax(reduce(scale[0] * both, -1))
            context = tf.reduce_sum(weight[..., None] * memory[:, None], 2)
            loss = tf.reduce_mean((context - x) ** 2)
        return loss, *tape.gradient(loss, made)

    return step, (numbers(8, words, 16), numbers(8, words, 16, seed=2))


@pytest.mark.parametrize("reduce", [tf.reduce_sum, tf.reduce_mean])
@pytest.mark.parametrize("told", [False, True])
def test_attention_takes_less_memory_and_every_bit_is_the_same(told, reduce):
    step, given = attention(48, told, reduce)
    optimised = rnnmem.optimize(step, max_slowdown=1.0)
    assert outcome(optimised(*given)) == outcome(step(*given))
    plan = optimised.plan(*given)
    assert plan.of("broadcast_outside")
    # How branches interleave moves both peaks by more than the saving: the ends of what they may be
    # fall, and what is measured lies between.
    least, most = plan.predicted_interval
    assert least < 0.85 * plan.original_interval[0] and most < 0.85 * plan.original_interval[1]
    assert least <= rnnmem.measure(optimised, *given).peak_bytes <= most
    if not told:
        for sizes in ((1, 1), (3, 1), (1, 5)):
            other = [one[: sizes[0], : sizes[1]] for one in given]
            assert outcome(optimised(*other)) == outcome(step(*other))


def test_regions_are_chosen_in_a_net_without_what_nobody_needs_any_more():
    step, given = attention(48, told=True)
    concrete = step.get_concrete_function()
    made = compile_function(Target(concrete, Options(max_slowdown=1.0)))
    assert made.plan.of("broadcast_outside")
    assert made.search.net is without_dead_ops(made.search.net)
    again = compile_function(Target(concrete, Options(plan=made.plan)))
    assert str(again.rewritten) == str(made.rewritten)


def test_a_square_of_known_size_is_multiplied_in_the_order_of_the_original():
    """TensorFlow multiplies small factors first, where it sees how small they are."""
    key, back = made = weights((64, 16), (16, 64))

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.tanh(x @ key) @ back - x))
        return loss, *tape.gradient(loss, made)

    given = numbers(8000, 64)
    optimised = rnnmem.optimize(step, max_slowdown=1.0)
    assert outcome(optimised(given)) == outcome(step(given))
    assert optimised.plan(given).of("broadcast_outside")


def summed(loss_of, rows):
    """A step whose loss is a mean of what rows of any number are summed up to."""
    (w,) = weights((64, 64))

    @tf.function(input_signature=[tf.TensorSpec([rows, 64])])
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(loss_of(x @ w))
        return loss, tape.gradient(loss, w)

    return step, numbers(16384, 64)


def test_readers_that_are_merged_are_merged_still():
    """Both factors of a square have one gradient; of their sum TensorFlow makes twice the one."""
    step, given = summed(lambda h: tf.reduce_sum(tf.tanh(h) * tf.tanh(h), 1), rows=None)
    optimised = rnnmem.optimize(step, max_slowdown=1.0)
    assert outcome(optimised(given)) == outcome(step(given))
    assert len(optimised.plan(given).of("broadcast_outside")) == 2
    net = net_of(op("again", "Mul", "x wide", X), outputs=["by_x", "by_scale", "again"])
    made = with_implicit_broadcasts(net, broadcasts_outside(net))
    check(net, made)
    assert sorted(made.op_by_name["again"].inputs) == sorted(made.op_by_name["by_x"].inputs)
    assert made.op_by_name["by_x"].inputs[0] != made.op_by_name["by_scale"].inputs[1]


def test_a_constant_factor_stays_with_what_it_was_multiplied_by():
    """It would go to the smaller factor, and last bits with it."""
    step, given = summed(lambda h: tf.reduce_sum(tf.nn.gelu(h), 1) ** 2, rows=16384)
    optimised = rnnmem.optimize(step, max_slowdown=1.0)
    assert outcome(optimised(given)) == outcome(step(given))
    assert not optimised.plan(given).notes

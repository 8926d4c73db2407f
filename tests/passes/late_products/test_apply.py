"""Products by a constant that wait for the gradient have the bits that TensorFlow gives them."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

import rnnmem
from rnnmem.errors import NetError, PlanError
from rnnmem.passes.late_products.apply import apply
from rnnmem.passes.late_products.decision import LateProduct
from rnnmem.planning.plan import Plan
from tests.alone import run_alone
from tests.cases import Case, assert_same_bits, numbers, train, values, weights
from tests.handmade import CONTEXT, const, make_net, op

pytestmark = [
    pytest.mark.filterwarnings("error::rnnmem.RnnmemWarning"),
    pytest.mark.usefixtures("deterministic"),
]
BATCH, LENGTH, WIDTH, HEADS = 2, 192, 32, 2
LAYERS = 8  # so many that what is held outweighs two blobs, by which a peak differs from run to run


def divided(q, k):
    return tf.matmul(q, k, transpose_b=True) / 7.0


def multiplied(q, k):
    return 0.3 * tf.matmul(q, k, transpose_b=True)


def masked(q, k):
    mask = tf.constant(np.triu(np.full((LENGTH, LENGTH), -1e9), 1), tf.float32)
    return tf.matmul(q, k, transpose_b=True) / 3.0 + mask


def summed(q, k):
    return tf.einsum("bhtd,bhsd->bhts", q, k) / 5.0


def attention(scores=divided, layers=2, batch=BATCH, scope="attention"):
    """Pre-norm layers of attention."""
    made = weights(*[(WIDTH, 3 * WIDTH), (WIDTH, WIDTH)] * layers)

    def loss(x):
        for at in range(0, len(made), 2):
            split = tf.reshape(x @ made[at], [-1, LENGTH, 3, HEADS, WIDTH // HEADS])
            q, k, v = tf.unstack(tf.transpose(split, [2, 0, 3, 1, 4]))
            with tf.name_scope(scope):
                seen = tf.nn.softmax(scores(q, k))
            mixed = tf.transpose(seen @ v, [0, 2, 1, 3])
            x = x + tf.reshape(mixed, [-1, LENGTH, WIDTH]) @ made[at + 1]
        return tf.reduce_mean(tf.square(x))

    x = numbers(batch, LENGTH, WIDTH)
    return Case(train(loss, made), [((x,), {})] * 2, values(*made))


def argument():
    """A product with an argument, which is there all the time."""
    made = weights((WIDTH, 512), (512, WIDTH))
    given, x = numbers(256, 512), numbers(256, WIDTH)

    def loss(x, given):
        h = tf.tanh(x @ made[0]) * 0.3 * given
        return tf.reduce_mean(tf.square(h @ made[1]))

    return Case(train(loss, made), [((x, given), {})] * 2, values(*made))


def plan_of(case, **options):
    arguments, _ = case.calls[0]
    return rnnmem.optimize(tf.function(case.fn), **options).plan(*arguments)


@pytest.mark.slow
@pytest.mark.parametrize("scores", [divided, multiplied, masked, summed])
def test_scaled_scores_keep_their_bits(scores, grappler):
    assert len(plan_of(attention(scores), max_slowdown=1.0).of("late_products")) == 2
    assert_same_bits(lambda: attention(scores), max_slowdown=1.0)


@pytest.mark.slow
def test_clones_of_the_factor_are_what_waits(grappler):
    plan = plan_of(attention(), max_slowdown=2.0)
    assert plan.of("late_products") and plan.of("straight_line")
    assert_same_bits(attention, max_slowdown=2.0)


def test_a_product_with_an_argument(grappler):
    assert plan_of(argument()).of("late_products")
    assert_same_bits(argument)


@pytest.mark.slow
def test_sizes_that_only_a_run_tells(grappler):
    def open_batch():
        case = attention()
        signature = [tf.TensorSpec([None, LENGTH, WIDTH])]
        return dataclasses.replace(case, fn=tf.function(case.fn, input_signature=signature))

    case = open_batch()
    (arguments, _) = case.calls[0]
    assert len(rnnmem.optimize(case.fn).plan(*arguments).of("late_products")) == 2
    assert_same_bits(open_batch)


def of_any_length():
    """Attention whose scores have no axis of a known length."""
    made = weights(*[(WIDTH, WIDTH)] * 4)

    def loss(x):
        for _ in range(2):
            q, k, v, kept = (x @ kernel for kernel in made)
            x = kept + tf.nn.softmax(tf.matmul(q, k, transpose_b=True) * 0.3) @ v
        return tf.reduce_mean(tf.square(x))

    step = tf.function(train(loss, made), input_signature=[tf.TensorSpec([None, None, WIDTH])])
    return Case(
        step, [((numbers(*rows, WIDTH),), {}) for rows in ((2, 192), (3, 5))], values(*made)
    )


@pytest.mark.slow
def test_scores_of_any_length_and_of_any_batch(grappler):
    case = of_any_length()
    arguments, _ = case.calls[0]
    plan = rnnmem.optimize(case.fn, max_slowdown=1.0).plan(*arguments)
    assert len(plan.of("late_products")) == 2
    assert not any("in another way" in note for note in plan.notes)
    assert_same_bits(of_any_length, max_slowdown=1.0)


def test_where_the_gradient_sorts_first_nothing_is_held():
    case = attention(scope="zz")
    assert not plan_of(case, max_slowdown=1.0).of("late_products")


def test_half_precision_stays():
    made = weights((WIDTH, WIDTH))

    def loss(x):
        h = tf.cast(x @ made[0], tf.bfloat16)
        p = tf.nn.softmax(tf.matmul(h, h, transpose_b=True) / 7.0)
        return tf.reduce_mean(tf.cast(p @ h, tf.float32))

    case = Case(train(loss, made), [((numbers(512, WIDTH),), {})], values(*made))
    assert not plan_of(case).of("late_products")


def test_nothing_waits_unless_that_is_allowed():
    assert not plan_of(attention(), allow=("recompute",)).of("late_products")
    assert plan_of(attention(), allow=("order",)).of("late_products")


def test_xla_moves_no_constants():
    case = attention()
    arguments, _ = case.calls[0]
    step = tf.function(case.fn, jit_compile=True)
    assert not rnnmem.optimize(step).plan(*arguments).of("late_products")


def peaks():
    """Measured and predicted peaks: as it was, and as it is."""
    case = attention(layers=LAYERS)
    (args, _) = case.calls[0]
    fn = rnnmem.optimize(case.fn, max_slowdown=1.0)
    plan = fn.plan(*args)
    measured = [rnnmem.measure(one, *args) for one in (tf.function(case.fn), fn)]
    return [*(one.peak_bytes for one in measured), plan.original_peak, plan.predicted_peak]


@pytest.mark.slow
def test_one_blob_of_each_layer_is_not_held():
    scores = BATCH * HEADS * LENGTH**2 * 4
    before, after, predicted_before, predicted = run_alone(__name__, "peaks")
    spared = (LAYERS - 3) * scores
    assert after < before - spared and predicted < predicted_before - spared


def test_a_saved_plan_does_the_same():
    case = attention()
    plan = Plan.from_json(plan_of(case, max_slowdown=1.0).to_json())
    first, second = plan.of("late_products")
    assert isinstance(first, LateProduct) and "576.0 KiB" in first.sentence
    assert plan_of(case, plan=plan).of("late_products") == (first, second)
    for other in ({"product": "nowhere"}, {"awaited": "nowhere:0"}):
        wrong = plan.having(late_products=(dataclasses.replace(first, **other),))
        with pytest.raises(PlanError, match="nowhere"):
            plan_of(case, plan=wrong)


def test_other_arithmetic_takes_back_what_waits(monkeypatch):
    from rnnmem import work

    def differs(work, function):
        return "because" if work.plan.of("late_products") else ""

    monkeypatch.setattr(work.Work, "differs", differs)
    plan = plan_of(attention(), max_slowdown=2.0)
    assert plan.of("straight_line") and not plan.of("late_products")
    assert "nothing is done by late_products beside the loops: because" in plan.notes


def test_a_delayed_input_stands_before_the_factor():
    kind = "f[512,512]"
    drawn = [op("s", "Sin", "x", kind), op("d", "Cos", "s", kind), const("c", 8.0)]
    drawn += [op("m", "Mul", "d s", kind), op("p", "RealDiv", "m c", kind)]
    made = apply(make_net({"x": kind}, drawn, ["p"]), [LateProduct("m", 1, "d", 2**20)], CONTEXT)
    first, second = made.op_by_name["m"].inputs
    late = made.producer[second]
    assert first == "d" and late.name == "s/rnnmem/late" and late.inputs == ("s",)
    (proxy,) = late.controls
    assert made.op_by_name[proxy].inputs == ("d",)
    with pytest.raises(NetError, match="no Mul 's'"):
        apply(make_net({"x": kind}, drawn, ["p"]), [LateProduct("s", 1, "d", 2**20)], CONTEXT)

"""Saved blobs in other forms: every bit comes back from bits, and rounding stays in the gradient.

Every blob that may have a form gets it, whatever it costs, and the rewritten function is held
against the original. What the host takes is on the second of two devices in a process of its own.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import rnnmem
from rnnmem.analysis.loops import loop_pairs
from rnnmem.analysis.machine import CPU
from rnnmem.ir.inline import inline
from rnnmem.ir.order import without_dead_ops
from rnnmem.passes.encode.decision import Encoding
from rnnmem.passes.rematerialise.decision import LoopPlan
from rnnmem.planning.apply import apply_plan
from rnnmem.planning.pareto import plan_net
from rnnmem.planning.plan import Plan
from rnnmem.tf.attributes import constant
from rnnmem.tf.functions import function_of, net_of
from rnnmem.verify import check
from tests.allocations import asked_for
from tests.cases import Case, as_bytes, assert_same_bits, numbers, thrice, train, values, weights
from tests.forced_segments import forced_segments

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("error::rnnmem.RnnmemWarning")]

ROOT = Path(__file__).resolve().parents[3]


def dropped(x, kernel, rate=0.3, relu=False):
    """The loss of a loop with dropout in every iteration; as many as ``x`` has rows."""

    def body(i, h):
        drawn = tf.random.stateless_uniform(tf.shape(h), [3, i])
        h = tf.where(drawn > rate, tf.tanh(h), h * 0.5)
        if kernel is not None:
            h = tf.matmul(h, kernel)
        return i + 1, tf.nn.relu(h + x[i]) if relu else h + x[i]

    count = tf.shape(x)[0]
    _, h = tf.while_loop(lambda i, h: i < count, body, (0, tf.reduce_sum(x, 0) + 0.25))
    return tf.reduce_sum(h * h)


def traced(shape, spec=None, relu=False, watched=True):
    """A step over ``dropped``, its input, and the variable that it needs, which must be held.

    A gradient of each ``x[i]`` is as large as ``x``: how many are alive at once, a race decides.
    """
    kernel = None if len(shape) < 3 else weights((shape[-1], shape[-1]))[0]
    variables = [] if kernel is None else [kernel]

    def step(x):
        with tf.GradientTape() as tape:
            if watched:
                tape.watch(x)
            loss = dropped(x, kernel, relu=relu)
        return loss, tape.gradient(loss, [x, *variables] if watched else variables)

    found = tf.function(step).get_concrete_function(spec or tf.TensorSpec(shape))
    return found, numbers(*shape), variables


def forced(concrete, *techniques):
    """The function with each bool as bits, small ones too; or every blob by given techniques."""
    net = without_dead_ops(inline(net_of(concrete)))
    if techniques:
        plan = plan_net(net, CPU, 1e9, segments=False, techniques=frozenset(techniques))
    else:
        plan = Plan(loops=tuple(map(_bits, loop_pairs(net, net, {}))))
    assert any(one.encodings for loop in plan.loops for one in loop.flat())
    rewritten = apply_plan(net, plan, constant)
    check(net, rewritten, roundings=plan.rounds)
    return function_of(rewritten, concrete)


def _bits(pair):
    saved = sorted({link.pushed for gradient in pair.gradients for link in gradient.links})
    kinds = pair.forward.body.blobs
    return LoopPlan(
        path=pair.path,
        gradients=tuple(gradient.loop.op.name for gradient in pair.gradients),
        saved=tuple(saved),
        encodings=tuple(Encoding(one, ("bits",)) for one in saved if kinds[one].dtype == "bool"),
    )


def bits_of(results):
    return [as_bytes(one) for one in tf.nest.flatten(results)]


@pytest.mark.parametrize(
    "shape, spec",
    [
        ((6, 2, 4), None),
        ((6, 3, 5), None),
        ((6,), None),
        ((6, 3, 7), [6, None, 7]),
        ((5, 3, 7), [None, None, 7]),
        ((0, 3, 7), [None, None, 7]),
        ((4, 0, 7), [None, None, 7]),
        ((4, 2, 3, 5), [None, None, 3, None]),
    ],
    ids=str,
)
def test_masks_of_any_shape_come_back_from_bits(deterministic, shape, spec):
    if len(shape) == 4:
        concrete, x, _ = traced((shape[0],), tf.TensorSpec(spec))
        x = numbers(*shape)
    else:
        concrete, x, held = traced(shape, spec and tf.TensorSpec(spec))
    assert bits_of(forced(concrete)(x)) == bits_of(concrete(x))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_the_gradient_of_a_relu_needs_no_more_than_signs(deterministic, dtype):
    odd = np.float32([np.nan, -np.nan, 0.0, -0.0, np.inf, -np.inf, 1e-45, -1e-45, 2.0])
    x = tf.cast(tf.constant(np.resize(odd, (24, 33))), dtype)

    def step(x, upstream):
        with tf.GradientTape() as tape:
            tape.watch(x)

            def body(i, h):
                return i + 1, tf.nn.leaky_relu(tf.nn.relu(h) * (tf.cast(i, dtype) - 1.0))

            _, h = tf.while_loop(lambda i, h: i < 5, body, (0, x))
        return tape.gradient(h, x, output_gradients=upstream)

    concrete = tf.function(step).get_concrete_function(x, x)
    net = without_dead_ops(inline(net_of(concrete)))
    (loop,) = plan_net(net, CPU, 1e9, segments=False, techniques=frozenset({"bits"})).loops
    assert len(loop.encodings) == 2  # of either unit, and no number but its sign
    function = forced(concrete, "bits")
    for upstream in (x, tf.reverse(x, [1]), tf.ones_like(x)):
        assert bits_of(function(x, upstream)) == bits_of(concrete(x, upstream))


def test_what_a_sum_adds_up_is_held_where_no_list_holds_it(grappler, deterministic):
    def make():
        made = weights((33, 33))

        def loss(x):
            def body(i, h):
                one = tf.nn.relu(tf.matmul(h, made[0]))
                return i + 1, one + tf.nn.relu(h - 0.1) + x[i] * 0.5

            _, h = tf.while_loop(lambda i, h: i < 7, body, (0, x[0]))
            return tf.reduce_sum(h * h)

        return Case(train(loss, made), thrice(numbers(7, 16, 33)), values(*made))

    assert_same_bits(make, allow=("bits",), max_slowdown=50.0)


@pytest.mark.parametrize("segments", [False, True])
def test_bits_under_the_decorator(grappler, deterministic, segments):
    def make():
        made = weights((33, 33))
        step = train(lambda x: dropped(x, made[0], relu=True), made)
        return Case(step, thrice(numbers(9, 16, 33)), values(*made))

    techniques = {"allow": ("recompute", "segments", "bits"), "max_slowdown": 50.0}
    if not segments:
        techniques["allow"] = ("bits",)
        return assert_same_bits(make, **techniques)
    with forced_segments():
        assert_same_bits(make, **techniques)


def test_bits_of_a_loop_in_a_loop(deterministic):
    (kernel,) = weights((33, 33))

    def step(x):
        with tf.GradientTape() as tape:

            def body(i, h):
                return i + 1, h + dropped(x, kernel) * 1e-3 * tf.tanh(h)

            _, h = tf.while_loop(lambda i, h: i < 3, body, (0, x[0]))
            loss = tf.reduce_sum(h)
        return loss, tape.gradient(loss, kernel)

    x = numbers(4, 16, 33)
    concrete = tf.function(step).get_concrete_function(x)
    assert bits_of(forced(concrete, "bits")(x)) == bits_of(concrete(x))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rounding_stays_in_the_gradient(deterministic, dtype):
    kernel = tf.Variable(tf.cast(weights((32, 32))[0], dtype))

    def step(x):
        with tf.GradientTape() as tape:

            def body(i, h):
                return i + 1, tf.tanh(tf.matmul(h, kernel) + x[i])

            _, h = tf.while_loop(lambda i, h: i < 8, body, (0, x[0]))
            loss = tf.reduce_sum(h * h)
        return loss, tape.gradient(loss, kernel)

    x = tf.cast(numbers(8, 16, 32), dtype)
    concrete = tf.function(step).get_concrete_function(x)
    (loss, gradient), (expected, exact) = forced(concrete, "bfloat16")(x), concrete(x)
    assert bits_of(loss) == bits_of(expected)
    gap = np.abs(gradient - exact).max() / np.abs(exact).max()
    assert 0 < gap < 0.02


def test_the_allocator_is_asked_for_less(tmp_path, deterministic):
    concrete, x, _ = traced((60, 64, 256), relu=True, watched=False)
    before = asked_for(concrete, [x], tmp_path / "before")
    bits = asked_for(forced(concrete, "bits"), [x], tmp_path / "bits")
    both = asked_for(forced(concrete, "bits", "bfloat16"), [x], tmp_path / "both")
    # of each iteration's mask and features 7/8 and 31/32 go, and half of the other numbers
    assert before - bits > 60 * 64 * 256 * (7 / 8 + 31 / 8) * 0.9
    assert bits - both > 60 * 64 * 256 * 2 * 0.9


TWO_DEVICES = """
import numpy as np
import tensorflow as tf

(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)

from rnnmem.verify import check
from rnnmem.analysis.machine import GPU
from rnnmem.ir.inline import inline
from rnnmem.ir.order import without_dead_ops
from rnnmem.planning.pareto import plan_net
from rnnmem.planning.apply import apply_plan
from rnnmem.tf.attributes import constant
from rnnmem.tf.functions import function_of, net_of
from tests.passes.encode.test_codecs import bits_of, traced


def placed(net):
    # The accelerator of the plan is the second of two devices here.
    return net.replace(
        ops=tuple(
            op.replace(
                device="/device:CPU:0" if "CPU:0" in op.device else "/device:CPU:1",
                nets={key: placed(inner) for key, inner in op.nets.items()},
            )
            for op in net.ops
        )
    )


concrete, x, held = traced((6, 16, 33), relu=True)
net = without_dead_ops(inline(net_of(concrete)))
for means in ({"offload"}, {"rematerialise", "offload"}):
    plan = plan_net(net, GPU, 1e9, segments=False, techniques=frozenset(means))
    rewritten = apply_plan(net, plan, constant)
    check(net, rewritten)
    lists = {
        op.device
        for _, inner in rewritten.walk()
        for op in inner.ops
        if "_rnnmem_saves" in op.attributes or op.name.startswith("rnnmem/pop")
    }
    assert plan.offloads and lists == {"/device:CPU:0"}, lists
    assert bits_of(function_of(placed(rewritten), concrete)(x)) == bits_of(concrete(x))
print("same bits")
"""


def test_lists_on_another_device_give_back_every_bit():
    done = subprocess.run(
        [sys.executable, "-c", TWO_DEVICES], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.stdout.strip().endswith("same bits"), done.stderr[-2000:]


def test_offload_on_the_host_is_refused():
    step = rnnmem.optimize(lambda x: dropped(x, None), allow=("recompute", "offload"))
    with pytest.raises(rnnmem.OptionError) as caught:
        step(numbers(5, 3))
    for word in ("allow=('recompute', 'offload')", "'offload'", "/device:CPU:0", "leave it out"):
        assert word in str(caught.value)


def test_a_saved_plan_keeps_the_forms_and_verify_allows_rounding():
    made = weights((33, 33))
    step = train(lambda x: dropped(x, made[0]), made, rate=0.0)
    x = numbers(9, 16, 33)
    first = rnnmem.optimize(step, allow=("bits", "bfloat16"), max_slowdown=50.0, verify=True)
    results = first(x)
    plan = first.plan(x)
    assert plan.rounds and {one.techniques for one in plan.loops[0].encodings} == {
        ("bits",),
        ("bfloat16",),
    }
    told = str(first.explain(x))
    assert "saved as bits" in told and "saved as bfloat16" in told
    assert "rounded, so gradients differ" in told
    report = rnnmem.report(first, x)
    assert any(
        part.decision == "saved as bits" and part.source.startswith("test_codecs.py:")
        for part in report.after.parts
    )
    again = rnnmem.optimize(step, plan=plan.to_json())
    assert bits_of(again(x)) == bits_of(results)
    assert again.plan(x).loops == plan.loops


def test_what_xla_compiles_keeps_blobs_as_they_are():
    made = weights((33, 33))
    step = train(lambda x: dropped(x, made[0]), made)
    compiled = rnnmem.optimize(tf.function(step, jit_compile=True), allow=("recompute", "bits"))
    plan = compiled.plan(numbers(5, 16, 33))
    assert not any(loop.encodings for loop in plan.loops)
    assert any("XLA compiles" in note for note in plan.notes)


def test_a_builder_that_is_differentiated_later_keeps_bits(deterministic):
    made = weights((33, 33))

    def forward(x):
        return dropped(x, made[0], relu=True)

    @tf.function
    def plain(x):
        with tf.GradientTape() as tape:
            loss = tf.function(forward)(x)
        return loss, tape.gradient(loss, made)

    x = numbers(9, 16, 33)
    optimised = rnnmem.optimize(forward, allow=("bits",), max_slowdown=50.0)
    with tf.GradientTape() as tape:
        loss = optimised(x)
    assert bits_of((loss, tape.gradient(loss, made))) == bits_of(plain(x))
    (loop,) = optimised.plan(x).loops
    assert {one.techniques for one in loop.encodings} == {("bits",)}

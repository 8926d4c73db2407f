"""Sixteen branches at sixteen threads take turns: the measured peak is the planned one.

Thread counts are read when TensorFlow starts, so the measuring runs in processes of its own.
"""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import rnnmem
from rnnmem.analysis.facts import Fact
from rnnmem.analysis.machine import CPU
from rnnmem.analysis.shapes import known_net
from rnnmem.errors import NetError, OptionError, PlanError
from rnnmem.ir.edges import Edge
from rnnmem.passes.schedule.apply import with_edges
from rnnmem.passes.schedule.serialise import edges_of
from rnnmem.planning.plan import Plan
from rnnmem.verify import check
from tests.cases import numbers

BRANCHES = 16


def branches(count: int = BRANCHES, rows: int = 512, width: int = 2048):
    weights = [tf.Variable(numbers(256, width, seed=seed)) for seed in range(count)]

    @tf.function(input_signature=[tf.TensorSpec([rows, 256])])
    def run(x):
        total = tf.zeros([rows])
        for weight in weights:
            total += tf.reduce_sum(tf.tanh(tf.nn.relu(x @ weight)), axis=1)
        return total

    run.weights = weights  # a function does not keep its variables alive
    return run


def measure() -> None:
    """Prints peaks in bytes and whether the bits are equal; run as a script."""
    rnnmem.enable_cpu_memory_stats()
    tf.config.threading.set_inter_op_parallelism_threads(int(sys.argv[1]))
    original = branches()
    optimised = rnnmem.optimize(original, max_slowdown=2.0)
    x = numbers(512, 256, seed=99)
    expected = original(x).numpy()
    peaks, same = [], []
    for _ in range(21):
        tf.config.experimental.reset_memory_stats("CPU:0")
        before = tf.config.experimental.get_memory_info("CPU:0")["current"]
        result = optimised(x)
        same.append(result.numpy().tobytes() == expected.tobytes())
        peaks.append(tf.config.experimental.get_memory_info("CPU:0")["peak"] - before)
        del result
    plan = optimised.plan(x)
    found = {"peaks": peaks[1:], "same": all(same), "planned": plan.predicted_peak}
    print(json.dumps(found))


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 16])
def test_the_measured_peak_is_within_the_planned_one_run_after_run(threads):
    environment = {**os.environ, "TF_NUM_INTEROP_THREADS": str(threads)}
    script = "from tests.tf.test_scheduling_edges import measure; measure()"
    done = subprocess.run(
        [sys.executable, "-c", script, str(threads)],
        capture_output=True, text=True, env=environment, check=True,
    )  # fmt: skip
    found = json.loads(done.stdout.splitlines()[-1])
    branch = 512 * 2048 * 4
    assert found["same"]
    assert max(found["peaks"]) <= 1.25 * branch  # 20 of 20 runs
    assert found["planned"] <= 1.05 * branch
    assert max(found["peaks"]) <= found["planned"] + 2**16


def net_of(function):
    return rnnmem.load_net(function)


def test_each_product_waits_for_the_sum_before_it():
    net = net_of(branches(4))
    scheduling_edges = edges_of(net, CPU, 2.0)
    assert scheduling_edges.bytes == 512 * 2048 * 4
    assert scheduling_edges.bytes_before == 4 * scheduling_edges.bytes
    assert len(scheduling_edges.edges) == 3
    by_name = net.op_by_name
    assert {by_name[edge.op].type for edge in scheduling_edges.edges} == {"MatMul"}
    assert {by_name[edge.after].type for edge in scheduling_edges.edges} == {"Sum"}
    ordered = with_edges(net, scheduling_edges.edges)
    check(net, ordered)
    for edge in scheduling_edges.edges:
        gate = ordered.producer[ordered.op_by_name[edge.op].inputs[edge.slot]]
        assert gate.type == "EnsureShape" and gate.controls == (edge.after,)


def test_by_the_sizes_of_a_call_they_wait_where_the_function_tells_none():
    @tf.function(input_signature=[tf.TensorSpec([None, 512])])
    def step(x):
        return sum(tf.reduce_sum(tf.tanh(x @ weight), axis=1) for weight in weights)

    weights = [tf.Variable(numbers(512, 2048)) for _ in range(4)]
    net = net_of(step)
    assert edges_of(net, CPU, 2.0) is None
    rest = [Fact()] * (len(net.inputs) - 1)
    sized = known_net(net, [Fact((512, 512)), *rest]).net
    found = edges_of(net, CPU, 2.0, sized=sized)
    assert found.bytes_before == 4 * found.bytes == 4 * 512 * 2048 * 4
    ordered = with_edges(net, found.edges)
    check(net, ordered)
    delayed = [one for one in ordered.ops if one.type == "EnsureShape"]
    assert delayed and all(one.attributes["shape"].dims == (None, None) for one in delayed)


def test_small_buffers_take_no_turns():
    assert edges_of(net_of(branches(4, rows=8, width=64)), CPU, 2.0) is None


def test_a_chain_needs_no_edges():
    weight = tf.Variable(numbers(512, 512))

    @tf.function(input_signature=[tf.TensorSpec([512, 512])])
    def chain(x):
        for _ in range(6):
            x = tf.tanh(x @ weight)
        return x

    assert edges_of(net_of(chain), CPU, 2.0) is None


def test_turns_inside_a_loop():
    weights = [tf.Variable(numbers(128, 1024, seed=seed)) for seed in range(4)]

    @tf.function(input_signature=[tf.TensorSpec([128, 128])])
    def run(x):
        def body(i, x):
            sums = [tf.reduce_sum(tf.tanh(x @ weight), axis=1) for weight in weights]
            return i + 1, x * 0.5 + tf.expand_dims(tf.add_n(sums), 1) * 1e-3

        return tf.while_loop(lambda i, _: i < 5, body, (0, x))[1]

    concrete = run.get_concrete_function()
    x = numbers(128, 128, seed=9)
    optimised = rnnmem.optimize(concrete, max_slowdown=2.0)
    scheduling_edges = optimised.plan().scheduling_edges
    if scheduling_edges:  # a loop whose gradient may be asked for is left alone
        assert all(edge.path for edge in scheduling_edges)
    assert optimised(x).numpy().tobytes() == concrete(x).numpy().tobytes()


def test_a_plan_with_turns_goes_to_json_and_back():
    optimised = rnnmem.optimize(branches(4), max_slowdown=2.0)
    plan = optimised.plan(numbers(512, 256))
    assert plan.scheduling_edges and not plan.changes_nothing
    assert Plan.from_json(plan.to_json()) == plan
    assert plan.predicted_peak < plan.original_peak
    assert "serialise" in str(optimised.explain(numbers(512, 256)))


def test_the_turns_of_a_saved_plan_are_those_that_run():
    x = numbers(512, 256)
    plan = rnnmem.optimize(branches(4), max_slowdown=2.0).plan(x)
    again = rnnmem.optimize(branches(4), plan=plan)
    assert again.plan(x) == plan
    gates = [op for op in net_of(again.get_concrete_function(x)).ops if op.type == "EnsureShape"]
    assert len(gates) == len(plan.scheduling_edges)
    fewer = plan.having(scheduling_edges=plan.scheduling_edges[:1])
    assert (
        rnnmem.optimize(branches(4), plan=fewer).plan(x).scheduling_edges
        == plan.scheduling_edges[:1]
    )
    other = plan.having(scheduling_edges=(Edge("nobody", None, "Sum"),))
    with pytest.raises(PlanError, match="another function"):
        rnnmem.optimize(branches(4), plan=other).plan(x)


def test_the_techniques_can_be_left_out():
    x = numbers(512, 256)
    assert (
        not rnnmem.optimize(branches(4), max_slowdown=2.0, allow=("recompute",))
        .plan(x)
        .scheduling_edges
    )
    assert rnnmem.optimize(branches(4), max_slowdown=2.0, allow=("order",)).plan(x).scheduling_edges


def test_gradients_are_those_of_the_original():
    original = branches(4)
    optimised = rnnmem.optimize(original, max_slowdown=2.0)
    x = numbers(512, 256)

    def gradient(function):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(tf.sin(function(x)))
        return [one.numpy().tobytes() for one in tape.gradient(loss, [x, *original.weights])]

    assert gradient(optimised) == gradient(original)
    assert gradient(tf.function(optimised.__call__)) == gradient(original)


def test_a_plan_for_another_net_is_refused():
    net = net_of(branches(4))
    for edge in (
        Edge("nobody", None, "Sum"),
        Edge("matmul", None, "nobody"),
        Edge("matmul", 7, "Sum"),
    ):
        with pytest.raises(NetError, match="another function"):
            with_edges(net, [edge])
    with pytest.raises(NetError, match="another function"):
        with_edges(net, [Edge("a", None, "b", ("nobody", "body"))])


@pytest.fixture
def saved(tmp_path):
    function = branches(6)
    module = tf.Module()
    module.weights = function.weights
    module.serve = function
    path = str(tmp_path / "source")
    tf.saved_model.save(module, path, signatures={"serving_default": function})
    return path, function


def test_optimize_saved_model(saved, tmp_path):
    path, function = saved
    target = str(tmp_path / "target")
    plans = rnnmem.optimize_saved_model(path, target, max_slowdown=2.0)
    assert plans["serving_default"].scheduling_edges
    x = numbers(512, 256)
    (found,) = tf.saved_model.load(target).signatures["serving_default"](x=x).values()
    (expected,) = tf.saved_model.load(path).signatures["serving_default"](x=x).values()
    assert found.numpy().tobytes() == expected.numpy().tobytes() == function(x).numpy().tobytes()
    gates = [op for op in rnnmem.load_net(target).ops if op.type == "EnsureShape"]
    assert gates and all(gate.controls for gate in gates)
    np.testing.assert_array_equal(found.shape, [512])


def test_optimize_saved_model_bad_input(saved, tmp_path):
    path, _ = saved
    with pytest.raises(OptionError, match="no SavedModel"):
        rnnmem.optimize_saved_model(tmp_path, tmp_path / "target")
    with pytest.raises(OptionError, match="already"):
        rnnmem.optimize_saved_model(path, path)
    with pytest.raises(OptionError, match="max_slowdown"):
        rnnmem.optimize_saved_model(path, tmp_path / "target", max_slowdown=0.5)
    assert not (tmp_path / "target").exists()


def test_no_edge_at_ops_that_are_merged_with_their_congruent_ops():
    weight = tf.Variable(numbers(256, 2048))

    @tf.function(input_signature=[tf.TensorSpec([512, 256])])
    def run(x):
        kinds = (tf.tanh, tf.sin, tf.cos, tf.sigmoid)
        return tf.add_n([tf.reduce_sum(kind(x @ weight), axis=1) for kind in kinds])

    # Grappler makes one product of the four; a delayed input before one would make them two.
    assert edges_of(net_of(run), CPU, 2.0) is None

"""The rewrite of a loop pair: who pops, who recomputes, and who waits for whom."""

import dataclasses

import pytest

from rnnmem.analysis.loops import loop_pairs, loops_of
from rnnmem.analysis.machine import CPU
from rnnmem.errors import NetError
from rnnmem.grappler.barrier import UNWRAP, WRAP
from rnnmem.ir.edges import Edge
from rnnmem.ir.order import without_dead_ops
from rnnmem.ir.residuals import residuals_of
from rnnmem.planning.apply import apply_plan
from rnnmem.planning.pareto import plan_net
from rnnmem.planning.plan import Plan
from rnnmem.verify import check
from tests.analysis.test_loops import gradient_loop, nested
from tests.handmade import encoded, op, rnn

INF = float("inf")


def rewritten(net=None, bound=INF, **options):
    net = net or rnn()
    return apply_plan(net, plan_net(net, CPU, bound), encoded, **options)


def bodies(net):
    """The step nets of the forward and of the gradient loop."""
    forward, gradient = loops_of(net)
    return forward.body, gradient.body


def types(net):
    return [one.type for one in net.ops]


def upstream(net, name):
    """Names of all ops that run before the op."""
    found, wanted = set(), [name]
    while wanted:
        current = net.op_by_name[wanted.pop()]
        before = {net.producer[b].name for b in current.inputs if b in net.producer}
        before |= set(current.controls)
        wanted += before - found
        found |= before
    return found


def clones(net):
    return [one for one in net.ops if one.name.startswith("rnnmem/again/")]


def test_the_checker_lets_it_through():
    for made in (rnn(), gradient_loop(rnn(), "second"), nested()):
        for bound in (1.0, 1.1, INF):
            check(made, rewritten(made, bound))


def test_only_what_is_saved_is_still_handed_over():
    # h is kept; tanh and the weight no longer are
    (pair,) = loop_pairs(net := rewritten(keeps_alive=False), net, {})
    assert [link.pushed for link in pair.gradients[0].links] == ["h"]
    forward, gradient = bodies(net)
    assert types(forward).count("TensorListPushBack") == 1
    assert types(gradient).count("TensorListPopBack") == 1


def test_the_lists_of_what_is_dropped_are_not_made_at_all():
    assert "list_t" not in rewritten(keeps_alive=False).op_by_name
    assert "list_h" in rewritten(keeps_alive=False).op_by_name


def test_the_gradient_computes_again_what_the_plan_says():
    _, gradient = bodies(rewritten())
    assert [(one.name, one.type) for one in clones(gradient)] == [
        ("rnnmem/again/m", "MatMul"),
        ("rnnmem/again/t", "Tanh"),
    ]


def test_forward_results_are_written_by_the_same_ops():
    before, after = bodies(rnn())[0], bodies(rewritten())[0]
    for name in ("m", "t", "next"):
        assert after.op_by_name[name] == before.op_by_name[name]
    assert after.outputs[:3] == before.outputs[:3]


def test_both_loops_record_what_stands_for_each_blob():
    net = rewritten()
    for loop in loops_of(net):
        held = {one.blob: one.becomes for one in residuals_of(loop.op)}
        assert held == {"h": "saved", "t": "recomputed", "w": "recomputed"}


def test_iterations_do_not_run_ahead():
    for loop in loops_of(rewritten()):
        assert loop.op.attributes["parallel_iterations"] == 1


def parallel_iterations(count):
    """The rewritten Net where so many iterations may be under way at once."""
    plan = plan_net(rnn(), CPU, INF)
    loops = tuple(dataclasses.replace(loop, parallel_iterations=count) for loop in plan.loops)
    return apply_plan(rnn(), dataclasses.replace(plan, loops=loops), encoded)


def test_recomputation_waits_for_the_incoming_gradient_where_it_could_run_ahead():
    # g, total ─► delayed input ─► barrier behind pop h ─► MatMul ─► Tanh
    net = parallel_iterations(4)
    assert all(loop.op.attributes["parallel_iterations"] == 4 for loop in loops_of(net))
    _, gradient = bodies(net)
    for clone in clones(gradient):
        before = upstream(gradient, clone.name)
        gates = [name for name in before if gradient.op_by_name[name].type == "NoOp"]
        assert len(gates) == 1
        waited = upstream(gradient, gates[0])
        read = {blob for name in waited for blob in gradient.op_by_name[name].inputs}
        assert {"g", "total"} <= read


def test_one_iteration_at_a_time_needs_no_delayed_input():
    # A delayed input would keep the arguments' Identities, whose names put a sum of three in
    # another order.
    _, gradient = bodies(parallel_iterations(1))
    assert "NoOp" not in types(gradient)
    assert not any(one.controls for one in gradient.ops)


def test_a_barrier_stands_between_clones_and_what_is_around_them():
    _, gradient = bodies(rewritten())
    copies = {one.name for one in clones(gradient)}
    for clone in clones(gradient):
        for blob in clone.inputs:
            writer = gradient.producer.get(blob)
            assert writer is None or writer.name in copies or writer.type == UNWRAP
        for blob in clone.outputs:
            for reader in gradient.readers[blob]:
                keepalive = reader.type == "TensorListPushBack"
                assert reader.name in copies or reader.type == WRAP or keepalive


def test_a_keepalive_keeps_the_number_of_readers():
    # tanh was read by its push and as the next state: it still has two readers
    before, after = bodies(rnn())[0], bodies(rewritten())[0]
    for blob in ("h", "t", "w", "m"):
        assert after.fan_out(blob) == before.fan_out(blob)


def test_a_keepalive_keeps_nothing():
    # what is pushed to it is popped at once, so its list is empty in every iteration
    forward = loops_of(rewritten())[0]
    keeps_alive = [one for one in forward.body.ops if one.name.startswith("rnnmem/keepalive_push")]
    assert keeps_alive
    for one in keeps_alive:
        (reader,) = forward.body.readers[one.outputs[0]]
        assert reader.type == "TensorListPopBack"
        assert not forward.body.readers.get(reader.outputs[1])


def test_a_keepalive_survives_pruning():
    net = rewritten()
    held = [one for one in net.ops if one.name.startswith("rnnmem/hold")]
    assert held
    assert {one.name for one in held} <= set(net.control_outputs)


def test_without_an_optimizer_after_us_there_are_no_keepalives():
    for net in bodies(rewritten(keeps_alive=False)):
        assert not [one for one in net.ops if "keepalive" in one.name]


def test_two_gradients_both_recompute_and_share_what_is_saved():
    net = rewritten(gradient_loop(rnn(), "second"))
    (pair,) = loop_pairs(net, net, {})
    assert len(pair.gradients) == 2
    accumulators = {link.accumulator for one in pair.gradients for link in one.links}
    assert len(accumulators) == 1
    for one in pair.gradients:
        assert [copy.type for copy in clones(one.loop.body)] == ["MatMul", "Tanh"]


def test_a_closed_loop_is_left_to_the_bit():
    net = rnn()
    plan = plan_net(net, CPU, INF)
    closed = tuple(dataclasses.replace(loop, closed="for a reason") for loop in plan.loops)
    after = apply_plan(net, Plan(loops=closed), encoded)
    assert after == net


def test_the_plan_is_applied_to_another_net_of_the_same_making():
    plan = Plan.from_json(plan_net(rnn(), CPU, INF).to_json())
    assert apply_plan(rnn(), plan, encoded) == rewritten()


def test_a_plan_for_another_function_is_refused_by_name():
    net = rnn()
    renamed = net.replace(
        ops=tuple(one.replace(name="elsewhere") if one.name == "loop" else one for one in net.ops)
    )
    with pytest.raises(NetError, match="another function: no loop pair 'loop'"):
        apply_plan(renamed, plan_net(net, CPU, INF), encoded)


@pytest.mark.parametrize("field", ["saved", "recomputed", "waits", "gradients"])
def test_a_plan_for_a_loop_of_the_same_name_is_refused_too(field):
    plan = plan_net(rnn(), CPU, INF)
    if field == "waits":
        plan = plan.having(gradient_start=(Edge("nobody", None, "loop"),))
    else:
        (loop,) = plan.loops
        other = dataclasses.replace(loop, **{field: ("nobody",)})
        plan = dataclasses.replace(plan, loops=(other,))
    with pytest.raises(NetError, match="another function"):
        apply_plan(rnn(), plan, encoded)


def test_a_plan_that_forgets_a_blob_is_refused():
    plan = plan_net(rnn(), CPU, INF)
    (loop,) = plan.loops
    for forgetful in (
        dataclasses.replace(loop, saved=()),
        dataclasses.replace(loop, recomputed=("t",)),
    ):
        with pytest.raises(NetError, match="neither saves nor recomputes '[hm]'"):
            apply_plan(rnn(), Plan(loops=(forgetful,)), encoded)


def test_what_was_rewritten_once_has_nothing_more_to_give():
    once = rewritten()
    rematerialised = plan_net(once, CPU, INF)
    twice = apply_plan(once, rematerialised, encoded)
    kept = [
        sum(link.pushed != "" for link in one.links)
        for net in (once, twice)
        for pair in loop_pairs(net, net, {})
        for one in pair.gradients
    ]
    assert kept == [1, 1]
    assert rematerialised.changes_nothing
    check(once, twice)


def test_the_net_that_is_rewritten_stays():
    net = rnn()
    before = dataclasses.replace(net)
    rewritten(net)
    assert net == before == rnn()


def test_dead_ops_are_gone():
    net = rewritten()
    assert without_dead_ops(net) is net


def test_a_clone_keeps_device_source_and_attributes_but_no_colocation():
    net = rnn()
    (loop,) = [one for one in net.ops if one.name == "loop"]
    body = loop.nets["body"]
    placed = body.replace(
        ops=tuple(
            one.replace(
                device="/CPU:0",
                source="train.py:3",
                attributes={"T": 1, "_class": (b"loc:@m",)},
            )
            if one.name == "t"
            else one
            for one in body.ops
        )
    )
    nets = {**loop.nets, "body": placed}
    net = net.replace(
        ops=tuple(one.replace(nets=nets) if one.name == "loop" else one for one in net.ops)
    )
    (clone,) = [one for one in clones(bodies(rewritten(net))[1]) if one.type == "Tanh"]
    assert (clone.device, clone.source, dict(clone.attributes)) == (
        "/CPU:0",
        "train.py:3",
        {"T": 1},
    )


def test_a_pop_behind_a_gradients_control_edge_goes_ahead():
    # pop h waits for e's operand d, which needs tanh, which is recomputed from h: no cycle
    net = rnn()
    (loop,) = [one for one in net.ops if one.name == "gradient"]
    body = loop.nets["body"]
    late = body.replace(
        ops=tuple(one.replace(controls=("d",)) if one.name == "pop_h" else one for one in body.ops)
    )
    nets = {**loop.nets, "body": late}
    net = net.replace(
        ops=tuple(one.replace(nets=nets) if one.name == "gradient" else one for one in net.ops)
    )
    _, gradient = bodies(rewritten(net))
    assert "d" not in upstream(gradient, "rnnmem/again/t")


def test_an_unknown_op_in_the_body_is_never_cloned():
    net = rnn()
    (loop,) = [one for one in net.ops if one.name == "loop"]
    body = loop.nets["body"]
    noise = op("noise", "RandomStandardNormal", "", "f[64,64]")
    noisy = body.replace(
        ops=tuple(
            one.replace(inputs=("h", "noise")) if one.name == "m" else one
            for one in (noise.op, *body.ops)
        ),
        blobs={**body.blobs, "noise": noise.blobs[0]},
    )
    nets = {**loop.nets, "body": noisy}
    net = net.replace(
        ops=tuple(one.replace(nets=nets) if one.name == "loop" else one for one in net.ops)
    )
    _, gradient = bodies(rewritten(net))
    assert "RandomStandardNormal" not in types(gradient)


def test_a_gradient_loop_that_does_not_run_is_not_made_to():
    # what the verifier must take for an effect stands in a second gradient loop that nobody needs
    net = gradient_loop(rnn(), "second")
    second = net.op_by_name["second"]
    body = second.nets["body"]
    strange = op("strange", "SomebodysOp", body.inputs[0], "")
    body = body.replace(ops=(*body.ops, strange.op))
    dead = second.replace(nets={**second.nets, "body": body})
    net = net.replace(
        ops=tuple(dead if one is second else one for one in net.ops),
        outputs=tuple(blob for blob in net.outputs if blob not in second.outputs),
    )
    check(net, rewritten(net))

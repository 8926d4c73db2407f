"""Step nets as they are drawn: few nodes, edges through what is left out, decisions coloured."""

import dataclasses

from rnnmem.analysis.machine import CPU
from rnnmem.analysis.shapes import filled, known_net, with_known_shapes
from rnnmem.planning.apply import apply_plan
from rnnmem.planning.pareto import plan_net
from rnnmem.planning.plan import Plan
from rnnmem.reports.data import TEMPORARY, Part
from rnnmem.reports.stepnets import MOST, graphs
from tests.handmade import encoded, make_net, op, rnn
from tests.reports.handmade_report import report


def named(graph):
    return {node.name: node for node in graph.nodes}


def by_id(found):
    return {graph.id: graph for graph in found}


def drawn(net):
    net = with_known_shapes(net)
    return by_id(graphs(net, net, Plan()))


def test_the_function_shows_its_loops_and_each_opens_its_step_net():
    found = drawn(rnn())
    top = found["before"]
    assert [node.type for node in top.nodes] == ["While", "While"]
    assert [node.opens for node in top.nodes] == ["before/loop", "before/gradient"]
    assert set(found) == {"before", "before/loop", "before/gradient"}
    assert top.edges == ((0, 1),)  # through ones and the accumulators


def test_a_step_net_leaves_out_counters_constants_and_lists():
    body = drawn(rnn())["before/loop"]
    assert {node.type for node in body.nodes} == {"state", "invariant", "MatMul", "Tanh"}
    nodes = list(named(body))
    pairs = {(nodes[start], nodes[end]) for start, end in body.edges}
    assert pairs == {("h", "m"), ("w", "m"), ("m", "t")}


def test_decisions_are_told_before_and_after():
    found = by_id(report().graphs)
    before, after = named(found["before/loop"]), named(found["after/gradient"])
    # TensorFlow saves all that the gradient reads; what becomes of it is the reason's end.
    assert {node.decision for node in before.values()} == {"saved", "invariant", ""}
    assert before["w"].decision == "invariant"
    told = named(found["after/loop"])
    becomes = {name for name, node in told.items() if node.decision == "recomputed"}
    assert becomes
    for name in becomes:
        assert before[name].decision == "saved"
        assert "kept by the forward loop for every iteration; rnnmem: recomputed" in (
            before[name].reason
        )
    recomputed = [node for node in after.values() if node.decision == "recomputed"]
    assert recomputed and all(node.reason for node in recomputed)
    assert any(node.type == "saved blob" and node.decision == "saved" for node in after.values())


def test_a_large_net_is_drawn_in_part_and_says_so():
    ops = [op("n0", "Tanh", "x", "f[64,64]")]
    ops += [op(f"n{i}", "Tanh", f"n{i - 1}", "f[64,64]") for i in range(1, 3 * MOST)]
    net = make_net({"x": "f[64,64]"}, ops, [f"n{3 * MOST - 1}"])
    graph = drawn(net)["before"]
    assert len(graph.nodes) == MOST
    assert graph.left_out == 2 * MOST
    # What is left out is looked through, so the chain stays one chain.
    assert len(graph.edges) == MOST - 1


def test_the_overview_draws_the_ops_of_the_largest_blobs_at_the_peak_beside_the_loops():
    net = with_known_shapes(rnn())
    alone = by_id(graphs(net, net, Plan()))["before"]
    assert [node.name for node in alone.nodes] == ["loop", "gradient"]
    assert (alone.left_out, alone.left_bytes) == (2, 64 * 64 * 4)  # ones and zeros
    part = Part("ones", TEMPORARY, 64 * 64 * 4, "OnesLike", "float32", (64, 64))
    graph = by_id(graphs(net, net, Plan(), peaks={"before": (part,)}))["before"]
    assert [node.name for node in graph.nodes] == ["loop", "ones", "gradient"]
    assert graph.left_out == 1
    assert set(graph.edges) == {(0, 1), (1, 2), (0, 2)}


def test_the_ops_of_the_largest_blobs_at_the_peak_are_drawn_where_not_all_can_be():
    """Each writes as much, so that their sizes do not tell which."""
    ops = [op("n0", "Tanh", "x", "f[64,64]")]
    ops += [op(f"n{i}", "Tanh", f"n{i - 1}", "f[64,64]") for i in range(1, 3 * MOST)]
    net = with_known_shapes(make_net({"x": "f[64,64]"}, ops, [f"n{3 * MOST - 1}"]))
    last = Part(ops[-1].op.name, TEMPORARY, 64 * 64 * 4, "Tanh", "float32", (64, 64))
    (graph,) = graphs(net, net, Plan(), peaks={"before": (last,)})
    assert last.label in named(graph)
    assert (len(graph.nodes), graph.left_bytes) == (MOST, 64 * 64 * 4)


def in_segments(**fields):
    return by_id(report(segments=True, **fields).graphs)


def with_type(graph, type):
    return [node for node in graph.nodes if node.type == type]


def test_pops_that_only_keep_a_blob_alive_are_not_drawn():
    for found in (in_segments(), by_id(report().graphs)):
        names = {node.name for graph in found.values() for node in graph.nodes}
        assert not [name for name in names if "keepalive" in name]


def test_no_more_is_saved_after_than_before():
    found = by_id(report().graphs)
    saved = {
        side: with_type(found[f"{side}/gradient"], "saved blob") for side in ("before", "after")
    }
    assert 0 < len(saved["after"]) < len(saved["before"])
    assert all(node.decision == "saved" for side in saved.values() for node in side)


def test_under_segments_nothing_is_saved_for_every_iteration():
    found = in_segments()
    after = [graph for id, graph in found.items() if id.startswith("after")]
    assert not [node for graph in after for node in graph.nodes if node.decision == "saved"]
    assert {node.decision for node in with_type(found["before/gradient"], "saved blob")} == {
        "saved"
    }
    replayed = with_type(found["after/gradient"], "replayed blob")
    assert replayed and {node.decision for node in replayed} == {"replayed"}
    assert "with its segment of 3 iterations" in replayed[0].reason


def test_the_forward_loop_shows_where_states_are_kept():
    forward = in_segments()["after/loop"]
    (keeps,) = with_type(forward, "checkpoint")
    assert keeps.decision == "checkpointed"
    assert "at most 4 of 50 segments of 3 iterations" in keeps.reason
    nodes = list(named(forward))
    assert ("h", keeps.name) in {(nodes[start], nodes[end]) for start, end in forward.edges}
    assert named(forward)["h"].decision == "checkpointed"


def test_a_replay_opens_the_step_net_that_runs_again():
    found = in_segments()
    (replay,) = with_type(found["after/gradient"], "replay of a segment")
    again = named(found[replay.opens])
    assert {"h", "m", "t"} <= set(again)
    assert (again["h"].decision, again["m"].decision) == ("replayed", "recomputed")
    assert not [name for name in again if name.startswith("rnnmem/")]


def test_what_rnnmem_counts_with_is_not_called_recomputed():
    told = report(segments=True).after
    parts = {part.label: part.kind for part in told.parts if "count" in part.label}
    assert parts and set(parts.values()) == {"temporary"}


def test_what_is_invariant_has_the_name_of_the_users_variable():
    net = with_known_shapes(rnn())
    names = {blob: f"the user's {blob}" for blob in net.inputs}
    found = by_id(graphs(net, net, Plan(), names))
    titles = {node.name: node.title for node in found["before/loop"].nodes}
    assert titles == {"h": "", "w": "the user's w", "m": "", "t": ""}


def test_the_branch_that_saves_the_last_iterations_is_called_so():
    net = rnn(64, 150)
    plan = plan_net(net, CPU, 1e9, segments=True)
    (loop,) = plan.loops
    cut = dataclasses.replace(loop.segments, length=10, slots=0, count=0, replays=1.0, end=100)
    plan = dataclasses.replace(plan, loops=(dataclasses.replace(loop, segments=cut),))
    original, rewritten = filled(known_net(net)), filled(known_net(apply_plan(net, plan, encoded)))
    forward = by_id(graphs(original, rewritten, plan))["after/loop"]
    (tail,) = with_type(forward, "tail")
    assert (tail.decision, tail.reason) == ("saved", "from iteration 100 on, as the loop runs")
    assert not [node for node in forward.nodes if node.type.endswith("If")]


def test_a_state_has_the_line_that_makes_its_next_value():
    net = rnn()
    loop = net.op_by_name["loop"]
    body = loop.nets["body"]
    ops = tuple(
        one.replace(source="cell.py:7" if one.name == "t" else "cell.py:6") for one in body.ops
    )
    loop = loop.replace(nets={**loop.nets, "body": body.replace(ops=ops)})
    net = net.replace(ops=tuple(loop if one.name == "loop" else one for one in net.ops))
    nodes = named(drawn(net)["before/loop"])
    assert (nodes["h"].source, nodes["w"].source) == ("cell.py:7", "w")

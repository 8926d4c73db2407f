"""Step nets as they are drawn: few nodes, edges through what is left out, fates coloured."""

from rnnmem.net.shapes import with_known_shapes
from rnnmem.plan import Plan
from rnnmem.reports.stepnets import MOST, graphs
from tests.handmade import make_net, op, rnn
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
    layers = {name: node.layer for name, node in named(body).items()}
    assert layers["h"] == layers["w"] == 0 < layers["m"] < layers["t"]


def test_fates_are_told_before_and_after():
    found = by_id(report().graphs)
    before, after = named(found["before/loop"]), named(found["after/gradient"])
    assert {"recomputed", "saved"} & {node.fate for node in before.values()}
    assert before["w"].fate == "invariant"
    recomputed = [node for node in after.values() if node.fate == "recomputed"]
    assert recomputed and all(node.reason for node in recomputed)
    assert any(node.type == "saved blob" and node.fate == "saved" for node in after.values())


def test_a_large_net_is_drawn_in_part_and_says_so():
    ops = [op("n0", "Tanh", "x", "f[64,64]")]
    ops += [op(f"n{i}", "Tanh", f"n{i - 1}", "f[64,64]") for i in range(1, 3 * MOST)]
    net = make_net({"x": "f[64,64]"}, ops, [f"n{3 * MOST - 1}"])
    graph = drawn(net)["before"]
    assert len(graph.nodes) == MOST
    assert graph.left_out == 2 * MOST
    # What is left out is looked through, so the chain stays one chain.
    assert len(graph.edges) == MOST - 1

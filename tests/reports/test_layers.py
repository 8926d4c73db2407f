"""Ops of a large net are told by the user's layer, and what runs again apart."""

from rnnmem.planning.plan import Plan
from rnnmem.reports.layers import layers
from rnnmem.reports.stepnets import LAYERED, graphs
from tests.handmade import make_net, op

AGAIN = "/rnnmem/clone"


def layered(*names, source=""):
    ops = [op(name, "Tanh", "x", "f[2]", source=source).op for name in names]
    return layers(ops, lambda one: one.name.endswith(AGAIN))


def test_a_layer_is_the_first_scope_that_tells_ops_apart():
    found = layered(
        "model_1/in/MatMul",
        "model_1/attention_2/query/MatMul",
        f"model_1/attention_2/query/MatMul{AGAIN}",
        "model_1/norm/moments/Mean",
        "model_1/out/MatMul",
        "model_1/Add_3",
        "gradient_tape/model_1/attention_2/query/MatMul_1",
    )
    assert list(found.values()) == [
        *("in", "attention", "attention, again", "norm", "out", "Add_3", "attention, gradient"),
    ]


def test_layers_that_the_user_numbered_are_told_apart():
    blocks = [f"model/block_{i}/matmul" for i in range(5)]
    assert list(layered(*blocks, "model/out_2/add").values()) == [
        *("block_0", "block_1", "block_2", "block_3", "block_4", "out"),
    ]


def test_ops_without_a_scope_are_told_by_their_lines_and_few_layers_are_none():
    lines = [op(f"mul_{i}", "Tanh", "x", "f[2]", source=f"train.py:{i // 2}").op for i in range(8)]
    assert set(layers(lines, lambda one: False).values()) == {f"train.py:{i}" for i in range(4)}
    assert layered("model/a/MatMul", "model/b/MatMul") == {}


def test_a_large_function_has_a_node_a_layer_and_each_opens():
    """Blocks of ten: x -> b0 -> b1 ...; a small one is drawn op by op."""
    before, ops = "x", []
    for block in range(8):
        for number in range(10):
            name = f"net/block{block}/t{number}"
            ops.append(op(name, "Tanh", before, "f[64,64]"))
            before = name
    found = {
        one.id: one for one in graphs(*[make_net({"x": "f[64,64]"}, ops, [before])] * 2, Plan())
    }
    top = found["before"]
    assert len(ops) > LAYERED and len(top.nodes) == 8 and top.left_out == 0
    assert top.edges == tuple((i, i + 1) for i in range(7))
    for node in top.nodes:
        assert node.opens in found and node.bytes == 10 * 64 * 64 * 4
        assert len(found[node.opens].nodes) == 10 and len(found[node.opens].edges) == 9

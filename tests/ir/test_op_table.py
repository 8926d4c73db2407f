"""The table of op types against TensorFlow's registry, and the rules that read it."""

import ast
from pathlib import Path

import pytest

from rnnmem.ir import op_table as optypes
from rnnmem.ir.op_table import TABLE, Work, arithmetic, facts, is_pure, why_never_twice
from tests.handmade import const, make_net, op, while_op


def test_every_type_is_registered_and_none_is_stateful():
    from rnnmem.tf import private

    unknown = [type for type in TABLE if private.op_def(type) is None]
    assert not unknown
    stateful = [type for type in TABLE if private.op_def(type).is_stateful]
    assert not stateful


def test_list_ops_and_sources_are_registered_too():
    from rnnmem.tf import private

    for type in (optypes._PURE_INSIDE, optypes.OPAQUE_SOURCES, optypes.BRANCHES, optypes.LOOPS):
        assert all(private.op_def(one) is not None for one in type)
    assert not any(private.op_def(type).is_stateful for type in optypes._PURE_INSIDE)


def test_the_table_is_sorted_and_names_nothing_twice():
    # The file itself: a dict would swallow a key that stands there twice.
    tree = ast.parse(Path(optypes.__file__).read_text(encoding="utf-8"))
    keys = next(
        [key.value for key in node.args[0].keys]
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and node.args
        and isinstance(node.args[0], ast.Dict)
        and len(node.args[0].keys) > 100
    )
    assert keys == sorted(set(keys))


def test_what_is_not_known_is_never_recomputed():
    for type in ("RandomUniform", "ReadVariableOp", "PyFunc", "PrintV2", "NoSuchOp"):
        assert facts(op("o", type).op) is None


@pytest.mark.parametrize(
    ("type", "reason"),
    [
        ("RandomUniform", "stateful, running it again would draw a new value"),
        ("ReadVariableOp", "reads a variable, which may have changed since"),
        ("PyFunc", "PyFunc is not known to be safe to run twice"),
    ],
)
def test_refusals_are_in_words(type, reason):
    assert why_never_twice(op("o", type).op) == reason


def branch(*drawn):
    net = make_net({"x": "f[]"}, drawn, ["y"])
    return op("if", "If", "p x", "f[]", nets={"then_branch": net, "else_branch": net}).op


def test_a_branch_may_run_twice_if_all_that_it_holds_may():
    assert facts(branch(op("y", "Tanh", "x", "f[]"))) is not None
    tainted = branch(op("y", "Tanh", "x", "f[]"), op("r", "RandomUniform", "", "f[]"))
    assert facts(tainted) is None
    assert why_never_twice(tainted) == "holds an op that may not run twice"


def test_a_loop_with_lists_inside_is_pure_as_a_whole():
    def loop(type):
        body = make_net(
            {"i": "i[]", "l": "v[]"},
            [
                const("one", 1),
                op("next", "AddV2", "i one", "i[]"),
                op("set", type, "l i i", "v[]"),
            ],
            ["next", "set"],
        )
        return while_op("loop", "a b", body).op

    assert is_pure(loop("TensorListSetItem"))
    assert not is_pure(loop("AssignVariableOp"))
    # Outside a loop that runs as a whole a list is not written twice.
    assert facts(op("o", "TensorListSetItem", "l i i", "v[]").op) is None


def work(type, inputs, result, **attributes):
    kinds = {f"x{i}": kind for i, kind in enumerate(inputs)}
    drawn = op("y", type, " ".join(kinds), result, attributes=attributes)
    return arithmetic(drawn.op, make_net(kinds, [drawn], ["y"]))


def test_the_work_of_a_product_is_two_operations_a_term():
    operations, moved = work("MatMul", ["f[8,32]", "f[32,4]"], "f[8,4]")
    assert operations == 2 * 8 * 32 * 4
    assert moved == 4 * (8 * 32 + 32 * 4 + 8 * 4)
    assert work("MatMul", ["f[32,8]", "f[32,4]"], "f[8,4]", transpose_a=True)[0] == operations
    batched = work("BatchMatMulV2", ["f[5,32,8]", "f[5,32,4]"], "f[5,8,4]", adj_x=True)
    assert batched[0] == 5 * operations


def test_a_view_costs_nothing_and_a_copy_its_bytes():
    assert work("Reshape", ["f[8]", "i[1]"], "f[2,4]") == (0, 0)
    assert work("Tile", ["f[8]", "i[1]"], "f[16]") == (0, 2 * 16 * 4)


def test_a_sum_passes_over_what_it_reads():
    assert work("Sum", ["f[100]", "i[1]"], "f[]")[0] >= 100


def test_an_unknown_dimension_counts_as_64():
    assert work("Tanh", ["f[?]"], "f[?]") == work("Tanh", ["f[64]"], "f[64]")


def test_a_branch_costs_its_dearer_side():
    def side(*drawn):
        return make_net({"x": "f[1000]"}, drawn, [drawn[-1].op.name])

    cheap, dear = side(op("y", "Abs", "x", "f[1000]")), side(op("y", "Pow", "x x", "f[1000]"))
    both = op("if", "If", "p x", "f[1000]", nets={"then_branch": cheap, "else_branch": dear})
    net = make_net({"p": "z[]", "x": "f[1000]"}, [both], ["if"])
    assert arithmetic(both.op, net) == arithmetic(dear.ops[0], dear)


def test_weights_are_positive_and_views_cost_nothing():
    for type, known in TABLE.items():
        assert known.weight > 0, type
        assert not known.view or known.work is Work.NONE, type

"""The table of op types against TensorFlow's registry, and the rules that read it."""

import ast
import math
import re
from pathlib import Path

import pytest

from rnnmem.ir import op_types, op_words
from rnnmem.ir.op_table import (
    MAY_RERUN,
    ROW,
    TABLE,
    Work,
    acts,
    arithmetic,
    column,
    effect,
    facts,
    is_pure,
    types,
    why_never_twice,
)
from tests.handmade import const, make_net, op, while_op

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def registry():
    """TensorFlow's own description of each op type of the table that is not ours."""
    from rnnmem.tf import private

    return {type: private.op_def(type) for type in TABLE.keys() - types("ours")}


def test_every_type_is_registered_or_declared_ours(registry):
    from rnnmem.tf import private

    assert not [type for type, known in registry.items() if known is None]
    assert not [type for type in types("ours") if private.op_def(type) is not None]


def test_what_may_run_twice_or_go_is_not_stateful(registry):
    pure = (MAY_RERUN | types("pure")) & registry.keys()
    assert not [type for type in pure if registry[type].is_stateful]


def test_what_leaves_something_behind_is_stateful(registry):
    leaving = types("effect")
    assert not [type for type in leaving if not registry[type].is_stateful]


def test_inputs_in_any_order_are_those_of_the_registry(registry):
    # Grappler takes Add for commutative though the registry does not say so (op_types.cc).
    known = {type for type, found in registry.items() if found.is_commutative}
    assert types("commutes") == known | {"Add"}


def test_nets_stand_in_attributes_that_are_functions(registry):
    for type, names in column("nets").items():
        kinds = {attr.name: attr.type for attr in registry[type].attr}
        assert {kinds[name] for name in names.split(",")} <= {"func", "list(func)"}


def test_inputs_that_columns_name_are_there(registry):
    for word in ("puts", "sized", "sign"):
        for type, slot in column(word).items():
            assert int(slot) < len(registry[type].input_arg), (type, word)


def test_the_table_is_sorted_and_names_nothing_twice():
    # The text itself: a dict would swallow a key that stands there twice.
    keys = [row.split()[0] for row in op_types.ROWS.strip().splitlines()]
    assert keys == sorted(set(keys))


def test_every_word_is_used_and_a_new_one_must_be_explained():
    used = {
        word.partition("=")[0] for row in op_types.ROWS.splitlines() for word in row.split()[1:]
    }
    assert used == op_words.WORDS.keys()
    with pytest.raises(KeyError, match="no op type has commute"):
        types("commute")


TABLES = ast.Set, ast.Tuple, ast.List, ast.Dict


def named_in_tables(source: str, registered) -> list[int]:
    """Lines of literals that name two op types or more."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, TABLES):
            items = node.keys if isinstance(node, ast.Dict) else node.elts
            plain = [one.value if isinstance(one, ast.Starred) else one for one in items]
            values = [one.value for one in plain if isinstance(one, ast.Constant)]
            if sum(isinstance(one, str) and registered(one) for one in values) > 1:
                found.append(node.lineno)
    return found


def test_no_other_file_has_a_table_of_op_types():
    from rnnmem.tf import private

    def registered(name: str) -> bool:
        return private.op_def(name) is not None

    own = {ROOT / "rnnmem/ir/op_table.py", ROOT / "rnnmem/ir/op_types.py"}
    others = set((ROOT / "rnnmem").rglob("*.py")) - own
    assert len(others) > 100
    tables = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted(others)
        if path.parent.name != "verify" and path.parents[1].name != "verify"
        for line in named_in_tables(path.read_text(encoding="utf-8"), registered)
    ]
    assert not tables, "ask rnnmem.ir.op_table instead"


def test_a_table_is_found_in_each_of_its_shapes():
    def registered(name):
        return name in ("Mul", "Tile", "Sum")

    for source in (
        'x = frozenset({"Mul", "Tile"})',
        'x = {"Mul": 1, "Tile": 2}',
        'y = op.type in ("Mul", "other", "Sum")',
        'z = [*("Mul", "Sum"), "Tile"]',
    ):
        assert named_in_tables(source, registered)
    for source in ('x = op.type == "Mul" or op.type == "Sum"', 'x = {"Mul", "other"}'):
        assert not named_in_tables(source, registered)


@pytest.mark.parametrize(
    ("type", "leaves"),
    [
        ("Assign", "variable"),
        ("AssignVariableOp", "variable"),
        ("ResourceApplyAdam", "variable"),
        ("StatefulUniform", "variable"),
        ("IteratorGetNext", "iterator"),
        ("LookupTableInsertV2", "table"),
        ("RandomUniform", "draws"),
        ("PrintV2", "seen"),
        ("ReadVariableOp", "reads"),
        ("TensorArrayV3", "none"),
        ("While", "none"),
        ("Tanh", "none"),
        ("QueueEnqueueV2", None),
    ],
)
def test_what_a_run_leaves_behind(type, leaves):
    assert effect(type) == leaves


def test_reading_a_variable_and_looping_are_no_effects():
    assert not acts(op("o", "ReadVariableOp", stateful=True).op)
    assert not acts(op("o", "While", stateful=True).op)
    assert acts(op("o", "RandomUniform", stateful=True).op)
    assert not acts(op("o", "Tanh").op)


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


def elements(*kinds):
    return sum(math.prod(map(int, re.findall(r"\d+", kind))) for kind in kinds)


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


def test_the_gradients_of_a_convolution_are_more_work_than_it():
    image, kernel, result = "f[2,8,8,3]", "f[3,3,3,16]", "f[2,8,8,16]"
    once = 2 * (2 * 8 * 8 * 16) * (3 * 3 * 3)
    assert work("Conv2D", [image, kernel], result)[0] == 1.2 * once
    assert work("Conv2DBackpropInput", ["i[4]", kernel, result], image)[0] == 1.5 * once
    assert work("Conv2DBackpropFilter", [image, "i[4]", result], kernel)[0] == 2 * once
    depthwise = work("DepthwiseConv2dNative", [image, "f[3,3,3,2]"], "f[2,8,8,6]")[0]
    assert depthwise == 10 * 2 * (2 * 8 * 8 * 6) * (3 * 3)


def test_what_is_broadcast_is_read_for_each_number_that_is_written():
    assert work("Add", ["f[8,4]", "f[1,4]"], "f[8,4]")[1] == 3 * 8 * 4 * 4
    assert work("Add", ["f[8,4]", "f[]"], "f[8,4]")[1] == (2 * 8 * 4 + 1) * 4


def test_a_copy_that_weighs_more_is_work_for_each_number_it_writes():
    assert work("ReverseSequence", ["f[4,8]", "i[4]"], "f[4,8]") == (20 * 4 * 8, 2 * 4 * 8 * 4)


def test_a_view_costs_nothing_and_a_copy_its_bytes():
    assert work("Reshape", ["f[8]", "i[1]"], "f[2,4]") == (0, 0)
    assert work("Gather", ["f[8,2]", "i[4]"], "f[4,2]")[1] == 2 * 8 * 4
    assert work("Tile", ["f[8]", "i[1]"], "f[16]") == (ROW, 2 * 16 * 4)


def test_a_sum_passes_over_what_it_reads():
    assert work("Sum", ["f[100]", "i[1]"], "f[]")[0] >= 100


@pytest.mark.parametrize(
    "type, inputs, result, rows",
    [
        ("Sum", ["f[6,5,3]", "i[1]"], "f[6,5]", 30),
        ("Sum", ["f[6,5,3]", "i[1]"], "f[6,5,1]", 30),
        ("Sum", ["f[6,5,3]", "i[1]"], "f[6,3]", 0),
        ("Sum", ["f[6,3,3]", "i[1]"], "f[6,3]", 18),  # which of the two it is is not known
        ("Sum", ["f[6,5,3]", "i[3]"], "f[]", 0),
        ("Sub", ["f[1,5,3]", "f[6,1,3]"], "f[6,5,3]", 60),
        ("Sub", ["f[6,5,3]", "f[6,1,3]"], "f[6,5,3]", 30),
        ("Sub", ["f[6,5,3]", "f[6,5,3]"], "f[6,5,3]", 0),
        ("Mul", ["f[6,5,3]", "f[]"], "f[6,5,3]", 0),
        ("Tile", ["f[1,3]", "i[2]"], "f[6,3]", 6),
        ("ConcatV2", ["f[6,2]", "f[6,3]", "i[]"], "f[6,5]", 6),
        ("ConcatV2", ["f[2,5]", "f[4,5]", "i[]"], "f[6,5]", 0),
        ("Split", ["i[]", "f[6,4]"], "f[6,2] f[6,2]", 6),
        ("AddN", ["f[6,5]", "f[6,5]"], "f[6,5]", 0),
    ],
)
def test_rows_that_an_op_tells_apart_cost_something_each(type, inputs, result, rows):
    known = TABLE[type]
    passed = {
        Work.MOVES: 0,
        Work.POINTWISE: elements(*result.split()),
        Work.READS: elements(*inputs),
    }
    assert work(type, inputs, result)[0] == known.weight * passed[known.work] + ROW * rows


@pytest.mark.parametrize(
    "type, inputs, result, rows",
    [
        ("Gather", ["f[8,2]", "i[4]"], "f[4,2]", 4),
        ("GatherV2", ["f[8,2]", "i[4,3]", "i[]"], "f[4,3,2]", 12),
        ("GatherV2", ["f[5,8,2]", "i[3]", "i[]"], "f[5,3,2]", 15),
        ("GatherV2", ["f[5,8,2]", "i[3]", "i[]"], "f[5,8,3]", 120),
        ("GatherV2", ["f[5,8]", "i[5,3]", "i[]"], "f[5,3]", 15),  # a batch of each
        ("GatherV2", ["f[5,?]", "i[5,?]", "i[]"], "f[5,?]", 5 * 64),
        ("GatherNd", ["f[5,8,2]", "i[3,4,2]"], "f[3,4,2]", 12),
        ("ScatterNd", ["i[7,1]", "f[7,2]", "i[2]"], "f[9,2]", 7),
        ("TensorScatterUpdate", ["f[9,2]", "i[7,1]", "f[7,2]"], "f[9,2]", 7),
        ("UnsortedSegmentSum", ["f[6,2]", "i[6]", "i[]"], "f[9,2]", 6),
    ],
)
def test_rows_that_indices_tell_cost_something_each(type, inputs, result, rows):
    each = float(column("each")[type])
    weight = TABLE[type].weight if TABLE[type].work is Work.READS else 0.0
    assert work(type, inputs, result)[0] == weight * elements(*inputs) + each * rows


def test_an_unknown_dimension_counts_as_64_but_for_those_beyond_the_third():
    assert work("Tanh", ["f[?]"], "f[?]") == work("Tanh", ["f[64]"], "f[64]")
    assert work("Tanh", ["f[?,?,?,?,2]"], "f[?,?,?,?,2]") == work(
        "Tanh", ["f[64,64,64,2]"], "f[64,64,64,2]"
    )


def test_what_is_the_same_numbers_as_a_known_shape_is_as_large():
    ops = [op("y", "Reshape", "x shape", "f[?,?]"), op("s", "Sum", "y shape", "f[]")]
    net = make_net({"x": "f[8,3]", "shape": "i[?]"}, ops, ["s"])
    known = make_net({"x": "f[24]", "shape": "i[?]"}, [op("s", "Sum", "x shape", "f[]")], ["s"])
    assert arithmetic(net.op_by_name["s"], net) == arithmetic(known.op_by_name["s"], known)


@pytest.mark.parametrize(("exponent", "easy"), [(3.0, True), (-0.5, True), (2, True), (2.5, False)])
def test_a_power_that_a_graph_optimizer_makes_products_of_costs_as_little(exponent, easy):
    power, root = op("y", "Pow", "x n", "f[1000]"), op("z", "Sqrt", "x", "f[1000]")
    net = make_net({"x": "f[1000]"}, [const("n", exponent), power, root], ["y", "z"])
    assert (arithmetic(power.op, net)[0] == arithmetic(root.op, net)[0]) == easy


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
        assert not known.view or known.work is Work.NONE or type not in MAY_RERUN, type

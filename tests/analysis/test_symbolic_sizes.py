"""Sizes that only a run tells have names, and equal names are equal sizes."""

import pytest

from rnnmem.analysis.shapes import known_net
from rnnmem.analysis.symbolic_sizes import SymbolicSizes, broadcasts_itself, sizing_ops
from tests.handmade import const, make_net, op

A, B = ("a", 0), ("b", 0)


def sizes(blob, *ops, **inputs):
    kinds = {"x": "f[?,?,8]", "y": "f[?,1,8]", **inputs}
    net = make_net(kinds, ops, [ops[-1].op.name])
    return SymbolicSizes(known_net(net)).of(blob)


def test_an_input_names_its_own_and_what_is_told_its_shape_has_them_too():
    ops = [op("s", "Shape", "x", "i[3]"), op("r", "BroadcastTo", "y s", "f[?,?,8]")]
    assert sizes("x", *ops) == sizes("r", *ops) == (("x", 0), ("x", 1), 8)


def test_a_pointwise_op_keeps_what_it_reads_and_names_what_two_may_differ_in():
    ops = [op("t", "Tanh", "x", "f[?,?,8]"), op("p", "Mul", "t y", "f[?,?,8]")]
    assert sizes("t", *ops) == (("x", 0), ("x", 1), 8)
    assert sizes("p", *ops) == (("p", 0), ("x", 1), 8)  # either batch may be 1


def test_a_number_beside_a_name_is_that_number_in_every_run():
    ops = [op("p", "Add", "x z", "f[?,?,8]")]
    assert sizes("p", *ops, z="f[4,1,8]") == (4, ("x", 1), 8)


@pytest.mark.parametrize("kind", ["i[2]", "i[]"])
def test_the_shape_that_a_sum_leaves_has_ones(kind):
    ops = [
        op("s", "Shape", "x", "i[3]"),
        const("places", (0, 1, 2)),
        const("axes", 1 if kind == "i[]" else (0, 1)),
        const("ones", 1 if kind == "i[]" else (1, 1)),
        op("left", "DynamicStitch", "places axes s ones", "i[3]"),
        op("r", "Reshape", "g left", "f[?,?,?]"),
    ]
    first = ("x", 0) if kind == "i[]" else 1
    assert sizes("r", *ops, g="f[?]") == (first, 1, 8)


def test_axes_that_are_added_and_sizes_that_are_packed():
    ops = [
        op("s", "Shape", "x", "i[3]"),
        const("axis", -2),
        op("e", "ExpandDims", "x axis", "f[?,?,1,8]"),
        const("one", (1,)),
        const("two", (2,)),
        const("step", (1,)),
        op(
            "n",
            "StridedSlice",
            "s one two step",
            "i[]",
            attributes={"shrink_axis_mask": 1},
        ),
        const("eight", 8),
        op("v", "Pack", "n eight", "i[2]"),
        op("r", "Reshape", "g v", "f[?,?]"),
    ]
    assert sizes("e", *ops, g="f[?]") == (("x", 0), ("x", 1), 1, 8)
    assert sizes("r", *ops, g="f[?]") == (("x", 1), 8)


def test_what_is_left_of_a_reshape_is_a_size_of_its_own():
    told = [const("left", (-1, 8)), const("minus", -1), const("eight", 8)]
    packed = op("v", "Pack", "minus eight", "i[2]")
    for vector in ("left", "v"):
        ops = [*told, packed, op("r", "Reshape", f"x {vector}", "f[?,8]")]
        assert sizes("r", *ops) == (("r", 0), 8)


@pytest.mark.parametrize("keep", [False, True])
def test_a_reduction_drops_its_axes(keep):
    ops = [
        const("axes", (-2,)),
        op(
            "r",
            "Sum",
            "x axes",
            "f[?,1,8]" if keep else "f[?,8]",
            attributes={"keep_dims": keep},
        ),
    ]
    assert sizes("r", *ops) == ((("x", 0), 1, 8) if keep else (("x", 0), 8))


def test_rows_of_a_product_and_of_a_lookup_are_those_of_what_is_multiplied_and_looked_up():
    product = op("r", "BatchMatMulV2", "x w", "f[?,?,4]")
    assert sizes("r", product, w="f[8,4]") == (("x", 0), ("x", 1), 4)
    turned = op("r", "MatMul", "u w", "f[?,4]", attributes={"transpose_a": True})
    assert sizes("r", turned, u="f[8,?]", w="f[8,4]") == (("u", 1), 4)
    lookup = [const("first", 0), op("r", "GatherV2", "t i first", "f[?,?,4]")]
    assert sizes("r", *lookup, t="f[9,4]", i="i[?,?]") == (("i", 0), ("i", 1), 4)


def test_a_slice_keeps_the_axes_that_it_takes_whole():
    ops = [
        const("begin", (0, 0, 1)),
        const("end", (0, 0, 5)),
        const("steps", (1, 1, 1)),
        op(
            "r",
            "StridedSlice",
            "x begin end steps",
            "f[?,1,?,8]",
            attributes={"begin_mask": 1, "end_mask": 1, "new_axis_mask": 2},
        ),
    ]
    assert sizes("r", *ops) == (("x", 0), 1, ("r", 2), 8)


def test_a_long_chain_is_followed():
    ops = [op("t0", "Tanh", "x", "f[?,?,8]")]
    ops += [op(f"t{i}", "Tanh", f"t{i - 1}", "f[?,?,8]") for i in range(1, 3000)]
    assert sizes("t2999", *ops) == (("x", 0), ("x", 1), 8)


@pytest.mark.parametrize(
    ("source", "made", "other", "does"),
    [
        ((A, 1), (A, 4), (A, 4), True),
        ((A, 1), (A, 4), (4,), True),
        ((A, 1), (A, 4), (B, 4), True),  # as they are without it
        ((A, 1), (A, 4), (A, 1), False),  # one column would be left
        ((A, 1), (A, 4), (A, B), False),
        ((A, 1), (A, B), (A, B), True),
        ((A, 1), (A, B), (A, 4), True),  # b is 4, or 1
        ((A, 1), (A, B), (A, A), False),
        ((3, 4), (6, 4), (6, 4), False),  # a Tile of more than one
        ((A, 4), (B, 4), (B, 4), False),
        ((4,), (A, 4), (A, 4), True),
        ((4,), (A, 4), (4,), False),
        ((0, 1), (0, 4), (1, 4), True),
        (None, (A, 4), (A, 4), False),
    ],
)
def test_an_op_broadcasts_itself_where_what_it_reads_beside_is_as_large(source, made, other, does):
    assert broadcasts_itself(source, made, other) == does


@pytest.mark.parametrize(
    ("attributes", "made"),
    [
        ({}, (("x", 0), ("x", 1), ("x", 2))),
        ({"adj_x": True}, (("x", 0), ("x", 2), ("x", 2))),
        ({"adj_y": True}, (("x", 0), ("x", 1), ("x", 1))),
    ],
)
def test_batched_products_have_rows_of_one_and_columns_of_the_other(attributes, made):
    ops = [
        op("q", "Tanh", "x", "f[?,?,?]"),
        const("order", (0, 1, 2)),
        op("k", "Transpose", "q order", "f[?,?,?]"),
        op("p", "BatchMatMulV2", "q k", "f[?,?,?]", attributes=attributes),
    ]
    assert sizes("p", *ops, x="f[?,?,?]") == made


def test_a_product_with_other_batches_names_its_own():
    ops = [op("p", "BatchMatMulV2", "x z", "f[?,?,?]")]
    assert sizes("p", *ops, x="f[?,?,8]", z="f[?,8,?]") == (("p", 0), ("x", 1), ("z", 2))
    ops = [op("p", "BatchMatMulV2", "x z", "f[?,?,?]")]
    assert sizes("p", *ops, x="f[?,?,8]", z="f[8,?]") == (("x", 0), ("x", 1), ("z", 1))


def test_a_transpose_takes_the_names_along():
    ops = [const("order", (2, 0, 1)), op("t", "Transpose", "x order", "f[8,?,?]")]
    assert sizes("t", *ops) == (8, ("x", 0), ("x", 1))


def test_an_op_makes_a_size_that_no_blob_had_before():
    ops = [
        op("t", "Tanh", "x", "f[?,?,8]"),
        const("axis", 1),
        op("c", "ConcatV2", "x y axis", "f[?,?,8]"),
        op("p", "Mul", "c t", "f[?,?,8]"),
    ]
    known = known_net(make_net({"x": "f[?,?,8]", "y": "f[?,1,8]"}, ops, ["p"]))
    assert sizing_ops(known, {"t", "c", "p"}) >= {"c"} and "t" not in sizing_ops(known, {"t", "c"})
    assert not sizing_ops(known, {"t"})

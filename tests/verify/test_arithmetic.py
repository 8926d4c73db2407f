"""Flat graphs, drawn by hand: which have the same arithmetic, and which have not."""

import pytest

from rnnmem.verify.arithmetic import Half, difference
from rnnmem.verify.flat_graph import FlatGraph, FlatOp


def op(name, type, *inputs, dtype="float32", **more):
    """``b:1`` is output 1 of ``b``; more than one dtype: more outputs."""
    blobs = tuple((one.partition(":")[0], int(one.partition(":")[2] or 0)) for one in inputs)
    dtypes = (dtype,) if isinstance(dtype, str) else dtype
    return FlatOp(name, type, blobs, dtypes, **more)


def arguments(*names):
    return [op(name, "_Arg", index=at) for at, name in enumerate(names)]


def results(*blobs):
    return [op(f"r{at}", "_Retval", blob, dtype=(), index=at) for at, blob in enumerate(blobs)]


def compared(before, after):
    return difference([Half(FlatGraph(before))], [Half(FlatGraph(after))])


X, Y, Z = arguments("x", "y", "z")


def made(*ops, result="out"):
    return [X, Y, Z, *ops, *results(result)]


NESTED = made(op("xy", "AddV2", "x", "y"), op("out", "AddV2", "xy", "z"))


@pytest.mark.parametrize(
    "other",
    [
        made(op("yx", "AddV2", "y", "x"), op("out", "Add", "z", "yx")),
        made(op("out", "AddN", "x", "y", "z")),
        made(
            op("one", "Identity", "z"), op("xy", "AddN", "x", "y"), op("out", "AddV2", "xy", "one")
        ),
    ],
)
def test_sums_of_the_same_in_the_same_order_are_one(other):
    assert compared(NESTED, other) is None


@pytest.mark.parametrize(
    "other, named",
    [
        (made(op("yz", "AddV2", "y", "z"), op("out", "AddV2", "x", "yz")), "yz"),
        (made(op("out", "AddN", "z", "y", "x")), "out"),
        (made(op("xy", "AddV2", "x", "y"), op("out", "Sub", "xy", "z")), "out"),
    ],
)
def test_another_order_or_op_is_named(other, named):
    assert compared(NESTED, other) == named


def accumulated(*blobs):
    """What the memory optimizer makes of a sum."""
    adding = [op(f"add_{one}", "AssignAdd", "start", one) for one in blobs]
    start = op("start", "Assign", "variable", "zeros")
    ends = op("out", "DestroyTemporaryVariable", "start")
    zeros = op("zeros", "Const", value=("fill", 0.0))
    return made(ends, *adding, start, op("variable", "TemporaryVariable"), zeros)


def test_a_sum_of_the_original_that_adds_as_values_come_may_add_in_any_order():
    as_they_come = accumulated("x", "y", "z")
    assert compared(as_they_come, accumulated("z", "x", "y")) is None
    assert compared(as_they_come, made(op("out", "AddN", "z", "y", "x"))) is None
    assert compared(as_they_come, accumulated("x", "y")) is not None
    assert compared(as_they_come, made(op("out", "AddN", "x", "x", "y"))) == "out"


def test_no_sum_begins_to_add_as_values_come():
    assert compared(made(op("out", "AddN", "x", "y", "z")), accumulated("x", "y", "z")) is not None
    assert compared(made(op("out", "AddN", "x", "y")), accumulated("y", "x")) is None


def test_attributes_and_constants_count():
    def product(value=2.0, detail=()):
        constant = op("c", "Const", value=("fill", value))
        return made(constant, op("out", "MatMul", "x", "c", detail=detail))

    assert compared(product(), product()) is None
    assert compared(product(), product(3.0)) == "c"
    assert compared(product(), product(detail=(("transpose_a", b"1"),))) == "out"


def test_a_sum_of_three_begins_with_what_it_may_overwrite():
    def held(push):
        kept = [op("s", "Sin", "x"), op("c", "Cos", "y")]
        sums = [op("n", "Neg", "z"), op("out", "AddN", "s", "c", "n")]
        lists = [
            op("list", "EmptyTensorList", dtype="variant"),
            op("pushed", "TensorListPushBack", "list", push, dtype="variant"),
            *results("out", "pushed"),
        ]
        return [X, Y, Z, *kept, *sums, *lists]

    only = Half(FlatGraph(held("s")), results=1)
    # With s held it begins with c, which two of three in any order are; with s and c alike, too.
    assert difference([only], [Half(FlatGraph(held("c")), results=1)]) is None
    both = [*held("s"), op("again", "TensorListPushBack", "pushed", "c", dtype="variant")]
    both = [one for one in both if one.name != "r1"] + results("out", "again")[1:]
    assert difference([only], [Half(FlatGraph(both), results=1)]) == "out"


def test_what_a_custom_gradient_hands_on_is_held_with_what_it_read():
    def half(*pushed):
        kept = [op("s", "Sin", "x"), op("c", "Cos", "y"), op("n", "Neg", "z")]
        both = op("both", "IdentityN", "s", "c", dtype=("float32", "float32"))
        lists = [op("list", "EmptyTensorList", dtype="variant")]
        for at, one in enumerate(pushed):
            given = lists[-1].name
            lists.append(op(f"list{at}", "TensorListPushBack", given, one, dtype="variant"))
        sums = [both, op("out", "AddN", "both:0", "n", "both:1")]
        ops = [X, Y, Z, *kept, *sums, *lists, *results("out", lists[-1].name)]
        return [Half(FlatGraph(ops), results=1)]

    assert difference(half("s"), half("both:0")) is None
    assert difference(half("c", "s"), half("both:0", "both:1")) is None
    assert difference(half("c"), half("s", "n")) == "out"
    assert difference(half("both:1"), half("both:0", "n")) == "out"


@pytest.mark.parametrize(
    "addends, named", [("a b c", None), ("c a b", None), ("a c b", None), ("s s n", "out")]
)
def test_a_sum_holds_what_it_reads_twice(addends, named):
    """It begins with the third then: what is added twice is never overwritten."""
    kinds = [op("s", "Sin", "x"), op("c", "Cos", "y"), op("n", "Neg", "y")]
    views = [op("a", "Reshape", "s", "z"), op("b", "Reshape", "s", "z")]
    before = made(*kinds, op("out", "AddN", "s", "s", "c"))
    assert compared(before, made(*kinds, *views, op("out", "AddN", *addends.split()))) == named
    first = made(*kinds, op("cs", "AddV2", "c", "s"), op("out", "AddV2", "cs", "s"))
    last = made(*kinds, op("ss", "AddV2", "s", "s"), op("out", "AddV2", "ss", "c"))
    assert compared(before, first) is None and compared(before, last) == "ss"


@pytest.mark.parametrize(
    "addends, named", [("s c n m", None), ("s n c m", "out"), ("c n m s", "out")]
)
def test_a_race_for_a_buffer_is_over_where_one_is_free(addends, named):
    """Which of others may be overwritten matters to nobody behind the first that always may."""
    kinds = [op("s", "Sin", "x"), op("c", "Cos", "y"), op("n", "Neg", "z"), op("m", "Exp", "z")]

    def summed(names, raced):
        reader = [op("also", "Sum", "s", "z"), op("more", "Sum", raced, "z")]
        total = op("out", "AddN", *names.split())
        return [X, Y, Z, *kinds, *reader, total, *results("out", "also", "more")]

    def first(ops):
        return Half(FlatGraph(ops), results=1)

    found = difference([first(summed("s c n m", "x"))], [first(summed(addends, "m"))])
    assert found == named
    # With every one of them raced for, it may begin with any.
    assert difference([first(summed("s c n m", "x"))], [first(summed("s c n m", "c"))]) == "out"


@pytest.mark.parametrize("waits, named", [(("there",), None), ((), "out")])
def test_what_a_sum_waits_for_has_let_go_of_its_addend(waits, named):
    ops = [op("s", "Sin", "x"), op("c", "Cos", "y"), op("n", "Neg", "z", after=waits)]
    there = op("there", "PlaceholderWithDefault", "s")
    sum_ = op("out", "AddN", "s", "c", "n")
    before = [op("s", "Sin", "x"), op("c", "Cos", "y"), op("n", "Neg", "z")]
    assert compared(made(*before, sum_), made(*ops, there, sum_)) == named


def loop(step, start="x", name="while", push=None):
    """``h' = step(h)``, its states pushed where ``push`` names one; ends as ``{name}_exit``."""
    ops = [
        op(f"{name}_enter", "Enter", start, frame=name),
        op(f"{name}_merge", "Merge", f"{name}_enter", f"{name}_next", dtype=("float32", "int32")),
        op(f"{name}_switch", "Switch", f"{name}_merge", dtype=("float32", "float32")),
        *step(f"{name}_switch:1", f"{name}_new"),
        op(f"{name}_next", "NextIteration", f"{name}_new"),
        op(f"{name}_exit", "Exit", f"{name}_switch"),
    ]
    if push is None:
        return ops
    variant = ("variant", "variant")
    return [
        *ops,
        op(f"{name}_list", "EmptyTensorList", dtype="variant"),
        op(f"{name}_l_enter", "Enter", f"{name}_list", dtype="variant", frame=name),
        op(
            f"{name}_l_merge",
            "Merge",
            f"{name}_l_enter",
            f"{name}_l_next",
            dtype=("variant", "int32"),
        ),
        op(f"{name}_l_switch", "Switch", f"{name}_l_merge", dtype=variant),
        op(f"{name}_push", "TensorListPushBack", f"{name}_l_switch:1", push, dtype="variant"),
        op(f"{name}_l_next", "NextIteration", f"{name}_push", dtype="variant"),
        op(f"{name}_l_exit", "Exit", f"{name}_l_switch", dtype="variant"),
    ]


def tanh_of(*types):
    def step(state, new):
        ops, last = [], state
        for at, type in enumerate(types):
            name = new if at == len(types) - 1 else f"{new}_{at}"
            ops.append(op(name, type, last))
            last = name
        return ops

    return step


def test_loops_are_one_by_what_an_iteration_does():
    before = [*arguments("x", "y"), *loop(tanh_of("Tanh", "Sin")), *results("while_exit")]
    same = [*arguments("x", "y"), *loop(tanh_of("Tanh", "Sin"), name="w"), *results("w_exit")]
    other = [*arguments("x", "y"), *loop(tanh_of("Sin", "Tanh")), *results("while_exit")]
    start = [*arguments("x", "y"), *loop(tanh_of("Tanh", "Sin"), "y"), *results("while_exit")]
    assert compared(before, same) is None
    assert compared(before, other) is not None
    assert compared(before, start) is not None


def popped(*more, last):
    pop = op("pop", "TensorListPopBack", "while_l_exit", dtype=("variant", "float32"))
    return [X, pop, *more, op("gradient", "TanhGrad", last, last), *results("gradient")]


def test_a_clone_has_the_number_of_what_was_popped():
    saved = [*loop(tanh_of("Tanh"), push="while_new"), *popped(last="pop:1")]
    clone = [op("barrier", "PlaceholderWithDefault", "pop:1"), op("again", "Tanh", "barrier")]
    again = [*loop(tanh_of("Tanh"), push="while_switch:1"), *popped(*clone, last="again")]
    assert compared(saved, again) is None
    wrong = [*loop(tanh_of("Tanh"), push="while_switch:1"), *popped(*clone, last="barrier")]
    assert compared(saved, wrong) == "gradient"


def test_a_replay_has_the_states_of_the_loop_that_it_runs_again():
    saved = [*loop(tanh_of("Tanh"), push="while_new"), *popped(last="pop:1")]

    def replayed(step):
        replay = loop(step, "pop:1", "rnnmem/again", push="rnnmem/again_new")
        pop = op("p", "TensorListPopBack", "rnnmem/again_l_exit", dtype=("variant", "float32"))
        forward = loop(tanh_of("Tanh"), push="while_switch:1")
        return [*forward, *popped(*replay, pop, last="p:1")]

    assert compared(saved, replayed(tanh_of("Tanh"))) is None
    assert compared(saved, replayed(tanh_of("Sin"))) is not None


def test_what_is_written_counts():
    def written(value):
        handle = op("v", "_Arg", dtype="resource", index=3)
        return [*NESTED, handle, op("put", "AssignVariableOp", "v", value, dtype=())]

    assert compared(written("out"), written("out")) is None
    assert compared(written("out"), written("xy")) is not None
    assert compared(written("out"), NESTED) is not None


def test_the_second_half_reads_what_the_first_hands_out():
    first = Half(FlatGraph([X, op("t", "Tanh", "x"), *results("x", "t")]), results=1)
    fewer = Half(FlatGraph([X, *results("x")]), results=1)

    def second(*ops, last):
        given = op("given", "_Arg", index=0)
        return FlatGraph([given, *ops, op("g", "Sin", last), *results("g")])

    whole = Half(second(last="given"), {0: ("result", 1)})
    again = Half(second(op("t", "Tanh", "given"), last="t"), {0: ("argument", 0)})
    wrong = Half(second(op("t", "Cos", "given"), last="t"), {0: ("argument", 0)})
    assert difference([first, whole], [fewer, again]) is None
    assert difference([first, whole], [fewer, wrong]) == "t"


def test_one_row_has_the_number_of_what_it_is_a_row_of():
    ints = op("n", "Const", dtype="int32")
    new = op("new", "TensorListReserve", "n", "n", dtype="variant")

    def put(value):
        return [ints, new, op("held", "TensorListSetItem", "new", "n", value, dtype="variant")]

    def row_of_stack(mask):
        taken = op(
            "row", "StridedSlice", "all", "n", "n", "n", detail=(("shrink_axis_mask", mask),)
        )
        stacked = op("all", "TensorListStack", "held", "n")
        return made(*put("x"), stacked, taken, op("out", "Sin", "row"))

    def cut(mask):
        detail = (("shrink_axis_mask", mask),)
        zeros = op("zeros", "StridedSliceGrad", "n", "n", "n", "n", "x", detail=detail)
        rows = op("rows", "TensorListFromTensor", "zeros", "n", dtype="variant")
        got = op("got", "TensorListGetItem", "rows", "n", "n")
        return made(ints, zeros, rows, got, op("out", "Sin", "got"))

    def item(value):
        got = op("got", "TensorListGetItem", "held", "n", "n")
        return made(*put(value), got, op("out", "Sin", "got"))

    for whole in (row_of_stack, cut):
        assert compared(whole(b"\x18\x01"), item("x")) is None
        assert compared(whole(b"\x18\x01"), item("y")) == "out"
        assert compared(whole(b""), item("x")) == "out"


ROW = (("shrink_axis_mask", b"\x18\x01"),)


def test_a_row_of_values_side_by_side_is_one_of_them():
    straight = made(op("out", "Tanh", "x"))
    one = op("a", "Tanh", "x"), op("b", "Tanh", "x"), op("both", "Pack", "a", "b")
    assert compared(straight, made(*one, op("out", "StridedSlice", "both", detail=ROW))) is None
    other = op("a", "Tanh", "x"), op("b", "Cos", "x"), op("both", "Pack", "a", "b")
    assert compared(straight, made(*other, op("out", "StridedSlice", "both", detail=ROW)))


def batches(*order, again=(), named="{}/rnnmem/clone"):
    """The losses of three batches of whole numbers, which have one number, added up in an order."""
    rows = [op(f"i{at}", "Split", dtype="int32") for at in range(3)]
    table = op("t", "ResourceGather", "x", "i0")
    losses = [op(f"loss_{at}", "Mean", "t", f"i{at}") for at in range(3)]
    handed = [op(named.format(f"loss_{at}"), "Mean", "t", f"i{at}") for at in again]
    names = [named.format(f"loss_{at}") if at in again else f"loss_{at}" for at in order]
    ops = [X, *rows, table, *losses, *handed, op("out", "AddN", *names)]
    return [*ops, *results("out")]


def test_equal_looking_addends_go_by_their_names():
    assert compared(batches(0, 1, 2), batches(0, 1, 2)) is None
    assert compared(batches(0, 1, 2), batches(1, 2, 0)) == "out"
    assert compared(batches(0, 1, 2), batches(0, 1, 2, again=(1,))) is None
    assert compared(batches(0, 1, 2), batches(0, 2, 1, again=(1,))) == "out"


@pytest.mark.parametrize("named", ["grad/body/_7/rnnmem/again/{}", "rnnmem/again/{}", "a/_8/{}"])
def test_where_an_equal_looking_addend_runs_again_is_not_its_name(named):
    assert compared(batches(0, 1, 2), batches(0, 1, 2, again=(1,), named=named)) is None
    assert compared(batches(0, 1, 2), batches(1, 0, 2, again=(2,), named=named)) is None
    assert compared(batches(0, 1, 2), batches(0, 2, 1, again=(2,), named=named)) == "out"

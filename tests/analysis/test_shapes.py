"""What is known of loops, branches and lists holds in every iteration and in either branch."""

import pytest

from rnnmem.analysis.facts import Fact
from rnnmem.analysis.shapes import known_net
from rnnmem.ir.graph import DType
from tests.handmade import const, make_net, op, pop, push, while_op


def shape_of(net, blob, *path):
    known = known_net(net)
    for step in path:
        known = known.inner[step]
    return known.facts[blob].shape


def branch(*, then, otherwise, first="then_branch"):
    """An If that hands out one optional, made of ``x`` in one branch and of ``y`` in the other."""
    kinds = {"x": "f[16,32]", "y": "f[1]"}
    nets = {
        "then_branch": make_net(kinds, [then], ["o"], name="then"),
        "else_branch": make_net(kinds, [otherwise], ["o"], name="else"),
    }
    keys = sorted(nets, key=lambda key: key != first)
    taken = op("if", "If", "p x y", "v[]", nets={key: nets[key] for key in keys})
    value = op("value", "OptionalGetValue", "if", "f*")
    return make_net({"p": "z[]", **kinds}, [taken, value], ["value"])


def filled_with(blob):
    return op("o", "OptionalFromValue", blob, "v[]")


@pytest.mark.parametrize("first", ["then_branch", "else_branch"])
def test_an_optional_may_hold_what_either_branch_put_in(first):
    net = branch(then=filled_with("x"), otherwise=filled_with("y"), first=first)
    assert shape_of(net, "value") is None
    net = branch(then=filled_with("x"), otherwise=op("o", "OptionalNone", "", "v[]"), first=first)
    assert shape_of(net, "value") == (16, 32)


def test_an_optional_that_nobody_knows_may_hold_anything():
    net = branch(then=filled_with("x"), otherwise=op("o", "NobodyKnows", "y", "v[]"))
    assert shape_of(net, "value") is None


def rotating(trips):
    """a, b, c = b, c, c + c: a keeps its shape at first, as long as the new one is on its way."""
    state = {"i": "i[]", "a": "f[?]", "b": "f[?]", "c": "f[?]"}
    ops = [
        const("one", 1),
        const("axis", 0),
        op("next", "AddV2", "i one", "i[]"),
        op("longer", "ConcatV2", "c c axis", "f[?]"),
        op("seen", "Tanh", "a", "f[?]"),
    ]
    body = make_net(state, ops, ["next", "b", "c", "longer"], name="body")
    drawn = [const("zero", 0), while_op("loop", "zero x x x", body, limit=trips)]
    return make_net({"x": "f[2]"}, drawn, ["loop:1"])


def test_a_shape_that_changes_in_a_later_iteration_is_not_known():
    assert shape_of(rotating(9), "seen", ("loop", "body")) == (None,)
    assert shape_of(rotating(9), "loop:1") == (None,)


def test_a_loop_that_may_run_no_iteration_may_hand_on_what_it_was_given():
    ops = [
        *(const("one", 1), const("size", (4,)), const("any", 0.0)),
        op("next", "AddV2", "i one", "i[]"),
        op("fresh", "Fill", "size any", "f[?]"),
    ]
    body = make_net({"i": "i[]", "h": "f[?]"}, ops, ["next", "fresh"], name="body")
    loop = while_op("loop", "zero x", body, limit=3)
    known = make_net({"x": "f[2]"}, [const("zero", 0), loop], ["loop:1"])
    assert shape_of(known, "loop:1") == (4,)
    unknown = make_net({"x": "f[2]", "zero": "i[]"}, [loop], ["loop:1"])
    assert shape_of(unknown, "loop:1") == (None,)


def test_a_shape_that_stays_is_known():
    state = {"i": "i[]", "h": "f[?,8]"}
    ops = [const("one", 1), op("next", "AddV2", "i one", "i[]"), op("t", "Tanh", "h", "f[?,8]")]
    body = make_net(state, ops, ["next", "t"], name="body")
    drawn = [const("zero", 0), while_op("loop", "zero x", body)]
    assert shape_of(make_net({"x": "f[4,8]"}, drawn, ["loop:1"]), "loop:1") == (4, 8)


def listed(*pushed, read):
    ops = [
        const("any", (-1, -1)),
        const("most", -1),
        op("l0", "EmptyTensorList", "any most", "v[]"),
        *(push(f"l{i + 1}", f"l{i}", blob) for i, blob in enumerate(pushed)),
        const("index", 0),
        *read(f"l{len(pushed)}"),
    ]
    return make_net({"x": "f[4,8]", "y": "f[2,8]"}, ops, ["out"])


def test_what_a_list_holds_is_what_all_of_its_elements_are():
    def first(held):
        return [op("out", "TensorListGetItem", f"{held} index any", "f*")]

    assert shape_of(listed("x", "x", read=first), "out") == (4, 8)
    assert shape_of(listed("x", "y", read=first), "out") == (None, 8)


def test_what_was_pushed_last_is_popped_first():
    def last(held):
        return [pop("p", held, "f*"), pop("q", "p:0", "f*"), op("out", "Tanh", "p:1", "f*")]

    net = listed("y", "x", read=last)
    assert shape_of(net, "out") == (4, 8)
    assert shape_of(net, "q:1") == (2, 8)


def joined(*pushed, lengths=()):
    """The elements of a list as one blob, and that cut into a list again."""

    def read(held):
        asked = [const("rows", lengths)] if lengths else [op("rows", "Const", "", "i[0]")]
        return [
            *asked,
            op("out", "TensorListConcatV2", f"{held} any rows", "f[?,8] i[?]"),
            op("cut", "TensorListSplit", "out:0 any out:1", "v[]"),
        ]

    return known_net(listed(*pushed, read=read)).facts


def test_elements_as_one_blob_have_the_rows_of_all():
    facts = joined("x", "x", "x")
    assert facts["out:0"].shape == (12, 8) and facts["out:1"].shape == (3,)
    assert facts["cut"].length == 3 and facts["cut"].element.shape == (None, 8)


def test_where_elements_have_other_rows_or_lengths_are_given_only_a_run_counts_them():
    assert joined("x", "y")["out:0"].shape == (None, 8)
    facts = joined("x", "x", lengths=(4, 2))
    assert facts["out:0"].shape == (None, 8) and facts["cut"].length == 2


@pytest.mark.parametrize(
    ("places", "length"), [((0, 2), 3), ((1, 6), 7)], ids=["within", "behind the end"]
)
def test_a_scatter_may_lengthen_a_list(places, length):
    ops = [
        *(const("any", (-1,)), const("three", 3), const("places", places)),
        op("held", "TensorListReserve", "any three", "v[]"),
        op("more", "TensorListScatterIntoExistingList", "held rows places any", "v[]"),
        op("length", "TensorListLength", "more", "i[]"),
    ]
    known = known_net(make_net({"rows": "f[2,4]"}, ops, ["length"]))
    assert known.facts["length"].value == length


def looped(*ops, held="l", state="v[]"):
    """A loop over a list that begins empty, and the length that it has behind the loop."""
    ops = [const("one", 1), const("any", (-1,)), op("next", "AddV2", "i one", "i[]"), *ops]
    body = make_net({"i": "i[]", "l": state, "x": "f[4]"}, ops, ["next", held, "x"], name="body")
    drawn = [
        *(const("zero", 0), const("any", (-1,)), const("most", -1)),
        op("empty", "EmptyTensorList", "any most", "v[]"),
        while_op("loop", "zero empty x", body, limit=5),
        op("length", "TensorListLength", "loop:1", "i[]"),
    ]
    return known_net(make_net({"x": "f[4]"}, drawn, ["length"]))


def test_a_list_has_another_length_in_each_iteration():
    known = looped(op("count", "TensorListLength", "l", "i[]"), push("more", "l", "x"), held="more")
    assert known.facts["length"].value == 5
    assert known.inner["loop", "body"].facts["count"].value is None


def test_a_list_made_again_in_each_iteration_does_not_grow():
    fresh = [op("fresh", "EmptyTensorList", "any one", "v[]"), push("more", "fresh", "x")]
    assert looped(*fresh, held="more").facts["length"].value != 5


def test_lists_that_change_places_hold_what_both_were_given():
    kinds = {"i": "i[]", "l": "v[]", "m": "v[]", "x": "f[4]", "y": "f[2]"}
    ops = [
        *(const("one", 1), op("next", "AddV2", "i one", "i[]")),
        *(push("more", "l", "x"), push("other", "m", "y")),
    ]
    body = make_net(kinds, ops, ["next", "other", "more", "x", "y"], name="body")
    drawn = [
        *(const("zero", 0), const("any", (-1,)), const("most", -1)),
        op("empty", "EmptyTensorList", "any most", "v[]"),
        while_op("loop", "zero empty empty x y", body),
        op("first", "TensorListGetItem", "loop:1 zero any", "f*"),
    ]
    net = make_net({"x": "f[4]", "y": "f[2]"}, drawn, ["first"])
    assert shape_of(net, "first") == (None,)


def test_what_a_body_reads_of_a_list_holds_behind_the_first_iteration():
    kinds = {"i": "i[]", "l": "v[]", "m": "v[]", "x": "f[4]", "y": "f[2]"}
    ops = [
        *(const("one", 1), const("any", (-1,)), op("next", "AddV2", "i one", "i[]")),
        push("once", "l", "x"),
        op("seen", "TensorListGetItem", "once i any", "f*"),
        push("twice", "once", "y"),
    ]
    body = make_net(kinds, ops, ["next", "twice", "m", "x", "y"], name="body")
    drawn = [
        *(const("zero", 0), const("any", (-1,)), const("most", -1)),
        op("empty", "EmptyTensorList", "any most", "v[]"),
        while_op("loop", "zero empty empty x y", body),
    ]
    net = make_net({"x": "f[4]", "y": "f[2]"}, drawn, ["loop:1"])
    assert shape_of(net, "seen", ("loop", "body")) == (None,)


def test_what_was_found_out_of_a_net_is_not_found_out_again():
    net = make_net({"x": "f[?,4]"}, [op("y", "Tanh", "x", "f*")], ["y"])
    known = known_net(net)
    assert known_net(net) is known
    assert known_net(net, None, 3) is not known
    assert known_net(net, None, 3).facts["y"].shape == (3, 4)
    assert known.facts["y"].shape == (None, 4)


def found(most=False):
    """Rows that values pick: of a mask, of a branch, of what is there once."""
    shaped = [const("shape", (30, 1)), const("zero", 0), op("r", "Fill", "shape zero", "i[30,1]")]
    branches = {
        "then_branch": make_net({"w": "i[?,1]"}, [op("r", "Identity", "w", "i[?,1]")], ["r"]),
        "else_branch": make_net({"w": "i[?,1]"}, shaped, ["r"]),
    }
    ops = [
        op("where", "Where", "mask", "i[?,2]"),
        op("once", "Unique", "ids", "i[?] i[?]"),
        op("rows", "Where", "flags", "i[?,1]"),
        op("hits", "ComputeAccidentalHits", "labels ids", "i[?] i[?] f[?]"),
        op("taken", "If", "p rows", "i[?,1]", nets=branches),
    ]
    given = {"mask": "z[8,16]", "ids": "i[24]", "flags": "z[16]", "p": "z[]", "labels": "i[9,2]"}
    known = known_net(make_net(given, ops, ["where", "once:0", "taken"]), most=most)
    asked = ("where", "once:0", "once:1", "taken", "hits:2")
    return [known.facts[blob].shape for blob in asked]


def test_how_many_rows_values_pick_is_not_known():
    where, once, _, taken, hits = found()
    assert (where, once, taken, hits) == ((None, 2), (None,), (None, 1), (None,))


def test_at_most_they_pick_all_and_the_larger_branch_runs():
    assert found(most=True) == [(128, 2), (24,), (24,), (30, 1), (18,)]


def test_an_axis_that_a_slice_takes_one_of_is_gone_wherever_that_is():
    one = {"shrink_axis_mask": 1}
    ops = [
        const("step", (1,)),
        op("row", "StridedSlice", "x at behind step", "f*", attributes=one),
        op("rows", "StridedSlice", "x at behind step", "f*"),
        op("any", "StridedSlice", "x bounds bounds bounds", "f*"),
    ]
    net = make_net(
        {"x": "f[5,4,3]", "at": "i[1]", "behind": "i[1]", "bounds": "i[?]"}, ops, ["row"]
    )
    assert shape_of(net, "row") == (4, 3)
    assert shape_of(net, "rows") == (None, 4, 3)
    assert shape_of(net, "any") is None


def test_axes_that_a_vectorised_loop_counts_anew():
    ops = [
        const("axes", (1, -1)),
        const("zero", 0),
        op("counted", "GreaterEqual", "axes zero", "z[2]"),
        op("one", "Cast", "counted", "i[2]", attributes={"DstT": DType("int32")}),
        op("moved", "AddV2", "axes one", "i[2]"),
        op("mean", "Mean", "x moved", "f*"),
    ]
    net = make_net({"x": "f[5,4,3,2]"}, ops, ["mean"])
    assert known_net(net).facts["moved"].value == (2, -1)
    assert shape_of(net, "mean") == (5, 4)


def test_a_condition_that_asks_for_a_length_itself_counts_to_it():
    state = {"i": "i[]", "x": "f[?,?,8]"}
    ask = [
        op("shape", "Shape", "x", "i[3]"),
        const("at", (1,)),
        const("behind", (2,)),
        const("step", (1,)),
        op("t", "StridedSlice", "shape at behind step", "i[]", attributes={"shrink_axis_mask": 1}),
        op("less", "Less", "i t", "z[]"),
    ]
    body = make_net(state, [const("one", 1), op("n", "AddV2", "i one", "i[]")], ["n", "x"])
    nets = {"cond": make_net(state, ask, ["less"]), "body": body}
    loop = op("loop", "While", "zero x", "i[] f[?,?,8]", nets=nets)
    net = make_net({"x": "f[?,?,8]"}, [const("zero", 0), loop], ["loop:0"])
    assert known_net(net, [Fact((4, 7, 8))]).trips == {"loop": 7}
    assert known_net(net).trips == {"loop": None}
    assert known_net(net, None, 5, unknown_trips=(2,)).trips == {"loop": 2}


@pytest.mark.parametrize("step, length", [(1.0, 12), (5.0, 3), (0.5, None)])
def test_a_range_of_real_numbers_is_as_long_as_one_of_whole_ones(step, length):
    """As in a causal mask that compares positions as float32; half numbers are not followed."""
    ops = [
        op("size", "Size", "x", "i[]"),
        op("limit", "Cast", "size", "f[]", attributes={"DstT": DType("float32")}),
        *(const("start", 0.0), const("step", step)),
        op("positions", "Range", "start limit step", "f[?]"),
    ]
    net = make_net({"x": "f[12]"}, ops, ["positions"])
    assert known_net(net).facts["positions"] == Fact((length,))

"""How often a loop runs, read off its cond, its starts and the shapes it asks for."""

import hypothesis
import pytest
from hypothesis import strategies as st

from rnnmem.analysis.loops import loops_of
from rnnmem.analysis.trip_count import trip_count
from tests.handmade import const, make_net, op, while_op

COMPARE = {
    "Less": lambda a, b: a < b,
    "LessEqual": lambda a, b: a <= b,
    "Greater": lambda a, b: a > b,
    "GreaterEqual": lambda a, b: a >= b,
}


def counting(start=0, step=1, add="AddV2"):
    """The body of i = i + step; n stays as it is."""
    return make_net(
        {"i": "i[]", "n": "i[]"},
        [const("step", step), op("next", add, "i step", "i[]")],
        ["next", "n"],
    )


def cond_of(*drawn, more="more"):
    return make_net({"i": "i[]", "n": "i[]"}, drawn, [more])


def trips(body, cond, *starts, inputs=None):
    net = make_net(inputs or {}, [*starts, while_op("loop", "i0 n0", body, cond)], ["loop:0"])
    return trip_count(loops_of(net)[0])


@hypothesis.given(
    compare=st.sampled_from(sorted(COMPARE)),
    start=st.integers(-9, 9),
    limit=st.integers(-9, 9),
    step=st.integers(-3, 3),
)
def test_the_count_is_what_counting_gives(compare, start, limit, step):
    expected, i = 0, start
    while COMPARE[compare](i, limit) and expected < 99:
        i, expected = i + step, expected + 1
    cond = cond_of(op("more", compare, "i n", "z[]"))
    found = trips(counting(step=step), cond, const("i0", start), const("n0", limit))
    assert found == (None if expected == 99 else expected)


@hypothesis.given(start=st.integers(-9, 9), limit=st.integers(-9, 9), step=st.integers(1, 3))
def test_the_limit_may_stand_on_the_left_and_the_counter_count_down(start, limit, step):
    expected, i = 0, start
    while limit < i:
        i, expected = i - step, expected + 1
    cond = cond_of(op("more", "Less", "n i", "z[]"))
    body = counting(step=step, add="Sub")
    assert trips(body, cond, const("i0", start), const("n0", limit)) == expected


def test_a_zero_trip_loop_is_known_to_be_one():
    cond = cond_of(op("more", "Less", "i n", "z[]"))
    assert trips(counting(), cond, const("i0", 0), const("n0", 0)) == 0


def test_of_two_conditions_the_first_to_fail_ends_the_loop():
    # i < n and i < 3
    cond = cond_of(
        const("three", 3),
        op("a", "Less", "i n", "z[]"),
        op("b", "Less", "i three", "z[]"),
        op("more", "LogicalAnd", "a b", "z[]"),
    )
    assert trips(counting(), cond, const("i0", 0), const("n0", 8)) == 3
    assert trips(counting(), cond, const("i0", 0), const("n0", 2)) == 2


def test_a_condition_that_nobody_knows_hides_the_count():
    cond = cond_of(
        op("a", "Less", "i n", "z[]"),
        op("b", "IsFinite", "i", "z[]"),
        op("more", "LogicalAnd", "a b", "z[]"),
    )
    assert trips(counting(), cond, const("i0", 0), const("n0", 8)) is None


def test_a_limit_from_a_shape_is_known_where_the_dimension_is():
    # n = shape(x)[0]
    def limit(kind):
        return trips(
            counting(),
            cond_of(op("more", "Less", "i n", "z[]")),
            const("i0", 0),
            op("shape", "Shape", "x", "i[2]"),
            const("zero", (0,)),
            const("one", (1,)),
            op(
                "n0",
                "StridedSlice",
                "shape zero one one",
                "i[]",
                attributes={"shrink_axis_mask": 1},
            ),
            inputs={"x": kind},
        )

    assert limit("f[7,3]") == 7
    assert limit("f[?,3]") is None
    assert limit("f*") is None


def test_a_limit_that_is_an_argument_is_known_only_at_a_call():
    cond = cond_of(op("more", "Less", "i n", "z[]"))
    assert trips(counting(), cond, const("i0", 0), inputs={"n0": "i[]"}) is None


@hypothesis.given(
    type=st.sampled_from(["AddV2", "Sub", "Mul", "FloorDiv", "Maximum", "Minimum"]),
    other=st.integers(-5, 5),
    limit=st.integers(-9, 9),
    of_limit=st.booleans(),
)
def test_a_cond_may_compute_with_the_counter_or_the_limit(type, other, limit, of_limit):
    compute = {
        "AddV2": lambda a: a + other,
        "Sub": lambda a: a - other,
        "Mul": lambda a: a * other,
        "FloorDiv": lambda a: a // (other or 1),
        "Maximum": lambda a: max(a, other),
        "Minimum": lambda a: min(a, other),
    }[type]
    other = other or 1 if type == "FloorDiv" else other
    expected = 0
    while expected < 99 and (expected < compute(limit) if of_limit else compute(expected) < limit):
        expected += 1
    computed = "n" if of_limit else "i"
    drawn = [const("k", other), op("made", type, f"{computed} k", "i[]")]
    cond = cond_of(*drawn, op("more", "Less", "i made" if of_limit else "made n", "z[]"))
    found = trips(counting(), cond, const("i0", 0), const("n0", limit))
    surely = of_limit or type in ("AddV2", "Sub", "Mul")
    assert found == expected if surely and expected < 99 else found in (None, expected)


def test_a_cond_whose_numbers_may_wrap_around_is_not_understood():
    drawn = [const("k", 2**30), op("made", "Mul", "n k", "i[]")]
    cond = cond_of(*drawn, op("more", "Less", "i made", "z[]"))
    assert trips(counting(), cond, const("i0", 0), const("n0", 4)) is None


def test_a_counter_that_doubles_is_not_counted():
    body = make_net({"i": "i[]", "n": "i[]"}, [op("next", "AddV2", "i i", "i[]")], ["next", "n"])
    cond = cond_of(op("more", "Less", "i n", "z[]"))
    assert trips(body, cond, const("i0", 1), const("n0", 8)) is None


def test_a_counter_of_floats_is_not_counted():
    cond = cond_of(op("more", "Less", "i n", "z[]"))
    assert trips(counting(step=0.5), cond, const("i0", 0.0), const("n0", 2.0)) is None


@pytest.mark.parametrize("type", ["NotEqual", "LogicalOr"])
def test_other_conditions_are_not_guessed_at(type):
    cond = cond_of(op("more", type, "i n", "z[]"))
    assert trips(counting(), cond, const("i0", 0), const("n0", 8)) is None


@pytest.mark.parametrize("type", ["FloorMod", "Minimum", "Maximum"])
def test_what_only_looks_like_counting_at_first_is_not_counted(type):
    body = make_net(
        {"i": "i[]", "n": "i[]"},
        [
            *(const("step", 1), const("most", 5)),
            op("more", "AddV2", "i step", "i[]"),
            op("next", type, "more most", "i[]"),
        ],
        ["next", "n"],
    )
    cond = cond_of(op("more", "Less", "i n", "z[]"))
    assert trips(body, cond, const("i0", 0), const("n0", 9)) is None

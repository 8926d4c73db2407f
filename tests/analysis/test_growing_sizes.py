"""Loop variables that grow have known sizes, where sizes compare plans and nothing else."""

import pytest

from rnnmem.analysis.facts import Fact
from rnnmem.analysis.growing_sizes import growths, sizes_after
from rnnmem.analysis.shapes import known_net
from tests.handmade import const, make_net, op, while_op

TRIPS = 5


def growing(grows, start="f[1,8]", kind="f[?,8]"):
    """A loop in which an op makes the next ``seen`` of ``seen`` and ``row``."""
    body = make_net(
        {"i": "i[]", "seen": kind, "row": "f[2,8]"},
        [
            const("one", 1),
            op("next", "AddV2", "i one", "i[]"),
            const("axis", 0),
            *grows,
        ],
        ["next", "longer", "row"],
    )
    loop = while_op("loop", "zero first row", body, limit=TRIPS)
    given = {"first": start, "row": "f[2,8]"}
    return make_net(given, [const("zero", 0), loop], ["loop:1"])


ROWS = op("longer", "ConcatV2", "seen row axis", "f[?,8]")


def sizes(net, **how):
    """Inside the loop, behind it, and bytes that the end has more than the middle."""
    known = known_net(net, **how)
    inside = known.inner["loop", "body"].facts["seen"].shape
    return inside, known.facts["loop:1"].shape, dict(known.growing)


def test_all_iterations_are_taken_for_the_middle_one():
    end, middle = 1 + 5 * 2, 1 + 2 * 2
    expected = (middle, 8), (end, 8), {"loop": (end - middle) * 8 * 4}
    assert sizes(growing([ROWS]), most=True) == expected


def test_what_must_hold_in_each_iteration_knows_nothing_of_it():
    assert sizes(growing([ROWS])) == ((None, 8), (None, 8), {})


def test_a_variable_that_gets_smaller_is_followed_as_well():
    cut = [
        const("at", (1,)),
        const("end", (0,)),
        const("step", (1,)),
        op("longer", "StridedSlice", "seen at end step", "f[?,8]", attributes={"end_mask": 1}),
    ]
    assert sizes(growing(cut, "f[9,8]"), most=True) == ((7, 8), (4, 8), {"loop": 0})
    assert sizes(growing(cut, "f[3,8]"), most=True)[0] == (None, 8)  # it would be below nothing


@pytest.mark.parametrize(
    "grows",
    [
        [op("longer", "ConcatV2", "seen seen axis", "f[?,8]")],
        [op("longer", "Mystery", "seen row", "f[?,8]")],
    ],
    ids=["doubles", "not understood"],
)
def test_what_grows_otherwise_stays_unknown(grows):
    assert sizes(growing(grows), most=True) == ((None, 8), (None, 8), {})


def test_growth_is_told_of_known_sizes_alone():
    starts = [Fact((1, 8)), Fact((None, 8)), Fact((2,)), Fact(None), Fact((4,)), Fact((3,))]
    ends = [Fact((3, 8)), Fact((4, 8)), Fact((2,)), Fact((2,)), Fact((4, 1)), Fact((2,))]
    assert growths(starts, ends, 3) == {0: (2, 0), 5: (-1,)}
    assert growths(starts, ends, 4) == {0: (2, 0)}
    assert sizes_after(starts[0], (2, 0), 4).shape == (9, 8)


def counting(begin, end):
    """A loop that reads ``x[begin:end]`` in each iteration, by a counter of a step of 3."""
    body = make_net(
        {"i": "i[]", "at": "i[]", "x": "f[?]"},
        [
            const("one", 1),
            const("three", 3),
            op("next", "AddV2", "i one", "i[]"),
            op("further", "AddV2", "at three", "i[]"),
            op("first", "Pack", begin, "i[1]", attributes={"N": 1, "axis": 0}),
            op("behind", "Pack", end, "i[1]", attributes={"N": 1, "axis": 0}),
            const("step", (1,)),
            op("part", "StridedSlice", "x first behind step", "f[?]"),
            op("y", "Tanh", "part", "f[?]"),
        ],
        ["next", "further", "x"],
    )
    loop = while_op("loop", "zero ten x", body, limit=TRIPS)
    given = [const("zero", 0), const("ten", 10), loop]
    return make_net({"x": "f[?]"}, given, ["loop:1"])


def read(net, most):
    known = known_net(net, [Fact((100,))], most=most)
    return known.inner["loop", "body"].facts["y"].shape, known.facts["loop:1"].value


def test_what_counts_iterations_is_taken_for_what_it_is_in_the_middle_one():
    assert read(counting("at", "further"), most=True) == ((3,), 10 + 3 * TRIPS)
    assert read(counting("i", "at"), most=True) == ((10 + 3 * 2 - 2,), 10 + 3 * TRIPS)
    assert read(counting("at", "further"), most=False)[0] == (None,)

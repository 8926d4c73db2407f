"""What must be read of a branch that runs again, so that ops inside have as many readers."""

import pytest

from rnnmem.grappler.keepalive import missed_results
from tests.handmade import const, make_net, op

GIVEN = {"x": "f[4]", "y": "f[4]"}
OTHER = make_net(GIVEN, [op("none", "OptionalNone", "", "v[]")], ["x", "none", "none"])


def branch(*ops):
    """An If that hands out ``r`` and the optionals ``o`` and ``q``; the last one holds a Const."""
    constant = [const("c", 2.0), op("q", "OptionalFromValue", "c", "v[]")]
    inner = make_net(GIVEN, [*ops, *constant], ["r", "o", "q"])
    nets = {"then_branch": inner, "else_branch": OTHER}
    return op("if", "If", "p x y", "f[4] v[] v[]", nets=nets).op


PRODUCT = op("m", "Mul", "x y", "f[4]")
HELD = branch(PRODUCT, op("o", "OptionalFromValue", "m", "v[]"), op("r", "Tanh", "m", "f[4]"))


def test_an_optional_without_a_reader_is_missed_where_it_leaves_one_reader_to_what_it_holds():
    assert missed_results(HELD, [0]) == {1}
    assert missed_results(HELD, [0, 1]) == set()


def test_nothing_is_missed_of_what_nobody_computes():
    assert missed_results(HELD, [2]) == set()


def test_what_an_optional_alone_reads_is_fused_with_nothing():
    assert missed_results(HELD, [1]) == set()


def test_a_result_is_missed_where_an_op_that_may_be_fused_is_left_alone_with_what_it_reads():
    ops = [
        *(PRODUCT, op("s", "Sin", "m", "f[4]"), op("o", "OptionalFromValue", "s", "v[]")),
        op("r", "Tanh", "m", "f[4]"),
    ]
    assert missed_results(branch(*ops), [1]) == {0}


@pytest.mark.parametrize(
    "ops",
    [
        # two readers are left
        [
            *(PRODUCT, op("o", "OptionalFromValue", "m", "v[]")),
            *(op("s", "Sin", "m", "f[4]"), op("r", "Sub", "s m", "f[4]")),
        ],
        # an argument is fused with nothing
        [op("o", "OptionalFromValue", "x", "v[]"), op("r", "Tanh", "x", "f[4]")],
        # what the optional holds is computed for it alone
        [
            *(op("s", "Sin", "x", "f[4]"), op("o", "OptionalFromValue", "s", "v[]")),
            op("r", "Tanh", "x", "f[4]"),
        ],
    ],
)
def test_nothing_is_missed_where_no_op_gets_a_single_reader(ops):
    assert missed_results(branch(*ops), [0]) == set()


def test_ops_that_only_an_dead_result_needs_count_as_readers():
    ops = [
        *(PRODUCT, op("s", "Sin", "m", "f[4]"), op("o", "OptionalFromValue", "s", "v[]")),
        op("r", "Tanh", "m", "f[4]"),
    ]
    assert missed_results(branch(*ops), [0]) == {1}


def test_only_branches_hand_out_what_may_be_missed():
    assert missed_results(op("u", "Unpack", "x", "f[] f[]").op, [0]) == set()

"""Products that wait for the gradient: one refusal of each way in which they could be wrong."""

import pytest

from rnnmem.errors import CheckError
from rnnmem.passes.late_products.apply import LATE, apply
from rnnmem.passes.late_products.select import late_products
from rnnmem.verify import check
from tests.handmade import CONTEXT
from tests.passes.late_products.test_select import step

NET = step()
MADE = apply(NET, late_products(NET), CONTEXT)
LATE_FACTOR = f"f/{LATE}"


def refusal(name, **fields):
    ops = tuple(one.replace(**fields) if one.name == name else one for one in MADE.ops)
    with pytest.raises(CheckError) as caught:
        check(NET, MADE.replace(ops=ops))
    return caught.value.reason


def test_a_delayed_input_that_waits_changes_nothing():
    check(NET, MADE)
    assert MADE.op_by_name["gradients/m"].inputs[0] == MADE.op_by_name[LATE_FACTOR].outputs[0]


def test_a_delayed_input_that_holds_another_value():
    assert refusal(LATE_FACTOR, inputs=("x",)) == "value-changed"


def test_a_constant_that_was_moved_by_hand():
    late = MADE.op_by_name[LATE_FACTOR].outputs[0]
    assert refusal("gradients/m", inputs=(late, "c")) == "value-changed"


def test_a_delayed_input_that_waits_for_what_reads_it():
    assert refusal(LATE_FACTOR, controls=("gradients/p",)) == "cycle"

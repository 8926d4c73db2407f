"""`benchmarks.op_times` runs op types of the table on matrices of numbers."""

import pytest
import tensorflow as tf

from benchmarks import op_times
from rnnmem.ir.op_table import TABLE


@pytest.mark.parametrize(
    "op_type, dtype",
    [
        ("Tan", tf.float32),
        ("BitwiseAnd", tf.int32),
        ("LogicalAnd", tf.bool),
        ("Angle", tf.complex64),
    ],
)
def test_an_op_gets_numbers_of_a_dtype_that_it_takes(op_type, dtype):
    given = op_times.arguments(op_type, (2, 3))
    assert given and {one.dtype for one in given.values()} == {dtype}


def test_what_tells_the_axis_is_the_last_one():
    assert int(op_times.arguments("Cumsum", (2, 3))["axis"]) == 1


def test_what_wants_more_than_matrices_is_not_measured():
    assert op_times.seconds("ConcatV2", (2, 3)) is None


def test_copies_run_one_after_the_other_and_each_is_read():
    given = op_times.arguments("Tan", (2, 3))
    results = op_times.chained(tf.raw_ops.Tan, given, 3)(**given)
    assert len(results) == 3
    for result in results:
        assert result.numpy().tolist() == tf.tan(given["x"]).numpy().tolist()


def test_a_row_has_the_tables_weight_and_seconds():
    ((name, weight, _, small, large),) = op_times.rows(["Lgamma"])
    assert (name, weight) == ("Lgamma", TABLE["Lgamma"].weight)
    assert small >= 0.0 and large >= 0.0

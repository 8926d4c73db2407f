import numpy as np
import pytest
import tensorflow as tf

from rnnmem.conversion.floats import (
    FLOATS,
    is_exact,
    largest,
    numpy_dtype,
    out_of_range,
    parse_dtype,
)
from rnnmem.errors import OptionError


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("float16", "float16"),
        ("half", "float16"),
        (" Float32 ", "float32"),
        (tf.bfloat16, "bfloat16"),
        (np.float64, "float64"),
        (np.dtype("float16"), "float16"),
        (numpy_dtype("float8_e5m2"), "float8_e5m2"),
        (tf.as_dtype("float8_e4m3fn"), "float8_e4m3fn"),
        ("mixed_bfloat16", "mixed_bfloat16"),
    ],
)
def test_a_dtype_is_read_as_people_give_it(given, name):
    assert parse_dtype(given) == name


@pytest.mark.parametrize(
    "given", ["float17", "int32", tf.int8, np.int64, "", 3, object(), "string"]
)
def test_anything_else_is_refused_by_name(given):
    with pytest.raises(OptionError, match="dtype=.*float8_e4m3fn"):
        parse_dtype(given)


@pytest.mark.parametrize("before", FLOATS)
@pytest.mark.parametrize("after", FLOATS)
def test_exact_means_that_every_value_survives(before, after):
    one_byte = np.arange(256, dtype=np.uint8).view(numpy_dtype("float8_e5m2"))
    values = one_byte.astype(np.float64).astype(numpy_dtype(before))
    edges = np.array([largest(before), -largest(before), 1.1, 1e-3], np.float64)
    values = np.concatenate([values, edges.astype(numpy_dtype(before))])
    with np.errstate(all="ignore"):
        back = values.astype(numpy_dtype(after)).astype(numpy_dtype(before))
    kept = np.array_equal(back.astype(np.float64), values.astype(np.float64), equal_nan=True)
    assert kept or not is_exact(before, after)
    if is_exact(before, after):
        assert not out_of_range(values, before, after).any()


def test_what_rounds_into_the_range_is_in_it():
    values = np.array([65519.0, 65520.0, -1e9, np.inf, np.nan, 1.0], np.float32)
    assert out_of_range(values, "float32", "float16").tolist() == [
        False, True, True, False, False, False,
    ]  # fmt: skip


def test_an_infinity_is_out_of_range_where_there_is_none():
    values = np.array([np.inf, 448.0, 465.0, np.nan], np.float32)
    assert out_of_range(values, "float32", "float8_e4m3fn").tolist() == [True, False, True, False]
    assert out_of_range(values, "float32", "float8_e5m2").tolist() == [False] * 4

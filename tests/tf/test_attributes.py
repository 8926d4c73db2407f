"""Attributes survive the way into a Net and back, to the last byte."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, types_pb2

from rnnmem.ir.graph import Constant, DType, FunctionRef, ShapeValue
from rnnmem.tf.attributes import constant, decode, dtype_enum, dtype_name, encode


def written(text: str) -> attr_value_pb2.AttrValue:
    from google.protobuf import text_format

    return text_format.Parse(text, attr_value_pb2.AttrValue())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("i: -3", -3),
        ("f: 0.1", float(np.float32(0.1))),
        ("b: true", True),
        ("b: false", False),
        (r's: "a\377"', b"a\xff"),
        ("type: DT_BFLOAT16", DType("bfloat16")),
        ("type: DT_FLOAT_REF", DType("float32_ref")),
        ("type: DT_INVALID", DType("invalid")),
        ("shape { }", ShapeValue(())),
        ("shape { unknown_rank: true }", ShapeValue(None)),
        ("shape { dim { size: -1 } dim { size: 3 } }", ShapeValue((None, 3))),
        ("list { }", ()),
        ("list { i: 1 i: 2 }", (1, 2)),
        ("list { b: true b: false }", (True, False)),
        ("list { type: DT_FLOAT type: DT_VARIANT }", (DType("float32"), DType("variant"))),
        ("list { shape { } shape { unknown_rank: true } }", (ShapeValue(()), ShapeValue(None))),
        (r'list { s: "loc:@a" }', (b"loc:@a",)),
    ],
)
def test_each_kind_is_read_and_written(text, value):
    proto = written(text)
    assert decode(proto) == value
    assert encode(decode(proto)) == proto


def test_a_function_keeps_the_attributes_it_is_called_with():
    proto = written('func { name: "f" attr { key: "T" value { type: DT_INT32 } } }')
    ref = decode(proto)
    assert isinstance(ref, FunctionRef) and ref.name == "f"
    assert encode(ref) == proto


@pytest.mark.parametrize(
    ("array", "value"),
    [
        (np.float32(0.1), float(np.float32(0.1))),
        (np.array([1, -1], np.int64), (1, -1)),
        (np.arange(99, dtype=np.int32), None),
        (np.array([1.5, 2.5]), None),
        (np.array("text", object), None),
        (np.zeros([0, 3], np.float32), None),
        (np.float32(-0.0), -0.0),
    ],
)
def test_constants_keep_every_bit_and_show_short_integers(array, value):
    proto = attr_value_pb2.AttrValue(tensor=tf.make_tensor_proto(array))
    read = decode(proto)
    assert isinstance(read, Constant)
    assert (read.value, read.shape) == (value, array.shape)
    assert encode(read) == proto


def test_a_nan_keeps_its_payload():
    odd = np.array([0x7FC12345], np.uint32).view(np.float32)
    proto = attr_value_pb2.AttrValue(tensor=tf.make_tensor_proto(odd))
    assert tf.make_ndarray(encode(decode(proto)).tensor).tobytes() == odd.tobytes()


def test_every_dtype_has_a_name():
    for enum in types_pb2.DataType.values():
        try:
            name = dtype_name(enum)
        except TypeError:  # TensorFlow declares it and does not implement it
            continue
        assert dtype_enum(name) == enum


def test_a_constant_made_here_is_one_read_back():
    made = constant([-1, 4], "int32")
    assert (made.dtype, made.shape, made.value) == ("int32", (2,), (-1, 4))
    assert decode(encode(made)) == made


def test_what_no_attribute_can_hold_is_named():
    with pytest.raises(TypeError, match="no attribute can hold {'a': 1}"):
        encode({"a": 1})

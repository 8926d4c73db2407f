"""An op's attributes, between TensorFlow's AttrValue and the plain values of a Net."""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, tensor_shape_pb2, types_pb2

from rnnmem.ir.graph import Constant, DType, FunctionRef, ShapeValue

_SHORT = 16  # integers up to this number (shapes, indices, paddings) are kept readable
_REF = 100  # a reference dtype's enum is its base's plus this


@functools.cache
def dtype_name(enum: int) -> str:
    """``float32`` for DT_FLOAT and so on; reference dtypes end in ``_ref``."""
    if enum == types_pb2.DT_INVALID:
        return "invalid"
    return tf.dtypes.as_dtype(enum).name


@functools.cache
def dtype_enum(name: str) -> int:
    """The inverse of :func:`dtype_name`."""
    if name == "invalid":
        return types_pb2.DT_INVALID
    if name.endswith("_ref"):
        return tf.dtypes.as_dtype(name[: -len("_ref")]).as_datatype_enum + _REF
    return tf.dtypes.as_dtype(name).as_datatype_enum


def decode_shape(proto: tensor_shape_pb2.TensorShapeProto):
    """A TensorShapeProto as a tuple with None for unknown dimensions, or None."""
    if proto.unknown_rank:
        return None
    return tuple(None if dim.size < 0 else dim.size for dim in proto.dim)


def encode_shape(shape) -> tensor_shape_pb2.TensorShapeProto:
    """The inverse of :func:`decode_shape`."""
    if shape is None:
        return tensor_shape_pb2.TensorShapeProto(unknown_rank=True)
    proto = tensor_shape_pb2.TensorShapeProto()
    for size in shape:
        proto.dim.add(size=-1 if size is None else size)
    return proto


def _decode_constant(proto) -> Constant:
    shape = decode_shape(proto.tensor_shape)
    dtype = dtype_name(proto.dtype)
    value = rows = None
    if shape == () and proto.dtype not in (types_pb2.DT_STRING, types_pb2.DT_VARIANT):
        value = tf.make_ndarray(proto).item()
    elif dtype in ("int32", "int64") and len(shape) == 1 and shape[0] <= _SHORT:
        value = tuple(tf.make_ndarray(proto).tolist())
    elif dtype in ("int32", "int64") and len(shape) == 2 and 0 < shape[0] * shape[1] <= _SHORT:
        rows = tuple(map(tuple, tf.make_ndarray(proto).tolist()))
    return Constant(dtype, shape, proto.SerializeToString(deterministic=True), value, rows)


def decode(value: attr_value_pb2.AttrValue) -> Any:
    """An AttrValue as a plain value."""
    kind = value.WhichOneof("value")
    match kind:
        case "i" | "f" | "b" | "s":
            return getattr(value, kind)
        case "type":
            return DType(dtype_name(value.type))
        case "shape":
            return ShapeValue(decode_shape(value.shape))
        case "tensor":
            return _decode_constant(value.tensor)
        case "func":
            return FunctionRef(value.func.name, value.func.SerializeToString(deterministic=True))
        case "list":
            return _decode_list(value.list)
        case None:  # an attribute that is there and says nothing
            return None
    raise ValueError(f"an attribute of the kind {kind!r} is not known")


def _decode_list(values: attr_value_pb2.AttrValue.ListValue) -> tuple:
    for kind in ("i", "f", "b", "s", "type", "shape", "tensor", "func"):
        if held := getattr(values, kind):
            return tuple(decode(attr_value_pb2.AttrValue(**{kind: item})) for item in held)
    return ()


def encode(value: Any) -> attr_value_pb2.AttrValue:
    """The inverse of :func:`decode`."""
    if isinstance(value, tuple):
        encoded = attr_value_pb2.AttrValue()
        encoded.list.SetInParent()
        for item in value:
            _append(encoded.list, encode(item))
        return encoded
    match value:
        case None:
            return attr_value_pb2.AttrValue()
        case bool():
            return attr_value_pb2.AttrValue(b=value)
        case int():
            return attr_value_pb2.AttrValue(i=value)
        case float():
            return attr_value_pb2.AttrValue(f=value)
        case bytes():
            return attr_value_pb2.AttrValue(s=value)
        case DType():
            return attr_value_pb2.AttrValue(type=dtype_enum(value.name))
        case ShapeValue():
            return attr_value_pb2.AttrValue(shape=encode_shape(value.dims))
        case Constant():
            encoded = attr_value_pb2.AttrValue()
            encoded.tensor.ParseFromString(value.encoded)
            return encoded
        case FunctionRef():
            encoded = attr_value_pb2.AttrValue()
            encoded.func.ParseFromString(value.encoded)
            return encoded
    raise TypeError(f"no attribute can hold {value!r}")


def _append(values: attr_value_pb2.AttrValue.ListValue, item: attr_value_pb2.AttrValue) -> None:
    kind = item.WhichOneof("value")
    held = getattr(values, kind)
    if kind in ("shape", "tensor", "func"):
        held.add().CopyFrom(getattr(item, kind))
    else:
        held.append(getattr(item, kind))


def constant(array, dtype: str) -> Constant:
    """A Constant from a number or an array."""
    return _decode_constant(tf.make_tensor_proto(array, dtype=tf.dtypes.as_dtype(dtype)))

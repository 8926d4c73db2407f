"""How often a loop runs, where its cond counts up to a number that the Net itself tells."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType

from rnnmem.analysis.loops import Loop
from rnnmem.ir.graph import DType, Net, Op, static
from rnnmem.ir.op_table import REDUCES, column, types
from rnnmem.ir.order import constant_value, through_identities

UNKNOWN_TRIPS = 64
"""What a plan takes for the iterations of a loop where only a run can tell them."""
LONG_TRIPS = 16 * UNKNOWN_TRIPS
"""What it takes for them where time grows faster than they do."""

Number = int | float | bool | tuple[int, ...] | None

_FUNCTIONS: Mapping[str, Callable] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "max": max,
    "min": min,
    "div": lambda a, b: a // b if b else None,
    "mod": lambda a, b: a % b if b else None,
    "prod": math.prod,
    "sum": sum,
}
_WHOLE: Mapping[str, Callable] = {one: _FUNCTIONS[name] for one, name in column("whole").items()}
REDUCTIONS = {one: value for one, value in _WHOLE.items() if one in REDUCES}
"""Op type -> its value for the whole numbers of a vector."""
ARITHMETIC = {one: value for one, value in _WHOLE.items() if one not in REDUCES}
"""Op type -> its value for two whole numbers, None where it has none."""


def number_of(net: Net, blob: str, given: Mapping[str, Number] | None = None) -> Number:
    """The value of a small integer blob that constants and shapes determine; None where unknown."""
    if given and blob in given:
        return given[blob]
    op = net.producer.get(blob)
    if op is None:
        return None
    if op.type == "Const":
        return constant_value(net, blob)
    if op.type == "Identity" or op.type == "Cast":
        value = number_of(net, op.inputs[0], given)
        return value if op.type == "Identity" or stays_in_cast(op, value) else None
    if op.type in REDUCTIONS:
        value = number_of(net, op.inputs[0], given)
        return value if isinstance(value, int) else None
    if op.type == "Shape":
        return static(net.blobs[op.inputs[0]].shape)
    if op.type == "StridedSlice" and len(op.inputs) == 4:
        return _element(net, op, given)
    if op.type in ARITHMETIC and len(op.inputs) == 2:
        first, second = (number_of(net, one, given) for one in op.inputs)
        if isinstance(first, int) and isinstance(second, int):
            return ARITHMETIC[op.type](first, second)
    return None


LARGEST = 2**31
"""From here on a whole number might wrap around in a run."""

_EXACT = {"int32": LARGEST, "int64": LARGEST, "float32": 2**24, "float64": LARGEST}
"""Dtypes that hold whole numbers below these as they are."""


def stays_in_cast(op: Op, value: int | float | tuple[int | None, ...] | None) -> bool:
    """Whether a number, or each of a vector, is the same after a Cast."""
    target = op.attributes.get("DstT")
    most = _EXACT.get(target.name if isinstance(target, DType) else "", 0)
    numbers = value if isinstance(value, tuple) else (value,)
    return all(one is None or abs(one) < most for one in numbers)


def _element(net: Net, op, given) -> Number:
    """One element of a short vector: ``shape[i]``."""
    vector, begin, _, stride = (number_of(net, blob, given) for blob in op.inputs)
    if op.attributes.get("shrink_axis_mask") != 1 or op.attributes.get("begin_mask"):
        return None
    if not isinstance(vector, tuple) or not isinstance(begin, tuple) or stride != (1,):
        return None
    if len(begin) != 1 or begin[0] is None:
        return None
    return vector[begin[0]] if -len(vector) <= begin[0] < len(vector) else None


def trip_count(
    loop: Loop,
    given: Mapping[str, Number] | None = None,
    asked: Mapping[str, Number] = MappingProxyType({}),
) -> int | None:
    """Iterations of the loop, or None where only a run can tell.

    Args:
      loop: the loop.
      given: values of blobs around the loop, where more is known than the Net itself tells.
      asked: values of blobs of its cond that are the same in each iteration.
    """
    bounds = _bounds(loop, loop.cond.outputs[0], given, asked)
    return None if bounds is None else max(0, bounds)


def growth(loop: Loop, index: int, given: Mapping[str, Number] | None = None) -> int | None:
    """What a variable grows by in each iteration; None where that is no constant.

    Args:
      loop: the loop.
      index: of the variable.
      given: values of blobs around the loop.
    """
    argument, result = loop.body.inputs[index], loop.body.outputs[index]
    loop_invariant = {
        blob: number_of(loop.net, loop.op.inputs[position], given)
        for blob, position in loop.invariants.items()
        if loop.body.blobs[blob].dtype in ("int32", "int64")
    }
    return _added(loop.body, result, argument, loop_invariant)


def _added(net: Net, blob: str, argument: str, loop_invariant: Mapping[str, Number]) -> int | None:
    """What was added to an argument to give a blob; None where anything else was done to it."""
    blob = through_identities(net, blob)
    if blob == argument:
        return 0
    op = net.producer.get(blob)
    if op is None or op.type not in _LINEAR or op.type == "Mul":
        return None
    first, second = op.inputs
    sides = [(first, second), (second, first)] if op.type != "Sub" else [(first, second)]
    for mine, other in sides:
        before, more = (
            _added(net, mine, argument, loop_invariant),
            number_of(net, other, loop_invariant),
        )
        if before is not None and isinstance(more, int):
            return before - more if op.type == "Sub" else before + more
    return None


def course(loop: Loop, blob: str, given: Mapping[str, Number] | None) -> tuple[int, int] | None:
    """``(value in the first iteration, growth per iteration)`` of a blob of the body.

    Args:
      loop: the loop.
      blob: of the body, computed from its counters and invariants.
      given: values of blobs around the loop.

    Returns:
      None where it is no whole number, or does not grow by a constant.
    """
    body = loop.body
    if blob in body.inputs:
        index = body.inputs.index(blob)
        start = number_of(loop.net, loop.op.inputs[index], given)
        grows = 0 if blob in loop.invariants else growth(loop, index, given)
        return (start, grows) if isinstance(start, int) and grows is not None else None
    op = body.producer.get(blob)
    if op is None or op.nets:
        return None
    if op.type == "Identity" or op.type == "Cast":
        return course(loop, op.inputs[0], given)
    if op.type not in _LINEAR:
        value = number_of(body, blob)
        return (value, 0) if isinstance(value, int) else None
    first, second = (course(loop, one, given) for one in op.inputs)
    if first is None or second is None:
        return None
    if op.type == "Mul" and first[1] and second[1]:
        return None
    return _LINEAR[op.type](first, second)


_COURSES: Mapping[str, Callable[[tuple[int, int], tuple[int, int]], tuple[int, int]]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[0], a[1] - b[1]),
    "mul": lambda a, b: (a[0] * b[0], a[0] * b[1] + a[1] * b[0]),
}
_LINEAR = {one: _COURSES[name] for one, name in column("whole").items() if name in _COURSES}
"""Op type -> the course of its result; of a product, where one factor stays as it is."""


_COMPARES = types("compares")


def _bounds(
    loop: Loop, blob: str, given: Mapping[str, Number] | None, asked: Mapping[str, Number]
) -> int | None:
    """Iterations until the condition that writes ``blob`` turns false."""
    op = loop.cond.producer.get(through_identities(loop.cond, blob))
    if op is None:
        return None
    if op.type == "LogicalAnd":
        bounds = [_bounds(loop, one, given, asked) for one in op.inputs]
        known = [one for one in bounds if one is not None]
        return min(known) if len(known) == len(bounds) else None
    if op.type not in _COMPARES:
        return None
    first, second = (_course(loop, one, given, asked) for one in op.inputs)
    if first is None or second is None:
        return None
    gap = (second[0] - first[0]) * (1 if op.type.startswith("Less") else -1)
    closing = (first[1] - second[1]) * (1 if op.type.startswith("Less") else -1)
    if gap < 0 or (gap == 0 and not op.type.endswith("Equal")):
        return 0
    if closing <= 0:
        return None
    return gap // closing + 1 if op.type.endswith("Equal") else math.ceil(gap / closing)


def _course(
    loop: Loop, blob: str, given: Mapping[str, Number] | None, asked: Mapping[str, Number]
) -> tuple[int, int] | None:
    """``(start, growth per iteration)`` of a blob of the cond."""
    blob = through_identities(loop.cond, blob)
    if blob not in loop.cond.inputs:
        return _computed(loop, blob, given, asked)
    index = loop.cond.inputs.index(blob)
    start = number_of(loop.net, loop.op.inputs[index], given)
    if not isinstance(start, int):
        return None
    argument = loop.body.inputs[index]
    if argument in loop.invariants:
        return start, 0
    grows = growth(loop, index, given)
    return None if grows is None else (start, grows)


def _computed(
    loop: Loop, blob: str, given: Mapping[str, Number] | None, asked: Mapping[str, Number]
) -> tuple[int, int] | None:
    """The same of what the cond computes: a limit less one, say."""
    op = loop.cond.producer.get(blob)
    if op is None or op.type not in ARITHMETIC or len(op.inputs) != 2:
        value = number_of(loop.cond, blob, asked)
        return (value, 0) if isinstance(value, int) else None
    first, second = (_course(loop, one, given, asked) for one in op.inputs)
    if first is None or second is None:
        return None
    if not first[1] and not second[1]:
        found = ARITHMETIC[op.type](first[0], second[0]), 0
    elif op.type in _LINEAR and not (op.type == "Mul" and first[1] and second[1]):
        found = _LINEAR[op.type](first, second)
    else:
        return None
    return found if all(isinstance(one, int) and abs(one) < LARGEST // 2 for one in found) else None

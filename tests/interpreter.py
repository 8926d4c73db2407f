"""Runs hand-drawn Nets with NumPy; knows nothing of how the checker reasons."""

from __future__ import annotations

import graphlib

import numpy as np

from rnnmem.ir.graph import Net, Op

_PLAIN = {
    "AddV2": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Tanh": np.tanh,
    "Sin": np.sin,
    "Cos": np.cos,
    "Exp": np.exp,
    "Neg": np.negative,
    "Square": np.square,
    "Sigmoid": lambda a: 1 / (1 + np.exp(-a)),
    "Relu": lambda a: np.maximum(a, type(a)(0)),
    "TanhGrad": lambda y, dy: dy * (1 - y * y),
    "SigmoidGrad": lambda y, dy: dy * y * (1 - y),
    "ReluGrad": lambda dy, y: np.where(y > 0, dy, type(dy)(0)),
    "Less": lambda a, b: a < b,
    "LessEqual": lambda a, b: a <= b,
    "GreaterEqual": lambda a, b: a >= b,
    "Equal": lambda a, b: a == b,
    "Greater": lambda a, b: a > b,
    "Identity": lambda a: a,
    "EnsureShape": lambda a: a,
    "OptionalFromValue": lambda a: a,
    "OptionalGetValue": lambda a: a,
    "PlaceholderWithDefault": lambda a: a,
    "Minimum": np.minimum,
    "Maximum": np.maximum,
    "FloorDiv": lambda a, b: a // b,
    "FloorMod": lambda a, b: a % b,
    "GatherV2": lambda numbers, place, axis: numbers[_inside(place, numbers)],
    "SelectV2": np.where,
    "Cast": lambda truths: truths.astype(np.int32),
    "ConcatV2": lambda a, b, axis: np.concatenate([a, b], axis),
    "ArgMax": lambda numbers, axis: np.int32(np.argmax(numbers, axis)),
    "ArgMin": lambda numbers, axis: np.int32(np.argmin(numbers, axis)),
    "Sum": lambda numbers, axis: np.int32(np.sum(numbers, axis)),
    "Min": np.min,
    "Max": np.max,
    "Prod": np.prod,
    "TensorListLength": lambda held: np.int32(len(held)),
    "TensorListStack": lambda held, shape: np.array(held, np.int32),
    "TensorListGetItem": lambda held, place, shape: held[_inside(place, held)],
}
_MOST_TRIPS = 50


class Failed(Exception):
    """What TensorFlow's runtime would have failed on, or not finished."""


def _inside(place: int, held) -> int:
    if not 0 <= place < len(held):
        raise Failed(f"there is no place {place}")
    return place


def _truth(value) -> bool:
    if np.ndim(value):
        raise Failed("a vector is no truth")
    return bool(value)


class Interpreter:
    """One run; ``log`` is what its effects did, in order."""

    def __init__(self) -> None:
        self.log: list[tuple] = []
        self.draws: dict[tuple[str, ...], int] = {}

    def run(self, net: Net, given: list, path: tuple[str, ...] = ()) -> list:
        values = dict(zip(net.inputs, given, strict=True))
        for op in _ordered(net):
            results = self._op(op, [values[blob] for blob in op.inputs], (*path, op.name))
            values.update(zip(op.outputs, results, strict=True))
        return [values[blob] for blob in net.outputs]

    def _op(self, op: Op, inputs: list, path: tuple[str, ...]) -> list:
        match op.type:
            case "Const":
                held = op.attributes["value"]
                return [np.array(held.value, held.dtype)[()]]
            case "NoOp":
                return []
            case "EmptyTensorList":
                return [()]
            case "TensorListPushBack":
                return [(*inputs[0], inputs[1])]
            case "TensorListPopBack":
                if not inputs[0]:
                    raise Failed("the list is empty")
                return [inputs[0][:-1], inputs[0][-1]]
            case "TensorListSetItem":
                held, place, value = inputs
                if np.ndim(place):
                    raise Failed("a vector is no place")
                assert place >= 0, "TensorFlow would write who knows where"
                holes = [type(value)(0)] * (place + 1 - len(held))
                held = (*held, *holes)
                return [(*held[:place], value, *held[place + 1 :])]
            case "RandomUniform":
                self.draws[path] = draw = self.draws.get(path, 0) + 1
                seed = [ord(letter) for letter in path[-1]]
                return [np.float32(np.random.default_rng([*seed, draw]).uniform(0.5, 1.0))]
            case "PrintV2":
                self.log.append((path[-1], *(float(value) for value in inputs)))
                return []
            case "While" | "StatelessWhile":
                return self._loop(op, inputs, path)
            case "If" | "StatelessIf":
                branch = "then_branch" if _truth(inputs[0]) else "else_branch"
                return self.run(op.nets[branch], inputs[1:], (*path, branch))
        with np.errstate(all="ignore"):
            try:
                return [_PLAIN[op.type](*inputs)]
            except (IndexError, TypeError, ValueError) as error:  # kinds that do not fit
                raise Failed(str(error)) from error

    def _loop(self, op: Op, state: list, path: tuple[str, ...]) -> list:
        for _ in range(_MOST_TRIPS):
            if not _truth(self.run(op.nets["cond"], state, (*path, "cond"))[0]):
                return state
            state = self.run(op.nets["body"], state, (*path, "body"))
        raise Failed("the loop does not stop")


def _ordered(net: Net) -> list[Op]:
    maker = {blob: op.name for op in net.ops for blob in op.outputs}
    waits = {
        op.name: [*(maker[blob] for blob in op.inputs if blob in maker), *op.controls]
        for op in net.ops
    }
    by_name = {op.name: op for op in net.ops}
    return [by_name[name] for name in graphlib.TopologicalSorter(waits).static_order()]

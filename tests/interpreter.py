"""Runs hand-drawn Nets with NumPy; knows nothing of how the checker reasons."""

from __future__ import annotations

import graphlib

import numpy as np

from rnnmem.net.nouns import Net, Op

_PLAIN = {
    "AddV2": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Tanh": np.tanh,
    "Sin": np.sin,
    "Cos": np.cos,
    "TanhGrad": lambda y, dy: dy * (1 - y * y),
    "Less": lambda a, b: a < b,
    "Equal": lambda a, b: a == b,
    "Greater": lambda a, b: a > b,
    "Identity": lambda a: a,
    "EnsureShape": lambda a: a,
    "OptionalFromValue": lambda a: a,
    "OptionalGetValue": lambda a: a,
    "PlaceholderWithDefault": lambda a: a,
}
_MOST_TRIPS = 50


class Failed(Exception):
    """What TensorFlow's runtime would have failed on, or not finished."""


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
                branch = "then_branch" if inputs[0] else "else_branch"
                return self.run(op.nets[branch], inputs[1:], (*path, branch))
        with np.errstate(all="ignore"):
            return [_PLAIN[op.type](*inputs)]

    def _loop(self, op: Op, state: list, path: tuple[str, ...]) -> list:
        for _ in range(_MOST_TRIPS):
            if not self.run(op.nets["cond"], state, (*path, "cond"))[0]:
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

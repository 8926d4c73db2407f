"""Runs Nets on exact rationals that know how they were made.

Two values are equal where their numbers are, as exact fractions, and where the same additions and
products made them of the same arguments in the same order. The second is what bits depend on:
another order of a sum gives the same rational and other bits. An op that hands a number on is no
part of that history.

``Tanh`` stands for any function of one argument: here one without any structure, of small results.
"""

from __future__ import annotations

import dataclasses
import functools
from fractions import Fraction

import numpy as np

from rnnmem.ir.graph import Net, Op
from tests.interpreter import Interpreter, _ordered


@dataclasses.dataclass(frozen=True, slots=True)
class Exact:
    """A rational, and the number of its history among all that a `Run` has seen."""

    value: Fraction
    made: int


class Run(Interpreter):
    """An interpreter of float32 blobs as exact rationals.

    Args:
      histories: what was made of what, shared by the runs that are compared.
    """

    def __init__(self, histories: dict[tuple, int]):
        super().__init__()
        self.histories = histories

    def given(self, value: Fraction, *made: object) -> Exact:
        return Exact(value, self.histories.setdefault(made, len(self.histories)))

    def run(self, net: Net, given: list, path: tuple[str, ...] = ()) -> list:
        values = dict(zip(net.inputs, given, strict=True))
        for op in net.once(_ordered):  # a step net runs many times
            results = self._op(op, [values[blob] for blob in op.inputs], (*path, op.name))
            values.update(zip(op.outputs, results, strict=True))
        return [values[blob] for blob in net.outputs]

    def _op(self, op: Op, inputs: list, path: tuple[str, ...]) -> list:
        match op.type:
            case "Const" if op.attributes["value"].dtype == "float32":
                value = Fraction(op.attributes["value"].value)
                return [self.given(value, value)]
            case "AddV2" | "Mul" if isinstance(inputs[0], Exact):
                return [self._commuting(op.type, *inputs)]
            case "AddN":
                value = sum(one.value for one in inputs)
                return [self.given(value, "AddN", *(one.made for one in inputs))]
            case "Tanh":
                (x,) = inputs
                return [self.given(_any_function(x.value), "Tanh", x.made)]
            case "TanhGrad":
                y, dy = inputs
                value = dy.value * (1 - y.value * y.value)
                return [self.given(value, "TanhGrad", y.made, dy.made)]
            case "Relu":
                return [inputs[0] if inputs[0].value > 0 else self._zero]
            case "ReluGrad":
                return [inputs[0] if inputs[1].value > 0 else self._zero]
            case "Greater" if isinstance(inputs[0], Exact):
                return [inputs[0].value > inputs[1].value]
            case "Cast":
                return [self._cast(inputs[0], op.attributes["DstT"].name)]
            case "Reshape":
                return [np.reshape(*inputs)]
            case "Slice":
                values, (begin,), (size,) = inputs
                return [values[begin : begin + size]]
            case "Bitcast":
                wide = op.attributes["type"].name == "uint64"
                found = np.ascontiguousarray(inputs[0]).view(np.uint64 if wide else np.uint8)
                return [found[:, 0] if wide else found.reshape(-1, 8)]
            case "RightShift" | "BitwiseAnd":
                work = np.right_shift if op.type == "RightShift" else np.bitwise_and
                return [work(*inputs)]
            case "TensorListFromTensor":
                return [tuple(inputs[0])]
            case "TensorListStack" if not inputs[0] or isinstance(inputs[0][0], Exact):
                return [tuple(inputs[0])]
            case "TensorListReserve":
                return [(self._zero,) * int(inputs[1])]
            case "TensorListSetItem" if isinstance(inputs[2], Exact):
                held, place, value = inputs
                holes = (self._zero,) * (place + 1 - len(held))
                held = (*held, *holes)
                return [(*held[:place], value, *held[place + 1 :])]
        return super()._op(op, inputs, path)

    @property
    def _zero(self) -> Exact:
        return self.given(Fraction(0), Fraction(0))

    def _cast(self, value, dtype: str):
        if dtype != "float32":
            return np.asarray(value).astype(dtype)[()]
        return self.given(Fraction(int(value)), Fraction(int(value)))

    def _commuting(self, type: str, a: Exact, b: Exact) -> Exact:
        value = a.value + b.value if type == "AddV2" else a.value * b.value
        return self.given(value, type, min(a.made, b.made), max(a.made, b.made))


@functools.cache
def _any_function(x: Fraction) -> Fraction:
    return Fraction((31 * x.numerator + 17 * x.denominator) % 199 - 99, 64)


def results(net: Net, trips: int, states: int, histories: dict[tuple, int]) -> list:
    """What a training step gives of generic numbers.

    Args:
      net: the step (`tests.proofs.training_steps`).
      trips: how many iterations its loop runs.
      states: how many states it carries.
      histories: shared by the runs that are compared.
    """
    run = Run(histories)
    starts = [run.given(Fraction(*one), "input", one) for one in ((3, 4), (-5, 7))[:states]]
    w = run.given(Fraction(-2, 3), "input", "w")
    xs = [run.given(Fraction(one, 5), "input", "x", one) for one in (4, -1, 2)]
    return run.run(net, [*starts, w, xs, np.int32(trips)])

"""What runs again of small Nets, held against the best that any choice could hold.

The gradient's order is given, and every op may run again once, whenever that is best: a mixed
integer program, as Checkmate's (Jain et al. 2020), which HiGHS solves. Nobody can hold less at the
worst moment; the segments of `rnnmem.passes.straight_line.select` hold little more.
"""

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint
from scipy.sparse import lil_matrix

from rnnmem.analysis.machine import CPU
from rnnmem.passes.straight_line.segments import Line
from rnnmem.passes.straight_line.select import candidates
from rnnmem.solver import milp
from tests.handmade import const, make_net, op
from tests.passes.straight_line.test_select import F, chain

MIB = 2**20
MARGIN = 4 / 3
"""A segment's clones are all there when its gradient arrives; the best makes them in turn."""
SMALL = "f[64,512]"


class Program:
    """The least bytes of residuals at the worst moment of the gradient.

    For each blob and each moment there are three choices: it is there (``here``), it is held until
    the next one (``held``; at moment 0: it is saved), its op runs again (``again``).
    """

    def __init__(self, net):
        self.line = line = Line(net)
        forward = [one for one in line.net.ops if line.position(one) is not None]
        self.sizes = {
            blob: line.held(blob) / MIB
            for one in forward
            for blob in one.outputs
            if line.held(blob)
        }
        gradient = [one for one in line.net.ops[line.turn :] if line.position(one) is None]
        reads = [self.sizes.keys() & set(one.inputs) for one in gradient]
        self.reads = [set(), *filter(None, reads)]
        self.rows, self.low, self.high = [], [], []
        self.count = 1  # the first variable is the most that is held
        moments = range(len(self.reads))
        self.here, self.held, self.again = (
            {blob: [self._new() for _ in moments] for blob in self.sizes} for _ in range(3)
        )
        for blob in self.sizes:
            self._constrain(line.net.producer[blob], blob, moments)
        for moment in moments:
            self._count(moment, self.reads[moment])
            self._count(moment, self.reads[moment + 1] if moment + 1 < len(moments) else set())

    def _count(self, moment, read):
        """What is held behind a moment is there with what is read in it, and in the next one."""
        sizes = {
            self.held[blob][moment]: size for blob, size in self.sizes.items() if blob not in read
        }
        self._demand({0: -1.0, **sizes}, high=-sum(self.sizes[blob] for blob in read))

    def _new(self):
        self.count += 1
        return self.count - 1

    def _demand(self, row, low=-np.inf, high=np.inf):
        self.rows.append(row)
        self.low.append(low)
        self.high.append(high)

    def _constrain(self, maker, blob, moments):
        here, held, again = self.here[blob], self.held[blob], self.again[blob]
        self._demand(dict.fromkeys(again, 1.0), high=1)
        self._demand({again[0]: 1.0}, high=0)
        for moment in moments:
            before = {held[moment - 1]: -1.0} if moment else {}
            if moment:
                self._demand({here[moment]: 1.0, again[moment]: -1.0, **before}, high=0)
                self._demand({held[moment]: 1.0, here[moment]: -1.0}, high=0)
            if blob in self.reads[moment]:
                self._demand({here[moment]: 1.0}, low=1)
            for given in maker.inputs:
                if given in self.sizes:
                    self._demand({again[moment]: 1.0, self.here[given][moment]: -1.0}, high=0)

    def least(self):
        """MiB."""
        matrix = lil_matrix((len(self.rows), self.count))
        for number, row in enumerate(self.rows):
            for at, factor in row.items():
                matrix[number, at] = factor
        ones = np.ones(self.count)
        ones[0] = np.inf
        cost = np.zeros(self.count)
        cost[0] = 1
        whole = np.zeros(self.count)
        for blob in self.sizes:
            whole[[*self.again[blob], self.held[blob][0]]] = 1
        solved = milp(
            cost,
            integrality=whole,
            bounds=Bounds(0, ones),
            constraints=LinearConstraint(matrix.tocsr(), self.low, self.high),
            options={"mip_rel_gap": 0.0, "time_limit": 60},
        )
        assert solved.success, solved.message
        return solved.fun


def narrow(layers):
    """A chain where every layer ends in a blob of an eighth; most is spared by keeping those."""
    ops, given = [], "x"
    for i in range(layers):
        ops += [
            op(f"a{i}", "MatMul", f"{given} wide", F),
            op(f"b{i}", "Sin", f"a{i}", F),
            op(f"c{i}", "Tanh", f"b{i}", F),
            op(f"d{i}", "MatMul", f"low c{i}", SMALL),
            op(f"e{i}", "MatMul", f"high d{i}", F),
        ]
        given = f"e{i}"
    ops += [const("axes", (0, 1)), op("loss", "Mean", f"{given} axes", "f[]")]
    ops.append(op(f"gradients/f{layers}", "Mul", f"{given} {given}", F))
    ops.append(op(f"gradients/w{layers}", "Sum", f"gradients/f{layers} axes", "f[]"))
    for i in reversed(range(layers)):
        ops += [
            op(f"gradients/g{i}", "MatMul", f"low gradients/f{i + 1}", SMALL),
            op(f"gradients/h{i}", "Mul", f"gradients/g{i} d{i}", SMALL),
            op(f"gradients/i{i}", "MatMul", f"high gradients/h{i}", F),
            op(f"gradients/j{i}", "TanhGrad", f"c{i} gradients/i{i}", F),
            op(f"gradients/k{i}", "TanhGrad", f"b{i} gradients/j{i}", F),
            op(f"gradients/f{i}", "MatMul", f"gradients/k{i} wide", F),
            op(f"gradients/w{i}", "Sum", f"gradients/f{i} axes", "f[]"),
        ]
    inputs = {"x": F, "wide": F, "low": SMALL, "high": "f[512,64]"}
    sums = [f"gradients/w{i}" for i in range(layers + 1)]
    return make_net(inputs, ops, ["loss", "gradients/f0", *sums])


@pytest.mark.slow
@pytest.mark.parametrize("net", [chain(3), chain(4), narrow(3), narrow(4)])
def test_little_more_is_held_than_by_the_best_choice(net):
    most = sum(CPU.seconds(one, net) for one in net.ops)
    best = candidates(net, CPU.seconds, most)[0]
    assert best.peak / MIB <= MARGIN * Program(net).least() + 0.01

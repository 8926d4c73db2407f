"""The saved set of one step net, exactly: least time within bytes, or least bytes within time.

A minimum cut at a price finds the corners of all trades between bytes and time; what lies between
two corners it never finds. Here each blob has a variable "saved" and each op one "runs again":

    demanded blob b       saved(b) + again(op of b) >= 1
    op o that runs again  saved(b) + again(op of b) >= again(o)   for each blob b that o reads

and HiGHS finds the best of all choices. Sources: Jain et al. 2020, "Checkmate" (rematerialization
as an integer program; here each op runs again at most once), and the activation budget of PyTorch's
AOTAutograd partitioner, which solves a knapsack.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from scipy.optimize import Bounds
from scipy.sparse import csr_matrix

from rnnmem.ir.graph import Op
from rnnmem.passes.encode.decision import Encoding
from rnnmem.passes.rematerialise.min_cut import (
    SavedSet,
    Step,
    choose_saved_set,
    collect,
    is_constant,
    may_be_saved,
)
from rnnmem.solver import milp

LARGEST = 1500
"""Ops of one step net up to which the exact choice is tried; beyond it the corners stand."""

NODES = 500
"""Branches that one solution may look at; a bound in time would choose by how busy a machine is."""

SECONDS = 60.0
"""Time after which a solution is given up whole; what was found by then depends on the machine."""


def fastest_within(step: Step, limit: int) -> SavedSet | None:
    """The choice of least time that keeps at most ``limit`` bytes per iteration.

    Of several as fast, the one that keeps fewest bytes. Where the original keeps no more than that,
    it is the original's choice: nothing runs again.

    Returns:
      The choice, or None where no choice keeps so little.
    """
    original = as_it_was(step)
    if original is not None and original.bytes <= limit:
        return original
    program = _Program(step)
    if len(program.ops) > LARGEST:
        return _corner(step, lambda one: one.bytes <= limit, lambda one: (one.seconds, one.bytes))
    seconds, kept = program.seconds, program.bytes
    first = program.solve(seconds, kept, limit)
    if first is None:
        return None
    spent = seconds @ first
    least = program.solve(kept, seconds, spent + 1e-9 * max(1e-9, abs(spent)))
    return program.choice(first if least is None or kept @ least > kept @ first else least)


def smallest_within(step: Step, seconds: float) -> SavedSet | None:
    """The choice of fewest bytes per iteration that spends at most ``seconds``.

    Args:
      step: the step net.
      seconds: what :attr:`SavedSet.seconds` may be.

    Returns:
      The choice, or None where every choice takes longer.
    """
    program = _Program(step)
    if len(program.ops) > LARGEST:
        return _corner(
            step, lambda one: one.seconds <= seconds, lambda one: (one.bytes, one.seconds)
        )
    found = program.solve(program.bytes, program.seconds, seconds)
    return None if found is None else program.choice(found)


def as_it_was(step: Step) -> SavedSet | None:
    """The original's choice: what is demanded is saved; None where that may not be."""
    live_in = {step.signs.get(blob, blob) for blob in step.live_in}
    saved = {blob for blob in live_in if not step.is_given(blob)} | (step.free & step.pushed)
    if not saved <= step.pushed - step.recomputed:
        return None
    kept = sum(step.bytes_kept(blob) for blob in saved - step.free)
    return SavedSet(
        saved=frozenset(saved),
        recomputed=(),
        hoisted=frozenset(step.live_in & step.hoisted),
        bytes=kept,
        seconds=step.seconds_to_keep(kept),
    )


def corners(step: Step, tries: int = 24) -> tuple[SavedSet, ...]:
    """Choices that minimum cuts find at prices over the whole range, fewest bytes first."""
    total = sum(step.seconds(op, step.body) for op in step.body.ops) or 1.0
    middle = max(1, sum(step.bytes_kept(blob) for blob in step.pushed)) / total
    prices = [0.0, *(middle * 10.0 ** (power / 3 - 4) for power in range(tries)), 1e15]
    found = [choose_saved_set(step, price) for price in prices]
    kept = {one.bytes: one for one in found if one is not None}
    return tuple(kept[size] for size in sorted(kept))


def _corner(step: Step, fits, key) -> SavedSet | None:
    return min(filter(fits, corners(step)), key=key, default=None)


@dataclasses.dataclass
class _Rows:
    """Rows of ``sum(coefficient * variable) >= least``."""

    columns: list[int] = dataclasses.field(default_factory=list)
    coefficients: list[float] = dataclasses.field(default_factory=list)
    starts: list[int] = dataclasses.field(default_factory=lambda: [0])
    least: list[float] = dataclasses.field(default_factory=list)

    def add(self, terms: list[tuple[int, float]], least: float) -> None:
        self.columns += [column for column, _ in terms]
        self.coefficients += [coefficient for _, coefficient in terms]
        self.starts.append(len(self.columns))
        self.least.append(least)


class _Program:
    """The integer program of one step net."""

    def __init__(self, step: Step):
        self.step = step
        self.ops: dict[str, int] = {}
        self.blobs: dict[str, list[tuple[int, Encoding]]] = {}  # its forms
        self.costs: list[tuple[float, float]] = []
        self.upper: list[int] = []
        self.rows = _Rows()
        pending: list[Op] = []
        for blob in sorted(step.live_in):
            if not step.is_given(blob):
                self.rows.add(self._had(blob, pending), 1)
        while pending:
            self._add_reads(pending.pop(), pending)
        table = np.array(self.costs, float).reshape(-1, 2)
        self.seconds, self.bytes = table[:, 0], table[:, 1]

    def _variable(self, seconds: float, size: float, allowed: bool) -> int:
        self.costs.append((seconds, size))
        self.upper.append(int(allowed))
        return len(self.costs) - 1

    def _had(self, blob: str, pending: list[Op]) -> list[tuple[int, float]]:
        """The variables of which one must be 1 for the gradient step net to have the blob."""
        producer = self.step.body.producer.get(blob)
        if blob not in self.blobs:
            free = blob in self.step.free
            allowed = free or may_be_saved(self.step, blob)
            if producer is not None and is_constant(producer):
                free, allowed = True, False
            ways = (Encoding(blob, ()),) if free else self.step.ways_to_keep(blob)
            self.blobs[blob] = [
                (self._variable(one.seconds, one.bytes, allowed), one) for one in ways
            ]
        terms = [(index, 1.0) for index, _ in self.blobs[blob]]
        if producer is not None:
            if producer.name not in self.ops:
                seconds = self.step.rematerialised_seconds(producer)
                allowed = is_constant(producer) or self.step.may_run_twice(producer)
                self.ops[producer.name] = self._variable(seconds, 0.0, allowed)
                if allowed:
                    pending.append(producer)
            terms.append((self.ops[producer.name], 1.0))
        return terms

    def _add_reads(self, op: Op, pending: list[Op]) -> None:
        rematerialised = self.ops[op.name]
        for blob in dict.fromkeys(self.step.rematerialised_inputs(op)):
            if self.step.is_given(blob):
                continue
            self.rows.add([*self._had(blob, pending), (rematerialised, -1.0)], 0)
            producer = self.step.body.producer.get(blob)
            if self.step.folds_into(producer, op):
                self.rows.add([(self.ops[producer.name], 1.0), (rematerialised, -1.0)], 0)

    def solve(self, objective: np.ndarray, bounded: np.ndarray, limit: float) -> np.ndarray | None:
        """The choice of least ``objective`` with ``bounded`` at most ``limit``."""
        count = len(self.costs)
        if not count:
            return np.zeros(0) if limit >= 0 else None
        # HiGHS' tolerances are absolute, so both sides are scaled to about one.
        scale = objective.max() or 1.0
        across = bounded.max() or 1.0
        rows = csr_matrix(
            (self.rows.coefficients, self.rows.columns, self.rows.starts),
            shape=(len(self.rows.least), count),
        )
        constraints = [(rows, self.rows.least, np.inf)]
        if limit < math.inf:
            constraints.append((bounded[None, :] / across, -np.inf, limit / across))
        result = milp(
            objective / scale,
            integrality=np.ones(count),
            bounds=Bounds(0, self.upper),
            constraints=constraints,
            options={"node_limit": NODES, "time_limit": SECONDS, "mip_rel_gap": 1e-9},
        )
        out_of_time = result.status == 1 and (result.mip_node_count or 0) < NODES
        if result.x is None or out_of_time:
            return None
        found = np.round(result.x)
        return found if bounded @ found <= limit * (1 + 1e-9) + 1e-12 else None

    def choice(self, values: np.ndarray) -> SavedSet:
        """The choice that the variables stand for."""
        rematerialised = {name for name, index in self.ops.items() if values[index] > 0.5}

        def codec(blob: str) -> Encoding:
            ways = self.blobs.get(blob) or [(0, one) for one in self.step.ways_to_keep(blob)]
            return next((one for index, one in ways if values[index] > 0.5), ways[0][1])

        return collect(self.step, rematerialised, codec)

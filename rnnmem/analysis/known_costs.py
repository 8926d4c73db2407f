"""Costs of a machine that is known, and what is plausible of any.

Known are those of two cores of a server of 2026 (AVX-512, TensorFlow 2.21): the middle of some
runs of `rnnmem.tf.calibration`; of a byte that is kept and of a thin product of 2.1e6 operations,
by hand. And those of an H200 with sixteen such cores, by hand. Plans are made by them where nothing
was measured.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from rnnmem.analysis.costs import Costs, Curve

KNOWN = Costs(
    op=4e-7,
    dead=8e-8,
    iteration=1.4e-6,
    variable=4e-7,
    value=3e-7,
    list=2e-7,
    optional=3.5e-7,
    woken=1.6e-5,
    products=((8e3, 1.5e-7), (5.2e5, 3e-6), (3.4e7, 1e-4), (2.7e8, 7e-4)),
    thin=((8e3, 1.5e-7), (1.3e5, 1e-6), (2.1e6, 9e-6), (3.4e7, 1.2e-4)),
    moved=((1.2e4, 6e-8), (2e5, 1e-6), (7.9e5, 8e-6), (3.1e6, 6e-5), (1.3e7, 2.8e-4)),
    kept=7e-11,
    work=MappingProxyType({"": 8e-11, "tanh": 1.1e-10, "sigmoid": 9e-11, "exp": 9e-11}),
)
KNOWN_GPU = Costs(
    op=1e-6,
    dead=5e-7,
    iteration=1.2e-5,
    variable=2.5e-6,
    value=2.5e-6,
    list=1.7e-6,
    optional=2e-6,
    woken=0.0,
    products=((1e8, 7e-6), (1e9, 5e-5)),
    thin=((2e7, 7e-6), (1e9, 2e-4)),
    moved=((1.0, 7e-6), (1e6, 7.5e-6), (1e7, 1.3e-5), (1e8, 5e-5)),
    kept=1e-12,
    work=MappingProxyType({"": 1e-12}),
)
"""Starting a kernel is what costs, so the least of a curve is that. With these, four steps of
`benchmarks.gpu` are estimated at 0.95 to 1.23 of their time."""
GROUPS: Mapping[str, str] = MappingProxyType(
    {
        "op": "executor",
        "dead": "executor",
        "iteration": "executor",
        "variable": "executor",
        "value": "executor",
        "list": "executor",
        "optional": "executor",
        "woken": "threads",
        "products": "arithmetic",
        "thin": "arithmetic",
        "work": "arithmetic",
        "moved": "memory",
        "kept": "memory",
    }
)
"""Costs that are faster or slower together on a machine, about."""
APART: Mapping[str, float] = MappingProxyType(
    {"executor": 1.5, "arithmetic": 2.0, "memory": 2.5, "threads": 1.5}
)
"""So many times slower or faster than its group one may be: what is more was disturbed."""
GROUPS_APART = 3.0
"""So many times slower or faster than all together a group may be."""
MOST: Mapping[str, float] = MappingProxyType(
    {"executor": 30.0, "arithmetic": 1000.0, "memory": 1000.0, "threads": 1000.0}
)
"""So many times slower or faster than the known one a machine may be: kernels may be a GPU's."""


def flat(costs: Costs) -> dict[str, float]:
    """Every number of the costs by a name of its own."""
    found: dict[str, float] = {}
    for field in dataclasses.fields(costs):
        value = getattr(costs, field.name)
        if isinstance(value, Mapping):
            found |= {f"{field.name}.{key}": one for key, one in value.items()}
        elif isinstance(value, tuple):
            found |= {f"{field.name}.{number}": one for number, (_, one) in enumerate(value)}
        else:
            found[field.name] = value
    return found


NAMES = tuple(flat(KNOWN))
"""Names of all numbers."""


def of_flat(numbers: Mapping[str, Any]) -> Costs:
    """The costs whose numbers these are; sizes are those of the known ones.

    Raises:
      ValueError: one is missing, is no number, or is plausible nowhere.
    """
    for name in NAMES:
        value = numbers.get(name)
        if not isinstance(value, float) or not math.isclose(plausible(name, value), value):
            raise ValueError(f"{name}={value!r} is no cost")
    made: dict[str, Any] = {}
    for field in dataclasses.fields(KNOWN):
        known = getattr(KNOWN, field.name)
        if isinstance(known, Mapping):
            made[field.name] = MappingProxyType(
                {key: float(numbers[f"{field.name}.{key}"]) for key in known}
            )
        elif isinstance(known, tuple):
            made[field.name] = _curve(field.name, known, numbers)
        else:
            made[field.name] = float(numbers[field.name])
    return Costs(**made)


def _curve(name: str, known: Curve, numbers: Mapping[str, Any]) -> Curve:
    """A curve that never falls: more never takes less."""
    points, least = [], 0.0
    for number, (size, _) in enumerate(known):
        least = max(least, float(numbers[f"{name}.{number}"]))
        points.append((size, least))
    return tuple(points)


def completed(found: Mapping[str, float], groups_apart: float = GROUPS_APART) -> dict[str, float]:
    """All numbers, given those that were measured: each is near what the others of its group say.

    Args:
      found: name -> seconds; at least one.
      groups_apart: how many times slower or faster than all together a group may be.
    """
    all_slower = _slower(found, NAMES)
    made = {}
    for name in NAMES:
        group = [other for other in NAMES if group_of(other) == group_of(name) and other in found]
        slower = _slower(found, group) if group else all_slower
        slower = min(max(slower, all_slower / groups_apart), all_slower * groups_apart)
        usual = _FLAT[name] * slower
        apart = APART[group_of(name)]
        value = min(max(found.get(name, usual), usual / apart), usual * apart)
        made[name] = plausible(name, value)
    return made


def _slower(found: Mapping[str, float], names: Iterable[str]) -> float:
    """How many times slower than the known one the machine is, in the median of some numbers."""
    return statistics.median(found[name] / _FLAT[name] for name in names if name in found)


def group_of(name: str) -> str:
    """The group of a number."""
    return GROUPS[name.partition(".")[0]]


def plausible(name: str, seconds: float) -> float:
    """The measured number, or the nearest that is plausible."""
    known, most = _FLAT[name], MOST[group_of(name)]
    return min(max(seconds, known / most), known * most)


_FLAT: Mapping[str, float] = MappingProxyType(flat(KNOWN))

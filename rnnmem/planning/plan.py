"""A Plan: every decision for one Net, as plain data that prints, and goes to JSON and back."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rnnmem.ir.edges import Edge
from rnnmem.ir.names import UNKNOWN, Origins
from rnnmem.passes.chunked_loss.decision import ChunkedLoss
from rnnmem.passes.encode.decision import BFLOAT16, OFFLOAD
from rnnmem.passes.implicit_broadcast.decision import ImplicitBroadcast
from rnnmem.passes.lazy_gradient_lists.decision import LazyGradientList
from rnnmem.passes.normalise.decision import ZeroList
from rnnmem.passes.rebuild_lists.decision import RebuiltList
from rnnmem.passes.registry import BY_NAME, PASSES, Kind
from rnnmem.passes.rematerialise.decision import LoopPlan
from rnnmem.planning.as_json import from_data, to_data
from rnnmem.sizes import format_interval

FORMAT = 2
"""Number of the JSON's format; files without one are of the first."""

_FIRST_FORMAT = {
    "losses": "chunked_loss",
    "waits": "gradient_start",
    "gates": "after_loss",
    "folds": "implicit_broadcast",
    "empty_starts": "lazy_gradient_lists",
    "made_again": "rebuild_lists",
    "turns": "scheduling_edges",
}
"""What the decisions of passes were called there."""
_FIRST_FIELDS = {
    "again": "replays",
    "demands": "live_ins",
    "fate": "decision",
    "fates": "residuals",
    "in_flight": "parallel_iterations",
    "means": "techniques",
    "witnessed": "by_proxy",
}
"""What their fields were called there."""
_KINDS = {list: "a list", str: "a text", bool: "a truth value", type(None): "null"}
"""What values of JSON that are no objects are called; the others are numbers."""


@dataclasses.dataclass(frozen=True)
class NestedPlan:
    """The decisions for a step net that is a step by itself: a training loop's body, a branch.

    Attributes:
      path: names of ops and of the attributes that hold their step nets, outermost first.
      loops: names of those of the ops that are loops.
      plan: the decisions.
    """

    path: tuple[str, ...]
    loops: tuple[str, ...]
    plan: Plan


@dataclasses.dataclass(frozen=True)
class Plan:
    """All decisions for one Net.

    Attributes:
      loops: one entry per loop pair.
      decisions: of the other passes, by name, in the order of `rnnmem.passes.registry`; make them
        by :meth:`having`.
      notes: what was found and left alone, in words.
      slowdown: estimated factor of step time.
      measured_slowdown: the same as measured beside the original, or None.
      original_peak: estimated peak of the original above the resident state, in bytes, or None.
      predicted_peak: the same for the rewritten Net.
      original_interval: the lowest and the highest peak that a run of the original may have, in
        bytes, or None; `original_peak` lies between.
      predicted_interval: the same for the rewritten Net.
      worst_peak: the same where a thread is held up; known where a budget asked for it, not kept.
      nested: decisions for step nets that hold loop pairs of their own, inner ones first; each plan
        is for one run of its step net.
      calibrated: whether ``slowdown`` is by what this machine was measured to cost; else it is by
        the built-in table.
      origins: what is known of the names of ops beyond themselves, for people; not kept.
    """

    loops: tuple[LoopPlan, ...] = ()
    decisions: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    notes: tuple[str, ...] = ()
    slowdown: float = 1.0
    measured_slowdown: float | None = None
    original_peak: int | None = None
    predicted_peak: int | None = None
    original_interval: tuple[int, int] | None = None
    predicted_interval: tuple[int, int] | None = None
    worst_peak: int | None = dataclasses.field(default=None, compare=False)
    nested: tuple[NestedPlan, ...] = ()
    calibrated: bool = False
    origins: Origins = dataclasses.field(default=UNKNOWN, compare=False, repr=False)

    def of(self, name: str) -> tuple[Any, ...]:
        """The decisions of a pass; see `rnnmem.passes.registry` for those of loops."""
        return next((decided for known, decided in self.decisions if known == name), ())

    def having(self, **decided: tuple[Any, ...]) -> Plan:
        """The plan with these decisions of passes, by name, in place of theirs."""
        known = {**dict(self.decisions), **decided}
        ordered = tuple((one.name, known[one.name]) for one in PASSES if known.get(one.name))
        return dataclasses.replace(self, decisions=ordered)

    def at_every_depth(self, name: str) -> tuple[Any, ...]:
        """The decisions of a pass, those for step nets that are steps by themselves included."""
        below = (one.plan.at_every_depth(name) for one in self.nested)
        return (*self.of(name), *itertools.chain(*below))

    def without(self, names: Iterable[str]) -> Plan:
        """The plan without the decisions of these passes, at any depth."""
        fewer = self.having(**dict.fromkeys(names, ()))
        below = (dataclasses.replace(one, plan=one.plan.without(names)) for one in self.nested)
        return dataclasses.replace(fewer, nested=tuple(below))

    def noting(self, *notes: str) -> Plan:
        """The plan with more notes."""
        return dataclasses.replace(self, notes=(*self.notes, *notes))

    @property
    def told_time(self) -> str:
        """Factors of step time as text: the estimated one, and the measured if it is known."""
        measured = self.measured_slowdown
        told = "" if measured is None else f", measured {measured:.2f}x"
        table = " by this machine's costs" if self.calibrated else ""
        return f"{self.slowdown:.2f}x{table}{told}"

    @property
    def told_peaks(self) -> tuple[str, str]:
        """Predicted peaks as text, of the original and of the rewritten Net."""
        return (
            format_interval(self.original_interval, self.original_peak),
            format_interval(self.predicted_interval, self.predicted_peak),
        )

    @property
    def losses(self) -> tuple[ChunkedLoss, ...]:
        """Projections with their softmax losses that run by chunks, or why they do not."""
        return (*self.of("row_chunks"), *self.of("chunked_loss"))

    @property
    def start_edges(self) -> tuple[tuple[str, str], ...]:
        """Control edges around gradient loops: (waiting op, op waited for)."""
        return tuple((edge.op, edge.after) for edge in self.of("gradient_start"))

    @property
    def delayed_inputs(self) -> tuple[Edge, ...]:
        """Control edges that keep gradient ops from running beside the loss."""
        return self.of("after_loss")

    @property
    def implicit_broadcasts(self) -> tuple[ImplicitBroadcast, ...]:
        """Operands that ops of gradient step nets broadcast themselves."""
        return self.of("implicit_broadcast")

    @property
    def lazy_gradient_lists(self) -> tuple[LazyGradientList, ...]:
        """Lists of gradients that gradient loops begin without elements."""
        return self.of("lazy_gradient_lists")

    @property
    def rebuilt_lists(self) -> tuple[RebuiltList, ...]:
        """Lists that gradient loops are given again."""
        return self.of("rebuild_lists")

    @property
    def scheduling_edges(self) -> tuple[Edge, ...]:
        """Control edges by which large buffers take turns, at any depth."""
        return self.of("scheduling_edges")

    def every_loop(self, around: tuple[str, ...] = ()) -> Iterator[LoopPlan]:
        """Yields the decisions for every loop pair at any depth, each path from the outermost loop.

        Args:
          around: names of the loops around the plan's Net.
        """
        for loop in (one for top in self.loops for one in top.flat()):
            yield dataclasses.replace(loop, path=(*around, *loop.path)) if around else loop
        for one in self.nested:
            yield from one.plan.every_loop((*around, *one.loops))

    @property
    def must_recompute(self) -> bool:
        """Whether it computes something again because the user asked for it."""
        asked = any(one.asked for one in self.at_every_depth("straight_line"))
        return asked or any(loop.must_recompute for loop in self.every_loop())

    @property
    def changes_nothing(self) -> bool:
        """Whether applying the plan would leave the Net as it is."""
        alone = (
            one
            for name, decided in self.decisions
            if BY_NAME[name].kind in (Kind.BEFORE, Kind.WHOLE)
            for one in decided
        )
        return (
            all(getattr(one, "closed", "") for one in alone)
            and all(one.plan.changes_nothing for one in self.nested)
            and all(loop.closed for loop in self.loops)
        )

    @property
    def rounds(self) -> bool:
        """Whether a saved copy is rounded, so that gradients are not the original's bit for bit."""
        return any(loop.keeps_by(BFLOAT16) for loop in self.every_loop() if not loop.closed)

    @property
    def offloads(self) -> bool:
        """Whether a saved copy is on the host, and the step on another device."""
        return any(loop.keeps_by(OFFLOAD) for loop in self.every_loop() if not loop.closed)

    @property
    def cuts_rows(self) -> bool:
        """Whether a projection onto a vocabulary runs by chunks of tokens."""
        return any(not loss.closed for loss in self.losses)

    @property
    def outside_of_loops(self) -> bool:
        """Whether something is decided on ops outside of loops, beside losses and their order."""
        return bool(self.of("straight_line") or self.of("elementwise_chunks"))

    @property
    def writes_rows(self) -> bool:
        """Whether rows are written into a buffer one chunk after another, which has no gradient."""
        return self.cuts_rows or bool(self.of("elementwise_chunks"))

    @property
    def sums_by_chunks(self) -> bool:
        """Whether sums over tokens are added up in another order by that."""
        return any(not loss.closed and not loss.exact for loss in self.losses)

    def __str__(self) -> str:
        """The plan as `explain` tells it, without those that could run instead of it."""
        from rnnmem import tables
        from rnnmem.planning import telling  # it is made of plans

        width = tables.terminal_width()
        told = telling.parts(self, telling.names_in(self))
        return tables.plain_text(told, width or tables.WIDTH, wraps=width is not None)

    def _repr_html_(self) -> str:
        """The same in a notebook."""
        from rnnmem import tables
        from rnnmem.planning import telling

        return tables.as_html(telling.parts(self, telling.names_in(self)))

    def to_data(self) -> dict[str, Any]:
        """The plan as dicts, lists, texts and numbers."""
        return {"format": FORMAT, **_data(self)}

    def to_json(self) -> str:
        """The plan as JSON text."""
        return json.dumps(self.to_data(), indent=1)

    @staticmethod
    def from_json(text: str) -> Plan:
        """The inverse of :meth:`to_json`; also reads what `explain --json` prints, and format 1.

        Raises:
          ValueError: the text is no plan; names the field that is missing or unknown.
        """
        try:
            data = _plan_in(json.loads(text))
            number = data.pop("format", 1)
            if number not in (1, FORMAT):
                raise TypeError(f"its format is {number!r}, of a later rnnmem")
            if number == FORMAT:
                return _plan(data)
            return _plan(_of_first_format(_with_new_fields(data))).having(zero_lists=(ZeroList(),))
        except (TypeError, KeyError, AttributeError, json.JSONDecodeError) as error:
            said = f"it has no field {error}" if isinstance(error, KeyError) else error
            raise ValueError(f"this is not a plan that to_json wrote: {said}") from error


def without_peaks(plan: Plan) -> Plan:
    """The plan where no peak can be predicted: it tells none, nor do those nested in it."""
    nested = (dataclasses.replace(one, plan=without_peaks(one.plan)) for one in plan.nested)
    return dataclasses.replace(
        plan,
        original_peak=None,
        predicted_peak=None,
        original_interval=None,
        predicted_interval=None,
        nested=tuple(nested),
    )


def _data(plan: Plan) -> dict[str, Any]:
    return {
        **{one.name: getattr(plan, one.name) for one in dataclasses.fields(plan) if one.compare},
        "loops": list(map(to_data, plan.loops)),
        "decisions": {name: list(map(to_data, decided)) for name, decided in plan.decisions},
        "nested": [{**vars(one), "plan": _data(one.plan)} for one in plan.nested],
    }


def _plan_in(data: Any) -> dict[str, Any]:
    """A plan's fields in what JSON holds: a plan, or one with the name of its function beside it.

    Raises:
      TypeError: it holds no plan; says what it holds.
    """
    if isinstance(data, dict) and data.keys() == {"name", "plan"}:
        data = data["plan"]
    if not isinstance(data, dict):
        raise TypeError(f"it is {_KINDS.get(type(data), 'a number')}, not an object")
    if "loops" not in data:
        raise TypeError(
            f"it is an object of {', '.join(map(repr, data)) or 'nothing'}, not of loops"
        )
    return data


def _plan(data: Mapping[str, Any]) -> Plan:
    unknown = [name for name in data["decisions"] if name not in BY_NAME]
    if unknown:
        raise TypeError(f"no pass is called {unknown[0]!r}")
    decided = {
        name: from_data(tuple[BY_NAME[name].decides, ...], some, name)  # type: ignore[misc]
        for name, some in data["decisions"].items()
    }
    nested = tuple(
        NestedPlan(tuple(one["path"]), tuple(one["loops"]), _plan(one["plan"]))
        for one in data["nested"]
    )
    rest = {key: data[key] for key in data if key not in ("decisions", "nested")}
    plan = from_data(Plan, {**rest, "loops": data["loops"]})
    return dataclasses.replace(plan, nested=nested).having(**decided)


def _with_new_fields(data: Any) -> Any:
    """The same with the present names of fields, at any depth."""
    if isinstance(data, list):
        return [_with_new_fields(one) for one in data]
    if not isinstance(data, dict):
        return data
    return {_FIRST_FIELDS.get(key, key): _with_new_fields(one) for key, one in data.items()}


def _of_first_format(data: Mapping[str, Any]) -> dict[str, Any]:
    """The same plan as the present format has it."""
    known = {new: data[old] for old, new in _FIRST_FORMAT.items() if old in data}
    known["gradient_start"] = [
        {"op": op, "slot": None, "after": after} for op, after in data["waits"]
    ]
    return {
        **{key: data[key] for key in data if key not in _FIRST_FORMAT},
        "decisions": {**known, "scheduling_edges": data["turns"]},
        "nested": [
            {**one, "plan": _of_first_format(one["plan"])} for one in data.get("nested", ())
        ],
    }

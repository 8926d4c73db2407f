"""The report on a function that was traced and planned: its Nets, simulated."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from rnnmem.analysis.shape_rules import Fact
from rnnmem.analysis.shapes import KnownNet, filled, known_net
from rnnmem.ir.graph import Net, Path
from rnnmem.ir.names import functions_of
from rnnmem.planning.intervals import around
from rnnmem.planning.names import names_in
from rnnmem.planning.sentences import sentences
from rnnmem.reports.data import Side
from rnnmem.reports.inspection import Inspection
from rnnmem.reports.kinds import Kinds
from rnnmem.reports.measured import Measured, with_measured
from rnnmem.reports.moments import side
from rnnmem.reports.provenance import provenance
from rnnmem.reports.report import Report
from rnnmem.reports.resident import input_names, resident, weight_kinds
from rnnmem.reports.stepnets import Graph, graphs
from rnnmem.simulate.interval import peak_interval
from rnnmem.simulate.timeline import Record, record
from rnnmem.sizes import counted
from rnnmem.spared import spared
from rnnmem.tf import private
from rnnmem.tf.device import executor_threads
from rnnmem.tf.gc import paused
from rnnmem.tf.trips import facts_of, observed_trips


def report_on(
    inspection: Inspection,
    inputs: Sequence[Any] | None = None,
    measured: tuple[Measured, Measured] = (Measured(), Measured()),
    notes: tuple[str, ...] = (),
    batch: int | None = None,
) -> Report:
    """The report on a function that was traced and planned already; runs nothing but its loops.

    Args:
      inspection: from ``Optimized.inspect``.
      inputs: tensors for the inputs of its Net, or None where there are none.
      measured: what was measured before and after.
      notes: more to be told.
      batch: where ``inputs`` is None, stands for a first dimension that an input leaves open.
    """
    more = list(notes)
    with paused():
        plan = inspection.plan
        variables = inspection.original.graph.variables
        weights = spared(
            "which variables are weights", lambda: weight_kinds(variables), frozenset()
        )
        facts = spared("the arguments' shapes", lambda: _facts(inspection, inputs, batch), None)
        observed = _observed(inspection, inputs, facts, more)

        def told(name: str, net: Net | None, found: Measured) -> tuple[Side, Net | None]:
            """One variant's timeline, and its Net with all shapes that are known."""
            known = spared(f"the shapes {name}", lambda: _known(net, facts, observed), None, more)
            unknown = Side(name, None, found.peak, unknown=("the function",))
            if known is None:
                return unknown, None
            whole = spared(f"the Net {name}", lambda: filled(known), None, more)
            if whole is None:
                return unknown, None

            def timeline() -> Side:
                first = whole if original is None else original
                kinds = Kinds(whole, first, plan, weights)
                told = side(name, _recorded(known, compiled), kinds)
                return with_measured(_with_interval(told, known), found)

            return spared(f"the timeline {name}", timeline, unknown, more), whole

        compiled = private.is_compiled(inspection.original)
        original = None
        before, original = told("before", inspection.net, measured[0])
        after, rewritten = _renamed(before, "after"), original
        if inspection.rewritten is not None:
            after, rewritten = told("after", inspection.rewritten, measured[1])
        drawn: tuple[Graph, ...] = ()
        if original is not None and rewritten is not None:
            names = spared("names of variables", lambda: input_names(inspection.original), [], more)
            named = dict(zip(original.inputs, names, strict=False))
            peaks = {one.name: one.parts for one in (before, after)}
            draw = functools.partial(graphs, original, rewritten, plan, named, peaks)
            drawn = spared("the step nets", draw, (), more)
    if inspection.joint:
        more.append("the report covers the function together with its gradient")
    for path, trips in observed.items():
        more.append(f"loop {path.text} ran {counted(trips, 'iteration')} on these arguments")
    functions = spared("the functions of loops", lambda: functions_of(inspection.net), {}, more)
    naming = names_in(plan)
    tensors = inputs or inspection.original.graph.inputs
    held = spared("what is resident", lambda: resident(inspection.original, tensors), (), more)
    return Report(
        name=inspection.name,
        before=before,
        after=after,
        plan=plan,
        resident=held,
        budget=inspection.options.budget,
        graphs=drawn,
        notes=(*plan.notes, *sentences(plan, naming, most=1), *more),
        functions=functions,
        made=spared("the provenance", lambda: provenance(inspection.options, held), {}),
    )


def _recorded(known: KnownNet, compiled: bool) -> Record:
    """A simulated run; of a function that XLA compiles it is not known what the buffers are."""
    found = record(known)
    if not compiled:
        return found
    return dataclasses.replace(found, unknown=("the buffers that XLA lays out",))


def _with_interval(side: Side, known: KnownNet) -> Side:
    """The same with the lowest and the highest peak; the one that is drawn lies between."""
    found = None if side.peak_bytes is None else peak_interval(known, executor_threads())
    return dataclasses.replace(side, peak_interval=around(found, side.peak_bytes))


def _known(
    net: Net | None, facts: list[Fact] | None, observed: Mapping[Path, int]
) -> KnownNet | None:
    return None if net is None else known_net(net, facts, None, observed)


def _observed(
    inspection: Inspection,
    inputs: Sequence[Any] | None,
    facts: list[Fact] | None,
    notes: list[str],
) -> Mapping[Path, int]:
    """The iterations of loops whose number only a run tells."""
    net = inspection.net
    if not inputs or net is None:
        return {}
    run = functools.partial(observed_trips, net=net, inputs=inputs)
    return spared("the iterations of loops", lambda: run(known_net(net, facts)), {}, notes)


def _facts(
    inspection: Inspection, inputs: Sequence[Any] | None, batch: int | None
) -> list[Fact] | None:
    """What the inputs of a Net are in this call."""
    if inspection.net is None:
        return None
    if inputs is None and batch is None:
        return None
    if inputs is None:
        inputs = inspection.original.graph.inputs
    return facts_of(inspection.net, inputs, batch)


def _renamed(side: Side, name: str) -> Side:
    return dataclasses.replace(side, name=name)

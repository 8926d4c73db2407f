"""A report on a hand-made loop pair, made without TensorFlow."""

from rnnmem.analysis.machine import CPU
from rnnmem.analysis.shapes import filled, known_net
from rnnmem.planning.apply import apply_plan
from rnnmem.planning.pareto import plan_net
from rnnmem.planning.plan import Plan
from rnnmem.reports.data import WEIGHTS, Part
from rnnmem.reports.kinds import Kinds
from rnnmem.reports.moments import side
from rnnmem.reports.report import Report
from rnnmem.reports.stepnets import graphs
from rnnmem.simulate.timeline import record
from tests.handmade import encoded, rnn


def report(
    name="train_step", *, trips=150, units=64, changed=True, segments=False, **fields
) -> Report:
    net = rnn(units, trips)
    weights = frozenset({("float32", (units, units))})
    plan = plan_net(net, CPU, 1e9, segments=segments) if changed else Plan()
    rewritten = apply_plan(net, plan, encoded) if changed else net
    known, after = known_net(net), known_net(rewritten)
    original = filled(known)
    final = filled(after) if changed else original
    sides = (
        side("before", record(known), Kinds(original, original, plan, weights)),
        side("after", record(after), Kinds(final, original, plan, weights)),
    )
    return Report(
        name=name,
        before=sides[0],
        after=sides[1],
        plan=plan,
        resident=(Part("w", WEIGHTS, units * units * 4, dtype="float32", shape=(units, units)),),
        graphs=graphs(original, final, plan, peaks={one.name: one.parts for one in sides}),
        **fields,
    )

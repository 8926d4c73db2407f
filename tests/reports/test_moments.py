"""The timeline is the planner's simulation: nothing is added, nothing is lost."""

import dataclasses

import pytest

from rnnmem.analysis.machine import CPU
from rnnmem.analysis.shapes import filled, known_net
from rnnmem.ir.graph import Net
from rnnmem.passes.straight_line.decision import Region
from rnnmem.planning.apply import apply_plan
from rnnmem.planning.pareto import plan_net
from rnnmem.planning.plan import Plan
from rnnmem.reports import moments
from rnnmem.reports.data import ALLOCATOR, GRADIENT, OUTPUT, RECOMPUTED, SAVED, TEMPORARY
from rnnmem.reports.kinds import Kinds
from rnnmem.reports.moments import MOMENTS, NAMED, begun, side
from rnnmem.reports.rows import alike, areas, largest
from rnnmem.simulate.buffers import Origin, Span
from rnnmem.simulate.timeline import counted_peak, record
from tests.handmade import encoded, make_net, op, rnn
from tests.reports.handmade_report import report

WEIGHT = frozenset({("float32", (64, 64))})


def told(net: Net, name="before", weights=WEIGHT):
    known = known_net(net)
    return side(name, record(known), Kinds(filled(known), filled(known), Plan(), weights))


@pytest.mark.parametrize("trips", [1, 5, 150, 4000])
def test_the_parts_add_up_to_the_peak_that_plans_are_chosen_by(trips):
    net = rnn(limit=trips)
    rewritten = apply_plan(net, plan_net(net, CPU, 1e9), encoded)
    for one in (net, rewritten):
        found = told(one)
        assert found.peak_bytes == counted_peak(one)
        assert sum(part.bytes for part in found.parts) == found.peak_bytes
        assert all(part.bytes > 0 for part in found.parts)


def test_at_every_moment_the_areas_add_up_to_what_is_in_use():
    known = known_net(rnn(limit=150))
    made = record(known)
    found = side("before", made, Kinds(filled(known), filled(known), Plan(), WEIGHT))
    assert max(found.totals) == found.peak_bytes == max(made.in_use)
    assert found.totals[found.x.index(found.peak_x)] == found.peak_bytes
    assert set(found.totals) <= set(made.in_use)
    assert list(found.x) == sorted(found.x)
    assert len(found.x) <= 2 * MOMENTS


def test_every_blob_of_the_largest_rows_at_the_peak_has_an_area_of_its_own():
    """Sixty small ones that are alike are the largest row, and each is too small to be named."""
    large = [op(f"x{i + 1}", "Tanh", f"x{i}", "f[64,64]") for i in range(NAMED)]
    small = [op(f"y{i + 1}", "Tanh", f"y{i}", "f[60,60]") for i in range(2 * NAMED)]
    names = [one.op.name for one in (*large, *small)]
    net = make_net({"x0": "f[64,64]", "y0": "f[60,60]"}, (*large, *small), names)
    found = told(net, weights=frozenset())
    at_peak = found.x.index(found.peak_x)
    drawn = {alike(parts[0]): sizes[at_peak] for parts, sizes in areas(found)}
    numbered = largest(found.parts)
    assert [len(row) for row in numbered] == [2 * NAMED, NAMED]
    for row in numbered:
        assert drawn[alike(row[0])] == sum(part.bytes for part in row)


def test_each_blob_is_what_it_is():
    """h is pushed, and t is the next h; e is summed; pushing w costs nothing."""
    found = told(rnn(limit=150))
    kinds = {(part.label, part.kind) for area in found.areas for part in [area.part]}
    assert ("loop: h", SAVED) in kinds
    assert ("gradient: e", GRADIENT) in kinds
    assert not any(kind == RECOMPUTED for _, kind in kinds)
    assert {kind for _, kind in kinds} <= {SAVED, GRADIENT, OUTPUT, TEMPORARY, ALLOCATOR}


def test_what_the_original_does_not_have_is_recomputed():
    after = report(changed=True).after
    assert RECOMPUTED in {area.part.kind for area in after.areas}
    recomputed = [area.part for area in after.areas if area.part.kind == RECOMPUTED]
    assert all(part.decision == "recomputed" and part.reason for part in recomputed if part.op_type)


def test_a_saved_blob_has_its_decision_and_the_reason():
    before = report(changed=True).before
    saved = [part for part in before.parts if part.kind == SAVED]
    assert saved and all(part.decision and part.reason for part in saved)


def test_iterations_that_were_not_simulated_take_their_room():
    """The forward and the gradient loop of 4000 iterations are both nearly half of the axis."""
    spans = told(rnn(limit=4000)).spans
    width = spans[-1].end
    assert [span.iterations for span in spans] == [4000, 4000]
    assert all((span.end - span.start) / width > 0.1 for span in spans)
    assert sum(span.end - span.start for span in spans) / width > 0.95


def test_a_loop_begins_with_its_own_buffers_and_not_with_its_first_counter():
    """A gradient loop is given its counter when the function starts."""
    known = known_net(rnn(limit=150))
    made = record(known)
    (given,) = [span for span in made.spans if span.loops == ("gradient",)]
    early = dataclasses.replace(given, start=0)
    spans = tuple(early if span is given else span for span in made.spans)
    kinds = Kinds(filled(known), filled(known), Plan(), WEIGHT)
    found = side("before", dataclasses.replace(made, spans=spans), kinds)
    forward, gradient = sorted(found.spans, key=lambda span: span.is_gradient)
    assert 0 == forward.start < forward.end <= found.gradient_x <= gradient.start < gradient.end


def test_no_gradient_loop_begins_before_the_gradient(monkeypatch):
    """A few of its iterations may run beside the last ones of the forward loop."""
    known = known_net(rnn(limit=150))
    kinds = Kinds(filled(known), filled(known), Plan(), WEIGHT)
    there = side("before", record(known), kinds)
    monkeypatch.setattr(moments, "_gradient_x", lambda *_: there.gradient_x + 50)
    found = side("before", record(known), kinds)
    (gradient,) = [span for span in found.spans if span.is_gradient]
    assert gradient.start == found.gradient_x == there.gradient_x + 50


def test_loops_that_run_at_the_same_time_begin_together():
    for threads in (2, 3, 5):
        for one in range(threads):
            assert begun(range(one, 600, threads), Span(("loop",), 0, 600, 100)) == 0
    behind = [0, 7, *range(500, 600)]
    assert begun(behind, Span(("loop",), 0, 600, 100)) == 500
    assert begun([*range(100), *behind[2:]], Span(("loop",), 490, 600, 100)) == 500
    assert begun(behind, Span(("loop",), 500, 600, 100)) == 500
    assert begun((), Span(("loop",), 20, 20, 0)) == 20


def test_an_unknown_size_gives_no_timeline_and_names_what_is_unknown():
    found = told(make_net({"x": "f[?,64]"}, [op("t", "Tanh", "x", "f[?,64]")], ["t"]))
    assert found.peak_bytes is None
    assert found.unknown
    assert not found.areas and not found.parts


def test_an_empty_function_has_a_peak_of_zero():
    found = told(Net("nothing", (), (), (), {}))
    assert (found.peak_bytes, found.parts, found.x) == (0, (), ())


def test_states_that_segments_begin_with_are_saved_and_say_so():
    made = report(segments=True)
    saved = made.after.by_kind()[SAVED]
    (part,) = [part for part in made.after.parts if part.label == "loop: h"]
    assert (part.kind, part.decision) == (SAVED, "checkpointed")
    assert "at the start of at most 4 of 50 segments of 3 iterations" in part.reason
    assert saved >= part.bytes > 0
    peak = counted_peak(apply_plan(rnn(64, 150), made.plan, encoded))
    assert sum(part.bytes for part in made.after.parts) == made.after.peak_bytes == peak


def test_before_a_blob_says_what_becomes_of_it_under_segments():
    parts = report(segments=True).before.parts
    residuals = {part.label: part.decision for part in parts if part.kind == SAVED}
    assert residuals["loop: h"] == "checkpointed"


def test_what_a_loop_hands_to_its_next_iteration_is_a_state_as_explain_calls_it():
    """h is an argument of the step net; the line is that of the op that wrote it."""
    part = next(part for part in told(rnn(limit=150)).parts if part.label == "loop: h")
    assert (part.op_type, part.kind) == ("state", SAVED)


def outside(*more):
    """x -> m -> t -> loss, and its gradient; t takes m's buffer, u is read by the loss alone."""
    ops = [
        op("m", "MatMul", "x w", "f[64,64]"),
        op("t", "Tanh", "m", "f[64,64]"),
        op("u", "MatMul", "t w", "f[64,64]"),
        op("loss", "MatMul", "u w", "f[64,64]"),
        op("gradient_tape/t", "TanhGrad", "t loss", "f[64,64]"),
        *more,
    ]
    return make_net({"x": "f[64,64]", "w": "f[64,64]"}, ops, [ops[-1].op.name])


def kind_of(net, name, **plan):
    kinds = Kinds(net, net, Plan(**plan), frozenset())
    origin = Origin(op=name, blob=name, dtype="float32", shape=(64, 64))
    told = kinds.outcome(origin)
    return kinds.kind(origin), told.word if told else ""


def test_what_the_gradient_reads_outside_of_loops_is_saved():
    assert kind_of(outside(), "m") == (SAVED, "")
    assert kind_of(outside(), "t") == (SAVED, "")
    assert kind_of(outside(), "u") == (TEMPORARY, "")
    assert kind_of(outside(), "gradient_tape/t") == (TEMPORARY, "")
    zeros = op("zeros", "ZerosLike", "m", "f[64,64]")
    used = op("gradient_tape/z", "MatMul", "zeros w", "f[64,64]")
    assert kind_of(outside(zeros, used), "zeros") == (TEMPORARY, "")


def test_regions_outside_of_loops_are_told_as_run_again():
    region = Region(("m", "t"), ("gradient_tape/t",), (), 1, 0.0)
    plan = {"decisions": (("straight_line", (region,)),)}
    assert kind_of(outside(), "t", **plan) == (SAVED, "recomputed")
    assert kind_of(outside(), "u", **plan) == (TEMPORARY, "")
    original = outside()
    rewritten = outside(op("m/rnnmem/clone", "MatMul", "x w", "f[64,64]"))
    kinds = Kinds(rewritten, original, Plan(**plan), frozenset())
    assert kinds.kind(Origin(op="m/rnnmem/clone", blob="m/rnnmem/clone")) == RECOMPUTED


def test_where_the_gradient_runs_first_there_is_no_place_where_it_begins():
    ops = [
        op("gradient_tape/m", "MatMul", "x x", "f[64,64]"),
        op("m", "MatMul", "gradient_tape/m x", "f[64,64]"),
    ]
    assert told(make_net({"x": "f[64,64]"}, ops, ["m"])).gradient_x is None
    assert told(rnn(limit=5)).gradient_x is not None

"""Budgets: the fastest plan that fits, and errors that name what could be had."""

import dataclasses
import itertools
import math
import re
from random import Random

import pytest

from rnnmem.analysis.machine import CPU
from rnnmem.errors import BudgetError, OptionError, PlanError
from rnnmem.ir.edges import Edge
from rnnmem.passes.checkpoint.decision import Segments
from rnnmem.passes.rematerialise.decision import LoopPlan
from rnnmem.planning.alternatives import alternatives
from rnnmem.planning.choice import bisected, budget_for, needed_budget, unbeaten, worth_its_time
from rnnmem.planning.choice import least_of as least_of_refusals
from rnnmem.planning.decide import decide
from rnnmem.planning.options import Options
from rnnmem.planning.plan import Plan
from rnnmem.planning.saved import apply_saved, check_fits
from rnnmem.planning.search import Search
from rnnmem.planning.setting import Setting
from rnnmem.simulate.timeline import counted_peak, worst_peak
from rnnmem.sizes import format_bytes
from tests.handmade import const, empty_list, encoded, make_net, op, pop, push, rnn, while_op

WIDE = "f[32,64]"


def chain(limit=40, links=6):
    """A loop pair whose body is a chain of ``links`` pairs of ops, each saved: many trades."""
    lists = [f"acc{i}" for i in range(2 * links)]
    state = {"i": "i[]", "h": WIDE, "w": "f[64,64]"} | dict.fromkeys(lists, "v[]")
    ops = [const("one", 1), op("next", "AddV2", "i one", "i[]")]
    h, pushed = "h", []
    for k in range(links):
        ops += [op(f"m{k}", "MatMul", f"{h} w", WIDE), op(f"t{k}", "Tanh", f"m{k}", WIDE)]
        ops += [
            push(f"p{2 * k}", f"acc{2 * k}", h),
            push(f"p{2 * k + 1}", f"acc{2 * k + 1}", f"t{k}"),
        ]
        pushed += [f"p{2 * k}", f"p{2 * k + 1}"]
        h = f"t{k}"
    body = make_net(state, ops, ["next", h, "w", *pushed], name="body")

    back = {"i": "i[]", "g": WIDE, "w": "f[64,64]", "total": "f[64,64]"}
    back |= dict.fromkeys(lists, "v[]")
    ops = [const("one", 1), const("any", (-1, -1)), op("next", "AddV2", "i one", "i[]")]
    g, total = "g", "total"
    for k in reversed(range(links)):
        ops += [
            pop(f"h{k}", f"acc{2 * k}", WIDE),
            pop(f"t{k}", f"acc{2 * k + 1}", WIDE),
            op(f"d{k}", "TanhGrad", f"t{k}:1 {g}", WIDE),
            op(f"e{k}", "MatMul", f"h{k}:1 d{k}", "f[64,64]"),
            op(f"g{k}", "MatMul", f"d{k} w", WIDE),
            op(f"s{k}", "AddV2", f"{total} e{k}", "f[64,64]"),
        ]
        g, total = f"g{k}", f"s{k}"
    left = [f"{'ht'[i % 2]}{i // 2}:0" for i in range(2 * links)]
    gradient = make_net(back, ops, ["next", g, "w", total, *left], name="gradient_body")
    starts = " ".join(f"list{i}" for i in range(2 * links))
    made = " ".join(f"loop:{3 + i}" for i in range(2 * links))
    return make_net(
        {"x": WIDE, "w": "f[64,64]"},
        [
            const("zero", 0),
            const("any", (-1, -1)),
            *(empty_list(f"list{i}") for i in range(2 * links)),
            while_op("loop", f"zero x w {starts}", body, limit=limit),
            op("ones", "OnesLike", "loop:1", WIDE),
            op("zeros", "ZerosLike", "w", "f[64,64]"),
            while_op("gradient", f"zero ones w zeros {made}", gradient, limit=limit),
        ],
        ["loop:1", "gradient:1", "gradient:3"],
    )


def decision(net, **setting):
    return Search(net, Setting(CPU, encoded, **setting))


def under(made, budget):
    return decide(made, Options(budget=budget))


def least_of(made):
    """The smallest budget that can be met, as the error names it, and the slowdown."""
    with pytest.raises(BudgetError) as raised:
        under(made, 1)
    peak, slowdown = re.search(r"be (\d+) bytes .* (\d+\.\d+)x", str(raised.value)).groups()
    return int(peak), float(slowdown)


@pytest.mark.slow
@pytest.mark.parametrize("net", [chain(), rnn(limit=30)], ids=["chain", "rnn"])
def test_every_budget_down_to_the_one_that_the_error_names_is_met(net):
    made = decision(net)
    least, slowdown = least_of(made)
    original = needed_budget(made.original_peak)
    times = []
    for share in range(11):
        budget = least + (original - least) * share // 10
        plan, rewritten = under(made, budget)
        if rewritten is None:
            assert original <= budget
        else:
            assert plan.predicted_peak == counted_peak(rewritten)
            assert needed_budget(plan.predicted_peak) <= budget
        times.append(plan.slowdown if rewritten is not None else min([1.0, *times]))
    assert times == sorted(times, reverse=True)
    assert times[0] == pytest.approx(slowdown, abs=0.006)
    with pytest.raises(BudgetError, match="smaller batch"):
        under(made, least - 1)


SMALL = [chain(limit=25, links=2), chain(limit=60, links=3), rnn(limit=120)]


@pytest.mark.slow
@pytest.mark.parametrize("net", SMALL, ids=["two", "three", "rnn"])
def test_a_budget_is_met_if_and_only_if_it_is_as_large_as_the_one_named(net):
    made, random = decision(net), Random(5)
    least, _ = least_of(made)
    original = needed_budget(made.original_peak)
    budgets = [random.randrange(least // 2, original) for _ in range(12)]
    for budget in sorted([*budgets, least - 1, least, least + 1]):
        try:
            plan, rewritten = under(made, budget)
        except BudgetError as error:
            assert budget < least
            assert error.smallest == least
        else:
            assert budget >= least
            assert rewritten is None or budget_for(plan) <= budget


@pytest.mark.slow
@pytest.mark.parametrize("net", SMALL, ids=["two", "three", "rnn"])
def test_no_bound_on_time_finds_what_no_budget_finds(net):
    made, random = decision(net), Random(6)
    least, _ = least_of(made)
    for bound in [
        1.0,
        1.1,
        1.3,
        1.5,
        1e9,
        float("inf"),
        *(1 + 2 * random.random() for _ in "12345"),
    ]:
        plan, _ = made.least_memory(bound)
        assert budget_for(plan) >= least
        assert budget_for(under(made, budget_for(plan))[0]) <= budget_for(plan)


def test_longer_segments_are_within_reach_of_a_budget():
    made = decision(with_a_wide_moment(rnn(limit=400)))
    stretched = made.least_memory(1.5)[0]
    on_frontier = [budget_for(made.simulated(plan)) for plan in made.frontier_plans]
    assert budget_for(stretched) < min(on_frontier)
    assert least_of(made)[0] <= budget_for(stretched)


@pytest.mark.slow
def test_large_buffers_take_turns_where_nothing_else_meets_a_budget(monkeypatch):
    def with_edges_where_they_pay(net, plan):
        asked.append(plan)
        return dataclasses.replace(plan, predicted_peak=plan.predicted_peak // 2)

    asked = []
    net = chain(limit=25, links=2)
    made = decision(net, scheduling_edges=True)
    monkeypatch.setattr(made, "_in_turns", with_edges_where_they_pay)
    without, _ = least_of(decision(net))
    under(made, without)
    assert not asked
    least, _ = least_of(made)
    assert least < 0.7 * without
    assert budget_for(with_edges_where_they_pay(net, under(made, least)[0])) <= least
    with pytest.raises(BudgetError):
        under(made, least - 1)


def test_large_buffers_take_turns_where_there_is_no_loop(monkeypatch):
    def with_edges_where_they_pay(net, plan):
        return dataclasses.replace(plan, predicted_peak=1000, worst_peak=1000)

    net = make_net({"x": WIDE}, [op("y", "Tanh", "x", WIDE), op("z", "Exp", "y", WIDE)], ["y", "z"])
    made = decision(net, scheduling_edges=True)
    monkeypatch.setattr(made, "_in_turns", with_edges_where_they_pay)
    assert under(made, 1200)[1] is None
    with pytest.raises(BudgetError, match="be 1200 bytes.*nothing can be recomputed"):
        under(made, 1199)


def test_a_budget_holds_where_a_thread_is_held_up():
    large = "f[1024,1024]"
    ops = [
        const("axes", (0, 1)),
        const("turn", (1, 0)),
        op("y", "Exp", "x", large),
        op("loss", "Sum", "y axes", "f[]"),
        op("b", "Transpose", "y turn", large),
        op("c", "Transpose", "b turn", large),
        op("total", "Sum", "c axes", "f[]"),
    ]
    made = decision(make_net({"x": large}, ops, ["loss", "total"]))
    with pytest.raises(BudgetError) as raised:
        under(made, needed_budget(made.original_peak))
    worst = worst_peak(made.net)
    assert worst <= raised.value.smallest < needed_budget(worst)
    plan, rewritten = under(made, raised.value.smallest)
    assert rewritten is None and plan.predicted_peak < worst
    with pytest.raises(BudgetError):
        under(made, raised.value.smallest - 1)


@pytest.mark.parametrize("bound", [1.05, 1.3, 3.0])
@pytest.mark.parametrize("net", [chain(), rnn(limit=30)], ids=["chain", "rnn"])
def test_limits_of_the_simulation_choose_no_other_plan(net, bound, monkeypatch):
    plan, _ = decision(net).least_memory(bound)
    simulated = Search.simulated
    monkeypatch.setattr(Search, "simulated", lambda self, plan, _=0: simulated(self, plan))
    assert decision(net).least_memory(bound)[0] == plan


def test_a_plan_above_a_limit_is_simulated_once_more_only_for_a_higher_one(monkeypatch):
    made = decision(chain())
    plan = made.frontier_plans[-1]
    peak = decision(chain()).simulated(plan).predicted_peak
    counts = []
    monkeypatch.setattr(
        "rnnmem.planning.search.counted_peak",
        lambda net, **limits: counts.append(limits) or counted_peak(net, **limits),
    )
    for limit in (1, 1, math.inf, 1):
        known = made.simulated(plan, limit)
        assert 1 <= known.predicted_peak <= peak
    assert len(counts) == 3  # and the original's
    assert made.simulated(plan).predicted_peak == peak


def test_of_several_refusals_the_least_is_told():
    refusals = [BudgetError("a"), BudgetError("b"), BudgetError("c")]
    refusals[1].smallest, refusals[2].smallest = 7, 5
    assert str(least_of_refusals(refusals)) == "c"
    assert str(least_of_refusals(refusals[:1])) == "a"


def test_a_chain_offers_many_trades():
    made = decision(chain())
    plans = [made.simulated(plan) for plan in made.candidates.frontier_plans()]
    assert len(plans) >= 5
    peaks = [plan.predicted_peak for plan in plans]
    # A candidate keeps fewer bytes than the one above; whole chunks may hide a little of that.
    assert all(after <= 1.01 * before for before, after in itertools.pairwise(peaks))
    assert peaks[-1] < 0.5 * peaks[0]
    assert [plan.slowdown for plan in plans] == sorted(plan.slowdown for plan in plans)


def test_what_fits_already_is_left_as_it_is():
    made = decision(rnn())
    plan, rewritten = under(made, needed_budget(made.original_peak))
    assert rewritten is None
    assert plan.changes_nothing
    assert plan.notes == ("the original stays within the budget",)
    assert plan.predicted_peak == plan.original_peak


def test_no_plan_runs_whose_peak_is_predicted_to_be_higher(monkeypatch):
    made = decision(chain())
    monkeypatch.setattr(Search, "original_peak", 100 * 1024)
    plan, rewritten = decide(made, Options(max_slowdown=1.2))
    assert rewritten is None
    assert plan.notes == ("no plan in the time allowed has a smaller predicted peak",)


def test_no_time_is_spent_on_the_last_hundredth_of_a_peak():
    plan = decision(chain()).frontier_plans[-1]

    def chosen(*steps, bound=1.1):
        plans = [
            dataclasses.replace(plan, slowdown=time, predicted_peak=peak, original_peak=1000)
            for time, peak in steps
        ]
        return worth_its_time(plans, bound).slowdown

    assert chosen((1.0, 211), (1.1, 201)) == 1.0
    assert chosen((1.0, 212), (1.1, 201)) == 1.1
    assert chosen((1.0, 190), (1.1, 201)) == 1.0
    assert chosen((1.05, 205), (1.1, 201)) == 1.05
    # A quarter of a hundredth of the peak is worth no hundredth of the time.
    assert chosen((1.05, 207), (1.1, 201)) == 1.05
    assert chosen((1.05, 208), (1.1, 201)) == 1.1
    assert chosen((1.05, 207), (1.1, 201), bound=2.0) == 1.1
    # A thousandth of the step's time is none.
    assert chosen((1.05, 205), (1.0505, 204)) == 1.0505
    assert chosen((1.05, 204), (1.0505, 204)) == 1.05
    # A hundredth of the original's peak is much where plenty of time is allowed.
    assert chosen((1.0, 13), (1.1, 10)) == 1.0
    assert chosen((1.0, 12), (1.1, 10), bound=100.0) == 1.0
    assert chosen((1.0, 13), (1.1, 10), bound=100.0) == 1.1


def test_a_schedule_over_segments_needs_more_of_a_budget():
    plan = dataclasses.replace(decision(chain()).frontier_plans[-1], predicted_peak=1000)
    segments = Segments(8, 0, ("h",), ("h",), (), (), 256, 256, 1e-6)
    cut = dataclasses.replace(plan.loops[0], closed="", segments=segments)
    assert budget_for(dataclasses.replace(plan, loops=(cut,))) == 1200
    scheduled = dataclasses.replace(segments, slots=3, count=5)
    cut = dataclasses.replace(cut, segments=scheduled)
    assert budget_for(dataclasses.replace(plan, loops=(cut,))) == 1600


def test_the_time_allowed_is_the_bound_and_infinite_time_takes_the_smallest_plan():
    made = decision(chain())
    spent = [made.least_memory(bound)[0] for bound in (1.0, 1.2, 1.5, float("inf"))]
    assert all(plan.slowdown <= bound for plan, bound in zip(spent, (1.0, 1.2, 1.5), strict=False))
    peaks = [plan.predicted_peak for plan in spent]
    assert peaks == sorted(peaks, reverse=True) and len(set(peaks)) > 2


def with_a_wide_moment(net):
    """The Net with a large blob that is there between its two loops, and in neither."""
    made = [
        const("repeats", (64, 1)),
        op("wide", "Tile", "loop:1 repeats", "f[4096,64]"),
        const("rows", 0),
        op("narrow", "Sum", "wide rows", "f[64]"),
        op("ones", "AddV2", "loop:1 narrow", "f[64,64]"),
    ]
    place = [one.name for one in net.ops].index("ones")
    return net.replace(
        ops=(*net.ops[:place], *(one.op for one in made), *net.ops[place + 1 :]),
        blobs={**net.blobs, **{blob.name: blob for one in made for blob in one.blobs}},
    )


def test_where_the_peak_lies_between_the_loops_segments_are_longer():
    def length(net):
        plan, _ = decide(decision(net), Options(max_slowdown=1.5))
        (loop,) = plan.loops
        assert not loop.segments.slots
        return loop.segments.length

    assert length(with_a_wide_moment(rnn(limit=400))) > length(rnn(limit=400))


def test_without_a_loop_the_budget_is_held_against_the_function_as_it_is():
    net = make_net({"x": WIDE}, [op("y", "Tanh", "x", WIDE), op("z", "Exp", "y", WIDE)], ["y", "z"])
    made = decision(net)
    assert under(made, 65536)[1] is None
    with pytest.raises(BudgetError, match="smallest peak.*nothing can be recomputed"):
        under(made, 1000)


def test_techniques_that_are_not_allowed_are_not_used_to_meet_a_budget():
    made = decision(chain(), passes=frozenset())
    with pytest.raises(BudgetError, match="nothing can be recomputed"):
        decide(made, Options(budget=1))
    plan, rewritten = decide(made, Options(budget=2 * made.original_peak))
    assert rewritten is None


def test_a_size_that_nobody_knows_is_said():
    net = rnn()
    blobs = {**net.blobs, "x": dataclasses.replace(net.blobs["x"], shape=(None, 64))}
    loop = net.op_by_name["loop"]
    cond = loop.nets["cond"]
    # The loop compares its counter with itself, so nobody knows how far it counts.
    more = cond.op_by_name["more"]
    cond = cond.replace(
        ops=(more.replace(type="NotEqual", inputs=(more.inputs[0], cond.inputs[0])),),
        blobs={name: blob for name, blob in cond.blobs.items() if name != "limit"},
    )
    loops = {"loop", "gradient"}
    ops = tuple(
        one.replace(nets={**one.nets, "cond": cond}) if one.name in loops else one
        for one in net.ops
    )
    made = decision(net.replace(ops=ops, blobs=blobs))
    plan, rewritten = under(made, 1)
    assert rewritten is not None
    assert plan.notes == (
        "the budget was not held against a prediction: a size is known only at run time",
    )


def test_bisecting_finds_the_step_that_trying_in_turn_finds():
    steps = [Plan(slowdown=1 + i / 10, predicted_peak=100 - 10 * i) for i in range(9)]
    for budget in range(0, 120, 5):
        asked = []

        def fits(plan, budget=budget, asked=asked):
            asked.append(plan)
            return plan.predicted_peak <= budget

        scanned = next(filter(fits, steps), None)
        asked.clear()
        assert bisected(steps, fits) == scanned
        assert len(asked) <= 5
    assert bisected([], lambda plan: True) is None


def test_the_frontier_has_the_original_the_smallest_and_the_chosen_plan():
    made = decision(chain())
    chosen, _ = decide(made, Options(max_slowdown=1.2))
    plans = alternatives(made, chosen)
    assert len(plans) == 5
    assert plans[0].changes_nothing
    assert sum(plan.loops == chosen.loops for plan in plans) == 1
    assert min(plan.predicted_peak for plan in plans) == min(
        made.simulated(plan).predicted_peak for plan in made.frontier_plans
    )
    assert alternatives(made, Plan()) == ()


@pytest.mark.parametrize("bound", [1.0, 1.2, 1.5, 3.0, math.inf])
def test_no_plan_of_the_frontier_but_two_is_beaten_in_time_and_peak(bound):
    made = decision(chain())
    chosen, _ = decide(made, Options(max_slowdown=bound))
    plans = alternatives(made, chosen)
    assert plans[0].changes_nothing and not any(plan.changes_nothing for plan in plans[1:])
    others = [plan for plan in plans[1:] if plan.loops != chosen.loops]
    for plan in others:
        for other in plans:
            slower = round(other.slowdown, 2) > round(plan.slowdown, 2)
            assert other is plan or slower or other.predicted_peak > plan.predicted_peak
    told = [(f"{one.slowdown:.2f}", format_bytes(one.predicted_peak)) for one in plans]
    assert len(set(told)) == len(told)


def of(slowdown, peak, kept=64):
    loop = LoopPlan(("while",), ("back",), trips=1, bytes=kept)
    return Plan(loops=(loop,), slowdown=slowdown, predicted_peak=peak)


@pytest.mark.parametrize(
    ("plans", "left"),
    [
        ([of(1.2, 4 << 20), of(1.3, 4 << 20), of(1.4, 3 << 20)], [0, 2]),
        ([of(1.2, 4 << 20), of(1.3, (4 << 20) - 9)], [0]),  # both are told to take 4.0 MiB
        ([of(1.2, 11 << 20), of(1.3, 9 << 20)], [1]),  # the original takes less than the first
        ([of(1.2, None, 64), of(1.3, None, 96), of(1.4, None, 32)], [0, 2]),
        ([of(1.9, 5 << 20), of(2.0, 7 << 20)], []),  # the chosen one takes less than both
    ],
)
def test_a_plan_that_another_beats_in_time_and_memory_is_not_told(plans, left):
    original = Plan(predicted_peak=10 << 20)
    chosen = of(1.8, 5 << 20)
    there = (original,) if plans[0].slowdown < 1.9 else (original, chosen)
    assert unbeaten(plans, there) == [plans[index] for index in left]


# --- saved plans


def test_a_saved_plan_is_applied_again():
    made = decision(chain())
    plan, rewritten = decide(made, Options(max_slowdown=1.2))
    again, same = apply_saved(decision(chain()), Plan.from_json(plan.to_json()))
    assert again == plan
    assert same == rewritten


def test_a_saved_plan_has_the_peaks_of_where_it_is_applied():
    plan, _ = decide(decision(chain(limit=40)), Options(max_slowdown=1.2))
    longer, _ = apply_saved(decision(chain(limit=80)), plan)
    assert longer.predicted_peak > 1.2 * plan.predicted_peak


@pytest.mark.parametrize(
    "change, named",
    [
        (lambda loop: {"path": ("other",)}, "decides on loop 'other'"),
        (lambda loop: {"gradients": ("other",)}, "has no 'other'"),
        (lambda loop: {"saved": (*loop.saved, "strange")}, "has no 'strange'"),
        (lambda loop: {"recomputed": ("strange",)}, "has no 'strange'"),
    ],
)
def test_a_plan_for_another_function_is_refused_by_name(change, named):
    made = decision(chain())
    plan, _ = decide(made, Options(max_slowdown=2.0))
    (loop,) = plan.loops
    other = dataclasses.replace(plan, loops=(dataclasses.replace(loop, **change(loop)),))
    with pytest.raises(PlanError, match=f"for another function.*{named}"):
        apply_saved(made, other)


def test_a_plan_that_says_nothing_of_a_loop_is_refused():
    with pytest.raises(PlanError, match="does not decide on loop 'loop' of net"):
        check_fits(chain(), Plan())


def test_a_plan_whose_waits_are_strange_is_refused():
    plan, _ = decide(decision(chain()), Options(max_slowdown=2.0))
    with pytest.raises(PlanError, match="wait for 'strange'"):
        check_fits(chain(), plan.having(gradient_start=(Edge("strange", None, "loop"),)))


def test_a_plan_is_read_from_text_and_from_a_file(tmp_path):
    plan, _ = decide(decision(chain()), Options(max_slowdown=2.0))
    path = tmp_path / "plan.json"
    path.write_text(plan.to_json())
    with_its_name = f'{{"name": "step", "plan": {plan.to_json()}}}'
    for value in (plan, plan.to_json(), path, str(path), with_its_name):
        assert Options.of(None, 1.1, None, False, value).plan == plan


@pytest.mark.parametrize(
    "value, error, named",
    [
        (3, OptionError, "plan=3 must be a Plan"),
        ("nowhere.json", PlanError, "plan='nowhere.json' cannot be read"),
        ("{}", PlanError, "not a plan that to_json wrote: it is an object of nothing"),
        ('{"a": {}, "b": 1}', PlanError, "it is an object of 'a', 'b', not of loops"),
        ('{"name": "step", "plan": [3]}', PlanError, "it is a list, not an object"),
        ('{"loops": 3}', PlanError, "not a plan that to_json wrote: it has no field 'waits'"),
        ('{"format": 2, "loops": []}', PlanError, "it has no field 'decisions'"),
    ],
)
def test_what_is_no_plan_is_refused(value, error, named):
    with pytest.raises(error, match=named):
        Options.of(None, 1.1, None, False, value)

"""In which form each saved blob is kept, within the time and by the techniques that are allowed."""

import dataclasses

import pytest

from rnnmem.analysis.loops import loop_pairs
from rnnmem.analysis.machine import CPU, GPU
from rnnmem.errors import BudgetError
from rnnmem.passes.encode.decision import SAVED
from rnnmem.passes.encode.select import Codecs
from rnnmem.passes.rematerialise.decision import RECOMPUTED
from rnnmem.passes.rematerialise.min_cut import collect
from rnnmem.planning.apply import apply_plan
from rnnmem.planning.choice import budget_for
from rnnmem.planning.parallel_iterations import one_by_one
from rnnmem.planning.pareto import plan_net
from rnnmem.planning.plan import Plan
from rnnmem.planning.search import Search
from rnnmem.planning.setting import Setting
from rnnmem.simulate.timeline import counted_peak, worst_peak
from tests.drawing import encoded
from tests.handmade import rnn
from tests.masked_nets import masked
from tests.proofs.plans import Selection
from tests.proofs.step_nets import Recipe
from tests.proofs.training_steps import training_step

ANY_TIME = 1e9


def codecs(net, *techniques, machine=CPU, slowdown=ANY_TIME):
    """Blob -> the techniques by which it is kept, for those that are not kept as they are."""
    (loop,) = plan_net(net, machine, slowdown, techniques=frozenset(techniques)).loops
    return {one.blob: one.techniques for one in loop.encodings}


def test_a_mask_and_what_only_a_relu_gradient_reads_become_bits():
    (loop,) = plan_net(masked(), CPU, ANY_TIME, techniques=frozenset({"bits"})).loops
    # 64 x 65 bits are 520 bytes; t is read by TanhGrad, which asks for all of it
    assert {one.blob: one.bytes for one in loop.encodings} == {"keep": 768, "r": 768}
    assert loop.bytes == 768 + 768 + 64 * 65 * 4
    assert not loop.recomputed
    residuals = {residual.blob: residual for residual in loop.residuals}
    assert {blob: residual.decision for blob, residual in residuals.items()} == {
        "keep": "saved as bits",
        "r": "saved as bits",
        "t": SAVED,
    }
    assert all(residual.is_kept for residual in residuals.values())
    assert residuals["r"].reason == "768 B instead of 16.2 KiB: only its sign is asked for"


def test_what_anybody_else_reads_keeps_more_than_its_sign():
    assert codecs(masked(also="Exp"), "bits") == {"keep": ("bits",)}


def test_the_sign_of_what_runs_again_anyway_is_not_saved():
    """relu(relu(s)): to have the second again takes the first, and with it its sign."""
    recipe = Recipe(1, (("relu", (0,)), ("relu", (2,))), (3,))
    step = Selection(training_step(recipe)).step
    (second,) = [sign for sign, blob in step.signs.items() if blob == "v1:0"]
    chosen = collect(step, {"v0", "v1", second}, lambda blob: step.ways_to_keep(blob)[-1])
    assert chosen.recomputed == ("v0", "v1")
    assert chosen.saved == {"s0"}
    assert {one.blob for one in chosen.encodings} == {"s0"}


def test_nothing_is_encoded_that_nobody_allowed():
    assert codecs(masked(), "rematerialise") == {}


def test_bits_wait_for_time_to_be_spent():
    dear = dataclasses.replace(CPU, launch_seconds=1.0)
    assert codecs(masked(), "bits", machine=dear, slowdown=1.0) == {}


def test_what_the_graph_optimizer_looks_through_may_be_saved_as_it_is():
    # nothing that is read for its sign alone has to run again because of that
    dear = dataclasses.replace(CPU, launch_seconds=1.0)
    techniques = frozenset({"rematerialise", "bits"})
    (loop,) = plan_net(masked(unit="Neg"), dear, 1.0, segments=False, techniques=techniques).loops
    assert not loop.recomputed and not loop.encodings


def test_what_is_recomputed_is_not_encoded():
    (loop,) = plan_net(
        masked(), CPU, ANY_TIME, techniques=frozenset({"rematerialise", "bits"})
    ).loops
    assert {one.blob for one in loop.encodings} == {"keep"}
    assert "r" in loop.recomputed and "r" not in loop.saved
    assert {residual.blob: residual.decision for residual in loop.residuals}["r"] == RECOMPUTED


def test_small_blobs_stay_as_they_are():
    # each takes 256 bytes of the allocator whatever its form
    assert codecs(masked(shape=""), "bits", "bfloat16") == {}
    assert codecs(masked(shape="8,8"), "bits") == {}


def test_numbers_are_rounded_and_truths_are_not():
    assert codecs(masked(), "bfloat16") == {"r": ("bfloat16",), "t": ("bfloat16",)}


@pytest.mark.parametrize("also", ["Sign", "Identity"])
def test_what_whole_numbers_are_made_of_is_not_rounded(also):
    assert codecs(masked(also=also, whole=True), "bfloat16") == {"t": ("bfloat16",)}


def test_a_plan_that_rounds_says_so():
    plan = plan_net(masked(), CPU, ANY_TIME, techniques=frozenset({"bfloat16"}))
    assert plan.rounds and not plan.offloads
    assert not plan_net(masked(), CPU, ANY_TIME, techniques=frozenset({"bits"})).rounds


def test_the_host_takes_what_an_accelerator_saves():
    plan = plan_net(masked(), GPU, ANY_TIME, techniques=frozenset({"bits", "offload"}))
    (loop,) = plan.loops
    techniques = {one.blob: one.techniques for one in loop.encodings}
    assert techniques == {"keep": ("offload",), "r": ("offload",), "t": ("offload",)}
    assert loop.bytes == 0 and plan.offloads
    # copies come back while the iteration before is under way
    assert one_by_one(plan).loops[0].parallel_iterations == 2
    assert {residual.decision for residual in loop.residuals} == {"offloaded"}


def test_copies_to_the_host_may_be_bits_or_rounded_and_are_faster_then():
    (pair,) = loop_pairs(net := masked(shape="4096,4096"), net, {})
    codecs = Codecs(pair, GPU, {"bits", "bfloat16", "offload"})
    of_mask = {one.techniques: one for one in codecs.of("keep")}
    assert set(of_mask) == {("bits",), ("offload",), ("bits", "offload")}
    assert of_mask["bits", "offload"].seconds < of_mask["offload",].seconds
    of_sign = {one.techniques for one in codecs.of_sign("r")}
    assert of_sign == {("bits",), ("bits", "offload")}
    assert {one.techniques for one in codecs.of("t")} == {
        ("bfloat16",),
        ("offload",),
        ("bfloat16", "offload"),
    }


def test_what_the_host_made_is_not_copied_to_it():
    assert codecs(masked(), "offload") == {}
    assert set(codecs(masked(device="/device:CPU:0"), "offload", machine=GPU)) == {"keep", "t"}
    assert set(codecs(masked(device="/device:GPU:0"), "offload")) == {"r"}


def test_segments_keep_bits_and_leave_lists_on_the_device():
    plan = plan_net(
        rnn(limit=400), GPU, ANY_TIME, techniques=frozenset({"rematerialise", "offload"})
    )
    assert plan.offloads and plan.loops[0].segments is None
    bits = frozenset({"rematerialise", "bits", "bfloat16"})
    (loop,) = plan_net(rnn(limit=400), CPU, ANY_TIME, techniques=bits).loops
    assert loop.segments is not None
    assert [one.techniques for one in loop.encodings] == [("bfloat16",)]
    assert loop.segments.saved_bytes == 64 * 64 * 2


@pytest.mark.parametrize(
    "machine, techniques", [(CPU, {"bits"}), (CPU, {"bits", "bfloat16"}), (GPU, {"offload"})]
)
def test_the_peak_that_is_predicted_falls_by_what_is_kept_less(machine, techniques):
    net = masked()
    plan = plan_net(net, machine, ANY_TIME, techniques=frozenset(techniques))
    (loop,) = plan.loops
    less = 50 * (sum(residual.bytes for residual in loop.residuals) - loop.bytes)
    found = counted_peak(net) - counted_peak(apply_plan(net, plan, encoded))
    assert found == pytest.approx(less, rel=0.15)


def test_the_plan_goes_to_json_and_back():
    plan = plan_net(masked(), CPU, ANY_TIME, techniques=frozenset({"bits"}))
    text = plan.to_json()
    assert Plan.from_json(text) == plan
    with pytest.raises(ValueError, match="kept by 'bites'"):
        Plan.from_json(text.replace('"bits"', '"bites"'))


def test_forms_meet_budgets_that_nothing_else_meets():
    net = masked()

    def frontier_plans(*techniques):
        search = Search(net, Setting(CPU, encoded, frozenset(techniques)))
        plan = search.simulated(search.frontier_plans[-1])
        return search, dataclasses.replace(plan, worst_peak=worst_peak(search.apply(plan)))

    plain, larger = frontier_plans("rematerialise")
    bits, least = frontier_plans("rematerialise", "bits")
    smallest, smaller = larger.predicted_peak, least.predicted_peak
    assert smaller < 0.9 * smallest
    budget = budget_for(least)
    with pytest.raises(BudgetError, match="cannot be met"):
        plain.least_time(budget)
    plan, _ = bits.least_time(budget)
    assert plan.predicted_peak < 0.9 * smallest  # as small at worst, and faster
    assert budget_for(plan) <= budget
    assert plan.slowdown <= least.slowdown
    assert bits.least_time(budget_for(larger))[0].slowdown <= plan.slowdown

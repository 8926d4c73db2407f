"""The saved set of one step net, as a minimum cut."""

import itertools

import hypothesis
import pytest
from hypothesis import strategies as st

from rnnmem.analysis.held_bytes import stored_bytes
from rnnmem.analysis.machine import GRANULE
from rnnmem.ir.op_table import facts
from rnnmem.passes.rematerialise.milp import smallest_within
from rnnmem.passes.rematerialise.min_cut import (
    Step,
    choose_saved_set,
    may_be_saved,
)
from tests.handmade import blob, const, make_net, op

WIDE = "f[64,64]"
NEVER, DEAR = 0.0, 1e15
"""Prices of a second in bytes: time costs nothing, or is beyond price."""


def step(inputs, drawn, live_in, *, pushed=None, invariants="", outputs="", seconds=1e-6, **more):
    """A step net; what is demanded was pushed unless it is said otherwise."""
    live_in = live_in.split()
    cost = seconds if callable(seconds) else lambda op, net: seconds
    return Step(
        body=make_net(inputs, drawn, outputs.split()),
        invariants=frozenset(invariants.split()),
        live_in=frozenset(live_in),
        pushed=frozenset(live_in if pushed is None else pushed.split()),
        seconds=cost,
        **more,
    )


def chain(**options):
    """h ─► a ─► b ─► c; the gradient reads a, b and c.   h is the carried state."""
    drawn = [
        op("a", "Tanh", "h", WIDE),
        op("b", "Sin", "a", WIDE),
        op("c", "Exp", "b", WIDE),
    ]
    return step({"h": WIDE}, drawn, "a b c", **options)


def test_where_time_is_free_one_blob_is_saved_for_all_three():
    # h takes as much as a, and a saves the run that makes it
    chosen = choose_saved_set(chain(), NEVER)
    assert chosen.saved == {"a"}
    assert chosen.recomputed == ("b", "c")
    assert chosen.bytes == 64 * 64 * 4
    assert chosen.seconds == pytest.approx(2e-6)


def test_one_network_serves_every_price():
    asked = chain()
    for price in (DEAR, 1e9, NEVER, DEAR):
        assert choose_saved_set(asked, price) == choose_saved_set(chain(), price)


def test_where_time_is_free_only_the_state_is_saved_if_it_is_smaller():
    # h, a row ─► wide ─► t
    drawn = [op("wide", "Tile", "h n", WIDE), op("t", "Tanh", "wide", WIDE)]
    chosen = choose_saved_set(
        step({"h": "f[1,64]", "n": "i[2]"}, drawn, "wide t", invariants="n"), NEVER
    )
    assert chosen.saved == {"h"}
    assert chosen.recomputed == ("wide", "t")


def test_where_time_is_beyond_price_what_was_saved_stays_saved():
    chosen = choose_saved_set(chain(), DEAR)
    assert chosen.saved == {"a", "b", "c"}
    assert chosen.recomputed == ()
    assert chosen.seconds == 0


def test_in_between_the_dear_op_is_saved_and_the_cheap_one_is_not():
    # h ─► a (dear) ─► b (cheap): 16 KiB buy 1 ms each at 16 MiB a second
    cost = {"a": 10e-3, "b": 1e-6, "c": 1e-6}
    chosen = choose_saved_set(chain(seconds=lambda op, net: cost[op.name]), 16 * 2**20)
    assert chosen.saved == {"a"}
    assert chosen.recomputed == ("b", "c")


def test_a_random_op_is_saved_and_never_runs_again():
    # r (random) ─► mask = r > p;  the gradient reads mask
    drawn = [op("r", "RandomUniform", "", WIDE), op("mask", "Greater", "r p", "z[64,64]")]
    for price in (NEVER, DEAR):
        chosen = choose_saved_set(step({"p": "f[]"}, drawn, "mask r", invariants="p"), price)
        assert "r" in chosen.saved
        assert "r" not in chosen.recomputed


def test_what_a_variable_holds_lives_anyway_so_saving_it_costs_nothing():
    # read ─► cast: the cast weight is dropped, the variable's own buffer is kept
    drawn = [
        op("read", "ReadVariableOp", "w", WIDE),
        op("cast", "Cast", "read", "h[64,64]"),
    ]
    chosen = choose_saved_set(step({"w": "r[]"}, drawn, "cast"), NEVER)
    assert chosen.saved == {"read"}
    assert chosen.recomputed == ("cast",)
    assert chosen.bytes < GRANULE


@pytest.mark.parametrize("free, kept", [("h", "c"), ("", "a")])
def test_the_next_state_costs_nothing_where_states_are_kept_anyway(free, kept):
    # c is h in the next iteration, and its buffer that of the next item of the list of h
    chosen = choose_saved_set(chain(outputs="c", free=frozenset(free.split())), 1e9)
    assert kept in chosen.saved
    given = chain(outputs="c", free=frozenset(free.split()))
    assert given.bytes_kept("c") == (0 if free else 64 * 64 * 4)


def test_invariants_and_constants_cost_nothing():
    # k (constant), w (invariant) ─► scaled;  the gradient reads all three
    drawn = [const("k", 2.0), op("scaled", "Mul", "w k", WIDE)]
    chosen = choose_saved_set(step({"w": WIDE}, drawn, "k w scaled", invariants="w"), NEVER)
    assert chosen.saved == set()
    assert set(chosen.recomputed) == {"k", "scaled"}
    assert chosen.bytes == 0


def test_an_invariant_that_the_gradient_cannot_be_given_is_saved():
    chosen = choose_saved_set(step({"w": WIDE}, [op("s", "Sin", "w", WIDE)], "s w"), NEVER)
    assert chosen.saved == {"w"}


def test_a_blob_with_one_reader_that_was_not_saved_is_not_saved_now():
    # h ─► product ─► biased ─► t: product is fused with biased; a reader more would part them
    def choice(extra):
        return step(
            {"h": WIDE, "w": WIDE, "b": "f[64]", "big": "f[640,64]"},
            [
                op("h2", "Concat", "h big", "f[704,64]"),
                op("product", "MatMul", "h2 w", "f[1,64]"),
                op("biased", "BiasAdd", "product b", "f[1,64]"),
                op("t", "Tanh", "biased", "f[704,64]"),
                *extra,
            ],
            "t",
            invariants="w b",
        )

    alone = choice([])
    assert not may_be_saved(alone, "product")
    assert choose_saved_set(alone, NEVER).saved == {"t"}
    # A blob that two read is not fused, so a third reader changes nothing.
    shared = choice([op("other", "Neg", "product", "f[1,64]")])
    assert may_be_saved(shared, "product")
    assert choose_saved_set(shared, NEVER).saved == {"product"}


def test_handles_are_not_saved_unless_they_were():
    drawn = [op("list", "TensorListReserve", "h h", "v[]"), op("x", "Neg", "h", WIDE)]
    assert not may_be_saved(step({"h": WIDE}, drawn, "x"), "list")
    assert may_be_saved(step({"h": WIDE}, drawn, "list"), "list")


def test_what_the_optimizer_looks_through_is_recomputed_with_its_reader():
    # h ─► copy (Identity) ─► t: with copy saved, t's neighbourhood would be another
    drawn = [
        op("copy", "Identity", "h", WIDE),
        op("t", "Tanh", "copy", WIDE),
        op("other", "Sin", "copy", WIDE),
    ]
    chosen = choose_saved_set(step({"h": WIDE}, drawn, "copy t", seconds=lambda op, net: 1e-9), 1.0)
    assert "t" in chosen.recomputed
    assert "copy" in chosen.recomputed


def test_what_is_computed_from_shapes_alone_is_recomputed_with_its_reader():
    # A graph optimizer that knows the axes takes the Sum out if there are none.
    drawn = [
        op("shapes", "ShapeN", "h small", "i[2] i[2]"),
        op("axes", "BroadcastGradientArgs", "shapes:0 shapes:1", "i[?] i[?]"),
        op("sum", "Sum", "h axes:0", "f[512,64]"),
        op("z", "Tanh", "sum", "f[512,64]"),
        op("other", "Sum", "small axes:0", "f[?,?]"),
    ]
    inputs = {"h": WIDE, "small": "f[64,1]"}

    def seconds(op, net):
        return 1.0 if op.type == "ShapeN" else 1e-9

    asked = step(inputs, drawn, "sum z", invariants="small", seconds=seconds)
    assert asked.measuring == {"shapes", "axes"}
    for chosen in (choose_saved_set(asked, 1e3), smallest_within(asked, 2.0)):
        assert chosen.recomputed == ("shapes", "axes", "sum", "z")
    # What the gradient alone asks for may be saved: there it was popped before.
    asked = step(inputs, drawn, "axes:0", invariants="small", seconds=seconds)
    assert choose_saved_set(asked, 1e3).saved == {"axes:0"}


def test_an_op_with_several_results_is_paid_for_once():
    # z ─► split into four gates, each read by the gradient: 1280 bytes instead of 4 x 512
    drawn = [op("split", "Split", "axis z", " ".join(["f[1,80]"] * 4))]
    gates = "split:0 split:1 split:2 split:3"
    inputs = {"z": "f[1,320]", "axis": "i[]"}
    made = step(inputs, drawn, gates, invariants="axis", seconds=1.0)
    assert choose_saved_set(made, 500.0).saved == {"z"}
    assert choose_saved_set(made, 500.0).seconds == 1.0
    assert choose_saved_set(made, 1000.0).saved == set(gates.split())


def test_what_is_saved_whatever_is_chosen_is_used_for_nothing():
    # h ─► a ─► b: someone else reads a's list, so b starts from it
    chosen = choose_saved_set(chain(free=frozenset({"a"})), NEVER)
    assert chosen.saved == {"a"}
    assert chosen.bytes == 0


def test_an_op_that_is_ruled_out_here_is_saved():
    chosen = choose_saved_set(chain(never=frozenset({"b"})), NEVER)
    assert "b" in chosen.saved
    assert "b" not in chosen.recomputed


def test_a_demand_that_can_be_neither_saved_nor_recomputed_has_no_choice():
    # made (never twice, a handle, not pushed) ─► size
    drawn = [op("made", "MutableHashTableV2", "", "r[]")]
    assert choose_saved_set(step({}, drawn, "made", pushed=""), NEVER) is None


def test_nothing_demanded_is_nothing_saved():
    chosen = choose_saved_set(step({"h": WIDE}, [], ""), NEVER)
    assert (chosen.saved, chosen.recomputed, chosen.bytes) == (frozenset(), (), 0)


@pytest.mark.parametrize(
    ("kind", "size"),
    [("f[1]", GRANULE), ("f[64]", GRANULE), ("f[65]", 2 * GRANULE), ("f[?]", GRANULE)],
)
def test_stored_bytes_are_rounded_as_the_allocator_rounds(kind, size):
    assert stored_bytes(blob("b", kind)) == size


def test_a_blob_of_unknown_rank_is_guessed_not_free():
    assert stored_bytes(blob("b", "f*")) == 4 * 64 * 64


TYPES = ("Tanh", "RandomUniform", "Identity", "MatMul")


@st.composite
def steps(draw):
    """A small step net: up to six ops over a state and an invariant."""
    names, drawn = ["h", "w"], []
    for index in range(draw(st.integers(1, 6))):
        type = draw(st.sampled_from(TYPES))
        count = {"Tanh": 1, "RandomUniform": 0, "Identity": 1, "MatMul": 2}[type]
        inputs = " ".join(draw(st.sampled_from(names)) for _ in range(count))
        rows = draw(st.sampled_from([64, 128, 640]))
        drawn.append(op(f"o{index}", type, inputs, f"f[{rows},1]"))
        names.append(f"o{index}")
    live_in = draw(st.sets(st.sampled_from(names), min_size=1))
    pushed = live_in | draw(st.sets(st.sampled_from(names[2:])))
    seconds = {one.op.name: draw(st.integers(1, 6)) for one in drawn}
    return step(
        {"h": "f[128,1]", "w": "f[640,1]"},
        drawn,
        " ".join(sorted(live_in)),
        pushed=" ".join(sorted(pushed)),
        invariants="w",
        seconds=lambda op, net: float(seconds[op.name]),
    )


def cheapest(step, price):
    """The least cost over every set of ops that could run again; None where there is none."""
    body = step.body
    twice = [op for op in body.ops if step.may_run_twice(op)]
    best = None
    for size in range(len(twice) + 1):
        for rematerialised in itertools.combinations(twice, size):
            cost = cost_of(step, price, frozenset(op.name for op in rematerialised))
            if cost is not None and (best is None or cost < best):
                best = cost
    return best


def cost_of(step, price, rematerialised):
    """The cost of recomputing exactly what is wanted of ``rematerialised``; None where not allowed.

    Written again from the rules, so that the cut does not verify itself.
    """
    body, cost, saved = step.body, 0.0, set()
    ran, wanted = set(), set(step.live_in)
    for name in [*reversed([one.name for one in body.ops]), *body.inputs]:
        writer = body.op_by_name.get(name)
        if name not in wanted or name in step.invariants:
            continue
        if name in rematerialised:
            ran.add(name)
            wanted |= set(writer.inputs)
            cost += 1.0 + price * step.seconds(writer, body)
        elif not may_be_saved(step, name):
            return None
        else:
            saved.add(name)
            cost += step.bytes_kept(name)
    for name in ran:
        for read in body.op_by_name[name].inputs:
            writer = body.producer.get(read)
            known = writer is not None and facts(writer)
            if known and known.folds and read in saved:
                return None
    return cost


@pytest.mark.fuzz
@hypothesis.given(steps(), st.sampled_from([0.0, 10.0, 100.0, 1000.0]))
def test_no_set_of_recomputed_ops_is_cheaper_than_the_cut(step, price):
    chosen = choose_saved_set(step, price)
    best = cheapest(step, price)
    if best is None:
        assert chosen is None
        return
    found = cost_of(step, price, frozenset(chosen.recomputed))
    assert found is not None
    assert found == pytest.approx(best)
    assert chosen.bytes == sum(step.bytes_kept(blob) for blob in chosen.saved)

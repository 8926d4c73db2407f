"""Between which bytes a peak lies: the order of ops, the branch, the chunks; K is 1024 bytes."""

import pytest

from rnnmem.simulate.interval import peak_interval, simulated_interval
from rnnmem.simulate.timeline import counted_peak, simulate, worst_peak
from tests.handmade import const, empty_list, make_net, op, pop, push, rnn, while_op

K = 1024  # f[256]
X = {"x": "f[256]"}


def test_of_one_chain_of_ops_only_chunks_differ():
    ops = [op("a", "Tanh", "x", "f[256]"), op("b", "Exp", "a", "f[256]")]
    low, high = simulated_interval(make_net(X, ops, ["b"]))
    assert low == K
    assert K < high < 2 * K  # no chunk is twice what was asked for


def test_a_run_may_be_a_little_better_or_worse_than_those_that_are_simulated():
    net = rnn(512)
    (low, high), (least, most) = simulated_interval(net), peak_interval(net)
    assert 0.95 * low < least < low < high < most < 1.06 * high + 256 * K


def test_what_is_unknown_has_no_interval():
    assert (
        simulated_interval(make_net({"x": "f[?]"}, [op("y", "Tanh", "x", "f[?]")], ["y"])) is None
    )


@pytest.mark.parametrize("units", [16, 128, 512])
def test_the_peak_that_plans_are_compared_by_lies_within(units):
    net = rnn(units)
    low, high = simulated_interval(net)
    assert low <= simulate(net).peak_bytes <= counted_peak(net) <= high
    assert worst_peak(net) <= high


def test_partial_gradients_pile_up_or_do_not():
    # a weight's partial gradients, one of each iteration under way, wait for the sum
    net = rnn(512)
    low, high = simulated_interval(net)
    assert low < counted_peak(net) <= high


@pytest.mark.parametrize("window", [1, 4])
def test_what_nobody_waits_for_may_lag_behind_by_as_many_iterations_as_are_under_way(window):
    many = "f[64,256]"
    body = make_net(
        {"i": "i[]", **X, "held": "v[]"},
        [
            *(const("one", 1), op("next", "AddV2", "i one", "i[]")),
            *(const("shape", (64, 256)), op("many", "BroadcastTo", "x shape", many)),
            *(const("any", (-1, -1)), push("kept", "held", "many"), pop("gone", "kept", many)),
            *(const("axes", (0,)), op("y", "Sum", "many axes", "f[256]")),
        ],
        ["next", "y", "gone:0"],
        name="body",
    )
    start = [const("zero", 0), const("any", (-1, -1)), empty_list("list")]
    loop = while_op("loop", "zero x list", body, limit=20, parallel_iterations=window)
    low, high = simulated_interval(make_net(X, [*start, loop], ["loop:1", "loop:2"]))
    assert low < 2 * 64 * K
    assert window * 64 * K < high < (window + 2) * 64 * K


def test_the_smaller_branch_or_the_larger_one_runs():
    small = make_net(X, [op("y", "Tanh", "x", "f[256]")], ["y"], name="small")
    wide = [
        const("shape", (64, 256)),
        op("many", "BroadcastTo", "x shape", "f[64,256]"),
        const("axes", (0,)),
        op("y", "Sum", "many axes", "f[256]"),
    ]
    large = make_net(X, wide, ["y"], name="large")
    net = make_net(
        {**X, "which": "z[]"},
        [
            op(
                "either",
                "If",
                "which x",
                "f[256]",
                nets={"then_branch": small, "else_branch": large},
            )
        ],
        ["either"],
    )
    low, high = simulated_interval(net)
    assert low == K
    assert high > 60 * K


def test_more_threads_hold_no_less():
    # eight ops that ask for much for a while, and nothing orders them
    ops = [const("axes", (0,))]
    for n in range(8):
        ops += [
            op(f"m{n}", "MatMul", f"w{n} w{n}", "f[512,512]"),
            op(f"s{n}", "Sum", f"m{n} axes", "f[512]"),
        ]
    net = make_net({f"w{n}": "f[512,512]" for n in range(8)}, ops, [f"s{n}" for n in range(8)])
    few, many = simulated_interval(net, 1), simulated_interval(net, 8)
    assert few[0] == many[0]
    assert few[1] < many[1]


def test_a_row_outside_of_loops_may_hold_what_it_is_cut_from():
    starts = [const("begin", (3,)), const("end", (4,)), const("step", (1,))]
    cut = op(
        "row",
        "StridedSlice",
        "y begin end step",
        "f[256]",
        attributes={"shrink_axis_mask": 1},
    )
    later = [
        op("z", "MatMul", "w w", "f[256,256]", controls=("row",)),
        const("axes", (0,)),
        op("s", "Sum", "z axes", "f[256]"),
        op("both", "AddV2", "row s", "f[256]"),
    ]
    ops = [*starts, op("y", "Tanh", "x", "f[256,256]"), cut, *later]
    _, high = simulated_interval(make_net({"x": "f[256,256]", "w": "f[256,256]"}, ops, ["both"]))
    assert high >= 2 * 256 * K


def test_what_is_made_of_equal_constants_may_be_made_once():
    # x ─► Tanh ─► y ─┬─► AddV2 ◄─ 0.5        TensorFlow takes the two for one, or does not
    #                 └─► AddV2 ◄─ 0.5
    ops = [
        *(const("half", 0.5), const("again", 0.5)),
        op("y", "Tanh", "x", "f[256]"),
        *(op("a", "AddV2", "y half", "f[256]"), op("b", "AddV2", "y again", "f[256]")),
    ]
    low, high = simulated_interval(make_net(X, ops, ["a", "b"]))
    assert low == K
    assert high >= 2 * K


def test_in_a_good_run_a_variable_gets_its_next_buffer_when_nobody_reads_the_last_any_more():
    body = make_net(
        {"i": "i[]", "v": "r[]"},
        [
            *(const("one", 1), op("next", "AddV2", "i one", "i[]")),
            op("read", "ReadVariableOp", "v", "f[256]", stateful=True),
            op("new", "Tanh", "read", "f[256]"),
            op("write", "AssignVariableOp", "v new", stateful=True),
        ],
        ["next", "v"],
        name="body",
    )
    loop = while_op("loop", "zero v", body, limit=20, parallel_iterations=1)
    low, high = simulated_interval(make_net({"v": "r[]"}, [const("zero", 0), loop], ["loop:0"]))
    assert K <= low < 2 * K <= high


@pytest.mark.parametrize(
    "kind, inputs, number",
    [("Mul", "c a", 1.0), ("Mul", "a c", 1.0), ("AddV2", "c a", 0.0), ("Sub", "a c", 0.0)],
)
def test_times_one_and_plus_nothing_are_never_computed(kind, inputs, number):
    def peak(number):
        ops = [
            const("c", number),
            op("a", "Tanh", "x", "f[256]"),
            op("same", kind, inputs, "f[256]"),
            op("s", "Sigmoid", "same", "f[256]"),
        ]
        return simulate(make_net(X, ops, ["same", "s", "a"])).peak_bytes

    assert peak(number) == 2 * K < 3 * K == peak(0.5)

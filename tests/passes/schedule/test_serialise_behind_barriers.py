"""Where an op may not wait itself, the output barrier before it does, or an op that it needs."""

from rnnmem.analysis.machine import CPU
from rnnmem.analysis.versions import ssa
from rnnmem.grappler.cse import congruent_ops
from rnnmem.grappler.fusion import Sources, waiting_places
from rnnmem.ir.edges import Edge
from rnnmem.ir.editor import NetEditor
from rnnmem.passes.schedule.apply import completion_proxy, with_edges
from rnnmem.passes.schedule.serialise import edges_of
from rnnmem.simulate.timeline import simulate
from rnnmem.verify import check
from tests.handmade import const, make_net, op, while_op

WIDE, ROW, ROWS = "f[512,2048]", "f[1,2048]", "f[512]"
SIZE = 512 * 2048 * 4


def products(count, hidden=True, behind="Mul"):
    """x ─► barrier ─► Mul(barrier, w) ─► Sum     that often; a Mul itself might be fused"""
    ops = [const("axis", 1)]
    for n in range(count):
        if hidden:
            ops.append(op(f"held{n}", "OptionalFromValue", f"x{n}", "v[]"))
            ops.append(op(f"seen{n}", "OptionalGetValue", f"held{n}", ROW))
        ops.append(op(f"wide{n}", behind, f"{'seen' if hidden else 'x'}{n} w", WIDE))
        ops.append(op(f"sum{n}", "Sum", f"wide{n} axis", ROWS))
    inputs = {"w": WIDE} | {f"x{n}": ROW for n in range(count)}
    return make_net(inputs, ops, [f"sum{n}" for n in range(count)])


def test_an_output_barrier_waits():
    net = products(3)
    scheduling_edges = edges_of(net, CPU, 2.0)
    assert scheduling_edges.edges == (Edge("held1", None, "sum0"), Edge("held2", None, "sum1"))
    assert (scheduling_edges.bytes_before, scheduling_edges.bytes) == (3 * SIZE, SIZE)
    ordered = with_edges(net, scheduling_edges.edges)
    assert simulate(ordered).peak_bytes < SIZE + 2**15 < 2 * SIZE < simulate(net).peak_bytes


def test_what_might_be_fused_does_not_wait():
    assert edges_of(products(3, hidden=False), CPU, 2.0) is None


def test_what_stands_behind_an_output_barrier_is_the_buffer_in_front_of_it():
    # tanh is there until its second sum is, beside the product: two buffers, or one after the other
    net = make_net(
        {"x": ROW, "y": ROW, "w": WIDE},
        [
            const("axis", 1),
            op("sum", "AddV2", "x w", WIDE),
            op("tanh", "Tanh", "sum", WIDE),
            op("held", "OptionalFromValue", "tanh", "v[]"),
            op("seen", "OptionalGetValue", "held", WIDE),
            op("one", "Sum", "tanh axis", ROWS),
            op("two", "Sum", "seen axis", ROWS),
            op("put", "OptionalFromValue", "y", "v[]"),
            op("taken", "OptionalGetValue", "put", ROW),
            op("other", "Mul", "taken w", WIDE),
            op("most", "Max", "other axis", ROWS),
        ],
        ["one", "two", "most"],
    )
    scheduling_edges = edges_of(net, CPU, 2.0)
    assert set(scheduling_edges.edges) == {Edge("put", None, "one"), Edge("put", None, "two")}
    assert (scheduling_edges.bytes_before, scheduling_edges.bytes) == (2 * SIZE, SIZE)


def test_an_op_waits_at_what_it_needs():
    """MatMul(h, k) = q ─► Tanh ─► AddV2(·, w): the product waits, at a delayed input on k"""
    net = make_net(
        {"x": "v[]", "k": "f[4,2048]", "w": WIDE},
        [
            op("h", "OptionalGetValue", "x", "f[1,4]"),
            op("q", "MatMul", "h k", ROW),
            op("e", "Tanh", "q", ROW),
            op("wide", "AddV2", "e w", WIDE),
        ],
        ["wide"],
    )
    past = ssa(net)
    index = [one.name for one in past.ops].index("wide")
    places = list(waiting_places(net, past, index, congruent_ops(net)))
    assert [(past.ops[place].name, slot) for place, slot in places] == [("q", 1)]


def summation(total="AddN", more=()):
    """A loop's body: a product is added to a total, beside another one that is summed up.

    total ─► AddN(total, p) ─► Identity ─► total        put ─► taken ─► Mul ─► Max
    """
    return make_net(
        {"i": "i[]", "total": WIDE, "a": ROW, "y": ROW, "w": WIDE, "m": ROWS},
        [
            const("axis", 1),
            const("one", 1),
            op("next", "AddV2", "i one", "i[]"),
            op("before", "Identity", "total", WIDE),
            op("held", "OptionalFromValue", "a", "v[]"),
            op("seen", "OptionalGetValue", "held", ROW),
            op("p", "Mul", "seen w", WIDE),
            op("sum", total, "before p", WIDE),
            op("handed", "Identity", "sum", WIDE),
            op("put", "OptionalFromValue", "y", "v[]"),
            op("taken", "OptionalGetValue", "put", ROW),
            op("other", "Mul", "taken w", WIDE),
            op("most", "Max", "other axis", ROWS),
            *more,
        ],
        ["next", "handed", "a", "y", "w", "most"],
    )


WITNESSED = Edge("put", None, "sum", by_proxy=True)


def test_a_sum_that_is_handed_on_is_waited_for_by_a_completion_proxy():
    net = summation()
    found = edges_of(net, CPU, 2.0, ("loop", "body"))
    assert found.edges == (WITNESSED,)
    assert (found.bytes_before, found.bytes) == (2 * SIZE, SIZE)
    ordered = with_edges(net, [WITNESSED, WITNESSED])
    (there,) = (one for one in ordered.ops if one.name.startswith("rnnmem/there"))
    assert there.inputs == ("sum",)
    assert ordered.op_by_name["put"].controls == (there.name,)
    check(net, ordered)


def may_have_proxy(net, name="sum"):
    past = ssa(net)
    index = next(index for index, one in enumerate(past.ops) if one.name == name)
    return Sources(net, past, congruent_ops(net)).may_have_proxy(index)


def test_only_a_sum_of_two_that_is_handed_on_has_a_completion_proxy():
    assert may_have_proxy(summation())
    assert not may_have_proxy(summation(total="AddV2"))  # it may be fused with a product
    assert not may_have_proxy(summation(), name="p")
    assert not may_have_proxy(summation(more=[op("read", "Tanh", "handed", WIDE)]))
    assert not may_have_proxy(summation(more=[op("read", "Tanh", "sum", WIDE)]))
    assert not may_have_proxy(summation(more=[op("three", "AddN", "before p w", WIDE)]))


def test_outside_of_loops_there_are_no_completion_proxies():
    found = edges_of(summation(), CPU, 2.0)
    assert found is None or not any(edge.by_proxy for edge in found.edges)


def test_a_loop_is_waited_for_itself():
    """Its proof knows who reads its counter."""
    body = make_net({"i": "i[]"}, [const("one", 1), op("next", "AddV2", "i one", "i[]")], ["next"])
    editor = NetEditor(make_net({"n": "i[]"}, [while_op("loop", "n", body)], ["loop:0"]))
    assert completion_proxy(editor, editor.ops["loop"]) == "loop"
    assert list(editor.ops) == ["loop"]

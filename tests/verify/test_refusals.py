"""What the checker lets through, and one test for each reason to refuse."""

import dataclasses

import pytest

from rnnmem.errors import CheckError
from rnnmem.ir import parse
from rnnmem.ir.graph import DType, Net
from rnnmem.verify import check
from tests.drawing import (
    Drawing,
    LoopDrawing,
    below,
    edited,
    renamed,
    with_input,
    with_more,
    with_op,
    without_op,
)
from tests.loop_drawings import FORWARD, GRADIENT, count, counted, nested, training

ORIGINAL = training()
REWRITTEN = training(recompute=True)


def refusal(rewritten: Net, original: Net = ORIGINAL) -> str:
    with pytest.raises(CheckError) as caught:
        check(original, rewritten)
    return caught.value.reason


# --- let through -------------------------------------------------------------------------------


@pytest.mark.parametrize("net", [ORIGINAL, REWRITTEN, nested(), training(gradients=2)])
def test_a_net_equals_itself_and_its_renamed_copy(net):
    check(net, net)
    check(net, renamed(net, "other"))


def test_recomputing_from_popped_blobs_equals_popping_the_result():
    # forward: acc_a gone       gradient: Tanh(Mul(barrier(pop h), w)) where pop a was
    check(ORIGINAL, REWRITTEN)


def test_keepalives_change_nothing():
    # keep-alive use ──push m──pop──► keep-alive use, on both sides; a NoOp waits for both loops
    check(ORIGINAL, training(recompute=True, keeps_alive=True))


def test_two_gradient_loops_share_the_lists():
    check(training(gradients=2), training(recompute=True, gradients=2))


def test_a_loop_in_a_loop_recomputes_from_lists_of_lists():
    check(nested(), nested(recompute=True))


def test_more_control_edges_and_other_parallel_iterations_change_nothing():
    net = edited(REWRITTEN, GRADIENT, lambda body: with_op(body, "next_dw", controls=("back",)))
    attributes = {**net.op_by_name["forward"].attributes, "parallel_iterations": 1}
    check(ORIGINAL, with_op(net, "forward", attributes=attributes))


def test_a_branch_may_be_recomputed_whole():
    text = """
    net top(c bool, x float32) -> (if, reader) {
      if float32 = If(c, x) {
        then_branch = net one(y float32) -> (s) { s float32 = Sin(y) }
        else_branch = net two(y float32) -> (s) { s float32 = Cos(y) }
      }
      again float32 = If(c, x) {
        then_branch = net three(y float32) -> (s) { s float32 = Sin(y) }
        else_branch = net four(y float32) -> (t) { t float32 = Cos(y) }
      }
      reader float32 = Tanh(again)
    }
    """
    once = parse(text.replace("Tanh(again)", "Tanh(if)"))
    check(once, parse(text))
    assert refusal(parse(text.replace("t float32 = Cos", "t float32 = Tanh")), once) == (
        "value-changed"
    )


# --- values ------------------------------------------------------------------------------------


def gradient_edit(edit):
    return edited(REWRITTEN, GRADIENT, edit)


def test_the_wrong_pop():
    # a_again = Tanh(Mul(barrier(pop r), w)) where it should pop h
    net = gradient_edit(lambda body: with_input(body, "barrier", 0, "pop_r:1"))
    assert refusal(net) == "value-changed"


def test_a_clone_with_one_wrong_attribute():
    net = gradient_edit(lambda body: with_op(body, "m_again", attributes={"grad_x": True}))
    assert refusal(net) == "value-changed"


def test_a_clone_of_another_type():
    net = gradient_edit(lambda body: with_op(body, "a_again", type="Sin"))
    assert refusal(net) == "value-changed"


def test_a_clone_that_reads_the_state_after_the_iteration():
    # forward pushes h' instead of h, so the gradient step net sees the next iteration's state
    net = edited(REWRITTEN, FORWARD, lambda body: with_input(body, "push_h", 1, "next_h:0"))
    assert refusal(net) == "value-changed"


def test_a_clone_that_reads_the_gradient_loop_instead_of_the_pop():
    net = gradient_edit(lambda body: with_input(body, "barrier", 0, "dh"))
    assert refusal(net) == "value-changed"


def test_a_loop_final_state_is_not_the_state_of_an_iteration():
    # w_again is fed from what the forward loop ends with instead of the invariant
    forward = REWRITTEN.op_by_name["forward"].outputs
    inputs = REWRITTEN.op_by_name["gradient"].inputs
    net = with_op(
        REWRITTEN,
        "gradient",
        inputs=tuple(forward[2] if blob == "w" else blob for blob in inputs),
    )
    assert refusal(net) == "value-changed"


def test_swapped_operands():
    net = gradient_edit(lambda body: with_op(body, "d2", inputs=("d1:0", "a_again:0")))
    assert refusal(net) == "value-changed"


def loop_around_a_loop(top: Drawing) -> tuple[LoopDrawing, LoopDrawing]:
    loop = LoopDrawing(top, "outer")
    loop.carry("i", top.const(0)), loop.carry("n", "n"), loop.carry("sum", top.const(0))
    count(loop, "i")
    return loop, LoopDrawing(loop.body, "inner")


def test_counters_of_loops_around_each_other_are_not_the_same():
    """The inner counter k and the outer counter i both start at 0 and count by 1."""

    def drawn(read: str) -> Net:
        top = Drawing("top", n="int32")
        loop, inner = loop_around_a_loop(top)
        inner.carry("k", loop.body.const(0)), inner.carry("i", "i"), inner.carry("n", "n")
        inner.carry("sum", "sum")
        count(inner, "k")
        inner.next["sum"] = inner.body.op("AddV2", "sum", read, gives="int32", name="add")
        loop.next["sum"] = inner.close(counted("k", "n"))["sum"]
        return top.net(loop.close(counted("i", "n"))["sum"])

    check(drawn("k"), drawn("k"))
    assert refusal(drawn("i"), drawn("k")) == "value-changed"


def reading_back(read: str) -> Net:
    """Two forward loops save their counters, of n and of m; a gradient loop of n reads one value.

    forward  i = 0, 1, … n - 1 ──► list        gradient  j = 0, 1, … n - 1; pop = n - 1, … 1, 0
    longer   i = 0, 1, … m - 1 ──► list                  pop_longer = m - 1, m - 2, …
    """
    top = Drawing("top", n="int32", m="int32")
    lists = {}
    for name, limit in (("forward", "n"), ("longer", "m")):
        loop = LoopDrawing(top, name)
        loop.carry("i", top.const(0)), loop.carry("n", limit)
        loop.carry("acc", top.empty_list(element="int32"))
        count(loop, "i")
        loop.next["acc"] = loop.body.push("acc", "i")
        lists[name] = loop.close(counted("i", "n"))["acc"]
    loop = LoopDrawing(top, "gradient")
    loop.carry("j", top.const(0)), loop.carry("n", "n"), loop.carry("sum", top.const(0))
    count(loop, "j")
    for name, held in lists.items():
        loop.carry(name, held)
        loop.next[name], _ = loop.body.pop(name, name=f"pop_{name}", element="int32")
    loop.next["sum"] = loop.body.op("Mul", "sum", read, gives="int32")
    return top.net(loop.close(counted("j", "n"))["sum"])


@pytest.mark.parametrize("read", ["j", "pop_longer:1"])
def test_a_pop_runs_backwards_through_the_loop_that_pushed(read):
    assert refusal(reading_back(read), reading_back("pop_forward:1")) == "value-changed"


def test_a_keepalive_whose_element_is_read_in_place_of_another_blob():
    # the keep-alive use holds m; d2 reads it where it should read a
    net = training(recompute=True, keeps_alive=True)
    net = edited(net, GRADIENT, lambda body: with_input(body, "d2", 0, "keepalive_pop:1"))
    assert refusal(net) == "value-changed"


def test_a_keepalive_whose_element_is_read_for_what_it_is():
    net = training(recompute=True, keeps_alive=True)
    check(
        ORIGINAL,
        edited(net, GRADIENT, lambda body: with_input(body, "a_again", 0, "keepalive_pop:1")),
    )


def test_another_constant():
    one = REWRITTEN.op_by_name["gradient_start"]
    value = dataclasses.replace(one.attributes["value"], encoded=b"2.0")
    net = with_op(REWRITTEN, "gradient_start", attributes={**one.attributes, "value": value})
    assert refusal(net) == "value-changed"


def test_a_second_gradient_loop_with_a_wrong_clone():
    net = training(recompute=True, gradients=2)
    net = edited(net, ("gradient1", "body"), lambda body: with_input(body, "m_again", 1, "dw"))
    assert refusal(net, training(gradients=2)) == "value-changed"


@pytest.mark.parametrize(("op", "slot", "blob"), [("s2", 0, "d"), ("by_h", 1, "pop_g:1")])
def test_a_wrong_blob_in_an_inner_gradient_loop(op, slot, blob):
    path = (*GRADIENT, "inner_gradient", "body")
    net = edited(nested(recompute=True), path, lambda body: with_input(body, op, slot, blob))
    assert refusal(net, nested()) == "value-changed"


@pytest.mark.parametrize("which", ["forward", "gradient"])
def test_a_changed_cond(which):
    net = edited(REWRITTEN, (which, "cond"), lambda cond: with_op(cond, "going_on", type="Greater"))
    assert refusal(net) == "cond-changed"


# --- lists -------------------------------------------------------------------------------------


def test_an_accumulator_that_is_popped_twice():
    def twice(body: Net) -> Net:
        body = with_more(body, lambda draw: draw.pop("pop_h:0", name="pop_more"))
        swap = {"pop_h:0": "pop_more:0"}
        return body.replace(outputs=tuple(swap.get(blob, blob) for blob in body.outputs))

    assert refusal(gradient_edit(twice)) == "accumulator-popped-twice"


def test_an_accumulator_that_is_not_empty_at_the_start():
    net = with_more(
        REWRITTEN, lambda draw: draw.push("empty_h:0", "x", name="early"), before="forward"
    )
    inputs = net.op_by_name["forward"].inputs
    swap = {"empty_h:0": "early:0"}
    net = with_op(net, "forward", inputs=tuple(swap.get(blob, blob) for blob in inputs))
    assert refusal(net) == "accumulator-not-empty"


def test_an_accumulator_that_is_dropped_and_still_read():
    def unpushed(body: Net) -> Net:
        swap = {"push_h:0": "acc_h"}
        return body.replace(outputs=tuple(swap.get(blob, blob) for blob in body.outputs))

    net = edited(REWRITTEN, FORWARD, lambda body: without_op(unpushed(body), "push_h"))
    assert refusal(net) == "accumulator-still-read"


def test_an_accumulator_that_is_pushed_twice():
    def twice(body: Net) -> Net:
        body = with_more(body, lambda draw: draw.push("push_h:0", "h", name="push_more"))
        swap = {"push_h:0": "push_more:0"}
        return body.replace(outputs=tuple(swap.get(blob, blob) for blob in body.outputs))

    assert refusal(edited(REWRITTEN, FORWARD, twice)) == "pop-unmatched"


def test_a_keepalive_that_is_popped_without_a_push():
    net = training(recompute=True, keeps_alive=True)
    net = edited(net, GRADIENT, lambda body: with_input(body, "keepalive_pop", 0, "keepalive"))
    assert refusal(net) == "accumulator-still-read"


def test_a_loop_that_never_popped_a_list_may_run_longer_than_it_is_long():
    """Another loop, of unknown length, starts to pop what the forward loop pushed."""

    def drawn(pops: bool) -> Net:
        top = Drawing("top", x="float32", n="int32", more="int32")
        loop = LoopDrawing(top, "forward")
        loop.carry("i", top.const(0)), loop.carry("n", "n"), loop.carry("x", "x")
        loop.carry("acc", top.empty_list())
        count(loop, "i")
        loop.next["acc"] = loop.body.push("acc", "x")
        done = loop.close(counted("i", "n"))
        other = LoopDrawing(top, "other")
        other.carry("i", top.const(0)), other.carry("n", "more"), other.carry("x", "x")
        other.carry("acc", done["acc"]), other.carry("sum", "x")
        count(other, "i")
        read = "x"
        if pops:
            other.next["acc"], read = other.body.pop("acc", name="pop")
        other.next["sum"] = other.body.op("AddV2", "sum", read, name="add")
        return top.net(other.close(counted("i", "n"))["sum"])

    assert refusal(drawn(True), drawn(False)) == "pop-unmatched"


def test_a_list_that_an_inner_loop_pushes_into_again_is_no_accumulator():
    """Each inner iteration makes acc from the OUTER list: it never holds more than one push."""

    def drawn(pops: bool) -> Net:
        top = Drawing("top", x="float32", n="int32")
        outer = LoopDrawing(top, "outer")
        outer.carry("i", top.const(0)), outer.carry("n", "n"), outer.carry("x", "x")
        outer.carry("held", top.empty_list()), outer.carry("sum", "x")
        count(outer, "i")
        body = outer.body
        outer.next["held"] = body.push("held", "sum")
        inner = LoopDrawing(body, "inner")
        inner.carry("i", body.const(0)), inner.carry("n", "n"), inner.carry("x", "x")
        inner.carry("held", "held"), inner.carry("acc", body.empty_list())
        count(inner, "i")
        inner.next["acc"] = inner.body.push("held", "x")
        done = inner.close(counted("i", "n"))
        back = LoopDrawing(body, "back")
        back.carry("i", body.const(0)), back.carry("n", done["i"]), back.carry("x", "x")
        back.carry("acc", done["acc"]), back.carry("sum", "sum")
        count(back, "i")
        back.next["acc"], read = back.body.pop("acc", name="pop")
        add = back.body.op("AddV2", "sum", read if pops else "x", name="add")
        back.next["sum"] = add
        outer.next["sum"] = back.close(counted("i", "n"))["sum"]
        return top.net(outer.close(counted("i", "n"))["sum"])

    check(drawn(True), drawn(True))
    assert refusal(drawn(False), drawn(True)) == "pop-unmatched"


def test_a_pop_of_a_loop_that_need_not_be_as_long():
    # the original pops only the list of n; the rewrite pops the list of m as well
    inner = GRADIENT
    original = reading_back("pop_forward:1")
    original = edited(
        original,
        inner,
        lambda body: without_op(body, "pop_longer").replace(
            outputs=tuple("longer" if blob == "pop_longer:0" else blob for blob in body.outputs)
        ),
    )
    assert refusal(reading_back("pop_forward:1"), original) == "pop-unmatched"


# --- effects -----------------------------------------------------------------------------------


def test_a_stateful_op_that_is_cloned():
    def drawn_again(body: Net) -> Net:
        more = with_more(
            body,
            lambda draw: draw.op("RandomUniform", draw.const(0, name="shape"), name="r2", seed=7),
            before="d1",
        )
        return with_input(more, "d1", 1, "r2:0")

    assert refusal(gradient_edit(drawn_again)) == "stateful-op-doubled"


def test_a_stateful_op_that_is_run_twice_in_its_own_step_net():
    net = edited(
        REWRITTEN,
        FORWARD,
        lambda body: with_input(
            with_more(
                body,
                lambda draw: draw.op("RandomUniform", "shape:0", name="r2", seed=7),
                before="b",
            ),
            "b",
            1,
            "r2:0",
        ),
    )
    assert refusal(net) == "stateful-op-doubled"


def test_a_stateful_op_that_is_dropped():
    net = edited(
        REWRITTEN,
        FORWARD,
        lambda body: with_input(
            with_input(without_op(body, "r"), "b", 1, "h"), "push_r", 1, "h"
        ).replace(control_outputs=()),
    )
    assert refusal(net) == "stateful-op-lost"


def test_a_stateful_op_with_another_attribute():
    net = edited(REWRITTEN, FORWARD, lambda body: with_op(body, "r", attributes={"seed": 8}))
    assert refusal(net) == "stateful-op-lost"


def drawing_by(parallel_iterations: int) -> Net:
    """The forward loop draws, and nothing orders the draws of iterations that are under way."""
    net = edited(REWRITTEN, FORWARD, lambda body: with_op(body, "r", stateful=True))
    known = {**net.op_by_name["forward"].attributes, "parallel_iterations": parallel_iterations}
    return with_op(net, "forward", attributes=known)


def test_other_parallel_iterations_of_a_loop_that_draws():
    check(drawing_by(10), drawing_by(10))
    assert refusal(drawing_by(1), drawing_by(10)) == "stateful-op-lost"
    assert refusal(drawing_by(32), drawing_by(10)) == "stateful-op-lost"


PRINTING = """
net top(x float32) -> (y) wants(p, q) {
  PrintV2(x) as p
  NoOp() as between after(p)
  y float32 = Sin(x)
  PrintV2(y) as q after(between)
}
"""


def printing(*changes: tuple[str, str]) -> Net:
    """p prints x, then q prints Sin(x); each change is a text and what stands in its place."""
    text = PRINTING
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return parse(text)


APART = (" after(between)", "")  # nothing orders the two


def test_the_order_of_effects_may_be_kept_another_way():
    check(printing(), printing(APART, ("Sin(x)", "Sin(x) after(p)")))


def test_the_order_of_effects_is_lost():
    assert refusal(printing(APART), printing()) == "order-lost"


def test_what_an_effect_reads_is_changed():
    assert refusal(printing(("PrintV2(y)", "PrintV2(x)")), printing()) == "value-changed"


def test_an_effect_that_nothing_keeps_alive():
    assert refusal(printing(APART, ("p, q", "p")), printing(APART)) == "control-lost"


def test_an_effect_that_starts_to_run():
    assert refusal(printing(APART), printing(APART, ("p, q", "p"))) == "stateful-op-woken"


def test_an_effect_where_there_was_none():
    silent = parse("net top(x float32) -> (y) { y float32 = Sin(x) }")
    assert refusal(printing(), silent) == "stateful-op-doubled"


def test_a_check_of_the_original_that_is_gone():
    # barriers may be added, but those of the user's own function stay
    assert refusal(ORIGINAL, REWRITTEN) == "stateful-op-lost"


# --- form --------------------------------------------------------------------------------------


def test_a_cond_with_fewer_arguments():
    net = edited(REWRITTEN, ("forward", "cond"), lambda cond: cond.replace(inputs=cond.inputs[:-1]))
    assert refusal(net) == "loop-arity"


def test_a_body_with_one_output_more():
    net = edited(REWRITTEN, FORWARD, lambda body: body.replace(outputs=(*body.outputs, "h")))
    assert refusal(net) == "loop-arity"


def test_types_written_down_for_too_many_variables():
    attributes = dict(REWRITTEN.op_by_name["forward"].attributes)
    attributes["T"] = (*attributes["T"], DType("float32"))
    assert refusal(with_op(REWRITTEN, "forward", attributes=attributes)) == "attribute-arity"


def test_another_dtype_across_a_link():
    blobs = dict(REWRITTEN.blobs)
    blobs["forward:2"] = dataclasses.replace(blobs["forward:2"], dtype="float64")
    assert refusal(REWRITTEN.replace(blobs=blobs)) == "dtype-mismatch"


def test_another_dtype_into_an_op():
    net = gradient_edit(lambda body: with_input(body, "a_again", 0, "j"))
    assert refusal(net) == "dtype-mismatch"


def test_a_blob_that_nothing_is_known_of():
    net = gradient_edit(
        lambda body: body.replace(
            blobs={name: blob for name, blob in body.blobs.items() if name != "m_again:0"}
        )
    )
    assert refusal(net) == "missing-blob"


def test_an_input_that_nobody_makes():
    net = gradient_edit(lambda body: without_op(body, "m_again"))
    assert refusal(net) == "undefined-input"


def test_an_output_that_nobody_makes():
    assert refusal(REWRITTEN.replace(outputs=("gone", *REWRITTEN.outputs[1:]))) == (
        "undefined-output"
    )


def test_a_circle_of_control_edges():
    net = gradient_edit(lambda body: with_op(body, "d1", controls=("next_dh",)))
    assert refusal(net) == "cycle"


def test_a_control_edge_from_nowhere():
    net = gradient_edit(lambda body: with_op(body, "d1", controls=("gone",)))
    assert refusal(net) == "undefined-control"


def test_a_name_given_twice():
    net = gradient_edit(lambda body: body.replace(ops=(*body.ops, body.op_by_name["d1"])))
    assert refusal(net) == "duplicate-op"


def test_a_blob_made_twice():
    net = gradient_edit(lambda body: with_op(body, "back", outputs=("step:0",)))
    assert refusal(net) == "duplicate-blob"


def test_another_face():
    assert refusal(REWRITTEN.replace(outputs=REWRITTEN.outputs[:-1])) == "signature-changed"


def test_an_op_that_moved():
    net = gradient_edit(lambda body: with_op(body, "d1", device="/device:GPU:0"))
    assert refusal(net) == "device-changed"


def test_a_clone_that_stands_on_another_device():
    net = gradient_edit(lambda body: with_op(body, "a_again", device="/device:GPU:0"))
    assert refusal(net) == "value-changed"


# --- how it reads, how long it takes -----------------------------------------------------------


def test_a_refusal_shows_the_reason_and_the_ops_around():
    with pytest.raises(CheckError) as caught:
        check(ORIGINAL, gradient_edit(lambda body: without_op(body, "m_again")))
    text = str(caught.value)
    assert text.startswith("undefined-input: 'a_again' reads 'm_again:0'")
    assert "> a_again:0 = Tanh(m_again:0, ^d1)  # a_again" in text
    assert below(ORIGINAL, *GRADIENT).name in text


def test_a_long_net_is_verified_without_deep_recursion():
    """A chain of Tanh in a loop, each pushed and popped; the rewrite pops only the first."""

    def drawn(length: int, recompute: bool) -> Net:
        top = Drawing("top", x="float32", n="int32")
        loop = LoopDrawing(top, "forward")
        loop.carry("i", top.const(0)), loop.carry("n", "n"), loop.carry("h", "x")
        loop.carry("acc", top.empty_list())
        count(loop, "i")
        last = "h"
        for _ in range(length):
            last = loop.body.op("Tanh", last)
        loop.next["h"] = last
        loop.next["acc"] = loop.body.push("acc", "h" if recompute else last)
        done = loop.close(counted("i", "n"))
        back = LoopDrawing(top, "gradient")
        back.carry("j", top.const(0)), back.carry("n", done["i"]), back.carry("d", "x")
        back.carry("acc", done["acc"])
        count(back, "j")
        back.next["acc"], read = back.body.pop("acc")
        for _ in range(length if recompute else 0):
            read = back.body.op("Tanh", read)
        back.next["d"] = back.body.op("Mul", "d", read)
        return top.net(done["h"], back.close(counted("j", "n"))["d"])

    original, rewritten = drawn(20000, False), drawn(20000, True)
    check(original, rewritten)

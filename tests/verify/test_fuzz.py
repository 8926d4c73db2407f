"""Small random changes of a correct rewrite: what changes a result must be refused.

An interpreter that shares nothing with the checker runs both Nets. The checker may refuse more than
the interpreter can see (a proof is needed, not luck), never less.
"""

import dataclasses

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from rnnmem.errors import CheckError
from rnnmem.ir.graph import Net
from rnnmem.ir.residuals import rename_map, residuals_of
from rnnmem.verify import check
from tests.drawing import edited, with_input, with_op
from tests.interpreter import Failed, Interpreter
from tests.loop_drawings import RECURRENT, in_segments, nested, training

PAIRS = {
    "dropout": (training(), training(recompute=True)),
    "kept_alive": (training(), training(recompute=True, keeps_alive=True)),
    "two gradients": (training(gradients=2), training(recompute=True, gradients=2)),
    "nested": (nested(), nested(recompute=True)),
    "segments": (RECURRENT, in_segments(("h", "a"), length=2)),
    "growing segments": (RECURRENT, in_segments(("h",), length=1, growth=1)),
}
SCHEDULED = {
    "schedule": (RECURRENT, in_segments(("h", "a"), length=1, slots=2, count=5)),
    "online schedule": (
        RECURRENT,
        in_segments(("h", "a"), length=1, slots=2, count=3, online=True),
    ),
}
GIVEN = [{"x": 0.7, "w": -0.9, "n": 5}, {"x": -1.3, "w": 0.4, "n": 1}, {"x": 0.2, "w": 2.0, "n": 0}]
POINTWISE = ("Tanh", "Sin", "Cos", "Identity")
BINARY = ("AddV2", "Mul", "Sub", "TanhGrad")


def results(net: Net) -> list:
    """Outputs and log for each choice of inputs; what fails has no result."""
    found = []
    for given in GIVEN:
        run = Interpreter()
        dtypes = [net.blobs[blob].dtype for blob in net.inputs]
        values = [
            np.dtype(dtype).type(given[blob])
            for blob, dtype in zip(net.inputs, dtypes, strict=True)
        ]
        try:
            outputs = run.run(net, values)
            found.append(([float(value) for value in outputs], run.log))
        except Failed as failure:
            found.append(str(failure))
    return found


def same(one: list, other: list) -> bool:
    return repr(one) == repr(other)


@st.composite
def changes(draw, net: Net) -> Net:
    """One input, one output, one type, or the order of two inputs is changed somewhere."""
    path, place = draw(st.sampled_from(list(net.walk())))
    kinds = ["output"] if place.outputs else []
    kinds += ["input"] * 4 if any(op.inputs for op in place.ops) else []
    kinds += ["type", "swap"] if any(op.type in BINARY for op in place.ops) else []
    kind = draw(st.sampled_from(kinds or ["none"]))

    def edit(inner: Net) -> Net:
        def another(blob: str) -> str:
            dtype = inner.blobs[blob].dtype
            made = {*inner.inputs, *(blob for op in inner.ops for blob in op.outputs)}
            alike = sorted(one for one in made if inner.blobs[one].dtype == dtype)
            return draw(st.sampled_from(alike))

        if kind == "output":
            slot = draw(st.integers(0, len(inner.outputs) - 1))
            outputs = list(inner.outputs)
            outputs[slot] = another(outputs[slot])
            return inner.replace(outputs=tuple(outputs))
        if kind == "input":
            op = draw(st.sampled_from([op for op in inner.ops if op.inputs]))
            slot = draw(st.integers(0, len(op.inputs) - 1))
            return with_input(inner, op.name, slot, another(op.inputs[slot]))
        if kind == "swap":
            op = draw(st.sampled_from([op for op in inner.ops if op.type in BINARY]))
            return with_op(inner, op.name, inputs=op.inputs[::-1])
        if kind == "type":
            alike = [op for op in inner.ops if op.type in (*POINTWISE, *BINARY)]
            op = draw(st.sampled_from(alike))
            types = POINTWISE if op.type in POINTWISE else BINARY
            return with_op(inner, op.name, type=draw(st.sampled_from(types)))
        return inner

    return edited(net, path, edit)


@st.composite
def other_claims(draw, net: Net) -> Net:
    """One name in the rename map of the gradient loop is another, where it has any."""
    gradient = net.op_by_name["gradient"]
    claims = list(residuals_of(gradient))
    if not claims:
        return net
    place = draw(st.integers(0, len(claims) - 1))
    field = draw(st.sampled_from(["blob", "becomes", "pushed", "popped"]))
    known = sorted({getattr(one, field) for one in claims})
    claims[place] = dataclasses.replace(claims[place], **{field: draw(st.sampled_from(known))})
    attributes = {**gradient.attributes, **rename_map(claims)}
    return with_op(net, "gradient", attributes=attributes)


def accepted(original: Net, changed: Net) -> bool:
    try:
        check(original, changed)
    except CheckError:
        return False
    return True


@pytest.mark.parametrize("name", [*PAIRS, *SCHEDULED])
def test_the_interpreter_agrees_that_the_rewrite_is_correct(name):
    original, rewritten = {**PAIRS, **SCHEDULED}[name]
    assert same(results(original), results(rewritten))
    assert accepted(original, rewritten)


def several_changes(data, rewritten):
    """The rewritten Net, changed once or twice, and in what it claims or not."""
    changed = data.draw(changes(rewritten))
    if data.draw(st.booleans()):
        changed = data.draw(changes(changed))
    if data.draw(st.booleans()):
        changed = data.draw(other_claims(changed))
    return changed


@pytest.mark.fuzz
@pytest.mark.parametrize("name", PAIRS)
@hypothesis.given(data=st.data())
def test_a_change_that_shows_in_a_result_is_refused(name, data):
    original, rewritten = PAIRS[name]
    changed = several_changes(data, rewritten)
    if accepted(original, changed):
        assert same(results(original), results(changed))


@pytest.mark.fuzz
@pytest.mark.parametrize("name", SCHEDULED)
@hypothesis.given(data=st.data())
def test_a_change_of_a_schedule_gives_no_other_result(name, data):
    original, rewritten = SCHEDULED[name]
    changed = several_changes(data, rewritten)
    if accepted(original, changed):
        pairs = zip(results(original), results(changed), strict=True)
        # which states are kept is not proven: there may be none when one is asked for
        assert all(isinstance(found, str) or same(one, found) for one, found in pairs)

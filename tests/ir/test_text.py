"""A Net prints as text, and the text parses to the same Net."""

import math

import hypothesis
import pytest
from hypothesis import strategies as st

from rnnmem.errors import NetError
from rnnmem.ir import parse
from rnnmem.ir.graph import Blob, Constant, DType, FunctionRef, Net, Op, ShapeValue
from rnnmem.ir.text import to_text
from tests.handmade import rnn

STEP = """
# One step of a recurrent network.
net step(x float32[4,8], w float32[8,8], n int32[]) -> (h, c:1) wants(log) {
  m float32[4,8] = MatMul(x, w) with {transpose_a=false, T=type float32} @ "train.py:12"
  h float32[4,8] = Tanh(m) on "/device:CPU:0"
  c:0 variant[], c:1 float32[?,8] = Split(h) after(m)
  PrintV2(h) as log stateful
  last float32[*] = While(h, n) with {limit=3, output_shapes=(shape[4,8], shape[*])} {
    body = net body(h float32[4,8], n int32[]) -> (h, n) {
    }
    cond = net cond(h float32[4,8], n int32[]) -> (more) {
      more bool[] = Const() with {value=constant bool[] true "CAo="}
    }
  }
}
"""


def same(net: Net, other: Net) -> bool:
    """Nets are equal by their fields; mappings of either kind count as equal."""
    return net == other and all(
        one.blobs == two.blobs and one.attributes == two.attributes
        for (_, one), (_, two) in zip(net.walk(), other.walk(), strict=True)
    )


def test_what_is_written_by_hand_is_what_it_says():
    net = parse(STEP)
    m, h, split, log, loop = net.ops
    assert (net.name, net.inputs, net.outputs) == ("step", ("x", "w", "n"), ("h", "c:1"))
    assert net.control_outputs == ("log",)
    assert net.blobs["x"] == Blob("x", "float32", (4, 8))
    assert net.blobs["c:1"].shape == (None, 8) and net.blobs["last"].shape is None
    assert m == Op(
        *("m", "MatMul", ("x", "w"), ("m",)),
        attributes={"transpose_a": False, "T": DType("float32")},
        source="train.py:12",
    )
    assert h.device == "/device:CPU:0"
    assert split.name == "c" and split.controls == ("m",)
    assert log.outputs == () and log.stateful
    assert loop.attributes["output_shapes"] == (ShapeValue((4, 8)), ShapeValue(None))
    assert loop.nets["cond"].ops[0].attributes["value"].value is True
    assert same(parse(to_text(net)), net)


def test_a_net_of_loops_survives():
    net = rnn()
    assert same(parse(str(net)), net)


def test_every_op_has_one_line_and_step_nets_stand_inside():
    lines = to_text(parse(STEP)).splitlines()
    assert lines[1] == (
        '  m float32[4,8] = MatMul(x, w) with {transpose_a=false, T=type float32} @ "train.py:12"'
    )
    assert "    body = net body(h float32[4,8], n int32[]) -> (h, n) {" in lines


def test_shapes_and_encodings_may_be_left_out_by_hand():
    net = parse("net n(x float32) -> (y) { y int32[] = Const() with {value=constant int32[] 1} }")
    assert net.blobs["x"].shape is None
    assert net.ops[0].attributes["value"] == Constant("int32", (), b"", 1)
    assert same(parse(str(net)), net)


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=8)
SHAPES = st.none() | st.lists(st.none() | st.integers(0, 9), max_size=3).map(tuple)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False)
    | st.binary(max_size=8)
    | st.text(max_size=4)
    | st.sampled_from(["float32", "variant"]).map(DType)
    | SHAPES.map(ShapeValue)
    | st.builds(
        Constant, st.just("int32"), SHAPES, st.binary(max_size=4), st.none() | st.integers()
    )
    | st.builds(FunctionRef, NAMES, st.binary(max_size=4)),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=6,
)


@st.composite
def nets(draw, depth=1):
    names = draw(st.lists(NAMES, min_size=1, max_size=6, unique=True))
    blobs = {
        one: Blob(one, draw(st.sampled_from(["float32", "bool"])), draw(SHAPES)) for one in names
    }
    ops = []
    for name in names[1:]:
        inner = draw(st.dictionaries(NAMES, nets(depth - 1), max_size=1)) if depth else {}
        op_name = draw(st.just(name) | NAMES)
        ops.append(
            Op(
                op_name,
                draw(NAMES),
                tuple(draw(st.lists(st.sampled_from(names), max_size=2))),
                (name,),
                draw(st.dictionaries(NAMES, VALUES, max_size=2)),
                tuple(draw(st.lists(NAMES, max_size=1))),
                inner,
                draw(st.just("") | NAMES),
                draw(st.just("") | NAMES),
                draw(st.booleans()),
            )
        )
    attributes = draw(st.dictionaries(NAMES, VALUES, max_size=1))
    outputs = tuple(draw(st.lists(st.sampled_from(names), max_size=2)))
    return Net(draw(NAMES), (names[0],), outputs, tuple(ops), blobs, (), attributes)


@pytest.mark.fuzz
@hypothesis.given(nets())
def test_any_net_survives(net):
    assert same(parse(to_text(net)), net)


def test_numbers_that_are_none_survive():
    net = Net("n", (), (), (Op("a", "A", attributes={"v": (math.inf, -math.inf, math.nan)}),), {})
    high, low, none = parse(to_text(net)).ops[0].attributes["v"]
    assert (high, low) == (math.inf, -math.inf) and math.isnan(none)


@pytest.mark.parametrize(
    "text, problem",
    [
        ("", "line 1 .*'net' was expected, not its end"),
        ("net n() -> () {\n  y float32[ = A()\n}", "line 2 .*a number was expected, not '='"),
        ("net n() -> () {\n  y = A()\n}", "line 2 .*a name was expected, not '='"),
        ("net n() -> () {\n  A()\n}", "line 3 .*the op A needs a name: as NAME"),
        ("net n() -> () {\n} more", "line 2 .*'more' stands behind the Net"),
        ("net n() -> () {\n  y float32[] = A(x\n", "line 3 .*',' was expected, not its end"),
        ("net n() -> () {\n  ; }", "line 2 .*';' begins no word"),
    ],
)
def test_a_text_that_is_none_is_refused_with_its_line(text, problem):
    with pytest.raises(NetError, match=problem):
        parse(text)

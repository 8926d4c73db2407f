"""Loops and blobs are called after layers and functions of the user; alike ones stand together."""

import dataclasses

import pytest

from rnnmem.ir.names import Names, Origins
from rnnmem.passes.implicit_broadcast.decision import ImplicitBroadcast
from rnnmem.passes.late_products.decision import LateProduct
from rnnmem.planning.names import names_in, with_origins
from rnnmem.planning.plan import Plan
from rnnmem.planning.sentences import sentences
from rnnmem.reports.data import SAVED, TEMPORARY, Area, Part, Side
from rnnmem.reports.rows import areas, lines, rows, title
from tests.handmade import make_net, op

NESTED = "gradient_tape/sweep/gradients/sweep/refine_grad"
"""Gradient of a loop in a loop's."""
KERAS = ("model/encoder_1/while", "model/decoder/while")
GRADIENT = "gradient_tape/model/encoder_1/while/model/encoder_1/while_grad"


@pytest.mark.parametrize(
    ("loops", "functions", "asked", "told"),
    [
        (KERAS, {}, (KERAS[0],), "encoder"),
        ((*KERAS, GRADIENT), {}, (GRADIENT,), "encoder, gradient"),
        (("m/lstm/while", "m/lstm_1/while"), {}, ("m/lstm_1/while",), "lstm_1"),
        (("while", "while_1"), {"while": "encode", "while_1": "decode"}, ("while_1",), "decode"),
        (("while", "while_1"), {"while": "f", "while_1": "f"}, ("while_1",), "f (while_1)"),
        (("while", "gradients/while_grad/while_grad"), {"while": "roll"}, ("while",), "roll"),
        (("while",), {}, ("gradients/while_grad/while_grad",), "while, gradient"),
        (("encoder", "steps/while"), {}, ("encoder", "steps/while"), "encoder › steps"),
        (("loop", "grad", "grad/rnnmem/again"), {}, ("grad", "grad/rnnmem/again"), "grad › replay"),
        (("",), {}, ("unheard/of",), "unheard/of"),
        (("m/while",), {}, ("rnnmem_backward/gradients/m/while_grad/m/while_grad",), "m, gradient"),
        (
            ("sweep", "sweep/refine"),
            {},
            ("gradient_tape/sweep/sweep_grad", f"{NESTED}/sweep/refine_grad"),
            "sweep › refine, gradient",
        ),
        (
            ("Call/m/while", "rnnmem_backward/Call_grad/gradients/m/while_grad/m/while_grad"),
            {},
            ("rnnmem_backward/Call_grad/gradients/m/while_grad/m/while_grad",),
            "m, gradient",
        ),
        (("m/while",), {}, ("gradients/m/while_grad/m/while_grad",), "m, gradient"),
        (("loop", "grad", "rnnmem/way"), {}, ("grad", "rnnmem/way"), "grad › way to a segment"),
    ],
)
def test_a_loop_has_the_name_of_its_layer_or_of_the_function_that_made_it(
    loops, functions, asked, told
):
    assert Names(loops, functions).loop(asked) == told


@pytest.mark.parametrize(
    ("label", "loops", "told"),
    [
        (f"{KERAS[0]}: {KERAS[0]}/lstm_cell_1/Sigmoid_2:0", KERAS[:1], "encoder › lstm_cell"),
        (f"{KERAS[1]}: {KERAS[1]}/MatMul:0", KERAS[1:], "decoder"),
        ("gradient_tape/model/dense_2/MatMul/MatMul_1:0", (), "dense, gradient"),
        ("gradient_tape/MatMul:0", (), "gradient"),
        (
            f"x: {NESTED}/gradients/sweep/refine/matmul_grad/MatMul:0",
            ("gradient_tape/sweep/sweep_grad", f"{NESTED}/sweep/refine_grad"),
            "sweep › sweep/refine, gradient",
        ),
        ("Tensordot/MatMul:0", (), "outside of loops"),
    ],
)
def test_a_blob_is_told_by_its_loop_and_its_layer(label, loops, told):
    part = Part(label, TEMPORARY, 4, "MatMul", loops=loops)
    assert Names(KERAS, {}).where(part) == told


@pytest.mark.parametrize(
    ("sentence", "told"),
    [
        (f"{GRADIENT} waits for {KERAS[0]}", "gradient of encoder waits for encoder"),
        (f"{GRADIENT}/body: 1 op taken out", "gradient of encoder: 1 op taken out"),
        ("gradient_tape/model/decoder_2/Slice_1 waits", "gradient of decoder/Slice_1 waits"),
        ("gradient_tape/while/zeros waits for AddN", "gradient_tape/while/zeros waits for AddN"),
        (
            "rnnmem_backward/zeros waits for rnnmem_backward/gradients/grad_ys_0",
            "zeros of the gradient waits for grad_ys_0 of the gradient",
        ),
        (f"read from {KERAS[0]}:3 (x.py:3)", "read from result 3 of encoder (x.py:3)"),
        (f"{KERAS[0]}:0, m/out_3/Sum:1 and y:0", "encoder, result 1 of out/Sum and y:0"),
        ("rnnmem_backward/gradients/model/decoder_2/Sum", "gradient of decoder/Sum"),
        ("1.5 MiB and/or more (x.py:3), a/B", "1.5 MiB and/or more (x.py:3), a/B"),
    ],
)
def test_a_sentence_has_the_names_of_loops_and_layers(sentence, told):
    assert Names(KERAS, {}).told(sentence) == told


@pytest.mark.parametrize(
    ("name", "around", "functions", "told"),
    [
        (f"{KERAS[0]}/cell_1/Tanh_2", KERAS[:1], {}, ("model", "encoder", "cell", "Tanh_2")),
        (KERAS[1], (), {}, ("model", "decoder")),
        ("model/dense_1/MatMul", (), {}, ("model", "dense", "MatMul")),
        ("while/Tanh", ("while",), {"while": "roll"}, ("roll", "Tanh")),
        ("while/cond/gates/Tanh", ("while", "while/cond"), {"while": "roll"})
        + (("roll", "gates", "Tanh"),),
        ("gradient_tape/model/dense_1/MatMul", (), {}, ()),
        ("AddN", (GRADIENT,), {}, ()),
    ],
)
def test_an_op_is_called_behind_what_it_stands_in(name, around, functions, told):
    loops = ("while", *KERAS)
    assert Names(loops, functions).chain(name, around) == told


BLOCKS = [f"{of}block_{i}/mul_1:0" for of in ("", "gradient_tape/") for i in range(5)]


@pytest.mark.parametrize(
    ("ops", "sentence", "told"),
    [
        (BLOCKS, "gradient_tape/block_4/mul_1 waits", "gradient of block_4/mul_1 waits"),
        (BLOCKS, "block_0/mul_1 to block_0/add_2", "block_0/mul_1 to block_0/add_2"),
        (["m/dense/x", "m/dense_1/x"], "m/dense_1/add waits", "dense_1/add waits"),
        (["m/dense_0/x"], "m/dense_0/add waits", "dense_0/add waits"),
        (["m/dense_1/x", "n/dense/x"], "m/dense_1/add waits", "dense/add waits"),
    ],
)
def test_a_number_that_tells_scopes_apart_is_kept(ops, sentence, told):
    assert Names((), {}, ops).told(sentence) == told


def test_what_stands_in_a_loop_without_a_layer_is_told_by_the_loop():
    told = Names(("while",), {"while": "step"}).told("gradient_tape/while/zeros_1 waits for while")
    assert told == "gradient of step/zeros_1 waits for step"


def test_the_number_of_a_loop_is_kept_that_tells_it_from_a_layer():
    assert Names(("m/block_2/while",), {}, ["m/block_1/x"]).loop(("m/block_2/while",)) == "block_2"
    assert Names(("while",), {"while": "decode_2"}).loop(("while",)) == "decode_2"


def test_a_number_that_was_asked_for_is_kept():
    names = Names(KERAS, {}, (), Origins(numbered=frozenset({("model", "encoder_1")})))
    assert names.loop((KERAS[0],)) == "encoder_1"
    assert names.loop((GRADIENT,)) == "encoder_1, gradient"
    assert names.told(f"Call/{KERAS[0]}/Tanh waits") == "encoder_1/Tanh waits"
    assert Names(("m/lstm_1_1/while",), {}).loop(("m/lstm_1_1/while",)) == "lstm_1"


def block(i):
    return LateProduct(f"gradient_tape/block_{i}/mul_1", 1, f"gradient_tape/block_{i}/x:0", 2**19)


def test_decisions_on_numbered_layers_read_differently():
    text = str(Plan().having(late_products=tuple(map(block, range(5)))))
    assert all(f"gradient of block_{i}/mul_1: 512.0 KiB are made" in text for i in range(5))


def test_decisions_that_read_the_same_are_told_once():
    layers = [dataclasses.replace(block(0), product=f"net_{i}/norm/mul_1") for i in range(3)]
    plan = Plan().having(late_products=(*layers, block(1)))
    told = [one for one in sentences(plan, names_in(plan), most=1)]
    assert told == [
        "late_products: 3 × norm/mul_1: 512.0 KiB are made when the gradient arrives",
        "late_products: gradient of block/mul_1: 512.0 KiB are made when the gradient arrives",
    ]
    more = Plan().having(late_products=(*layers, *map(block, range(5))))
    assert [*sentences(more, names_in(more), most=1)][1:] == ["late_products: 5 more"]


def gate(name, size, source, kind=SAVED):
    return Part(f"cell: {name}", kind, size, "Sigmoid", "float32", (32, 128), source, ("cell",))


def test_alike_parts_are_one_row_and_one_area():
    gates = [gate(f"s{i}", 4, f"cell.py:{line}") for i, line in enumerate((7, 7, 8, 9))]
    parts = [gate("t", 9, "cell.py:9", TEMPORARY), *gates, Part("allocator rounding", TEMPORARY, 1)]
    found = rows(parts)
    assert [title(row) for row in found] == [
        "4 × Sigmoid float32[32,128]",
        "Sigmoid float32[32,128]",
        "allocator rounding",
    ]
    assert found[0] == tuple(gates)
    assert lines(found[0]) == "cell.py:7, 8, 9"
    assert lines([*gates[:1], gate("x", 1, "train.py:3")]) == "cell.py:7; train.py:3"
    side = Side(
        "before", 18, x=(0.0, 1.0), areas=tuple(Area(part, (part.bytes, 1)) for part in parts)
    )
    assert areas(side) == [
        (tuple(gates), [16, 4]),
        ((parts[0],), [9, 1]),
        ((parts[-1],), [1, 1]),
    ]


def test_a_word_of_a_sentence_that_an_op_is_called_by_chance_has_no_line():
    net = make_net(
        {"x": "f[4]"}, [op("input", "Tanh", "x", "f[4]"), op("m", "Mul", "x x", "f[4]")], ["m"]
    )
    net = net.replace(ops=tuple(one.replace(source="train.py:3") for one in net.ops))
    plan = with_origins(Plan().having(implicit_broadcast=(ImplicitBroadcast("m", 0, ()),)), net, ())
    (told,) = sentences(plan, names_in(plan))
    assert told.startswith("implicit_broadcast: input 0 of m (train.py:3) is broadcast")

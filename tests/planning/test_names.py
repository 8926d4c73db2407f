"""Loops and blobs are called after layers and functions of the user; alike ones stand together."""

import pytest

from rnnmem.ir.names import Names
from rnnmem.reports.data import SAVED, TEMPORARY, Area, Part, Side
from rnnmem.reports.rows import areas, lines, rows, title

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

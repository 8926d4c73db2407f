"""How long lists are that writes lengthen: counted by hand, and unknown where only a run can tell.

K is one element of 1024 bytes; each program writes to a list of dynamic size and stacks it.
"""

import pytest

from rnnmem.analysis.shapes import known_net
from rnnmem.ir.graph import DType, FunctionRef
from rnnmem.simulate.timeline import counted_peak, simulate
from tests.handmade import const, empty_list, make_net, op, push, while_op

K = 1024  # f[256]
TRIPS = 12
GROWS = {"resize_if_index_out_of_bounds": True, "element_dtype": DType("float32")}


def write(name, held, index, item="h", **attributes):
    return op(name, "TensorListSetItem", f"{held} {index} {item}", "v[]", attributes=attributes)


def program(*ops, end="list_next", start=0, outputs=(), state=None, starts=""):
    """A loop whose body writes ``h`` to a list of dynamic size; then the list is stacked."""
    inside = {"i": "i[]", "x": "f[256]", "list": "v[]", **(state or {})}
    body = make_net(
        inside,
        [
            const("one", 1),
            op("next", "AddV2", "i one", "i[]"),
            op("h", "Tanh", "x", "f[256]"),
            *ops,
        ],
        ["next", "x", end, *outputs],
        name="body",
    )
    return make_net(
        {"x": "f[256]", "p": "z[]", "n": "i[]"},
        [
            const("zero", 0),
            const("any", (256,)),
            const("size", start),
            op("none", "TensorListReserve", "any size", "v[]"),
            while_op("loop", f"zero x none {starts}", body, limit=TRIPS),
            op("stack", "TensorListStack", "loop:2 any", "f[?,256]"),
            op("result", "Exp", "stack", "f[?,256]"),
        ],
        ["result"],
    )


def length(net):
    """Rows of the stacked list; None: only a run can tell."""
    return known_net(net).net.blobs["stack"].shape[0]


@pytest.mark.parametrize(
    "ops, start, rows",
    [
        ([write("list_next", "list", "i", **GROWS)], 0, TRIPS),
        ([write("list_next", "list", "i", **GROWS)], 40, 40),
        ([write("list_next", "list", "next", **GROWS)], 0, TRIPS + 1),
        (
            [
                const("two", 2),
                op("double", "Mul", "two i", "i[]"),
                write("list_next", "list", "double", **GROWS),
            ],
            0,
            2 * (TRIPS - 1) + 1,
        ),
        (
            [
                const("last", TRIPS - 1),
                op("back", "Sub", "last i", "i[]"),
                op("same", "Identity", "back", "i[]"),
                write("list_next", "list", "same", **GROWS),
            ],
            0,
            TRIPS,
        ),
        ([const("three", 3), write("list_next", "list", "three", **GROWS)], 0, 4),
        ([const("three", 3), write("list_next", "list", "three", **GROWS)], 2, 4),
        (
            [write("first", "list", "i", **GROWS), write("list_next", "first", "next", **GROWS)],
            0,
            TRIPS + 1,
        ),
        # Writes that may not lengthen a list leave it as long as it was.
        ([write("list_next", "list", "i")], 30, 30),
        # What lengthens no list here may stand in the body all the same.
        ([write("other", "list", "i", **GROWS), write("list_next", "list", "i")], 30, 30),
    ],
)
def test_writes_tell_how_long_a_list_gets(ops, start, rows):
    net = program(*ops, start=start)
    assert length(net) == rows
    assert simulate(net).unknown == ()


def test_every_element_is_counted_once():
    # 12 K in the list; then 12 K more of the stack, which Exp takes over
    net = program(write("list_next", "list", "i", **GROWS))
    assert simulate(net).peak_bytes == 2 * TRIPS * K
    # Written twice, an element takes the place of the one before.
    first = write("a", "list", "i", **GROWS)
    other = op("g", "Exp", "x", "f[256]")
    twice = program(first, other, write("list_next", "a", "i", "g", **GROWS))
    assert simulate(twice).peak_bytes in range(2 * TRIPS * K, 3 * TRIPS * K)


def test_a_write_outside_of_loops_lengthens_a_list():
    ops = [
        const("any", (256,)),
        const("zero", 0),
        const("five", 5),
        op("none", "TensorListReserve", "any zero", "v[]"),
        op("h", "Tanh", "x", "f[256]"),
        op("g", "Exp", "x", "f[256]"),
        write("one", "none", "zero", **GROWS),
        write("two", "one", "five", "g", **GROWS),
        op("stack", "TensorListStack", "two any", "f[?,256]"),
    ]
    net = make_net({"x": "f[256]"}, ops, ["stack"])
    assert length(net) == 6
    assert simulate(net).peak_bytes == 8 * K


def branch_that_writes():
    inputs = {"list": "v[]", "i": "i[]", "h": "f[256]"}
    yes = make_net(inputs, [write("w", "list", "i", **GROWS)], ["w"], name="yes")
    no = make_net(inputs, [op("w", "Identity", "list", "v[]")], ["w"], name="no")
    return [
        const("limit", 5),
        op("p", "Less", "i limit", "z[]"),
        op("list_next", "If", "p list i h", "v[]", nets={"then_branch": yes, "else_branch": no}),
    ]


@pytest.mark.parametrize(
    "ops",
    [
        [op("square", "Mul", "i i", "i[]"), write("list_next", "list", "square", **GROWS)],
        [op("less", "Sub", "i one", "i[]"), write("list_next", "list", "less", **GROWS)],
        [push("longer", "list", "h"), write("list_next", "longer", "i", **GROWS)],
        [
            write("a", "list", "i", **GROWS),
            op("list_next", "TensorListResize", "a next", "v[]"),
        ],
        branch_that_writes(),
    ],
    ids=["square", "negative", "pushed", "resized", "branch"],
)
def test_what_only_a_run_can_tell_is_unknown_and_not_nothing(ops):
    net = program(*ops)
    assert length(net) is None
    assert simulate(net).unknown
    assert counted_peak(net) is None


def test_an_index_from_outside_is_unknown():
    net = program(
        write("list_next", "list", "n", **GROWS), outputs=["n"], state={"n": "i[]"}, starts="n"
    )
    assert length(net) is None
    assert counted_peak(net) is None


def test_a_length_that_changes_is_no_number_in_the_body():
    ops = [
        op("long", "TensorListLength", "list", "i[]"),
        op("dims", "Pack", "long", "i[1]"),
        op("zeros", "Fill", "dims value", "f[?]"),
        const("axis", 0),
        op("sum", "Sum", "zeros axis", "f[]"),
    ]
    value = const("value", 1.0)
    for grows in ({}, GROWS):
        net = program(
            value, *ops, write("list_next", "list", "i", **grows), outputs=["sum"],
            state={"s": "f[]"}, starts="start", start=0 if grows else TRIPS,
        )  # fmt: skip
        net = net.replace(
            inputs=(*net.inputs, "start"), blobs={**net.blobs, "start": net.blobs["x"]}
        )
        inside = known_net(net).inner["loop", "body"].net.blobs["zeros"].shape
        assert inside == ((None,) if grows else (TRIPS,))


def test_pushes_are_counted_as_they_were():
    net = program(push("list_next", "list", "h"))
    assert length(net) == TRIPS
    assert simulate(net).unknown == ()


# --- what else counted as nothing


def unknown_of(*ops, outputs=("result",), **inputs):
    net = make_net({"x": "f[256]", **inputs}, ops, outputs)
    assert counted_peak(net) is None
    return simulate(net).unknown


def test_a_handle_of_which_nobody_knows_what_it_holds_is_unknown():
    assert unknown_of(op("result", "RaggedTensorToVariant", "x", "v[]")) == ("result",)


def test_what_runs_in_an_input_pipeline_is_unknown():
    runs = {"f": FunctionRef("body", b"")}
    found = unknown_of(op("result", "ReduceDataset", "d x", "f[256]", attributes=runs), d="v[]")
    assert found == ("what result runs",)


def test_a_call_that_xla_compiles_is_unknown():
    inner = make_net({"y": "f[256]"}, [op("z", "Exp", "y", "f[256]")], ["z"])
    marked = {"_XlaMustCompile": True}
    call = op("result", "PartitionedCall", "x", "f[256]", nets={"f": inner}, attributes=marked)
    assert unknown_of(call) == ("what result runs",)


def test_a_list_of_a_tensor_of_unknown_length_is_unknown():
    ops = [
        const("any", (256,)),
        op("list", "TensorListFromTensor", "y any", "v[]", attributes=GROWS),
    ]
    assert unknown_of(*ops, outputs=("list",), y="f[?,256]") == ("list",)


def test_strings_take_room_too():
    names = op("names", "AsString", "x", "f[256]")
    net = make_net({"x": "f[256]"}, [names], ["names"])
    blob = net.blobs["names"]
    text = net.replace(blobs={**net.blobs, "names": type(blob)("names", "string", (256,))})
    assert simulate(text).peak_bytes == 24 * 256
    for size in (None, 10**6):
        open_ = net.replace(blobs={**net.blobs, "names": type(blob)("names", "string", (size,))})
        assert simulate(open_).unknown == ("names",)


def test_optionals_and_lists_are_known_by_what_they_hold():
    ops = [
        const("any", -1),
        op("h", "Tanh", "x", "f[256]"),
        op("held", "OptionalFromValue", "h", "v[]"),
        op("value", "OptionalGetValue", "held", "f[256]"),
        empty_list("list"),
        push("longer", "list", "value"),
    ]
    net = make_net({"x": "f[256]"}, ops, ["longer"])
    assert simulate(net).unknown == ()
    assert simulate(net).peak_bytes == K

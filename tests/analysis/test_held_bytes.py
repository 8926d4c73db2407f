"""What keeping a blob takes: lists by their elements, optionals by what is in them."""

from rnnmem.analysis.held_bytes import held_bytes
from rnnmem.ir.graph import DType
from tests.handmade import const, empty_list, make_net, op, push, while_op

KIND = "f[64,64]"
SIZE = 4 * 64 * 64


def pushing(limit: int, pushed: str = "h"):
    """A loop that pushes a blob of its body into a list in each iteration."""
    body = make_net(
        {"i": "i[]", "h": KIND, "w": KIND, "acc": "v[]"},
        [
            const("one", 1),
            op("next", "AddV2", "i one", "i[]"),
            op("t", "Tanh", "h", KIND),
            push("list", "acc", pushed),
        ],
        ["next", "t", "w", "list"],
    )
    return [
        const("zero", 0),
        const("any", -1),
        empty_list("start"),
        while_op("loop", "zero x x start", body, limit=limit),
    ]


def of(ops, blob: str) -> int:
    return held_bytes(make_net({"x": KIND, "taken": "z[]"}, ops, [blob]), blob)


def test_a_list_takes_its_element_in_each_iteration():
    assert of(pushing(8), "loop:3") == 8 * SIZE


def test_what_is_the_same_in_every_iteration_is_held_once():
    assert of(pushing(8, "w"), "loop:3") == SIZE


def test_a_state_behind_the_loop_takes_what_it_is():
    assert of(pushing(8), "loop:1") == SIZE


def branch(*ways):
    nets = dict(zip(("then_branch", "else_branch"), ways, strict=True))
    return [op("if", "StatelessIf", "taken x", "v[]", nets=nets)]


NOTHING = make_net({"a": KIND}, [op("no", "OptionalNone", "", "v[]")], ["no"])


def wrapping(*drawn, wrapped: str = "t"):
    ops = [op("t", "Tanh", "a", KIND), *drawn, op("held", "OptionalFromValue", wrapped, "v[]")]
    return make_net({"a": KIND}, ops, ["held"])


def test_an_optional_takes_what_the_larger_branch_puts_into_it():
    both = op("both", "ConcatV2", "t a", "f[128,64]")
    assert of(branch(wrapping(), NOTHING), "if") == SIZE
    assert of(branch(NOTHING, wrapping(both, wrapped="both")), "if") == 2 * SIZE


def test_a_shape_that_is_not_known_is_guessed():
    unknown = op("u", "Tanh", "t", "f[64,?]")
    assert of(branch(wrapping(unknown, wrapped="u"), NOTHING), "if") == SIZE


def test_a_loop_in_a_branch_fills_a_list_too():
    ops = [*pushing(5)]
    inside = make_net({"x": KIND}, ops, ["loop:3"])
    outside = make_net({"a": KIND}, [const("any", -1), empty_list("none")], ["none"])
    assert of(branch(inside, outside), "if") == 5 * SIZE


def test_a_list_of_lists_takes_all_their_elements():
    body = make_net(
        {"i": "i[]", "x": KIND, "lists": "v[]"},
        [
            const("one_more", 1),
            op("following", "AddV2", "i one_more", "i[]"),
            *pushing(4),
            push("longer", "lists", "loop:3"),
        ],
        ["following", "x", "longer"],
    )
    ops = [
        const("zero", 0),
        const("any", -1),
        empty_list("start"),
        while_op("outer", "zero x start", body, limit=3),
    ]
    assert of(ops, "outer:2") == 3 * 4 * SIZE


def test_a_list_with_room_takes_all_its_elements():
    ops = [
        const("shape", (64, 64)),
        const("count", 7),
        op(
            "list",
            "TensorListReserve",
            "shape count",
            "v[]",
            attributes={"element_dtype": DType("float32")},
        ),
    ]
    assert of(ops, "list") == 7 * SIZE

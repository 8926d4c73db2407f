"""Each rule of the simulation on a Net counted by hand; K is one buffer of 1024 bytes."""

import pytest

from rnnmem.analysis.liveness import needed
from rnnmem.analysis.shapes import known_net
from rnnmem.simulate.timeline import counted_peak, record, simulate, worst_peak
from tests.handmade import const, empty_list, make_net, op, push, rnn, while_op

K = 1024  # f[256]
CHUNK = 256  # what the smallest blob takes


def peak(inputs, ops, outputs, **options):
    return simulate(make_net(inputs, ops, outputs), **options).peak_bytes


X = {"x": "f[256]"}


# --- buffers and blobs


def test_arguments_are_resident_and_results_are_not():
    # x ─► Tanh ─► y
    assert peak(X, [op("y", "Tanh", "x", "f[256]")], ["y"]) == K


def test_a_buffer_takes_whole_chunks():
    assert peak({"x": "f[3]"}, [op("y", "Tanh", "x", "f[3]")], ["y"]) == CHUNK
    assert peak({"x": "f[65]"}, [op("y", "Tanh", "x", "f[65]")], ["y"]) == 2 * CHUNK


def test_a_view_shares_its_buffer():
    # x ─► Tanh ─► y ─► Reshape ─► z ─► Identity ─► result
    ops = [
        const("shape", (16, 16)),
        op("y", "Tanh", "x", "f[256]"),
        op("z", "Reshape", "y shape", "f[16,16]"),
        op("result", "Identity", "z", "f[16,16]"),
    ]
    assert peak(X, ops, ["result"]) == K


def test_what_one_op_hands_on_together_is_there_one_by_one():
    # x ─► Tanh ─► a ─► Sum ─► Mul ─► b          TensorFlow takes the IdentityN out, by which a
    #              └──► IdentityN ◄───┘          would be held until b is there
    ops = [
        const("axes", (0,)),
        op("a", "Tanh", "x", "f[256]"),
        op("s", "Sum", "a axes", "f[]"),
        op("b", "Mul", "x s", "f[256]"),
        op("both", "IdentityN", "a b", "f[256] f[256]"),
        op("first", "Sum", "both:0 axes", "f[]"),
        op("second", "Sum", "both:1 axes", "f[]"),
    ]
    assert peak(X, ops, ["first", "second"]) < K + 4 * CHUNK
    waits = op("third", "Neg", "s", "f[]", controls=("both",))
    assert peak(X, [*ops, waits], ["first", "second", "third"]) > 2 * K


def test_other_bits_are_the_same_buffer():
    ops = [op("y", "Tanh", "x", "f[256]"), op("z", "Bitcast", "y", "i[256]")]
    assert peak(X, ops, ["z"]) == K


def test_a_sum_takes_the_buffer_of_any_of_its_addends():
    # eight arguments that stay, and a ninth addend that dies with the sum
    given = {f"x{i}": "f[256]" for i in range(8)}
    ops = [op("y", "Tanh", "x0", "f[256]"), op("s", "AddN", f"{' '.join(given)} y", "f[256]")]
    assert peak(given, ops, ["s"]) == K


def test_a_variable_that_is_read_is_no_copy():
    ops = [op("w", "ReadVariableOp", "v", "f[256]"), op("y", "AddV2", "x w", "f[256]")]
    assert peak({**X, "v": "r[]"}, ops, ["y"]) == K


def test_a_pointwise_op_takes_the_buffer_of_an_input_that_dies_with_it():
    # x ─► Tanh ─► Exp ─► Neg          one buffer goes through all three
    ops = [
        op("a", "Tanh", "x", "f[256]"),
        op("b", "Exp", "a", "f[256]"),
        op("c", "Neg", "b", "f[256]"),
    ]
    assert peak(X, ops, ["c"]) == K


def test_it_does_not_take_a_buffer_that_somebody_still_needs():
    # x ─► Tanh ─► Exp ─► Add
    #        └─────────────┘           Exp needs a buffer of its own, Add takes one of the two
    ops = [
        op("a", "Tanh", "x", "f[256]"),
        op("b", "Exp", "a", "f[256]"),
        op("c", "AddV2", "a b", "f[256]"),
    ]
    assert peak(X, ops, ["c"]) == 2 * K


def test_it_does_not_take_a_buffer_of_another_size():
    # [1, 256] + [4, 1] = [4, 256]
    ops = [op("a", "Tanh", "x", "f[1,256]"), op("b", "AddV2", "a y", "f[4,256]")]
    assert peak({"x": "f[1,256]", "y": "f[4,1]"}, ops, ["b"]) == 5 * K


def test_a_product_and_a_copy_need_their_own():
    # x ─► MatMul ─► MatMul             both operands stand while the product is written
    ops = [op("a", "MatMul", "x x", "f[16,16]"), op("b", "MatMul", "a x", "f[16,16]")]
    assert peak({"x": "f[16,16]"}, ops, ["b"]) == 2 * K
    ops = [
        const("order", (1, 0)),
        op("a", "Tanh", "x", "f[16,16]"),
        op("b", "Transpose", "a order", "f[16,16]"),
    ]
    assert peak({"x": "f[16,16]"}, ops, ["b"]) == 2 * K


def test_a_transposition_that_moves_nothing_is_a_view():
    ops = [
        const("order", (1, 0)),
        op("a", "Tanh", "x", "f[1,256]"),
        op("b", "Transpose", "a order", "f[256,1]"),
    ]
    assert peak({"x": "f[1,256]"}, ops, ["b"]) == K


def test_rows_that_are_cut_out_are_a_view():
    # y [4, 256] ─► y[1:3]              the whole of y stays alive under two of its rows
    ops = [
        const("begin", (1, 0)),
        const("size", (2, 256)),
        op("y", "Tanh", "x", "f[4,256]"),
        op("rows", "Slice", "y begin size", "f[2,256]"),
    ]
    assert peak({"x": "f[4,256]"}, ops, ["rows"]) == 4 * K


def test_a_reduction_over_scattered_axes_is_transposed_first():
    # [4, 4, 4, 4] over axes 0 and 2: a copy beside y, then the sum of 256 bytes
    ops = [
        const("axes", (0, 2)),
        op("y", "Tanh", "x", "f[4,4,4,4]"),
        op("sum", "Sum", "y axes", "f[4,4]"),
    ]
    assert peak({"x": "f[4,4,4,4]"}, ops, ["sum"]) == 2 * K + CHUNK


def test_a_loss_writes_its_gradient_over_the_logits():
    # logits ─► loss [4] and d logits [4, 256], in place
    ops = [
        op("logits", "Tanh", "x", "f[4,256]"),
        op("loss", "SparseSoftmaxCrossEntropyWithLogits", "logits y", "f[4] f[4,256]"),
    ]
    net = {"x": "f[4,256]", "y": "i[4]"}
    assert peak(net, ops, ["loss:0", "loss:1"]) == 4 * K + CHUNK


def test_constants_stand_in_the_graph():
    # Const ─► Fill ─► Exp ─► Mul(x)    TensorFlow computes the first three once and for all
    ops = [
        const("shape", (256,)),
        const("one", 1.0),
        op("ones", "Fill", "shape one", "f[256]"),
        op("e", "Exp", "ones", "f[256]"),
        op("y", "Mul", "x e", "f[256]"),
    ]
    assert peak(X, ops, ["y"]) == K


@pytest.mark.parametrize(
    ("elements", "waits", "made"),
    [
        (100_000, (), 0),
        (100_000, ("t",), 400_128 + CHUNK),
        (3_000_000, (), 12_000_000 + CHUNK),
    ],
    ids=["as it comes", "waiting", "large"],
)
def test_a_tile_of_one_number_is_computed_once_unless_it_waits_or_is_large(elements, waits, made):
    kind = f"f[{elements}]"
    ops = [
        const("one", 1.0),
        const("shape", (1,)),
        const("many", (elements,)),
        op("t", "Tanh", "x", "f[256]"),
        op("row", "Reshape", "one shape", "f[1]"),
        op("n", "Tile", "row many", kind, controls=waits),
        const("axes", (0,)),
        op("y", "Sum", "n axes", "f[]"),
    ]
    assert peak(X, ops, ["y", "t"]) == K + made


def test_a_fill_whose_size_only_a_run_tells_is_computed():
    ops = [const("one", 1.0), op("y", "Fill", "n one", "f[256]"), op("z", "Exp", "y", "f[256]")]
    assert peak({"n": "i[1]"}, ops, ["z"]) == K


def test_ops_that_nobody_needs_do_not_run():
    ops = [op("y", "Tanh", "x", "f[256]"), op("z", "MatMul", "x x", "f[256,256]")]
    assert peak(X, ops, ["y"]) == K


def test_equal_ops_are_computed_once():
    # x ─► Tanh ─► a, x ─► Tanh ─► b: TensorFlow merges them; draws stay two
    def net(stateful):
        ops = [op(name, "Tanh", "x", "f[256]", stateful=stateful) for name in "ab"]
        return peak(X, ops, ["a", "b"])

    assert net(stateful=False) == K
    assert net(stateful=True) == 2 * K


def test_what_tensorflow_keeps_apart_is_computed_twice():
    # other attributes, even those that begin with an underscore; but an Identity between is nothing
    marked = [op(name, "Tanh", "x", "f[256]", attributes={"_mark": name}) for name in "ab"]
    assert peak(X, marked, ["a", "b"]) == 2 * K
    behind = [op("i", "Identity", "x", "f[256]"), op("b", "Tanh", "i", "f[256]")]
    assert peak(X, [op("a", "Tanh", "x", "f[256]"), *behind], ["a", "b"]) == K
    swapped = [op("a", "Mul", "x y", "f[256]"), op("b", "Mul", "y x", "f[256]")]
    assert peak({**X, "y": "f[256]"}, swapped, ["a", "b"]) == K


def test_a_control_edge_delays_an_allocation():
    # x ─► A [1 MiB] ─► a        free: A and B at once;  with ^a on B: A is gone
    # x ─► B [1 MiB] ─► b
    def net(*controls):
        ops = [const("axis", 0)]
        for name in ("a", "b"):
            waits = controls if name == "b" else ()
            ops.append(op(f"wide_{name}", "MatMul", f"x {name}_w", "f[512,512]", controls=waits))
            ops.append(op(name, "Sum", f"wide_{name} axis", "f[512]"))
        inputs = dict.fromkeys(("x", "a_w", "b_w"), "f[512,512]")
        return simulate(make_net(inputs, ops, ["a", "b"])).peak_bytes

    mib = 1 << 20
    assert net() == 2 * mib + 4 * K
    assert net("a") == mib + 4 * K


# --- lists


def test_a_list_from_a_tensor_copies_it_and_a_stack_copies_it_back():
    # y [4, 256] ─► FromTensor ─► Stack: three times 4 K, two at once
    ops = [
        const("shape", (256,)),
        op("y", "Tanh", "x", "f[4,256]"),
        op("list", "TensorListFromTensor", "y shape", "v[]", attributes=F),
        op("z", "TensorListStack", "list shape", "f[4,256]"),
    ]
    assert peak({"x": "f[4,256]"}, ops, ["z"]) == 8 * K


def test_a_list_whose_elements_are_joined_is_cut_into_copies_again():
    # y [4, 256] ─► FromTensor ─► Concat [1024] ─► Split: four times 4 K, two at once
    ops = [
        const("shape", (256,)),
        op("none", "Const", "", "i[0]"),
        op("y", "Tanh", "x", "f[4,256]"),
        op("list", "TensorListFromTensor", "y shape", "v[]", attributes=F),
        op("z", "TensorListConcatV2", "list shape none", "f[1024] i[4]"),
        op("cut", "TensorListSplit", "z:0 shape z:1", "v[]", attributes=F),
    ]
    assert peak({"x": "f[4,256]"}, ops, ["cut"]) == 8 * K + CHUNK  # the lengths are a blob as well


@pytest.mark.parametrize(("mask", "shape", "made"), [(1, "4,16", 0), (1, "4,3", 1), (2, "4,4", 1)])
def test_one_row_of_what_is_resident_is_a_view_where_rows_are_aligned(mask, shape, made):
    # x[1] of [4, 16] is a part of x; of [4, 3] it is not aligned; x[:, 1] of [4, 4] is no row
    assert peak({"x": f"f[{shape}]"}, row("x", mask, shape), ["row"]) == 256 * made


def test_a_row_of_anything_else_holds_all_of_it():
    drawn = [
        op("y", "Tanh", "x", "f[4,16]"),
        *row("y", 1, "4,16"),
        op("z", "MatMul", "row row", "f[16]"),
    ]
    made = make_net({"x": "f[4,16]"}, drawn, ["row", "z"])
    assert [held for _, held in simulate(made).events][-2:] == [256, 256 + 256]


@pytest.mark.parametrize(("axis", "width", "copies"), [(0, 16, 0), (1, 16, 1), (0, 3, 1)])
def test_parts_along_the_first_axis_are_views_where_rows_are_aligned(axis, width, copies):
    # y [4, 1024] ─► Split ─► 2 [2, 1024]; along the second axis, or of odd rows, both are copies
    shape = f"f[4,{width}]"
    part = f"f[2,{width}]" if axis == 0 else f"f[4,{width // 2}]"
    drawn = [
        const("axis", axis),
        op("y", "Tanh", "x", shape),
        op("cut", "Split", "axis y", f"{part} {part}"),
        op("rows", "Unpack", "y", " ".join([f"f[{width}]"] * 4), attributes={"axis": axis}),
    ]
    assert peak({"x": shape}, drawn[:3], ["cut:0", "cut:1", "y"]) == 256 * (1 + 2 * copies)
    if axis == 0:
        made = ["rows:0", "rows:1", "rows:2", "rows:3", "y"]
        assert peak({"x": shape}, [drawn[1], drawn[3]], made) == 256 * (1 + 4 * copies)


def row(blob, mask, shape):
    rest, cut = shape.partition(",")[2], {"shrink_axis_mask": mask}
    return [
        *(const(name, (value,)) for name, value in (("from", 1), ("to", 2), ("by", 1))),
        op("row", "StridedSlice", f"{blob} from to by", f"f[{rest}]", attributes=cut),
    ]


def test_rows_that_are_scattered_into_a_list_are_copies():
    # y [4, 256] ─► Scatter ─► Gather 2: 4 K and their copy, then that and 2 K
    ops = [
        const("shape", (256,)),
        const("eight", 8),
        op("y", "Tanh", "x", "f[4,256]"),
        op("none", "TensorListReserve", "shape eight", "v[]"),
        op("list", "TensorListScatterIntoExistingList", "none y where", "v[]", attributes=F),
        op("z", "TensorListGather", "list which shape", "f[?,256]"),
    ]
    inputs = {"x": "f[4,256]", "where": "i[4]", "which": "i[2]"}
    timeline = simulate(make_net(inputs, ops, ["z"]))
    assert (timeline.peak_bytes, timeline.events[-1][1]) == (8 * K, 6 * K)


def test_rows_that_are_scattered_again_take_the_place_of_others():
    ops = [
        const("shape", (256,)),
        const("six", 6),
        op("one", "TensorListScatterV2", "x where shape six", "v[]", attributes=F),
        op("two", "TensorListScatterIntoExistingList", "one x where", "v[]", attributes=F),
        op("z", "TensorListStack", "two shape", "f[?,256]"),
    ]
    inputs = {"x": "f[4,256]", "where": "i[4]"}
    timeline = simulate(make_net(inputs, ops, ["two"]))
    assert (timeline.peak_bytes, timeline.events[-1][1]) == (4 * K, 4 * K)


def test_an_element_that_is_read_is_the_list_s_own():
    ops = [
        const("shape", (256,)),
        const("zero", 0),
        op("list", "TensorListFromTensor", "x shape", "v[]", attributes=F),
        op("z", "TensorListGetItem", "list zero shape", "f[256]"),
    ]
    assert peak({"x": "f[4,256]"}, ops, ["z"]) == 4 * K


def test_zeros_like_a_list_are_new_elements():
    ops = [
        const("shape", (256,)),
        op("list", "TensorListFromTensor", "x shape", "v[]", attributes=F),
        op("zeros", "ZerosLike", "list", "v[]", attributes=F),
        op("a", "TensorListStack", "list shape", "f[4,256]"),
        op("b", "TensorListStack", "zeros shape", "f[4,256]"),
        op("c", "AddV2", "a b", "f[4,256]"),
    ]
    assert peak({"x": "f[4,256]"}, ops, ["c", "zeros"]) in (12 * K, 16 * K)


def test_lists_are_added_where_both_have_an_element():
    # [a a a a] + [b . . .] = [s a a a]       one new element, one gone
    ops = [
        const("shape", (256,)),
        const("four", 4),
        const("zero", 0),
        op("list", "TensorListFromTensor", "x shape", "v[]", attributes=F),
        op("none", "TensorListReserve", "shape four", "v[]"),
        op("b", "Tanh", "y", "f[256]"),
        op("one", "TensorListSetItem", "none zero b", "v[]"),
        op("sum", "AddN", "list one", "v[]", attributes=F),
    ]
    timeline = simulate(make_net({"x": "f[4,256]", "y": "f[256]"}, ops, ["sum"]))
    assert timeline.peak_bytes == 5 * K
    assert timeline.events[-1][1] == 5 * K


def test_lists_that_are_not_full_have_their_elements_in_different_places():
    # [a . . .] + [. b . .] = [a b . .]       no new element
    ops = [
        const("shape", (256,)),
        const("four", 4),
        const("zero", 0),
        const("one", 1),
        op("none", "TensorListReserve", "shape four", "v[]"),
        op("a", "Tanh", "y", "f[256]"),
        op("b", "Sin", "y", "f[256]"),
        op("first", "TensorListSetItem", "none zero a", "v[]"),
        op("second", "TensorListSetItem", "none one b", "v[]"),
        op("sum", "AddN", "first second", "v[]", attributes=F),
    ]
    timeline = simulate(make_net({"y": "f[256]"}, ops, ["sum"]))
    assert timeline.peak_bytes == timeline.events[-1][1] == 2 * K


F = {"element_dtype": __import__("rnnmem.ir.graph", fromlist=["DType"]).DType("float32")}


# --- loops


def counted(ops, **state):
    """A body that counts in ``i``; other variables go on as ``name_next``, or as they are."""
    written = {drawn.op.name for drawn in ops}
    outputs = ["next", *(f"{n}_next" if f"{n}_next" in written else n for n in state)]
    counter = [const("one", 1), op("next", "AddV2", "i one", "i[]")]
    return make_net({"i": "i[]", **state}, [*counter, *ops], outputs)


def loop(body, starts, limit=5, **attributes):
    return while_op("loop", f"zero {starts}", body, limit=limit, **attributes)


def test_a_loop_without_lists_holds_two_states():
    # h ─► MatMul ─► h: the old one and the new one, beside the counter
    body = counted([op("h_next", "MatMul", "h w", "f[16,16]")], h="f[16,16]", w="f[16,16]")
    ops = [const("zero", 0), loop(body, "x x", limit=100)]
    net = make_net({"x": "f[16,16]"}, ops, ["loop:1"])
    assert simulate(net).peak_bytes in range(2 * K, 2 * K + 4 * CHUNK)


@pytest.mark.parametrize("trips", [1, 3, 20, 21, 22, 23, 24, 1000])
def test_an_accumulator_grows_by_a_buffer_an_iteration(trips):
    # acc ◄─ push h         trips x K, whatever the number
    body = counted(
        [push("acc_next", "acc", "h_next"), op("h_next", "MatMul", "h h", "f[16,16]")],
        h="f[16,16]",
        acc="v[]",
    )
    ops = [
        const("zero", 0),
        const("any", -1),
        empty_list("list"),
        loop(body, "x list", limit=trips),
        op("y", "TensorListStack", "loop:2 any", f"f[{trips},16,16]"),
    ]
    timeline = simulate(make_net({"x": "f[16,16]"}, ops, ["y"]))
    assert timeline.peak_bytes in range(2 * trips * K, (2 * trips + 1) * K)


def test_a_buffer_in_two_lists_counts_once():
    # a ◄─ push h,  b ◄─ push h
    def net(second):
        body = counted(
            [
                op("h_next", "MatMul", "h h", "f[16,16]"),
                op("g", "Exp", "h", "f[16,16]"),
                push("a_next", "a", "h_next"),
                push("b_next", "b", second),
            ],
            h="f[16,16]",
            a="v[]",
            b="v[]",
        )
        ops = [const("zero", 0), const("any", -1), empty_list("one"), empty_list("two")]
        ops += [loop(body, "x one two", limit=100)]
        return simulate(make_net({"x": "f[16,16]"}, ops, ["loop:2", "loop:3"])).peak_bytes

    assert net("h_next") in range(100 * K, 103 * K)
    assert net("g") in range(200 * K, 212 * K)


def test_a_pushed_weight_costs_nothing():
    body = counted([push("acc_next", "acc", "w")], w="f[16,16]", acc="v[]")
    ops = [const("zero", 0), const("any", -1), empty_list("list"), loop(body, "x list", limit=100)]
    assert simulate(make_net({"x": "f[16,16]"}, ops, ["loop:2"])).peak_bytes < K


@pytest.mark.parametrize("trips", [3, 100])
def test_pushed_rows_hold_one_buffer_whatever_the_number(trips):
    # y ─► loop: acc ◄─ push y[1]         100 x y would be 400 K
    body = counted([*row("w", 1, "4,256"), push("acc_next", "acc", "row")], w="f[4,256]", acc="v[]")
    ops = [
        op("y", "Tanh", "x", "f[4,256]"),
        const("zero", 0),
        const("any", -1),
        empty_list("list"),
        loop(body, "y list", limit=trips),
        op("last", "TensorListPopBack", "loop:2 any", "v[] f[256]"),
    ]
    timeline = simulate(make_net({"x": "f[4,256]"}, ops, ["last:0", "last:1"]))
    assert timeline.peak_bytes in range(4 * K, 5 * K)


def test_a_gradient_loop_lets_go_of_what_it_pops():
    """The peak stands between the loops, and accumulators are named by loop and pushed blob."""
    trips = 50
    timeline = simulate(rnn(16, limit=trips))
    saved = [alive for alive in timeline.live_at_peak if alive.kind == "saved"]
    assert timeline.peak_bytes in range(trips * K, (trips + 12) * K)
    assert [alive.label for alive in saved] == ["loop: h"]
    assert timeline.by_kind()["saved: loop"] in range((trips - 2) * K, (trips + 1) * K)
    assert timeline.events[-1][1] < 5 * K


def test_what_nobody_pops_for_a_purpose_is_never_pushed():
    # acc ◄─ push t;  the loop's list is read by nobody: TensorFlow prunes the variable
    body = counted(
        [
            op("h_next", "MatMul", "h h", "f[16,16]"),
            op("t", "Exp", "h_next", "f[16,16]"),
            push("acc_next", "acc", "t"),
        ],
        h="f[16,16]",
        acc="v[]",
    )
    ops = [const("zero", 0), const("any", -1), empty_list("list"), loop(body, "x list", limit=99)]
    net = make_net({"x": "f[16,16]"}, ops, ["loop:1"])
    assert needed(net).variables == {"loop": {0, 1}}
    assert simulate(net).peak_bytes < 3 * K


def test_who_waits_for_a_loop_waits_for_all_its_variables():
    # acc ◄─ push h;  nobody reads the list, but an op waits for the loop
    body = counted(
        [op("h_next", "MatMul", "h h", "f[16,16]"), push("acc_next", "acc", "h_next")],
        h="f[16,16]",
        acc="v[]",
    )
    ops = [const("zero", 0), const("any", -1), empty_list("list"), loop(body, "x list", limit=99)]
    ops.append(op("late", "Tanh", "x", "f[16,16]", controls=("loop",)))
    net = make_net({"x": "f[16,16]"}, ops, ["late"])
    assert needed(net).variables == {"loop": {0, 1, 2}}
    assert simulate(net).peak_bytes in range(98 * K, 103 * K)


def test_the_handle_of_a_variable_goes_past_a_loop():
    # x ─► loop ─► h ─────────────────────────┬─► MatMul ─► y
    #      v ─┴──► v ─► VariableShape ─► Fill ┘      made before the loop, and held while it runs
    state = {"h": "f[16,16]", "v": "r[]"}
    body = counted([op("h_next", "MatMul", "h h", "f[16,16]")], **state)
    ops = [
        *(const("zero", 0), const("nothing", 0.0)),
        op("loop", "While", "zero x v", "i[] f[16,16] r[]", nets=loop(body, "x v").op.nets),
        op("shape", "VariableShape", "loop:2", "i[2]"),
        op("zeros", "Fill", "shape nothing", "f[16,1600]"),
        op("y", "MatMul", "loop:1 zeros", "f[16,1600]"),
    ]
    timeline = simulate(make_net({"x": "f[16,16]", "v": "r[]"}, ops, ["y"]))
    held = dict(reversed(timeline.events))  # as it was first
    assert held["loop"] >= held["zeros"] >= 100 * K


def test_a_state_that_is_saved_an_iteration_later_is_not_resident():
    # h ─► MatMul ─► h ─► before ─► push: only the first two that are pushed are arguments
    body = counted(
        [op("h_next", "MatMul", "h h", "f[16,16]"), push("acc_next", "acc", "before")],
        h="f[16,16]",
        before="f[16,16]",
        acc="v[]",
    )
    body = body.replace(outputs=("next", "h_next", "h", "acc_next"))
    ops = [const("zero", 0), const("any", -1), empty_list("list")]
    ops.append(loop(body, "x x list", limit=100, parallel_iterations=1))
    timeline = simulate(make_net({"x": "f[16,16]"}, ops, ["loop:3"]))
    assert timeline.events[-1][1] in range(98 * K, 102 * K)


@pytest.mark.parametrize("trips", [3, 20, 300])
def test_a_dead_variable_holds_no_iteration_up(trips):
    # h ─► MatMul ─► h, pushed;  dead ─► Tanh ─► dead is pruned, and every iteration still runs
    body = counted(
        [
            op("h_next", "MatMul", "h h", "f[16,16]"),
            op("dead_next", "Tanh", "dead", "f[16,16]"),
            push("acc_next", "acc", "h_next"),
        ],
        h="f[16,16]",
        dead="f[16,16]",
        acc="v[]",
    )
    ops = [const("zero", 0), const("any", -1), empty_list("list")]
    ops.append(loop(body, "x x list", limit=trips))
    net = make_net({"x": "f[16,16]"}, ops, ["loop:3"])
    assert simulate(net).events[-1][1] in range((trips - 1) * K, (trips + 2) * K)


def test_a_variable_that_the_body_writes_leaves_its_old_buffer_to_who_read_it():
    # v ─► read ─► push;  read ─► Exp ─► assign v          one more buffer an iteration
    def net(*more):
        body = counted(
            [
                op("read", "ReadVariableOp", "v", "f[16,16]", stateful=True),
                op("new", "Exp", "read", "f[16,16]"),
                push("acc_next", "acc", "read"),
                *more,
            ],
            v="r[]",
            acc="v[]",
        )
        body = body.replace(control_outputs=tuple(drawn.op.name for drawn in more))
        ops = [const("zero", 0), const("any", -1), empty_list("list"), loop(body, "v list")]
        return simulate(make_net({"v": "r[]"}, ops, ["loop:2"])).peak_bytes

    assert net() < K
    assign = op("write", "AssignVariableOp", "v new", stateful=True)
    assert net(assign) in range(5 * K, 8 * K)


def test_what_is_pushed_and_popped_at_once_does_not_pile_up():
    # list ─► push h ─► pop ─► list          a keep-alive use
    body = counted(
        [
            op("h_next", "MatMul", "h h", "f[16,16]"),
            const("any", -1),
            push("longer", "acc", "h_next"),
            op("acc_next", "TensorListPopBack", "longer any", "v[] f[16,16]"),
        ],
        h="f[16,16]",
        acc="v[]",
    )
    body = body.replace(outputs=("next", "h_next", "acc_next:0"))
    ops = [
        const("zero", 0),
        const("any", -1),
        empty_list("list"),
        loop(body, "x list", limit=99, parallel_iterations=1),
    ]
    assert simulate(make_net({"x": "f[16,16]"}, ops, ["loop:1", "loop:2"])).peak_bytes < 4 * K


@pytest.mark.parametrize("window", [1, 4, 10])
def test_partial_sums_queue_up_within_the_window(window):
    """The chain runs ahead of the sum of a weight's gradient, as far as it is allowed.

    chain    h ─► h ─► h          [16, 16]
    partial  │    │    │          [256, 256], alive until it is added
    total    └──► └──► └──► total
    """
    body = counted(
        [
            op("h_next", "Tanh", "h", "f[16,16]"),
            op("partial", "MatMul", "h_next h_next", "f[256,256]"),
            op("total_next", "AddV2", "total partial", "f[256,256]"),
        ],
        h="f[16,16]",
        total="f[256,256]",
    )
    shape = {"x": "f[16,16]", "total": "f[256,256]"}
    ops = [const("zero", 0), loop(body, "x total", limit=200, parallel_iterations=window)]
    found = simulate(make_net(shape, ops, ["loop:2"])).peak_bytes
    assert found in range(window * 256 * K, (window + 3) * 256 * K)


def test_a_loop_starts_with_the_inputs_that_are_there():
    """Recomputation that waits for no gradient runs ahead of it, beside what the gradient needs.

    x ─► MatMul ─► MatMul ─► g ─► loop       the loop's own [256, 256] from x, at once
    x ──────────────────────────► loop
    """

    def net(*controls):
        body = counted(
            [
                op("again", "MatMul", "x x", "f[256,256]"),
                op("g_next", "MatMul", "again g", "f[256,256]"),
            ],
            g="f[256,256]",
            x="f[256,256]",
        )
        ops = [
            const("zero", 0),
            op("a", "MatMul", "x x", "f[256,256]"),
            op("b", "Transpose", "a order", "f[256,256]"),
            op("g", "MatMul", "b b", "f[256,256]"),
            loop(body, "g x", limit=3, parallel_iterations=1),
        ]
        ops[-1].op = ops[-1].op.replace(controls=controls)
        return simulate(make_net({"x": "f[256,256]", "order": "i[2]"}, ops, ["loop:1"]))

    run_ahead, waiting = net(), net("g")
    order = [name for name, _ in run_ahead.events]
    assert order.index("again") < order.index("g")
    order = [name for name, _ in waiting.events]
    assert order.index("again") > order.index("g")


def test_the_larger_branch_counts():
    def branch(size):
        return make_net(
            {"y": "f[256]"},
            [
                const("axis", 0),
                op("wide", "MatMul", "y y", f"f[{size},256]"),
                op("z", "Sum", "wide axis", "f[256]"),
            ],
            ["z"],
        )

    nets = {"then_branch": branch(2), "else_branch": branch(8)}
    ops = [op("z", "If", "p x", "f[256]", nets=nets)]
    assert peak({**X, "p": "z[]"}, ops, ["z"]) == 9 * K


def test_a_closed_call_is_looked_into():
    inner = make_net(
        {"y": "f[256]"},
        [op("a", "MatMul", "y y", "f[256]"), op("b", "MatMul", "a y", "f[256]")],
        ["b"],
    )
    ops = [op("z", "PartitionedCall", "x", "f[256]", nets={"f": inner})]
    assert peak(X, ops, ["z"]) == 2 * K


def test_a_nested_loop_s_lists_are_saved_by_the_outer_one():
    # outer: acc ◄─ push [h x 7], 11 times: 77 K
    inner = counted(
        [op("h_next", "MatMul", "h h", "f[16,16]"), push("acc_next", "acc", "h_next")],
        h="f[16,16]",
        acc="v[]",
    )
    outer = counted(
        [
            const("zero", 0),
            const("any", -1),
            empty_list("list"),
            while_op("inner", "zero h list", inner, limit=7),
            push("acc_next", "acc", "inner:2"),
        ],
        h="f[16,16]",
        acc="v[]",
    )
    outer = outer.replace(outputs=("next", "inner:1", "acc_next"))
    ops = [const("zero", 0), const("any", -1), empty_list("list"), loop(outer, "x list", limit=11)]
    net = make_net({"x": "f[16,16]"}, ops, ["loop:2"])
    assert simulate(net).peak_bytes in range(77 * K, 82 * K)


@pytest.mark.parametrize("trips", [11, 23, 40])
def test_a_state_in_a_list_of_its_own_is_not_taken_for_the_lists_that_saved_it(trips):
    # outer: acc ◄─ push [h x 7], and last ◄─ push h, the last of them, which is one more reference
    inner = counted(
        [op("h_next", "MatMul", "h h", "f[16,16]"), push("acc_next", "acc", "h_next")],
        h="f[16,16]",
        acc="v[]",
    )
    outer = counted(
        [
            const("zero", 0),
            const("any", -1),
            empty_list("list"),
            while_op("inner", "zero h list", inner, limit=7),
            push("last_next", "last", "inner:1"),
            push("acc_next", "acc", "inner:2"),
        ],
        h="f[16,16]",
        last="v[]",
        acc="v[]",
    )
    outer = outer.replace(outputs=("next", "inner:1", "last_next", "acc_next"))
    ops = [const("zero", 0), const("any", -1), empty_list("list"), empty_list("other")]
    ops.append(loop(outer, "x list other", limit=trips))
    net = make_net({"x": "f[16,16]"}, ops, ["loop:2", "loop:3"])
    assert simulate(net).peak_bytes in range(7 * trips * K, (8 * trips + 5) * K)


# --- what is not known


def test_an_unknown_size_is_named_and_never_counted_as_nothing():
    ops = [op("y", "Tanh", "x", "f[?,256]")]
    net = make_net({"x": "f[?,256]"}, ops, ["y"])
    assert simulate(net).peak_bytes is None
    assert simulate(net).unknown == ("y",)
    assert simulate(net, unknown_dimension=7).peak_bytes == 7 * K


def test_an_unknown_trip_count_is_like_an_unknown_dimension():
    body = counted(
        [op("h_next", "MatMul", "h h", "f[16,16]"), push("acc_next", "acc", "h_next")],
        h="f[16,16]",
        acc="v[]",
        n="i[]",
    )
    cond = make_net(
        {"i": "i[]", "h": "f[16,16]", "acc": "v[]", "n": "i[]"},
        [op("more", "Less", "i n", "z[]")],
        ["more"],
    )
    ops = [const("zero", 0), const("any", -1), empty_list("list")]
    ops += [while_op("loop", "zero x list n", body, cond)]
    net = make_net({"x": "f[16,16]", "n": "i[]"}, ops, ["loop:2"])
    assert simulate(net).peak_bytes is None
    assert simulate(net).unknown == ("trip count of loop",)
    assert simulate(net, unknown_dimension=30).peak_bytes in range(30 * K, 33 * K)


def test_a_size_that_the_trace_lost_is_found_again():
    # Reserve(30) ─► loop writes [256] ─► Stack [?, 256] ─► Transpose [256, ?]
    body = counted(
        [op("h", "Tanh", "x", "f[256]"), op("list_next", "TensorListSetItem", "list i h", "v[]")],
        x="f[256]",
        list="v[]",
    )
    ops = [
        const("zero", 0),
        const("any", -1),
        const("order", (1, 0)),
        const("thirty", 30),
        op("list", "TensorListReserve", "any thirty", "v[]"),
        loop(body, "x list", limit=30),
        op("y", "TensorListStack", "loop:2 any", "f[?,256]"),
        op("z", "Transpose", "y order", "f[256,?]"),
    ]
    known = known_net(make_net(X, ops, ["z"]))
    assert known.net.blobs["z"].shape == (256, 30)
    assert known.trips == {"loop": 30}


def test_a_loop_over_a_range_counts_by_an_invariant():
    # for i in tf.range(0, 40, 2): the limit and the step are invariants of the loop
    body = make_net(
        {"i": "i[]", "by": "i[]", "n": "i[]", "h": "f[16,16]", "acc": "v[]"},
        [
            op("next", "AddV2", "i by", "i[]"),
            op("h_next", "MatMul", "h h", "f[16,16]"),
            push("acc_next", "acc", "h_next"),
        ],
        ["next", "by", "n", "h_next", "acc_next"],
    )
    cond = make_net(
        {"i": "i[]", "by": "i[]", "n": "i[]", "h": "f[16,16]", "acc": "v[]"},
        [op("more", "Less", "i n", "z[]")],
        ["more"],
    )
    ops = [const("zero", 0), const("two", 2), const("forty", 40), const("any", -1)]
    ops += [empty_list("list"), while_op("loop", "zero two forty x list", body, cond)]
    net = make_net({"x": "f[16,16]"}, ops, ["loop:4"])
    assert simulate(net).peak_bytes in range(20 * K, 23 * K)


@pytest.mark.parametrize("names", [("frees", "makes"), ("makes", "frees")])
def test_of_ops_that_are_ready_together_the_worse_order_counts(names):
    # start ─► held ─┬─► frees (held is let go)
    #       both wait └  makes (as large again): whichever is listed first
    ends = {
        "frees": op("frees", "Sum", "held axis", "f[]", controls=("go",)),
        "makes": op("makes", "MatMul", "x x", "f[512,512]", controls=("go",)),
    }
    ops = [
        const("axis", (0, 1)),
        op("held", "MatMul", "x x", "f[512,512]"),
        op("go", "Max", "held axis", "f[]"),
        *(ends[name] for name in names),
    ]
    net = make_net({"x": "f[512,512]"}, ops, ["frees", "makes"])
    assert counted_peak(net) > 2 * 512 * 512 * 4
    assert max(record(net).in_use) == counted_peak(net)


def test_a_peak_is_told_up_to_a_limit():
    ops = [op(f"y{i}", "Exp", f"y{i - 1}" if i else "x", "f[300,300]") for i in range(5)]
    net = make_net({"x": "f[300,300]"}, ops, [f"y{i}" for i in range(5)])
    peak = counted_peak(net)
    for limit in (1, peak // 2, peak - 1, peak):
        assert limit <= counted_peak(net, limit=limit) <= peak
    assert counted_peak(net, limit=peak + 1) == peak


def test_a_thread_that_is_held_up_holds_what_its_op_reads():
    # y ─► Sum may still be under way when b and c are made; no order of ready ops shows that
    wide, size = "f[1024,1024]", 4 * 2**20
    ops = [
        const("axes", (0, 1)),
        const("turn", (1, 0)),
        op("y", "Exp", "x", wide),
        op("b", "Transpose", "y turn", wide),
        op("c", "Transpose", "b turn", wide),
        op("total", "Sum", "c axes", "f[]"),
    ]
    alone = make_net({"x": wide}, ops, ["total"])
    assert worst_peak(alone) == counted_peak(alone)
    beside = make_net({"x": wide}, [*ops, op("loss", "Sum", "y axes", "f[]")], ["loss", "total"])
    assert counted_peak(beside) < worst_peak(beside)
    assert worst_peak(beside) >= counted_peak(beside) + size


def test_the_report_names_the_peak():
    ops = [
        op("small", "Tanh", "x", "f[256]", source="train.py:3"),
        op("wide", "MatMul", "small small", "f[8,256]", source="train.py:4"),
        op("sum", "MatMul", "wide wide", "f[1,256]", source="train.py:5"),
    ]
    timeline = simulate(make_net(X, ops, ["sum"]))
    assert (timeline.peak_op, timeline.peak_source) == ("wide", "train.py:4")
    assert [(one.label, one.bytes, one.source, one.kind) for one in timeline.live_at_peak] == [
        ("wide", 8 * K, "train.py:4", "temporary"),
        ("small", K, "train.py:3", "temporary"),
    ]
    assert [bytes for _, bytes in timeline.events] == [K, 9 * K, 9 * K]


def test_a_long_chain_is_simulated_in_linear_time():
    length = 20_000
    ops = [op("y0", "Tanh", "x", "f[256]")]
    ops += [op(f"y{i}", "AddV2", f"y{i - 1} x", "f[256]") for i in range(1, length)]
    assert peak(X, ops, [f"y{length - 1}"]) == K

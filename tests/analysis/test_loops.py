"""Loops and their gradient loops are found by their edges alone, and refused where in doubt."""

import pytest

from rnnmem.analysis.loops import Link, Loop, inner_pairs, loop_pairs, loops_of, through_identities
from tests.handmade import const, empty_list, make_net, op, pop, push, rnn, while_op


def pairs_of(net):
    return loop_pairs(net, net, {})


def forward_of(net):
    return loops_of(net)[0]


def accumulating(*drawn, kinds=None, outputs="next h list", start=None, cond=None, after=()):
    """A loop over (i, h, acc) whose body pushes h, unless it is given other ops.

    acc ─► push(acc, h) = list ─► acc
    """
    body = make_net(
        kinds or {"i": "i[]", "h": "f[4]", "acc": "v[]"},
        drawn or [const("one", 1), op("next", "AddV2", "i one", "i[]"), push("list", "acc", "h")],
        outputs.split(),
    )
    net = make_net(
        {"x": "f[4]", "given": "v[]"},
        [
            const("zero", 0),
            const("any", (-1, -1)),
            start or empty_list("start"),
            while_op("loop", "zero x " + (start.op.name if start else "start"), body, cond),
            *after,
        ],
        ["loop:2"],
    )
    return forward_of(net)


STEP = [const("one", 1), op("next", "AddV2", "i one", "i[]")]


def test_a_list_that_is_only_pushed_to_is_an_accumulator():
    loop = accumulating()
    assert {index: one.name for index, one in loop.pushes.items()} == {2: "list"}


def test_identities_on_the_way_are_looked_through():
    loop = accumulating(
        *STEP,
        push("list", "acc", "h"),
        op("copy", "Identity", "list", "v[]"),
        op("copies", "Identity", "copy", "v[]"),
        outputs="next h copies",
    )
    assert list(loop.pushes) == [2]
    assert through_identities(loop.body, "copies") == "list"


@pytest.mark.parametrize(
    "loop",
    [
        pytest.param(
            accumulating(
                *STEP, push("list", "acc", "h"), op("n", "TensorListLength", "acc", "i[]")
            ),
            id="read twice before the push",
        ),
        pytest.param(
            accumulating(
                *STEP, push("list", "acc", "h"), op("n", "TensorListLength", "list", "i[]")
            ),
            id="read after the push",
        ),
        pytest.param(
            accumulating(
                *STEP, push("list", "acc", "h"), push("more", "list", "h"), outputs="next h more"
            ),
            id="pushed to twice",
        ),
        pytest.param(
            accumulating(
                cond=make_net(
                    {"i": "i[]", "h": "f[4]", "acc": "v[]"},
                    [op("n", "TensorListLength", "acc", "i[]"), op("more", "Less", "i n", "z[]")],
                    ["more"],
                )
            ),
            id="read by the cond",
        ),
        pytest.param(
            accumulating(start=op("reserved", "TensorListReserve", "any any", "v[]")),
            id="starts full",
        ),
        pytest.param(
            accumulating(start=op("mine", "Identity", "given", "v[]")), id="starts as an argument"
        ),
        pytest.param(
            accumulating(
                *STEP,
                op("list", "TensorListSetItem", "acc i h", "v[]"),
            ),
            id="written by index",
        ),
        pytest.param(
            accumulating(
                *STEP,
                push("other", "given", "h"),
                kinds={"i": "i[]", "h": "f[4]", "acc": "v[]", "given": "v[]"},
                outputs="next h other given",
            ),
            id="another list is pushed to",
        ),
    ],
)
def test_a_list_that_someone_else_may_see_is_no_accumulator(loop):
    assert not loop.pushes


def test_what_the_body_hands_on_unchanged_is_invariant():
    body = make_net(
        {"i": "i[]", "w": "f[4]", "v": "f[4]", "h": "f[4]"},
        [*STEP, op("same", "Identity", "v", "f[4]"), op("new", "Mul", "h w", "f[4]")],
        ["next", "w", "same", "new"],
    )
    net = make_net({"x": "f[4]"}, [const("z", 0), while_op("loop", "z x x x", body)], ["loop:3"])
    assert forward_of(net).invariants == {"w": 1, "v": 2}


def test_variables_that_swap_places_are_not_invariant():
    body = make_net({"i": "i[]", "a": "f[4]", "b": "f[4]"}, [*STEP], ["next", "b", "a"])
    net = make_net({"x": "f[4]"}, [const("z", 0), while_op("loop", "z x x", body)], ["loop:1"])
    assert not forward_of(net).invariants


def test_a_pair_is_found_with_all_its_links():
    (pair,) = pairs_of(rnn())
    assert pair.path == ("loop",)
    assert not pair.closed
    (gradient,) = pair.gradients
    assert gradient.loop.op.name == "gradient"
    assert gradient.links == (
        Link(3, 3, "h", "pop_h:1"),
        Link(4, 4, "t", "pop_t:1"),
        Link(5, 5, "w", "pop_w:1"),
    )
    assert pair.forward.invariants == {"w": 2}


def test_names_do_not_matter():
    net = rnn()
    renamed = {op.name: f"op{i}" for i, op in enumerate(net.ops)}
    blobs = {blob: f"blob{i}" for i, blob in enumerate(net.blobs) if blob not in net.inputs}
    ops = tuple(
        op.replace(
            name=renamed[op.name],
            inputs=tuple(blobs.get(blob, blob) for blob in op.inputs),
            outputs=tuple(blobs[blob] for blob in op.outputs),
        )
        for op in net.ops
    )
    (pair,) = pairs_of(net.replace(ops=ops))
    assert pair.path == (renamed["loop"],)
    assert len(pair.gradients[0].links) == 3


def test_the_lists_may_reach_the_gradient_loop_through_identities():
    net = rnn()
    ops = [
        op.replace(inputs=(*op.inputs[:3], "copy", *op.inputs[4:])) if op.name == "gradient" else op
        for op in net.ops
    ]
    copy = op("copy", "Identity", "loop:3", "v[]")
    position = [op.name for op in net.ops].index("gradient")
    net = net.replace(
        ops=(*ops[:position], copy.op, *ops[position:]),
        blobs={**net.blobs, "copy": copy.blobs[0]},
    )
    assert len(pairs_of(net)[0].gradients[0].links) == 3


def gradient_loop(net, name, result=1):
    """Another gradient loop like the first."""
    first = net.op_by_name["gradient"]
    outputs = tuple(f"{name}:{index}" for index in range(len(first.outputs)))
    blobs = {
        new: net.blobs[old].__class__(new, net.blobs[old].dtype, net.blobs[old].shape)
        for new, old in zip(outputs, first.outputs, strict=True)
    }
    return net.replace(
        ops=(*net.ops, first.replace(name=name, outputs=outputs)),
        blobs={**net.blobs, **blobs},
        outputs=(*net.outputs, outputs[result]),
    )


def test_two_losses_have_two_gradient_loops_in_one_pair():
    #            ┌─► gradient
    # loop ─ lists
    #            └─► second
    (pair,) = pairs_of(gradient_loop(rnn(), "second"))
    assert [one.loop.op.name for one in pair.gradients] == ["gradient", "second"]


def test_a_popped_list_that_is_handed_outside_is_no_link():
    net = rnn()
    (pair,) = pairs_of(net.replace(outputs=(*net.outputs, "gradient:3")))
    assert [link.pushed for link in pair.gradients[0].links] == ["t", "w"]


def test_a_loop_without_a_gradient_makes_no_pair():
    net = rnn()
    ops = tuple(op for op in net.ops if op.name != "gradient")
    assert pairs_of(net.replace(ops=ops, outputs=("loop:1",))) == ()


def test_a_gradient_that_is_differentiated_again_is_closed():
    # loop ─ lists ─► gradient, which pushes too ─ lists ─► second
    net = rnn()
    first = net.op_by_name["gradient"]
    kinds = {"j": "i[]", "k": "f[64,64]", "acc": "v[]"}
    body = first.nets["body"]
    pushing = body.replace(
        inputs=(*body.inputs, "acc_d"),
        outputs=(*body.outputs, "pushed"),
        ops=(*body.ops, push("pushed", "acc_d", "d").op),
        blobs={
            **body.blobs,
            **make_net({"acc_d": "v[]"}, [push("pushed", "acc_d", "d")], []).blobs,
        },
    )
    popping = make_net(
        kinds,
        [
            const("one", 1),
            const("any", (-1, -1)),
            op("next", "AddV2", "j one", "i[]"),
            pop("p", "acc", "f[64,64]"),
            op("sum", "AddV2", "k p:1", "f[64,64]"),
        ],
        ["next", "sum", "p:0"],
    )
    drawn = [
        empty_list("list_d"),
        while_op("gradient", " ".join((*first.inputs, "list_d")), pushing),
        while_op("second", "zero zeros gradient:6", popping),
    ]
    made = make_net({}, drawn, [])
    ops = [op for op in net.ops if op.name != "gradient"] + list(made.ops)
    net = net.replace(ops=tuple(ops), blobs={**net.blobs, **made.blobs})
    closed = {pair.path: pair.closed for pair in pairs_of(net)}
    assert closed == {
        ("loop",): "its gradient is differentiated again",
        ("gradient",): "its gradient is differentiated again",
    }


def nested():
    """An outer loop that pushes the list of its inner loop whole, and the same in the gradient.

    loop     { inner    { push blob }   list ─► push }
    gradient { pop ─► list ─► backward { pop blob } }
    """
    inner = make_net(
        {"j": "i[]", "g": "f[4]", "acc": "v[]"},
        [
            const("one", 1),
            op("next", "AddV2", "j one", "i[]"),
            op("t", "Tanh", "g", "f[4]"),
            push("list", "acc", "t"),
        ],
        ["next", "t", "list"],
    )
    body = make_net(
        {"i": "i[]", "h": "f[4]", "lists": "v[]"},
        [
            *STEP,
            const("zero", 0),
            const("any", (-1, -1)),
            empty_list("start"),
            while_op("inner", "zero h start", inner, limit=3),
            push("pushed", "lists", "inner:2"),
        ],
        ["next", "inner:1", "pushed"],
    )
    backward = make_net(
        {"j": "i[]", "g": "f[4]", "acc": "v[]"},
        [
            const("one", 1),
            const("any", (-1, -1)),
            op("next", "AddV2", "j one", "i[]"),
            pop("p", "acc", "f[4]"),
            op("d", "TanhGrad", "p:1 g", "f[4]"),
        ],
        ["next", "d", "p:0"],
    )
    gradient = make_net(
        {"i": "i[]", "g": "f[4]", "lists": "v[]"},
        [
            *STEP,
            const("zero", 0),
            const("any", (-1, -1)),
            pop("p", "lists", "v[]"),
            while_op("backward", "zero g p:1", backward, limit=3),
        ],
        ["next", "backward:1", "p:0"],
    )
    return make_net(
        {"x": "f[4]"},
        [
            const("zero", 0),
            const("any", (-1, -1)),
            empty_list("start"),
            while_op("loop", "zero x start", body),
            op("ones", "OnesLike", "loop:1", "f[4]"),
            while_op("gradient", "zero ones loop:2", gradient),
        ],
        ["loop:1", "gradient:1"],
    )


def test_pairs_nest():
    (outer,) = pairs_of(nested())
    assert [link.pushed for link in outer.gradients[0].links] == ["inner:2"]
    (inner,) = inner_pairs(outer, outer.gradients[0])
    assert inner.path == ("loop", "inner")
    assert inner.gradients[0].loop.op.name == "backward"
    assert [(link.pushed, link.popped) for link in inner.gradients[0].links] == [("t", "p:1")]


def test_an_inner_list_that_the_outer_loop_does_not_push_makes_no_inner_pair():
    (outer,) = pairs_of(rnn())
    assert inner_pairs(outer, outer.gradients[0]) == ()


def test_a_loop_shows_its_step_nets():
    loop = forward_of(rnn())
    assert isinstance(loop, Loop)
    assert (loop.body.name, loop.cond.name) == ("body", "loop_cond")


def racing(inputs, ops, outputs):
    body = make_net(
        {"i": "i[]", "h": "f[4]", "x": "f[4]"},
        [const("one", 1), op("n", "AddV2", "i one", "i[]"), *ops],
        ["n", *outputs],
    )
    drawn = while_op("loop", inputs, body)
    net = make_net({"a": "f[4]", "b": "f[4]"}, [const("z", 0), drawn], ["loop:1"])
    return Loop(net, net.op_by_name["loop"]).racing


def test_a_sum_races_with_other_readers_of_what_nobody_holds():
    # h ◄─ h + sin x + cos x, and tanh h reads h: done before the sum begins, or not
    read = [op("s", "Sin", "x", "f[4]"), op("c", "Cos", "x", "f[4]"), op("t", "Tanh", "h", "f[4]")]
    sum_of = op("u", "AddN", "h s c", "f[4]")
    more = op("v", "Mul", "u t", "f[4]")
    assert racing("z a b", [*read, sum_of, more], ["v", "x"]) == {"u"}
    # nobody else reads h; or all three are the same in each iteration
    assert not racing("z a b", [*read[:2], sum_of], ["u", "x"])
    steady = op("u", "AddN", "x s c", "f[4]")
    assert not racing("z a b", [*read, steady, more], ["v", "x"])


def test_a_sum_races_with_what_only_one_branch_keeps():
    # a branch hands out tanh sin h, and keeps it, or the sine
    inner = [op("s", "Sin", "h", "f[4]"), op("t", "Tanh", "s", "f[4]")]

    def of(*kept):
        labels = ("then_branch", "else_branch")
        nets = {
            label: make_net(
                {"h": "f[4]"}, [*inner, op("o", "OptionalFromValue", blob, "v[]")], ["t", "o"]
            )
            for label, blob in zip(labels, kept, strict=True)
        }
        chosen = [const("p", 1), op("if", "StatelessIf", "p h", "f[4] v[]", nets=nets)]
        others = [op("a", "Sin", "x", "f[4]"), op("b", "Cos", "x", "f[4]")]
        return racing("z a b", [*chosen, *others, op("u", "AddN", "a b if:0", "f[4]")], ["u", "x"])

    assert of("t", "s") == {"u"}
    assert not of("t", "t")
    assert not of("s", "s")


def stateful(*after):
    """A loop over (i, h, acc) with h = tanh(h), which is pushed; ``loop:1`` is the last h."""
    return accumulating(
        *(*STEP, op("t", "Tanh", "h", "f[4]"), push("list", "acc", "t")),
        outputs="next t list",
        after=after,
    )


SUM = op("s", "AddN", "x loop:1 x", "f[4]")
LATER = make_net(
    {"j": "i[]", "a": "f[4]", "b": "f[4]"},
    [*STEP[:1], op("next", "AddV2", "j one", "i[]"), op("u", "AddN", "a b b", "f[4]")],
    ["next", "a", "u"],
)


@pytest.mark.parametrize(
    "after",
    [
        [SUM],
        [op("copy", "Identity", "loop:1", "f[4]"), op("s", "AddN", "x copy x", "f[4]")],
        [while_op("later", "zero loop:1 x", LATER)],
        [while_op("later", "zero x loop:1", LATER)],
    ],
)
def test_a_last_state_may_be_added_up_behind_the_loop(after):
    assert stateful(*after).summed_later == {"t"}


@pytest.mark.parametrize(
    "after",
    [
        [],
        [op("s", "AddV2", "x loop:1", "f[4]")],
        [op("r", "Sin", "loop:1", "f[4]"), op("s", "AddN", "x r x", "f[4]")],
    ],
)
def test_a_last_state_that_is_not_added_up_is_of_no_account(after):
    assert not stateful(*after).summed_later


def test_what_the_loop_itself_adds_up_is_not_behind_it():
    loop = accumulating(
        *(*STEP, op("t", "AddN", "h h h", "f[4]"), push("list", "acc", "t")),
        outputs="next t list",
    )
    assert loop.sums.addends and not loop.summed_later

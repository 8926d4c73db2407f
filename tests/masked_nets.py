"""A loop that keeps a mask and the features of a Relu for its gradient, drawn by hand."""

from rnnmem.ir.graph import DType, Net
from tests.handmade import const, empty_list, make_net, op, pop, push, while_op


def masked(
    shape: str = "64,65",
    limit: int = 50,
    also: str = "",
    device: str = "",
    whole: bool = False,
    unit: str = "Relu",
) -> Net:
    """A loop with a random mask, and its gradient loop.

    forward     h ──► Tanh = t ──► Relu = r ──► r where keep, else h ──► h'      keep = drawn >= 0.5
    gradient    g where keep' ──► ReluGrad(_, r') ──► TanhGrad(t', _) ──► g

    Args:
      shape: of the state.
      limit: iterations.
      also: a further op of the gradient step net that reads ``r'``.
      device: where ``r`` is made.
      whole: whether ``also`` gives whole numbers.
      unit: the op that makes ``r``.
    """
    f, z = f"f[{shape}]", f"z[{shape}]"
    lists = {"acc_k": "v[]", "acc_r": "v[]", "acc_t": "v[]"}
    body = make_net(
        {"i": "i[]", "h": f, **lists},
        [
            const("one", 1),
            const("half", 0.5),
            op("next", "AddV2", "i one", "i[]"),
            op("drawn", "RandomStandardNormal", "one", f, stateful=True),
            op("keep", "GreaterEqual", "drawn half", z),
            op("t", "Tanh", "h", f),
            op("r", unit, "t", f, device=device),
            op("h_next", "SelectV2", "keep r h", f),
            push("push_k", "acc_k", "keep"),
            push("push_r", "acc_r", "r"),
            push("push_t", "acc_t", "t"),
        ],
        ["next", "h_next", "push_k", "push_r", "push_t"],
        name="body",
    )
    extra = [op("more", also, "pop_r:1", f"{'i' if whole else 'f'}[{shape}]")] if also else []
    gradient = make_net(
        {"i": "i[]", "g": f, "dt": f, **lists},
        [
            const("one", 1),
            const("any", (-1, -1)),
            const("none", 0.0),
            op("next", "AddV2", "i one", "i[]"),
            pop("pop_k", "acc_k", z),
            pop("pop_r", "acc_r", f),
            pop("pop_t", "acc_t", f),
            op("kept", "SelectV2", "pop_k:1 g none", f),
            op("d", "ReluGrad", "kept pop_r:1", f),
            op("back", "TanhGrad", "pop_t:1 d", f),
            *extra,
        ],
        ["next", "back", "dt", "pop_k:0", "pop_r:0", "pop_t:0"],
        name="gradient_body",
    )
    names = ("k", "r", "t")
    lists_of = {"k": "bool", "r": "float32", "t": "float32"}
    empties = []
    for name in names:
        drawn = empty_list(f"empty_{name}")
        drawn.op = drawn.op.replace(attributes={"element_dtype": DType(lists_of[name])})
        empties.append(drawn)
    return make_net(
        {"x": f, "g0": f},
        [
            const("zero", 0),
            const("any", (-1, -1)),
            *empties,
            while_op("forward", "zero x empty_k empty_r empty_t", body, limit=limit),
            while_op(
                "gradient",
                "zero g0 g0 forward:2 forward:3 forward:4",
                gradient,
                limit=limit,
            ),
        ],
        ["forward:1", "gradient:1"],
    )

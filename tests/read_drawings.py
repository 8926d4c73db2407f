"""Loop pairs, drawn by hand, whose step net reads a variable in every iteration."""

from __future__ import annotations

from collections.abc import Callable

from rnnmem.ir.graph import Blob, DType, Net
from tests.drawing import Drawing, LoopDrawing
from tests.loop_drawings import count, counted

READ = {"dtype": DType("float32")}


def with_shapes(net: Net, shape=(64, 64)) -> Net:
    """Every float blob gets a shape: a plan counts bytes."""
    ops = tuple(
        op.replace(nets={label: with_shapes(inner, shape) for label, inner in op.nets.items()})
        for op in net.ops
    )
    blobs = {
        name: Blob(name, blob.dtype, shape) if blob.dtype == "float32" else blob
        for name, blob in net.blobs.items()
    }
    return net.replace(ops=ops, blobs=blobs)


def assign(net: Drawing, handle: str, value: str, name: str, controls=()) -> None:
    net.op("AssignVariableOp", handle, value, gives=(), name=name, controls=controls, **READ)


def reading(
    *,
    inside: Callable[[Drawing], object] = lambda body: None,
    scheduling_edges: bool = True,
    made_here: bool = False,
    gradients: int = 1,
    updated: bool = False,
) -> Net:
    """before ──► forward: r = read v, m = h·r, h' = Tanh(m) ──► after; saved: r, h'

    before and after assign v; ``inside`` draws more into the forward step net; without
    ``scheduling_edges`` nothing says which of them runs first; ``updated``: after assigns what the
    gradient gave.
    """
    top = Drawing("top", x="float32", n="int32", v="resource", other="resource")
    handle = top.op("VarHandleOp", gives="resource", name="handle") if made_here else "v"
    assign(top, handle, "x", "before")
    loop = LoopDrawing(top, "forward")
    loop.carry("i", top.const(0)), loop.carry("n", "n"), loop.carry("h", "x")
    loop.carry("v", handle), loop.carry("other", "other")
    lists = {label: loop.carry(f"acc_{label}", top.empty_list()) for label in ("r", "a")}
    count(loop, "i")
    body = loop.body
    r = body.op("ReadVariableOp", "v", name="r", **READ)
    a = body.op("Tanh", body.op("Mul", "h", r, name="m"), name="a")
    inside(body)
    loop.next["h"] = a
    for label, blob in (("r", r), ("a", a)):
        loop.next[lists[label]] = body.push(lists[label], blob, name=f"push_{label}")
    controls = ("before",) if scheduling_edges else ()
    done = loop.close(counted("i", "n"), controls=controls, parallel_iterations=10)
    results = [done["h"]]
    for number in range(gradients):
        results.append(_gradient(top, done, f"gradient{number or ''}"))
    value = results[1] if updated else "x"
    assign(top, handle, value, "after", ("forward",) if scheduling_edges else ())
    return with_shapes(top.net(*results, control_outputs=("before", "forward", "after")))


def _gradient(top: Drawing, done: dict[str, str], name: str) -> str:
    loop = LoopDrawing(top, name)
    loop.carry("j", top.const(0)), loop.carry("n", done["i"])
    loop.carry("d", top.const(1.0, "float32"))
    count(loop, "j")
    popped = {}
    for label in ("r", "a"):
        loop.carry(f"acc_{label}", done[f"acc_{label}"])
        loop.next[f"acc_{label}"], popped[label] = loop.body.pop(
            f"acc_{label}", name=f"pop_{label}"
        )
    by_a = loop.body.op("TanhGrad", popped["a"], "d", name="by_a")
    loop.next["d"] = loop.body.op("Mul", by_a, popped["r"], name="by_r")
    return loop.close(counted("j", "n"), parallel_iterations=10)["d"]


def nested_reading() -> Net:
    """outer { inner { g' = g · read v } }: the read is pushed in the inner loop, lists in outer."""
    top = Drawing("top", x="float32", n="int32", v="resource")
    outer = LoopDrawing(top, "forward")
    outer.carry("i", top.const(0)), outer.carry("n", "n"), outer.carry("h", "x")
    outer.carry("v", "v"), outer.carry("lists", top.empty_list(element="variant"))
    count(outer, "i")
    inner = LoopDrawing(outer.body, "inner")
    inner.carry("k", outer.body.const(0)), inner.carry("n", "n"), inner.carry("g", "h")
    inner.carry("v", "v"), inner.carry("acc", outer.body.empty_list())
    count(inner, "k")
    r = inner.body.op("ReadVariableOp", "v", name="r", **READ)
    inner.next["g"] = inner.body.op("Mul", "g", r, name="next_g")
    inner.next["acc"] = inner.body.push("acc", r, name="push_r")
    done = inner.close(counted("k", "n"), parallel_iterations=10)
    outer.next["h"] = done["g"]
    outer.next["lists"] = outer.body.push("lists", done["acc"], name="push_list")
    done = outer.close(counted("i", "n"), parallel_iterations=10)
    back = LoopDrawing(top, "gradient")
    back.carry("j", top.const(0)), back.carry("n", done["i"])
    back.carry("d", top.const(1.0, "float32")), back.carry("lists", done["lists"])
    count(back, "j")
    back.next["lists"], held = back.body.pop("lists", name="pop_list", element="variant")
    inner = LoopDrawing(back.body, "inner_gradient")
    inner.carry("k", back.body.const(0)), inner.carry("n", "n"), inner.carry("d", "d")
    inner.carry("acc", held)
    count(inner, "k")
    inner.next["acc"], again = inner.body.pop("acc", name="pop_r")
    inner.next["d"] = inner.body.op("Mul", "d", again, name="next_d")
    back.next["d"] = inner.close(counted("k", "n"), parallel_iterations=10)["d"]
    results = done["h"], back.close(counted("j", "n"), parallel_iterations=10)["d"]
    return with_shapes(top.net(*results, control_outputs=("forward",)))

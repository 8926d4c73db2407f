"""Loop pairs drawn by hand: the original, and what a correct rewrite makes of it."""

from __future__ import annotations

import dataclasses

from rnnmem.ir import parse
from rnnmem.ir.graph import DType, Net, ShapeValue
from rnnmem.passes.checkpoint.decision import Segments
from rnnmem.passes.rematerialise.decision import LoopPlan
from rnnmem.planning.apply import apply_plan
from rnnmem.planning.plan import Plan
from tests.drawing import Drawing, LoopDrawing, encoded

FORWARD, GRADIENT = ("forward", "body"), ("gradient", "body")


def counted(label: str, limit: str):
    """A cond: the counter is below the limit."""
    return lambda cond: cond.op("Less", label, limit, gives="bool", name="going_on")


def count(loop: LoopDrawing, label: str) -> None:
    one = loop.body.const(1, name=f"one_{label}")
    loop.next[label] = loop.body.op("AddV2", label, one, gives="int32", name=f"count_{label}")


def barrier(net: Drawing, blob: str, name: str) -> str:
    return net.op("EnsureShape", blob, name=name, T=DType("float32"), shape=ShapeValue(()))


def training(recompute: bool = False, keeps_alive: bool = False, gradients: int = 1) -> Net:
    """A loop with dropout and its gradient loops.

    forward     h ──Mul w──► m ──Tanh──► a ──Mul r──► b ──Add h──► h'      r = RandomUniform
    saved       h, a, r, w every iteration                (original)
                h, r; a = Tanh(Mul(pop h, w))             (recompute)
    gradient    d = TanhGrad(a, dh·r)    dw' = dw + d·h    dh' = dh + d·w
    """
    top = Drawing("top", x="float32", w="float32", n="int32")
    saved = ("h", "r") if recompute else ("h", "a", "r", "w")
    loop = LoopDrawing(top, "forward")
    i, n, h, w = (
        loop.carry(*pair)
        for pair in (("i", top.const(0, name="zero")), ("n", "n"), ("h", "x"), ("w", "w"))
    )
    lists = {label: loop.carry(f"acc_{label}", top.empty_list(f"empty_{label}")) for label in saved}
    count(loop, i)
    body = loop.body
    m = body.op("Mul", h, w, name="m")
    a = body.op("Tanh", m, name="a")
    r = body.op("RandomUniform", body.const(0, name="shape"), name="r", seed=7)
    b = body.op("Mul", a, r, name="b")
    loop.next[h] = body.op("AddV2", b, h, name="next_h")
    blob_of = {"h": h, "a": a, "r": r, "w": w}
    for label, held in lists.items():
        loop.next[held] = body.push(held, blob_of[label], name=f"push_{label}")
    if keeps_alive:
        _keepalive(loop, m)
    loop.control_outputs = ("r",)
    done = loop.close(counted(i, n), parallel_iterations=10)
    results = [done["h"]]
    for number in range(gradients):
        name = "gradient" if not number else f"gradient{number}"
        results += _gradient(top, name, done, saved, recompute, keeps_alive)
    sinks = ()
    if keeps_alive:
        top.op("NoOp", gives=(), name="sink", controls=("forward", "gradient"))
        sinks = ("sink",)
    return top.net(*results, control_outputs=("forward", *sinks))


def _gradient(top, name, done, saved, recompute, keeps_alive) -> list[str]:
    loop = LoopDrawing(top, name)
    start = top.const(1.0, "float32", name=f"{name}_start")
    none = top.const(0.0, "float32", name=f"{name}_none")
    j = loop.carry("j", top.const(0, name=f"{name}_zero"))
    limit = loop.carry("limit", done["i"])
    dh, dw = loop.carry("dh", start), loop.carry("dw", none)
    count(loop, j)
    body = loop.body
    popped = {}
    for label in saved:
        held = loop.carry(f"acc_{label}", done[f"acc_{label}"])
        loop.next[held], popped[label] = body.pop(held, name=f"pop_{label}")
    if recompute:
        w = popped["w"] = loop.carry("w_again", "w")
        m = body.op("Mul", barrier(body, popped["h"], "barrier"), w, name="m_again")
        popped["a"] = body.op("Tanh", m, name="a_again", controls=("d1",))
        if keeps_alive:
            _keepalive(loop, m)
    d1 = body.op("Mul", dh, popped["r"], name="d1")
    d2 = body.op("TanhGrad", popped["a"], d1, name="d2")
    step = body.op("Mul", d2, popped["h"], name="step")
    loop.next[dw] = body.op("AddV2", dw, step, name="next_dw")
    back = body.op("Mul", d2, popped["w"], name="back")
    loop.next[dh] = body.op("AddV2", dh, back, name="next_dh")
    done = loop.close(counted(j, limit), parallel_iterations=1, _rnnmem_plan=b"a: recomputed")
    return [done["dh"], done["dw"]]


def _keepalive(loop: LoopDrawing, blob: str) -> None:
    """A list that is pushed and popped at once: one more reader of the blob, and no value."""
    held = loop.carry("keepalive", loop.outside.empty_list(f"{loop.name}_keepalive"))
    pushed = loop.body.push(held, blob, name="keepalive_push")
    loop.next[held], _ = loop.body.pop(pushed, name="keepalive_pop")


def nested(recompute: bool = False, read_elsewhere: bool = False) -> Net:
    """A loop in a loop: the inner lists are pushed, whole, into the outer one's.

    outer   h ──► inner: g ──Sin──► s ──Mul h──► g'  (3 times) ──► h'     saved: h, list of (g, s)
    rewrite s = Sin(pop g) in the inner gradient step net; the list of s is gone on both levels

    Where it is ``read_elsewhere``, the outer gradient step net carries zeros like the list of s.
    """
    saved = ("g",) if recompute else ("g", "s")
    top = Drawing("top", x="float32", n="int32")
    loop = LoopDrawing(top, "forward")
    loop.carry("i", top.const(0)), loop.carry("n", "n"), loop.carry("h", "x")
    lists = {
        label: loop.carry(f"acc_{label}", top.empty_list(element="variant")) for label in saved
    }
    lists["h"] = loop.carry("acc_h", top.empty_list())
    count(loop, "i")
    inner = LoopDrawing(loop.body, "inner")
    inner.carry("k", loop.body.const(0)), inner.carry("three", loop.body.const(3))
    inner.carry("g", "h"), inner.carry("h", "h")
    for label in saved:
        inner.carry(f"acc_{label}", loop.body.empty_list())
    count(inner, "k")
    s = inner.body.op("Sin", "g", name="s")
    inner.next["g"] = inner.body.op("Mul", s, "h", name="next_g")
    for label, blob in zip(saved, ("g", s), strict=False):
        held = f"acc_{label}"
        inner.next[held] = inner.body.push(held, blob, name=f"push_{label}")
    inside = inner.close(counted("k", "three"))
    loop.next["h"] = inside["g"]
    for label in saved:
        loop.next[f"acc_{label}"] = loop.body.push(f"acc_{label}", inside[f"acc_{label}"])
    loop.next["acc_h"] = loop.body.push("acc_h", "h")
    done = loop.close(counted("i", "n"))
    return top.net(done["h"], _nested_gradient(top, done, saved, recompute, read_elsewhere))


def _nested_gradient(top: Drawing, done, saved, recompute: bool, read_elsewhere: bool) -> str:
    loop = LoopDrawing(top, "gradient")
    loop.carry("j", top.const(0)), loop.carry("n", done["i"])
    loop.carry("d", top.const(1.0, "float32"))
    for label in (*saved, "h"):
        loop.carry(f"acc_{label}", done[f"acc_{label}"])
    count(loop, "j")
    body = loop.body
    popped = {}
    for label in (*saved, "h"):
        element = "float32" if label == "h" else "variant"
        loop.next[f"acc_{label}"], popped[label] = body.pop(
            f"acc_{label}", name=f"pop_{label}", element=element
        )
    if read_elsewhere:
        zeros = loop.carry("zeros", top.empty_list())
        loop.next[zeros] = body.op("ZerosLike", popped["s"], gives="variant", name="zeros_like")
    inner = LoopDrawing(body, "inner_gradient")
    inner.carry("k", body.const(0)), inner.carry("three", body.const(3))
    inner.carry("d", "d"), inner.carry("h", popped["h"])
    for label in saved:
        inner.carry(f"acc_{label}", popped[label])
    count(inner, "k")
    again = {}
    for label in saved:
        inner.next[f"acc_{label}"], again[label] = inner.body.pop(
            f"acc_{label}", name=f"pop_{label}"
        )
    if recompute:
        again["s"] = inner.body.op("Sin", barrier(inner.body, again["g"], "barrier"), name="s2")
    by_s = inner.body.op("Mul", "d", again["s"], name="by_s")
    cos = inner.body.op("Cos", again["g"], name="cos")
    inner.next["d"] = inner.body.op(
        "AddV2", by_s, inner.body.op("Mul", cos, "h", name="by_h"), name="next_d"
    )
    loop.next["d"] = inner.close(counted("k", "three"))["d"]
    return loop.close(counted("j", "n"))["d"]


RECURRENT = parse("""
# A loop without dropout and its gradient loop, so that iterations can be run again.
net top(x float32, w float32, n int32) -> (forward:2, gradient:2, gradient:3) {
  zero int32 = Const() with {value=constant int32[] 0}
  any int32 = Const() with {value=constant int32[] -1}
  empty_h variant = EmptyTensorList(any, any) with {element_dtype=type float32}
  empty_a variant = EmptyTensorList(any, any) with {element_dtype=type float32}
  forward:0 int32, forward:1 int32, forward:2 float32, forward:3 float32, forward:4 float32,
      forward:5 variant, forward:6 variant
      = While(zero, n, x, x, w, empty_h, empty_a) with {parallel_iterations=10} {
    cond = net forward_cond(i int32, n int32, h float32, c float32, w float32,
        acc_h variant, acc_a variant) -> (more) {
      more bool = Less(i, n)
    }
    body = net forward_body(i int32, n int32, h float32, c float32, w float32,
        acc_h variant, acc_a variant) -> (next_i, n, next_h, next_c, w, push_h, push_a) {
      one int32 = Const() with {value=constant int32[] 1}
      next_i int32 = AddV2(i, one)
      m float32 = Mul(h, w)
      a float32 = Tanh(m)
      next_h float32 = AddV2(a, c)
      next_c float32 = Sin(c)
      push_h variant = TensorListPushBack(acc_h, h) with {element_dtype=type float32}
      push_a variant = TensorListPushBack(acc_a, a) with {element_dtype=type float32}
    }
  }
  ones float32 = Const() with {value=constant float32[] 1.0}
  start float32 = Const() with {value=constant float32[] 0.0}
  gradient:0 int32, gradient:1 int32, gradient:2 float32, gradient:3 float32, gradient:4 float32,
      gradient:5 variant, gradient:6 variant
      = While(zero, forward:0, ones, start, w, forward:5, forward:6)
        with {parallel_iterations=1} {
    cond = net gradient_cond(j int32, limit int32, dh float32, dw float32, w float32,
        acc_h variant, acc_a variant) -> (more) {
      more bool = Less(j, limit)
    }
    body = net gradient_body(j int32, limit int32, dh float32, dw float32, w float32,
        acc_h variant, acc_a variant) -> (next_j, limit, next_dh, next_dw, w, pop_h:0, pop_a:0) {
      one int32 = Const() with {value=constant int32[] 1}
      any int32 = Const() with {value=constant int32[] -1}
      next_j int32 = AddV2(j, one)
      pop_h:0 variant, pop_h:1 float32 = TensorListPopBack(acc_h, any)
          with {element_dtype=type float32}
      pop_a:0 variant, pop_a:1 float32 = TensorListPopBack(acc_a, any)
          with {element_dtype=type float32}
      d float32 = TanhGrad(pop_a:1, dh)
      step float32 = Mul(d, pop_h:1)
      next_dw float32 = AddV2(dw, step)
      back float32 = Mul(d, w)
      next_dh float32 = AddV2(dh, back)
    }
  }
}
""")


def in_segments(saved: tuple[str, ...], length: int, growth: int = 0, **schedule: int) -> Net:
    """`RECURRENT` with its loops cut into segments, by the rewrite itself."""
    segments = Segments(
        length=length,
        growth=growth,
        wanted=saved,
        states=("h", "c"),
        invariants=("w",),
        **schedule,
    )
    recomputed = () if "a" in saved else ("m", "a")
    plan = LoopPlan(("forward",), ("gradient",), saved=saved, recomputed=recomputed)
    loops = (dataclasses.replace(plan, segments=segments),)
    return apply_plan(RECURRENT, Plan(loops=loops), encoded, keeps_alive=True)

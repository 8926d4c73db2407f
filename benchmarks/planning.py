"""How long planning takes: the translation model's step, and made-up functions of many ops.

    python benchmarks/planning.py                       # the step, then 25000, 50000, 100000 ops
    python benchmarks/planning.py --ops=1000,2000 --loops=5 --nomodel --profile
    python benchmarks/planning.py --json=benchmarks/results/planning-cpu.json

A made-up function is a Net with loop pairs of equal size, as TensorFlow writes them: a chain of
products, biases and nonlinearities in each body, an accumulator for whatever the gradient reads.
Every phase is timed apart, in time of this process, so that others hardly matter. The lines at the
end say how time grows from one size to the next: the exponent of ops, and the factor beyond what
ops times their logarithm would give.
"""

from __future__ import annotations

import cProfile
import json
import math
import os
import platform
import pstats
import time
from collections.abc import Callable
from typing import Any

from absl import app, flags

from rnnmem.analysis.machine import CPU
from rnnmem.analysis.shapes import filled, known_net
from rnnmem.ir.graph import Blob, Constant, DType, Net, Op, ShapeValue
from rnnmem.ir.order import without_dead_ops
from rnnmem.passes.normalise.gradient_loops import without_dead_gradients
from rnnmem.planning.apply import apply_plan
from rnnmem.planning.pareto import plan_net
from rnnmem.simulate.timeline import counted_peak
from rnnmem.tf.gc import paused
from rnnmem.verify import check

FLAGS = flags.FLAGS
F = (32, 64)


def define_flags() -> None:
    """Defines the knobs."""
    flags.DEFINE_list("ops", ["25000", "50000", "100000"], "sizes of made-up functions")
    flags.DEFINE_integer("loops", 50, "loop pairs of a made-up function", lower_bound=1)
    flags.DEFINE_bool("model", True, "time the translation model's step too")
    flags.DEFINE_list("lengths", ["50", "150"], "tokens of that step")
    flags.DEFINE_string("json", None, "write the figures to this file")
    flags.DEFINE_bool("profile", False, "print where the time goes")


class _Maker:
    """Gathers ops and blobs of one Net."""

    def __init__(self, inputs: dict[str, tuple[str, Any]]):
        self.inputs = tuple(inputs)
        self.blobs = {name: Blob(name, *kind) for name, kind in inputs.items()}
        self.ops: list[Op] = []

    def add(self, name: str, type: str, inputs: tuple[str, ...], *kinds: tuple, **fields) -> str:
        outputs = (name,) if len(kinds) == 1 else tuple(f"{name}:{i}" for i in range(len(kinds)))
        self.blobs.update({one: Blob(one, *kind) for one, kind in zip(outputs, kinds, strict=True)})
        self.ops.append(Op(name, type, inputs, outputs, **fields))
        return outputs[0]

    def constant(self, name: str, value: Any) -> str:
        shape = (len(value),) if isinstance(value, tuple) else ()
        held = Constant("int32", shape, repr(value).encode(), value)
        attributes = {"dtype": DType("int32"), "value": held}
        return self.add(name, "Const", (), ("int32", shape), attributes=attributes)

    def net(self, name: str, outputs: tuple[str, ...]) -> Net:
        return Net(name, self.inputs, outputs, tuple(self.ops), self.blobs)


FLOAT, LIST, INT = ("float32", F), ("variant", None), ("int32", ())
SQUARE = ("float32", (F[1], F[1]))


def made_up(ops: int, loops: int) -> Net:
    """A function of about ``ops`` ops, in ``loops`` loop pairs one after the other."""
    per_layer = 12  # forward product, bias, nonlinearity, pushes, and what undoes them
    layers = max(1, (ops // loops - 20) // per_layer)
    outer = _Maker({"x": FLOAT, "w": SQUARE, "b": ("float32", (F[1],))})
    outer.constant("zero", 0)
    outer.constant("any", (-1, -1))
    state, made = "x", []
    for number in range(loops):
        state = _forward_loop(outer, number, layers, state)
        made.append(state)
    back = outer.add("ones", "OnesLike", (state,), FLOAT)
    sums = []
    for number in reversed(range(loops)):
        back, total = _gradient_loop(outer, number, layers, back)
        sums.append(total)
    return outer.net("made_up", (state, *sums))


def _while(outer: _Maker, name: str, starts, body: Net) -> Op:
    cond = _Maker({blob: (body.blobs[blob].dtype, body.blobs[blob].shape) for blob in body.inputs})
    cond.constant("limit", 100)
    cond.add("more", "Less", (body.inputs[0], "limit"), ("bool", ()))
    kinds = [(body.blobs[blob].dtype, body.blobs[blob].shape) for blob in body.inputs]
    attributes = {
        "T": tuple(DType(dtype) for dtype, _ in kinds),
        "output_shapes": tuple(ShapeValue(shape) for _, shape in kinds),
        "parallel_iterations": 10,
    }
    nets = {"body": body, "cond": cond.net(f"{name}_cond", ("more",))}
    outer.add(name, "While", tuple(starts), *kinds, attributes=attributes, nets=nets)
    return outer.ops[-1]


def _forward_loop(outer: _Maker, number: int, layers: int, state: str) -> str:
    lists = [f"acc_{kind}{i}" for i in range(layers) for kind in "ht"]
    body = _Maker(
        {"i": INT, "h": FLOAT, "w": SQUARE, "b": ("float32", (F[1],))} | dict.fromkeys(lists, LIST)
    )
    body.constant("one", 1)
    body.add("next", "AddV2", ("i", "one"), INT)
    h, pushed = "h", []
    for i in range(layers):
        body.add(f"m{i}", "MatMul", (h, "w"), FLOAT)
        body.add(f"a{i}", "BiasAdd", (f"m{i}", "b"), FLOAT)
        body.add(f"t{i}", "Tanh", (f"a{i}",), FLOAT)
        pushed.append(body.add(f"push_h{i}", "TensorListPushBack", (f"acc_h{i}", h), LIST))
        pushed.append(body.add(f"push_t{i}", "TensorListPushBack", (f"acc_t{i}", f"t{i}"), LIST))
        h = f"t{i}"
    starts = ["zero", state, "w", "b"]
    for one in lists:
        starts.append(outer.add(f"{one}_{number}", "EmptyTensorList", ("any", "any"), LIST))
    _while(outer, f"loop{number}", starts, body.net("body", ("next", h, "w", "b", *pushed)))
    return f"loop{number}:1"


def _gradient_loop(outer: _Maker, number: int, layers: int, back: str) -> tuple[str, str]:
    lists = [f"acc_{kind}{i}" for i in range(layers) for kind in "ht"]
    body = _Maker({"i": INT, "g": FLOAT, "total": SQUARE, "w": SQUARE} | dict.fromkeys(lists, LIST))
    body.constant("one", 1)
    body.constant("any", (-1, -1))
    body.add("next", "AddV2", ("i", "one"), INT)
    g, total, left = "g", "total", {}
    for i in reversed(range(layers)):
        for kind in "ht":
            name = f"acc_{kind}{i}"
            left[name] = body.add(f"pop_{kind}{i}", "TensorListPopBack", (name, "any"), LIST, FLOAT)
        body.add(f"d{i}", "TanhGrad", (f"pop_t{i}:1", g), FLOAT)
        body.add(f"e{i}", "MatMul", (f"pop_h{i}:1", f"d{i}"), SQUARE)
        g = body.add(f"g{i}", "MatMul", (f"d{i}", "w"), FLOAT)
        total = body.add(f"sum{i}", "AddV2", (total, f"e{i}"), SQUARE)
    outputs = ("next", g, total, "w", *(left[name] for name in lists))
    zeros = outer.add(f"zeros{number}", "ZerosLike", ("w",), SQUARE)
    starts = ["zero", back, zeros, "w"]
    starts += [f"loop{number}:{4 + position}" for position in range(len(lists))]
    _while(outer, f"gradient{number}", starts, body.net("gradient_body", outputs))
    return f"gradient{number}:1", f"gradient{number}:2"


def encoded(value: Any, dtype: str) -> Constant:
    """Stands for the exporter's encoding, which planning never looks into."""
    listed = isinstance(value, (tuple, list))
    shape = (len(value),) if listed else ()
    return Constant(dtype, shape, repr(value).encode(), tuple(value) if listed else value)


def phases(whole: Net, constant: Callable[[Any, str], Constant]) -> dict[str, float]:
    """Seconds of each phase of planning."""
    seconds: dict[str, float] = {}

    def timed(name: str, call: Callable[[], Any]) -> Any:
        start = time.process_time()
        result = call()
        seconds[name] = time.process_time() - start
        return result

    with paused():
        net = timed("prune", lambda: without_dead_gradients(without_dead_ops(whole)))
        known = timed("shapes", lambda: known_net(net))
        plan = timed("plan", lambda: plan_net(filled(known), CPU, 1.1))
        timed("simulate before", lambda: counted_peak(known))
        rewritten = timed("rewrite", lambda: apply_plan(net, plan, constant))
        timed("check", lambda: check(net, rewritten))
        timed("simulate after", lambda: counted_peak(rewritten))
    return seconds


def _model(length: int) -> tuple[Net, Callable, float]:
    """The translation model's step as a Net, and the seconds that importing it took."""
    import tensorflow as tf

    from models.nmt.benchmark import build
    from rnnmem.ir.inline import inline
    from rnnmem.tf.attributes import constant
    from rnnmem.tf.functions import net_of

    step, arguments = build(32, length, length)
    concrete = tf.function(step).get_concrete_function(*arguments)
    start = time.process_time()
    net = inline(net_of(concrete))
    return net, constant, time.process_time() - start


def _row(name: str, net: Net, seconds: dict[str, float]) -> dict[str, Any]:
    """One line of the figures, printed too."""
    total = sum(seconds.values())
    parts = ", ".join(f"{phase} {value:.2f}" for phase, value in seconds.items())
    print(f"{name}: {net.op_count} ops, {total:.2f} s ({parts})", flush=True)
    phases = {phase: round(value, 3) for phase, value in seconds.items()}
    return {"function": name, "ops": net.op_count, "seconds": round(total, 3), "phases": phases}


def growth(small: dict[str, Any], large: dict[str, Any]) -> dict[str, Any]:
    """How time grows between two rows: as which power of ops, and against ops times logarithm."""
    slower, more = large["seconds"] / small["seconds"], large["ops"] / small["ops"]
    n_log_n = more * math.log(large["ops"]) / math.log(small["ops"])
    found = {
        "from": small["ops"],
        "to": large["ops"],
        "exponent": round(math.log(slower) / math.log(more), 2),
        "beyond n log n": round(slower / n_log_n, 2),
    }
    print(
        f"from {found['from']} to {found['to']} ops: time grows with ops to the power "
        f"{found['exponent']:.2f}, by {found['beyond n log n']:.2f} of n log n"
    )
    return found


def main(_) -> None:
    """Times every size and prints a line each."""
    profiler = cProfile.Profile()

    def timed(net: Net, constant: Callable[[Any, str], Constant]) -> dict[str, float]:
        if FLAGS.profile:
            profiler.enable()
        seconds = phases(net, constant)
        profiler.disable()
        return seconds

    rows = []
    for length in map(int, FLAGS.lengths if FLAGS.model else ()):
        net, constant, importing = _model(length)
        seconds = {"import": importing, **timed(net, constant)}
        rows.append(_row(f"translation step, {length} tokens", net, seconds))
    sizes = []
    for ops in map(int, FLAGS.ops):
        net = made_up(ops, FLAGS.loops)
        sizes.append(_row(f"{FLAGS.loops} loop pairs", net, timed(net, encoded)))
    grown = [growth(*pair) for pair in zip(sizes, sizes[1:], strict=False)]
    if FLAGS.json:
        machine = {"machine": platform.machine(), "cores": os.cpu_count()}
        with open(FLAGS.json, "w", encoding="utf-8") as file:
            json.dump({**machine, "rows": [*rows, *sizes], "growth": grown}, file, indent=1)
            file.write("\n")
    if FLAGS.profile:
        pstats.Stats(profiler).sort_stats("tottime").print_stats(45)


if __name__ == "__main__":
    define_flags()
    app.run(main)

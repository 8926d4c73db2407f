"""A training step of a recipe: its forward loop and, by a small differentiator, the gradient loop.

As TensorFlow's ``while_v2`` does it: what the gradient step net reads of the forward step net is
pushed there in every iteration, loop-invariants too, and popped here; the gradient of what is the
same in all iterations adds up in a variable of the gradient loop.

    forward     i, n, s0, s1, w, xs, lists            gradient    j, left, ds0, ds1, dw, dxs, lists
"""

from __future__ import annotations

from rnnmem.ir.graph import Blob, DType, Net, ShapeValue
from tests.drawing import Drawing, LoopDrawing, blob
from tests.proofs.step_nets import Recipe

SCALE, LIMIT = 0.75, 0.5
"""The constant of a product, and the one that a branch's predicate compares with."""
_T = {"T": DType("float32")}
_NUMBERS = ("float32", "int32", "bool")


def training_step(recipe: Recipe, trips: int | None = None) -> Net:
    """The Net of a step: states, ``w``, a sequence ``x`` and the trip count in, gradients out.

    Args:
      recipe: the step net.
      trips: the trip count, where the Net is to know it; None: its input ``n`` says.
    """
    states = [f"h{k}" for k in range(recipe.states)]
    kinds = dict.fromkeys([*states, "w"], "f[]") | {"x": "f[?]", "n": "i[]"}
    top = Drawing("top", **kinds)
    zero = top.const(0, name="zero")
    n = "n" if trips is None else top.const(trips, name="trips")
    xs = top.op("TensorListFromTensor", "x", _scalar(top), gives="variant", name="xs",
                element_dtype=DType("float32"), shape_type=DType("int32"))  # fmt: skip
    forward = _Forward(recipe, top, zero, n, states, xs)
    backward = _Gradient(forward)
    forward.close()
    return _shaped(top.net(*forward.results, *backward.close()))


def _scalar(net: Drawing) -> str:
    """The shape of a list's elements."""
    return "scalar:0" if "scalar:0" in net.blobs else net.const((), name="scalar")


class _Forward:
    """The forward loop: its body is drawn at once, its accumulators as the gradient asks."""

    def __init__(self, recipe: Recipe, top: Drawing, zero: str, n: str, states, xs: str):
        self.recipe, self.top = recipe, top
        self.loop = LoopDrawing(top, "forward")
        loop, body = self.loop, self.loop.body
        loop.carry("i", zero), loop.carry("n", n)
        self.values = [loop.carry(f"s{k}", start) for k, start in enumerate(states)]
        self.values.append(loop.carry("w", "w"))
        loop.carry("xs", xs)
        loop.next["i"] = body.op("AddV2", "i", body.const(1, name="one"), gives="int32", name="up")
        self.truths: dict[int, str] = {}
        for number, (kind, read) in enumerate(recipe.ops):
            self.values.append(self._op(f"v{number}", kind, [self.values[one] for one in read]))
        for state, number in enumerate(recipe.following):
            loop.next[f"s{state}"] = self.values[number]
        self.lists: dict[str, str] = {}

    def _op(self, name: str, kind: str, read: list[str]) -> str:
        body = self.loop.body
        match kind:
            case "add":
                return body.op("AddV2", *read, name=name, **_T)
            case "mul":
                return body.op("Mul", *read, name=name, **_T)
            case "sum":
                return body.op("AddN", *read, name=name, N=3, **_T)
            case "scale":
                return body.op("Mul", *read, body.const(SCALE, "float32"), name=name, **_T)
            case "tanh":
                return body.op("Tanh", *read, name=name, **_T)
            case "relu":
                return body.op("Relu", *read, name=name, **_T)
            case "read":
                shape = _scalar(body)
                return body.op("TensorListGetItem", "xs", "i", shape, name=name,
                               element_dtype=DType("float32"))  # fmt: skip
        assert kind == "branch"
        limit = body.const(LIMIT, "float32")
        truth = body.op("Greater", read[0], limit, gives="bool", name=f"{name}_if", **_T)
        self.truths[len(self.values)] = truth
        return _branch(body, name, truth, read, {
            "then_branch": lambda net, a, b: (net.op("Mul", a, b, name="product", **_T),),
            "else_branch": lambda net, a, b: (net.op("AddV2", a, b, name="total", **_T),),
        })[0]  # fmt: skip

    def saved(self, value: str) -> str:
        """The accumulator that holds the value of every iteration."""
        if value not in self.lists:
            body, kind = self.loop.body, self.loop.body.blobs[value]
            shape, most = _scalar(self.top), self.top.const(-1)
            element = {"element_dtype": DType(kind.dtype), "shape_type": DType("int32")}
            empty = self.top.op("EmptyTensorList", shape, most, gives="variant", **element)
            label = f"acc{len(self.lists)}"
            self.lists[value] = self.loop.carry(label, empty)
            self.loop.next[label] = body.push(label, value, name=f"push{len(self.lists) - 1}")
        return self.lists[value]

    def close(self) -> None:
        done = self.loop.close(_below("i", "n"), parallel_iterations=10)
        self.results = [done[f"s{k}"] for k in range(self.recipe.states)]
        self.done = done


class _Gradient:
    """The gradient loop; its body reads what the forward loop is made to push."""

    def __init__(self, forward: _Forward):
        self.forward, self.recipe, self.top = forward, forward.recipe, forward.top
        self.body = Drawing("gradient_body", j="i[]", left="i[]")
        self.next = {}
        self.popped: dict[str, str] = {}
        recipe = self.recipe
        self.carried = [f"ds{k}" for k in range(recipe.states)]
        kinds = ["w"] if any(recipe.states in read for _, read in recipe.ops) else []
        self.carried += [f"d{one}" for one in kinds]
        for label in self.carried:
            self._input(label, "float32")
        self.reads = any(kind == "read" for kind, _ in recipe.ops)
        if self.reads:
            self._input("dxs", "variant")
        self._draw()

    def _input(self, label: str, dtype: str) -> None:
        self.body.inputs.append(label)
        self.body.blobs[label] = blob(label, dtype)

    def _draw(self) -> None:
        body, recipe = self.body, self.recipe
        one = body.const(1, name="one")
        self.next = {"left": "left", "j": body.op("AddV2", "j", one, gives="int32", name="up")}
        parts: dict[int, list[str]] = {}
        for state, number in enumerate(recipe.following):
            parts.setdefault(number, []).append(f"ds{state}")
        items: list[str] = []
        for place in reversed(range(len(recipe.ops))):
            number = recipe.first + place
            if number in parts:
                kind, read = recipe.ops[place]
                given = self._total(parts[number])
                found = self._back(place, kind, read, given)
                if kind == "read":
                    items.append(given)
                for one, part in zip(read, found, strict=True):
                    parts.setdefault(one, []).append(part)
        for state in range(recipe.states):
            mine = parts.get(state)
            self.next[f"ds{state}"] = self._total(mine) if mine else self._zero()
        if "dw" in self.carried:
            self.next["dw"] = self._total(["dw", *parts.get(recipe.states, [])])
        if self.reads:
            self.next["dxs"] = "dxs"
            if items:
                self.next["dxs"] = body.op(
                    "TensorListSetItem", "dxs", self._pop("i"), self._total(items),
                    gives="variant", name="put", element_dtype=DType("float32"),
                    resize_if_index_out_of_bounds=True)  # fmt: skip

    def _back(self, place: int, kind: str, read: tuple[int, ...], given: str) -> list[str]:
        """The gradient of each input of an op, from that of its result."""
        body, name = self.body, f"d{place}"
        values = self.forward.values
        result = values[self.recipe.first + place]

        def mul(number: int, side: str) -> str:
            return body.op("Mul", given, self._pop(values[number]), name=f"{name}{side}", **_T)

        match kind:
            case "add" | "sum":
                return [given] * len(read)
            case "mul":
                return [mul(read[1], "a"), mul(read[0], "b")]
            case "scale":
                factor = body.const(SCALE, "float32")
                return [body.op("Mul", given, factor, name=name, **_T)]
            case "tanh":
                return [body.op("TanhGrad", self._pop(result), given, name=name, **_T)]
            case "relu":
                return [body.op("ReluGrad", given, self._pop(result), name=name, **_T)]
            case "read":
                return []
        truth = self._pop(self.forward.truths[self.recipe.first + place])
        operands = [given, *(self._pop(values[one]) for one in read)]

        def products(net: Drawing, d: str, a: str, b: str) -> tuple[str, ...]:
            return (
                net.op("Mul", d, b, name="left", **_T),
                net.op("Mul", d, a, name="right", **_T),
            )

        return list(_branch(body, name, truth, operands, {
            "then_branch": products,
            "else_branch": lambda net, d, a, b: (
                net.op("Identity", d, name="left", **_T),
                net.op("Identity", d, name="right", **_T),
            ),
        }))  # fmt: skip

    def _pop(self, value: str) -> str:
        if value not in self.popped:
            held = self.forward.saved(value)
            self._input(held, "variant")
            dtype = self.forward.loop.body.blobs[value].dtype
            shorter, self.popped[value] = self.body.op(
                "TensorListPopBack", held, _scalar(self.body), gives=("variant", dtype),
                name=f"pop_{held}", element_dtype=DType(dtype))  # fmt: skip
            self.next[held] = shorter
        return self.popped[value]

    def _total(self, parts: list[str]) -> str:
        if len(parts) == 1:
            return parts[0]
        return self.body.op("AddN", *parts, N=len(parts), **_T)

    def _zero(self) -> str:
        return self.body.const(0.0, "float32")

    def close(self) -> list[str]:
        top, done = self.top, self.forward.done
        start = {"j": "zero:0", "left": done["i"]}
        start |= {label: done[label] for label in self.forward.lists.values()}
        for number, label in enumerate(self.carried):
            # Each state's loss has a factor of its own, so that no two gradients are alike.
            seed = 0.0 if label == "dw" else 1.0 + number
            start[label] = top.const(seed, "float32", name=f"start_{label}")
        if self.reads:
            start["dxs"] = top.empty_list("start_dxs")
        loop = LoopDrawing(top, "gradient")
        for label in self.body.inputs:
            loop.carry(label, start[label])
        loop.body, loop.next = self.body, {one: self.next[one] for one in self.body.inputs}
        done = loop.close(_below("j", "left"), parallel_iterations=10)
        found = [done[label] for label in self.carried]
        if self.reads:
            found.append(top.op("TensorListStack", done["dxs"], _scalar(top), name="dx",
                                element_dtype=DType("float32"), num_elements=-1))  # fmt: skip
        return found


def _below(counter: str, limit: str):
    return lambda cond: cond.op("Less", counter, limit, gives="bool", name="more", T=DType("int32"))


def _branch(net: Drawing, name: str, truth: str, given: list[str], draw) -> tuple[str, ...]:
    """A branch whose two sides are drawn on inputs like the given blobs."""
    nets, count = {}, 0
    for label, side in draw.items():
        inner = Drawing(f"{name}_{label}", **{f"in{k}": "f[]" for k in range(len(given))})
        results = side(inner, *inner.inputs)
        nets[label], count = inner.net(*results), len(results)
    kinds = tuple(DType(net.blobs[one].dtype) for one in given)
    made = net.op("StatelessIf", truth, *given, gives=("float32",) * count, name=name, nets=nets,
                  Tcond=DType("bool"), Tin=kinds, Tout=(DType("float32"),) * count,
                  output_shapes=(ShapeValue(()),) * count)  # fmt: skip
    return made


def _shaped(net: Net) -> Net:
    """The Net with the shapes that a drawing leaves open: all are numbers but for the sequence."""
    ops = tuple(op.replace(nets={key: _shaped(one) for key, one in op.nets.items()})
                for op in net.ops)  # fmt: skip
    shapes = {op.outputs[0]: op.attributes["value"].shape for op in ops if op.type == "Const"}
    shapes |= {"x": (None,), "dx:0": (None,)}
    blobs = {
        name: Blob(name, kind.dtype, shapes.get(name, () if kind.dtype in _NUMBERS else None))
        for name, kind in net.blobs.items()
    }
    return net.replace(ops=ops, blobs=blobs)

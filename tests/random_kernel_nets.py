"""Random Nets over TensorFlow's kernels, as no tracer writes them: names are overwritten too.

Fan-out, ops in place, several writers of a name, dead ends, views, control edges, and step nets at
two levels: loops, loop pairs with an accumulator between them, branches.
"""

from __future__ import annotations

import random

import numpy as np

from rnnmem.ir.graph import Blob, Constant, DType, Net, Op

SHAPES = [(2, 3), (4, 3), (3, 3), (1, 3), (8, 3)]
ONE = ("Tanh", "Sin", "Cos", "Neg", "Relu", "Square", "Sigmoid", "Identity", "Softplus", "Abs")
TWO = ("AddV2", "Sub", "Mul", "Maximum", "Minimum", "SquaredDifference")


class Maker:
    """One Net in the making; step nets have makers of their own."""

    def __init__(self, draw: random.Random, encode, depth: int = 0, inputs: dict | None = None):
        self.draw, self.encode, self.depth = draw, encode, depth
        self.ops: list[Op] = []
        self.blobs: dict[str, Blob] = {}
        self.pool: list[str] = []  # float matrices
        for name, (dtype, shape) in (inputs or {}).items():
            self.blobs[name] = Blob(name, dtype, shape)
            if dtype == "float32":
                self.pool.append(name)
        self.inputs = tuple(self.blobs)

    def add(self, kind: str, inputs, results, name: str = "", **fields) -> list[str]:
        """Adds an op; ``results`` are ``(dtype, shape)``, or names that it overwrites."""
        number = len(self.ops)
        outputs = []
        for place, result in enumerate(results):
            if isinstance(result, str):
                outputs.append(result)
                continue
            outputs.append(name or f"b{number}_{place}")
            self.blobs[outputs[-1]] = Blob(outputs[-1], *result)
        if self.ops and self.draw.random() < 0.1:
            fields["controls"] = (self.draw.choice(self.ops).name,)
        self.ops.append(Op(f"{kind}_{number}", kind, tuple(inputs), tuple(outputs), **fields))
        return outputs

    def const(self, value, dtype: str = "int32") -> str:
        held: Constant = self.encode(value, dtype)
        attributes = {"dtype": DType(dtype), "value": held}
        return self.add("Const", (), [(dtype, held.shape)], attributes=attributes)[0]

    def pick(self, shape=None) -> str:
        fitting = [one for one in self.pool if shape is None or self.blobs[one].shape == shape]
        return self.draw.choice(fitting[-8:])

    def write(self, kind: str, inputs, shape) -> None:
        """An op with one result: a new blob, in place, or over another name."""
        way = self.draw.random()
        mine = [
            one
            for one in self.pool
            if one not in self.inputs and self.blobs[one].shape == shape
        ]  # fmt: skip
        if way < 0.12 and inputs[0] in mine:
            self.add(kind, inputs, [inputs[0]])
        elif way < 0.2 and mine:
            self.add(kind, inputs, [self.draw.choice(mine)])
        else:
            made = self.add(kind, inputs, [("float32", shape)])
            if self.draw.random() < 0.92:  # else a dead end
                self.pool += made

    def step(self) -> None:
        way = self.draw.random()
        source = self.pick()
        shape = self.blobs[source].shape
        if way < 0.45:
            self.write(self.draw.choice(ONE), [source], shape)
        elif way < 0.7:
            self.write(self.draw.choice(TWO), [source, self.pick(shape)], shape)
        elif way < 0.76:
            other = self.pick()
            rows = shape[0] + self.blobs[other].shape[0]
            if rows <= 16:
                self.write("ConcatV2", [source, other, self.const(0)], (rows, 3))
        elif way < 0.82 and shape[0] % 2 == 0:
            half = ("float32", (shape[0] // 2, 3))
            halves = {"num_split": 2}
            self.pool += self.add("Split", [self.const(0), source], [half, half], attributes=halves)
        elif way < 0.86:
            flat = self.add("Reshape", [source, self.const((-1,))], [("float32", (3 * shape[0],))])[
                0
            ]
            self.write("Reshape", [flat, self.const(shape)], shape)
        elif self.depth < 2:
            self.nested(source, shape)

    def nested(self, source: str, shape) -> None:
        way = self.draw.random()
        if way < 0.3:
            branches = {}
            for key in ("then_branch", "else_branch"):
                inner = self.inner({"x": ("float32", shape)})
                branches[key] = inner.net([inner.pick(shape)])
            chosen = self.const(self.draw.random() < 0.5, "bool")
            self.pool += self.add("If", [chosen, source], [("float32", shape)], nets=branches)
        elif way < 0.65:
            self.pool.append(self.loop(source, shape, None)[1])
        else:
            empty = self.const((-1, -1)), self.const(-1)
            held = self.add(
                "EmptyTensorList", empty, [("variant", ())],
                attributes={"element_dtype": DType("float32"), "shape_type": DType("int32")},
            )[0]  # fmt: skip
            _, last, kept = self.loop(source, shape, ("push", held))
            self.add("Sin", [last], [("float32", shape)])
            self.pool.append(self.ops[-1].outputs[0])
            self.pool.append(self.loop(self.pool[-1], shape, ("pop", kept))[1])

    def inner(self, inputs: dict) -> Maker:
        maker = Maker(self.draw, self.encode, self.depth + 1, inputs)
        for _ in range(self.draw.randint(2, 9)):
            maker.step()
        return maker

    def loop(self, source: str, shape, held) -> tuple[str, ...]:
        """A loop of three iterations; with a list it pushes a blob, or pops one, in each."""
        variables = {"i": ("int32", ()), "x": ("float32", shape), "w": ("float32", shape)}
        starts = [self.const(0), source, self.pick(shape)]
        if held is not None:
            variables["list"] = ("variant", ())
            starts.append(held[1])
        body = Maker(self.draw, self.encode, self.depth + 1, variables)
        element = {"element_dtype": DType("float32")}
        following = []
        if held is not None and held[0] == "pop":
            any_shape = body.const((-1, -1))
            rest = body.add(
                "TensorListPopBack", ["list", any_shape],
                [("variant", ()), ("float32", shape)], attributes=element,
            )  # fmt: skip
            following = [rest[0]]
            body.pool.append(rest[1])
        for _ in range(self.draw.randint(2, 9)):
            body.step()
        if held is not None and held[0] == "push":
            following = body.add(
                "TensorListPushBack", ["list", body.pick(shape)], [("variant", ())],
                attributes=element,
            )  # fmt: skip
        count = body.add("AddV2", ["i", body.const(1)], [("int32", ())])[0]
        last = body.add("Tanh", [body.pick(shape)], [("float32", shape)])[0]
        cond = Maker(self.draw, self.encode, 9, variables)
        more = cond.add("Less", ["i", cond.const(3)], [("bool", ())])[0]
        nets = {"body": body.net([count, last, "w", *following]), "cond": cond.net([more])}
        results = self.add("While", starts, list(variables.values()), nets=nets)
        return (results[0], results[1], *results[3:])

    def net(self, outputs) -> Net:
        return Net("random", self.inputs, tuple(outputs), tuple(self.ops), self.blobs)


def random_kernel_net(seed: int, encode) -> tuple[Net, list[np.ndarray]]:
    """A Net and values for its inputs; ``encode`` makes a Constant of ``(value, dtype)``."""
    draw = random.Random(seed)
    given = {f"x{index}": ("float32", draw.choice(SHAPES)) for index in range(draw.randint(1, 3))}
    maker = Maker(draw, encode, 0, given)
    for _ in range(draw.randint(3, 22)):
        maker.step()
    outputs = draw.sample(maker.pool, min(len(maker.pool), draw.randint(1, 3)))
    numbers = np.random.default_rng(seed)
    return maker.net(outputs), [
        numbers.standard_normal(shape).astype(np.float32) for _, shape in given.values()
    ]

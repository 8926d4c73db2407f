"""Feed-forward Nets with gradients, written as lines: ``FC data -> fc1``."""

from __future__ import annotations

from rnnmem.ir.graph import Blob, Net, Op

BATCH, WIDTH = 4, 8
WEIGHTED = {"FC": ("w", "b"), "Conv": ("w",)}


class Layers:
    """A Net in the making. Every blob is a float32 matrix; parameters are inputs of the Net."""

    def __init__(self, *inputs: str, sized: bool = True):
        self.inputs = list(inputs)
        self.ops: list[Op] = []
        self.sized = sized
        self.shapes: dict[str, tuple[int, ...]] = {}

    def line(self, text: str, shape=None, **fields) -> Layers:
        left, _, right = text.partition("->")
        kind, *inputs = left.split()
        outputs = right.split()
        if kind in WEIGHTED:
            extra = [f"{outputs[0]}_{suffix}" for suffix in WEIGHTED[kind]]
            self.inputs += [name for name in extra if name not in self.inputs]
            inputs += extra
        name = f"{len(self.ops)}_{kind}"
        self.ops.append(Op(name, kind, tuple(inputs), tuple(outputs), **fields))
        for output in outputs:
            self.shapes[output] = shape or (BATCH, WIDTH)
        return self

    def lines(self, *texts: str) -> Layers:
        for text in texts:
            self.line(text)
        return self

    def gradients(self, *losses: str) -> Layers:
        """Adds the reverse ops of all that leads to a loss; gradients of one blob are summed."""
        given: dict[str, list[str]] = {}
        for loss in losses:
            self.line(f"Fill {loss} -> {loss}_grad", self.shapes[loss])
            given[loss] = [f"{loss}_grad"]
        parts: dict[str, int] = {}
        for op in reversed([op for op in self.ops if op.type != "Fill"]):
            grads = []
            for output in op.outputs:
                found = given.pop(output, [])
                if len(found) > 1:
                    self.line(f"Sum {' '.join(found)} -> {output}_grad")
                    found = [f"{output}_grad"]
                grads += found
            if not grads:
                continue
            results = []
            for blob in dict.fromkeys(op.inputs):
                if blob in ("data", "label"):
                    continue
                parts[blob] = parts.get(blob, 0) + 1
                fresh = parts[blob] == 1 and self._readers(blob) == 1
                name = f"{blob}_grad" if fresh else f"{blob}_grad_{parts[blob]}"
                if blob in op.outputs:
                    name = f"{blob}_grad"  # in place forward, in place backward
                results.append(name)
                given.setdefault(blob, []).append(name)
            reads = " ".join((*op.outputs, *grads, *op.inputs))
            if op.type == "Relu":
                reads = " ".join((*op.outputs, *grads))
            self.line(f"{op.type}Gradient {reads} -> {' '.join(results)}")
        return self

    def _readers(self, blob: str) -> int:
        return sum(blob in op.inputs and "Gradient" not in op.type for op in self.ops)

    def net(self, *outputs: str, **fields) -> Net:
        names = {*self.inputs, *(blob for op in self.ops for blob in (*op.inputs, *op.outputs))}
        blobs = {
            name: Blob(
                name, "float32", self.shapes.get(name, (WIDTH, WIDTH)) if self.sized else None
            )
            for name in sorted(names)
        }
        return Net("net", tuple(self.inputs), outputs, tuple(self.ops), blobs, **fields)


def names(net: Net) -> set[str]:
    """The distinct names over all op inputs and outputs."""
    return {blob for op in net.ops for blob in (*op.inputs, *op.outputs)}

"""Draws the worked step net of docs/how-it-works.md: python -m tools.step_net_picture.

One iteration of additive attention, rewritten by rnnmem: what becomes of each blob, from its plan.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib
import tensorflow as tf
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

import rnnmem
from rnnmem.passes.rematerialise.decision import HOISTED, INVARIANT, RECOMPUTED
from rnnmem.reports.colors import OF_DECISION
from rnnmem.reports.data import SAVED, Graph, Node
from rnnmem.sizes import format_bytes

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "images" / "worked-step-net.svg"
WIDTH, HEIGHT = 2.6, 0.56  # of a node
ACROSS, DOWN = 3.3, 0.92  # from one to the next
DARK, GREY = "#1f2933", "#7b8794"
STATE = "state"
NAMES = {STATE: "state h", INVARIANT: "keys", "ReadVariableOp": "weights"}
BATCH, LENGTH, UNITS, ITERATIONS = 32, 50, 128, 50


def worked() -> Graph:
    """The step net: a state that looks at a sequence in every iteration, and what it sees."""
    weights = tf.Variable(tf.eye(UNITS) * 0.1)

    @rnnmem.optimize
    def train_step(keys):
        def attend(t, h):
            seen = tf.reduce_mean(tf.tanh(keys + h), 1, keepdims=True)
            return t + 1, tf.tanh(seen @ weights)

        with tf.GradientTape() as tape:
            start = (0, tf.zeros([BATCH, 1, UNITS]))
            h = tf.while_loop(lambda t, _: t < ITERATIONS, attend, start)[1]
            loss = tf.reduce_sum(h)
        return loss, tape.gradient(loss, weights)

    report = rnnmem.report(train_step, tf.ones([BATCH, LENGTH, UNITS]), measure=False)
    return next(one for one in report.graphs if one.side == "after" and one.loops)


def words(node: Node) -> tuple[str, str]:
    """What stands on a node: what it is, and what becomes of it."""
    shape = ",".join(map(str, node.shape or ()))
    name = NAMES.get(node.type, node.type)
    return f"{name} [{shape}]", f"{node.decision or 'temporary'}, {format_bytes(node.bytes)}"


def kept(graph: Graph) -> tuple[int, int]:
    """Bytes that an iteration keeps for the gradient as TensorFlow runs it, and as rnnmem does."""
    nodes = [node for node in graph.nodes if node.decision in (RECOMPUTED, SAVED)]
    before = sum(node.bytes or 0 for node in nodes if node.type != STATE)  # made from it
    return before, sum(node.bytes or 0 for node in nodes if node.decision == SAVED)


def draw(graph: Graph) -> Figure:
    """The iteration from top to bottom, what is the same in every iteration at its left."""
    same = (INVARIANT, HOISTED)
    side = {i for i, node in enumerate(graph.nodes) if node.decision in same}
    readers = {start: end for start, end in reversed(graph.edges)}
    spots: dict[int, tuple[float, float]] = {}
    for row, i in enumerate(i for i in range(len(graph.nodes)) if i not in side):
        spots[i] = (ACROSS, -DOWN * row)
    spots |= {i: (0.0, spots[readers[i]][1]) for i in side}
    bottom = min(y for _, y in spots.values())
    figure = Figure(figsize=(ACROSS + WIDTH + 0.2, DOWN - bottom), facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(-0.1, ACROSS + WIDTH + 0.1)
    axes.set_ylim(bottom - 0.2, DOWN - 0.2)
    axes.axis("off")
    for edge in graph.edges:
        _arrow(axes, *(spots[i] for i in edge))
    for i, node in enumerate(graph.nodes):
        _box(axes, spots[i], node)
    return figure


def _arrow(axes, start, end) -> None:
    (x, y), (to_x, to_y) = start, end
    across = x != to_x
    begin = (x + WIDTH, y + HEIGHT / 2) if across else (x + WIDTH / 2, y)
    stop = (to_x, to_y + HEIGHT / 2) if across else (to_x + WIDTH / 2, to_y + HEIGHT)
    axes.annotate("", stop, begin, arrowprops={"arrowstyle": "-|>", "color": GREY, "lw": 1.2})


def _box(axes, spot, node) -> None:
    """A node with a bar in the colour of what becomes of it; the words say the same."""
    x, y = spot
    box = FancyBboxPatch(
        spot, WIDTH, HEIGHT, "round,pad=0,rounding_size=0.06", facecolor="white", edgecolor=GREY
    )
    axes.add_patch(box)
    color = OF_DECISION[node.decision]
    axes.add_patch(Rectangle((x + 0.05, y + 0.08), 0.13, HEIGHT - 0.16, color=color))
    for text, place, weight in zip(words(node), (0.66, 0.27), ("bold", "normal"), strict=True):
        axes.text(
            *(x + 0.26, y + place * HEIGHT, text),
            fontsize=10,
            color=DARK,
            weight=weight,
            va="center",
        )


def main() -> None:
    """Writes the picture; the same sources give the same file."""
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "rnnmem"}):
        draw(worked()).savefig(PICTURE, metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    main()

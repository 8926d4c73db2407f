"""The steps: where the tapes stand, and what is done with the gradients."""

from __future__ import annotations

import dataclasses

from tests.random_programs.dice import Dice

PASSED = "return fn"
"""How a step that takes its own gradient is called: as it is."""


@dataclasses.dataclass(frozen=True)
class Mode:
    """A way to train on a forward pass.

    Attributes:
      step: the function that is decorated; ``{sources}`` is what gradients are asked for,
        ``{zero}`` what unconnected ones become.
      use: the body of ``use(fn)``, which makes what is called with the arguments.
      second: whether something is differentiated twice.
      small: whether it takes long, so that no large sizes are thrown.
    """

    step: str
    use: str = PASSED
    second: bool = False
    small: bool = False


_FORWARD = """\
def step(x, h0, n):
    return forward(x, h0, n)
"""
_TAKEN = """\
    with tf.GradientTape() as tape:
        tape.watch([x, h0])
        loss, outputs = forward(x, h0, n)
    gradients = tape.gradient(loss, {sources}{zero})
"""
_LATER = """\
def later(x, h0, n):
    with tf.GradientTape({persistent}) as tape:
        tape.watch([x, h0])
        loss, outputs = fn(x, h0, n)
"""

MODES: dict[str, Mode] = {
    "plain": Mode(
        "def step(x, h0, n):\n" + _TAKEN + "    return loss, outputs, dense(gradients)\n"
    ),
    "update": Mode(
        "def step(x, h0, n):\n"
        + _TAKEN
        + "    update(gradients)\n    return loss, outputs, dense(gradients)\n"
    ),
    "clipped": Mode(
        "def step(x, h0, n):\n"
        + _TAKEN.replace("{sources}", "VARIABLES")
        + """\
    gradients, norm = tf.clip_by_global_norm(dense(gradients, VARIABLES), 0.5)
    update(gradients)
    return loss, norm
"""
    ),
    "persistent": Mode(
        """\
def step(x, h0, n):
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([x, h0])
        loss, outputs = forward(x, h0, n)
        other = tf.reduce_mean(tf.sin(outputs[0]))
    first = tape.gradient(loss, {sources}{zero})
    second = tape.gradient(other, [W, x]{zero})
    return loss, outputs, dense(first), dense(second)
"""
    ),
    "persistent_once": Mode(
        """\
def step(x, h0, n):
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([x, h0])
        loss, outputs = forward(x, h0, n)
    return outputs, loss, dense(tape.gradient(loss, {sources}{zero}))
"""
    ),
    "two_tapes": Mode(
        """\
def step(x, h0, n):
    with tf.GradientTape() as one, tf.GradientTape() as two:
        one.watch([x, h0])
        loss, outputs = forward(x, h0, n)
        other = tf.reduce_sum(tf.tanh(outputs[0])) * 0.01
    first = one.gradient(loss, {sources}{zero})
    second = two.gradient(other, [W, U]{zero})
    return loss, dense(first), dense(second)
"""
    ),
    "upstream": Mode(
        """\
def step(x, h0, n):
    with tf.GradientTape() as tape:
        tape.watch([x, h0])
        loss, outputs = forward(x, h0, n)
    gradients = tape.gradient(outputs[0], {sources}, output_gradients=tf.cos(outputs[0]){zero})
    return loss, dense(gradients)
"""
    ),
    "symbolic": Mode(
        """\
def step(x, h0, n):
    loss, outputs = forward(x, h0, n)
    gradients = tf.gradients(loss, {sources})
    return loss, outputs, dense(gradients)
"""
    ),
    "second": Mode(
        """\
def step(x, h0, n):
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            inner.watch([x, h0])
            loss, outputs = forward(x, h0, n)
        slope = inner.gradient(loss, h0, unconnected_gradients="zero")
        penalty = loss + tf.reduce_sum(tf.square(slope))
    return penalty, dense(outer.gradient(penalty, VARIABLES{zero}))
""",
        second=True,
        small=True,
    ),
    "jacobian": Mode(
        """\
def step(x, h0, n):
    with tf.GradientTape() as tape:
        tape.watch([x, h0])
        loss, outputs = forward(x, h0, n)
        some = tf.reduce_sum(outputs[0], 0)[:3]
    found = tape.jacobian(some, [W, h0]{zero}, experimental_use_pfor={pfor})
    return loss, dense(found)
""",
        small=True,
    ),
    "batch_jacobian": Mode(
        """\
def step(x, h0, n):
    with tf.GradientTape() as tape:
        tape.watch(h0)
        loss, outputs = forward(x, h0, n)
        some = tf.ensure_shape(outputs[0], [B, H])[:, :2]
    found = tape.batch_jacobian(some, h0, experimental_use_pfor={pfor}{zero})
    return loss, dense([found])
""",
        small=True,
    ),
    "training_loop": Mode(
        "def step(x, h0, n):\n    total = tf.zeros([], DT)\n    for _ in tf.range({steps}):\n"
        + "".join("    " + line + "\n" for line in _TAKEN.splitlines())
        + "        update(gradients)\n        total += loss\n    return total\n"
    ),
    "training_while": Mode(
        "def step(x, h0, n):\n    total, k = tf.zeros([], DT), tf.constant(0)\n"
        "    while k < {steps} and total < 1e4:\n"
        + "".join("    " + line + "\n" for line in _TAKEN.splitlines())
        + "        update(gradients)\n        total += loss\n        k += 1\n    return total\n"
    ),
    "accumulated": Mode(
        "def step(x, h0, n):\n    sums = [tf.zeros_like(one) for one in VARIABLES]\n"
        "    for k in tf.range({steps}):\n"
        "        with tf.GradientTape() as tape:\n"
        "            loss, outputs = forward(x, h0 * tf.cast(k + 1, DT) * 0.3, n)\n"
        "        gradients = tape.gradient(loss, VARIABLES, unconnected_gradients='zero')\n"
        "        sums = [one + other for one, other in zip(sums, dense(gradients))]\n"
        "    update(sums)\n    return sums\n"
    ),
    "branch_trains": Mode(
        "def step(x, h0, n):\n    value = tf.zeros([], DT)\n    if n > 1:\n"
        + "".join("    " + line + "\n" for line in _TAKEN.splitlines())
        + "        update(gradients)\n        value = loss\n    return value\n"
    ),
    "forward_only": Mode(_FORWARD),
    "outer_eager": Mode(
        _FORWARD,
        _LATER.format(persistent="")
        + "    return loss, outputs, dense(tape.gradient(loss, {sources}{zero}))\nreturn later\n",
    ),
    "outer_output": Mode(
        _FORWARD,
        _LATER.format(persistent="")
        + "        value = tf.reduce_mean(tf.sin(outputs[0])) + loss * 0.5\n"
        + "    return loss, outputs, dense(tape.gradient(value, {sources}{zero}))\nreturn later\n",
    ),
    "outer_persistent": Mode(
        _FORWARD,
        _LATER.format(persistent="persistent=True")
        + "        other = tf.reduce_mean(tf.sin(outputs[0]))\n"
        + "    first = tape.gradient(loss, {sources}{zero})\n"
        + "    second = tape.gradient(other, [W, x]{zero})\n"
        + "    return loss, dense(first), dense(second)\nreturn later\n",
    ),
    "outer_twice": Mode(
        _FORWARD,
        _LATER.format(persistent="")
        + "        again, _ = fn(x, outputs[0], n)\n        value = loss + again * 0.5\n"
        + "    return value, dense(tape.gradient(value, {sources}{zero}))\nreturn later\n",
    ),
    "outer_function": Mode(
        _FORWARD,
        "@tf.function\n"
        + _LATER.format(persistent="")
        + "    return loss, outputs, dense(tape.gradient(loss, {sources}{zero}))\nreturn later\n",
    ),
    "outer_loop": Mode(
        _FORWARD,
        "@tf.function\ndef later(x, h0, n):\n    total = tf.zeros([], DT)\n"
        "    for _ in tf.range({steps}):\n"
        "        with tf.GradientTape() as tape:\n"
        "            loss, outputs = fn(x, h0, n)\n"
        "        update(tape.gradient(loss, VARIABLES{zero}))\n        total += loss\n"
        "    return total\nreturn later\n",
    ),
    "outer_jacobian": Mode(
        _FORWARD,
        _LATER.format(persistent="persistent={eager}")
        + "        some = tf.reduce_sum(outputs[0], 0)[:3]\n"
        + "    return loss, dense(tape.jacobian(some, [W, h0]{zero}, "
        "experimental_use_pfor={pfor}))\nreturn later\n",
        small=True,
    ),
    "outer_second": Mode(
        _FORWARD,
        "def later(x, h0, n):\n    with tf.GradientTape() as outer:\n"
        "        with tf.GradientTape() as inner:\n            inner.watch(h0)\n"
        "            loss, outputs = fn(x, h0, n)\n"
        "        slope = inner.gradient(loss, h0, unconnected_gradients='zero')\n"
        "        value = loss + tf.reduce_sum(tf.square(slope))\n"
        "    return value, dense(outer.gradient(value, VARIABLES{zero}))\nreturn later\n",
        second=True,
        small=True,
    ),
    "outer_of_step": Mode(
        "def step(x, h0, n):\n" + _TAKEN + "    return loss, outputs, dense(gradients)\n",
        "@tf.function\ndef later(x, h0, n):\n    return fn(x, h0, n), fn(x, h0 * 0.5, n)\n"
        "return later\n",
    ),
}
LIKELY = {
    "plain": 4,
    "update": 3,
    "persistent": 3,
    "training_loop": 3,
    "outer_eager": 2,
    "outer_function": 2,
    "forward_only": 0.3,
    "second": 0.6,
    "outer_second": 0.3,
}
"""How likely a mode is; 1 where it is not listed."""

UPDATES = (
    """
def update(gradients):
    for variable, gradient in zip(VARIABLES, dense(gradients, VARIABLES)):
        variable.assign_sub(0.1 * tf.clip_by_value(gradient, -1.0, 1.0))
""",
    """
def update(gradients):
    for variable, slot, gradient in zip(VARIABLES, SLOTS, dense(gradients, VARIABLES)):
        slot.assign(0.9 * slot + gradient)
        variable.assign_sub(0.1 * slot)
""",
    """
def update(gradients):
    for variable, slot, gradient in zip(VARIABLES, SLOTS, dense(gradients, VARIABLES)):
        slot.assign_add(0.1 * (tf.square(gradient) - slot))
        variable.assign_sub(0.01 * gradient / (tf.sqrt(slot) + 0.01))
""",
)


def thrown_mode(dice: Dice) -> str:
    return dice.weighted({name: LIKELY.get(name, 1) for name in MODES})

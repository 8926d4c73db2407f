"""A program from a seed: the text of a Python module, with the options it is optimised under.

The module holds ``function()``, which makes a new ``tf.function`` of its step, ``use(fn)``, which
makes what is called with ``ARGUMENTS`` (an outer tape, an outer function, or ``fn`` itself),
``STATE``, all variables that a call may change, and ``OPTIONS``.
"""

from __future__ import annotations

import dataclasses
import re

from tests.random_programs.bodies import Bodies, indented
from tests.random_programs.dice import Dice
from tests.random_programs.expressions import ONCE, WIDE, Expressions
from tests.random_programs.modes import MODES, PASSED, UPDATES, thrown_mode
from tests.random_programs.prelude import CELLS, LAYERS, PARTS, TEXT, WEIGHTS, Sizes, sizes

SLOWDOWNS = (1.1, 1.35, 2.0)

_DENSE = """
def dense(gradients, variables=()):
    if variables:
        pairs = zip(gradients, variables)
        gradients = [tf.zeros_like(two) if one is None else one for one, two in pairs]
    return [tf.convert_to_tensor(one) for one in gradients if one is not None]
"""


@dataclasses.dataclass(frozen=True)
class Program:
    """A program.

    Attributes:
      seed: what it was thrown from.
      mode: where its tapes stand.
      features: constructs that it holds.
      text: the module.
    """

    seed: int
    mode: str
    features: tuple[str, ...]
    text: str


def program(seed: int) -> Program:
    """The program of a seed; the same in every process."""
    dice = Dice(seed)
    name = thrown_mode(dice)
    mode = MODES[name]
    size = sizes(dice, large=not mode.small and dice.chance(0.4))
    left_out = ONCE if mode.second else frozenset()
    if size.dtype != "float32":
        left_out |= WIDE
    expressions = Expressions(dice, left_out)
    cells = tuple(dice.some(list(CELLS), 1)) if dice.chance(0.2) and not mode.second else ()
    layer = "" if mode.second or dice.chance(0.85) else "ENCODER"
    bodies = Bodies(dice, expressions, cells, depth=1 if mode.second else 2)
    loops = 1 if mode.second else dice.weighted({1: 6, 2: 3, 3: 0.7})
    signature = dice.weighted(SIGNATURES)
    if signature == UNKNOWN_RANK:
        layer = ""
    forward = _forward(dice, bodies, layer, loops)
    step = _filled(mode.step, dice)
    use = _filled(mode.use, dice)
    if mode.use == PASSED:
        caller = ["def use(fn):", *indented([PASSED])]
    else:
        caller = ["def use(fn):", *indented(use.splitlines())]
    main = "\n".join([*forward, "", "", step, "", *caller, ""])
    text = "\n".join(
        [
            *_beginning(seed, size, dice, main, cells, layer, signature),
            main,
            "",
            *_ending(dice, signature),
        ]
    )
    features = {
        *bodies.features,
        *expressions.used,
        size.dtype,
        *cells,
        *([layer] if layer else []),
    }
    return Program(seed, name, tuple(sorted(features)), text)


def _beginning(
    seed: int,
    size: Sizes,
    dice: Dice,
    main: str,
    cells: tuple[str, ...],
    layer: str,
    signature: str,
) -> list[str]:
    """All in front of the forward pass; what nobody reads is left out."""
    text = TEXT.format(seed=seed, **dataclasses.asdict(size))
    form = "v" if size.features == size.hidden and dice.chance(0.6) else "tf.matmul(v, V)"
    if signature == UNKNOWN_RANK:
        form = form.replace("v", "tf.ensure_shape(v, [None, D])", 1)
    helpers = [f"\n\ndef cell_input(v):\n    return {form}\n"]
    helpers += [part for call, part in PARTS.items() if re.search(rf"\b{re.escape(call)}", main)]
    own, lines = [], []
    for cell in cells:
        lines += [f"{cell} = {CELLS[cell]}", f"{cell}.build((None, H))"]
        own.append(cell)
    if layer:
        lines += [f"{layer} = {dice.one_of(LAYERS[layer])}", f"{layer}.build((None, None, D))"]
        own.append(layer)
    read = main + "".join(helpers)
    used = [one for one in WEIGHTS if one in "WU" or re.search(rf"\b{one}\b", read)]
    lines.append(f"VARIABLES = [{', '.join(used)}]")
    lines += [f"VARIABLES += [one.value for one in {one}.trainable_variables]" for one in own]
    lines.append("SLOTS = [tf.Variable(tf.zeros_like(one)) for one in VARIABLES]")
    lines.append("STATE = [*VARIABLES, *SLOTS, COUNT]")
    update = dice.one_of(UPDATES) if "update(" in main else ""
    parts = [text, *("\n" + part for part in [*helpers[1:], _DENSE, update] if part)]
    return ["".join(parts), *lines, helpers[0]]


def _forward(dice: Dice, bodies: Bodies, layer: str, loops: int) -> list[str]:
    lines = ["h, c = h0, tf.sin(h0)"]
    if dice.chance(0.15):
        lines.append("h = tf.tanh(tf.matmul(h, W) + b)")
    if layer:
        lines += [
            f"encoded = {layer}(tf.transpose(x, [1, 0, 2]))",
            "h = tf.tanh(h + encoded[:, -1])",
        ]
        bodies.losses.append("tf.reduce_mean(tf.square(encoded))")
    for _ in range(loops):
        lines += bodies.loop()
    losses = {
        "loss = tf.reduce_mean(tf.square(h)) + tf.reduce_sum(c) * 0.01": 4,
        "loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits("
        "LABELS, tf.matmul(h, E, transpose_b=True))) + tf.reduce_mean(c)": 1,
        "loss = tf.reduce_sum(tf.abs(h)) * 0.1 + tf.nn.l2_loss(c)": 1,
    }
    lines.append(dice.weighted(losses))
    lines += [f"loss += {one} * 0.1" for one in bodies.losses]
    lines.append("return loss, [h, c]")
    return ["def forward(x, h0, n):", *indented(lines)]


def _filled(text: str, dice: Dice) -> str:
    zero = dice.one_of(("", ", unconnected_gradients='zero'"))
    sources = dice.one_of(("VARIABLES + [x, h0]", "VARIABLES + [x, h0]", "VARIABLES", "[W, U]"))
    for name, value in {
        "{zero}": zero,
        "{sources}": sources,
        "{steps}": dice.one_of(("2", "3", "n % 4")),
        "{pfor}": str(pfor := dice.chance(0.7)),
        "{eager}": str(not pfor),  # without pfor an eager tape must be persistent
    }.items():
        text = text.replace(name, value)
    return text


UNKNOWN_RANK = "[tf.TensorSpec(None, DT), tf.TensorSpec([B, H], DT), tf.TensorSpec([], tf.int32)]"
SIGNATURES = {
    "None": 7,
    "[tf.TensorSpec([None, None, D], DT), tf.TensorSpec([None, H], DT), "
    "tf.TensorSpec([], tf.int32)]": 2,
    "[tf.TensorSpec([None, B, D], DT), tf.TensorSpec([B, H], DT), tf.TensorSpec([], tf.int32)]": 1,
    UNKNOWN_RANK: 0.7,
}


def _ending(dice: Dice, signature: str) -> list[str]:
    options: dict[str, object] = {"max_slowdown": dice.one_of(SLOWDOWNS)}
    if dice.chance(0.12):
        options["verify"] = True
    return [
        f"SIGNATURE = {signature}",
        "ARGUMENTS = (X, H0, tf.constant(N))",
        f"OPTIONS = {options}",
        f"ALSO_WITHOUT_FUSIONS = {dice.chance(0.35)}",
        "",
        "",
        "def function():",
        *indented(["return tf.function(step, input_signature=SIGNATURE)"]),
        "",
    ]

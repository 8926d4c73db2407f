"""Mutants of what the rewriter writes: each must be refused, or give the original's results.

A mutation is a small function ``(dice, net) -> net or None`` on one Net or step net; None where
there is nothing of its kind. What the verifier lets through is run beside the original, see
`tests.verify.mutant_sources`; other results there are an escape. By hand:

    python -m tests.verify.mutants --count=1000 --seed=0
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import difflib
import math
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence

from rnnmem.errors import CheckError, NetError
from rnnmem.ir.graph import Blob, DType, Net, Op, Path
from rnnmem.ir.marks import DECODES, ENCODES, IN_PLACE, RENAME_MAP
from rnnmem.ir.op_table import BRANCHES, LOOPS, acts, is_pure
from rnnmem.ir.order import all_needed_by, all_waiting_for, through_identities, topological
from rnnmem.ir.residuals import rename_map, residuals_of
from rnnmem.verify import check
from tests.drawing import edited, with_input, with_op

PUSH, POP = "TensorListPushBack", "TensorListPopBack"
INDEXED = ("TensorListGetItem", "TensorListSetItem", "GatherV2", "InplaceUpdate")
COMMUTE = frozenset({"AddV2", "Mul", "Maximum", "Minimum", "LogicalAnd", "LogicalOr", "Equal"})
ADDS = frozenset({"AddV2", "Add"})
HIDES = frozenset(
    {"EnsureShape", "Identity", "PreventGradient", "OptionalGetValue", "OptionalFromValue"}
)
OTHER_TYPES = (
    ("Tanh", "Sin", "Cos", "Sigmoid", "Relu", "Exp", "Neg", "Square", "Identity"),
    ("AddV2", "Sub", "Mul", "Maximum", "Minimum"),
    ("TanhGrad", "SigmoidGrad", "ReluGrad"),
    ("Less", "LessEqual", "Greater", "GreaterEqual"),
    ("FloorDiv", "FloorMod"),
    ("BitwiseAnd", "BitwiseOr"),
    ("RightShift", "LeftShift"),
    ("LogicalAnd", "LogicalOr"),
    ("Sum", "Prod", "Max", "Min"),
)
MOST_TRIES = 60
"""How many sources and mutations are tried until one of them fits."""


class Dice:
    """Seeded choices; among ops, one that the rewrite made or changed comes up more often."""

    def __init__(self, seed: object, made: frozenset[int] = frozenset(), constant: Callable = None):
        """``made`` holds the ids of such ops; ``constant`` encodes ``(value, dtype)``."""
        self.random = random.Random(str(seed))
        self._made, self.constant = made, constant

    def one_of(self, choices: Sequence):
        return self.random.choice(choices)

    def op(self, ops: Sequence[Op]) -> Op | None:
        """One of the ops; None where there is none."""
        made = [op for op in ops if id(op) in self._made]
        if made and self.random.random() < 0.75:
            ops = made
        return self.random.choice(ops) if ops else None


def of_type(net: Net, *types: str) -> list[Op]:
    return [op for op in net.ops if op.type in types]


def alike(one: Blob, other: Blob) -> bool:
    """Whether one can be read in the place of the other, as far as dtype and shape tell."""
    if one.dtype != other.dtype or one.name == other.name:
        return False
    if one.shape is None or other.shape is None:
        return True
    pairs = zip(one.shape, other.shape, strict=False)
    same_rank = len(one.shape) == len(other.shape)
    return same_rank and all(None in pair or pair[0] == pair[1] for pair in pairs)


def others(net: Net, op: Op, blob: str) -> list[str]:
    """What the op could read in the blob's place without waiting for itself."""
    after = all_waiting_for(net, [op.name])
    made = [one for maker in net.ops if maker.name not in after for one in maker.outputs]
    known = dict.fromkeys((*net.inputs, *made))
    return [one for one in known if alike(net.blobs[one], net.blobs[blob])]


def rewired(net: Net, old: str, new: str, besides: Sequence[str] = ()) -> Net:
    """Whoever reads ``old`` reads ``new``, but the ops ``besides``."""

    def swap(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(new if name == old else name for name in names)

    ops = tuple(
        op if op.name in besides or old not in op.inputs else op.replace(inputs=swap(op.inputs))
        for op in net.ops
    )
    return net.replace(ops=ops, outputs=swap(net.outputs))


def without(net: Net, gone: Op) -> Net:
    """The Net without an op; nobody waits for it any more."""
    ops = tuple(
        op.replace(controls=tuple(one for one in op.controls if one != gone.name))
        if gone.name in op.controls
        else op
        for op in net.ops
        if op.name != gone.name
    )
    waited = tuple(name for name in net.control_outputs if name != gone.name)
    return net.replace(ops=ops, control_outputs=waited)


def with_copy(net: Net, op: Op, name: str, inputs: tuple[str, ...] | None = None) -> Net:
    """The Net with a second op like one of it, right behind it."""
    outputs = tuple(f"{name}:{place}" for place in range(len(op.outputs)))
    copy = op.replace(name=name, outputs=outputs, inputs=op.inputs if inputs is None else inputs)
    place = net.ops.index(op) + 1
    blobs = {
        one: dataclasses.replace(net.blobs[old], name=one)
        for one, old in zip(outputs, op.outputs, strict=True)
    }
    ops = (*net.ops[:place], copy, *net.ops[place:])
    return net.replace(ops=ops, blobs={**net.blobs, **blobs})


def constant_in(dice: Dice, net: Net, value, dtype: str, name: str) -> tuple[Net, str]:
    """The Net with one more constant in front, and the constant's blob."""
    held = {"value": dice.constant(value, dtype), "dtype": DType(dtype)}
    op = Op(name, "Const", (), (f"{name}:0",), held)
    blobs = {**net.blobs, op.outputs[0]: Blob(op.outputs[0], dtype, ())}
    return net.replace(ops=(op, *net.ops), blobs=blobs), op.outputs[0]


def swapped(names: tuple[str, ...], one: int, other: int) -> tuple[str, ...]:
    found = list(names)
    found[one], found[other] = found[other], found[one]
    return tuple(found)


def pairs_alike(net: Net, names: Sequence[str]) -> list[tuple[int, int]]:
    """Places of two names of blobs that are alike, and not the same."""
    blobs = [net.blobs[name] for name in names]
    return [
        (one, other)
        for one in range(len(names))
        for other in range(one + 1, len(names))
        if alike(blobs[one], blobs[other])
    ]


# --- lists


def push_dropped(dice: Dice, net: Net) -> Net | None:
    op = dice.op(of_type(net, PUSH))
    return op and without(rewired(net, op.outputs[0], op.inputs[0]), op)


def push_doubled(dice: Dice, net: Net) -> Net | None:
    op = dice.op(of_type(net, PUSH))
    if op is None:
        return None
    name = f"{op.name}_twice"
    net = with_copy(net, op, name, (op.outputs[0], *op.inputs[1:]))
    return rewired(net, op.outputs[0], f"{name}:0", besides=[name])


def push_of_another(dice: Dice, net: Net) -> Net | None:
    return _read_another(dice, net, of_type(net, PUSH), slot=1)


def list_of_another_name(dice: Dice, net: Net) -> Net | None:
    lists = [op for op in net.ops if op.type.startswith("TensorList") and op.inputs]
    return _read_another(dice, net, lists, slot=0)


def pops_swapped(dice: Dice, net: Net) -> Net | None:
    one = dice.op(of_type(net, POP))
    other = one and dice.op(
        [
            op
            for op in of_type(net, POP)
            if alike(net.blobs[op.outputs[1]], net.blobs[one.outputs[1]])
        ]
    )
    if not other:
        return None
    first, second = one.outputs[1], other.outputs[1]
    return rewired(rewired(rewired(net, first, "?"), second, first), "?", second)


def pop_dropped(dice: Dice, net: Net) -> Net | None:
    op = dice.op(of_type(net, POP))
    return op and rewired(net, op.outputs[0], op.inputs[0], besides=[op.name])


def pop_doubled(dice: Dice, net: Net) -> Net | None:
    op = dice.op(of_type(net, POP))
    if op is None:
        return None
    name = f"{op.name}_twice"
    net = with_copy(net, op, name, (op.outputs[0], *op.inputs[1:]))
    return rewired(net, op.outputs[dice.one_of([0, 1])], f"{name}:0", besides=[name])


def pop_of_next_element(dice: Dice, net: Net) -> Net | None:
    """Every pop comes an iteration too late: its element is that of a second pop."""
    op = dice.op(of_type(net, POP))
    if op is None:
        return None
    name = f"{op.name}_late"
    net = with_copy(net, op, name, (op.outputs[0], *op.inputs[1:]))
    return rewired(net, op.outputs[1], f"{name}:1", besides=[name])


def list_not_empty(dice: Dice, net: Net) -> Net | None:
    """What begins with an empty list begins with one that holds something."""
    op = dice.op(of_type(net, "EmptyTensorList"))
    if op is None:
        return None
    after, element = all_waiting_for(net, [op.name]), op.attributes["element_dtype"]
    held = [one for maker in net.ops if maker.name not in after for one in maker.outputs]
    fits = [one for one in (*net.inputs, *held) if net.blobs[one].dtype == element.name]
    if not fits:
        return None
    name = f"{op.name}_filled"
    inputs, output = (op.outputs[0], dice.one_of(fits)), f"{name}:0"
    push = Op(name, PUSH, inputs, (output,), {"element_dtype": element}, device=op.device)
    blobs = {**net.blobs, output: dataclasses.replace(net.blobs[op.outputs[0]], name=output)}
    net = net.replace(ops=(*net.ops, push), blobs=blobs)
    return _sorted(rewired(net, op.outputs[0], output, besides=[name]))


def index_shifted(dice: Dice, net: Net) -> Net | None:
    """An item of the slot beside it."""
    return _shifted(dice, net, [(op, 1) for op in of_type(net, *INDEXED)])


# --- values


def input_of_another(dice: Dice, net: Net) -> Net | None:
    return _read_another(dice, net, [op for op in net.ops if op.inputs])


def state_read_too_early(dice: Dice, net: Net) -> Net | None:
    """Who reads what a state becomes reads what it was."""
    found = [
        (reader, blob, before)
        for before, blob in _states(net)
        for reader in net.readers.get(blob, ())
        if reader.type not in HIDES
    ]
    if not found:
        return None
    reader, blob, before = dice.one_of(found)
    return with_input(net, reader.name, reader.inputs.index(blob), before)


def state_read_too_late(dice: Dice, net: Net) -> Net | None:
    """Who reads a state reads what it becomes."""
    found = [
        (reader, blob, after)
        for blob, after in _states(net)
        for reader in net.readers.get(blob, ())
        if after in others(net, reader, blob)
    ]
    if not found:
        return None
    reader, blob, after = dice.one_of(found)
    return _sorted(with_input(net, reader.name, reader.inputs.index(blob), after))


def state_kept(dice: Dice, net: Net) -> Net | None:
    """A state that stays what it was."""
    places = _carried(net)
    if not places:
        return None
    place = dice.one_of(places)
    outputs = list(net.outputs)
    outputs[place] = net.inputs[place]
    return net.replace(outputs=tuple(outputs))


def results_swapped(dice: Dice, net: Net) -> Net | None:
    pairs = pairs_alike(net, net.outputs)
    return net.replace(outputs=swapped(net.outputs, *dice.one_of(pairs))) if pairs else None


def operands_swapped(dice: Dice, net: Net) -> Net | None:
    ops = [op for op in net.ops if not op.nets and op.type not in COMMUTE]
    op = dice.op([op for op in ops if pairs_alike(net, op.inputs)])
    return op and with_op(
        net, op.name, inputs=swapped(op.inputs, *dice.one_of(pairs_alike(net, op.inputs)))
    )


def operands_commuted(dice: Dice, net: Net) -> Net | None:
    op = dice.op([op for op in of_type(net, *COMMUTE) if op.inputs[0] != op.inputs[1]])
    return op and with_op(net, op.name, inputs=op.inputs[::-1])


def sum_reordered(dice: Dice, net: Net) -> Net | None:
    """Addends of a sum in another order."""
    op = dice.op([op for op in of_type(net, "AddN") if len(set(op.inputs)) > 1])
    if op is None:
        return None
    inputs = list(op.inputs)
    dice.random.shuffle(inputs)
    return with_op(net, op.name, inputs=tuple(inputs))


def sum_regrouped(dice: Dice, net: Net) -> Net | None:
    """(a + b) + c becomes (a + c) + b."""
    found = [
        (op, slot, net.producer[blob])
        for op in net.ops
        if op.type in ADDS
        for slot, blob in enumerate(op.inputs)
        if blob in net.producer and net.producer[blob].type in ADDS and net.fan_out(blob) == 1
        if alike(net.blobs[op.inputs[1 - slot]], net.blobs[net.producer[blob].inputs[1]])
    ]
    if not found:
        return None
    op, slot, inner = dice.one_of(found)
    c, b = op.inputs[1 - slot], inner.inputs[1]
    if c not in others(net, inner, b):
        return None
    net = with_input(net, op.name, 1 - slot, b)
    return _sorted(with_input(net, inner.name, 1, c))


def type_changed(dice: Dice, net: Net) -> Net | None:
    op = dice.op([op for op in net.ops for types in OTHER_TYPES if op.type in types])
    if op is None:
        return None
    (types,) = [types for types in OTHER_TYPES if op.type in types]
    types = [one for one in types if one != op.type]
    return with_op(net, op.name, type=dice.one_of(types))


def constant_changed(dice: Dice, net: Net) -> Net | None:
    op = dice.op([op for op in of_type(net, "Const") if op.attributes["value"].value is not None])
    if op is None:
        return None
    held = op.attributes["value"]
    if isinstance(held.value, bool):
        value = not held.value
    elif isinstance(held.value, tuple):
        if not held.value:
            return None
        place = dice.random.randrange(len(held.value))
        value = list(held.value)
        value[place] += dice.one_of([-1, 1])
        value = tuple(value)
    elif isinstance(held.value, int):
        value = held.value + dice.one_of([-1, 1])
        if value < 0 and held.dtype.startswith("u"):
            value = 1
    else:
        value = held.value + dice.one_of([-1.0, 0.5, 1.0])
    attributes = {**op.attributes, "value": dice.constant(value, held.dtype)}
    return with_op(net, op.name, attributes=attributes)


def attribute_changed(dice: Dice, net: Net) -> Net | None:
    found = [
        (op, name)
        for op in net.ops
        for name, value in op.attributes.items()
        if isinstance(value, bool) and not name.startswith("_")
    ]
    if not found:
        return None
    op, name = dice.one_of(found)
    return with_op(net, op.name, attributes={**op.attributes, name: not op.attributes[name]})


def number_shifted(dice: Dice, net: Net) -> Net | None:
    """One reader of a whole number, a count, a length or a place, sees one more or less."""
    return _shifted(
        dice,
        net,
        [
            (op, slot)
            for op in net.ops
            for slot, blob in enumerate(op.inputs)
            if net.blobs[blob].dtype in ("int32", "int64") and net.blobs[blob].shape in ((), None)
        ],
    )


def op_bypassed(dice: Dice, net: Net) -> Net | None:
    ops = [op for op in net.ops if op.inputs and len(op.outputs) == 1]
    op = dice.op([op for op in ops if alike(net.blobs[op.inputs[0]], net.blobs[op.outputs[0]])])
    return op and without(rewired(net, op.outputs[0], op.inputs[0]), op)


def device_changed(dice: Dice, net: Net) -> Net | None:
    op = dice.op([op for op in net.ops if not op.nets and op.type not in ("Const", "NoOp")])
    return op and with_op(net, op.name, device="/job:localhost/replica:0/task:0/device:CPU:0")


# --- loops and branches


def start_of_another(dice: Dice, net: Net) -> Net | None:
    return _read_another(dice, net, [op for op in net.ops if op.type in LOOPS])


def starts_swapped(dice: Dice, net: Net) -> Net | None:
    ops = [op for op in net.ops if op.type in LOOPS and pairs_alike(net, op.inputs)]
    op = dice.op(ops)
    return op and with_op(
        net, op.name, inputs=swapped(op.inputs, *dice.one_of(pairs_alike(net, op.inputs)))
    )


def results_of_loop_swapped(dice: Dice, net: Net) -> Net | None:
    op = dice.op([op for op in net.ops if op.nets and pairs_alike(net, op.outputs)])
    if op is None:
        return None
    one, other = dice.one_of(pairs_alike(net, op.outputs))
    return with_op(net, op.name, outputs=swapped(op.outputs, one, other))


def counter_started_beside(dice: Dice, net: Net) -> Net | None:
    """A counter of a loop that starts one further on, or one too early."""
    return _shifted(
        dice,
        net,
        [
            (op, slot)
            for op in net.ops
            if op.type in LOOPS
            for slot, blob in enumerate(op.inputs)
            if net.blobs[blob].dtype in ("int32", "int64") and net.blobs[blob].shape in ((), None)
        ],
    )


def one_trip_more_or_less(dice: Dice, net: Net) -> Net | None:
    """``<`` is ``<=`` where a loop ends, or its limit is one off: a chunk or segment is missed."""
    op = dice.op([op for op in net.ops if op.type in LOOPS])
    if op is None:
        return None
    cond = op.nets["cond"]
    compares = of_type(cond, "Less", "LessEqual", "Greater", "GreaterEqual")
    if not compares:
        return None
    compare = dice.one_of(compares)
    if dice.random.random() < 0.5:
        other = {"Less": "LessEqual", "Greater": "GreaterEqual"}
        other |= {new: old for old, new in other.items()}
        changed = with_op(cond, compare.name, type=other[compare.type])
    else:
        changed = _shifted(dice, cond, [(compare, dice.one_of([0, 1]))])
    return changed and with_op(net, op.name, nets={**op.nets, "cond": changed})


def branches_exchanged(dice: Dice, net: Net) -> Net | None:
    op = dice.op([op for op in net.ops if op.type in BRANCHES and len(op.nets) > 1])
    if op is None:
        return None
    one, other = dice.random.sample(sorted(op.nets), 2)
    return with_op(net, op.name, nets={**op.nets, one: op.nets[other], other: op.nets[one]})


def predicate_of_another(dice: Dice, net: Net) -> Net | None:
    return _read_another(dice, net, [op for op in net.ops if op.type in BRANCHES], slot=0)


def parallel_iterations_changed(dice: Dice, net: Net) -> Net | None:
    op = dice.op([op for op in net.ops if "parallel_iterations" in op.attributes])
    if op is None:
        return None
    other = 10 if op.attributes["parallel_iterations"] == 1 else 1
    return with_op(net, op.name, attributes={**op.attributes, "parallel_iterations": other})


# --- order and effects


def edge_lost(dice: Dice, net: Net) -> Net | None:
    op = dice.op([op for op in net.ops if op.controls])
    if op is None:
        return None
    gone = dice.one_of(op.controls)
    return with_op(net, op.name, controls=tuple(one for one in op.controls if one != gone))


def edge_reversed(dice: Dice, net: Net) -> Net | None:
    op = dice.op([op for op in net.ops if op.controls])
    if op is None:
        return None
    first = dice.one_of(op.controls)
    net = with_op(net, op.name, controls=tuple(one for one in op.controls if one != first))
    if first in all_needed_by(net, [op.name]):
        return None  # it waits in another way, too
    return _sorted(with_op(net, first, controls=(*net.op_by_name[first].controls, op.name)))


def edge_added(dice: Dice, net: Net) -> Net | None:
    op = dice.op(net.ops)
    after = op and all_waiting_for(net, [op.name])
    before = [one.name for one in net.ops if op and one.name not in after]
    if not before:
        return None
    return _sorted(with_op(net, op.name, controls=(*op.controls, dice.one_of(before))))


def control_output_lost(dice: Dice, net: Net) -> Net | None:
    if not net.control_outputs:
        return None
    gone = dice.one_of(net.control_outputs)
    return net.replace(control_outputs=tuple(one for one in net.control_outputs if one != gone))


def edges_around_effect_lost(dice: Dice, net: Net) -> Net | None:
    effects = _effects(net)
    op = dice.op(
        [op for op in effects if op.controls or any(op.name in one.controls for one in net.ops)]
    )
    if op is None:
        return None
    ops = tuple(
        one.replace(controls=tuple(name for name in one.controls if name != op.name))
        for one in (each.replace(controls=()) if each.name == op.name else each for each in net.ops)
    )
    return net.replace(ops=ops)


def effect_doubled(dice: Dice, net: Net) -> Net | None:
    op = dice.op(_effects(net))
    if op is None:
        return None
    name = f"{op.name}_twice"
    net = with_copy(net, op, name)
    read = [blob for blob in op.outputs if net.fan_out(blob)]
    if read and dice.random.random() < 0.5:
        blob = dice.one_of(read)
        return rewired(net, blob, f"{name}:{op.outputs.index(blob)}")
    return net.replace(control_outputs=(*net.control_outputs, name))


def effect_lost(dice: Dice, net: Net) -> Net | None:
    op = dice.op([op for op in _effects(net) if not any(map(net.fan_out, op.outputs))])
    return op and without(net, op)


def effect_of_another(dice: Dice, net: Net) -> Net | None:
    return _read_another(dice, net, _effects(net))


def read_of_another_variable(dice: Dice, net: Net) -> Net | None:
    reads = of_type(net, "ReadVariableOp", "ResourceGather")
    return _read_another(dice, net, reads, slot=0)


def read_moved(dice: Dice, net: Net) -> Net | None:
    """A read of a variable behind an op that may write it, or no longer so."""
    read = dice.op(of_type(net, "ReadVariableOp", "ResourceGather"))
    writers = [op.name for op in net.ops if acts(op) or (op.nets and not is_pure(op))]
    if read is None or not writers:
        return None
    if read.controls and dice.random.random() < 0.5:
        return with_op(net, read.name, controls=())
    writer = dice.one_of(writers)
    if writer in all_waiting_for(net, [read.name]):
        waits = net.op_by_name[writer]
        rest = tuple(one for one in waits.controls if one != read.name)
        if rest == waits.controls:
            return None
        net = with_op(net, writer, controls=rest)
        if writer in all_waiting_for(net, [read.name]):
            return None
    return _sorted(with_op(net, read.name, controls=(*read.controls, writer)))


# --- what the rewriter says of what it wrote


def wrong_rename_map(dice: Dice, net: Net) -> Net | None:
    op = dice.op([op for op in net.ops if len(_claims(op)) > 0])
    if op is None:
        return None
    claims = list(residuals_of(op))
    place = dice.random.randrange(len(claims))
    if dice.random.random() < 0.2:
        del claims[place]
    else:
        field = dice.one_of(["blob", "becomes", "pushed", "popped"])
        known = sorted({getattr(one, field) for one in claims} | {""})
        claims[place] = dataclasses.replace(claims[place], **{field: dice.one_of(known)})
    return with_op(net, op.name, attributes={**op.attributes, **rename_map(claims)})


def mark_changed(dice: Dice, net: Net) -> Net | None:
    """A number that we put on an op is one off, or a word another, or the mark is gone."""
    found = [(op, name) for op in net.ops for name in op.attributes if _is_mark(name)]
    if not found:
        return None
    op, name = dice.one_of(found)
    attributes = dict(op.attributes)
    value = attributes.pop(name)
    if dice.random.random() < 0.75:
        known = [one.attributes[name] for one in net.ops if name in one.attributes]
        other = [one for one in known if one != value]
        if isinstance(value, int) and not isinstance(value, bool):
            other = [value - 1, value + 1]
        attributes[name] = dice.one_of(other or [value])
    return with_op(net, op.name, attributes=attributes)


def mark_added(dice: Dice, net: Net) -> Net | None:
    """An op that says of itself what it is not."""
    marked = [(op, name) for op in net.ops for name in op.attributes if _is_mark(name)]
    target = dice.op(net.ops)
    if not marked or target is None:
        return None
    op, name = dice.one_of(marked)
    attributes = {**target.attributes, name: op.attributes[name]}
    return with_op(net, target.name, attributes=attributes)


def proven_in_place(dice: Dice, net: Net) -> Net | None:
    """A loop or branch that claims that its step nets can be proven alone."""
    op = dice.op([op for op in net.ops if op.type in (*LOOPS, *BRANCHES)])
    if op is None:
        return None
    attributes = {name: value for name, value in op.attributes.items() if name != IN_PLACE}
    if len(attributes) == len(op.attributes):
        attributes[IN_PLACE] = True
    return with_op(net, op.name, attributes=attributes)


def decoded_as_another(dice: Dice, net: Net) -> Net | None:
    """What was encoded is decoded in the form of another, or is another."""
    decoding = [op for op in net.ops if DECODES in op.attributes]
    op = dice.op(decoding)
    if op is None:
        return None
    return _read_another(dice, net, [op]) or with_op(
        net, op.name, attributes={**op.attributes, DECODES: b"bfloat16"}
    )


def encoding_of_another(dice: Dice, net: Net) -> Net | None:
    return _read_another(dice, net, [op for op in net.ops if ENCODES in op.attributes])


# --- what keeps TensorFlow's graph optimizer from changing bits


def barrier_dropped(dice: Dice, net: Net) -> Net | None:
    ops = [op for op in of_type(net, *HIDES) if op.inputs and len(op.outputs) == 1]
    op = dice.op(ops)
    if op is None:
        return None
    if op.type == "OptionalGetValue":
        held = net.producer.get(op.inputs[0])
        if held is None or held.type != "OptionalFromValue":
            return None
        return without(rewired(net, op.outputs[0], held.inputs[0]), op)
    if op.type == "OptionalFromValue":
        return None
    return without(rewired(net, op.outputs[0], op.inputs[0]), op)


def keepalive_dropped(dice: Dice, net: Net) -> Net | None:
    """A push that is popped at once; or an op that nobody reads, where somebody waits for it."""
    for op in dice.random.sample(net.ops, len(net.ops)):
        readers = net.readers.get(op.outputs[0], ()) if op.type == PUSH else ()
        if len(readers) == 1 and readers[0].type == POP:
            (pop,) = readers
            if not net.fan_out(pop.outputs[1]):
                return without(without(rewired(net, pop.outputs[0], op.inputs[0]), pop), op)
        unread = not any(map(net.fan_out, op.outputs)) and not acts(op) and not op.nets
        if unread and op.name not in net.control_outputs:
            return without(net, op)
    return None


Mutation = Callable[[Dice, Net], Net | None]
MUTATIONS: tuple[Mutation, ...] = (
    push_dropped,
    push_doubled,
    push_of_another,
    list_of_another_name,
    pops_swapped,
    pop_dropped,
    pop_doubled,
    pop_of_next_element,
    list_not_empty,
    index_shifted,
    input_of_another,
    state_read_too_early,
    state_read_too_late,
    state_kept,
    results_swapped,
    operands_swapped,
    operands_commuted,
    sum_reordered,
    sum_regrouped,
    type_changed,
    constant_changed,
    attribute_changed,
    number_shifted,
    op_bypassed,
    device_changed,
    start_of_another,
    starts_swapped,
    results_of_loop_swapped,
    counter_started_beside,
    one_trip_more_or_less,
    branches_exchanged,
    predicate_of_another,
    parallel_iterations_changed,
    edge_lost,
    edge_reversed,
    edge_added,
    control_output_lost,
    edges_around_effect_lost,
    effect_doubled,
    effect_lost,
    effect_of_another,
    read_of_another_variable,
    read_moved,
    wrong_rename_map,
    mark_changed,
    mark_added,
    proven_in_place,
    decoded_as_another,
    encoding_of_another,
    barrier_dropped,
    keepalive_dropped,
)


def _read_another(dice: Dice, net: Net, ops: Sequence[Op], slot: int | None = None) -> Net | None:
    """One of the ops reads another blob, at the slot or anywhere."""
    op = dice.op(ops)
    if op is None or not op.inputs:
        return None
    place = dice.random.randrange(len(op.inputs)) if slot is None else slot
    found = others(net, op, op.inputs[place])
    return _sorted(with_input(net, op.name, place, dice.one_of(found))) if found else None


def _shifted(dice: Dice, net: Net, found: Sequence[tuple[Op, int]]) -> Net | None:
    """At one of the inputs, a whole number is one more or one less."""
    if not found:
        return None
    op, slot = dice.one_of(found)
    blob = net.blobs[op.inputs[slot]]
    if blob.dtype not in ("int32", "int64"):
        return None
    net, one = constant_in(dice, net, dice.one_of([1, -1]), blob.dtype, f"{op.name}_beside")
    name = f"{op.name}_shifted"
    dtype = {"T": DType(blob.dtype)}
    add = Op(name, "AddV2", (blob.name, one), (f"{name}:0",), dtype, device=op.device)
    blobs = {**net.blobs, add.outputs[0]: dataclasses.replace(blob, name=add.outputs[0])}
    net = net.replace(ops=(*net.ops, add), blobs=blobs)
    return _sorted(with_input(net, op.name, slot, add.outputs[0]))


def _carried(net: Net) -> list[int]:
    """Places at which a step net has an input and an output alike: its states, if it is a body."""
    both = zip(net.inputs, net.outputs, strict=False)
    found = [place for place, pair in enumerate(both) if _are_alike(net, *pair)]
    return found if len(net.inputs) == len(net.outputs) else []


def _states(net: Net) -> list[tuple[str, str]]:
    """What each state is, and what it becomes."""
    return [
        (net.inputs[place], through_identities(net, net.outputs[place])) for place in _carried(net)
    ]


def _are_alike(net: Net, one: str, other: str) -> bool:
    return alike(net.blobs[one], net.blobs[other])


def _effects(net: Net) -> list[Op]:
    return [op for op in net.ops if not op.nets and not is_pure(op)]


def _all_before(net: Net, name: str) -> set[str]:
    return {op.name for op in net.ops if name in all_waiting_for(net, [op.name])} - {name}


def _claims(op: Op) -> tuple:
    return residuals_of(op) if RENAME_MAP in op.attributes else ()


def _is_mark(name: str) -> bool:
    return name.startswith("_rnnmem") and name != RENAME_MAP


def _sorted(net: Net) -> Net:
    return net.replace(ops=topological(net.ops))


# --- making and judging them


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One mutant: its number, of what it was made, and how.

    Attributes:
      number: from which it is made again.
      source: the rewritten Net that it is a mutant of, and its original.
      kinds: names of the mutations, one or two.
      paths: where they were made.
      net: the mutant.
    """

    number: int
    source: object
    kinds: tuple[str, ...]
    paths: tuple[Path, ...]
    net: Net

    def __str__(self) -> str:
        """Where it is, and the lines that differ."""
        lines = difflib.unified_diff(
            str(self.source.rewritten).splitlines(), str(self.net).splitlines(), lineterm="", n=0
        )
        where = ", ".join("/".join(path) or "top" for path in self.paths)
        changes = [line for line in lines if not line.startswith(("@@", "---", "+++"))]
        title = f"mutant {self.number} of {self.source.name}: {' and '.join(self.kinds)} in {where}"
        return "\n  ".join([title, *(line[:240] for line in changes[:16])])


def mutants(sources: Sequence, count: int, seed: int, first: int = 0) -> Iterator[Mutant]:
    """Mutants with the numbers from ``first`` on, each kind in turn, and no two the same.

    Every tenth has two faults. There are fewer where a kind fits none of the sources.
    """
    seen = set()
    for number in range(first, first + count):
        found = mutant(sources, number, seed)
        text = found and (found.source.name, str(found.net))
        if found is not None and text not in seen:
            seen.add(text)
            yield found


def mutant(sources: Sequence, number: int, seed: int) -> Mutant | None:
    """The mutant of that number; None where its kind fits none of the sources that were tried."""
    tries = random.Random(f"{seed} {number}")
    mutation = MUTATIONS[number % len(MUTATIONS)]
    for attempt in range(MOST_TRIES):
        source = tries.choice(sources)
        dice = Dice(f"{seed} {number} {attempt}", source.made, source.constant)
        once = _mutated(dice, source.rewritten, mutation)
        if once is None:
            continue
        kinds, paths, net = (mutation.__name__,), (once[0],), once[1]
        if dice.random.random() < 0.1:
            more = dice.one_of(MUTATIONS)
            twice = _mutated(dice, net, more)
            if twice is not None:
                kinds, paths, net = (*kinds, more.__name__), (*paths, twice[0]), twice[1]
        return Mutant(number, source, kinds, paths, net)
    return None


def _mutated(dice: Dice, net: Net, mutation: Mutation) -> tuple[Path, Net] | None:
    """A place where the mutation fits, and the Net with it there."""
    places = list(net.walk())
    dice.random.shuffle(places)
    for path, inner in places:
        try:
            changed = mutation(dice, inner)
        except NetError:
            continue  # it would read in a circle
        if changed is not None and changed != inner:
            return path, edited(net, path, lambda _, changed=changed: changed)
    return None


REFUSED, HARMLESS, STOPS, FUSED, ESCAPED = "refused", "harmless", "stops", "fused", "escaped"
VERDICTS = (REFUSED, HARMLESS, STOPS, FUSED, ESCAPED)


def judged(one: Mutant) -> str:
    """What became of a mutant.

    ``refused``: by the verifier. Let through: ``harmless``, the same results; ``stops``, an error
    of TensorFlow's instead of a result; ``fused``, other bits at TensorFlow's default, and the same
    without its fusions, of which the verifier says nothing; ``escaped``, other results.
    """
    source = one.source
    try:
        check(source.original, one.net, chunks=source.chunks, roundings=source.roundings)
    except CheckError:
        return REFUSED
    return source.compared(one.net)


def table(counts: dict[str, collections.Counter]) -> str:
    """Kind x made, refused, and what became of those let through."""
    width = max(map(len, counts))
    head = f"{'kind':{width}}  {'made':>6}" + "".join(f"{one:>10}" for one in VERDICTS)
    rows = [
        f"{kind:{width}}  {sum(found.values()):6}" + "".join(f"{found[one]:10}" for one in VERDICTS)
        for kind, found in counts.items()
    ]
    return "\n".join([head, *rows])


def main(arguments: list[str]) -> int:
    """Prints the table, and every mutant that escaped; how many did."""
    from tests.verify.mutant_sources import SOURCES  # it traces and plans

    parser = argparse.ArgumentParser(prog="python -m tests.verify.mutants")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the first number")
    parser.add_argument("--seconds", type=float, default=math.inf, help="no more after so long")
    parser.add_argument("--sources", choices=SOURCES, default="all")
    parser.add_argument("--show", action="store_true", help="print each that is let through")
    chosen = parser.parse_args(arguments)
    sources = SOURCES[chosen.sources]()
    counts = {mutation.__name__: collections.Counter() for mutation in MUTATIONS}
    by_source = {source.name: collections.Counter() for source in sources}
    began = time.perf_counter()
    for one in mutants(sources, chosen.count, chosen.seed, chosen.first):
        if time.perf_counter() - began > chosen.seconds:
            print(f"stopped at number {one.number}")
            break
        verdict = judged(one)
        counts[one.kinds[0]][verdict] += 1
        by_source[one.source.name][verdict] += 1
        if verdict in (ESCAPED, STOPS, FUSED) or (chosen.show and verdict == HARMLESS):
            print(f"{verdict.upper()} {one}", flush=True)
    counts["all"] = sum(counts.values(), collections.Counter())
    print(table(counts))
    print(table(by_source))
    print(f"seed {chosen.seed}: {time.perf_counter() - began:.0f} s")
    return counts["all"][ESCAPED]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) > 0)

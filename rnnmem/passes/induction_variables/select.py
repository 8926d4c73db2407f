"""Which saved whole numbers a gradient loop has by itself, without a list.

TensorFlow saves loop counters, shapes and lengths of lists as it saves everything: pushed to a list
of the device in each iteration, popped in the gradient loop. On an accelerator whole numbers of 32
bits are the host's, so each push copies to the device, and for each pop the host waits until the
device has come so far: nothing is enqueued ahead. But a number that grows by a constant can be
counted down from where it ended (an induction variable: Aho et al., "Compilers", 9.1), one that
never changes is known, and what is computed from such numbers can be computed again:

    forward step net     i ─► PushBack                     i + c
    gradient step net    PopBack ─► i          becomes     j (begins as final i - c) ─► j - c
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rnnmem.analysis.facts import UNKNOWN, Fact
from rnnmem.analysis.loops import Loop, LoopPair
from rnnmem.analysis.shapes import KnownNet, known_net
from rnnmem.ir.builders import INT
from rnnmem.ir.devices import ACCELERATOR, HOST, kind_of
from rnnmem.ir.graph import Net, Op
from rnnmem.ir.joint import is_joint
from rnnmem.ir.op_table import types
from rnnmem.ir.order import constant_value, through_identities
from rnnmem.passes.decision import Offer, Site
from rnnmem.passes.induction_variables.decision import InductionVariable

Decided = Callable[[str], tuple[Any, ...]]
MOST = 8
"""Numbers of a vector, as a shape has them; more are data."""
GROWS = {**dict.fromkeys(types("whole", "add"), 1), **dict.fromkeys(types("whole", "sub"), -1)}
"""Op type by which a variable grows -> the sign of what it adds."""
COMPUTES = types("whole", "add", "sub", "mul") | {"Pack"}
"""Op types that are computed again."""
OF_LISTS = types("list", "length", "shape")
"""Op types that are the same in every iteration where their list is."""


def offer(site: Site) -> Offer:
    """What loops that are rewritten bring along, where there is an accelerator."""
    on_device = site.device == ACCELERATOR

    def decide(opened: Sequence[LoopPair], decided: Decided) -> tuple[InductionVariable, ...]:
        saved = {one.path: one.saved for one in decided("rematerialise")}
        return induction_variables(site.net, opened, saved) if on_device else ()

    return Offer(decide)


def induction_variables(
    net: Net, pairs: Iterable[LoopPair], saved: Mapping[tuple[str, ...], Collection[str]]
) -> tuple[InductionVariable, ...]:
    """The saved whole numbers that the gradient loops of the pairs can have by themselves.

    Args:
      net: the Net around the loops.
      pairs: the loop pairs that are rewritten.
      saved: path of a pair -> blobs that are to be saved; of one that is missing, those that are.
    """
    if is_joint(net):  # its gradient is a function of its own, which has none of its loops' results
        return ()
    known = known_net(net)
    found: list[InductionVariable] = []
    for pair in pairs:
        inside = known.inner.get((pair.forward.op.name, "body"))
        on_host = kind_of(pair.forward.op.device) == kind_of(HOST)
        if len(pair.path) == 1 and inside is not None and not on_host:
            pushed = {link.pushed for one in pair.gradients for link in one.links}
            found += _of_pair(pair.forward, saved.get(pair.path, pushed), inside)
    return tuple(found)


def _of_pair(forward: Loop, saved: Collection[str], known: KnownNet) -> Iterator[InductionVariable]:
    """The whole numbers of one pair; ``known`` is the body of its forward loop."""
    for blob in sorted(saved):
        kind = forward.body.blobs[blob]
        if kind.dtype != INT or kind.shape is None or len(kind.shape) > 1:
            continue
        numbers = _always(known.facts.get(blob, UNKNOWN), kind.shape)
        if numbers or follows(forward, blob):
            yield InductionVariable(forward.op.name, blob, numbers)


def _always(fact: Fact, shape: tuple[int | None, ...]) -> tuple[int, ...]:
    """The number, or a few of them in a vector, that a blob always is; none where not known."""
    value = fact.value if shape else (fact.value,)
    held = value if isinstance(value, tuple) and len(value) <= MOST else ()
    numbers = tuple(one for one in held if type(one) is int)
    return numbers if len(numbers) == len(held) else ()


def follows(forward: Loop, blob: str) -> bool:
    """Whether a blob of the body follows from loop counters, or from a list that stays the same."""
    body = forward.body
    blob = through_identities(body, blob)
    op = body.producer.get(blob)
    if body.blobs[blob].dtype != INT:
        return False
    if op is None:
        return blob in forward.invariants or grows_by(forward, blob) is not None
    if op.type in OF_LISTS:
        return through_identities(body, op.inputs[0]) in forward.invariants
    if op.type == "Const":
        return constant_value(body, blob) is not None
    return op.type in COMPUTES and all(follows(forward, one) for one in op.inputs)


def grows_by(forward: Loop, argument: str) -> tuple[Op, str] | None:
    """The op by which a variable of the loop grows, and the blob that it adds: one that stays.

    Args:
      forward: the loop.
      argument: of its body.

    Returns:
      None where anything else is done to the variable.
    """
    body = forward.body
    index = body.inputs.index(argument)
    op = body.producer.get(through_identities(body, body.outputs[index]))
    if op is None or op.type not in GROWS:
        return None
    first, second = (through_identities(body, one) for one in op.inputs)
    if op.type != "Sub" and second == argument:
        first, second = second, first
    stays = second in forward.invariants or type(constant_value(body, second)) is int
    return (op, second) if first == argument and stays else None

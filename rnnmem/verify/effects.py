"""Ops whose running is itself an effect: each stands in one place, once, and keeps its turn.

An effect is known by its place (the effects around it, outermost first), its type, attributes and
device, and its number among those that agree in all of that. Within such a group the op's name
decides, where both Nets have it, else the order in which they stand; what the effect reads is
compared afterwards, so a wrong guess can only refuse.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from rnnmem.ir.graph import Net, Op
from rnnmem.ir.op_table import LOOPS, is_pure
from rnnmem.ir.order import all_needed_by, order_shows
from rnnmem.verify.errors import refused
from rnnmem.verify.lowering.encode import DECODED, ENCODED
from rnnmem.verify.lowering.replay import SAME
from rnnmem.verify.order import RunningOrder
from rnnmem.verify.signatures import Signs, exact

GUARDS = frozenset({"EnsureShape"})
"""Types that fail or hand their input on: more of them change no value and order nothing."""

_OURS = frozenset({SAME, ENCODED, DECODED})
"""Types that only the verifier writes."""

Place = tuple[int, str]
"""The effect that runs a Net, and as which of its step nets."""

TOP: Place = (-1, "")


@dataclasses.dataclass(frozen=True, slots=True)
class Standing:
    """The effects of one Net at one place: op name -> the effect's number."""

    net: Net
    effects: Mapping[str, int]


class Effects:
    """The effects of one Net and all its step nets, numbered like those of an earlier one."""

    def __init__(self, order: RunningOrder, signs: Signs, earlier: Effects | None = None):
        """Without an earlier one, these effects are the ones that others are compared with."""
        self.order, self._signs = order, signs
        self._earlier = earlier
        self._numbers: dict[tuple, int] = {} if earlier is None else earlier._numbers
        self._known = 0 if earlier is None else len(self._numbers)
        self._groups: dict[tuple, list[str]] = {}
        self._has: dict[int, tuple[Net, bool]] = {}  # with the Net, so that its id stays its own
        self.places: dict[Place, Standing] = {}

    def is_effect(self, op: Op) -> bool:
        """Whether the op, or one that it runs, may not be run twice or left out."""
        if op.nets:
            return any(self.has_effects(net) for net in op.nets.values())
        return op.type not in GUARDS and op.type not in _OURS and not is_pure(op)

    def identify(self, net: Net, place: Place) -> Mapping[str, int]:
        """Op name -> number of the effect, for every effect that stands directly in ``net``."""
        grouped: dict[tuple, list[str]] = {}
        for op in net.ops:
            if self.is_effect(op):
                sign = _sign_of_nets(op) if op.nets else self._signs.of(op)
                grouped.setdefault((*place, sign), []).append(op.name)
        found = {}
        for key, names in grouped.items():
            for name, position in self._positions(key, names):
                found[name] = self._numbers.setdefault((key, position), len(self._numbers))
        self._groups.update(grouped)
        self.places[place] = Standing(net, found)
        return found

    @property
    def are_first(self) -> bool:
        """Whether others are compared with these."""
        return self._earlier is None

    @property
    def at_top(self) -> Mapping[str, int]:
        """Op name -> number of the effect, in the outermost Net."""
        return self.places[TOP].effects

    def is_known(self, effect: int) -> bool:
        """Whether the effect stands in the Net that is compared with."""
        return self.are_first or effect < self._known

    def excuse(self, place: Place, name: str) -> None:
        """Takes an op for none: whether it runs, how often and when, makes no difference."""
        standing = self.places[place]
        kept = {op: effect for op, effect in standing.effects.items() if op != name}
        self.places[place] = Standing(standing.net, kept)

    def _positions(self, key: tuple, names: list[str]) -> Iterator[tuple[str, int]]:
        """Each name with its position in the group; the earlier Net's names come first."""
        known = self._earlier._groups.get(key, []) if self._earlier else names
        position_of = {name: position for position, name in enumerate(known)}
        here = set(names)
        free = (position for position, name in enumerate(known) if name not in here)
        beyond = len(known)
        for name in names:
            position = position_of.pop(name, None)
            if position is None:
                position = next(free, None)
            if position is None:
                position, beyond = beyond, beyond + 1
            yield name, position

    def has_effects(self, net: Net) -> bool:
        """Whether an effect stands in the Net, at any depth."""
        if id(net) not in self._has:
            self._has[id(net)] = net, any(self.is_effect(op) for op in net.ops)
        return self._has[id(net)][1]


def _sign_of_nets(op: Op) -> tuple:
    """What else must agree of an op that runs effects.

    How many iterations may be under way is seen where nothing orders what they do, as draws.
    """
    shows = op.type in LOOPS and order_shows(op.nets["body"])
    return op.type, op.device, exact(op.attributes.get("parallel_iterations")) if shows else None


def verify_effects(original: Effects, rewritten: Effects) -> None:
    """Refuses an effect that is lost, doubled, no longer run, or run out of turn."""
    for place, before in original.places.items():
        # A place that is gone belongs to an effect that is lost; that is refused one level up.
        after = rewritten.places.get(place)
        if after is not None:
            _verify_count(before, after)
            _verify_living(before, after)
            _verify_order(before, after, original.order)
    for place, after in rewritten.places.items():
        if after.effects and place not in original.places:
            name = next(iter(after.effects))
            raise refused("stateful-op-doubled", f"{name!r} has no counterpart", after.net, (name,))


def _verify_count(before: Standing, after: Standing) -> None:
    kept = set(after.effects.values())
    for name, effect in before.effects.items():
        if effect not in kept:
            changed = after.net.op_by_name.get(name)
            text = f"{name!r} ({before.net.op_by_name[name].type}) is gone"
            if changed is not None:
                text = f"{name!r} is there, but with another type, attribute or device"
            raise refused("stateful-op-lost", text, before.net, (name,))
    known = set(before.effects.values())
    for name, effect in after.effects.items():
        if effect not in known:
            text = f"{name!r} ({after.net.op_by_name[name].type}) would run in addition"
            raise refused("stateful-op-doubled", text, after.net, (name,))


def _verify_living(before: Standing, after: Standing) -> None:
    """What outputs and control outputs made run must still run; nothing else may start to."""
    was, now = _alive(before), _alive(after)
    for name, effect in after.effects.items():
        if effect in was and effect not in now:
            text = f"no output and no control output needs {name!r} any more"
            raise refused("control-lost", text, after.net, (name,))
        if effect in now and effect not in was:
            text = f"{name!r} did not run before, and would now"
            raise refused("stateful-op-woken", text, after.net, (name,))


def _alive(standing: Standing) -> set[int]:
    net = standing.net
    wanted = [*net.control_outputs]
    wanted += [net.producer[blob].name for blob in net.outputs if blob in net.producer]
    seen = all_needed_by(net, wanted)
    return {effect for name, effect in standing.effects.items() if name in seen}


def _verify_order(before: Standing, after: Standing, order: RunningOrder) -> None:
    fixed = set(_turns(after, order))
    lost = [turn for turn in _turns(before, order) if turn not in fixed]
    name_of = {effect: name for name, effect in after.effects.items()}
    seen: dict[int, set[str]] = {}
    for first, second in lost:
        if second not in seen:
            seen[second] = all_needed_by(after.net, [name_of[second]])
        if name_of[first] not in seen[second]:
            names = (name_of[first], name_of[second])
            raise refused(
                "order-lost", f"{names[0]!r} no longer runs before {names[1]!r}", after.net, names
            )


def _turns(standing: Standing, order: RunningOrder) -> Iterator[tuple[int, int]]:
    """Pairs of effects where the first must run before the second and none stands between."""
    if len(standing.effects) < 2:
        return
    none: frozenset[int] = frozenset()
    latest: dict[str, frozenset[int]] = {}  # blob or "^op" -> the effects last met on the way there
    for op in order.of(standing.net):
        met = none
        for source in (*op.inputs, *("^" + name for name in op.controls)):
            more = latest.get(source, none)
            if more and more is not met:
                met = met | more if met else more
        effect = standing.effects.get(op.name)
        if effect is not None:
            for first in met:
                yield first, effect
            met = frozenset((effect,))
        if met:
            latest["^" + op.name] = met
            latest.update(dict.fromkeys(op.outputs, met))

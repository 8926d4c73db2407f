"""Who is ahead of whom: ops that TensorFlow runs iterations before others of their step net.

Several iterations are under way at once, so what depends on no slow state runs ahead of what
does. A sum of three or more begins with the first addend whose buffer nobody else holds
(:mod:`rnnmem.grappler.summation_order`), and where nothing but this lead orders the sum and another
reader of an addend, the lead says how the sum adds up:

    grads ─► GetItem(i) ─► AddN(item, g, ...)      the list holds the item until SetItem is done;
       └───► SetItem(i, 0) ─► grads                SetItem needs no g, and was done long before

Fewer iterations under way, or a gradient loop that waits for all of its inputs, take the lead away;
then the two are in a race, and need an edge.

Within an iteration a reader of an addend has a head start where the sum still waits for what takes
long. What is recomputed for the reader takes it away. A reader that is ready together with one of
its kind, for which the sum waits, is done with it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

from rnnmem.analysis.loops import Loop
from rnnmem.grappler.first_addends import (
    begins_alone,
    first_addends,
    folds,
    has_factors_only,
    stays,
)
from rnnmem.grappler.fusion import CALM, is_apart, may_be_awaited
from rnnmem.grappler.summation_order import (
    Sums,
    is_addition,
    lasting_trees,
    merged_trees,
    summation_trees,
    sums_of,
)
from rnnmem.grappler.summation_races import racing
from rnnmem.ir.edges import Edge
from rnnmem.ir.graph import Net, Op
from rnnmem.ir.op_table import ASKS_SHAPE, PUTS, SAME_BUFFER, TAKES
from rnnmem.ir.order import (
    all_needed_by,
    all_waiting_for,
    needed_by,
    reached,
    through_identities,
)

_LISTS = ("Optional", "TensorList")  # their names begin so; no graph optimizer touches them
_FLOATS = ("bfloat", "complex", "double", "float", "half")

HEAD_START = 2
"""Ops behind each other that take longer than one that began as early as the first of them."""

Lead = tuple[str, str]
"""Names of two ops: the first was done long before the second one began."""


def leads(body: Net) -> tuple[Lead, ...]:
    """What a lead alone orders in a loop's body: sums, and other readers of what they add up."""
    known = body.of_ops(_found)
    key = (body.inputs, body.outputs)
    if key not in known:
        known[key] = _leads(body)
    return known[key]


def head_starts(body: Net) -> tuple[Lead, ...]:
    """Readers of what a sum adds up that are done long before the iteration comes to the sum."""
    return body.once(_head_starts)


def _head_starts(body: Net) -> tuple[Lead, ...]:
    trees = body.once(_lasting_held_trees)
    depth = body.once(_depths)
    found: dict[Lead, None] = dict.fromkeys(_twins(body, depth))
    for tree, holding in trees:
        last = tree[0].name
        ordered = all_needed_by(body, [op.name for op in tree])
        for other in holding:
            ahead = depth[last] - depth[other.name] >= HEAD_START
            if ahead and other.name not in ordered and other.type not in ASKS_SHAPE:
                found[other.name, last] = None
    return tuple(found)


def _twins(body: Net, depth: Mapping[str, int]) -> Iterator[Lead]:
    """Readers of an addend, or of a partial sum, that begin as one does which the sum waits for.

    Both are ready at once and take as long, so TensorFlow runs the one after the other, in front of
    the sum. Where the sum waited for something else, which a rewrite makes earlier, it would
    overtake one of them. A partial sum with other readers is no part of a larger AddN, but its
    addend.
    """
    for tree in body.once(_trees):
        ordered = all_needed_by(body, [tree[0].name])
        for blob in dict.fromkeys(blob for op in tree for blob in op.inputs):
            readers = body.readers.get(blob, ())
            awaited = {one.type for one in readers if one.name in ordered and not is_addition(one)}
            made = body.producer.get(blob)
            begins = 1 + (0 if made is None else depth[made.name])
            for one in readers:
                if one.name not in ordered and one.type in awaited and depth[one.name] == begins:
                    yield one.name, tree[0].name


def rivals(loop: Loop) -> tuple[Lead, ...]:
    """Sums of a loop's body that add up one value, of which none waits for the other or is ahead.

    Whichever begins first finds it held, and the other one may begin with it: a race that the
    original runs as well. It ends as the ops around it are done, so that whatever is recomputed for
    one of the two may end it the other way.
    """
    return loop.once(_rivals)


def _rivals(loop: Loop) -> tuple[Lead, ...]:
    body, races = loop.body, racing(loop)
    if not races:
        return ()
    ordered = {*leads(body), *head_starts(body)}
    found: dict[Lead, None] = {}
    for tree, holding in body.once(_held_trees):
        names = {op.name for op in tree}
        if names.isdisjoint(races) or begins_alone(body, tree):
            continue
        behind = all_needed_by(body, names) | all_waiting_for(body, names)
        for other in filter(is_addition, holding):
            both = other.name, tree[0].name
            if other.name not in behind and ordered.isdisjoint((both, both[::-1])):
                found[both] = None
    return tuple(found)


def _held_trees(body: Net) -> list[tuple[list[Op], list[Op]]]:
    """The trees of additions, each with the other readers of what it adds up, if there are any."""
    return _with_holders(body, _with_parts(summation_trees(body), body))


def _lasting_held_trees(body: Net) -> list[tuple[list[Op], list[Op]]]:
    """Those that may be there whatever is no longer saved, see `lasting_trees`."""
    return _with_holders(body, body.once(_trees))


def _with_holders(body: Net, trees: list[list[Op]]) -> list[tuple[list[Op], list[Op]]]:
    sums = sums_of(body)
    both = ((tree, list(_holders(body, sums, tree))) for tree in trees)
    return [(tree, holding) for tree, holding in both if holding]


def _trees(body: Net) -> list[list[Op]]:
    """The trees of additions, and parts of them that are sums of their own for other readers."""
    return _with_parts(lasting_trees(body), body)


def _with_parts(whole: list[list[Op]], body: Net) -> list[list[Op]]:
    known = {frozenset(op.name for op in tree) for tree in whole}
    parts = merged_trees(body)
    return whole + [one for one in parts if frozenset(op.name for op in one) not in known]


def _depths(body: Net) -> dict[str, int]:
    """Op name -> how many ops that compute stand behind each other up to its end."""
    depth: dict[str, int] = {}
    for op in body.ops:
        before = max((depth.get(name, 0) for name in needed_by(body, op.name)), default=0)
        depth[op.name] = before + _computes(body, op)
    return depth


def way(body: Net, lead: Lead) -> Edge | None:
    """The edge that makes an order of a lead; None where each would undo a fusion.

    TensorFlow's graph optimizer leaves ops alone that wait, or that somebody waits for; lists and
    optionals it never touches, and some ops it fuses with none.
    """
    first, second = (body.op_by_name[name] for name in lead)
    before = all_needed_by(body, [first.name])
    upwards = reached([second.name], lambda name: needed_by(body, name))
    above = [op for op in map(body.op_by_name.__getitem__, upwards) if op.name not in before]
    lists = [op for op in above if _is_list_op(op)]
    # A list that somebody still waits to read is copied before a slot of it is set.
    others = [op for op in lists if _lists_of(body, op).isdisjoint(_lists_of(body, first))]
    unfused = (op for op in above if is_apart(body, op))
    sums = [second] if _stays(body, second) else []
    waiting = next(itertools.chain(others, lists, unfused, sums), None)
    if waiting is None:
        return None
    awaited = first.nets or first.stateful or may_be_awaited(body, first) or _stays(body, first)
    if awaited or _is_list_op(first):
        return Edge(waiting.name, None, first.name)
    blob = first.outputs[0]
    if _may_be_shown(body, first) and blob not in sums_of(body).addends:
        return Edge(waiting.name, None, first.name, by_proxy=True)
    for reader in body.readers.get(blob, ()):
        if _is_list_op(reader) and waiting.name not in all_needed_by(body, [reader.name]):
            return Edge(waiting.name, None, reader.name)
    if _is_added_behind(body, first, waiting):
        return Edge(waiting.name, None, first.name, by_proxy=True)
    return None


def _stays(body: Net, op: Op) -> bool:
    """Whether the op is a sum that may wait, and be waited for: none is made of it and others."""
    trees = [tree for tree in body.once(_trees) if op in tree]
    return all(stays(body, tree) for tree in [*trees, [op]])


def _is_added_behind(body: Net, op: Op, waiting: Op) -> bool:
    """Whether sums alone read what the op writes, begin behind another op, and take in no factor.

    A completion proxy that this other op waits for has let go of the addend then.
    """
    behind = all_waiting_for(body, [waiting.name])
    blobs = sums_of(body).sharing(op.outputs[0])
    readers = [one for blob in blobs for one in body.readers.get(blob, ())]
    return bool(readers) and all(
        one.type == "AddN" and one.name in behind and not has_factors_only(body, one)
        for one in readers
    )


def _may_be_shown(body: Net, op: Op) -> bool:
    """Whether another reader of what the op writes undoes no fusion: it has some, or a calm one."""
    if body.fan_out(op.outputs[0]) != 1:
        return body.fan_out(op.outputs[0]) > 1
    readers = body.readers.get(op.outputs[0], ())
    if not readers or any(map(folds, (op, *readers))):
        return False
    return all(one.type in CALM and not is_addition(one) for one in readers)


def _found(ops: tuple[Op, ...]) -> dict[tuple, tuple[Lead, ...]]:
    """What was found out for step nets of these ops, by what they take and hand out."""
    return {}


def _leads(body: Net) -> tuple[Lead, ...]:
    trees = body.once(_lasting_held_trees)
    if not trees:
        return ()
    makers = [body.producer[blob].name for blob in body.outputs if blob in body.producer]
    effects = [op.name for op in body.ops if op.stateful]
    running = all_needed_by(body, [*makers, *effects, *body.control_outputs])
    slow = _slow_states(body, running)
    found: dict[Lead, None] = {}
    for tree, holding in trees:
        names = {op.name for op in tree}
        if not names <= running:
            continue
        last = tree[0].name
        ordered = all_needed_by(body, names) | all_waiting_for(body, names)
        for other in holding:
            if other.name in ordered or other.name not in running or other.type in ASKS_SHAPE:
                continue
            both = slow[other.name] & slow[last]
            if slow[other.name] == slow[last]:
                continue
            if both == slow[other.name]:
                found[other.name, last] = None
            elif both == slow[last]:
                found[last, other.name] = None
    return tuple(found)


def _lists_of(body: Net, op: Op) -> set[str]:
    """The lists that the op reads, as they were before anybody handed them on."""
    read = {through_identities(body, blob) for blob in op.inputs}
    return {blob for blob in read if blob in body.blobs and body.blobs[blob].dtype == "variant"}


def _is_list_op(op: Op) -> bool:
    return op.type.startswith(_LISTS)


def _holders(body: Net, sums: Sums, tree: list[Op]) -> Iterator[Op]:
    """The other readers of what the tree may begin with, that hold it until they are done."""
    adding = {op.name for op in tree}
    inside = {blob for op in tree for blob in op.outputs}
    for blob in first_addends(body, tree):
        if blob in inside:
            continue
        shared = sums.sharing(blob)
        readers = [(one, op) for one in shared for op in body.readers.get(one, ())]
        if any(_puts_away(op, one) for one, op in readers):
            continue
        yield from (op for _, op in readers if op.type not in SAME_BUFFER and op.name not in adding)
        for one in shared:
            taking = body.producer.get(one)
            if taking is not None and taking.type in TAKES:
                yield from _readers_of_list(body, taking)


def _puts_away(op: Op, blob: str) -> bool:
    slot = PUTS.get(op.type)
    return slot is not None and op.inputs[slot] == blob


def _readers_of_list(body: Net, taking: Op) -> Iterator[Op]:
    """The ops but for the taking one that read the list, if it does not stay as it is."""

    def handed_on(blob: str) -> Iterator[str]:
        return (op.outputs[0] for op in body.readers.get(blob, ()) if op.type == "Identity")

    names = list(reached([through_identities(body, taking.inputs[0])], handed_on))
    if not set(body.outputs).isdisjoint(names):
        return  # every iteration reads the same list, or what follows holds it
    for blob in names:
        yield from (
            op
            for op in body.readers.get(blob, ())
            if op.type != "Identity" and op.name != taking.name
        )


def _slow_states(body: Net, running: set[str]) -> dict[str, int]:
    """Op name -> a bit for each cycle over the iterations that computes, and that the op is behind.

    Counters, lists and what is only added up are no such cycles: they are done at once.
    """
    number = {op.name: index for index, op in enumerate(body.ops)}
    count = len(body.ops)
    place = {blob: count + index for index, blob in enumerate(body.inputs)}
    edges: list[tuple[int, int]] = []
    for op in body.ops:
        if op.name in running:
            edges += [(source, number[op.name]) for source in _sources(body, op, number, place)]
    for index, blob in enumerate(body.outputs):
        source = body.producer.get(blob)
        if source is not None:
            edges.append((number[source.name], count + index))
        elif place[blob] != count + index:
            edges.append((place[blob], count + index))
    size = count + len(body.inputs)
    rows = [one for one, _ in edges]
    columns = [other for _, other in edges]
    graph = csr_matrix(([1] * len(edges), (rows, columns)), shape=(size, size))
    _, labels = connected_components(graph, directed=True, connection="strong")
    inside = {labels[one] for one, other in edges if labels[one] == labels[other]}
    slow = {
        label
        for op in body.ops
        if (label := labels[number[op.name]]) in inside and _computes(body, op)
    }
    bit = {label: 1 << index for index, label in enumerate(sorted(slow))}
    masks = [bit.get(label, 0) for label in labels]
    changed = True
    while changed:
        changed = False
        for one, other in edges:
            if masks[one] & ~masks[other]:
                masks[other] |= masks[one]
                changed = True
    return {name: masks[index] for name, index in number.items()}


def _sources(body: Net, op: Op, number, place) -> Iterator[int]:
    for blob in op.inputs:
        source = body.producer.get(blob)
        if source is not None:
            yield number[source.name]
        elif blob in place:
            yield place[blob]
    yield from (number[name] for name in op.controls if name in number)


def _computes(body: Net, op: Op) -> bool:
    """Whether the op takes its time: it is neither an addition nor hands anything on."""
    if op.nets:
        return True
    if op.type in SAME_BUFFER or op.type in TAKES or op.type in PUTS or is_addition(op):
        return False
    return any(body.blobs[blob].dtype.startswith(_FLOATS) for blob in op.outputs)

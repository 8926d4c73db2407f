"""Orders in which a Net's ops may run: plain, longest path first, and with a low peak.

The lowest peak is NP-hard to find (Sethi 1975, "Complete register allocation problems"). Here
several ways are tried and the best is taken:

    free first   of the ops that may run, the one that frees most (or adds least)
    backward     the same from the results to the inputs, turned round
    depth first  the subtree that holds most when it is done comes first (Sethi and Ullman 1970)
    beam         several free-first orders side by side, for small Nets
"""

from __future__ import annotations

import heapq
import operator
from collections.abc import Callable, Iterable, Sequence

from rnnmem.analysis.live_ranges import live_ranges, views
from rnnmem.analysis.versions import SsaVersions, ssa
from rnnmem.errors import OptionError
from rnnmem.ir.graph import Net
from rnnmem.storage.arguments import check_net
from rnnmem.storage.buffers import Sizes
from rnnmem.storage.estimate import bytes_inside, estimate_sizes

ORDERS = ("given", "topological", "longest_path", "peak")
BEAM_AT_MOST = 1000
"""Ops up to which the beam is tried."""
BEAM, BEAM_STEPS = 64, 6000
"""Beginnings that the beam keeps; fewer where there are many ops."""


def order(net: Net, how: str = "peak", sizes: Sizes = "shapes") -> Net:
    """The Net with its ops in another order in which they may run.

    Args:
      net: the Net; the order of its own ops is changed, that inside step nets is not.
      how: ``given``; ``topological``, breadth first, as a queue of ready ops runs them;
        ``longest_path``: depth first, along the longest path; ``peak``: the lowest peak found.
      sizes: what ``peak`` reckons with; see :func:`rnnmem.storage.estimate`.

    Raises:
      OptionError: no such order.
      NetError: the Net has a cycle.
    """
    check_net(net)
    if how not in ORDERS:
        raise OptionError(f"order={how!r} must be one of {', '.join(ORDERS)}")
    past = ssa(net)
    if how == "given":
        chosen: Sequence[int] = range(len(past.ops))
    elif how == "topological":
        chosen = breadth_first(past)
    elif how == "longest_path":
        chosen = longest_path_first(past)
    else:
        extra = [
            max((bytes_inside(inner, sizes) for inner in op.nets.values()), default=0)
            for op in past.ops
        ]
        chosen = lowest_peak(past, estimate_sizes(past, sizes), extra)
    ops = tuple(past.ops[index] for index in chosen)
    return net if all(map(operator.is_, ops, net.ops)) else net.replace(ops=ops)


def breadth_first(past: SsaVersions) -> list[int]:
    """As a queue of ready ops runs them."""
    waits = [len(others) for others in past.before]
    found = [index for index, count in enumerate(waits) if not count]
    for index in found:
        for other in past.after[index]:
            waits[other] -= 1
            if not waits[other]:
                found.append(other)
    return found


def longest_path_first(past: SsaVersions) -> list[int]:
    """Depth first from the op at the end of the longest path; of its sources the deepest first."""
    depth = [0] * len(past.ops)
    for index, others in enumerate(past.before):
        depth[index] = 1 + max((depth[other] for other in others), default=0)
    roots = sorted(range(len(past.ops)), key=lambda index: (-depth[index], index))
    return _depth_first(past, roots, lambda index: (-depth[index], index))


def _depth_first(past: SsaVersions, roots: Iterable[int], key: Callable[[int], tuple]) -> list[int]:
    done = [False] * len(past.ops)
    found: list[int] = []
    for root in roots:
        stack = [] if done[root] else [(root, iter(sorted(past.before[root], key=key)))]
        while stack:
            index, sources = stack[-1]
            source = next((one for one in sources if not done[one]), None)
            if source is not None:
                stack.append((source, iter(sorted(past.before[source], key=key))))
                continue
            stack.pop()
            if not done[index]:
                done[index] = True
                found.append(index)
    return found


def lowest_peak(past: SsaVersions, sizes: Sequence[int], extra: Sequence[int] = ()) -> list[int]:
    """The order with the lowest peak of those that are tried.

    Args:
      past: the Net's history.
      sizes: bytes per version that gets a buffer of its own; 0 for views and what is there anyway.
      extra: bytes that each op needs while it runs.
    """
    memory = _Memory(past, sizes, extra)
    orders = [list(range(len(past.ops))), breadth_first(past), longest_path_first(past)]
    orders += [_free_first(memory, late) for late in (False, True)]
    orders.append(_sethi_ullman(memory))
    orders.append(_backward(memory))
    best = min(orders, key=memory.peak)
    if len(past.ops) <= BEAM_AT_MOST:
        best = min(best, _beam(memory), key=memory.peak)
    return best


class _Memory:
    """Buffers by number: what each op makes and reads; a buffer is free when all have read it."""

    def __init__(self, past: SsaVersions, sizes: Sequence[int], extra: Sequence[int] = ()):
        self.past = past
        self.extra = list(extra) or [0] * len(past.ops)
        shown = views(past)
        starts, _ = live_ranges(past, shown)
        kept = {shown.get(name, name) for name in past.net.outputs}
        self.size: list[int] = []
        self.made: list[list[int]] = [[] for _ in past.ops]
        self.used: list[list[int]] = [[] for _ in past.ops]
        self.readers: list[int] = []
        number: dict[str, int] = {}
        for index, names in starts.items():
            for name in names:
                number[name] = len(self.size)
                self.made[index].append(number[name])
                self.size.append(sizes[past.versions[name][0]])
        users: list[set[int]] = [set() for _ in self.size]
        for name, versions in past.versions.items():
            buffer = number.get(shown.get(name, name))
            if buffer is not None:
                for version in versions:
                    users[buffer].update((past.writer[version], *past.readers[version]))
        for buffer, ops in enumerate(users):
            self.readers.append(len(ops))
            for index in ops:
                self.used[index].append(buffer)
        for name in kept:
            if name in number:
                self.readers[number[name]] += 1  # whoever called the Net

    def peak(self, chosen: Sequence[int]) -> tuple[int, int]:
        """The most bytes alive along an order, and their sum over all ops, to tell equals apart."""
        left = list(self.readers)
        live = peak = area = 0
        for index in chosen:
            live += sum(self.size[buffer] for buffer in self.made[index])
            peak = max(peak, live + self.extra[index])
            area += live
            for buffer in self.used[index]:
                left[buffer] -= 1
                if not left[buffer]:
                    live -= self.size[buffer]
        return peak, area


def _free_first(memory: _Memory, late: bool) -> list[int]:
    """Of the ops that may run, the one that leaves least alive; of equals the newest or oldest."""
    past, size = memory.past, memory.size
    left = list(memory.readers)
    waits = [len(others) for others in past.before]
    users: list[list[int]] = [[] for _ in size]
    for index, buffers in enumerate(memory.used):
        for buffer in buffers:
            users[buffer].append(index)
    adds = [sum(size[b] for b in made) for made in memory.made]
    for index, buffers in enumerate(memory.used):
        adds[index] -= sum(size[b] for b in buffers if left[b] == 1)
    heap: list[tuple[int, int, int]] = []
    turn = 0

    def ready(index: int) -> None:
        heapq.heappush(heap, (adds[index], -turn if late else turn, index))

    done = [False] * len(past.ops)
    for index, count in enumerate(waits):
        if not count:
            ready(index)
    found = []
    while heap:
        added, _, index = heapq.heappop(heap)
        if done[index] or added != adds[index]:
            continue
        done[index] = True
        found.append(index)
        turn += 1
        for buffer in memory.used[index]:
            left[buffer] -= 1
            if left[buffer] == 1:
                for user in users[buffer]:
                    if not done[user]:
                        adds[user] -= size[buffer]
                        if not waits[user]:
                            ready(user)
        for other in past.after[index]:
            waits[other] -= 1
            if not waits[other]:
                ready(other)
    return found


def _sethi_ullman(memory: _Memory) -> list[int]:
    """Depth first; of an op's sources the one whose peak stands highest over what it leaves."""
    past = memory.past
    peak = [0] * len(past.ops)
    leaves = [sum(memory.size[b] for b in memory.made[index]) for index in range(len(past.ops))]

    def key(index: int) -> tuple:
        return (leaves[index] - peak[index], index)

    for index, others in enumerate(past.before):
        held = highest = 0
        for other in sorted(others, key=key):
            highest = max(highest, held + peak[other])
            held += leaves[other]
        peak[index] = max(highest, held + leaves[index])
    ends = [index for index, others in enumerate(past.after) if not others]
    return _depth_first(past, sorted(ends, key=key), key)


def _backward(memory: _Memory) -> list[int]:
    """From the last op back: of those whose readers are all placed, the one that frees most.

    Going back, an op ends the life of what it makes and starts that of what it reads.
    """
    past, size = memory.past, memory.size
    waits = [len(others) for others in past.after]
    alive = [False] * len(size)

    def added(index: int) -> int:
        new = sum(size[b] for b in memory.used[index] if not alive[b])
        return new - sum(size[b] for b in memory.made[index])

    users: list[list[int]] = [[] for _ in size]
    for index, buffers in enumerate(memory.used):
        for buffer in buffers:
            users[buffer].append(index)
    heap = [(added(i), -i, i) for i, count in enumerate(waits) if not count]
    heapq.heapify(heap)
    found: list[int] = []
    done = [False] * len(past.ops)
    while heap:
        known, _, index = heapq.heappop(heap)
        if done[index] or known != added(index):
            continue
        done[index] = True
        found.append(index)
        for buffer in memory.used[index]:
            if not alive[buffer]:
                alive[buffer] = True
                for user in users[buffer]:
                    if not done[user] and not waits[user]:
                        heapq.heappush(heap, (added(user), -user, user))
        for other in past.before[index]:
            waits[other] -= 1
            if not waits[other]:
                heapq.heappush(heap, (added(other), -other, other))
    return found[::-1]


def _beam(memory: _Memory) -> list[int]:
    """Extends the best few beginnings by one op at a time.

    An op that leaves no more alive than before and does not raise the peak is run at once.
    """
    past, size = memory.past, memory.size
    total = len(past.ops)
    width = min(BEAM, max(2, BEAM_STEPS // total))
    need = [sum(1 << other for other in others) for others in past.before]
    users: list[int] = [0] * len(size)
    for index, buffers in enumerate(memory.used):
        for buffer in buffers:
            users[buffer] |= 1 << index
    kept = [memory.readers[b] > users[b].bit_count() for b in range(len(size))]
    makes = [sum(size[b] for b in made) for made in memory.made]
    # of each op the buffers that it may free: who uses them, a bit each, and their bytes
    frees = [[(users[b], size[b]) for b in used if size[b] and not kept[b]] for used in memory.used]

    def run(state: tuple, index: int) -> tuple:
        peak, live, _, done, _ = state
        now = done | 1 << index
        live += makes[index]
        most = live + memory.extra[index]
        for mask, freed in frees[index]:
            if mask & now == mask:
                live -= freed
        return peak if peak > most else most, live, index, now, state

    start = [index for index, others in enumerate(past.before) if not others]
    # peak, bytes alive, ready ops, done ops (a bit each), order as a linked list
    states: list[tuple] = [(0, 0, start, 0, None)]
    for _ in range(total):
        found: dict[int, tuple] = {}
        for state in states:
            steps = []
            for index in state[2]:
                step = run(state, index)
                if step[0] <= state[0] and step[1] <= state[1]:
                    steps = [step]
                    break
                steps.append(step)
            for step in steps:
                other = found.get(step[3])
                if other is None or step[:2] < other[:2]:
                    found[step[3]] = step
        states = []
        for most, low, index, now, state in heapq.nsmallest(
            width, found.values(), key=lambda step: step[:3]
        ):
            ready = [one for one in state[2] if one != index]
            ready += [one for one in past.after[index] if need[one] & now == need[one]]
            states.append((most, low, ready, now, (index, state[4])))
    path = states[0][4]
    found_order: list[int] = []
    while path is not None:
        found_order.append(path[0])
        path = path[1]
    return found_order[::-1]

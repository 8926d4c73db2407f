"""What each kind of op does to memory when it starts: its outputs, as values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rnnmem.analysis.shared_rows import SLICED
from rnnmem.simulate.buffers import Buffer, Ledger, ListValue, Member, Series, Value
from rnnmem.simulate.steps import Kind, Step

if TYPE_CHECKING:
    from rnnmem.simulate.executor import Frame, Run


def _allocate(run: Run, step: Step, frame: Frame) -> Sequence[Value]:
    ledger, sizes = run.ledger, step.sizes
    if len(sizes) == 1:  # nearly always
        return (_last(ledger, step, frame),)
    results: list[Value] = [
        Buffer(ledger, size, origin) if size else None
        for size, origin in zip(sizes[:-1], step.origins, strict=False)
    ]
    if sizes:
        results.append(_last(ledger, step, frame))
    return results


def _last(ledger: Ledger, step: Step, frame: Frame) -> Value:
    """The op's last output: a buffer of an input that dies with it, or a new one."""
    size = step.sizes[-1]
    if not size:
        return None
    for position in step.in_place:
        slot = step.inputs[position]
        if slot >= 0 and frame.uses[slot] == 1:
            held = frame.values[slot]
            if isinstance(held, Buffer) and held.refs == 1 and held.bytes == size:
                held.refs = 2
                return held
    return Buffer(ledger, size, step.origins[-1])


def _view(run: Run, step: Step, frame: Frame) -> list[Value]:
    held = run.value(step, frame, 0) if step.inputs else None
    if held is not None:
        held.refs += 1
    return [held, *[None] * (len(step.outputs) - 1)] if step.outputs else []


def _parts(run: Run, step: Step, frame: Frame) -> Sequence[Value]:
    """Each part holds all of what it is cut from."""
    held = run.value(step, frame, SLICED[step.op.type])
    if held is not None:
        held.refs += len(step.outputs)
    return [held] * len(step.outputs)


def _views(run: Run, step: Step, frame: Frame) -> list[Value]:
    held = [run.value(step, frame, position) for position in range(len(step.inputs))]
    for one in held:
        if one is not None:
            one.refs += 1
    return held


def _resident(run: Run, step: Step, frame: Frame) -> list[Value]:
    return [None] * len(step.outputs)


def _read(run: Run, step: Step, frame: Frame) -> list[Value]:
    """The variable holds the buffer too, so nobody takes it; it is booked until all let it go.

    In a good run they do so before the variable gets another one.
    """
    size, origin = 0 if run.setting.is_good else step.sizes[0], step.origins[0]
    return [Member(Series(run.ledger, size, origin), 1) if size else None]


def _empty(run: Run, step: Step, frame: Frame) -> list[Value]:
    return [ListValue(run.ledger, step.length)]


def _push(run: Run, step: Step, frame: Frame) -> list[Value]:
    changed = run.own_list(step, frame, 0)
    item = run.value(step, frame, 1)
    changed.append(item)
    if item is not None and step.saved and not item.origin.saved_in:
        item.origin.saved_in, item.origin.saved_loops = step.saved, step.saved_loops
    return [changed]


def _pop(run: Run, step: Step, frame: Frame) -> list[Value]:
    changed = run.own_list(step, frame, 0)
    return [changed, changed.pop()]


def _get(run: Run, step: Step, frame: Frame) -> list[Value]:
    held = run.value(step, frame, 0)
    element = held.peek() if isinstance(held, ListValue) else None
    if element is not None:
        element.refs += 1
    return [element]


def _set(run: Run, step: Step, frame: Frame) -> list[Value]:
    changed = run.own_list(step, frame, 0)
    item = run.value(step, frame, 2)
    if changed.length is not None and step.length is not None:
        changed.length = max(changed.length, step.length)
    if changed.length is not None and changed.size >= changed.length:
        changed.pop_many(1)
        changed.place(item)
    else:
        changed.append(item)
    return [changed]


def _copy(run: Run, step: Step, frame: Frame) -> list[Value]:
    made = ListValue(run.ledger, step.length)
    if step.length:
        element = Series(run.ledger, step.element, step.origins[0]) if step.element else None
        made.extend(element, step.length)
    return [made]


def _scatter(run: Run, step: Step, frame: Frame) -> list[Value]:
    """As many elements as are scattered are replaced, where there are any."""
    changed = run.own_list(step, frame, 0)
    if step.length and step.element:
        changed.pop_many(min(changed.size, step.length))
        changed.extend(Series(run.ledger, step.element, step.origins[0]), step.length)
    return [changed]


def _zeros(run: Run, step: Step, frame: Frame) -> list[Value]:
    held = run.value(step, frame, 0)
    made = ListValue(run.ledger, held.length if isinstance(held, ListValue) else step.length)
    count = held.size if isinstance(held, ListValue) else step.length or 0
    if step.element and count:
        made.extend(Series(run.ledger, step.element, step.origins[0]), count)
    return [made]


def _add_lists(run: Run, step: Step, frame: Frame) -> list[Value]:
    """Elements that stand in one list only are handed on, the others are added.

    Lists that are not full are taken to have their elements in different places.
    """
    values = [run.value(step, frame, position) for position in range(len(step.inputs))]
    lists = [one if isinstance(one, ListValue) else None for one in values]
    sizes = [one.size if one is not None else 0 for one in lists]
    largest = sizes.index(max(sizes))
    others = [one for index, one in enumerate(lists) if index != largest and one is not None]
    length = next((one.length for one in lists if one is not None and one.length is not None), None)
    changed = run.own_list(step, frame, largest)
    changed.length = length
    for one in others:
        both = one.size if length is None else max(0, changed.size + one.size - length)
        _hand_on(changed, one, one.size - both)
        if both and step.element:
            changed.pop_many(both)
            made: Buffer | Series = Buffer(run.ledger, step.element, step.origins[0])
            if both > 1:
                made.drop()
                made = Series(run.ledger, step.element, step.origins[0])
            changed.place(made, both)
            if both == 1:
                made.drop()
    return [changed]


def _hand_on(changed: ListValue, held: ListValue, count: int) -> None:
    """Gives a list so many elements of another one."""
    for element, most in held.runs:
        taken = min(count, most)
        if taken == 1:
            changed.append(element)
        else:
            changed.extend(element, taken)
        count -= taken


def _assign(run: Run, step: Step, frame: Frame) -> list[Value]:
    held = run.value(step, frame, 1)
    if isinstance(held, Buffer):
        held.refs += 1  # the variable keeps it
        run.ledger.book(held, -held.bytes)  # and lets go of as much
    return []


ACTIONS = {
    Kind.ALLOCATE: _allocate,
    Kind.VIEW: _view,
    Kind.VIEWS: _views,
    Kind.PARTS: _parts,
    Kind.RESIDENT: _resident,
    Kind.READ: _read,
    Kind.EMPTY: _empty,
    Kind.PUSH: _push,
    Kind.POP: _pop,
    Kind.SET: _set,
    Kind.GET: _get,
    Kind.COPY: _copy,
    Kind.SCATTER: _scatter,
    Kind.ZEROS: _zeros,
    Kind.ADD_LISTS: _add_lists,
    Kind.ASSIGN: _assign,
}

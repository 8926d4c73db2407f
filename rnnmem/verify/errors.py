"""How a refusal reads: the reason, a sentence, and the few ops around the place."""

from __future__ import annotations

from collections.abc import Iterable

from rnnmem.errors import CheckError
from rnnmem.ir.graph import Net, Op
from rnnmem.verify.expressions import Table

_MOST_OPS = 12
_MOST_NAMES = 5


def refused(reason: str, sentence: str, net: Net | None = None, names: Iterable[str] = ()):
    """The error to raise; ``names`` are the ops in ``net`` that it is about."""
    lines = [f"{reason}: {sentence}"]
    if net is not None:
        lines.append(f"  in {net.name!r}:")
        lines += [f"    {line}" for line in around(net, names)]
    return CheckError("\n".join(lines))


def around(net: Net, names: Iterable[str]) -> list[str]:
    """The named ops (marked), what they read from and who reads them, in running order."""
    chosen = set(names)
    near = set(chosen)
    by_name = {op.name: op for op in net.ops}
    for name in chosen & by_name.keys():
        op = by_name[name]
        near.update(net.producer[blob].name for blob in op.inputs if blob in net.producer)
        near.update(op.controls)
        near.update(reader.name for blob in op.outputs for reader in net.readers.get(blob, ()))
    shown = [op for op in net.ops if op.name in near]
    if len(shown) > _MOST_OPS:
        shown = [op for op in shown if op.name in chosen][:_MOST_OPS] or shown[:_MOST_OPS]
    return [("> " if op.name in chosen else "  ") + line_of(op) for op in shown]


def line_of(op: Op) -> str:
    """One op in one line."""
    read = _few((*op.inputs, *("^" + name for name in op.controls)))
    where = "".join(f"  ({part})" for part in (op.device, op.source) if part)
    return f"{_few(op.outputs) or '-'} = {op.type}({read})  # {op.name}{where}"


def _few(names: tuple[str, ...]) -> str:
    more = f", … {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


def first_difference(table: Table, one: int, other: int) -> tuple[int, int]:
    """Follows two unequal values down to where what they compute differs."""
    while one != other and table.operators[one] is table.operators[other]:
        pairs = zip(table.children[one], table.children[other], strict=False)
        differing = [pair for pair in pairs if pair[0] != pair[1]]
        if not differing or len(table.children[one]) != len(table.children[other]):
            break
        one, other = differing[0]
    return one, other


def value_text(table: Table, number: int) -> str:
    """What a value is, in a few words."""
    operator = table.operators[number]
    made_by = f" of {table.origins[number]!r}" if table.origins[number] else ""
    level = f" at loop level {operator.level}" if operator.level else ""
    return f"{operator.text}{made_by}{level}"

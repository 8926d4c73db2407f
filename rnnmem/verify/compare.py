"""Compares the values that two Nets must agree on."""

from __future__ import annotations

from collections.abc import Callable

from rnnmem.verify.errors import first_difference, refused, value_text
from rnnmem.verify.expressions import Table
from rnnmem.verify.value_numbering import Claim, Notes

_HOW_OFTEN = ("trips", "branch")


def verify_trips(table: Table, before: Notes, after: Notes) -> None:
    """Refuses another number of trips or another branch; all else differs where these do."""
    _verify(table, before, after, lambda claim: claim.key[0] in _HOW_OFTEN)


def verify_values(table: Table, before: Notes, after: Notes) -> None:
    """Refuses another input of an effect or another output."""
    _verify(table, before, after, lambda claim: claim.key[0] not in _HOW_OFTEN)


def _verify(table: Table, before: Notes, after: Notes, chosen: Callable[[Claim], bool]) -> None:
    found = {claim.key: claim for claim in after.claims if chosen(claim)}
    for old in before.claims:
        if not chosen(old):
            continue
        new = found.get(old.key)
        # Only a loop without effects may be gone, or go by another name; its readers tell.
        if new is None and old.key[0] == "trips":
            continue
        if new is None or old.number != new.number:
            raise _differ(table, old, new)


def verify_guards(before: Notes, after: Notes) -> None:
    """Refuses the loss of a check of the original (``EnsureShape``); more of them are welcome."""
    kept = {(claim.key, claim.number) for claim in after.guards}
    for claim in before.guards:
        if (claim.key, claim.number) not in kept:
            sentence = f"{claim.op!r} no longer checks what it checked"
            raise refused("stateful-op-lost", sentence, claim.net, (claim.op,))


def verify_agreements(table: Table, after: Notes) -> None:
    """Refuses an iteration run again that does not go on as the forward loop did."""
    for one in after.agreements:
        if one.numbers[0] != one.numbers[1]:
            was, now = first_difference(table, *reversed(one.numbers))
            sentence = (
                f"a replayed segment continues with {value_text(table, now)}, the loop went on "
                f"with "
                f"{value_text(table, was)}"
            )
            raise refused("value-changed", sentence, one.net, (one.op,))


def _differ(table: Table, old: Claim, new: Claim | None):
    what = {
        "trips": f"how often {old.op!r} runs",
        "branch": f"which branch {old.op!r} takes",
        "output": f"output {old.key[-1]} of the Net",
        "input": f"input {old.key[-1]} of {old.op!r}",
    }[str(old.key[0])]
    reason = "cond-changed" if old.key[0] in _HOW_OFTEN else "value-changed"
    if new is None:
        return refused(reason, f"{what}: is gone", old.net, (old.op,))
    was, now = first_difference(table, old.number, new.number)
    sentence = f"{what}: was {value_text(table, was)}, is {value_text(table, now)}"
    names = [new.op]
    if old.key[0] == "output":
        names = [new.net.producer[new.op].name] if new.op in new.net.producer else []
    return refused(reason, sentence, new.net, names)

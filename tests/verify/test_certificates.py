"""The rename map is a certificate: what it claims is proven or refused, and never believed."""

import dataclasses
import itertools

import pytest

from rnnmem.errors import CheckError
from rnnmem.ir.graph import Net
from rnnmem.ir.marks import RENAME_MAP
from rnnmem.ir.residuals import CHECKPOINTED, COUNTER, REPLAYED, START, rename_map, residuals_of
from rnnmem.verify import check
from tests.drawing import edited, with_input, with_op
from tests.loop_drawings import FORWARD, GRADIENT, RECURRENT, in_segments

ORIGINAL = RECURRENT
REWRITTEN = {
    "segments": in_segments(("h", "a"), length=2),
    "schedule": in_segments(("h", "a"), length=1, slots=2, count=5),
    "online schedule": in_segments(("h", "a"), length=1, slots=2, count=3, online=True),
}
EACH = pytest.mark.parametrize("name", REWRITTEN)


def claims(net: Net):
    return residuals_of(net.op_by_name["gradient"])


def claiming(net: Net, residuals) -> Net:
    return marked(net, rename_map(residuals)[RENAME_MAP])


def marked(net: Net, held: bytes) -> Net:
    attributes = net.op_by_name["gradient"].attributes
    return with_op(net, "gradient", attributes={**attributes, RENAME_MAP: held})


def refusal(net: Net) -> str:
    with pytest.raises(CheckError) as caught:
        check(ORIGINAL, net)
    return caught.value.reason


def test_what_stands_for_each_residual_is_handed_to_the_gradient():
    roles = {}
    for one in claims(REWRITTEN["segments"]):
        roles.setdefault(one.becomes, set()).add(one.blob)
    assert roles == {
        COUNTER: {"iteration"},
        START: {"iteration"},
        CHECKPOINTED: {"iteration", "h", "c"},
        REPLAYED: {"h", "a"},
    }


@EACH
def test_the_claims_are_proven(name):
    check(ORIGINAL, REWRITTEN[name])


@EACH
def test_each_claim_is_needed(name):
    net = REWRITTEN[name]
    for missing in claims(net):
        left = [one for one in claims(net) if one != missing]
        assert refusal(claiming(net, left)) == "segment-not-understood", missing
    assert refusal(claiming(net, [])) == "segment-not-understood"


def proven(residuals):
    """What of the claims is asked of the ops: not which blob a list of residuals holds."""
    return {
        dataclasses.replace(one, blob="") if one.becomes == REPLAYED else one for one in residuals
    }


@EACH
@pytest.mark.parametrize("field", ["blob", "becomes", "pushed", "popped"])
def test_claims_that_are_swapped_are_refused(name, field):
    net = REWRITTEN[name]
    for one, other in itertools.combinations(claims(net), 2):
        swapped = [this for this in claims(net) if this not in (one, other)]
        swapped.append(dataclasses.replace(one, **{field: getattr(other, field)}))
        swapped.append(dataclasses.replace(other, **{field: getattr(one, field)}))
        if proven(swapped) == proven(claims(net)):
            check(ORIGINAL, claiming(net, swapped))
        else:
            assert refusal(claiming(net, swapped)) == "segment-not-understood", (one, other)


@EACH
@pytest.mark.parametrize("field", ["blob", "becomes", "pushed", "popped"])
def test_a_claim_of_what_is_not_there_is_refused(name, field):
    net = REWRITTEN[name]
    for one in claims(net):
        changed = [this for this in claims(net) if this != one]
        changed.append(dataclasses.replace(one, **{field: "elsewhere"}))
        asked = field != "pushed" or one.becomes == CHECKPOINTED
        if asked and proven(changed) != proven(claims(net)):
            assert refusal(claiming(net, changed)) == "segment-not-understood", one
        else:
            check(ORIGINAL, claiming(net, changed))


@pytest.mark.parametrize(
    "held", [b"", b"{", b"7", b'[["h"]]', b"[[1, 2, 3, 4]]", b'{"h": "saved"}']
)
def test_what_is_no_rename_map_is_refused(held):
    assert refusal(marked(REWRITTEN["segments"], held)) == "segment-not-understood"


def states_swapped(net: Net) -> Net:
    """The forward loop keeps h on the list of c, and c on that of h."""

    def edit(body: Net) -> Net:
        (keep,) = [op for op in body.ops if op.type == "StatelessIf"]
        swap = {"h": "c", "c": "h"}
        return with_op(body, keep.name, inputs=tuple(swap.get(one, one) for one in keep.inputs))

    return edited(net, FORWARD, edit)


@EACH
def test_claims_that_agree_with_a_broken_rewrite_do_not_save_it(name):
    net = states_swapped(REWRITTEN[name])
    assert refusal(net) == "segment-not-understood"
    swap = {"h": "c", "c": "h"}
    agreeing = [
        dataclasses.replace(one, blob=swap.get(one.blob, one.blob))
        if one.becomes == CHECKPOINTED
        else one
        for one in claims(net)
    ]
    # The replay goes on from c as if it were h; under a schedule what it keeps disagrees before.
    assert refusal(claiming(net, agreeing)) in ("value-changed", "segment-not-understood")


@EACH
def test_a_gradient_that_reads_the_list_of_another_residual_is_refused_whatever_is_claimed(name):
    net = edited(REWRITTEN[name], GRADIENT, lambda body: with_input(body, "d", 0, "pop_h:1"))
    assert refusal(net) == "value-changed"
    swap = {"acc_h": "acc_a", "acc_a": "acc_h"}
    agreeing = [
        dataclasses.replace(one, popped=swap.get(one.popped, one.popped)) for one in claims(net)
    ]
    assert refusal(claiming(net, agreeing)) == "value-changed"

"""Iterations that are counted, not simulated."""

from rnnmem.simulate.buffers import Buffer, Ledger, ListValue, Origin
from rnnmem.simulate.extrapolation import Made, extrapolation, states_of

K = 1024


def test_a_state_in_the_list_of_states_and_in_another_list_counts_once():
    # h ─┬─► outputs, in every iteration
    #    └─► states, in the last 30
    ledger, made = Ledger(), Made()
    h = Buffer(ledger, K, Origin("mul", "mul:0"))
    outputs, states, tail = (ListValue(ledger, None) for _ in range(3))
    outputs.append(h)
    extrapolation([outputs], 1, 40, made)
    assert ledger.live == 41 * K
    state = Origin("mul", "state", saved_in="state")
    states.extend(states_of(h, state, made), 5)
    h.origin = state
    tail.extend(states_of(h, state, made), 30)
    assert ledger.live == 41 * K
    outputs.drop()
    h.drop()
    assert ledger.live == 30 * K
    tail.drop()
    assert ledger.live == 5 * K


def test_what_other_iterations_make_counts_for_itself():
    ledger, made = Ledger(), Made()
    one, other = (Buffer(ledger, K, Origin(name, name)) for name in ("mul", "add"))
    states = ListValue(ledger, None)
    states.extend(states_of(one, Origin("mul", "state"), made), 5)
    states.extend(states_of(other, Origin("add", "state"), made), 5)
    assert ledger.live == 12 * K

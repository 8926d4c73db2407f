"""What a simulation books of the states that segments begin with: so many, and as saved."""

import dataclasses

import pytest

from rnnmem.analysis.machine import CPU
from rnnmem.analysis.shapes import known_net
from rnnmem.planning.apply import apply_plan
from rnnmem.planning.pareto import plan_net
from rnnmem.simulate.timeline import record
from tests.forced_segments import forced_segments
from tests.handmade import encoded, op, rnn

UNITS = 64
STATE = 4 * UNITS * UNITS


def computed_start(net):
    """The Net with a first state that an op makes, so that it takes memory too."""
    (forward,) = [one for one in net.ops if one.name == "loop"]
    given = forward.inputs[1]
    made = op("made", "Tanh", given, f"f[{UNITS},{UNITS}]")
    blobs = {**net.blobs, "made": dataclasses.replace(net.blobs[given], name="made")}
    inputs = tuple("made" if blob == given else blob for blob in forward.inputs)
    ops = [one.replace(inputs=inputs) if one is forward else one for one in net.ops]
    return net.replace(ops=(made.op, *ops), blobs=blobs)


def in_segments(net, **schedule):
    with forced_segments():
        plan = plan_net(net, CPU, 1e9)
    (loop,) = plan.loops
    cut = dataclasses.replace(loop.segments, **schedule)
    return apply_plan(
        net, dataclasses.replace(plan, loops=(dataclasses.replace(loop, segments=cut),)), encoded
    )


def most_kept(net, blob="h"):
    """The most bytes of kept states that are alive at once."""
    live = most = 0
    for holder, change, _ in record(known_net(net)).log:
        if holder.origin.saved_in == blob and holder.origin.loops == ("loop",):
            live += change
            most = max(most, live)
    return most


@pytest.mark.parametrize("trips", [8, 12, 80, 1000])
@pytest.mark.parametrize("length", [2, 5])
def test_each_segment_keeps_one_state(trips, length):
    segments = -(-trips // length)
    net = rnn(UNITS, trips)
    assert most_kept(in_segments(net, length=length)) == (segments - 1) * STATE  # one is resident
    assert most_kept(in_segments(computed_start(net), length=length)) == segments * STATE


@pytest.mark.parametrize("slots", [2, 4])
def test_a_schedule_keeps_no_more_states_than_it_says(slots):
    net = in_segments(computed_start(rnn(UNITS, 200)), length=4, slots=slots, count=50, replays=3.0)
    kept = most_kept(net)
    assert STATE < kept <= (slots + 1) * STATE


def test_one_segment_keeps_one_state():
    assert most_kept(in_segments(computed_start(rnn(UNITS, 20)), length=20)) == STATE

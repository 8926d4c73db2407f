"""What becomes of a blob, where its loop has segments, schedules or other forms."""

import pytest

from rnnmem.passes.checkpoint.decision import Segments
from rnnmem.passes.encode.decision import SAVED, Encoding
from rnnmem.passes.rematerialise.decision import INVARIANT, RECOMPUTED, LoopPlan, ResidualDecision
from rnnmem.planning.outcomes import CHECKPOINTED, REPLAYED, other_states, outcome, outcomes
from rnnmem.planning.plan import NestedPlan, Plan


def decision(blob, word=SAVED, *, size=1024, was_saved=True):
    return ResidualDecision(
        blob, "Tanh", "float32", (256,), size, word, was_saved, "as decided", "a.py:1"
    )


def loop(*residuals, cut=None, **fields):
    return LoopPlan(("while",), ("back",), trips=80, residuals=residuals, segments=cut, **fields)


CUT = Segments(length=5, wanted=("h", "t"), states=("i", "h"), bytes=1024 + 68, saved_bytes=2048)


@pytest.mark.parametrize(
    ("one", "word", "words"),
    [
        (decision("h"), CHECKPOINTED, "kept at the start of each segment of 5 iterations"),
        (
            decision("t"),
            REPLAYED,
            "runs again with its segment of 5 iterations, kept for that segment",
        ),
        (decision("drawn"), SAVED, "as decided"),
        (decision("m", RECOMPUTED), RECOMPUTED, "as decided"),
        (decision("w", INVARIANT), INVARIANT, "as decided"),
    ],
)
def test_under_segments_only_what_cannot_run_again_is_saved_in_every_iteration(one, word, words):
    told = outcome(one, loop(one, cut=CUT))
    assert told.word == word
    assert words in told.reason


@pytest.mark.parametrize(
    ("fields", "kept", "again"),
    [
        ({"growth": 2}, "of 5 iterations, each 2 longer than the one before", "each 2 longer"),
        ({"length": 1}, "each segment of 1 iteration", "segment of 1 iteration,"),
        (
            {"slots": 3, "count": 16, "replays": 1.94},
            "at most 4 of 16 segments of 5 iterations at once",
            "runs again (1.9 times on average) with its segment",
        ),
        (
            {"slots": 6, "count": 256, "replays": 2.96, "online": True},
            "the start of 6 segments of 5 iterations at once, however many there are",
            "runs again (3.0 times on average)",
        ),
    ],
)
def test_a_schedule_is_told_with_its_slots(fields, kept, again):
    cut = Segments(**{"length": 5, "wanted": ("h", "t"), "states": ("h",), **fields})
    assert kept in outcome(decision("h"), loop(cut=cut)).reason
    assert again in outcome(decision("t"), loop(cut=cut)).reason


def test_the_form_of_what_a_segment_keeps_is_told():
    bits = loop(decision("t", "saved as bits"), cut=CUT, encodings=(Encoding("t", ("bits",)),))
    told = outcome(bits.residuals[0], bits)
    assert told.word == REPLAYED
    assert told.reason.endswith("; saved as bits")


def test_without_segments_it_is_as_decided():
    for word in (SAVED, "saved as bfloat16", RECOMPUTED):
        assert outcome(decision("t", word), loop()).word == word


def test_an_inner_loop_that_runs_again_with_the_outer_one_is_replayed():
    inner = LoopPlan(("while", "deep"), ("g",), trips=3, residuals=(decision("x"),))
    again = Segments(length=5, wanted=("deep:3",), states=("h",))
    told = outcomes(Plan(loops=(loop(cut=again, inner=(inner,)),)))
    assert told["while", "deep"]["x"].word == REPLAYED
    assert "the loop around it: runs again" in told["while", "deep"]["x"].reason
    told = outcomes(Plan(loops=(loop(cut=CUT, inner=(inner,)),)))
    assert told["while", "deep"]["x"].word == SAVED


def test_states_that_no_gradient_reads_are_told_too():
    cut = loop(decision("h"), cut=CUT)
    assert outcomes(Plan(loops=(cut,)))["while",]["i"].word == CHECKPOINTED
    others = other_states(cut)
    assert (others.op_type, others.bytes) == ("state", 68)
    assert other_states(loop(decision("h"))) is None
    assert other_states(loop(decision("h"), decision("i", size=4), cut=CUT)) is None


def test_a_loop_that_is_left_saves_what_it_saved():
    left = loop(decision("t", RECOMPUTED), decision("m", was_saved=False), closed="too odd")
    told = outcomes(Plan(loops=(left,)))["while",]
    assert list(told) == ["t"]
    assert (told["t"].word, told["t"].reason) == (SAVED, "left as it was: too odd")


def test_a_nested_plan_is_told_where_it_stands():
    nested = NestedPlan(("steps", "body"), ("steps",), Plan(loops=(loop(decision("h"), cut=CUT),)))
    assert outcomes(Plan(nested=(nested,)))["steps", "while"]["h"].word == CHECKPOINTED

"""The stranger that judges every rewrite: it shares no code with what planned or applied it.

``check`` proves that a rewritten Net computes what the original computes, and refuses what it
cannot prove:

    form       names, links, dtypes and arities at every depth
    devices    an op of the original runs where it ran
    effects    each stateful op runs once, in its place and in its turn
    reads      a new read of a variable stands for one in a loop that sees the same state
    places     a step net that is a step by itself is the same by itself
    lists      each pop gives back one push of one iteration
    segments   iterations run again are those that ran
    encodings  what is decoded is what was encoded, but for rounding (where allowed)
    starts     a list of gradients that begins without elements ends as one that began with zeros
    folds      an op that broadcasts an operand itself gives what it gave of the whole operand
    chunks     a loop over chunks of rows gives what its ops give for all rows (where allowed)
    values     outputs, what effects read, how often loops run, which branch is taken
"""

from __future__ import annotations

from collections.abc import Hashable

from rnnmem.ir.graph import Net
from rnnmem.verify.compare import judge_guards, judge_trips, judge_twins, judge_values
from rnnmem.verify.effects import Effects, judge_effects
from rnnmem.verify.expressions import Head, Table
from rnnmem.verify.lowering.checkpoint import lower_checkpoints
from rnnmem.verify.lowering.chunked_loss import lower_chunked_losses
from rnnmem.verify.lowering.encode import judge_roundings, lower_encodings
from rnnmem.verify.lowering.implicit_broadcast import lower_broadcasts
from rnnmem.verify.lowering.lazy_gradient_lists import lower_lazy_lists
from rnnmem.verify.nested import Handles, handles_of, without_places
from rnnmem.verify.order import RunningOrder
from rnnmem.verify.signatures import Signs
from rnnmem.verify.tensor_lists import judge_lists
from rnnmem.verify.value_numbering import Numbering
from rnnmem.verify.variable_reads import State
from rnnmem.verify.well_formed import judge_devices, judge_form, judge_signature

__all__ = ["check"]


def check(original: Net, rewritten: Net, *, chunks: bool = False, roundings: bool = False) -> None:
    """Proves that two Nets compute the same.

    Args:
      original: the Net as imported, after inlining and without dead ops.
      rewritten: what a rewrite made of it.
      chunks: whether loops over chunks of rows may stand in it, whose sums are the same but for
        the order in which they are added up.
      roundings: whether saved copies may be rounded; nothing else may be.

    Raises:
      CheckError: it is not the same, or cannot be shown to be; ``reason`` says in a word what is
        wrong, the text adds a sentence and the few ops around the place.
    """
    judge_roundings(rewritten, roundings)
    _judge(original, rewritten, handles_of(original), chunks=chunks)


def _judge(original: Net, rewritten: Net, handles: Handles, *, chunks: bool = False) -> None:
    """Judges two Nets whose inputs hold the handles of those variables."""
    order, signs = RunningOrder(), Signs()
    signatures = judge_form(original, order, signs)
    judge_form(rewritten, order, signs, signatures)
    judge_signature(original, rewritten)
    judge_devices(original, rewritten)
    flat = without_places(original, rewritten, handles, _judge)
    original = lower_lazy_lists(lower_broadcasts(original, flat), flat)
    if chunks:
        original, flat = lower_chunked_losses(original, flat)
    table, flat = Table(), lower_encodings(lower_checkpoints(flat))
    heads: dict[tuple[Hashable, int], tuple[Head, ...]] = {}
    states: dict[int, tuple[Hashable, State]] = {}
    effects_before = Effects(order, signs)
    before = Numbering(table, order, signs, effects_before, heads, states, handles).run(original)
    effects_after = Effects(order, signs, effects_before)
    after = Numbering(table, order, signs, effects_after, heads, states, handles).run(flat)
    judge_effects(effects_before, effects_after)
    judge_trips(table, before.notes, after.notes)
    judge_lists(table, before.notes, after.notes)
    judge_values(table, before.notes, after.notes)
    judge_twins(table, after.notes)
    judge_guards(before.notes, after.notes)

"""The verifier of every rewrite; it imports nothing of those who select, apply or plan.

``check`` proves that a rewritten Net computes what the original computes, and refuses what it
cannot prove:

    form        names, links, dtypes and arities at every depth
    devices     an op of the original runs where it ran
    effects     each stateful op runs once, in its place and in its turn
    reads       a new read of a variable stands for one in a loop that sees the same state
    own shapes  what is broadcast to the shape of a value is that value
    nested      a step net that is a step by itself is the same by itself
    lists       each pop gives back one push of one iteration
    counters    what a gradient loop counts itself is what was saved
    segments    iterations that are replayed are those that ran
    encodings   what is decoded is what was encoded, but for rounding (where allowed)
    equals      where the rewritten Net gets a value in another way, the original could (each module
                of `rnnmem.verify.lowering` that has a ``lower_original`` shows it for one way)
    items       loops over the items of a batched product add them up as the kernel does
    chunks      a loop over chunks of rows gives what its ops give for all rows (where allowed)
    values      outputs, what effects read, how often loops run, which branch is taken

Its trusted base is the Net (`rnnmem.ir`), the op table, the shapes and the row rules, each of which
tests hold against TensorFlow's registry and kernels.
"""

from __future__ import annotations

from collections.abc import Hashable

from rnnmem.ir.graph import Net
from rnnmem.verify.compare import verify_agreements, verify_guards, verify_trips, verify_values
from rnnmem.verify.effects import Effects, verify_effects
from rnnmem.verify.expressions import Operator, Table
from rnnmem.verify.lowering import lowered_original
from rnnmem.verify.lowering.accumulated_products import lower_accumulated_products
from rnnmem.verify.lowering.checkpoint import lower_checkpoints
from rnnmem.verify.lowering.chunked_loss import lower_chunked_losses
from rnnmem.verify.lowering.encode import lower_encodings, verify_roundings
from rnnmem.verify.lowering.induction_variables import lower_induction_variables
from rnnmem.verify.lowering.own_shape import lower_own_shapes
from rnnmem.verify.nested import Handles, handles_of, without_nested
from rnnmem.verify.order import RunningOrder
from rnnmem.verify.signatures import Signs
from rnnmem.verify.tensor_lists import verify_lists
from rnnmem.verify.value_numbering import ValueNumbering
from rnnmem.verify.variable_reads import State
from rnnmem.verify.well_formed import verify_devices, verify_form, verify_signature

__all__ = ["check"]


def check(
    original: Net,
    rewritten: Net,
    *,
    chunks: bool = False,
    roundings: bool = False,
    compiled: bool = False,
) -> None:
    """Proves that two Nets compute the same.

    Args:
      original: the Net as imported, after inlining and without dead ops.
      rewritten: what a rewrite made of it.
      chunks: whether loops over chunks of rows may add sums up, which are the same but for the
        order in which they are added up.
      roundings: whether saved copies may be rounded; nothing else may be.
      compiled: whether XLA compiles it, so that the last bits of rows may depend on how many there
        are in a chunk.

    Raises:
      CheckError: it is not the same, or cannot be shown to be; ``reason`` says in a word what is
        wrong, the text adds a sentence and the few ops around the place.
    """
    verify_roundings(rewritten, roundings)
    _verify(original, rewritten, handles_of(original), chunks=chunks, compiled=compiled)


def _verify(
    original: Net,
    rewritten: Net,
    handles: Handles,
    *,
    chunks: bool = False,
    compiled: bool = False,
) -> None:
    """Verifies two Nets whose inputs hold the handles of those variables."""
    order, signs = RunningOrder(), Signs()
    signatures = verify_form(original, order, signs)
    verify_form(rewritten, order, signs, signatures)
    verify_signature(original, rewritten)
    verify_devices(original, rewritten)
    flat = lower_own_shapes(without_nested(original, rewritten, handles, _verify))
    as_imported = original
    original = lowered_original(original, flat)
    original, flat = lower_accumulated_products(original, flat)
    original, flat = lower_chunked_losses(original, flat, chunks, compiled)
    flat = lower_induction_variables(as_imported, lower_checkpoints(flat))
    table, flat = Table(), lower_encodings(flat)
    operators: dict[tuple[Hashable, int], tuple[Operator, ...]] = {}
    states: dict[int, tuple[Hashable, State]] = {}
    effects_before = Effects(order, signs)
    before = ValueNumbering(table, order, signs, effects_before, operators, states, handles).run(
        original
    )
    effects_after = Effects(order, signs, effects_before)
    after = ValueNumbering(table, order, signs, effects_after, operators, states, handles).run(flat)
    verify_effects(effects_before, effects_after)
    verify_trips(table, before.notes, after.notes)
    verify_lists(table, before.notes, after.notes)
    verify_values(table, before.notes, after.notes)
    verify_agreements(table, after.notes)
    verify_guards(before.notes, after.notes)

"""What is decided for a Net before its loops are planned, and the searches for what is left."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping

from rnnmem.compiled import Target
from rnnmem.cut_losses import searches_by_chunks
from rnnmem.ir.graph import Net
from rnnmem.ir.order import without_dead_ops
from rnnmem.passes.decision import Context, Step
from rnnmem.passes.normalise.congruent_ops import apply as merge
from rnnmem.passes.normalise.decision import zero_lists
from rnnmem.passes.normalise.loop_invariants import past_loops
from rnnmem.passes.normalise.zero_lists import without_zero_lists
from rnnmem.passes.registry import BEFORE_LOOPS, Pass
from rnnmem.planning.saved import of_this_function
from rnnmem.planning.search import Search
from rnnmem.planning.setting import Setting
from rnnmem.tf.attributes import constant


@dataclasses.dataclass(frozen=True)
class Prepared:
    """What becomes of a Net before its loops are planned: the same whatever the bounds are.

    Attributes:
      search: for the Net as these decisions make it; knows every plan that was simulated.
      decided: the decisions, by pass.
      by_chunks: the searches where softmax losses run by chunks.
      left: the losses that do not, and why, by pass.
    """

    search: Search
    decided: Mapping[str, tuple]
    by_chunks: tuple[Search, ...]
    left: Mapping[str, tuple]

    def running_once(self, names: frozenset[str]) -> Prepared:
        """The same where ops with these names do not run again."""
        if self.search.setting.runs_once == names:
            return self
        setting = dataclasses.replace(self.search.setting, runs_once=names)
        first = self.search.beside
        beside = None if first is None else Search(first.net, setting)
        plain = Search(self.search.net, setting, beside=beside)
        cut = (Search(one.net, setting, losses=one.losses, beside=plain) for one in self.by_chunks)
        return dataclasses.replace(self, search=plain, by_chunks=tuple(cut))


def prepare(net: Net, setting: Setting, target: Target) -> Prepared:
    """Decides what needs no plan of loops: by passes that change the Net without them.

    Args:
      net: inlined, without dead code.
      setting: what searches assume.
      target: what is asked.
    """
    options, saved = target.options, target.options.plan
    may = "zero_lists" in options.passes if saved is None else bool(saved.of("zero_lists"))
    congruent = options.merges if saved is None else saved.of("congruent_ops")
    with contextlib.nullcontext() if saved is None else of_this_function():
        merged = merge(net, congruent) if congruent else net
        whole = without_zero_lists(merged, keeps_alive=setting.keeps_alive) if may else merged
        gone = zero_lists(merged, whole)
        whole, decided = _before_loops(whole, setting, target)
    # A saved plan is applied to what is left, so no decision may see more.
    whole = whole if whole is net else without_dead_ops(whole)
    beside = None if whole is net else Search(net, setting)
    whole = past_loops(whole) if target.by_xla else whole
    plain = Search(whole, setting, beside=beside)
    decided = {"congruent_ops": congruent, "zero_lists": gone, **decided}
    cut, left = ((), {}) if saved is not None else searches_by_chunks(plain, target)
    return Prepared(plain, decided, cut, left)


def _before_loops(net: Net, setting: Setting, target: Target) -> tuple[Net, dict[str, tuple]]:
    """The Net with what passes decide before its loops are planned, and these decisions by pass."""
    decided: dict[str, tuple] = {one.name: () for one in BEFORE_LOOPS}
    if not setting.keeps_alive or target.differentiated or target.left:
        return net, decided
    context = Context(decided.__getitem__, constant, setting.keeps_alive)
    for one in BEFORE_LOOPS:
        decided[one.name] = _decided(one, net, setting, target)
        net = one.apply(net, decided[one.name], context) if decided[one.name] else net
    return net, decided


def _decided(one: Pass, net: Net, setting: Setting, target: Target) -> tuple:
    """What a pass decides before loops are planned, or decided in the plan that was given."""
    if not setting.keeps_bits(one):
        return ()
    if target.options.plan is not None:
        return target.options.plan.of(one.name)
    if one.name not in target.options.passes:
        return ()
    in_call = setting.known(net)
    sizes = None if setting.sizes is None else in_call.net.blobs
    return one.decide(Step(net, in_call, sizes, setting.machine))

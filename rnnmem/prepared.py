"""What is decided for a Net before its loops are planned, and the searches for what is left."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

from rnnmem.analysis.machine import CPU
from rnnmem.analysis.shapes import known_net, with_known_shapes
from rnnmem.compiled import Target
from rnnmem.cut_losses import searches_by_chunks
from rnnmem.ir.graph import Blob, Net
from rnnmem.ir.order import without_dead_ops
from rnnmem.passes.accumulated_products.apply import apply as add_up_items
from rnnmem.passes.accumulated_products.decision import AccumulatedProduct
from rnnmem.passes.accumulated_products.select import products_of
from rnnmem.passes.implicit_broadcast.apply import with_implicit_broadcasts
from rnnmem.passes.implicit_broadcast.decision import ImplicitBroadcast
from rnnmem.passes.implicit_broadcast.outside import broadcasts_outside
from rnnmem.passes.late_products.apply import apply as make_late
from rnnmem.passes.late_products.decision import LateProduct
from rnnmem.passes.late_products.select import late_products
from rnnmem.passes.normalise.congruent_ops import apply as merge
from rnnmem.passes.normalise.decision import zero_lists
from rnnmem.passes.normalise.loop_invariants import past_loops
from rnnmem.passes.normalise.zero_lists import without_zero_lists
from rnnmem.passes.saved_shapes.apply import apply as save_shapes
from rnnmem.passes.saved_shapes.decision import SavedShape
from rnnmem.passes.saved_shapes.select import saved_shapes
from rnnmem.planning.saved import of_this_function
from rnnmem.planning.search import Search
from rnnmem.planning.setting import Setting
from rnnmem.simulate.timeline import counted_peak
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
        shapes = _saved_shapes(whole, setting, target)
        whole = save_shapes(whole, shapes, constant) if shapes else whole
        products = _products(whole, setting, target)
        whole = add_up_items(whole, products, constant)
        late = _late_products(whole, setting, target)
        whole = make_late(whole, late) if late else whole
        broadcasts = _broadcasts(whole, setting, target)
        whole = with_implicit_broadcasts(whole, broadcasts) if broadcasts else whole
    # A saved plan is applied to what is left, so no decision may see more.
    whole = whole if whole is net else without_dead_ops(whole)
    beside = None if whole is net else Search(net, setting)
    whole = past_loops(whole) if target.by_xla else whole
    plain = Search(whole, setting, beside=beside)
    decided = {
        "congruent_ops": congruent,
        "zero_lists": gone,
        "saved_shapes": shapes,
        "accumulated_products": products,
        "late_products": late,
        "broadcast_outside": broadcasts,
    }
    cut, left = ((), {}) if saved is not None else searches_by_chunks(plain, target)
    return Prepared(plain, decided, cut, left)


def _saved_shapes(net: Net, setting: Setting, target: Target) -> tuple[SavedShape, ...]:
    """The shapes that are saved instead of what gradient loops read nothing else of."""
    return _outside("saved_shapes", setting, target, lambda: saved_shapes(net, setting.known(net)))


def _products(net: Net, setting: Setting, target: Target) -> tuple[AccumulatedProduct, ...]:
    """The batched products that are to be added up item by item; their bits are those of a CPU."""

    def select() -> tuple[AccumulatedProduct, ...]:
        in_call = setting.known(net)
        peak = functools.cache(functools.partial(counted_peak, in_call))
        return products_of(known_net(net), setting.machine, in_call, peak)

    if setting.machine.device != CPU.device:
        return ()
    return _outside("accumulated_products", setting, target, select)


def _late_products(net: Net, setting: Setting, target: Target) -> tuple[LateProduct, ...]:
    """The products by constants that wait for the gradient; XLA moves no constants."""

    def select() -> tuple[LateProduct, ...]:
        return late_products(with_known_shapes(net), _in_call(net, setting))

    return _outside("late_products", setting, target, select)


def _broadcasts(net: Net, setting: Setting, target: Target) -> tuple[ImplicitBroadcast, ...]:
    """The operands outside of loops that ops broadcast themselves; XLA makes none whole."""

    def select() -> tuple[ImplicitBroadcast, ...]:
        return broadcasts_outside(with_known_shapes(net), _in_call(net, setting))

    return _outside("broadcast_outside", setting, target, select)


def _outside(
    name: str, setting: Setting, target: Target, select: Callable[[], tuple[Any, ...]]
) -> tuple[Any, ...]:
    """What a pass decides outside of loops, or decided in the plan that was given."""
    if not setting.keeps_alive or target.differentiated or target.left:
        return ()
    saved = target.options.plan
    if saved is not None:
        return saved.of(name)
    return select() if name in target.options.passes else ()


def _in_call(net: Net, setting: Setting) -> Mapping[str, Blob] | None:
    """The blobs with the shapes of the first call, where that chooses the plan."""
    return None if setting.sizes is None else setting.known(net).net.blobs

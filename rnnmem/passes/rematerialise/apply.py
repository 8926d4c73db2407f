"""Rewrites one loop pair: what is no longer saved is recomputed in the gradient step net.

The numbers must stay the same to the last bit although TensorFlow's graph optimizer runs after us
and fuses by looking at an op's neighbours. So every neighbourhood is kept:

* a blob that is no longer pushed keeps that reader: a *keep-alive use*, a list carried by the loop
  into which it is pushed and from which it is popped at once;
* a clone sees clones of the neighbours that its op saw, and as many readers (one, or more);
* between a clone and the saved blobs it starts from stands a *barrier* (an optional), which the
  optimizer neither removes nor looks through;
* a blob that a sum may not add up in place, because it is pushed, is held by its keep-alive use
  instead, until the next iteration, and so is what stands for it where the sum is cloned
  (``grappler/summation_order.py``);
* between a clone and the gradient ops that read it stands an *output barrier* (an optional again),
  which hides its shape too: the optimizer knows no shape of a popped blob, and reorders products
  (``x * (y * constant)``) as soon as it knows them.

Where more than one iteration is under way, a barrier in front of a clone also waits for the
incoming gradient of its iteration, so that recomputation never runs ahead of the gradient.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from rnnmem.analysis.loops import Link, LoopPair, inner_pairs
from rnnmem.grappler.keepalive import Keepalives
from rnnmem.grappler.summation_order import sums_of
from rnnmem.grappler.summation_races import racing
from rnnmem.ir.builders import Encode, awaited_by, pop_freely, remove_pop
from rnnmem.ir.editor import LoopEditor, NetEditor
from rnnmem.ir.order import order_shows, through_identities
from rnnmem.ir.residuals import Residual, rename_map
from rnnmem.passes.accumulators import accumulated, popped
from rnnmem.passes.encode.apply import Encoder
from rnnmem.passes.encode.decision import SAVED, SAVED_AS
from rnnmem.passes.rematerialise.clone import Materialiser
from rnnmem.passes.rematerialise.decision import DEAD, HOISTED, INNER, RECOMPUTED, LoopPlan
from rnnmem.passes.rematerialise.hoisted_reads import InnerRead


@dataclasses.dataclass(frozen=True)
class Surroundings:
    """What a pair's rewrite needs of the Nets around it.

    Attributes:
      forward: the Net around the forward loop.
      gradients: the Net around each gradient loop (at the top all are ``forward`` itself).
      bring: (gradient, blob of ``forward``) -> the same value in that gradient's Net.
      carry: the same for an accumulator of the forward loop, which is handed on as it is.
      read: (gradient, read op, blob of ``forward`` that holds the variable's handle) -> what one
        such read beside the outermost forward loop gives, in that gradient's Net.
      constant: encodes a number: (value, dtype) -> Constant.
      keeps_alive: whether a graph optimizer that fuses runs afterwards.
      hands_on: whether the gradient is a function of its own, which is handed what nobody reads.
    """

    forward: NetEditor
    gradients: tuple[NetEditor, ...]
    bring: Callable[[int, str], str]
    carry: Callable[[int, str], str]
    read: Callable[[int, InnerRead, str], str]
    constant: Encode
    keeps_alive: bool
    hands_on: bool = False


@dataclasses.dataclass
class Leftover:
    """What a pair's rewrite leaves behind.

    Attributes:
      forward: lists of keep-alive uses: somebody outside must need them, or they are pruned.
      unread: lists that the gradient is to be handed, though it reads none of them.
      gradients: the same as ``forward`` of each gradient loop.
      encoded: saved blob of the forward step net -> the blob that is pushed for it.
    """

    forward: list[str] = dataclasses.field(default_factory=list)
    unread: list[str] = dataclasses.field(default_factory=list)
    gradients: list[list[str]] = dataclasses.field(default_factory=list)
    encoded: dict[str, str] = dataclasses.field(default_factory=dict)


def rewrite_pair(pair: LoopPair, plan: LoopPlan, around: Surroundings) -> Leftover:
    """Applies the plan to one pair and to the pairs inside it; edits the Nets around in place."""
    return _PairRewrite(pair, plan, around).run()


class _PairRewrite:
    def __init__(self, pair: LoopPair, plan: LoopPlan, around: Surroundings):
        self.pair = pair
        self.plan = plan
        self.around = around
        self.forward = LoopEditor(around.forward, around.forward.ops[pair.forward.op.name])
        self.gradients = [
            LoopEditor(outer, outer.ops[gradient.loop.op.name])
            for outer, gradient in zip(around.gradients, pair.gradients, strict=True)
        ]
        self.accumulators: dict[str, str] = {}  # pushed blob -> outer blob of its accumulator
        for gradient in pair.gradients:
            for link in gradient.links:
                held = pair.forward.op.outputs[link.accumulator]
                self.accumulators.setdefault(link.pushed, held)
        self.clones = [
            Materialiser(
                pair,
                plan,
                gradient.links,
                editor,
                pop=lambda blob, number=number: self._pop(number, blob),
                bring=lambda blob, number=number: around.bring(number, blob),
                read=lambda one, number=number: self._read(number, one, one.op.inputs[0]),
                optional=around.keeps_alive,
            )
            for number, (gradient, editor) in enumerate(
                zip(pair.gradients, self.gradients, strict=True)
            )
        ]
        self.forward_keepalives = Keepalives(self.forward, around.constant)
        self.gradient_keepalives = [
            Keepalives(editor, around.constant) for editor in self.gradients
        ]
        self.renamed: dict[str, str] = {}
        # Accumulators that are added: blob and argument; of a gradient loop its number first.
        self.pushing: list[tuple[str, str]] = []
        self.popping: list[tuple[int, str, str]] = []

    def run(self) -> Leftover:
        self._rewrite_inner()
        for number in range(len(self.gradients)):
            for link in self.pair.gradients[number].links:
                self._redirect(number, link)
        self._drop_accumulators()
        leftover = Leftover(gradients=[[] for _ in self.gradients])
        if self.around.keeps_alive:
            encoded = {one.blob for one in self.plan.encodings}
            self.forward_keepalives.extend_lifetime(
                encoded & sums_of(self.pair.forward.body).addends
            )
            leftover.forward = self.forward_keepalives.write()
            leftover.unread = self.forward_keepalives.write_unread()
            for number, clones in enumerate(self.clones):
                self.gradient_keepalives[number].add(clones.lonely_blobs())
                self.gradient_keepalives[number].extend_lifetime(clones.held_addends())
                leftover.gradients[number] = self.gradient_keepalives[number].write()
        encoder = Encoder(
            self.forward, self.gradients, self.around.constant, self.around.keeps_alive
        )
        for one in self.plan.encodings:
            leftover.encoded[one.blob] = encoder.encode(one, *self._lists_of(one.blob))
            self.renamed[one.blob] = SAVED_AS[one.techniques]
        for number, editor in enumerate((*self.gradients, self.forward)):
            own_parallel_iterations = order_shows(editor.op.nets["body"])
            own_parallel_iterations |= editor is self.forward and bool(racing(self.pair.forward))
            parallel_iterations = {"parallel_iterations": self.plan.parallel_iterations}
            marks = rename_map(self._residuals(number))
            editor.finish(**marks, **({} if own_parallel_iterations else parallel_iterations))
        return leftover

    def _residuals(self, number: int) -> Iterator[Residual]:
        """What stands for each residual in a gradient loop; after the last, in the forward loop."""
        for blob, becomes in self.renamed.items():
            lists = [("", "")]
            if becomes in SAVED_AS.values():
                pushed, popping = self._lists_of(blob)
                mine = [argument for one, argument in popping if one == number]
                # All lists of a blob hold the same.
                lists = [(pushed[0], one) for one in mine] or [(one, "") for one in pushed]
            for pair in lists:
                yield Residual(blob, becomes, *pair)

    def _rewrite_inner(self) -> None:
        plans = {inner.path: inner for inner in self.plan.inner if not inner.closed}
        if not plans:
            return
        for inner in inner_pairs(self.pair, self.pair.gradients[0]):
            if inner.path not in plans:
                continue
            left = rewrite_pair(
                inner,
                plans[inner.path],
                Surroundings(
                    forward=self.forward.body,
                    gradients=(self.gradients[0].body,),
                    bring=lambda _, blob: self.clones[0].value(blob),
                    carry=lambda _, blob: self._pop(0, blob),
                    read=lambda _, one, handle: self.gradients[0].invariant(
                        self._read(0, one, handle)
                    ),
                    constant=self.around.constant,
                    keeps_alive=self.around.keeps_alive,
                ),
            )
            self.forward_keepalives.add(left.forward)
            self.gradient_keepalives[0].add(left.gradients[0])

    def _read(self, number: int, read: InnerRead, handle: str) -> str:
        """The outer blob that one read beside the loops gives; ``handle`` is a step net's blob."""
        forward = self.pair.forward
        index = forward.invariants[through_identities(forward.body, handle)]
        return self.around.read(number, read, forward.op.inputs[index])

    def _redirect(self, number: int, link: Link) -> None:
        """Gives the readers of a popped blob what stands for it, and takes the pop out."""
        if link.pushed in self.plan.saved:
            self.renamed[link.pushed] = SAVED
            return
        editor = self.gradients[number]
        loop = self.pair.gradients[number].loop
        popping = loop.pops[link.popped_by]
        if self._vanished(link.pushed):
            self.renamed[link.pushed] = INNER
        elif not loop.body.fan_out(link.popped):
            self.renamed.setdefault(link.pushed, DEAD)
        else:
            shown = self.clones[number].guarded(link.pushed, popping.name)
            editor.body.rename(link.popped, shown)
            self.renamed[link.pushed] = HOISTED if link.pushed in self.plan.hoisted else RECOMPUTED
        self.gradient_keepalives[number].wait_for(awaited_by(editor.body, popping))
        remove_pop(editor.body, popping)
        editor.remove_variable(popping.inputs[0])

    def _vanished(self, blob: str) -> bool:
        """Whether a nested loop no longer writes the blob."""
        producer = self.pair.forward.body.producer.get(blob)
        if producer is None:
            return False
        return blob not in self.forward.body.ops[producer.name].outputs

    def _drop_accumulators(self) -> None:
        dropped = {
            link.accumulator: link.pushed
            for gradient in self.pair.gradients
            for link in gradient.links
            if link.pushed not in self.plan.saved
        }
        for accumulator, blob in sorted(dropped.items()):
            pushing = self.pair.forward.pushes[accumulator]
            self.forward.body.remove(pushing.name)
            self.forward.remove_variable(pushing.inputs[0])
            addends = sums_of(self.pair.forward.body).addends
            if self._vanished(blob):
                continue
            if self.around.hands_on and self.renamed[blob] == DEAD and blob not in addends:
                self.forward_keepalives.replace_unread_push(blob)
            else:
                self.forward_keepalives.replace_push(blob, addends)

    def _pop(self, number: int, blob: str) -> str:
        """The blob of the gradient step net that pops ``blob``'s accumulator."""
        for link in self.pair.gradients[number].links:
            if link.pushed == blob:
                popping = self.pair.gradients[number].loop.pops[link.popped_by]
                body = self.gradients[number].body
                self.gradient_keepalives[number].wait_for(awaited_by(body, popping))
                pop_freely(body, popping)
                return link.popped
        editor = self.gradients[number]
        held = self.around.carry(number, self._accumulator(blob))
        kind = self.forward.body.blobs[blob]
        argument, value = popped(editor, held, kind, self.around.constant)
        self.popping.append((number, blob, argument))
        self.renamed[blob] = SAVED
        return value

    def _accumulator(self, blob: str) -> str:
        """The outer blob of the accumulator of ``blob``, which is added where there is none."""
        if blob not in self.accumulators:
            argument, held = accumulated(
                self.forward, blob, self.pair.list_maker, self.around.constant
            )
            self.pushing.append((blob, argument))
            self.accumulators[blob] = held
        return self.accumulators[blob]

    def _lists_of(self, blob: str) -> tuple[list[str], list[tuple[int, str]]]:
        """The forward loop's accumulators of a blob, and (gradient loop, accumulator) of each pop.

        Both are named by the arguments of the step nets.
        """
        links = [
            (number, link)
            for number, gradient in enumerate(self.pair.gradients)
            for link in gradient.links
            if link.pushed == blob
        ]
        pushed = {self.pair.forward.body.inputs[link.accumulator] for _, link in links}
        popping = [
            (number, self.pair.gradients[number].loop.body.inputs[link.popped_by])
            for number, link in links
        ]
        return (
            sorted(pushed | {argument for one, argument in self.pushing if one == blob}),
            popping + [(number, one) for number, other, one in self.popping if other == blob],
        )

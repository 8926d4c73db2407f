"""A rewritten training step against the original: verified, and run on exact rationals."""

from __future__ import annotations

import dataclasses
import functools
import gc
import itertools
import multiprocessing
from collections.abc import Callable, Iterable

from rnnmem.errors import RaceError
from rnnmem.ir.graph import Net
from rnnmem.passes.schedule.apply import with_edges
from rnnmem.planning.apply import apply_plan
from rnnmem.verify import check
from tests.drawing import encoded
from tests.proofs.exact import results
from tests.proofs.plans import EDGES, FULL, SAVED_SETS, TRIPS, TWO_FORMS, Choice, Selection
from tests.proofs.step_nets import Recipe, drawn, recipes
from tests.proofs.training_steps import training_step

Apply = Callable[[Net, Choice], Net]
Verify = Callable[[Net, Net], object]


class Wrong(AssertionError):
    """A plan of a recipe whose rewritten step gives something else."""


def applied(net: Net, choice: Choice) -> Net:
    """The Net under a plan, as `rnnmem.compile` applies it."""
    rewritten = apply_plan(net, choice.plan, encoded, keeps_alive=choice.keeps_alive)
    return with_edges(rewritten, choice.plan.scheduling_edges)


def prove(
    recipe: Recipe, product: str = FULL, apply: Apply = applied, verify: Verify = check
) -> tuple[int, int]:
    """Proves that a step net gives the same under every plan.

    Returns:
      Under how many it does, and how many more are left alone: the rewrite refuses them, because
      which of two ops is done first would show in a sum.

    Args:
      recipe: the step net.
      product: which plans, one of `tests.proofs.plans.PRODUCTS`.
      apply: what rewrites the step.
      verify: what must accept each rewritten step, given the original first.

    Raises:
      Wrong: names the recipe and the plan under which it does not.
    """
    histories: dict[tuple, int] = {}
    nets = {trips: training_step(recipe, trips) for trips in (None, TRIPS)}
    before = {
        trips: results(nets[None], trips, recipe.states, histories) for trips in range(TRIPS + 1)
    }
    proven = left = 0
    for choice in Selection(nets[None]).choices(product):
        net = nets[choice.trips]
        try:
            rewritten = apply(net, choice)
            verify(net, rewritten)
            for trips in range(TRIPS + 1) if choice.trips is None else (choice.trips,):
                after = results(rewritten, trips, recipe.states, histories)
                assert after == before[trips], f"other results after {trips} iterations"
        except RaceError:
            left += 1
        except Exception as error:
            raise Wrong(f"{type(error).__name__}: {error}\n{recipe}\n{choice}") from error
        else:
            proven += 1
    return proven, left


@dataclasses.dataclass(frozen=True)
class Part:
    """Some of the scope: which step nets, under which plans.

    Attributes:
      name: in words.
      product: one of `tests.proofs.plans.PRODUCTS`.
      recipes: makes the step nets.
    """

    name: str
    product: str
    recipes: Callable[[], Iterable[Recipe]]

    def prove(self, workers: int) -> tuple[int, int, int]:
        """Proves all of it; how many step nets there were, plans of them, and plans left alone."""
        # Nets and their analyses are trees of many small objects, of which few are garbage.
        with multiprocessing.Pool(workers, gc.set_threshold, (100_000,)) as pool:
            proven = functools.partial(prove, product=self.product)
            counts = list(pool.imap_unordered(proven, self.recipes(), chunksize=4))
        return len(counts), sum(one for one, _ in counts), sum(one for _, one in counts)


def scope(sampled: int) -> tuple[Part, ...]:
    """All parts, the complete ones first.

    Args:
      sampled: step nets that are drawn of each size that is not complete; of a thirtieth as many
        all plans are proven that those of 2 ops have.
    """
    small = [(states, ops) for states in (1, 2) for ops in (0, 1)]
    return (
        Part("every step net of up to 1 op and 2 states", FULL, _every(small)),
        Part("every step net of up to 1 op and 2 states", EDGES, _every(small)),
        Part("every step net of 2 ops and 1 or 2 states", TWO_FORMS, _every([(1, 2), (2, 2)])),
        Part("every step net of 3 ops and 1 state", SAVED_SETS, _every([(1, 3)])),
        *(
            Part(f"step nets of {ops} ops, {states} state{'s' * (states > 1)}, drawn", product,
                 functools.partial(_drawn, states, ops, count))
            for product, count in ((SAVED_SETS, sampled), (TWO_FORMS, sampled // 30))
            for ops, states in ((3, 2), (4, 1), (4, 2))
        ),
    )  # fmt: skip


def _every(sizes: list[tuple[int, int]]) -> Callable[[], Iterable[Recipe]]:
    return lambda: itertools.chain.from_iterable(recipes(*size) for size in sizes)


def _drawn(states: int, ops: int, count: int) -> Iterable[Recipe]:
    return (drawn(states, ops, seed) for seed in range(count))

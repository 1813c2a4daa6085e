"""Random list rules: those that do best on pipelines first, then a fixed random sequence."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from ppsolve.models.core.dag import Edges
from ppsolve.models.core.problem import IntArray, Objective, Problem
from ppsolve.solver.heuristics.lane_order import Burst, Lanes, MemoryShare
from ppsolve.solver.heuristics.list_scheduling import (
    PriorityRule,
    favoured_backwards,
    fillers,
    kind_class,
    ranked,
    tails,
)
from ppsolve.solver.heuristics.params import RULES

TAIL, BACKWARD, BALANCED, EAGER = "tail", "backward", "balanced", "eager"
"""Ranks under limits: longest tail; backwards first; in between; weight gradients at once."""

_LIMITED = (
    # Share of memory, rank, patience of ops, patience of fillers.
    (MemoryShare(), TAIL, 0.0, 0.0),
    (MemoryShare(), TAIL, 1.0, 1.0),
    (MemoryShare(offset=0.5), EAGER, 0.5, 0.0),
    (MemoryShare(), EAGER, 0.0, 0.0),
    (MemoryShare(offset=0.5), TAIL, 1.0, 1.0),
    (MemoryShare(1.1), TAIL, 0.0, 0.0),
    (MemoryShare(wait_for_last=True), BACKWARD, 0.0, 0.0),
    (MemoryShare(everywhere=False), TAIL, 1.0, 1.0),
    (MemoryShare(1.1, RULES.ceiling), TAIL, 1.0, 1.0),
    (MemoryShare(offset=0.5), BACKWARD, 0.5, 0.5),
    (MemoryShare(1.1, -1.0), TAIL, 0.0, 0.0),
    (MemoryShare(everywhere=False), BALANCED, 0.5, 0.5),
    (MemoryShare(everywhere=False, wait_for_last=True), TAIL, 0.0, 0.0),
)


@dataclass(frozen=True, eq=False)
class Recipe:
    """The numbers that make one list rule."""

    preference: str  # ranks: `TAIL`, `BACKWARD`, `BALANCED` or `EAGER`
    # patience, filler_patience, frees_memory, reserve, promise: as in `PriorityRule`
    patience: float = 0.0
    filler_patience: float = 0.0
    frees_memory: bool = True
    reserve: bool = True
    promise: bool = True
    favour: float = (
        0.0  # ticks taken off the tails of forwards, for ranks by the longest tail
    )
    # float64[groups] or None: ticks added to the tails of each (stage, kind)
    noise: NDArray[np.float64] | None = None
    # int64[lanes] or None: micro-batches that each lane may have in flight; None: memory alone
    # decides
    limits: IntArray | None = None
    wait_for_last: bool = False  # as in `MemoryShare`
    # last micro-batches whose weight gradients fill idle time even where `EAGER` ones do not
    late: int = 0
    # what lanes hold between the first micro-batches and the last ones, if less than `limits`
    burst: Burst | None = None


class RuleBook:
    """The list rules of one problem, n ops: the first ones, then random ones without end."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.lanes = Lanes(problem)
        self.mean = float(problem.duration.mean())
        self._filler = fillers(problem)
        groups = problem.stage * len(problem.kinds) + problem.kind
        self._group = groups - groups.min()
        self.num_groups = int(self._group.max()) + 1

    def recipes(self) -> Iterator[Recipe]:
        """Yield recipes without end; those with limits and those without take turns."""
        rng = random.Random(0)
        if self.lanes.each and self.problem.objective is Objective.DEVICE_SPAN:
            yield self._in_step()
        limited = (self._limited(*row) for row in (_LIMITED if self.lanes.each else ()))
        bursts = (
            self._random_burst(rng)
            for _ in range(RULES.first_bursts if self._bursts_pay else 0)
        )
        for turn in zip_longest(bursts, limited, self._plain()):
            yield from (recipe for recipe in turn if recipe is not None)
        while True:
            yield self._random(rng)
            if self.lanes.each:
                yield self._random_limited(rng)
            if self._bursts_pay:
                yield self._random_burst(rng)

    @property
    def _bursts_pay(self) -> bool:
        lanes = self.lanes.each
        return (
            self.problem.objective is Objective.DEVICE_SPAN
            and len({lane.pool for lane in lanes}) < len(lanes)
            and all((lane.first_release != lane.last_release).all() for lane in lanes)
        )

    def rule(self, recipe: Recipe) -> tuple[PriorityRule, Edges]:
        """Return the rule of a recipe, and the precedences that keep its limits.

        A `DeadlockError` says that precedences of the problem contradict the limits.
        """
        none = np.zeros(0, dtype=np.int64)
        edges = (none, none, none)
        if recipe.limits is None:
            tail = tails(self.problem)
        else:
            edges = self._edges(recipe, recipe.limits)
            tail = tails(self.problem, edges)
        filler = self._filler
        if recipe.preference == EAGER:
            rank = ranked(np.where(kind_class(self.problem) == 1, 1, 0), -tail)
            microbatch = self.problem.microbatch
            filler = filler & (microbatch > int(microbatch.max()) - recipe.late)
        elif recipe.preference == BACKWARD:
            rank = ranked(kind_class(self.problem), -tail)
        else:
            noise = np.zeros(1) if recipe.noise is None else recipe.noise[self._group]
            rank = favoured_backwards(self.problem, tail, recipe.favour, noise)
        rule = PriorityRule(
            rank,
            filler,
            recipe.patience,
            recipe.filler_patience,
            recipe.frees_memory,
            recipe.reserve,
            recipe.promise,
        )
        return rule, edges

    def _edges(self, recipe: Recipe, limits: IntArray) -> Edges:
        if recipe.burst is not None:
            return self.lanes.edges_before_burst(limits, recipe.burst)
        return self.lanes.edges_within(limits, wait_for_last=recipe.wait_for_last)

    def _plain(self) -> Iterator[Recipe]:
        for preference, patience, filler_patience in (
            (BALANCED, 1.0, 0.0),
            (BALANCED, 1.0, 3.0),
            (TAIL, 1.0, 1.0),
            (BACKWARD, 0.5, 0.5),
            (BACKWARD, 0.0, 0.0),
            (TAIL, 0.0, 0.0),
            (BALANCED, 1.0, 0.5),
        ):
            yield Recipe(
                preference, patience, filler_patience, favour=self._favour(preference)
            )
        yield Recipe(BACKWARD, frees_memory=False)
        yield Recipe(BALANCED, 1.0, 1.0, reserve=False, favour=self.mean)

    def _favour(self, preference: str) -> float:
        return self.mean if preference == BALANCED else 0.0

    def _random(self, rng: random.Random) -> Recipe:
        favour = rng.choice((0.0, 0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 1e6)) * self.mean
        strength = rng.choice((0.0, 1.0)) * self.mean
        noise = np.array([rng.gauss(0.0, strength) for _ in range(self.num_groups)])
        return Recipe(
            TAIL,
            rng.choice(RULES.patience),
            rng.choice(RULES.patience),
            frees_memory=rng.random() < 0.6,
            reserve=rng.random() < 0.7,
            favour=favour,
            noise=noise,
        )

    def _limited(
        self,
        share: MemoryShare,
        preference: str,
        patience: float,
        filler_patience: float,
    ) -> Recipe:
        # The limits keep stages from starving one another; promises on top would only delay.
        return Recipe(
            preference,
            patience,
            filler_patience,
            promise=False,
            favour=self._favour(preference),
            limits=self.lanes.limits(share),
            wait_for_last=share.wait_for_last,
        )

    def _in_step(self) -> Recipe:
        # Devices stay in step from their first backward on. Weight gradients follow their backwards
        # until those left fit into memory together; then they wait and fill the drain.
        return Recipe(
            EAGER,
            promise=False,
            limits=self.lanes.warm_up_limits(),
            late=self.lanes.most_kept,
        )

    def _random_limited(self, rng: random.Random) -> Recipe:
        share = MemoryShare(
            rng.choice((0.9, 1.0, 1.0, 1.1, 1.25)),
            rng.choice((-1.0, 0.0, 0.0, 0.5, RULES.ceiling)),
            everywhere=rng.random() < 0.6,
            wait_for_last=rng.random() < 0.4,
        )
        preference = rng.choice((TAIL, TAIL, BACKWARD, BALANCED, EAGER))
        patience = rng.choice(RULES.patience[:3])
        return self._limited(share, preference, patience, rng.choice(RULES.patience))

    def _random_burst(self, rng: random.Random) -> Recipe:
        # Memory stays below its limit until the last forwards fill it: so inner devices have done
        # most of their work when the last micro-batches come back.
        fits = self.lanes.most_in_flight
        full = MemoryShare(1.0, rng.choice((0.0, 0.5)), everywhere=False)
        steady = MemoryShare(
            rng.choice((0.8, 0.85, 0.9, 0.95, 1.0, 1.0)), rng.choice((0.0, 0.5))
        )
        recipe = self._limited(full, TAIL, rng.choice((0.3, 0.4, 0.5)), 0.0)
        burst = Burst(
            self.lanes.limits(steady),
            forwards=round(fits * rng.choice((0.5, 0.75, 1.0))),
            kept=max(1, round(fits * rng.choice((0.2, 0.3, 0.4)))),
            free=round(fits * rng.choice((1.0, 1.25, 1.5, 1.75))),
        )
        return replace(recipe, burst=burst, favour=rng.choice((0.0, 0.5)) * self.mean)

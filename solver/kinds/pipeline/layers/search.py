"""Annealing over splits of layers, each rated by a schedule."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.solver.clock import Clock

Rate = Callable[[IntArray], "int | None"]
"""Returns the makespan of a split in ticks, None where memory is too small for it."""

Fitted = Callable[[IntArray, Any, random.Random], "IntArray | None"]
"""Returns a split with types that fit on the changed stages."""

HEAT = 0.003
"""Share of the makespan by which a worse split is usually taken at the beginning."""

SWAPS = 0.15
"""Share of moves that swap the layers of two stages."""


class LayerSearch:
    """Moves layers between stages and types where schedules get shorter.

    `steps`: splits that are rated at the most.
    `fitted`: returns a split with other types on changed stages (bool[S]), None where
        none fits.
    `least`: int64[S], layers of each stage at the least.
    `heat`: share of the makespan by which a worse split is taken at the beginning.
    `by_clock`: let the temperature fall with the clock too; without it the search is
        the same on every machine.
    `best`: int64[types, S] or None.
    """

    def __init__(
        self,
        rate: Rate,
        seed: int,
        steps: int,
        fitted: Fitted | None = None,
        *,
        least: IntArray | int = 1,
        heat: float = HEAT,
        by_clock: bool = True,
    ) -> None:
        self._fitted, self._heat, self._by_clock = fitted, heat, by_clock
        self._rate, self._steps, self._used = rate, steps, 0
        self._least = least
        self._random = random.Random(seed)
        self.best: IntArray | None = None
        self.value: int | None = None

    def run(self, start: IntArray, clock: Clock, enough: int) -> None:
        """Anneal from a split until the time is over or a schedule is short enough.

        `start`: int64[types, S].
        `enough`: makespan in ticks at which nothing better can be.
        """
        current, value = start, self._try(start)
        first = self._used
        while not clock.is_over and self._used < self._steps:
            if self.value is not None and self.value <= enough:
                return
            done = (self._used - first) / max(1, self._steps - first)
            if self._by_clock:
                done = max(done, clock.spent)
            counts = self._changed(current)
            found = self._try(counts)
            if value is None:
                current, value = counts, found
            elif found is not None:
                heat = self._heat * value * (1 - min(1.0, done)) ** 3
                if found <= value - heat * math.log(1 - self._random.random()):
                    current, value = counts, found

    def _try(self, counts: IntArray) -> int | None:
        self._used += 1
        found = self._rate(counts)
        if found is not None and (self.value is None or found < self.value):
            self.best, self.value = counts, found
        return found

    def _changed(self, counts: IntArray) -> IntArray:
        """Return a split with one or two layers elsewhere or of another type, or stages swapped."""
        changed = counts.copy()
        types, stages = counts.shape
        if self._random.random() < SWAPS:
            a, b = self._random.randrange(stages), self._random.randrange(stages)
            changed[:, [a, b]] = changed[:, [b, a]]
        else:
            self._move(changed, types, stages)
        if (changed.sum(axis=0) < self._least).any():
            return counts
        if self._fitted is None:
            return changed
        fitted = self._fitted(changed, (changed != counts).any(axis=0), self._random)
        return counts if fitted is None else fitted

    def _move(self, changed: IntArray, types: int, stages: int) -> None:
        least = np.broadcast_to(self._least, stages)
        for _ in range(self._random.choice((1, 1, 2))):
            source = self._random.randrange(stages)
            kinds = [kind for kind in range(types) if changed[kind, source]]
            if not kinds:
                continue
            kind, other = self._random.choice(kinds), self._random.randrange(types)
            is_moved = changed[:, source].sum() > least[source] and (
                types == 1 or self._random.random() < 0.6
            )
            target = self._random.randrange(stages) if is_moved else source
            changed[kind, source] -= 1
            changed[other, target] += 1
            if target != source and self._random.random() < 0.5:
                back = [each for each in range(types) if changed[each, target]]
                returned = self._random.choice(back)
                changed[returned, target] -= 1
                changed[self._random.randrange(types), source] += 1

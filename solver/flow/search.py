"""Search over permutations under patterns: all patterns race, the best are annealed for long."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.solver.clock import Clock
from ppsolve.solver.flow.annealing import Annealer
from ppsolve.solver.flow.evaluator import Evaluator, Timed
from ppsolve.solver.flow.exhaustive import best_under
from ppsolve.solver.flow.flow import Flow
from ppsolve.solver.kernels.records import NEVER

DRAWN = 64
"""Random permutations beside those by size that a pattern begins with. A pattern that overruns a
pool under all of them is left out."""

ALL_TRIED = 8
"""Micro-batches up to which a pattern begins with the best of all permutations: of 8, 40,320."""

RACE_STEPS = 20
"""Changes per op in the first round of the race, in which micro-batches change slots only; with 60
the instances of `HEATS` end 0.2 % longer, as less is left for the best line."""

SHIFTS = 500
"""Changes in 1,000 that move an op on its device, once patterns change too; 300, 700 and 800 do as
well within 0.05 % (instances of `HEATS`)."""

HEATS = (0.1, 0.03, 0.3)
"""Mean worsening that is accepted in the beginning, in mean durations of an op, by turns. After
150,000 changes of eight instances (128 to 768 ops, published cases and log-normal ones, two seeds)
lines are shorter than with 1.0 by 0.37 % with 0.3, 0.53 % with 0.1, 0.36 % with 0.03, and 0.55 %
with these three by turns."""

KEPT = 4
"""Best lines that are annealed in turn. On these instances 1 finds the same lines."""

LEAST_STEPS, PATIENCE = 2_000, 3
"""Changes per op that are tried at least in a round; and how many times those that led to its best
line."""

FRESH_ROUNDS = 8
"""Rounds in a row, each from permutations drawn anew, that may find nothing shorter where pools do
not hold everything. Without such pools several rounds end where one does (4 x 8, 8 x 8, two of
8 x 16), and a proof of 4 x 8 that took 6.4 s of CPU time took 8.6. A round takes
0.3 to 1.2 s of CPU time on 4 x 16 and 2 to 4 s on 8 x 16; fewer leave more time to CP-SAT. With
little memory one round ends up to 1.5 % above the best of several."""

COUNTED_STEPS, MOST_COUNTED = 100, 100_000
"""Changes per op, and in all, of a search without a clock; of 192 ops Python tries 17,000 a
second."""

CALL_SECONDS, LATE = 0.5, 0.7
"""Longest run between two looks at the clock in seconds, and share of the time left that it takes:
nothing can break it off."""

FIRST_STEPS = 50
"""Changes of a first run, from which the time of the others is foretold."""

Tell = Callable[[Timed], None]


def search_permutations(
    evaluator: Evaluator,
    starts: Iterable[Timed],
    clock: Clock | None = None,
    *,
    target: int = 0,
    seed: int = 0,
    steps: int | None = None,
    tell: Tell | None = None,
) -> Timed | None:
    """Return the best line that is found: order of micro-batches, and of ops on every device.

    Parameters
    ----------
    evaluator : Evaluator
        Tables of the flow.
    starts : iterable of Timed
        Patterns to begin with, each with a permutation; those that overrun a pool too.
    clock : Clock, optional
        Once it is over, the best line so far is returned.
    target : int
        Makespan in ticks that nothing has to be sought below.
    seed : int
        Seed of all random choices.
    steps : int, optional
        Changes that are tried, whatever the clock says; without clock and steps their number
        depends on the size of the flow. With steps the same line is found on every machine.
    tell : callable, optional
        Told of better lines.

    Returns
    -------
    Timed or None
        None where every pattern overruns a pool.
    """
    clock = clock or Clock()
    size = evaluator.flow.ops.size
    if steps is None and not clock.is_limited:
        steps = min(COUNTED_STEPS * size, MOST_COUNTED)
    return _PermutationSearch(evaluator, clock, target, seed, steps, tell).run(starts)


class _PermutationSearch:
    def __init__(
        self,
        evaluator: Evaluator,
        clock: Clock,
        target: int,
        seed: int,
        steps: int | None,
        tell: Tell | None,
    ) -> None:
        self.evaluator, self.clock, self.target, self.tell = evaluator, clock, target, tell
        self.annealer = Annealer(evaluator, seed)
        self.rng = np.random.default_rng(seed)
        self.size = evaluator.flow.ops.size
        self.mean = max(1.0, float(evaluator.flow.duration.mean()))
        self.most = math.inf if steps is None else steps
        self.done = self.done_at_least = self.begun = 0
        self.least = NEVER
        self.pace: float | None = None
        self.best: Timed | None = None

    def run(self, starts: Iterable[Timed]) -> Timed | None:
        patterns: list[Timed] = []
        self._round(_kept(starts, patterns))
        idle = 0 if _may_overrun(self.evaluator.flow) else FRESH_ROUNDS
        while self.best is not None and idle < FRESH_ROUNDS and not self._is_ended:
            before = self.best.value
            self._round(patterns)
            idle = idle + 1 if self.best.value == before else 0
        return self.best

    def _round(self, starts: Iterable[Timed]) -> None:
        """Search from permutations drawn anew until nothing shorter is found for long."""
        self.least, self.begun, self.done_at_least = NEVER, self.done, self.done
        pool = self._race(self._begin(starts))
        if pool and not self._is_over:
            self._deepen(pool)

    @property
    def _is_over(self) -> bool:
        if self.best is None:
            return self.clock.is_over
        led = self.done_at_least - self.begun
        patience = max(LEAST_STEPS * self.size, PATIENCE * led)
        has_stalled = self.most == math.inf and self.done - self.begun >= patience
        return has_stalled or self._is_ended

    @property
    def _is_ended(self) -> bool:
        is_met = self.best is not None and self.best.value <= self.target
        return is_met or self.done >= self.most or self.clock.is_over

    def _note(self, found: Timed) -> None:
        if found.value < self.least:
            self.least, self.done_at_least = found.value, self.done
        if found.is_feasible and (self.best is None or found.value < self.best.value):
            self.best = found
            if self.tell is not None:
                self.tell(found)

    def _begin(self, starts: Iterable[Timed]) -> list[Timed]:
        """Return every pattern with the best of some permutations."""
        pool = []
        for start in starts:
            found = self._first(start)
            if found.is_feasible:
                pool.append(found)
                self._note(found)
                if self._is_over:
                    break
        return pool

    def _first(self, start: Timed) -> Timed:
        """Return a pattern with its best permutation, or the best of those by size and drawn."""
        permutations = np.stack([start.permutation, *self._orders()])
        values = self.evaluator.values(start.pattern, permutations)
        best = int(values.argmin())
        found = Timed(int(values[best]), start.pattern, permutations[best])
        if len(start.permutation) > ALL_TRIED:
            return found
        return best_under(self.evaluator, start.pattern, limit=found.value - 1)[0] or found

    def _orders(self) -> list[IntArray]:
        work = self.evaluator.flow.duration.sum(axis=1)
        drawn = [self.rng.permutation(len(work)) for _ in range(DRAWN)]
        return [np.argsort(work, kind="stable"), np.argsort(-work, kind="stable"), *drawn]

    def _anneal(self, timed: Timed, steps: int, heat: float, shifts: int) -> Timed:
        """Anneal a line; note the best one."""
        steps = self._allowed(steps)
        if steps <= 0:
            return timed
        began = time.monotonic()
        found = self.annealer.improve(
            timed, steps, heat=int(heat * self.mean), shifts=shifts, target=self.target
        )
        self.pace = (time.monotonic() - began) / steps
        self.done += steps
        self._note(found)
        return found

    def _allowed(self, steps: int) -> int:
        """Return the number of steps, less where there is no time for all of them."""
        steps = int(min(steps, self.most - self.done))
        if not self.clock.is_limited:
            return steps
        if self.pace is None:
            return min(steps, FIRST_STEPS)
        in_time = int(min(CALL_SECONDS, LATE * self.clock.left) / self.pace)
        # A first run that waited for a compiler or another process says nothing of the others.
        return min(steps, max(in_time, FIRST_STEPS))

    def _race(self, pool: list[Timed]) -> list[Timed]:
        """Anneal all patterns a little, half of them longer, and so on; return the best."""
        steps, shifts = RACE_STEPS * self.size, 0
        while len(pool) > 1 or shifts == 0:
            raced: list[Timed] = []
            for timed in pool:
                if self._is_over:
                    return _sorted([*raced, timed])
                raced.append(self._anneal(timed, steps, HEATS[0], shifts))
            if not raced:
                return []
            pool = _sorted(raced)[: (len(raced) + 1) // 2]
            steps, shifts = 2 * steps, SHIFTS
        return pool

    def _deepen(self, pool: list[Timed]) -> None:
        """Anneal the best line again and again, longer where that does not help."""
        steps, turn = 4 * RACE_STEPS * self.size, 0
        while not self._is_over:
            before = self.least
            found = self._anneal(pool[turn % len(pool)], steps, HEATS[turn % len(HEATS)], SHIFTS)
            turn += 1
            pool = _sorted([*pool, found])[:KEPT]
            if found.value >= before and turn % len(HEATS) == 0:
                steps *= 2


def _may_overrun(flow: Flow) -> bool:
    """Return true if some pool does not hold all that all micro-batches acquire."""
    taken = [flow.acquire[:, flow.pool == pool].sum() for pool in range(len(flow.room))]
    return bool((np.array(taken) > flow.room).any())


def _kept(starts: Iterable[Timed], patterns: list[Timed]) -> Iterator[Timed]:
    """Yield patterns one by one as they are made, and keep them."""
    for start in starts:
        patterns.append(start)
        yield start


def _sorted(pool: Sequence[Timed]) -> list[Timed]:
    return sorted(pool, key=lambda timed: timed.value)

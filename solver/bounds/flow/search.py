"""Search over permutations under patterns: all patterns race, the best are annealed for long."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.solver.bounds.flow.evaluator import Evaluator, Timed
from ppsolve.solver.bounds.flow.flow import Flow
from ppsolve.solver.bounds.flow.patterns import Pattern
from ppsolve.solver.clock import Clock
from ppsolve.solver.kernels.annealing import (
    AnnealingBuffers,
    AnnealingParams,
    anneal,
    exponential_quantiles,
)
from ppsolve.solver.kernels.records import NEVER


@dataclass(frozen=True)
class FlowSearchParams:
    """Effort of the search over orders of unequal micro-batches; a step is one change tried."""

    drawn: int = (
        64  # random permutations that a pattern begins with, besides those by size
    )
    race_steps: int = 20  # steps per op in the first round of the race
    shifts: int = (
        500  # steps in 1,000 that move an op on its device, once patterns change too
    )
    heats: tuple[float, ...] = (
        0.1,
        0.03,
        0.3,
    )  # worsening accepted at first, in mean durations
    kept: int = 4  # best lines that are annealed in turn
    least_steps: int = 2_000  # steps per op that are tried at least in a round
    patience: int = (
        3  # a round ends after so many times the steps that led to its best line
    )
    fresh_rounds: int = (
        8  # rounds in a row that may find nothing where pools are too small for all
    )
    counted_steps: int = 100  # steps per op of a search without a clock
    most_counted: int = 100_000  # and in all
    call_seconds: float = 0.5  # longest run between two looks at the clock
    late: float = 0.7  # share of the time left that a run takes at most
    first_steps: int = (
        50  # steps of a first run, from which the time of the others is foretold
    )


FLOW_SEARCH = FlowSearchParams()

Tell = Callable[[Timed], None]


@dataclass
class PermutationSearch:
    """A search for the best line: order of micro-batches, and of ops on every device.

    `evaluator`: tables of the flow.
    `clock`: once it is over, the best line so far is returned.
    `target`: makespan in ticks that nothing has to be sought below.
    `steps`: changes that are tried, whatever the clock says; without clock and steps
        their number depends on the size of the flow. With steps the same line is found
        on every machine.
    `tell`: told of better lines.
    """

    evaluator: Evaluator
    clock: Clock = field(default_factory=Clock)
    target: int = 0
    steps: int | None = None
    tell: Tell | None = None
    params: FlowSearchParams = FLOW_SEARCH

    def __post_init__(self) -> None:
        """Begin without a line."""
        self.annealer = Annealer(self.evaluator)
        self.rng = np.random.default_rng(0)
        self.size = self.evaluator.flow.ops.size
        self.mean = max(1.0, float(self.evaluator.flow.duration.mean()))
        self.most = math.inf if self.steps is None else self.steps
        if self.steps is None and not self.clock.is_limited:
            self.most = min(
                self.params.counted_steps * self.size, self.params.most_counted
            )
        self.done = self.done_at_least = self.begun = 0
        self.least = NEVER
        self.pace: float | None = None
        self.best: Timed | None = None

    def run(self, starts: Iterable[Timed]) -> Timed | None:
        """Return the best line that is found, None where every pattern overruns a pool.

        The search begins with each of `starts`; those that overrun a pool may be among them.
        """
        patterns: list[Timed] = []
        self._round(_kept(starts, patterns))
        idle = 0 if _may_overrun(self.evaluator.flow) else self.params.fresh_rounds
        while (
            self.best is not None
            and idle < self.params.fresh_rounds
            and not self._is_ended
        ):
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
        patience = max(self.params.least_steps * self.size, self.params.patience * led)
        has_stalled = self.most == math.inf and self.done - self.begun >= patience
        return has_stalled or self._is_ended

    @property
    def _is_ended(self) -> bool:
        is_met = self.best is not None and self.best.value <= self.target
        return is_met or self.done >= self.most or self.clock.is_over

    def _note(self, timed: Timed) -> None:
        if timed.value < self.least:
            self.least, self.done_at_least = timed.value, self.done
        if timed.is_feasible and (self.best is None or timed.value < self.best.value):
            self.best = timed
            if self.tell is not None:
                self.tell(timed)

    def _begin(self, starts: Iterable[Timed]) -> list[Timed]:
        """Return every pattern with the best of some permutations."""
        pool = []
        for start in starts:
            timed = self._first(start)
            if timed.is_feasible:
                pool.append(timed)
                self._note(timed)
                if self._is_over:
                    break
        return pool

    def _first(self, start: Timed) -> Timed:
        """Return a pattern with the best of its permutation, those by size, and drawn ones."""
        permutations = np.stack([start.permutation, *self._orders()])
        values = self.evaluator.values(start.pattern, permutations)
        best = int(values.argmin())
        return Timed(int(values[best]), start.pattern, permutations[best])

    def _orders(self) -> list[IntArray]:
        work = self.evaluator.flow.duration.sum(axis=1)
        drawn = [self.rng.permutation(len(work)) for _ in range(self.params.drawn)]
        return [
            np.argsort(work, kind="stable"),
            np.argsort(-work, kind="stable"),
            *drawn,
        ]

    def _anneal(self, timed: Timed, steps: int, heat: float, shifts: int) -> Timed:
        """Anneal a line; note the best one."""
        steps = self._allowed(steps)
        if steps <= 0:
            return timed
        began = time.monotonic()
        improved = self.annealer.improve(
            timed, steps, heat=int(heat * self.mean), shifts=shifts, target=self.target
        )
        # A coarse clock may not have moved; the pace is divided by.
        self.pace = max(time.monotonic() - began, 1e-6) / steps
        self.done += steps
        self._note(improved)
        return improved

    def _allowed(self, steps: int) -> int:
        """Return the number of steps, less where there is no time for all of them."""
        steps = int(min(steps, self.most - self.done))
        if not self.clock.is_limited:
            return steps
        if self.pace is None:
            return min(steps, self.params.first_steps)
        in_time = int(
            min(self.params.call_seconds, self.params.late * self.clock.left)
            / self.pace
        )
        # A first run that waited for a compiler or another process says nothing of the others.
        return min(steps, max(in_time, self.params.first_steps))

    def _race(self, pool: list[Timed]) -> list[Timed]:
        """Anneal all patterns a little, half of them longer, and so on; return the best."""
        steps, shifts = self.params.race_steps * self.size, 0
        while len(pool) > 1 or shifts == 0:
            raced: list[Timed] = []
            for timed in pool:
                if self._is_over:
                    return _sorted([*raced, timed])
                raced.append(self._anneal(timed, steps, self.params.heats[0], shifts))
            if not raced:
                return []
            pool = _sorted(raced)[: (len(raced) + 1) // 2]
            steps, shifts = 2 * steps, self.params.shifts
        return pool

    def _deepen(self, pool: list[Timed]) -> None:
        """Anneal the best line again and again, longer where that does not help."""
        params, turn = self.params, 0
        steps = 4 * params.race_steps * self.size
        while not self._is_over:
            before = self.least
            heat = params.heats[turn % len(params.heats)]
            timed = self._anneal(pool[turn % len(pool)], steps, heat, params.shifts)
            turn += 1
            pool = _sorted([*pool, timed])[: params.kept]
            if timed.value >= before and turn % len(params.heats) == 0:
                steps *= 2


def _may_overrun(flow: Flow) -> bool:
    """Whether some pool does not hold all that all micro-batches acquire."""
    acquired = [
        flow.acquire[:, flow.pool == pool].sum() for pool in range(len(flow.room))
    ]
    return bool((np.array(acquired) > flow.room).any())


def _kept(starts: Iterable[Timed], patterns: list[Timed]) -> Iterator[Timed]:
    """Yield patterns one by one as they are made, and keep them."""
    for start in starts:
        patterns.append(start)
        yield start


def _sorted(pool: Sequence[Timed]) -> list[Timed]:
    return sorted(pool, key=lambda timed: timed.value)


_ODDS = exponential_quantiles(1024)


class Annealer:
    """Anneals lines of one flow; keeps room and random numbers between calls."""

    def __init__(self, evaluator: Evaluator) -> None:
        flow = evaluator.flow
        size, count = flow.ops.size, flow.num_microbatches
        self.evaluator = evaluator
        self.rng = np.array([12346], dtype=np.int64)
        lengths = (size + 1,) * 4 + (size, size, flow.num_resources, size, count)
        self.room = AnnealingBuffers(
            evaluator.scratch(),
            evaluator.scratch(),
            *(np.zeros(length, dtype=np.int64) for length in lengths),
        )

    def improve(
        self, timed: Timed, steps: int, *, heat: int, shifts: int, target: int = 0
    ) -> Timed:
        """Return the best of a number of changes to a feasible line, one after the other.

        In the beginning a change may worsen the makespan by `heat` ticks in the mean. Of 1,000
        changes `shifts` move an op on its device, the others move micro-batches. Nothing is sought
        below the target.
        """
        evaluator = self.evaluator
        # Ops that stand near each other in time stand near in the line: shifts rearrange less.
        flow, start = evaluator.flow, evaluator.starts(timed)
        pattern, permutation = Pattern.of_starts(flow, start, timed.permutation)
        row = permutation * flow.num_positions
        line = pattern.line.copy()
        plan = AnnealingParams(steps, heat, shifts, target, _ODDS)
        value = anneal(evaluator.lengths, self.room, plan, self.rng, line, row)
        return Timed(value, Pattern(line, flow.resource), row // flow.num_positions)

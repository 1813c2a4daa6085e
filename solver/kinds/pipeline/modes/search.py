"""Local search over choices of modes, rated by list schedules."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.kinds.pipeline.modes import CHOSEN_MODES
from ppsolve.solver.board import Board
from ppsolve.solver.clock import Clock
from ppsolve.solver.kinds.pipeline.modes.problems import ModeProblems

MODES = "modes"
"""Name of the search in reports."""


class ModeSearch:
    """Changes modes where list schedules get shorter.

    `problems`: problems of all choices.
    `board`: where schedules are proposed.
    `steps`: choices that are rated at the most.
    """

    def __init__(
        self, problems: ModeProblems, board: Board, seed: int, steps: int
    ) -> None:
        self.problems, self.modes = problems, problems.modes
        self._board, self._left = board, steps
        self._random = random.Random(seed)
        self._rated: dict[bytes, int | None] = {}
        self.best: Schedule | None = None
        self._since, self._patience = 0, 100

    def run(self, clock: Clock) -> None:
        """Search until the clock is over, the bound is met, or nothing is left to try."""
        for choice in self._first():
            self._try(choice, clock)
        if self.best is None or self.modes.decide in {"all", "window"}:
            return
        current = self.best
        self._patience = max(
            self._patience,
            10 * len(self._neighbours(current.problem.chosen(CHOSEN_MODES))),
        )
        while not self._is_over(clock):
            before = current
            for choice in self._neighbours(current.problem.chosen(CHOSEN_MODES)):
                if (
                    found := self._try(choice, clock)
                ) is not None and found.value < current.value:
                    current = found
                    break
            if current is before:
                kicked = self._kicked(clock)
                if kicked is None:
                    return
                current = kicked

    def _is_over(self, clock: Clock) -> bool:
        is_vain = self._since >= self._patience
        return clock.is_over or self._board.is_closed or self._left <= 0 or is_vain

    def _try(self, choice: IntArray, clock: Clock) -> Schedule | None:
        key = choice.tobytes()
        if key in self._rated or self._is_over(clock):
            return None
        self._left -= 1
        self._since += 1
        found = self.problems.schedule(choice)
        self._rated[key] = None if found is None else found.value
        if found is not None and (self.best is None or found.value < self.best.value):
            self.best, self._since = found, 0
            self._board.propose(found, MODES)
        return found

    def _first(self) -> Iterator[IntArray]:
        modes = self.modes
        if modes.decide in {"all", "window"}:
            yield from modes.variants()
            return
        known = self._board.schedule
        if known is not None:
            yield known.problem.chosen(CHOSEN_MODES)
        for mode in range(len(modes.names)):
            yield modes.of_stages([mode] * modes.shape[0])
        for mode in range(1, len(modes.names)):
            for count in range(1, modes.shape[0]):
                yield modes.of_stages(
                    [mode if s < count else 0 for s in range(modes.shape[0])]
                )

    def _neighbours(self, choice: IntArray) -> list[IntArray]:
        stages, microbatches = self.modes.shape
        is_free, k = self.modes.decide == "microbatch", np.arange(microbatches)
        rows = [k >= 0]
        if is_free:
            rows += [
                k % period >= kept for period in (2, 3, 4) for kept in range(1, period)
            ]
            rows += [k >= microbatches // 4, k >= microbatches // 2]
        found = []
        for stage in range(stages):
            for mode in range(len(self.modes.names)):
                alone = [k == self._random.randrange(microbatches)] if is_free else []
                for row in [*rows, *alone]:
                    found.append(choice.copy())
                    found[-1][stage, row] = mode
        self._random.shuffle(found)
        return found

    def _kicked(self, clock: Clock) -> Schedule | None:
        assert self.best is not None
        stages = self.modes.shape[0]
        for _ in range(20):
            choice = self.best.problem.chosen(CHOSEN_MODES).copy()
            for stage in self._random.sample(range(stages), min(stages, 2)):
                choice[stage] = self._random.randrange(len(self.modes.names))
            if (found := self._try(choice, clock)) is not None:
                return found
        return None

"""Local search over all that a pipeline leaves open, rated by list schedules."""

from __future__ import annotations

import random
from collections.abc import Iterator

from ppsolve.models.core.problem import IntArray
from ppsolve.solver.board import Board
from ppsolve.solver.clock import Clock
from ppsolve.solver.kinds.pipeline.choice_lists import ChoiceLists
from ppsolve.solver.kinds.pipeline.open.space import Choices, PipelineSpace

CHOICES = "choices"
"""Name of the search in reports."""

PATIENCE, ROUNDS, TRIES = 100, 10, 20
"""Choices without a better one after which it ends, the same in neighbourhoods of the best one, and
kicks that are tried."""


class ChoiceSearch:
    """Changes one decision at a time where list schedules get shorter.

    `board`: where schedules are proposed.
    `steps`: choices that are rated at the most.
    """

    def __init__(
        self, space: PipelineSpace, board: Board, seed: int, steps: int
    ) -> None:
        self.space, self._board, self._left = space, board, steps
        self._random, self._lists = random.Random(seed), ChoiceLists()
        self._rated: set[bytes] = set()
        self._since, self._patience = 0, PATIENCE
        self.best: tuple[int, Choices] | None = None

    def run(self, clock: Clock) -> None:
        """Search until the clock is over, the bound is met, or nothing better is found for long."""
        known = self._board.schedule
        if known is not None:
            self._try(self.space.chosen(known), clock)
        for start in self.space.starts():
            self._try(start, clock)
        current = self.best
        if current is not None:
            near = sum(1 for _ in self._neighbours(current[1]))
            self._patience = max(PATIENCE, ROUNDS * near)
        while current is not None and not self._is_over(clock):
            better = self._descended(current, clock)
            current = self._kicked(clock) if better is None else better

    def _descended(
        self, current: tuple[int, Choices], clock: Clock
    ) -> tuple[int, Choices] | None:
        for choices in self._neighbours(current[1]):
            value = self._try(choices, clock)
            if value is not None and value < current[0]:
                return value, choices
        return None

    def _kicked(self, clock: Clock) -> tuple[int, Choices] | None:
        assert self.best is not None
        for _ in range(TRIES):
            decision = self._random.choice(self.space.decisions)
            field, choices = decision.field, dict(self.best[1])
            choices[field] = decision.kicked(choices[field], self._random)
            value = self._try(choices, clock)
            if value is not None:
                return value, choices
        return None

    def _neighbours(self, choices: Choices) -> Iterator[Choices]:
        """Yield choices with another array of one decision, in random order."""
        moves: list[tuple[str, IntArray]] = [
            (decision.field, near)
            for decision in self.space.decisions
            for near in decision.neighbours(choices[decision.field], self._random)
        ]
        self._random.shuffle(moves)
        yield from ({**choices, field: near} for field, near in moves)

    def _is_over(self, clock: Clock) -> bool:
        is_vain = self._left <= 0 or self._since >= self._patience
        return is_vain or clock.is_over or self._board.is_closed

    def _try(self, choices: Choices, clock: Clock) -> int | None:
        key = b"".join(choices[field].tobytes() for field in self.space.fields)
        if key in self._rated or self._is_over(clock):
            return None
        self._rated.add(key)
        self._left -= 1
        self._since += 1
        schedule = self._lists.schedule(self.space.problem(choices))
        if schedule is None:
            return None
        if self.best is None or schedule.value < self.best[0]:
            self.best, self._since = (schedule.value, choices), 0
            self._board.propose(schedule, CHOICES)
        return schedule.value

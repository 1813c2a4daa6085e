"""Beams over frontiers for choices of least bound: wider ones for the few that end first."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from ppsolve.models.core.problem import Objective, Problem
from ppsolve.models.documents.errors import NotApplicableError
from ppsolve.solver.board import Board
from ppsolve.solver.clock import Clock
from ppsolve.solver.exact.windows import latest_end
from ppsolve.solver.heuristics.frontier_beam import FRONTIER_BEAM, narrow_beam
from ppsolve.solver.kinds.pipeline.choice_bounds import analytic_bound
from ppsolve.solver.kinds.pipeline.open.space import Choices, PipelineSpace
from ppsolve.solver.run.params import ModesParams
from ppsolve.solver.structure.implied import ImpliedOrder


class BoundedChoices(NamedTuple):
    """Whole choices and a bound on their schedules, in ticks."""

    bound: int
    number: int  # of equal bounds the first one comes first
    choices: Choices


class ChoiceBeams:
    """Schedules of the choices whose bounds are least, in tight memory.

    List schedules of uneven choices may be far from their optima, and so are the choices that list
    schedules lead to. Bounds tell which ones are worth a beam.
    """

    def __init__(
        self, space: PipelineSpace, board: Board, seed: int, params: ModesParams
    ) -> None:
        self._space, self._board, self._params = space, board, params
        self._random = random.Random(seed)
        self._bounded: dict[bytes, BoundedChoices] = {}

    def run(self, clock: Clock) -> None:
        """Search until the clock is over, or the widest beams have ended."""
        promising: Sequence[Choices] = self._least_bounds(clock)
        width, factor = self._params.beam_width, self._params.beam_factor
        for _ in range(self._params.beam_rounds):
            rated = []
            for number, choices in enumerate(promising):
                if clock.is_over or self._board.is_closed:
                    return
                value = self._value(choices, width)
                if value is not None:
                    rated.append((value, number))
            count = max(1, len(promising) // factor)
            promising = [promising[number] for _, number in sorted(rated)[:count]]
            width *= factor

    def _least_bounds(self, clock: Clock) -> list[Choices]:
        """Return choices of least bound, which are reached from each other step by step."""
        for start in self._space.starts():
            self._bound(start)
        grown: list[BoundedChoices] = []
        while len(grown) < self._params.beams and not clock.is_over:
            left = [entry for entry in self._bounded.values() if entry not in grown]
            if not left or min(left)[0] >= self._upper:
                break
            least = min(left)
            grown.append(least)
            for decision in self._space.decisions:
                array = least.choices[decision.field]
                for near in decision.neighbours(array, self._random):
                    self._bound({**least.choices, decision.field: near})
        return [entry.choices for entry in grown]

    @property
    def _upper(self) -> int:
        value = self._board.value
        return 2**62 if value is None else value

    def _bound(self, choices: Choices) -> None:
        key = b"".join(choices[field].tobytes() for field in self._space.fields)
        if key not in self._bounded:
            problem = self._space.relaxed(choices)
            bound = analytic_bound(ImpliedOrder(problem), self._upper)
            number = len(self._bounded)
            self._bounded[key] = BoundedChoices(bound, number, choices)

    def _value(self, choices: Choices, width: int) -> int | None:
        """Return the makespan that a beam finds, and propose its schedule."""
        problem = self._space.problem(choices)
        try:
            schedule = narrow_beam(problem, width, latest_end(problem) + 1)
        except NotApplicableError:
            return None
        if schedule is None:
            return None
        self._board.propose(schedule, FRONTIER_BEAM)
        return schedule.value


def has_beams(problem: Problem) -> bool:
    """Whether a beam over frontiers may find schedules of a problem's choices."""
    return problem.objective is Objective.MAKESPAN and bool(problem.pools)

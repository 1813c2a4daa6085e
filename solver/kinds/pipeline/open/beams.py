"""Beams over frontiers for choices of least bound: wider ones for the few that end first."""

from __future__ import annotations

import heapq
import random
from itertools import count
from typing import NamedTuple

from ppsolve.models.core.problem import IntArray, Objective, Problem
from ppsolve.models.documents.errors import NotApplicableError
from ppsolve.solver.board import Board
from ppsolve.solver.clock import Clock
from ppsolve.solver.exact.windows import latest_end
from ppsolve.solver.heuristics.frontier_beam import FRONTIER_BEAM, narrow_beam
from ppsolve.solver.kinds.pipeline.choice_bounds import analytic_bound
from ppsolve.solver.kinds.pipeline.open.device_frontiers import DeviceFrontiers
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
        self,
        space: PipelineSpace,
        board: Board,
        seed: int,
        params: ModesParams,
        devices: DeviceFrontiers | None = None,
    ) -> None:
        self._space, self._board, self._params = space, board, params
        self._devices, self._random = devices, random.Random(seed)
        self._bounded: dict[bytes, BoundedChoices] = {}

    def run(self, clock: Clock) -> None:
        """Search until the clock is over, or the widest beams have ended."""
        if self._devices is None:
            promising = self._nearest_bounds(clock)
        else:
            promising = self._least_bounds(self._devices, clock)
        factor, rounds = self._params.beam_factor, self._params.beam_rounds
        for left in range(rounds, 0, -1):
            if len(promising) == 1 and 1 < left < rounds:
                continue  # nothing is left to choose: only the widest beam
            width = self._params.beam_width * factor ** (rounds - left)
            share, rated = clock.share(1 / left**2), []
            for number, choices in enumerate(promising):
                if share.is_over or self._board.is_closed:
                    break
                value = self._value(choices, width, share)
                if value is not None:
                    rated.append((value, number))
            best = sorted(rated)[: max(1, len(rated) // factor)]
            promising = [promising[number] for _, number in best] or promising

    def _least_bounds(self, devices: DeviceFrontiers, clock: Clock) -> list[Choices]:
        """Return whole choices of least bound, by branch and bound over devices."""
        decision, leaves = devices.decision, list[Choices]()

        def bound(choice: IntArray) -> int:
            return devices.bound(choice, 0, self._upper)

        decision.prepare(bound, clock, self._upper, self._params)
        numbers = count()
        grown = [(0, 0, next(numbers), decision.open)]
        while grown and len(leaves) < self._params.beams and not clock.is_over:
            least, _, _, choice = heapq.heappop(grown)
            # Where bounds rule all modes of a device out, a choice in part has no branches.
            branches = decision.branches(choice)
            if (choice >= 0).all():
                leaves.append({decision.field: choice})
            for branch in branches:
                if (branch == decision.modes.offloading).any():
                    continue  # copies are no part of a beam
                value = devices.bound(branch, least, self._upper)
                if value < self._upper:
                    parts = decision.open_parts(branch)
                    heapq.heappush(grown, (value, parts, next(numbers), branch))
        return leaves

    def _nearest_bounds(self, clock: Clock) -> list[Choices]:
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

    def _value(self, choices: Choices, width: int, clock: Clock) -> int | None:
        """Return the makespan that a beam finds, and propose its schedule."""
        problem = self._space.problem(choices)
        upper = latest_end(problem) + 1
        if self._board.value is not None:
            upper = min(upper, int(self._params.beam_slack * self._board.value))
        try:
            schedule = narrow_beam(problem, width, upper, clock)
        except NotApplicableError:
            return None
        if schedule is None:
            return None
        self._board.propose(schedule, FRONTIER_BEAM)
        return schedule.value


def has_beams(problem: Problem) -> bool:
    """Whether a beam over frontiers may find schedules of a problem's choices."""
    return problem.objective is Objective.MAKESPAN and bool(problem.pools)

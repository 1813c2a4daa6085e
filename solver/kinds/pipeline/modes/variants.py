"""Branch and bound over the modes of devices: a node is a plain problem, open stages relaxed."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count, product

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.models.core.result import StopReason
from ppsolve.solver.board import Board
from ppsolve.solver.clock import Clock
from ppsolve.solver.exact.question import EXACT, VARIANTS, Question, SearchLimits
from ppsolve.solver.kinds.pipeline.modes.problems import INFEASIBLE, ModeProblems
from ppsolve.solver.run.params import ModesParams
from ppsolve.solver.structure.implied import ImpliedOrder


@dataclass(order=True)
class _Node:
    bound: int
    open_groups: int  # of nodes with one bound those with fewer open groups come first
    number: int
    choice: IntArray = field(compare=False)
    units: float = field(
        compare=False, default=0.0
    )  # deterministic time of its last question


@dataclass
class _StageGroup:
    """Stages that are decided together, and the modes that they may still have."""

    stages: list[int]
    modes: list[tuple[int, ...]]
    least: int = 0  # the least bound of these modes where all else is open, in ticks


class Variants:
    """Open choices with their bounds, the least first.

    `problems`: problems of all choices.
    `board`: where schedules and the least bound of all open choices are reported.
    `limits`: limits of the whole search.
    """

    def __init__(
        self,
        problems: ModeProblems,
        board: Board,
        limits: SearchLimits,
        params: ModesParams,
    ) -> None:
        self._problems, self._board, self._limits = problems, board, limits
        self._modes, self._params = problems.modes, params
        self._numbers = count()
        self._open: list[_Node] = []
        self._groups: list[_StageGroup] = []
        self.spent = 0.0

    def run(self, clock: Clock) -> StopReason | None:
        """Split and ask until all choices are proved away or the clock is over."""
        if self._modes.decide in {"all", "window"}:
            for choice in self._modes.variants():
                self._push(choice, 0)
        elif self._modes.decide == "microbatch":
            self._push(self._modes.relaxed, 0)
        else:
            self._groups = self._grouped(clock)
            self._push(
                self._modes.relaxed,
                max((each.least for each in self._groups), default=0),
            )
        self._raise_bound()
        while self._open and not self._is_over(clock):
            self._work_on(heapq.heappop(self._open), clock)
            self._raise_bound()
        if not self._open and self._board.value is None and not clock.is_over:
            return StopReason.INFEASIBLE
        return None

    def _is_over(self, clock: Clock) -> bool:
        units = self._limits.deterministic
        is_spent = units is not None and self.spent >= units
        return clock.is_over or is_spent or self._board.is_good_enough

    @property
    def _upper(self) -> int:
        value = self._board.value
        return INFEASIBLE if value is None else value

    def _grouped(self, clock: Clock) -> list[_StageGroup]:
        """Return the stages of each device with the modes that no bound rules out.

        The group whose best mode is the worst comes first: there the bound grows the most.
        """
        problem = self._problems.problem(self._modes.relaxed)
        forward = problem.grid("F")
        devices: dict[tuple[int, ...], list[int]] = {}
        for stage in range(self._modes.shape[0]):
            used = tuple(np.unique(problem.device[forward[stage]]).tolist())
            devices.setdefault(used, []).append(stage)
        modes, most = range(len(self._modes.names)), self._params.grouped_modes
        groups = []
        for stages in devices.values():
            together = len(modes) ** len(stages) <= most
            for part in [stages] if together else [[stage] for stage in stages]:
                groups.append(_StageGroup(part, list(product(modes, repeat=len(part)))))
        share = clock.share(self._params.grouping_share)
        for group in groups:
            if share.is_over or self._board.is_good_enough:
                break
            self._rule_out(group, share)
        return sorted(groups, key=lambda group: -group.least)

    def _rule_out(self, group: _StageGroup, clock: Clock) -> None:
        kept, bounds = [], []
        for number, modes in enumerate(group.modes):
            if clock.is_over:
                kept += group.modes[number:]
                bounds.append(0)
                break
            bound = self._bound(self._with(self._modes.relaxed, group, modes))
            if bound < self._upper:
                kept.append(modes)
                bounds.append(bound)
        group.modes = kept
        group.least = min(bounds, default=self._upper)
        if group.least < INFEASIBLE:
            self._board.raise_bound(group.least, VARIANTS)

    def _with(
        self, choice: IntArray, group: _StageGroup, modes: tuple[int, ...]
    ) -> IntArray:
        changed = choice.copy()
        changed[group.stages] = np.array(modes)[:, None]
        return changed

    def _bound(self, choice: IntArray) -> int:
        return self._problems.bound(
            ImpliedOrder(self._problems.problem(choice)), self._upper
        )

    def _push(self, choice: IntArray, least: int) -> None:
        bound = max(least, self._bound(choice))
        if bound < min(self._upper, INFEASIBLE):
            left = sum(1 for _ in self._open_groups(choice))
            heapq.heappush(self._open, _Node(bound, left, next(self._numbers), choice))

    def _open_groups(self, choice: IntArray) -> Iterator[_StageGroup]:
        return (group for group in self._groups if choice[group.stages[0], 0] < 0)

    def _raise_bound(self) -> None:
        while self._open and self._open[0].bound >= self._upper:
            heapq.heappop(self._open)
        bound = self._open[0].bound if self._open else self._upper
        if bound < INFEASIBLE:
            self._board.raise_bound(bound, VARIANTS)

    def _work_on(self, node: _Node, clock: Clock) -> None:
        """Split a choice; ask whether one that is all decided has a better schedule."""
        group = next(self._open_groups(node.choice), None)
        if group is not None and (
            node.units or node.open_groups > self._params.asked_groups
        ):
            for modes in group.modes:
                self._push(self._with(node.choice, group, modes), node.bound)
            return
        node.units = 2 * node.units or self._params.question_units
        if self._ask(node, clock):
            heapq.heappush(self._open, node)

    def _ask(self, node: _Node, clock: Clock) -> bool:
        # True while a better schedule is possible; raises the bound of the node.
        from ppsolve.solver.exact.search import solve

        implied = ImpliedOrder(self._problems.problem(node.choice))
        upper = None if self._board.value is None else self._board.value - 1
        limits = replace(
            self._limits,
            seconds=clock.left if clock.is_limited else None,
            deterministic=node.units,
        )
        answer = solve(implied, Question(node.bound, upper=upper), limits)
        self.spent += answer.deterministic_time
        if answer.infeasible:
            return False
        if (
            answer.schedule is not None
            and (node.choice >= 0).all()
            and answer.memory_is_exact
        ):
            self._board.propose(answer.schedule, EXACT)
        if answer.bound is not None:
            node.bound = max(node.bound, answer.bound)
        return node.bound < self._upper

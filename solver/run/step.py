"""What a step of a run is, and what it may use."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Self

from ppsolve.models.core.result import StopReason
from ppsolve.solver.board import Board
from ppsolve.solver.clock import Clock
from ppsolve.solver.exact.question import SearchLimits
from ppsolve.solver.heuristics.heuristic import Heuristic
from ppsolve.solver.heuristics.parallel_search import ParallelSearch, Turns
from ppsolve.solver.interruptible import SLACK
from ppsolve.solver.run.options import Options
from ppsolve.solver.run.params import SearchParams, StepParams

Tell = Callable[[str, str], None]
"""Tells a listener of an event and its source, see `Progress`."""


@dataclass(frozen=True)
class Turn:
    """What a step may use.

    `options`: limits and seed of the run.
    `clock`: by its end the step returns what it found.
    `heuristics`: what the run was asked to run, in the order of reports.
    `tell`: tells the listener of a phase or a finished heuristic.
    `units_share`: share of the run's deterministic limit.
    `is_shared`: whether searches on another thread share the board.
    """

    task: Any
    options: Options
    clock: Clock
    heuristics: tuple[Heuristic, ...] = ()
    params: SearchParams = SearchParams()
    tell: Tell = lambda event, source: None
    units_share: float = 1.0
    is_shared: bool = False

    @property
    def board(self) -> Board:
        """The board of what is solved."""
        return self.task.board

    @property
    def steps(self) -> StepParams:
        """Shares of the time for each step."""
        return self.params.steps

    def limits(self) -> SearchLimits:
        """Return the limits of an exact search that begins now."""
        limits = self.options.limits(self.clock).less(0.0, self.board.units)
        if limits.deterministic is not None:
            limits = replace(
                limits, deterministic=limits.deterministic * self.units_share
            )
        return replace(limits, workers=limits.workers - 1) if self.is_shared else limits

    def share(self, fraction: float) -> Self:
        """Return a turn that has a part of the time of this one."""
        return replace(
            self,
            clock=self.clock.share(fraction),
            units_share=self.units_share * fraction,
        )


def always(turn: Turn) -> bool:
    """Apply to everything."""
    return True


def whole(turn: Turn) -> float:
    """Give a step all the time that is left."""
    return 1.0


@dataclass(frozen=True)
class Stop:
    """Why a step ends a run, in words too."""

    reason: StopReason
    words: str | None = None


Outcome = StopReason | Stop | None
"""What a step returns: why it stopped early, None where nothing is to be said."""


@dataclass(frozen=True)
class Step:
    """A step of a run. Steps run in turn until the optimum is proved or a limit is reached.

    `name`: name in progress and reports.
    `applies`: whether a turn needs it.
    `share`: share of the time that is left.
    `run`: the search: reads and reports by the board of its turn.
    `slack`: seconds beyond its clock after which the step is left behind.
    `slack_share`: the same as a share of the step's own time.
    `runs_anyway`: whether it runs though the optimum is known.
    `uses_reserve`: whether it has the time that is kept for a robust schedule.
    """

    name: str
    applies: Callable[[Turn], bool]
    share: Callable[[Turn], float]
    run: Callable[[Turn], Outcome]
    slack: float = SLACK
    slack_share: float = 0.0
    runs_anyway: bool = False
    uses_reserve: bool = False


@dataclass(frozen=True)
class Steps:
    """Steps that are known only when their turn comes, such as one for each heuristic.

    `applies`: whether a turn needs them.
    `make`: returns the steps; what it takes has the clock of all of them.
    `is_one_entry`: whether reports show them as one.
    """

    name: str
    applies: Callable[[Turn], bool]
    share: Callable[[Turn], float]
    make: Callable[[Turn], Iterable[Step]]
    is_one_entry: bool = False


@dataclass(frozen=True)
class Meanwhile:
    """A search that takes turns on another thread while steps run.

    `applies`: whether a turn needs it.
    """

    name: str
    applies: Callable[[Turn], bool]
    make: Callable[[Turn], Turns]


def in_parallel(
    *steps: Step, meanwhile: tuple[Meanwhile, ...]
) -> Callable[[Turn], Outcome]:
    """Return a function that runs steps in turn while other searches share their board.

    Each step has its share of the time that is left. The other searches take one worker of several,
    and none of a deterministic run.
    """

    def run(turn: Turn) -> Outcome:
        searches = []
        if turn.options.used_workers > 1 and not turn.options.deterministic:
            searches = [
                search.make(turn) for search in meanwhile if search.applies(turn)
            ]
        if not searches:
            return in_sequence(turn, steps)
        params = turn.params.heuristics.turns
        with ParallelSearch(searches, turn.board, turn.clock, params).at_work():
            return in_sequence(replace(turn, is_shared=True), steps)

    return run


def in_sequence(turn: Turn, steps: Iterable[Step]) -> Outcome:
    """Run the steps that apply on this thread until nothing is left to search.

    What the last step that said anything returned is the outcome.
    """
    reason: Outcome = None
    for step in steps:
        if turn.board.is_good_enough or turn.clock.is_over:
            break
        if step.applies(turn):
            reason = step.run(turn.share(step.share(turn))) or reason
            if reason in {StopReason.INTERRUPTED, StopReason.INFEASIBLE}:
                break
    return reason


def inserted(
    table: tuple[Step | Steps, ...], before: str, *rows: Step | Steps
) -> tuple[Step | Steps, ...]:
    """Return a table with further rows before the row of a name."""
    index = [row.name for row in table].index(before)
    return (*table[:index], *rows, *table[index:])


def replaced(
    table: tuple[Step | Steps, ...], name: str, *rows: Step | Steps
) -> tuple[Step | Steps, ...]:
    """Return a table with other rows, or none, in the place of the row of a name."""
    index = [row.name for row in table].index(name)
    return (*table[:index], *rows, *table[index + 1 :])

"""What other modes of single stages would change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ppsolve.models.core.metrics import measure
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.kinds.pipeline.modes import CHOSEN_MODES
from ppsolve.solver.clock import Clock
from ppsolve.solver.heuristics.heuristic import Effort
from ppsolve.solver.heuristics.order_search import obstacle, order_search
from ppsolve.solver.kinds.pipeline.modes.problems import ModeProblems
from ppsolve.solver.run.step import Turn

NEARBY = "other modes"
"""Name of this search in reports."""

NEAR = 0.05
"""Share of the best makespan within which orders of a list schedule are searched."""


@dataclass(frozen=True)
class Alternative:
    """A stage with another mode, and a schedule, if one was found that fits."""

    stage: int
    mode: int
    schedule: Schedule | None

    @property
    def peak(self) -> float | None:
        """Peak memory of the device of the stage."""
        if self.schedule is None:
            return None
        problem = self.schedule.problem
        device = int(problem.device[problem.grid("F")[self.stage, 0]])
        return float(measure(self.schedule).peak_memory[device])


def alternatives_of(
    problems: ModeProblems, best: Schedule, clock: Clock
) -> Iterator[Alternative]:
    """Yield every other mode of every stage, with as good a schedule as the time allows.

    `problems`: problems of all choices.
    `best`: the best schedule; all stages but one keep its modes.
    `clock`: its time is shared by all of them; those after its end are left out.
    Yields: by stage; orders are searched where a list schedule is not far above the
        best.
    """
    choice = best.problem.chosen(CHOSEN_MODES)
    stages, modes = range(choice.shape[0]), range(len(problems.modes.names))
    wanted = [(s, mode) for s in stages for mode in modes if choice[s, 0] != mode]
    for number, (stage, mode) in enumerate(wanted):
        if clock.is_over:
            return
        share = clock.share(1 / (len(wanted) - number))
        changed = choice.copy()
        changed[stage] = mode
        schedule = problems.schedule(changed)
        is_near = schedule is not None and schedule.value < (1 + NEAR) * best.value
        if schedule is not None and is_near and obstacle(schedule.problem) is None:
            schedule = order_search(schedule, Effort(share))
        yield Alternative(stage, mode, schedule)


def improve(turn: Turn) -> None:
    """Change modes of single stages as long as that gives better schedules."""
    board, clock = turn.board, turn.clock
    while not clock.is_over and not board.is_closed:
        best = board.schedule
        assert best is not None
        for each in alternatives_of(turn.task.problems, best, clock.share(0.5)):
            if each.schedule is not None and each.schedule.value < best.value:
                board.propose(each.schedule, NEARBY)
                break
        else:
            return

"""What other modes of single stages would change."""

from __future__ import annotations

from dataclasses import dataclass

from ppsolve.models.core.metrics import measure
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.clock import Clock
from ppsolve.solver.heuristics.heuristic import Effort
from ppsolve.solver.heuristics.order_search import obstacle, order_search
from ppsolve.solver.kinds.pipeline.modes.problems import ModeProblems


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
    problems: ModeProblems, best: Schedule, clock: Clock, *, searches: bool
) -> list[Alternative]:
    """Return every other mode of every stage, with as good a schedule as the time allows.

    Parameters
    ----------
    problems : ModeProblems
        Problems of all choices.
    best : Schedule
        The best schedule; all stages but one keep its modes.
    clock : Clock
        Its time is shared by all of them; those after its end are left out.
    searches : bool
        Whether orders are searched too.

    Returns
    -------
    list of Alternative
        By stage.
    """
    choice, found = best.problem.choice, list[Alternative]()
    stages, modes = range(choice.shape[0]), range(len(problems.modes.names))
    wanted = [(s, mode) for s in stages for mode in modes if choice[s, 0] != mode]
    for number, (stage, mode) in enumerate(wanted):
        if clock.is_over:
            break
        share = clock.share(1 / (len(wanted) - number))
        changed = choice.copy()
        changed[stage] = mode
        schedule = problems.schedule(changed)
        if schedule is not None and searches and obstacle(schedule.problem) is None:
            schedule = order_search(schedule, Effort(share))
        found.append(Alternative(stage, mode, schedule))
    return found

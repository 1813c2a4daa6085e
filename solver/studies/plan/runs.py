"""One run of the solver for a candidate of a plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ppsolve.models.core.result import Result
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import kind_of
from ppsolve.solver.api.registry import chosen_heuristics
from ppsolve.solver.clock import Clock
from ppsolve.solver.heuristics.sweep import SWEEP
from ppsolve.solver.run.options import Options
from ppsolve.solver.run.schedule_task import ScheduleTask
from ppsolve.solver.run.solve_run import SolveRun
from ppsolve.solver.studies.plan.candidate import Candidate
from ppsolve.solver.studies.plan.list_scheduling import BY_RULE, offer_start


class CandidateRun:
    """A run that starts from the schedule that is known of a candidate.

    Parameters
    ----------
    candidate, instance
        The candidate and its pipeline.
    names : list of str, optional
        Heuristics to run, by default those of its kind.
    options : Options
        Limits and seed.
    """

    def __init__(
        self,
        candidate: Candidate,
        instance: PipelineInstance,
        names: list[str] | None,
        options: Options,
    ) -> None:
        self._candidate, self._options = candidate, options
        self._chosen = chosen_heuristics(instance, names)
        task = kind_of(instance).task(instance)
        assert isinstance(task, ScheduleTask)
        self._task = task
        if candidate.solved is not None:
            known, name = candidate.solved
            task.board.propose(Schedule(task.problem, known), name)
        elif candidate.rule or candidate.is_finalist:
            start = candidate.known_start()
            if start is not None and candidate.arrays is not None:
                offer_start(task, candidate.arrays, start, BY_RULE if candidate.rule else SWEEP)

    def execute(self, clock: Clock, listener: Callable[[Any], None]) -> Result:
        """Run the solver.

        Parameters
        ----------
        clock : Clock
            Ends it.
        listener : callable
            Is told of its progress.

        Returns
        -------
        Result
        """
        return SolveRun(self._task, self._chosen, self._options, listener, clock).execute()

    def keep_schedule(self) -> None:
        """Let the next run of the candidate start from the best schedule, unless it is proved."""
        task, candidate = self._task, self._candidate
        candidate.solved = None
        if task.schedule is not None and task.best_by is not None and not candidate.is_closed:
            candidate.solved = (task.schedule.start, task.best_by)

"""The optimum of a pipeline by its joint model alone: neither heuristics nor bounds beside it."""

from __future__ import annotations

from fractions import Fraction

from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.exact.question import ExactAnswer, SearchLimits
from ppsolve.solver.exact.search import CpsatSearch, SharedIncumbent
from ppsolve.solver.kinds.pipeline.kind import PIPELINE
from ppsolve.solver.kinds.pipeline.open.task import ChoiceTask


def _ask(task: ChoiceTask, upper: int | None) -> ExactAnswer:
    model, limits = task.joint_model(0, upper), SearchLimits(seconds=60, workers=1)
    return CpsatSearch(model, SharedIncumbent(model), limits, limits.start()).execute()


def joint_optimum(instance: PipelineInstance) -> Fraction | None:
    """Return the optimum of the joint model, None where it finds no schedule.

    It finds the optimum where nothing shorter is asked for, too, and refutes all that is below.
    """
    task = PIPELINE.task(instance)
    assert isinstance(task, ChoiceTask)
    answer = _ask(task, None)
    if answer.infeasible:
        return None
    assert answer.schedule is not None
    value = answer.schedule.value
    assert answer.bound == value
    assert check_schedule(answer.schedule.problem, answer.schedule) == []
    assert not _ask(task, value).infeasible
    assert _ask(task, value - 1).infeasible
    return value * task.problem.scale.tick

"""List schedules whose reloads end when their gradients arrive."""

from __future__ import annotations

from ppsolve.models.documents.errors import NotApplicableError
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.modes import modes_of
from ppsolve.solver.heuristics.heuristic import (
    Heuristic,
    Proposal,
    Request,
    Requirement,
)
from ppsolve.solver.kinds.pipeline.choice_lists import ChoiceLists
from ppsolve.solver.kinds.pipeline.published import A_PIPELINE
from ppsolve.solver.kinds.pipeline.reloads import has_reloads


def _propose(request: Request) -> Proposal:
    if not has_reloads(request.problem):
        raise NotApplicableError("no activation leaves the device")
    schedule = ChoiceLists().schedule(request.problem)
    if schedule is None:
        raise NotApplicableError("every list rule gets stuck in the memory")
    return Proposal(schedule)


def _is_given(instance: PipelineInstance) -> bool:
    modes = modes_of(instance)
    return modes is not None and modes.offload is not None and modes.given is not None


RELOAD_LISTS = Heuristic(
    "reload-in-time",
    "the best of a few list rules whose copies come back just in time",
    _propose,
    A_PIPELINE,
    (Requirement("offload whose stages are given", _is_given),),
)

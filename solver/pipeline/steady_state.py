"""The heuristic ``steady-state``: a short schedule stretched to many alike micro-batches."""

from __future__ import annotations

from ppsolve.solver.heuristics.heuristic import Heuristic, Proposal, Request, Requirement
from ppsolve.solver.periodic import steady_schedule
from ppsolve.solver.periodic.steady_state import PARAMS
from ppsolve.solver.pipeline.published import A_PIPELINE, has_unequal_microbatches

ALIKE = Requirement(
    "micro-batches that are all alike", lambda instance: not has_unequal_microbatches(instance)
)
MANY = Requirement(
    f"micro-batches >= {PARAMS.least_times} x devices",
    lambda instance: instance.num_microbatches >= PARAMS.least_times * instance.num_devices,
)


def steady_state(request: Request) -> Proposal:
    """Return the schedule of a few micro-batches with a periodic middle for the others."""
    return Proposal(steady_schedule(request.problem, request.effort))


STEADY_STATE = Heuristic(
    "steady-state",
    "fill and drain of a short schedule, and a cycle in between",
    steady_state,
    A_PIPELINE,
    (ALIKE, MANY),
    is_search=True,
)

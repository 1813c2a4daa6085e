"""Programs on pipelines: the schedule that an order gives, and the rules that it breaks."""

from __future__ import annotations

from collections.abc import Sequence

from ppsolve.models.core.result import HeuristicEntry, HeuristicStatus
from ppsolve.models.core.violation import Violation
from ppsolve.models.documents.errors import InputError
from ppsolve.models.pipeline.instance import PipelineInstance
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.heuristics.heuristic import Heuristic, HeuristicOutcome, Proposal, Request
from ppsolve.solver.pipeline.actions import Order
from ppsolve.solver.pipeline.collectives import with_collectives
from ppsolve.solver.pipeline.grammar import ComputeStep
from ppsolve.solver.pipeline.kind import PIPELINE
from ppsolve.solver.pipeline.programs.rules import PipelineShape
from ppsolve.solver.pipeline.published import A_PIPELINE, StaticOrders


def shape_of(instance: PipelineInstance) -> PipelineShape:
    """Return the shape that programs of a pipeline must have.

    Raises
    ------
    InputError
        A stage of the pipeline lives on several ranks.
    """
    for field, is_there in (
        ("replicas", instance.replicas is not None),
        ("placement", instance.placement == "bidirectional"),
    ):
        if is_there:
            raise InputError(
                "expected one rank per stage, which such a pipeline does not have",
                source=instance.name,
                field=field,
            )
    return PipelineShape(
        instance.num_microbatches, instance.stage_to_device, instance.times.is_split
    )


def simulated(
    rows: Sequence[Sequence[ComputeStep]], instance: PipelineInstance, *, exact: bool = False
) -> tuple[Proposal, list[Violation]]:
    """Start each op of a program as early as its order allows.

    Parameters
    ----------
    rows : sequence of sequence of Action or Overlap
        The steps of each rank; they keep all rules of programs of this pipeline.
    instance : PipelineInstance
    exact : bool
        Refuse times without a common tick within the limit instead of rounding them up.

    Returns
    -------
    proposal : Proposal
    violations : list of Violation
        The rules of the pipeline that it breaks, such as memory.
    """
    orders = [Order.of(row) for row in rows]
    heuristic = Heuristic("program", "", StaticOrders(lambda _, __: orders), A_PIPELINE)
    problem = PIPELINE.lower(instance, exact=exact)
    proposal: Proposal = with_collectives(heuristic).propose(Request(instance, problem))
    return proposal, check_schedule(problem, proposal.schedule)


def simulated_entry(
    rows: Sequence[Sequence[ComputeStep]],
    instance: PipelineInstance,
    name: str,
    *,
    exact: bool = False,
) -> tuple[HeuristicEntry, Proposal]:
    """Return the schedule of a program on a pipeline as the entry of a heuristic.

    Parameters
    ----------
    rows, instance, exact
    name : str

    Returns
    -------
    entry : HeuristicEntry
        With the schedule; infeasible where that breaks a rule of the pipeline such as memory.
    proposal : Proposal
        As from `simulated`.
    """
    proposal, violations = simulated(rows, instance, exact=exact)
    outcome = HeuristicOutcome(
        name,
        HeuristicStatus.INFEASIBLE if violations else HeuristicStatus.FEASIBLE,
        proposal.schedule,
        str(violations[0]) if violations else None,
        proposal.orders,
    )
    problem = proposal.schedule.problem
    entry = PIPELINE.entry_of(instance, problem, outcome, with_schedule=True)
    error = problem.scale.time(problem.tick_error) or None
    unit = PIPELINE.value_unit(instance)
    update = {"kind": PIPELINE.name, "value_unit": unit, "tick_error": error}
    return entry.model_copy(update=update), proposal

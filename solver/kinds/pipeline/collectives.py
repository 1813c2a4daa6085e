"""Pipeline orders first, collectives afterwards: the greedy baseline of pipelines with collectives.

A published schedule knows F, B, I and W only. Here it is made for the pipeline whose ops are as
long as their pieces and collectives together. Each device then runs the pieces in that order,
those of one op one after the other with nothing between them. Everything starts as early as that
order allows; comm streams serve collectives first come first served, all-gathers in stage order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from ppsolve.models.core.deferred import Deferred
from ppsolve.models.core.problem import Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.kinds.pipeline.collective_ops import OP_KIND_OF
from ppsolve.models.kinds.pipeline.collectives import Collectives
from ppsolve.models.kinds.pipeline.entries import TIME_FIELDS, row_of
from ppsolve.models.kinds.pipeline.fields import Times
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.lowering import lower_pipeline
from ppsolve.solver.heuristics.heuristic import Heuristic, Proposal, Request
from ppsolve.solver.kinds.pipeline.actions import (
    Order,
    action_strings,
    gradient_after_weight,
    orders_of,
)
from ppsolve.solver.kinds.pipeline.adapters import Adapter
from ppsolve.solver.kinds.pipeline.grammar import (
    BACKWARD,
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
)
from ppsolve.solver.structure.dag import Dag
from ppsolve.solver.structure.timing import time_orders

_FULL_BACKWARD = re.compile(rf"(\d+){BACKWARD}(\d+)")


def without_collectives(instance: PipelineInstance) -> PipelineInstance:
    """Return the pipeline as planners of whole ops see it.

    Ops are as long as their pieces and collectives together, a reduce-scatter is an all-reduce at
    the end of its stage, and all-gathers are left out.
    """
    collectives = instance.collectives
    if collectives is None:
        return instance
    reduction, numbers = collectives.reduce_scatter, instance.in_numbers()
    return numbers.model_copy(
        update={
            "times": _in_one_piece(numbers, collectives),
            "allreduce": instance.allreduce if reduction is None else reduction,
            "collectives": None,
        }
    )


def _in_one_piece(numbers: PipelineInstance, collectives: Collectives) -> Times:
    """Return the times of ops with their collectives, of a pipeline in numbers."""
    entries, longer = numbers.times.by_kind(), dict[str, Any]()
    for kind, inside in collectives.by_kind().items():
        rows: list[Any] = []
        for stage in range(numbers.num_stages):
            extra = sum(Fraction(time or 0) for time in inside.times(stage))
            row = [Fraction(time) + extra for time in row_of(entries[kind], stage)]
            rows.append(tuple(row) if len(row) > 1 else row[0])
        longer[TIME_FIELDS[kind]] = tuple(rows)
    return numbers.times.model_copy(update=longer)


def add_collectives(
    problem: Problem, plain: Schedule, fused: Sequence[tuple[int, int]] = ()
) -> Schedule:
    """Schedule a pipeline with collectives in the order of a plain schedule.

    All pieces and collectives start as early as the order allows. `fused` has the stage and
    micro-batch of each split backward whose gradient leaves after its weight gradient.
    """
    keys = problem.op_keys(np.arange(problem.num_ops))
    ran = plain.problem.op_keys(
        np.lexsort((Dag.of(plain.problem).level, plain.end, plain.start))
    )
    position = {key: number for number, key in enumerate(ran)}
    chains = [
        np.array(
            sorted(problem.ops_by_resource[stream], key=lambda op: position[keys[op]]),
            np.int64,
        )
        for stream in problem.span_resources.tolist()
    ]
    # The last op of each: the last piece, or the collective behind it.
    last = {
        (
            OP_KIND_OF.get(keys[op].kind, keys[op].kind),
            keys[op].stage,
            keys[op].microbatch,
        ): int(op)
        for op in np.argsort(Dag.of(problem).level)
    }
    inputs, weights = (
        [last[kind, stage, microbatch] for stage, microbatch in fused]
        for kind in (BACKWARD_INPUT, BACKWARD_WEIGHT)
    )
    return time_orders(problem, chains, gradient_after_weight(problem, inputs, weights))


def orders_if_whole(schedule: Schedule) -> Deferred[list[str]] | None:
    """Return the action strings of each device, None where ops are no actions or pairs."""
    if schedule.problem.slices > 1 or schedule.problem.kind_mask("F+I").any():
        return None
    orders = orders_of(schedule)
    return action_strings(orders) if all(map(_is_whole, orders)) else None


def orders_of_one_step(
    instance: PipelineInstance, schedule: Schedule
) -> Deferred[list[str]] | None:
    """Return the action strings of each device, None where they do not tell all ops."""
    return orders_if_whole(schedule) if instance.is_one_plain_step else None


def actions_are_ops(instance: PipelineInstance) -> bool:
    """Whether each action of a pipeline is one op, so that orders of actions can be timed."""
    is_cut = instance.collectives is not None or instance.num_slices > 1
    return instance.is_one_plain_step and not is_cut


def _is_whole(order: Order) -> bool:
    actions = np.stack([order.stage, order.kind, order.microbatch])
    return np.unique(actions, axis=1).shape == actions.shape


def collectives_afterwards(heuristic: Heuristic, request: Request) -> Proposal:
    """Return the schedule of a heuristic, with collectives added greedily."""
    plain = without_collectives(request.instance)
    problem = lower_pipeline(plain)
    order: Proposal = heuristic.propose(
        replace(request, instance=plain, problem=problem)
    )
    steps = " ".join(step for row in order.orders or () for step in row)
    pairs = _FULL_BACKWARD.findall(steps) if plain.times.is_split else []
    fused = [(int(stage), int(microbatch)) for stage, microbatch in pairs]
    schedule = add_collectives(request.problem, order.schedule, fused)
    return replace(order, schedule=schedule)


WITH_COLLECTIVES = Adapter("collectives", collectives_afterwards)

"""Pipeline orders first, collectives afterwards: the greedy baseline of pipelines with collectives.

A published schedule knows F, B, I and W only. Here it is made for the pipeline whose ops are as
long as their segments and all-reduces together. Each device then runs the segments in that order,
those of one op one after the other with nothing between them. Everything starts as early as that
order allows; comm streams serve collectives first come first served, all-gathers in stage order.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from decimal import localcontext
from typing import Any

import numpy as np

from ppsolve.models.core.deferred import Deferred
from ppsolve.models.core.problem import IntArray, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.kinds.pipeline.collectives import Collectives
from ppsolve.models.kinds.pipeline.entries import EXACT
from ppsolve.models.kinds.pipeline.fields import Times
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.lowering import ALLREDUCE_KINDS, lower_pipeline
from ppsolve.solver.heuristics.heuristic import Heuristic, Proposal, Request
from ppsolve.solver.kinds.pipeline.actions import (
    Order,
    action_strings,
    gradient_after_weight,
    orders_of,
)
from ppsolve.solver.kinds.pipeline.grammar import (
    BACKWARD,
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    COMPUTE_KINDS,
)
from ppsolve.solver.structure.dag import Dag
from ppsolve.solver.structure.timing import time_orders

_FULL_BACKWARD = re.compile(rf"(\d+){BACKWARD}(\d+)")

_TIME_FIELDS = {"F": "forward", "B": "backward", "I": "backward_input"}

Label = tuple[str, int, int, int]
"""Kind, stage, micro-batch and device of an op."""


def without_collectives(instance: PipelineInstance) -> PipelineInstance:
    """Return the pipeline as planners of whole ops see it.

    Ops are as long as their segments and all-reduces together, a reduce-scatter is an all-reduce at
    the end of its stage, and all-gathers are left out.
    """
    collectives = instance.collectives
    if collectives is None:
        return instance
    reduction = collectives.reduce_scatter
    return instance.model_copy(
        update={
            "times": _in_one_piece(instance, collectives),
            "allreduce": instance.allreduce if reduction is None else reduction,
            "collectives": None,
        }
    )


def _in_one_piece(instance: PipelineInstance, collectives: Collectives) -> Times:
    times = instance.in_numbers().times
    longer: dict[str, Any] = {}
    with localcontext(EXACT):
        for kind, inside in collectives.by_kind().items():
            rows: list[Any] = []
            for stage in range(instance.num_stages):
                found: list[Any] = [
                    entry[stage] if isinstance(entry, tuple) else entry
                    for entry in (times.by_kind()[kind], inside.segments, inside.allreduce)
                ]
                length, segments, allreduce = found
                more = segments * allreduce
                is_row = isinstance(length, tuple)
                rows.append(tuple(one + more for one in length) if is_row else length + more)
            longer[_TIME_FIELDS[kind]] = tuple(rows)
    return times.model_copy(update=longer)


def add_collectives(
    problem: Problem, plain: Schedule, fused: Iterable[tuple[int, int]] = ()
) -> Schedule:
    """Schedule a pipeline with collectives in the order of a plain schedule.

    Parameters
    ----------
    problem : Problem
    plain : Schedule
    fused : iterable of (int, int)
        Stage and micro-batch of backwards of split instances whose gradient leaves after their
        weight gradient.

    Returns
    -------
    Schedule
        Starts in ticks of all segments and collectives, as early as the order allows.
    """
    segments = _segments_by_label(problem)
    chains = [
        np.concatenate([np.zeros(0, np.int64), *(segments[label] for label in labels)])
        for labels in _compute_orders(plain)
    ]
    extra = gradient_after_weight(problem, *_fused_ops(segments, set(fused)))
    return time_orders(problem, chains, extra)


def _labels(problem: Problem, ops: IntArray) -> list[Label]:
    kinds = [problem.kinds[kind] for kind in problem.kind[ops].tolist()]
    columns = (label[ops].tolist() for label in (problem.stage, problem.microbatch, problem.device))
    return list(zip(kinds, *columns, strict=True))


def _segments_by_label(problem: Problem) -> dict[Label, list[int]]:
    # Segments are numbered one after the other.
    found: dict[Label, list[int]] = defaultdict(list)
    for op, label in enumerate(_labels(problem, np.arange(problem.num_ops))):
        found[label].append(op)
    return found


def _compute_orders(plain: Schedule) -> list[list[Label]]:
    # In order, level by level where ops take no time.
    problem, level = plain.problem, Dag.of(plain.problem).level
    orders = []
    for resource in problem.span_resources.tolist():
        ops = problem.ops_by_resource[resource]
        keys = (ops, level[ops], plain.end[ops], plain.start[ops])
        orders.append(_labels(problem, ops[np.lexsort(keys)]))
    return orders


def _fused_ops(
    segments: dict[Label, list[int]], fused: set[tuple[int, int]]
) -> tuple[list[int], list[int]]:
    inputs, weights = [], []
    for (kind, stage, microbatch, device), ops in segments.items():
        if kind == BACKWARD_WEIGHT and (stage, microbatch) in fused:
            own = (stage, microbatch, device)
            alone = segments[BACKWARD_INPUT, *own]
            reduces = segments.get((ALLREDUCE_KINDS[BACKWARD_INPUT], *own), alone)
            inputs.append(reduces[-1])
            weights.append(ops[-1])
    return inputs, weights


def orders_if_whole(schedule: Schedule) -> Deferred[list[str]] | None:
    """Return the action strings of each device, or None where ops are no actions or pairs."""
    if schedule.problem.kind_mask("F+I").any():
        return None
    orders = orders_of(schedule)
    return action_strings(orders) if all(map(_is_whole, orders)) else None


def _is_whole(order: Order) -> bool:
    indices = int(order.microbatch.max(initial=0)) + 1
    keys = (order.stage * len(COMPUTE_KINDS) + order.kind) * indices + order.microbatch
    return len(set(keys.tolist())) == len(order)


def with_collectives(heuristic: Heuristic) -> Heuristic:
    """Return a published schedule that also runs pipelines with collectives, added greedily."""

    def propose(request: Request) -> Proposal:
        instance: PipelineInstance = request.instance
        if instance.collectives is None:
            alone: Proposal = heuristic.propose(request)
            return alone
        plain = without_collectives(instance)
        problem = lower_pipeline(plain)
        order = heuristic.propose(replace(request, instance=plain, problem=problem))
        steps = " ".join(step for row in order.orders or () for step in row)
        pairs = _FULL_BACKWARD.findall(steps) if plain.times.is_split else []
        fused = [(int(stage), int(microbatch)) for stage, microbatch in pairs]
        schedule = add_collectives(request.problem, order.schedule, fused)
        proposal: Proposal = replace(order, schedule=schedule)
        return proposal

    return replace(heuristic, propose=propose)

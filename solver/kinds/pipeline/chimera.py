"""Chimera: two pipes through the same devices in opposite directions, 1F1B in each."""

from __future__ import annotations

import numpy as np

from ppsolve.models.core.dag import chain_edges
from ppsolve.models.core.problem import IntArray, Problem
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.heuristics.list_scheduling import (
    PriorityRule,
    generate_parallel,
    ranked,
)
from ppsolve.solver.kinds.pipeline.actions import (
    FULL,
    INPUT,
    WEIGHT,
    Order,
    gradient_after_weight,
    in_halves,
    orders_of,
)
from ppsolve.solver.kinds.pipeline.grammar import (
    BACKWARD,
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    COMPUTE_KINDS,
    FORWARD,
)
from ppsolve.solver.kinds.pipeline.one_stage import one_forward_one_backward
from ppsolve.solver.kinds.pipeline.sliced import in_slices

_PREFERENCE = {BACKWARD_WEIGHT: 0, BACKWARD_INPUT: 1, BACKWARD: 1, FORWARD: 2}
"""Rank among ops that can start at one moment: weight gradients first, so that no other op parts
them from their input gradients; backwards before forwards, since they give activations back."""


def chimera(instance: PipelineInstance, problem: Problem) -> list[Order]:
    """Return Chimera's orders (Li and Hoefler 2021), one per device.

    Each pipe runs its half of the micro-batches by 1F1B. On every device the two sequences are
    merged: the head that can start earliest goes first, backwards before forwards, then the lower
    op number. A full backward of a split instance stays in one piece. The slices of a micro-batch
    follow each other.
    """
    half = instance.num_microbatches // 2
    grids = np.stack([problem.grid(kind) for kind in COMPUTE_KINDS])
    orders = one_forward_one_backward(instance.num_stages, half)
    if problem.slices > 1:
        orders = in_slices(orders, problem.slices)
    chains = [
        _ops(problem, grids, order, pipe * half * problem.slices)
        for pipe in range(2)
        for order in orders
    ]
    edges = [chain_edges(chains)]
    if BACKWARD_INPUT in problem.kinds:
        inputs, weights = (
            problem.grid(kind).ravel() for kind in (BACKWARD_INPUT, BACKWARD_WEIGHT)
        )
        edges.append(gradient_after_weight(problem, inputs, weights))
    merged = generate_parallel(problem, _rule(problem), *edges, with_memory=False)
    return [_with_full_backwards(order) for order in orders_of(merged)]


def _ops(problem: Problem, grids: IntArray, order: Order, offset: int) -> IntArray:
    halves, _ = in_halves(problem, order)
    return grids[halves.kind, halves.stage, halves.microbatch + offset]


def _rule(problem: Problem) -> PriorityRule:
    preference = np.array(
        [_PREFERENCE.get(kind, 0) for kind in problem.kinds], dtype=np.int64
    )
    rank = ranked(preference[problem.kind])
    return PriorityRule(
        rank, np.zeros(problem.num_ops, dtype=np.bool_), first_come=True
    )


def _with_full_backwards(order: Order) -> Order:
    kept = order.kind != WEIGHT
    kind = np.where(order.kind == INPUT, FULL, order.kind)
    return Order(order.stage[kept], kind[kept], order.microbatch[kept])

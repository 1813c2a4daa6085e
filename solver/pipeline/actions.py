"""Op orders written as actions (``0F3``), and the schedules that they stand for."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ppsolve.models.core.dag import Edges
from ppsolve.models.core.problem import FREE, IntArray, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import InputError
from ppsolve.solver.structure.timing import time_orders

FORWARD, BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT = "F", "B", "I", "W"
COMPUTE_KINDS = (FORWARD, BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT)
"""Kinds of ops on compute streams, by PyTorch's letters."""


class Action(NamedTuple):
    """One compute action of a device, written as PyTorch writes it: ``0F3``."""

    stage: int
    kind: str
    microbatch: int

    def __str__(self) -> str:
        """Return ``<stage><kind><micro-batch>``."""
        return f"{self.stage}{self.kind}{self.microbatch}"


class Overlap(NamedTuple):
    """A forward and a full backward that are launched together; timed one after the other."""

    forward: Action
    backward: Action

    def __str__(self) -> str:
        """Return ``(<forward>;<backward>)OVERLAP_F_B``."""
        return f"({self.forward};{self.backward})OVERLAP_F_B"


Order = list[Action | Overlap]
"""Actions of one device, in order."""


def action_strings(orders: Sequence[Order]) -> list[list[str]]:
    """Write orders as PyTorch's action strings, per device."""
    return [[str(step) for step in order] for order in orders]


def schedule_actions(problem: Problem, orders: Sequence[Order]) -> Schedule:
    """Time the orders of all devices.

    A full backward on a problem whose backward is split is I, then W; the previous stage's
    backward (or the transfer to it) then waits for that W. Ops of a compute stream that belong
    to no micro-batch (optimizer steps) run after the order of their device.

    Parameters
    ----------
    problem : Problem
        A lowered pipeline.
    orders : sequence of Order
        One order per device.

    Returns
    -------
    Schedule
        Starts in ticks, each op as early as its order allows.

    Raises
    ------
    InputError
        An order names an op that the problem or the device does not have, names one twice, or
        misses one.
    DeadlockError
        The orders wait for each other.
    """
    resolver = _Resolver(problem)
    chains = [resolver.ops(device, order) for device, order in enumerate(orders)]
    _check_complete(problem, chains)
    fused = gradient_after_weight(problem, resolver.fused_inputs, resolver.fused_weights)
    tails = _after_order(problem, chains)
    extra = [np.concatenate(parts) for parts in zip(fused, tails, strict=True)]
    return time_orders(problem, chains, (extra[0], extra[1], extra[2]))


class _Resolver:
    """Turns actions into op numbers and remembers which backwards were fused."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.is_split = BACKWARD_INPUT in problem.kinds
        self.grids = {kind: problem.grid(kind).tolist() for kind in COMPUTE_KINDS}
        self.device = problem.device.tolist()
        self.fused_inputs: list[int] = []
        self.fused_weights: list[int] = []

    def ops(self, device: int, order: Order) -> IntArray:
        ops: list[int] = []
        for step in order:
            for action in step if isinstance(step, Overlap) else (step,):
                ops.extend(self._ops_of(device, action))
        return np.array(ops, dtype=np.int64)

    def _ops_of(self, device: int, action: Action) -> list[int]:
        if action.kind != BACKWARD or not self.is_split:
            return [self._op(device, action)]
        halves = [
            self._op(device, action._replace(kind=kind))
            for kind in (BACKWARD_INPUT, BACKWARD_WEIGHT)
        ]
        self.fused_inputs.append(halves[0])
        self.fused_weights.append(halves[1])
        return halves

    def _op(self, device: int, action: Action) -> int:
        stage, kind, microbatch = action
        grid = self.grids.get(kind, [])
        known = 0 <= stage < len(grid) and 0 <= microbatch < len(grid[stage])
        op = int(grid[stage][microbatch]) if known else FREE
        if op == FREE:
            raise InputError(f'expected an action of this instance, got "{action}"')
        if self.device[op] != device:
            raise InputError(
                f'"{action}" is in the order of device {device}, its device is {self.device[op]}'
            )
        return op


def _check_complete(problem: Problem, chains: Sequence[IntArray]) -> None:
    count = np.bincount(np.concatenate(chains), minlength=problem.num_ops)
    wanted = problem.kind_mask(*COMPUTE_KINDS) & (problem.microbatch != FREE)
    for ops, what in (
        (np.flatnonzero(count > 1), "more than once"),
        (wanted & (count == 0), "not"),
    ):
        listed = np.flatnonzero(ops) if ops.dtype == np.bool_ else ops
        if len(listed):
            names = ", ".join(problem.op_names(listed[:5]))
            more = f" and {len(listed) - 5} more" if len(listed) > 5 else ""
            raise InputError(f"expected every op once in the orders, {names}{more} is there {what}")


def gradient_after_weight(
    problem: Problem, inputs: Sequence[int] | IntArray, weights: Sequence[int] | IntArray
) -> Edges:
    """Return the precedences that make split backwards behave as fused ones.

    Every op that waits for an input-gradient backward waits, with the same lag, for the weight-
    gradient backward that belongs to it too.

    Parameters
    ----------
    problem : Problem
        A lowered pipeline with split backwards.
    inputs, weights : sequence of int or int64[...]
        The two ops of each fused backward.

    Returns
    -------
    (int64[e], int64[e], int64[e])
        Ops before, ops after, and lags in ticks.
    """
    weight_of = np.full(problem.num_ops, FREE, dtype=np.int64)
    weight_of[np.asarray(inputs, dtype=np.int64)] = weights
    partner = weight_of[problem.before]
    chosen = (partner != FREE) & (problem.after != partner)
    return partner[chosen], problem.after[chosen], problem.lag[chosen]


def _after_order(problem: Problem, chains: Sequence[IntArray]) -> Edges:
    """Return edges from each device's last ordered op to the ops of its stream in no order."""
    before, after = [], []
    is_ordered = np.zeros(problem.num_ops, dtype=np.bool_)
    for chain, resource in zip(chains, problem.span_resources.tolist(), strict=True):
        ops = problem.ops_by_resource[resource]
        is_ordered[chain] = True
        rest = ops[~is_ordered[ops]]
        is_ordered[chain] = False
        if len(chain) and len(rest):
            before.append(np.full(len(rest), chain[-1], dtype=np.int64))
            after.append(rest)
    none = np.zeros(0, dtype=np.int64)
    pairs = np.concatenate([none, *before]), np.concatenate([none, *after])
    return pairs[0], pairs[1], np.zeros(len(pairs[0]), dtype=np.int64)


def ordered_compute_ops(schedule: Schedule) -> list[IntArray]:
    """Return the F, B, I and W ops of each device of a pipeline schedule, in order of start."""
    problem = schedule.problem
    chosen = np.flatnonzero(problem.kind_mask(*COMPUTE_KINDS) & (problem.microbatch != FREE))
    keys = (chosen, schedule.end[chosen], schedule.start[chosen], problem.device[chosen])
    ranked = chosen[np.lexsort(keys)]
    numbers = np.arange(len(problem.span_resources) + 1)
    cuts = np.searchsorted(problem.device[ranked], numbers).tolist()
    return [ranked[first:last] for first, last in pairwise(cuts)]


def orders_of(schedule: Schedule) -> list[list[str]]:
    """Return the action strings of each device of a pipeline schedule, in order of start."""
    problem = schedule.problem
    kinds = problem.kinds
    orders = []
    for ops in ordered_compute_ops(schedule):
        columns = [
            label[ops].tolist() for label in (problem.stage, problem.kind, problem.microbatch)
        ]
        orders.append([f"{stage}{kinds[kind]}{i}" for stage, kind, i in zip(*columns, strict=True)])
    return orders

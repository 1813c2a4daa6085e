"""Op orders of actions (``0F3``) as arrays, and the schedules that they stand for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from ppsolve.models.core.dag import Edges
from ppsolve.models.core.deferred import Deferred
from ppsolve.models.core.problem import FREE, IntArray, Pool, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.solver.kinds.pipeline.grammar import (
    BACKWARD_INPUT,
    COMPUTE_KINDS,
    Action,
    ComputeStep,
    Overlap,
    pair_in,
)
from ppsolve.solver.structure.holds import whole_units
from ppsolve.solver.structure.timing import time_orders

FULL, INPUT, WEIGHT = 1, 2, 3
"""Places of the backwards in `COMPUTE_KINDS`."""


def _none() -> IntArray:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Order:
    """Actions of one device, in order."""

    stage: IntArray  # int64[a]: stage and micro-batch of each of the a actions
    kind: IntArray  # int64[a]: kind of each action, as place in `COMPUTE_KINDS`
    microbatch: IntArray
    # int64[...]: places of the forwards that are launched together with the full backward behind
    # them.
    overlaps: IntArray = field(default_factory=_none)

    @classmethod
    def of(cls, steps: Iterable[ComputeStep]) -> Order:
        """Return the order of actions and of pairs of them."""
        actions: list[Action] = []
        overlaps = []
        for step in steps:
            if isinstance(step, Overlap):
                overlaps.append(len(actions))
                actions += step
            else:
                actions.append(step)
        stages, kinds, microbatches = (
            zip(*actions, strict=True) if actions else ((), (), ())
        )
        columns = (stages, map(COMPUTE_KINDS.index, kinds), microbatches, overlaps)
        return cls(*(np.array(list(column), dtype=np.int64) for column in columns))

    @classmethod
    def by_index(cls, stage: int | Sequence[int] | IntArray, kinds: str) -> Order:
        """Return an order that runs the micro-batches of each stage and kind by their index.

        There is one stage of all actions, or one of each. Kinds are letters of `COMPUTE_KINDS`, one
        for each action.
        """
        kind = _places(kinds)
        stages = np.zeros(len(kind), dtype=np.int64) + stage
        return cls(stages, kind, _counts(stages * len(COMPUTE_KINDS) + kind))

    def __len__(self) -> int:
        """Return the number of actions."""
        return len(self.stage)

    def __iter__(self) -> Iterator[ComputeStep]:
        """Yield the actions, and the pairs that are launched together."""
        kinds = [COMPUTE_KINDS[kind] for kind in self.kind.tolist()]
        columns = self.stage.tolist(), kinds, self.microbatch.tolist()
        actions = list(map(Action, *columns))
        paired = set(self.overlaps.tolist())
        for index, action in enumerate(actions):
            if index in paired:
                yield Overlap(action, actions[index + 1])
            elif index - 1 not in paired:
                yield action


_PLACES = np.full(256, FREE, dtype=np.int64)
_PLACES[[ord(letter) for letter in COMPUTE_KINDS]] = np.arange(len(COMPUTE_KINDS))


def _places(kinds: str) -> IntArray:
    return _PLACES[np.frombuffer(kinds.encode(), dtype=np.uint8)]


def _counts(keys: IntArray) -> IntArray:
    # The number of equal keys before each key.
    order = np.argsort(keys, kind="stable")
    ranked = keys[order]
    positions = np.arange(len(keys))
    is_first = np.append(True, ranked[1:] != ranked[:-1])[: len(keys)]
    counts = np.empty(len(keys), dtype=np.int64)
    counts[order] = positions - np.maximum.accumulate(np.where(is_first, positions, 0))
    return counts


def action_strings(orders: Sequence[Order]) -> Deferred[list[str]]:
    """Write orders as PyTorch's action strings, per device; they are made when they are read."""
    return Deferred(lambda: [list(map(str, order)) for order in orders])


def schedule_actions(
    problem: Problem, orders: Sequence[Order], *edges: Edges
) -> Schedule:
    """Time the orders of all devices: each op starts as early as its order allows.

    A full backward on a problem whose backward is split is I, then W; the previous stage's backward
    (or the transfer to it) then waits for that W. Ops of a compute stream that belong to no
    micro-batch (optimizer steps) run after the order of their device.

    There may be precedences beside those of the problem, e.g. orders of transfers. Errors are those
    of `resolved` and `Chains.timed`.
    """
    return resolved(problem, orders).timed(problem, *edges)


@dataclass(frozen=True, eq=False)
class Chains:
    """Orders of actions as op numbers; the same for pipelines that differ in times alone."""

    ops: list[
        IntArray
    ]  # list of int64[...]: ops of each device, in the order in which they run
    inputs: (
        IntArray  # int64[...]: the halves of each full backward that the problem splits
    )
    weights: IntArray

    def timed(self, problem: Problem, *edges: Edges) -> Schedule:
        """Return the schedule that starts each op as early as its order allows.

        The problem is one of the shape for which the orders were resolved. A `DeadlockError` says
        that the orders wait for each other.
        """
        fused = gradient_after_weight(problem, self.inputs, self.weights)
        tails = _after_order(problem, self.ops)
        extra = [
            np.concatenate(columns)
            for columns in zip(fused, tails, *edges, strict=True)
        ]
        return time_orders(problem, self.ops, (extra[0], extra[1], extra[2]))

    def overfills(self, problem: Problem) -> bool:
        """Whether these orders make some pool overflow, however long ops take.

        Where an op starts, all those before it on its device have ended. That decides the use of a
        pool whose ops are all in one order and take time; other pools are left out.
        """
        position = np.full(problem.num_ops, FREE, dtype=np.int64)
        for ops in self.ops:
            position[ops] = np.arange(len(ops))
        return any(_overfills(problem, pool, position) for pool in problem.pools)


def _overfills(problem: Problem, pool: Pool, position: IntArray) -> bool:
    every = np.concatenate([pool.acquire_op, pool.release_op])
    device = problem.device[every]
    decided = (
        (position[every] != FREE)
        & (device == device[:1])
        & (problem.duration[every] > 0)
    )
    if not len(every) or not decided.all():
        return False
    amounts, unit = whole_units(pool.amounts, len(every) + 1)
    acquired, released = np.zeros(
        (2, int(position[every].max()) + 1), dtype=amounts.dtype
    )
    np.add.at(acquired, position[pool.acquire_op], amounts[pool.acquire_amount])
    np.add.at(released, position[pool.release_op], amounts[pool.release_amount])
    use = np.cumsum(acquired) - np.cumsum(released) + released
    return bool(np.any(use > math.floor((pool.limit - pool.initial) * unit)))


def resolved(problem: Problem, orders: Sequence[Order]) -> Chains:
    """Return the ops of the orders of all devices.

    An `InputError` says that an order names an op that the problem or the device does not have,
    names one twice, or misses one.
    """
    grids = np.stack([problem.grid(kind) for kind in COMPUTE_KINDS])
    chains, inputs, weights = [], [_none()], [_none()]
    for device, device_order in enumerate(orders):
        order, positions = in_halves(problem, device_order)
        ops = _known_ops(grids, order)
        wrong = (ops == FREE) | (problem.device[ops] != device)
        if wrong.any():
            raise _refusal(problem, device, order, ops, int(np.argmax(wrong)))
        chains.append(ops)
        inputs.append(ops[positions])
        weights.append(ops[positions + 1])
    _check_complete(problem, chains)
    return Chains(chains, np.concatenate(inputs), np.concatenate(weights))


def _known_ops(grids: IntArray, order: Order) -> IntArray:
    _, stages, microbatches = grids.shape
    valid = (order.stage >= 0) & (order.stage < stages)
    valid &= (order.microbatch >= 0) & (order.microbatch < microbatches)
    ops = np.full(len(order), FREE, dtype=np.int64)
    ops[valid] = grids[order.kind[valid], order.stage[valid], order.microbatch[valid]]
    return ops


def _refusal(
    problem: Problem, device: int, order: Order, ops: IntArray, index: int
) -> InputError:
    action = list(order)[index]
    if ops[index] == FREE:
        return InputError(
            f'expected an action of this instance, got "{action}"',
            code=ErrorCode.SYNTAX,
        )
    owner = problem.device[ops[index]]
    return InputError(
        f'"{action}" is in the order of device {device}, its device is {owner}',
        code=ErrorCode.SCHEDULE,
    )


def in_halves(problem: Problem, order: Order) -> tuple[Order, IntArray]:
    """Return an order whose full backwards are I, then W, where the problem splits them.

    All actions come one by one, without overlaps. The second array has the place of the I of each
    full backward; the W is the action behind it.
    """
    is_full = order.kind == FULL
    if BACKWARD_INPUT not in problem.kinds or not is_full.any():
        return Order(order.stage, order.kind, order.microbatch), _none()
    source = np.repeat(np.arange(len(order)), is_full + 1)
    kind = order.kind[source]
    inputs = np.flatnonzero(is_full)
    inputs += np.arange(len(inputs))
    kind[inputs], kind[inputs + 1] = INPUT, WEIGHT
    return Order(order.stage[source], kind, order.microbatch[source]), inputs


def _check_complete(problem: Problem, chains: Sequence[IntArray]) -> None:
    count = np.bincount(np.concatenate(chains), minlength=problem.num_ops)
    expected = problem.kind_mask(*COMPUTE_KINDS) & (problem.microbatch != FREE)
    for mask, fault in (
        (count > 1, "more than once"),
        (expected & (count == 0), "not"),
    ):
        listed = np.flatnonzero(mask)
        if len(listed):
            names = ", ".join(problem.op_names(listed[:5]))
            suffix = f" and {len(listed) - 5} more" if len(listed) > 5 else ""
            raise InputError(
                f"expected every op once in the orders, {names}{suffix} is there {fault}",
                code=ErrorCode.SCHEDULE,
            )


def gradient_after_weight(
    problem: Problem,
    inputs: Sequence[int] | IntArray,
    weights: Sequence[int] | IntArray,
) -> Edges:
    """Return the precedences that make split backwards behave as fused ones.

    Every op that waits for an input-gradient backward waits, with the same lag, for the weight-
    gradient backward that belongs to it too. `inputs` and `weights` are the two ops of each fused
    backward.
    """
    weight_of = np.full(problem.num_ops, FREE, dtype=np.int64)
    weight_of[np.asarray(inputs, dtype=np.int64)] = weights
    partner = weight_of[problem.before]
    mask = (partner != FREE) & (problem.after != partner)
    return partner[mask], problem.after[mask], problem.lag[mask]


def _after_order(problem: Problem, chains: Sequence[IntArray]) -> Edges:
    before, after = [], []
    is_ordered = np.zeros(problem.num_ops, dtype=np.bool_)
    for chain, resource in zip(chains, problem.span_resources.tolist(), strict=True):
        ops = problem.ops_by_resource[resource]
        is_ordered[chain] = True
        unordered = ops[~is_ordered[ops]]
        is_ordered[chain] = False
        if len(chain) and len(unordered):
            before.append(np.full(len(unordered), chain[-1], dtype=np.int64))
            after.append(unordered)
    none = np.zeros(0, dtype=np.int64)
    pairs = np.concatenate([none, *before]), np.concatenate([none, *after])
    return pairs[0], pairs[1], np.zeros(len(pairs[0]), dtype=np.int64)


def _ordered_compute_ops(schedule: Schedule) -> list[IntArray]:
    problem = schedule.problem
    runs = problem.kind_mask(*(kind for kind in problem.kinds if kind in COMPUTE_KINDS))
    runs[list(problem.joined)] = True
    ops = np.flatnonzero(runs & (problem.microbatch != FREE))
    # Ops of no length at one moment come as a micro-batch passes the stages.
    is_forward = problem.kind_mask("F")[ops]
    stage = np.where(is_forward, problem.stage[ops], -problem.stage[ops])
    passing = (ops, stage, ~is_forward, problem.kind_mask("W")[ops])
    keys = (
        *passing,
        schedule.end[ops],
        schedule.start[ops],
        problem.device[ops],
    )
    ranked = ops[np.lexsort(keys)]
    numbers = np.arange(len(problem.span_resources) + 1)
    cuts = np.searchsorted(problem.device[ranked], numbers).tolist()
    return [ranked[first:last] for first, last in pairwise(cuts)]


def _steps_of(problem: Problem, ops: IntArray) -> Iterator[ComputeStep]:
    for op in ops.tolist():
        pair = pair_in(problem.joined[op]) if op in problem.joined else None
        kind = problem.kinds[problem.kind[op]]
        yield pair or Action(int(problem.stage[op]), kind, int(problem.microbatch[op]))


def orders_of(schedule: Schedule) -> list[Order]:
    """Return the order of each device of a pipeline schedule, by start; blocks are pairs."""
    problem = schedule.problem
    if problem.joined:
        return [
            Order.of(_steps_of(problem, ops)) for ops in _ordered_compute_ops(schedule)
        ]
    kind_of = _places(
        "".join(kind if kind in COMPUTE_KINDS else "?" for kind in problem.kinds)
    )
    return [
        Order(problem.stage[ops], kind_of[problem.kind[ops]], problem.microbatch[ops])
        for ops in _ordered_compute_ops(schedule)
    ]

"""What does not change between the steps of a pipeline, and the schedules made of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from ppsolve.models.core.problem import FREE, IntArray, Pool, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.core.timescale import TimeScale
from ppsolve.models.documents.errors import (
    DeadlockError,
    ErrorCode,
    HeuristicFailedError,
    InputError,
    MemoryDeadlockError,
    NotApplicableError,
)
from ppsolve.models.kinds.pipeline.entries import Lengths, has_costs
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.joint import join, lower_replicas
from ppsolve.models.kinds.pipeline.replicas import Replicas
from ppsolve.solver.bounds.flow.flow import Flow, flow_of
from ppsolve.solver.bounds.flow.patterns import (
    ReplicaPattern,
    replica_pattern_of,
    together,
)
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.clock import Clock
from ppsolve.solver.heuristics.generic import GENERIC
from ppsolve.solver.heuristics.heuristic import Effort, Request
from ppsolve.solver.kernels.microbatch_exchange import (
    Choice,
    ExchangeSizes,
    ReplicaPatterns,
    time_pattern,
    timed_replicas,
)
from ppsolve.solver.kinds.pipeline.grammar import COMPUTE_KINDS
from ppsolve.solver.kinds.pipeline.published import PUBLISHED
from ppsolve.solver.kinds.pipeline.replicas.enumerate_assignments import set_sizes


@dataclass(frozen=True)
class ReplicaShapeParams:
    """Which orders of ops replicas may run."""

    most_ways: int = (
        4  # ways to order ops that are kept; every step times each of them once
    )
    sweep_seconds: float = (
        0.5  # for heuristics that search, all numbers of micro-batches together
    )
    spread: int = (
        2  # times the mean: most micro-batches of a replica, where numbers are free
    )


class ReplicaShape:
    """Positions, orders and structure of a pipeline with replicas; one without has a single one.

    Times are rounded up to multiples of the tick of the scale. An `InputError` says that
    micro-batches of the pipeline pass different positions or hold two resources at once.
    """

    def __init__(self, instance: PipelineInstance, scale: TimeScale) -> None:
        self.scale, self.params = scale, ReplicaShapeParams()
        self.replicas = instance.replicas or Replicas(count=1, assignment="fixed")
        self.take(instance)
        self.patterns, self.ways, self.sample = self._ways()
        self.templates = [_template(pattern) for pattern in self.patterns]

    def take(self, instance: PipelineInstance) -> None:
        """Take micro-batches of other lengths, times or amounts."""
        self.instance = instance
        everyone = tuple(range(instance.num_microbatches))
        (self.whole,) = lower_replicas(instance, (everyone,), scale=self.scale)
        flow = flow_of(self.whole)
        if flow is None:
            raise InputError(
                'expected one pipe and p2p of mode "delay", "link" or "send_queue"',
                field="p2p",
                code=ErrorCode.UNSUPPORTED,
            )
        self.flow: Flow = flow
        self.amounts = [
            _AmountTables(pool, flow, self.whole.num_ops) for pool in self.whole.pools
        ]

    def with_lengths(self, lengths: Sequence[int | Sequence[int]]) -> ReplicaShape:
        """Return the same shape with micro-batches of other lengths.

        An `InputError` says that the number of micro-batches is another one, that a length is no
        whole number from 1, or that nothing depends on lengths.
        """
        if not any(map(has_costs, self.instance.amounts().values())):
            raise InputError(
                "expected times: no entry of the pipeline is a cost over lengths",
                field="lengths",
                code=ErrorCode.UNSUPPORTED,
            )
        checked = _lengths(lengths, self.instance.num_microbatches)
        shape = copy(self)
        shape.take(self.instance.model_copy(update={"lengths": checked}))
        return shape

    @property
    def alone(self) -> IntArray:
        """Durations of the ops of one replica that belong to no micro-batch, in ticks."""
        return self.whole.duration[self.whole.microbatch == FREE]

    def counts(self) -> list[int]:
        """Return the numbers of micro-batches that a replica may run."""
        number, count = self.instance.num_microbatches, self.replicas.count
        if not self.replicas.is_free:
            return sorted(
                {len(microbatches) for microbatches in self.replicas.blocks(number)}
            )
        limit = self.params.spread * -(-number // count)
        return [size for size in set_sizes(self.replicas, number) if size <= limit]

    def _ways(self) -> tuple[list[ReplicaPattern], list[Choice], ReplicaPatterns]:
        patterns: list[ReplicaPattern] = []
        counts = self.counts()
        tables: dict[str, IntArray] = {}
        value: dict[str, int] = {}
        for count in counts:
            for name, schedule in self._samples(count):
                table = tables.setdefault(
                    name, np.full(max(counts) + 1, -1, dtype=np.int64)
                )
                table[count] = len(patterns)
                patterns.append(replica_pattern_of(schedule, self.flow))
                value[name] = value.get(name, 0) + schedule.makespan
        complete = [
            name for name, table in tables.items() if (table[counts] >= 0).all()
        ]
        if not complete:
            raise InputError(
                "expected room for the largest micro-batch on every device",
                field="memory.capacity",
            )
        best = sorted(complete, key=lambda name: value[name])
        distinct = _distinct([tables[name] for name in best], patterns)[
            : self.params.most_ways
        ]
        choices = [Choice(table, max(counts)) for table in distinct]
        return patterns, choices, together(patterns, self.flow)

    def _samples(self, count: int) -> Iterator[tuple[str, Schedule]]:
        instance = _alike(self.instance, count)
        (problem,) = lower_replicas(instance, (tuple(range(count)),), scale=self.scale)
        for heuristic in (*PUBLISHED, *GENERIC):
            if heuristic.obstacle(instance) is None:
                effort = Effort(Clock(self.params.sweep_seconds / len(self.counts())))
                request = Request(instance, problem, effort=effort)
                with suppress(
                    NotApplicableError,
                    DeadlockError,
                    MemoryDeadlockError,
                    HeuristicFailedError,
                ):
                    schedule = heuristic.propose(request).schedule
                    if not check_schedule(problem, schedule):
                        yield heuristic.name, schedule


_LENGTHS: TypeAdapter[Any] = TypeAdapter(Lengths)


def _lengths(lengths: Sequence[int | Sequence[int]], count: int) -> Any:
    if len(lengths) != count:
        raise InputError(
            f"expected {count} entries (one per micro-batch), got {len(lengths)}",
            field="lengths",
            code=ErrorCode.LENGTH,
        )
    rows = [np.asarray(row).tolist() for row in lengths]
    try:
        return _LENGTHS.validate_python(rows)
    except ValidationError as error:
        raise InputError(error.errors()[0]["msg"], field="lengths") from None


def _distinct(tables: list[IntArray], patterns: list[ReplicaPattern]) -> list[IntArray]:
    by_key: dict[bytes, IntArray] = {}
    for table in tables:
        orders = [patterns[number] for number in table[table >= 0].tolist()]
        key = b"".join(
            order.slot.tobytes() + order.position.tobytes() for order in orders
        )
        by_key.setdefault(key, table)
    return list(by_key.values())


def _template(pattern: ReplicaPattern) -> list[list[tuple[str, int]]]:
    # Stage and kind, and slot, of each compute action by device.
    problem = pattern.schedule.problem
    rows: list[list[tuple[str, int]]] = [
        [] for _ in range(int(problem.device.max()) + 1)
    ]
    for op, slot in zip(pattern.ops.tolist(), pattern.slot.tolist(), strict=True):
        kind = problem.kinds[problem.kind[op]]
        if slot != FREE and kind in COMPUTE_KINDS:
            rows[problem.device[op]].append((f"{problem.stage[op]}{kind}", slot))
    return rows


def _alike(instance: PipelineInstance, count: int) -> PipelineInstance:
    # Mean times, the largest amounts.
    def change(path: str, entry: Any) -> Any:
        if not isinstance(entry, tuple):
            return entry
        summarize = max if path.startswith("memory") else _mean
        return tuple(
            summarize(item) if isinstance(item, tuple) else item for item in entry
        )

    plain = instance.in_numbers()
    return plain.with_amounts(
        change, replicas=None, lengths=None, num_microbatches=count
    )


def _mean(numbers: tuple[Any, ...]) -> Any:
    return sum(numbers[1:], numbers[0]) / len(numbers)


class _AmountTables:
    def __init__(self, pool: Pool, flow: Flow, num_ops: int) -> None:
        self.amounts = (*pool.amounts, Fraction(0))
        by_op = np.full((2, num_ops), len(pool.amounts), dtype=np.int64)
        by_op[0, pool.acquire_op] = pool.acquire_amount
        by_op[1, pool.release_op] = pool.release_amount
        self.acquire, self.release = by_op[:, flow.ops]

    def given_to(self, pool: Pool, owner: IntArray, position: IntArray) -> Pool:
        """Return the pool of a replica whose ops belong to some micro-batches."""
        takers, givers = pool.acquire_op, pool.release_op
        return replace(
            pool,
            amounts=self.amounts,
            acquire_amount=self.acquire[owner[takers], position[takers]],
            release_amount=self.release[owner[givers], position[givers]],
        )


def schedule_of(
    shape: ReplicaShape,
    choices: Sequence[Choice],
    sizes: ExchangeSizes,
    members: Sequence[Sequence[int]],
) -> Schedule:
    """Return the schedule in which every replica runs its order as early as possible.

    Each replica has a choice of an order for each number of micro-batches, and members:
    micro-batches by slot. The schedule is of the problem of all replicas, with the durations and
    amounts of this step.
    """
    table = sizes.duration.reshape(-1, sizes.num_positions)
    problems, starts, numbers = [], [], []
    for choice, microbatches in zip(choices, members, strict=True):
        which = int(choice.pattern[len(microbatches)])
        pattern = shape.patterns[which]
        slots = np.array([*microbatches, sizes.num_microbatches], dtype=np.int64)
        problem = _problem(shape, pattern, slots, table)
        problems.append(problem)
        end = np.zeros(len(pattern.ops), dtype=np.int64)
        time_pattern(timed_replicas(shape.sample, sizes, choice), which, slots, end)
        start = np.empty(problem.num_ops, dtype=np.int64)
        start[pattern.ops] = end - problem.duration[pattern.ops]
        starts.append(start)
        owners = np.empty(len(microbatches), dtype=np.int64)
        owners[pattern.microbatches] = slots[:-1]
        numbers.append(owners.tolist())
    joint = join(problems, numbers, shape.instance.num_devices)
    return Schedule(joint, np.concatenate(starts))


def _problem(
    shape: ReplicaShape, pattern: ReplicaPattern, slots: IntArray, table: IntArray
) -> Problem:
    sample = pattern.schedule.problem
    owner, position = np.empty_like(pattern.ops), np.empty_like(pattern.ops)
    # The last of the slots is that of FREE, -1.
    owner[pattern.ops], position[pattern.ops] = slots[pattern.slot], pattern.position
    pools = zip(sample.pools, shape.amounts, strict=True)
    return replace(
        sample,
        duration=table[owner, position],
        pools=tuple(amounts.given_to(pool, owner, position) for pool, amounts in pools),
        families=(),
    )


def action_orders(
    shape: ReplicaShape, choices: Sequence[Choice], members: Sequence[Sequence[int]]
) -> list[list[list[str]]]:
    """Return the action strings of each device of each replica: stage, kind, micro-batch (``0F3``).

    Choices and members are those of `schedule_of`.
    """
    orders = []
    for choice, microbatches in zip(choices, members, strict=True):
        templates = shape.templates[int(choice.pattern[len(microbatches)])]
        orders.append(
            [
                [text + str(microbatches[slot]) for text, slot in row]
                for row in templates
            ]
        )
    return orders

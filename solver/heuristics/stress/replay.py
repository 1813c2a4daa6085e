"""Makespans of fixed orders under random durations."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ppsolve.models.core.dag import Edges, chain_edges
from ppsolve.models.core.problem import FREE, IntArray, Problem
from ppsolve.models.core.result import SHOWN_TRANSFER, TRANSFER_KINDS
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.studies.stress import StressEntry, StressReport
from ppsolve.solver.structure.dag import Dag
from ppsolve.solver.structure.tables import joined, rows_by

"""Limits of random durations."""

MOST_JITTER = 10.0
"""Largest coefficient of variation: beyond it a few draws out of thousands decide every mean."""


FloatArray = NDArray[np.float64]

ALL_KINDS = "*"
"""Key of the jitter of every kind that has none of its own."""

BLOCK_NUMBERS = 2**22
"""Durations that are drawn at once, 32 MB. With 2**20 or 2**24 a pipeline of 16 x 48 takes as
long to within 5 %."""


@dataclass(frozen=True)
class Jitter:
    """Random factors of durations.

    Every op takes its planned duration times a factor of its own: log-normal of mean 1, so that
    none is negative and plans are right on average; an op of a slow device also takes the device's
    factor.

    `by_kind`: coefficient of variation (standard deviation over mean) by kind of op;
        `ALL_KINDS` stands for every other kind.
    `slow`: factor on the durations of all compute ops of a device.
    """

    by_kind: Mapping[str, float]
    slow: Mapping[int, float] = field(default_factory=dict)

    def check(self, problem: Problem) -> None:
        """Refuse jitter that does not fit a problem.

        An `InputError` says that a variation is negative, not finite or too large, that a factor is
        not positive, or that a kind or a device does not exist.
        """
        kinds = [*dict.fromkeys(_shown(kind) for kind in problem.kinds)]
        for kind, variation in self.by_kind.items():
            if kind not in (*kinds, ALL_KINDS):
                listed = ", ".join(kinds)
                raise InputError(
                    f'no op is of kind "{kind}", expected {listed}',
                    field="--jitter",
                    code=ErrorCode.UNKNOWN_NAME,
                )
            if not 0 <= variation <= MOST_JITTER:
                raise InputError(
                    f"expected a coefficient of variation from 0 to {MOST_JITTER:g}, "
                    f"got {variation:g}",
                    field="--jitter",
                    code=ErrorCode.RANGE,
                )
        devices = set(problem.device[problem.is_compute].tolist()) - {FREE}
        for device, factor in self.slow.items():
            if device not in devices:
                raise InputError(
                    f"expected a device from 0 to {max(devices, default=0)}, got {device}",
                    field="--slow",
                    code=ErrorCode.RANGE,
                )
            if not (math.isfinite(factor) and factor > 0):
                raise InputError(
                    f"expected a factor above 0, got {factor:g}",
                    field="--slow",
                    code=ErrorCode.RANGE,
                )

    def spread(self, problem: Problem) -> FloatArray:
        """Return the standard deviation of the logarithm of each op's factor, float64[n]."""
        general = self.by_kind.get(ALL_KINDS, 0.0)
        of_kind = [self.by_kind.get(_shown(kind), general) for kind in problem.kinds]
        variation = np.array([*of_kind, general])[problem.kind]
        return np.sqrt(np.log1p(variation**2))

    def expected(self, problem: Problem) -> FloatArray:
        """Return the mean duration of each op in ticks, float64[n]."""
        factor = np.ones(problem.num_ops)
        for device, slower in self.slow.items():
            factor[(problem.device == device) & problem.is_compute] = slower
        return problem.duration * factor


def _shown(kind: str) -> str:
    return SHOWN_TRANSFER if kind in TRANSFER_KINDS else kind


def drawn(
    problem: Problem, jitter: Jitter, runs: int, seed: int
) -> Iterator[FloatArray]:
    """Draw the durations of all runs, block by block: float64[n, b] in ticks of the next b runs."""
    spread, expected = jitter.spread(problem), jitter.expected(problem)
    middle = np.log(np.maximum(expected, 1e-300)) - spread**2 / 2
    random = np.random.default_rng(seed)
    block = max(1, min(runs, BLOCK_NUMBERS // max(1, problem.num_ops)))
    for first in range(0, runs, block):
        shape = (min(block, runs - first), problem.num_ops)
        factors = random.standard_normal(shape).T * spread[:, None]
        durations = np.where(
            expected[:, None] > 0, np.exp(factors + middle[:, None]), 0.0
        )
        yield np.ascontiguousarray(durations)


class FixedOrders:
    """The orders of a schedule's resources, replayed with any durations.

    An op starts once the op before it on each of its resources, all its predecessors and all its
    waits have ended, lags included. That is how a runtime executes a list of ops.

    `problem`: n ops; none of them pinned.
    `orders`: sequence of int64[...], ops of each resource in their order.
    `waits`: more precedences than those of the problem.
    Raises `InputError`: as `refuse_unfit` does; `CycleError`: the orders and the
        precedences contradict each other.
    """

    def __init__(
        self, problem: Problem, orders: list[IntArray], waits: Edges | None = None
    ) -> None:
        refuse_unfit(problem)
        self.problem, self.orders, self.waits = problem, orders, waits
        edges = [chain_edges(orders), *([] if waits is None else [waits])]
        self._order = Dag.of(problem, *edges).order
        before, after, lag = joined(problem, *edges)
        pointer, rows = rows_by(after, problem.num_ops)
        self._sources = [
            (before[rows[a:b]], lag[rows[a:b]].astype(np.float64)[:, None])
            for a, b in pairwise(pointer.tolist())
        ]
        self._release = problem.release.astype(np.float64)

    @classmethod
    def of(cls, schedule: Schedule) -> FixedOrders:
        """Return the orders in which a schedule starts the ops of its resources."""
        return cls(schedule.problem, schedule.resource_orders(), schedule.waits)

    def makespans(self, durations: FloatArray) -> FloatArray:
        """Return the makespans of b runs, float64[b] in ticks, for durations float64[n, b]."""
        end = self.ends(durations)
        last: FloatArray = end.max(axis=0, initial=0.0)
        if self.problem.is_anchored or not len(end):
            return last
        first: FloatArray = (end - durations).min(axis=0)
        return last - first

    def ends(self, durations: FloatArray) -> FloatArray:
        """Return the end of each op in b runs, float64[n, b] in ticks, as `makespans` takes it."""
        end = np.empty_like(durations)
        for op in self._order.tolist():
            before, lag = self._sources[op]
            row = end[op]
            if len(before) > 1:
                np.max(end[before] + lag, axis=0, out=row)
            elif len(before):
                np.add(end[before[0]], lag[0, 0], out=row)
            else:
                row[:] = 0.0
            np.maximum(row, self._release[op], out=row)
            row += durations[op]
        return end

    def last_before(self, op: int, end: FloatArray) -> int | None:
        """Return the op that lets another one start last in a run; None if it waits for nobody."""
        before, lag = self._sources[op]
        if not len(before):
            return None
        return int(before[np.argmax(end[before] + lag[:, 0])])


def refuse_unfit(problem: Problem) -> None:
    """Refuse a problem whose schedules are more than the orders of their resources.

    An `InputError` says that ops are pinned to moments or windows, or that no order of a resource
    says which op takes a shared memory first.
    """
    if np.any(problem.pinned != FREE) or problem.windows:
        raise InputError(
            "ops are pinned to moments, which jitter moves",
            source=problem.name,
            code=ErrorCode.UNSUPPORTED,
        )
    for pool in problem.pools:
        if not _decided(problem, np.concatenate([pool.acquire_op, pool.release_op])):
            raise InputError(
                f"pool {pool.name} is shared by ops whose order no resource fixes; which of them "
                "takes it first is not known",
                source=problem.name,
                code=ErrorCode.UNSUPPORTED,
            )


def _decided(problem: Problem, ops: IntArray) -> bool:
    held = (set(problem.resources_of(op).tolist()) for op in ops.tolist())
    return not len(ops) or bool(set.intersection(*held))


def stressed(
    contenders: Mapping[str, FixedOrders], jitter: Jitter, runs: int, seed: int
) -> StressReport:
    """Measure the distribution of makespans of several schedules of one problem.

    The others are compared with the first one; all have the same durations in each run. There is an
    entry for each schedule, in their order, with times in the instance's unit. An `InputError` says
    that `runs` is out of range, or that the jitter does not fit the problem.
    """
    limit = 10_000_000
    if not 1 <= runs <= limit:
        raise InputError(
            f"expected 1 to {limit} runs, got {runs}",
            field="--runs",
            code=ErrorCode.RANGE,
        )
    problem = next(iter(contenders.values())).problem
    jitter.check(problem)
    samples: dict[str, list[FloatArray]] = {name: [] for name in contenders}
    for durations in drawn(problem, jitter, runs, seed):
        for name, orders in contenders.items():
            samples[name].append(orders.makespans(durations))
    makespans = {name: np.concatenate(blocks) for name, blocks in samples.items()}
    unit = float(problem.scale.tick)
    best = next(iter(makespans.values()))
    entries = [
        _entry(name, contenders[name], spans, best, unit)
        for name, spans in makespans.items()
    ]
    return StressReport(
        instance=problem.name,
        time_unit=problem.scale.unit,
        runs=runs,
        seed=seed,
        jitter=dict(jitter.by_kind),
        slow=dict(jitter.slow),
        entries=tuple(entries),
    )


def _entry(
    name: str, orders: FixedOrders, samples: FloatArray, best: FloatArray, unit: float
) -> StressEntry:
    planned = orders.makespans(orders.problem.duration[:, None].astype(np.float64))
    low, middle, high, highest = (
        np.percentile(samples, (5, 50, 95, 99)) * unit
    ).tolist()
    return StressEntry(
        name=name,
        planned=orders.problem.scale.time(round(planned[0])),
        mean=float(samples.mean()) * unit,
        deviation=float(samples.std()) * unit,
        p5=low,
        p50=middle,
        p95=high,
        p99=highest,
        worst=float(samples.max()) * unit,
        stays_ahead=None if samples is best else float(np.mean(best <= samples)),
    )

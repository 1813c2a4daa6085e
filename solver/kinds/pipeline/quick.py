"""Quick answers on pipelines: published schedules and bounds in milliseconds, or thousands at once.

Orders that follow from the shape of a pipeline are resolved once for each shape. Pipelines of one
shape are columns of the same arrays: an order is timed for all of them level by level.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ppsolve.models.core.dag import CycleError, Edges, chain_edges
from ppsolve.models.core.problem import IntArray, Objective, Problem
from ppsolve.models.documents.base import describe
from ppsolve.models.documents.errors import ErrorCode, InputError, NotApplicableError
from ppsolve.models.kinds.pipeline.entries import rows_per_microbatch
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.heuristics.heuristic import Request
from ppsolve.solver.kernels.compilation import expect
from ppsolve.solver.kernels.records import NEVER
from ppsolve.solver.kinds.pipeline.actions import (
    Chains,
    gradient_after_weight,
    resolved,
)
from ppsolve.solver.kinds.pipeline.published import PUBLISHED
from ppsolve.solver.kinds.pipeline.quick_figures import Figures, figures_of
from ppsolve.solver.kinds.pipeline.stage_arrays import StageArrays, lag_rows, skeleton
from ppsolve.solver.structure.dag import Dag
from ppsolve.solver.structure.tables import rows_by

Array = NDArray[Any]

IN_FLIGHT = "in-flight"
"""Name of the list rule: backwards first, as many forwards as the memory holds."""

MOST_CELLS = 4_000_000
"""Most ends of ops that are held at once."""


@dataclass(frozen=True)
class QuickAnswer:
    """The best known schedule of a pipeline and a bound, in its unit of time."""

    value: float | None  # None where no schedule fits the memory
    bound: float
    by: str | None  # the heuristic behind the value
    bound_by: str
    # Makespan of each published schedule that the pipeline allows; None beyond the memory.
    published: dict[str, float | None] = field(repr=False)
    # Most that each device holds, static memory included; None without a schedule or a memory.
    memory: tuple[float, ...] | None = None

    @property
    def gap(self) -> float | None:
        """Largest share by which a better schedule could be shorter."""
        return None if self.value is None else (self.value - self.bound) / self.value


@dataclass(frozen=True, eq=False)
class QuickAnswers:
    """Answers for N pipelines of one shape, the same that each would get alone."""

    value: NDArray[np.float64]  # float64[N], nan where no schedule fits the memory
    bound: NDArray[np.float64]  # float64[N]
    by: NDArray[np.object_]  # object[N], the heuristic behind each value, or None
    bound_by: NDArray[np.object_]  # object[N]
    # float64[N, D], most that each device holds; nan where no schedule fits, or without a memory
    memory: NDArray[np.float64]


def quick(instance: PipelineInstance, **arrays: Any) -> QuickAnswer | QuickAnswers:
    """Return the best of the published schedules and of a list rule, and the best quick bound.

    Times without a common tick are rounded to ten digits of the longest one, up for the value and
    down for the bound, so that a schedule of that value exists and the bound holds for all.

    Parameters
    ----------
    instance : PipelineInstance
        A pipeline of alike micro-batches with transfers of mode ``delay`` and the objective
        makespan, without collectives, all-reduces, optimizer ops and whatever else is open.
    **arrays : array_like
        Figures of N pipelines of this shape in place of its own: `forward`, `backward`,
        `backward_input`, `backward_weight`, `activation` and `static` as [N] or [N, S],
        `latency` as [N], `capacity` as [N] or [N, D].

    Returns
    -------
    QuickAnswer or QuickAnswers
        The latter where arrays are given.

    Raises
    ------
    InputError
        The instance is no pipeline or has fields that this function does not support, or an array
        has another shape or a wrong number; the error names its row.
    """
    _refuse_more(instance)
    shape = _shape(
        instance.stage_to_device,
        instance.num_microbatches,
        is_split=instance.times.is_split,
    )
    figures = figures_of(instance, arrays)
    answers = [_answers(shape, chunk) for chunk in _parts(figures, shape)]
    table, value, bound, by, bound_by, held = (
        np.concatenate(column) for column in zip(*answers, strict=True)
    )
    is_valued = value < NEVER
    values, bounds = figures.in_unit(value), figures.in_unit(bound)
    is_held = is_valued & (instance.memory is not None)
    memory = np.where(is_held[:, None], figures.memory.in_unit(held), np.nan)
    if not arrays:
        times = [
            figures.in_unit(row)[0] if row[0] < NEVER else None
            for row in [value, *table.T]
        ]
        published = dict(zip(shape.names, times[1:], strict=True))
        peaks = tuple(memory[0].tolist()) if is_held[0] else None
        return QuickAnswer(times[0], bounds[0], by[0], bound_by[0], published, peaks)
    return QuickAnswers(
        np.where(is_valued, np.array(values, dtype=np.float64), np.nan),
        np.array(bounds, dtype=np.float64),
        by,
        bound_by,
        memory,
    )


def _refuse_more(instance: Any) -> None:
    if getattr(instance, "kind", None) != "pipeline":
        text = "expected a pipeline, as load_instance and parse_instance return, got "
        raise InputError(text + describe(instance), code=ErrorCode.TYPE)
    wrong = {
        "placement": instance.placement == "bidirectional",
        "p2p.mode": instance.p2p.mode != "delay",
        "objective": instance.objective is not Objective.MAKESPAN,
        "fillers": bool(instance.fillers),
        "steps": instance.steps > 1,
        "lengths": any(
            map(rows_per_microbatch, instance.in_numbers().amounts().values())
        ),
    }
    fields = (
        "collectives",
        "allreduce",
        "optimizer",
        "replicas",
        "layers",
        "overlap",
        "slices",
        "speed",
    )
    memory = ("recompute", "offload", "forward_peak", "left_to_weight")
    wrong |= {
        f"memory.{n}": getattr(instance.memory, n, None) is not None for n in memory
    }
    wrong |= {
        name: wrong.get(name) or getattr(instance, name) is not None for name in fields
    }
    for name in (name for name, is_there in wrong.items() if is_there):
        raise InputError(
            "expected a pipeline without it for a quick answer; `optimize` takes all",
            source=instance.name,
            field=name,
            code=ErrorCode.UNSUPPORTED,
        )


def _parts(figures: Figures, shape: _Shape) -> Iterator[Figures]:
    count = len(figures.step)
    width = max(1, MOST_CELLS // max(1, shape.num_ends))
    for first in range(0, max(1, count), width):
        yield figures.columns(slice(first, first + width))


def _answers(shape: _Shape, figures: Figures) -> tuple[Array, ...]:
    """Return the makespan of each column under each order, then value and bound, in ticks.

    Then come the names behind both, and what is held.

    The last is int64[N, D], the most that activations of the schedule take of each device. Where
    nothing fits, the value is `NEVER` and its name None.
    """
    columns = np.arange(len(figures.step))
    peaks = shape.peaks(figures.slow)
    fitting = (peaks <= figures.slow.room).all(axis=1)
    values = np.where(fitting, shape.makespans(figures.slow), NEVER)
    best = values.argmin(axis=0)
    value, held = values[best, columns], peaks[best, :, columns]
    by = np.array(shape.names, dtype=object)[best]
    bounds = figures.fast.bounds()
    table = np.stack(list(bounds.values()))
    which = table.argmax(axis=0)
    bound = table[which, columns]
    bound_by = np.array(list(bounds), dtype=object)[which]
    open_columns = np.flatnonzero(value > bound).tolist()
    expect(shape.problem.num_ops * len(open_columns))
    for column in open_columns:
        start = figures.slow.starts(column)
        if start is None:
            continue
        makespan = shape.makespan(figures.slow, column, start)
        if makespan < value[column]:
            value[column], by[column] = makespan, IN_FLIGHT
            held[column] = shape.peaks_of(figures.slow, column, start)
    by[value == NEVER] = None
    return values.T, value, bound, by, bound_by, held


class _Wave(NamedTuple):
    ops: IntArray  # int64[l]
    before: (
        IntArray  # int64[l, k]: what each waits for; the last end, always 0, fills up
    )
    lag: IntArray  # int64[l, k]: rows of lags


@lru_cache(maxsize=32)
def _shape(devices: tuple[int, ...], microbatches: int, *, is_split: bool) -> _Shape:
    return _Shape(*skeleton(devices, microbatches, is_split=is_split))


class _Shape:
    """Orders of all pipelines of one shape, that of `instance`: H heuristics, n ops each."""

    def __init__(self, instance: PipelineInstance, problem: Problem) -> None:
        self.problem = problem
        self.devices = np.array(instance.stage_to_device)
        self.row = problem.stage + problem.kind * len(self.devices)
        request = Request(instance, problem)
        self.names: list[str] = []
        edges: list[Edges] = []
        depths: list[IntArray] = []
        self._uses: list[list[Array]] = []
        for heuristic in PUBLISHED:
            if heuristic.orders is None or heuristic.obstacle(instance) is not None:
                continue
            # Orders that this number of micro-batches has not, or that wait for each other, are
            # left out. Looped BFS has neither fault, whatever the shape.
            with suppress(NotApplicableError, CycleError):
                chains = resolved(problem, heuristic.orders(request))
                order_edges = self._edges(chains)
                depths.append(Dag(problem.num_ops, *order_edges).level)
                edges.append(order_edges)
                self.names.append(heuristic.name)
                self._uses.append([self._use(ops) for ops in chains.ops])
        self.num_ends = len(depths) * problem.num_ops + 1
        self._levels = _levels(depths, edges)

    def _edges(self, chains: Chains) -> Edges:
        # What waits on the same device waits for the op before it.
        device = self.problem.device
        fused = gradient_after_weight(self.problem, chains.inputs, chains.weights)
        before = np.concatenate([self.problem.before, fused[0]])
        after = np.concatenate([self.problem.after, fused[1]])
        apart = device[before] != device[after]
        before, after = before[apart], after[apart]
        lag = lag_rows(self.problem, before, after)
        columns = zip((before, after, lag), chain_edges(chains.ops), strict=True)
        before, after, lag = map(np.concatenate, columns)
        return before, after, lag

    def _use(self, ops: IntArray) -> IntArray:
        # Activations of each stage while each op of a device runs: those whose backward has not
        # ended, then those that wait for their weight gradient. Few rows are distinct.
        kinds, stages = len(self.problem.kinds), len(self.devices)
        table = np.zeros((len(ops) + 1, kinds * stages), dtype=np.int64)
        table[np.arange(1, len(ops) + 1), self.row[ops]] = 1
        counts = np.cumsum(table, axis=0).reshape(-1, kinds, stages)
        forwards, backwards = counts[1:, 0], counts[:-1, 1]
        weights = counts[:-1, 2] if kinds == 3 else backwards
        return np.unique(np.hstack([forwards - backwards, backwards - weights]), axis=0)

    def peaks(self, stages: StageArrays) -> Array:
        """Most that activations of each order take of each device, int64[H, D, N]."""
        amounts = np.vstack([stages.held, stages.late])
        return np.stack(
            [
                np.stack([(use @ amounts).max(axis=0) for use in uses])
                for uses in self._uses
            ]
        )

    def makespans(self, stages: StageArrays) -> Array:
        """Return the makespan of each order and pipeline, [H, N]."""
        duration, lag = np.vstack([*stages.duration]), stages.lag
        end = np.zeros((self.num_ends, duration.shape[1]), dtype=duration.dtype)
        count = self.problem.num_ops
        for level in self._levels:
            start = (end[level.before] + lag[level.lag]).max(axis=1)
            end[level.ops] = start + duration[self.row[level.ops % count]]
        return end[:-1].reshape(len(self.names), count, -1).max(axis=1)

    def makespan(self, stages: StageArrays, column: int, start: IntArray) -> int:
        """Return the makespan of one pipeline by the starts of its ops."""
        return int(self._ends(stages, column, start).max())

    def _ends(self, stages: StageArrays, column: int, start: IntArray) -> Array:
        return start + np.vstack([*stages.duration])[self.row, column]

    def peaks_of(self, stages: StageArrays, column: int, start: IntArray) -> IntArray:
        """Most that activations take of each device, int64[D], by the starts of ops."""
        problem = self.problem
        held = stages.held[problem.stage, column]
        late = stages.late[problem.stage, column]
        last = len(problem.kinds) - 1
        freed = np.where(problem.kind == 1, held - late, 0)
        freed += np.where(problem.kind == last, late, 0)
        taken = np.where(problem.kind == 0, held, 0)
        time = np.concatenate([start, self._ends(stages, column, start)])
        change = np.concatenate([taken, -freed])
        device = np.concatenate([problem.device, problem.device])
        # What is given back at a moment may be taken at it.
        order = np.lexsort([change, time])
        return np.array(
            [
                np.cumsum(change[order][device[order] == number]).max(initial=0)
                for number in range(len(stages.room))
            ]
        )


def _levels(depths: Sequence[IntArray], edges: Sequence[Edges]) -> list[_Wave]:
    # All heuristics side by side: op k of heuristic h is h * n + k.
    depth, shift = np.concatenate(depths), np.arange(len(depths)) * len(depths[0])
    shift = np.repeat(shift, [len(before) for before, *_ in edges])
    before, after, lag = (np.concatenate(column) for column in zip(*edges, strict=True))
    first, order = rows_by(after + shift, len(depth))
    count = np.diff(first)
    table = np.full((2, len(depth), count.max(initial=1)), len(depth), dtype=np.int64)
    table[1] = 0
    is_edge = np.arange(table.shape[2]) < count[:, None]
    table[:, is_edge] = (before + shift)[order], lag[order]
    ranked = np.argsort(depth, kind="stable")
    cuts = np.searchsorted(depth[ranked], np.arange(1, depth.max() + 1))
    return [_Wave(ops, *table[:, ops]) for ops in np.split(ranked, cuts)]

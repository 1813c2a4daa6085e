"""Quick answers on pipelines: published schedules and bounds in milliseconds, or thousands at once.

Orders that follow from the shape of a pipeline are resolved once for each shape. Pipelines of one
shape are columns of the same arrays: an order is timed for all of them level by level.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ppsolve.models.core.dag import CycleError, Edges, chain_edges
from ppsolve.models.core.problem import IntArray, Objective, Problem
from ppsolve.models.documents.base import describe, did_you_mean
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.pipeline.entries import entry_at, rows_per_microbatch
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.lowering import lower_pipeline, scale_of
from ppsolve.solver.heuristics.heuristic import Request
from ppsolve.solver.kernels.compilation import expect
from ppsolve.solver.kernels.in_flight import starts_in_flight
from ppsolve.solver.kinds.pipeline.actions import Chains, gradient_after_weight, resolved
from ppsolve.solver.kinds.pipeline.published import PUBLISHED
from ppsolve.solver.structure.dag import Dag
from ppsolve.solver.structure.tables import rows_by

Array = NDArray[Any]

IN_FLIGHT = "in-flight"
"""Name of the list rule: backwards first, as many forwards as the memory holds."""

GRAINS = 2**40
"""Parts into which the list rule cuts the longest op and the largest capacity, rounded up."""

MOST_CELLS = 4_000_000
"""Most ends of ops that are held at once."""


@dataclass(frozen=True)
class QuickAnswer:
    """The best known schedule of a pipeline and a bound, in its unit of time."""

    value: float | None  # None where no schedule fits the memory
    bound: float
    by: str | None  # the heuristic behind the value
    bound_by: str

    @property
    def gap(self) -> float | None:
        """Largest share by which a better schedule could be shorter."""
        return None if self.value is None else (self.value - self.bound) / self.value


@dataclass(frozen=True, eq=False)
class QuickAnswers:
    """Answers on N pipelines of one shape, times in 13 digits."""

    value: NDArray[np.float64]  # float64[N], nan where no schedule fits the memory
    bound: NDArray[np.float64]  # float64[N]
    by: NDArray[np.object_]  # object[N], the heuristic behind each value, or None
    bound_by: NDArray[np.object_]  # object[N]


def quick(instance: PipelineInstance, **arrays: Any) -> QuickAnswer | QuickAnswers:
    """Return the best of the published schedules and of a list rule, and the best quick bound.

    Parameters
    ----------
    instance : PipelineInstance
        A pipeline of alike micro-batches with transfers of mode ``delay`` and the objective
        makespan, without collectives, all-reduces, optimizer ops and whatever else is open.
    **arrays : array_like
        Figures of N pipelines of this shape in place of its own: `forward`, `backward`,
        `backward_input`, `backward_weight` and `activation` as [N] or [N, S], `latency` as [N],
        `capacity` as [N] or [N, D].

    Returns
    -------
    QuickAnswer or QuickAnswers
        The latter where arrays are given.

    Raises
    ------
    InputError
        It is no pipeline or has more than this function knows, or an array is of another shape.
    """
    _refuse_more(instance)
    shape = _shape(
        instance.stage_to_device, instance.num_microbatches, is_split=instance.times.is_split
    )
    if arrays:
        figures = _given(instance, arrays)
        found = [_answers(shape, part) for part in _parts(figures, shape)]
        value, bound, *names = (np.concatenate(column) for column in zip(*found, strict=True))
        return QuickAnswers(_plain(value), _plain(bound), *names)
    scale = scale_of(instance, exact=False)
    figures = _own(instance, scale.ticks)
    value, bound, by, bound_by = (column[0] for column in _answers(shape, figures))
    time = None if np.isnan(value) else scale.time(int(value))
    return QuickAnswer(time, scale.time(math.ceil(bound)), by, bound_by)


def _plain(times: Array) -> Array:
    # Sums of doubles are off by a few parts in 1e14.
    return np.where(times == np.rint(times), times, [float(f"{time:.13g}") for time in times])


def _grain(amounts: Array) -> float:
    # Powers of ten, by which short decimals become whole.
    return float(10.0 ** math.floor(math.log10(GRAINS / amounts.max(initial=1))))


def _whole(towards: Callable[[Array], Array], amounts: Array) -> IntArray:
    # A product of doubles is off by less than a hundredth.
    return towards(np.round(amounts, 2)).astype(np.int64)


def _refuse_more(instance: Any) -> None:
    if getattr(instance, "kind", None) != "pipeline":
        text = "expected a pipeline, as load_instance and parse_instance return, got "
        raise InputError(text + describe(instance))
    wrong = {
        "placement": instance.placement == "bidirectional",
        "p2p.mode": instance.p2p.mode != "delay",
        "objective": instance.objective is not Objective.MAKESPAN,
        "fillers": bool(instance.fillers),
        "steps": instance.steps > 1,
        "lengths": any(map(rows_per_microbatch, instance.in_numbers().amounts().values())),
    }
    more = ("collectives", "allreduce", "optimizer", "replicas", "layers", "overlap", "slices")
    memory = ("recompute", "offload", "forward_peak", "left_to_weight")
    wrong |= {f"memory.{n}": getattr(instance.memory, n, None) is not None for n in memory}
    wrong |= {field: wrong.get(field) or getattr(instance, field) is not None for field in more}
    for field in (name for name, is_there in wrong.items() if is_there):
        raise InputError(
            "expected a pipeline without it for a quick answer; `optimize` takes all",
            source=instance.name,
            field=field,
        )


class _Figures(NamedTuple):
    # Of N pipelines of S stages on D devices; times in ticks where there is one, else in its unit.

    duration: Array  # [rows * S, N]
    lag: Array  # [1 + 2 * S, N]: none, from each stage to the next, from each to the one before
    held: Array  # float64[S, N]
    late: Array  # float64[S, 1]: share of the activation that the weight gradient gives back
    room: Array  # float64[D, N]

    def columns(self, part: slice) -> _Figures:
        cut = (self.duration[:, part], self.lag[:, part], self.held[:, part])
        return _Figures(*cut, self.late, self.room[:, part])


def _own(instance: PipelineInstance, ticks: Any) -> _Figures:
    stages, devices = range(instance.num_stages), instance.stage_to_device
    times = [[ticks(entry_at(e, s)) for s in stages] for e in instance.times.by_kind().values()]
    hop = np.zeros((2, len(devices)), dtype=np.array(times).dtype)
    for stage, (a, b) in enumerate(pairwise(devices)):
        if a != b:
            hop[0, stage] = ticks(entry_at(instance.p2p.latency, a, b))
            hop[1, stage + 1] = ticks(entry_at(instance.p2p.latency, b, a))
    memory = instance.memory
    held, room = np.zeros(len(devices)), np.full(instance.num_devices, np.inf)
    late = np.zeros((len(devices), 1))
    if memory is not None:
        held = np.array([float(entry_at(memory.activation, stage)) for stage in stages])
        room = np.array([float(entry_at(memory.capacity, d)) for d in range(instance.num_devices)])
        static = [float(entry_at(memory.static, stage)) for stage in stages]
        room = room * (1 + 1e-9) - np.bincount(devices, static, instance.num_devices)
        if instance.times.is_split:
            shares = [entry_at(memory.released_by_backward_weight, stage) for stage in stages]
            late = np.array(shares, dtype=np.float64)[:, None]
    duration = np.array(times).reshape(-1, 1)
    return _Figures(
        duration, np.vstack([[[0]], hop.reshape(-1, 1)]), held[:, None], late, room[:, None]
    )


def _given(instance: PipelineInstance, arrays: dict[str, Any]) -> _Figures:
    own = _own(instance, float)
    stages, devices = instance.num_stages, instance.num_devices
    tables = {name: np.asarray(array, dtype=np.float64) for name, array in arrays.items()}
    count = next(len(np.atleast_1d(table)) for table in tables.values())
    names = [field for field, entry in instance.times if entry is not None]
    known = [*names, *(["activation", "capacity"] if instance.memory else []), "latency"]
    for name, table in tables.items():
        if name not in known:
            hint = did_you_mean(name, known)
            raise InputError(f'expected an array of this pipeline, got "{name}"{hint}')
        wide = {"latency": 0, "capacity": devices}.get(name, stages)
        if table.shape not in {(count,), (count, wide)} or not (table >= 0).all():
            table_of = f", or {count} x {wide}" if wide else ""
            raise InputError(
                f"expected {count} numbers >= 0{table_of}, got {table.shape}", field=name
            )

    def rows(name: str, default: Array) -> Array:
        table = np.atleast_2d(tables[name].T) if name in tables else default
        return np.broadcast_to(table, (len(default), count))

    parts = own.duration.reshape(-1, stages, 1)
    duration = np.concatenate([rows(n, part) for n, part in zip(names, parts, strict=True)])
    lag = np.broadcast_to(own.lag, (len(own.lag), count))
    if "latency" in tables:
        crosses = np.diff(instance.stage_to_device) != 0
        ahead = np.concatenate([[False], crosses, [False], [False], crosses])
        lag = np.where(ahead[:, None], tables["latency"], 0.0)
    room = np.broadcast_to(own.room, (devices, count))
    if "capacity" in tables:
        assert instance.memory is not None
        capacity = np.array([float(entry_at(instance.memory.capacity, d)) for d in range(devices)])
        more = rows("capacity", capacity[:, None]) - capacity[:, None]
        room = room + more * (1 + 1e-9)
    return _Figures(duration, lag, rows("activation", own.held), own.late, room)


def _parts(figures: _Figures, shape: _Shape) -> Iterator[_Figures]:
    count = figures.duration.shape[1]
    width = max(1, MOST_CELLS // max(1, shape.num_ends))
    for first in range(0, count, width):
        yield figures.columns(slice(first, first + width))


def _answers(shape: _Shape, figures: _Figures) -> tuple[Array, Array, Array, Array]:
    """Return value, bound, and the names behind both, for each column."""
    count = figures.duration.shape[1]
    values = np.where(shape.fits(figures), shape.makespans(figures), np.inf)
    best = values.argmin(axis=0)
    value = values[best, np.arange(count)].astype(np.float64)
    by = np.array(shape.names, dtype=object)[best]
    bounds = dict(_bounds(shape, figures))
    table = np.stack(list(bounds.values()))
    which = table.argmax(axis=0)
    bound = table[which, np.arange(count)].astype(np.float64)
    bound_by = np.array(list(bounds), dtype=object)[which]
    open_columns = np.flatnonzero(value > bound * (1 + 1e-12)).tolist()
    expect(shape.problem.num_ops * len(open_columns))
    for column in open_columns:
        found = shape.in_flight(figures, column)
        if found < value[column] * (1 - 1e-9):
            value[column], by[column] = found, IN_FLIGHT
    by[np.isinf(value)] = None
    value[np.isinf(value)] = np.nan
    return value, np.fmin(bound, value), by, bound_by


class _Wave(NamedTuple):
    ops: IntArray  # int64[l]
    before: IntArray  # int64[l, k]: what each waits for; the last end, always 0, fills up
    lag: IntArray  # int64[l, k]: rows of lags


@lru_cache(maxsize=32)
def _shape(devices: tuple[int, ...], microbatches: int, *, is_split: bool) -> _Shape:
    backwards = ("backward_input", "backward_weight") if is_split else ("backward",)
    document = {
        "num_devices": max(devices) + 1,
        "num_microbatches": microbatches,
        "placement": {"stage_to_device": devices},
        "times": dict.fromkeys(("forward", *backwards), 1),
    }
    skeleton = PipelineInstance.parse(document)
    return _Shape(skeleton, lower_pipeline(skeleton))


class _Shape:
    """Orders of all pipelines of one shape: H heuristics, n ops each.

    Parameters
    ----------
    instance : PipelineInstance
        Any pipeline of the shape.
    problem : Problem
        Its problem.
    """

    def __init__(self, instance: PipelineInstance, problem: Problem) -> None:
        self.problem, self.microbatches = problem, instance.num_microbatches
        self.devices = np.array(instance.stage_to_device)
        self.row = problem.stage + problem.kind * len(self.devices)
        request = Request(instance, problem)
        self.names: list[str] = []
        edges: list[Edges] = []
        depths: list[IntArray] = []
        self._uses: list[list[Array]] = []
        for each in PUBLISHED:
            if each.orders is None or each.obstacle(instance) is not None:
                continue
            chains = resolved(problem, each.orders(request))
            found = self._edges(chains)
            with suppress(CycleError):
                depths.append(Dag(problem.num_ops, *found).level)
                edges.append(found)
                self.names.append(each.name)
                self._uses.append([self._use(ops) for ops in chains.ops])
        self.num_ends = len(depths) * problem.num_ops + 1
        self._levels = _levels(depths, edges)

    def _edges(self, chains: Chains) -> Edges:
        # What waits on the same device waits for the op before it.
        stage, device = self.problem.stage, self.problem.device
        fused = gradient_after_weight(self.problem, chains.inputs, chains.weights)
        before = np.concatenate([self.problem.before, fused[0]])
        after = np.concatenate([self.problem.after, fused[1]])
        apart = device[before] != device[after]
        before, after = before[apart], after[apart]
        lag = 1 + stage[before] + len(self.devices) * (stage[after] < stage[before])
        found = zip((before, after, lag), chain_edges(chains.ops), strict=True)
        before, after, lag = map(np.concatenate, found)
        return before, after, lag

    def _use(self, ops: IntArray) -> Array:
        # Activations of each stage in use while each op of a device runs, in three parts: taken,
        # given back by backwards, given back by weight gradients. Few rows are distinct.
        kinds, stages = len(self.problem.kinds), len(self.devices)
        table = np.zeros((len(ops) + 1, kinds * stages), dtype=np.int64)
        table[np.arange(1, len(ops) + 1), self.row[ops]] = 1
        counts = np.cumsum(table, axis=0)
        taken, given = counts[1:, :stages], counts[:-1, stages:]
        if kinds == 2:
            given = np.hstack([given, np.zeros_like(taken)])
        return np.unique(np.hstack([taken, -given]), axis=0)

    def fits(self, figures: _Figures) -> Array:
        """Say which order fits which memory, bool[H, N]."""
        held = figures.held
        amounts = np.vstack([held, held * (1 - figures.late), held * figures.late])
        found = np.zeros((len(self.names), held.shape[1]), dtype=bool)
        for place, uses in enumerate(self._uses):
            peaks = np.stack([(use @ amounts).max(axis=0) for use in uses])
            found[place] = (peaks <= figures.room).all(axis=0)
        return found

    def makespans(self, figures: _Figures) -> Array:
        """Return the makespan of each order and pipeline, [H, N]."""
        duration, lag = figures.duration, figures.lag
        ends = np.zeros((self.num_ends, duration.shape[1]), dtype=duration.dtype)
        count = self.problem.num_ops
        for level in self._levels:
            start = (ends[level.before] + lag[level.lag]).max(axis=1)
            ends[level.ops] = start + duration[self.row[level.ops % count]]
        return ends[:-1].reshape(len(self.names), count, -1).max(axis=1)

    def in_flight(self, figures: _Figures, column: int) -> float:
        """Return the makespan of one pipeline by the list rule; infinite where it finds none."""
        duration, lag = figures.duration[:, column], figures.lag[:, column]
        stages = len(self.devices)
        is_whole = duration.dtype == np.int64
        ticks = 1 if is_whole else _grain(duration)
        rows = _whole(np.ceil, duration * ticks)
        ahead = rows.copy()
        ahead[: 2 * stages] += _whole(np.ceil, lag[1:] * ticks)
        room, held = figures.room[:, column], figures.held[:, column]
        grain = _grain(room[np.isfinite(room)])
        taken = _whole(np.ceil, held * grain)
        freed = np.zeros((len(duration) // stages, stages), dtype=np.int64)
        freed[1] = taken - np.ceil(taken * figures.late[:, 0]).astype(np.int64)
        freed[-1] = taken - freed[1:-1].sum(axis=0)
        most = np.full(stages, self.microbatches)
        free = _whole(np.floor, np.minimum(room * grain, 2.0**60))
        memory = (taken, freed.ravel(), free)
        start = starts_in_flight(self.devices, (rows, ahead), memory, most, self.microbatches)
        return math.inf if start is None else float((start + rows[self.row]).max() / ticks)


def _levels(depths: Sequence[IntArray], edges: Sequence[Edges]) -> list[_Wave]:
    # All heuristics side by side: op k of heuristic h is h * n + k.
    depth, shift = np.concatenate(depths), np.arange(len(depths)) * len(depths[0])
    shift = np.repeat(shift, [len(one[0]) for one in edges])
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


def _bounds(shape: _Shape, figures: _Figures) -> Iterator[tuple[str, Array]]:
    """Yield name and value of each bound, [N]; every device and the way of one micro-batch."""
    devices, count = shape.devices, shape.microbatches
    stages = len(devices)
    duration = figures.duration.reshape(-1, stages, figures.duration.shape[1])
    there, back = figures.lag[1 : 1 + stages], figures.lag[1 + stages :]
    forward, returning = duration[0], duration[1]
    weight = duration[2] if len(duration) == 3 else np.zeros_like(forward)
    head = np.zeros_like(forward)
    head[1:] = np.cumsum(forward + there, axis=0)[:-1]
    home = weight.copy()
    for stage in range(1, stages):
        way = back[stage] + returning[stage - 1] + home[stage - 1]
        home[stage] = np.maximum(home[stage], way)
    tail = np.zeros_like(home) if len(duration) == 3 else home
    yield "critical-path", head[-1] + forward[-1] + returning[-1] + home[-1]
    load, passing = duration.sum(axis=0) * count, (forward + returning) * count
    trip = forward + returning
    trip[:-1] += there[:-1] + back[1:]
    trip = np.cumsum(trip[::-1], axis=0)[::-1]
    held, works, areas, returns = figures.held, [], [], []
    for device in range(len(figures.room)):
        mine = np.flatnonzero(devices == device)
        first, last = head[mine].min(axis=0), tail[mine].min(axis=0)
        inside = load[mine].sum(axis=0) + last
        through = passing[mine].sum(axis=0) + home[mine].min(axis=0)
        works.append(first + np.maximum(inside, through))
        room = figures.room[device]
        if not np.isfinite(room).all():
            continue
        area = held[mine] * (trip[mine] + figures.late[mine] * weight[mine])
        safe = np.where(room > 0, room, np.inf)
        areas.append(first + last + count * area.sum(axis=0) / safe)
        if len(mine) == 1:
            ways = (duration, head, trip, tail)
            returns.append(_first_return(mine[0], count, room, figures, *ways))
    yield "work", np.max(works, axis=0)
    if areas:
        yield "memory-time", np.max(areas, axis=0)
    if returns:
        yield "first-return", np.max(returns, axis=0)


def _first_return(stage: int, count: int, room: Array, figures: _Figures, *ways: Array) -> Array:
    # Until the first backward has given memory back, a device runs as many forwards as it holds.
    duration, head, trip, tail = ways
    held, parts = figures.held[stage], duration[:, stage]
    fit = np.clip(np.floor(room / np.where(held > 0, held, np.inf)), 0, count)
    fit = np.where(held > 0, fit, count)
    # Where the weight gradient gives back all, it has to end too.
    first = parts[1:].sum(axis=0) if figures.late[stage] == 1 else parts[1]
    rest = parts.sum(axis=0) * count - fit * parts[0] - first
    found = head[stage] + trip[stage] + first - parts[1] + rest + tail[stage]
    return np.where(fit < count, found, 0)

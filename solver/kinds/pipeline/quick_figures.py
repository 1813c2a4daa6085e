"""Times and memory of N pipelines of one shape in whole numbers, for quick answers.

One pipeline and columns of arrays are read by the same functions, so that they get the same
answers. Sums of whole numbers are exact: no bound passes a value by the rounding of doubles, and
what fits is decided on the amounts themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ppsolve.models.core.problem import BoolArray, IntArray
from ppsolve.models.core.timescale import MAX_TICKS
from ppsolve.models.documents.base import MAX_NUMBER, describe
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.kinds.pipeline.entries import entry_at
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.kinds.pipeline.stage_arrays import (
    UNLIMITED,
    StageArrays,
)

Array = NDArray[Any]

LEAST_NUMBER = 1e-30
"""Smallest number above 0, as in documents."""

TIME_DIGITS = 10
"""Digits of the longest time to which times without a common tick are rounded, as in documents."""

MAX_PLACES = 22
"""Largest power of ten that is a double."""

MAX_WHOLE = 2.0**53
"""Up to here doubles hold every whole number."""


class Figures(NamedTuple):
    """Figures of N pipelines of one shape."""

    slow: StageArrays  # times rounded up: a schedule of them is one of the true times
    fast: StageArrays  # times rounded down: a bound of them is one of the true times
    step: IntArray  # int64[N]: a tick is step / 10 ** digits of the unit of time
    digits: IntArray  # int64[N]
    memory: _MemoryGrains

    def columns(self, selection: slice) -> Figures:
        """Return the figures of some of the pipelines."""
        slow, fast = self.slow.columns(selection), self.fast.columns(selection)
        tables: list[Any] = [table[..., selection] for table in self.memory]
        memory = _MemoryGrains(*tables)
        return Figures(slow, fast, self.step[selection], self.digits[selection], memory)

    def in_unit(self, ticks: Array) -> list[int | float]:
        """Return the time of each column: an int where whole, else the nearest double."""
        columns = zip(
            ticks.tolist(), self.step.tolist(), self.digits.tolist(), strict=True
        )
        return [_decimal(count * step, digits) for count, step, digits in columns]


class _MemoryGrains(NamedTuple):
    static: (
        IntArray  # int64[D, N], in grains of step / 10 ** digits of the unit of memory
    )
    room: IntArray  # int64[D, N], in grains
    step: IntArray  # int64[N]
    digits: IntArray  # int64[N]
    is_exact: BoolArray  # bool[N]: all amounts are whole

    def in_unit(self, activations: IntArray) -> Array:
        """Return amounts of devices, float64[N, D], by grains of activations, int64[N, D]."""
        scales = zip(self.step.tolist(), self.digits.tolist(), strict=True)
        grains = (activations + self.static.T).tolist()
        held = [
            [_decimal(count * step, digits) for count in row]
            for row, (step, digits) in zip(grains, scales, strict=True)
        ]
        return np.array(held, dtype=np.float64).reshape(activations.shape)


def _decimal(number: int, digits: int) -> int | float:
    # Division of ints is rounded to the nearest double, however long they are.
    numerator, denominator = number * 10 ** max(-digits, 0), 10 ** max(digits, 0)
    if numerator % denominator:
        return numerator / denominator
    return numerator // denominator


class _Amounts(NamedTuple):
    # As documents and arrays have them, in doubles.

    duration: Array  # [rows * S, N]
    lag: Array  # [1 + 2 * S, N]
    held: Array  # [S, N]
    late: Array  # [S, 1]: share of the activation that the weight gradient gives back
    static: Array  # [S, N]
    capacity: Array  # [D, N]


def figures_of(instance: PipelineInstance, arrays: Mapping[str, Any]) -> Figures:
    """Return the figures of N pipelines of the shape of one, in whole numbers.

    They have all figures of that one which arrays do not replace. An `InputError` says that an
    array is of another shape, or that a number is out of range.
    """
    amounts = (
        _with_arrays(instance, _own(instance), arrays) if arrays else _own(instance)
    )
    times = np.vstack([amounts.duration, amounts.lag])
    grid = _Grid.of(times, MAX_TICKS, TIME_DIGITS)
    held, late, memory = _memory(instance, amounts)
    device, rows = np.array(instance.stage_to_device), len(amounts.duration)
    shape = rows // len(device), *held.shape
    slow, fast = (
        StageArrays(
            device,
            instance.num_microbatches,
            table[:rows].reshape(shape),
            table[rows:],
            np.zeros_like(held),
            held,
            late,
            memory.room,
        ).with_whole_rooms(memory.is_exact)
        for table in (grid.above, grid.below)
    )
    return Figures(slow, fast, grid.step, grid.digits, memory)


def _memory(
    instance: PipelineInstance, amounts: _Amounts
) -> tuple[IntArray, IntArray, _MemoryGrains]:
    """Return `held` and `late` of pipelines, and the memory of their devices.

    Sums over all activations stay below 2^62. Amounts with a common grain are exact. Others are
    rounded to the nearest of some 10^-12 of the largest one; as many grains as activations are
    added to the room, so that what fits still fits.
    """
    stages, activations = (
        instance.num_stages,
        instance.num_stages * (instance.num_microbatches + 1),
    )
    count = amounts.held.shape[1]
    is_limited = np.isfinite(amounts.capacity)
    tables = (
        amounts.held,
        amounts.held * amounts.late,
        np.broadcast_to(amounts.static, (stages, count)),
        np.where(is_limited, amounts.capacity, 0.0),
    )
    limit = UNLIMITED // (2 * activations)
    grid = _Grid.of(np.vstack(tables), limit, len(str(limit)) - 1)
    held, late, static, capacity = np.split(
        grid.nearest, [stages, 2 * stages, 3 * stages]
    )
    of_devices = np.zeros_like(capacity)
    np.add.at(of_devices, np.array(instance.stage_to_device), static)
    room = capacity + np.where(grid.is_exact, 0, activations) - of_devices
    room = np.where(is_limited, room, UNLIMITED)
    memory = _MemoryGrains(of_devices, room, grid.step, grid.digits, grid.is_exact)
    return held, late, memory


class _Grid(NamedTuple):
    """Amounts of each column in whole grains of step / 10 ** digits."""

    below: IntArray  # int64[R, N]
    nearest: IntArray  # int64[R, N]
    above: IntArray  # int64[R, N]
    step: IntArray  # int64[N]
    digits: IntArray  # int64[N]
    is_exact: BoolArray  # bool[N]: all amounts are whole

    @classmethod
    def of(cls, amounts: Array, limit: int, digits_kept: int) -> _Grid:
        """Return amounts, float64[R, N], in the longest grain of each column that divides all.

        Where the largest amount has more than `limit` of them, the grain is a power of ten, of
        which it has `digits_kept` digits.
        """
        amounts = _short_decimals(amounts)
        digits, is_exact = _decimals(amounts)
        grid = cls._counted(amounts, np.where(is_exact, digits, 0), is_exact)
        is_exact &= grid.above.max(axis=0, initial=0) <= limit
        if is_exact.all():
            return grid
        largest = np.maximum(amounts.max(axis=0, initial=0.0), LEAST_NUMBER)
        rounded = digits_kept - 1 - np.floor(np.log10(largest)).astype(np.int64)
        return cls._counted(amounts, np.where(is_exact, digits, rounded), is_exact)

    @classmethod
    def _counted(cls, amounts: Array, digits: IntArray, is_exact: BoolArray) -> _Grid:
        up, down = 10.0 ** np.maximum(digits, 0), 10.0 ** np.maximum(-digits, 0)
        scaled = amounts * up / down
        # The product is off by its rounding; the division back tells on which side it is.
        above = np.ceil(scaled)
        above += above * down / up < amounts
        above -= (above - 1) * down / up >= amounts
        below = above - (above * down / up > amounts)
        nearest = np.where(scaled - below < above - scaled, below, above)
        stacked = np.stack([below, nearest, above]).astype(np.int64)
        step = np.maximum(np.gcd.reduce(np.concatenate(stacked), axis=0), 1)
        below, nearest, above = stacked // step
        return cls(below, nearest, above, step, digits, is_exact)


def _short_decimals(amounts: Array) -> Array:
    # As documents are read: a double that is off a decimal of ten digits by its rounding is it.
    size = np.floor(np.log10(np.maximum(amounts, LEAST_NUMBER)))
    scale = 10.0 ** np.clip(9 - size, 0, MAX_PLACES)
    short = np.rint(amounts * scale) / scale
    is_near = (size < TIME_DIGITS) & (np.abs(amounts - short) * scale * 1e5 <= 0.5)
    return np.where(is_near, short, amounts)


def _decimals(amounts: Array) -> tuple[IntArray, BoolArray]:
    """Return the count behind the point that each column needs, and whether doubles hold it."""
    digits = np.zeros(amounts.shape[1], dtype=np.int64)
    is_exact = np.zeros(len(digits), dtype=np.bool_)
    open_columns = np.arange(len(digits))
    for count in range(MAX_PLACES + 1):
        columns = amounts[:, open_columns]
        scaled = np.rint(columns * 10.0**count)
        fits = (scaled <= MAX_WHOLE).all(axis=0)
        is_whole = fits & (scaled / 10.0**count == columns).all(axis=0)
        digits[open_columns[is_whole]], is_exact[open_columns[is_whole]] = count, True
        open_columns = open_columns[fits & ~is_whole]
        if not len(open_columns):
            break
    return digits, is_exact


def _own(instance: PipelineInstance) -> _Amounts:
    stages, devices = range(instance.num_stages), instance.stage_to_device
    entries = instance.times.by_kind().values()
    duration = [float(entry_at(entry, stage)) for entry in entries for stage in stages]
    hop = np.zeros((2, len(devices)))
    for stage, (a, b) in enumerate(pairwise(devices)):
        if a != b:
            hop[0, stage] = entry_at(instance.p2p.latency, a, b)
            hop[1, stage + 1] = entry_at(instance.p2p.latency, b, a)
    held, static, late = np.zeros((3, len(devices), 1))
    capacity = np.full((instance.num_devices, 1), np.inf)
    memory = instance.memory
    if memory is not None:
        held[:, 0] = [entry_at(memory.activation, stage) for stage in stages]
        static[:, 0] = [entry_at(memory.static, stage) for stage in stages]
        capacity[:, 0] = [
            entry_at(memory.capacity, d) for d in range(instance.num_devices)
        ]
        if instance.times.is_split:
            late[:, 0] = [
                entry_at(memory.released_by_backward_weight, stage) for stage in stages
            ]
    lag = np.vstack([[[0.0]], hop.reshape(-1, 1)])
    return _Amounts(np.array(duration)[:, None], lag, held, late, static, capacity)


def _with_arrays(
    instance: PipelineInstance, amounts: _Amounts, arrays: Mapping[str, Any]
) -> _Amounts:
    stages, devices = instance.num_stages, instance.num_devices
    names = [field for field, entry in instance.times if entry is not None]
    fields = [
        *names,
        *(["activation", "static", "capacity"] if instance.memory else []),
        "latency",
    ]
    tables = {name: _table(name, array) for name, array in arrays.items()}
    count = next(len(np.atleast_1d(table)) for table in tables.values())
    for name, table in tables.items():
        if name not in fields:
            raise InputError.unknown(
                "expected an array of this pipeline, got",
                name,
                fields,
            )
        wide = {"latency": 0, "capacity": devices}.get(name, stages)
        _refuse(name, table, count, wide)

    def rows(name: str, default: Array) -> Array:
        table = np.atleast_2d(tables[name].T) if name in tables else default
        return np.broadcast_to(table, (len(default), count))

    durations = amounts.duration.reshape(-1, stages, 1)
    duration = np.concatenate(
        [rows(n, times) for n, times in zip(names, durations, strict=True)]
    )
    lag = np.broadcast_to(amounts.lag, (len(amounts.lag), count))
    if "latency" in tables:
        crosses = np.diff(instance.stage_to_device) != 0
        ahead = np.concatenate([[False], crosses, [False], [False], crosses])
        lag = np.where(ahead[:, None], tables["latency"], 0.0)
    held, static, capacity = (
        rows("activation", amounts.held),
        rows("static", amounts.static),
        rows("capacity", amounts.capacity),
    )
    return _Amounts(duration, lag, held, amounts.late, static, capacity)


def _table(name: str, array: Any) -> Array:
    try:
        return np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError):
        rows = list(array) if isinstance(array, list | tuple | np.ndarray) else []
    first = np.shape(rows[0]) if rows else ()
    for index, row in enumerate(rows):
        try:
            is_right = np.shape(np.asarray(row, dtype=np.float64)) == first
        except (TypeError, ValueError):
            is_right = False
        if not is_right:
            expected = f"{first[0]} numbers" if first else "a number"
            text = f"expected {expected} as in the first row, got {describe(row)}"
            raise InputError(text, field=f"{name}[{index}]", code=ErrorCode.TYPE)
    text = f"expected an array of numbers, got {describe(array)}"
    raise InputError(text, field=name, code=ErrorCode.TYPE)


def _refuse(name: str, table: Array, count: int, wide: int) -> None:
    """Refuse an array of another shape, or with numbers that documents do not have."""
    if table.shape not in {(count,), (count, wide)}:
        table_of = f", or {count} x {wide}" if wide else ""
        text = f"expected {count} numbers{table_of}, got {table.shape}"
        raise InputError(text, field=name, code=ErrorCode.LENGTH)
    is_right = (table == 0) | ((table >= LEAST_NUMBER) & (table <= float(MAX_NUMBER)))
    if name == "capacity":
        is_right |= np.isposinf(table)
    if not is_right.all():
        index = np.argwhere(~is_right)[0].tolist()
        text = f"expected 0 or a number from {LEAST_NUMBER:.0E} to {MAX_NUMBER:.0E}"
        raise InputError(
            f"{text}, got {table[tuple(index)]:g}",
            field=name + "".join(f"[{number}]" for number in index),
            code=ErrorCode.RANGE,
        )

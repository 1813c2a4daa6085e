"""Which layers form which pipeline stage, so that the slowest device is as fast as can be."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from numbers import Integral
from statistics import median_low
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsolve.models.documents.base import describe
from ppsolve.models.documents.errors import InputError, PpsolveError

Array = NDArray[Any]

MOST_TICKS = 2**50
"""Largest sum of all layers' times: sums with signs over every stage stay within an int64."""

MOST_SEARCHED_TICKS = 2**31
"""The same where CP-SAT searches: at 1e11 ticks its version 9.15 called a split optimal that is not
(43 where 40 is possible, seven layers); at 3e9 and below none was wrong of some thousand."""

MOST_BYTES = 10**16
"""Largest sum of all layers' bytes with every activation in flight, for the same reason."""

SEARCH_LIMIT = 0.25
"""Deterministic seconds of search where stages share devices; real ones are 2 to 4 times that.

A plan has a split for each placement and micro-batch size: more makes plans longer, less leaves
more splits unproved.
"""

COARSE_SHARE, COARSE_TICKS = 0.2, 8
"""Share of the limit for a search with rounded times, and their ticks per median layer.

In 12 random models (24 to 60 layers of nearly two lengths, 4 or 8 devices of two stages) shares
from 0 to 0.4 end within 0.03 % of each other on average; models of nearly equal layers need some.
"""

Boundaries = tuple[int, ...]


class SplitUndecidedError(PpsolveError):
    """The search ended before it found a split that fits the memory, or proved there is none."""


@dataclass(frozen=True)
class SplitProblem:
    """Layers in their order, and the stages to be made of them.

    Parameters
    ----------
    times : tuple of int
        Work of each layer for one micro-batch, forward and backward, in ticks.
    static : tuple of int
        Bytes each layer always takes.
    activation : tuple of int
        Bytes each layer saves per micro-batch in flight.
    stage_to_device : tuple of int
        Device of each stage; devices are 0..D-1, and each has at least one stage.
    capacity : tuple of int or None
        Bytes of each device; None for no limit.
    in_flight : tuple of int
        How many micro-batches' activations each stage must be able to hold.

    Raises
    ------
    InputError
        Lengths that differ, a negative or fractional number, a device without a stage, or sums
        above `MOST_TICKS` or `MOST_BYTES`.
    """

    times: tuple[int, ...]
    static: tuple[int, ...]
    activation: tuple[int, ...]
    stage_to_device: tuple[int, ...]
    capacity: tuple[int, ...] | None
    in_flight: tuple[int, ...]

    def __post_init__(self) -> None:
        """Check the numbers, and take them as Python's own, which cannot overflow."""
        for field in ("times", "static", "activation", "stage_to_device", "capacity", "in_flight"):
            object.__setattr__(self, field, _whole(field, getattr(self, field)))
        self._check_devices()
        for field in ("static", "activation"):
            _check_length(field, getattr(self, field), self.num_layers, "layer")
        _check_length("in_flight", self.in_flight, self.num_stages, "stage")
        if self.capacity is not None:
            _check_length("capacity", self.capacity, self.num_devices, "device")
        self._check_sums()

    def _check_devices(self) -> None:
        if not self.stage_to_device:
            raise InputError("expected at least one stage", field="stage_to_device")
        missing = set(range(max(self.stage_to_device))) - set(self.stage_to_device)
        if missing:
            raise InputError(
                f"expected at least one stage for every device, device {min(missing)} has none",
                field="stage_to_device",
            )

    def _check_sums(self) -> None:
        ticks = sum(self.times)
        if ticks > MOST_TICKS:
            raise InputError(
                f"expected at most {MOST_TICKS} ticks in total, got {ticks}; use a coarser tick",
                field="times",
            )
        held = sum(self.static) + max(self.in_flight) * sum(self.activation)
        if held > MOST_BYTES:
            raise InputError(
                f"expected at most {MOST_BYTES} bytes in static and in-flight activations "
                f"together, got {held}",
                field="activation",
            )

    @property
    def num_layers(self) -> int:
        """Number of layers n."""
        return len(self.times)

    @property
    def num_stages(self) -> int:
        """Number of stages S."""
        return len(self.stage_to_device)

    @property
    def num_devices(self) -> int:
        """Number of devices D."""
        return max(self.stage_to_device) + 1

    @property
    def has_one_stage_per_device(self) -> bool:
        """Whether no two stages share a device."""
        return self.num_stages == self.num_devices

    def stage_times(self, boundaries: Boundaries) -> list[int]:
        """Return the ticks of each stage."""
        return [sum(self.times[first:last]) for first, last in pairwise(boundaries)]

    def device_times(self, boundaries: Boundaries) -> list[int]:
        """Return the ticks of each device."""
        return self._per_device(self.stage_times(boundaries))

    def device_bytes(self, boundaries: Boundaries) -> list[int]:
        """Return the bytes that each device must be able to hold."""
        spans = zip(pairwise(boundaries), self.in_flight, strict=True)
        return self._per_device(
            [
                sum(self.static[first:last]) + held * sum(self.activation[first:last])
                for (first, last), held in spans
            ]
        )

    @property
    def unlimited(self) -> SplitProblem:
        """The same layers without a capacity."""
        return replace(self, capacity=None)

    def fits(self, boundaries: Boundaries) -> bool:
        """Say if every device can hold its stages."""
        if self.capacity is None:
            return True
        pairs = zip(self.device_bytes(boundaries), self.capacity, strict=True)
        return all(held <= room for held, room in pairs)

    def _per_device(self, values: list[int]) -> list[int]:
        sums = [0] * self.num_devices
        for device, value in zip(self.stage_to_device, values, strict=True):
            sums[device] += value
        return sums


def _whole(field: str, values: Iterable[Any] | None) -> tuple[int, ...] | None:
    """Return numbers of any whole type as Python's."""
    if values is None:
        return None
    numbers = tuple(values)
    for index, value in enumerate(numbers):
        if isinstance(value, bool) or not isinstance(value, Integral) or value < 0:
            raise InputError(
                f"expected a whole number >= 0, got {describe(value)}", field=f"{field}[{index}]"
            )
    return tuple(int(value) for value in numbers)


def _check_length(field: str, values: tuple[int, ...], length: int, owner: str) -> None:
    if len(values) != length:
        raise InputError(
            f"expected one number per {owner} ({length}), got {len(values)}", field=field
        )


@dataclass(frozen=True)
class Split:
    """A split of the layers into stages.

    Parameters
    ----------
    boundaries : tuple of int
        S + 1 ascending layer indices: stage s has layers ``boundaries[s]`` to
        ``boundaries[s + 1] - 1``.
    slowest_device : int
        Ticks of the device with the most work.
    slowest_stage : int
        Ticks of the stage with the most work.
    proved : bool
        Whether no split has a faster slowest device.
    """

    boundaries: Boundaries
    slowest_device: int
    slowest_stage: int
    proved: bool


def best_split(problem: SplitProblem, *, limit: float = SEARCH_LIMIT) -> Split | None:
    """Return the split with the fastest slowest device, among these the fastest slowest stage.

    Where every device has one stage, the sum of squared stage times is the least of all such
    splits too, and the answer is always proved. Where stages share devices, the search is exact
    unless it reaches `limit`. Equal problems and limits have equal answers.

    Parameters
    ----------
    problem : SplitProblem
        Layers and stages.
    limit : float
        Deterministic seconds of search; not a wall time, so answers are the same everywhere.

    Returns
    -------
    Split or None
        None where it is proved that no split exists: fewer layers than stages, or none that
        fits the memory.

    Raises
    ------
    SplitUndecidedError
        The limit was reached with neither a split that fits the memory nor a proof.
    InputError
        The limit is negative or not a number.
    """
    if not limit >= 0:
        raise InputError(f"expected a number of seconds >= 0, got {limit}", field="limit")
    if problem.num_layers < problem.num_stages:
        return None
    slowest_stage = _least_slowest_stage(problem)
    if slowest_stage is None:
        return None
    start = _most_even(problem, slowest_stage)
    slowest_device, floor = max(problem.device_times(start)), device_floor(problem)
    reaches_floor = slowest_device == floor and problem.fits(start)
    if problem.has_one_stage_per_device or reaches_floor:
        return Split(start, slowest_device, slowest_stage, proved=True)
    if sum(problem.times) > MOST_SEARCHED_TICKS:
        raise InputError(
            f"expected at most {MOST_SEARCHED_TICKS} ticks in total where devices hold several "
            f"stages, got {sum(problem.times)}; use a coarser tick",
            field="times",
        )
    from ppsolve.solver.plan.assignment import search_split

    start = _coarse_start(problem, start, limit * COARSE_SHARE)
    left = limit * (1 - COARSE_SHARE)
    return search_split(problem, start, device_floor=floor, stage_floor=slowest_stage, limit=left)


def quick_split(problem: SplitProblem) -> Split | None:
    """Return a good split without a search: where devices have one stage, that of `best_split`.

    Else stages as even as can be, improved by moving single layers.

    Parameters
    ----------
    problem : SplitProblem
        Layers and stages.

    Returns
    -------
    Split or None
        None where it is proved that no split exists.

    Raises
    ------
    SplitUndecidedError
        It does not fit the memory; another split may.
    """
    if problem.num_layers < problem.num_stages:
        return None
    slowest_stage = _least_slowest_stage(problem)
    if slowest_stage is None:
        return None
    boundaries = _most_even(problem, slowest_stage)
    if not problem.has_one_stage_per_device:
        from ppsolve.solver.plan.moves import moved_layers

        boundaries = moved_layers(problem, boundaries)
        if not problem.fits(boundaries):
            raise SplitUndecidedError("the split that takes no search does not fit the memory")
    slowest_device = max(problem.device_times(boundaries))
    proved = problem.has_one_stage_per_device or slowest_device == device_floor(problem)
    return Split(boundaries, slowest_device, max(problem.stage_times(boundaries)), proved)


def _coarse_start(problem: SplitProblem, start: Boundaries, limit: float) -> Boundaries:
    """Return the best split by rounded times, or `start` where that is no worse.

    Rounding makes nearly equal layers equal. Which stages have how many layers is then quickly
    found, and most of what is to be gained.
    """
    median = median_low(problem.times)
    if median == 0:
        return start
    coarse = tuple((2 * COARSE_TICKS * time + median) // (2 * median) for time in problem.times)
    if _changes(coarse) >= _changes(problem.times):
        return start
    try:
        found = best_split(replace(problem, times=coarse), limit=limit)
    except SplitUndecidedError:
        return start
    splits = (start, found.boundaries if found else start)
    return min(splits, key=lambda b: (not problem.fits(b), max(problem.device_times(b))))


def _changes(times: tuple[int, ...]) -> int:
    """Return the number of layers that differ from the one before."""
    return sum(earlier != later for earlier, later in pairwise(times))


def device_floor(problem: SplitProblem) -> int:
    """Return a lower bound on the slowest device's ticks, whatever layers it has.

    The largest of: the longest layer; an equal share of all work; and, as some device has at
    least k + 1 of any k D + 1 layers, the k + 1 shortest of the k D + 1 longest layers.
    """
    longest_first = sorted(problem.times, reverse=True)
    sums = [0, *accumulate(longest_first)]
    devices = problem.num_devices
    counts = range(devices, problem.num_layers, devices)
    crowded = (sums[count + 1] - sums[count - count // devices] for count in counts)
    return max(max(longest_first, default=0), -(-sums[-1] // devices), *crowded, 0)


def even_split(num_layers: int, num_stages: int) -> Boundaries:
    """Return the boundaries of stages with equally many layers; the first stages get one more.

    Parameters
    ----------
    num_layers, num_stages : int
        Layers to share out, and the stages that get them.

    Returns
    -------
    tuple of int
        S + 1 ascending layer indices.

    Raises
    ------
    InputError
        Fewer layers than stages, or no stage.
    """
    if not 1 <= num_stages <= num_layers:
        raise InputError(f"expected 1 to {num_layers} stages (one per layer), got {num_stages}")
    size, extra = divmod(num_layers, num_stages)
    return tuple(stage * size + min(stage, extra) for stage in range(num_stages + 1))


class _StageSums:
    """Time and bytes of each stage, by the boundary after it and its number of layers.

    As stage s has at least s layers before it and S - 1 - s after it, its boundaries are counted
    from the first place each can have: 0..n-S. Arrays are (n - S + 1, width): row b, column k is
    the stage that ends at b with k + 1 layers. Rows with b < k have no such stage; they hold
    values of no meaning.
    """

    def __init__(self, problem: SplitProblem, width: int) -> None:
        self._problem = problem
        self._rows = problem.num_layers - problem.num_stages + 1
        ends = np.arange(problem.num_layers)[:, None]
        self._span = ends + 1, np.maximum(ends - np.arange(width), 0)
        self._time = self._sums(problem.times)
        if problem.capacity is not None:
            self._static = self._sums(problem.static)
            self._activation = self._sums(problem.activation)

    def time(self, stage: int) -> Array:
        return self._time[stage : stage + self._rows]

    def is_too_large(self, stage: int) -> Array | bool:
        """Mark the extents of a stage that do not fit its device even alone, bool[rows, width]."""
        problem = self._problem
        if problem.capacity is None:
            return False
        here = slice(stage, stage + self._rows)
        held = self._static[here] + problem.in_flight[stage] * self._activation[here]
        room = problem.capacity[problem.stage_to_device[stage]]
        marked: Array = held > min(room, MOST_BYTES)
        return marked

    def _sums(self, values: tuple[int, ...]) -> Array:
        """Return the sum of the k + 1 values up to each: int64[n, width]."""
        prefix, (last, first) = _prefix_sums(values), self._span
        sums: Array = prefix[last] - prefix[first]
        return sums


def _prefix_sums(values: tuple[int, ...]) -> Array:
    return np.array([0, *accumulate(values)], dtype=np.int64)


def _earlier(values: Array, width: int, missing: int) -> Array:
    """Return an array whose row b, column k is ``values[b - k]``, or `missing` where b < k."""
    padded = np.concatenate([np.full(width - 1, missing, dtype=values.dtype), values])
    step = padded.itemsize
    # A view; numpy's own function for it takes five times as long as all else here.
    return np.ndarray((len(values), width), values.dtype, padded, (width - 1) * step, (step, -step))


def _least_slowest_stage(problem: SplitProblem) -> int | None:
    """Return the least time of the slowest stage, each stage alone on its device."""
    rows = problem.num_layers - problem.num_stages + 1
    sums = _StageSums(problem, width=rows)
    never = MOST_TICKS + 1
    slowest = np.full(rows, never, dtype=np.int64)
    slowest[0] = 0
    for stage in range(problem.num_stages):
        candidates = np.maximum(_earlier(slowest, rows, never), sums.time(stage))
        candidates[sums.is_too_large(stage)] = never
        slowest = candidates.min(axis=1)
    return None if slowest[-1] == never else int(slowest[-1])


def _most_even(problem: SplitProblem, slowest_stage: int) -> Boundaries:
    """Return the split with the least sum of squared stage times, none above `slowest_stage`."""
    rows = problem.num_layers - problem.num_stages + 1
    width = min(rows, _most_layers(problem, slowest_stage))
    sums = _StageSums(problem, width)
    never = problem.num_stages * slowest_stage**2 + 1
    dtype = np.int64 if 2 * never < 2**63 else np.object_
    squares = np.full(rows, never, dtype=dtype)
    squares[0] = 0
    choices = []
    for stage in range(problem.num_stages):
        time = sums.time(stage)
        capped: Array = np.minimum(time, slowest_stage).astype(dtype)
        candidates = _earlier(squares, width, never) + capped * capped
        candidates[(time > slowest_stage) | sums.is_too_large(stage)] = never
        choices.append(candidates.argmin(axis=1))
        squares = np.minimum(candidates.min(axis=1), never)
    return _traced(choices)


def _most_layers(problem: SplitProblem, slowest_stage: int) -> int:
    """Return the most layers that a stage of at most this time can have."""
    prefix = _prefix_sums(problem.times)
    ends = np.searchsorted(prefix, prefix + slowest_stage, side="right") - 1
    return int((ends - np.arange(prefix.size)).max())


def _traced(choices: list[Array]) -> Boundaries:
    """Return the boundaries, from the number of layers less one by stage and row."""
    row = len(choices[-1]) - 1
    boundaries = [row + len(choices)]
    for stage in range(len(choices) - 1, -1, -1):
        row -= int(choices[stage][row])
        boundaries.append(row + stage)
    return tuple(boundaries[::-1])

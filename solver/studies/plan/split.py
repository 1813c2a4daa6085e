"""Which layers form which pipeline stage, so that the slowest device is as fast as can be."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ppsolve.models.core.problem import IntArray
from ppsolve.models.documents.errors import ErrorCode, InputError, PpsolveError

Boundaries = tuple[int, ...]

Moments = tuple[tuple[int, ...], ...]
"""Micro-batches in flight at each stage, one row for each moment that the memory must allow."""


@dataclass(frozen=True)
class SplitParams:
    """Limits of splits, and the effort of their search."""

    # Sum of all layers' times in ticks: sums with signs over every stage stay within an int64.
    most_ticks: int = 2**50
    # The same where CP-SAT searches: version 9.15 called a wrong split optimal at 1e11 ticks.
    most_searched_ticks: int = 2**31
    # Sum of all layers' bytes with every activation in flight, to stay within an int64.
    most_bytes: int = 10**16
    # Deterministic seconds of a search: more makes plans longer, less leaves splits unproved.
    seconds: float = 0.25
    # Single layers moved by the split without a search, and before one, at most.
    most_moves: int = 200


class SplitUndecidedError(PpsolveError):
    """The search found no split that fits the memory, nor proved that there is none."""


@dataclass(frozen=True)
class SplitProblem:
    """Layers in their order, and the stages to be made of them.

    `times`: ticks of each layer for one micro-batch, forward and backward.
    `static`: bytes each layer always takes.
    `activation`: bytes each layer saves per micro-batch in flight.
    `stage_to_device`: device of each stage; devices are 0..D-1, each with at least one
        stage.
    `capacity`: bytes of each device; None for no limit.
    `in_flight`: micro-batches whose activations the stages hold: rows of moments, each
        of which must fit.
    Raises `InputError`: a sum exceeds `SplitParams.most_ticks` or `most_bytes`.
    """

    times: tuple[int, ...]
    static: tuple[int, ...]
    activation: tuple[int, ...]
    stage_to_device: tuple[int, ...]
    capacity: tuple[int, ...] | None
    in_flight: Moments

    @classmethod
    def without_memory(
        cls, times: Iterable[int], stage_to_device: Iterable[int]
    ) -> SplitProblem:
        """Return a problem whose layers take no memory and whose devices have no capacity."""
        layers, devices = tuple(times), tuple(stage_to_device)
        nothing = (0,) * len(layers)
        return cls(layers, nothing, nothing, devices, None, ((0,) * len(devices),))

    def __post_init__(self) -> None:
        """Refuse sums that may overflow."""
        params, ticks = SplitParams(), sum(self.times)
        if ticks > params.most_ticks:
            raise InputError(
                f"expected at most {params.most_ticks} ticks in total, got {ticks}; "
                "use a coarser tick",
                field="times",
                code=ErrorCode.RANGE,
            )
        held = sum(self.static) + max(self.most_in_flight) * sum(self.activation)
        if held > params.most_bytes:
            raise InputError(
                f"expected at most {params.most_bytes} bytes in static and in-flight activations "
                f"together, got {held}",
                field="activation",
                code=ErrorCode.RANGE,
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

    @cached_property
    def most_in_flight(self) -> tuple[int, ...]:
        """Most micro-batches of each stage at any of the moments."""
        return tuple(map(max, zip(*self.in_flight, strict=True)))

    @property
    def has_one_stage_per_device(self) -> bool:
        """Whether no two stages share a device."""
        return self.num_stages == self.num_devices

    @cached_property
    def _prefixes(self) -> list[IntArray]:
        return [_prefix_sums(row) for row in (self.times, self.static, self.activation)]

    @cached_property
    def stages_on(self) -> IntArray:
        """Ones for each stage and its device, int64[S, D]."""
        devices = np.array(self.stage_to_device)
        return np.eye(self.num_devices, dtype=np.int64)[devices]

    def stage_times(self, splits: ArrayLike) -> IntArray:
        """Return the ticks of each stage: int64[S] of one split, a row for each of many."""
        return np.diff(self._prefixes[0][np.asarray(splits)])

    def device_times(self, splits: ArrayLike) -> IntArray:
        """Return the ticks of each device, as `stage_times`."""
        return self.stage_times(splits) @ self.stages_on

    def device_bytes(self, splits: ArrayLike) -> IntArray:
        """Return the bytes that each device must be able to hold: its fullest moment."""
        static, activation = (
            np.diff(row[np.asarray(splits)]) for row in self._prefixes[1:]
        )
        moments = (np.array(counts) * activation + static for counts in self.in_flight)
        return np.asarray(np.max([held @ self.stages_on for held in moments], axis=0))

    def lack(self, splits: ArrayLike) -> IntArray:
        """Return the bytes of each device above its capacity, as `stage_times`."""
        if self.capacity is None:
            return np.zeros_like(self.device_times(splits))
        return np.maximum(self.device_bytes(splits) - np.array(self.capacity), 0)

    def fits(self, boundaries: Boundaries) -> bool:
        """Whether every device can hold its stages."""
        return not self.lack(boundaries).any()

    def split(self, boundaries: Boundaries, *, proved: bool) -> Split:
        """Return the split at these boundaries, with its figures."""
        devices, stages = self.device_times(boundaries), self.stage_times(boundaries)
        return Split(boundaries, int(devices.max()), int(stages.max()), proved)

    def standings(self, splits: IntArray) -> list[tuple[int, int, float]]:
        """Return bytes above the capacities, slowest device, squared ticks; less is better."""
        times, lack = self.device_times(splits), self.lack(splits)
        squares = (times.astype(np.float64) ** 2).sum(axis=1)
        columns = (lack.sum(axis=1), times.max(axis=1), squares)
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def givers(self, split: IntArray) -> list[int]:
        """Return those stages of the worst device that can give a layer away."""
        lack = self.lack(split)
        worst = int(np.argmax(lack if lack.any() else self.device_times(split)))
        is_there = self.stages_on[:, worst] > 0
        return np.flatnonzero(is_there & (np.diff(split) > 1)).tolist()


@dataclass(frozen=True)
class Split:
    """A split of the layers into stages.

    `boundaries` are S + 1 ascending layer indices: stage s has layers ``boundaries[s]`` to
    ``boundaries[s + 1] - 1``. `slowest_device` and `slowest_stage` are the most ticks of one of
    them; `proved` says whether no split has a faster slowest device.
    """

    boundaries: Boundaries
    slowest_device: int
    slowest_stage: int
    proved: bool


Array = NDArray[Any]

SPLIT = SplitParams()


def best_split(problem: SplitProblem, params: SplitParams = SPLIT) -> Split | None:
    """Return the split with the fastest slowest device, among these the fastest slowest stage.

    Where every device has one stage, the sum of squared stage times is also the least of all such
    splits, and the answer is always proved. Where stages share devices, the search is exact unless
    it reaches its limit. Equal problems and limits have equal answers. None where it is proved that
    no split exists: fewer layers than stages, or none fits the memory.

    Raises `SplitUndecidedError` where the limit was reached with neither a split that fits the
    memory nor a proof, `InputError` where there are too many ticks to search.
    """
    slowest_stage = _least_slowest_stage(problem)
    if slowest_stage is None:
        return None
    start, bound = _most_even(problem, slowest_stage), slowest_device_bound(problem)
    reaches_bound = max(problem.device_times(start)) == bound and problem.fits(start)
    if problem.has_one_stage_per_device or reaches_bound:
        return problem.split(start, proved=True)
    if sum(problem.times) > params.most_searched_ticks:
        raise InputError(
            f"expected at most {params.most_searched_ticks} ticks in total where devices hold "
            f"several stages, got {sum(problem.times)}; use a coarser tick",
            field="times",
            code=ErrorCode.RANGE,
        )
    from ppsolve.solver.studies.plan.split_cpsat import search_split

    start = _moved_layers(problem, start, params.most_moves)
    limit = params.seconds
    return search_split(
        problem, start, least_device=bound, least_stage=slowest_stage, limit=limit
    )


def quick_split(problem: SplitProblem, params: SplitParams = SPLIT) -> Split | None:
    """Return a good split without a search: where devices have one stage, that of `best_split`.

    Else stages are as even as can be, improved by moving single layers. None where it is proved
    that no split exists; `SplitUndecidedError` says that it does not fit the memory, but another
    one may.
    """
    slowest_stage = _least_slowest_stage(problem)
    if slowest_stage is None:
        return None
    boundaries = _most_even(problem, slowest_stage)
    if problem.has_one_stage_per_device:
        return problem.split(boundaries, proved=True)
    boundaries = _moved_layers(problem, boundaries, params.most_moves)
    if not problem.fits(boundaries):
        raise SplitUndecidedError(
            "the split that takes no search does not fit the memory"
        )
    slowest_device = int(problem.device_times(boundaries).max())
    return problem.split(
        boundaries, proved=slowest_device == slowest_device_bound(problem)
    )


def least_peak(problem: SplitProblem, params: SplitParams = SPLIT) -> tuple[int, int]:
    """Return the bytes that some device holds under every split, whatever its capacity.

    Before them comes the fullest device under a split that is as even as was found.
    """
    from ppsolve.solver.studies.plan.split_cpsat import search_peak

    return search_peak(replace(problem, capacity=None), params.seconds)


def slowest_device_bound(problem: SplitProblem) -> int:
    """Return a lower bound on the slowest device's ticks under any split.

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

    Raises `InputError` where there are fewer layers than stages, or no stage.
    """
    if not 1 <= num_stages <= num_layers:
        raise InputError(
            f"expected 1 to {num_layers} stages (one per layer), got {num_stages}",
            code=ErrorCode.RANGE,
        )
    size, extra = divmod(num_layers, num_stages)
    return tuple(stage * size + min(stage, extra) for stage in range(num_stages + 1))


def boundaries_of(counts: IntArray) -> Boundaries:
    """Return the boundaries of stages of so many layers of each sort, int64[sorts, S]."""
    return (0, *np.cumsum(counts.sum(axis=0)).tolist())


class _StageSums:
    # Time and bytes of each stage, by the boundary after it and its number of layers.
    #
    # Stage s has at least s layers before it and S - 1 - s after it, so its boundaries are counted
    # from the first place each can have: 0..n-S. Arrays are (n - S + 1, width): row b, column k is
    # the stage that ends at b with k + 1 layers. Rows with b < k have no such stage; they hold
    # values of no meaning.

    def __init__(self, problem: SplitProblem, width: int) -> None:
        self._problem = problem
        self._rows = problem.num_layers - problem.num_stages + 1
        stops = np.arange(problem.num_layers)[:, None]
        self._span = stops + 1, np.maximum(stops - np.arange(width), 0)
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
        held = (
            self._static[here] + problem.most_in_flight[stage] * self._activation[here]
        )
        room = problem.capacity[problem.stage_to_device[stage]]
        return held > min(room, SPLIT.most_bytes)

    def _sums(self, values: tuple[int, ...]) -> Array:
        prefix, (last, first) = _prefix_sums(values), self._span
        return prefix[last] - prefix[first]


def _prefix_sums(values: tuple[int, ...]) -> Array:
    return np.array([0, *accumulate(values)], dtype=np.int64)


def _earlier(values: Array, width: int, missing: int) -> Array:
    """Return an array whose row b, column k is ``values[b - k]``, or `missing` where b < k."""
    padded = np.concatenate([np.full(width - 1, missing, dtype=values.dtype), values])
    step = padded.itemsize
    # A view; numpy's own function for it takes five times as long as all else here.
    return np.ndarray(
        (len(values), width), values.dtype, padded, (width - 1) * step, (step, -step)
    )


def _least_slowest_stage(problem: SplitProblem) -> int | None:
    """Return the least time of the slowest stage, each alone on its device; None if none fits."""
    if problem.num_layers < problem.num_stages:
        return None
    rows = problem.num_layers - problem.num_stages + 1
    sums = _StageSums(problem, width=rows)
    never = SPLIT.most_ticks + 1
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
    row = rows - 1
    boundaries = [problem.num_layers]
    for stage in range(problem.num_stages - 1, -1, -1):
        row -= int(choices[stage][row])
        boundaries.append(row + stage)
    return tuple(boundaries[::-1])


def _most_layers(problem: SplitProblem, slowest_stage: int) -> int:
    prefix = _prefix_sums(problem.times)
    stops = np.searchsorted(prefix, prefix + slowest_stage, side="right") - 1
    return int((stops - np.arange(prefix.size)).max())


def _moved_layers(problem: SplitProblem, start: Boundaries, moves: int) -> Boundaries:
    # Move one layer of the worst device (the one that lacks most memory, else the slowest) to any
    # other stage as long as that is better; the stages between keep their number of layers.
    best, (standing,) = np.array(start), problem.standings(np.array([start]))
    for _ in range(moves):
        tried = _neighbours(best, problem.givers(best))
        standings = problem.standings(tried)
        if not standings or min(standings) >= standing:
            break
        standing = min(standings)
        best = tried[standings.index(standing)]
    return tuple(best.tolist())


def _neighbours(split: IntArray, givers: list[int]) -> IntArray:
    # One of the givers gives a layer to any other stage.
    counts = np.diff(split)
    pairs = [
        (giver, taker)
        for giver in givers
        for taker in range(len(counts))
        if taker != giver
    ]
    moves = np.eye(len(counts), dtype=np.int64)[
        np.array(pairs, dtype=np.int64).reshape(-1, 2)
    ]
    moved = np.cumsum(counts - moves[:, 0] + moves[:, 1], axis=1)
    return np.pad(moved, ((0, 0), (1, 0)))

"""The best micro-batch size and accumulation steps of each allocation: exact, and as published."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ppsolve.models.core.arrays import Floats, as_number
from ppsolve.models.core.problem import BoolArray, IntArray
from ppsolve.models.documents.base import describe
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.studies.goodput.params import GradParams, PerfParams, gamma_norm


@dataclass(frozen=True)
class GoodputParams:
    """Effort of the search for batch sizes."""

    # Batch sizes that the published search tries for each allocation, in geometric steps.
    batch_sizes: int = 50
    # Slack of the published rule before a batch size is rounded up.
    rounding: float = 1e-8
    # Micro-batch sizes tried where several numbers of steps may be best: bounds time and memory.
    most_sizes: int = 2**14
    # Configurations evaluated together: an array of as many doubles takes 4 MB.
    at_once: int = 2**19
    # A better configuration is not looked for where it could gain no more than this share.
    gain: float = 1e-12


PARAMS = GoodputParams()


@dataclass(frozen=True)
class BatchLimits:
    """Allowed configurations.

    `low`, `high`: least and greatest micro-batch size.
    `least`, `most`: least and greatest batch size over all replicas and accumulation
        steps.
    `accumulation`: whether accumulation steps may be used; then one replica takes at
        least one of them beyond the initial batch size, as the gradient statistics need
        two micro-batches.
    `compat`: whether `most` gives way as in the published search: to each replica's
        least micro-batch, and to rounding up.
    """

    low: float
    high: float
    least: float
    most: float
    accumulation: bool = False
    compat: bool = False

    @classmethod
    def of(
        cls,
        init_batch_size: float,
        max_batch_size: float | None,
        atomic_bsz_range: tuple[float | None, float | None] | None,
        accumulation: bool = False,
        compat: bool = False,
    ) -> BatchLimits:
        """Return the limits for the arguments of `GoodputModel.optimize`.

        An `InputError` names the argument that is no limit, or excludes everything for any
        allocation.

        `init_batch_size`: least batch size; also the largest, if none is given.
        """
        largest = init_batch_size
        if max_batch_size is not None:
            largest = as_number("max_batch_size", max_batch_size, above=0)
        if largest < init_batch_size:
            text = f"expected at least the initial batch size {init_batch_size:g}, got {largest:g}"
            raise InputError(text, field="max_batch_size", code=ErrorCode.RANGE)
        low, high = _range(atomic_bsz_range)
        if low > largest and not compat:
            text = f"expected at most the largest batch size {largest:g}, got {low:g}"
            raise InputError(text, field="atomic_bsz_range[0]", code=ErrorCode.RANGE)
        greatest = largest if high is None else high
        return cls(low, greatest, init_batch_size, largest, accumulation, compat)

    def allow(self, replicas: NDArray[Any], atomic: Floats, accum: Floats) -> BoolArray:
        """Mark the configurations whose batch and micro-batch lie within the limits: bool[...]."""
        batch = replicas * atomic * (accum + 1)
        allowed: BoolArray = (
            (self.low <= atomic) & (atomic <= self.high) & (self.least <= batch)
        )
        if self.compat:
            return allowed
        single = self.accumulation & (replicas == 1) & (accum == 0)
        allowed &= (batch <= self.most) & ~(single & (batch > np.ceil(self.least)))
        return allowed


def _range(
    pair: tuple[float | None, float | None] | None,
) -> tuple[float, float | None]:
    if pair is None:
        return 1.0, None
    if not isinstance(pair, tuple | list | np.ndarray) or len(pair) != 2:
        raise InputError(
            f"expected a pair (least, greatest), got {describe(pair)}",
            field="atomic_bsz_range",
            code=ErrorCode.RANGE,
        )
    low, high = (
        None if end is None else as_number(f"atomic_bsz_range[{side}]", end, least=1)
        for side, end in enumerate(pair)
    )
    if low is not None and high is not None and low > high:
        text = f"expected (least, greatest), got ({low:g}, {high:g})"
        raise InputError(text, field="atomic_bsz_range", code=ErrorCode.RANGE)
    return 1.0 if low is None else low, high


class Best(NamedTuple):
    """Best configurations [n]: goodput, micro-batch size, accumulation steps."""

    goodput: Floats
    atomic: Floats
    accum: Floats

    def or_better(self, rival: Best) -> Best:
        """Return, case by case, the one of higher goodput; this one if they are equal."""
        better = rival.goodput > self.goodput
        return Best(
            *(np.where(better, new, old) for old, new in zip(self, rival, strict=True))
        )


def best_configurations(
    perf: PerfParams,
    grad: GradParams,
    nodes: IntArray,
    replicas: IntArray,
    limits: BatchLimits,
) -> Best:
    """Return the best configuration of each allocation, see `GoodputModel.optimize`.

    All figures are 0 where the limits allow nothing (with `compat` only the goodput is).

    `nodes`, `replicas`: int64[n].
    `limits`: `least` is the initial batch size.
    """
    # Allocations of as many replicas and the same network time share their answer.
    network = np.asarray(perf.network_time(nodes, replicas))
    cases, inverse = np.unique(replicas + 1j * network, return_inverse=True)
    search = BatchSizeSearch(perf, grad, limits, cases.real, cases.imag, PARAMS)
    best = search.published() if limits.compat else search.exact()
    return Best(*(values[inverse] for values in best))


def accumulation_steps(local: Floats, replicas: Floats, limits: BatchLimits) -> Floats:
    """Return the fewest accumulation steps for batches per replica, by the rule of AdaptDL.

    `local`, `replicas`: float64[...], samples per replica and step, and replicas; of one shape.
    """
    if not limits.accumulation:
        return np.zeros_like(local)
    steps: Floats = np.ceil(local / limits.high - PARAMS.rounding) - 1
    single = (replicas == 1) & (local > limits.least + PARAMS.rounding)
    return np.maximum(steps, single)


@dataclass(frozen=True)
class BatchSizeSearch:
    """The search over whole micro-batch sizes b and micro-batches s = accumulation steps + 1.

    With T the time of a micro-batch and N the gamma-norm of it and of the network time, a step
    takes s T + (N - T). Goodput is b s over this and over an efficiency term that is linear in b s,
    so for a fixed s, as for a fixed b, it is a line over a convex function: it rises up to its
    maximum, then falls. The best b of an s is found by bisection, the best s of a b is the square
    root in `_ideal_steps`, rounded up or down.

    For one and the same batch fewer steps are better: N - T falls with T. From this follows

    1. An s below the best one of the largest b is never better than that.
    2. From the least s that is left on, no b beyond the best one of that s is better.
    3. Up to there the best goodput with b and any real s >= that one does not fall with b, so all b
       below some b are worse than the best known, and only the rest is tried.

    `replicas`, `network`: float64[n], replicas and network time of each case.
    """

    perf: PerfParams
    grad: GradParams
    limits: BatchLimits
    replicas: Floats
    network: Floats
    params: GoodputParams

    def published(self) -> Best:
        """Return the first of the best of the published batch sizes."""
        limits = self.limits
        first = np.maximum(limits.least, limits.low * self.replicas)
        local = (
            np.geomspace(first, limits.most, self.params.batch_sizes) / self.replicas
        )
        accum = accumulation_steps(
            local, np.broadcast_to(self.replicas, local.shape), limits
        )
        atomic = np.ceil(local / (accum + 1) - self.params.rounding)
        goodput = self._allowed_goodput(np.arange(len(first)), atomic, accum + 1)
        index = np.argmax(goodput, axis=0), np.arange(len(first))
        return Best(goodput[index], atomic[index], accum[index])

    def exact(self) -> Best:
        """Return the best of all configurations, 0 where none is allowed."""
        case = np.arange(len(self.replicas))
        best = self._best_size(case, np.ones(len(case)))
        if self.limits.accumulation:
            fewest = self._fewest_steps(case)
            at_fewest = self._best_size(case, fewest)
            best = reduce(
                Best.or_better, [best, at_fewest, self._best_size(case, fewest + 1)]
            )
            best = self._among_sizes(best, fewest, at_fewest.atomic)
        return Best(*(np.where(best.goodput > 0, values, 0.0) for values in best))

    @property
    def _high(self) -> float:
        return float(np.floor(self.limits.high))

    def _fewest_steps(self, case: IntArray) -> Floats:
        # The number of micro-batches below which all are worse, or not allowed.
        samples = self.replicas * self._high
        # One replica has a single micro-batch at the initial batch size only, tried by itself.
        allowed = np.maximum(
            1.0 + (self.replicas == 1), np.ceil(self.limits.least / samples)
        )
        ideal = np.floor(self._ideal_steps(case, np.full(len(case), self._high)))
        return np.maximum(
            allowed, np.minimum(ideal, np.floor(self.limits.most / samples))
        )

    def _best_size(self, case: IntArray, steps: Floats) -> Best:
        samples = self.replicas[case] * steps
        first = np.maximum(
            np.ceil(self.limits.low), np.ceil(self.limits.least / samples)
        )
        last = np.minimum(self._high, np.floor(self.limits.most / samples))
        if self.limits.accumulation:
            single = (self.replicas[case] == 1) & (steps == 1)
            last = np.where(single, np.minimum(last, np.ceil(self.limits.least)), last)
        size = _first_where(lambda size: ~self._rises(case, size, steps), first, last)
        candidates = [
            Best(self._allowed_goodput(case, atomic, steps), atomic, steps - 1)
            for atomic in (np.maximum(size - 1, first), size)
        ]
        return candidates[0].or_better(candidates[1])

    def _among_sizes(self, best: Best, fewest: Floats, size: Floats) -> Best:
        """Return `best`, or better ones with at least `fewest` and other sizes than `size`."""
        case = np.arange(len(fewest))
        enough = best.goodput * (1 + self.params.gain)
        first = np.full(len(fewest), np.ceil(self.limits.low))
        top = np.maximum(first, np.minimum(size + 1, self._high))
        bottom = _first_where(
            lambda b: self._potential(case, b, fewest) > enough, first, size - 1
        )
        limit = self.params.most_sizes
        count = np.minimum(top - bottom + 1, limit).astype(np.int64)
        improved = Best(*(values.copy() for values in best))
        filled = np.flatnonzero(count > 0)
        # Sorted so that the cases of a chunk have about as many sizes.
        filled = filled[np.argsort(count[filled])]
        for chunk in np.array_split(filled, 1 + count.sum() // self.params.at_once):
            last = count[chunk, None] - 1
            offset = np.minimum(np.arange(last.max(initial=0) + 1), last)
            # Of too many the largest, and the smallest, which fit closer limits.
            sizes = (
                np.where(
                    2 * offset < limit, top[chunk, None], bottom[chunk, None] + last
                )
                - offset
            )
            for values in self._best_steps(chunk[:, None], sizes):
                column = values.goodput.argmax(axis=1)[:, None]
                picked = [
                    np.take_along_axis(figures, column, axis=1).ravel()
                    for figures in values
                ]
                better = picked[0] > improved.goodput[chunk]
                for old, new in zip(improved, picked, strict=True):
                    old[chunk[better]] = new[better]
        return improved

    def _best_steps(self, case: IntArray, atomic: Floats) -> Iterator[Best]:
        # With the ideal number of micro-batches, rounded each way.
        samples = self.replicas[case] * atomic
        single = (self.replicas[case] == 1) & (atomic > np.ceil(self.limits.least))
        first = np.maximum(np.ceil(self.limits.least / samples), 1.0 + single)
        last = np.floor(self.limits.most / samples)
        down = np.maximum(
            first, np.minimum(np.floor(self._ideal_steps(case, atomic)), last)
        )
        for steps in (down, np.maximum(first, np.minimum(down + 1, last))):
            yield Best(self._allowed_goodput(case, atomic, steps), atomic, steps - 1)

    def _potential(self, case: IntArray, atomic: Floats, fewest: Floats) -> Floats:
        # The goodput of a size with at least `fewest` micro-batches, any real number.
        samples = self.replicas[case] * np.maximum(atomic, 1.0)
        ideal = np.maximum(self._ideal_steps(case, atomic), self.limits.least / samples)
        return self._goodput(
            case,
            atomic,
            np.maximum(fewest, np.minimum(ideal, self.limits.most / samples)),
        )

    def _ideal_steps(self, case: IntArray, atomic: Floats) -> Floats:
        # The best real number of micro-batches where only efficiency limits it.
        time, norm = self._times(case, atomic)
        sqr, var = self.grad.normalised
        scale = self.replicas[case] * atomic / self.limits.least
        return np.sqrt(var * (norm - time) / np.maximum(time * sqr * scale, 1e-200))

    def _rises(self, case: IntArray, atomic: Floats, steps: Floats) -> BoolArray:
        # Goodput rises with the size: by its logarithmic slope.
        time, norm = self._times(case, atomic)
        sqr, var = self.grad.normalised
        scale = self.replicas[case] * atomic * steps / self.limits.least
        slope = self.perf.beta_c * (steps - 1 + (time / norm) ** (self.perf.gamma - 1))
        return var / (var + sqr * scale) * ((steps - 1) * time + norm) > atomic * slope

    def _allowed_goodput(self, case: IntArray, atomic: Floats, steps: Floats) -> Floats:
        allowed = self.limits.allow(self.replicas[case], atomic, steps - 1)
        return np.where(
            allowed, self._goodput(case, np.maximum(atomic, 1.0), steps), 0.0
        )

    def _goodput(self, case: IntArray, atomic: Floats, steps: Floats) -> Floats:
        time, norm = self._times(case, atomic)
        batch = self.replicas[case] * atomic * steps
        efficiency = self.grad.efficiency(batch / self.limits.least)
        return batch / ((steps - 1) * time + norm) * efficiency

    def _times(self, case: IntArray, atomic: Floats) -> tuple[Floats, Floats]:
        time = self.perf.alpha_c + self.perf.beta_c * atomic
        return time, gamma_norm(time, self.network[case], self.perf.gamma)


def _first_where(
    holds: Callable[[Floats], BoolArray], first: Floats, last: Floats
) -> Floats:
    # The least whole numbers from `first` on where something holds, `last` where it never does.
    low, high = first, np.maximum(first, last)
    while np.any(low < high):
        middle = np.floor((low + high) / 2)
        done = holds(middle)
        low, high = (
            np.where(done, low, np.minimum(middle + 1, high)),
            np.where(done, middle, high),
        )
    return low

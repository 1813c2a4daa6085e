"""A run in a few numbers, as far as its trace tells: times, transfers, jitter, costs, stalls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ppsolve.models.core.problem import FREE
from ppsolve.models.studies.trace.table import KINDS, NUM_COMPUTE, Trace
from ppsolve.solver.studies.traces.clocks import (
    aligned,
    boundaries_of,
    precedences_of,
    recorded_span,
)


@dataclass(frozen=True)
class TraceFitParams:
    """What counts as unusual. Ordinary steps of the published Primus trace are within 1.006."""

    step: float = 1.05  # times the median span, of a step that is looked at
    op: float = 2.0  # times the usual op of its stage and kind, relative to its micro-batch
    lengths: int = 3  # fewest different lengths to which costs are fitted


FIT_PARAMS = TraceFitParams()

WAITING = (
    "transfers: bandwidth cannot be fitted, as no send is recorded without waiting; give rows of "
    "kind TF and TB with bytes"
)


@dataclass(frozen=True)
class StageTime:
    """Durations of the ops of one kind on one stage, nanoseconds."""

    stage: int
    kind: str
    median: float
    # median time after an op in which its device does not go on although the input of its next op
    # is there: blocking sends and receives, launches, Python. 0 where that is never seen
    held: float
    # standard deviation over mean, jitter; 1.4826 times the median deviation from the median takes
    # the place of the standard deviation, so that a few stalls do not count
    variation: float


@dataclass(frozen=True)
class TransferFit:
    """Time of a transfer: latency + bytes / bandwidth."""

    latency: float  # nanoseconds. From round trips it is the time for which no device is held
    bandwidth: float | None  # bytes per nanosecond; None where it cannot be fitted


@dataclass(frozen=True)
class CostFit:
    """Durations of one kind on one stage over the length L: constant + per_token L + per_square L².

    In nanoseconds, none negative; `error` is the median of |fitted - recorded| / recorded.
    """

    stage: int
    kind: str
    constant: float
    per_token: float
    per_square: float
    error: float


@dataclass(frozen=True)
class UnusualStep:
    """A replica-step that took far longer than most, and the op that stands out in it."""

    step: int
    replica: int
    reason: str  # ``warm-up`` for the steps at the beginning, else ``stall``
    ratio: float  # its span over the median span
    # op that took the longest beyond its usual time, ``F2.8`` (stage, micro-batch), and its rank
    op: str
    device: int
    excess: float  # nanoseconds beyond its usual time

    def __str__(self) -> str:
        """Return one sentence that names step, op and rank."""
        where = f"step {self.step}" + (f", replica {self.replica}" if self.replica else "")
        return (
            f"{where}: {self.reason}, {self.ratio:.2f} times the median span; {self.op} on rank "
            f"{self.device} takes {self.excess / 1e6:.4g} ms longer than usual"
        )


@dataclass(frozen=True)
class Fits:
    """All that was fitted to a trace, and what could not be."""

    stage_times: tuple[StageTime, ...]  # by stage and kind
    jitter: dict[str, float]  # median variation over the stages, by kind
    transfer: TransferFit | None  # None where nothing tells of transfers
    costs: tuple[CostFit, ...]  # empty where no lengths are given
    unusual: tuple[UnusualStep, ...]  # by step and replica
    warnings: tuple[str, ...]  # what a trace like this cannot tell, and why


def fit(trace: Trace) -> Fits:
    """Fit all that a checked trace can tell; unusual steps do not count."""
    unusual = tuple(unusual_steps(trace))
    left_out = {(one.step, one.replica) for one in unusual}
    pairs = zip(trace.step.tolist(), trace.replica.tolist(), strict=True)
    kept = trace.where(np.array([pair not in left_out for pair in pairs], dtype=np.bool_))
    kept = kept if len(kept) else trace
    parts = [part.where(part.is_compute) for _, _, part in kept.parts()]
    one_way = one_way_of(parts)
    times = tuple(_stage_times(kept, _held_times(parts, one_way or 0.0)))
    transfer, warnings = _transfer(kept, one_way, times)
    costs, more = _costs(kept)
    jitter = {
        kind: float(np.median([one.variation for one in times if one.kind == kind]))
        for kind in dict.fromkeys(one.kind for one in times)
    }
    return Fits(times, jitter, transfer, costs, unusual, (*warnings, *more))


def _by_stage_and_kind(trace: Trace) -> Iterator[tuple[int, int, Trace]]:
    for stage in range(int(trace.stage.max()) + 1):
        for kind in range(NUM_COMPUTE):
            group = trace.where((trace.stage == stage) & (trace.kind == kind))
            if len(group):
                yield stage, kind, group


def _stage_times(trace: Trace, held: Mapping[tuple[int, int], float]) -> Iterator[StageTime]:
    for stage, kind, group in _by_stage_and_kind(trace):
        lengths = group.duration
        median, mean = float(np.median(lengths)), float(lengths.mean())
        spread = 1.4826 * float(np.median(np.abs(lengths - median)))
        variation = spread / mean if mean else 0.0
        after = held.get((stage, kind), 0.0)
        yield StageTime(stage, KINDS[kind], median, after, variation)


def _held_times(parts: Sequence[Trace], latency: float) -> dict[tuple[int, int], float]:
    """Return the median time for which devices are held after their ops, by stage and kind.

    Counted are gaps before ops that wait for no other device: what they need from one was made
    twice the latency before the op that ran before them ended.
    """
    gaps: dict[tuple[int, int], list[int]] = {}
    for part in map(aligned, parts):
        before, after = precedences_of(part)
        away = part.device[before] != part.device[after]
        made = np.full(len(part), np.iinfo(np.int64).min // 2)
        made[after[away]] = part.end[before[away]]
        order = np.lexsort((part.end, part.start, part.device))
        last, following = order[:-1], order[1:]
        counts = part.device[last] == part.device[following]
        counts &= made[following].astype(float) + 2 * latency <= part.end[last]
        for row, next_row in zip(last[counts].tolist(), following[counts].tolist(), strict=True):
            key = int(part.stage[row]), int(part.kind[row])
            gaps.setdefault(key, []).append(int(part.start[next_row] - part.end[row]))
    return {key: max(0.0, float(np.median(found))) for key, found in gaps.items()}


def unusual_steps(trace: Trace) -> Iterator[UnusualStep]:
    """Yield the replica-steps that took far longer than most because of single ops.

    A step counts if its span and one of its ops are as `TraceFitParams` says. At the beginning of a
    trace that is warm-up, later a stall.
    """
    compute = trace.where(trace.is_compute)
    usual = {(one.stage, one.kind): one.median for one in _stage_times(compute, {})}
    parts = [(step, replica, part, recorded_span(part)) for step, replica, part in compute.parts()]
    median = float(np.median([span for *_, span in parts]))
    warm = True
    first = int(compute.step.min())
    for step, replica, part, span in parts:
        found = _unusual_op(part, usual) if span > FIT_PARAMS.step * median else None
        warm = warm and (step == first or found is not None)
        if found is not None:
            row, excess = found
            reason = "warm-up" if warm and len(parts) > 1 else "stall"
            device = int(part.device[row])
            yield UnusualStep(step, replica, reason, span / median, part.op(row), device, excess)


def _unusual_op(part: Trace, usual: dict[tuple[int, str], float]) -> tuple[int, float] | None:
    pairs = zip(part.stage.tolist(), part.kind.tolist(), strict=True)
    expected = np.array([usual[stage, KINDS[kind]] for stage, kind in pairs])
    ratio = part.duration / np.maximum(expected, 1.0)
    own = np.zeros(int(part.microbatch.max()) + 1)
    for microbatch in range(len(own)):
        # The lower middle: of two ops, one of which stalled, the other one is usual.
        own[microbatch] = np.percentile(ratio[part.microbatch == microbatch], 50, method="lower")
    usually = expected * own[part.microbatch]
    stands_out = part.duration > FIT_PARAMS.op * usually
    if not np.any(stands_out):
        return None
    excess = np.where(stands_out, part.duration - usually, -1.0)
    row = int(np.argmax(excess))
    return row, float(excess[row])


def one_way_of(parts: Sequence[Trace]) -> float | None:
    """Return half of the median round trip of the fastest transfers between ops, in nanoseconds.

    None for one device; negative where clocks are off by more. What it takes includes the time for
    which sender and receiver are held.
    """
    trips = [boundary.round_trip for part in parts for boundary in boundaries_of(part)]
    return float(np.median(trips)) / 2 if trips else None


def _transfer(
    trace: Trace, one_way: float | None, times: Sequence[StageTime]
) -> tuple[TransferFit | None, list[str]]:
    sent = ~trace.is_compute
    if np.any(sent):
        return _from_transfers(trace.where(sent))
    if one_way is None:
        return None, ["transfers: a single device has none"]
    if one_way < 0:
        text = "transfers: latency cannot be fitted, clocks are off by more than transfers take"
        return None, [text, WAITING]
    held = float(np.median([one.held for one in times]))
    return TransferFit(max(0.0, one_way - held), None), [WAITING]


def _from_transfers(sent: Trace) -> tuple[TransferFit, list[str]]:
    """Fit a line to the median time of each size; a size that was not recorded has no slope."""
    median = float(np.median(sent.duration))
    sizes = np.unique(sent.bytes[sent.bytes != FREE])
    if len(sizes) < 2:
        text = "transfers: bandwidth cannot be fitted, all that say their bytes are of one size"
        return TransferFit(median, None), [text]
    middles = [float(np.median(sent.duration[sent.bytes == size])) for size in sizes]
    slope, latency = (float(number) for number in np.polyfit(sizes.astype(float), middles, 1))
    if slope <= 0:
        text = "transfers: bandwidth cannot be fitted, larger transfers take no longer"
        return TransferFit(median, None), [text]
    if latency < 0:
        # A line through the origin is the best one that no transfer contradicts.
        slope = float(np.dot(sizes, middles) / np.dot(sizes, sizes.astype(float)))
        latency = 0.0
    return TransferFit(latency, 1 / slope), []


def _costs(trace: Trace) -> tuple[tuple[CostFit, ...], list[str]]:
    known = trace.where(trace.is_compute & (trace.length > 0))
    if not len(known):
        return (), ["costs over lengths cannot be fitted, no lengths are recorded"]
    found, lacking = [], []
    for stage, kind, group in _by_stage_and_kind(known):
        if len(np.unique(group.length)) >= FIT_PARAMS.lengths:
            found.append(_cost(group, stage, KINDS[kind]))
        else:
            lacking.append(f"{KINDS[kind]} of stage {stage}")
    text = f"costs over lengths need {FIT_PARAMS.lengths} lengths, fewer are recorded of "
    return tuple(found), [text + ", ".join(lacking)] if lacking else []


def _cost(group: Trace, stage: int, kind: str) -> CostFit:
    """Fit the non-negative cost with the least squares of relative errors.

    Of the seven choices of terms that may be above zero, the best whose terms all are: with three
    terms that is exact, and needs no solver.
    """
    length, time = group.length.astype(float), np.maximum(group.duration.astype(float), 1.0)
    terms = np.stack([np.ones_like(length), length, length**2], axis=1) / time[:, None]
    scale = terms.max(axis=0)
    best, least = np.zeros(3), float(len(time))
    for choice in range(1, 8):
        used = [term for term in range(3) if choice >> term & 1]
        solved = np.linalg.lstsq(terms[:, used] / scale[used], np.ones(len(time)), rcond=None)[0]
        if np.any(solved < 0):
            continue
        numbers = np.zeros(3)
        numbers[used] = solved / scale[used]
        left = float(np.sum((terms @ numbers - 1) ** 2))
        if left < least - 1e-12:
            best, least = numbers, left
    error = float(np.median(np.abs(terms @ best - 1)))
    constant, per_token, per_square = best.tolist()
    return CostFit(stage, kind, constant, per_token, per_square, error)

"""A run as far as its trace tells: order of ops, clocks made one, times, jitter, stalls."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TypeVar

import numpy as np

from ppsolve.models.core.problem import FREE, IntArray
from ppsolve.models.documents.errors import InputError
from ppsolve.models.studies.trace.table import KINDS, NUM_COMPUTE, Trace, tolerance_of

F, B, I, W = (KINDS.index(name) for name in "FBIW")  # noqa: E741 - the letters of the ops


@dataclass(frozen=True)
class Boundary:
    """Clocks of two neighbouring devices, compared by the transfers between them."""

    device: int  # the first of the two; the other one is the next
    offset: int  # nanoseconds to add to the clock of the next device
    # nanoseconds that the fastest transfers there and back take together. Negative where the
    # recorded order of ops is impossible on any two steady clocks
    round_trip: int


def op_table(trace: Trace) -> IntArray:
    """Return row numbers of a replica-step, int64[kinds, stages, micro-batches]; `FREE`: absent."""
    shape = (len(KINDS), int(trace.stage.max()) + 1, int(trace.microbatch.max()) + 1)
    table = np.full(shape, FREE, dtype=np.int64)
    table[trace.kind, trace.stage, trace.microbatch] = np.arange(len(trace))
    return table


def precedences_of(trace: Trace) -> tuple[IntArray, IntArray]:
    """Return rows (before, after), each int64[k], of a replica-step: the rules of a pipeline.

    F after F of the stage before; B (or I) after that of the stage behind; B (or I) after F of its
    stage; W after I.
    """
    table = op_table(trace)
    back = I if np.any(table[I] != FREE) else B
    pairs = [
        (table[F, :-1], table[F, 1:]),
        (table[back, 1:], table[back, :-1]),
        (table[F], table[back]),
    ]
    if back == I:
        pairs.append((table[I], table[W]))
    before = np.concatenate([first.ravel() for first, _ in pairs])
    after = np.concatenate([second.ravel() for _, second in pairs])
    return before, after


def refuse_early(trace: Trace, tolerance: int | None = None) -> None:
    """Refuse a replica-step whose clocks contradict the rules of a pipeline.

    Raises `InputError` where an op starts before an op that it needs has ended; names file and op.

    `trace`: one replica-step, checked. Devices are not compared where clocks have no
        common zero.
    `tolerance`: nanoseconds by which clocks may be off; by default as `tolerance_of`
        says.
    """
    before, after = precedences_of(trace)
    comparable = (trace.device[before] == trace.device[after]) | trace.is_aligned
    late = np.where(comparable, trace.end[before] - trace.start[after], 0)
    allowed = tolerance_of(trace) if tolerance is None else tolerance
    if np.any(late > allowed):
        worst = int(np.argmax(late))
        amount, limit = trace.times((late[worst], allowed))
        earlier = trace.op(int(before[worst]))
        raise trace.error(
            int(after[worst]),
            f"starts {amount} {trace.unit} before {earlier} ends, which it needs; expected clocks "
            f"that are off by at most {limit}",
        )


def boundaries_of(trace: Trace) -> list[Boundary]:
    """Return the comparison of the clocks of each device and the next, of a replica-step.

    A transfer cannot arrive before it leaves. Those from device d to d + 1 therefore bound the
    offset of the clock of d + 1 from below, those back from above. In the middle the fastest
    transfer takes as long in either direction, the assumption of NTP (RFC 5905, section 8).
    """
    before, after = precedences_of(trace)
    gap = trace.start[after] - trace.end[before]
    source, target = trace.device[before], trace.device[after]
    boundaries = []
    for device in range(int(trace.device.max())):
        forth = gap[(source == device) & (target == device + 1)]
        back = gap[(source == device + 1) & (target == device)]
        low = high = 0
        if len(forth) and len(back):
            low, high = -int(forth.min()), int(back.min())
        boundaries.append(Boundary(device, (low + high) // 2, high - low))
    return boundaries


def aligned(trace: Trace) -> Trace:
    """Return a replica-step on one clock: as it is, or with the offsets of `boundaries_of`."""
    if trace.is_aligned:
        return trace
    offsets = np.cumsum([0, *(boundary.offset for boundary in boundaries_of(trace))])
    shift = offsets[trace.device] - int((trace.start + offsets[trace.device]).min())
    return replace(
        trace, start=trace.start + shift, end=trace.end + shift, is_aligned=True
    )


def recorded_span(trace: Trace) -> int:
    """Return nanoseconds from first start to last end of the compute ops of a replica-step.

    Where clocks have no common zero it is the longest span of one device, on its own clock.
    """
    trace = trace.where(trace.is_compute)
    if trace.is_aligned:
        return int(trace.end.max() - trace.start.min())
    lanes = (trace.where(trace.device == device) for device in np.unique(trace.device))
    return max(int(lane.end.max() - lane.start.min()) for lane in lanes)


Made = TypeVar("Made")


def kept_steps(trace: Trace, make: Callable[[Trace], Made]) -> tuple[Trace, list[Made]]:
    """Make something of each replica-step; leave out the steps in which one is refused.

    Return the steps that are left, with a warning for each of the others, and what was made of
    their replicas, by step, then by replica. Raises the first `InputError` where no step is left.

    `make`: takes a replica-step; raises an `InputError` where its times are impossible.
    """
    results: list[tuple[int, Made]] = []
    refused: dict[int, InputError] = {}
    for step, _, replica_step in trace.parts():
        if step not in refused:
            try:
                results.append((step, make(replica_step)))
            except InputError as error:
                refused[step] = error
    kept = trace.where(~np.isin(trace.step, list(refused)))
    if not len(kept):
        raise next(iter(refused.values()))
    warnings = [f"step {step} is left out: {error}" for step, error in refused.items()]
    return kept.warn(*warnings), [
        result for step, result in results if step not in refused
    ]


@dataclass(frozen=True)
class TraceFitParams:
    """What counts as unusual. Ordinary steps of the published Primus trace are within 1.006."""

    step: float = 1.05  # times the median span, of a step that is looked at
    op: float = (
        2.0  # times the usual op of its stage and kind, relative to its micro-batch
    )


FIT_PARAMS = TraceFitParams()


@dataclass(frozen=True)
class StageTime:
    """Durations of the ops of one kind on one stage, nanoseconds."""

    stage: int
    kind: str
    median: float
    # median time after an op in which its device does not go on although the input of its next op
    # is there and no neighbour is waited for: launches, copies, Python. 0 where that is never seen
    held: float
    # standard deviation over mean, jitter; 1.4826 times the median deviation from the median takes
    # the place of the standard deviation, so that a few stalls do not count
    variation: float


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
        label = f"step {self.step}" + (
            f", replica {self.replica}" if self.replica else ""
        )
        return (
            f"{label}: {self.reason}, {self.ratio:.2f} times the median span; {self.op} on rank "
            f"{self.device} takes {self.excess / 1e6:.4g} ms longer than usual"
        )


@dataclass(frozen=True)
class Fits:
    """All that was fitted to a trace, and what could not be."""

    stage_times: tuple[StageTime, ...]  # by stage and kind
    jitter: dict[str, float]  # median variation over the stages, by kind
    # nanoseconds of a transfer beyond the time that devices are held; None where nothing tells it
    latency: float | None
    unusual: tuple[UnusualStep, ...]  # by step and replica
    warnings: tuple[str, ...]  # what a trace like this cannot tell, and why


def fit(trace: Trace) -> Fits:
    """Fit all that a checked trace can tell; unusual steps do not count."""
    unusual = tuple(unusual_steps(trace))
    left_out = {(step.step, step.replica) for step in unusual}
    pairs = zip(trace.step.tolist(), trace.replica.tolist(), strict=True)
    kept = trace.where(
        np.array([pair not in left_out for pair in pairs], dtype=np.bool_)
    )
    kept = kept if len(kept) else trace
    computes = [
        replica_step.where(replica_step.is_compute)
        for _, _, replica_step in kept.parts()
    ]
    one_way = one_way_of(computes)
    times = tuple(_stage_times(kept, _held_times(computes, one_way or 0.0)))
    latency, warnings = _latency(kept, one_way, times)
    jitter = {
        kind: float(np.median([time.variation for time in times if time.kind == kind]))
        for kind in dict.fromkeys(time.kind for time in times)
    }
    return Fits(times, jitter, latency, unusual, warnings)


def _stage_times(
    trace: Trace, held: Mapping[tuple[int, int], float]
) -> Iterator[StageTime]:
    for stage, kind in product(range(int(trace.stage.max()) + 1), range(NUM_COMPUTE)):
        lengths = trace.duration[(trace.stage == stage) & (trace.kind == kind)]
        if not len(lengths):
            continue
        median, mean = float(np.median(lengths)), float(lengths.mean())
        spread = 1.4826 * float(np.median(np.abs(lengths - median)))
        variation = spread / mean if mean else 0.0
        after = held.get((stage, kind), 0.0)
        yield StageTime(stage, KINDS[kind], median, after, variation)


def _held_times(
    traces: Sequence[Trace], latency: float
) -> dict[tuple[int, int], float]:
    """Return the median time for which devices are held after their ops, by stage and kind.

    Counted are gaps before ops that wait for no other device: what they need from one was made
    twice the latency before the op that ran before them ended. A call in the gap may still wait for
    a neighbour that computes: a gap begins when the last such neighbour is done.
    """
    gaps: dict[tuple[int, int], list[int]] = {}
    for trace in map(aligned, traces):
        before, after = precedences_of(trace)
        away = trace.device[before] != trace.device[after]
        sent = np.full(len(trace), np.iinfo(np.int64).min // 2)
        sent[after[away]] = trace.end[before[away]]
        order = np.lexsort((trace.end, trace.start, trace.device))
        last, following = order[:-1], order[1:]
        counts = trace.device[last] == trace.device[following]
        counts &= sent[following].astype(float) + 2 * latency <= trace.end[last]
        neighbours = _TransferPeers.of(trace, before[away], after[away])
        for row, next_row in zip(
            last[counts].tolist(), following[counts].tolist(), strict=True
        ):
            key = int(trace.stage[row]), int(trace.kind[row])
            end, start = int(trace.end[row]), int(trace.start[next_row])
            begin = neighbours.done(int(trace.device[row]), end, start)
            gaps.setdefault(key, []).append(start - begin)
    return {key: max(0.0, float(np.median(lengths))) for key, lengths in gaps.items()}


@dataclass(frozen=True)
class _TransferPeers:
    """When devices that exchange data with each other end their ops."""

    ends: Mapping[int, list[int]]  # sorted, by device
    peers: Mapping[int, frozenset[int]]

    @classmethod
    def of(cls, trace: Trace, before: IntArray, after: IntArray) -> _TransferPeers:
        """Return those of a replica-step whose rows `before` send to the rows `after`."""
        peers: dict[int, set[int]] = {}
        devices = trace.device
        for source, target in set(
            zip(devices[before].tolist(), devices[after].tolist(), strict=True)
        ):
            peers.setdefault(source, set()).add(target)
            peers.setdefault(target, set()).add(source)
        ends = {
            device: np.sort(trace.end[devices == device]).tolist() for device in peers
        }
        return cls(ends, {device: frozenset(row) for device, row in peers.items()})

    def done(self, device: int, begin: int, end: int) -> int:
        """Return the last end, from `begin` to `end`, of an op that a device may wait for.

        A neighbour that ends none in that time may wait for its own neighbours.
        """
        latest, seen, waiting = begin, {device}, [device]
        while waiting:
            for peer in self.peers.get(waiting.pop(), frozenset()) - seen:
                seen.add(peer)
                number = bisect_right(self.ends[peer], end)
                if number and self.ends[peer][number - 1] > begin:
                    latest = max(latest, self.ends[peer][number - 1])
                else:
                    waiting.append(peer)
        return latest


def unusual_steps(trace: Trace) -> Iterator[UnusualStep]:
    """Yield the replica-steps that took far longer than most because of single ops.

    A step counts if its span and one of its ops are as `TraceFitParams` says. At the beginning of a
    trace that is warm-up, later a stall.
    """
    compute = trace.where(trace.is_compute)
    usual = {(time.stage, time.kind): time.median for time in _stage_times(compute, {})}
    rows = [
        (step, replica, replica_step, recorded_span(replica_step))
        for step, replica, replica_step in compute.parts()
    ]
    median = float(np.median([span for *_, span in rows]))
    warm = True
    first = int(compute.step.min())
    for step, replica, replica_step, span in rows:
        outlier = (
            _unusual_op(replica_step, usual)
            if span > FIT_PARAMS.step * median
            else None
        )
        warm = warm and (step == first or outlier is not None)
        if outlier is not None:
            row, excess = outlier
            reason = "warm-up" if warm and len(rows) > 1 else "stall"
            device = int(replica_step.device[row])
            yield UnusualStep(
                step,
                replica,
                reason,
                span / median,
                replica_step.op(row),
                device,
                excess,
            )


def _unusual_op(
    trace: Trace, usual: dict[tuple[int, str], float]
) -> tuple[int, float] | None:
    pairs = zip(trace.stage.tolist(), trace.kind.tolist(), strict=True)
    expected = np.array([usual[stage, KINDS[kind]] for stage, kind in pairs])
    ratio = trace.duration / np.maximum(expected, 1.0)
    factors = np.zeros(int(trace.microbatch.max()) + 1)
    for microbatch in range(len(factors)):
        # The lower middle: of two ops, one of which stalled, the other one is usual.
        factors[microbatch] = np.percentile(
            ratio[trace.microbatch == microbatch], 50, method="lower"
        )
    usually = expected * factors[trace.microbatch]
    stands_out = trace.duration > FIT_PARAMS.op * usually
    if not np.any(stands_out):
        return None
    excess = np.where(stands_out, trace.duration - usually, -1.0)
    row = int(np.argmax(excess))
    return row, float(excess[row])


def one_way_of(traces: Sequence[Trace]) -> float | None:
    """Return half of the median round trip of the fastest transfers between ops, in nanoseconds.

    None for one device; negative where clocks are off by more. What it takes includes the time for
    which sender and receiver are held.
    """
    trips = [
        boundary.round_trip for trace in traces for boundary in boundaries_of(trace)
    ]
    return float(np.median(trips)) / 2 if trips else None


def _latency(
    trace: Trace, one_way: float | None, times: Sequence[StageTime]
) -> tuple[float | None, tuple[str, ...]]:
    sent = ~trace.is_compute
    if np.any(sent):
        return float(np.median(trace.duration[sent])), ()
    if one_way is None:
        return None, ("transfers: a single device has none",)
    if one_way < 0:
        text = "transfers: latency cannot be fitted, clocks are off by more than transfers take"
        return None, (text,)
    held = float(np.median([time.held for time in times]))
    return max(0.0, one_way - held), ()

"""The neutral table of a recorded run: one row per op, whatever program wrote it; and checks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Self

import numpy as np

from ppsolve.models.core.problem import FREE, BoolArray, IntArray
from ppsolve.models.core.timescale import UNITS_PER_SECOND
from ppsolve.models.documents.errors import ErrorCode, InputError

KINDS = ("F", "B", "I", "W", "TF", "TB")
"""Kinds of ops by number: forward, fused backward, input- and weight-gradient backward, and the
transfers of an activation and of a gradient that leave a stage."""

NUM_COMPUTE = KINDS.index("TF")
"""Kinds below this number are compute ops."""

NANOSECONDS = {
    unit: UNITS_PER_SECOND["ns"] // count for unit, count in UNITS_PER_SECOND.items()
}
"""Nanoseconds of each unit that times of a trace may be written in."""

COLUMNS = (
    "step",
    "replica",
    "stage",
    "chunk",
    "kind",
    "microbatch",
    "start",
    "end",
    "device",
)
"""Columns that every op has."""

OPTIONAL = ("length", "origin")
"""Columns that may be `FREE`: unknown."""

EVERY = (*COLUMNS, *OPTIONAL)
"""All columns."""


@dataclass(frozen=True)
class Notes:
    """Remarks on how a trace was read."""

    # share of its working time, 0 to 1, that no op of the table explains, by rank
    unexplained: Mapping[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()  # sentences for the user, in no order


@dataclass(frozen=True, eq=False)
class Trace:
    """Recorded ops as columns; times in integer nanoseconds from a common zero of each step."""

    # int64[n]: numbers from 0, steps excepted, which keep theirs. `chunk` counts the stages of a
    # device, `device` those of a replica; the stages of an op vector are numbered along the
    # pipeline
    step: IntArray
    replica: IntArray
    stage: IntArray
    chunk: IntArray
    kind: IntArray  # int64[n]: index into `KINDS`
    microbatch: IntArray
    # int64[n]: nanoseconds. Where `is_aligned` is false every device has its own zero in every step
    start: IntArray
    end: IntArray
    device: IntArray
    length: IntArray  # int64[n]: length of the sequences of the micro-batch, `FREE` where unknown
    origin: IntArray  # int64[n]: index into `sources`
    unit: str  # unit of the documents made from the trace: that of the source
    sources: tuple[str, ...]
    format: str
    is_aligned: bool = True  # whether the clocks of all devices of a replica agree
    noise: int = 0  # nanoseconds by which ops of a device overlap all over the run, see `noise_of`
    notes: Notes = Notes()

    @classmethod
    def of(cls, columns: Mapping[str, Any], **about: Any) -> Self:
        """Make a trace of columns, not yet checked.

        `columns`: all of `COLUMNS`, each of length n, and any of `OPTIONAL`.
        """
        free = np.full(len(columns["step"]), FREE)
        with_defaults = {"length": free, "origin": np.zeros_like(free), **columns}
        about |= {name: np.asarray(with_defaults[name], np.int64) for name in EVERY}
        return cls(**about)

    def __len__(self) -> int:
        """Return the number of ops n."""
        return len(self.step)

    @property
    def duration(self) -> IntArray:
        """Duration of each op in nanoseconds, int64[n]."""
        return self.end - self.start

    @property
    def is_compute(self) -> BoolArray:
        """Ops that occupy a device, bool[n]."""
        return self.kind < NUM_COMPUTE

    def where(self, mask: Any) -> Self:
        """Return the trace of some rows only; `mask` is bool[n] or row numbers."""
        columns: dict[str, Any] = {name: getattr(self, name)[mask] for name in EVERY}
        return replace(self, **columns)

    def warn(self, *warnings: str) -> Self:
        """Return the trace with further warnings."""
        notes = replace(self.notes, warnings=(*self.notes.warnings, *warnings))
        return replace(self, notes=notes)

    def parts(self) -> Iterator[tuple[int, int, Self]]:
        """Yield step, replica and the rows of each replica-step, by step, then by replica."""
        order = np.lexsort((self.replica, self.step))
        keys = np.stack([self.step[order], self.replica[order]])
        cuts = np.flatnonzero(np.any(np.diff(keys, axis=1) != 0, axis=0)) + 1
        for rows in np.split(order, cuts):
            if len(rows):
                replica_step = self.where(np.sort(rows))
                yield (
                    int(replica_step.step[0]),
                    int(replica_step.replica[0]),
                    replica_step,
                )

    def times(
        self, nanoseconds: Iterable[int], unit: str | None = None
    ) -> list[Decimal]:
        """Return times exactly in a unit, by default that of the trace."""
        scale = Decimal(NANOSECONDS[unit or self.unit])
        return [Decimal(int(time)) / scale for time in nanoseconds]

    def op(self, row: int) -> str:
        """Return the name of the op of a row: ``F1.2`` (stage, micro-batch)."""
        return f"{KINDS[self.kind[row]]}{self.stage[row]}.{self.microbatch[row]}"

    def error(self, row: int, message: str) -> InputError:
        """Return an error about a row, which names its file, step, replica and op.

        `message`: what is wrong with the row and what would be right.
        """
        origin = int(self.origin[row])
        source = self.sources[origin] if origin < len(self.sources) else None
        label = f"step {self.step[row]}, replica {self.replica[row]}: {self.op(row)}"
        return InputError(message, source=source, field=label)


def joined(traces: Sequence[Trace]) -> Trace:
    """Return the rows of several traces of one run as one; the first says unit and format."""
    first = traces[0]
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(trace, name) for trace in traces])
        for name in EVERY
    }
    offsets = np.cumsum([0, *(len(trace.sources) for trace in traces[:-1])])
    columns["origin"] = np.concatenate(
        [trace.origin + offset for trace, offset in zip(traces, offsets, strict=True)]
    )
    unexplained = {
        rank: share
        for trace in traces
        for rank, share in trace.notes.unexplained.items()
    }
    warnings = tuple(text for trace in traces for text in trace.notes.warnings)
    return replace(
        first,
        **columns,
        sources=tuple(name for trace in traces for name in trace.sources),
        is_aligned=all(trace.is_aligned for trace in traces),
        notes=Notes(unexplained, warnings),
    )


@dataclass(frozen=True)
class TraceLimits:
    """What no run has, and what clocks are forgiven.

    In the three traces of the straggler study (arXiv 2505.05713) ops of a device overlap by up to
    4, 26 and 120 microseconds, 0.00003 to 0.0003 of the median op.
    """

    largest: int = 10**6  # stages, micro-batches, devices, replicas
    longest_ns: int = 10**18  # of one op: 31 years, so that sums fit int64
    clock_ns: int = 100_000  # by which clocks may contradict the order of ops
    clock_share: float = (
        0.02  # and no more than this share of the median op of the step
    )
    least_overlaps: int = (
        20  # of a run, from which on they tell the noise of its clocks
    )
    jump: float = 2.0  # times all shorter overlaps, of an overlap that is no noise


LIMITS = TraceLimits()


def checked(trace: Trace) -> Trace:
    """Return a trace that is whole, sorted by step, replica, device and start.

    Every replica-step has, for every stage and micro-batch, a forward and either a fused backward
    or both halves of one, each once; stages and micro-batches count from 0. An `InputError` names
    the file and the op that is missing, twice, or impossible.
    """
    if not np.any(trace.is_compute):
        source = trace.sources[0] if trace.sources else None
        raise InputError(
            "expected ops of a pipeline, there is none",
            source=source,
            code=ErrorCode.MISSING,
        )
    _refuse_numbers(trace)
    order = np.lexsort(
        (trace.end, trace.start, trace.device, trace.replica, trace.step)
    )
    trace = trace.where(order)
    _refuse_twice(trace)
    _refuse_moving_stages(trace)
    for _, _, replica_step in trace.parts():
        _refuse_gaps(replica_step)
    _refuse_other_shapes(trace)
    return replace(trace, noise=noise_of(trace))


def tolerance_of(trace: Trace) -> int:
    """Return the nanoseconds by which recorded times may contradict the order of ops.

    That is the error of clocks, and what numbers of the trace's resolution cannot tell apart.
    """
    return round(
        clock_error_of(trace) + min(resolution_of(trace), _median_op(trace) / 2)
    )


def clock_error_of(trace: Trace) -> float:
    """Return the nanoseconds by which clocks may be off: a fixed limit, or the noise of the run."""
    noise = max(LIMITS.clock_ns, trace.noise - resolution_of(trace))
    return min(noise, LIMITS.clock_share * _median_op(trace))


def noise_of(trace: Trace) -> int:
    """Return the nanoseconds by which ops of a device overlap all over a run.

    The bulk of overlaps is noise of clocks, an outlier is a fault. Noise is drawn thousands of
    times in a run: sorted by length its overlaps leave no gap, whatever their scale is, while two
    ops that really overlap do so by some share of an op. So overlaps are noise from the shortest up
    to the first that is `LIMITS.jump` times as long as the one before, sought from the median on,
    where short ones are dense. That median is the smaller one of those of all overlaps and of the
    longest of each replica-step: a faulty step may have most overlaps, but most steps are right.
    Overlaps above `LIMITS.clock_share` of the median op are no noise whatever their number, and
    fewer than `LIMITS.least_overlaps` tell none: 0. Else it is the longest overlap that is noise.

    `trace`: a run, sorted as `checked` does.
    """
    compute = trace.where(trace.is_compute & (trace.end > trace.start))
    replica_step = np.stack([compute.step, compute.replica])
    is_next = np.all(np.diff(np.vstack([replica_step, compute.device])) == 0, axis=0)
    excess = np.where(is_next, compute.end[:-1] - compute.start[1:], 0)
    excess[excess > LIMITS.clock_share * _median_op(trace)] = 0
    overlaps = np.sort(excess[excess > 0])
    if len(overlaps) < LIMITS.least_overlaps:
        return 0
    begins = np.any(np.diff(replica_step, prepend=FREE - 1) != 0, axis=0)
    longest = np.maximum.reduceat(np.append(excess, 0), np.flatnonzero(begins))
    median = min(np.median(overlaps), np.median(longest))
    tail = np.array([median, *overlaps[overlaps > median]])
    jump = _first(tail[1:] > LIMITS.jump * tail[:-1])
    return int(tail[-1] if jump is None else tail[jump])


def _median_op(trace: Trace) -> float:
    return float(np.median(trace.duration[trace.is_compute]))


def resolution_of(trace: Trace) -> float:
    """Return the nanoseconds by which an op may seem to overlap the next by rounding alone.

    Where an end is a start plus a duration, the start of the op and that of the next one are off
    by half a step of the numbers each. Ends that were rounded as starts are never come after the
    start that follows, so tables, which have ends, are only asked for single precision.
    """
    unit = NANOSECONDS[trace.unit]
    for times in (trace.start, trace.duration):
        single = np.float32(times / unit).astype(np.float64) * unit
        if np.any(np.abs(single - times) > 1):
            is_whole = not np.any((trace.start % 1000) | (trace.duration % 1000))
            return 1000.0 if is_whole and trace.format != "table" else 0.0
    return float(np.spacing(np.float32(np.abs(trace.start).max() / unit))) * unit


def _first(mask: Any) -> int | None:
    rows = np.flatnonzero(mask)
    return int(rows[0]) if len(rows) else None


def _refuse_numbers(trace: Trace) -> None:
    for name in ("replica", "stage", "chunk", "microbatch", "device"):
        column = getattr(trace, name)
        row = _first((column < 0) | (column > LIMITS.largest))
        if row is not None:
            text = f"expected a {name} from 0 to {LIMITS.largest}, got {column[row]}"
            raise trace.error(row, text)
    if np.any((trace.kind < 0) | (trace.kind >= len(KINDS))):
        raise InputError(
            f"expected a kind of {', '.join(KINDS)}",
            source=trace.sources[0],
            code=ErrorCode.UNKNOWN_NAME,
        )
    row = _first(trace.end < trace.start)
    if row is not None:
        start, end = trace.times((trace.start[row], trace.end[row]))
        raise trace.error(
            row, f"ends at {end} {trace.unit}, before its start at {start}"
        )
    row = _first(trace.duration > LIMITS.longest_ns)
    if row is not None:
        raise trace.error(row, "takes longer than 31 years")


def _refuse_twice(trace: Trace) -> None:
    names = ("microbatch", "stage", "kind", "replica", "step")
    keys = np.stack([getattr(trace, name) for name in names])
    order = np.lexsort(keys)
    repeat = _first(np.all(np.diff(keys[:, order], axis=1) == 0, axis=0))
    if repeat is None:
        return
    rows = sorted((int(order[repeat]), int(order[repeat + 1])))
    files = sorted({trace.sources[trace.origin[row]] for row in rows})
    hint = f" (also in {files[0]})" if len(files) > 1 else ""
    raise trace.error(rows[1], f"appears twice{hint}; expected each op once in a step")


def _refuse_moving_stages(trace: Trace) -> None:
    """Refuse a stage on two devices; transfers belong to the device that they leave."""
    device = np.full(int(trace.stage.max()) + 1, -1, dtype=np.int64)
    device[trace.stage] = trace.device
    row = _first(device[trace.stage] != trace.device)
    if row is not None:
        text = f"is on device {trace.device[row]}, others of stage {trace.stage[row]} are on "
        raise trace.error(
            row, f"{text}{device[trace.stage[row]]}; expected one device per stage"
        )


def _refuse_gaps(trace: Trace) -> None:
    compute = trace.where(trace.is_compute)
    if not len(compute):
        raise trace.error(0, "is a transfer in a step without compute ops")
    shape = (int(trace.stage.max()) + 1, int(trace.microbatch.max()) + 1)
    for name, column, count in (
        ("stage", compute.stage, shape[0]),
        ("micro-batch", compute.microbatch, shape[1]),
        ("device", compute.device, int(compute.device.max()) + 1),
    ):
        absent = _first(~np.isin(np.arange(count), column))
        if absent is not None:
            hint = ": is the file of its rank missing?" if name == "stage" else ""
            raise _absent(
                trace, f"{name} {absent} has no op, {name} {count - 1} has{hint}"
            )
    fused = _first(compute.kind == KINDS.index("B"))
    is_split = np.any(
        (compute.kind == KINDS.index("I")) | (compute.kind == KINDS.index("W"))
    )
    if fused is not None and is_split:
        text = "is a fused backward, others are split (I, W); expected one form"
        raise compute.error(fused, text)
    for name in "FIW" if is_split else "FB":
        mine = compute.kind == KINDS.index(name)
        there = np.unique(compute.stage[mine] * shape[1] + compute.microbatch[mine])
        if len(there) < shape[0] * shape[1]:
            early = _first(there != np.arange(len(there)))
            stage, microbatch = divmod(len(there) if early is None else early, shape[1])
            text = (
                f"{name}{stage}.{microbatch} (stage {stage}, micro-batch {microbatch})"
            )
            raise _absent(compute, f"{text} is missing")


def _absent(trace: Trace, message: str) -> InputError:
    files = sorted(
        {trace.sources[origin] for origin in np.unique(trace.origin).tolist()}
    )
    field = f"step {trace.step[0]}, replica {trace.replica[0]}"
    return InputError(message, source=", ".join(files[:3]), field=field)


def refuse_overlaps(trace: Trace, tolerance: int | None = None) -> int:
    """Refuse a replica-step in which ops of a device overlap by more than times may be off.

    Return the nanoseconds of the largest overlap, 0 where there is none. An `InputError` names the
    file and the op.

    `tolerance`: nanoseconds by which clocks may be off; by default as `tolerance_of` says.
    """
    compute = trace.where(trace.is_compute & (trace.end > trace.start))
    same = np.diff(compute.device) == 0
    allowed = tolerance_of(trace) if tolerance is None else tolerance
    excess = np.where(same, compute.end[:-1] - compute.start[1:], 0)
    row = _first(excess > allowed)
    if row is not None:
        amount, limit = trace.times((excess[row], allowed))
        earlier, device = compute.op(row), compute.device[row]
        raise compute.error(
            row + 1,
            f"starts {amount} {trace.unit} before {earlier} ends on device {device}; "
            f"expected one op at a time (clocks may be off by {limit})",
        )
    return int(excess.max(initial=0))


def _refuse_other_shapes(trace: Trace) -> None:
    """Refuse steps with other numbers of stages, or other forms of backward: another run."""
    first = ""
    for _, _, replica_step in trace.where(trace.is_compute).parts():
        split = (
            ", split backwards" if np.any(replica_step.kind == KINDS.index("W")) else ""
        )
        form = f"{int(replica_step.stage.max()) + 1} stages{split}"
        first = first or form
        if form != first:
            text = (
                f"is of a step with {form}, the first has {first}; are two runs mixed?"
            )
            raise replica_step.error(0, text)

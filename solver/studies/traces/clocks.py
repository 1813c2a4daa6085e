"""Order of ops across devices, and one clock for devices whose clocks have no common zero."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from ppsolve.models.core.problem import FREE, IntArray
from ppsolve.models.documents.errors import InputError
from ppsolve.models.studies.trace.check import tolerance_of
from ppsolve.models.studies.trace.table import KINDS, Trace

F, B, I, W = (KINDS.index(name) for name in "FBIW")  # noqa: E741 - the letters of the ops


@dataclass(frozen=True)
class Boundary:
    """Clocks of two neighbouring devices, compared by the transfers between them."""

    device: int  # the first of the two; the other one is the next
    offset: int  # nanoseconds to add to the clock of the next device
    # nanoseconds that the fastest transfers there and back take together. Negative where the
    # recorded order of ops is impossible on any two steady clocks
    round_trip: int


def op_table(part: Trace) -> IntArray:
    """Return row numbers of a replica-step, int64[kinds, stages, micro-batches]; `FREE`: absent."""
    shape = (len(KINDS), int(part.stage.max()) + 1, int(part.microbatch.max()) + 1)
    table = np.full(shape, FREE, dtype=np.int64)
    table[part.kind, part.stage, part.microbatch] = np.arange(len(part))
    return table


def precedences_of(part: Trace) -> tuple[IntArray, IntArray]:
    """Return rows (before, after), each int64[k], of a replica-step: the rules of a pipeline.

    F after F of the stage before; B (or I) after that of the stage behind; B (or I) after F of its
    stage; W after I.
    """
    table = op_table(part)
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


def refuse_early(part: Trace, tolerance: int | None = None) -> None:
    """Refuse a replica-step whose clocks contradict the rules of a pipeline.

    Raises `InputError` where an op starts before an op that it needs has ended; names file and op.

    Parameters
    ----------
    part : Trace
        One replica-step, checked. Devices are not compared where clocks have no common zero.
    tolerance : int, optional
        Nanoseconds by which clocks may be off; by default as `tolerance_of` says.
    """
    before, after = precedences_of(part)
    known = (part.device[before] == part.device[after]) | part.is_aligned
    late = np.where(known, part.end[before] - part.start[after], 0)
    allowed = tolerance_of(part) if tolerance is None else tolerance
    if np.any(late > allowed):
        worst = int(np.argmax(late))
        amount, most = part.times((late[worst], allowed))
        other = part.op(int(before[worst]))
        raise part.error(
            int(after[worst]),
            f"starts {amount} {part.unit} before {other} ends, which it needs; expected clocks "
            f"that are off by at most {most}",
        )


def boundaries_of(part: Trace) -> list[Boundary]:
    """Return the comparison of the clocks of each device and the next, of a replica-step.

    A transfer cannot arrive before it leaves. Those from device d to d + 1 therefore bound the
    offset of the clock of d + 1 from below, those back from above. In the middle the fastest
    transfer takes as long in either direction, the assumption of NTP (RFC 5905, section 8).
    """
    before, after = precedences_of(part)
    gap = part.start[after] - part.end[before]
    source, target = part.device[before], part.device[after]
    found = []
    for device in range(int(part.device.max())):
        forth = gap[(source == device) & (target == device + 1)]
        back = gap[(source == device + 1) & (target == device)]
        low = high = 0
        if len(forth) and len(back):
            low, high = -int(forth.min()), int(back.min())
        found.append(Boundary(device, (low + high) // 2, high - low))
    return found


def aligned(part: Trace) -> Trace:
    """Return a replica-step on one clock: as it is, or with the offsets of `boundaries_of`."""
    if part.is_aligned:
        return part
    offsets = np.cumsum([0, *(boundary.offset for boundary in boundaries_of(part))])
    shift = offsets[part.device] - int((part.start + offsets[part.device]).min())
    return replace(part, start=part.start + shift, end=part.end + shift, is_aligned=True)


def recorded_span(part: Trace) -> int:
    """Return nanoseconds from first start to last end of the compute ops of a replica-step.

    Where clocks have no common zero it is the longest span of one device, on its own clock.
    """
    part = part.where(part.is_compute)
    if part.is_aligned:
        return int(part.end.max() - part.start.min())
    devices = (part.where(part.device == one) for one in np.unique(part.device))
    return max(int(one.end.max() - one.start.min()) for one in devices)


Made = TypeVar("Made")


def kept_steps(trace: Trace, make: Callable[[Trace], Made]) -> tuple[Trace, list[Made]]:
    """Make something of each replica-step; leave out the steps in which one is refused.

    Raises the first `InputError` where no step is left.

    Parameters
    ----------
    trace : Trace
        A checked trace.
    make : callable
        Takes a replica-step; raises an `InputError` where its times are impossible.

    Returns
    -------
    trace : Trace
        The steps that are left, with a warning for each of the others.
    made : list
        What was made of their replicas, by step, then by replica.
    """
    made: list[tuple[int, Made]] = []
    refused: dict[int, InputError] = {}
    for step, _, part in trace.parts():
        if step not in refused:
            try:
                made.append((step, make(part)))
            except InputError as error:
                refused[step] = error
    left = trace.where(~np.isin(trace.step, list(refused)))
    if not len(left):
        raise next(iter(refused.values()))
    warnings = [f"step {step} is left out: {error}" for step, error in refused.items()]
    return left.warn(*warnings), [one for step, one in made if step not in refused]

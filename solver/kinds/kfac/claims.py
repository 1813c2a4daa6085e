"""Checking a schedule of K-FAC work around a pinned pipeline, and what its document claims."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from pydantic import BaseModel

from ppsolve.models.core.claims import agrees, contradictions, refuted, wrong
from ppsolve.models.core.documents import parse_given
from ppsolve.models.core.result import ScheduleDocument, Status
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.core.violation import Violation
from ppsolve.models.documents.base import as_decimal, as_moment
from ppsolve.models.kinds.kfac.instance import KfacInstance
from ppsolve.models.kinds.kfac.pattern import DevicePattern, RefreshPattern
from ppsolve.models.kinds.kfac.result import ITERATIONS
from ppsolve.models.kinds.kfac.unrolling import LoweredRefresh, lower_refresh
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.kinds.kfac.heuristics import plans_of
from ppsolve.solver.kinds.kfac.pattern import pattern_of
from ppsolve.solver.kinds.kfac.placement import Refresh
from ppsolve.solver.kinds.kfac.requirements import MOST_ITERATIONS

_COUNTED = ("value", "bound", "gap", "heuristics", "bubble_ratio")
"""Fields of a result that are about iterations, not about times of its schedule."""

_PINNED_ID = re.compile(r"(\d{1,6})/(.*)#(\d{1,6})@(\d{1,6})", re.DOTALL)
_WORK_ID = re.compile(r"(\d{1,6}(?:\+\d{1,6})*)/.*", re.DOTALL)

EXACT_FIELDS = ("iterations", "iterations_of", "ages_of", "oldest_of")
ROUNDED_FIELDS = ("usage_of", "bubbles_of", "peak_saved_of", "bubble_ratio")
TOLERANCE = Fraction(1, 1000)
"""By how much rounded figures may be off: percents are written with four decimals."""


def check_refresh(instance: KfacInstance, document: Any) -> list[Violation]:
    """Check a schedule and what its document says of iterations.

    The number of iterations of a device is that of its copies of the pipeline in the schedule.
    Raises `InputError` where the document holds no readable schedule of this instance.
    """
    pattern = pattern_of(instance)
    if isinstance(document, Schedule):
        document = ScheduleDocument.of(document)
    data = (
        document.model_dump(mode="json")
        if isinstance(document, BaseModel)
        else document
    )
    lowered = lower_refresh(pattern, iterations_in(data, pattern))
    schedule, violations = parse_given(without_counts(data), lowered.problem)
    if schedule is not None:
        violations = violations + check_schedule(lowered.problem, schedule)
    if not isinstance(data, dict):
        return violations
    refuted = list(_count_claims(data, max(lowered.iterations)))
    if schedule is not None and not violations:
        refuted += _figure_claims(data, pattern, lowered, schedule)
    return violations + refuted


def without_counts(data: Any) -> Any:
    """Return a document of a refresh without the fields that count iterations."""
    if not isinstance(data, dict):
        return data
    return {key: value for key, value in data.items() if key not in _COUNTED}


def iterations_in(data: Any, pattern: RefreshPattern) -> list[int]:
    """Return the iterations of each device that the ops of a document belong to.

    They are counted by the copies of the device's pipeline ops. A device without any may claim them
    in ``iterations_of``; they are no fewer than the starts of its work need. The document is a
    result, an entry or a bare schedule; None claims nothing.
    """
    document = data.get("schedule", data) if isinstance(data, dict) else None
    rows = document.get("ops") if isinstance(document, dict) else None
    ops = (
        [op for op in rows if isinstance(op, dict)]
        if isinstance(rows, list | tuple)
        else []
    )
    counts = [1] * len(pattern.devices)
    labels = [{op.label for op in device.ops} for device in pattern.devices]
    for op in ops:
        name = op.get("id")
        if not isinstance(name, str):
            continue
        pinned = _PINNED_ID.fullmatch(name)
        if (
            pinned
            and int(pinned[1]) < len(counts)
            and pinned[2] in labels[int(pinned[1])]
        ):
            device, copy = int(pinned[1]), int(pinned[4])
            if copy < min(len(ops), MOST_ITERATIONS):
                counts[device] = max(counts[device], copy + 1)
        else:
            for device in _members(name):
                if device < len(counts) and not labels[device]:
                    counts[device] = max(counts[device], _iteration_of(op, pattern))
    for device, pinned_labels in enumerate(labels):
        if not pinned_labels and isinstance(data, dict):
            counts[device] = max(counts[device], _claimed(data, device))
    return counts


def _claimed(data: Any, device: int) -> int:
    claims = data.get("iterations_of")
    if not isinstance(claims, list | tuple) or device >= len(claims):
        return 1
    claim = claims[device]
    is_count = isinstance(claim, int) and not isinstance(claim, bool)
    return claim if is_count and 1 <= claim <= MOST_ITERATIONS else 1


def _members(name: str) -> list[int]:
    match = _WORK_ID.fullmatch(name)
    return [int(number) for number in match[1].split("+")] if match else []


def _iteration_of(op: dict[str, Any], pattern: RefreshPattern) -> int:
    try:
        start = as_moment(op.get("start"))
    except ValueError:
        return 1
    ticks = int(start / as_decimal(float(pattern.scale.tick)))
    return max(1, min(ticks // pattern.period + 1, MOST_ITERATIONS))


def _count_claims(data: dict[str, Any], iterations: int) -> Iterator[Violation]:
    value = Fraction(iterations)
    yield from refuted(data, {"value": iterations})
    yield from contradictions(
        data, value, slack=Fraction(0), share=TOLERANCE, unit=ITERATIONS
    )
    if data.get("status") == Status.OPTIMAL and data.get("bound") is None:
        yield wrong("status is OPTIMAL, but there is no bound")
    bounds, iterations_of = data.get("bound_of"), data.get("iterations_of")
    if bounds is not None and not _are_at_most(bounds, iterations_of):
        yield wrong("bound_of goes beyond iterations_of")


def _are_at_most(bounds: Any, counts: Any) -> bool:
    if not isinstance(bounds, list | tuple) or not isinstance(counts, list | tuple):
        return False
    if not all(isinstance(number, int | float) for number in (*bounds, *counts)):
        return False
    pairs = zip(bounds, counts, strict=False)
    return len(bounds) == len(counts) and all(bound <= count for bound, count in pairs)


def _figure_claims(
    data: dict[str, Any],
    pattern: RefreshPattern,
    lowered: LoweredRefresh,
    schedule: Schedule,
) -> Iterator[Violation]:
    refresh = Refresh(pattern, plans_of(pattern, lowered, schedule))
    actual = refresh.figures() | {"bubble_ratio": 1 - refresh.usage}
    if data.get("labels") is not None and not _same_labels(
        data["labels"], actual, pattern
    ):
        yield wrong(
            "labels are not what the schedule has, in the order in which it runs"
        )
    yield from refuted(data, {field: actual[field] for field in EXACT_FIELDS})
    rounded = {field: actual[field] for field in ROUNDED_FIELDS}
    yield from refuted(data, rounded, slack=TOLERANCE)


def _same_labels(
    claimed: Any, figures: dict[str, Any], pattern: RefreshPattern
) -> bool:
    # Work without length may be anywhere.
    actual = figures["labels"]
    if not isinstance(claimed, list | tuple) or len(claimed) != len(actual):
        return False
    return all(
        agrees(_that_run(claim, device), _that_run(expected, device), Fraction(0))
        for claim, expected, device in zip(
            claimed, actual, pattern.devices, strict=True
        )
    )


def _that_run(iterations: Any, device: DevicePattern) -> Any:
    idle = {work.label.text for work in device.work if work.length == 0}
    if not isinstance(iterations, list | tuple):
        return iterations
    return [
        [label for label in labels if not (isinstance(label, str) and label in idle)]
        if isinstance(labels, list | tuple)
        else labels
        for labels in iterations
    ]

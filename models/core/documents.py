"""Read schedules from documents; refuse unreadable ones, report contradictions as violations."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import BaseModel

from ppsolve.models.core.claims import contradictions, figure, measured, refuted, wrong
from ppsolve.models.core.problem import FREE, IntArray, Problem
from ppsolve.models.core.result import SHOWN_TRANSFER, TRANSFER_KINDS
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.core.timescale import TimeScale
from ppsolve.models.core.violation import Violation
from ppsolve.models.documents.base import as_moment, describe
from ppsolve.models.documents.contents import RESULT, refuse_others
from ppsolve.models.documents.errors import (
    ErrorCode,
    InputError,
    did_you_mean,
    errors_in,
)
from ppsolve.models.documents.files import read_json, source_name

TOLERANCE = Fraction(1, 10**9)
"""Share of the makespan by which numbers of a document may be off.

A pool may be exceeded by the same share. A double keeps about 16 digits, 7 more than this.
"""

MAX_START = 2**61
"""Largest start in ticks; a start, a duration (<= 2**40) and a lag still add up within int64."""


def parse_given(
    data: Any, problem: Problem, source: str | None = None
) -> tuple[Schedule | None, list[Violation]]:
    """Read a schedule document: a result, a heuristic's entry, or a bare schedule.

    Its form is ``{"schedule": {...}}`` or ``{"time_unit", "ops": [{"id", "start", "end"?}, ...]}``.
    Numbers may be off by 1e-9 x makespan. Starts that belong to no tick are rounded to the nearest
    one. The rules of the problem are left to the checker.

    There is no schedule if ops are missing. Violations are of the rules ``missing``, ``tick``,
    ``duration``, ``label`` and ``objective``; also of ``start`` where ops are missing, since then
    there is no schedule for the checker. An `InputError` says that the form or time unit is wrong,
    that an op is unknown or there twice, or that a time is no number.
    """
    if isinstance(data, BaseModel):
        data = data.model_dump(mode="json")
    with errors_in(source):
        document, path = _find_schedule(data)
        rows = _OpRows(
            problem, document["ops"], f"{path}ops", _other_instance(data, problem)
        )
        _refuse_other_units(data, problem.scale)
        missing = rows.missing()
        schedule = None if missing else Schedule(problem, rows.starts())
        claims = list(_claims(data, problem, schedule))
    wrong = [*rows.ill_timed(), *rows.mislabelled]
    if missing:
        return None, [*missing, *rows.negative(), *wrong, *claims]
    return schedule, [*wrong, *claims]


def load_schedule(path: str | Path, problem: Problem) -> Schedule:
    """Read a schedule file; an `InputError` says why it is not complete and consistent.

    Parameters
    ----------
    path, problem : str or Path, Problem
        File to read (``-`` is standard input), and the problem that it schedules, n ops.

    Returns
    -------
    Schedule
        The start of each op in ticks; run the checker for the rules of the problem.
    """
    source = source_name(path)
    schedule, violations = parse_given(read_json(path), problem, source)
    if schedule is None or violations:
        suffix = f" (and {len(violations) - 1} more)" if len(violations) > 1 else ""
        raise InputError(
            f"{violations[0]}{suffix}",
            source=source,
            field="schedule",
            code=ErrorCode.SCHEDULE,
        )
    return schedule


def _find_schedule(data: Any) -> tuple[dict[str, Any], str]:
    if not isinstance(data, dict):
        raise InputError(
            f"expected a result or a schedule (an object), got {describe(data)}",
            code=ErrorCode.TYPE,
        )
    refuse_others(data, "a result or a schedule", RESULT)
    document, path = data, ""
    if "schedule" in data:
        document, path = data["schedule"], "schedule."
        if document is None:
            status = f" (status {data['status']})" if "status" in data else ""
            raise InputError(
                f"expected a schedule, there is none{status}",
                field="schedule",
                code=ErrorCode.MISSING,
            )
        if not isinstance(document, dict):
            raise InputError(
                f"expected an object, got {describe(document)}",
                field="schedule",
                code=ErrorCode.TYPE,
            )
    if not isinstance(document.get("ops"), list | tuple):
        description = describe(document["ops"]) if "ops" in document else "nothing"
        text = f"expected a list of ops, each with id and start, got {description}"
        raise InputError(text, field=f"{path}ops", code=ErrorCode.TYPE)
    return document, path


def _other_instance(data: dict[str, Any], problem: Problem) -> str:
    name = data.get("instance")
    if not isinstance(name, str) or name == problem.name:
        return ""
    return f'; the result is of instance "{name[:80]}", not "{problem.name[:80]}"'


def _claims(
    data: dict[str, Any], problem: Problem, schedule: Schedule | None
) -> Iterator[Violation]:
    """Yield what a document says of its schedule as a whole and is not so.

    The gap of a document without a bound, such as a heuristic's entry, is another one.
    """
    scale = problem.scale
    value = figure(data, "value")
    makespan = value or Fraction(0)
    if schedule is not None:
        value = Fraction(schedule.value) * scale.tick if value is None else value
        makespan = schedule.makespan * scale.tick
        actual = {
            "value": schedule.value * scale.tick,
            "makespan": makespan,
            "device_span": schedule.device_span * scale.tick,
        }
        yield from refuted(data, actual, slack=TOLERANCE * makespan, unit=scale.unit)
        yield from measured(data, schedule, share=3 * TOLERANCE)
    error = figure(data, "tick_error")
    computed = problem.tick_error * scale.tick
    if error is not None and error < computed * (1 - TOLERANCE):
        yield wrong(
            f"tick_error is given as {float(error):.4g}, it is {float(computed):.4g}"
        )
    # The gap, the value and the bound may each be off by the tolerance.
    slack = TOLERANCE * abs(value or Fraction(0))
    yield from contradictions(
        data, value, slack=slack, share=3 * TOLERANCE, unit=scale.unit
    )


def _refuse_other_units(data: dict[str, Any], scale: TimeScale) -> None:
    for owner, path in ((data, ""), (data.get("schedule", data), "schedule.")):
        unit = owner.get("time_unit", scale.unit)
        if unit != scale.unit:
            text = f'expected "{scale.unit}" as in the instance, got {describe(unit)}'
            raise InputError(text, field=f"{path}time_unit", code=ErrorCode.CONFLICT)


class _OpTimes(NamedTuple):
    """Times of one op as the document has them, in ticks, not rounded; ints where whole."""

    start: int | Fraction
    end: int | Fraction | None


class _OpRows:
    def __init__(
        self, problem: Problem, rows: list[Any], path: str, mismatch: str
    ) -> None:
        self.problem, self.mismatch = problem, mismatch
        self.rows: dict[int, _OpTimes] = {}
        self.mislabelled: list[Violation] = []
        labels = [
            SHOWN_TRANSFER if kind in TRANSFER_KINDS else kind for kind in problem.kinds
        ]
        self._kind = [labels[kind] for kind in problem.kind.tolist()]
        self._numbers = {
            name: column.tolist() for name, column in problem.numbers.items()
        }
        self.duration: list[int] = problem.duration.tolist()
        every = range(problem.num_ops)
        numbers = dict(zip(problem.op_names(every), every, strict=True))
        for index, row in enumerate(rows):
            field = f"{path}[{index}]"
            op = self._op(row, numbers, field)
            end = row.get("end")
            self.rows[op] = _OpTimes(
                self._ticks(row["start"], field, "start"),
                None if end is None else self._ticks(end, field, "end"),
            )
            self._compare(op, row)
        latest = max(
            (row.start + self.duration[op] for op, row in self.rows.items()), default=0
        )
        self.tolerance = TOLERANCE * max(0, latest)

    def _compare(self, op: int, row: dict[str, Any]) -> None:
        kind = row.get("kind")
        if kind is not None and kind != self._kind[op]:
            self._note(op, "kind", kind, f'kind "{self._kind[op]}"')
        for name, column in self._numbers.items():
            claimed, actual = row.get(name), column[op]
            if claimed is None:
                continue
            # FREE (-1) is internal, so a document may not use it; and True equals 1 in Python.
            if claimed != actual or actual == FREE or isinstance(claimed, bool):
                self._note(
                    op, name, claimed, "none" if actual == FREE else f"{name} {actual}"
                )

    def _note(self, op: int, name: str, claimed: Any, actual: str) -> None:
        quoted = f'"{claimed[:40]}"' if isinstance(claimed, str) else describe(claimed)
        text = f"is given with {name} {quoted}, it has {actual}"
        self.mislabelled.append(self._violation("label", op, text))

    def _op(self, row: Any, numbers: dict[str, int], field: str) -> int:
        if not isinstance(row, dict):
            raise InputError(
                f"expected an object, got {describe(row)}",
                field=field,
                code=ErrorCode.TYPE,
            )
        for key in ("id", "start"):
            if key not in row:
                raise InputError(
                    "this field is required",
                    field=f"{field}.{key}",
                    code=ErrorCode.MISSING,
                )
        name = row["id"]
        if not isinstance(name, str):
            text = f"expected the name of an op, got {describe(name)}"
            raise InputError(text, field=f"{field}.id", code=ErrorCode.TYPE)
        if name not in numbers:
            hint = self.mismatch or did_you_mean(name[:40], numbers)
            raise InputError(
                f'unknown op "{name[:40]}"{hint}',
                field=f"{field}.id",
                code=ErrorCode.UNKNOWN_NAME,
            )
        if numbers[name] in self.rows:
            raise InputError(
                f'the op "{name}" appears twice',
                field=f"{field}.id",
                code=ErrorCode.CONFLICT,
            )
        return numbers[name]

    def _ticks(self, value: Any, field: str, name: str) -> int | Fraction:
        top, bottom = value, 1
        if type(value) is not int or abs(value) >= MAX_START:
            try:
                top, bottom = as_moment(value).as_integer_ratio()
            except ValueError as error:
                raise InputError(
                    str(error),
                    field=f"{field}.{name}",
                    code=getattr(error, "code", ErrorCode.VALUE),
                ) from None
        tick = self.problem.scale.tick
        top, bottom = top * tick.denominator, bottom * tick.numerator
        ticks = Fraction(top, bottom) if top % bottom else top // bottom
        if abs(ticks) > MAX_START:
            raise InputError(
                f"expected less than {MAX_START} ticks of {tick} {self.problem.scale.unit}, "
                f"got {describe(value)}",
                field=f"{field}.{name}",
                code=ErrorCode.RANGE,
            )
        return ticks

    def _time(self, ticks: int | Fraction) -> str:
        scale = self.problem.scale
        return f"{float(ticks * scale.tick):.12g} {scale.unit}"

    def missing(self) -> list[Violation]:
        absent = np.ones(self.problem.num_ops, dtype=np.bool_)
        absent[list(self.rows)] = False
        names = self.problem.op_names(np.flatnonzero(absent))
        return [
            Violation("missing", f"{name} is not scheduled", (name,)) for name in names
        ]

    def negative(self) -> list[Violation]:
        return [
            self._violation("start", op, f"starts at {self._time(row.start)}, before 0")
            for op, row in self.rows.items()
            if row.start < -self.tolerance
        ]

    def ill_timed(self) -> list[Violation]:
        violations = []
        tick = self._time(Fraction(1))
        for op, row in self.rows.items():
            start, end, length = row.start, row.end, self.duration[op]
            if self._is_off(start - round(start)):
                text = (
                    f"starts at {self._time(start)}, not a multiple of the tick {tick}"
                )
                violations.append(self._violation("tick", op, text))
            if end is not None and self._is_off(end - start - length):
                text = f"runs from {self._time(start)} to {self._time(end)}, it takes "
                violations.append(
                    self._violation("duration", op, text + self._time(length))
                )
        return violations

    def _is_off(self, amount: int | Fraction) -> bool:
        # Nearly always 0, and comparing fractions is slow.
        return amount != 0 and not -self.tolerance <= amount <= self.tolerance

    def _violation(self, rule: str, op: int, text: str) -> Violation:
        name = self.problem.op_name(op)
        return Violation(rule, f"{name} {text}", (name,))

    def starts(self) -> IntArray:
        start = np.zeros(self.problem.num_ops, dtype=np.int64)
        start[list(self.rows)] = [round(row.start) for row in self.rows.values()]
        slack = math.floor(self.tolerance)
        return _undo_rounding(self.problem, start, slack) if slack else start


def _undo_rounding(problem: Problem, start: IntArray, slack: int) -> IntArray:
    """Move ops that rounding made start too early, where a tick is finer than the tolerance.

    An op that starts up to `slack` ticks before its predecessor or the op before it on a
    resource ends is moved to that end. No other op moves; a valid schedule stays as it is.
    """
    pinned = (problem.pinned != FREE) & (np.abs(start - problem.pinned) <= slack)
    read = np.where(pinned, problem.pinned, start)
    latest: list[int] = np.where(pinned, read, read + slack).tolist()
    moved: list[int] = read.tolist()
    by_after = np.argsort(problem.after, kind="stable")
    first = np.searchsorted(
        problem.after[by_after], np.arange(problem.num_ops + 1)
    ).tolist()
    before, lag = problem.before[by_after].tolist(), problem.lag[by_after].tolist()
    duration, release = problem.duration.tolist(), problem.release.tolist()
    # One pass mends a chain in the order of its starts. With fewer than 8, ties may stay off by a
    # tick and be reported as violations; none is ever hidden.
    for _ in range(8):
        previous = moved.copy()
        free = [0] * problem.num_resources
        for op in np.argsort(read, kind="stable").tolist():
            used = problem.resources_of(op).tolist() if duration[op] else []
            bounds = [free[resource] for resource in used]
            for edge in range(first[op], first[op + 1]):
                bounds.append(moved[before[edge]] + duration[before[edge]] + lag[edge])
            earliest = max(moved[op], release[op], *bounds)
            if earliest <= latest[op]:
                moved[op] = earliest
            for resource in used:
                free[resource] = max(free[resource], moved[op] + duration[op])
        if moved == previous:
            break
    return np.array(moved, dtype=np.int64)

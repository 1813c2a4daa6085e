"""Reading schedules that others wrote: what cannot be read, and what breaks a rule."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel

from ppsolve.models.base import as_finite, describe, did_you_mean
from ppsolve.models.errors import InputError
from ppsolve.models.io import read_json, source_name
from ppsolve.models.problem import FREE, IntArray, Problem
from ppsolve.models.schedule import Schedule
from ppsolve.models.violation import Violation

TOLERANCE = Fraction(1, 10**9)
"""Numbers of a document may be off by this share of the makespan."""

MAX_START = 2**61
"""Starts beyond this many ticks cannot be computed with in int64."""

SETTLING_PASSES = 8


def parse_given(
    data: Any, problem: Problem, source: str | None = None
) -> tuple[Schedule | None, list[Violation]]:
    """Read a schedule document: a result, a heuristic's entry, or a bare schedule.

    Numbers may be off by 1e-9 x makespan. Starts that belong to no tick are rounded to the
    nearest one. The rules of the problem are the checker's business, not this function's.

    Parameters
    ----------
    data : dict or pydantic model
        ``{"schedule": {...}}`` or ``{"time_unit", "ops": [{"id", "start", "end"?}, ...]}``.
    problem : Problem
        What the schedule is for.
    source : str or None
        Where `data` came from, for messages.

    Returns
    -------
    schedule : Schedule or None
        None if ops are missing.
    violations : list of Violation
        Of the rules ``missing``, ``tick``, ``duration`` and ``objective``, and ``start`` where
        no schedule is returned that the checker could look at.

    Raises
    ------
    InputError
        Not such a document, another time unit, an unknown op, an op that is there twice, or
        something other than a finite number as a time.
    """
    if isinstance(data, BaseModel):
        data = data.model_dump(mode="json")
    try:
        document, path = _find_schedule(data)
        given = _Given(problem, document["ops"], f"{path}ops")
        claims = _claims(data, problem)
    except InputError as error:
        raise (error.located(source) if source else error) from None
    missing = given.missing()
    if missing:
        return None, [*missing, *given.negative(), *given.ill_timed()]
    schedule = Schedule(problem, given.starts())
    return schedule, [*given.ill_timed(), *_wrong_claims(claims, schedule)]


def load_schedule(path: str | Path, problem: Problem) -> Schedule:
    """Read a schedule file (``-``: standard input) that must be complete and consistent.

    Raises
    ------
    InputError
        The file cannot be read, or its times contradict each other or the problem's durations.
    """
    source = source_name(path)
    schedule, violations = parse_given(read_json(path), problem, source)
    if schedule is None or violations:
        more = f" (and {len(violations) - 1} more)" if len(violations) > 1 else ""
        raise InputError(f"{violations[0]}{more}", source=source, field="schedule")
    return schedule


def _find_schedule(data: Any) -> tuple[dict[str, Any], str]:
    if not isinstance(data, dict):
        raise InputError(f"expected a result or a schedule (an object), got {describe(data)}")
    document, path = data, ""
    if "schedule" in data:
        document, path = data["schedule"], "schedule."
        if document is None:
            status = f" (status {data['status']})" if "status" in data else ""
            raise InputError(f"expected a schedule, there is none{status}", field="schedule")
        if not isinstance(document, dict):
            raise InputError(f"expected an object, got {describe(document)}", field="schedule")
    if not isinstance(document.get("ops"), list | tuple):
        found = describe(document["ops"]) if "ops" in document else "nothing"
        raise InputError(
            f"expected a list of ops, each with id and start, got {found}", field=f"{path}ops"
        )
    return document, path


def _number(value: Any, field: str) -> int | Fraction:
    if type(value) is int and abs(value) < MAX_START:
        return value
    try:
        return Fraction(as_finite(value))
    except ValueError as error:
        raise InputError(str(error), field=field) from None


def _claims(data: dict[str, Any], problem: Problem) -> dict[str, Fraction]:
    document = data.get("schedule", data)
    for owner, path in ((data, ""), (document, "schedule.")):
        unit = owner.get("time_unit", problem.scale.unit)
        if unit != problem.scale.unit:
            raise InputError(
                f'expected "{problem.scale.unit}" as in the instance, got {describe(unit)}',
                field=f"{path}time_unit",
            )
    return {
        key: _number(data[key], key) / problem.scale.tick
        for key in ("value", "makespan", "device_span")
        if data.get(key) is not None
    }


def _wrong_claims(claims: dict[str, Fraction], schedule: Schedule) -> list[Violation]:
    scale = schedule.problem.scale
    actual = {
        "value": schedule.value,
        "makespan": schedule.makespan,
        "device_span": schedule.device_span,
    }
    return [
        Violation(
            "objective",
            f"{key} is given as {float(claim * scale.tick):.12g}, the schedule has "
            f"{scale.time(actual[key])} {scale.unit}",
            (),
        )
        for key, claim in claims.items()
        if abs(claim - actual[key]) > TOLERANCE * schedule.makespan
    ]


@dataclass(frozen=True)
class _Row:
    """Times of one op as the document has them, in ticks, not rounded."""

    start: Fraction
    end: Fraction | None


class _Given:
    def __init__(self, problem: Problem, rows: list[Any], path: str) -> None:
        self.problem = problem
        self.rows: dict[int, _Row] = {}
        numbers = {problem.op_name(op): op for op in range(problem.num_ops)}
        for index, row in enumerate(rows):
            field = f"{path}[{index}]"
            op = self._op(row, numbers, field)
            self.rows[op] = _Row(
                self._ticks(row["start"], f"{field}.start"),
                self._ticks(row["end"], f"{field}.end") if row.get("end") is not None else None,
            )
        self.makespan = max(
            (row.start + int(problem.duration[op]) for op, row in self.rows.items()),
            default=Fraction(0),
        )
        self.tolerance = TOLERANCE * max(self.makespan, Fraction(0))

    def _op(self, row: Any, numbers: dict[str, int], field: str) -> int:
        if not isinstance(row, dict):
            raise InputError(f"expected an object, got {describe(row)}", field=field)
        for key in ("id", "start"):
            if key not in row:
                raise InputError("this field is required", field=f"{field}.{key}")
        name = row["id"]
        if not isinstance(name, str):
            raise InputError(
                f"expected the name of an op, got {describe(name)}", field=f"{field}.id"
            )
        if name not in numbers:
            raise InputError(
                f'unknown op "{name[:40]}"' + did_you_mean(name[:40], numbers), field=f"{field}.id"
            )
        if numbers[name] in self.rows:
            raise InputError(f'the op "{name}" is there twice', field=f"{field}.id")
        return numbers[name]

    def _ticks(self, value: Any, field: str) -> Fraction:
        ticks = _number(value, field) / self.problem.scale.tick
        if abs(ticks) > MAX_START:
            raise InputError(
                f"expected less than {MAX_START} ticks of {self.problem.scale.tick} "
                f"{self.problem.scale.unit}, got {describe(value)}",
                field=field,
            )
        return ticks

    def _time(self, ticks: Fraction) -> str:
        return f"{float(ticks * self.problem.scale.tick):.12g} {self.problem.scale.unit}"

    def missing(self) -> list[Violation]:
        """Report every op without a row."""
        absent = np.ones(self.problem.num_ops, dtype=np.bool_)
        absent[list(self.rows)] = False
        names = self.problem.op_names(np.flatnonzero(absent))
        return [Violation("missing", f"{name} is not scheduled", (name,)) for name in names]

    def negative(self) -> list[Violation]:
        """Report starts before 0."""
        return [
            self._violation("start", op, f"starts at {self._time(row.start)}, before 0")
            for op, row in self.rows.items()
            if row.start < -self.tolerance
        ]

    def ill_timed(self) -> list[Violation]:
        """Report starts off the tick grid and ends other than start + duration."""
        found = []
        tick = self._time(Fraction(1))
        for op, row in self.rows.items():
            if abs(row.start - round(row.start)) > self.tolerance:
                text = f"starts at {self._time(row.start)}, not a multiple of the tick {tick}"
                found.append(self._violation("tick", op, text))
            length = int(self.problem.duration[op])
            if row.end is not None and abs(row.end - row.start - length) > self.tolerance:
                text = (
                    f"runs from {self._time(row.start)} to {self._time(row.end)}, it takes "
                    f"{self._time(Fraction(length))}"
                )
                found.append(self._violation("duration", op, text))
        return found

    def _violation(self, rule: str, op: int, text: str) -> Violation:
        name = self.problem.op_name(op)
        return Violation(rule, f"{name} {text}", (name,))

    def starts(self) -> IntArray:
        """Return the starts in whole ticks, int64[n]."""
        start = np.zeros(self.problem.num_ops, dtype=np.int64)
        for op, row in self.rows.items():
            start[op] = round(row.start)
        slack = math.floor(self.tolerance)
        return _settled(self.problem, start, slack) if slack else start


def _settled(problem: Problem, start: IntArray, slack: int) -> IntArray:
    """Undo rounding where a tick is finer than the tolerance.

    An op that starts up to `slack` ticks before its predecessor or the op before it on a
    resource ends is moved to that end; nothing else moves, least of all a valid schedule.
    """
    pinned = (problem.pinned != FREE) & (np.abs(start - problem.pinned) <= slack)
    read = np.where(pinned, problem.pinned, start)
    latest: list[int] = np.where(pinned, read, read + slack).tolist()
    settled: list[int] = read.tolist()
    by_after = np.argsort(problem.after, kind="stable")
    first = np.searchsorted(problem.after[by_after], np.arange(problem.num_ops + 1)).tolist()
    before, lag = problem.before[by_after].tolist(), problem.lag[by_after].tolist()
    duration, release = problem.duration.tolist(), problem.release.tolist()
    for _ in range(SETTLING_PASSES):
        previous = settled.copy()
        free = [0] * problem.num_resources
        for op in np.argsort(read, kind="stable").tolist():
            used = problem.resources_of(op).tolist() if duration[op] else []
            bounds = [free[resource] for resource in used]
            for edge in range(first[op], first[op + 1]):
                bounds.append(settled[before[edge]] + duration[before[edge]] + lag[edge])
            earliest = max(settled[op], release[op], *bounds)
            if earliest <= latest[op]:
                settled[op] = earliest
            for resource in used:
                free[resource] = max(free[resource], settled[op] + duration[op])
        if settled == previous:
            break
    return np.array(settled, dtype=np.int64)

"""Schedules beside the best-known file: exact starts in ticks, small enough to keep in a repo.

A schedule file is gzipped JSON. `starts` maps the op names without their micro-batch (``F0``) to
the start of the first micro-batch and then the differences from one to the next, which repeat
once a pipeline runs steadily and so compress well.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, StrictInt

from ppsolve.models.core.problem import FREE, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.base import StrictModel
from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.files import parse_json, write_bytes

MAX_BYTES = 100_000_000
MAX_START = 2**62


class StoredSchedule(StrictModel):
    """Contents of a schedule file; times are in ticks of `tick` time units.

    `iterations` is there for K-FAC work around a pinned pipeline only: those of each device.
    """

    schema_version: Literal[1] = Field(default=1, alias="schema")
    tick: str
    iterations: tuple[Annotated[StrictInt, Field(ge=1, le=100_000)], ...] | None = None
    starts: dict[str, Annotated[tuple[StrictInt, ...], Field(min_length=1)]]


def save_schedule(path: Path, schedule: Schedule, iterations: Sequence[int] | None = None) -> None:
    """Write `schedule`; the same schedule always gives the same bytes.

    Parameters
    ----------
    path : Path
        File to write.
    schedule : Schedule
        The schedule.
    iterations : sequence of int, optional
        Iterations of each device, of K-FAC work around a pinned pipeline.

    Raises
    ------
    InputError
        The file cannot be written.
    """
    starts = {}
    for name, ops in _columns(schedule.problem):
        values = schedule.start[ops].tolist()
        starts[name] = [values[0], *(b - a for a, b in pairwise(values))]
    tick = str(schedule.problem.scale.tick)
    document: dict[str, Any] = {"schema": 1, "tick": tick, "starts": starts}
    if iterations is not None:
        document["iterations"] = list(iterations)
    text = json.dumps(document, separators=(",", ":"))
    write_bytes(path, gzip.compress(text.encode(), mtime=0))


def load_schedule(path: Path, problem: Problem) -> Schedule:
    """Read the schedule of `problem` from a file that `save_schedule` wrote.

    Raises
    ------
    InputError
        The file cannot be read, or belongs to another problem.
    """
    stored = _stored(path)
    if stored.tick != str(problem.scale.tick):
        raise InputError(
            f"expected ticks of {problem.scale.tick}, got {stored.tick}; it belongs to another "
            "version of the instance",
            source=str(path),
            field="tick",
        )
    start = np.zeros(problem.num_ops, dtype=np.int64)
    columns = dict(_columns(problem))
    for name in [*columns, *(name for name in stored.starts if name not in columns)]:
        expected, found = len(columns.get(name, ())), len(stored.starts.get(name, ()))
        if expected != found:
            raise InputError(
                f"expected {expected} starts, got {found}",
                source=str(path),
                field=f"starts.{name}",
            )
        values = list(accumulate(stored.starts[name]))
        if max(map(abs, values)) > MAX_START:
            raise InputError("a start is too large", source=str(path), field=f"starts.{name}")
        start[columns[name]] = values
    return Schedule(problem, start)


def stored_iterations(path: Path) -> tuple[int, ...] | None:
    """Return the iterations of each device that a schedule file is for, None if it names none.

    Raises
    ------
    InputError
        The file cannot be read.
    """
    return _stored(path).iterations


def _stored(path: Path) -> StoredSchedule:
    return StoredSchedule.parse(parse_json(_read(path), str(path)), str(path))


def _read(path: Path) -> str:
    try:
        with gzip.open(path, "rb") as stream:
            data = stream.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise InputError(f"expected at most {MAX_BYTES} bytes unpacked", source=str(path))
        return data.decode()
    except FileNotFoundError:
        raise InputError("no such file", source=str(path)) from None
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise InputError(f"expected a gzipped schedule: {error}", source=str(path)) from None


def _columns(problem: Problem) -> Iterator[tuple[str, list[int]]]:
    """Yield op names without micro-batch, and their ops in micro-batch order."""
    columns: dict[str, list[int]] = {}
    microbatch = problem.microbatch.tolist()
    for op in np.argsort(problem.microbatch, kind="stable").tolist():
        name = problem.op_name(op)
        if microbatch[op] != FREE and op not in problem.explicit_names:
            name = name.rpartition(".")[0]
        columns.setdefault(name, []).append(op)
    yield from sorted(columns.items())

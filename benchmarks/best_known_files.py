"""The best-known file and the schedules beside it: what is in them, reading and writing.

A schedule file is gzipped JSON, exact and small enough to keep in a repository. `starts` maps op
names without their micro-batch (``F0``) to the start of the first micro-batch and then the
differences from one to the next, which repeat once a pipeline runs steadily and so compress well.
"""

from __future__ import annotations

import datetime
import gzip
import json
import math
import re
import zlib
from collections.abc import Iterable
from fractions import Fraction
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, StrictInt
from shipped import BEST_KNOWN

from ppsolve import InputError, Objective, Result
from ppsolve.models.documents.base import Number, StrictModel, Whole
from ppsolve.models.documents.files import (
    parse_json,
    read_json,
    write_bytes,
    write_text,
)

SCHEDULES = "best_known_schedules"

MAX_BYTES = 100_000_000
"""Unpacked size from which a schedule file is refused: gzip can hide gigabytes in a small file."""

MAX_START = 2**62
"""Starts beyond this many ticks do not fit into int64; the checker refuses half as many."""

MAX_DENOMINATOR = 10**6
"""Ticks down to a millionth are recognised behind a double, such as 1/3 behind 0.333...; a finer
tick is taken from the decimals as they are written."""

MICROBATCH_OP = re.compile(r"(.*)\.(\d{1,9})", re.DOTALL)
"""Name of an op of a micro-batch: ``F0.3``."""


class Claim(StrictModel):
    """One bound on the objective, in the instance's time unit, and where it comes from.

    `machine` names processor, cores, memory, platform and versions; None where it was not recorded.
    """

    value: Number
    method: str
    version: str
    machine: str | None
    date: datetime.date
    seconds: Number
    workers: Annotated[Whole, Field(ge=1)] | None


class Entry(StrictModel):
    """What is known of one instance.

    Parameters
    ----------
    kind, objective, time_unit
        As the instance has them.
    ops : int
        Ops of the problem that the instance is lowered to.
    status : {"open", "closed"}
        Closed once `lower` equals `upper`.
    upper, lower : Claim, optional
        Value of the best schedule, and the best proven bound.
    schedule : str, optional
        Stored schedule that reaches `upper`, relative to the directory.
    instance_sha256 : str
        Fingerprint of the instance that the claims are about.
    """

    kind: str
    ops: Annotated[Whole, Field(ge=0)]
    objective: Objective
    time_unit: str
    status: Literal["open", "closed"]
    upper: Claim | None
    lower: Claim | None
    schedule: str | None
    instance_sha256: str

    @property
    def is_closed(self) -> bool:
        """Whether the two bounds meet, whatever `status` says."""
        upper, lower = self.upper, self.lower
        return upper is not None and lower is not None and lower.value == upper.value

    def contradictions(self) -> list[str]:
        """Return the contradictions within the entry."""
        found = []
        lower, upper = self.lower, self.upper
        if lower is not None and upper is not None and lower.value > upper.value:
            found.append(
                f"lower bound {lower.value} ({lower.method}) is above upper bound {upper.value} "
                f"({upper.method}): one of them is wrong"
            )
        if (self.status == "closed") != self.is_closed:
            found.append(f'status is "{self.status}", the bounds say otherwise')
        if (upper is None) != (self.schedule is None):
            found.append("an upper bound and its schedule must be there together")
        return found

    def __str__(self) -> str:
        """Return the entry as a line of text."""
        upper, lower = (
            f"{claim.value} ({claim.method})" if claim else "none"
            for claim in (self.upper, self.lower)
        )
        unit = (
            "iterations" if self.objective is Objective.ITERATIONS else self.time_unit
        )
        return f"{self.status}, upper {upper}, lower {lower} {unit}"


class BestKnown(StrictModel):
    """The whole file; keys are instance files relative to the directory, with ``/``."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    instances: dict[str, Entry] = Field(default_factory=dict)


def load_best_known(directory: Path) -> BestKnown:
    """Return the content of the best-known file of `directory`, nothing known if there is none.

    Raises
    ------
    InputError
        The file is there and not valid.
    """
    path = directory / BEST_KNOWN
    return BestKnown.parse(read_json(path), str(path)) if path.exists() else BestKnown()


def save_best_known(directory: Path, known: BestKnown) -> None:
    """Write the best-known file whole or not at all, one claim a line, sorted by instance.

    Every field is written, ``null`` where nothing is known, so that readers need no defaults.

    Parameters
    ----------
    directory : Path
        Where the instances are.
    known : BestKnown
        What is written.

    Raises
    ------
    InputError
        An entry contradicts itself (nothing is written), or the file cannot be written.
    """
    path = directory / BEST_KNOWN
    for name, entry in known.instances.items():
        for message in entry.contradictions():
            raise InputError(message, source=str(path), field=name)
    body = ",\n".join(
        f"  {json.dumps(name)}: {_entry_text(entry)}"
        for name, entry in sorted(known.instances.items())
    )
    write_text(path, f'{{"schema": 1, "instances": {{\n{body}\n}}}}\n')


def _entry_text(entry: Entry) -> str:
    fields = entry.model_dump(mode="json")
    lines = [
        f"    {json.dumps(name)}: {json.dumps(value)}" for name, value in fields.items()
    ]
    return "{\n" + ",\n".join(lines) + "}"


CHOICES = ("modes", "devices", "fused", "layers", "assignment")
"""Fields of results that say what was chosen beside the order."""


class StoredSchedule(StrictModel):
    """Contents of a schedule file.

    Parameters
    ----------
    tick : str
        Length of a tick in the instance's time unit: ``1`` or ``1/3``.
    iterations : tuple of int, optional
        Iterations of each device, for K-FAC work around a pinned pipeline only.
    modes : tuple of str or of tuple of str, optional
        Mode of each stage, or of each of its micro-batches, where memory modes are open.
    devices : dict of str to int, optional
        Device of each filler that is not on its first one, where fillers have a choice.
    fused : tuple of tuple of str, optional
        Names of the ops of each block, where ops may be fused.
    layers : tuple of dict of str to int, optional
        Layers of each type on each stage, where they are shared out.
    assignment : tuple of tuple of int, optional
        Micro-batches of each replica, where they may be exchanged.
    starts : dict of str to tuple of int
        By op name without micro-batch: the first start, then the differences, in ticks.
    """

    schema_version: Literal[1] = Field(default=1, alias="schema")
    tick: Annotated[str, Field(pattern=r"^[1-9]\d{0,17}(/[1-9]\d{0,17})?$")]
    iterations: tuple[Annotated[StrictInt, Field(ge=1, le=100_000)], ...] | None = None
    modes: tuple[str | tuple[str, ...], ...] | None = None
    devices: dict[str, int] | None = None
    fused: tuple[tuple[str, ...], ...] | None = None
    layers: tuple[dict[str, int], ...] | None = None
    assignment: tuple[tuple[int, ...], ...] | None = None
    starts: dict[str, Annotated[tuple[StrictInt, ...], Field(min_length=1)]]

    @classmethod
    def of(cls, result: Result) -> Self:
        """Return the schedule of a result that has one, in ticks that all its times are."""
        assert result.schedule is not None
        starts = {op.id: _exact(op.start) for op in result.schedule.ops}
        ends = [_exact(op.end) for op in result.schedule.ops]
        ticks = math.lcm(*(time.denominator for time in [*starts.values(), *ends]))
        columns = {
            column: [int(starts[op] * ticks) for op in ops]
            for column, ops in sorted(columns_of(starts).items())
        }
        return cls(
            tick=str(Fraction(1, ticks)),
            iterations=getattr(result, "iterations_of", None),
            **{name: getattr(result, name, None) for name in CHOICES},
            starts={
                column: (values[0], *(b - a for a, b in pairwise(values)))
                for column, values in columns.items()
            },
        )

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a schedule file.

        Raises
        ------
        InputError
            The file cannot be read.
        """
        return cls.parse(parse_json(_unpacked(path), str(path)), str(path))

    def save(self, path: Path) -> None:
        """Write a schedule file; the same schedule always gives the same bytes.

        Raises
        ------
        InputError
            The file cannot be written.
        """
        chosen = self.claims
        if self.iterations is not None:
            chosen = {"iterations": self.iterations, **chosen}
        document = self.model_dump(exclude={"iterations", *CHOICES}, by_alias=True)
        document |= chosen
        text = json.dumps(document, separators=(",", ":"))
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, gzip.compress(text.encode(), mtime=0))

    @property
    def claims(self) -> dict[str, Any]:
        """What was chosen, by the fields of a result."""
        fields = {name: getattr(self, name) for name in CHOICES}
        return {name: value for name, value in fields.items() if value is not None}

    @property
    def last_start(self) -> int:
        """The latest start, in ticks."""
        return max(
            (max(accumulate(column)) for column in self.starts.values()), default=0
        )

    def rows(self, names: Iterable[str]) -> list[dict[str, Any]]:
        """Return the ops of a schedule document, each with id and start in the time unit.

        Parameters
        ----------
        names : iterable of str
            Names of the instance's ops. Ops of further iterations of K-FAC work, which only the
            schedule knows, go by the name that is stored.

        Raises
        ------
        InputError
            The starts of an op are not as many as it has micro-batches, or one is too large.
        """
        columns, tick, rows = columns_of(names), Fraction(self.tick), []
        missing = (
            []
            if self.iterations
            else [name for name in columns if name not in self.starts]
        )
        for column in [*sorted(missing), *self.starts]:
            ops, values = columns.get(column, [column]), self.starts.get(column, ())
            if len(ops) != len(values):
                raise InputError(
                    f"expected {len(ops)} starts, got {len(values)}",
                    field=f"starts.{column}",
                )
            starts = list(accumulate(values))
            if max(map(abs, starts)) > MAX_START:
                raise InputError("a start is too large", field=f"starts.{column}")
            rows += [
                {"id": op, "start": _figure(k * tick)}
                for op, k in zip(ops, starts, strict=True)
            ]
        return rows


def columns_of(names: Iterable[str]) -> dict[str, list[str]]:
    """Return the ops of each name without micro-batch (``F0``: ``F0.0``, ``F0.1``, ...), in order.

    An op whose short name is that of another op keeps its whole name.
    """
    every = dict.fromkeys(names)
    columns: dict[str, list[tuple[int, str]]] = {}
    for name in every:
        match = MICROBATCH_OP.fullmatch(name)
        column, number = (
            (match[1], int(match[2])) if match and match[1] not in every else (name, 0)
        )
        columns.setdefault(column, []).append((number, name))
    return {
        column: [name for _, name in sorted(ops)] for column, ops in columns.items()
    }


def _exact(time: float) -> Fraction:
    """Return the fraction that a figure of a result stands for, with the least denominator."""
    decimal = Fraction(str(time))
    simple = decimal.limit_denominator(MAX_DENOMINATOR)
    return simple if float(simple) == float(time) else decimal


def _figure(time: Fraction) -> int | float:
    return time.numerator if time.denominator == 1 else float(time)


def _unpacked(path: Path) -> str:
    try:
        with gzip.open(path, "rb") as stream:
            data = stream.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise InputError(
                f"expected at most {MAX_BYTES} bytes unpacked", source=str(path)
            )
        return data.decode()
    except FileNotFoundError:
        raise InputError("no such file", source=str(path)) from None
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise InputError(
            f"expected a gzipped schedule: {error}", source=str(path)
        ) from None

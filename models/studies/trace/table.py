"""The neutral table of a recorded run: one row per op, whatever program wrote the trace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Self

import numpy as np

from ppsolve.models.core.problem import FREE, BoolArray, IntArray
from ppsolve.models.core.timescale import UNITS_PER_SECOND
from ppsolve.models.documents.errors import InputError

KINDS = ("F", "B", "I", "W", "TF", "TB")
"""Kinds of ops by number: forward, fused backward, input- and weight-gradient backward, and the
transfers of an activation and of a gradient that leave a stage."""

NUM_COMPUTE = KINDS.index("TF")
"""Kinds below this number are compute ops."""

NANOSECONDS = {unit: UNITS_PER_SECOND["ns"] // count for unit, count in UNITS_PER_SECOND.items()}
"""Nanoseconds of each unit that times of a trace may be written in."""

COLUMNS = ("step", "replica", "stage", "chunk", "kind", "microbatch", "start", "end", "device")
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
    notes: Notes = Notes()

    @classmethod
    def of(cls, columns: Mapping[str, Any], **about: Any) -> Self:
        """Make a trace of columns, not yet checked; those that may be unknown may be left out.

        Parameters
        ----------
        columns : mapping of str to sequence of int
            The columns of `COLUMNS`, each of length n, and any of `OPTIONAL`.
        **about
            The other fields.

        Returns
        -------
        Trace
            With n ops.
        """
        free = np.full(len(columns["step"]), FREE)
        given = {"length": free, "origin": np.zeros_like(free), **columns}
        about |= {name: np.asarray(given[name], np.int64) for name in EVERY}
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
                part = self.where(np.sort(rows))
                yield int(part.step[0]), int(part.replica[0]), part

    def times(self, nanoseconds: Iterable[int], unit: str | None = None) -> list[Decimal]:
        """Return times exactly in a unit.

        Parameters
        ----------
        nanoseconds : iterable of int
            The times.
        unit : str, optional
            Their unit; by default that of the trace.

        Returns
        -------
        list of Decimal
            As many.
        """
        one = Decimal(NANOSECONDS[unit or self.unit])
        return [Decimal(int(time)) / one for time in nanoseconds]

    def op(self, row: int) -> str:
        """Return the name of the op of a row: ``F1.2`` (stage, micro-batch)."""
        return f"{KINDS[self.kind[row]]}{self.stage[row]}.{self.microbatch[row]}"

    def error(self, row: int, message: str) -> InputError:
        """Return the error that a row causes.

        Parameters
        ----------
        row : int
            Row number.
        message : str
            What is wrong with it and what would be right.

        Returns
        -------
        InputError
            Names the file of the row, its step, replica and op.
        """
        origin = int(self.origin[row])
        source = self.sources[origin] if origin < len(self.sources) else None
        where = f"step {self.step[row]}, replica {self.replica[row]}: {self.op(row)}"
        return InputError(message, source=source, field=where)


def joined(traces: Sequence[Trace]) -> Trace:
    """Return the rows of several traces of one run as one; the first says unit and format."""
    first = traces[0]
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(trace, name) for trace in traces]) for name in EVERY
    }
    offsets = np.cumsum([0, *(len(trace.sources) for trace in traces[:-1])])
    columns["origin"] = np.concatenate(
        [trace.origin + offset for trace, offset in zip(traces, offsets, strict=True)]
    )
    unexplained = {rank: part for trace in traces for rank, part in trace.notes.unexplained.items()}
    warnings = tuple(text for trace in traces for text in trace.notes.warnings)
    return replace(
        first,
        **columns,
        sources=tuple(name for trace in traces for name in trace.sources),
        is_aligned=all(trace.is_aligned for trace in traces),
        notes=Notes(unexplained, warnings),
    )

"""Progress of a run of many items: what is done, the rate, the time left."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TextIO

from ppsolve.models.bench.record import BenchRecord
from ppsolve.models.core.result import Status
from ppsolve.models.documents.printable import LONGEST_LINE, printable

EVERY_SECONDS = 10.0
"""Seconds between two lines of progress where they stay: a log of a day has 8,640."""

ERASE = "\r\x1b[K"
"""Puts the next text in the place of the line, on a terminal."""


def tally(records: Iterable[BenchRecord]) -> str:
    """Return in words how many items were proved, solved, not solved, and failed by cause."""
    counts = Counter(_outcome(record) for record in records)
    order = ("proved", "feasible", "infeasible", "nothing found")
    failed = sorted(name for name in counts if name not in order)
    shown = [f"{counts[name]} {name}" for name in (*order, *failed) if counts[name]]
    return ", ".join(shown) or "none"


def _outcome(record: BenchRecord) -> str:
    if record.failure is not None:
        return f"failed ({record.failure.value})"
    return {
        Status.OPTIMAL: "proved",
        Status.FEASIBLE: "feasible",
        Status.INFEASIBLE: "infeasible",
        Status.UNKNOWN: "nothing found",
    }[record.status]


def duration(seconds: float) -> str:
    """Return seconds in words: ``40 s``, ``12 min``, ``3.5 h``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


class TallyProgress:
    """Writes the state of a run: one line that is rewritten on a terminal, else a line at times.

    Parameters
    ----------
    stream : text stream
        Where to write, usually stderr.
    total, done : int
        Items in all, and those that earlier runs have done.
    everything : bool
        Write a line for each item too.
    clock : callable
        Returns seconds.
    """

    def __init__(
        self,
        stream: TextIO,
        total: int,
        done: int = 0,
        *,
        everything: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream, self._total, self._before = stream, total, done
        self._everything, self._clock = everything, clock
        self._began = self._told = clock()
        self._records: list[BenchRecord] = []
        self._is_live = stream.isatty() and not everything

    def __call__(self, record: BenchRecord) -> None:
        """Take note of an item that has ended."""
        self._records.append(record)
        if self._everything or record.failure is not None:
            self._write(self._item(record))
        now = self._clock()
        if self._is_live:
            self._stream.write(ERASE + printable(self.line(), LONGEST_LINE))
            self._stream.flush()
        elif now - self._told >= EVERY_SECONDS:
            self._told = now
            self._write(self.line())

    def line(self) -> str:
        """Return the state in one line."""
        done, spent = len(self._records), self._clock() - self._began
        left = self._total - self._before - done
        per_minute = 60 * done / spent if spent else 0.0
        ahead = f", {duration(left * spent / done)} left" if done and left else ""
        return (
            f"[{self._before + done}/{self._total}] {per_minute:.3g} items/min{ahead}: "
            f"{tally(self._records)}"
        )

    def close(self) -> None:
        """Take the live line away."""
        if self._is_live:
            self._stream.write(ERASE)
            self._stream.flush()

    def _item(self, record: BenchRecord) -> str:
        place = f"[{self._before + len(self._records)}/{self._total}] {record.instance}: "
        if record.failure is not None:
            return f"{place}failed ({record.failure.value}): {record.error}"
        value = "" if record.value is None else f" {record.value:g} {record.time_unit}"
        return f"{place}{record.status.value}{value} after {record.seconds:.2f} s"

    def _write(self, line: str) -> None:
        start = ERASE if self._is_live else ""
        self._stream.write(f"{start}{printable(line, LONGEST_LINE)}\n")
        self._stream.flush()

"""Progress of a run of many items: what is done, the rate, the time left."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TextIO

from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from ppsolve.models.bench.record import BenchRecord
from ppsolve.models.core.result import Status
from ppsolve.models.documents.printable import LONGEST_LINE, printable
from ppsolve.solver.optimize.progress import Progress, ProgressListener
from ppsolve.solver.plan.progress import PlanListener, PlanProgress
from ppsolve.solver.render.figures import figures, percent, seconds
from ppsolve.solver.render.terminal import TerminalConsole
from ppsolve.solver.render.wording import with_unit

QUIET_EVENTS = frozenset({"heuristic"})
"""Events that plain output leaves out unless asked for everything."""


def plain_line(event: Progress, unit: str) -> str:
    """Return one event as one line of text without colour.

    Parameters
    ----------
    event : Progress
        The event.
    unit : str
        Unit of its figures.

    Returns
    -------
    str
        The line, without its end.
    """
    parts = [f"[{event.seconds:8.2f} s] {event.event}: {event.source}"]
    best, bound = figures(event.incumbent, event.bound)
    if event.incumbent is not None:
        parts.append(f"best {with_unit(best, unit)}")
    if event.bound is not None:
        parts.append(f"bound {with_unit(bound, unit)}")
    if event.gap is not None:
        parts.append(f"gap {percent(event.gap)}")
    return "  ".join(parts)


class PlainProgress:
    """Writes each event as a line; the lines of several threads do not mix.

    Of events in a row that say nothing new, the first is enough.

    Parameters
    ----------
    stream : text stream
        Where to write, usually stderr.
    unit : str
        Unit of the figures.
    everything : bool
        Also write the events of `QUIET_EVENTS`.
    label : str
        Beginning of every line.
    """

    def __init__(
        self, stream: TextIO, unit: str, *, everything: bool = False, label: str = ""
    ) -> None:
        self._stream, self._unit, self._everything = stream, unit, everything
        self._label = f"{label}  " if label else ""
        self._lock = threading.Lock()
        self._latest: Progress | None = None

    def __call__(self, event: Progress) -> None:
        """Write one event."""
        if event.event in QUIET_EVENTS and not self._everything:
            return
        # Called on solver threads, where nobody could handle that stderr has been closed.
        with self._lock, suppress(OSError, ValueError):
            if self._latest is not None and replace(self._latest, seconds=event.seconds) == event:
                return
            self._latest = event
            line = f"{self._label}{plain_line(event, self._unit)}"
            self._stream.write(f"{printable(line, LONGEST_LINE)}\n")
            self._stream.flush()


class LiveProgress:
    """The state of a run as one line that is drawn anew several times a second.

    The line ends with `title`, or begins with `label` if there is one.
    """

    def __init__(self, title: str, unit: str, time_limit: float | None, label: str = "") -> None:
        self._title, self._unit, self._limit = title, unit, time_limit
        self._label = label
        self._began = time.monotonic()
        self._latest: Progress | None = None
        self._best_by: str | None = None
        self._phase = "starting"
        self._spinner = Spinner("dots")

    def __call__(self, event: Progress) -> None:
        """Take note of an event."""
        if event.event == "phase":
            self._phase = event.source
        if event.event in {"incumbent", "heuristic"} and self._improves(event):
            self._best_by = event.source
        self._latest = event

    def _improves(self, event: Progress) -> bool:
        before = self._latest.incumbent if self._latest else None
        return event.incumbent is not None and (before is None or event.incumbent < before)

    def __rich__(self) -> Text:
        """Return the line as it is now."""
        elapsed = time.monotonic() - self._began
        line = Text(no_wrap=True, overflow="ellipsis")
        frame = self._spinner.render(time.monotonic())
        line.append_text(frame if isinstance(frame, Text) else Text())
        line.append(f" {self._label} " if self._label else "")
        line.append(f" {seconds(elapsed)}", "bold")
        line.append(f" of {seconds(self._limit)}" if self._limit else "", "dim")
        if self._latest is not None:
            self._append_state(line, self._latest)
        line.append(f"  {self._phase}" + ("" if self._label else f"  {self._title}"), "dim")
        return line

    def _append_state(self, line: Text, event: Progress) -> None:
        best, bound = figures(event.incumbent, event.bound)
        if event.incumbent is not None:
            line.append(f"  best {with_unit(best, self._unit)}", "green")
            line.append(f" ({self._best_by})" if self._best_by else "", "dim")
        if event.bound is not None:
            line.append(f"  bound {bound}", "cyan")
        if event.gap is not None:
            line.append(f"  gap {percent(event.gap)}", "yellow")


@contextmanager
def progress(
    title: str,
    unit: str,
    *,
    time_limit: float | None,
    quiet: bool = False,
    everything: bool = False,
    label: str = "",
) -> Iterator[ProgressListener | None]:
    """Yield the listener that suits stderr (``None`` if quiet) and tidy up afterwards.

    Parameters
    ----------
    title : str
        The name of the instance.
    unit : str
        Unit of the figures.
    time_limit : float or None
        Seconds of the run, to be told beside those that have passed.
    quiet, everything : bool
        Tell nothing; or also the events of `QUIET_EVENTS`.
    label : str
        Beginning of every line.

    Yields
    ------
    callable or None
        Takes each `Progress`.
    """
    if quiet:
        yield None
        return
    console = TerminalConsole(stderr=True)
    if not console.is_terminal or console.is_dumb_terminal:
        yield PlainProgress(console.file, unit, everything=everything, label=label)  # type: ignore[arg-type]
        return
    state = LiveProgress(title, unit, time_limit, label)
    with Live(state, console=console, refresh_per_second=8, transient=True):
        yield state


PER_SECOND = "samples/s"
LEAST_PAUSE, LONGEST_PAUSE = 1.0, 10.0
"""Seconds between plain lines: at least where the phase changes, at most where it does not."""

BAR_WIDTH = 12
"""Columns of the bar."""


def plain_plan_line(event: PlanProgress) -> str:
    """Return the state of a plan as one line of text without colour."""
    parts = [
        f"[{event.seconds:8.2f} s] {event.phase}",
        f"{event.examined:,} of {event.enumerated:,} examined",
    ]
    best, bound = figures_of(event)
    if event.best is not None:
        parts.append(f"best {best} {PER_SECOND}")
    parts.append(f"at most {bound}")
    return "  ".join(parts)


def figures_of(event: PlanProgress) -> tuple[str, str]:
    """Return the best goodput and what may still be reached, which is never below it."""
    best = event.best
    bound = event.bound if best is None else max(event.bound, best)
    first, second = figures(best, bound)
    return first, second


class PlainPlanProgress:
    """Writes a line where the phase changes or much time has passed.

    Parameters
    ----------
    stream : text stream
        Where to write, usually stderr.
    everything : bool
        Also write improvements of the best goodput.
    """

    def __init__(self, stream: TextIO, *, everything: bool = False) -> None:
        self._stream, self._everything = stream, everything
        self._latest: PlanProgress | None = None

    def __call__(self, event: PlanProgress) -> None:
        """Write a line if there is something to say."""
        if not self._is_due(event):
            return
        self._latest = event
        with suppress(OSError, ValueError):
            self._stream.write(f"{plain_plan_line(event)}\n")
            self._stream.flush()

    def _is_due(self, event: PlanProgress) -> bool:
        latest = self._latest
        if latest is None or (self._everything and event.best != latest.best):
            return True
        pause = event.seconds - latest.seconds
        is_new = event.phase != latest.phase or event.best != latest.best
        return pause >= (LEAST_PAUSE if is_new else LONGEST_PAUSE)


class LivePlanProgress:
    """The state of a plan as a bar and a line, drawn anew several times a second."""

    def __init__(self, title: str, time_limit: float | None) -> None:
        self._title, self._limit = title, time_limit
        self._began = time.monotonic()
        self._latest: PlanProgress | None = None
        self._spinner = Spinner("dots")

    def __call__(self, event: PlanProgress) -> None:
        """Take note of the state."""
        self._latest = event

    def __rich__(self) -> Text:
        """Return the line as it is now."""
        line = Text(no_wrap=True, overflow="ellipsis")
        frame = self._spinner.render(time.monotonic())
        line.append_text(frame if isinstance(frame, Text) else Text())
        event = self._latest
        done = 0 if event is None else round(event.examined / max(event.enumerated, 1) * BAR_WIDTH)
        line.append(" " + "\N{BOX DRAWINGS HEAVY HORIZONTAL}" * done, "green")
        line.append("\N{BOX DRAWINGS LIGHT HORIZONTAL}" * (BAR_WIDTH - done) + " ", "dim")
        return line.append_text(self._state())

    def _state(self) -> Text:
        state = Text()
        state.append(seconds(time.monotonic() - self._began), "bold")
        state.append(f" of {seconds(self._limit)}" if self._limit else "", "dim")
        event = self._latest
        if event is None:
            state.append(f"  starting  {self._title}", "dim")
            return state
        best, bound = figures_of(event)
        state.append(f"  {event.examined:,}/{event.enumerated:,}")
        if event.best is not None:
            state.append(f"  best {best}", "green")
        state.append(f"  at most {bound}", "cyan")
        if event.best is not None and event.bound > 0:
            state.append(f"  gap {percent(max(1 - event.best / event.bound, 0.0))}", "yellow")
        state.append(f"  {event.phase}  {self._title}", "dim")
        return state


@contextmanager
def plan_progress(
    title: str, *, time_limit: float | None, quiet: bool = False, everything: bool = False
) -> Iterator[PlanListener | None]:
    """Yield the listener that suits stderr (``None`` if quiet) and tidy up afterwards.

    Parameters
    ----------
    title : str
        The name of the request.
    time_limit : float or None
        Seconds of the plan, to be told beside those that have passed.
    quiet, everything : bool
        Tell nothing; or also every improvement.

    Yields
    ------
    callable or None
        Takes each `PlanProgress`.
    """
    if quiet:
        yield None
        return
    console = TerminalConsole(stderr=True)
    if not console.is_terminal or console.is_dumb_terminal:
        yield PlainPlanProgress(console.file, everything=everything)  # type: ignore[arg-type]
        return
    state = LivePlanProgress(title, time_limit)
    with Live(state, console=console, refresh_per_second=8, transient=True):
        yield state


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

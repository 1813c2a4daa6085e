"""Progress on stderr: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TextIO, TypeVar

from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from ppsolve.models.bench.record import BenchRecord
from ppsolve.models.core.result import Status
from ppsolve.models.documents.printable import LONGEST_LINE, printable
from ppsolve.solver.plan.progress import PlanListener, PlanProgress
from ppsolve.solver.render.figures import figures, percent, seconds
from ppsolve.solver.render.terminal import TerminalConsole
from ppsolve.solver.render.wording import with_unit
from ppsolve.solver.run.progress import Progress, ProgressListener

PER_SECOND = "samples/s"
ERASE = "\r\x1b[K"  # puts the next text in the place of the line, on a terminal


def _write(stream: TextIO, line: str) -> None:
    # Called on solver threads, where nobody could handle that stderr has been closed.
    with suppress(OSError, ValueError):
        stream.write(f"{printable(line, LONGEST_LINE)}\n")
        stream.flush()


class LiveLine:
    """The state of a run as one line that is drawn anew several times a second."""

    def __init__(self, title: str, time_limit: float | None) -> None:
        self._title, self._limit = title, time_limit
        self._began = time.monotonic()
        self._spinner = Spinner("dots")

    def __rich__(self) -> Text:
        """Return the line as it is now."""
        line = Text(no_wrap=True, overflow="ellipsis")
        frame = self._spinner.render(time.monotonic())
        line.append_text(frame if isinstance(frame, Text) else Text())
        self.append_state(line)
        return line

    @abstractmethod
    def append_state(self, line: Text) -> None:
        """Append everything behind the spinner."""

    def append_time(self, line: Text) -> None:
        """Append the time that has passed, and the limit."""
        line.append(seconds(time.monotonic() - self._began), "bold")
        line.append(f" of {seconds(self._limit)}" if self._limit else "", "dim")


LineT = TypeVar("LineT", bound=LiveLine)
PlainT = TypeVar("PlainT")


@contextmanager
def _shown(live: LineT, plain: Callable[[TextIO], PlainT]) -> Iterator[LineT | PlainT]:
    console = TerminalConsole(stderr=True)
    if not console.is_terminal or console.is_dumb_terminal:
        yield plain(console.file)  # type: ignore[arg-type]
        return
    with Live(live, console=console, refresh_per_second=8, transient=True):
        yield live


def plain_line(event: Progress, unit: str) -> str:
    """Return one event as one line of text without colour.

    Parameters
    ----------
    event : Progress
    unit : str

    Returns
    -------
    str
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

    Of events in a row that say nothing new, the first is enough. Those of heuristics are written
    only if `everything` is asked for. Each line begins with the label.
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
        if event.event == "heuristic" and not self._everything:
            return
        with self._lock:
            if self._latest is not None and replace(self._latest, seconds=event.seconds) == event:
                return
            self._latest = event
            _write(self._stream, f"{self._label}{plain_line(event, self._unit)}")


class LiveProgress(LiveLine):
    """The state of a run as a live line, which ends with the title or begins with the label."""

    def __init__(self, title: str, unit: str, time_limit: float | None, label: str = "") -> None:
        super().__init__(title, time_limit)
        self._unit, self._label = unit, label
        self._latest: Progress | None = None
        self._best_by: str | None = None
        self._phase = "starting"

    def __call__(self, event: Progress) -> None:
        """Take note of an event."""
        if event.event == "phase":
            self._phase = event.source
        before = self._latest.incumbent if self._latest else None
        improves = event.incumbent is not None and (before is None or event.incumbent < before)
        if event.event in {"incumbent", "heuristic"} and improves:
            self._best_by = event.source
        self._latest = event

    def append_state(self, line: Text) -> None:
        """Append label, time, best value, bound, gap and phase."""
        line.append(f" {self._label} " if self._label else "")
        line.append(" ")
        self.append_time(line)
        if (event := self._latest) is not None:
            best, bound = figures(event.incumbent, event.bound)
            if event.incumbent is not None:
                line.append(f"  best {with_unit(best, self._unit)}", "green")
                line.append(f" ({self._best_by})" if self._best_by else "", "dim")
            if event.bound is not None:
                line.append(f"  bound {bound}", "cyan")
            if event.gap is not None:
                line.append(f"  gap {percent(event.gap)}", "yellow")
        line.append(f"  {self._phase}" + ("" if self._label else f"  {self._title}"), "dim")


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
    time_limit : float or None
    quiet, everything : bool
        Tell nothing; or also what every heuristic reaches.
    label : str

    Yields
    ------
    callable or None
    """
    if quiet:
        yield None
        return
    live = LiveProgress(title, unit, time_limit, label)
    with _shown(
        live, lambda stream: PlainProgress(stream, unit, everything=everything, label=label)
    ) as listener:
        yield listener


def plain_plan_line(event: PlanProgress) -> str:
    """Return the state of a plan as one line of text without colour."""
    parts = [
        f"[{event.seconds:8.2f} s] {event.phase}",
        f"{event.examined:,} of {event.enumerated:,} examined",
    ]
    best, bound = _plan_figures(event)
    if event.best is not None:
        parts.append(f"best {best} {PER_SECOND}")
    return "  ".join([*parts, f"at most {bound}"])


def _plan_figures(event: PlanProgress) -> list[str]:
    best = event.best
    return figures(best, event.bound if best is None else max(event.bound, best))


class PlainPlanProgress:
    """Writes a line where the phase or the best goodput changes or much time has passed.

    If `everything` is asked for, no improvement of the best goodput waits.
    """

    def __init__(self, stream: TextIO, *, everything: bool = False) -> None:
        self._stream, self._everything = stream, everything
        self._latest: PlanProgress | None = None

    def __call__(self, event: PlanProgress) -> None:
        """Write a line if there is something to say."""
        if self._is_due(event):
            self._latest = event
            _write(self._stream, plain_plan_line(event))

    def _is_due(self, event: PlanProgress) -> bool:
        latest = self._latest
        if latest is None or (self._everything and event.best != latest.best):
            return True
        is_new = event.phase != latest.phase or event.best != latest.best
        return event.seconds - latest.seconds >= (1.0 if is_new else 10.0)


class LivePlanProgress(LiveLine):
    """The state of a plan as a bar and a line."""

    _latest: PlanProgress | None = None

    def __call__(self, event: PlanProgress) -> None:
        """Take note of the state."""
        self._latest = event

    def append_state(self, line: Text) -> None:
        """Append bar, time, best goodput, bound, gap and phase."""
        event, width = self._latest, 12
        done = 0 if event is None else round(event.examined / max(event.enumerated, 1) * width)
        line.append(" " + "\N{BOX DRAWINGS HEAVY HORIZONTAL}" * done, "green")
        line.append("\N{BOX DRAWINGS LIGHT HORIZONTAL}" * (width - done) + " ", "dim")
        self.append_time(line)
        if event is None:
            line.append(f"  starting  {self._title}", "dim")
            return
        best, bound = _plan_figures(event)
        line.append(f"  {event.examined:,}/{event.enumerated:,}")
        if event.best is not None:
            line.append(f"  best {best}", "green")
        line.append(f"  at most {bound}", "cyan")
        if event.best is not None and event.bound > 0:
            line.append(f"  gap {percent(max(1 - event.best / event.bound, 0.0))}", "yellow")
        line.append(f"  {event.phase}  {self._title}", "dim")


@contextmanager
def plan_progress(
    title: str, *, time_limit: float | None, quiet: bool = False, everything: bool = False
) -> Iterator[PlanListener | None]:
    """Yield the listener that suits stderr (``None`` if quiet) and tidy up afterwards.

    Parameters
    ----------
    title, time_limit, quiet, everything
        As for `progress`.

    Yields
    ------
    callable or None
        Takes each `PlanProgress`.
    """
    if quiet:
        yield None
        return
    live = LivePlanProgress(title, time_limit)
    with _shown(live, lambda file: PlainPlanProgress(file, everything=everything)) as listener:
        yield listener


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
    words = {Status.OPTIMAL: "proved", Status.UNKNOWN: "nothing found"}
    return words.get(record.status, record.status.value.lower())


def duration(seconds: float) -> str:
    """Return seconds in words: ``40 s``, ``12 min``, ``3.5 h``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


class TallyProgress:
    """Writes the state of a run: one line that is rewritten on a terminal, else a line at times.

    Of `total` items earlier runs have done some; `everything` writes a line for each item too.
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
        elif now - self._told >= 10.0:  # a log of a day has 8,640 lines
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

"""Progress on stderr: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from typing import Generic, TextIO, TypeVar

from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from ppsolve.models.core.result import Status
from ppsolve.models.documents.printable import LONGEST_LINE, printable
from ppsolve.models.studies.bench.record import BenchRecord
from ppsolve.solver.run.progress import Progress, ProgressListener
from ppsolve.solver.studies.plan.progress import PlanListener, PlanProgress
from ppsolve.solver.views.figures import figures, percent, seconds
from ppsolve.solver.views.terminal import TerminalConsole
from ppsolve.solver.views.wording import with_unit

PER_SECOND = "samples/s"
ERASE = "\r\x1b[K"  # puts the next text in the place of the line, on a terminal

EventT = TypeVar("EventT")


def _write(stream: TextIO, line: str) -> None:
    # Called on solver threads, where nobody could handle that stderr has been closed.
    with suppress(OSError, ValueError):
        stream.write(f"{printable(line, LONGEST_LINE)}\n")
        stream.flush()


Parts = Iterator[tuple[str, str]]  # texts and their styles


def run_parts(event: Progress, unit: str) -> Parts:
    """Yield best value, bound and gap of a run.

    Parameters
    ----------
    event : Progress
    unit : str

    Yields
    ------
    (str, str)
        Text and style.
    """
    best, bound = figures(event.incumbent, event.bound)
    if event.incumbent is not None:
        yield f"best {with_unit(best, unit)}", "green"
    if event.bound is not None:
        yield f"bound {with_unit(bound, unit)}", "cyan"
    if event.gap is not None:
        yield f"gap {percent(event.gap)}", "yellow"


def plan_parts(event: PlanProgress) -> Parts:
    """Yield what is examined, best goodput, bound and gap of a plan, each with its style."""
    best = event.best
    reached, bound = figures(best, event.bound if best is None else max(event.bound, best))
    yield f"{event.examined:,}/{event.enumerated:,}", ""
    if best is not None:
        yield f"best {reached} {PER_SECOND}", "green"
    yield f"at most {bound}", "cyan"
    if best is not None and event.bound > 0:
        yield f"gap {percent(max(1 - best / event.bound, 0.0))}", "yellow"


def plain_line(event: Progress, unit: str) -> str:
    """Return one event of a run as one line of text without colour.

    Parameters
    ----------
    event : Progress
    unit : str

    Returns
    -------
    str
    """
    return _plain(event.seconds, f"{event.event}: {event.source}", run_parts(event, unit))


def plain_plan_line(event: PlanProgress) -> str:
    """Return the state of a plan as one line of text without colour."""
    return _plain(event.seconds, event.phase, plan_parts(event))


def _plain(seconds: float, what: str, parts: Parts) -> str:
    return "  ".join([f"[{seconds:8.2f} s] {what}", *(text for text, _ in parts)])


class PlainLines(Generic[EventT]):
    """Writes events as lines if they are due after the one before; lines of threads do not mix."""

    def __init__(
        self,
        stream: TextIO,
        line: Callable[[EventT], str],
        is_due: Callable[[EventT | None, EventT], bool],
    ) -> None:
        self._stream, self._line, self._is_due = stream, line, is_due
        self._lock = threading.Lock()
        self._latest: EventT | None = None

    def __call__(self, event: EventT) -> None:
        """Write one event, if there is something to say."""
        with self._lock:
            if self._is_due(self._latest, event):
                self._latest = event
                _write(self._stream, self._line(event))


def run_lines(
    stream: TextIO, unit: str, *, everything: bool = False, label: str = ""
) -> PlainLines[Progress]:
    """Return a writer of a line for each event of a run that says something new.

    Parameters
    ----------
    stream : TextIO
    unit : str
    everything : bool
        Write also what every heuristic reaches.
    label : str
        Beginning of each line.

    Returns
    -------
    PlainLines
    """

    def is_due(latest: Progress | None, event: Progress) -> bool:
        if event.event == "heuristic" and not everything:
            return False
        return latest is None or replace(latest, seconds=event.seconds) != event

    head = f"{label}  " if label else ""
    return PlainLines(stream, lambda event: head + plain_line(event, unit), is_due)


def plan_lines(stream: TextIO, *, everything: bool = False) -> PlainLines[PlanProgress]:
    """Return a writer of lines where phase or goodput of a plan change or much time has passed.

    Parameters
    ----------
    stream : TextIO
    everything : bool
        No improvement of the best goodput waits.

    Returns
    -------
    PlainLines
    """

    def is_due(latest: PlanProgress | None, event: PlanProgress) -> bool:
        if latest is None or (everything and event.best != latest.best):
            return True
        is_new = event.phase != latest.phase or event.best != latest.best
        return event.seconds - latest.seconds >= (1.0 if is_new else 10.0)

    return PlainLines(stream, plain_plan_line, is_due)


class LiveLine(Generic[EventT]):
    """The state of a run as one line that is drawn anew several times a second."""

    def __init__(self, title: str, time_limit: float | None) -> None:
        self._title, self._limit = title, time_limit
        self._began = time.monotonic()
        self._spinner = Spinner("dots")
        self._latest: EventT | None = None

    def __call__(self, event: EventT) -> None:
        """Take note of an event."""
        self._latest = event

    def __rich__(self) -> Text:
        """Return the line as it is now."""
        line = Text(no_wrap=True, overflow="ellipsis")
        frame = self._spinner.render(time.monotonic())
        line.append_text(frame if isinstance(frame, Text) else Text())
        for place, (text, style) in enumerate(self.parts()):
            line.append("  " if place else " ").append(text, style)
        return line

    @abstractmethod
    def parts(self) -> Parts:
        """Yield everything behind the spinner."""

    def time_part(self) -> tuple[str, str]:
        """Return the time that has passed, and the limit."""
        limit = f" of {seconds(self._limit)}" if self._limit else ""
        return f"{seconds(time.monotonic() - self._began)}{limit}", "bold"


class LiveProgress(LiveLine[Progress]):
    """The state of a run as a live line, which ends with the title or begins with the label."""

    def __init__(self, title: str, unit: str, time_limit: float | None, label: str = "") -> None:
        super().__init__(title, time_limit)
        self._unit, self._label = unit, label
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
        super().__call__(event)

    def parts(self) -> Parts:
        """Yield label, time, best value, bound, gap and phase."""
        if self._label:
            yield self._label, ""
        yield self.time_part()
        by = f" ({self._best_by})" if self._best_by else ""
        for text, style in () if self._latest is None else run_parts(self._latest, self._unit):
            yield text + (by if style == "green" else ""), style
        yield self._phase if self._label else f"{self._phase}  {self._title}", "dim"


class LivePlanProgress(LiveLine[PlanProgress]):
    """The state of a plan as a bar and a line."""

    def parts(self) -> Parts:
        """Yield bar, time, best goodput, bound, gap and phase."""
        event, width = self._latest, 12
        done = 0 if event is None else round(event.examined / max(event.enumerated, 1) * width)
        bar = "\N{BOX DRAWINGS HEAVY HORIZONTAL}" * done
        yield bar + "\N{BOX DRAWINGS LIGHT HORIZONTAL}" * (width - done), "green"
        yield self.time_part()
        yield from () if event is None else plan_parts(event)
        yield f"{'starting' if event is None else event.phase}  {self._title}", "dim"


@contextmanager
def _shown(
    live: LiveLine[EventT], plain: Callable[[TextIO], PlainLines[EventT]], *, quiet: bool
) -> Iterator[Callable[[EventT], None] | None]:
    console = TerminalConsole(stderr=True)
    if quiet:
        yield None
    elif not console.is_terminal or console.is_dumb_terminal:
        yield plain(console.file)  # type: ignore[arg-type]
    else:
        with Live(live, console=console, refresh_per_second=8, transient=True):
            yield live


def progress(
    title: str,
    unit: str,
    *,
    time_limit: float | None,
    quiet: bool = False,
    everything: bool = False,
    label: str = "",
) -> AbstractContextManager[ProgressListener | None]:
    """Return a context with the listener that suits stderr, which tidies up afterwards.

    Parameters
    ----------
    title : str
        The name of the instance.
    unit : str
    time_limit : float or None
    quiet, everything : bool
        Tell nothing (the listener is None); or also what every heuristic reaches.
    label : str

    Returns
    -------
    context manager
    """
    return _shown(
        LiveProgress(title, unit, time_limit, label),
        lambda stream: run_lines(stream, unit, everything=everything, label=label),
        quiet=quiet,
    )


def plan_progress(
    title: str, *, time_limit: float | None, quiet: bool = False, everything: bool = False
) -> AbstractContextManager[PlanListener | None]:
    """Return a context with the listener of a plan, as `progress` does of a run.

    Parameters
    ----------
    title, time_limit, quiet, everything
        As for `progress`.

    Returns
    -------
    context manager
    """
    return _shown(
        LivePlanProgress(title, time_limit),
        lambda stream: plan_lines(stream, everything=everything),
        quiet=quiet,
    )


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
            self._write(self.line(), end="")
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
            self._write("", end="")

    def _item(self, record: BenchRecord) -> str:
        place = f"[{self._before + len(self._records)}/{self._total}] {record.instance}: "
        if record.failure is not None:
            return f"{place}failed ({record.failure.value}): {record.error}"
        value = "" if record.value is None else f" {record.value:g} {record.time_unit}"
        return f"{place}{record.status.value}{value} after {record.seconds:.2f} s"

    def _write(self, line: str, end: str = "\n") -> None:
        start = ERASE if self._is_live else ""
        self._stream.write(f"{start}{printable(line, LONGEST_LINE)}{end}")
        self._stream.flush()

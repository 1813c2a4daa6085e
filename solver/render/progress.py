"""Progress of a run on stderr: a live line on a terminal, one plain line per event elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TextIO

from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from ppsolve.models.documents.printable import LONGEST_LINE, printable
from ppsolve.solver.render.figures import figures, percent, seconds
from ppsolve.solver.render.terminal import TerminalConsole
from ppsolve.solver.render.wording import with_unit
from ppsolve.solver.run.progress import Progress, ProgressListener

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

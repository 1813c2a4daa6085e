"""Progress of a plan on stderr: a bar on a terminal, now and then a plain line elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from ppsolve.solver.plan.progress import PlanListener, PlanProgress
from ppsolve.solver.render.figures import figures, percent, seconds
from ppsolve.solver.render.terminal import TerminalConsole

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

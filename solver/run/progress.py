"""What the solver tells a listener while it works."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeVar

from ppsolve.models.core.result import Figure
from ppsolve.solver.board import Board
from ppsolve.solver.clock import Clock
from ppsolve.solver.interruptible import LOOK
from ppsolve.solver.run.entries import relative_gap


@dataclass(frozen=True)
class Progress:
    """One event of a run; figures in the instance's time unit, absent while unknown.

    Parameters
    ----------
    event : str
        ``heuristic`` (one finished), ``bound`` (a better lower bound), ``incumbent`` (a better
        schedule) or ``phase`` (what starts now, or is still running after a second without news).
    seconds : float
        Wall time since the start of the run.
    source : str
        Which heuristic, bound or phase.
    incumbent, bound : number or None
        Best objective value and lower bound so far.
    gap : float or None
        (incumbent - bound) / incumbent.
    """

    event: str
    seconds: float
    source: str
    incumbent: Figure | None = None
    bound: Figure | None = None
    gap: float | None = None


class ListenerReply(Enum):
    """Reply of a listener that ends the run."""

    STOP = "stop"


STOP = ListenerReply.STOP
"""Returned by a listener, it ends the call: the best so far is the result."""

ProgressListener = Callable[[Progress], ListenerReply | None]

News = TypeVar("News")


class HeededListener(Generic[News]):
    """A listener whose reply, or error, ends the call that it listens to.

    `listener`: told of each event until it has raised an error.
    `clock`: clock of the whole call.
    """

    def __init__(
        self, listener: Callable[[News], ListenerReply | None], clock: Clock
    ) -> None:
        self._listener, self._clock = listener, clock
        self._error: Exception | None = None

    def __call__(self, news: News) -> None:
        """Tell the listener, and stop the clock if it says so or fails."""
        if self._error is not None:
            return
        try:
            reply = self._listener(news)
        except Exception as error:
            self._error = error
            self._clock.stop()
            return
        if reply is STOP:
            self._clock.stop()

    def raise_error(self, result: Any) -> None:
        """Raise the listener's error, if there is one, with the result of the call on it."""
        if self._error is None:
            return
        with suppress(AttributeError):
            self._error.result = result  # type: ignore[attr-defined]
        raise self._error


TICK = 0.9
"""Seconds without news after which the phase is told again, at least once each second, so that a
listener can tell work from a hang."""


class ProgressReporter:
    """Tells a listener what several threads report: one event at a time, figures never worse.

    `listener`: takes each event; None: nobody listens.
    `clock`: clock of the run.
    `board`: the best value and bound.
    `shown`: takes a value or bound as a whole number; returns it in the unit of
        results.
    """

    def __init__(
        self,
        listener: ProgressListener | None,
        clock: Clock,
        board: Board,
        to_figure: Callable[[int], Figure],
    ) -> None:
        self._listener, self._clock, self._board, self._shown = (
            listener,
            clock,
            board,
            to_figure,
        )
        self._lock = threading.Lock()
        self._told_at = clock.elapsed
        self.phase = ""
        if listener is not None:
            board.subscribe(self.tell)

    @property
    def is_heard(self) -> bool:
        """Whether anybody listens."""
        return self._listener is not None

    def tell(self, event: str, source: str) -> None:
        """Tell of an event, with the best value and bound so far."""
        with self._lock:
            if self._listener is None:
                return
            self.phase = source if event == "phase" else self.phase
            self._told_at = self._clock.elapsed
            value, bound = self._board.value, self._board.bound.value
            gap = (
                None if value is None else relative_gap(value, min(bound, value), value)
            )
            value_shown = None if value is None else self._shown(value)
            seconds, bound_shown = self._told_at, self._shown(bound)
            self._listener(
                Progress(event, seconds, source, value_shown, bound_shown, gap)
            )

    def tick(self) -> None:
        """Tell the current phase again where nothing was told for a while."""
        if (
            self.is_heard
            and self.phase
            and self._clock.elapsed - self._told_at >= TICK - LOOK
        ):
            self.tell("phase", self.phase)

    def close(self) -> None:
        """Tell nothing any more, whatever threads that were left behind report."""
        self._listener = None

"""What the solver tells a listener while it works."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from ppsolve.models.core.result import Figure
from ppsolve.solver.attended import LOOK
from ppsolve.solver.clock import Clock
from ppsolve.solver.kinds.entries import relative_gap


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


ProgressListener = Callable[[Progress], None]

TICK = 0.9
"""Seconds without news after which the phase is told again, at least once each second, so that a
listener can tell work from a hang."""


class ProgressReporter:
    """Tells a listener what several threads report: one event at a time, figures never worse.

    Parameters
    ----------
    listener : callable or None
        Takes each event; None: nobody listens.
    clock : Clock
        Clock of the run.
    shown : callable
        Takes a value or bound as a whole number; returns it in the unit of results.
    """

    def __init__(
        self, listener: ProgressListener | None, clock: Clock, shown: Callable[[int], Figure]
    ) -> None:
        self._listener, self._clock, self._shown = listener, clock, shown
        self._lock = threading.Lock()
        self._value: int | None = None
        self._bound: int | None = None
        self._told_at = clock.elapsed
        self.phase = ""

    @property
    def is_heard(self) -> bool:
        """Whether anybody listens."""
        return self._listener is not None

    def tell(self, event: str, source: str, value: int | None, bound: int | None) -> None:
        """Tell of an event, with the best value and bound so far.

        Parameters
        ----------
        event, source : str
            As in `Progress`.
        value, bound : int or None
            Value and bound as the reporter knows them; better ones are told if known.
        """
        with self._lock:
            if self._listener is None:
                return
            self.phase = source if event == "phase" else self.phase
            self._value = min((v for v in (value, self._value) if v is not None), default=None)
            self._bound = max((b for b in (bound, self._bound) if b is not None), default=None)
            self._told_at = self._clock.elapsed
            self._listener(self._progress(event, source))

    def tick(self) -> None:
        """Tell the current phase again where nothing was told for a while."""
        if self.is_heard and self.phase and self._clock.elapsed - self._told_at >= TICK - LOOK:
            self.tell("phase", self.phase, None, None)

    def close(self) -> None:
        """Tell nothing any more, whatever threads that were left behind report."""
        self._listener = None

    def _progress(self, event: str, source: str) -> Progress:
        value, bound = self._value, self._bound
        gap = None
        if value is not None and bound is not None:
            gap = relative_gap(value, min(bound, value), value)
        return Progress(
            event=event,
            seconds=self._clock.elapsed,
            source=source,
            incumbent=None if value is None else self._shown(value),
            bound=None if bound is None else self._shown(bound),
            gap=gap,
        )

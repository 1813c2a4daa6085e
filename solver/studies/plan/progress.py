"""Progress of a plan."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from ppsolve.solver.clock import Clock
from ppsolve.solver.run.progress import ListenerReply


@dataclass(frozen=True)
class PlanProgress:
    """State of a plan.

    `phase` is the work on the configuration at hand; `examined` of the `enumerated` configurations
    are decided or refined. `best` is the best goodput reached, in samples per second, `bound` the
    goodput that no configuration exceeds; `seconds` is wall time since the start.
    """

    seconds: float
    phase: str
    examined: int
    enumerated: int
    best: float | None
    bound: float


PlanListener = Callable[[PlanProgress], ListenerReply | None]

PHASES = ("splits and bounds", "heuristics", "exact solver", "finishing")
"""The next step of a candidate, by its level."""


class PlanNews:
    """Tells a listener new phases of a plan at once, and what goes on ten times a second.

    `clock`: that of the plan.
    `state`: returns the state of the plan in a phase.
    """

    def __init__(
        self,
        listener: PlanListener | None,
        clock: Clock,
        state: Callable[[str], PlanProgress],
    ) -> None:
        self._listener, self._clock, self._state = listener, clock, state
        self._told: tuple[str, float] = ("", 0.0)
        self._telling = threading.Lock()

    def tell(self, phase: str) -> None:
        """Tell of a phase that is new, or that has gone on for a tenth of a second."""
        with self._telling:
            seconds = self._clock.elapsed
            is_news = phase != self._told[0] or seconds > self._told[1] + 0.1
            if self._listener is not None and is_news:
                self._told = (phase, seconds)
                self._listener(self._state(phase))

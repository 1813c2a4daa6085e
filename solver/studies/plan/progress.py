"""Progress of a plan."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from ppsolve.solver.clock import Clock
from ppsolve.solver.interruptible import LOOK
from ppsolve.solver.run.progress import TICK


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


PlanListener = Callable[[PlanProgress], None]

PHASES = ("splits and bounds", "heuristics", "exact solver", "finishing")
"""The next step of a candidate, by its level."""


class PlanNews:
    """Tells a listener the state of a plan: news, and the same again after a quiet while.

    Parameters
    ----------
    listener : callable or None
        None: nobody listens.
    clock : Clock
        That of the plan.
    state : callable
        Returns the state of the plan in a phase.
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
        self._last: PlanProgress | None = None
        self._error: BaseException | None = None

    def tell(self, phase: str) -> None:
        """Tell of a phase that is new, or that has gone on for a tenth of a second.

        An error of the listener in another thread's `tick` is raised here.
        """
        if self._error is not None:
            raise self._error
        with self._telling:
            seconds = self._clock.elapsed
            is_news = phase != self._told[0] or seconds > self._told[1] + 0.1
            if self._listener is not None and is_news:
                self._told, self._last = (phase, seconds), self._state(phase)
                self._listener(self._last)

    def tick(self) -> None:
        """Tell the last state again after a quiet while, from another thread."""
        with self._telling:
            seconds = self._clock.elapsed
            quiet = seconds - self._told[1] >= TICK - LOOK
            if self._listener is None or self._last is None or self._error or not quiet:
                return
            self._told = (self._told[0], seconds)
            try:
                self._listener(replace(self._last, seconds=seconds))
            except BaseException as error:
                self._error = error

    @contextmanager
    def told_again(self) -> Iterator[None]:
        """Let a thread tell the state again while nothing else is told."""
        if self._listener is None:
            yield
            return
        ended = threading.Event()

        def tick() -> None:
            while not ended.wait(LOOK):
                self.tick()

        thread = threading.Thread(target=tick, name="ppsolve-plan-news", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

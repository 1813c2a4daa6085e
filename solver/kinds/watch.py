"""Values and bounds of the exact search on their way to a listener."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from ppsolve.solver.kinds.task import EXACT


class ProgressRelay:
    """Passes on what the exact search reports, from its threads, each with the latest of both.

    Parameters
    ----------
    tell : callable
        Told of event, source, value and bound.
    value : int or None
        The best value so far in ticks.
    bound : int
        The best bound so far in ticks.
    """

    def __init__(
        self, tell: Callable[[str, str, int | None, int], None], value: int | None, bound: int
    ) -> None:
        self._tell = tell
        self._value = value
        self._bound = bound
        self._lock = Lock()

    def incumbent(self, value: int) -> None:
        """Tell of a value in ticks if it is the best one."""
        with self._lock:
            if self._value is None or value < self._value:
                self._value = value
                self._tell("incumbent", EXACT, value, self._bound)

    def bound(self, bound: int) -> None:
        """Tell of a bound in ticks if it is the best one."""
        with self._lock:
            if bound > self._bound:
                self._bound = bound
                self._tell("bound", EXACT, self._value, bound)

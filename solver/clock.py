"""The clock of a call: how much of its time limit is left, and whether it was told to stop."""

from __future__ import annotations

import math
import threading
import time
from typing import Self


class Clock:
    """Wall time until a deadline. Phases ask it, and return their best once it is over.

    `seconds`: wall seconds from now on; None: no limit.
    `stopped`: set by whoever ends the clock early, the last one by this clock; a new
        one by default.
    `began`: moment of `time.monotonic` from which the seconds count; now by default.
    """

    def __init__(
        self,
        seconds: float | None = None,
        stopped: tuple[threading.Event, ...] = (),
        began: float | None = None,
    ) -> None:
        self.began = time.monotonic() if began is None else began
        self.deadline = math.inf if seconds is None else self.began + seconds
        self._stopped = stopped or (threading.Event(),)

    @property
    def elapsed(self) -> float:
        """Seconds since the clock was started."""
        return time.monotonic() - self.began

    @property
    def left(self) -> float:
        """Seconds until the deadline: infinite without a limit, 0 once it is over."""
        if self.is_stopped:
            return 0.0
        return max(0.0, self.deadline - time.monotonic())

    @property
    def is_over(self) -> bool:
        """Whether the time is up, or the call was told to stop."""
        return self.left <= 0.0

    @property
    def spent(self) -> float:
        """Part of its time that has passed: 0 without a limit, 1 once it is over."""
        elapsed, remaining = self.elapsed, self.left
        return elapsed / (elapsed + remaining) if remaining > 0.0 else 1.0

    @property
    def overdue(self) -> float:
        """Seconds since the deadline, 0 before it."""
        return max(0.0, time.monotonic() - self.deadline)

    @property
    def is_stopped(self) -> bool:
        """Whether the call was told to stop, whatever time is left."""
        return any(stopped.is_set() for stopped in self._stopped)

    @property
    def may_end(self) -> bool:
        """Whether there is a deadline, or somebody else may tell the call to stop."""
        return self.is_limited or len(self._stopped) > 1

    @property
    def is_limited(self) -> bool:
        """Whether there is a deadline."""
        return math.isfinite(self.deadline)

    def stop(self) -> None:
        """Tell this clock, and all that were taken from it, to be over now."""
        self._stopped[-1].set()

    def share(self, fraction: float) -> Self:
        """Return a clock that ends after a fraction of the time left, and stops with this one.

        It has no limit where this one has none.
        """
        return type(self)(
            self.left * fraction if self.is_limited else None, self._stopped
        )

    def part_for(self, seconds: float) -> float:
        """Return the part of the time left that so many seconds are, for `share`.

        Time runs on, so a clock may end between any two looks at it: the time left is read once.
        The part is 1 where no time is left, or where there is no limit.
        """
        remaining = self.left
        if remaining <= 0.0 or not math.isfinite(remaining):
            return 1.0
        return min(1.0, seconds / remaining)

    def apart(self) -> Self:
        """Return a clock that ends and stops with this one, and can be stopped by itself."""
        seconds = self.left if self.is_limited else None
        return type(self)(seconds, (*self._stopped, threading.Event()))

    def before(self, seconds: float) -> Self:
        """Return a clock that ends some seconds before this one, and stops with it."""
        return type(self)(
            self.left - seconds if self.is_limited else None, self._stopped
        )

    def within(self, seconds: float | None) -> Self:
        """Return a clock that ends with this one, and after so many seconds at the latest."""
        remaining = self.left if seconds is None else min(self.left, seconds)
        return type(self)(
            remaining if math.isfinite(remaining) else None, self._stopped
        )

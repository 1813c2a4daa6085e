"""A clock that counts questions instead of seconds, so that tests do not depend on the machine."""

from __future__ import annotations

import math

from ppsolve.solver.clock import Clock


class CountingClock(Clock):
    """Over after a number of questions, however long they take.

    Parameters
    ----------
    questions : int
        Questions to which the answer is that time is left.
    """

    def __init__(self, questions: int) -> None:
        super().__init__()
        self.questions = questions

    @property
    def left(self) -> float:
        """Infinite for the first questions, then 0."""
        self.questions -= 1
        return math.inf if self.questions >= 0 else 0.0

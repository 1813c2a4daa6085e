"""Options of a run, checked once."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.solver.clock import Clock
from ppsolve.solver.exact.question import SearchLimits
from ppsolve.solver.heuristics.own import OwnFunction
from ppsolve.solver.heuristics.stress.replay import MOST_JITTER


@dataclass(frozen=True)
class Options:
    """How to run; see `ppsolve.optimize` for the meaning of each.

    One that is out of range is an `InputError`, which names it and what would be right.
    """

    time_limit: float | None = 60.0  # infinity is None
    gap: float = 0.0
    deterministic_limit: float | None = None
    workers: int | None = None  # 1 to 1024
    seed: int = 0  # below 2^31: the seeds that CP-SAT takes
    deterministic: bool = False
    heuristics: Sequence[str | OwnFunction] | None = None  # becomes a tuple
    robust: float | None = None
    verify: bool | None = None

    def __post_init__(self) -> None:
        """Refuse what is out of range."""
        for field in ("time_limit", "deterministic_limit"):
            object.__setattr__(self, field, _seconds(getattr(self, field), field))
        object.__setattr__(self, "heuristics", _named(self.heuristics))
        is_count = self.workers is None or 1 <= self.workers <= 1024
        is_one = self.workers in {None, 1} or not self.deterministic
        is_jitter = self.robust is None or 0 < self.robust <= MOST_JITTER
        jitter = f"a coefficient of variation above 0, at most {MOST_JITTER:g}"
        for field, is_right, expected in (
            ("gap", 0 <= self.gap < 1, "a share from 0 to below 1"),
            ("workers", is_count, "1 to 1024"),
            ("workers", is_one, "1 with deterministic runs"),
            ("seed", 0 <= self.seed < 2**31, f"0 to {2**31 - 1}"),
            ("robust", is_jitter, jitter),
        ):
            if not is_right:
                raise InputError(
                    f"expected {expected}, got {getattr(self, field)}",
                    field=field,
                    code=ErrorCode.RANGE,
                )

    @property
    def used_workers(self) -> int:
        """Number of search threads."""
        if self.deterministic:
            return 1
        return self.workers or default_workers()

    def clock(
        self, began: float | None = None, stop: threading.Event | None = None
    ) -> Clock:
        """Return the clock of a call that began at a moment of `time.monotonic`, now by default.

        It is over once `stop` is set.

        Deterministic runs have no wall limit: it would make the answer depend on the machine. A
        limit of 0 leaves out the exact search, and lets everything else end.
        """
        is_kept = bool(self.time_limit) and not self.deterministic
        events = () if stop is None else (stop, threading.Event())
        return Clock(self.time_limit if is_kept else None, events, began)

    def limits(self, clock: Clock) -> SearchLimits:
        """Return the limits of a search that begins now and has to end by a clock."""
        units = self.deterministic_limit
        if self.deterministic and units is None:
            units = self.time_limit
        is_allowed = self.deterministic or self.time_limit != 0
        seconds = clock.left if is_allowed else 0.0
        return SearchLimits(
            seconds=None if math.isinf(seconds) else seconds,
            deterministic=units,
            gap=self.gap,
            workers=self.used_workers,
            seed=self.seed,
            clock=clock,
        )


def _seconds(limit: float | None, field: str) -> float | None:
    if limit is not None and not limit >= 0:
        raise InputError(
            f"expected a number of seconds >= 0, got {limit}",
            field=field,
            code=ErrorCode.TYPE,
        )
    return None if limit is None or math.isinf(limit) else limit


def _named(
    heuristics: Sequence[str | OwnFunction] | None,
) -> tuple[str | OwnFunction, ...] | None:
    if isinstance(heuristics, str):
        raise InputError(
            f'expected a list of names, got "{heuristics}"',
            field="heuristics",
            code=ErrorCode.TYPE,
        )
    if callable(heuristics):
        raise InputError(
            "expected a list of functions, got one",
            field="heuristics",
            code=ErrorCode.TYPE,
        )
    return None if heuristics is None else tuple(heuristics)


def default_workers() -> int:
    """Return the number of processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

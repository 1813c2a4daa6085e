"""Options of a run, checked once."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from ppsolve.models.documents.errors import InputError
from ppsolve.solver.clock import Clock
from ppsolve.solver.exact.question import SearchLimits
from ppsolve.solver.heuristics.own import OwnFunction
from ppsolve.solver.heuristics.stress.replay import MOST_JITTER


@dataclass(frozen=True)
class Options:
    """How to run; see `ppsolve.optimize` for the meaning of each."""

    time_limit: float | None = 60.0
    gap: float = 0.0
    deterministic_limit: float | None = None
    workers: int | None = None
    seed: int = 0
    deterministic: bool = False
    heuristics: tuple[str | OwnFunction, ...] | None = None
    robust: float | None = None
    verify: bool | None = None

    @classmethod
    def checked(
        cls,
        *,
        time_limit: float | None,
        gap: float = 0.0,
        deterministic_limit: float | None = None,
        workers: int | None = None,
        seed: int = 0,
        deterministic: bool = False,
        heuristics: Sequence[str | OwnFunction] | None = None,
        robust: float | None = None,
        verify: bool | None = None,
    ) -> Self:
        """Make options of values that may be out of range.

        Parameters
        ----------
        time_limit, deterministic_limit : float or None
            Seconds and deterministic units, >= 0; infinity is None, no limit.
        gap : float
            Share from 0 to below 1.
        workers : int or None
            From 1 to 1024; None or 1 if `deterministic`.
        seed : int
            From 0 to below 2^31, the seeds that CP-SAT takes.
        deterministic : bool
            As for `ppsolve.optimize`.
        heuristics : sequence of str or callable, or None
            Names or functions; None for all that apply.
        robust : float or None
            Coefficient of variation, above 0.
        verify : bool or None
            As for `ppsolve.optimize`.

        Returns
        -------
        Options
            The same values.

        Raises
        ------
        InputError
            Names the option that is out of range and what would be right.
        """
        return cls(
            _seconds(time_limit, "time_limit"),
            _share(gap),
            _seconds(deterministic_limit, "deterministic_limit"),
            _threads(workers, deterministic=deterministic),
            _seed(seed),
            deterministic,
            _named(heuristics),
            _jitter(robust),
            verify,
        )

    @property
    def used_workers(self) -> int:
        """Number of search threads."""
        if self.deterministic:
            return 1
        return self.workers or default_workers()

    def clock(self, began: float | None = None) -> Clock:
        """Return the clock of a call.

        Deterministic runs have no wall limit: it would make the answer depend on the machine. A
        limit of 0 leaves out the exact search, and lets everything else end.

        Parameters
        ----------
        began : float, optional
            Moment of `time.monotonic` at which the call began; now by default.

        Returns
        -------
        Clock
            Without a limit where none is to be kept.
        """
        is_kept = bool(self.time_limit) and not self.deterministic
        return Clock(self.time_limit if is_kept else None, began=began)

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
        raise InputError(f"expected a number of seconds >= 0, got {limit}", field=field)
    return None if limit is None or math.isinf(limit) else limit


def _share(gap: float) -> float:
    if not 0 <= gap < 1:
        raise InputError(f"expected a share from 0 to below 1, got {gap}", field="gap")
    return gap


def _threads(workers: int | None, *, deterministic: bool) -> int | None:
    if workers is not None and not 1 <= workers <= 1024:
        raise InputError(f"expected 1 to 1024, got {workers}", field="workers")
    if deterministic and workers not in {None, 1}:
        raise InputError(f"expected 1 with deterministic runs, got {workers}", field="workers")
    return workers


def _seed(seed: int) -> int:
    if not 0 <= seed < 2**31:
        raise InputError(f"expected 0 to {2**31 - 1}, got {seed}", field="seed")
    return seed


def _named(
    heuristics: Sequence[str | OwnFunction] | None,
) -> tuple[str | OwnFunction, ...] | None:
    if isinstance(heuristics, str):
        raise InputError(f'expected a list of names, got "{heuristics}"', field="heuristics")
    if callable(heuristics):
        raise InputError("expected a list of functions, got one", field="heuristics")
    return None if heuristics is None else tuple(heuristics)


def _jitter(robust: float | None) -> float | None:
    if robust is not None and not 0 < robust <= MOST_JITTER:
        raise InputError(
            f"expected a coefficient of variation above 0, at most {MOST_JITTER:g}, got {robust:g}",
            field="robust",
        )
    return robust


def default_workers() -> int:
    """Return the number of processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

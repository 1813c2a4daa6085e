"""Searches on a thread of their own that share a board with the main search."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count, cycle

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import MemoryDeadlockError
from ppsolve.solver.board import Board
from ppsolve.solver.clock import Clock
from ppsolve.solver.heuristics.heuristic import Effort
from ppsolve.solver.heuristics.order_search import order_search
from ppsolve.solver.heuristics.params import HeuristicParams, TurnParams
from ppsolve.solver.heuristics.sweep import Sweep
from ppsolve.solver.interruptible import await_at_exit

Turns = Callable[[Clock], object]
"""Searches until a clock is over; the next call goes on from there."""


class ParallelSearch:
    """Searches at work in a background thread, in turn; compiled code lets other threads run.

    One search alone gets all the time. Several are called in turn, until none of them finds
    anything and each ends before its turn is over. All end with the clock.
    """

    def __init__(
        self,
        searches: Sequence[Turns],
        board: Board,
        clock: Clock,
        params: TurnParams | None = None,
    ) -> None:
        self._searches, self._board = searches, board
        self._params = params or TurnParams()
        self._clock = clock.apart()
        self._error: BaseException | None = None
        self._thread = threading.Thread(
            target=self._work, name="parallel-search", daemon=True
        )

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Search as long as the context lasts; raises what a search raised."""
        self._thread.start()
        try:
            yield
        finally:
            self._clock.stop()
            await_at_exit(self._thread)
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        try:
            with suppress(MemoryDeadlockError):
                if len(self._searches) > 1:
                    self._take_turns()
                else:
                    self._searches[0](self._clock)
        except BaseException as error:
            self._error = error

    def _take_turns(self) -> None:
        resting = 0
        for search in cycle(self._searches):
            if resting == len(self._searches) or self._clock.is_over:
                return
            before, turn = self._board.incumbent, self._turn()
            search(turn)
            is_resting = self._board.incumbent is before and not turn.is_over
            resting = resting + 1 if is_resting else 0

    def _turn(self) -> Clock:
        params, clock = self._params, self._clock
        seconds = (
            params.share * clock.left if clock.is_limited else params.endless_seconds
        )
        return clock.within(max(seconds, params.least_seconds))


def order_turns(initial: Schedule, board: Board, params: HeuristicParams) -> Turns:
    """Return the search over orders in turns, each with other random numbers.

    It begins with a schedule of a problem without an obstacle to it; each turn goes on from the
    schedule of the board.
    """
    seeds = count(2)

    def search(clock: Clock) -> None:
        best = min(
            initial, board.schedule or initial, key=lambda schedule: schedule.value
        )
        effort = Effort(clock, uses_all=True, board=board, params=params)
        order_search(best, effort, seed=next(seeds))

    return search


def sweep_turns(problem: Problem, board: Board, params: HeuristicParams) -> Turns:
    """Return the sweep in turns, each from where the last one ended."""
    sweep: Sweep | None = None

    def search(clock: Clock) -> None:
        nonlocal sweep
        sweep = sweep or Sweep(problem, board, clock, params.sweep)
        sweep.take_turn(clock)

    return search

"""Engines of one machine: watched processes side by side, or this process itself."""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from ppsolve.models.bench.record import Failure
from ppsolve.models.documents.errors import InputError, PpsolveError
from ppsolve.solver.bench.engine import Finished, Limits
from ppsolve.solver.bench.machine import group_memory
from ppsolve.solver.bench.watched import ForkServer, WatchedCall

LOOK = 0.1
"""Seconds between two looks at time and memory. A process that fills memory at 3 GB/s takes 0.3 GB
more than it may; one look at 150 processes takes 2 ms."""


class LocalEngine:
    """Runs each call in a process of its own that is watched from here.

    Parameters
    ----------
    processes : int
        Calls side by side.
    nursery : ForkServer, optional
        Helper to fork from, which stays; one for each `map` by default.
    is_wanted : callable, optional
        Asked at each look; once it returns false, calls are ended and no more answers come.
    """

    def __init__(
        self,
        processes: int = 1,
        nursery: ForkServer | None = None,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        if processes < 1:
            raise InputError(f"expected at least 1, got {processes}", field="processes")
        self.processes = processes
        self._nursery, self._is_wanted = nursery, is_wanted

    def map(
        self, function: Callable[[Any], Any], items: Iterable[Any], limits: Limits
    ) -> Iterator[Finished]:
        """Yield answers as they finish; see `Engine`.

        Parameters
        ----------
        function : callable
            Takes an item; importable by its name in another process.
        items : iterable
            Whatever can be pickled; taken one by one as processes become free.
        limits : Limits
            Of each call.

        Yields
        ------
        Finished
            One for each item.
        """
        nursery = self._nursery or ForkServer()
        waiting = enumerate(items)
        running: list[WatchedCall] = []
        over: list[WatchedCall] = []
        watch = _CallMonitor(limits)
        with selectors.DefaultSelector() as selector:
            try:
                while True:
                    for index, item in islice(waiting, self.processes - len(running)):
                        call = WatchedCall(index, (function, item), limits, nursery.begin())
                        running.append(call)
                        selector.register(call.connection, selectors.EVENT_READ, call)
                    # The next processes start while whoever asked takes these answers.
                    yield from (call.finished() for call in over)
                    if not running or not self._is_wanted():
                        return
                    watch.look(selector, running)
                    over = [call for call in running if call.is_over]
                    running = [call for call in running if not call.is_over]
            finally:
                _end(running)
                if self._nursery is None:
                    nursery.close()


class _CallMonitor:
    """Reads what calls send, and kills those that break their limits."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._looked = -LOOK

    def look(self, selector: selectors.BaseSelector, running: list[WatchedCall]) -> None:
        """Wait up to `LOOK` seconds for something to read."""
        for key, _ in selector.select(LOOK):
            call = key.data
            call.read()
            if call.is_over:
                selector.unregister(key.fileobj)
        if time.monotonic() - self._looked >= LOOK:
            memory = {} if self._limits.memory is None else group_memory()
            for call in running:
                call.watch(memory)
            self._looked = time.monotonic()


def _end(running: list[WatchedCall]) -> None:
    for call in running:
        call.abandon()
        call.connection.close()


class InlineEngine:
    """Makes each call in this process, one after the other; limits are not kept.

    Deliberate errors and interrupts end it, any other error costs its item.

    Parameters
    ----------
    is_strict : bool
        Let any other error end it too.
    """

    def __init__(self, *, is_strict: bool = False) -> None:
        self._is_strict = is_strict

    def map(
        self, function: Callable[[Any], Any], items: Iterable[Any], limits: Limits
    ) -> Iterator[Finished]:
        """Yield answers in order; see `Engine`.

        Parameters
        ----------
        function : callable
            Takes an item.
        items : iterable
            Anything.
        limits : Limits
            Without meaning here.

        Yields
        ------
        Finished
            One for each item.
        """
        for index, item in enumerate(items):
            began = time.monotonic()
            try:
                value, failure, error = function(item), None, None
            except PpsolveError:
                raise
            except Exception as raised:
                if self._is_strict:
                    raise
                value, failure = None, Failure.ERROR
                error = f"{type(raised).__name__}: {raised}"
            yield Finished(index, value, failure, error, time.monotonic() - began)

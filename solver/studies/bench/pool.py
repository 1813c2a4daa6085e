"""Calls in processes of their own, some side by side, with limits of time and memory."""

from __future__ import annotations

import os
import pickle
import selectors
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Any, Protocol

from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.studies.bench.file import Failure
from ppsolve.solver.studies.bench.child import LENGTH
from ppsolve.solver.studies.bench.fork_server import (
    END,
    START,
    ForkServer,
    kill_group,
)
from ppsolve.solver.studies.bench.machine import (
    GIB,
    group_memory,
    kernel_kills,
    this_machine,
)


@dataclass(frozen=True)
class PoolParams:
    """Patience with calls in other processes."""

    limit_factor: float = 1.05  # share of its time limit after which a solve is overdue
    margin: float = (
        10.0  # seconds beyond that to start, read the item, lower it and answer
    )
    look: float = (
        0.1  # seconds between looks at time and memory; fills 0.3 GB meanwhile
    )
    sending: float = 60.0  # seconds in which a process must take its item


POOL = PoolParams()


@dataclass(frozen=True)
class Limits:
    """Limits of one call, kept from outside its process; none by default."""

    seconds: float | None = None  # wall time
    memory: int | None = (
        None  # resident bytes of the process and of all that it started
    )


@dataclass(frozen=True)
class CallLink:
    """What passes between a caller and its calls while they run."""

    # Once set, calls answer with their best so far (`STOPPED`), and no further one begins.
    stop: threading.Event | None = None
    # Takes the index of an item and each of its news (`send_news`).
    listener: Callable[[int, Any], None] | None = None


NO_LINK = CallLink()


def wall_cap(time_limit: float | None, *, is_kept: bool) -> float | None:
    """Return the seconds after which a solve with a time limit is overdue.

    None where it may take any time: without a limit, or with 0, which lets heuristics end.

    `is_kept`: the limit is one of wall time; deterministic runs have none.
    """
    if not time_limit or not is_kept:
        return None
    return time_limit * POOL.limit_factor + POOL.margin


@dataclass(frozen=True)
class Finished:
    """The answer to one item, or how it failed."""

    index: int  # place of the item, from 0
    value: Any = None  # the function's answer, None if it failed
    failure: Failure | None = None
    error: str | None = None  # the failure in words
    seconds: float = 0.0  # wall time of the call
    machine: str | None = None  # where it ran, None if not known
    attempts: int = 1  # how often the item was begun


class Engine(Protocol):
    """Calls a function on items, some of them side by side."""

    def map(
        self,
        function: Callable[[Any], Any],
        items: Iterable[Any],
        limits: Limits,
        link: CallLink = NO_LINK,
    ) -> Iterator[Finished]:
        """Yield an answer for each item as it finishes; closing the iterator ends what still runs.

        Items that have not begun when the caller stops have no answer.

        `function`: takes an item; importable by its name in another process.
        `items`: anything that can be pickled; taken one by one as processes become free.
        """
        ...


class LocalEngine(Engine):
    """Runs each call in a process of its own that is watched from here.

    `processes`: calls side by side.
    `server`: helper to fork from, which stays; one for each `map` by default.
    `is_wanted`: asked at each look; once it returns false, calls are ended and no more
        answers come.
    """

    def __init__(
        self,
        processes: int = 1,
        server: ForkServer | None = None,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        if processes < 1:
            raise InputError(
                f"expected at least 1, got {processes}",
                field="processes",
                code=ErrorCode.RANGE,
            )
        self._processes = processes
        self._server, self._is_wanted = server, is_wanted

    def map(
        self,
        function: Callable[[Any], Any],
        items: Iterable[Any],
        limits: Limits,
        link: CallLink = NO_LINK,
    ) -> Iterator[Finished]:
        """Yield answers as they finish."""
        server = self._server or ForkServer()
        waiting = _until(link.stop, enumerate(items))
        running: list[_WatchedCall] = []
        over: list[_WatchedCall] = []
        next_look = 0.0
        with selectors.DefaultSelector() as selector:
            try:
                while True:
                    for index, item in islice(waiting, self._processes - len(running)):
                        call = _WatchedCall(
                            index, (function, item), server.begin(), link
                        )
                        running.append(call)
                        selector.register(call.connection, selectors.EVENT_READ, call)
                    # The next processes start while whoever asked takes these answers.
                    yield from (call.finished() for call in over)
                    if not running or not self._is_wanted():
                        return
                    for key, _ in selector.select(POOL.look):
                        if key.data.read():
                            selector.unregister(key.fileobj)
                    if time.monotonic() >= next_look:
                        memory = {} if limits.memory is None else group_memory()
                        for call in running:
                            call.watch(limits, memory)
                        next_look = time.monotonic() + POOL.look
                    over = [call for call in running if call.is_over]
                    running = [call for call in running if not call.is_over]
            finally:
                for call in running:
                    call.abandon()
                    call.connection.close()
                if self._server is None:
                    server.close()


def _until(
    stop: threading.Event | None, items: Iterator[tuple[int, Any]]
) -> Iterator[tuple[int, Any]]:
    """Yield items as long as the caller has not stopped."""
    return takewhile(lambda item: stop is None or not stop.is_set(), items)


class _WatchedCall:
    """A call of a function on its item, in a process of its own behind `connection`."""

    def __init__(
        self,
        index: int,
        call: tuple[Any, Any],
        connection: socket.socket,
        link: CallLink,
    ) -> None:
        self._index, self._call, self._link = index, call, link
        self._received = bytearray()
        self._began = time.monotonic()
        self._killed: tuple[Failure, str] | None = None
        self._kills = kernel_kills()
        self.connection = connection
        self.process: int | None = None
        self.is_over = False

    def read(self) -> bool:
        """Take what has come, and send the call once the process is there; say if it is over."""
        try:
            chunk = self.connection.recv(1 << 20)
        except OSError:
            chunk = b""
        self._received += chunk
        if not chunk:
            self.is_over = True
            self.connection.close()
        elif self.process is None and len(self._received) >= START.size:
            (self.process,) = START.unpack(self._received[: START.size])
            del self._received[: START.size]
            self._send()
        self._take_news()
        return self.is_over

    def _take_news(self) -> None:
        """Pass on news that have come whole."""
        while self.process is not None and len(self._received) >= LENGTH.size:
            (length,) = LENGTH.unpack(self._received[: LENGTH.size])
            end = LENGTH.size - length
            if length >= 0 or len(self._received) < end:
                return
            data = bytes(self._received[LENGTH.size : end])
            del self._received[:end]
            if self._link.listener is not None:
                self._link.listener(self._index, pickle.loads(data))

    def _send(self) -> None:
        self._began = time.monotonic()
        try:
            data = pickle.dumps(self._call)
        except Exception as error:
            self._kill(Failure.ERROR, f"the item cannot be sent: {error}")
            return
        self.connection.settimeout(POOL.sending)
        # A process that has ended meanwhile says so by its status.
        with suppress(OSError):
            self.connection.sendall(LENGTH.pack(len(data)) + data)
        self.connection.settimeout(None)

    def watch(self, limits: Limits, memory: dict[int, int]) -> None:
        """Kill the process if it has had its time, or its group takes too much `memory`."""
        spent = time.monotonic() - self._began
        if self.process is None or self._killed is not None:
            return
        stop = self._link.stop
        if stop is not None and stop.is_set():
            # Again at every look: a process that has just been forked forgets its signals.
            with suppress(OSError):
                os.kill(self.process, signal.SIGUSR1)
        used = memory.get(self.process, 0)
        if limits.memory is not None and used > limits.memory:
            words = f"{used / GIB:.2f} GiB of memory, allowed are {limits.memory / GIB:.2f} GiB"
            self._kill(Failure.MEMORY, words)
        elif limits.seconds is not None and spent > limits.seconds:
            self._kill(Failure.TIMEOUT, f"no answer after {limits.seconds:.1f} s")

    def _kill(self, failure: Failure, words: str) -> None:
        self._killed = failure, words
        self.abandon()

    def abandon(self) -> None:
        """Kill the process and all that it started."""
        if self.process is not None and not self.is_over:
            kill_group(self.process)

    def finished(self) -> Finished:
        """Return the answer, or how the process ended without one."""
        failure, value = self._outcome()
        return Finished(
            index=self._index,
            value=None if failure else value,
            failure=failure,
            error=value if failure else None,
            seconds=time.monotonic() - self._began,
            machine=this_machine(),
        )

    def _outcome(self) -> tuple[Failure | None, Any]:
        if self._killed is not None:
            return self._killed
        body, end = self._received[: -END.size], self._received[-END.size :]
        if self.process is None or len(end) < END.size:
            return Failure.CRASH, "the helper process that starts others was killed"
        (process, status) = END.unpack(end)
        if process == self.process and len(body) >= LENGTH.size:
            (length,) = LENGTH.unpack(body[: LENGTH.size])
            if len(body) == LENGTH.size + length:
                answer: tuple[Failure | None, Any] = pickle.loads(body[LENGTH.size :])
                return answer
        return self._ended(status)

    def _ended(self, status: int) -> tuple[Failure, str]:
        if status >= 0:
            return Failure.CRASH, f"the process ended with {status} and gave no answer"
        name = (
            signal.Signals(-status).name
            if -status in set(signal.Signals)
            else str(-status)
        )
        if -status == signal.SIGKILL and kernel_kills() > self._kills:
            return Failure.MEMORY, "killed by the system, which had run out of memory"
        return Failure.CRASH, f"the process was killed by {name}"

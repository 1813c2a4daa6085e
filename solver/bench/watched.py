"""Calls in processes of their own, whose time and memory are watched from here."""

from __future__ import annotations

import atexit
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from functools import cache
from typing import Any

from ppsolve.models.bench.record import Failure
from ppsolve.models.documents.errors import InputError
from ppsolve.solver.bench.engine import EngineError, Finished, Limits
from ppsolve.solver.bench.machine import GIB, kernel_kills, this_machine
from ppsolve.solver.bench.nursery import END, LENGTH, READY, START

SENDING_SECONDS = 60.0
"""Seconds in which a process has to take its item; it reads nothing else."""

ENDING_SECONDS = 0.2
"""Seconds that the helper gets to kill what runs and to end; what it leaves dies with it on Linux,
and calls that are watched are killed by those who watch. Ctrl-C is answered within a second."""


class ForkServer:
    """The helper that processes are forked from, started with the first call, and again if killed.

    Threads may share it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    def begin(self) -> socket.socket:
        """Return the socket of a new process.

        Raises
        ------
        EngineError
            The helper does not start.
        """
        ours, theirs = socket.socketpair()
        with theirs, self._lock:
            for _ in range(2):
                try:
                    socket.send_fds(self._running(), [b"c"], [theirs.fileno()])
                    return ours
                except OSError:
                    self._end()
        ours.close()
        raise EngineError("the helper process that starts others ended twice at once")

    def close(self) -> None:
        """End the helper and all that runs."""
        with self._lock:
            self._end()

    def _running(self) -> socket.socket:
        if self._control is None or self._process is None or self._process.poll() is not None:
            self._end()
            self._start()
        assert self._control is not None
        return self._control

    def _start(self) -> None:
        if not hasattr(os, "fork"):
            raise InputError("processes that are watched need Linux or macOS")
        ours, theirs = socket.socketpair()
        code = f"from ppsolve.solver.bench.nursery import main; main({theirs.fileno()})"
        environment = {"OPENBLAS_NUM_THREADS": "1", **os.environ}
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        with theirs:
            self._control = ours
            self._process = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=environment,
                start_new_session=True,
            )
        if ours.recv(len(READY)) != READY:
            code_of = self._process.wait()
            raise EngineError(f"the helper process that starts others ended with {code_of}")

    def _end(self) -> None:
        """Close the socket, upon which the helper kills all that runs and ends."""
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            try:
                self._process.wait(ENDING_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._control = self._process = None


@cache
def shared_nursery() -> ForkServer:
    """Return the one helper of this process, which ends with it."""
    nursery = ForkServer()
    atexit.register(nursery.close)
    return nursery


class WatchedCall:
    """One call that runs in a process of its own.

    Parameters
    ----------
    index : int
        Place of the item.
    call : tuple of callable and object
        The function and its item.
    limits : Limits
        Kept by `watch`.
    connection : socket
        From `ForkServer.begin`.
    """

    def __init__(
        self, index: int, call: tuple[Any, Any], limits: Limits, connection: socket.socket
    ) -> None:
        self._index, self._call, self._limits = index, call, limits
        self._received = bytearray()
        self._began = time.monotonic()
        self._killed: tuple[Failure, str] | None = None
        self._kills = kernel_kills()
        self.connection = connection
        self.process: int | None = None
        self.is_over = False

    def read(self) -> None:
        """Take what has come; send the call once the process is there."""
        try:
            part = self.connection.recv(1 << 20)
        except OSError:
            part = b""
        self._received += part
        if not part:
            self.is_over = True
            self.connection.close()
        elif self.process is None and len(self._received) >= START.size:
            (self.process,) = START.unpack(self._received[: START.size])
            del self._received[: START.size]
            self._send()

    def _send(self) -> None:
        self._began = time.monotonic()
        try:
            data = pickle.dumps(self._call)
        except Exception as error:
            self.kill(Failure.ERROR, f"the item cannot be sent: {error}")
            return
        self.connection.settimeout(SENDING_SECONDS)
        # A process that has ended meanwhile says so by its status.
        with suppress(OSError):
            self.connection.sendall(LENGTH.pack(len(data)) + data)
        self.connection.settimeout(None)

    def watch(self, memory: dict[int, int]) -> None:
        """Kill the process where it has had its time, or its group takes too much memory.

        Parameters
        ----------
        memory : dict of int to int
            Resident bytes by process group.
        """
        limits, spent = self._limits, time.monotonic() - self._began
        if self.process is None or self._killed is not None:
            return
        used = memory.get(self.process, 0)
        if limits.memory is not None and used > limits.memory:
            words = f"{used / GIB:.2f} GiB of memory, allowed are {limits.memory / GIB:.2f} GiB"
            self.kill(Failure.MEMORY, words)
        elif limits.seconds is not None and spent > limits.seconds:
            self.kill(Failure.TIMEOUT, f"no answer after {limits.seconds:.1f} s")

    def kill(self, failure: Failure, words: str) -> None:
        """Kill the process and all that it started.

        Parameters
        ----------
        failure, words : Failure and str
            The reason, for the answer.
        """
        self._killed = failure, words
        self.abandon()

    def abandon(self) -> None:
        """Kill the process without a reason to be told."""
        if self.process is not None and not self.is_over:
            with suppress(OSError):
                os.killpg(self.process, signal.SIGKILL)

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
        name = signal.Signals(-status).name if -status in set(signal.Signals) else str(-status)
        if -status == signal.SIGKILL and kernel_kills() > self._kills:
            return Failure.MEMORY, "killed by the system, which had run out of memory"
        return Failure.CRASH, f"the process was killed by {name}"

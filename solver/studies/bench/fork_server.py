"""The process that others are forked from: it has imported the library, and has one thread.

Python and the library take more than a second to start, a fork of a process that has both 10 to 40
ms. Whoever solves cannot fork: its threads are not copied, and locks that they hold stay held. So a
helper is started afresh, imports everything, and forks a process for each call.

It is given one end of a pair of sockets for each call, over which go, in this order,

1. from here: the number of the process, which leads a process group of its own;
2. to the process: the length of the call, and the call;
3. from the process: news, each behind its length below zero, then the length of the answer, and
   the answer, unless it ends before;
4. from here: the number of the process again, and the status that it ended with.

A process that gets SIGUSR1 should answer with its best so far. Whatever is left of the group is
killed in the end. When the socket by which calls come is closed, all
that runs is killed and the helper ends.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import pickle
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from contextlib import suppress
from functools import cache
from typing import Any, NoReturn

from ppsolve.models.documents.errors import ErrorCode, InputError, PpsolveError
from ppsolve.models.studies.bench.file import Failure
from ppsolve.solver.studies.bench.child import LENGTH, start_behind

START, END = struct.Struct("!q"), struct.Struct("!qq")
READY = b"r"

STOPPED = threading.Event()
"""Set in a process whose caller wants its best so far."""


class EngineError(PpsolveError):
    """An engine cannot run anything: its helper or its cluster does not start."""


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

        Raises `EngineError`: the helper does not start.
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
        if (
            self._control is None
            or self._process is None
            or self._process.poll() is not None
        ):
            self._end()
            self._start()
        assert self._control is not None
        return self._control

    def _start(self) -> None:
        if not hasattr(os, "fork"):
            raise InputError(
                "processes that are watched need Linux or macOS",
                code=ErrorCode.UNSUPPORTED,
            )
        ours, theirs = socket.socketpair()
        with theirs:
            self._control = ours
            self._process = start_behind(theirs, __name__)
        if ours.recv(len(READY)) != READY:
            code_of = self._process.wait()
            raise EngineError(
                f"the helper process that starts others ended with {code_of}"
            )

    def _end(self) -> None:
        """Close the socket, upon which the helper kills all that runs and ends."""
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            try:
                # What the helper leaves dies with it on Linux; Ctrl-C is answered in a second.
                self._process.wait(0.2)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._control = self._process = None


@cache
def shared_fork_server() -> ForkServer:
    """Return the one helper of this process, which ends with it."""
    server = ForkServer()
    atexit.register(server.close)
    return server


def main(handle: int) -> None:
    """Import the library, say so, and serve calls until the socket `handle` is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Forked processes inherit it, so that no signal comes before there is somebody to take it.
    signal.signal(signal.SIGUSR1, lambda *_: STOPPED.set())
    _import_library()
    gc.collect()
    # Objects that no collection looks at stay on pages that all processes share.
    gc.freeze()
    with socket.socket(fileno=handle) as control:
        control.sendall(READY)
        _ForkLoop(control).serve()


def _import_library() -> None:
    import ppsolve.solver.exact.exact
    import ppsolve.solver.kernels.native.machine  # noqa: F401
    from ppsolve.solver.api.kinds import all_kinds
    from ppsolve.solver.api.registry import installed
    from ppsolve.solver.run.entries import versions
    from ppsolve.solver.studies.bench.suite import code_of

    all_kinds()
    # Each process that looked by itself took 20 ms of processor time for it.
    installed()
    code_of({})
    versions()
    _load_kernels()


def _load_kernels() -> None:
    """Load kernels for all processes that are forked; a process that began without ran Python.

    A pipeline whose solving takes 15 of 22 kernels is solved for that, if the cache has kernels. A
    fork copies one thread only, so all others must have ended.
    """
    from ppsolve.models.kinds.pipeline.instance import PipelineInstance
    from ppsolve.solver.api.api import optimize
    from ppsolve.solver.kernels.cache import is_warm
    from ppsolve.solver.kernels.compilation import PARAMS, expect

    if expect(PARAMS.paying_steps) and is_warm():
        forward = [[3, 2, 4, 3], [2, 3, 5, 1]]
        small = {
            "num_devices": 2,
            "num_microbatches": 4,
            "times": {"forward": forward, "backward_input": 3, "backward_weight": 2},
            "memory": {"capacity": 2, "activation": 1},
        }
        optimize(PipelineInstance.parse(small), time_limit=0.0, workers=1)
    for thread in set(threading.enumerate()) - {threading.current_thread()}:
        thread.join()


class _ForkLoop:
    """Forks a process for each socket that comes, and tells each how its process ended."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._children: dict[int, socket.socket] = {}
        self._woken, self._waking = os.pipe()
        for handle in (self._woken, self._waking):
            os.set_blocking(handle, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._waking, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Serve until nobody can ask any more."""
        try:
            while True:
                calls = self._control.fileno()
                readable, _, _ = select.select([calls, self._woken], [], [])
                if self._woken in readable:
                    self._bury()
                if calls in readable and not self._accept():
                    return
        finally:
            for child in self._children:
                kill_group(child)

    def _accept(self) -> bool:
        """Fork for the next call; return false if there will be none."""
        data, handles, _, _ = socket.recv_fds(self._control, 1, 1)
        for handle in handles:
            self._bear(socket.socket(fileno=handle))
        return bool(data)

    def _bear(self, connection: socket.socket) -> None:
        helper = os.getpid()
        child = os.fork()
        if child == 0:
            self._become_child(connection, helper)
        with suppress(OSError):
            os.setpgid(child, child)
        self._children[child] = connection
        with suppress(OSError):
            connection.sendall(START.pack(child))

    def _become_child(self, connection: socket.socket, helper: int) -> NoReturn:
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for handle in (self._woken, self._waking):
                os.close(handle)
            # Held open here, the ends of other calls would not be seen.
            for channel in (self._control, *self._children.values()):
                channel.close()
            _settle(helper)
            _answer(connection)
        finally:
            os._exit(0)

    def _bury(self) -> None:
        with suppress(BlockingIOError):
            while os.read(self._woken, 512):
                pass
        while self._children:
            child, status = os.waitpid(-1, os.WNOHANG)
            if child == 0:
                return
            kill_group(child)
            code = os.waitstatus_to_exitcode(status)
            with self._children.pop(child) as connection, suppress(OSError):
                connection.sendall(END.pack(child, code))


def kill_group(leader: int) -> None:
    """Kill a process and all of its group, if they are still there."""
    with suppress(OSError):
        os.killpg(leader, signal.SIGKILL)


def _settle(helper: int) -> None:
    """Lead a process group, write nowhere, die with the helper, and be killed before it."""
    os.setpgid(0, 0)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            # 1 is PR_SET_PDEATHSIG.
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        if os.getppid() != helper:
            os._exit(1)
        with (
            suppress(OSError),
            open("/proc/self/oom_score_adj", "w", encoding="ascii") as file,
        ):
            # Up to 1000: where memory runs out, Linux kills this before those that wait for it.
            file.write("500")


_to_caller: list[socket.socket] = []
"""The connection of this process, if it is one that was forked, until its answer is sent."""

_sending = threading.Lock()


def send_news(news: Any) -> None:
    """Send news to whoever waits for the answer of this process; elsewhere do nothing."""
    data = pickle.dumps(news)
    with _sending, suppress(OSError):
        for connection in _to_caller:
            connection.sendall(LENGTH.pack(-len(data)) + data)


def _answer(connection: socket.socket) -> None:
    _to_caller.append(connection)
    answer = _outcome(connection)
    try:
        data = pickle.dumps(answer)
    except Exception as error:
        data = pickle.dumps(
            (Failure.ERROR, f"the answer cannot be sent: {_words(error)}")
        )
    with _sending:
        _to_caller.clear()
        connection.sendall(LENGTH.pack(len(data)) + data)


def _outcome(connection: socket.socket) -> tuple[Failure | None, Any]:
    """Return the answer of the call without a failure, or the failure in words."""
    try:
        (length,) = LENGTH.unpack(_received(connection, LENGTH.size))
        function, item = pickle.loads(_received(connection, length))
        return None, function(item)
    except MemoryError as error:
        return Failure.MEMORY, _words(error)
    except BaseException as error:
        return Failure.ERROR, _words(error)


def _words(error: BaseException) -> str:
    text = " ".join(str(error).split())[:1000]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _received(connection: socket.socket, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        chunk = connection.recv(min(length - len(data), 1 << 20))
        if not chunk:
            raise EOFError("nobody asks any more")
        data += chunk
    return bytes(data)

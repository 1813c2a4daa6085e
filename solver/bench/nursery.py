"""The process that others are forked from: it has imported the library, and has one thread.

Python and the library take more than a second to start, a fork of a process that has both 10 to 40
ms. Whoever solves cannot fork: its threads are not copied, and locks that they hold stay held. So a
helper is started afresh, imports everything, and forks a process for each call.

It is given one end of a pair of sockets for each call, over which go, in this order,

1. from here: the number of the process, which leads a process group of its own;
2. to the process: the length of the call, and the call;
3. from the process: the length of the answer, and the answer, unless it ends before;
4. from here: the number of the process again, and the status that it ended with.

Whatever is left of the group is killed then. When the socket by which calls come is closed, all
that runs is killed and the helper ends.
"""

from __future__ import annotations

import ctypes
import gc
import os
import pickle
import select
import signal
import socket
import struct
import sys
import threading
from contextlib import suppress
from typing import Any, NoReturn

from ppsolve.models.bench.record import Failure

START, LENGTH, END = struct.Struct("!q"), struct.Struct("!q"), struct.Struct("!qq")
READY = b"r"
_DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of Linux's ``prctl``."""

SMALL: dict[str, Any] = {
    "num_devices": 2,
    "num_microbatches": 4,
    "times": {"forward": [[3, 2, 4, 3], [2, 3, 5, 1]], "backward_input": 3, "backward_weight": 2},
    "memory": {"capacity": 2, "activation": 1},
}
"""A pipeline whose solving takes 15 of 22 kernels, in 0.3 s of processor time if all are stored.
Each of the others costs every process that uses it 3 ms."""

OOM_SCORE = 500
"""Added to the score by which Linux chooses whom to kill where memory runs out (up to 1000): a
process that solves goes before the helper and before whoever waits for it."""


def main(handle: int) -> None:
    """Import the library, say so, and serve calls until the socket `handle` is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _import_library()
    gc.collect()
    # Objects that no collection looks at stay on pages that all processes share.
    gc.freeze()
    with socket.socket(fileno=handle) as control:
        control.sendall(READY)
        _ForkLoop(control).serve()


def _import_library() -> None:
    """Import all that an item needs, OR-tools and LLVM too, and look up what is installed."""
    import ppsolve.solver.bench.item
    import ppsolve.solver.cpsat.exact
    import ppsolve.solver.kernels.native.machine  # noqa: F401
    from ppsolve.solver.bench.code import code_of
    from ppsolve.solver.optimize.registry import installed
    from ppsolve.solver.run.entries import versions

    # Each process that looked by itself took 20 ms of processor time for it.
    installed()
    code_of({})
    versions()
    _load_kernels()


def _load_kernels() -> None:
    """Load kernels for all processes that are forked; a process that began without ran Python.

    A small pipeline is solved for that, where the cache has kernels. A fork copies one thread only,
    so all others must have ended.
    """
    from ppsolve.models.pipeline.instance import PipelineInstance
    from ppsolve.solver.kernels.cache import is_warm
    from ppsolve.solver.kernels.compilation import PAYING_STEPS, expect
    from ppsolve.solver.optimize.api import optimize

    if expect(PAYING_STEPS) and is_warm():
        optimize(PipelineInstance.parse(SMALL), time_limit=0.0, workers=1)
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
                ready, _, _ = select.select([calls, self._woken], [], [])
                if self._woken in ready:
                    self._bury()
                if calls in ready and not self._accept():
                    return
        finally:
            for child in self._children:
                _kill_group(child)

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
            for other in (self._control, *self._children.values()):
                other.close()
            _settle(helper)
            _answer(connection)
        finally:
            os._exit(0)

    def _bury(self) -> None:
        """Tell how processes ended, and kill what they left behind."""
        with suppress(BlockingIOError):
            while os.read(self._woken, 512):
                pass
        while self._children:
            child, status = os.waitpid(-1, os.WNOHANG)
            if child == 0:
                return
            _kill_group(child)
            code = os.waitstatus_to_exitcode(status)
            with self._children.pop(child) as connection, suppress(OSError):
                connection.sendall(END.pack(child, code))


def _kill_group(leader: int) -> None:
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
            ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        if os.getppid() != helper:
            os._exit(1)
        with suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write(str(OOM_SCORE))


def _answer(connection: socket.socket) -> None:
    """Read the call, make it, and send what it returned or raised."""
    answer = _outcome(connection)
    try:
        data = pickle.dumps(answer)
    except Exception as error:
        data = pickle.dumps((Failure.ERROR, f"the answer cannot be sent: {_words(error)}"))
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
        part = connection.recv(min(length - len(data), 1 << 20))
        if not part:
            raise EOFError("nobody asks any more")
        data += part
    return bytes(data)

"""Calls that their caller can leave: at a deadline, or when somebody presses Ctrl-C."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from weakref import WeakSet

from ppsolve.solver.clock import Clock

LOOK = 0.05
"""Seconds from one look of the caller at its call to the next."""

SLACK = 0.1
"""Seconds that a call gets to return its best once its clock is over."""

PATIENCE = 0.35
"""Seconds that a call gets to return its best once it was interrupted."""

EXIT_PATIENCE = 10.0
"""Seconds for which an interpreter that ends waits for calls that were left: libraries crash where
they are torn down below a thread that is still in them."""

_left: WeakSet[threading.Thread] = WeakSet()


def await_at_exit(thread: threading.Thread) -> None:
    """Let the interpreter wait at its end for a thread that was told to end."""
    _left.add(thread)


@atexit.register
def _await_left() -> None:
    deadline = time.monotonic() + EXIT_PATIENCE
    for thread in list(_left):
        thread.join(max(0.0, deadline - time.monotonic()))


def call_within(
    call: Callable[[], object],
    clock: Clock,
    slack: float = SLACK,
    look: Callable[[], None] | None = None,
) -> bool:
    """Make a call, and leave it behind some seconds, `slack`, after its clock is over.

    The call runs in a thread of its own where its clock may end or there is somebody to tell.
    Python has no way to end a thread: a call that was left goes on until it asks its clock. The
    caller's thread looks every `LOOK` seconds. A clock that was stopped leaves `SLACK` seconds.

    The answer is false if the call was left behind; what the call raised is raised. Ctrl-C stops
    the clock, and is raised as `KeyboardInterrupt` after the call had `PATIENCE` seconds to end by
    itself.
    """
    if not clock.may_end and look is None:
        call()
        return True
    errors: list[BaseException] = []
    ended = threading.Event()

    def work() -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)
        finally:
            ended.set()

    context = copy_context()
    thread = threading.Thread(
        target=context.run, args=(work,), name="ppsolve-work", daemon=True
    )
    thread.start()
    stopped_at: float | None = None
    try:
        while not ended.wait(LOOK):
            if look is not None:
                look()
            now = time.monotonic()
            if stopped_at is None and clock.is_stopped:
                stopped_at = now
            is_late = stopped_at is not None and now > stopped_at + SLACK
            if is_late or clock.overdue > slack:
                await_at_exit(thread)
                return False
    except BaseException:
        clock.stop()
        if not ended.wait(PATIENCE):
            await_at_exit(thread)
        raise
    for error in errors:
        raise error
    return True

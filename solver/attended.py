"""Work in a thread of its own, ended from outside at a deadline or by an interrupt."""

from __future__ import annotations

import atexit
import ctypes
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from weakref import WeakSet

from ppsolve.solver.clock import Clock

LOOK = 0.05
"""Seconds from one look of the caller at its work to the next."""

SLACK = 0.1
"""Seconds that work gets to return its best once its clock is over, before it is broken off."""

PATIENCE = 0.35
"""Seconds after which work that cannot be broken off is left behind.

A thread takes notice between two steps of Python, so not while compiled code runs.
"""


EXIT_PATIENCE = 10.0
"""Seconds for which an interpreter that ends waits for work that was left behind: libraries crash
where they are torn down below a thread that is still in them."""

_left: WeakSet[threading.Thread] = WeakSet()


def await_at_exit(thread: threading.Thread) -> None:
    """Let the interpreter wait at its end for a thread that was told to end.

    CP-SAT, for one, aborts the process where it comes back to an interpreter that is gone.
    """
    _left.add(thread)


@atexit.register
def _await_left() -> None:
    deadline = time.monotonic() + EXIT_PATIENCE
    for thread in list(_left):
        thread.join(max(0.0, deadline - time.monotonic()))


class TimeIsUp(BaseException):
    """Raised inside work whose time is over, between any two of its steps."""


_choosing = threading.Lock()
_unbroken: set[int] = set()


@contextmanager
def unbroken() -> Iterator[None]:
    """Let what runs inside never be broken off: an import cut short leaves broken modules."""
    thread = threading.get_ident()
    with _choosing:
        is_outermost = thread not in _unbroken
        _unbroken.add(thread)
    try:
        yield
    finally:
        if is_outermost:
            _unbroken.discard(thread)


class InterruptibleCall:
    """A call that its caller can end at any time.

    It runs in a thread of its own, as a thread cannot leave compiled code that it waits for.

    Parameters
    ----------
    call : callable
        The work; asks `within` for the parts that have to end at some time.
    clock : Clock
        Stopped by an interrupt. `PATIENCE` after its end the work is left behind.
    look : callable
        Called by the caller's thread every `LOOK` seconds.
    is_attended : bool
        Whether a thread is needed; without one interrupts come as they always do.
    """

    def __init__(
        self,
        call: Callable[[], None],
        clock: Clock,
        look: Callable[[], None],
        *,
        is_attended: bool = True,
    ) -> None:
        self._call, self._clock, self._look = call, clock, look
        self._thread: threading.Thread | None = None
        self._is_attended = is_attended
        self._limit: tuple[Clock, float] | None = None
        self._is_told = False
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self.is_interrupted = False

    def run(self) -> bool:
        """Do the work; return false if it was left behind.

        Its own errors are raised here. An interrupt is noted in `is_interrupted`.
        """
        if not self._is_attended:
            self._body()
            return self._outcome()
        self._thread = threading.Thread(
            target=copy_context().run, args=(self._body,), name="ppsolve-work", daemon=True
        )
        self._thread.start()
        try:
            with self._told_again():
                self._attend()
        except KeyboardInterrupt:
            self._interrupt()
        except BaseException:
            self._clock.stop()
            self._tell(TimeIsUp)
            raise
        return self._outcome()

    def within(self, clock: Clock, call: Callable[[], object], slack: float = SLACK) -> bool:
        """Do a part of the work, which is broken off some time after its clock is over.

        Parameters
        ----------
        clock : Clock
            Clock of the part.
        call : callable
            The part.
        slack : float
            Seconds that it gets beyond its clock.

        Returns
        -------
        bool
            False if it was broken off.
        """
        try:
            self._limit = clock, slack
            call()
            with _choosing:
                self._limit = None
            self._await_what_was_told()
        except TimeIsUp:
            with _choosing:
                self._limit, self._is_told = None, False
            return False
        return True

    def _await_what_was_told(self) -> None:
        """Let an exception that is under way arrive here, and not in the part that comes next."""
        end = time.monotonic() + SLACK
        while self._is_told and time.monotonic() < end:
            time.sleep(0.001)
        self._is_told = False

    def _body(self) -> None:
        # What was told as the work ended arrives at any of its last steps, and is no error of it.
        with suppress(TimeIsUp):
            try:
                self._call()
            except BaseException as error:
                self._error = error
            finally:
                self._ended.set()

    def _outcome(self) -> bool:
        """Raise what the work raised; return false if it was left behind."""
        if isinstance(self._error, KeyboardInterrupt):
            self.is_interrupted = True
        elif self._error is not None and not isinstance(self._error, TimeIsUp):
            raise self._error
        return self._ended.is_set()

    def _attend(self) -> None:
        assert self._thread is not None
        while not self._ended.wait(LOOK) and self._thread.is_alive():
            self._look()
            limit = self._limit
            if limit is not None and limit[0].overdue > limit[1]:
                self._break_off(limit)
            if self._clock.overdue > PATIENCE:
                self._leave_behind()
                return

    def _break_off(self, limit: tuple[Clock, float]) -> None:
        with _choosing:
            if self._limit is limit and not self._is_told and self._may_be_told():
                self._is_told = True
                self._tell(TimeIsUp)

    def _leave_behind(self) -> None:
        self._wait_at_exit()
        with _choosing:
            if not self._is_told and self._may_be_told():
                self._tell(TimeIsUp)

    def _wait_at_exit(self) -> None:
        if self._thread is not None:
            await_at_exit(self._thread)

    def _may_be_told(self) -> bool:
        return self._thread is not None and self._thread.ident not in _unbroken

    def _interrupt(self) -> None:
        """Stop the work: by its clock, then by an exception, then leave it behind."""
        self.is_interrupted = True
        self._clock.stop()
        try:
            if self._ended.wait(SLACK):
                return
            with _choosing:
                self._is_told = True
                if self._may_be_told():
                    self._tell(KeyboardInterrupt)
            if not self._ended.wait(PATIENCE):
                self._wait_at_exit()
        except KeyboardInterrupt:
            # Who interrupts twice does not want to wait.
            return

    @contextmanager
    def _told_again(self) -> Iterator[None]:
        """Notice an error that hits a callback or a destructor, where Python drops and prints it.

        The part is then told once more.
        """
        usual = sys.unraisablehook

        def notice(unraisable: sys.UnraisableHookArgs) -> None:
            if unraisable.exc_type is TimeIsUp:
                with _choosing:
                    self._is_told = False
            else:
                usual(unraisable)

        sys.unraisablehook = notice
        try:
            yield
        finally:
            # Calls on other threads may have put their own in its place meanwhile.
            if sys.unraisablehook is notice:
                sys.unraisablehook = usual

    def _tell(self, error: type[BaseException]) -> None:
        """Raise an error in the thread of the work, at its next step of Python."""
        if self._thread is not None and self._thread.ident is not None:
            raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
            raise_in(ctypes.c_ulong(self._thread.ident), ctypes.py_object(error))

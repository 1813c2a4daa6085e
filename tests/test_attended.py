"""Work that is ended from outside."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from ppsolve.solver.attended import InterruptibleCall, TimeIsUp, unbroken
from ppsolve.solver.clock import Clock


def nothing() -> None:
    """Take a look and do nothing."""


def forever() -> None:
    while True:
        pass


def worked(
    call: Callable[[InterruptibleCall], None], clock: Clock | None = None
) -> tuple[InterruptibleCall, bool]:
    """Do the work of `call`; it gets the object that it is the work of."""
    work = InterruptibleCall(lambda: call(work), clock or Clock(), nothing)
    return work, work.run()


def test_work_in_time_is_done() -> None:
    done: list[bool] = []
    work, is_complete = worked(lambda work: done.append(work.within(Clock(), nothing)))
    assert (done, is_complete, work.is_interrupted) == ([True], True, False)


def test_a_part_whose_time_is_over_is_broken_off_and_the_next_one_goes_on() -> None:
    done: list[bool] = []

    def parts(work: InterruptibleCall) -> None:
        done.append(work.within(Clock(0.0), forever))
        done.append(work.within(Clock(), nothing))

    assert worked(parts)[1]
    assert done == [False, True]


def test_an_error_sent_late_does_not_hit_the_next_part() -> None:
    done: list[bool] = []
    steps: list[int] = []

    def parts(work: InterruptibleCall) -> None:
        for _ in range(5):
            # Ends about when it would be broken off.
            ending = threading.Event()
            threading.Timer(0.1, ending.set).start()
            done.append(work.within(Clock(0.0), ending.wait))
            steps.extend(range(1000))

    assert worked(parts)[1]
    assert len(done) == 5
    assert len(steps) == 5000


def test_an_error_that_a_destructor_swallows_is_sent_again(capsys) -> None:
    class Slow:
        def __del__(self) -> None:
            end = time.monotonic() + 0.5
            while time.monotonic() < end:
                pass

    done: list[bool] = []

    def parts(work: InterruptibleCall) -> None:
        def swallow() -> None:
            Slow()
            forever()

        done.append(work.within(Clock(0.0), swallow))

    assert worked(parts)[1]
    assert done == [False]
    assert capsys.readouterr().err == ""


def test_what_must_not_be_broken_is_done_first() -> None:
    steps: list[str] = []

    def part() -> None:
        with unbroken(), unbroken():
            ending = threading.Event()
            threading.Timer(0.3, ending.set).start()
            while not ending.is_set():
                pass
            steps.append("import")
        forever()

    done: list[bool] = []
    worked(lambda work: done.append(work.within(Clock(0.0), part)))
    assert (steps, done) == (["import"], [False])


def test_work_that_takes_no_notice_is_left_behind() -> None:
    held = threading.Lock()
    held.acquire()
    assert not worked(lambda _: held.__enter__() and None, Clock(0.0))[1]
    held.release()


def test_work_that_is_told_as_it_ends_has_no_error(monkeypatch) -> None:
    class Ended(threading.Event):
        def set(self) -> None:
            super().set()
            raise TimeIsUp

    printed: list[object] = []
    monkeypatch.setattr(threading, "excepthook", printed.append)
    work = InterruptibleCall(nothing, Clock(), nothing)
    work._ended = Ended()
    assert work.run()
    assert work._thread is not None
    work._thread.join()
    assert printed == []


def test_errors_of_the_work_are_its_callers() -> None:
    def fail(_: InterruptibleCall | None) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        worked(fail)
    with pytest.raises(ValueError, match="no"):
        InterruptibleCall(lambda: fail(None), Clock(), nothing, is_attended=False).run()


@pytest.mark.parametrize("call", [forever, lambda: threading.Event().wait()])
def test_an_interrupt_stops_the_clock_and_ends_the_work(call: Callable[[], None]) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    clock = Clock()
    work = InterruptibleCall(call, clock, interrupt)
    work.run()
    assert work.is_interrupted
    assert clock.is_over


def test_work_that_asks_its_clock_returns_by_itself_when_interrupted() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    clock, answer = Clock(), []

    def ask() -> None:
        while not clock.is_over:
            pass
        answer.append("best")

    work = InterruptibleCall(ask, clock, interrupt)
    assert work.run()
    assert (work.is_interrupted, answer) == (True, ["best"])


def test_without_a_thread_an_interrupt_is_noted_as_well() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    work = InterruptibleCall(interrupted, Clock(), nothing, is_attended=False)
    assert work.run()
    assert work.is_interrupted


def test_an_error_of_who_looks_ends_the_work() -> None:
    ended = threading.Event()

    def until_told() -> None:
        try:
            forever()
        except TimeIsUp:
            ended.set()

    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        InterruptibleCall(until_told, Clock(), fail).run()
    assert ended.wait(10)

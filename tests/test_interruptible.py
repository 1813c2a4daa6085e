"""Calls that are left behind at a deadline, or by Ctrl-C."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from contextvars import ContextVar

import pytest

from ppsolve.solver import interruptible
from ppsolve.solver.clock import Clock
from ppsolve.solver.interruptible import call_within

SETTING: ContextVar[int] = ContextVar("SETTING", default=0)


def nothing() -> None:
    """Do nothing."""


def test_a_call_in_time_has_ended() -> None:
    done: list[str] = []
    assert call_within(
        lambda: done.append(threading.current_thread().name), Clock(60.0)
    )
    assert call_within(lambda: done.append(threading.current_thread().name), Clock())
    assert done == ["ppsolve-work", threading.current_thread().name]


def test_a_call_whose_time_is_over_is_left_behind() -> None:
    released = threading.Event()
    assert not call_within(released.wait, Clock(0.0), slack=0.0)
    assert any(thread.is_alive() for thread in interruptible._left)
    released.set()


def test_a_call_may_take_a_little_longer() -> None:
    assert call_within(lambda: time.sleep(0.1), Clock(0.01), slack=30.0)


@pytest.mark.parametrize("clock", [Clock(), Clock(60.0)])
def test_what_a_call_raises_is_raised(clock: Clock) -> None:
    def fails() -> None:
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        call_within(fails, clock)


def test_the_caller_looks_now_and_then() -> None:
    looks, released = list[int](), threading.Event()

    def look() -> None:
        looks.append(1)
        if len(looks) == 3:
            released.set()

    assert call_within(released.wait, Clock(), look=look)
    assert len(looks) >= 3


def test_an_interrupt_stops_the_clock_and_waits_for_the_call() -> None:
    ended: list[bool] = []
    clock = Clock(60.0)

    def until_stopped() -> None:
        while not clock.is_over:
            time.sleep(0.001)
        ended.append(True)

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        call_within(until_stopped, clock, look=interrupt)
    assert ended == [True]


def test_a_call_sees_the_context_of_its_caller() -> None:
    seen: list[int] = []
    token = SETTING.set(7)
    call_within(lambda: seen.append(SETTING.get()), Clock(60.0))
    SETTING.reset(token)
    assert seen == [7]


LEFT = """
import time
from ppsolve.solver.clock import Clock
from ppsolve.solver.interruptible import call_within

def late():
    time.sleep(0.5)
    print("ended")

print(call_within(late, Clock(0.0), slack=0.0))
"""


def test_an_interpreter_waits_at_its_end_for_what_was_left() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LEFT], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "ended"]

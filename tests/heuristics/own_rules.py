"""Heuristics as a user writes them, right and wrong ones; tests name them by this file."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np

import ppsolve


def one_by_one(instance: ppsolve.PipelineInstance) -> list[list[str]]:
    """Run each micro-batch alone."""
    stages, count = range(instance.num_devices), range(instance.num_microbatches)
    return [[f"{stage}{kind}{i}" for i in count for kind in "FB"] for stage in stages]


def all_forwards_first(instance: Any) -> list[list[str]]:
    """Forget that memory is limited."""
    stages, count = range(instance.num_devices), range(instance.num_microbatches)
    return [[f"{stage}{kind}{i}" for kind in "FB" for i in count] for stage in stages]


def one_after_the_other(p: ppsolve.Problem) -> Any:
    """Run one op at a time, as they wait for each other; begin late."""
    start, waiting, now = (
        np.zeros(p.num_ops, dtype=np.int64),
        set(range(p.num_ops)),
        100,
    )
    while waiting:
        blocked = {
            b for a, b in zip(p.before, p.after, strict=True) if int(a) in waiting
        }
        for op in sorted(waiting - blocked):
            start[op], now = now, now + int(p.duration[op] + p.lag.max(initial=0))
            waiting.remove(op)
    return start


def by_both(instance: Any, problem: Any, scale: int = 1) -> Any:
    assert problem.name == instance.name
    return one_after_the_other(problem) * scale


def too_early(problem: Any) -> Any:
    return np.zeros(problem.num_ops, dtype=np.int64)


def raises(problem: Any) -> Any:
    raise ValueError("two\nlines")


def exits(problem: Any) -> Any:
    raise SystemExit(3)


def shortens_ops(problem: Any) -> Any:
    problem.duration[:] = 0
    return too_early(problem)


def drops_the_capacity(problem: Any) -> Any:
    problem.pools[0].acquire_amount[:] = 0
    return too_early(problem)


def renames_ops(problem: Any) -> Any:
    problem.explicit_names[0] = "x"


def refuses(instance: Any) -> Any:
    raise ppsolve.NotApplicableError("needs patience")


def too_few(problem: Any) -> Any:
    return [0, 1]


def halves(problem: Any) -> Any:
    return [0.5] * problem.num_ops


def huge(problem: Any) -> Any:
    return [10**30] * problem.num_ops


def nothing(problem: Any) -> Any:
    """Forget to return."""


def text(problem: Any) -> Any:
    return "0F0"


def unknown_action(instance: Any) -> Any:
    return [["0F9"], []]


def one_order_short(instance: Any) -> Any:
    return all_forwards_first(instance)[:1]


def leaves_out(instance: Any) -> Any:
    return [row[1:] for row in all_forwards_first(instance)]


def twice(problem: Any) -> Any:
    return [["F0.0", "F0.0"]]


def in_a_circle(problem: Any) -> Any:
    return [["F1.0", "F0.0"]]


ENDED = threading.Event()
"""Set once all tests have run, so that what was left behind ends."""


def never_ends(problem: Any) -> Any:
    ENDED.wait(20)


def sleeps(problem: Any) -> Any:
    time.sleep(3)


def wants_more(data: Any) -> Any: ...


number = 3

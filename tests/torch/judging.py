"""What a closed loop must reach: predictions beside recorded steps, on a machine that is steady."""

from __future__ import annotations

from itertools import pairwise
from statistics import median

import pytest

from ppsolve.models.core.result import Result
from ppsolve.models.trace.table import Trace
from ppsolve.solver.torch.again import compare_in_turn
from ppsolve.solver.torch.comparison import compare_run
from ppsolve.solver.torch.recording import steps_of
from ppsolve.solver.traces.clocks import recorded_span

CLOSE = 0.05
"""Relative difference of recorded times from predicted ones."""

ON_ANY_MACHINE = 0.1
"""That of steps from replays of their own ops, which know no transfers and no time between ops:
2.4 to 6.8 % in four runs where ten to fifteen other programs shared two cores."""


def judge(result: Result, before: Trace, both: Trace) -> None:
    """Hold a result to its run; skips what a machine whose speed changes cannot show.

    `before` has steps of a first schedule, from which the result was made; `both` has steps of the
    first schedule and of the result in turn.
    """
    beside, run = (steps_of(both, number, 2) for number in (0, 1))
    step, replay, *_ = compare_run(result, run)
    assert abs(replay.error) <= ON_ANY_MACHINE
    between = compare_in_turn(result, run, beside)
    print(
        f"predicted {step.error:+.1%}, by others {between.error:+.1%}, replay {replay.error:+.1%}"
    )
    first = spans_of(beside)
    change = median(abs(after / one - 1) for one, after in pairwise(first))
    if change > CLOSE:
        pytest.skip(f"the machine is busy: one step of a schedule and the next differ {change:.1%}")
    assert abs(replay.error) <= CLOSE
    assert abs(between.error) <= CLOSE
    every = [*spans_of(before), *first]
    drift = max(every) / min(every) - 1
    if drift <= CLOSE:
        assert abs(step.error) <= CLOSE


def spans_of(trace: Trace) -> list[int]:
    """Return the nanoseconds from the first start to the last end of each step."""
    return [recorded_span(part) for _, _, part in trace.parts()]

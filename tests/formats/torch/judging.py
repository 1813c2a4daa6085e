"""What a closed loop must reach: predictions beside recorded steps, on a machine that is steady."""

from __future__ import annotations

from math import sqrt
from statistics import median

from ppsolve.models.core.result import Result
from ppsolve.models.studies.trace.table import Trace
from ppsolve.solver.formats.torch.runtime import compare_in_turn, compare_run, steps_of
from ppsolve.solver.studies.traces.fits import recorded_span

CLOSE = 0.05
"""Relative difference of recorded times from predicted ones."""

ON_ANY_MACHINE = 0.1
"""That of steps from replays of their own ops, which know no transfers and no time between ops:
2.4 to 6.8 % in four runs where ten to fifteen other programs shared two cores."""


def judge(result: Result, before: Trace, both: Trace) -> None:
    """Hold a result to its run, as closely as the machine allows.

    `before` has steps of a first schedule, from which the result was made; `both` has steps of the
    first schedule and of the result in turn. Where the speed of the machine changes from step to
    step, the median of so few is known to `uncertainty` only; and a step that takes longer than the
    replay of its own ops spends that time between ops, which no prediction knows.
    """
    beside, run = (steps_of(both, number, 2) for number in (0, 1))
    step, replay, *_ = compare_run(result, run)
    errors = [row.error for row in compare_in_turn(result, run, beside)]
    between, doubt = median(errors), uncertainty(errors)
    print(
        f"predicted {step.error:+.1%}, by others {between:+.1%} (give or take {doubt:.1%}), "
        f"replay {replay.error:+.1%}"
    )
    assert abs(between) <= CLOSE + doubt + abs(replay.error)
    assert abs(replay.error) <= ON_ANY_MACHINE
    every = [
        recorded_span(part)
        for trace in (before, beside)
        for _, _, part in trace.parts()
    ]
    if max(every) <= (1 + CLOSE) * min(every):
        assert abs(step.error) <= CLOSE
        assert abs(replay.error) <= CLOSE


def uncertainty(errors: list[float]) -> float:
    """Return twice the standard error of a median of normal errors, from their median deviation."""
    middle = median(errors)
    deviation = 1.4826 * median(abs(error - middle) for error in errors)
    return 2 * 1.2533 * deviation / sqrt(len(errors))

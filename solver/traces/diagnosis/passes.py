"""Orders and exchanges of all steps: a search ends where it gains no more, or with its time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ppsolve.models.core.result import Status
from ppsolve.solver.clock import Clock
from ppsolve.solver.traces.diagnosis.steps import (
    DiagnosedStep,
    Searches,
    Variant,
    exchanged_bound,
    replica_bounds,
)
from ppsolve.solver.traces.diagnosis.verdict import ReplicaVerdict, StepVerdict
from ppsolve.solver.traces.replay import least_span

STEPS_SHARE = 0.75
"""Part of the time that is left after preparing for the steps; what they do not need of it, and the
rest, is for what would help."""

PATIENCE = 0.2
"""Seconds without an answer that is better by 0.1 % after which a search ends. Over the 16 steps of
SE the means of orders and exchanges, and processor seconds of a step for each, are 8.006 and
6.596 s in 0.23 and 0.10 s with 0.05; 8.006 and 6.595 s in 0.27 and 0.17 s with 0.1; 8.006 and
6.593 s in 0.33 and 0.31 s with 0.2; 8.006 and 6.593 s in 0.51 and 0.56 s with 0.4. All orders are
proved in each. Beside other programs a wall second holds fewer of them."""


class StepInProgress:
    """What is known of one step: the best found, bounds, and searches that time cut off.

    Parameters
    ----------
    step : DiagnosedStep
        The step.
    variant : Variant
        The run as it is.
    """

    def __init__(self, step: DiagnosedStep, variant: Variant) -> None:
        self.step, self._variant = step, variant
        self._bounds = [least_span(one.part) for one in step.parts]
        self._ordered = list(step.replays)
        self._bound = max(self._bounds)
        self._exchanged = max(step.replays)
        has_one = len(step.parts) == 1
        self._least = self._bound if has_one else exchanged_bound(variant, step)
        self.unfinished = {False} if has_one else {False, True}

    @property
    def gap(self) -> float:
        """Share by which the best that was found for an unfinished search is above its bound."""
        if False in self.unfinished:
            return max(self._ordered) / max(self._bound, 1) - 1
        return self._exchanged / max(self._least, 1) - 1

    def search(self, searches: Searches, clock: Clock, *, is_free: bool, seed: int) -> None:
        """Search until nothing better is found for long, or the clock is over.

        Parameters
        ----------
        searches : Searches
            Searches that are kept between steps.
        clock : Clock
            Clock of the search; a search that it cuts off stays in `unfinished`.
        is_free : bool
            Micro-batches may be exchanged between replicas.
        seed : int
            Seed of the random numbers, from 1.
        """
        seconds = clock.left
        if seconds <= 0:
            return
        answer = searches.answer(
            self._variant, self.step, is_free=is_free, seconds=seconds, seed=seed, patience=PATIENCE
        )
        if answer is None:
            self.unfinished.discard(is_free)
            return
        is_patient = PATIENCE <= answer.seconds < seconds - PATIENCE
        if is_patient or answer.status is Status.OPTIMAL:
            self.unfinished.discard(is_free)
        if is_free:
            self._exchanged = min(self._exchanged, int(answer.makespan))
            self._least = max(self._least, int(answer.bound))
        else:
            self._ordered = list(map(min, self._ordered, _ends(self.step, answer.schedule)))
            self._bound = max(self._bound, int(answer.bound))

    def bound_replicas(self, clock: Clock) -> None:
        """Bound the span of every replica; what the clock leaves no time for is weaker only."""
        searched = replica_bounds(self._variant, self.step, clock)
        self._bounds = list(map(max, self._bounds, searched))
        self._bound = max(self._bound, *self._bounds)

    @property
    def verdict(self) -> StepVerdict:
        """The verdict as far as it is known, nanoseconds."""
        ordered, bounds, longest = self._ordered, list(self._bounds), max(self._ordered)
        has_one = len(ordered) == 1
        # The recorded assignment is one of all, so that no order of it beats their bound.
        bound = self._bound if has_one else max(self._bound, self._least)
        if bound == longest and ordered.count(longest) == 1:
            # The bound of the step is met by one replica alone, so it is a bound of that replica.
            bounds[ordered.index(longest)] = bound
        rows = zip(self.step.replicas, self.step.parts, ordered, bounds, strict=True)
        return StepVerdict(
            self.step.number,
            tuple(
                ReplicaVerdict(replica, one.span, one.replayed, value, least)
                for replica, one, value, least in rows
            ),
            bound,
            longest if has_one else min(self._exchanged, longest),
            bound if has_one else self._least,
        )


def verdicts_of(
    steps: Sequence[DiagnosedStep], variant: Variant, searches: Searches, clock: Clock
) -> list[StepVerdict]:
    """Return the verdict of every step.

    Every step has its share of the time; what some do not need goes to those that were cut off,
    then to bounds of all replicas, which take 0.16 s of processor time for the 32 of SE.

    Parameters
    ----------
    steps : sequence of DiagnosedStep
        Recorded steps.
    variant : Variant
        The run as it is.
    searches : Searches
        Searches that are kept between steps.
    clock : Clock
        Clock of the diagnosis.

    Returns
    -------
    list of StepVerdict
        In the order of the steps.
    """
    # Else the first step pays for it with all its share, and its exchange has no time.
    for is_free in (False, True):
        if not clock.is_over and (len(steps[0].parts) > 1 or not is_free):
            searches.prepare(variant, steps[0], is_free=is_free)
    clock = clock.share(STEPS_SHARE)
    found: list[StepInProgress] = []
    for number, step in enumerate(steps):
        share = clock.share(1 / (len(steps) - number))
        one = StepInProgress(step, variant)
        found.append(one)
        for is_free in sorted(one.unfinished):
            part = share if is_free or len(one.unfinished) == 1 else share.share(0.5)
            one.search(searches, part, is_free=is_free, seed=1)
    _search_again(found, searches, clock)
    for number, one in enumerate(found):
        if not clock.is_over:
            one.bound_replicas(clock.share(1 / (len(found) - number)))
    return [one.verdict for one in found]


def _search_again(found: Sequence[StepInProgress], searches: Searches, clock: Clock) -> None:
    """Share the time that is left among the searches that were cut off, largest gap first."""
    cut = sorted((one for one in found if one.unfinished), key=lambda one: -one.gap)
    jobs = [(one, is_free) for one in cut for is_free in sorted(one.unfinished)]
    for number, (one, is_free) in enumerate(jobs):
        share = clock.share(1 / (len(jobs) - number))
        one.search(searches, share, is_free=is_free, seed=2)


def _ends(step: DiagnosedStep, schedule: Any) -> list[int]:
    """Return the span of each replica of a joint schedule, ticks of a nanosecond."""
    problem = schedule.problem
    ends = schedule.start + problem.duration
    replicas = range(len(step.parts))
    return [
        int(ends[mine].max() - schedule.start[mine].min())
        for mine in (problem.replica == replica for replica in replicas)
    ]

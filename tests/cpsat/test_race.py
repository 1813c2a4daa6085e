"""A race of searches from several starts: who goes on, who is told, and when it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from threading import Barrier, Thread
from typing import Any, ClassVar

import pytest

from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.clock import Clock
from ppsolve.solver.cpsat.neighbourhood import race as module
from ppsolve.solver.cpsat.neighbourhood.race import LAST_SHARE, PROMOTED, SuccessiveHalving
from ppsolve.solver.structure.implied import ImpliedOrder
from tests.small import at, op, small

PROBLEM = small([op("a", 1, "r")], [])


def worth(value: int) -> Schedule:
    """Return a schedule of the one op that ends at `value`."""
    return at(PROBLEM, value - 1)


class Scripted:
    """A search whose every pass takes a tick off its schedule, until it is exhausted."""

    log: ClassVar[list[tuple[int, int]]] = []
    passes = 3

    def __init__(self, implied: Any, start: Schedule, bound: int, limits: Any) -> None:
        self.name, self.best, self.done = start.value, start, 0
        self.exchange: Callable[[Schedule | None], Schedule | None] = lambda better: None
        self.is_interrupted = False

    @property
    def is_exhausted(self) -> bool:
        return self.done >= self.passes

    def climb(self, clock: Clock, *, is_patient: bool) -> bool:
        if clock.is_over:
            return False
        self.log.append((self.name, self.done))
        self.done += 1
        self.best = worth(self.best.value - 1)
        self.exchange(self.best)
        return True

    def adopt(self, other: Schedule) -> None:
        self.best = min(self.best, other, key=lambda each: each.value)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, int]]]:
    monkeypatch.setattr(module, "WindowLNS", Scripted)
    Scripted.log = []
    yield Scripted.log


def halving_of(
    starts: Sequence[int], clock: Clock | None = None, bound: int = 0, workers: int = 1
) -> SuccessiveHalving:
    left = list(starts[1:])

    def draw(clock: Clock) -> Schedule | None:
        return worth(left.pop(0)) if left else None

    implied, first = ImpliedOrder(PROBLEM), worth(starts[0])
    return SuccessiveHalving(implied, first, draw, bound, clock or Clock(), seed=0, workers=workers)


def run_in_threads(halving: SuccessiveHalving, count: int, given: Schedule | None = None) -> None:
    threads = [Thread(target=halving.run, args=(Clock(60), lambda _: given)) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_one_of_four_goes_on_the_best_one(log: list[tuple[int, int]]) -> None:
    starts = [50, 80, 40, 60, 70]
    halving_of(starts).run(Clock(), lambda better: None)
    assert PROMOTED == 4
    # As soon as four have come as far, the best of them goes on, before the fifth begins.
    assert log[:6] == [(50, 0), (80, 0), (40, 0), (60, 0), (40, 1), (70, 0)]
    # Without new starts the best that waits goes on, each until it is exhausted.
    assert log[6:] == [(40, 2), *((name, done) for name in (50, 60, 70, 80) for done in (1, 2))]


def test_two_workers_improve_a_schedule_together(
    log: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    both, heard = Barrier(2), []

    class Meeting(Scripted):
        passes = 1

        def climb(self, clock: Clock, *, is_patient: bool) -> bool:
            if self.name == 50:
                both.wait(timeout=20.0)
            stalls = super().climb(clock, is_patient=is_patient)
            if self.name == 50:
                both.wait(timeout=20.0)
                heard.append(self.exchange(None))
            return stalls

    monkeypatch.setattr(module, "WindowLNS", Meeting)
    halving = halving_of([50, 80], workers=2)
    run_in_threads(halving, 2)
    assert log.count((50, 0)) == 2
    # Each hears of the best that either of them found.
    assert [each.value for each in heard if each] == [49, 49]
    assert (80, 0) in log


def test_only_what_is_better_than_all_others_is_told(log: list[tuple[int, int]]) -> None:
    told = []
    halving_of([50, 80, 40]).run(Clock(), lambda b: told.append(b.value) if b else None)
    assert log
    assert told == [49, 40, 39, 38, 37]


def test_a_better_schedule_from_elsewhere_becomes_a_start(log: list[tuple[int, int]]) -> None:
    given = [worth(30), worth(99)]
    halving_of([50]).run(Clock(), lambda better: given.pop(0) if better is None and given else None)
    names = [name for name, _ in log]
    assert names[0] == 30
    assert 50 in names
    assert 99 not in names


def test_a_start_that_is_better_than_all_is_told_before_its_search(
    log: list[tuple[int, int]],
) -> None:
    told = []
    halving_of([50, 30, 80]).run(Clock(), lambda b: told.append(b.value) if b else None)
    assert told[:3] == [49, 30, 29]


def test_a_start_that_meets_the_bound_ends_it(log: list[tuple[int, int]]) -> None:
    told = []
    halving_of([50, 30, 80], bound=30).run(Clock(), lambda b: told.append(b.value) if b else None)
    assert told == [49, 30]


def test_a_thread_hears_of_others_while_its_search_is_at_work(
    log: list[tuple[int, int]],
) -> None:
    given = {49: worth(10)}
    halving = halving_of([50, 80], bound=10)
    halving.run(Clock(), lambda better: given.get(better.value) if better else None)
    # The answer to its first better schedule meets the bound.
    assert log == [(50, 0)]


def test_a_search_that_fails_leaves_the_race_to_others(
    log: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(Scripted):
        def climb(self, clock: Clock, *, is_patient: bool) -> bool:
            if self.name == 80:
                raise ValueError("broken")
            return super().climb(clock, is_patient=is_patient)

    monkeypatch.setattr(module, "WindowLNS", Failing)
    halving = halving_of([50, 80, 40])
    with pytest.raises(ValueError, match="broken"):
        halving.run(Clock(), lambda better: None)
    halving.run(Clock(), lambda better: None)
    assert {name for name, _ in log} == {50, 40}


def test_threads_share_a_race(log: list[tuple[int, int]]) -> None:
    halving = halving_of(list(range(50, 90)), workers=3)
    run_in_threads(halving, 3)
    # Every start is taken; who joins begins from what others made of it.
    assert {name for name, done in log if done == 0} >= set(range(50, 90))


def test_it_ends_at_the_bound(log: list[tuple[int, int]]) -> None:
    halving_of([50, 80, 40], bound=49).run(Clock(), lambda better: None)
    assert log == [(50, 0)]


def test_none_begins_at_the_end_of_the_time(
    log: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(100.0)
    halving = halving_of([50, 80, 40], clock)
    monkeypatch.setattr(clock, "deadline", clock.deadline - 99.0 * (1 - LAST_SHARE))
    halving.run(clock, lambda better: None)
    assert {name for name, _ in log} == {50, 80, 40}
    log.clear()
    halving = halving_of([50, 80, 40], clock := Clock(100.0))
    monkeypatch.setattr(clock, "deadline", clock.deadline - 100.5 * (1 - LAST_SHARE))
    halving.run(clock, lambda better: None)
    assert {name for name, _ in log} == {50}


def test_patience_ends_with_the_first_part_of_the_time(
    log: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    patience = []

    class Noting(Scripted):
        def climb(self, clock: Clock, *, is_patient: bool) -> bool:
            patience.append((is_patient, clock.is_over))
            return super().climb(clock, is_patient=is_patient)

    monkeypatch.setattr(module, "WindowLNS", Noting)
    clock = Clock(100.0)
    halving = halving_of([50], clock)

    def late(better: Schedule | None) -> None:
        if len(log) == 2:
            monkeypatch.setattr(clock, "deadline", clock.deadline - 100 * (1 - LAST_SHARE))

    halving.run(clock, late)
    assert patience == [(True, False), (True, False), (False, False)]


def test_late_workers_join_the_best_schedule(
    log: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    both, names = Barrier(2), []

    class Late(Scripted):
        passes = 1

        def climb(self, clock: Clock, *, is_patient: bool) -> bool:
            names.append(self.name)
            if self.name == 30:
                both.wait(timeout=20.0)
            return super().climb(clock, is_patient=is_patient)

    monkeypatch.setattr(module, "WindowLNS", Late)
    clock = Clock(100.0)
    halving = halving_of([50], clock, workers=4)
    monkeypatch.setattr(clock, "deadline", clock.deadline - 100 * (1 - LAST_SHARE))
    run_in_threads(halving, 2, worth(30))
    # Two of the first start wait as well.
    assert names[:2] == [30, 30]


def test_a_pass_cut_short_counts_for_nothing(log: list[tuple[int, int]]) -> None:
    halving = halving_of([50, 80, 40, 60, 70])
    over = Clock(0.0)
    halving.run(over, lambda better: None)
    assert log == []
    halving.run(Clock(), lambda better: None)
    assert log[0] == (50, 0)


def test_the_worst_are_given_up_where_too_many_wait(
    log: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_WAITING_OPS", 0)
    monkeypatch.setattr(module, "LEAST_WAITING", 2)
    halving_of([50, 80, 40]).run(Clock(), lambda better: None)
    assert log == [(50, 0), (80, 0), (40, 0), (40, 1), (40, 2), (50, 1), (50, 2)]


def test_an_interrupt_ends_it(log: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(Scripted):
        def climb(self, clock: Clock, *, is_patient: bool) -> bool:
            self.is_interrupted = True
            return super().climb(clock, is_patient=is_patient)

    monkeypatch.setattr(module, "WindowLNS", Interrupted)
    halving_of([50, 80, 40]).run(Clock(), lambda better: None)
    assert len(log) == 1

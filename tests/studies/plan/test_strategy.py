"""The order of a plan's work: longer plans are never worse, nor are those with more choices."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ppsolve.models.core.result import Status
from ppsolve.models.studies.plan.request import parse_request
from ppsolve.solver.clock import Clock
from ppsolve.solver.run.options import Options
from ppsolve.solver.studies.plan.candidate import Candidate, Level
from ppsolve.solver.studies.plan.list_scheduling import QuickSchedule
from ppsolve.solver.studies.plan.params import PlanLimits, PlanParams
from ppsolve.solver.studies.plan.progress import PlanProgress
from ppsolve.solver.studies.plan.search import PlanSearch
from ppsolve.solver.studies.plan.space import enumerate_space
from ppsolve.solver.studies.plan.strategy import run_plan
from tests.marks import first
from tests.paths import DATA
from tests.studies.plan.cases import planned, reduced_document

LIMITS = PlanLimits(Options(time_limit=None, workers=1, deterministic=True))


class Counter(Clock):
    """A clock that is over when it has been asked so many times: it counts work, not seconds.

    The clocks that it lends to single runs are never over.
    """

    asks = float("inf")

    @property
    def is_over(self) -> bool:
        self.asks -= 1
        return self.asks < 0


class Recorded(PlanSearch):
    """A search that remembers which candidates were scheduled, and when they were first refined."""

    log: list[tuple[str, int]]

    def schedule(self, candidate: Candidate) -> None:
        self.log.append(("schedule", candidate.index))
        super().schedule(candidate)

    def schedule_by(self, candidate: Candidate, rules: Any) -> None:
        self.log.append(("rules", candidate.index))
        super().schedule_by(candidate, rules)

    def refine(self, candidate: Candidate) -> None:
        self.log.append((candidate.level.name, candidate.index))
        super().refine(candidate)


def searched(
    data: dict[str, Any], asks: float = float("inf"), limits: PlanLimits = LIMITS
) -> Recorded:
    """Return a search of so much work."""
    request = parse_request(data)
    clock = Counter()
    clock.asks = asks
    search = Recorded(request, enumerate_space(request), limits, None, clock)
    search.log = []
    run_plan(search)
    return search


def reached(search: PlanSearch) -> float:
    return 0.0 if search.winner is None else search.winner.low


SEEDS = first(3, range(12))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_longer_plan_does_what_a_shorter_one_did_and_is_never_worse(
    seed: int,
) -> None:
    data = reduced_document(seed)
    whole = searched(data)
    best = 0.0
    for asks in (0, 1, 2, 4, 8, 16, 32, 64):
        search = searched(data, asks)
        assert search.log == whole.log[: len(search.log)]
        assert reached(search) >= best
        best = reached(search)
    assert reached(whole) >= best


@pytest.mark.parametrize("seed", SEEDS)
def test_every_configuration_has_a_quick_schedule_before_any_is_refined(
    seed: int,
) -> None:
    search = searched(reduced_document(seed))
    steps = [step for step, _ in search.log]
    scheduled = [place for place, step in enumerate(steps) if step == "schedule"]
    refined = [
        place for place, step in enumerate(steps) if step in {"SHAPED", "MEASURED"}
    ]
    assert not refined or max(scheduled) < min(refined)


class Ordered(PlanSearch):
    """A search that counts the schedules of what cannot win, and what might while they are made."""

    beaten = 0
    missed = 0

    def schedule(self, candidate: Candidate) -> None:
        if self.is_beaten(candidate):
            self.beaten += 1
            open_ones = (c for c in self.candidates if c.ruled_out is None)
            self.missed += sum(
                not self.is_tried(c) and not self.is_beaten(c) for c in open_ones
            )
        super().schedule(candidate)


def test_what_is_proved_worse_is_scheduled_after_all_that_may_win() -> None:
    beaten = 0
    for seed in range(4):
        request = parse_request(reduced_document(seed))
        search = Ordered(request, enumerate_space(request), LIMITS, None, Counter())
        run_plan(search)
        assert search.missed == 0
        beaten += search.beaten
    assert beaten > 0


WIDER = [
    {"placements": ["linear", "interleaved", "vshape", "wave"]},
    {"batch_sizes": [4, 6, 8], "pipeline_depths": [1, 2, 3]},
    {"layer_splits": ["balanced", "even"], "replicas": [1, 2]},
]


@pytest.mark.parametrize("seed", first(1, range(12)))
@pytest.mark.parametrize("wider", WIDER)
@pytest.mark.slow
def test_more_choices_are_never_worse(seed: int, wider: dict[str, Any]) -> None:
    few, many = reduced_document(seed), reduced_document(seed)
    for name, choices in wider.items():
        known = few["search"].get(name, choices[:1])
        many["search"][name] = list(dict.fromkeys([*known, *choices]))
        few["search"][name] = known
    assert reached(searched(many)) >= reached(searched(few))


@pytest.mark.slow
def test_more_schedules_are_never_worse() -> None:
    data = reduced_document(16)
    best = 0.0
    names = ["1f1b", "gpipe", "zb-h1", "interleaved-1f1b", "looped-bfs", "list-tail"]
    for count in range(1, len(names) + 1):
        data["search"]["schedules"] = names[:count]
        low = reached(searched(data))
        assert low >= best
        best = low


def crowded_document() -> dict[str, Any]:
    """Return a request whose devices hold two micro-batches, where gpipe holds all of them."""
    layer = {"count": 4, "forward": 1, "backward": 2, "activation_bytes": 1}
    link = {"bandwidth": 1}
    cluster = {
        "nodes": 2,
        "devices_per_node": 2,
        "within_node": link,
        "between_nodes": link,
    }
    return {
        "model": {"microbatch_sizes": [1], "layers": [layer]},
        "cluster": {**cluster, "memory": 4},
        "goodput": {"init_batch_size": 2},
        "search": {
            "pipeline_depths": [2],
            "replicas": [1],
            "microbatches": [4, 5, 6, 7, 8, 9],
            "schedules": ["gpipe"],
        },
    }


def test_a_plan_whose_schedules_never_fit_ends_when_its_time_is_up() -> None:
    limits = replace(LIMITS, params=PlanParams(least_tried=2))
    everything = searched(crowded_document(), limits=limits)
    assert everything.winner is None
    assert {index for _, index in everything.log} == set(range(6))
    search = searched(crowded_document(), 0, limits)
    assert search.winner is None
    assert len({index for _, index in search.log}) == 2


def test_the_first_schedule_is_looked_for_after_the_time_is_up() -> None:
    data = crowded_document()
    data["search"]["microbatches"] = [9, 8, 7, 6, 5, 2]
    limits = replace(LIMITS, params=PlanParams(least_tried=7))
    assert reached(searched(data, 0, limits)) > 0


def test_no_configuration_exceeds_a_bound_that_was_told() -> None:
    told = list[PlanProgress]()
    found = planned(reduced_document(16), on_progress=told.append)
    bounds = [each.bound for each in told]
    assert bounds == sorted(bounds, reverse=True)
    assert found.goodput is not None
    assert bounds[-1] >= found.goodput.high


class Hurried(PlanSearch):
    """A search whose first exact searches end at once, and which remembers the later ones."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.again: list[tuple[int, float]] = []
        self.is_first = True

    def solve_again(self) -> None:
        self.is_first = False
        super().solve_again()

    def _run(self, candidate: Candidate, *given: Any) -> None:
        options = given[-1]
        if candidate.level is not Level.SOLVED:
            super()._run(candidate, *given)
        elif not self.is_first:
            self.again.append((candidate.index, options.time_limit))
            super()._run(candidate, *given)


def hurried(data: dict[str, Any], **limits: Any) -> Hurried:
    request = parse_request(data)
    given = PlanLimits(Options(time_limit=60.0, workers=1), **limits)
    search = Hurried(request, enumerate_space(request), given)
    run_plan(search)
    return search


@pytest.mark.slow
def test_time_that_is_left_is_divided_among_the_undecided() -> None:
    data = reduced_document(16)
    search = hurried(data)
    (first_one, half), (second_one, rest) = search.again
    assert first_one != second_one
    assert half <= 30 < rest <= 60
    plan = planned(data)
    assert plan.winner is not None
    assert search.winner is not None
    assert search.winner.configuration == plan.winner.configuration
    assert [c for c in search.candidates if search._is_undecided(c)] == []
    assert search.result is not None
    assert search.result.status is Status.OPTIMAL


def test_nobody_is_solved_again_where_each_has_the_limit() -> None:
    assert hurried(reduced_document(16), exhaustive=True).again == []


def test_a_better_sweep_takes_the_place_of_what_was_solved() -> None:
    candidate = searched(reduced_document(16)).candidates[24]
    start = np.zeros(1, dtype=np.int64)
    candidate.step.reached, candidate.solved = 10.0, (start, "cp-sat")
    assert not candidate.take(QuickSchedule(10.0, "list-sweep", start=start))
    assert candidate.solved is not None
    assert candidate.take(QuickSchedule(9.0, "list-sweep", start=start))
    assert candidate.solved is None


class FewRounds(PlanSearch):
    """A search whose time is over in the third round of further splits."""

    seeds: set[int]

    def improve_split(self, candidate: Candidate, steps: int, seed: int = 0) -> None:
        self.seeds.add(seed)
        if seed == 3:
            self.clock.stop()
        super().improve_split(candidate, steps, seed)


@pytest.mark.parametrize(
    "schedules",
    [pytest.param(None, marks=pytest.mark.slow), ["1f1b", "interleaved-1f1b"]],
)
def test_splits_are_searched_while_better_ones_may_exist(schedules: Any) -> None:
    path = DATA / "plan_runtime" / "llama70.plan.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    data["search"]["schedules"] = schedules
    request = parse_request(data)
    rounds = ((1.04, 2, 10),) * 2
    effort: dict[str, Any] = {"ops_of_split": 1000, "first_orders": (1.5, 2000, 9999)}
    params = PlanParams(rounds=rounds, measured_after=0, **effort)
    options = Options(time_limit=600.0, workers=1)
    limits = PlanLimits(options, finalists=0, params=params)
    search = FewRounds(request, enumerate_space(request), limits)
    search.seeds = set()
    run_plan(search)
    assert search.winner is not None
    assert search.winner.low < search.high
    assert search.seeds == {0, 1, 2, 3}

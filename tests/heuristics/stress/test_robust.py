"""Schedules of equal makespan that jitter delays less."""

import numpy as np
import pytest

import ppsolve
from ppsolve.models.documents.errors import InputError
from ppsolve.solver.api.kinds import kind_of, lower
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.clock import Clock
from ppsolve.solver.heuristics.stress.replay import FixedOrders, Jitter, drawn
from ppsolve.solver.heuristics.stress.robust import RobustParams, make_robust
from tests.paths import ROOT
from tests.strategies import serial_schedule, tiny_problems

STATIC = ROOT / "instances" / "tight_memory" / "static-4x12.json"


def planned(path, heuristic):
    instance = ppsolve.load_instance(path)
    entry = ppsolve.simulate(instance, heuristic).model_dump(mode="json")
    return kind_of(instance).read(instance, lower(instance), entry)[0]


FEW = RobustParams(steps=60, samples=100)


def test_no_schedule_gets_longer_or_breaks_a_rule():
    random = np.random.default_rng(0)
    changed = 0
    for problem in tiny_problems(60):
        schedule = serial_schedule(problem, random)
        if schedule is None:
            continue
        try:
            found = make_robust(schedule, Jitter({"*": 0.2}), Clock(), 0, FEW)
        except InputError:
            continue
        assert not check_schedule(found.problem, found)
        assert found.makespan <= schedule.makespan
        changed += found is not schedule
    assert changed > 5


def test_the_latest_runs_end_sooner_at_the_same_makespan():
    schedule, jitter = planned(STATIC, "list-tail"), Jitter({"*": 0.05})
    found = make_robust(schedule, jitter, Clock(), 0, RobustParams(steps=400))
    assert found.makespan == schedule.makespan
    fresh = next(drawn(schedule.problem, jitter, 2000, 99))
    before, after = (
        np.percentile(FixedOrders.of(each).makespans(fresh), 95)
        for each in (schedule, found)
    )
    assert after < before


def test_the_same_seed_finds_the_same_schedule():
    schedule = planned(STATIC, "list-tail")
    one, same = (
        make_robust(schedule, Jitter({"*": 0.05}), Clock(), 3, FEW) for _ in range(2)
    )
    assert np.array_equal(one.start, same.start)


def test_without_time_the_schedule_stays():
    schedule = planned(STATIC, "list-tail")
    assert make_robust(schedule, Jitter({"*": 0.05}), Clock(0.0), 0, FEW) is schedule


def test_optimize_keeps_value_and_proof():
    pipeline = ppsolve.PipelineInstance(
        num_devices=2, num_microbatches=4, times={"forward": 10, "backward": 20}
    )
    plain = ppsolve.optimize(pipeline, time_limit=2)
    robust = ppsolve.optimize(pipeline, time_limit=2, robust=0.1)
    assert (robust.status, robust.value, robust.bound) == (
        "OPTIMAL",
        plain.value,
        plain.bound,
    )
    assert (plain.robust, robust.robust) == (None, 0.1)
    assert ppsolve.check(pipeline, robust) == []


@pytest.mark.parametrize(
    ("instance", "robust", "message"),
    [
        ({"objective": "device_span"}, 0.1, "robust: expected the objective makespan"),
        (
            {},
            0.0,
            "robust: expected a coefficient of variation above 0, at most 10, got 0",
        ),
        ({}, float("nan"), "robust: expected a coefficient of variation above 0"),
    ],
)
def test_what_makes_no_sense_is_refused(instance, robust, message):
    pipeline = ppsolve.PipelineInstance(
        num_devices=2,
        num_microbatches=4,
        times={"forward": 10, "backward": 20},
        **instance,
    )
    with pytest.raises(InputError, match=f"^{message}"):
        ppsolve.optimize(pipeline, time_limit=1, robust=robust)


@pytest.mark.parametrize(
    "name", ["overlap/zero-tail-8l", "kfac/measured/bert-base-gpipe-4x4"]
)
def test_kinds_with_more_than_orders_are_refused(name):
    instance = ppsolve.load_instance(ROOT / "instances" / f"{name}.json")
    with pytest.raises(InputError, match="are more than the orders of their resources"):
        ppsolve.optimize(instance, time_limit=1, robust=0.1)

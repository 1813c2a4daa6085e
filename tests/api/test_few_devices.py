"""The bound by parts of few devices as a part of whole runs."""

from __future__ import annotations

from decimal import Decimal

import pytest

import ppsolve
from ppsolve.models.core.result import Result
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import lower
from ppsolve.solver.board import Board
from ppsolve.solver.clock import Clock
from ppsolve.solver.exact.few_devices import FewDevices
from ppsolve.solver.exact.question import FEW_DEVICES, SearchLimits
from ppsolve.solver.heuristics.generic import list_tail
from ppsolve.solver.run.params import SearchParams
from ppsolve.solver.structure.implied import ImpliedOrder
from ppsolve.solver.studies.generate.flags import PerDevice
from ppsolve.solver.studies.generate.instances import generate


def uneven(seed: int) -> PipelineInstance:
    """Return a 4 x 5 pipeline with random times and memory for three micro-batches."""
    return generate(
        seed=seed, devices=4, microbatches=5, capacity=PerDevice(Decimal("0.75"))
    )


ALWAYS = SearchParams().varied(
    {
        "exact.devices.least_ops": 0,
        "exact.quick_ops": 0,
        # A beam over frontiers would prove them first.
        "heuristics.beam.most_width": 0,
    }
)


def analytic(result: Result) -> int:
    return max(int(bound.value) for bound in result.bounds)


@pytest.mark.parametrize("seed", [4, 6])
def test_a_result_says_that_few_devices_prove_it(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The whole of so small a pipeline is proved before any part.
    monkeypatch.setattr(FewDevices, "_ask_whole", lambda search: None)
    told = []
    found = ppsolve.optimize(
        uneven(seed), time_limit=60, workers=2, on_progress=told.append, params=ALWAYS
    )
    assert found.status == "OPTIMAL"
    assert found.bound_by == FEW_DEVICES
    assert analytic(found) < found.bound
    assert ppsolve.check(uneven(seed), found) == []
    assert (FEW_DEVICES, found.bound) in [(event.source, event.bound) for event in told]


@pytest.mark.parametrize("seed", [4, 6])
def test_the_whole_has_the_same_optimum(seed: int) -> None:
    found = ppsolve.optimize(uneven(seed), time_limit=60, workers=2)
    assert found.status == "OPTIMAL"
    assert found.value == {4: 2610, 6: 2195}[seed]


def test_deterministic_runs_give_the_same_twice() -> None:
    first, second = (
        ppsolve.optimize(uneven(6), time_limit=0.5, deterministic=True, params=ALWAYS)
        for _ in range(2)
    )
    assert first.schedule == second.schedule
    assert (first.bound, first.bound_by) == (second.bound, second.bound_by)


def test_small_problems_are_left_to_the_whole() -> None:
    found = ppsolve.optimize(uneven(4), time_limit=60, workers=1)
    assert found.bound_by != FEW_DEVICES


def test_nothing_is_sought_once_time_is_over() -> None:
    problem = lower(uneven(4))
    clock = Clock(10)
    clock.stop()
    board = Board.beginning(list_tail(problem), 2583)
    assert (
        FewDevices(
            ImpliedOrder(problem), board, SearchLimits(seconds=10, clock=clock)
        ).run()
        == 2583
    )

"""Plans whose splits are searched: no split is better than they say, balance is no goal."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

import ppsolve
from ppsolve.models.core.result import Status
from ppsolve.models.studies.plan.request import parse_request
from ppsolve.models.studies.plan.result import Range, Rule
from ppsolve.solver.clock import Clock
from ppsolve.solver.studies.goodput.step import StepTime
from ppsolve.solver.studies.plan.candidate import Candidate
from ppsolve.solver.studies.plan.params import PlanParams, WarmUpRule
from ppsolve.solver.studies.plan.space import enumerate_space
from ppsolve.solver.studies.plan.split_search import SplitSearch
from tests.marks import first
from tests.studies.plan.cases import NEARLY, Truth, planned, reduced_document, splits


def small(**parts: Any) -> dict[str, Any]:
    """Return a request for one node of four devices."""
    link = {"latency": 0.5, "bandwidth": 4}
    cluster = {"devices_per_node": 4, "within_node": link}
    return {"cluster": cluster, "goodput": {"init_batch_size": 4}} | parts


@pytest.mark.parametrize("seed", first(1, [3, 8, 0, 16, 34]))
def test_no_split_of_a_configuration_exceeds_its_limit(seed: int) -> None:
    data = reduced_document(seed)
    data["search"]["layer_splits"] = ["searched"]
    request, found = parse_request(data), planned(data)
    truth = Truth(request)
    assert found.goodput is not None
    for row in found.table:
        chosen = row.configuration
        for bounds in splits(
            request.model.num_layers, chosen.pipeline_depth * chosen.virtual_stages
        ):
            made = truth.builder.pipeline(chosen, bounds).instance()
            result = ppsolve.optimize(made, time_limit=2, deterministic=True)
            if result.makespan is None or row.lost_by is Rule.MEMORY:
                assert result.makespan is None
                continue
            assert row.goodput is not None
            reached = truth.goodput(chosen, Fraction(result.makespan))
            assert reached <= row.goodput.high * NEARLY
            assert reached <= found.goodput.high * NEARLY


def test_another_split_is_better_than_the_balanced_one() -> None:
    # Work of 8, 7, 9 and 5. Balanced, the last of three devices works for 9 + 5 on each of four
    # micro-batches, after forwards of 3 + 3 and before backwards of 5 + 4: 71. With 8 + 7 on the
    # first device that works for 60 and waits for nothing.
    layers = [
        {"forward": f, "backward": b} for f, b in ((3, 5), (3, 4), (3, 6), (1, 4))
    ]
    data = small(model={"microbatch_sizes": [1], "layers": layers})
    data["cluster"]["within_node"] = {"bandwidth": 1}
    search = {"pipeline_depths": [3], "replicas": [1], "microbatches": [4]}
    for split, step, stages in (
        ("balanced", 71, (1, 1, 2)),
        ("searched", 60, (2, 1, 1)),
    ):
        found = planned(data | {"search": search | {"layer_splits": [split]}})
        assert found.status is Status.OPTIMAL
        assert found.winner is not None
        assert found.winner.step_time == Range(low=step, high=step)
        assert found.winner.layers_per_stage == stages
        assert found.winner.split_proved


def test_a_sweep_of_another_split_is_better() -> None:
    """The model above: from 71 of the balanced split to 60."""
    layers = [
        {"forward": f, "backward": b} for f, b in ((3, 5), (3, 4), (3, 6), (1, 4))
    ]
    data = small(model={"microbatch_sizes": [1], "layers": layers})
    data["cluster"]["within_node"] = {"bandwidth": 1}
    data["search"] = {"pipeline_depths": [3], "replicas": [1], "microbatches": [4]}
    request = parse_request(data)
    search = SplitSearch(request.alone(request.profiles[0]), PlanParams(), Clock(None))
    configuration = next(
        c
        for c in enumerate_space(request).configurations
        if c.layer_split == "searched" and c.backward == "fused"
    )
    arrays = search.quick.arrays(configuration, (0, 1, 2, 4))
    candidate = Candidate(0, configuration, 1.0, 1.0, StepTime(Fraction(60)))
    candidate.rest = Fraction(60)
    candidate.show((0, 1, 2, 4), None, arrays)
    assert candidate.take(search.quick.by_rules(arrays, (WarmUpRule(),)))
    assert candidate.step.reached == 71
    best = search.improved_by_sweeps(candidate, steps=40, seed=1)
    assert best is not None
    assert best[0].pipeline.boundaries == (0, 2, 3, 4)
    assert best[1].makespan == 60


@pytest.mark.slow
def test_too_many_splits_are_left_open_and_said_to_be() -> None:
    layers = [{"count": 18, "forward": 1, "backward": 2, "output_bytes": 1}]
    search = {
        "pipeline_depths": [4],
        "placements": ["interleaved"],
        "virtual_stages": [3],
    }
    data = small(
        model={"microbatch_sizes": [1], "layers": layers},
        search=search | {"replicas": [1], "microbatches": [4]},
    )
    found = planned(data, finalists=0, time_limit=2, deterministic=False)
    assert found.status is Status.FEASIBLE
    assert found.winner is not None
    assert found.goodput is not None
    assert found.winner.split_proved is False
    most = found.goodput.high / found.goodput.low - 1
    assert 0 < most < 0.2
    assert found.winner.reason.startswith(
        "proved for the splits found; other splits, of 1 config"
    )

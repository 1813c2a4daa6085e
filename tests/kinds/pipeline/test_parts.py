"""Parts that leave a pipeline open: one object each, in a tuple whose order decides nothing."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import ppsolve
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.pipeline.combinations import REFUSED
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.kinds.pipeline.kind import PIPELINE
from ppsolve.solver.kinds.pipeline.open.part import CombinedPart
from ppsolve.solver.kinds.pipeline.parts import NOTHING_OPEN, PARTS, part_of

BASE = {"num_devices": 2, "num_microbatches": 2}
TIMES = {"times": {"forward": 1, "backward": 2}}
RECOMPUTE = {"modes": [{"name": "full", "time": 1, "held": 1}]}

FIELDS: dict[str, dict[str, Any]] = {
    "ReplicasPart": {"replicas": {"count": 2, "assignment": "free"}},
    "FusedPart": {"overlap": {"ratio": 0.5}},
    "FillerDevicesPart": {
        "fillers": [{"name": "a", "device": 0, "devices": [1], "pieces": [1]}]
    },
    "ModesPart": {"memory": {"activation": 2, "capacity": 8, "recompute": RECOMPUTE}},
    "LayersPart": {"layers": {"body": {"count": 3, "forward": 1, "backward": 2}}},
}
"""What a pipeline has with each part, by the name of the part's class."""

PAIRS = list(itertools.combinations(FIELDS, 2))


def pipeline(*parts: str) -> PipelineInstance:
    times = {} if "LayersPart" in parts else TIMES
    fields = {name: value for part in parts for name, value in FIELDS[part].items()}
    return PipelineInstance.parse({**BASE, **times, **fields})


@pytest.mark.parametrize("name", FIELDS)
def test_a_pipeline_is_asked_of_the_part_that_it_has(name: str) -> None:
    instance = pipeline(name)
    assert [
        type(part).__name__ for part in PARTS if getattr(instance, part.attribute)
    ] == [name]
    assert type(part_of(instance)).__name__ == name


def test_a_pipeline_without_parts_leaves_nothing_open() -> None:
    assert part_of(pipeline()) is NOTHING_OPEN
    assert {type(part).__name__ for part in PARTS} == set(FIELDS)


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_two_parts_are_one_task_or_the_list_says_why_not(
    first: str, second: str
) -> None:
    refused = {frozenset(pair) for *pair, _ in REFUSED}
    try:
        instance = pipeline(first, second)
    except InputError as error:
        fields = {field for name in (first, second) for field in FIELDS[name]}
        is_listed = any(pair <= fields for pair in refused)
        assert is_listed or "it in layers, got both" in error.message
        return
    assert isinstance(part_of(instance), CombinedPart)
    result = ppsolve.optimize(instance, time_limit=20)
    assert result.status == "OPTIMAL"
    assert ppsolve.check(instance, result) == []


def test_few_pairs_are_refused_each_with_a_reason() -> None:
    assert len(REFUSED) <= 8
    assert all(why for *_, why in REFUSED)


@pytest.mark.parametrize("name", FIELDS)
def test_what_a_part_claims_of_a_schedule_is_the_problem_that_it_makes(
    name: str,
) -> None:
    """A claim names the choice whole: lowered again it is the problem of the schedule."""
    instance = pipeline(name)
    heuristic = next(
        one
        for one in PIPELINE.heuristics_of(instance)
        if PIPELINE.obstacle(one, instance) is None and not one.is_search
    )
    problem = PIPELINE.lower(instance)
    outcome = PIPELINE.run_heuristic(heuristic, instance, problem)
    assert outcome.schedule is not None
    claims = PIPELINE.claims_of(instance, outcome.schedule)
    again = PIPELINE.lower(instance, document=claims)
    assert again.duration.tolist() == outcome.schedule.problem.duration.tolist()
    assert PIPELINE.refuted(instance, again, claims, outcome.schedule) == []
    assert PIPELINE.check(instance, outcome.schedule) == []


@pytest.mark.parametrize("name", [*FIELDS, ""])
def test_heuristics_that_choose_are_run_on_pipelines_of_their_part_alone(
    name: str,
) -> None:
    instance = pipeline(*filter(None, [name]))
    own = part_of(instance).heuristics
    run = {one.name for one in PIPELINE.heuristics_of(instance)}
    for part in PARTS:
        names = {one.name for one in part.heuristics}
        assert run & names == (names if part.heuristics == own else set())

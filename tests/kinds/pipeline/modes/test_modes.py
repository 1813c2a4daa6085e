"""Memory modes in files: what is refused, what the checker says of modes, published choices."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import ppsolve
from ppsolve.models.core.result import HeuristicStatus, Status
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.lowering import lower_pipeline
from ppsolve.models.kinds.pipeline.modes import modes_of
from tests.kinds.pipeline.modes.drawn import drawn, optimum
from tests.marks import first

FULL = {"name": "full", "time": [3, 4], "held": 0.5}
OFFLOAD = {"amount": 1.5, "out": [2, 3], "back": 2}


def pipeline(**memory: Any) -> dict[str, Any]:
    """Return a pipeline of 2 stages and 3 micro-batches with these fields of its memory."""
    return {
        "name": "small",
        "num_devices": 2,
        "num_microbatches": 3,
        "times": {
            "forward": [3, 4],
            "backward_input": [3, 4],
            "backward_weight": [2, 2],
        },
        "p2p": {"latency": 1},
        "memory": {
            "capacity": 4,
            "activation": 2,
            "released_by_backward_weight": 0.5,
            **memory,
        },
    }


def recomputing(**fields: Any) -> dict[str, Any]:
    """Return the pipeline with one mode that recomputes."""
    return pipeline(recompute={"modes": [FULL], **fields})


REFUSED = [
    ({"recompute": {"modes": []}}, "memory.recompute.modes", "at least 1"),
    (
        {"recompute": {"modes": [{**FULL, "name": "keep"}]}},
        "memory.recompute.modes[0].name",
        "own",
    ),
    (
        {"recompute": {"modes": [FULL, FULL]}},
        "memory.recompute.modes[1].name",
        "of its own",
    ),
    (
        {"recompute": {"modes": [{**FULL, "time": [1]}]}},
        "memory.recompute.modes[0].time",
        "2 ent",
    ),
    (
        {"recompute": {"modes": [{**FULL, "held": 3}]}},
        "memory.recompute.modes[0].held",
        "most the",
    ),
    (
        {"recompute": {"modes": [FULL], "decide": "stages"}},
        "memory.recompute.decide",
        '"stage"',
    ),
    (
        {"recompute": {"modes": [FULL], "decide": ["full"]}},
        "memory.recompute.decide",
        "each of 2",
    ),
    (
        {"recompute": {"modes": [FULL], "decide": ["full", "ful"]}},
        "memory.recompute.decide[1]",
        "keep, full",
    ),
    (
        {"recompute": {"modes": [FULL], "decide": ["full", ["full"]]}},
        "memory.recompute.decide[1]",
        "each of 3 micro-batches",
    ),
    (
        {"recompute": {"modes": [FULL], "decide": ["full", ["full", "keep", "ful"]]}},
        "memory.recompute.decide[1]",
        "keep, full",
    ),
    (
        {"recompute": {"modes": [FULL], "decide": ["full", ["full", 1]]}},
        "memory.recompute.decide",
        "one per micro-batch",
    ),
    (
        {"recompute": {"modes": [FULL], "place": "later"}},
        "memory.recompute.place",
        "anytime",
    ),
    (
        {"offload": {**OFFLOAD, "amount": 2.5}},
        "memory.offload.amount",
        "most the activation",
    ),
    ({"offload": {**OFFLOAD, "out": [1]}}, "memory.offload.out", "2 entries"),
    (
        {"offload": {**OFFLOAD, "links": [[0, 2]]}},
        "memory.offload.links[0]",
        "from 0 to 1",
    ),
    (
        {"offload": {**OFFLOAD, "links": [[0], [0]]}},
        "memory.offload.links[1]",
        "at most once",
    ),
    (
        {"offload": {**OFFLOAD, "host_capacity": [1, 2, 3]}},
        "memory.offload.host_capacity",
        "2 entries",
    ),
    (
        {"offload": {**OFFLOAD, "decide": "all"}, "recompute": {"modes": [FULL]}},
        "memory.offload.decide",
        "stage as of recompute",
    ),
]


@pytest.mark.parametrize(("memory", "field", "words"), REFUSED)
def test_wrong_modes_are_refused_by_field(memory: Any, field: str, words: str) -> None:
    """One clear error names the field and what would be right."""
    with pytest.raises(InputError) as error:
        PipelineInstance.parse(pipeline(**memory), "file.json")
    assert error.value.field == field
    assert words in str(error.value)


def test_windows_of_other_placements_are_refused() -> None:
    """Windows are those of Megatron's schedules."""
    wave = {
        **recomputing(decide="window"),
        "placement": "vshape",
        "stages_per_device": 2,
    }
    wave["times"] = {"forward": 3, "backward": 5}
    wave["memory"]["recompute"]["modes"] = [{**FULL, "time": 3}]
    with pytest.raises(InputError) as error:
        PipelineInstance.parse(wave)
    assert error.value.field == "placement"


def test_open_modes_are_not_lowered_without_a_choice() -> None:
    """What cannot search modes says what it needs, instead of keeping everything."""
    instance = PipelineInstance.parse(recomputing())
    with pytest.raises(InputError, match="mode of each stage"):
        lower_pipeline(instance)
    given = PipelineInstance.parse(
        recomputing(decide=["full", "keep"], place="anytime")
    )
    problem = lower_pipeline(given)
    assert sorted(problem.op_names(np.flatnonzero(problem.kind_mask("R")))) == [
        "R0.0",
        "R0.1",
        "R0.2",
    ]


def test_given_modes_are_solved_as_a_plain_pipeline() -> None:
    """A list with the mode of each stage leaves only orders open."""
    data = recomputing(decide=["full", "keep"], place="anytime")
    result = ppsolve.optimize(PipelineInstance.parse(data), time_limit=10)
    assert (result.status, result.value) == (Status.OPTIMAL, optimum(data))
    assert result.modes == ("full", "keep")


def _solved(data: dict[str, Any]) -> tuple[PipelineInstance, dict[str, Any]]:
    instance = PipelineInstance.parse(data)
    result = ppsolve.optimize(instance, time_limit=10)
    return instance, result.model_dump(mode="json")


def test_modes_given_by_microbatch_lengthen_the_backwards_of_these_alone() -> None:
    decide = ["keep", ["full", "keep", "full"]]
    given = PipelineInstance(**recomputing(decide=decide))
    plain = pipeline()
    plain["times"]["backward_input"] = [3, [4 + 4, 4, 4 + 4]]
    lowered, by_hand = lower_pipeline(given), lower_pipeline(PipelineInstance(**plain))
    assert np.array_equal(lowered.duration, by_hand.duration)
    # Two that recompute give 1.5 back and take it again; micro-batch 1 keeps all.
    taken = [len(pool.acquire_op) for pool in lowered.pools]
    assert taken == [3, 3 + 2]
    result = ppsolve.optimize(given, workers=1)
    assert result.status is Status.OPTIMAL
    assert ppsolve.check(given, result) == []
    claim = {"modes": ["keep", ["full", "full", "full"]]}
    document = result.model_dump(by_alias=True, exclude_none=True) | claim
    assert ppsolve.check(given, document) != []


def test_a_result_with_other_modes_is_refused() -> None:
    """Presence of ops, modes and copies are judged from the instance alone."""
    data = pipeline(
        recompute={"modes": [FULL], "place": "anytime"}, offload=OFFLOAD, capacity=3
    )
    instance, document = _solved(data)
    assert ppsolve.check(instance, document) == []
    assert set(document["modes"]) & {"full", "offload"}
    for change, rule in (
        (lambda d: d.update(modes=["keep", "keep"]), "unknown"),
        (lambda d: d.update(modes=["full"]), "modes"),
        (lambda d: d.update(modes=["full", "nap"]), "modes"),
        (lambda d: d.update(modes=[["full", "keep", "full"], "keep"]), "modes"),
        (lambda d: d.update(modes=None), "modes"),
        (lambda d: d["schedule"]["ops"].pop(_place(d, "L", "R")), "missing"),
        (lambda d: _move(d, ("L", "R"), 1000), "precedence"),
        (lambda d: _move(d, ("L", "R"), 0), "precedence"),
    ):
        wrong = copy.deepcopy(document)
        change(wrong)
        try:
            rules = {each.rule for each in ppsolve.check(instance, wrong)}
        except InputError:
            rules = {"unknown", "missing", "modes"}
        assert rule in rules, (rule, rules)


def _place(document: dict[str, Any], *kinds: str) -> int:
    ops = document["schedule"]["ops"]
    return next(n for n, op in enumerate(ops) if op["id"][0] in kinds)


def _move(document: dict[str, Any], kinds: tuple[str, ...], start: float) -> None:
    op = document["schedule"]["ops"][_place(document, *kinds)]
    length = op["end"] - op["start"]
    op.update(start=start, end=start + length)


def test_windows_count_as_in_megatron() -> None:
    """Micro-batch k is kept iff k mod (warm-up + 1) < n; interleaved counts all chunks."""
    data = {**recomputing(decide="window"), "num_devices": 3, "num_microbatches": 6}
    data["times"] = {"forward": 3, "backward": 5}
    data["memory"]["recompute"]["modes"] = [{**FULL, "time": 3}]
    modes = modes_of(PipelineInstance.parse(data))
    assert modes is not None
    assert modes.windows_of().tolist() == [
        [0, 1, 2, 0, 1, 2],
        [0, 1, 0, 1, 0, 1],
        [0] * 6,
    ]
    data |= {"placement": "interleaved", "stages_per_device": 2, "num_devices": 2}
    data["num_microbatches"] = 4
    modes = modes_of(PipelineInstance.parse(data))
    assert modes is not None
    # Device 0 warms up with 4 forwards: chunks 0 0 1 1 0 0 1 1, modulo 5.
    assert modes.windows_of()[[0, 2]].tolist() == [[0, 1, 4, 0], [2, 3, 1, 2]]


@pytest.mark.parametrize("seed", first(5, range(40, 52)))
def test_published_choices_are_valid_or_say_why_not(seed: int) -> None:
    """No published choice is better than the optimum, and each says what it lacks."""
    data = drawn(seed)
    instance = PipelineInstance.parse(data)
    result = ppsolve.optimize(instance, time_limit=10)
    for entry in result.heuristics:
        if entry.status is HeuristicStatus.FEASIBLE:
            assert entry.value is not None and result.value is not None
            assert entry.value >= result.value
        elif entry.status is not HeuristicStatus.FAILED:
            assert entry.reason


def test_runs_with_one_seed_are_alike() -> None:
    """Deterministic runs give the same modes and starts."""
    data = pipeline(
        recompute={"modes": [FULL], "place": "anytime", "decide": "microbatch"},
        offload={**OFFLOAD, "decide": "microbatch"},
        capacity=3,
    )
    instance = PipelineInstance.parse(data)
    first, second = (
        ppsolve.optimize(instance, deterministic=True, deterministic_limit=0.5)
        for _ in range(2)
    )
    assert first.modes == second.modes
    assert first.schedule == second.schedule


def test_amounts_with_many_digits_are_left_to_choices_one_by_one() -> None:
    """CP-SAT is not asked about levels that it does not take; the optimum is the same."""
    data = recomputing(place="anytime")
    short = ppsolve.optimize(PipelineInstance.parse(data), time_limit=10)
    data["memory"] |= {"capacity": 4.000000001, "activation": 1.9999999993}
    long = ppsolve.optimize(PipelineInstance.parse(data), time_limit=10)
    assert "quick exact" in {step.name for step in short.steps}
    assert "quick exact" not in {step.name for step in long.steps}
    assert (long.status, long.value) == (Status.OPTIMAL, short.value)

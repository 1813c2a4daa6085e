"""K-FAC instances: whatever is in a file, it is read or refused with one `InputError`."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ppsolve
from ppsolve.models.core.problem import Objective
from ppsolve.models.core.result import Status
from ppsolve.models.documents.errors import InputError, PpsolveError
from ppsolve.models.kinds.kfac.cycle import lower_cycle
from ppsolve.models.kinds.kfac.instance import KfacInstance, TieBreak
from ppsolve.models.kinds.kfac.labels import KNOWN_LABELS
from tests.bruteforce import brute_force
from tests.marks import first

MEASURED: dict[str, Any] = {
    "schema": 1,
    "kind": "kfac",
    "name": "measured",
    "time_unit": "ns",
    "timelines": [
        {
            "start_end": [[0, 100]],
            "call_forward": [[0, 10], [30, 40]],
            "call_backward": [[70, 80], [90, 100]],
            "cov_kron_A:m": [[10, 20]],
            "cov_kron_B:m": [[None, None]],
            "sync_kron_A:m": [[20, 24]],
            "inv_kron_A:m": [[40, 54]],
        },
        {
            "call_forward": [[5, 10]],
            "call_backward": [[60.5, 80]],
            "sync_kron_A:m": [[20, 23]],
        },
    ],
    "margin_ratio": 0.05,
    "objective": "iterations",
    "tie_break": "staleness",
    "refresh_interval": 3,
    "sync_groups": [[0, 1]],
    "saved": {"capacity": [3, 4], "input": 1.5, "error": 1},
}

DESCRIBED: dict[str, Any] = {
    "schema": 1,
    "kind": "kfac",
    "name": "described",
    "pipeline": {
        "num_devices": 2,
        "num_microbatches": 2,
        "times": {"forward": 1, "backward": [2, 3]},
        "memory": {"capacity": 9, "activation": 1},
    },
    "modules": [
        {
            "stage": stage,
            "name": "m",
            "curvature_a": 1,
            "curvature_b": 2,
            "sync_a": 1,
            "replicas": [0, 1],
            "inverse_a": 3,
            "inverse_b": 1.5,
            "precondition": 1,
        }
        for stage in (0, 1)
    ],
    "pattern": "gpipe",
    "objective": "makespan",
    "refresh_interval": 2,
    "max_age": 1,
}

ODD: list[Any] = [
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        2,
        3,
        0.5,
        -0.5,
        1e-40,
        1e40,
        10**400,
        -(10**400),
        2**63,
    ),
    *(
        float("nan"),
        float("inf"),
        -float("inf"),
        "",
        "x",
        "0",
        "a" * 3000,
        "\x00",
        "é@#/",
    ),
    *(
        [],
        [[]],
        [None],
        [0],
        [1, 2],
        [[0, 1]],
        [[[0, 1]]],
        [{}],
        {},
        {"": 0},
        {"a": {}},
        {"0": [[0, 1]]},
    ),
    *(
        b"x",
        (1, 2),
        {1, 2},
        1j,
        object,
        {1: 2},
        {None: []},
        [0, [1]],
        [[None, 1]],
        [[2, 1]],
        [["0", 1]],
    ),
    *(
        {"call_forward": [[0, 1]], "call_backward": [[2, 3]]},
        {"cov_kron_A:m": 3},
        {"cov_kron_C": []},
    ),
]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    if isinstance(value, dict):
        for key, inner in value.items():
            found += places(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            found += places(inner, (*path, index))
    return found


def put(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    changed = copy.deepcopy(data)
    owner = changed
    for key in path[:-1]:
        owner = owner[key]
    owner[path[-1]] = value
    return changed


def without(data: Any, path: tuple[Any, ...]) -> Any:
    changed = copy.deepcopy(data)
    owner = changed
    for key in path[:-1]:
        owner = owner[key]
    del owner[path[-1]]
    return changed


def use(data: Any) -> KfacInstance | None:
    """Read and solve; None where an `InputError` says why not. Anything else fails the test."""
    try:
        made = KfacInstance.parse(data, "file.json")
        json.loads(made.model_dump_json())
    except InputError as error:
        assert "file.json" in str(error)
        assert len(str(error)) < 1500
        return None
    return made


def solve(made: KfacInstance) -> None:
    try:
        result = ppsolve.optimize(made, time_limit=0, workers=1)
    except PpsolveError:
        return
    if result.schedule is not None:
        assert ppsolve.check(made, result) == []


@pytest.mark.parametrize("data", [MEASURED, DESCRIBED], ids=["measured", "described"])
def test_the_examples_are_valid_and_survive_a_round_trip(data: dict[str, Any]) -> None:
    made = KfacInstance.parse(data)
    again = KfacInstance.parse(json.loads(made.model_dump_json()))
    assert again == made
    assert ppsolve.parse_instance(json.loads(json.dumps(data))) == made
    solve(made)


@pytest.mark.parametrize("data", [MEASURED, DESCRIBED], ids=["measured", "described"])
@pytest.mark.parametrize("third", first(1, range(3)))
def test_odd_values_in_every_place_are_read_or_refused(
    data: dict[str, Any], third: int
) -> None:
    read = 0
    for path in list(places(data))[third::3]:
        for value in ODD:
            made = use(put(data, path, value))
            read += made is not None
        use(without(data, path))
    assert read


@pytest.mark.parametrize("tried", first(1, [1, 3]))
def test_what_is_read_is_solved_or_refused(tried: int) -> None:
    rng = random.Random(1)
    read = 0
    for data in (MEASURED, DESCRIBED):
        for path in places(data):
            for value in rng.sample(ODD, tried):
                made = use(put(data, path, value))
                if made is not None:
                    solve(made)
                    read += 1
    assert read


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(
        [*KNOWN_LABELS, "call_forward:up_pipe", "cov_kron_A:m", "staleness", "free"]
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(max_size=4)
            | st.sampled_from([*MEASURED, *DESCRIBED, *KNOWN_LABELS]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_json_is_read_or_refused(value: Any) -> None:
    use(value)
    use({"kind": "kfac", "timelines": value})
    use({"kind": "kfac", "timelines": [value, value]})
    use({"kind": "kfac", "pipeline": DESCRIBED["pipeline"], "modules": value})


@given(st.sampled_from([MEASURED, DESCRIBED]), st.integers(0, 10**6), JSON)
def test_any_json_in_any_place_is_read_or_refused(
    data: dict[str, Any], number: int, value: Any
) -> None:
    paths = places(data)
    use(put(data, paths[number % len(paths)], value))
    use({**data, str(value)[:20]: value})


CLOCK = st.integers(-300, 300) | st.none() | st.sampled_from([0.5, -0.25, 10**6])


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(
                [
                    *(
                        "start_end",
                        "call_forward",
                        "call_forward:up_pipe",
                        "call_backward",
                    ),
                    *(
                        "cov_kron_A:m",
                        "cov_kron_B:m",
                        "sync_kron_A:m",
                        "sync_kron_A:m:up_pipe",
                    ),
                    *("inv_kron_A:m", "inv_kron_B", "cov_kron_A", "inv_kron_A:x/y#1@2"),
                ]
            ),
            st.lists(
                st.tuples(CLOCK, st.integers(0, 40)).map(
                    lambda p: [None, None] if p[0] is None else [p[0], p[0] + p[1]]
                ),
                max_size=3,
            ),
            max_size=7,
        ),
        min_size=1,
        max_size=2,
    ),
    st.sampled_from([[], [[0]], [[1, 0]]]),
)
def test_any_timelines_are_solved_or_refused(
    lines: list[Any], groups: list[Any]
) -> None:
    pipeline = {"call_forward": [[0, 20]], "call_backward": [[80, 100]]}
    data = {"time_unit": "ns", "timelines": [{**lines[0], **pipeline}, *lines[1:]]}
    made = use({**data, "sync_groups": groups})
    if made is not None:
        solve(made)
    raw = use({"time_unit": "ns", "timelines": lines})
    if raw is not None:
        solve(raw)


def refusal(base: dict[str, Any], **fields: Any) -> str:
    kept = {key: value for key, value in {**base, **fields}.items() if value is not ...}
    with pytest.raises(InputError) as caught:
        KfacInstance.parse(kept, "file.json")
    return str(caught.value)


@pytest.mark.parametrize(
    ("base", "fields", "message"),
    [
        (
            MEASURED,
            {"pipeline": DESCRIBED["pipeline"]},
            'either "timelines", or "pipeline"',
        ),
        (MEASURED, {"timelines": ...}, 'either "timelines", or "pipeline"'),
        (MEASURED, {"timelines": []}, "timelines"),
        (
            MEASURED,
            {"timelines": [{"call_forwards": [[0, 1]]}]},
            'did you mean "call_forward"?',
        ),
        (
            MEASURED,
            {"timelines": [{"cov_kron_C:m": [[0, 1]]}]},
            'unknown label "cov_kron_C:m"',
        ),
        (
            MEASURED,
            {"timelines": [{"call_forward": [[0]]}]},
            "expected a pair [start, end]",
        ),
        (
            MEASURED,
            {"timelines": [{"call_forward": [[0, None]]}]},
            "only one of the two",
        ),
        (
            MEASURED,
            {"timelines": [{"call_forward": [[5, 4]]}]},
            "at or after the start 5, got 4",
        ),
        (MEASURED, {"timelines": [{"call_forward": [["0", 4]]}]}, "expected a number"),
        (MEASURED, {"margin_ratio": -0.01}, "expected a number >= 0, got -0.01"),
        (
            MEASURED,
            {"sync_groups": [[0, 2]]},
            "sync_groups[0][1]: expected a device from 0 to 1",
        ),
        (MEASURED, {"sync_groups": [[0, -1]]}, "expected a device from 0 to 1, got -1"),
        (MEASURED, {"sync_groups": [[0, 1], [1]]}, "device 1 is named twice"),
        (MEASURED, {"saved": {"capacity": [1]}}, "saved.capacity"),
        (MEASURED, {"modules": DESCRIBED["modules"]}, "only with a described pipeline"),
        (MEASURED, {"max_age": 0}, "only with a described pipeline"),
        (MEASURED, {"pattern": "gpipe"}, "pinned as they were measured"),
        (MEASURED, {"objective": "makespan"}, 'expected "iterations" with timelines'),
        (MEASURED, {"objective": "completion"}, "objective"),
        (MEASURED, {"refresh_interval": 0}, "refresh_interval"),
        (MEASURED, {"refresh_interval": 1.5}, "expected a whole number"),
        (MEASURED, {"margin": 0}, 'did you mean "margin_ratio"?'),
        (
            DESCRIBED,
            {"pipeline": {**DESCRIBED["pipeline"], "collectives": {"all_gather": 1}}},
            "pipeline.collectives: expected a pipeline without collectives",
        ),
        (
            DESCRIBED,
            {"pipeline": {**DESCRIBED["pipeline"], "overlap": {"time": 2}}},
            "pipeline.overlap: expected a pipeline without fused blocks",
        ),
        (
            DESCRIBED,
            {"modules": ...},
            "modules: this field is required with a pipeline",
        ),
        (DESCRIBED, {"modules": []}, "modules"),
        (DESCRIBED, {"sync_groups": [[0, 1]]}, "only with timelines"),
        (DESCRIBED, {"saved": {"capacity": 1}}, "only with timelines"),
        (
            DESCRIBED,
            {
                "time_unit": "ns",
                "pipeline": {**DESCRIBED["pipeline"], "time_unit": "us"},
            },
            'expected "ns" as of the instance, got "us"',
        ),
        (
            DESCRIBED,
            {"pattern": "free", "objective": "iterations"},
            'expected "makespan"',
        ),
        (
            DESCRIBED,
            {"objective": "iterations"},
            'max_age: expected only with the objective "make',
        ),
        (DESCRIBED, {"max_age": 2}, "expected less than the refresh interval 2, got 2"),
        (
            DESCRIBED,
            {"modules": [DESCRIBED["modules"][0]] * 2},
            'stage 0 has two modules "m"',
        ),
        (
            DESCRIBED,
            {"modules": [{**DESCRIBED["modules"][0], "stage": 2}]},
            "modules[0].stage: expected a stage from 0 to 1, got 2",
        ),
        (
            DESCRIBED,
            {"modules": [{**DESCRIBED["modules"][0], "replicas": [0, 7]}]},
            "modules[0].replicas[1]: expected a device from 0 to 1, got 7",
        ),
        (
            DESCRIBED,
            {"modules": [{**DESCRIBED["modules"][0], "inverse_a": -1}]},
            "modules[0].inverse_a: expected a number >= 0, got -1",
        ),
    ],
)
def test_each_refusal_names_its_field(
    base: dict[str, Any], fields: dict[str, Any], message: str
) -> None:
    found = refusal(base, **fields)
    assert found.startswith("file.json: ")
    assert message in found


def test_defaults() -> None:
    made = KfacInstance.parse({"timelines": [{}]})
    assert (made.kind, made.time_unit, made.num_devices) == ("kfac", "us", 1)
    assert float(made.margin_ratio) == 0.05
    assert made.tie_break is TieBreak.STALENESS
    assert made.judged_by is Objective.ITERATIONS
    free = KfacInstance.parse({**DESCRIBED, "pattern": "free", "objective": None})
    assert free.judged_by is Objective.MAKESPAN
    pinned = KfacInstance.parse({**DESCRIBED, "objective": None, "max_age": None})
    assert pinned.judged_by is Objective.ITERATIONS
    once = KfacInstance.parse({**DESCRIBED, "refresh_interval": None, "max_age": 0})
    assert once.cycle_length == 1


@pytest.mark.parametrize("pattern", ["gpipee", "", "pipefisher", "free "])
def test_an_unknown_pattern_is_refused_when_used(pattern: str) -> None:
    fields = {"pattern": pattern, "objective": None, "max_age": None}
    made = KfacInstance.parse({**DESCRIBED, **fields})
    with pytest.raises(InputError, match="pattern"):
        ppsolve.optimize(made, time_limit=0)


def cycle(pattern: str, **fields: Any) -> KfacInstance:
    modules = [
        {
            "stage": s,
            "name": "m",
            "curvature_a": 1,
            "curvature_b": 2,
            "inverse_a": 3,
            "inverse_b": 2,
        }
        for s in range(2)
    ]
    pipeline = {
        "num_devices": 2,
        "num_microbatches": 2,
        "times": {"forward": 1, "backward": 2},
    }
    data = {
        "pipeline": pipeline,
        "modules": modules,
        "pattern": pattern,
        "margin_ratio": 0,
    }
    return KfacInstance.parse({**data, "objective": "makespan", **fields})


@pytest.mark.parametrize("interval", [1, 2])
def test_a_free_cycle_is_never_worse_than_a_pinned_one(interval: int) -> None:
    free = ppsolve.optimize(
        cycle("free", refresh_interval=interval), time_limit=20, workers=1
    )
    assert free.status is Status.OPTIMAL
    assert free.value is not None
    for pattern in ("gpipe", "1f1b"):
        last: float = free.value
        for margin in (0, 0.05, 0.3):
            made = cycle(pattern, refresh_interval=interval, margin_ratio=margin)
            pinned = ppsolve.optimize(made, time_limit=20, workers=1)
            assert pinned.status is Status.OPTIMAL
            assert pinned.value is not None
            assert pinned.value >= last
            assert ppsolve.check(made, pinned) == []
            last = pinned.value


@pytest.mark.slow
def test_tiny_free_cycles_as_exhaustive_search() -> None:
    rng = random.Random(3)
    for _ in range(25):
        microbatches = rng.choice((1, 1, 2))
        times = (
            "curvature_a",
            "curvature_b",
            "inverse_a",
            "inverse_b",
            "precondition",
            "sync_a",
        )
        module = {
            "stage": 1,
            "name": "m",
            **{time: rng.randint(0, 3) for time in times},
        }
        pipeline = {
            "num_devices": 2,
            "num_microbatches": microbatches,
            "times": {"forward": rng.randint(1, 3), "backward": rng.randint(1, 3)},
        }
        made = cycle(
            "free",
            modules=[module],
            pipeline=pipeline,
            refresh_interval=rng.choice((1, 2)),
        )
        problem = lower_cycle(made)
        if problem.num_ops > 18:
            continue
        result = ppsolve.optimize(made, time_limit=20, workers=1)
        assert result.status is Status.OPTIMAL
        assert result.value == brute_force(problem)
        assert ppsolve.check(made, result) == []

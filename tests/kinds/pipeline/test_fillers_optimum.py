from __future__ import annotations

import itertools
import json
import random
from typing import Any

import pytest

from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.api import check, optimize
from tests.bruteforce import brute_force
from tests.filler_model import FillerModel
from tests.kinds.pipeline.filler_instances import lower
from tests.marks import first
from tests.paths import DATA

CASES = json.loads((DATA / "fillers/cases.json").read_text())["cases"]


def converted(case: dict[str, Any]) -> dict[str, Any]:
    """Return the instance of a case: its rules are those of tests/data/fillers/README.md."""
    names = ("num_devices", "stages_per_device", "placement", "num_microbatches")
    data = {"kind": "pipeline", **{name: case[name] for name in names}}
    data["times"] = {
        kind: [time for (time,) in rows] for kind, rows in case["times"].items()
    }
    data["p2p"] = {"latency": case["p2p"]}
    if "memory" in case:
        memory = case["memory"]
        taken = [amount for (amount,) in memory["activation"]]
        late = [amount for (amount,) in memory["left_to_weight"]]
        data["memory"] = {
            "capacity": memory["capacity"],
            "activation": taken,
            "released_by_backward_weight": [
                w / a for w, a in zip(late, taken, strict=True)
            ],
        }
    data["fillers"] = []
    for number, given in enumerate(case["fillers"]):
        filler = {
            "name": f"x{number}",
            "device": given["device"],
            "pieces": given["pieces"],
        }
        for end in {"after", "before"} & given.keys():
            kind, stage, microbatch, _ = given[end]
            filler[end] = f"{kind}{stage}.{microbatch}"
        data["fillers"].append(filler)
    return data


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_proved_optimum(case: dict[str, Any]) -> None:
    result = optimize(PipelineInstance.parse(converted(case)), seed=0)
    assert result.status == "OPTIMAL"
    assert result.value == result.bound == case["expected"]["makespan"]


def drawn(seed: int) -> dict[str, Any]:
    """Return a tiny pipeline with fillers, in the words of instances."""
    draw = random.Random(seed)
    devices = draw.choice([1, 2, 2])
    v = devices == 2 and draw.random() < 0.2
    stages, m = devices * (1 + v), draw.choice([1, 2, 2])
    kinds = draw.choice(
        [["forward", "backward"], ["forward", "backward_input", "backward_weight"]]
    )
    steps = draw.choice([1, 1, 2]) if stages * m < 4 else 1
    data: dict[str, Any] = {
        "kind": "pipeline",
        "num_devices": devices,
        "num_microbatches": m,
        "placement": "vshape" if v else "linear",
        "steps": steps,
        "times": {kind: [draw.randint(1, 6) for _ in range(stages)] for kind in kinds},
        "p2p": {"latency": draw.randint(0, 2)},
        "fillers": [],
    }
    if draw.random() < 0.4:
        data["memory"] = {"capacity": draw.randint(2, 4) * (1 + v), "activation": 1}
    for number in range(draw.randint(1, 3)):
        filler: dict[str, Any] = {
            "name": f"x{number}",
            "device": draw.randrange(devices),
            "pieces": [draw.randint(0, 5) for _ in range(draw.choice([1, 1, 2]))],
            "per_step": draw.random() < 0.3,
            "release": draw.choice([0, 0, 7]),
            "stream": draw.choice(["compute", "compute", "compute", "host", "comm"]),
        }
        last = "W" if "backward_weight" in kinds else "B"
        for end, kind in (
            ("after", draw.choice(["F", last])),
            ("before", draw.choice("FB")),
        ):
            kind = draw.choice(["F", "I"]) if last == "W" and kind == "B" else kind
            if draw.random() < 0.5:
                name = f"{kind}{draw.randrange(stages)}"
                name += f".{draw.randrange(m)}" if draw.random() < 0.7 else ""
                late = end == "before" and steps > 1 and draw.random() < 0.5
                filler[end] = name + "@1" * late
        if (
            number
            and data["fillers"][-1]["per_step"] == filler["per_step"]
            and draw.random() < 0.4
        ):
            named = filler.get("after", [])
            named = [named] if isinstance(named, str) else named
            filler["after"] = [*named, f"x{number - 1}"]
        if "memory" in data and draw.random() < 0.5:
            filler["memory"] = {"running": draw.randint(0, 1)}
            if isinstance(filler.get("after"), str) and "." in filler["after"]:
                filler["memory"]["waiting"] = 1
        data["fillers"].append(filler)
    return data


def drawn_with_choice(seed: int) -> dict[str, Any]:
    """Return a drawn pipeline on two devices whose fillers may be on either."""
    draw = random.Random(seed)
    data = drawn(seed)
    for filler in data["fillers"]:
        if data["num_devices"] > 1 and draw.random() < 0.7:
            filler.pop("memory", None)
            filler["pieces"] = [draw.randint(1, 6)]
            filler["devices"] = [1 - filler["device"]]
    return data


def plain(data: dict[str, Any]) -> dict[str, Any]:
    """Return the case of an instance for the plain model."""
    memory = {"capacity": data["memory"]["capacity"]} if "memory" in data else {}
    v = data["placement"] == "vshape"
    return {
        **data,
        "latency": data["p2p"]["latency"],
        "stages_per_device": 1 + v,
        **memory,
    }


@pytest.mark.parametrize("block", first(2, range(20)))
def test_tiny_ones_against_a_plain_model(block: int) -> None:
    for seed in range(10 * block, 10 * block + 10):
        data = drawn(seed)
        expected = FillerModel(plain(data)).optimum()
        try:
            result = optimize(PipelineInstance.parse(data), seed=0)
        except InputError as error:
            assert expected is None, (seed, error)
            assert "no filler that waits for itself" in str(error)
            continue
        assert result.value == expected, seed
        assert result.status == ("INFEASIBLE" if expected is None else "OPTIMAL"), seed


@pytest.mark.parametrize("block", first(1, range(10)))
def test_tiny_ones_with_a_choice_of_devices_against_a_plain_model(block: int) -> None:
    for seed in range(1000 + 10 * block, 1010 + 10 * block):
        data = drawn_with_choice(seed)
        expected = FillerModel(plain(data)).optimum()
        try:
            made = PipelineInstance.parse(data)
            result = optimize(made, seed=0)
        except InputError as error:
            assert expected is None, (seed, error)
            continue
        assert result.value == expected, seed
        assert result.status == ("INFEASIBLE" if expected is None else "OPTIMAL"), seed
        if expected is not None:
            assert check(made, result.model_dump(mode="json", by_alias=True)) == [], (
                seed
            )


@pytest.mark.parametrize("seed", first(10, range(300, 340)))
def test_tiny_ones_against_brute_force(seed: int) -> None:
    data = drawn(seed)
    try:
        problem = lower(data)
    except InputError:
        return
    if problem.num_ops <= 14:
        assert brute_force(problem) == FillerModel(plain(data)).optimum()


def test_without_heuristics_releases_count_for_the_longest_schedule() -> None:
    """The filler waits until 3 and all else for it: 3 + 1 + 4 + 4 + 4 + 5 + 1 + 5 = 27."""
    data: dict[str, Any] = {
        "num_devices": 2,
        "num_microbatches": 1,
        "times": {"forward": 4, "backward": 5},
        "p2p": {"latency": [[0, 4], [1, 0]]},
        "fillers": [
            {
                "name": "x",
                "device": 0,
                "devices": [1],
                "pieces": [1],
                "release": 3,
                "before": "F0.0",
            }
        ],
    }
    instance = PipelineInstance.parse(data)
    assert optimize(instance, time_limit=10, heuristics=[]).value == 27


def drawn_spans(seed: int) -> dict[str, Any]:
    """Return a pipeline of which device spans count, whose fillers may run on either device."""
    draw = random.Random(seed)
    return {
        "num_devices": 2,
        "num_microbatches": draw.randint(1, 2),
        "objective": "device_span",
        "times": {
            "forward": [draw.randint(1, 6), draw.randint(1, 6)],
            "backward": [draw.randint(1, 6), draw.randint(1, 6)],
        },
        "fillers": [
            {
                "name": f"x{number}",
                "device": number,
                "devices": [1 - number],
                "pieces": [draw.randint(1, 6)],
                "release": draw.choice([0, 3, 20]),
                "stream": draw.choice(["compute", "compute", "host"]),
                "after": draw.choice([[], ["F0.0"], ["B1.0"]]),
            }
            for number in range(draw.randint(1, 2))
        ],
    }


def span_of_the_best_choice(data: dict[str, Any]) -> int:
    """Return the optimum over all choices of devices, each a pipeline with fixed ones."""
    spans = []
    for moved in itertools.product([False, True], repeat=len(data["fillers"])):
        fillers = [
            {
                **filler,
                "device": filler["devices"][0] if moves else filler["device"],
                "devices": [],
            }
            for filler, moves in zip(data["fillers"], moved, strict=True)
        ]
        result = optimize(
            PipelineInstance.parse({**data, "fillers": fillers}), time_limit=10
        )
        assert result.status == "OPTIMAL"
        spans.append(result.value)
    return min(spans)


@pytest.mark.parametrize("seed", first(3, range(60)))
def test_device_spans_of_free_fillers_are_bounded_by_their_own_measure(
    seed: int,
) -> None:
    data = drawn_spans(seed)
    best = span_of_the_best_choice(data)
    for heuristics in (None, ["1f1b"], []):
        found = optimize(
            PipelineInstance.parse(data), time_limit=1, heuristics=heuristics
        )
        assert found.bound is not None
        assert found.bound <= best, heuristics
        assert found.value is None or found.value >= best
        assert found.status != "OPTIMAL" or found.value == best

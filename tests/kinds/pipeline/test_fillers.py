from __future__ import annotations

import json
import random
from fractions import Fraction
from typing import Any

import pytest

from ppsolve.models.core.problem import Problem
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.kfac.instance import KfacInstance
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.lowering import lower_pipeline
from ppsolve.solver.api.api import check, optimize, simulate
from ppsolve.solver.kinds.pipeline.programs.shape import shape_of
from ppsolve.solver.run.params import OptionsParams, SearchParams
from tests.bruteforce import brute_force
from tests.filler_model import FillerModel
from tests.paths import DATA

CASES = json.loads((DATA / "fillers/cases.json").read_text())["cases"]


def converted(case: dict[str, Any]) -> dict[str, Any]:
    """Return the instance of a case: its rules are those of tests/data/fillers/README.md."""
    names = ("num_devices", "stages_per_device", "placement", "num_microbatches")
    data = {"kind": "pipeline", **{name: case[name] for name in names}}
    data["times"] = {kind: [time for (time,) in rows] for kind, rows in case["times"].items()}
    data["p2p"] = {"latency": case["p2p"]}
    if "memory" in case:
        memory = case["memory"]
        taken = [amount for (amount,) in memory["activation"]]
        late = [amount for (amount,) in memory["left_to_weight"]]
        data["memory"] = {
            "capacity": memory["capacity"],
            "activation": taken,
            "released_by_backward_weight": [w / a for w, a in zip(late, taken, strict=True)],
        }
    data["fillers"] = []
    for number, given in enumerate(case["fillers"]):
        filler = {"name": f"x{number}", "device": given["device"], "pieces": given["pieces"]}
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
    kinds = draw.choice([["forward", "backward"], ["forward", "backward_input", "backward_weight"]])
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
        for end, kind in (("after", draw.choice(["F", last])), ("before", draw.choice("FB"))):
            kind = draw.choice(["F", "I"]) if last == "W" and kind == "B" else kind
            if draw.random() < 0.5:
                name = f"{kind}{draw.randrange(stages)}"
                name += f".{draw.randrange(m)}" if draw.random() < 0.7 else ""
                late = end == "before" and steps > 1 and draw.random() < 0.5
                filler[end] = name + "@1" * late
        if number and data["fillers"][-1]["per_step"] == filler["per_step"] and draw.random() < 0.4:
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
    return {**data, "latency": data["p2p"]["latency"], "stages_per_device": 1 + v, **memory}


@pytest.mark.parametrize("block", range(20))
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


@pytest.mark.parametrize("block", range(10))
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
            assert check(made, result.model_dump(mode="json", by_alias=True)) == [], seed


@pytest.mark.parametrize("seed", range(300, 340))
def test_tiny_ones_against_brute_force(seed: int) -> None:
    data = drawn(seed)
    try:
        problem = lower(data)
    except InputError:
        return
    if problem.num_ops <= 14:
        assert brute_force(problem) == FillerModel(plain(data)).optimum()


def instance(*fillers: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return two devices, two micro-batches, forwards of 1 and backwards of 2."""
    return {
        "kind": "pipeline",
        "num_devices": 2,
        "num_microbatches": 2,
        "times": {"forward": 1, "backward": 2},
        "fillers": [
            {"name": f"x{number}", "device": 0, "pieces": [1], **filler}
            for number, filler in enumerate(fillers)
        ],
        **fields,
    }


def lower(data: dict[str, Any]) -> Problem:
    return lower_pipeline(PipelineInstance.parse(data))


def before(problem: Problem, name: str) -> set[str]:
    names = problem.op_names(range(problem.num_ops))
    return set(problem.op_names(problem.before[problem.after == names.index(name)]))


def rows(problem: Problem) -> list[list[list[str]]]:
    return [[problem.op_names(row) for row in family] for family in problem.families]


def test_pieces_run_in_order_after_and_before_their_ops() -> None:
    problem = lower(instance({"pieces": [1, 2], "after": "F1.0", "before": ["B0.1", "B0.0"]}))
    assert before(problem, "x0/0") == {"F1.0"}
    assert before(problem, "x0/1") == {"x0/0"}
    assert "x0/1" in before(problem, "B0.1")
    assert "x0/1" in before(problem, "B0.0")
    assert problem.num_ops == 10


def test_an_op_without_micro_batch_is_that_of_all() -> None:
    problem = lower(instance({"after": "B0", "before": "OPT0"}, optimizer=1))
    assert before(problem, "x0") == {"B0.0", "B0.1"}
    assert before(problem, "OPT0") == {"B0.0", "B0.1", "x0"}


def test_a_stage_begins_a_step_when_it_has_ended_the_one_before() -> None:
    plain = lower(instance(steps=3))
    assert before(plain, "STEP0@1") == {"B0.0@1", "B0.1@1"}
    assert before(plain, "F0.1@2") == {"STEP0@1"}
    problem = lower(instance(steps=2, optimizer=1, allreduce=1))
    assert before(problem, "STEP1@0") == {"OPT1"}
    assert before(lower(instance(steps=2, allreduce=1)), "STEP1@0") == {"AR1"}
    gathers = {"all_gather": 1, "reduce_scatter": 1}
    assert before(lower(instance(steps=2, collectives=gathers)), "AG1@1") == {"STEP1@0"}


def test_fillers_of_each_step() -> None:
    problem = lower(instance({"per_step": True, "after": "B0.1", "before": "F1.0@1"}, steps=3))
    assert before(problem, "x0@2") == {"B0.1@2"}
    assert "x0@1" in before(problem, "F1.0@2")
    assert "x0" in before(problem, "F1.0@1")


def test_streams_and_releases() -> None:
    problem = lower(
        instance({"stream": "host"}, {"stream": "comm", "device": 1}, {"release": 3}, allreduce=1)
    )
    names = problem.op_names(range(problem.num_ops))
    found = {
        name: [problem.resource_names[r] for r in problem.resources_of(names.index(name))]
        for name in ("x0", "x1", "AR1", "x2")
    }
    assert found == {"x0": ["host 0"], "x1": ["comm 1"], "AR1": ["comm 1"], "x2": ["device 0"]}
    assert problem.release[names.index("x2")] == 3


def test_alike_micro_batches_with_alike_fillers_stay_alike() -> None:
    encoders = [{"device": i % 2, "before": f"F0.{i}"} for i in range(2)]
    assert rows(lower(instance(*encoders))) == []
    encoders[1]["device"] = 0
    assert [row[-1] for row in rows(lower(instance(*encoders)))[0]] == ["x0", "x1"]
    encoders[1]["pieces"] = [2]
    assert rows(lower(instance(*encoders))) == []


def test_other_micro_batches_stay_alike_beside_one_with_a_filler() -> None:
    problem = lower(instance({"before": "F0.1"}, num_microbatches=4))
    assert [[row[0] for row in family] for family in rows(problem)] == [["F0.0", "F0.2", "F0.3"]]
    between = lower(instance({"after": "F0.1", "before": "F0.3"}, num_microbatches=4))
    assert [[row[0] for row in family] for family in rows(between)] == [["F0.0", "F0.2"]]


def test_alike_fillers_of_no_micro_batch_are_interchangeable() -> None:
    problem = lower(instance({"after": "B0"}, {"after": "B0"}, {"after": "B1"}))
    assert rows(problem)[-1] == [["x0"], ["x1"]]


def test_fillers_after_fillers() -> None:
    chain = [{}, {"after": "x0", "device": 1}, {"after": ["x0", "B0.0"]}]
    problem = lower(instance(*chain))
    assert before(problem, "x1") == {"x0"}
    assert before(problem, "x2") == {"x0", "B0.0"}
    # They belong to micro-batch 0 together, which is no longer like the other one.
    assert rows(problem) == []


def test_alike_chains_are_interchangeable() -> None:
    links = [{}, {"after": "x0"}, {}, {"after": "x2"}, {"after": "x2"}, {"after": "x4"}]
    problem = lower(instance(*links[:4]))
    assert rows(problem)[-1] == [["x0", "x1"], ["x2", "x3"]]
    forked = lower(instance({}, {"after": "x0"}, {"after": "x1"}, {}, {"after": "x3"}, links[0]))
    assert rows(forked)[1:] == []
    # Two follow the first one here, one after the other there.
    other = [{}, {"after": "x0"}, {"after": "x0"}, {}, {"after": "x3"}, {"after": "x4"}]
    assert rows(lower(instance(*other)))[1:] == []
    joined = [{}, {}, {"after": ["x0", "x1"]}]
    assert rows(lower(instance(*joined)))[1:] == []


def test_fillers_of_two_steps_are_not_alike() -> None:
    problem = lower(instance({"after": "B0", "per_step": True}, steps=2, num_microbatches=1))
    assert rows(problem) == []
    fillers = [{"after": "B0", "per_step": True}] * 2
    problem = lower(instance(*fillers, steps=2, num_microbatches=1))
    assert rows(problem) == [[["x0"], ["x1"]], [["x0@1"], ["x1@1"]]]


def test_memory_is_held_while_a_filler_waits_and_runs() -> None:
    memory = {"capacity": 4, "activation": 1}
    filler = {"after": "F0.0", "pieces": [1, 1], "memory": {"waiting": 2, "running": 3}}
    pool = lower(instance(filler, memory=memory)).pools[0]
    problem = lower(instance(filler, memory=memory))
    names = problem.op_names(range(problem.num_ops))

    def events(ops: Any, amounts: Any) -> list[tuple[str, Fraction]]:
        pairs = zip(ops.tolist(), amounts.tolist(), strict=True)
        return [(names[op], pool.amounts[index]) for op, index in pairs if index >= 0]

    taken = dict(events(pool.acquire_op, pool.acquire_amount))
    assert taken == {"F0.0": 3, "F0.1": 1, "x0/0": 3}
    given = events(pool.release_op, pool.release_amount)
    assert given == [("B0.0", 1), ("B0.1", 1), ("x0/1", 2), ("x0/1", 3)]


@pytest.mark.parametrize(
    ("filler", "fields", "message"),
    [
        ({"name": "F0.0"}, {}, "fillers[0].name: "),
        ({"device": 2}, {}, "fillers[0].device: expected devices from 0 to 1, got 2"),
        ({"devices": [2]}, {}, "fillers[0].devices: expected devices from 0 to 1, got 2"),
        ({"devices": [0]}, {}, "fillers[0].devices: expected different devices"),
        ({"devices": [1], "pieces": [1, 1]}, {}, "and a filler of one piece without memory"),
        (
            {"devices": [1], "memory": {"running": 1}},
            {"memory": {"capacity": 9, "activation": 1}},
            "fillers[0].devices: expected different devices, and a filler of one piece",
        ),
        ({"pieces": []}, {}, "fillers[0].pieces: expected at least 1 entry, got none"),
        ({"after": "f0"}, {}, 'fillers[0].after: expected an op such as "F0.3"'),
        (
            {"before": "I0.0"},
            {},
            'fillers[0].before: expected an op such as "F0.3" (stage 0',
        ),
        ({"after": "OPT0"}, {}, 'or a filler above, got "OPT0"'),
        ({"after": "AR0.1"}, {"allreduce": 1}, 'or a filler above, got "AR0.1"'),
        ({"after": "F2.0"}, {}, 'or a filler above, got "F2.0"'),
        ({"after": "F0.2"}, {}, 'or a filler above, got "F0.2"'),
        ({"before": "F0.0@1"}, {}, 'or a filler above, got "F0.0@1"'),
        ({"memory": {"running": 1}}, {}, 'fillers[0].memory: expected "memory" of the pipeline'),
        (
            {"memory": {"waiting": 1}, "after": "F0"},
            {"memory": {"capacity": 9, "activation": 1}},
            "fillers[0].memory.waiting: expected one op",
        ),
        ({}, {"steps": 0}, "steps: "),
        (
            {},
            {"num_microbatches": 1_000_000, "steps": 2},
            "num_microbatches: expected at most 5000000 ops (stages x micro-batches x 3 x steps)",
        ),
        (
            {},
            {
                "memory": {
                    "capacity": 9,
                    "activation": 1,
                    "offload": {"amount": 1, "out": 1, "back": 1},
                }
            },
            "memory: expected no layers, fused blocks or memory modes",
        ),
        (
            {},
            {"replicas": {"count": 2, "members": [[0], [1]]}},
            'fillers: expected no "replicas" with such fillers',
        ),
    ],
)
def test_refused(filler: dict[str, Any], fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        lower(instance(filler, **fields))
    assert message in str(caught.value)


def test_two_fillers_of_one_name() -> None:
    with pytest.raises(InputError, match=r'fillers\[1\].name: two fillers are called "x"'):
        PipelineInstance.parse(instance({"name": "x"}, {"name": "x"}))


def test_a_filler_that_waits_for_itself() -> None:
    with pytest.raises(InputError, match=r"fillers: .* itself: F0.0 -> .* -> x0 -> \.\.\."):
        lower(instance({"after": "B0.0", "before": "F0.0"}))


def test_the_share_that_a_weight_gradient_gives_back_may_differ_per_stage() -> None:
    times = {"forward": 1, "backward_input": 1, "backward_weight": 1}
    memory = {"capacity": 4, "activation": 2, "released_by_backward_weight": [0.5, 0]}
    problem = lower(instance(times=times, memory=memory))
    names = problem.op_names(range(problem.num_ops))
    given = [[names[op] for op in pool.release_op.tolist()] for pool in problem.pools]
    assert given == [["I0.0", "I0.1", "W0.0", "W0.1"], ["I1.0", "I1.1"]]
    memory["released_by_backward_weight"] = [0.5]
    with pytest.raises(InputError, match=r"released_by_backward_weight: expected .* 2 entr"):
        lower(instance(times=times, memory=memory))


def test_programs_of_runtimes_have_one_step_and_no_fillers() -> None:
    for data, field in ((instance({}), "fillers"), (instance(steps=2), "steps")):
        with pytest.raises(InputError, match=f"{field}: expected one step without fillers"):
            shape_of(PipelineInstance.parse(data))


def greedy(data: dict[str, Any], name: str = "1f1b") -> tuple[Any, list[str]]:
    """Return the entry of a heuristic and the order of device 0."""
    found = simulate(PipelineInstance.parse(data), name)
    return found, [] if found.schedule is None else found.schedule.orders()[0]


def test_greedy_fills_the_first_bubbles_longest_first() -> None:
    # 1F1B on device 0: F 0-2, idle 2-4, B 4-6, idle 6-7, B 7-9.
    fillers = [{"pieces": [1]}, {"pieces": [2]}, {"pieces": [1], "after": "B0.0"}]
    found, order = greedy(instance(*fillers))
    assert order == ["F0.0", "F0.1", "x1", "B0.0", "x0", "B0.1", "x2"]
    assert found.value == 10


def test_greedy_delays_what_waits_for_a_filler_that_no_bubble_takes() -> None:
    # F0.0 has to wait, and so has all that follows.
    found, order = greedy(instance({"pieces": [3], "before": "F0.0"}))
    assert order[:2] == ["x0", "F0.0"]
    assert found.value == 9 + 3
    # The bubble 2-4 lacks less than any other one before B0.1.
    found, order = greedy(instance({"pieces": [4], "after": "F0.0", "before": "B0.1"}))
    assert order == ["F0.0", "F0.1", "x0", "B0.0", "B0.1"]
    assert found.value == 2 + 4 + 2 + 2


def test_greedy_runs_pieces_in_different_bubbles_and_copies_beside() -> None:
    found, order = greedy(instance({"pieces": [2, 1]}, {"stream": "host", "pieces": [5]}))
    assert order == ["F0.0", "x1", "F0.1", "x0/0", "B0.0", "x0/1", "B0.1"]
    assert found.value == 9


def test_greedy_repeats_its_order_in_each_step() -> None:
    found, order = greedy(instance({"after": "B0"}, steps=2))
    # Stage 1 begins the second step at 8, at once; stage 0 at 9, with a forward.
    assert order[4:7] == ["STEP0@0", "F0.0@1", "F0.1@1"]
    assert found.value == 18


def test_every_published_order_runs_with_fillers() -> None:
    fillers = [{"device": i % 2, "before": f"F0.{i}"} for i in range(4)]
    times = {"forward": 1, "backward_input": 1, "backward_weight": 1}
    data = instance(*fillers, times=times, num_microbatches=4, steps=2)
    for name in ("1f1b", "gpipe", "zb-1p", "zb-h1", "zb-h2", "looped-bfs"):
        assert greedy(data, name)[0].status == "feasible"


def test_an_order_that_waits_for_itself_through_a_filler_fails() -> None:
    data = instance({"after": "B0.0", "before": "F0.1"})
    found = simulate(PipelineInstance.parse(data), "gpipe")
    assert found.status == "failed"
    assert "deadlock" in str(found.reason)


CHOICE = (
    {"after": "B0", "devices": [1]},
    {"pieces": [3], "after": "B0.0", "devices": [1]},
    {"pieces": [2], "devices": [1]},
    {"pieces": [2], "devices": [1]},
)


def test_the_result_names_the_devices_of_fillers_and_check_knows_them() -> None:
    made = PipelineInstance.parse(instance(*CHOICE))
    result = optimize(made, seed=0)
    assert (result.status, result.value) == ("OPTIMAL", 11)
    data = result.model_dump(mode="json", by_alias=True)
    assert check(made, data) == []
    moved = {op["id"]: op["device"] for op in data["schedule"]["ops"] if op["device"] == 1}
    assert data["devices"] == {name: 1 for name in moved if name.startswith("x")}
    # Elsewhere two ops of one device run at once.
    assert check(made, data | {"devices": {}})
    for wrong in ({"x0": 0}, {"F0.0": 1}, {"x0": [1]}, ["x0"]):
        with pytest.raises(InputError, match="devices: expected fillers"):
            check(made, data | {"devices": wrong})


def test_greedy_takes_the_device_on_which_a_filler_starts_first() -> None:
    found, order = greedy(instance({"after": "B0.0"}, {"after": "B0.0", "devices": [1]}))
    # Device 0 is free from 6 to 7, device 1 from 7 on.
    assert found.devices == {"x1": 1}
    assert order == ["F0.0", "F0.1", "B0.0", "x0", "B0.1"]
    assert found.value == 9


def test_bounds_hold_whichever_device_runs_a_filler() -> None:
    # 12 of work on each device and 10 on any; device 1 waits for F0.0, device 0 for the last B1.
    fillers = [{"pieces": [5], "after": "F0.0", "devices": [1]}] * 2
    made = PipelineInstance.parse(instance(*fillers, num_microbatches=4))
    result = optimize(made, seed=0)
    assert (result.bound, result.bound_by, result.value) == (18, "work of all devices", 18)


def test_orders_of_the_best_devices_are_searched_before_all_is_one_model() -> None:
    made = PipelineInstance.parse(instance(*CHOICE))
    slow = SearchParams(options=OptionsParams(quick_options=0))
    result = optimize(made, seed=0, params=slow)
    assert (result.status, result.value) == ("OPTIMAL", 11)
    assert {step.name for step in result.steps} >= {"orders", "cp-sat"}


def test_cycles_of_kfac_have_steps_of_their_own() -> None:
    work = dict.fromkeys(("curvature_a", "curvature_b", "inverse_a", "inverse_b"), 1)
    pipeline = {name: each for name, each in instance({}).items() if name != "kind"}
    modules = [{"stage": 0, "name": "m", **work}]
    with pytest.raises(InputError, match="pipeline: expected one step without fillers"):
        KfacInstance.parse({"pipeline": pipeline, "modules": modules})

from __future__ import annotations

import json
import re
from typing import Any

import pytest

import ppsolve
from ppsolve.models.core.result import HeuristicStatus
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import lower
from ppsolve.solver.api.registry import all_heuristics
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.heuristics.heuristic import HeuristicOutcome
from tests.paths import DATA
from tests.running import run_heuristic

TORCH = json.loads((DATA / "torch_orders.json").read_text())["schedules"]
PUBLISHED = json.loads((DATA / "zero_bubble_published.json").read_text())["rows"]
TORCH_NAMES = {
    "ScheduleGPipe": "gpipe",
    "Schedule1F1B": "1f1b",
    "ScheduleInterleaved1F1B": "interleaved-1f1b",
    "ScheduleLoopedBFS": "looped-bfs",
    "ScheduleInterleavedZeroBubble": "interleaved-zb",
    "ScheduleZBVZeroBubble": "zbv",
    "ScheduleDualPipeV": "dualpipe-v",
}
FUSED = {"forward": 1, "backward": 2}
SPLIT = {"forward": 1, "backward_input": 1, "backward_weight": 1}


def pipeline(devices: int, microbatches: int, **fields: Any) -> PipelineInstance:
    base = {"num_devices": devices, "num_microbatches": microbatches, "times": SPLIT}
    return PipelineInstance.parse(base | fields)


def run(name: str, instance: PipelineInstance, **options: Any) -> HeuristicOutcome:
    return run_heuristic(name, instance, lower(instance), **options)


def torch_id(case: dict[str, Any]) -> str:
    return f"{case['schedule']}-{case['ranks']}x{case['stages']}x{case['microbatches']}"


@pytest.mark.parametrize("times", [FUSED, SPLIT], ids=["fused", "split"])
@pytest.mark.parametrize("case", TORCH, ids=torch_id)
def test_torch_orders_are_reproduced(
    case: dict[str, Any], times: dict[str, int]
) -> None:
    instance = pipeline(
        case["ranks"],
        case["microbatches"],
        placement={"stage_to_device": case["stage_to_rank"]},
        times=times,
    )
    outcome = run(TORCH_NAMES[case["schedule"]], instance)
    needs_split = any("I" in kinds for kinds in case["counts"])
    if needs_split and times is FUSED:
        assert outcome.status is HeuristicStatus.NOT_APPLICABLE
        assert (
            outcome.reason
            == "needs split backwards (backward_input and backward_weight)"
        )
    else:
        assert outcome.orders == case["orders"]
        assert outcome.status is HeuristicStatus.FEASIBLE


@pytest.mark.parametrize("devices", [1, 2, 3, 5, 6])
@pytest.mark.parametrize("microbatches", [1, 7, 12, 19, 130])
def test_v_orders_are_complete_and_run(devices: int, microbatches: int) -> None:
    instance = pipeline(devices, microbatches, placement="vshape")
    wanted = ["zbv"] + (["dualpipe-v"] if microbatches >= 2 * devices else [])
    for name in wanted:
        outcome = run(name, instance)
        assert outcome.status is HeuristicStatus.FEASIBLE, outcome.reason


def published_instance(row: dict[str, Any], **fields: Any) -> PipelineInstance:
    return pipeline(
        row["num_devices"],
        row["num_microbatches"],
        times={
            "forward": row["forward_us"],
            "backward_input": row["backward_input_us"],
            "backward_weight": row["backward_weight_us"],
        },
        p2p={"latency": row["p2p_us"]},
        **fields,
    )


@pytest.mark.parametrize(
    "row", PUBLISHED, ids=lambda row: f"{row['num_devices']}x{row['num_microbatches']}"
)
def test_published_bubble_rates(row: dict[str, Any]) -> None:
    instance = published_instance(row)
    problem = lower(instance)
    rates = row["bubble_rates_rerun_exact"]
    work = row["num_microbatches"] * (
        row["forward_us"] + row["backward_input_us"] + row["backward_weight_us"]
    )
    heuristics = {"1f1b": "1F1B", "zb-h1": "ZB-H1", "zb-h2": "ZB-H2"}
    expected = {name: rates[key] for name, key in heuristics.items()}
    expected["zb-1p"] = rates.get("ZB-1p/zb", rates.get("1p/zb"))
    expected |= {
        name: row["published_bubble_rate"][key]
        for name, key in heuristics.items()
        if key in row["published_bubble_rate"]
    }
    for name, rate in expected.items():
        schedule = run_heuristic(name, instance, problem).schedule
        assert schedule is not None
        measured = (schedule.device_span - work) / schedule.device_span
        assert round(measured, 4) == round(rate, 4), name


def test_fused_backward_of_a_split_instance_holds_the_gradient_back() -> None:
    row = PUBLISHED[2]
    outcome = run("1f1b", published_instance(row))
    assert outcome.schedule is not None
    # Device 0 runs from the first op to the last, so its span is the makespan.
    work = row["forward_us"] + row["backward_input_us"] + row["backward_weight_us"]
    span = (
        row["num_microbatches"] * work / (1 - row["bubble_rates_rerun_exact"]["1F1B"])
    )
    assert outcome.schedule.makespan == round(span) == 2_480_217


def test_transfer_of_a_fused_backward_waits_for_the_weight_gradient() -> None:
    p2p = {"mode": "link", "latency": 0, "bytes": 2, "bandwidth": 1}
    instance = pipeline(2, 1, p2p=p2p)
    outcome = run("1f1b", instance)
    assert outcome.schedule is not None
    problem = outcome.schedule.problem
    start = dict(
        zip(
            problem.op_names(range(problem.num_ops)),
            outcome.schedule.start.tolist(),
            strict=True,
        )
    )
    assert start == {
        "F0.0": 0, "TF0.0": 1, "F1.0": 3, "I1.0": 4, "W1.0": 5, "TB1.0": 6, "I0.0": 8, "W0.0": 9,
    }  # fmt: skip


def test_optimizer_runs_after_the_order() -> None:
    outcome = run("gpipe", pipeline(2, 3, optimizer=4, allreduce=2))
    assert outcome.status is HeuristicStatus.FEASIBLE
    assert outcome.schedule is not None
    problem = outcome.schedule.problem
    for step in problem.kind_mask("OPT").nonzero()[0]:
        on_device = problem.device == problem.device[step]
        others = on_device & problem.kind_mask("F", "I", "W")
        assert outcome.schedule.start[step] >= outcome.schedule.end[others].max() + 2


def test_stages_in_any_order_on_the_devices() -> None:
    instance = pipeline(3, 4, placement={"stage_to_device": [2, 0, 1]})
    outcome = run("1f1b", instance)
    assert outcome.orders is not None
    assert [order[0] for order in outcome.orders] == ["1F0", "2F0", "0F0"]


@pytest.mark.parametrize(
    ("name", "fields", "reason"),
    [
        ("gpipe", {"placement": "vshape"}, "needs stages = devices, one stage on each"),
        ("1f1b", {"placement": "bidirectional"}, "needs one pipe (not bidirectional)"),
        (
            "zb-h1",
            {"times": FUSED},
            "needs split backwards (backward_input and backward_weight)",
        ),
        (
            "interleaved-1f1b",
            {},
            "needs at least 2 devices and 2 stages per device with stage",
        ),
        (
            "zbv",
            {"placement": "wave", "stages_per_device": 3},
            "needs a V placement: 2 stages",
        ),
        ("dualpipe-v", {"placement": "vshape"}, "needs micro-batches >= 2 x devices"),
        ("chimera", {}, "needs bidirectional pipes"),
    ],
)
def test_what_a_heuristic_needs_is_said(
    name: str, fields: dict[str, Any], reason: str
) -> None:
    outcome = run(name, pipeline(4, 6, **fields))
    assert outcome.status is HeuristicStatus.NOT_APPLICABLE
    assert outcome.reason is not None
    assert outcome.reason.startswith(reason)
    assert outcome.schedule is None


def test_groups_of_interleaved_1f1b() -> None:
    instance = pipeline(4, 9, placement="interleaved", stages_per_device=2)
    outcome = run("interleaved-1f1b", instance)
    assert outcome.status is HeuristicStatus.NOT_APPLICABLE
    assert outcome.reason == (
        "needs micro-batches divisible by the 2 rounds of PyTorch's rule "
        "(micro-batches // devices), or a group size; got 9"
    )
    assert (
        run("interleaved-1f1b", instance, group_size=9).status
        is HeuristicStatus.FEASIBLE
    )
    with pytest.raises(InputError, match="expected a group size of at least 1, got 0"):
        run("interleaved-1f1b", instance, group_size=0)


def test_less_memory_warms_up_by_one_forward_a_device() -> None:
    """Lead of device s: chunks x devices - s - 1 forwards (MindFormers' rule), then in turn."""
    instance = pipeline(3, 6, placement="interleaved", stages_per_device=2, times=FUSED)
    actions = run("interleaved-less-memory", instance).orders
    assert actions is not None
    for device, row in enumerate(actions):
        kinds = "".join(re.sub("[0-9]", "", action) for action in row)
        lead = 2 * 3 - device - 1
        assert kinds == "F" * lead + "FB" * (12 - lead) + "B" * lead
    assert actions[2][:5] == ["2F0", "2F1", "2F2", "5F0", "5B0"]
    assert actions[0][4:8] == ["3F1", "3F2", "3B0", "0F3"]


def test_deadlock_of_a_partial_last_group_is_reported() -> None:
    instance = pipeline(4, 5, placement="interleaved", stages_per_device=3)
    outcome = run("interleaved-1f1b", instance, group_size=4)
    assert outcome.status is HeuristicStatus.FAILED
    assert outcome.reason is not None
    assert outcome.reason.startswith("deadlock: ")
    names = outcome.reason.removeprefix("deadlock: ").split(" -> ")
    assert names[0] == names[-1]
    assert len(set(names)) == len(names) - 1


def test_schedule_that_breaks_memory_is_kept_and_marked() -> None:
    outcome = run("gpipe", pipeline(2, 6, memory={"capacity": 4, "activation": 1}))
    assert outcome.status is HeuristicStatus.INFEASIBLE
    assert outcome.reason is not None
    assert outcome.reason.startswith("memory: device 0 holds 6 of 4")
    assert outcome.schedule is not None
    assert check_schedule(outcome.schedule.problem, outcome.schedule)


def test_zb_h2_peak_memory() -> None:
    memory = {"capacity": 7, "activation": 1}
    assert (
        run("zb-h2", pipeline(4, 12, memory=memory)).status is HeuristicStatus.FEASIBLE
    )
    memory["capacity"] = 6
    assert (
        run("zb-h2", pipeline(4, 12, memory=memory)).status
        is HeuristicStatus.INFEASIBLE
    )


@pytest.mark.parametrize("name", ["zb-1p", "zb-h1", "zb-h2", "1f1b", "gpipe"])
@pytest.mark.parametrize("microbatches", [1, 2, 3, 5])
def test_few_microbatches(name: str, microbatches: int) -> None:
    assert run(name, pipeline(4, microbatches)).status is HeuristicStatus.FEASIBLE


def test_unknown_name_gets_a_suggestion() -> None:
    with pytest.raises(
        InputError, match='unknown heuristic "zb-h3"; did you mean "zb-h'
    ):
        run("zb-h3", pipeline(2, 2))


def test_of_equal_schedules_the_one_that_holds_less_is_kept() -> None:
    result = ppsolve.optimize(
        pipeline(2, 3), time_limit=0, heuristics=["gpipe", "1f1b"]
    )
    assert [entry.value for entry in result.heuristics] == [result.value] * 2
    assert result.best_by == "1f1b"


def test_registry_order_and_words() -> None:
    assert list(all_heuristics())[:17] == [
        "1f1b", "gpipe", "zb-1p", "zb-h1", "zb-h2", "interleaved-1f1b", "interleaved-less-memory",
        "combined-1f1b", "combined-interleaved-1f1b", "looped-bfs", "interleaved-zb", "zbv",
        "v-half", "v-min", "dualpipe-v", "dualpipe", "chimera",
    ]  # fmt: skip
    chimera = all_heuristics()["chimera"]
    assert (chimera.made_for, chimera.needs) == ("a pipeline", ("bidirectional pipes",))
    assert all_heuristics()["list-tail"].is_generic

"""Sequence slices: the rules by hand, against a plain model, and the published orders."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

import ppsolve
from ppsolve.models.core.result import ScheduleDocument, Status
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.kfac.instance import KfacInstance
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import kind_of, lower
from ppsolve.solver.bounds import lower_bounds
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.formats.perfetto import TracedSchedule, perfetto_json
from ppsolve.solver.structure.implied import ImpliedOrder
from ppsolve.solver.structure.tables import memory_of
from ppsolve.solver.views.chart import chart_rows
from ppsolve.solver.views.pipeline import pipeline_shape
from tests.kinds.pipeline.sliced_model import optimum
from tests.marks import first
from tests.paths import DATA
from tests.running import run_heuristic
from tests.views.page.cases import shown_of


def random_sliced(seed: int) -> dict[str, Any]:
    """Return the JSON of a tiny sliced pipeline, mostly with memory; about a tenth never fits."""
    rng = np.random.default_rng(seed)

    def pick(*choices: Any) -> Any:
        return choices[rng.integers(len(choices))]

    placement = pick("linear", "linear", "interleaved", "vshape")
    devices = pick(2, 3) if placement == "linear" else 2
    batches, count = pick((1, 2), (1, 3), (2, 2), (2, 2), (3, 2), (2, 3))
    stages = devices * (1 if placement == "linear" else 2)
    if stages * batches * count > 16:
        batches, count = 2, 2

    def row(low: int, high: int) -> Any:
        size = pick(0, count, count, batches * count)
        return (
            rng.integers(low, high, size).tolist()
            if size
            else int(rng.integers(low, high))
        )

    def rows(low: int, high: int, items: int = stages) -> Any:
        return (
            [row(low, high) for _ in range(items)]
            if rng.random() < 0.8
            else pick(low, high)
        )

    kinds = ("forward", "backward_input", "backward_weight")
    kinds = pick(("forward", "backward"), kinds, kinds)
    low = pick(0, 1, 1, 1)
    data: dict[str, Any] = {
        "kind": "pipeline",
        "num_devices": devices,
        "num_microbatches": batches,
        "placement": placement,
        "slices": count,
        "times": {kind: rows(low, 6) for kind in kinds},
        "p2p": {"mode": pick("delay", "delay", "link"), "latency": pick(0, 1, 2)},
    }
    if placement != "linear":
        data["stages_per_device"] = 2
    if data["p2p"]["mode"] == "link":
        data["p2p"] |= {"bytes": rows(1, 3, stages - 1), "bandwidth": 1}
    if rng.random() < 0.85:
        least = [rng.integers(2, 4, count).tolist() for _ in range(stages)]
        data["memory"] = {"activation": least, "left_to_weight": rows(0, 2)}
        if rng.random() < 0.6:
            data["memory"]["key_value"] = rows(0, 2)
        if rng.random() < 0.2:
            data["memory"]["forward_peak"] = [
                [pick(3, 4)] * count for _ in range(stages)
            ]
        whole = 3 * count * (stages // devices)
        data["memory"]["capacity"] = whole + int(
            rng.integers(0, whole * (batches - 1) // 2 + 3)
        )
    return data


@pytest.mark.parametrize("seed", first(2, range(260)))
def test_agrees_with_the_plain_model(seed: int) -> None:
    data = random_sliced(seed)
    known = optimum(data)
    instance = PipelineInstance.parse(data)
    result = ppsolve.optimize(instance, time_limit=30)
    if known is None:
        assert result.status is Status.INFEASIBLE
        return
    assert (result.status, result.value, result.bound) == (Status.OPTIMAL, known, known)
    assert ppsolve.check(instance, result) == []
    problem = lower(instance)
    bounds = lower_bounds(ImpliedOrder(problem))
    assert max(problem.scale.time(bound.value) for bound in bounds) <= known


def cases() -> list[dict[str, Any]]:
    """Return the eight cases with proved optima."""
    found: list[dict[str, Any]] = json.loads(
        (DATA / "slices" / "cases.json").read_text()
    )["cases"]
    return found


@pytest.mark.parametrize("case", cases(), ids=lambda case: case["name"])
def test_proves_the_recorded_optima(case: dict[str, Any]) -> None:
    expected = case["expected"]["makespan"]
    data = {key: value for key, value in case.items() if key not in {"expected", "p2p"}}
    data["p2p"] = {"latency": case["p2p"]}
    result = ppsolve.optimize(PipelineInstance.parse(data), time_limit=60)
    assert (result.status, result.value, result.bound) == (
        Status.OPTIMAL,
        expected,
        expected,
    )


def sliced(**fields: Any) -> PipelineInstance:
    """Return two stages of one micro-batch in two slices, forwards of 1 and backwards of 2."""
    given = {"num_devices": 2, "num_microbatches": 1, "slices": 2, **fields}
    return PipelineInstance.parse({"times": {"forward": 1, "backward": 2}, **given})


def starts(instance: PipelineInstance, heuristic: str) -> dict[str, float]:
    """Return the starts of the ops of a heuristic's schedule by name."""
    found = run_heuristic(heuristic, instance, lower(instance))
    assert found.schedule is not None
    assert check_schedule(found.schedule.problem, found.schedule) == []
    rows = ScheduleDocument.of(found.schedule).to_dicts()
    return {row["id"]: row["start"] for row in rows}


BY_HAND = {
    "F0.0.0": 0, "F0.0.1": 1, "F1.0.0": 1, "F1.0.1": 2,
    "B1.0.1": 3, "B1.0.0": 5, "B0.0.1": 5, "B0.0.0": 7,
}  # fmt: skip


@pytest.mark.parametrize("name", ["1f1b", "gpipe", "seq1f1b", "slimpipe"])
def test_backwards_run_from_the_last_slice_to_the_first(name: str) -> None:
    assert starts(sliced(), name) == BY_HAND


def test_documents_number_micro_batches_and_slices() -> None:
    found = ppsolve.optimize(sliced(num_microbatches=2))
    rows = {row["id"]: row for row in found.to_dicts()}
    row = rows["B1.1.0"]
    assert (row["stage"], row["microbatch"], row["slice"]) == (1, 1, 0)
    document = json.loads(found.model_dump_json())
    next(op for op in document["schedule"]["ops"] if op["id"] == "B1.1.0")["slice"] = 1
    wrong = ppsolve.check(sliced(num_microbatches=2), document)
    assert [violation.rule for violation in wrong] == ["label"]
    assert "slice" not in ppsolve.optimize(sliced(slices=None)).to_dicts()[0]


def test_charts_pages_and_traces_show_micro_batch_and_slice() -> None:
    instance = sliced(num_microbatches=2)
    found = ppsolve.simulate(instance, "seq1f1b")
    assert found.schedule is not None
    problem = lower(instance)
    bars = [bar for row in chart_rows(found.schedule, problem) for bar in row.bars]
    assert {"F1.0", "B0.1"} <= {bar.label for bar in bars}
    columns = shown_of(instance, "seq1f1b").columns()
    document = found.model_dump(mode="json")
    schedule = kind_of(instance).read(instance, problem, document)[0]
    place = columns["names"].index("B1.1.0")
    assert [columns[name][place] for name in ("stage", "microbatch", "slice")] == [
        1,
        1,
        0,
    ]
    events = json.loads(perfetto_json([TracedSchedule("best", schedule)]))[
        "traceEvents"
    ]
    traced = {event["name"]: event.get("args") for event in events}
    assert traced["B1.1.0"] == {"stage": 1, "micro-batch": 1, "slice": 0}
    assert dict(pipeline_shape(instance))["micro-batches"] == "2, 2 slices each"


def test_one_slice_is_the_whole_micro_batch() -> None:
    whole, one = lower(sliced(slices=None)), lower(sliced(slices=1))
    assert one.op_names(range(one.num_ops)) == whole.op_names(range(whole.num_ops))
    assert np.array_equal(one.before, whole.before)


@pytest.mark.parametrize(
    ("capacity", "makespan"), [(5, None), (7, 16), (8, 15), (9, 13), (11, 13), (12, 12)]
)
def test_keys_and_values_are_held_until_the_last_backward(
    capacity: float, makespan: float | None
) -> None:
    # Slices of activation 1 and 3 with keys and values of 1 each: a micro-batch takes 6. After
    # F0.0.0, F0.0.1 and F0.1.0, B0.0.1 gives back 3 of 8; F0.1.1 takes 4, so 9 are needed to run it
    # next: were the keys and values of slice 1 given back as well, 8 would do.
    instance = PipelineInstance.parse(
        {
            "num_devices": 2,
            "num_microbatches": 2,
            "slices": 2,
            "placement": {"stage_to_device": [0, 1]},
            "times": {"forward": [1, 0], "backward": [2, 0]},
            "p2p": {"latency": 1},
            "memory": {
                "capacity": [capacity, 0],
                "activation": [[1, 3], 0],
                "key_value": [1, 0],
            },
        }
    )
    result = ppsolve.optimize(instance, time_limit=20)
    assert result.value == makespan
    assert result.status is (Status.INFEASIBLE if makespan is None else Status.OPTIMAL)


def test_micro_batches_of_several_sizes_are_told_apart() -> None:
    alike = sliced(num_microbatches=2, times={"forward": [[1, 2], 1], "backward": 1})
    other = sliced(
        num_microbatches=2, times={"forward": [[1, 2, 1, 1], 1], "backward": 1}
    )
    assert [len(lower(each).families) for each in (alike, other)] == [1, 0]
    assert [each.has_unequal_microbatches for each in (alike, other)] == [False, True]


COST = {"per_token": 1, "per_square": 0.5, "constant": 3}


def test_costs_of_slices_sum_to_the_cost_of_the_whole_but_for_the_constant() -> None:
    times = {"forward": COST, "backward": 1}
    instance = sliced(num_microbatches=2, slices=3, lengths=[10, [4, 7]], times=times)
    rows = instance.in_numbers().times.forward
    # Cuts of 10 tokens at 3 and 6, of 11 at 3 and 7: 4 + 3 tokens of the first sequence and the
    # second, which do not attend to each other.
    first = [3 + 4.5 + 3, 3 + 13.5 + 3, 4 + 32 + 3]
    packed = [3 + 4.5 + 3, 4 + (7 + 9) / 2 + 3, 4 + (49 - 9) / 2 + 3]
    assert [float(each) for each in rows[0]] == first + packed
    assert sum(first) == 10 + 50 + 9
    given = sliced(num_microbatches=2, slices=[3, 3, 4], times=times).in_numbers()
    assert [float(each) for each in given.times.forward[0]] == first * 2


def test_balanced_cuts_make_forwards_as_equal_as_whole_tokens_allow() -> None:
    times = {"forward": [{"per_token": 1, "per_square": 0.01}] * 2, "backward": 1}
    cuts = {"count": 4, "cuts": "balanced"}
    row = sliced(lengths=[1000], slices=cuts, times=times).in_numbers().times.forward[0]
    assert sum(row) == 1000 + 10_000
    assert max(row) - min(row) <= 2 * (1 + Decimal("0.01") * 2001)
    tiny = sliced(lengths=[4], slices=cuts, times=times).in_numbers().times.forward[0]
    assert [float(each) for each in tiny] == [1.01, 1.03, 1.05, 1.07]


@pytest.mark.parametrize(
    ("cost", "lengths", "count", "tokens"),
    [
        ({"per_token": 1}, [10], 3, [3, 4, 3]),  # 3.33 and 6.67 tokens
        ({"per_square": 1}, [4], 4, [1, 1, 1, 1]),  # 4 of 16 would be 2 tokens
        # 3 and 6 of 36 are both nearest to 4, the cost of 2 tokens: the second cut moves on.
        ({"per_square": 1}, [[4, *[1] * 20]], 12, [2, 1, 1, 1, 1, 1, 2, 3, 3, 3, 3, 3]),
    ],
)
def test_balanced_cuts_are_at_the_nearest_token_and_leave_no_slice_empty(
    cost: dict[str, Any], lengths: list[Any], count: int, tokens: list[int]
) -> None:
    cuts = {"count": count, "cuts": "balanced"}
    times = {"forward": cost, "backward": {"per_token": 1}}
    found = (
        sliced(lengths=lengths, slices=cuts, times=times).in_numbers().times.backward
    )
    assert list(map(float, found[0])) == tokens


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"slices": "4"},
            "slices: expected a number of slices, a list with the tokens of each",
        ),
        ({"slices": True}, "slices: expected a number of slices"),
        ({"slices": 0}, "slices: "),
        ({"slices": {"count": 2, "cuts": "even"}}, "slices.cuts: "),
        ({"slices": [3, 0]}, "slices[1]: "),
        (
            {"slices": {"count": 2, "cuts": "balanced"}},
            'slices.cuts: expected "lengths" and a',
        ),
        (
            {"slices": [3, 2], "lengths": [6]},
            "slices: expected the 6 tokens of micro-batch 0",
        ),
        (
            {"slices": 7, "lengths": [6]},
            "slices: expected at most the 6 tokens of micro-batch 0",
        ),
        ({"overlap": {"ratio": 0.5}}, 'overlap: expected no "overlap" beside "slices"'),
        (
            {
                "times": {"forward": [[1, 2, 3], 1], "backward": 2},
                "num_microbatches": 2,
            },
            "times.forward[0]: expected a number or 4 entries (one per slice, or 2 of alike "
            "micro-batches), got 3",
        ),
        (
            {
                "slices": None,
                "memory": {"capacity": 2, "activation": 1, "key_value": 1},
            },
            'memory.key_value: expected "slices" of the pipeline beside',
        ),
    ],
)
def test_wrong_slices_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        sliced(**fields)
    assert message in str(error.value)


def test_runtimes_and_actions_know_no_slices() -> None:
    with pytest.raises(
        InputError, match="slices: expected one rank per stage and whole"
    ):
        ppsolve.optimize(sliced(), runtime="torch")
    actions = [["0F0", "0F1", "0B1", "0B0"], ["1F0", "1F1", "1B1", "1B0"]]
    refused = ppsolve.simulate(sliced(), lambda instance: actions)
    assert "actions do not say which piece of an op with" in str(refused.reason)
    names = [[f"F{s}.0.0", f"F{s}.0.1", f"B{s}.0.1", f"B{s}.0.0"] for s in range(2)]
    assert ppsolve.simulate(sliced(), lambda instance: names).value == 9


def test_work_of_kfac_is_hidden_beside_whole_micro_batches() -> None:
    factors = {"curvature_a": 1, "curvature_b": 1, "inverse_a": 1, "inverse_b": 1}
    module = {"stage": 0, "name": "m", **factors, "precondition": 1}
    data = json.loads(sliced().model_dump_json(by_alias=True, exclude_none=True))
    with pytest.raises(
        InputError, match=r"pipeline\.slices: expected whole micro-batches"
    ):
        KfacInstance.parse(
            {"name": "k", "pipeline": data, "modules": [module], "pattern": "1f1b"}
        )


def test_capacity_in_activations_counts_whole_micro_batches() -> None:
    instance = sliced(memory={"capacity": "1.5p", "activation": 2})
    assert instance.memory is not None
    assert instance.memory.capacity == 1.5 * 2 * 2 * 2


@pytest.mark.parametrize(
    "memory", [{"capacity": 3}, {"capacity": 3.5, "forward_peak": 1.5}]
)
@pytest.mark.parametrize(
    "name", ["list-tail", "list-work", "list-backward-first", "list-serial"]
)
def test_list_schedules_begin_no_micro_batch_that_another_leaves_no_room(
    name: str, memory: dict[str, Any]
) -> None:
    # A micro-batch gives nothing back before all its slices have run: one fits at a time.
    instance = sliced(num_microbatches=3, slices=3, memory={"activation": 1, **memory})
    assert len(starts(instance, name)) == 3 * 3 * 4


def test_an_op_that_gives_back_twice_takes_both_at_once_when_time_runs_backwards() -> (
    None
):
    # B0.0.0 gives back its activation, and keys and values of both slices.
    problem = lower(sliced(memory={"capacity": 9, "activation": 1, "key_value": 0.5}))
    memory = memory_of(problem)
    op = problem.op_names(range(problem.num_ops)).index("B0.0.0")
    rows = slice(memory.release_pointer[op], memory.release_pointer[op + 1])
    assert memory.release_amount[rows].tolist() == [4]
    (pool,) = (
        each for each in ImpliedOrder(problem).pools if each.pool.name == "device 0"
    )
    first = sorted(problem.op_names(pool.holds.acquire))
    assert first == ["F0.0.0", "F0.0.0", "F0.0.1", "F0.0.1"]
    assert pool.holds.base == 0

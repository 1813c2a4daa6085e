from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

import ppsolve
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.kfac.instance import KfacInstance
from ppsolve.models.kinds.pipeline.filler_devices import device_choices
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.kinds.pipeline.programs.shape import shape_of
from tests.kinds.pipeline.filler_instances import before, instance, lower, rows


def test_pieces_run_in_order_after_and_before_their_ops() -> None:
    problem = lower(
        instance({"pieces": [1, 2], "after": "F1.0", "before": ["B0.1", "B0.0"]})
    )
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
    problem = lower(
        instance({"per_step": True, "after": "B0.1", "before": "F1.0@1"}, steps=3)
    )
    assert before(problem, "x0@2") == {"B0.1@2"}
    assert "x0@1" in before(problem, "F1.0@2")
    assert "x0" in before(problem, "F1.0@1")


def test_streams_and_releases() -> None:
    problem = lower(
        instance(
            {"stream": "host"},
            {"stream": "comm", "device": 1},
            {"release": 3},
            allreduce=1,
        )
    )
    names = problem.op_names(range(problem.num_ops))
    found = {
        name: [
            problem.resource_names[r] for r in problem.resources_of(names.index(name))
        ]
        for name in ("x0", "x1", "AR1", "x2")
    }
    assert found == {
        "x0": ["host 0"],
        "x1": ["comm 1"],
        "AR1": ["comm 1"],
        "x2": ["device 0"],
    }
    assert problem.release[names.index("x2")] == 3


def test_a_filler_on_comm_shares_the_stream_of_gradients_where_each_kind_has_its_own() -> (
    None
):
    """All-gather, fillers and forward: 2 + 5 + 3 on one stream after another, then 4 back.

    On a stream without collectives the filler would run beside the all-gather, and 12 be enough.
    """
    collectives = {"all_gather": [2], "comm_streams": "per_kind"}
    one = instance(
        {"stream": "comm", "pieces": [2, 3], "before": "F0.0"},
        num_devices=1,
        num_microbatches=1,
        times={"forward": 3, "backward": 4},
        collectives=collectives,
    )
    problem = lower(one)
    names = problem.op_names(range(problem.num_ops))
    for name in ("AG0", "x0/0", "x0/1"):
        taken = problem.resources_of(names.index(name))
        assert [problem.resource_names[resource] for resource in taken] == ["dp comm 0"]
    pipeline = PipelineInstance.parse(one)
    assert ppsolve.optimize(pipeline, time_limit=10).value == 2 + 5 + 3 + 4
    both = instance(
        {"stream": "comm", "devices": [1]}, collectives=collectives | {"all_gather": 2}
    )
    (option,) = device_choices(PipelineInstance.parse(both), lower(both)).options
    assert [lower(both).resource_names[resource] for resource in option.resources] == [
        "dp comm 1"
    ]


def test_alike_micro_batches_with_alike_fillers_stay_alike() -> None:
    encoders = [{"device": i % 2, "before": f"F0.{i}"} for i in range(2)]
    assert rows(lower(instance(*encoders))) == []
    encoders[1]["device"] = 0
    assert [row[-1] for row in rows(lower(instance(*encoders)))[0]] == ["x0", "x1"]
    encoders[1]["pieces"] = [2]
    assert rows(lower(instance(*encoders))) == []


def test_other_micro_batches_stay_alike_beside_one_with_a_filler() -> None:
    problem = lower(instance({"before": "F0.1"}, num_microbatches=4))
    assert [[row[0] for row in family] for family in rows(problem)] == [
        ["F0.0", "F0.2", "F0.3"]
    ]
    between = lower(instance({"after": "F0.1", "before": "F0.3"}, num_microbatches=4))
    assert [[row[0] for row in family] for family in rows(between)] == [
        ["F0.0", "F0.2"]
    ]


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
    forked = lower(
        instance({}, {"after": "x0"}, {"after": "x1"}, {}, {"after": "x3"}, links[0])
    )
    assert rows(forked)[1:] == []
    # Two follow the first one here, one after the other there.
    other = [{}, {"after": "x0"}, {"after": "x0"}, {}, {"after": "x3"}, {"after": "x4"}]
    assert rows(lower(instance(*other)))[1:] == []
    joined = [{}, {}, {"after": ["x0", "x1"]}]
    assert rows(lower(instance(*joined)))[1:] == []


def test_fillers_of_two_steps_are_not_alike() -> None:
    problem = lower(
        instance({"after": "B0", "per_step": True}, steps=2, num_microbatches=1)
    )
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
        (
            {"devices": [2]},
            {},
            "fillers[0].devices: expected devices from 0 to 1, got 2",
        ),
        ({"devices": [0]}, {}, "fillers[0].devices: expected different devices"),
        (
            {"devices": [1], "pieces": [1, 1]},
            {},
            "and a filler of one piece without memory",
        ),
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
        (
            {"memory": {"running": 1}},
            {},
            'fillers[0].memory: expected "memory" of the pipeline',
        ),
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
            {"replicas": {"count": 2, "members": [[0], [1]]}},
            'fillers: expected no "fillers" beside "replicas"',
        ),
    ],
)
def test_refused(filler: dict[str, Any], fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        lower(instance(filler, **fields))
    assert message in str(caught.value)


def test_two_fillers_of_one_name() -> None:
    with pytest.raises(
        InputError, match=r'fillers\[1\].name: two fillers are called "x"'
    ):
        PipelineInstance.parse(instance({"name": "x"}, {"name": "x"}))


def test_a_filler_that_waits_for_itself() -> None:
    with pytest.raises(
        InputError, match=r"fillers: .* itself: F0.0 -> .* -> x0 -> \.\.\."
    ):
        lower(instance({"after": "B0.0", "before": "F0.0"}))


def test_the_share_that_a_weight_gradient_gives_back_may_differ_per_stage() -> None:
    times = {"forward": 1, "backward_input": 1, "backward_weight": 1}
    memory = {"capacity": 4, "activation": 2, "released_by_backward_weight": [0.5, 0]}
    problem = lower(instance(times=times, memory=memory))
    names = problem.op_names(range(problem.num_ops))
    given = [[names[op] for op in pool.release_op.tolist()] for pool in problem.pools]
    assert given == [["I0.0", "I0.1", "W0.0", "W0.1"], ["I1.0", "I1.1"]]
    memory["released_by_backward_weight"] = [0.5]
    with pytest.raises(
        InputError, match=r"released_by_backward_weight: expected .* 2 entr"
    ):
        lower(instance(times=times, memory=memory))


def test_programs_of_runtimes_have_one_step_and_no_fillers() -> None:
    for data, field in ((instance({}), "fillers"), (instance(steps=2), "steps")):
        with pytest.raises(
            InputError, match=f"{field}: expected one step without fillers"
        ):
            shape_of(PipelineInstance.parse(data))


def test_cycles_of_kfac_have_steps_of_their_own() -> None:
    work = dict.fromkeys(("curvature_a", "curvature_b", "inverse_a", "inverse_b"), 1)
    pipeline = {name: each for name, each in instance({}).items() if name != "kind"}
    modules = [{"stage": 0, "name": "m", **work}]
    with pytest.raises(InputError, match="pipeline: expected one step without fillers"):
        KfacInstance.parse({"pipeline": pipeline, "modules": modules})

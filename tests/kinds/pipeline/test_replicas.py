"""Replicas of a pipeline: members are said and checked, and each replica is solved apart."""

from __future__ import annotations

import json

import pytest

import ppsolve
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.joint import (
    first_members,
    lower_joint,
    lower_replicas,
    read_assignment,
    replica_of,
)
from ppsolve.models.kinds.pipeline.lowering import MAX_LOWERED, lower_pipeline
from ppsolve.models.kinds.pipeline.replicas import longest_first
from ppsolve.solver.api.kinds import kind_of
from tests.marks import first

TWO = {
    "kind": "pipeline",
    "num_devices": 2,
    "num_microbatches": 4,
    "times": {"forward": [[1, 2, 3, 4], 2], "backward": [2, [5, 6, 7, 8]]},
    "memory": {"capacity": [2, 1], "activation": 1},
    "optimizer": 3,
    "replicas": {"count": 2, "members": [[0, 3], [2, 1]]},
}


def pipeline(**changes):
    return PipelineInstance.parse(TWO | changes)


def test_devices_are_numbered_through_all_replicas_and_ops_carry_theirs():
    problem = lower_joint(pipeline(), ((0, 3), (2, 1)))
    names = dict(
        zip(
            problem.op_names(range(problem.num_ops)),
            range(problem.num_ops),
            strict=True,
        )
    )
    assert problem.resource_names == ("device 0", "device 1", "device 2", "device 3")
    assert [pool.name for pool in problem.pools] == list(problem.resource_names)
    op = names["F0.2"]
    assert (problem.replica[op], problem.device[op], problem.duration[op]) == (1, 2, 3)
    op = names["B1.3"]
    assert (problem.replica[op], problem.device[op], problem.duration[op]) == (0, 1, 8)
    assert {"OPT0@0", "OPT1@0", "OPT0@1", "OPT1@1"} <= names.keys()
    assert (problem.replica[problem.before] == problem.replica[problem.after]).all()


def test_a_replica_alone_has_the_numbers_of_its_microbatches():
    alone = replica_of(pipeline(), (2, 1))
    assert alone.times.forward[0] == (3, 2)
    assert alone.times.backward[1] == (7, 6)
    assert (alone.num_microbatches, alone.replicas) == (2, None)


@pytest.mark.parametrize(
    ("replicas", "field", "words"),
    [
        ({"count": 3}, "num_microbatches", "multiple of the 3 replicas"),
        ({"count": 5, "counts": "any"}, "replicas.count", "at most 4"),
        ({"count": 2, "members": [[0, 1]]}, "replicas.members", "one list for each"),
        (
            {"count": 2, "members": [[0, 1], [1, 2]]},
            "replicas.members",
            "1 is in replicas 0 and 1",
        ),
        (
            {"count": 2, "members": [[0, 1], [2, 4]]},
            "replicas.members",
            "from 0 to 3, got 4",
        ),
        (
            {"count": 2, "members": [[0], [1, 2, 3]]},
            "replicas.members",
            "as many micro-batches",
        ),
        (
            {"count": 2, "counts": "any", "members": [[0, 1, 2], [3, 3]]},
            "replicas.members",
            "every micro-batch once",
        ),
        (
            {"count": 2, "counts": "any", "members": [[0, 1, 2, 3], []]},
            "replicas.members",
            "replica 1 has none",
        ),
        (
            {"count": 2, "assignment": "free", "members": [[0, 1], [2, 3]]},
            "replicas.members",
            "no members",
        ),
    ],
)
def test_what_is_no_assignment_is_refused_by_field(replicas, field, words):
    with pytest.raises(InputError, match=words) as refused:
        pipeline(replicas=replicas)
    assert refused.value.field == field


@pytest.mark.parametrize(
    "changes",
    [
        {"placement": "bidirectional", "times": {"forward": 1, "backward": 2}},
        {"collectives": {"all_gather": 1}},
    ],
)
def test_two_way_pipes_and_collectives_have_no_replicas(changes):
    with pytest.raises(InputError, match='beside "replicas"'):
        pipeline(**changes)


def test_members_are_equal_blocks_where_none_are_given():
    assert first_members(pipeline(replicas={"count": 2})) == ((0, 1), (2, 3))
    uneven = {"count": 3, "counts": "any"}
    assert first_members(pipeline(replicas=uneven)) == ((0,), (1,), (2, 3))


def test_the_longest_goes_to_the_least_loaded_replica():
    assert longest_first([1, 9, 4, 6], 2, 2) == [[1, 0], [3, 2]]
    assert longest_first([1, 9, 4, 4], 2, 2) == [[1, 0], [2, 3]]
    assert longest_first([1, 9, 4, 4], 2, 4) == [[1], [2, 3, 0]]


FREE = {
    "times": {"forward": [[10, 90, 40, 40], 1], "backward": 1},
    "replicas": {"count": 2, "assignment": "free"},
}


def test_free_replicas_take_the_longest_first_as_many_as_their_counts_allow():
    """Works of 13, 93, 43, 43: 93 against 43 + 43, then the shortest goes where there is room."""
    assert first_members(pipeline(**FREE)) == ((0, 1), (2, 3))
    uneven = FREE | {"replicas": FREE["replicas"] | {"counts": "any"}}
    assert first_members(pipeline(**uneven)) == ((1,), (0, 2, 3))


def test_a_claimed_assignment_is_read_where_it_is_one():
    first, claimed = ((0, 1), (2, 3)), ((0, 2), (1, 3))
    assert (
        read_assignment({"assignment": [[0, 2], [1, 3]]}, pipeline(**FREE)) == claimed
    )
    for claim in (None, "0", [[0, 2], [1, 4]]):
        assert read_assignment({"assignment": claim}, pipeline(**FREE)) == first
    fixed = pipeline(replicas={"count": 2})
    assert read_assignment({"assignment": [[0, 2], [1, 3]]}, fixed) == first


def test_more_ops_than_memory_holds_are_refused_before_they_are_made():
    """Two stages of two ops per micro-batch."""
    most = MAX_LOWERED // 4
    plain = {"times": {"forward": 1, "backward": 2}, "replicas": None}
    huge = pipeline(**plain, num_microbatches=most + 2)
    with pytest.raises(
        InputError, match=f"at most {MAX_LOWERED} ops .* got {MAX_LOWERED + 8}"
    ):
        lower_pipeline(huge)
    with pytest.raises(InputError, match=f"at most {MAX_LOWERED} ops"):
        lower_replicas(huge, ((0,), (1,)))
    assert (
        lower_replicas(pipeline(**plain, num_microbatches=most), ((0,),))[0].num_ops
        == 6
    )


def test_times_without_a_common_tick_are_rounded_up_unless_told():
    instance = pipeline(times={"forward": 1e6, "backward": 1.234567890123})
    assert not lower_joint(instance, ((0, 3), (2, 1))).scale.is_exact
    with pytest.raises(InputError, match="common tick"):
        lower_joint(instance, ((0, 3), (2, 1)), exact=True)


def test_the_slowest_of_fixed_replicas_is_the_optimum():
    instance = pipeline()
    result = ppsolve.optimize(instance, time_limit=20)
    apart = [
        ppsolve.optimize(replica_of(instance, those), time_limit=20)
        for those in instance.replicas.members
    ]
    assert result.status == "OPTIMAL"
    assert result.value == result.bound == max(found.value for found in apart)
    assert [sorted(those) for those in result.assignment] == [[0, 3], [1, 2]]
    assert ppsolve.check(instance, result) == []


@pytest.mark.parametrize("counts", ["equal", "any"])
def test_one_replica_has_nobody_to_exchange_with(counts):
    one = {"count": 1, "assignment": "free", "counts": counts}
    result = ppsolve.optimize(pipeline(replicas=one), time_limit=20)
    alone = ppsolve.optimize(pipeline(replicas=None), time_limit=20)
    assert result.status == alone.status == "OPTIMAL"
    assert result.value == alone.value


def test_a_result_whose_assignment_is_another_is_refused():
    instance = pipeline()
    data = json.loads(ppsolve.optimize(instance, time_limit=20).model_dump_json())
    assert {op["replica"] for op in data["schedule"]["ops"]} == {0, 1}
    data["assignment"] = [[0, 1], [2, 3]]
    assert [violation.rule for violation in ppsolve.check(instance, data)] == [
        "assignment"
    ]
    data["assignment"] = [[0, 1], [1, 3]]
    assert "assignment" in [
        violation.rule for violation in ppsolve.check(instance, data)
    ]
    data["assignment"] = None
    data["schedule"]["ops"][0]["replica"] ^= 1
    assert [violation.rule for violation in ppsolve.check(instance, data)] == ["label"]


def test_published_schedules_run_on_every_replica():
    instance = pipeline()
    entry = ppsolve.simulate(instance, "1f1b")
    apart = [
        ppsolve.simulate(replica_of(instance, those), "1f1b").makespan
        for those in instance.replicas.members
    ]
    assert entry.makespan == max(apart)
    assert len(entry.orders) == 4
    assert entry.orders[2] == ["0F2", "0F1", "0B2", "0B1"]


def test_orders_of_fixed_replicas_are_searched_once_there_is_a_schedule():
    # 64 ops: published schedules that come after the search are still in the report.
    forward = [(7 * i) % 11 + 1 for i in range(16)]
    times = {"forward": [forward] * 2, "backward": [forward[::-1]] * 2}
    replicas = {"count": 2, "assignment": "fixed"}
    instance = pipeline(
        num_microbatches=16, times=times, replicas=replicas, optimizer=0
    )
    events: list[tuple[str, str]] = []
    result = ppsolve.optimize(
        instance,
        time_limit=20,
        on_progress=lambda told: events.append((told.event, told.source)),
    )
    assert result.status == "OPTIMAL"
    published = [source for event, source in events if event == "heuristic"]
    assert events.index(("incumbent", "replicas")) < events.index(
        ("heuristic", published[-1])
    )
    assert {"gpipe", "1f1b", "fifo"} <= {entry.name for entry in result.heuristics}


@pytest.mark.parametrize(
    ("heuristics", "deterministic"),
    first(2, [([], False), (["gpipe"], True), ([], True), (["gpipe"], False)]),
)
def test_replicas_without_a_schedule_to_begin_with_are_solved(
    heuristics, deterministic
):
    instance = pipeline(memory={"capacity": 1, "activation": 1})
    options = {
        "heuristics": heuristics,
        "deterministic": deterministic,
        "time_limit": 20,
    }
    result = ppsolve.optimize(instance, **options)
    assert result.status == "OPTIMAL"
    assert result.value == ppsolve.optimize(instance, time_limit=20).value


def test_actions_of_all_replicas_say_a_schedule():
    both, kind = pipeline(memory=None), kind_of(pipeline())
    entry = ppsolve.simulate(both, "1f1b")
    assert [len(order) for order in entry.orders] == [4, 4, 4, 4]
    problem = kind.lower(both)
    followed = kind.follow(both, problem, entry.orders).schedule
    assert followed.value == entry.value
    with pytest.raises(InputError, match="expected 4 orders, got 2"):
        kind.follow(both, problem, entry.orders[:2])

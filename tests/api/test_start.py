"""Runs that begin with a known schedule."""

import json

import pytest
from typer.testing import CliRunner

import ppsolve
from ppsolve.models.documents.errors import InputError
from ppsolve.solver.api.kinds import schedule_in
from ppsolve.solver.cli.main import build
from tests.paths import ROOT

PIPELINE = ppsolve.PipelineInstance(
    name="three",
    num_devices=3,
    num_microbatches=5,
    times={
        "forward": [3, 5, 4],
        "backward_input": [4, 4, 6],
        "backward_weight": [3, 2, 5],
    },
    memory={"capacity": 2, "activation": 1},
)


def plain(found):
    return json.loads(found.model_dump_json())


@pytest.fixture(scope="module")
def best():
    return ppsolve.optimize(PIPELINE, time_limit=5)


def test_the_answer_is_never_worse_than_the_start(best):
    found = ppsolve.optimize(PIPELINE, time_limit=0, heuristics=["gpipe"], start=best)
    assert (found.value, found.best_by) == (best.value, "start")
    assert ppsolve.check(PIPELINE, found) == []


def test_a_better_schedule_takes_its_place(best):
    feasible = [entry for entry in best.heuristics if entry.status == "feasible"]
    worst = max(feasible, key=lambda entry: entry.value)
    worse = ppsolve.simulate(PIPELINE, worst.name)
    assert worse.value > best.value
    found = ppsolve.optimize(PIPELINE, time_limit=5, start=worse)
    assert found.value == best.value
    assert found.best_by != "start"


@pytest.mark.parametrize("form", ["result", "data", "document", "schedule"])
def test_every_form_of_a_schedule_is_taken(best, form):
    given = {
        "result": best,
        "data": plain(best),
        "document": best.schedule,
        "schedule": schedule_in(plain(best))[1],
    }[form]
    found = ppsolve.optimize(PIPELINE, time_limit=0, heuristics=["gpipe"], start=given)
    assert found.value == best.value


def test_a_schedule_for_less_memory_holds_for_more(best):
    more = json.loads(PIPELINE.model_dump_json()) | {
        "memory": {"capacity": 3, "activation": 1}
    }
    roomier = ppsolve.parse_instance(more)
    found = ppsolve.optimize(roomier, time_limit=0, heuristics=["gpipe"], start=best)
    assert found.value <= best.value


def test_a_schedule_that_breaks_a_rule_is_named(best):
    tight = json.loads(PIPELINE.model_dump_json()) | {
        "memory": {"capacity": 1, "activation": 1}
    }
    with pytest.raises(
        InputError, match="start: not a valid schedule of three: memory"
    ):
        ppsolve.optimize(ppsolve.parse_instance(tight), time_limit=0, start=best)


def test_a_schedule_that_is_not_whole_is_named(best):
    data = plain(best)
    data["schedule"]["ops"].pop()
    with pytest.raises(InputError, match="start: not a whole schedule"):
        ppsolve.optimize(PIPELINE, time_limit=0, start=data)


def test_kinds_with_more_than_starts_refuse_one(best):
    refresh = ppsolve.load_instance(
        ROOT / "instances" / "kfac" / "measured" / "barrier.json"
    )
    with pytest.raises(InputError, match=f"{refresh.name}: start: schedules of ") as no:
        ppsolve.optimize(refresh, time_limit=0, start=best)
    assert (
        "are more than the starts of their ops; expected a pipeline or a graph"
        in str(no.value)
    )


@pytest.mark.parametrize(
    "contention", [[], [{"kernel_factor": 1.5, "collective_factor": 1.25}]]
)
def test_programs_begin_with_an_order_or_a_schedule(contention):
    given = ppsolve.load_instance(ROOT / "instances" / "overlap" / "fsdp-step-6l.json")
    program = ppsolve.parse_instance(plain(given) | {"contention": contention})
    entry = ppsolve.simulate(program, "inductor-list-raise")
    # Under contention starts alone do not say how long ops take.
    bare = [] if contention else [plain(entry)["schedule"]]
    for start in (entry, plain(entry), *bare):
        found = ppsolve.optimize(
            program, time_limit=0, heuristics=["original"], start=start
        )
        assert (found.makespan, found.best_by) == (entry.makespan, "start")
        assert ppsolve.check(program, found) == []


def test_orders_that_are_no_start_are_named():
    nodes = [
        {"name": "kernel", "kind": "compute", "duration": 5, "bytes": 2},
        {"name": "one", "kind": "comm", "duration": 5, "bytes": 2},
        {"name": "two", "kind": "comm", "duration": 5, "bytes": 2},
        {"name": "wait_one", "kind": "wait", "deps": ["one"]},
        {"name": "wait_two", "kind": "wait", "deps": ["two", "kernel"]},
    ]
    roomy = ppsolve.parse_instance({"kind": "overlap", "name": "caps", "nodes": nodes})
    names = [node["name"] for node in nodes]

    def refused(message, order, **caps):
        program = ppsolve.parse_instance(plain(roomy) | caps)
        with pytest.raises(InputError, match=message):
            ppsolve.optimize(program, time_limit=0, start={"order": order})

    refused("start: .*unknown node", [*names, "three"])
    refused("start: expected every node after what it depends on", names[::-1])
    refused(
        "start: not a valid schedule of caps: in flight: 2 of 1", names, max_in_flight=1
    )
    refused(
        "start: not a valid schedule of caps: memory: live bytes holds 4 of 3",
        names,
        max_live_bytes=3,
    )


REPLICAS = {
    "num_devices": 2,
    "num_microbatches": 6,
    "times": {"forward": [[1, 2, 3, 4, 5, 6], 2], "backward": [[2, 2, 3, 3, 4, 4], 3]},
    "memory": {"capacity": [2, 1], "activation": 1},
}


@pytest.mark.parametrize("assignment", ["fixed", "free"])
def test_replicas_begin_with_their_own_assignment(assignment):
    pipeline = ppsolve.PipelineInstance(
        **REPLICAS, replicas={"count": 2, "assignment": assignment}
    )
    best = ppsolve.optimize(pipeline, time_limit=2)
    options = {"time_limit": 0, "heuristics": ["gpipe"]}
    for start in (best, plain(best), schedule_in(plain(best))[1]):
        found = ppsolve.optimize(pipeline, start=start, **options)
        assert (found.value, found.best_by) == (best.value, "start")
        assert ppsolve.check(pipeline, found) == []


def test_an_assignment_that_the_start_does_not_have_is_refused():
    pipeline = ppsolve.PipelineInstance(
        **REPLICAS, replicas={"count": 2, "assignment": "free"}
    )
    best = plain(ppsolve.optimize(pipeline, time_limit=0))
    one, other = best["assignment"]
    one[0], other[0] = other[0], one[0]
    with pytest.raises(InputError, match="start: not a valid schedule"):
        ppsolve.optimize(pipeline, time_limit=0, start=best)


def test_the_command_names_the_file_of_a_wrong_start(best, tmp_path):
    instance, wrong = tmp_path / "instance.json", tmp_path / "wrong.json"
    instance.write_text(PIPELINE.model_dump_json())
    wrong.write_text('{"schedule": {"time_unit": "us", "ops": []}}')
    done = CliRunner().invoke(
        build(), ["optimize", str(instance), "--start", str(wrong)]
    )
    assert done.exit_code == 2
    assert "wrong.json: start: not a whole schedule" in done.stderr
    right = tmp_path / "right.json"
    right.write_text(best.model_dump_json())
    options = ["-t", "0", "--heuristics", "gpipe", "--json", "--start", str(right)]
    done = CliRunner().invoke(build(), ["optimize", str(instance), *options])
    assert json.loads(done.stdout)["best_by"] == "start"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"status": "UNKNOWN"}', "start: ops: expected a list of ops"),
        (
            '{"time_unit": "us", "ops": [{"id": "odd", "start": 0}]}',
            'start: ops[0].id: unknown op "odd"',
        ),
    ],
)
def test_the_command_names_the_file_of_what_is_no_start(tmp_path, text, message):
    instance, wrong = tmp_path / "instance.json", tmp_path / "wrong.json"
    instance.write_text(PIPELINE.model_dump_json())
    wrong.write_text(text)
    done = CliRunner().invoke(
        build(), ["optimize", str(instance), "--start", str(wrong)]
    )
    assert done.exit_code == 2
    assert done.stderr.startswith(f"error: {wrong}: {message}")


def test_the_command_names_the_file_of_a_start_where_none_is_taken(best, tmp_path):
    start, refresh = (
        tmp_path / "start.json",
        ROOT / "instances" / "kfac" / "measured/barrier.json",
    )
    start.write_text(best.model_dump_json())
    done = CliRunner().invoke(
        build(), ["optimize", str(refresh), "--start", str(start)]
    )
    assert done.exit_code == 2
    assert done.stderr.startswith(
        f"error: {start}: start: schedules of K-FAC iterations are more"
    )


def test_the_command_names_the_option_of_wrong_jitter(tmp_path):
    instance = tmp_path / "instance.json"
    instance.write_text(PIPELINE.model_dump_json())
    done = CliRunner().invoke(build(), ["optimize", str(instance), "--robust", "-1"])
    assert done.exit_code == 2
    assert "--robust: expected a coefficient of variation" in done.stderr

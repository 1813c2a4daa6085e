"""Profiles of one rank as programs: streams, launches, events, waits, steps."""

from __future__ import annotations

from random import Random

import pytest
from typer.testing import CliRunner

from ppsolve.models.documents.errors import InputError
from ppsolve.solver.api import api
from ppsolve.solver.cli.main import build
from ppsolve.solver.formats.kineto.program import convert_kineto_overlap
from tests.formats.recording import (
    COMM,
    COMPUTE,
    SIDE,
    Recording,
    ancestors,
    converted,
    deps_of,
    executed,
    fsdp,
)
from tests.marks import first


def test_a_step_without_events_is_a_program_with_assumed_waits(tmp_path):
    instance, entry, notes = converted(tmp_path, fsdp(events=False))
    assert deps_of(instance) == {
        "all_gather_0": (),
        "embed_1": (),
        "wait_all_gather_0": ("all_gather_0",),
        # Launched behind embed: the runtime puts it behind the current stream.
        "all_gather_2": ("embed_1",),
        "gemm_a_3": ("embed_1", "wait_all_gather_0"),
        "wait_all_gather_2": ("all_gather_2",),
        "gemm_b_4": ("gemm_a_3", "wait_all_gather_2"),
        "reduce_scatter_5": ("gemm_b_4",),
        "wait_reduce_scatter_5": ("reduce_scatter_5",),
    }
    assert [node.name for node in instance.nodes if node.kind == "comm"] == [
        "all_gather_0",
        "all_gather_2",
        "reduce_scatter_5",
    ]
    gather = instance.nodes[0]
    assert (gather.group, gather.bytes, gather.collective) == ("0", 32, "all_gather")
    assert entry.makespan == 110
    assert entry.exposed_wait == 20 + 10 + 20
    assert "recorded 110.0 us; the recorded order runs in 110.0 us" in notes[-1]
    assert "50.0 us are exposed" in notes[-1]
    assert any(
        note.startswith("2 waits are assumed: the stream was idle") for note in notes
    )
    assert "1 waits stand at the end: no kernel waits for them" in notes


def test_events_say_what_waits(tmp_path):
    instance, entry, notes = converted(tmp_path, fsdp(events=True))
    deps = deps_of(instance)
    # The gathers have no event, which leaves the launch order; the scatter has.
    assert deps["all_gather_2"] == ("embed_1",)
    assert deps["reduce_scatter_5"] == ("gemm_b_4",)
    assert deps["gemm_a_3"] == ("embed_1", "wait_all_gather_0")
    assert deps["gemm_b_4"] == ("gemm_a_3", "wait_all_gather_2")
    assert (entry.makespan, entry.exposed_wait) == (110, 50)
    assert "1 collectives depend on what their stream waited for" in notes
    assert "2 waits stand where events say so" in notes


def test_waits_have_the_name_of_the_call_too(tmp_path):
    made = fsdp(events=True)
    expected, _, _ = converted(tmp_path, made)
    for event in made.events:
        if event["cat"] == "cuda_sync":
            event["name"] = "cudaStreamWaitEvent"
    assert converted(tmp_path, made)[0] == expected


def test_events_beat_times(tmp_path):
    """The gather ends beside kernel a, but only kernel c waits for it, by an event of the CPU."""
    made = Recording()
    made.kernel("a", 0, 10)
    made.collective("allreduce_", 10, 15)
    made.kernel("b", 10, 20)
    made.kernel("c", 20, 30)
    without, _, _ = converted(tmp_path, made)
    assert deps_of(without)["c_3"] == ("b_2", "wait_all_reduce_1")
    made = Recording()
    made.kernel("a", 0, 10)
    made.collective("allreduce_", 10, 15)
    made.kernel("b", 10, 20)
    made.kernel("c", 20, 30)
    made.wait(COMPUTE, COMM)
    made.kernel("d", 30, 40)
    instance, _, _ = converted(tmp_path, made)
    assert deps_of(instance)["c_3"] == ("b_2",)
    assert deps_of(instance)["d_4"] == ("c_3", "wait_all_reduce_1")


def test_a_wait_for_the_last_collective_of_a_stream_is_one_for_all_before_it(tmp_path):
    made = Recording()
    made.kernel("a", 0, 10)
    for start in (10, 20, 30):
        made.collective("_reduce_scatter_base", start, start + 10)
    made.kernel("b", 10, 50)
    made.wait(COMPUTE, COMM)
    made.kernel("c", 50, 60)
    instance, entry, _ = converted(tmp_path, made)
    waits = [f"wait_reduce_scatter_{k}" for k in (1, 2, 3)]
    assert [node.name for node in instance.nodes][-4:] == [*waits, "c_5"]
    assert deps_of(instance)["c_5"] == ("b_4", *waits)
    assert (entry.makespan, entry.exposed_wait) == (60, 0)


def test_an_event_between_collectives_of_two_groups_is_a_dependency(tmp_path):
    made = Recording()
    made.collective("_reduce_scatter_base", 0, 10)
    made.wait(21, COMM)
    made.collective("allreduce_", 10, 20, stream=21, **{"Process Group Name": "1"})
    made.wait(COMPUTE, 21)
    made.kernel("step", 20, 30)
    instance, entry, _ = converted(tmp_path, made)
    deps = deps_of(instance)
    assert deps["all_reduce_1"] == ("reduce_scatter_0",)
    assert deps["step_2"] == ("wait_all_reduce_1", "wait_reduce_scatter_0")
    assert entry.makespan == 30


@pytest.mark.parametrize(
    ("kind", "stream", "fields"),
    [("Stream Sync", COMM, {}), ("Event Sync", COMPUTE, {"wait_on_stream": COMM})],
)
def test_what_the_cpu_waits_for_comes_before_all_that_it_launches_later(
    tmp_path, kind, stream, fields
):
    made = Recording()
    made.collective("allreduce_", 0, 10)
    made.collective("broadcast", 0, 5, 21, **{"Process Group Name": "1"})
    made.kernel("a", 0, 20)
    made.wait(COMM, COMPUTE)
    made.wait(SIDE, 21)
    made.sync(kind, stream, **fields)
    made.kernel("b", 20, 30)
    instance, _, _ = converted(tmp_path, made)
    assert deps_of(instance)["b_3"] == ("a_2", "wait_all_reduce_0")
    waits = ("wait_all_reduce_0", "wait_broadcast_1")
    made.sync("Context Sync", -1)
    made.kernel("c", 30, 40)
    instance, _, _ = converted(tmp_path, made)
    assert deps_of(instance)["c_4"][-3:] == ("b_3", *waits)


def test_an_event_holds_what_was_launched_before_it_was_recorded(tmp_path):
    made = Recording()
    made.kernel("a", 0, 10)
    record = made.call("cudaEventRecord")
    made.kernel("b", 10, 20)
    made.sync("Stream Wait Event", COMM, wait_on_stream=COMPUTE, record=record)
    made.collective("allreduce_", 25, 30)
    # It has no event of its own: the kernel launched last before it is b.
    made.collective("allreduce_", 30, 40)
    instance, _, notes = converted(tmp_path, made)
    assert deps_of(instance)["all_reduce_2"] == ("a_0",)
    assert deps_of(instance)["all_reduce_3"] == ("b_1",)
    assert "1 collectives depend on what their stream waited for" in notes


def test_kernels_of_several_streams_wait_for_several_collectives(tmp_path):
    made = Recording()
    made.collective("allreduce_", 0, 10)
    made.collective("broadcast", 0, 10, 21, **{"Process Group Name": "1"})
    for stream in (COMPUTE, SIDE):
        made.wait(stream, COMM)
        made.wait(stream, 21)
    made.kernel("a", 10, 20)
    made.kernel("b", 20, 25, SIDE)
    deps = deps_of(converted(tmp_path, made)[0])
    assert deps["a_2"] == deps["b_3"] == ("wait_all_reduce_0", "wait_broadcast_1")


def test_a_kernel_launched_later_is_none_that_a_collective_waited_for(tmp_path):
    made = Recording()
    made.collective("allreduce_", 0, 50)
    made.collective("allreduce_", 50, 60)
    made.kernel("a", 0, 20)
    made.kernel("b", 60, 70)
    assert deps_of(converted(tmp_path, made)[0])["all_reduce_1"] == ()


def test_a_wait_behind_a_kernel_that_ends_with_its_collective_is_hidden(tmp_path):
    made = Recording()
    made.collective("allreduce_", 0, 10)
    made.kernel("a", 0, 10)
    made.kernel("b", 10, 20)
    _, _, notes = converted(tmp_path, made)
    assert any(
        "1 waits are assumed: the collective ended beside a kernel" in n for n in notes
    )


def test_events_that_contradict_the_times_are_left_out(tmp_path):
    made = Recording()
    made.kernel("a", 0, 10)
    made.wait(COMM, COMPUTE)
    made.collective("allreduce_", 9, 20)
    made.kernel("b", 10, 20)
    made.collective("allreduce_", 20, 30)
    made.wait(SIDE, COMM)
    made.kernel("c", 12, 14, SIDE)
    instance, _, _ = converted(tmp_path, made)
    deps = deps_of(instance)
    assert deps["all_reduce_1"] == ()
    assert deps["c_4"] == ()
    names = [node.name for node in instance.nodes]
    assert names[-2:] == ["wait_all_reduce_1", "wait_all_reduce_3"]


def test_a_kernel_that_still_ran_is_none_that_a_collective_waited_for(tmp_path):
    made = Recording()
    made.kernel("a", 0, 10)
    made.kernel("b", 10, 30)
    made.collective("_allgather_base", 15, 25)
    made.kernel("c", 30, 40)
    instance, entry, notes = converted(tmp_path, made)
    assert deps_of(instance)["all_gather_2"] == ("a_0",)
    assert [node.name for node in instance.nodes][:3] == ["a_0", "all_gather_2", "b_1"]
    assert entry.makespan == 40
    assert any(
        note.startswith("1 of them began while that kernel ran") for note in notes
    )


def test_side_streams_count_where_the_busiest_one_is_idle(tmp_path):
    made = Recording()
    made.kernel("a", 0, 10)
    made.kernel("copy", 5, 15, SIDE)
    made.kernel("fill", 16, 18, SIDE, cat="gpu_memset")
    made.kernel("b", 20, 30)
    made.kernel("inside", 22, 28, SIDE)
    made.collective("allreduce_", 30, 40)
    instance, entry, notes = converted(tmp_path, made)
    lengths = {
        node.name: int(node.duration)
        for node in instance.nodes
        if node.kind == "compute"
    }
    assert lengths == {"a_0": 10, "copy_1": 5, "fill_2": 2, "b_3": 10, "inside_4": 0}
    # Without events nothing says what streams share: one chain, in the recorded order.
    assert deps_of(instance)["b_3"] == ("a_0", "fill_2")
    assert entry.makespan == 37
    assert any(
        "streams 7, 9" in note and "(11.0 us left out)" in note for note in notes
    )
    made.wait(SIDE, COMM)
    instance, _, _ = converted(tmp_path, made)
    assert deps_of(instance)["b_3"] == ("a_0",)


def test_a_side_kernel_without_room_comes_before_the_kernel_that_waits_for_it(tmp_path):
    made = Recording()
    made.kernel("a", 0, 10)
    made.kernel("copy", 5, 10, SIDE)
    made.wait(COMPUTE, SIDE)
    made.kernel("b", 10, 20)
    made.kernel("long", 22, 40, SIDE)
    made.kernel("c", 30, 40)
    made.collective("allreduce_", 40, 50)
    instance, entry, _ = converted(tmp_path, made)
    assert deps_of(instance)["b_2"] == ("a_0", "copy_1")
    lengths = {node.name: int(node.duration) for node in instance.nodes}
    assert (lengths["copy_1"], lengths["long_3"]) == (0, 8)
    assert entry.makespan == 48


def test_prefetch_frees_collectives_from_the_kernel_before_them(tmp_path):
    instance, _, notes = converted(tmp_path, fsdp(events=False), None, ["all_gather"])
    assert deps_of(instance)["all_gather_2"] == ()
    assert deps_of(instance)["reduce_scatter_5"] == ("gemm_b_4",)
    assert "2 collectives read no result of a kernel, as --prefetch says" in notes
    # The second gather comes first on its stream, 0-30 and 30-70 as before: nothing is gained.
    assert api.optimize(instance, time_limit=5).makespan == 110


@pytest.mark.parametrize("seed", range(40))
def test_recorded_orders_run_as_recorded_where_the_cpu_is_ahead(tmp_path, seed):
    made, span = executed(Random(seed), lead=0)
    _, entry, notes = converted(tmp_path, made)
    assert entry.makespan == span
    assert "0.0 us are gaps" in notes[-1]


@pytest.mark.parametrize("lead", [0, 3])
@pytest.mark.parametrize("seed", first(16, range(40)))
def test_what_is_assumed_without_events_implies_what_they_say(tmp_path, seed, lead):
    made, span = executed(Random(seed), lead)
    true, _, _ = converted(tmp_path, made)
    made.events = [event for event in made.events if event["cat"] != "cuda_sync"]
    assumed, entry, _ = converted(tmp_path, made)
    assert entry.makespan <= span
    known = ancestors(assumed)
    for name, deps in ancestors(true).items():
        # A wait is where the first user is; that no kernel waits for is at the end.
        if not name.startswith("wait_"):
            assert {dep for dep in deps if not dep.startswith("wait_")} <= known[name]


@pytest.mark.parametrize("seed", range(40))
def test_recorded_orders_run_no_longer_where_the_cpu_is_late(tmp_path, seed):
    made, span = executed(Random(seed), lead=3)
    _, entry, _ = converted(tmp_path, made)
    assert entry.makespan <= span


def test_types_that_are_not_there_are_refused(tmp_path):
    with pytest.raises(
        InputError, match="this step: all_gather, reduce_scatter; got"
    ) as raised:
        converted(tmp_path, fsdp(events=False), None, ["all_gather", "allgather"])
    assert raised.value.field == "--prefetch"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ("0", 32)),
        ({"Process Group Name": None}, ("[0, 1]", 32)),
        ({"Process Group Name": None, "Process Group Ranks": None}, ("stream 20", 32)),
        ({"dtype": "Float8_e4m3fn"}, ("0", 16)),
        ({"dtype": "Quaternion"}, ("0", 0)),
        ({"Out msg nelems": None}, ("0", 0)),
    ],
)
def test_groups_and_bytes(tmp_path, fields, expected):
    made = Recording()
    made.collective("allreduce_", 0, 10, **fields)
    instance, _, notes = converted(tmp_path, made)
    assert (instance.nodes[0].group, instance.nodes[0].bytes) == expected
    assert any("1 collectives have no elements or dtype" in n for n in notes) == (
        not expected[1]
    )


def test_groups_that_share_a_stream_are_one(tmp_path):
    made = Recording()
    made.collective("allreduce_", 0, 10)
    made.collective("allreduce_", 10, 20, **{"Process Group Name": "dp"})
    instance, entry, _ = converted(tmp_path, made)
    assert instance.groups == ("0+dp",)
    assert entry.makespan == 20


def test_streams_of_one_group_are_groups(tmp_path):
    made = Recording()
    made.collective("send", 0, 10)
    made.collective("recv", 0, 10, stream=21)
    instance, entry, _ = converted(tmp_path, made)
    assert instance.groups == ("0/stream 20", "0/stream 21")
    assert entry.makespan == 10


def test_types_come_from_the_kernel_where_the_profiler_names_none(tmp_path):
    made = Recording()
    made.kernel("ncclDevKernel_SendRecv(args)", 0, 10, COMM)
    assert converted(tmp_path, made)[0].nodes[0].collective == "send_recv"


def two_steps(tmp_path):
    made = Recording()
    for number, shift in ((4, 0), (5, 1000), (6, 3000)):
        begin = made.tick()
        fsdp(events=False, shift=shift, recording=made)
        if number == 6:
            made.kernel("late", shift + 200, shift + 210)
        made.step(number, begin, made.tick() - begin)
    return made


def test_steps_are_those_in_which_kernels_were_launched(tmp_path):
    instance, entry, notes = converted(tmp_path, two_steps(tmp_path))
    assert instance.name == "run-step4"
    assert notes[0] == "step 4 of 4, 5, 6, of median length; --step takes another"
    assert entry.makespan == 110
    instance, entry, notes = converted(tmp_path, two_steps(tmp_path), 6)
    assert instance.name == "run-step6"
    # Behind the scatter, a gap of 90 that no wait explains.
    assert entry.makespan == 120
    assert "90.0 us are gaps that no wait explains" in notes[-1]


def test_events_of_other_steps_do_not_count(tmp_path):
    made = Recording()
    for number in (1, 2):
        begin = made.tick()
        made.kernel("a", 100 * number, 100 * number + 10)
        made.collective("allreduce_", 100 * number + 10, 100 * number + 20)
        made.wait(COMM, COMPUTE)
        made.step(number, begin, made.tick() - begin)
    instance, _, _ = converted(tmp_path, made, 2)
    assert deps_of(instance)["all_reduce_1"] == ("a_0",)


@pytest.mark.parametrize(
    ("make", "step", "message"),
    [
        (two_steps, 7, "expected one of the profiled steps: 4, 5, 6; got 7"),
        (
            lambda _: fsdp(events=False),
            7,
            "expected none: the profile marks none; got 7",
        ),
        (
            lambda _: Recording(),
            None,
            "expected kernels of a GPU inside the profiled steps",
        ),
    ],
)
def test_steps_that_are_not_there_are_refused(tmp_path, make, step, message):
    with pytest.raises(InputError, match=message):
        converted(tmp_path, make(tmp_path), step)


def test_a_step_without_collectives_is_refused(tmp_path):
    made = Recording()
    made.kernel("a", 0, 10)
    with pytest.raises(InputError, match="expected NCCL kernels, there is none"):
        converted(tmp_path, made)
    begin = made.tick()
    made.kernel("b", 10, 20)
    made.step(3, begin, 9)
    with pytest.raises(
        InputError, match="expected NCCL kernels in step 3, there is none"
    ):
        converted(tmp_path, made)


def test_files_of_several_ranks_are_refused(tmp_path):
    def saved(name, rank):
        info = {} if rank is None else {"distributedInfo": {"rank": rank}}
        return fsdp(events=False).save(tmp_path / name, **info)

    for ranks in ((0, 1), (None, 0), (None, None)):
        files = [saved(f"{place}.json", rank) for place, rank in enumerate(ranks)]
        with pytest.raises(InputError, match="expected profiles of one rank") as raised:
            convert_kineto_overlap(files)
        assert raised.value.field == "distributedInfo.rank"
    with pytest.raises(InputError, match="expected each step once, in one file"):
        convert_kineto_overlap([saved("0.json", 0), saved("1.json", 0)])


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("ts", None, "expected microseconds, got nothing"),
        ("ts", float(2**62), "expected microseconds"),
        ("dur", -1, "expected a duration from 0, got -1"),
        ("dur", True, "expected microseconds, got true"),
        ("tid", "x", "expected the number of a stream"),
    ],
)
def test_events_that_make_no_sense_are_refused_by_name(tmp_path, key, value, message):
    made = fsdp(events=False)
    made.events[-1][key] = value
    del made.events[-1]["args"]["stream"]
    with pytest.raises(InputError, match=message) as raised:
        converted(tmp_path, made)
    assert raised.value.field.startswith("ncclDevKernel_AllGather_RING_LL")


def test_the_command_writes_documents_that_the_others_take(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        return CliRunner().invoke(build(), arguments)

    fsdp(events=True).save(tmp_path / "run.json")
    done = run(
        "convert",
        "kineto-overlap",
        "run.json",
        "-o",
        "i.json",
        "--result-out",
        "r.json",
    )
    assert done.exit_code == 0
    assert "data dependencies are not recorded" in done.stderr
    assert run("check", "i.json", "r.json").exit_code == 0
    shown = run("show", "i.json", "r.json")
    assert shown.exit_code == 0
    assert "recorded" in shown.stdout
    assert (
        run("optimize", "i.json", "--start", "r.json", "-t", "5", "-q").exit_code == 0
    )
    assert run("convert", "kineto-overlap", "run.json", "-o", "run.json").exit_code == 2
    assert run("convert", "kineto-overlap", "run.json", "--step", "x").exit_code == 2
    one = ["convert", "kineto-overlap", "run.json", "-o", "i.json", "--step", "3"]
    failed = run(*one)
    assert failed.exit_code == 2
    assert "--step" in failed.stderr

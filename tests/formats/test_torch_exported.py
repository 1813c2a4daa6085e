"""PyTorch's files: rows of ranks; sends and receives that fit together; what is refused."""

import contextlib

import pytest

from ppsolve.models.documents.errors import InputError, NotApplicableError
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.api import simulate
from ppsolve.solver.api.registry import all_heuristics
from ppsolve.solver.formats.data_order import in_data_order
from ppsolve.solver.formats.program import read_program
from ppsolve.solver.formats.torch_csv import check_csv, torch_csv
from ppsolve.solver.kinds.pipeline.grammar import Action
from tests.formats.cases import FOLDED, TWO_RANKS, schedule
from tests.marks import first


def lines(data, form, **options):
    program = in_data_order(read_program(data), may_permute=False)
    return torch_csv(program, form, **options).splitlines()


def test_rows_of_ranks_without_idle_time():
    assert lines(TWO_RANKS, "compute_only") == ["0F0,0F1,0B0,0B1", "1F0,1B0,1F1,1B1"]


def test_sends_follow_their_op_and_receives_what_has_begun():
    assert lines(TWO_RANKS, "compute_comms") == [
        "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD",
        "1RECV_F0,1RECV_F1,1F0,1B0,1SEND_B0,1F1,1B1,1SEND_B1,1REDUCE_GRAD",
    ]


def test_neighbouring_stages_on_one_rank_send_nothing():
    assert lines(FOLDED, "compute_comms") == [
        "0F0,0SEND_F0,3RECV_F0,3F0,3I0,3SEND_B0,3W0,3REDUCE_GRAD,0RECV_B0,0I0,0W0,0REDUCE_GRAD",
        "1RECV_F0,1F0,2F0,2SEND_F0,2RECV_B0,2I0,1I0,1SEND_B0,2W0,2REDUCE_GRAD,1W0,1REDUCE_GRAD",
    ]


def test_parameters_are_gathered_and_dropped_once_per_stage():
    assert lines(FOLDED, "compute_comms", shards=True)[0] == (
        "0UNSHARD,0F0,0SEND_F0,3RECV_F0,3UNSHARD,3F0,3I0,3SEND_B0,3W0,3REDUCE_GRAD,3RESHARD,"
        "0RECV_B0,0I0,0W0,0REDUCE_GRAD,0RESHARD"
    )


def test_a_receive_goes_before_an_op_that_is_not_needed_for_it():
    # 0F1 ends while 1B0 runs: its receive is posted before 1B0, though 1B0 comes first.
    data = {
        "orders": [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]],
        "instance": "tiny",
    }
    assert lines(data, "compute_comms")[1].startswith("1RECV_F0,1RECV_F1,1F0,1B0")


def test_pairs_that_are_launched_together_are_kept():
    data = {"orders": [["0F0", "(0F1;0B0)OVERLAP_F_B", "0B1"]]}
    assert lines(data, "compute_only") == ["0F0,(0F1;0B0)OVERLAP_F_B,0B1"]
    assert lines(data, "compute_comms") == ["0F0,(0F1;0B0)OVERLAP_F_B,0B1,0REDUCE_GRAD"]


REFUSED = {
    "a stage on two ranks": (
        schedule("0F0 0F1 . 0B0 1F1 1B1 0B1", ". 1F0 1B0"),
        "placement: 1F0 is on rank 1 and 1F1 on rank 0; a stage lives on one rank",
    ),
    "an empty rank": (
        schedule("0F0 0B0", "", "1F0 1B0"),
        "placement: rank 1 has no op",
    ),
    "a lost op": (
        schedule("0F0 . . 0B0", ". 1F0"),
        r"missing: 1B0 \(or 1I0 and 1W0\) is missing",
    ),
    "a lost W": (schedule("0F0 0I0"), "missing: 0W0 is missing, 0I0 is there"),
    "both kinds of backward": (
        schedule("0F0 0B0 0I0"),
        "twice: 0B0 is a whole backward",
    ),
    "a W before its I": (schedule("0F0 0W0 0I0"), "precedence: 0W0 stands before 0I0"),
    "waiting for each other": (
        schedule("0F0 0B0 0F1 0B1", "1F1 1B1 1F0 1B0"),
        "deadlock: 1F1 -> 0B0 -> 1F1",
    ),
    "an op twice": (
        {"schedule": {"ops": 2 * schedule("0F0 0B0")["schedule"]["ops"]}},
        "twice: 0F0 is there more than once",
    ),
    "an op in pieces": (
        schedule("0F0 0F1 0F0 0F1 0B0 0B1"),
        "0F0 runs in 2 pieces with others",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_file_can_say_is_refused(case):
    data, message = REFUSED[case]
    with pytest.raises(InputError, match=message):
        read_program(data)


SWAPPED = schedule("0F1 0F0 . 0B1 . 0B0", ". 1F1 1B1 1F0 1B0")


def pipeline(**fields):
    times = {"forward": 1, "backward": 1}
    return PipelineInstance.parse(
        {"num_devices": 2, "num_microbatches": 2, "times": times, **fields}
    )


class TestDataOrder:
    """The last stage must run micro-batches in order; alike ones may be renumbered."""

    def test_renumbering_is_not_done_unasked(self):
        with pytest.raises(
            InputError, match="data-order: 1F1 is forward number 0 of the last"
        ):
            in_data_order(read_program(SWAPPED), may_permute=False)

    def test_renumbering_is_reported(self):
        program = in_data_order(read_program(SWAPPED), may_permute=True)
        assert program.microbatches == (1, 0)
        assert torch_csv(program) == "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"

    def test_alike_micro_batches_are_renumbered(self):
        program = in_data_order(read_program(SWAPPED, pipeline()), may_permute=False)
        assert program.is_renumbered

    def test_unequal_ones_are_not(self):
        times = {"forward": [[1, 1], [1, 1]], "backward": [[1, 1], [1, 2]]}
        instance = pipeline(times=times)
        rows = "0F1 0F0 . . 0B1 . 0B0", ". 1F1 1B1 . 1F0 1B0"
        longer = schedule(*rows)
        for op in longer["schedule"]["ops"]:
            if op["id"] == "B1.1":
                op["end"] = 4
        with pytest.raises(InputError, match="micro-batches differ, --data-order FILE"):
            in_data_order(read_program(longer, instance), may_permute=False)


def test_a_schedule_is_checked_on_its_instance():
    with pytest.raises(
        InputError, match=r"duration: F0\.0 runs from 0 us to 1 us, it takes 2 us"
    ):
        read_program(TWO_RANKS, pipeline(times={"forward": 2, "backward": 1}))


def test_a_result_carries_its_pipeline():
    fields = {
        "num_devices": 2,
        "num_microbatches": 2,
        "times": {"forward": 2, "backward": 1},
    }
    carried = {"kind": "pipeline", "instance_document": {"kind": "pipeline", **fields}}
    with pytest.raises(InputError, match=r"duration: F0\.0 runs"):
        read_program({**TWO_RANKS, **carried})
    made = read_program(
        {
            **carried,
            "orders": [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]],
        }
    )
    # 0F0, 1F0, 1B0, 1F1 one after the other.
    assert made.ends[Action(1, "F", 1)] == 7


def test_orders_must_be_those_of_the_schedule():
    data = {
        **TWO_RANKS,
        "orders": [["0F1", "0F0", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]],
    }
    with pytest.raises(
        InputError, match=r"orders\[0\]: the schedule ends 0F0 before 0F1"
    ):
        read_program(data)


def test_a_full_backward_ends_with_its_weight_gradient():
    data = {**schedule("0F0 0I0 0W0"), "orders": [["0F0", "0B0"]]}
    assert torch_csv(read_program(data)) == "0F0,0B0\n"


def test_an_infeasible_heuristic_is_refused():
    data = {
        **TWO_RANKS,
        "status": "infeasible",
        "reason": "memory: device 0 is too full",
    }
    with pytest.raises(InputError, match="breaks a rule: memory: device 0 is too full"):
        read_program(data)


def test_ops_of_no_length_pass_the_stages_in_order():
    ops = [
        {
            "kind": kind,
            "stage": stage,
            "device": 0,
            "microbatch": 0,
            "start": 5,
            "end": 5,
        }
        for kind in "FIW"
        for stage in range(3)
    ]
    made = read_program({"schedule": {"ops": ops}})
    assert torch_csv(made) == "0F0,1F0,2F0,2I0,1I0,0I0,2W0,1W0,0W0\n"


def test_pieces_of_an_op_without_others_between_them_are_one():
    made = read_program(schedule("0F0 0F0 0F1 . 0F1 0B0 0B1 0B1"))
    assert torch_csv(made) == "0F0,0F1,0B0,0B1\n"
    assert made.ends == {Action(0, "F", 0): 2, Action(0, "F", 1): 5} | {
        Action(0, "B", 0): 6,
        Action(0, "B", 1): 8,
    }


def test_pipelines_with_collectives_have_orders_of_whole_ops():
    inside = {"forward": {"segments": 2, "allreduce": 1}, "backward": {"allreduce": 1}}
    instance = pipeline(collectives=inside)
    entry = simulate(instance, "1f1b").model_dump(mode="json")
    assert (
        torch_csv(read_program(entry, instance)) == "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"
    )
    alone = read_program({"orders": entry["orders"]}, instance)
    assert alone.ends == read_program(entry, instance).ends


def test_results_of_other_kinds_are_refused():
    with pytest.raises(
        InputError, match='expected the result of a pipeline, got the text "kfac"'
    ):
        read_program({**TWO_RANKS, "kind": "kfac"})
    with pytest.raises(
        InputError, match="expected the result of a pipeline, got an object"
    ):
        read_program({**TWO_RANKS, "kind": {"": 0}})


class TestReplicas:
    """A stage of each replica lives on a rank of its own, so that one replica is a program."""

    def step(self):
        times = {"forward": [[1, 2, 3, 4]] * 2, "backward": [[2, 3, 4, 5]] * 2}
        instance = pipeline(num_microbatches=4, replicas={"count": 2}, times=times)
        return instance, simulate(instance, "1f1b").model_dump(mode="json")

    def test_one_of_several(self):
        instance, entry = self.step()
        program = read_program(entry, instance, replica=1)
        assert program.microbatches == (2, 3)
        assert torch_csv(program) == "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"
        assert program.ends[Action(1, "F", 0)] == 6

    def test_all_of_them_are_no_program(self):
        instance, entry = self.step()
        with pytest.raises(InputError, match="--replica R exports one of them"):
            read_program(entry, instance)
        with pytest.raises(InputError, match="the schedule has no replica 2"):
            read_program(entry, instance, replica=2)


SHAPES = [
    {"placement": "linear"},
    {"placement": "interleaved", "stages_per_device": 3},
    {"placement": "vshape"},
    {"placement": "wave", "stages_per_device": 3},
    {"placement": {"stage_to_device": [0, 2, 1, 1, 0, 2, 0]}},
    {"placement": {"stage_to_device": [1, 0, 0, 2]}},
]


@pytest.mark.parametrize("latency", first(1, [2, 0, 40]))
@pytest.mark.parametrize("shape", SHAPES)
def test_no_schedule_waits_for_ever(shape, latency, tmp_path):
    """Whatever the order, every rule of the communications holds."""
    times = {"forward": 3, "backward_input": 4, "backward_weight": 2}
    fields = {
        "num_devices": 3,
        "num_microbatches": 5,
        "times": times,
        "p2p": {"latency": latency},
    }
    instance = pipeline(**fields, **shape)
    found = 0
    for name in (name for name, each in all_heuristics().items() if not each.is_search):
        with contextlib.suppress(NotApplicableError):
            entry = simulate(instance, name).model_dump(mode="json")
            program = in_data_order(read_program(entry, instance), may_permute=False)
            file = tmp_path / "order.csv"
            file.write_text(torch_csv(program, "compute_comms", shards=True))
            assert check_csv(file, instance) == [], name
            found += 1
    assert found >= 5

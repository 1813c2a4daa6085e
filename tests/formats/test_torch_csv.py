"""PyTorch's schedule files: read to schedules and back to the same bytes; wrong ones refused."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pytest

import ppsolve
from ppsolve.models.core.result import HeuristicStatus
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.formats.data_order import in_data_order
from ppsolve.solver.formats.order_file import read_data_order
from ppsolve.solver.formats.program import read_program
from ppsolve.solver.formats.torch_csv import (
    check_csv,
    convert_torch_csv,
    csv_text,
    read_csv,
    torch_csv,
)
from tests.marks import first
from tests.paths import DATA

CASES = json.loads((DATA / "torch_orders.json").read_text())["schedules"]
LOWERED = json.loads((DATA / "torch_lowered.json").read_text())["files"]
TIMES = {"forward": 10, "backward_input": 11, "backward_weight": 7}


def case_id(case):
    return f"{case['schedule']}-{case['ranks']}x{case['stages']}x{case['microbatches']}"


def pipeline(case, **fields):
    return PipelineInstance.parse(
        {
            "num_devices": case["ranks"],
            "num_microbatches": case["microbatches"],
            "placement": {"stage_to_device": case["stage_to_rank"]},
            "times": TIMES,
            "p2p": {"latency": 1},
            **fields,
        }
    )


@cache
def lowered(number):
    """Return the file with communications of a case, which corruptions begin with."""
    program = read_program({"orders": CASES[number]["orders"]})
    return torch_csv(program, "compute_comms")


def converted(path, instance):
    entry, _ = convert_torch_csv(path, instance)
    return in_data_order(
        read_program(json.loads(entry.model_dump_json()), instance), may_permute=False
    )


@pytest.mark.parametrize("case", first(8, CASES[::2] + CASES[1::2]), ids=case_id)
def test_every_order_comes_back_to_the_same_bytes(case, tmp_path):
    file, instance = tmp_path / "order.csv", pipeline(case)
    file.write_text("".join(",".join(row) + "\n" for row in case["orders"]))
    program = converted(file, instance)
    assert torch_csv(program) == file.read_text()
    with_comms = torch_csv(program, "compute_comms", shards=True)
    file.write_text(with_comms)
    assert check_csv(file, instance) == []
    assert (
        torch_csv(converted(file, instance), "compute_comms", shards=True) == with_comms
    )


def test_old_files_with_b_for_input_gradients_are_recognised_in_one_line(tmp_path):
    case = next(case for case in CASES if case["schedule"] == "ScheduleZBVZeroBubble")
    rows = [",".join(row).replace("I", "B") for row in case["orders"]]
    file, instance = tmp_path / "order.csv", pipeline(case)
    file.write_text("\n".join(rows))
    (violation,) = check_csv(file, instance)
    count = sum(row.count("W") for row in rows)
    assert (violation.rule, len(violation.ops)) == ("twice", count)
    assert f"({count} such B); PyTorch up to 2.5 wrote B for input" in violation.message
    with pytest.raises(InputError, match="which are I now"):
        convert_torch_csv(file, instance)


@pytest.mark.parametrize("case", LOWERED, ids=case_id)
def test_files_that_torch_lowers_keep_every_rule(case, tmp_path):
    file = tmp_path / "order.csv"
    file.write_text("\n".join(case["text"]))
    assert check_csv(file, pipeline(case)) == []


def test_times_are_those_of_the_order(tmp_path):
    file = tmp_path / "order.csv"
    file.write_text("0F0,0F1,,0B0,,0B1\n,1F0,1B0,1F1,1B1\n")
    instance = PipelineInstance.parse(
        {
            "num_devices": 2,
            "num_microbatches": 2,
            "times": {"forward": 1, "backward": 2},
        }
    )
    entry, excess = convert_torch_csv(file, instance)
    assert (entry.name, entry.status, entry.kind) == (
        "torch-csv",
        "feasible",
        "pipeline",
    )
    # 0F0 1F0 1B0 1F1 1B1 0B1 one after the other; nothing shorter is possible.
    assert (entry.value, excess) == (9, 0)
    assert entry.orders == [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]]


def test_too_little_memory_is_reported(tmp_path):
    file = tmp_path / "order.csv"
    file.write_text("0F0,0F1,0B0,0B1\n")
    data = {
        "num_devices": 1,
        "num_microbatches": 2,
        "times": {"forward": 1, "backward": 2},
    }
    tight = PipelineInstance.parse({**data, "memory": {"capacity": 1, "activation": 1}})
    entry, _ = convert_torch_csv(file, tight)
    assert entry.status is HeuristicStatus.INFEASIBLE
    assert [violation.rule for violation in check_csv(file, tight)] == ["memory"]


UNREADABLE = {
    "": "the file is empty",
    "0F0,0B0\n\n": "row 2: expected the actions of a rank, the row is empty",
    "0F0,0X0\n": "row 1, column 2: expected an action",
    "0F0,,0B0,0REDUCE_GRAD\n": "row 1, column 2: expected an action, the cell is empty",
    '0F0,"0B0\n': "not usable CSV",
}


@pytest.mark.parametrize("text", UNREADABLE)
def test_unreadable_files_are_refused(text, tmp_path):
    file = tmp_path / "order.csv"
    file.write_text(text)
    with pytest.raises(InputError, match=UNREADABLE[text]):
        read_csv(file)


TWO = PipelineInstance.parse(
    {"num_devices": 2, "num_microbatches": 2, "times": {"forward": 1, "backward": 2}}
)
GOOD = [
    "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD",
    "1RECV_F0,1RECV_F1,1F0,1B0,1SEND_B0,1F1,1B1,1SEND_B1,1REDUCE_GRAD",
]
BROKEN = {
    "placement": [GOOD[0]],
    "unknown": [GOOD[0] + ",0F2", GOOD[1]],
    "twice": [GOOD[0] + ",0B1", GOOD[1]],
    "missing": [GOOD[0].replace(",0B1", ""), GOOD[1]],
    "precedence": [GOOD[0].replace("0F1,", "") + ",0F1", GOOD[1]],
    "data-order": [
        GOOD[0],
        "1RECV_F0,1RECV_F1,1F1,1B1,1SEND_B1,1F0,1B0,1SEND_B0,1REDUCE_GRAD",
    ],
    "needless": [GOOD[0] + ",0SEND_B0", GOOD[1]],
    "send": [GOOD[0].replace("0F1,0SEND_F1", "0SEND_F1,0F1"), GOOD[1]],
    "receive": [GOOD[0].replace("0RECV_B0,0B0", "0B0,0RECV_B0"), GOOD[1]],
    "receive-order": [
        GOOD[0],
        GOOD[1].replace("1RECV_F0,1RECV_F1", "1RECV_F1,1RECV_F0"),
    ],
    "reduce-grad": [GOOD[0].replace(",0REDUCE_GRAD", ""), GOOD[1]],
    "shard": [
        "0UNSHARD," + GOOD[0].replace("0RECV_B1,", "0RECV_B1,0RESHARD,"),
        GOOD[1],
    ],
    # Rank 1 sends its first gradient before it takes the second input, which rank 0 sends first.
    "deadlock": [
        "0F0,0SEND_F0,0F1,0RECV_B0,0B0,0SEND_F1,0RECV_B1,0B1,0REDUCE_GRAD",
        "1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1,1REDUCE_GRAD",
    ],
}


def test_the_good_file_is_good(tmp_path):
    file = tmp_path / "order.csv"
    file.write_text("\n".join(GOOD))
    assert check_csv(file, TWO) == []


@pytest.mark.parametrize("rule", BROKEN)
def test_rules_have_names(rule, tmp_path):
    file = tmp_path / "order.csv"
    file.write_text("\n".join(BROKEN[rule]))
    found = check_csv(file, TWO)
    assert rule in {violation.rule for violation in found}, found
    with pytest.raises(InputError, match=found[0].rule):
        convert_torch_csv(file, TWO)


def test_transfers_of_one_stage_that_needs_none(tmp_path):
    file = tmp_path / "order.csv"
    file.write_text("0F0,0SEND_F0,1RECV_F0,1F0,1B0,0B0,0REDUCE_GRAD,1REDUCE_GRAD\n")
    fields = {"placement": {"stage_to_device": [0, 0]}, "num_microbatches": 1}
    times = {"forward": 1, "backward": 2}
    instance = PipelineInstance.parse({"num_devices": 1, "times": times, **fields})
    assert {violation.rule for violation in check_csv(file, instance)} == {"needless"}


Rows = list[list[str]]
Corruption = Callable[[Rows, random.Random], set[str]]


def places(row: Sequence[str], word: str) -> list[int]:
    return [index for index, cell in enumerate(row) if word in cell]


def cells(row: Sequence[str], word: str) -> list[str]:
    return [cell for cell in row if word in cell]


def any_row(rows: Rows, rng: random.Random, word: str, least: int = 1) -> list[str]:
    return rng.choice([row for row in rows if len(places(row, word)) >= least])


def swapped_receives(rows: Rows, rng: random.Random) -> set[str]:
    """Swap two inputs or two gradients of one stage: they come from one rank."""
    word = rng.choice(["RECV_F", "RECV_B"])
    row = any_row(rows, rng, word, 2)
    stage = rng.choice([cell.split("RECV")[0] for cell in cells(row, word)])
    one, two = rng.sample(
        [i for i, cell in enumerate(row) if cell.startswith(f"{stage}{word}")], 2
    )
    row[one], row[two] = row[two], row[one]
    return {"receive-order", "receive"}


def permuted_forwards(rows: Rows, rng: random.Random) -> set[str]:
    last = max(int(cell.split("R")[0]) for row in rows for cell in cells(row, "REDUCE"))
    row = next(row for row in rows if places(row, f"{last}REDUCE"))
    own = [i for i, cell in enumerate(row) if cell.split("F")[0] == str(last)]
    one, two = rng.sample(own, 2)
    row[one], row[two] = row[two], row[one]
    return {"data-order", "precedence"}


def missing_reduction(rows: Rows, rng: random.Random) -> set[str]:
    row = any_row(rows, rng, "REDUCE_GRAD")
    del row[rng.choice(places(row, "REDUCE_GRAD"))]
    return {"reduce-grad"}


def early_send(rows: Rows, rng: random.Random) -> set[str]:
    word = rng.choice(["SEND_F", "SEND_B"])
    row = any_row(rows, rng, word)
    send = rng.choice(places(row, word))
    makers = [
        row[send].replace(word, kind) for kind in ("F" if word == "SEND_F" else "BI")
    ]
    op = next(i for i, cell in enumerate(row) if cell in makers)
    row.insert(rng.randint(0, op), row.pop(send))
    return {"send"}


def lost_op(rows: Rows, rng: random.Random) -> set[str]:
    row = rng.choice(rows)
    del row[rng.choice([i for i, cell in enumerate(row) if "_" not in cell])]
    return {"missing"}


def late_receive(rows: Rows, rng: random.Random) -> set[str]:
    """Put a receive behind the op that needs it."""
    word = rng.choice(["RECV_F", "RECV_B"])
    row = any_row(rows, rng, word)
    receive = rng.choice(places(row, word))
    users = [
        row[receive].replace(word, kind) for kind in ("F" if word == "RECV_F" else "BI")
    ]
    op = next(i for i, cell in enumerate(row) if cell in users)
    row.insert(rng.randint(op, len(row)), row.pop(receive))
    return {"receive"}


def two_ranks(rows: Rows, rng: random.Random) -> set[str]:
    one, two = rng.sample(rows, 2)
    cell = one.pop(rng.choice([i for i, cell in enumerate(one) if "_" not in cell]))
    two.insert(rng.randint(0, len(two)), cell)
    return {"placement"}


CORRUPTIONS: list[Corruption] = [
    swapped_receives,
    permuted_forwards,
    missing_reduction,
    early_send,
    late_receive,
    lost_op,
    two_ranks,
]


@pytest.mark.parametrize("corrupt", CORRUPTIONS)
def test_corrupted_files_are_refused_by_the_rule(
    corrupt: Corruption, tmp_path: Path
) -> None:
    rng = random.Random(corrupt.__name__)
    file = tmp_path / "order.csv"
    several = [
        number
        for number, case in enumerate(CASES)
        if case["ranks"] > 1 and "DualPipe" not in case["schedule"]
    ]
    for _ in range(15):
        number = rng.choice(several)
        case = CASES[number]
        rows = [line.split(",") for line in lowered(number).splitlines()]
        expected = corrupt(rows, rng)
        file.write_text(csv_text(rows))
        found = {violation.rule for violation in check_csv(file, pipeline(case))}
        assert found & expected, (case_id(case), found)


UNEQUAL = {
    "num_devices": 2,
    "num_microbatches": 4,
    "times": {"forward": [[1, 2, 3, 9]] * 2, "backward": [[2, 4, 6, 18]] * 2},
    "memory": {"capacity": 4, "activation": [[1, 2, 3, 4]] * 2},
}


def exported(
    instance: PipelineInstance, folder: Path, replica: int | None = None
) -> Path:
    """Write the files of the optimum and return that of the data order."""
    result = ppsolve.optimize(instance, time_limit=20)
    assert result.status == "OPTIMAL"
    program = read_program(
        json.loads(result.model_dump_json()), instance, replica=replica
    )
    program = in_data_order(program, may_permute=True)
    (folder / "order.csv").write_text(torch_csv(program, "compute_comms"))
    (folder / "data.json").write_text(json.dumps(list(program.microbatches)))
    return folder / "data.json"


def test_unequal_microbatches_come_back_by_their_data_order(tmp_path: Path) -> None:
    instance = PipelineInstance.parse(UNEQUAL)
    order = read_data_order(exported(instance, tmp_path), instance)
    assert order != tuple(range(4))
    file = tmp_path / "order.csv"
    assert check_csv(file, instance, order) == []
    assert {violation.rule for violation in check_csv(file, instance)} == {"memory"}
    entry, _ = convert_torch_csv(file, instance, order)
    assert entry.value == ppsolve.optimize(instance, time_limit=20).value
    assert ppsolve.check(instance, entry) == []


def test_the_file_of_a_replica_is_read_by_its_data_order(tmp_path: Path) -> None:
    instance = PipelineInstance.parse(UNEQUAL | {"replicas": {"count": 2}})
    order = read_data_order(exported(instance, tmp_path, replica=1), instance)
    assert sorted(order) == [2, 3]
    assert check_csv(tmp_path / "order.csv", instance, order) == []
    entry, _ = convert_torch_csv(tmp_path / "order.csv", instance, order)
    assert entry.status is HeuristicStatus.FEASIBLE
    with pytest.raises(InputError, match="the pipeline has 2 replicas"):
        check_csv(tmp_path / "order.csv", instance)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}", "expected a list of micro-batches, got"),
        ("[0, 1, 2, 4]", "expected micro-batches from 0 to 3, got 4"),
        ('[0, 1, 2, "3"]', "expected micro-batches from 0 to 3, got"),
        ("[0, 1, 1, 2]", "expected every micro-batch once, got 1 twice"),
        ("[0, 1]", "expected 4 micro-batches, got 2"),
        ("[0, 1", "JSON"),
    ],
)
def test_what_is_no_data_order_is_refused(
    text: str, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "data.json"
    path.write_text(text)
    with pytest.raises(InputError, match=words) as caught:
        read_data_order(path, PipelineInstance.parse(UNEQUAL))
    assert "data.json" in str(caught.value)

"""What the rules accept computes the right thing: against a runtime that knows no rules."""

from __future__ import annotations

import json
import random
from contextlib import suppress

import pytest

from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.formats.program import read_program
from ppsolve.solver.formats.torch_csv import check_csv, csv_text, torch_csv
from tests.formats.runtime import Runtime, WrongProgramError
from tests.paths import DATA

EVERY = json.loads((DATA / "torch_orders.json").read_text())["schedules"]
CASES = {
    (case["schedule"], case["stages"]): case
    for case in EVERY
    if "DualPipe" not in case["schedule"] and case["ranks"] * case["microbatches"] <= 16
}
"""A small case of each schedule without pairs of actions, on few and on many stages."""


def rows_of(case):
    program = read_program({"orders": case["orders"]})
    return [
        line.split(",") for line in torch_csv(program, "compute_comms").splitlines()
    ]


def is_right(rows, case):
    with suppress(WrongProgramError):
        Runtime(rows, case["stage_to_rank"], case["microbatches"]).run()
        return True
    return False


def pipeline(case):
    return PipelineInstance.parse(
        {
            "num_devices": case["ranks"],
            "num_microbatches": case["microbatches"],
            "placement": {"stage_to_device": case["stage_to_rank"]},
            "times": {"forward": 1, "backward_input": 1, "backward_weight": 1},
        }
    )


def mutated(rows, rng):
    """Return rows with one cell moved, swapped, lost, doubled or put on another rank."""
    rows = [list(row) for row in rows]
    row = rng.choice(rows)
    one, two = rng.sample(range(len(row)), 2)
    near = max(0, min(len(row) - 1, one + rng.choice([-2, -1, 1, 2])))
    match rng.randrange(6):
        case 0:
            row[one], row[two] = row[two], row[one]
        case 1:
            row[one], row[near] = row[near], row[one]
        case 2:
            row.insert(near, row.pop(one))
        case 3:
            del row[one]
        case 4:
            row.insert(two, row[one])
        case 5:
            rng.choice(rows).append(row.pop(one))
    return rows


@pytest.mark.parametrize("key", CASES, ids=str)
def test_what_is_accepted_is_right(key, tmp_path):
    case = CASES[key]
    rng, file, instance = (
        random.Random(str(key)),
        tmp_path / "order.csv",
        pipeline(case),
    )
    rows = rows_of(case)
    assert is_right(rows, case)
    for _ in range(25):
        other = mutated(rows, rng)
        file.write_text(csv_text(other))  # type: ignore[arg-type]
        with suppress(InputError):
            if not check_csv(file, instance):
                assert is_right(other, case), other

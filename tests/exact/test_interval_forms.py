"""Forms of optional intervals: which one CP-SAT solves wrongly, and that no joint model has it.

On some 400 random models of alternatives, against brute force, CP-SAT 9.15 was wrong on 3 where the
intervals of alternatives share both the variable of their start and that of their end, with one and
with four workers, and on none without presolve. It was right where each has an end of its own, a
start of its own, or a size that is a variable, and where sizes are fixed.
"""

from __future__ import annotations

from itertools import product

import pytest
from ortools.sat.python import cp_model

from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.kinds.pipeline.kind import PIPELINE
from ppsolve.solver.kinds.pipeline.open.task import ChoiceTask

BLOCKS = {"overlap": {"time": 4}}

FILLERS = {"fillers": [{"name": "x0", "device": 0, "devices": [1], "pieces": [2]}]}

MODES = {
    "memory": {
        "capacity": 1,
        "activation": 1,
        "recompute": {
            "modes": [
                {"name": name, "time": [2, time]} for name, time in (("a", 0), ("b", 3))
            ],
            "decide": "microbatch",
        },
        "offload": {"amount": 1, "out": 1, "back": 0, "decide": "microbatch"},
    }
}

ALTERNATIVES = ([(1, 5), (4, 4)], [(3, 3)], [(4, 5)])
"""Of each op the lengths that it may have, each with what follows it; the first op comes first.

Its short way and the third op take 1 + 4 + 5 = 10, and the second op ends at 8, with 3 behind it.
The other way round the third op ends at 8, with 5 behind it.
"""


def optimum(*, shares_ends: bool) -> int:
    model = cp_model.CpModel()
    value = model.new_int_var(0, 99, "")
    moments, intervals = [], []
    for alternatives in ALTERNATIVES:
        start, end = model.new_int_var(0, 30, ""), model.new_int_var(0, 30, "")
        literals = [model.new_bool_var("") for _ in alternatives]
        model.add_exactly_one(literals)
        moments.append((start, end))
        for (length, behind), literal in zip(alternatives, literals, strict=True):
            model.add(value >= end + behind).only_enforce_if(literal)
            if shares_ends:
                shared = model.new_optional_interval_var(
                    start, length, end, literal, ""
                )
                intervals.append(shared)
                continue
            model.add(end == start + length).only_enforce_if(literal)
            fixed = model.new_optional_fixed_size_interval_var(
                start, length, literal, ""
            )
            intervals.append(fixed)
    model.add_no_overlap(intervals)
    for start, _ in moments[1:]:
        model.add(start >= moments[0][1])
    model.minimize(value)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    assert solver.solve(model) == cp_model.OPTIMAL
    return round(solver.objective_value)


def test_alternatives_that_share_start_and_end_are_solved_wrongly() -> None:
    assert optimum(shares_ends=False) == 11
    assert optimum(shares_ends=True) > 11, "joint models could have fewer constraints"


@pytest.mark.parametrize(
    ("fields", "times"),
    list(product((BLOCKS, FILLERS, MODES), ([3, 2], [3, 0], [0, 2]))),
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else str(value),
)
def test_optional_intervals_of_joint_models_have_a_fixed_size(
    fields: dict[str, object], times: list[int]
) -> None:
    forward, backward = times
    pipeline = {
        "num_devices": 2,
        "num_microbatches": 3,
        "times": {"forward": forward, "backward": [backward, 2]},
    }
    task = PIPELINE.task(PipelineInstance.parse(pipeline | fields))
    assert isinstance(task, ChoiceTask)
    rows = task.joint_model(0, None).cp.proto.constraints
    optional = [
        row.interval for row in rows if row.has_interval() and row.enforcement_literal
    ]
    assert optional
    for interval in optional:
        start, end, size = interval.start, interval.end, interval.size
        assert list(start.vars) == list(end.vars)
        assert list(start.coeffs) == list(end.coeffs)
        assert not list(size.vars)
        assert end.offset - start.offset == size.offset > 0

"""Why a heuristic has no schedule is said by fields, whatever names and messages look like."""

from __future__ import annotations

import numpy as np
import pytest

import ppsolve
from ppsolve.models.core.result import BrokenRule, HeuristicEntry, HeuristicStatus
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import NotApplicableError
from ppsolve.solver.api.kinds import lower, parse_instance
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.studies.plan.api import exceeds_memory
from ppsolve.solver.views.drawing import Drawing

LONG = "memory: m holds 7 of 3 at 8 us (too much from 2 us to the end)"


def failed(reason: str, broken: BrokenRule | None = None) -> HeuristicEntry:
    return HeuristicEntry(
        name="odd", status=HeuristicStatus.INFEASIBLE, reason=reason, broken=broken
    )


def test_a_reason_in_an_older_result_is_shown_as_it_is() -> None:
    entry = HeuristicEntry.model_validate(
        {"name": "odd", "status": "infeasible", "reason": LONG}
    )
    assert Drawing().reason(entry, verbose=False) == LONG


def test_what_is_too_much_is_said_in_short_whatever_the_pool_is_called() -> None:
    name = "cache holds 3 of 4 at 5"
    held = {name: 2}
    ops = [
        {"id": op, "duration": 1, "acquire": held, "release_at_end": held}
        for op in "ab"
    ]
    pools = [{"name": name, "capacity": 2}]
    problem = lower(
        parse_instance({"kind": "graph", "resources": [], "pools": pools, "ops": ops})
    )
    violations = check_schedule(problem, Schedule(problem, np.zeros(2, dtype=np.int64)))
    broken = BrokenRule.first_of(violations)
    assert broken == BrokenRule(rule="memory", short=f"{name} holds 4 of 2")
    entry = failed(str(violations[0]), broken)
    assert Drawing().reason(entry, verbose=False) == f"{name} holds 4 of 2"
    assert Drawing().reason(entry) == (
        f"memory: {name} holds 4 of 2 at 0 us (too much from 0 us to 1 us)"
    )
    written = HeuristicEntry.model_validate_json(entry.model_dump_json())
    assert Drawing().reason(written, verbose=False) == f"{name} holds 4 of 2"


def test_a_text_about_memory_is_no_lack_of_memory() -> None:
    assert not exceeds_memory(failed("memory of the author is short"))
    assert exceeds_memory(failed("in other words", BrokenRule(rule="memory")))
    assert not exceeds_memory(failed(LONG, BrokenRule(rule="overlap")))


def test_ops_that_all_wait_for_memory_lack_memory() -> None:
    """Two ops each take the only unit of a pool for ever."""
    ops = [{"id": op, "duration": 1, "acquire": {"m": 1}} for op in "ab"]
    pools = [{"name": "m", "capacity": 1}]
    graph = parse_instance(
        {"kind": "graph", "resources": [], "pools": pools, "ops": ops}
    )
    entry = ppsolve.simulate(graph, "list-serial")
    assert entry.status is HeuristicStatus.FAILED
    assert entry.broken == BrokenRule(rule="memory")
    assert exceeds_memory(entry)


def test_an_error_tells_the_heuristic_and_the_reason_apart() -> None:
    graph = parse_instance(
        {"kind": "graph", "resources": [], "ops": [{"id": "a", "duration": 1}]}
    )
    with pytest.raises(NotApplicableError) as refused:
        ppsolve.simulate(graph, "GPipe")
    error = refused.value
    assert error.heuristic == "gpipe"
    assert str(error) == f"gpipe is not applicable: {error.reason}"

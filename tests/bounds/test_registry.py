"""The list of bounds: walked from cheap to costly, the same whether kernels are compiled."""

from __future__ import annotations

from pathlib import Path

import pytest

from ppsolve.models.core.problem import Problem
from ppsolve.solver.api.kinds import load_instance, lower
from ppsolve.solver.board import Bound
from ppsolve.solver.bounds.params import BoundsParams
from ppsolve.solver.bounds.registry import (
    BOUNDS,
    costly_bounds,
    lower_bounds,
    quick_bounds,
    strongest_first,
)
from ppsolve.solver.bounds.relaxations import Relaxations
from ppsolve.solver.clock import Clock
from ppsolve.solver.kernels import compilation
from ppsolve.solver.structure.implied import ImpliedOrder
from tests.marks import first
from tests.paths import ROOT
from tests.unequal_cases import NAMES, pipeline_of, read_case

FOLDERS = (
    "few_microbatches",
    "heterogeneous",
    "memory_scan",
    "step_end",
    "tight_memory",
    "uniform",
)
SHIPPED = sorted(
    path for folder in FOLDERS for path in (ROOT / "instances" / folder).glob("*.json")
)
FEW = BoundsParams(more_nodes=(2_000,), placed_ops=20_000)


def unequal(name: str = "p4_m8_sigma04_seed48") -> Relaxations:
    return Relaxations(ImpliedOrder(lower(pipeline_of(read_case(name)))), params=FEW)


def raised(known: Relaxations) -> list[Bound]:
    """Return better and better bounds, from cheap rules to costly ones."""
    found: list[Bound] = []
    for bound in quick_bounds(known):
        if not found or bound.value > found[-1].value:
            found.append(bound)
    return found + list(costly_bounds(known, found[-1].value))


def in_both_modes(
    problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> list[list[Bound]]:
    """Return all better bounds without any clock, by Python and compiled."""
    found = []
    for is_compiled in (False, True):
        monkeypatch.setenv("PPSOLVE_COMPILE", "always" if is_compiled else "never")
        monkeypatch.setitem(compilation._state, "compiled", is_compiled)
        known = Relaxations(ImpliedOrder(problem), params=FEW)
        found.append(raised(known) + lower_bounds(known.implied))
    return found


@pytest.mark.parametrize("path", first(6, SHIPPED), ids=lambda path: path.stem)
def test_shipped_problems_have_the_same_bounds_compiled(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = lower(load_instance(path))
    if problem.num_ops > 1_000:
        pytest.skip("takes Python seconds")
    by_python, compiled = in_both_modes(problem, monkeypatch)
    assert by_python == compiled
    assert by_python


@pytest.mark.parametrize("name", first(1, [name for name in NAMES if "p4_m8" in name]))
def test_so_have_unequal_micro_batches(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = lower(pipeline_of(read_case(name)))
    by_python, compiled = in_both_modes(problem, monkeypatch)
    assert by_python == compiled
    assert by_python


def test_bounds_are_raised_from_cheap_rules_to_costly_ones() -> None:
    found = raised(unequal())
    values = [bound.value for bound in found]
    assert values == sorted(set(values))
    place = {rule.name: number for number, rule in enumerate(BOUNDS)}
    assert place[found[0].name] < place[found[-1].name]
    assert found[-1].name in {"drain", "two-resources"}


def test_nothing_is_sought_where_bound_and_value_meet() -> None:
    assert list(costly_bounds(unequal(), lower=5, upper=5)) == []


def test_without_time_cheap_rules_are_left() -> None:
    known = Relaxations(unequal().implied, Clock(0.0))
    assert {bound.name for bound in raised(known)} <= {"critical-path", "work"}


def test_of_equals_the_simpler_rule_is_first() -> None:
    found = [Bound("drain", 3), Bound("chain", 4), Bound("work", 3)]
    assert [bound.name for bound in strongest_first(found)] == [
        "chain",
        "work",
        "drain",
    ]

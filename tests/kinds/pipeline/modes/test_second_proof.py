"""Bounds over choices of modes are proved again, and wrong ones are told."""

from __future__ import annotations

import json
from typing import Any

import pytest

import ppsolve
from ppsolve.models.core.result import Status, StopReason
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.bound_check import BoundCheck, check_bound
from ppsolve.solver.exact.question import EXACT, VARIANTS
from ppsolve.solver.kinds.pipeline.choice_lists import ChoiceLists
from ppsolve.solver.kinds.pipeline.open import task
from ppsolve.solver.kinds.pipeline.open.search import ChoiceSearch
from ppsolve.solver.kinds.pipeline.open.tree import ChoiceTree
from tests.kinds.pipeline.modes.drawn import drawn, optimum
from tests.marks import first

OF_EACH_DECISION = {0: "window", 44: "microbatch", 8: "stage", 42: "all", 57: "given"}
"""Seeds of instances that analytic bounds do not prove."""

BY_VARIANTS = (0, 16, 27, 42, 55)
"""Seeds of instances that are proved choice by choice."""


def solved(seed: int, **options: Any) -> tuple[PipelineInstance, ppsolve.Result]:
    instance = PipelineInstance.parse(drawn(seed))
    return instance, ppsolve.optimize(instance, time_limit=20, **options)


@pytest.mark.parametrize("seed", first(1, OF_EACH_DECISION))
def test_bounds_are_proved_again_and_larger_ones_refuted(seed: int) -> None:
    instance, result = solved(seed)
    data, best = json.loads(result.model_dump_json()), optimum(drawn(seed))
    assert check_bound(instance, data) == BoundCheck(best, EXACT)
    found = check_bound(instance, data | {"bound": best + 1})
    assert (found.claimed, found.proved_by, found.better) == (best + 1, None, best)
    found = check_bound(instance, data | {"bound": None, "status": "INFEASIBLE"})
    assert found.proved_by is None
    assert found.better is not None and found.better >= best


@pytest.mark.parametrize("seed", BY_VARIANTS)
def test_proofs_choice_by_choice_are_repeated(seed: int) -> None:
    _, result = solved(seed, verify=True)
    assert (result.status, result.bound_by) == (Status.OPTIMAL, VARIANTS)
    assert result.bound_verified is True


@pytest.mark.parametrize("seed", [0, 42, 8])
def test_a_wrong_proof_is_withdrawn_and_told(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def claims(tree: ChoiceTree, clock: Any) -> None:
        space, board = tree._space, tree._board
        modes = space.decisions[0].modes
        choices = list(modes.variants()) or [modes.of_stages([1, 1])]
        lists = ChoiceLists()
        made = [
            found
            for choice in choices
            if (found := lists.schedule(space.problem({"modes": choice}))) is not None
        ]
        worst = max(made, key=lambda schedule: schedule.value)
        board.propose(worst, VARIANTS)
        board.raise_bound(worst.value, VARIANTS)

    monkeypatch.setattr(ChoiceTree, "run", claims)
    monkeypatch.setattr(ChoiceSearch, "run", lambda *given: None)
    monkeypatch.setattr(task, "solve_jointly", lambda turn: None)
    instance, best = PipelineInstance.parse(drawn(seed)), optimum(drawn(seed))
    budgets = {"modes.quick_cells": 0}
    found = ppsolve.optimize(
        instance, verify=True, heuristics=[], params=budgets, deterministic=True
    )
    assert found.stop_reason is StopReason.DISAGREEMENT
    assert found.bound_verified is False
    assert found.bound_by != VARIANTS
    assert found.bound <= best <= found.value
    assert ppsolve.check(instance, found) == []


def test_relaxed_schedules_refute_nothing() -> None:
    # Amounts of 13 digits, of which no joint model is made, leave choices open.
    data = drawn(8)
    result = json.loads(
        ppsolve.optimize(PipelineInstance.parse(data)).model_dump_json()
    )
    data["memory"] |= {"capacity": 4.000000000001, "activation": [3.000000000001, 2]}
    with pytest.raises(InputError, match="leaves choices open"):
        check_bound(PipelineInstance.parse(data), result)

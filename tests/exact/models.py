"""Models of small problems."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.clock import Clock
from ppsolve.solver.exact import constraints, device_part
from ppsolve.solver.exact.model import CpsatModel
from ppsolve.solver.exact.question import Question
from ppsolve.solver.structure.implied import ImpliedOrder


def model_of(
    problem: Problem,
    *,
    upper: int | None = None,
    hint: Schedule | None = None,
) -> CpsatModel:
    """Return the model of a problem that has room for a schedule."""
    model = CpsatModel.build(ImpliedOrder(problem), Question(0, hint, upper), Clock())
    assert model is not None
    return model


def change_model(monkeypatch: pytest.MonkeyPatch, **values: int) -> None:
    """Build models with other parameters, by name as in `ModelParams`."""
    for module in (constraints, device_part):
        monkeypatch.setattr(module, "MODEL", replace(module.MODEL, **values))

"""The goodput model against values of the original system."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from ppsolve.models.documents.errors import InputError
from ppsolve.models.studies.goodput.params import GradParams, Observations, PerfParams
from ppsolve.solver.studies.goodput.fit import FitObjective, fit_goodput
from ppsolve.solver.studies.goodput.model import GoodputModel
from tests.paths import DATA

FOLDER = DATA / "goodput" / "cases.json"
CASES: list[dict[str, Any]] = json.loads(FOLDER.read_text(encoding="utf-8"))["cases"]
OPTIMUM = ("goodput", "atomic_bsz", "accum_steps")


def cases(*ops: str) -> pytest.MarkDecorator:
    chosen = [case for case in CASES if case["op"] in ops]
    return pytest.mark.parametrize("case", chosen, ids=[case["id"] for case in chosen])


def model_of(case: dict[str, Any]) -> GoodputModel:
    perf, grad = PerfParams(*case["perf_params"]), GradParams(*case["grad_params"])
    return GoodputModel(perf, grad, case["init_batch_size"])


@cases("throughput", "efficiency", "evaluate")
def test_values(case: dict[str, Any]) -> None:
    method = getattr(model_of(case), case["op"])
    if "error" in case["expect"]:
        with pytest.raises(
            InputError, match=r"atomic_bsz: expected .* initial batch size 128"
        ):
            method(**case["args"])
    else:
        found = method(**case["args"])
        np.testing.assert_allclose(found, case["expect"][case["op"]], rtol=1e-12)


@cases("optimize")
def test_published_optima(case: dict[str, Any]) -> None:
    found = model_of(case).optimize(**case["args"], compat=True)
    np.testing.assert_allclose(found[0], case["expect"]["goodput"], rtol=1e-12)
    for values, name in zip(found[1:], OPTIMUM[1:], strict=True):
        assert np.asarray(values).tolist() == case["expect"][name]


@cases("optimize")
def test_exact_optima_are_no_worse_where_the_published_one_is_allowed(
    case: dict[str, Any],
) -> None:
    goodput, atomic, accum = model_of(case).optimize(**case["args"])
    expect, args = case["expect"], case["args"]
    replicas = np.array(args["num_replicas"])
    batch = replicas * expect["atomic_bsz"] * (np.array(expect["accum_steps"]) + 1)
    allowed = (np.array(expect["goodput"]) > 0) & (batch <= args["max_batch_size"])
    assert np.all(
        np.where(allowed, goodput >= np.multiply(expect["goodput"], 1 - 1e-12), True)
    )
    assert np.all(replicas * atomic * (accum + 1) <= args["max_batch_size"])


@cases("optimize")
def test_scalars_in_scalars_out(case: dict[str, Any]) -> None:
    found = model_of(case).optimize(**case["args"])
    if np.ndim(case["args"]["num_nodes"]):
        assert [values.dtype for values in found] == [np.float64, np.int64, np.int64]
    else:
        assert [type(value) for value in found] == [float, int, int]


@cases("fit")
def test_the_objective_is_the_published_one(case: dict[str, Any]) -> None:
    observed = Observations(**case["args"])
    objective = FitObjective(observed, np.arange(len(observed)))
    raw = np.array(case["expect"]["x_raw"])
    assert objective.value(raw) == pytest.approx(
        case["expect"]["objective_raw"], rel=1e-12
    )


@cases("fit")
def test_fits(case: dict[str, Any]) -> None:
    found, expected = fit_goodput(**case["args"]), case["expect"]
    assert found.objective <= expected["objective_raw"] + 1e-5
    if found.objective > expected["objective_raw"] - 1e-6:
        args = case["args"]
        where = args["num_nodes"], args["num_replicas"], args["atomic_bsz"]
        ours = GoodputModel(found.params, (1, 1), 1)
        theirs = GoodputModel(tuple(expected["perf_params"].values()), (1, 1), 1)
        np.testing.assert_allclose(
            ours.perf.optim_time(*where), theirs.perf.optim_time(*where), rtol=1e-3
        )
        np.testing.assert_allclose(
            ours.perf.accum_time(where[2]), theirs.perf.accum_time(where[2]), rtol=1e-3
        )


@cases("fit")
def test_the_prior_on_nodes_is_the_published_one(case: dict[str, Any]) -> None:
    found, expected = fit_goodput(**case["args"]).params, case["expect"]["perf_params"]
    if max(case["args"]["num_nodes"]) == 1:
        assert (found.alpha_n, found.beta_n) == (
            1.1 * found.alpha_r,
            1.1 * found.beta_r,
        )
        assert (found.alpha_n, found.beta_n) == (
            expected["alpha_n"],
            expected["beta_n"],
        )

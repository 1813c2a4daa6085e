"""Observation files and parameter documents: whatever is in a file, it is read or refused."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ppsolve.models.documents.errors import InputError
from ppsolve.models.studies.goodput.files import (
    COLUMNS,
    ParamsDocument,
    load_observations,
    load_params,
)
from ppsolve.models.studies.goodput.params import GradParams
from ppsolve.solver.studies.goodput.fit import fit_goodput

ROWS = [(1, 1, 16, 0.05, 0.051), (1, 2, 16, 0.05, 0.06), (2, 4, 32.0, 0.0801, 0.2)]
PERF = dict.fromkeys(("alpha_c", "beta_c", "alpha_n", "beta_n", "alpha_r", "beta_r"), 1)
PERF["gamma"] = 2


def objects(*rows: Any) -> list[dict[str, Any]]:
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows or ROWS]


def table(*rows: Any, header: tuple[str, ...] = COLUMNS) -> str:
    return "\n".join(",".join(map(str, row)) for row in (header, *(rows or ROWS)))


def write(folder: Path, name: str, content: Any) -> Path:
    path = folder / name
    path.write_text(
        content if isinstance(content, str) else json.dumps(content), encoding="utf-8"
    )
    return path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("steps.json", objects()),
        ("steps.txt", objects()),
        ("steps.csv", table()),
        ("STEPS.CSV", "\ufeff" + table().replace(",", " , ") + "\n\n , ,,,\n"),
        ("turned.csv", table(*(row[::-1] for row in ROWS), header=COLUMNS[::-1])),
        ("windows.csv", table().replace("\n", "\r\n")),
        ("quoted.csv", table().replace("0.06", '"0.06"')),
    ],
)
def test_observations_are_read(tmp_path: Path, name: str, content: Any) -> None:
    observed = load_observations(write(tmp_path, name, content))
    assert len(observed) == 3
    np.testing.assert_array_equal(np.column_stack(observed.columns()), ROWS)


def test_standard_input_is_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(objects())))
    assert load_observations("-").atomic_bsz.tolist() == [16, 16, 32]


def wrong(column: str, value: Any) -> list[dict[str, Any]]:
    rows = objects()
    rows[1][column] = value
    return rows


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "expected JSON, the file is empty"),
        ([], "expected at least one observation, got none"),
        ({"schema": 1}, "expected a list of objects with num_nodes, .*, got an object"),
        ([3], r"\[0\]: expected an object, got 3"),
        (
            [{}],
            r"\[0\]: missing fields: num_nodes, num_replicas, atomic_bsz, accum_step_time, opt",
        ),
        (
            [{**objects()[0], "optim_time": 1}],
            r'\[0\]: unknown field "optim_time"; did you mean "optim_step_time"\?',
        ),
        (
            [{**objects()[0], "x": 1}],
            r'\[0\]: unknown field "x"; known: num_nodes, num_replicas',
        ),
        (wrong("num_nodes", 0), r"num_nodes\[1\]: expected a whole number >= 1, got 0"),
        (
            wrong("num_nodes", 3),
            r"num_nodes\[1\]: expected at most as many nodes as replicas",
        ),
        (
            wrong("num_replicas", 1.5),
            r"num_replicas\[1\]: expected a whole number >= 1, got 1.5",
        ),
        (
            wrong("atomic_bsz", "16"),
            r'atomic_bsz\[1\]: expected a number, got the text "16"',
        ),
        (wrong("atomic_bsz", True), r"atomic_bsz\[1\]: expected a number, got true"),
        (
            wrong("accum_step_time", None),
            r"accum_step_time\[1\]: expected a number, got null",
        ),
        (
            wrong("optim_step_time", 0),
            r"optim_step_time\[1\]: expected a number > 0, got 0",
        ),
        (
            wrong("optim_step_time", float("nan")),
            r"optim_step_time\[1\]: expected .* got nan",
        ),
    ],
)
def test_json_that_holds_no_observations(
    tmp_path: Path, content: Any, message: str
) -> None:
    path = write(tmp_path, "steps.json", content)
    with pytest.raises(InputError, match=rf"steps\.json: {message}"):
        load_observations(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "expected a header num_nodes,num_replicas,.*, the file is empty"),
        ("\n  \n", "expected a header num_nodes,num_replicas,.*, the file is empty"),
        (table().split("\n")[0], "expected at least one observation, got none"),
        (table(header=COLUMNS[:4]), "missing column: optim_step_time"),
        (
            table(header=COLUMNS[:3]),
            "missing columns: accum_step_time, optim_step_time",
        ),
        (
            table().replace("num_nodes", "nodes"),
            'unknown column "nodes"; did you mean "num_nodes"',
        ),
        (
            table().replace("num_nodes", "num_replicas"),
            'the column "num_replicas" appears twice',
        ),
        (table().split("\n", 1)[1], 'unknown column "1"; known: num_nodes'),
        (table() + "\n1,2,3", "line 5: expected 5 values, got 3"),
        (
            table((1, 1, "x", 1, 1)),
            r'atomic_bsz\[0\]: line 2: expected a number, got the text "x"',
        ),
        (
            table((1, 1, "", 1, 1)),
            r"atomic_bsz\[0\]: line 2: expected a number, got nothing",
        ),
        (
            table((1, 1, 1, "nan", 1)),
            r"accum_step_time\[0\]: expected a number > 0, got nan",
        ),
        (
            table((1, 1, 1, 1, "inf")),
            r"optim_step_time\[0\]: expected .* at most 1e15, got inf",
        ),
        (
            table((1, 1, 1, 1, -1)),
            r"optim_step_time\[0\]: expected a number > 0, got -1",
        ),
        (
            table((1, 1, "9" * 200_000, 1, 1)),
            "line 2: not usable CSV: field larger than field limi",
        ),
    ],
)
def test_csv_that_holds_no_observations(
    tmp_path: Path, content: str, message: str
) -> None:
    path = write(tmp_path, "steps.csv", content)
    with pytest.raises(InputError, match=rf"steps\.csv: {message}"):
        load_observations(path)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.csv: no such file"):
        load_observations(tmp_path / "none.csv")


def test_a_fit_makes_a_round_trip(tmp_path: Path) -> None:
    fitted = fit_goodput(*zip(*ROWS, strict=True))
    grad = GradParams(2e-40, 3e40)
    document = ParamsDocument.of(fitted, grad=grad, init_batch_size=32)
    path = write(tmp_path, "params.json", document.model_dump_json(exclude_none=True))
    again = load_params(path)
    assert again == document
    assert again.perf_params == fitted.params
    assert again.grad_params == grad
    assert (again.objective, again.fixed, again.warnings, again.observations) == (
        *(fitted.objective, fitted.fixed, fitted.warnings),
        3,
    )
    assert again.residuals is not None
    assert again.residuals.optim_step_time.largest == np.max(
        np.abs(fitted.residuals[:, 1])
    )
    assert again.residuals.accum_step_time.rms == pytest.approx(
        np.sqrt(np.mean(fitted.residuals[:, 0] ** 2))
    )
    assert again.init_batch_size == 32


def test_a_plain_object_with_the_seven_names_will_do(tmp_path: Path) -> None:
    document = load_params(write(tmp_path, "params.json", PERF))
    assert tuple(document.perf_params) == (1, 1, 1, 1, 1, 1, 2)
    assert document.grad_params is None
    assert document == load_params(write(tmp_path, "whole.json", {"params": PERF}))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "expected an object, got a list of 0"),
        ({}, "params: this field is required"),
        ({"alpha_c": 1}, r"params\.beta_c: this field is required"),
        (
            {**PERF, "gama": 1},
            r'params\.gama: unknown field "gama"; did you mean "gamma"\?',
        ),
        (
            {"params": PERF, "sqr": 1},
            'sqr: unknown field "sqr"; known: schema, kind, params, grad',
        ),
        (
            {"params": {**PERF, "gamma": 0.5}},
            r"params\.gamma: expected a number >= 1, got 0.5",
        ),
        (
            {"params": {**PERF, "alpha_c": "1"}},
            r'params\.alpha_c: expected a number, got the text "1"',
        ),
        (
            {"params": {**PERF, "beta_c": -1}},
            r"params\.beta_c: expected a number >= 0, got -1",
        ),
        (
            {"params": {**PERF, "alpha_c": 0, "beta_c": 0}},
            r"params\.alpha_c: expected alpha_c \+ beta_c >= 1e-30, got 0",
        ),
        ({"params": PERF, "grad": {"sqr": 1}}, r"grad\.var: this field is required"),
        (
            {"params": PERF, "grad": {"sqr": 1, "var": -1}},
            r"grad\.var: expected a number >= 0, got -1",
        ),
        (
            {"params": PERF, "init_batch_size": 0},
            "init_batch_size: expected a number > 0, got 0",
        ),
        ({"params": PERF, "schema": 2}, "schema: input should be 1, got 2"),
        (
            {"params": PERF, "kind": "plan"},
            "kind: input should be 'goodput', got the text \"plan\"",
        ),
    ],
)
def test_documents_that_hold_no_parameters(
    tmp_path: Path, content: Any, message: str
) -> None:
    path = write(tmp_path, "params.json", content)
    with pytest.raises(InputError, match=rf"params\.json: {message}"):
        load_params(path)


def test_a_document_is_not_made_of_a_wrong_batch_size() -> None:
    fitted = fit_goodput(*zip(*ROWS, strict=True))
    with pytest.raises(
        InputError, match=r"^init_batch_size: expected a number > 0, got 0$"
    ):
        ParamsDocument.of(fitted, init_batch_size=0)

"""Documents of the goodput model: observations (JSON or CSV), parameters and results (JSON)."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from ppsolve.models.core.arrays import Floats, as_number
from ppsolve.models.core.result import Reported, ReportedFile
from ppsolve.models.documents.base import (
    Number,
    StrictModel,
    Whole,
    describe,
)
from ppsolve.models.documents.errors import (
    ErrorCode,
    InputError,
    errors_in,
)
from ppsolve.models.documents.files import parse_json, read_json, read_text, source_name
from ppsolve.models.studies.goodput.params import (
    Fit,
    GradParams,
    Observations,
    PerfParams,
)

COLUMNS = tuple(field.name for field in fields(Observations))

BYTE_ORDER_MARK = "\ufeff"
"""What spreadsheets put before the first name of a CSV file."""


def load_observations(path: str | Path) -> Observations:
    """Read measured steps: CSV with a header if the name ends in ``.csv``, else a JSON list.

    ``-`` is standard input (JSON).

    Raises `InputError`: names the file, the column, the place (counted from 0; for text
        in CSV also the line) and the expected value.
    """
    source = source_name(path)
    text = read_text(path)
    is_csv = Path(path).suffix.lower() == ".csv"
    with errors_in(source):
        columns = _from_csv(text) if is_csv else _from_json(parse_json(text, source))
        return Observations(**columns)


def _from_json(data: Any) -> dict[str, Any]:
    if not isinstance(data, list):
        text = f"expected a list of objects with {', '.join(COLUMNS)}, got {describe(data)}"
        raise InputError(text, code=ErrorCode.TYPE)
    for index, row in enumerate(data):
        if not isinstance(row, dict):
            raise InputError(
                f"expected an object, got {describe(row)}",
                field=f"[{index}]",
                code=ErrorCode.TYPE,
            )
        _check_names(row, f"[{index}]", "field")
    _refuse_none(data)
    return {name: [row[name] for row in data] for name in COLUMNS}


def _from_csv(text: str) -> dict[str, Any]:
    rows = _csv_rows(text.removeprefix(BYTE_ORDER_MARK))
    _, header = next(rows, (0, []))
    if not header:
        raise InputError(
            f"expected a header {','.join(COLUMNS)}, the file is empty",
            code=ErrorCode.SYNTAX,
        )
    _check_names(header, "", "column")
    columns: dict[str, list[float]] = {name: [] for name in header}
    for line, cells in rows:
        if len(cells) != len(header):
            raise InputError(
                f"line {line}: expected {len(header)} values, got {len(cells)}",
                code=ErrorCode.LENGTH,
            )
        for name, cell in zip(header, cells, strict=True):
            columns[name].append(_cell(cell, f"{name}[{len(columns[name])}]", line))
    _refuse_none(columns[COLUMNS[0]])
    return columns


def _csv_rows(text: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        for row in reader:
            cells = [cell.strip() for cell in row]
            if any(cells):
                yield reader.line_num, cells
    except csv.Error as error:
        raise InputError(
            f"line {reader.line_num}: not usable CSV: {error}", code=ErrorCode.SYNTAX
        ) from None


def _cell(text: str, field: str, line: int) -> float:
    try:
        return float(text)
    except ValueError:
        description = describe(text) if text else "nothing"
        raise InputError(
            f"line {line}: expected a number, got {description}",
            field=field,
            code=ErrorCode.TYPE,
        ) from None


def _check_names(names: Iterable[str], field: str, noun: str) -> None:
    """Refuse unknown, repeated and missing names of columns."""
    columns = list(names)
    for name in columns:
        if name not in COLUMNS:
            raise InputError.unknown(f"unknown {noun}", name, COLUMNS, field=field)
        if columns.count(name) > 1:
            raise InputError(
                f'the {noun} "{name}" appears twice',
                field=field,
                code=ErrorCode.CONFLICT,
            )
    missing = [name for name in COLUMNS if name not in columns]
    if missing:
        plural = "s" if len(missing) > 1 else ""
        raise InputError(
            f"missing {noun}{plural}: {', '.join(missing)}",
            field=field,
            code=ErrorCode.MISSING,
        )


def _refuse_none(rows: Sequence[Any]) -> None:
    if not rows:
        raise InputError(
            "expected at least one observation, got none", code=ErrorCode.LENGTH
        )


def _finite(value: Any) -> float:
    try:
        return as_number("", value, most=sys.float_info.max)
    except InputError as error:
        raise ValueError(error.message) from None


Finite = Annotated[
    float, BeforeValidator(_finite), WithJsonSchema({"type": "number", "minimum": 0})
]


class PerfFields(StrictModel):
    """The parameters of `PerfParams`."""

    alpha_c: Finite
    beta_c: Finite
    alpha_n: Finite
    beta_n: Finite
    alpha_r: Finite
    beta_r: Finite
    gamma: Finite


class GradFields(StrictModel):
    """The statistics of `GradParams`: finite numbers >= 0 of any size."""

    sqr: Finite
    var: Finite

    @property
    def params(self) -> GradParams:
        """The same, ready for use."""
        return GradParams(self.sqr, self.var)


class ErrorSummary(StrictModel):
    """Logarithmic errors of one time: root mean square, and the largest in absolute value."""

    rms: Finite
    largest: Finite


class ErrorSummaries(StrictModel):
    """Errors of the two times that were fitted."""

    accum_step_time: ErrorSummary
    optim_step_time: ErrorSummary


class ParamsDocument(StrictModel):
    """Parameters of a goodput model as they are kept in files.

    `params` are step times, `grad` gradient statistics, `init_batch_size` is the batch size of
    efficiency 1. The rest is the report of the fit, if the parameters are fitted; `observations` is
    their number.
    """

    schema_version: Literal[1] = Field(default=1, alias="schema")
    kind: Literal["goodput"] = "goodput"
    params: PerfFields
    grad: GradFields | None = None
    init_batch_size: Number | None = None
    objective: Finite | None = None
    fixed: dict[str, str] = Field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    observations: Whole | None = Field(default=None, ge=1)
    residuals: ErrorSummaries | None = None

    @model_validator(mode="after")
    def _usable(self) -> Self:
        try:
            PerfParams(*self._perf_numbers())
        except InputError as error:
            raise error.about(f"params.{error.field}") from None
        if self.init_batch_size is not None and self.init_batch_size == 0:
            raise InputError(
                "expected a number > 0, got 0",
                field="init_batch_size",
                code=ErrorCode.TYPE,
            )
        return self

    @classmethod
    def of(
        cls,
        fitted: Fit,
        *,
        grad: GradParams | None = None,
        init_batch_size: float | None = None,
    ) -> Self:
        """Return the document of a fit, as `load_params` reads it.

        Efficiency is 1 at `init_batch_size`; an `InputError` says that it is not a number above 0.
        """
        names = ("accum_step_time", "optim_step_time")
        return cls.parse(
            {
                "params": asdict(fitted.params),
                "grad": None if grad is None else asdict(grad),
                "init_batch_size": init_batch_size,
                "objective": fitted.objective,
                "fixed": fitted.fixed,
                "warnings": fitted.warnings,
                "observations": len(fitted.residuals),
                "residuals": dict(
                    zip(names, map(_summary, fitted.residuals.T), strict=True)
                ),
            }
        )

    @property
    def perf_params(self) -> PerfParams:
        """Step times, ready for use."""
        return PerfParams(*self._perf_numbers())

    @property
    def grad_params(self) -> GradParams | None:
        """Gradient statistics, ready for use."""
        return None if self.grad is None else self.grad.params

    def _perf_numbers(self) -> Iterator[float]:
        return (float(getattr(self.params, name)) for name in PerfFields.model_fields)


def _summary(errors: Floats) -> dict[str, float]:
    return {
        "rms": float(np.sqrt(np.mean(errors**2))),
        "largest": float(np.max(np.abs(errors))),
    }


def load_params(path: str | Path) -> ParamsDocument:
    """Read a parameter document, or an object with nothing but the seven step time parameters.

    Raises `InputError`: names the file, the field and the expected value.
    """
    data, source = read_json(path), source_name(path)
    if (
        isinstance(data, dict)
        and "params" not in data
        and data.keys() & PerfFields.model_fields
    ):
        data = {"params": data}
    return ParamsDocument.parse(data, source)


class GoodputRow(Reported):
    """One configuration.

    `batch_size` is samples per step over all replicas and accumulation steps, `accum_steps` the
    micro-batches before the one that exchanges gradients. Times are in the unit of the parameters,
    throughput and goodput in samples per that unit. An allocation without any allowed configuration
    has goodput 0, and neither times nor throughput.
    """

    num_nodes: int
    num_replicas: int
    atomic_bsz: int
    accum_steps: int
    batch_size: int
    step_time: float | None = None
    throughput: float | None = None
    efficiency: float | None = None
    goodput: float

    @property
    def is_allowed(self) -> bool:
        """Whether the limits allow any configuration there."""
        return self.goodput > 0


class GoodputRows(ReportedFile):
    """The best configuration of each allocation."""

    kind: Literal["goodput-result"] = "goodput-result"
    what: Literal["optimum"] = "optimum"
    init_batch_size: float
    rows: tuple[GoodputRow, ...]

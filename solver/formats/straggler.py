"""Traces of ByteDance's straggler study (arXiv 2505.05713): Parquet, one row per op."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.models.documents.errors import ErrorCode, InputError, errors_in
from ppsolve.models.documents.files import opened, source_name
from ppsolve.models.studies.trace.table import KINDS, NANOSECONDS, Trace, joined

OPTYPES = {"forward-compute": "F", "backward-compute": "B"}
"""Op types that become ops. Sends and receives contain waiting, so they are no transfer times."""

WHOLE = ("step", "dp_rank", "stage", "mb_id", "mc")
NAMES = ("step", "dp_rank", "stage", "optype", "start_ts", "duration", "mb_id", "mc")


def read_straggler(paths: Sequence[str | Path]) -> Trace:
    """Read Parquet files of the straggler study.

    `stage` is the device; with several model chunks `mc`, a device holds the stages ``mc x devices
    + stage``. Backwards are fused. Times are float32 seconds from a common zero of each step, read
    to the nanosecond. Raises `InputError` where pyarrow (extra ``traces``) is missing, or a file is
    no such table; names what is wrong.
    """
    return joined([_read(Path(path)) for path in paths])


def _read(path: Path) -> Trace:
    source = source_name(path)
    with errors_in(source):
        table = _load(path)
        rows = _compute_rows(table)
        _refuse_missing_stage(table, rows)
        start, duration = (
            _nanoseconds(rows, name) for name in ("start_ts", "duration")
        )
    columns = {
        "step": rows["step"],
        "replica": rows["dp_rank"],
        "stage": rows["mc"] * (int(rows["stage"].max()) + 1) + rows["stage"],
        "chunk": rows["mc"],
        "kind": np.array(
            [KINDS.index(OPTYPES[name]) for name in rows["optype"].tolist()]
        ),
        "microbatch": rows["mb_id"],
        "start": start,
        "end": start + duration,
        "device": rows["stage"],
    }
    return Trace.of(columns, unit="s", sources=(source,), format="straggler")


def _load(path: Path) -> dict[str, Any]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise InputError(
            "reading Parquet needs pyarrow: pip install 'ppsolve[traces]'",
            code=ErrorCode.NOT_INSTALLED,
        ) from None
    with opened(path) as stream:
        try:
            file = parquet.ParquetFile(stream)
            missing = [name for name in NAMES if name not in file.schema_arrow.names]
            if missing:
                raise InputError(
                    f'expected a column "{missing[0]}", there is none',
                    code=ErrorCode.MISSING,
                )
            table = file.read(columns=list(NAMES))
            return {name: table.column(name).to_numpy() for name in NAMES}
        except (ArrowException, OSError, ValueError) as error:
            raise InputError(
                f"not valid Parquet: {' '.join(str(error).split())}",
                code=ErrorCode.SYNTAX,
            ) from None


def _refuse_missing_stage(table: dict[str, Any], rows: dict[str, Any]) -> None:
    """Refuse a last stage that sends forward: without the stages behind it a run looks whole."""
    last = rows["stage"].max()
    sends = (table["optype"].astype(str) == "forward-send") & (table["stage"] == last)
    if rows["mc"].max() == 0 and sends.any():
        text = f"stage {last} sends forward, and no later stage is there: are its rows missing?"
        raise InputError(text, field=f"row {np.flatnonzero(sends)[0]}")


def _compute_rows(table: dict[str, Any]) -> dict[str, Any]:
    selected = np.isin(table["optype"].astype(str), list(OPTYPES))
    if not selected.any():
        raise InputError(
            f"expected rows of {' and '.join(OPTYPES)}, there is none",
            field="optype",
            code=ErrorCode.MISSING,
        )
    rows = {name: column[selected] for name, column in table.items()}
    numbers = np.flatnonzero(selected)
    return rows | {name: _whole(rows[name], numbers, name) for name in WHOLE}


def _whole(column: Any, numbers: IntArray, name: str) -> IntArray:
    values = _finite(column, numbers, name)
    integers: IntArray = values.astype(np.int64)
    wrong = np.flatnonzero((integers != values) | ((integers < 0) & (name != "step")))
    if len(wrong):
        text = f"expected a whole number from 0, got {values[wrong[0]]}"
        raise InputError(
            text, field=f"row {numbers[wrong[0]]}.{name}", code=ErrorCode.RANGE
        )
    return integers


def _finite(column: Any, numbers: IntArray, name: str) -> Any:
    values = np.asarray(column)
    if values.dtype.kind not in "iuf":
        raise InputError(
            f"expected numbers, got {values.dtype}", field=name, code=ErrorCode.TYPE
        )
    wrong = np.flatnonzero(~np.isfinite(values))
    if len(wrong):
        text = f"expected a finite number, got {values[wrong[0]]}"
        raise InputError(
            text, field=f"row {numbers[wrong[0]]}.{name}", code=ErrorCode.TYPE
        )
    return values


def _nanoseconds(rows: dict[str, Any], name: str) -> IntArray:
    values = _finite(rows[name], np.arange(len(rows["step"])), f"compute.{name}")
    seconds = values.astype(np.float64)
    wrong = np.flatnonzero(
        (np.abs(seconds) > 4e9) | ((seconds < 0) & (name == "duration"))
    )
    if len(wrong):
        row = int(wrong[0])
        event = f"step {rows['step'][row]}, replica {rows['dp_rank'][row]}: "
        op = f"{OPTYPES[rows['optype'][row]]}{rows['stage'][row]}.{rows['mb_id'][row]}"
        text = f"expected seconds{' from 0' if name == 'duration' else ''}, got {values[row]}"
        raise InputError(text, field=f"{event}{op}.{name}", code=ErrorCode.RANGE)
    return np.rint(seconds * NANOSECONDS["s"]).astype(np.int64)

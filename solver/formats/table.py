"""Tables of ops in our own form: CSV with a header, or JSON Lines with the same names."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import numpy as np

from ppsolve.models.core.problem import FREE
from ppsolve.models.documents.base import (
    as_clock,
    as_json_number,
    describe,
)
from ppsolve.models.documents.contents import describe_document
from ppsolve.models.documents.errors import (
    ErrorCode,
    InputError,
    did_you_mean,
    errors_in,
)
from ppsolve.models.documents.files import parse_json, read_text, source_name
from ppsolve.models.studies.trace.table import (
    COLUMNS,
    KINDS,
    NANOSECONDS,
    Trace,
    joined,
)

REQUIRED = ("stage", "kind", "microbatch")
WHOLE = ("step", "replica", "stage", "chunk", "microbatch", "device", "length", "clock")
TIME = re.compile(r"(start|end)_(ns|us|ms|s)")

Row = dict[str, Any]


def read_table(paths: Sequence[str | Path]) -> Trace:
    """Read tables of ops, CSV where a name ends in ``.csv``, else JSON Lines.

    `docs/traces.md` says what each column means. Rows of several files are rows of one run. Raises
    `InputError` where a file cannot be read, a column is missing, unknown or twice, or a value is
    wrong; names the file, the line and the column.
    """
    return joined([_read(path) for path in paths])


def write_table(trace: Trace, suffix: str) -> str:
    """Return the text of a trace as a table of ops, one a line, which `read_table` reads again.

    The suffix ``.csv`` makes it CSV with a header, any other JSON Lines.
    """
    rows = list(_rows(trace))
    if suffix != ".csv":
        return "".join(f"{json.dumps(row)}\n" for row in rows)
    text = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _rows(trace: Trace) -> Iterator[Row]:
    unit = trace.unit
    names = (name for name in COLUMNS if name not in {"kind", "start", "end"})
    columns = {name: getattr(trace, name).tolist() for name in names}
    times = (trace.times(trace.start.tolist()), trace.times(trace.end.tolist()))
    lengths = trace.length.tolist()
    for number, (start, end) in enumerate(zip(*times, strict=True)):
        row: Row = {name: column[number] for name, column in columns.items()}
        row["kind"] = KINDS[trace.kind[number]]
        row[f"start_{unit}"] = as_json_number(start)
        row[f"end_{unit}"] = as_json_number(end)
        if not trace.is_aligned:
            row["clock"] = row["device"]
        if lengths[number] != FREE:
            row["length"] = lengths[number]
        yield row


def _read(path: str | Path) -> Trace:
    source = source_name(path)
    with errors_in(source):
        text = read_text(path)
        is_csv = Path(path).suffix.lower() == ".csv"
        rows = list(_csv_rows(text) if is_csv else _json_rows(text, source))
        if not rows:
            raise InputError(
                "expected ops, the table has no row", code=ErrorCode.LENGTH
            )
        unit = _unit(rows[0][1])
        values = [_values(row, unit, f"line {line}") for line, row in rows]
    names = (*COLUMNS, "length", "clock")
    columns = {
        name: np.array([row[name] for row in values], dtype=np.int64) for name in names
    }
    clocks = columns.pop("clock")
    _fill_chunks(columns)
    return Trace.of(
        columns,
        unit=unit,
        sources=(source,),
        format="table",
        is_aligned=len(np.unique(clocks)) == 1,
    )


def _csv_rows(text: str) -> Iterator[tuple[int, Row]]:
    reader = csv.reader(io.StringIO(text), strict=True)
    names: list[str] | None = None
    try:
        for row in reader:
            cells = [cell.strip() for cell in row]
            if not any(cells):
                continue
            if names is None:
                names = cells
                twice = next((name for name in names if names.count(name) > 1), None)
                if twice is not None:
                    raise InputError(
                        f'the column "{twice}" appears twice',
                        field="line 1",
                        code=ErrorCode.CONFLICT,
                    )
                continue
            if len(cells) != len(names):
                text = f"expected {len(names)} cells as in the header, got {len(cells)}"
                raise InputError(
                    text, field=f"line {reader.line_num}", code=ErrorCode.LENGTH
                )
            pairs = zip(names, cells, strict=True)
            yield reader.line_num, {name: cell for name, cell in pairs if cell}
    except csv.Error as error:
        raise InputError(
            f"not valid CSV: {error}",
            field=f"line {reader.line_num}",
            code=ErrorCode.SYNTAX,
        ) from None


def _json_rows(text: str, source: str) -> Iterator[tuple[int, Row]]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        row = parse_json(line, f"{source}, line {number}")
        if not isinstance(row, dict):
            raise InputError(
                f"expected an object, got {describe(row)}",
                field=f"line {number}",
                code=ErrorCode.TYPE,
            )
        yield number, row


def _unit(row: Mapping[str, Any]) -> str:
    units = {match[2] for name in row if (match := TIME.fullmatch(name))}
    if len(units) != 1:
        description = (
            describe_document(dict.fromkeys(row.keys() - {"kind"})) or "there is none"
        )
        got = f"got {', '.join(sorted(units))}" if units else description
        raise InputError(
            f"expected start and end in one unit, such as start_us and end_us; {got}"
        )
    return units.pop()


def _values(row: Row, unit: str, line: str) -> dict[str, int]:
    times = {f"{name}_{unit}": name for name in ("start", "end")}
    columns = {*WHOLE, "kind", *times}
    for name in row:
        if name not in columns:
            hint = did_you_mean(name[:40], columns)
            raise InputError(
                f"unknown column{hint}",
                field=f"{line}.{name[:40]}",
                code=ErrorCode.UNKNOWN_NAME,
                expected=tuple(columns),
            )
    for name in (*REQUIRED, *times):
        if row.get(name) is None:
            raise InputError(
                "this column is required",
                field=f"{line}.{name}",
                code=ErrorCode.MISSING,
            )
    values = {"step": 0, "replica": 0, "chunk": FREE, "length": FREE, "clock": 0}
    try:
        for name in WHOLE:
            if row.get(name) is not None:
                values[name] = _whole(name, row[name])
        if row["kind"] not in KINDS:
            text = f"expected one of {', '.join(KINDS)}, got {describe(row['kind'])}"
            raise InputError(text, field="kind", code=ErrorCode.UNKNOWN_NAME)
        values["kind"] = KINDS.index(row["kind"])
        for column, name in times.items():
            values[name] = _time(column, row[column], NANOSECONDS[unit])
    except InputError as error:
        raise error.about(f"{line}.{error.field}") from None
    return {"device": values["stage"], **values}


def _number(name: str, value: Any) -> Decimal:
    try:
        return as_clock(Decimal(value) if isinstance(value, str) else value)
    except InvalidOperation:
        raise InputError(
            f"expected a number, got {describe(value)}", field=name, code=ErrorCode.TYPE
        ) from None
    except ValueError as error:
        raise InputError(
            str(error), field=name, code=getattr(error, "code", ErrorCode.VALUE)
        ) from None


def _whole(name: str, value: Any) -> int:
    number = _number(name, value)
    if number != number.to_integral_value() or abs(number) > 2**62:
        raise InputError(
            f"expected a whole number, got {describe(value)}",
            field=name,
            code=ErrorCode.TYPE,
        )
    return int(number)


def _time(name: str, value: Any, nanoseconds: int) -> int:
    number = _number(name, value) * nanoseconds
    if abs(number) > 2**62:
        raise InputError(
            f"expected a time within 146 years, got {describe(value)}",
            field=name,
            code=ErrorCode.RANGE,
        )
    return int(number.to_integral_value())


def _fill_chunks(columns: dict[str, Any]) -> None:
    """Fill in chunks that the table leaves out: the rank of a stage among those of its device."""
    keys = np.stack([columns["device"], columns["stage"]])
    pairs, index = np.unique(keys, axis=1, return_inverse=True)
    rank = np.arange(pairs.shape[1]) - np.searchsorted(pairs[0], pairs[0])
    columns["chunk"] = np.where(
        columns["chunk"] == FREE, rank[index.ravel()], columns["chunk"]
    )

"""Records grouped by factors of their instances instead of by family."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fractions import Fraction

from ppsolve.models.documents.errors import InputError
from ppsolve.models.studies.bench.file import BenchRecord, Records

FIELDS = ("family", "kind", "objective", "time_limit", "recipe")
"""Fields of records that can be grouped by, beside the factors of their instances."""

UNKNOWN = "none"
"""Value of a factor that an instance does not have."""


def grouped(records: Records, factors: Sequence[str]) -> Records:
    """Return records whose family names their values of some factors: ``p=4 m=8``.

    An `InputError` names a factor that no record has, and the nearest one.
    """
    values = [_values(record) for record in records.records]
    names = list(dict.fromkeys(name for row in values for name in row))
    for factor in factors:
        if factor not in names:
            raise InputError.unknown(
                "no record has a factor",
                factor,
                names,
                listed=len(names),
                field="--by",
            )
    regrouped = [
        record.model_copy(
            update={"family": " ".join(f"{f}={row.get(f, UNKNOWN)}" for f in factors)}
        )
        for record, row in zip(records.records, values, strict=True)
    ]
    return Records(tuple(regrouped), records.torn)


def _values(record: BenchRecord) -> dict[str, str]:
    fields = {name: getattr(record, name) for name in FIELDS}
    pairs = {**fields, **record.factors}.items()
    return {name: _shown(value) for name, value in pairs if value is not None}


def _shown(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def natural_key(name: str) -> list[tuple[int, Fraction | str]]:
    """Return a key that puts 2 before 10, and 1.5 between 1 and 2."""
    tokens: Iterable[str] = re.split(r"(\d+(?:\.\d+)?)", name)
    return [
        (0, Fraction(token)) if token[:1].isdecimal() else (1, token)
        for token in tokens
    ]

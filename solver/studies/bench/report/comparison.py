"""What changed from one file of results to another: regressions by name, and improvements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.studies.bench.file import BenchRecord
from ppsolve.solver.studies.bench.report.cases import (
    PROVED,
    Contradiction,
    Identity,
    by_identity,
    identities,
    is_above,
    written,
)


class Change(StrEnum):
    """What changed for an instance."""

    FAILURE = "failure"
    VALUE = "value"
    PROOF = "proof"
    BOUND = "bound"


@dataclass(frozen=True)
class Difference:
    """A change of one instance."""

    change: Change
    family: str
    instance: str
    before: str  # in words or figures, with units
    after: str
    size: float | None = None  # (after - before) / before, if there is such a figure


@dataclass(frozen=True)
class Comparison:
    """Two files of results, instance by instance."""

    instances: int  # in both files
    regressions: tuple[Difference, ...]
    improvements: tuple[Difference, ...]
    only_before: tuple[str, ...]  # instances that the later file lacks
    only_after: tuple[str, ...]
    # Bounds of one file above values of the other.
    contradictions: tuple[Contradiction, ...]
    is_other_machine: bool  # for some instance, so that times say little
    has_other_limit: bool  # for some instance


Pair = tuple[BenchRecord, BenchRecord]
"""The records of one instance in both files, the earlier one first."""


def compare(
    before: Sequence[BenchRecord],
    after: Sequence[BenchRecord],
    tolerance: float,
    sources: tuple[str, str],
) -> Comparison:
    """Return the regressions and improvements between two files of results.

    Regressions are in the order of the later file. An `InputError` says that an instance is in one
    file twice, or has another unit in the other file.

    `tolerance`: share by which a value or bound may be worse.
    `sources`: names of both files.
    """
    name = identities([before, after])
    earlier = by_identity(before, name, sources[0])
    later = by_identity(after, name, sources[1])
    shared = [(earlier[key], record) for key, record in later.items() if key in earlier]
    for pair in shared:
        _refuse_other_units(pair, sources)
    worse = [difference for pair in shared for difference in _worse(*pair, tolerance)]
    better = [
        difference for old, new in shared for difference in _worse(new, old, tolerance)
    ]
    return Comparison(
        instances=len(shared),
        regressions=tuple(worse),
        improvements=tuple(_turned(difference) for difference in better),
        only_before=tuple(_label(key) for key in earlier if key not in later),
        only_after=tuple(_label(key) for key in later if key not in earlier),
        contradictions=tuple(
            contradiction for pair in shared for contradiction in _contradictions(pair)
        ),
        is_other_machine=any(old.machine != new.machine for old, new in shared),
        has_other_limit=any(old.time_limit != new.time_limit for old, new in shared),
    )


def _label(key: Identity) -> str:
    return f"{key[0]}/{key[1]}"


def _turned(difference: Difference) -> Difference:
    size = difference.size
    if size is not None:
        size = None if size == -1 else -size / (1 + size)
    return Difference(
        difference.change,
        difference.family,
        difference.instance,
        difference.after,
        difference.before,
        size,
    )


def _refuse_other_units(pair: Pair, sources: tuple[str, str]) -> None:
    old, new = pair
    if old.time_unit != new.time_unit:
        raise InputError(
            f'"{new.instance}" of family "{new.family}" is in {new.time_unit}, in {sources[0]} it '
            f"is in {old.time_unit}: expected files about the same instances",
            source=sources[1],
            field="time_unit",
            code=ErrorCode.UNIT,
        )


def _worse(
    old: BenchRecord, new: BenchRecord, tolerance: float
) -> Iterator[Difference]:
    """Yield in what `new` is worse than `old`; a new failure says it all."""
    if new.failure is not None:
        if old.failure is None:
            yield _difference(Change.FAILURE, new, old.status.value, f"{new.failure}")
        return
    if old.failure is not None:
        return
    yield from _worse_figure(Change.VALUE, old, new, tolerance)
    if old.status in PROVED and new.status not in PROVED:
        yield _difference(Change.PROOF, new, _proof(old), _proof(new))
    elif new.status not in PROVED:
        yield from _worse_figure(Change.BOUND, old, new, tolerance)


def _difference(
    change: Change,
    record: BenchRecord,
    before: str,
    after: str,
    size: float | None = None,
) -> Difference:
    return Difference(change, record.family, record.instance, before, after, size)


def _worse_figure(
    change: Change, old: BenchRecord, new: BenchRecord, tolerance: float
) -> Iterator[Difference]:
    # Lower values and higher bounds are better.
    before, after = getattr(old, change), getattr(new, change)
    if before is None:
        return
    lower, higher = (before, after) if change is Change.VALUE else (after, before)
    if after is None or is_above(higher, lower, tolerance):
        size = (after - before) / before if after is not None and before else None
        yield _difference(change, new, written(before), written(after), size)


def _contradictions(pair: Pair) -> Iterator[Contradiction]:
    old, new = pair
    for bounding, solved, when in ((old, new, "now"), (new, old, "before")):
        if (
            bounding.bound is None
            or solved.value is None
            or not is_above(bounding.bound, solved.value)
        ):
            continue
        bound, value = written(bounding.bound), written(solved.value)
        text = f"the bound {bound} is above the value {value} found {when}"
        yield Contradiction(new.family, new.instance, text)


def _proof(record: BenchRecord) -> str:
    bound = "no bound" if record.bound is None else f"bound {written(record.bound)}"
    return f"{record.status.value}, {bound}"

"""Merging files of results: each key once, failures give way, differences are told."""

from __future__ import annotations

from ppsolve.models.studies.bench.file import Records, merged
from tests.studies.bench.records import MACHINE, record


def test_a_key_is_kept_once() -> None:
    one, other = record("a"), record("a", seconds=3.0)
    records, differences = merged(
        {"x": Records((one,)), "y": Records((other, record("b")))}
    )
    assert [(r.key, r.seconds) for r in records] == [("a", 0.5), ("b", 0.5)]
    assert differences == []


def test_differences_are_told() -> None:
    one, other = record("a"), record("a", status="FEASIBLE", value=95, bound=90)
    records, differences = merged({"x": Records((one,)), "y": Records((other,))})
    assert [r.value for r in records] == [90]
    assert differences == [
        "name-a (a) differs: status OPTIMAL (x) and FEASIBLE (y), value 90 (x) and 95 (y); "
        "x is kept"
    ]


def test_a_result_is_kept_rather_than_a_failure() -> None:
    failed = record(
        "a", status="UNKNOWN", value=None, bound=None, failure="crash", machine="m2"
    )
    records, differences = merged(
        {"x": Records((failed,)), "y": Records((record("a"),))}
    )
    assert [(r.failure, r.machine) for r in records] == [(None, MACHINE)]
    assert len(differences) == 1
    assert differences[0].endswith("failure None (y) and crash (x); y is kept")

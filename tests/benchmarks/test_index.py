"""The shipped index of best-known bounds agrees with the files that it lists."""

from __future__ import annotations

import json
from typing import Any

import pytest
from best_known import schedule_problems
from best_known_files import SCHEDULES, Entry, StoredSchedule, load_best_known
from shipped import BEST_KNOWN, instance_files

import ppsolve
from ppsolve.models.documents.text import fingerprint
from ppsolve.solver.api.kinds import lower
from tests.paths import ROOT

HOME = ROOT / "instances"
KNOWN = load_best_known(HOME).instances
SMALL = 250
"""Ops up to which the default run checks every stored schedule; the slow run checks the rest."""


def names(*, small: bool) -> list[str]:
    return [name for name, entry in KNOWN.items() if (entry.ops <= SMALL) == small]


def unproved(listed: list[str]) -> dict[str, list[str]]:
    """Return the instances whose stored schedule does not prove the upper bound, and why."""
    found = {}
    for name in listed:
        entry = KNOWN[name]
        assert entry.schedule is not None
        stored = StoredSchedule.load(HOME / entry.schedule)
        found[name] = schedule_problems(
            ppsolve.load_instance(HOME / name), stored, entry
        )
    return {name: problems for name, problems in found.items() if problems}


def test_index_lists_every_instance_and_no_other() -> None:
    assert sorted(KNOWN) == instance_files(HOME)


def test_index_lists_every_schedule_and_no_other() -> None:
    files = sorted(
        path.relative_to(HOME).as_posix()
        for path in (HOME / SCHEDULES).rglob("*")
        if path.is_file()
    )
    assert sorted(entry.schedule for entry in KNOWN.values() if entry.schedule) == files
    assert {name: f"{SCHEDULES}/{name}.gz" for name in KNOWN} == {
        name: entry.schedule for name, entry in KNOWN.items()
    }


def test_no_entry_contradicts_itself() -> None:
    assert {
        name: found for name, e in KNOWN.items() if (found := e.contradictions())
    } == {}


def test_entries_describe_the_instances_as_they_are() -> None:
    for name, entry in KNOWN.items():
        instance = ppsolve.load_instance(HOME / name)
        shown = (entry.kind, entry.time_unit, entry.instance_sha256)
        assert shown == (instance.kind, instance.time_unit, fingerprint(instance)), name


def assert_ops_are_counted(listed: list[str]) -> None:
    found = {name: lower(ppsolve.load_instance(HOME / name)).num_ops for name in listed}
    assert found == {name: KNOWN[name].ops for name in listed}


def test_ops_of_small_instances_are_counted() -> None:
    assert_ops_are_counted(names(small=True))


@pytest.mark.slow
def test_ops_of_large_instances_are_counted() -> None:
    assert_ops_are_counted(names(small=False))


def test_every_field_is_written() -> None:
    """Readers of other programs need no defaults: what is not known is null."""
    raw: dict[str, Any] = json.loads((HOME / BEST_KNOWN).read_text(encoding="utf-8"))
    claim = {"value", "method", "version", "machine", "date", "seconds", "workers"}
    for name, entry in raw["instances"].items():
        assert set(entry) == set(Entry.model_fields), name
        for side in ("upper", "lower"):
            assert entry[side] is None or set(entry[side]) == claim, name


def test_fields_are_documented() -> None:
    page = (HOME / "README.md").read_text(encoding="utf-8")
    fields = [
        *Entry.model_fields,
        "value",
        "method",
        "version",
        "machine",
        "date",
        "workers",
    ]
    assert [field for field in fields if f"`{field}`" not in page] == []


def test_schedules_of_small_instances_prove_their_upper_bounds() -> None:
    assert unproved(names(small=True)) == {}


@pytest.mark.slow
def test_schedules_of_large_instances_prove_their_upper_bounds() -> None:
    assert unproved(names(small=False)) == {}


def test_a_wrong_upper_bound_is_seen() -> None:
    name = "few_microbatches/random-8x1.json"
    entry = KNOWN[name]
    assert entry.upper is not None
    wrong = entry.model_copy(
        update={"upper": entry.upper.model_copy(update={"value": 1674})}
    )
    stored = StoredSchedule.load(HOME / f"{SCHEDULES}/{name}.gz")
    assert schedule_problems(ppsolve.load_instance(HOME / name), stored, wrong)

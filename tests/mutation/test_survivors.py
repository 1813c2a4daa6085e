"""Lists of mutants stay true to the code: every text is there once, every named test exists."""

from __future__ import annotations

import pytest

from tests.mutation.survivors import HERE, entries_of, faults


@pytest.mark.parametrize(
    "path", sorted(HERE.glob("*.json")), ids=lambda path: path.stem
)
def test_lists_name_code_and_tests_that_exist(path: object) -> None:
    entries = entries_of([path])  # type: ignore[list-item]
    assert {entry["id"]: faults(entry) for entry in entries if faults(entry)} == {}
    assert len({entry["id"] for entry in entries}) == len(entries)

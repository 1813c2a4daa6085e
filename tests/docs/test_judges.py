"""The table of versions shows what the judges' last runs wrote."""

from __future__ import annotations

import json
import re

from judges import JUDGES, PAGE, ROWS, with_table

from tests.paths import ROOT

DATA = json.loads(ROWS.read_text(encoding="utf-8"))


def test_the_page_shows_the_rows() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_table(page, DATA)


def test_versions_of_the_constraints_passed_every_judge() -> None:
    pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    rows = {(row["package"], row["version"], row["held"]) for row in DATA}
    for judge in JUDGES:
        match = re.search(rf"^{judge.package}==([\w.]+)", pinned, re.MULTILINE)
        assert match is not None
        assert (judge.package, match[1], judge.held) in rows

"""Pages are readable in any editor: lines of prose are short, and the paths they name exist.

Docstrings are held to 100 characters by ruff, as code is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.paths import ROOT

LONGEST = 120
PAGES = sorted(
    path
    for pattern in ("", "benchmarks/", "docs/**/", "examples/", "instances/", "tests/")
    for path in ROOT.glob(f"{pattern}*.md")
)
PATH = re.compile(
    r"(?:models|solver|tests|benchmarks|examples|docs|instances)/[\w/.-]*\w"
)


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Yield the number and text of each line outside code blocks and tables."""
    code = False
    for number, line in enumerate(text.splitlines(), 1):
        fence = line.lstrip().startswith("```")
        code ^= fence
        if not (code or fence or line.lstrip().startswith("|")):
            yield number, line


def too_long(text: str) -> list[int]:
    return [number for number, line in prose(text) if len(line) > LONGEST]


def test_only_lines_of_prose_are_measured() -> None:
    wide = "x" * (LONGEST + 1)
    assert too_long(f"{wide}\n```\n{wide}\n```\n| {wide} |\n{wide[:-1]}\n  {wide}") == [
        1,
        7,
    ]


def test_pages_are_found() -> None:
    assert {"README.md", "ARCHITECTURE.md"} <= {path.name for path in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_lines_of_prose_are_short(page: Path) -> None:
    assert too_long(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_paths_in_code_spans_exist(page: Path) -> None:
    spans = re.findall(r"`([^`\n]+)`", page.read_text(encoding="utf-8"))
    named = {span.rstrip("/") for span in spans if PATH.fullmatch(span.rstrip("/"))}
    missing = {
        name
        for name in named
        if not any((ROOT / f"{name}{end}").exists() for end in ("", ".py"))
    }
    assert missing == set()

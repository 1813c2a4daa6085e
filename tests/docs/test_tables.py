"""The table of steps of each kind has every table of steps of the tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeGuard

from tests.paths import ROOT

PAGE = (ROOT / "docs" / "data" / "steps.md").read_text(encoding="utf-8")
MAKERS = {"inserted", "replaced"}
"""Functions of which a table is made from another one."""


def tables() -> Iterator[tuple[str, str]]:
    """Yield the name of each table of a kind, or of the task that has it, and its module."""
    for path in sorted((ROOT / "solver" / "kinds").rglob("*.py")):
        module = path.relative_to(ROOT).as_posix()
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                yield from (
                    (node.name, module) for inner in node.body if is_table(inner)
                )
            elif is_table(node):
                target = (
                    node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
                )
                yield ast.unparse(target), module


def is_table(node: ast.stmt) -> TypeGuard[ast.Assign | ast.AnnAssign]:
    """Whether a statement writes a table down, or makes one of another."""
    if not isinstance(node, ast.Assign | ast.AnnAssign):
        return False
    if isinstance(node.value, ast.Call):
        return ast.unparse(node.value.func) in MAKERS
    annotation = ast.unparse(node.annotation) if isinstance(node, ast.AnnAssign) else ""
    return "Step" in annotation and isinstance(node.value, ast.Tuple)


def test_every_table_of_steps_is_a_row_of_the_page() -> None:
    found = dict(tables())
    assert {
        "CHOICE_STEPS",
        "PIPELINE_STEPS",
        "PROGRAM_STEPS",
    } <= found.keys()
    rows = [line for line in PAGE.splitlines() if line.startswith("| ")]
    assert [
        name for name in found if not any(f"(`{name}`, " in row for row in rows)
    ] == []
    assert [module for module in found.values() if f"`{module}`" not in PAGE] == []

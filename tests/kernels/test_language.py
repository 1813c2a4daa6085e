"""The page on the language of kernels says what is translated, and what is not."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from ppsolve.solver.kernels.native.body import UntranslatableError
from ppsolve.solver.kernels.native.machine import machine_code
from tests.paths import ROOT

HEAD = "def kernel(a: int, b: int, one: Any, row: Row) -> int:\n"
END = "    return a * 10000 + b * 100 + one[0] * 10 + one[-1]\n"
NOTES = {"¹": "\n    else: pass", "³": "\n    except ValueError: pass"}


class Row(NamedTuple):
    values: Any
    count: int


def twice(number: int) -> int:
    return 2 * number


def rows(heading: str, column: int) -> list[str]:
    """Return the examples of a column of the table below a heading."""
    page = (ROOT / "docs/data/kernels.md").read_text(encoding="utf-8")
    table = re.findall(
        r"^\|.*\|$", page.split(f"## {heading}\n")[1].split("\n## ")[0], re.M
    )[2:]
    cells = [re.split(r" (?<!\\)\| ", line.strip("| "))[column] for line in table]
    return [
        (code + NOTES.get(note, "")).replace("\\|", "|")
        for cell in cells
        for code, note in re.findall(r"`([^`]+)`([¹²³]?)", cell)
    ]


def statement(text: str) -> str:
    if text.startswith("match"):
        text = "match a:\n        case _: pass"
    end = "" if text == "return" else END  # which would return something
    return f"{HEAD}    {text}\n{end}"


def expression(text: str) -> str:
    return f"{HEAD}    for c in (-1, 0, 1, 2, 5, 7):\n        b += ({text}) > c\n{END}"


STATEMENTS, REFUSED_STATEMENTS = (
    list(map(statement, rows("Statements", column))) for column in (1, 2)
)
EXPRESSIONS, REFUSED_EXPRESSIONS = (
    list(map(expression, rows("Expressions", column))) for column in (1, 2)
)


def defined(source: str, path: Path) -> Callable[..., Any]:
    path.write_text(source)
    names: dict[str, Any] = {
        "Any": Any,
        "Row": Row,
        "twice": twice,
        "LIMIT": 5,
        "__name__": "page",
    }
    exec(compile(source, str(path), "exec", dont_inherit=True), names)
    found: Callable[..., Any] = names["kernel"]
    return found


def arguments() -> tuple[Any, ...]:
    return 2, 3, np.array([4, 5, 6, 7]), Row(np.array([8, 9]), 3)


def compiled(function: Callable[..., Any], is_checked: bool = False) -> Any:
    code = machine_code(function, arguments(), {twice}, is_checked=is_checked)
    assert code is not None
    return code


def test_the_page_has_examples() -> None:
    assert "a, b = b, a" in STATEMENTS[2]
    assert "a | b" in "".join(EXPRESSIONS)
    assert len(REFUSED_STATEMENTS) > 30
    assert len(REFUSED_EXPRESSIONS) > 30


@pytest.mark.parametrize("source", STATEMENTS + EXPRESSIONS)
@pytest.mark.slow
def test_what_the_page_accepts_is_as_in_python(source: str, tmp_path: Path) -> None:
    function = defined(source, tmp_path / "kernel.py")
    expected = arguments()
    answer = function(*expected)
    for is_checked in (False, True):
        given = arguments()
        assert compiled(function, is_checked)(*given) == (
            answer or 0
        )  # annotated with int
        assert given[2].tolist() == expected[2].tolist()


@pytest.mark.parametrize("source", REFUSED_STATEMENTS + REFUSED_EXPRESSIONS)
def test_what_the_page_refuses_is_refused_with_its_line(
    source: str, tmp_path: Path
) -> None:
    function = defined(source, tmp_path / "kernel.py")
    with pytest.raises(UntranslatableError, match=r"^line [0-9]+: "):
        compiled(function)

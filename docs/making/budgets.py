"""Write the table of budgets from their fields: ``python docs/making/budgets.py``."""

from __future__ import annotations

import ast
import inspect
import tokenize
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from ppsolve.solver.run.params import SearchParams

PAGE = Path(__file__).resolve().parents[1] / "data" / "budgets.md"

HEAD = """\
# All budgets

[Budgets](../budgets.md) says how to set one. `docs/making/budgets.py` writes this table from the
fields of `SearchParams` (`solver/run/params.py`) and the comments behind them. "The same" refers to
the row above.
"""


def comments(of: type) -> dict[str, str]:
    """Return the comment behind each field of a dataclass.

    Parameters
    ----------
    of : type
        A dataclass with one field a line.

    Returns
    -------
    dict of str to str
        By the name of the field; without the fields that have no comment.
    """
    source = inspect.getsource(of)
    tokens = tokenize.generate_tokens(StringIO(source).readline)
    said = {
        token.start[0]: token.string
        for token in tokens
        if token.type == tokenize.COMMENT
    }
    (body,) = ast.parse(source).body
    assert isinstance(body, ast.ClassDef)
    behind = {}
    for node in body.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            for line in [line for line in lines if line in said]:
                behind[node.target.id] = said[line].removeprefix("#").strip()
    return behind


def page() -> str:
    """Return the page of all budgets, a table for each class."""
    return "\n".join([HEAD, *tables(SearchParams(), "")])


def tables(params: Any, prefix: str) -> Iterator[str]:
    """Yield the lines of a table for each dataclass of budgets.

    Parameters
    ----------
    params : dataclass
        Numbers, and further dataclasses of them.
    prefix : str
        What each path begins with.

    Yields
    ------
    str
        Heading, first lines of the docstring, rows.
    """
    inner = [
        field for field in fields(params) if is_dataclass(getattr(params, field.name))
    ]
    own = [field for field in fields(params) if field not in inner]
    if own:
        said = comments(type(params))
        yield f"## {prefix.rstrip('.')}\n"
        yield f"{inspect.getdoc(params)}\n"
        yield "| budget | default | what it is |"
        yield "| --- | --- | --- |"
        for field in own:
            value = getattr(params, field.name)
            yield f"| `{prefix}{field.name}` | {_number(value)} | {said[field.name]} |"
        yield ""
    for field in inner:
        yield from tables(getattr(params, field.name), f"{prefix}{field.name}.")


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

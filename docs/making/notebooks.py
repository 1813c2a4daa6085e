"""Run the notebooks of `examples/`, and make pages of them.

A notebook is run by Python alone, cell after cell, in one namespace:
`python docs/making/notebooks.py` runs all of them and writes their outputs. `page` is what the site
shows.
"""

from __future__ import annotations

import ast
import io
import json
import os
import re
import sys
from contextlib import chdir, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


def read(path: Path) -> dict[str, Any]:
    """Return a notebook as data."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def source_of(cell: dict[str, Any]) -> str:
    """Return the text of a cell."""
    return "".join(cell["source"])


def executed(notebook: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return a notebook with the outputs of its cells.

    Parameters
    ----------
    notebook : dict
        The notebook.
    folder : Path
        Where its cells run; `instances` of the repository is linked there.

    Returns
    -------
    dict
    """
    if not (folder / "instances").exists():
        os.symlink(ROOT / "instances", folder / "instances")
    names: dict[str, Any] = {"__name__": "__notebook__"}
    cells, count = [], 0
    with chdir(folder):
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                count += 1
                outputs = _outputs(source_of(cell), names, count)
                cell = {**cell, "execution_count": count, "outputs": outputs}
            cells.append(cell)
    return {**notebook, "cells": cells}


def _outputs(source: str, names: dict[str, Any], count: int) -> list[dict[str, Any]]:
    # As a notebook does: what is printed, then the value of a last expression.
    tree = ast.parse(source)
    last = (
        tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    )
    printed, value = io.StringIO(), None
    with redirect_stdout(printed):
        exec(compile(tree, f"cell {count}", "exec"), names)
        if last is not None:
            value = eval(
                compile(ast.Expression(last.value), f"cell {count}", "eval"), names
            )
    found: list[dict[str, Any]] = []
    if text := printed.getvalue():
        found.append(
            {"name": "stdout", "output_type": "stream", "text": text.splitlines(True)}
        )
    if value is not None:
        data = {"text/plain": repr(value).splitlines(True)}
        if made := getattr(value, "_repr_html_", lambda: None)():
            data["text/html"] = made.splitlines(True)
        found.append(
            {
                "output_type": "execute_result",
                "execution_count": count,
                "metadata": {},
                "data": data,
            }
        )
    return found


def printed(notebook: dict[str, Any]) -> list[str]:
    """Return what each cell prints; of other outputs whether they are there."""
    return [
        "".join(
            "".join(output.get("text", output["output_type"]))
            for output in cell.get("outputs", [])
        )
        for cell in notebook["cells"]
    ]


def page(path: Path) -> str:
    """Return a notebook as a page: its texts, its cells, and their outputs."""
    parts = []
    for cell in read(path)["cells"]:
        source = source_of(cell)
        if cell["cell_type"] == "markdown":
            parts.append(re.sub(r"\]\(\.\./docs/", "](../", source))
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            shown = "".join(data.get("text/html", []))
            text = "".join(output.get("text", data.get("text/plain", []))).rstrip()
            parts.append(shown or f"```text\n{text}\n```")
    return "\n\n".join(parts) + f"\n\nThe notebook: `examples/{path.name}`.\n"


def notebook_pages() -> dict[str, str]:
    """Return a page for each notebook, by its place on the site."""
    return {f"gallery/{path.stem}.md": page(path) for path in NOTEBOOKS}


def main() -> None:
    """Run all notebooks and write them."""
    for path in NOTEBOOKS:
        with TemporaryDirectory() as folder:
            made = executed(read(path), Path(folder))
        path.write_text(
            json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )
        print(path.name, file=sys.stderr)


if __name__ == "__main__":
    main()

"""Commands and programs that pages show, and a folder in which they run one after the other.

A comment before a block says what cannot be seen from the block itself:

- ``<!-- not run: REASON -->``: it cannot run here, or is no output, for a reason that readers may
  know;
- ``<!-- needs: MODULE -->``: it runs where this module is installed;
- ``<!-- before: COMMANDS -->``: run first, to make the files that a reader already has;
- ``<!-- output -->``: each line is printed by the block of commands before it; ``...`` leaves
  lines or the rest of a line out, runs of spaces count as one.

Behind the last output of a page searches end after some seconds, whatever limit is shown.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.paths import ROOT

PAGES = sorted(
    path
    for path in [
        ROOT / "README.md",
        *ROOT.glob("docs/**/*.md"),
        *(
            ROOT / folder / "README.md"
            for folder in ("examples", "instances", "benchmarks")
        ),
    ]
)
SHELL, PYTHON = "sh", "python"
FENCE = re.compile(
    r"((?:^ *<!--(?:(?!-->).)*-->\n+)*)^( *)```(\w*)[^\n]*\n(.*?)^\2```",
    re.DOTALL | re.MULTILINE,
)
COMMENT = re.compile(
    r"<!--\s*(not run|needs|before|output)(?::\s*(.*?))?\s*-->", re.DOTALL
)
LIMIT = re.compile(r"(-t |--time-limit |time_limit=)(\d+)")
SHORT = 5
"""Seconds that a search gets at most where no output behind it is compared."""

LINKED = ("instances", "examples", "benchmarks", "tests")
"""Folders of the repository that commands on pages name."""


@dataclass(frozen=True)
class Snippet:
    """A block of a page.

    Parameters
    ----------
    line : int
        Where it begins, from 1.
    language : str
        What the fence says; empty where it says nothing.
    text : str
        Its lines.
    marks : dict of str to str
        What comments before it say.
    """

    line: int
    language: str
    text: str
    marks: dict[str, str]

    @property
    def is_run(self) -> bool:
        """Whether it can run at all."""
        return self.language in {SHELL, PYTHON} and "not run" not in self.marks


def snippets_of(text: str) -> list[Snippet]:
    """Return the blocks of a page in their order."""
    found = []
    for match in FENCE.finditer(text):
        comments, indent, language, body = match.groups()
        line = text.count("\n", 0, match.start(3)) + 1
        body = re.sub(f"^{indent}", "", body, flags=re.MULTILINE)
        marks = {name: given for name, given in COMMENT.findall(comments)}
        found.append(Snippet(line, language, body, marks))
    return found


def hurried(snippet: Snippet) -> Snippet:
    """Return a block with short limits of time."""
    text = LIMIT.sub(lambda m: f"{m[1]}{min(int(m[2]), SHORT)}", snippet.text)
    return replace(snippet, text=text)


class Reader:
    """Somebody who has a clone and types what a page shows, in a folder of its own.

    Parameters
    ----------
    page : Path
        The page.
    folder : Path
        Where commands run and files are written.
    """

    def __init__(self, page: Path, folder: Path) -> None:
        self.page, self.folder = page, folder
        self.names: dict[str, Any] = {"__name__": "__page__"}
        self.printed = ""
        for name in LINKED:
            (folder / name).symlink_to(ROOT / name)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.environment = {
            **os.environ,
            "PATH": path,
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "88",
        }

    def follow(self, snippet: Snippet) -> None:
        """Do what a block says; an error names the page and the line."""
        if "before" in snippet.marks:
            self._type(snippet.marks["before"], snippet.line)
        if snippet.language == SHELL:
            self.printed = self._type(snippet.text, snippet.line)
        elif snippet.language == PYTHON:
            blank = "\n" * snippet.line
            # As in a reader's file, annotations are what they say: models need their types.
            text = blank + snippet.text
            code = compile(text, str(self.page), "exec", dont_inherit=True)
            exec(code, self.names)

    def misses(self, snippet: Snippet) -> list[str]:
        """Return the lines shown as output that the commands before them did not print."""
        printed = [" ".join(line.split()) for line in self.printed.splitlines()]
        shown = [" ".join(line.split()) for line in snippet.text.splitlines()]
        begun = [line.removesuffix("...") for line in shown if line.endswith("...")]
        missing = [
            text for text in begun if not any(line.startswith(text) for line in printed)
        ]
        return missing + [
            x for x in shown if x and not x.endswith("...") and x not in printed
        ]

    def _type(self, commands: str, line: int) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", commands],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        where = f"{self.page.relative_to(ROOT)}:{line}"
        assert done.returncode == 0, (
            f"{where}: exit code {done.returncode}\n{done.stderr[-3000:]}"
        )
        return done.stdout

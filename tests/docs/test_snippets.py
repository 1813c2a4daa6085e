"""Every command and every program on a page runs, or says why it cannot."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.docs.snippets import PAGES, PYTHON, SHELL, Reader, Snippet, snippets_of
from tests.paths import ROOT

LANGUAGES = {SHELL, PYTHON, "json", "toml", ""}
COMMAND = re.compile(r"^\s*(?:ppsolve|python|pip|mkdocs) ", re.MULTILINE)
CUT = re.compile(r"\w~(?:\s|$)|\bleft out: |…")
"""What tables say of cells and columns for which there was no room."""
TEXTS = [
    pytest.param(path, id=str(path.relative_to(ROOT)))
    for path in PAGES
    if "```" in path.read_text(encoding="utf-8")
]

JOURNEY = (
    "docs/quick-start.md",
    "docs/how-to/uneven-stages.md",
    "docs/how-to/memory.md",
    "docs/how-to/pytorch.md",
)
TYPED = [
    *("optimize", "show", "report", "generate", "optimize"),  # the quick start
    *("optimize", "show", "optimize", "curve"),  # your pipeline
    *("optimize", "show", "curve"),  # it does not fit
    *("optimize", "optimize", "export", "check"),  # run it
]


@pytest.mark.docs
@pytest.mark.parametrize("page", TEXTS)
def test_a_reader_can_follow_the_page(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    reader = Reader(page, tmp_path)
    for snippet in snippets_of(page.read_text(encoding="utf-8")):
        if "output" in snippet.marks:
            assert reader.misses(snippet) == [], f"line {snippet.line}:\n{reader.printed}"
        elif snippet.is_run and all(map(find_spec, snippet.marks.get("needs", "ppsolve").split())):
            reader.follow(snippet)


@pytest.mark.parametrize("page", TEXTS)
def test_no_command_hides_in_another_block(page: Path) -> None:
    """Only blocks called `sh` and `python` are run, so commands may stand nowhere else."""
    text = page.read_text(encoding="utf-8")
    for snippet in snippets_of(text):
        assert snippet.language in LANGUAGES, f"line {snippet.line}"
        if snippet.language not in {SHELL, PYTHON}:
            assert COMMAND.search(snippet.text) is None, f"line {snippet.line}"
    assert re.search(r"^    ppsolve ", re.sub(r"```.*?```", "", text, flags=re.S), re.M) is None


@pytest.mark.parametrize("page", TEXTS)
def test_what_does_not_run_says_why(page: Path) -> None:
    for snippet in snippets_of(page.read_text(encoding="utf-8")):
        for name in ("not run", "needs", "before"):
            assert snippet.marks.get(name, "said"), f"line {snippet.line}: {name} what?"


@pytest.mark.parametrize("page", TEXTS)
def test_what_is_shown_is_compared_and_not_cut(page: Path) -> None:
    """A block without a language is output of the commands before it, or says what else it is."""
    for snippet in snippets_of(page.read_text(encoding="utf-8")):
        if not snippet.language:
            assert {"output", "not run"} & snippet.marks.keys(), f"line {snippet.line}"
            assert CUT.search(snippet.text) is None, f"line {snippet.line}"


def test_cells_and_columns_that_a_table_left_out_are_found() -> None:
    assert CUT.findall("raise-comms   failed: severa~\n1 ~ 2 ~x\n  left out: rank (all)\nnam…") == [
        "a~\n",
        "left out: ",
        "…",
    ]


@pytest.mark.docs
def test_the_pages_lead_from_a_clone_to_an_exported_schedule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One reader follows the first pages in order, in one folder, with nothing else at hand."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    reader, typed = Reader(ROOT / JOURNEY[0], tmp_path), ""
    for page in JOURNEY:
        for snippet in snippets_of((ROOT / page).read_text(encoding="utf-8")):
            if snippet.is_run:
                bare = Snippet(snippet.line, snippet.language, snippet.text, {})
                reader.follow(bare)
                typed += snippet.text if snippet.language == SHELL else ""
    assert re.findall(r"^ppsolve ([\w-]+)", typed, re.MULTILINE) == TYPED
    assert (tmp_path / "order.csv").read_text(encoding="utf-8").startswith("0F0,")


def test_marks_belong_to_the_block_behind_them() -> None:
    text = (
        "<!-- not run: a cluster -->\n```sh\nfalse\n```\n\n"
        "<!-- before: echo 1 > a -->\n\n```sh\ncat a\n```\n<!-- output -->\n```\n1\n```\n"
        "- item\n\n  ```python\n  x = 1\n  ```\n"
    )
    first, second, output, python = snippets_of(text)
    assert (first.marks, first.is_run) == ({"not run": "a cluster"}, False)
    assert (second.marks, second.is_run, second.line) == ({"before": "echo 1 > a"}, True, 8)
    assert (output.marks, output.is_run) == ({"output": ""}, False)
    assert (python.text, python.marks) == ("x = 1\n", {})


def test_a_reader_runs_types_and_compares(tmp_path: Path) -> None:
    page = ROOT / "README.md"
    reader = Reader(page, tmp_path)
    shell, wrong, python, output = snippets_of(
        "<!-- before: echo 7 > a -->\n```sh\ncat a\n```\n```sh\nfalse\ntrue\n```\n"
        "```python\nx = 1 / 0\n```\n<!-- output -->\n```\n7\n...\n8  9\n7...\n6...\n```\n"
    )
    reader.follow(shell)
    assert reader.misses(output) == ["6", "8 9"]
    with pytest.raises(AssertionError, match=r"README\.md:5: exit code 1"):
        reader.follow(wrong)
    with pytest.raises(ZeroDivisionError) as error:
        reader.follow(python)
    assert (error.traceback[-1].lineno + 1, str(error.traceback[-1].path)) == (10, str(page))

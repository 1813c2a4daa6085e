"""Every command and every program on a page runs, or says why it cannot."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.docs.snippets import (
    PAGES,
    PYTHON,
    SHELL,
    Reader,
    Snippet,
    hurried,
    snippets_of,
)
from tests.paths import ROOT

LANGUAGES = {SHELL, PYTHON, "json", "toml", "latex", ""}
COMMAND = re.compile(r"^\s*(?:ppsolve|python|pip|mkdocs) ", re.MULTILINE)
CUT = re.compile(r"\w~(?:\s|$)|\bleft out: |…")
"""What tables say of cells and columns for which there was no room."""
TEXTS = [
    pytest.param(path, id=str(path.relative_to(ROOT)))
    for path in PAGES
    if "```" in path.read_text(encoding="utf-8")
]

JOURNEY = (
    "docs/index.md",
    "docs/how-to/uneven-stages.md",
    "docs/how-to/memory.md",
    "docs/how-to/pytorch.md",
)
INSTALL = (
    "python3 -m venv .venv && . .venv/bin/activate && pip install -c constraints.txt ."
)
LAST = ["python examples/closed_loop.py loop/", "ppsolve diagnose loop/run -t 10"]
"""What the first pages show and the test does not run: before everything else, and behind it."""
TYPED = [
    "ppsolve optimize instances/memory_scan/scan-4x8-6.json -o result.json",
    "ppsolve show result.json",
    "ppsolve report result.json -o report.html",
    "ppsolve generate --devices 4 --microbatches 8 --forward 100,90,90,140 --backward-input 95 "
    "--backward-weight 60 --p2p 5 --capacity 1p -o mine.json",
    "ppsolve optimize mine.json --time-limit 20",
    "ppsolve optimize uneven.json --time-limit 20 -o result.json",
    "ppsolve show result.json",
    "ppsolve optimize uneven.json --placements linear,vshape -t 20",
    "ppsolve curve uneven.json --capacity 2:8 -t 30",
    "ppsolve optimize recorded.json -o best.json",
    "ppsolve optimize free.json --time-limit 20 -o result.json",
    "ppsolve show free.json result.json",
    "ppsolve curve free.json --capacity 15,20,25,30 --time-limit 20 --chart price.svg",
    "ppsolve optimize mine.json --for torch -t 10 -o result.json",
    "ppsolve optimize mine.json --for megatron -t 10",
    "ppsolve export result.json --to torch -o order.csv",
    "head -c 120 order.csv",
    "ppsolve check mine.json order.csv",
]


def commands(snippets: list[Snippet]) -> list[str]:
    """Return what is typed, a command a line, without comments."""
    text = "".join(one.text for one in snippets if one.language == SHELL)
    lines = re.sub(r"\\\n", "", text).splitlines()
    return [" ".join(re.sub(r"\s#.*", "", line).split()) for line in lines]


@pytest.mark.docs
@pytest.mark.parametrize("page", TEXTS)
def test_a_reader_can_follow_the_page(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    reader = Reader(page, tmp_path)
    snippets = snippets_of(page.read_text(encoding="utf-8"))
    compared = [n for n, snippet in enumerate(snippets) if "output" in snippet.marks]
    for number, snippet in enumerate(snippets):
        if "output" in snippet.marks:
            assert reader.misses(snippet) == [], (
                f"line {snippet.line}:\n{reader.printed}"
            )
        elif snippet.is_run and all(
            map(find_spec, snippet.marks.get("needs", "ppsolve").split())
        ):
            is_compared = number < max(compared, default=-1)
            reader.follow(snippet if is_compared else hurried(snippet))


@pytest.mark.parametrize("page", TEXTS)
def test_no_command_hides_in_another_block(page: Path) -> None:
    """Only blocks called `sh` and `python` are run, so commands may stand nowhere else."""
    text = page.read_text(encoding="utf-8")
    for snippet in snippets_of(text):
        assert snippet.language in LANGUAGES, f"line {snippet.line}"
        if snippet.language not in {SHELL, PYTHON}:
            assert COMMAND.search(snippet.text) is None, f"line {snippet.line}"
    assert (
        re.search(r"^    ppsolve ", re.sub(r"```.*?```", "", text, flags=re.S), re.M)
        is None
    )


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
    assert CUT.findall(
        "raise-comms   failed: severa~\n1 ~ 2 ~x\n  left out: rank (all)\nnam…"
    ) == [
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
    reader = Reader(ROOT / JOURNEY[0], tmp_path)
    snippets = [
        snippet
        for page in JOURNEY
        for snippet in snippets_of((ROOT / page).read_text(encoding="utf-8"))
    ]
    assert commands(snippets) == [INSTALL, *TYPED, *LAST]
    run = [
        Snippet(one.line, one.language, one.text, {}) for one in snippets if one.is_run
    ]
    assert commands(run) == TYPED
    for bare in run:
        reader.follow(hurried(bare))
    assert (tmp_path / "order.csv").read_text(encoding="utf-8").startswith("0F0,")


def test_the_two_commands_of_the_readme_are_the_first_one_and_that_of_a_fresh_clone() -> (
    None
):
    readme = snippets_of((ROOT / "README.md").read_text(encoding="utf-8"))
    start, test = (commands([one])[0] for one in readme if "not run" in one.marks)
    assert start.startswith(f"{INSTALL} && ppsolve optimize instances/")
    assert (
        f"({test})" in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    )


def test_marks_belong_to_the_block_behind_them() -> None:
    text = (
        "<!-- not run: a cluster -->\n```sh\nfalse\n```\n\n"
        "<!-- before: echo 1 > a -->\n\n```sh\ncat a\n```\n<!-- output -->\n```\n1\n```\n"
        "- item\n\n  ```python\n  x = 1\n  ```\n"
    )
    first, second, output, python = snippets_of(text)
    assert (first.marks, first.is_run) == ({"not run": "a cluster"}, False)
    assert (second.marks, second.is_run, second.line) == (
        {"before": "echo 1 > a"},
        True,
        8,
    )
    assert (output.marks, output.is_run) == ({"output": ""}, False)
    assert (python.text, python.marks) == ("x = 1\n", {})


def test_a_hurried_block_has_no_long_limit() -> None:
    text = "a -t 20 b\na --time-limit 1\nb -t 0.5\nc(time_limit=60)\n"
    short = "a -t 5 b\na --time-limit 1\nb -t 0.5\nc(time_limit=5)\n"
    assert hurried(Snippet(1, SHELL, text, {})).text == short


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
    assert (error.traceback[-1].lineno + 1, str(error.traceback[-1].path)) == (
        10,
        str(page),
    )

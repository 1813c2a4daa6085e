"""Pages of the repository that lie outside `docs/`, as pages of the site."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

OUTER = {
    "ARCHITECTURE.md": "project/ARCHITECTURE.md",
    "CONTRIBUTING.md": "project/CONTRIBUTING.md",
    "CHANGELOG.md": "project/CHANGELOG.md",
    "examples/README.md": "project/examples.md",
    "instances/README.md": "project/instances.md",
    "tests/README.md": "project/tests.md",
    "benchmarks/README.md": "project/benchmarks.md",
}
"""Where each page of the repository stands among the sources of the site."""

UNSHOWN = "docs/making/"
"""The site leaves out what makes it, and the log of experiments."""

HOME = {"README.md": "docs/index.md"}
"""The site begins with a page of its own, so links to the README lead there."""

LINK = re.compile(r"(?<!\\)(\]\()([^)#\s]*)(#[^)\s]*)?(\))")
REMOTE = re.compile(r"^[a-z]+:")


def site_place(path: str) -> str | None:
    """Return where a file of the repository stands among the sources of the site.

    Returns
    -------
    str or None
        A path below `docs/`; None for files that are no part of the site.
    """
    path = HOME.get(path, path)
    if path.startswith(UNSHOWN):
        return None
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return OUTER.get(path) or OUTER.get(posixpath.join(path, "README.md"))


def with_site_links(text: str, path: str) -> str:
    """Return a page with its links as they are among the sources of the site.

    Links to files that are no part of the site, such as scripts, become their names as code.

    Parameters
    ----------
    text : str
        The page, in Markdown.
    path : str
        Where it stands in the repository; links are relative to its folder.

    Returns
    -------
    str
        The page, its links relative to its place on the site.
    """
    folder, place = posixpath.dirname(path), site_place(path)
    assert place is not None, path

    def moved(found: re.Match[str]) -> str:
        target, anchor = found[2], found[3] or ""
        if not target or REMOTE.match(target):
            return found[0]
        goal = posixpath.normpath(posixpath.join(folder, target))
        there = site_place(goal)
        if there is None:
            return f"] (`{goal}`)"
        return f"]({posixpath.relpath(there, posixpath.dirname(place) or '.')}{anchor})"

    unlinked = LINK.sub(moved, text)
    return re.sub(r"\[([^\]]*)\] \((`[^`]*`)\)", _named, unlinked)


def _named(found: re.Match[str]) -> str:
    """Return the words of a link and its goal, the goal alone where both say the same."""
    words, goal = found[1], found[2]
    return goal if words.strip("`") in goal else f"{words} ({goal})"


def outer_pages() -> dict[str, str]:
    """Return the pages outside `docs/`: place on the site, and text with links of the site."""
    return {
        place: with_site_links((ROOT / path).read_text(encoding="utf-8"), path)
        for path, place in OUTER.items()
    }

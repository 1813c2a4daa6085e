"""Pages stay short: what the site shows and users search has a limit of words.

Tables to look up (`docs/data`), the log of experiments (`docs/making`) and comments of pages, which
readers do not see, do not count. A word has a letter or a digit, so bars of tables are none.
"""

from __future__ import annotations

import re

from tests.paths import ROOT

LIMIT = 30_000
UNCOUNTED = {"data", "making"}
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)


def words(text: str) -> int:
    parts = COMMENT.sub("", text).split()
    return sum(any(map(str.isalnum, part)) for part in parts)


def test_bars_and_comments_are_no_words() -> None:
    assert words("| a | `b c` |\n| --- | --- |\n<!-- not run: d -->\n- e 1\n") == 5


def test_pages_have_at_most_so_many_words() -> None:
    docs = ROOT / "docs"
    counts = {
        str(page.relative_to(docs)): words(page.read_text(encoding="utf-8"))
        for page in docs.rglob("*.md")
        if page.relative_to(docs).parts[0] not in UNCOUNTED
    }
    longest = sorted(counts.items(), key=lambda entry: -entry[1])[:5]
    assert sum(counts.values()) <= LIMIT, f"the longest pages: {longest}"

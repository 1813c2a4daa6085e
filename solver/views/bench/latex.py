"""A report for papers: tables in LaTeX (booktabs), performance profiles as CSV for pgfplots."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from ppsolve.models.documents.printable import printable
from ppsolve.solver.studies.bench.report.report import Report
from ppsolve.solver.views.bench.sections import FOOTER, about, sections, with_profiles
from ppsolve.solver.views.figures import ABSENT
from ppsolve.solver.views.tables import TableColumn

_WORDS = {"\\": "backslash", "~": "asciitilde", "^": "asciicircum", "<": "less", ">": "greater"}
_ESCAPES = {one: rf"\text{word}{{}}" for one, word in {**_WORDS, "|": "bar"}.items()}
_ESCAPES |= {one: rf"\{one}" for one in "&%$#_{}"} | {'"': "''"}
_ESCAPES |= {one: f"{{{one}}}" for one in "[]*"}  # behind the end of a row they are options of it
_TABLE = str.maketrans(_ESCAPES)


def latex_report(report: Report) -> str:
    """Return the tables that compare families or methods, for papers that load booktabs.

    They have the columns of names and figures that the narrowest terminal shows.
    """
    chosen = []
    for section in sections(report):
        columns = section.sheet.columns if section.sheet is not None else []
        kept = [c for n, c in enumerate(columns) if n == 0 or not (c.is_text or c.expendable)]
        if len(kept) > 2 and not section.is_alarm:
            chosen.append((section, kept))
    lines = [f"% {line}" for line in (r"\usepackage{booktabs}", *FOOTER)]
    labels = plain_names(section.title.lower() for section, _ in chosen)
    for (section, columns), label in zip(chosen, labels, strict=True):
        what = f"{section.title}: {about(report, section.family)}."
        lines += ["", *_table(" ".join((what, *section.notes[-1:])), label, columns)]
    return "\n".join(lines) + "\n"


def _table(caption: str, label: str, columns: Sequence[TableColumn]) -> Iterator[str]:
    yield r"\begin{table}"
    yield r"  \centering"
    yield rf"  \caption{{{_escaped(caption)}}}"
    yield rf"  \label{{tab:{label}}}"
    yield rf"  \begin{{tabular}}{{l{'r' * (len(columns) - 1)}}}"
    rows = zip(*((column.title, *(column.cells or ())) for column in columns), strict=True)
    lines = [rf"    {' & '.join(map(_escaped, row))} \\" for row in rows]
    yield from (r"    \toprule", lines[0], r"    \midrule", *lines[1:], r"    \bottomrule")
    yield from (r"  \end{tabular}", r"\end{table}")


def _escaped(text: str) -> str:
    return "--" if text == ABSENT else printable(text).translate(_TABLE)


def profiles_csv(report: Report) -> str:
    """Return the profiles over all families as CSV: a ratio, and the share of each method there.

    Names of columns need no escape in pgfplots. Each line is a step of some profile.
    """
    chosen = with_profiles(report.every)
    ratios = sorted({1.0, *(ratio for profile in chosen for ratio, _ in profile.steps)})
    lines = [",".join(plain_names(["ratio", *(profile.method.name for profile in chosen)]))]
    for ratio in ratios:
        shares = (f"{profile.share(ratio - 1):.6g}" for profile in chosen)
        lines.append(",".join((f"{ratio:.9g}", *shares)))
    return "\n".join(lines) + "\n"


def plain_names(names: Iterable[str]) -> Iterator[str]:
    """Yield names as ASCII letters, digits, dots and hyphens, no two of them equal."""
    taken: list[str] = []
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9.-]+", "-", name).strip("-.")[:80].strip("-.")
        taken.append(plain.lower())
        yield plain + "-" * (taken.count(plain.lower()) - 1)

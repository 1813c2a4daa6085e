"""A report for papers: tables in LaTeX (booktabs), performance profiles as CSV for pgfplots."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ppsolve.models.documents.printable import printable
from ppsolve.solver.studies.bench.report.report import Report
from ppsolve.solver.views.bench.sections import (
    FOOTER,
    Section,
    about,
    sections,
    with_profiles,
)
from ppsolve.solver.views.tables import TableColumn

_WORDS = {
    "\\": "backslash",
    "~": "asciitilde",
    "^": "asciicircum",
    "<": "less",
    ">": "greater",
}
_ESCAPES: dict[str, str | int | None] = {
    one: rf"\text{_WORDS[one]}{{}}" for one in _WORDS
}
_ESCAPES |= {one: rf"\{one}" for one in "&%$#_{}"} | {"|": r"\textbar{}", '"': "''"}
_ESCAPES |= {
    one: f"{{{one}}}" for one in "[]*"
}  # behind the end of a row they are options of it


def latex_report(report: Report) -> str:
    """Return the tables that compare families or methods, for papers that load booktabs.

    They have the names and every column of figures, whatever the width of the terminal.
    """
    tables = [
        (section, columns)
        for section in sections(report)
        if len(columns := _columns(section)) > 2
    ]
    labels = plain_names(section.title.lower() for section, _ in tables)
    lines = [f"% {line}" for line in (r"\usepackage{booktabs}", *FOOTER)]
    for (section, columns), label in zip(tables, labels, strict=True):
        caption = f"{section.title}: {about(report, section.family)}."
        rows = zip(
            *((column.title, *(column.cells or ())) for column in columns), strict=True
        )
        head, *body = (rf"{' & '.join(map(_escaped, row))} \\" for row in rows)
        lines += [
            "", r"\begin{table}", r"\centering\small",
            rf"\caption{{{_escaped(' '.join((caption, *section.notes[-1:])))}}}",
            rf"\label{{tab:{label}}}", rf"\begin{{tabular}}{{l{'r' * (len(columns) - 1)}}}",
            r"\toprule", head, r"\midrule", *body, r"\bottomrule", r"\end{tabular}", r"\end{table}",
        ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _columns(section: Section) -> list[TableColumn]:
    columns = section.sheet.columns if section.sheet is not None else []
    return [column for column in columns if column is columns[0] or not column.is_text]


def _escaped(text: str) -> str:
    return printable(text).translate(str.maketrans(_ESCAPES))


def profiles_csv(report: Report) -> str:
    """Return the profiles over all families as CSV: a ratio, and the share of each method there.

    Names of columns need no escape in pgfplots. Each line is a step of some profile.
    """
    profiles = with_profiles(report.every)
    rows = [[*plain_names(["ratio", *(profile.method.name for profile in profiles)])]]
    for ratio in sorted(
        {1.0, *(ratio for profile in profiles for ratio, _ in profile.steps)}
    ):
        shares = (f"{profile.share(ratio - 1):.6g}" for profile in profiles)
        rows.append([f"{ratio:.9g}", *shares])
    return "".join(f"{','.join(row)}\n" for row in rows)


def methods_csv(report: Report) -> str:
    """Return methods by families as CSV: mean share above the best value, infeasible, n.a."""
    families = {family.total.family: family.methods for family in report.families}
    parts = ("mean", "infeasible", "not-applicable")
    heads = [f"{name}-{part}" for name in families for part in parts]
    lines = [[*plain_names(["method", *heads])]]
    for total in report.every.methods:
        line = [*plain_names([total.method.name])]
        for methods in families.values():
            row = next((r for r in methods if r.method == total.method), None)
            mean = None if row is None else row.excess.mean
            counts = ("", "") if row is None else (row.infeasible, row.not_applicable)
            line += ["" if mean is None else f"{mean:.6g}", *map(str, counts)]
        lines.append(line)
    return "".join(f"{','.join(line)}\n" for line in lines)


def plain_names(names: Iterable[str]) -> Iterator[str]:
    """Yield names as ASCII letters, digits, dots and hyphens, no two of them equal."""
    seen: list[str] = []
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9.-]+", "-", name).strip("-.")[:80].strip("-.")
        seen.append(plain.lower())
        yield plain + "-" * (seen.count(plain.lower()) - 1)

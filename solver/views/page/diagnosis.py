"""The verdict on a recorded run as a page, with a recorded step."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from ppsolve.solver.studies.traces.diagnosis.verdict import Diagnosis
from ppsolve.solver.views.diagnosis import diagnosis_report
from ppsolve.solver.views.page.document import page
from ppsolve.solver.views.page.schedules import PageSchedule

NOTHING = "Nothing."


def diagnosis_page(
    found: Diagnosis,
    shown: Sequence[PageSchedule],
    warnings: Sequence[str],
    commands: Sequence[str],
) -> str:
    """Return the verdict as a page that loads nothing.

    `shown`: recorded steps to draw below it.
    `warnings`, `commands`: what was noticed on reading, and what to run next.
    """
    head: list[tuple[str, RenderableType]] = [
        ("Verdict", diagnosis_report(found)),
        ("Next", Group(*(Text(line, "code") for line in commands or [NOTHING]))),
        ("Noticed", Group(*map(Text, warnings or [NOTHING]))),
    ]
    return page(shown, head=head, title="Diagnosis of a recorded run")

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
    diagnosis: Diagnosis,
    schedules: Sequence[PageSchedule],
    warnings: Sequence[str],
    commands: Sequence[str],
) -> str:
    """Return the verdict as a page that loads nothing, with recorded schedules below it.

    It also tells the warnings on reading, and the commands to run next.
    """
    head: list[tuple[str, RenderableType]] = [
        ("Verdict", diagnosis_report(diagnosis)),
        ("Next", Group(*(Text(line, "code") for line in commands or [NOTHING]))),
        ("Noticed", Group(*map(Text, warnings or [NOTHING]))),
    ]
    return page(schedules, head=head, title="Diagnosis of a recorded run")

"""``ppsolve report``: results as one HTML page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

from rich.console import RenderableType

from ppsolve.models.documents.base import validated
from ppsolve.models.documents.contents import RESULT, kind_named, refuse_others
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.documents.files import read_json, source_name
from ppsolve.models.studies.plan.result import Plan
from ppsolve.models.studies.what_if import WhatIf
from ppsolve.solver.api.kinds import CARRIED, is_result, refuse_huge_numbers
from ppsolve.solver.cli.options import argument, value
from ppsolve.solver.cli.output import check_writable, save
from ppsolve.solver.views.page.document import page
from ppsolve.solver.views.page.schedules import PageSchedule, read_shown
from ppsolve.solver.views.plan import plan_report
from ppsolve.solver.views.what_if import what_if_section


def report_command(
    files: Annotated[
        list[Path], argument("RESULT...", "Results, plans or what-ifs (JSON).")
    ],
    output: Annotated[
        Path, value("FILE", "Page to write; - is stdout.", "--output", "-o")
    ],
    heuristic: Annotated[
        list[str] | None,
        value("NAME", "Also show this heuristic of each result; repeatable."),
    ] = None,
) -> None:
    """Show results as one HTML page that works without a network.

    Schedules stand one below the other on one time axis: zoom, hover and click to see what each op
    waited for. `--heuristic 1f1b` puts a heuristic of the result beside its best schedule. Tables
    of bounds, heuristics, idle time and memory are there without any script.
    """
    check_writable(output, *files)
    schedules: list[PageSchedule] = []
    studies: list[tuple[str, RenderableType]] = []
    for file in files:
        data, source = read_json(file), source_name(file)
        kind = kind_named(data)
        if kind == "plan-result":
            plan = validated(Plan, data, source)
            studies.append((plan.request, plan_report(plan, verbose=True)))
            schedules += _winner(data, source, heuristic or [])
        elif kind == "what-if":
            refuse_huge_numbers(data, source)
            studies.append(what_if_section(validated(WhatIf, data, source)))
        else:
            _expect_result(data, source)
            schedules += read_shown(data, source, heuristic or [])
    text = page(schedules, studies)
    if str(output) == "-":
        sys.stdout.write(text)
    else:
        save(output, text)


def _expect_result(data: Any, source: str) -> None:
    if is_result(data):
        if data.get(CARRIED) is None:
            text = "it carries no instance; expected a result, as `ppsolve optimize -o FILE` writes"
            raise InputError(text, source=source, code=ErrorCode.MISSING)
        return
    refuse_others(data, "a result", RESULT, source)
    raise InputError(
        "expected a result, a plan or a what-if", source=source, code=ErrorCode.TYPE
    )


def _winner(
    data: dict[str, Any], source: str, heuristics: list[str]
) -> list[PageSchedule]:
    if data.get("instance") is None or data.get("result") is None:
        return []
    carried = {**data["result"], CARRIED: data["instance"]}
    return read_shown(carried, f"{source}: result", heuristics)

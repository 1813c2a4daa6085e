"""Two levels: programs of fused blocks are solved first, then the pipeline with their times.

The optimum of a pipeline does not fall where blocks take longer. So the best times that are known
give a schedule, and the proved bounds of the programs give a bound of both levels together.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ppsolve.models.core.result import Result, Status
from ppsolve.models.documents.errors import InputError, errors_in
from ppsolve.models.documents.files import read_json, source_name
from ppsolve.models.instances import Instance
from ppsolve.models.kinds.pipeline.overlap_blocks import PROGRAMS
from ppsolve.solver.clock import Clock
from ppsolve.solver.kinds.pipeline.kind import PIPELINE

PROGRAM_SHARE = 0.25
"""Share of the time for all programs of blocks together."""


def programs_in(instance: Any) -> dict[str, Instance]:
    """Return the programs of an instance whose times are open, by name."""
    blocks = getattr(instance, "overlap", None)
    return {} if blocks is None else dict(blocks.programs)


def solve_programs(
    instance: Any, solve: Callable[[Instance, Clock], Result], clock: Clock
) -> tuple[Any, dict[str, Result]]:
    """Solve the programs of the blocks of a pipeline.

    Parameters
    ----------
    instance : Instance
    solve : callable
        Solves an instance by a clock.
    clock : Clock
        Clock of the call.

    Returns
    -------
    Instance, dict of str to Result
        The pipeline with times; the result of each program, without its heuristics.

    Raises
    ------
    InputError
        No order of a program was found, or it takes no time.
    """
    programs, found = programs_in(instance), {}
    for name, program in programs.items():
        result = solve(program, clock.share(PROGRAM_SHARE / len(programs)))
        if not result.value:
            text = f"expected a program that has an order and takes time ({result.status})"
            raise InputError(text, source=instance.name, field=f"overlap.{PROGRAMS}.{name}")
        found[name] = result.model_copy(update={"heuristics": (), "steps": ()})
    if not found:
        return instance, found
    return _timed(instance, {name: result.value for name, result in found.items()}), found


def _timed(instance: Any, times: dict[str, Any]) -> Any:
    return instance.model_copy(update={"overlap": instance.overlap.with_times(times)})


def of_both_levels(instance: Any, result: Result, programs: dict[str, Result]) -> Result:
    """Return the result of a pipeline with those of its programs, and a bound of both.

    Parameters
    ----------
    instance : Instance
        The pipeline, its programs open.
    result : Result
        Of the pipeline with their values as times.
    programs : dict of str to Result

    Returns
    -------
    Result
        Where a program is not proved, its bound is the time for the analytic bounds.
    """
    update: dict[str, Any] = {PROGRAMS: programs}
    if result.bound is not None and any(p.status is not Status.OPTIMAL for p in programs.values()):
        least = _timed(instance, {name: each.bound for name, each in programs.items()})
        task = PIPELINE.task(least)
        task.find_bounds()
        bound = min(result.bound, task.shown(task.board.bound.value))
        if bound < result.bound:
            value = result.value
            update |= {"bound": bound, "bound_by": task.board.bound.name, "bound_verified": None}
            update["gap"] = None if value is None else (value - bound) / value
            if result.status is Status.OPTIMAL:
                update["status"] = Status.FEASIBLE
    return result.model_copy(update=update)


def read_with_programs(path: str | Path) -> Any:
    """Read JSON (``-``: standard input) with the programs of blocks that it names as files.

    Parameters
    ----------
    path : str or Path
        File of an instance or of a result; files of programs are beside it.

    Returns
    -------
    object
        Parsed JSON.

    Raises
    ------
    InputError
        A file cannot be read, or that of a program is elsewhere.
    """
    with errors_in(source_name(path)):
        data = read_json(path)
        blocks = data.get("overlap") if isinstance(data, dict) else None
        programs = blocks.get(PROGRAMS) if isinstance(blocks, dict) else None
        if not isinstance(blocks, dict) or not isinstance(programs, dict):
            return data
        read = {}
        for name, program in programs.items():
            if isinstance(program, str) and Path(program).name != program:
                text = "expected a program, or the name of a file in the same folder"
                raise InputError(text, field=f"overlap.{PROGRAMS}.{name}")
            beside = Path(path).parent
            read[name] = read_json(beside / program) if isinstance(program, str) else program
        return {**data, "overlap": {**blocks, PROGRAMS: read}}

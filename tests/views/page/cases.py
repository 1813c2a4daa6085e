"""Schedules on pages: tiny ones made by hand, shipped ones by a heuristic that takes no search."""

from __future__ import annotations

import ppsolve
from ppsolve.models.core.metrics import measure
from ppsolve.models.core.result import Result, Status, StopReason, Versions
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.instances import Instance
from ppsolve.solver.api.kinds import kind_of, lower
from ppsolve.solver.views.page.schedules import PageSchedule
from tests.paths import ROOT
from tests.small import at, op, small


def two_streams() -> Schedule:
    """``b`` waits for ``a`` and a latency of 1, ``c`` for ``b``; ``d`` fills a gap.

    x: a a . . . . c c
    y: d . . b b b . .
    """
    ops = [op("a", 2, "x"), op("b", 3, "y"), op("c", 2, "x"), op("d", 1, "y")]
    problem = small(ops, [("a", "b", 1), ("b", "c")])
    return at(problem, 0, 3, 6, 0)


def result_of(instance: Instance, schedule: Schedule) -> Result:
    """Return a result that says of a schedule only what every result says."""
    time = schedule.problem.scale.time
    model = kind_of(instance).documents(instance.time_unit)[0]
    return model(
        instance=instance.name,
        kind=instance.kind,
        status=Status.FEASIBLE,
        objective=schedule.problem.objective,
        time_unit=instance.time_unit,
        value=time(schedule.value),
        makespan=time(schedule.makespan),
        bubble_ratio=measure(schedule).bubble_ratio,
        bound=time(schedule.makespan * 9 // 10),
        stop_reason=StopReason.TIME,
        wall_seconds=0,
        versions=Versions(ppsolve="0", python="3"),
    )


def shown_of(instance: Instance, heuristic: str) -> PageSchedule:
    """Return what a heuristic makes of an instance as a schedule of a page."""
    kind, problem = kind_of(instance), lower(instance)
    entry = ppsolve.simulate(instance, heuristic).model_dump(mode="json")
    schedule = kind.read(instance, problem, entry)[0]
    assert schedule is not None
    return PageSchedule(heuristic, instance, result_of(instance, schedule), schedule)


def shipped(name: str, heuristic: str = "list-tail") -> PageSchedule:
    """Return what a heuristic makes of a shipped instance."""
    return shown_of(
        ppsolve.load_instance(ROOT / "instances" / f"{name}.json"), heuristic
    )


def pipeline(name: str = "tiny", **fields: object) -> ppsolve.PipelineInstance:
    data = {
        "num_devices": 2,
        "num_microbatches": 3,
        "times": {"forward": 10, "backward": 20},
    }
    return ppsolve.PipelineInstance(name=name, **{**data, **fields})

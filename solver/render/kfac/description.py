"""A K-FAC instance in short: its pipeline, its bubbles, and the work to hide in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from ppsolve.models.core.problem import Problem
from ppsolve.models.kfac.instance import FREE_PIPELINE, KfacInstance, TieBreak
from ppsolve.models.kfac.op_kinds import KIND_OF, PRECONDITION_KIND
from ppsolve.models.kfac.pattern import DevicePattern, RefreshPattern
from ppsolve.solver.render.drawing import HINT
from ppsolve.solver.render.figures import ABSENT, figure, percent
from ppsolve.solver.render.tables import Column, FittingTable, facts, indented
from ppsolve.solver.render.wording import ITERATIONS, with_unit


def describe_refresh(instance: KfacInstance, pattern: RefreshPattern) -> RenderableType:
    """Return what a refresh around a pinned pipeline consists of."""
    return Group(
        Text(f"{instance.name}: a kfac instance, refresh around a pinned pipeline", "bold"),
        facts(_refresh(instance, pattern)),
        Text(),
        indented(_devices(pattern)),
        Text(),
        HINT,
    )


def _refresh(instance: KfacInstance, pattern: RefreshPattern) -> Iterator[tuple[str, str]]:
    time, unit = pattern.scale.time, pattern.scale.unit
    measured = instance.timelines is not None
    yield "pipeline", "measured timelines" if measured else f"described, run as {instance.pattern}"
    yield "devices", str(len(pattern.devices))
    yield "micro-batches", _range(_microbatches(device) for device in pattern.devices)
    yield "iteration", f"{figure(time(pattern.period))} {unit}"
    yield "modules", f"{_range(_modules(device) for device in pattern.devices)} per device"
    yield "margin", _margin(instance)
    yield "replicas", _replicas(pattern)
    yield "objective", f"fewest iterations, {_interval(instance)}"
    if instance.tie_break is not TieBreak.NONE:
        yield "then", f"least {instance.tie_break.value}"
    if pattern.saved:
        yield "saved tensors", f"capacity {_range(float(s.capacity) for s in pattern.saved)}"


def _margin(instance: KfacInstance) -> str:
    return f"{100 * float(instance.margin_ratio):.4g} % of an op's length stays free after it"


def _interval(instance: KfacInstance) -> str:
    most = instance.refresh_interval
    return "without a limit" if most is None else f"at most {most}"


def _microbatches(device: DevicePattern) -> int:
    return sum(op.kind == "forward" for op in device.ops)


def _modules(device: DevicePattern) -> int:
    return len({work.label.module for work in device.work})


def _range(values: Iterable[float]) -> str:
    found = list(values)
    low, high = min(found), max(found)
    return figure(low) if low == high else f"{figure(low)} to {figure(high)}"


def _replicas(pattern: RefreshPattern) -> str:
    groups = {work.participants for device in pattern.devices for work in device.work}
    shared = sorted(group for group in groups if len(group) > 1)
    if not shared:
        return "none, every device syncs alone"
    named = (" and ".join(map(str, group)) for group in shared)
    return f"syncs meet on devices {'; '.join(named)}"


def _devices(pattern: RefreshPattern) -> FittingTable:
    time, unit = pattern.scale.time, pattern.scale.unit
    table = FittingTable(
        Column("device"),
        Column(f"pipeline\n({unit})", expendable=1),
        Column(f"bubbles\n({unit})"),
        Column(f"K-FAC work\n({unit})"),
        Column("work per\nbubbles"),
        Column("modules", expendable=2),
        Column("forwards", expendable=3),
    )
    for device in pattern.devices:
        pipeline = sum(op.end - op.start for op in device.ops)
        bubbles, work = pattern.period - pipeline, _work(device, pattern)
        table.add_row(
            str(device.device),
            figure(time(pipeline)),
            figure(time(bubbles)),
            figure(time(work)),
            f"{work / bubbles:.2f}" if bubbles > 0 else ABSENT,
            str(_modules(device)),
            str(_microbatches(device)),
        )
    return table


def _work(device: DevicePattern, pattern: RefreshPattern) -> int:
    """Return the K-FAC work that the device itself does: syncs may have streams of their own."""
    return sum(
        work.parts * work.length
        for work in device.work
        if pattern.syncs_in_holes or work.label.kind != "sync"
    )


def cycle_facts(instance: KfacInstance) -> Iterator[tuple[str, str]]:
    """Yield names and values of a refresh cycle that are not those of its pipeline."""
    free = instance.pattern == FREE_PIPELINE
    yield "pattern", "free" if free else f"pinned as {instance.pattern} runs it"
    yield "refresh cycle", with_unit(str(instance.cycle_length), ITERATIONS)
    yield "modules", figure(len(instance.modules or ()))
    if instance.max_age is not None:
        age = with_unit(str(instance.max_age), ITERATIONS)
        yield "inverses", f"used at most {age} after their curvature"
    named = sorted({module.replicas for module in instance.modules or () if module.replicas})
    if named:
        yield "replicas", "; ".join("devices " + " and ".join(map(str, group)) for group in named)
    if not free:
        yield "margin", _margin(instance)


def cycle_devices(problem: Problem) -> FittingTable:
    """Return the table of what each device does in a refresh cycle."""
    work = {
        "curvature": (KIND_OF["cov", "A"], KIND_OF["cov", "B"]),
        "inversion": (KIND_OF["inv", "A"], KIND_OF["inv", "B"]),
        "precondition": (PRECONDITION_KIND,),
    }
    known = [kind for kinds in work.values() for kind in kinds]
    groups = {"pipeline": tuple(k for k in problem.kinds if k not in known), **work}
    unit = problem.scale.unit
    heads = (Column(f"{head}\n({unit})", expendable=1) for head in groups)
    table = FittingTable(Column("device"), *heads, Column("K-FAC share"))
    for resource in problem.span_resources.tolist():
        ops = problem.ops_by_resource[resource]
        mine = np.isin(np.arange(problem.num_ops), ops)
        sums = {
            head: int(problem.duration[mine & problem.kind_mask(*kinds)].sum())
            for head, kinds in groups.items()
        }
        total = sum(sums.values())
        share = (total - sums["pipeline"]) / total if total else None
        cells = (figure(problem.scale.time(ticks)) for ticks in sums.values())
        table.add_row(problem.resource_names[resource].split()[-1], *cells, percent(share))
    return table

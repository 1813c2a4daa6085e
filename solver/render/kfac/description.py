"""A K-FAC instance in short: its pipeline, its bubbles, and the work to hide in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from rich.console import RenderableType

from ppsolve.models.core.problem import Problem
from ppsolve.models.kfac.instance import FREE_PIPELINE, KfacInstance, TieBreak
from ppsolve.models.kfac.labels import KIND_OF, PRECONDITION_KIND
from ppsolve.models.kfac.pattern import DevicePattern, RefreshPattern
from ppsolve.solver.render.drawing import described
from ppsolve.solver.render.figures import ABSENT, figure, percent
from ppsolve.solver.render.tables import TableColumn, indented, table
from ppsolve.solver.render.wording import ITERATIONS, with_unit


def describe_refresh(instance: KfacInstance, pattern: RefreshPattern) -> RenderableType:
    """Return a refresh around a pinned pipeline in short.

    Parameters
    ----------
    instance : KfacInstance
        The instance.
    pattern : RefreshPattern
        Its pipeline and its work, device by device.

    Returns
    -------
    RenderableType
        Title, facts and the table of devices.
    """
    what = "a kfac instance, refresh around a pinned pipeline"
    return described(instance, list(_refresh(instance, pattern)), what, _devices(pattern))


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


def _devices(pattern: RefreshPattern) -> RenderableType:
    time, unit, devices = pattern.scale.time, pattern.scale.unit, pattern.devices
    pipeline = [sum(op.end - op.start for op in device.ops) for device in devices]
    bubbles = [pattern.period - ticks for ticks in pipeline]
    work = [_work(device, pattern) for device in devices]
    found = table(
        TableColumn("device", [str(device.device) for device in devices]),
        TableColumn(f"pipeline\n({unit})", [figure(time(t)) for t in pipeline], expendable=1),
        TableColumn(f"bubbles\n({unit})", [figure(time(t)) for t in bubbles]),
        TableColumn(f"K-FAC work\n({unit})", [figure(time(t)) for t in work]),
        TableColumn(
            "work per\nbubbles",
            [f"{w / b:.2f}" if b > 0 else ABSENT for w, b in zip(work, bubbles, strict=True)],
        ),
        TableColumn("modules", [str(_modules(device)) for device in devices], expendable=2),
        TableColumn("forwards", [str(_microbatches(device)) for device in devices], expendable=3),
    )
    return indented(found)


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


def cycle_devices(problem: Problem) -> RenderableType:
    """Return the table of what each device does in a refresh cycle."""
    groups = {
        "curvature": (KIND_OF["cov", "A"], KIND_OF["cov", "B"]),
        "inversion": (KIND_OF["inv", "A"], KIND_OF["inv", "B"]),
        "precondition": (PRECONDITION_KIND,),
    }
    work = {head: _busy(problem, kinds) for head, kinds in groups.items()}
    totals = _busy(problem, problem.kinds)
    extra = [sum(sums) for sums in zip(*work.values(), strict=True)]
    pipeline = [total - more for total, more in zip(totals, extra, strict=True)]
    names = (problem.resource_names[device] for device in problem.span_resources.tolist())
    found = table(
        TableColumn("device", [name.split()[-1] for name in names]),
        *(
            TableColumn(
                f"{head}\n({problem.scale.unit})",
                [figure(problem.scale.time(ticks)) for ticks in sums],
                expendable=1,
            )
            for head, sums in {"pipeline": pipeline, **work}.items()
        ),
        TableColumn(
            "K-FAC share",
            [percent(w / t if t else None) for w, t in zip(extra, totals, strict=True)],
        ),
    )
    return indented(found)


def _busy(problem: Problem, kinds: Iterable[str]) -> list[int]:
    """Return for how long each device runs ops of some kinds, in ticks."""
    ticks = np.where(problem.kind_mask(*kinds), problem.duration, 0)
    devices = problem.span_resources.tolist()
    return [int(ticks[problem.ops_by_resource[device]].sum()) for device in devices]

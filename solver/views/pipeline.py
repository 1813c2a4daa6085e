"""How pipelines are drawn."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate, groupby
from typing import Any, cast

from rich.console import RenderableType

from ppsolve.models.core.result import HeuristicEntry, Result
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.instances import Instance
from ppsolve.models.kinds.pipeline.entries import decimals, entry_at, row_of
from ppsolve.models.kinds.pipeline.fields import ExplicitPlacement
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.modes import KEEP
from ppsolve.models.kinds.pipeline.replicas import PipelineResult
from ppsolve.solver.kinds.pipeline.claimed import RULE, as_claimed
from ppsolve.solver.views.drawing import Drawing, Facts
from ppsolve.solver.views.figures import (
    ABSENT,
    counted,
    figure,
    figures,
    percent,
    seconds,
)
from ppsolve.solver.views.schedule_view import ScheduleReport, ScheduleView
from ppsolve.solver.views.tables import FittingTable, TableColumn, indented


class PipelineDrawing(Drawing):
    """Pipelines have a shape: devices, stages, micro-batches."""

    def title(self, instance: Instance) -> str:
        """Return the name of a pipeline, its size and its placement."""
        return f"{instance.name}: {size_in_words(cast('PipelineInstance', instance))}"

    def shape(self, instance: Instance) -> Facts:
        """Yield devices, stages, micro-batches and how they are placed."""
        return pipeline_shape(cast("PipelineInstance", instance))

    def facts(self, result: Result, instance: Instance | None) -> Facts:
        """Yield the figures of a result, and what each stage does with its activations."""
        yield from super().facts(result, instance)
        pipeline = cast("PipelineInstance | None", instance)
        yield from _runtime(cast("PipelineResult", result))
        for name, program in (cast("PipelineResult", result).programs or {}).items():
            value, bound = figures(program.value, program.bound)
            yield (
                f"program {name}",
                f"{value} {program.time_unit}, bound {bound} ({program.status})",
            )
        yield from _modes(result, pipeline)
        yield from _origin(pipeline)

    def proof(self, result: Result) -> str:
        """Return the claim, which for a runtime is one about what the runtime runs."""
        from ppsolve.solver.kinds.pipeline.runtimes.families import family_of

        runtime = cast("PipelineResult", result).runtime
        words = "" if runtime is None else f" for {family_of(runtime.name).title}"
        return super().proof(result) + words

    def took(self, result: Result) -> str:
        """Return the time of the search, apart from the one for any schedule."""
        runtime = cast("PipelineResult", result).runtime
        if runtime is None or runtime.free_seconds is None:
            return super().took(result)
        own = seconds(result.wall_seconds - runtime.free_seconds)
        return f"{own}, then {seconds(runtime.free_seconds)} for any schedule"

    def view(self, view: ScheduleView) -> ScheduleReport:
        """Return the chart and the figures, with what each stage does with its activations."""
        report = super().view(view)
        modes = _modes(view.source, cast("PipelineInstance | None", view.instance))
        return replace(report, facts=[*report.facts, *modes])

    def parts(
        self, source: Result | HeuristicEntry, unit: str
    ) -> Iterator[RenderableType]:
        """Yield what ranks wait for, and what other modes of single stages would change."""
        runtime = getattr(source, RULE, None)
        if runtime is not None and runtime.waits is not None:
            yield indented(_waits_of_ranks(runtime.waits, unit))
        alternatives = getattr(source, "alternatives", None)
        if alternatives and isinstance(source, PipelineResult):
            yield indented(_what_modes_buy(source, unit))


def _origin(instance: PipelineInstance | None) -> Facts:
    if instance is not None and instance.plan is not None:
        decisions = "; ".join(words for _, words in instance.plan.decisions())
        yield "plan", f"{instance.plan.request}: {decisions}"


def _runtime(result: PipelineResult) -> Facts:
    runtime = result.runtime
    if runtime is None:
        return
    best = "any order" if runtime.orders is None else runtime.order or "no order fits"
    timed = "" if runtime.orders is None else f" ({runtime.orders} timed)"
    yield "runtime", f"{runtime.name}, {best}{timed}"
    if runtime.virtual_stages and len(runtime.virtual_stages) > 1:
        yield "virtual stages", _bounds_of_chunks(runtime.virtual_stages)
    if runtime.transfers is not None:
        yield "transfers", _worth_of_waits(runtime.transfers)
    if runtime.free_value is None:
        return
    value, bound = figures(runtime.free_value, runtime.free_bound)
    text = f"{value} {result.time_unit}, bound {bound}"
    if runtime.price is not None and result.value is not None:
        text += f"; the rules of {runtime.name} cost "
        if runtime.free_bound and runtime.free_bound < runtime.free_value:
            most = percent(result.value / runtime.free_bound - 1)
            text += f"at least {percent(runtime.price)} and at most {most}"
        else:
            text += percent(runtime.price)
    yield "any schedule", text


def _bounds_of_chunks(bounds: Mapping[int, Any]) -> str:
    """Return in words what each number of virtual stages takes at least."""
    fitting = {n: bound for n, bound in bounds.items() if bound is not None}
    texts = [
        f"{n}: at least {text}"
        for n, text in zip(fitting, figures(*fitting.values()), strict=True)
    ]
    if others := [str(n) for n in bounds if n not in fitting]:
        texts.append(f"{', '.join(others)}: no split fits")
    return "; ".join(texts)


def _worth_of_waits(transfers: dict[str, Any]) -> str:
    """Return in words what other ways to wait for transfers take than the default."""
    default, *others = transfers.items()
    texts = []
    for words, value in others:
        share = float(value) / float(default[1]) - 1
        change = f"{percent(abs(share))} {'less' if share < 0 else 'more'}"
        texts.append(f"{words}: {change if share else 'no change'}")
    return f"{'; '.join(texts)} ({default[0]}: {figure(default[1])})"


def _modes(source: Any, instance: PipelineInstance | None) -> Facts:
    """Yield what stages do with activations, or which layers they have; alike ones together."""
    layers, rows = getattr(source, "layers", None), defaultdict[str, list[int]](list)
    if instance is not None and layers:
        claim = source.model_dump(mode="json", include={RULE})
        instance = as_claimed(instance, claim)
    modes = layers or getattr(source, "modes", None) or ()
    if instance is not None and modes and len(modes) != instance.num_stages:
        text = f"expected one for each of the {instance.num_stages} stages, got {len(modes)}"
        raise InputError(
            text, field="layers" if layers else "modes", code=ErrorCode.LENGTH
        )
    for stage, mode in enumerate(modes):
        counts = Counter(() if isinstance(mode, str) else mode)
        said = ", ".join(f"{kind} {count}" for kind, count in counts.items())
        if layers:
            words = counted(counts.total(), "layer")
            said = f"{words}: {said}" if said else words
        rows[said or str(mode)].append(stage)
    for said, stages in rows.items():
        runs = [
            [s for _, s in run]
            for _, run in groupby(enumerate(stages), lambda n: n[1] - n[0])
        ]
        numbers = ", ".join(
            f"{run[0]} to {run[-1]}" if run[1:] else f"{run[0]}" for run in runs
        )
        name = "stage" if len(stages) == 1 else "stages"
        yield (
            f"{name} {numbers}",
            said + ("" if layers else _why(said, stages, source, instance)),
        )


def _why(
    said: str, stages: list[int], result: Any, instance: PipelineInstance | None
) -> str:
    """Say how many activations fit where they are not kept, and how many are in flight."""
    if (
        instance is None
        or instance.memory is None
        or said == KEEP
        or result.schedule is None
    ):
        return ""
    memory, numbers = instance.memory, instance.in_numbers().memory
    flights, rooms = [], []
    for stage in stages:
        device = instance.stage_to_device[stage]
        here = [s for s, d in enumerate(instance.stage_to_device) if d == device]
        static = sum(entry_at(memory.static, resident) for resident in here)
        stored = (
            max(map(Fraction, row_of(numbers.activation, stage)))
            if numbers
            else Fraction(1)
        )
        rooms.append(int((entry_at(memory.capacity, device) - static) / stored))
        flights.append(_most_in_flight(result, stage))
    room, peak = min(rooms), max(flights)
    return f": memory holds {room} of up to {peak} in flight" if room < peak else ""


def _most_in_flight(result: Any, stage: int) -> int:
    ops = [op for op in result.schedule.ops if op.stage == stage]
    events = [(op.start, 1) for op in ops if op.kind == "F"]
    events += [(op.end, -1) for op in ops if op.kind in {"I", "B"}]
    return max(accumulate(step for _, step in sorted(events)), default=0)


def _waits_of_ranks(waits: Mapping[str, Sequence[Any]], unit: str) -> RenderableType:
    ranks = map(str, range(len(waits["work"])))
    return FittingTable(
        TableColumn("rank", [*ranks]),
        TableColumn(f"waits for work ({unit})", figures(*waits["work"])),
        TableColumn("for transfers", figures(*waits["transfers"])),
        caption="What ranks wait for",
    )


def _what_modes_buy(result: PipelineResult, unit: str) -> RenderableType:
    choices = list(result.alternatives or ())
    values = [
        None if choice.value is None else float(choice.value) for choice in choices
    ]
    makespans = [
        "does not fit" if choice.value is None else figure(choice.value)
        for choice in choices
    ]
    best = float(result.value or 0)
    modes = [mode if isinstance(mode, str) else "mixed" for mode in result.modes or ()]
    return FittingTable(
        TableColumn("stage", [str(choice.stage) for choice in choices]),
        TableColumn(
            "now",
            [modes[choice.stage] for choice in choices],
            is_text=True,
        ),
        TableColumn("instead", [choice.mode for choice in choices], is_text=True),
        TableColumn(f"makespan ({unit})", makespans),
        TableColumn(
            "change", [ABSENT if v is None else percent(v / best - 1) for v in values]
        ),
        TableColumn("peak", [figure(choice.peak) for choice in choices]),
        caption="What other modes buy, one stage at a time (best found in a moment)",
    )


def size_in_words(instance: PipelineInstance) -> str:
    """Return devices, micro-batches and placement of a pipeline in a line."""
    stages, devices = instance.num_stages, instance.num_devices
    placed = str(instance.placement)
    if isinstance(instance.placement, ExplicitPlacement):
        placed = f"explicit placement of {stages} stages"
    elif stages > devices:
        placed += f", {stages // devices} stages per device"
    copies = f"{instance.replicas.count} replicas x " if instance.replicas else ""
    size = f"{counted(devices, 'device')} x {counted(instance.num_microbatches, 'micro-batch')}"
    return f"{copies}{size}, {placed}"


def _backward(instance: PipelineInstance) -> str:
    _, *backwards = instance.times.by_kind().values()
    if not any(number for entry in backwards for number in decimals(entry)):
        return "none: forward only"
    return "split (I + W)" if instance.times.is_split else "fused (B)"


def pipeline_shape(instance: PipelineInstance) -> Facts:
    """Yield devices, stages, micro-batches and how they are placed."""
    placement = instance.placement
    yield "devices", str(instance.num_devices)
    yield "stages", str(instance.num_stages)
    differ = " of different sizes" if instance.has_unequal_microbatches else ""
    sliced = f", {instance.num_slices} slices each" if instance.num_slices > 1 else ""
    yield "micro-batches", f"{instance.num_microbatches}{differ}{sliced}"
    if instance.replicas is not None:
        yield (
            "replicas",
            f"{instance.replicas.count}, assignment {instance.replicas.assignment}",
        )
    explicit = isinstance(placement, ExplicitPlacement)
    yield "placement", "explicit" if explicit else str(placement)
    yield "backward", _backward(instance)
    yield "transfers", instance.p2p.mode
    yield from _origin(instance)

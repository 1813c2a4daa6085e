"""The configurations of a request, and why some combinations form none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.studies.plan.request import PlanRequest, RankOrder, Statistics
from ppsolve.models.studies.plan.result import Configuration
from ppsolve.solver.kinds.pipeline.programs.shape import PipelineShape
from ppsolve.solver.kinds.pipeline.runtimes.family import RuntimeFamily


@dataclass(frozen=True)
class ConfigurationSpace:
    """Configurations in a fixed order, and how many combinations form none, by reason."""

    configurations: tuple[Configuration, ...]
    not_formed: dict[str, int] = field(default_factory=dict)


def enumerate_space(request: PlanRequest, limit: int = 200_000) -> ConfigurationSpace:
    """Return every configuration of a request, at least one.

    Raises `InputError` where there are too many, or where the lists of the search exclude
    everything; says by which rule.

    `limit`: combinations allowed; more would run for hours.
    """
    not_formed = Counter[str]()
    configurations = []
    combinations = (
        (profile, *combination)
        for profile in request.profiles
        for combination in _combinations(request.alone(profile), not_formed)
    )
    for number, (profile, fields, count) in enumerate(combinations):
        if number >= limit:
            text = f"expected at most {limit} combinations; shorten the lists"
            raise InputError(text, field="search", code=ErrorCode.RANGE)
        samples = fields["replicas"] * fields["microbatch_size"]
        microbatches = _microbatches(request, samples, count, not_formed)
        if microbatches is not None:
            fields |= {
                "microbatches": microbatches,
                "batch_size": samples * microbatches,
            }
            variant = {
                name: getattr(profile, name)
                for name in ("tensor_parallel", "recompute")
            }
            configurations.append(Configuration(**fields, **variant))
    return _space(configurations, not_formed)


def runnable(
    space: ConfigurationSpace,
    family: RuntimeFamily,
    stage_to_device: Callable[[Configuration], tuple[int, ...]],
) -> ConfigurationSpace:
    """Return the configurations that a runtime runs, at least one; the others count as not formed.

    Raises `InputError` where the runtime runs none; says why.

    `stage_to_device`: returns the device of every stage of a configuration.
    """
    not_formed, configurations = Counter(space.not_formed), []
    for configuration in space.configurations:
        is_split = configuration.backward == "split"
        devices = tuple(stage_to_device(configuration))
        shape = PipelineShape(configuration.microbatches, devices, is_split)
        wrong = family.fits(shape, family.title)
        if wrong is None:
            configurations.append(configuration)
        else:
            not_formed[wrong] += 1
    return _space(configurations, not_formed)


def _space(
    configurations: Iterable[Configuration], not_formed: Counter[str]
) -> ConfigurationSpace:
    space = ConfigurationSpace(tuple(configurations), dict(not_formed))
    if not space.configurations:
        reasons = "; ".join(
            f"{reason} ({count}x)" for reason, count in not_formed.most_common(4)
        )
        raise InputError(
            f"expected at least one configuration: {reasons}",
            field="search",
            code=ErrorCode.LENGTH,
        )
    return space


def _combinations(
    request: PlanRequest, not_formed: Counter[str]
) -> Iterator[tuple[dict[str, Any], int]]:
    # Fields of a configuration, and its number of micro-batches or its batch size.
    search = request.search
    backward = search.backward or (("split",) if request.model.is_split else ("fused",))
    lists: tuple[Sequence[Any], ...] = (
        _sizes(request, not_formed),
        search.microbatches or search.batch_sizes or _batch_sizes(request.goodput),
        backward,
        search.layer_splits,
    )
    choices = list(product(*(dict.fromkeys(values) for values in lists)))
    for shape in _shapes(request, not_formed):
        for size, count, kind, split in choices:
            fields = {"microbatch_size": size, "backward": kind, "layer_split": split}
            yield shape | fields, count


def _shapes(request: PlanRequest, not_formed: Counter[str]) -> Iterator[dict[str, Any]]:
    for depth, placement in product(
        _depths(request), dict.fromkeys(request.search.placements)
    ):
        for virtual in _virtual_stages(request, depth, placement, not_formed):
            for replicas in _replicas(request, depth, not_formed):
                for order in _rank_orders(request, depth, replicas):
                    yield {
                        "pipeline_depth": depth,
                        "replicas": replicas,
                        "placement": placement,
                        "virtual_stages": virtual,
                        "rank_order": order,
                    }


def _sizes(request: PlanRequest, not_formed: Counter[str]) -> list[int]:
    model = request.model
    sizes = request.search.microbatch_sizes or model.microbatch_sizes
    profiled = [
        size
        for size in sizes
        if size in model.microbatch_sizes or not model.is_measured
    ]
    if len(profiled) < len(sizes):
        not_formed["micro-batch size is not profiled"] += len(sizes) - len(profiled)
    return profiled


def _batch_sizes(statistics: Statistics) -> tuple[int, ...]:
    # The initial batch size, doubled up to the largest.
    size, largest = statistics.init_batch_size, statistics.max_batch_size or 0
    doublings = (largest // size).bit_length() if largest else 1
    return tuple(size * 2**power for power in range(doublings))


def _depths(request: PlanRequest) -> tuple[int, ...]:
    if request.search.pipeline_depths is not None:
        return tuple(dict.fromkeys(request.search.pipeline_depths))
    deepest = min(request.cluster.devices, request.model.num_layers)
    return tuple(
        depth for depth in range(1, deepest + 1) if request.cluster.devices % depth == 0
    )


def _virtual_stages(
    request: PlanRequest, depth: int, placement: str, not_formed: Counter[str]
) -> Iterator[int]:
    if placement == "linear":
        yield 1
        return
    if depth == 1:
        # On one device all placements are the same.
        not_formed[f"{placement} needs at least 2 devices"] += 1
        return
    for virtual in (
        (2,) if placement == "vshape" else dict.fromkeys(request.search.virtual_stages)
    ):
        if depth * virtual > request.model.num_layers:
            not_formed["more stages than layers"] += 1
        else:
            yield virtual


def _replicas(
    request: PlanRequest, depth: int, not_formed: Counter[str]
) -> Iterator[int]:
    room = request.cluster.devices // depth
    for replicas in dict.fromkeys(request.search.replicas or (max(room, 1),)):
        if replicas > room:
            not_formed["more devices than the cluster has"] += 1
        else:
            yield replicas


def _rank_orders(
    request: PlanRequest, depth: int, replicas: int
) -> tuple[RankOrder, ...]:
    orders = tuple(dict.fromkeys(request.search.rank_orders))
    return orders[:1] if request.cluster.orders_are_alike(depth, replicas) else orders


def _microbatches(
    request: PlanRequest, samples: int, count: int, not_formed: Counter[str]
) -> int | None:
    # Per replica; `samples` are one micro-batch of every replica.
    goodput = request.goodput
    largest = 10**12  # up to it all figures are exact as doubles
    if request.search.microbatches is None:
        if count % samples:
            not_formed["batch is no multiple of replicas x micro-batch size"] += 1
            return None
        return count // samples
    batch, reason = samples * count, None
    if batch > largest:
        reason = f"batch above {largest:.0E}"
    elif batch < goodput.init_batch_size:
        reason = "batch below the initial batch size"
    elif goodput.max_batch_size is not None and batch > goodput.max_batch_size:
        reason = "batch above the maximum"
    if reason is not None:
        not_formed[reason] += 1
        return None
    return count

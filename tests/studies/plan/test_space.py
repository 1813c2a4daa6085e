"""The configurations of a request, against loops over everything there could be."""

from __future__ import annotations

import copy
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ppsolve.models.documents.errors import InputError, PpsolveError
from ppsolve.models.studies.plan.request import parse_request
from ppsolve.models.studies.plan.result import Configuration
from ppsolve.solver.studies.plan.api import plan
from ppsolve.solver.studies.plan.space import ConfigurationSpace, enumerate_space
from tests.studies.plan.cases import check_plan, document
from tests.studies.plan.test_documents import spoilt

BATCH = "batch is no multiple of replicas x micro-batch size"
BELOW, ABOVE = "batch below the initial batch size", "batch above the maximum"
DEVICES, LAYERS = "more devices than the cluster has", "more stages than layers"


def space_of(**request: Any) -> ConfigurationSpace:
    return enumerate_space(parse_request(document(**request)))


def rows(space: ConfigurationSpace) -> list[tuple[Any, ...]]:
    return [
        tuple(dict(configuration).values()) for configuration in space.configurations
    ]


def plain_space(data: dict[str, Any]) -> tuple[set[tuple[Any, ...]], Counter[str]]:
    """Return the configurations and what forms none, by trying every number there is."""
    every, all_lost = set(), Counter[str]()
    for model in (data["model"], *data.get("variants", ())):
        found, lost = plain_space_of(model, data)
        variant = (model.get("tensor_parallel", 1), model.get("recompute", "none"))
        every |= {(*fields, *variant) for fields in found}
        all_lost += lost
    return every, all_lost


def plain_space_of(
    model: dict[str, Any], data: dict[str, Any]
) -> tuple[set[tuple[Any, ...]], Counter[str]]:
    search, cluster = data["search"], data["cluster"]
    per_node = cluster["devices_per_node"] // model.get("tensor_parallel", 1)
    devices = cluster["nodes"] * per_node
    layers = sum(layer.get("count", 1) for layer in model["layers"])
    least, most = (
        data["goodput"]["init_batch_size"],
        data["goodput"].get("max_batch_size", 10**9),
    )
    split = all("backward" not in layer for layer in model["layers"])
    depths = search.get("pipeline_depths") or [
        d for d in range(1, min(devices, layers) + 1) if devices % d == 0
    ]
    doubled = [least]
    while "max_batch_size" in data["goodput"] and doubled[-1] * 2 <= most:
        doubled.append(doubled[-1] * 2)
    if "microbatches" in search:
        doubled = [least]
    shapes, lost = set(), Counter[str]()
    for depth in depths:
        for placement in search.get("placements", ["linear"]):
            virtual = {"linear": [1], "vshape": [2]}.get(
                placement, search.get("virtual_stages", [2])
            )
            if placement != "linear" and depth == 1:
                lost[f"{placement} needs at least 2 devices"] += 1
                continue
            for chunks in virtual:
                if depth * chunks > layers and placement != "linear":
                    lost[LAYERS] += 1
                    continue
                for replicas in search.get("replicas") or [max(devices // depth, 1)]:
                    if depth * replicas > devices:
                        lost[DEVICES] += 1
                        continue
                    orders = search.get(
                        "rank_orders", ["stages_first", "replicas_first"]
                    )
                    if depth == 1 or replicas == 1 or depth * replicas <= per_node:
                        orders = orders[:1]
                    shapes |= {
                        (depth, replicas, placement, chunks, order) for order in orders
                    }
    found = set()
    for depth, replicas, placement, chunks, order in shapes:
        for size in search.get("microbatch_sizes") or model["microbatch_sizes"]:
            for backward in search.get("backward") or ["split" if split else "fused"]:
                for layer_split in search.get("layer_splits", ["searched"]):
                    for count in search.get("microbatches") or [None]:
                        for given_batch in search.get("batch_sizes") or doubled:
                            batch = replicas * size * count if count else given_batch
                            if batch % (replicas * size):
                                lost[BATCH] += 1
                            elif batch < least:
                                lost[BELOW] += 1
                            elif batch > most:
                                lost[ABOVE] += 1
                            else:
                                own = (size, batch // (replicas * size), batch)
                                shape = (depth, replicas, placement, chunks)
                                found.add((*shape, *own, order, backward, layer_split))
    return found, lost


def some(values: list[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.sampled_from(values), min_size=1, max_size=3, unique=True)


SEARCHES = st.fixed_dictionaries(
    {},
    optional={
        "pipeline_depths": some([1, 2, 3, 4, 6]),
        "replicas": some([1, 2, 3, 5, 8]),
        "placements": some(["linear", "interleaved", "vshape", "wave"]),
        "virtual_stages": some([2, 3, 4]),
        "microbatch_sizes": some([1, 2, 3, 5]),
        "rank_orders": some(["stages_first", "replicas_first"]),
        "backward": some(["fused", "split"]),
        "layer_splits": some(["searched", "balanced", "even"]),
    },
)
COUNTS = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"batch_sizes": some([8, 12, 16, 30])}),
    st.fixed_dictionaries({"microbatches": some([1, 2, 4, 7, 16])}),
)


@given(
    layers=st.integers(6, 13),
    cluster=st.sampled_from([(1, 6), (2, 3), (3, 2), (4, 2), (1, 8), (7, 1)]),
    search=SEARCHES,
    counts=COUNTS,
    most=st.sampled_from([None, 30, 40]),
    variants=some([(1, "full"), (2, "none"), (2, "selective"), (3, "full")]),
)
@settings(max_examples=150, deadline=None)
def test_every_combination_is_there_or_counted(
    layers: int,
    cluster: tuple[int, int],
    search: dict[str, Any],
    counts: dict[str, Any],
    most: int | None,
    variants: list[tuple[int, str]],
) -> None:
    data = document(layers, cluster[0], cluster[1], True, **search, **counts)
    data["variants"] = [
        data["model"] | {"tensor_parallel": size, "recompute": recompute}
        for size, recompute in variants
        if cluster[1] % size == 0
    ]
    if most is not None:
        data["goodput"]["max_batch_size"] = most
    expected, lost = plain_space(data)
    request = parse_request(data)
    if not expected:
        with pytest.raises(InputError, match="expected at least one configuration: "):
            enumerate_space(request)
        return
    space = enumerate_space(request)
    assert len(space.configurations) == len(expected)
    assert set(rows(space)) == expected
    assert space.not_formed == dict(lost)


def test_defaults() -> None:
    space = space_of()
    shapes = [
        (1, 8, "stages_first"),
        (2, 4, "stages_first"),
        (2, 4, "replicas_first"),
        (4, 2, "stages_first"),
        (4, 2, "replicas_first"),
        (8, 1, "stages_first"),
    ]
    found = [
        (c.pipeline_depth, c.replicas, c.rank_order.value) for c in space.configurations
    ]
    assert found == [
        shape for shape in shapes for size in (1, 2) if shape[1] * size <= 8
    ]
    assert space.not_formed == {BATCH: 1}
    assert {c.batch_size for c in space.configurations} == {8}
    assert {(c.backward, c.layer_split, c.placement) for c in space.configurations} == {
        ("fused", "searched", "linear")
    }


def test_depths_are_the_divisors_of_the_devices_as_far_as_there_are_layers() -> None:
    for layers, devices, most in (
        (3, 8, 2),
        (4, 8, 4),
        (5, 8, 4),
        (100, 7, 7),
        (1, 8, 1),
    ):
        data = document(layers, 1, devices)
        data["goodput"]["init_batch_size"] = 840
        found = enumerate_space(parse_request(data)).configurations
        assert max(c.pipeline_depth for c in found) == most


def test_split_profiles_are_planned_split() -> None:
    assert {c.backward for c in space_of(is_split=True).configurations} == {"split"}
    both = space_of(is_split=True, backward=["fused", "split"])
    assert {c.backward for c in both.configurations} == {"fused", "split"}


def test_idle_devices_are_allowed_and_replicas_never_exceed_the_room() -> None:
    space = space_of(pipeline_depths=[3], microbatch_sizes=[1])
    assert {(c.pipeline_depth, c.replicas) for c in space.configurations} == {(3, 2)}


def test_repeated_entries_count_once() -> None:
    lists: dict[str, list[Any]] = {
        "pipeline_depths": [2, 1],
        "replicas": [4, 2, 9],
        "placements": ["vshape", "interleaved", "linear"],
        "virtual_stages": [3, 2],
        "microbatch_sizes": [2, 1],
        "microbatches": [4, 2, 1],
        "rank_orders": ["replicas_first", "stages_first"],
        "backward": ["fused"],
        "layer_splits": ["even", "balanced"],
    }
    once = space_of(**lists)
    twice = space_of(**{name: values + values[::-1] for name, values in lists.items()})
    assert twice == once
    assert len(set(rows(once))) == len(once.configurations)


def test_the_order_is_that_of_the_lists() -> None:
    space = space_of(
        pipeline_depths=[4, 2], microbatch_sizes=[2, 1], rank_orders=["stages_first"]
    )
    order = [(c.pipeline_depth, c.microbatch_size) for c in space.configurations]
    assert order == [(4, 2), (4, 1), (2, 2), (2, 1)]
    assert space_of() == space_of()


EXCLUDED = [
    ({"replicas": [9]}, f"{DEVICES} (4x)"),
    ({"microbatches": [1], "replicas": [1], "pipeline_depths": [1]}, f"{BELOW} (2x)"),
    ({"microbatches": [50], "pipeline_depths": [1]}, f"{ABOVE} (2x)"),
    ({"batch_sizes": [9], "pipeline_depths": [1]}, f"{BATCH} (2x)"),
    (
        {"placements": ["vshape"], "pipeline_depths": [1]},
        "vshape needs at least 2 devices (1x)",
    ),
    (
        {"placements": ["wave"], "virtual_stages": [5], "pipeline_depths": [1, 2]},
        f"wave needs at least 2 devices (1x); {LAYERS} (1x)",
    ),
]


@pytest.mark.parametrize(("search", "reasons"), EXCLUDED)
def test_searches_that_exclude_everything_say_by_what(
    search: dict[str, Any], reasons: str
) -> None:
    data = document(**search)
    data["goodput"]["max_batch_size"] = 100
    with pytest.raises(InputError) as caught:
        enumerate_space(parse_request(data))
    assert caught.value.field == "search"
    assert caught.value.message == f"expected at least one configuration: {reasons}"


def test_too_many_combinations_are_refused() -> None:
    assert len(enumerate_space(parse_request(document()), 12).configurations) == 11
    with pytest.raises(InputError) as caught:
        enumerate_space(parse_request(document(layer_splits=["balanced", "even"])), 12)
    assert caught.value.field == "search"
    assert caught.value.message == "expected at most 12 combinations; shorten the lists"


def test_batches_beyond_all_reason_form_nothing() -> None:
    space = space_of(
        microbatches=[10**9, 8], pipeline_depths=[1], replicas=[8], microbatch_sizes=[1]
    )
    assert [c.batch_size for c in space.configurations] == [8 * 10**9, 64]
    data = document(
        microbatches=[10**9, 8], pipeline_depths=[1], microbatch_sizes=[126]
    )
    data["model"]["microbatch_sizes"] = [1]
    space = enumerate_space(parse_request(data))
    assert [c.batch_size for c in space.configurations] == [8 * 8 * 126]
    assert space.not_formed == {"batch above 1E+12": 1}


def test_groups_use_no_more_devices_than_there_are() -> None:
    data = document(
        8, 2, 4, pipeline_depths=[1, 2, 8], replicas=[1, 2, 4], microbatches=[8]
    )
    data["variants"] = [data["model"] | {"tensor_parallel": size} for size in (2, 4)]
    space = enumerate_space(parse_request(data))
    used = {
        (c.tensor_parallel, c.pipeline_depth, c.replicas) for c in space.configurations
    }
    every = [(t, p, d) for t in (1, 2, 4) for p in (1, 2, 8) for d in (1, 2, 4)]
    assert used == {(t, p, d) for t, p, d in every if t * p * d <= 8}
    assert space.not_formed[DEVICES] == len(every) - len(used)


def test_ranks_of_groups_are_neighbours_on_smaller_nodes() -> None:
    data = document(8, 2, 4, pipeline_depths=[2], replicas=[2], batch_sizes=[8])
    data["variants"] = [data["model"] | {"tensor_parallel": 2}]
    orders = Counter(
        c.tensor_parallel for c in enumerate_space(parse_request(data)).configurations
    )
    assert orders == {
        1: 2,
        2: 4,
    }  # of two sizes; four devices are a node, four groups are two


def test_sizes_that_a_variant_lacks_form_nothing() -> None:
    data = document(8, 1, 2, pipeline_depths=[1], replicas=[1], batch_sizes=[8])
    measured = data["model"] | {
        "layers": [{"count": 8, "forward": [1], "backward": [2]}]
    }
    data["variants"] = [measured | {"microbatch_sizes": [4], "recompute": "full"}]
    data["search"]["microbatch_sizes"] = [2, 4]
    space = enumerate_space(parse_request(data))
    found = {(c.recompute, c.microbatch_size) for c in space.configurations}
    assert found == {("none", 2), ("none", 4), ("full", 4)}
    assert space.not_formed == {"micro-batch size is not profiled": 1}


def test_batches_match_their_parts() -> None:
    data = document(
        10, 3, 3, microbatches=[1, 3, 8], replicas=[1, 2, 4], microbatch_sizes=[3, 1]
    )
    for c in enumerate_space(parse_request(copy.deepcopy(data))).configurations:
        assert isinstance(c, Configuration)
        assert c.batch_size == c.replicas * c.microbatch_size * c.microbatches >= 8
        assert c.pipeline_depth * c.replicas <= 9
        assert c.pipeline_depth * c.virtual_stages <= 10


# Random requests, and what every plan of a request must say


def test_junk_ends_in_plans_or_deliberate_errors() -> None:
    outcomes = Counter[str]()
    for seed in range(7000, 7250):
        try:
            request = parse_request(spoilt(random.Random(seed)))
            found = plan(request, time_limit=0.2, finalists=1, workers=1)
        except PpsolveError:
            outcomes["refused"] += 1
            continue
        check_plan(request, found)
        outcomes[found.status] += 1
    assert outcomes["OPTIMAL"] > 0
    assert outcomes["refused"] > 100

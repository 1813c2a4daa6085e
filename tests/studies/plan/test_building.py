"""From configurations to pipelines, against hand-made examples and sums done one by one."""

from __future__ import annotations

import itertools
import random
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.studies.plan.request import PlanRequest, parse_request
from ppsolve.models.studies.plan.result import Configuration
from ppsolve.solver.api.kinds import lower as lower_instance
from ppsolve.solver.studies.plan.building import PipelineBuilder
from ppsolve.solver.studies.plan.space import enumerate_space
from tests.bruteforce import brute_force
from tests.marks import first
from tests.studies.plan.cases import splits


def configuration(**fields: Any) -> Configuration:
    given: dict[str, Any] = {
        "pipeline_depth": 2,
        "replicas": 1,
        "placement": "linear",
        "virtual_stages": 1,
        "microbatch_size": 1,
        "microbatches": 4,
        "rank_order": "stages_first",
        "backward": "fused",
        "layer_split": "balanced",
    } | fields
    batch = given["replicas"] * given["microbatch_size"] * given["microbatches"]
    return Configuration(**given, batch_size=batch)


def request_of(layers: list[dict[str, Any]], **fields: Any) -> PlanRequest:
    cluster = {
        "nodes": 1,
        "devices_per_node": 4,
        "within_node": {"latency": 1, "bandwidth": 10},
    }
    return parse_request(
        {
            "model": {"microbatch_sizes": [1], "layers": layers}
            | fields.pop("model", {}),
            "cluster": cluster | fields.pop("cluster", {}),
            "goodput": {"init_batch_size": 1},
            **fields,
        }
    )


def pipeline(request: PlanRequest, **fields: Any) -> PipelineInstance:
    builder, chosen = PipelineBuilder(request), configuration(**fields)
    boundaries = (builder.split(chosen) or (None,))[0]
    assert boundaries is not None
    return builder.pipeline(chosen, boundaries).instance()


# Hand-made examples


UNEVEN: list[dict[str, Any]] = [
    {"forward": 1, "backward": 2, "output_bytes": 30, "parameter_bytes": 100},
    {
        "forward": 2,
        "backward": 4,
        "output_bytes": 50,
        "parameter_bytes": 200,
        "optimizer": 0.5,
    },
    {"forward": 3, "backward": 5, "output_bytes": 7, "parameter_bytes": 300},
]


def test_two_stages_by_hand() -> None:
    instance = pipeline(request_of(UNEVEN))
    assert instance.times.forward == (3, 3)
    assert instance.times.backward == (6, 5)
    assert instance.p2p.latency == ((0, 6), (6, 0))  # 1 + 50 / 10
    assert instance.optimizer == (Decimal("0.5"), 0)
    assert instance.allreduce is None
    assert instance.memory is None
    assert (instance.num_devices, instance.num_microbatches, instance.time_unit) == (
        2,
        4,
        "us",
    )


def test_ring_all_reduces_by_hand() -> None:
    instance = pipeline(request_of(UNEVEN), replicas=2)
    # 2 (2 - 1) steps of latency 1 and half of 300 bytes at 10 bytes per unit
    assert instance.allreduce == (32, 32)
    across = request_of(
        UNEVEN,
        cluster={
            "nodes": 2,
            "devices_per_node": 2,
            "between_nodes": {"latency": 5, "bandwidth": 2},
            "allreduce_within_node": {"latency": 0, "bandwidth": 100},
        },
    )
    one_after_another = pipeline(across, replicas=2, rank_order="stages_first")
    assert one_after_another.allreduce == (160, 160)  # replicas 0, 2: across nodes
    assert one_after_another.p2p.latency == ((0, 6), (6, 0))
    side_by_side = pipeline(across, replicas=2, rank_order="replicas_first")
    assert side_by_side.allreduce == (3, 3)  # 2 (0 + 150 / 100)
    assert side_by_side.p2p.latency == ((0, 30), (30, 0))  # 5 + 50 / 2


def test_three_replicas_over_nodes_of_four() -> None:
    request = request_of(
        UNEVEN,
        cluster={"nodes": 3, "devices_per_node": 4, "between_nodes": {"bandwidth": 1}},
    )
    instance = pipeline(request, pipeline_depth=3, replicas=4)
    # Ranks 0 1 2 | 3 4 5 | 6 7 8 | 9 10 11 over nodes 0-3, 4-7, 8-11: each link crosses in some.
    assert instance.p2p.latency == ((0, 30, 0), (30, 0, 50), (0, 50, 0))
    # Stage 0 is on ranks 0 3 6 9: 6 (0 + 100 / 4 / 1)
    assert instance.allreduce == (150, 300, 450)


def test_gradients_of_a_layer_are_reduced_under_the_backward_of_those_before_it() -> (
    None
):
    layers = [
        {
            "count": 4,
            "forward": 1,
            "backward_input": 1,
            "backward_weight": 2,
            "parameter_bytes": 3,
        }
    ]
    cluster = {"within_node": {"latency": 0, "bandwidth": 1}}  # 2 x 3 / 2 a layer
    fields = {"replicas": 2, "backward": "split"}
    assert pipeline(request_of(layers, cluster=cluster), **fields).allreduce == (6, 6)
    bucketed = request_of(layers, cluster={**cluster, "gradient_buckets": "layer"})
    # Weight gradients end at 2 and 4, all-reduces run from 2 to 5 and from 5 to 8.
    assert pipeline(bucketed, **fields).allreduce == (4, 4)
    # Fused backwards of 3 end at 3 and 6, all-reduces at 6 and 9.
    assert pipeline(bucketed, replicas=2).allreduce == (3, 3)


def test_gradients_come_from_the_last_layer_of_a_stage_to_its_first() -> None:
    # One stage of two layers; all-reduces take as long as their layer has parameters.
    cluster = {
        "within_node": {"latency": 0, "bandwidth": 1},
        "gradient_buckets": "layer",
    }
    first = {"forward": 1, "backward": 1, "parameter_bytes": 7}
    last = {"forward": 1, "backward": 5, "parameter_bytes": 2}
    fields = {"pipeline_depth": 1, "replicas": 2}
    # The last layer's gradient is there at 5 and reduced at 7, the first one's at 6: 7 to 14.
    found = pipeline(request_of([first, last], cluster=cluster), **fields)
    assert found.allreduce == (8,)
    # The other way round 7 at 1 to 8, then 2 to 10: the backward ends at 6.
    found = pipeline(request_of([last, first], cluster=cluster), **fields)
    assert found.allreduce == (4,)


def test_wrapping_and_turning_pipelines_by_hand() -> None:
    layers = [
        {"forward": 1, "backward": 1, "output_bytes": 10 * (index + 1)}
        for index in range(4)
    ]
    looped = pipeline(request_of(layers), placement="interleaved", virtual_stages=2)
    assert looped.stage_to_device == (0, 1, 0, 1)
    assert looped.p2p.latency == ((0, 4), (4, 0))  # the largest of 10, 20 and 30 bytes
    turned = pipeline(request_of(layers), placement="vshape", virtual_stages=2)
    assert turned.stage_to_device == (0, 1, 1, 0)
    assert turned.p2p.latency == ((0, 4), (4, 0))  # 20 bytes stay where they are


def test_memory_by_hand() -> None:
    layers: list[dict[str, Any]] = [
        {"forward": 1, "backward": 1, "activation_bytes": 2.5, "parameter_bytes": 3},
        {"forward": 1, "backward": 1, "activation_bytes": 0, "state_bytes": 0.125},
    ]
    request = request_of(
        layers, model={"released_by_backward_weight": 0.25}, cluster={"memory": 99.5}
    )
    memory = pipeline(request).memory
    assert memory is not None
    assert (memory.capacity, memory.released_by_backward_weight) == (
        Decimal("99.5"),
        Decimal("0.25"),
    )
    assert memory.activation == (Decimal("2.5"), 0)
    assert memory.static == (24, Decimal("0.125"))


def test_split_and_fused_backwards_by_hand() -> None:
    layers = [
        {"forward": 1, "backward_input": 2, "backward_weight": 0.5},
        {"forward": 1, "backward_input": 1, "backward_weight": 1.5},
    ]
    split = pipeline(request_of(layers), backward="split").times
    assert split.backward_input == (2, 1)
    assert split.backward_weight == (Decimal("0.5"), Decimal("1.5"))
    assert split.backward is None
    assert (
        pipeline(request_of(layers), backward="fused").times.backward
        == (Decimal("2.5"),) * 2
    )


def test_even_splits_count_layers() -> None:
    layers = [{"count": 6, "forward": 1, "backward": 1}, {"forward": 9, "backward": 9}]
    builder = PipelineBuilder(request_of(layers))
    assert (builder.split(configuration(layer_split="even")) or (None,))[0] == (0, 4, 7)
    assert (builder.split(configuration()) or (None,))[0] == (0, 6, 7)


def test_one_layer_on_one_device() -> None:
    instance = pipeline(
        request_of([{"forward": 1, "backward": 0}]), pipeline_depth=1, microbatches=1
    )
    assert instance.num_stages == 1
    assert instance.times.forward == (1,)
    assert instance.p2p.latency == ((0,),)


def test_times_keep_eight_digits_of_a_pass_at_each_size() -> None:
    layers = [{"forward": [1e-9, 1e3], "backward": [1 / 3 * 1e-9, 0], "count": 2}]
    request = request_of(layers, model={"microbatch_sizes": [1, 2]})
    small = pipeline(request, microbatch_size=1).times
    assert small.forward == (Decimal("1E-9"),) * 2
    assert small.backward == (Decimal("3.333333E-10"),) * 2
    assert pipeline(request, microbatch_size=2).times.forward == (1000, 1000)


def test_pipelines_too_large_for_an_instance_are_named() -> None:
    request = request_of([{"count": 2, "forward": 9e14, "backward": 0}])
    builder = PipelineBuilder(request)
    with pytest.raises(
        InputError, match=r"times\.forward\[0\]: expected at most 1E\+15"
    ):
        builder.pipeline(configuration(pipeline_depth=1), (0, 2)).instance()


# Everything, against sums done one by one


def random_document(rng: random.Random) -> dict[str, Any]:
    """Return a request with every feature at random."""
    is_split = rng.random() < 0.6

    def number() -> Any:
        return rng.choice(
            [rng.randint(0, 9), rng.randint(1, 99) / 8, rng.randint(1, 999) / 10]
        )

    def amount() -> Any:
        return rng.choice(
            [
                number(),
                [number(), number()],
                {"fixed": number(), "per_sample": number()},
            ]
        )

    parts = ("backward_input", "backward_weight") if is_split else ("backward",)
    layers = [
        {"forward": rng.choice([1, [2, 3.5]]), "count": rng.randint(1, 3)}
        | {part: amount() for part in (*parts, "activation_bytes", "output_bytes")}
        | {"parameter_bytes": number(), "optimizer": rng.choice([0, number()])}
        | ({"state_bytes": number()} if rng.random() < 0.3 else {})
        for _ in range(rng.randint(2, 4))
    ]
    cluster: dict[str, Any] = {
        "nodes": rng.randint(1, 3),
        "devices_per_node": rng.randint(2, 4),
    }
    for name in (
        "within_node",
        "between_nodes",
        "allreduce_within_node",
        "allreduce_between_nodes",
    ):
        if rng.random() < 0.5 or not name.startswith("all"):
            bandwidth = rng.choice([1, 4, 0.5, 40, 3])
            cluster[name] = {"latency": number(), "bandwidth": bandwidth}
    if rng.random() < 0.7:
        cluster["memory"] = rng.choice([100, 300, 777.25])
    return {
        "time_unit": rng.choice(["ns", "us", "ms", "s"]),
        "model": {
            "microbatch_sizes": [1, 2],
            "layers": layers,
            "state_factor": rng.choice([8, 2.5]),
            "released_by_backward_weight": rng.choice([1, 0.5, 0]),
        },
        "cluster": cluster,
        "goodput": {"init_batch_size": 1},
        "search": {
            "pipeline_depths": [
                d for d in (1, 2, 3) if d <= min(2, sum(x["count"] for x in layers))
            ],
            "replicas": [1, 2, 3],
            "placements": ["linear", "interleaved", "vshape", "wave"],
            "microbatches": [1, 3],
            "layer_splits": ["balanced", "even"],
            "backward": ["fused", "split"] if is_split else ["fused"],
        },
    }


class Plain:
    """The amounts of a document, layer by layer, in fractions."""

    def __init__(self, data: dict[str, Any], size: int) -> None:
        self.data, self.size = data, size
        model = data["model"]
        self.layers = [
            layer for layer in model["layers"] for _ in range(layer["count"])
        ]
        self.of = {
            field: [self.amount(layer, field) for layer in self.layers]
            for field in (
                *("forward", "backward", "backward_input", "backward_weight"),
                *("activation_bytes", "output_bytes", "parameter_bytes", "optimizer"),
            )
        }
        factor = Fraction(str(model["state_factor"]))
        self.of["state"] = [
            Fraction(str(layer.get("state_bytes", 0)))
            if "state_bytes" in layer
            else factor * self.amount(layer, "parameter_bytes")
            for layer in self.layers
        ]
        parts = (
            self.of["backward"],
            self.of["backward_input"],
            self.of["backward_weight"],
        )
        self.of["fused"] = [
            sum(values, Fraction(0)) for values in zip(*parts, strict=True)
        ]
        longest = sum(self.of["forward"]) + sum(self.of["fused"])
        self.tick = Fraction(1, 10**7)
        while longest >= 10**8 * self.tick:
            self.tick *= 10

    def amount(self, layer: dict[str, Any], field: str) -> Fraction:
        value = layer.get(field, 0)
        if isinstance(value, list):
            return Fraction(str(value[self.size - 1]))
        if isinstance(value, dict):
            return Fraction(str(value["fixed"])) + self.size * Fraction(
                str(value["per_sample"])
            )
        fixed = field in {"parameter_bytes", "optimizer"}
        return Fraction(str(value)) * (1 if fixed else self.size)

    def per_stage(self, field: str, bounds: tuple[int, ...]) -> list[Fraction]:
        return [
            sum(self.of[field][first:last], Fraction(0))
            for first, last in itertools.pairwise(bounds)
        ]

    def link(self, name: str, crosses: bool) -> tuple[Fraction, Fraction]:
        cluster = self.data["cluster"]
        where = "between_nodes" if crosses else "within_node"
        link = cluster.get(f"{name}{where}", cluster[where])
        return Fraction(str(link["latency"])), Fraction(str(link["bandwidth"]))

    def node(self, chosen: Configuration, device: int, replica: int) -> int:
        if chosen.rank_order == "stages_first":
            rank = replica * chosen.pipeline_depth + device
        else:
            rank = device * chosen.replicas + replica
        return rank // int(self.data["cluster"]["devices_per_node"])

    def latency(
        self, chosen: Configuration, a: int, b: int, amount: Fraction
    ) -> Fraction:
        times = []
        for replica in range(chosen.replicas):
            crosses = self.node(chosen, a, replica) != self.node(chosen, b, replica)
            times.append((crosses, self.link("", crosses)))
        latency, bandwidth = max(times)[1]  # a crossing one, if there is any
        return latency + amount / bandwidth

    def allreduce(
        self, chosen: Configuration, device: int, amount: Fraction
    ) -> Fraction:
        count = chosen.replicas
        nodes = {self.node(chosen, device, replica) for replica in range(count)}
        latency, bandwidth = self.link("allreduce_", len(nodes) > 1)
        return (
            2 * (count - 1) * (latency + amount / count / bandwidth)
            if amount
            else Fraction(0)
        )


def check_pipeline(
    data: dict[str, Any], builder: PipelineBuilder, chosen: Configuration
) -> None:
    plain = Plain(data, chosen.microbatch_size)
    bounds = (builder.split(chosen) or (None,))[0]
    if bounds is None:
        return
    instance = builder.pipeline(chosen, bounds).instance()
    devices = instance.stage_to_device
    assert (
        len(bounds)
        == len(devices) + 1
        == chosen.pipeline_depth * chosen.virtual_stages + 1
    )
    assert bounds[0] == 0
    assert bounds[-1] == len(plain.layers)
    assert all(first < last for first, last in itertools.pairwise(bounds))
    if chosen.layer_split == "even":
        sizes = [last - first for first, last in itertools.pairwise(bounds)]
        assert max(sizes) - min(sizes) <= 1
        assert sizes == sorted(sizes, reverse=True)
    kinds = {"forward": "forward", "backward": "fused"}
    if chosen.backward == "split":
        kinds = {
            kind: kind for kind in ("forward", "backward_input", "backward_weight")
        }
    for kind, field in kinds.items():
        assert list(getattr(instance.times, kind)) == plain.per_stage(field, bounds)
    optimizer = plain.per_stage("optimizer", bounds)
    assert list(instance.optimizer or [0] * len(optimizer)) == optimizer  # type: ignore[arg-type]
    if instance.memory is not None:
        assert list(instance.memory.activation) == plain.per_stage(
            "activation_bytes", bounds
        )  # type: ignore[arg-type]
        assert list(instance.memory.static) == plain.per_stage("state", bounds)  # type: ignore[arg-type]
        assert instance.memory.capacity == Decimal(str(data["cluster"]["memory"]))
    assert (instance.memory is None) == ("memory" not in data["cluster"])
    check_links(plain, chosen, instance, bounds)


def check_links(
    plain: Plain,
    chosen: Configuration,
    instance: PipelineInstance,
    bounds: tuple[int, ...],
) -> None:
    devices, half = instance.stage_to_device, plain.tick / 2
    slowest: dict[tuple[int, int], Fraction] = {}
    for stage, (a, b) in enumerate(itertools.pairwise(devices)):
        if a != b:
            sent = plain.of["output_bytes"][bounds[stage + 1] - 1]
            time = plain.latency(chosen, a, b, sent)
            for pair in ((a, b), (b, a)):
                slowest[pair] = max(slowest.get(pair, Fraction(0)), time)
    matrix = instance.p2p.latency
    assert isinstance(matrix, tuple)
    for a, b in itertools.product(range(chosen.pipeline_depth), repeat=2):
        assert abs(Fraction(matrix[a][b]) - slowest.get((a, b), 0)) <= half
    if chosen.replicas == 1:
        assert instance.allreduce is None
        return
    assert isinstance(instance.allreduce, tuple)
    amounts = plain.per_stage("parameter_bytes", bounds)
    for device, amount, given in zip(devices, amounts, instance.allreduce, strict=True):
        assert abs(Fraction(given) - plain.allreduce(chosen, device, amount)) <= half


@pytest.mark.parametrize("seed", first(5, range(12)))
def test_pipelines_are_what_the_request_says(seed: int) -> None:
    rng = random.Random(seed)
    data = random_document(rng)
    request = parse_request(data)
    builder = PipelineBuilder(request)
    chosen = enumerate_space(request).configurations
    for one in rng.sample(chosen, min(len(chosen), 24)):
        check_pipeline(data, builder, one)


# Splits and memory, against every split there is


def needs(
    plain: Plain,
    bounds: tuple[int, ...],
    devices: tuple[int, ...],
    flights: tuple[int, ...],
) -> Fraction:
    """Return the most bytes of a device with this many micro-batches in flight at each stage."""
    held = [Fraction(0)] * (max(devices) + 1)
    states = plain.per_stage("state", bounds)
    activations = plain.per_stage("activation_bytes", bounds)
    for stage, device in enumerate(devices):
        held[device] += states[stage] + flights[stage] * activations[stage]
    return max(held)


def slowest_device(
    plain: Plain, bounds: tuple[int, ...], devices: tuple[int, ...]
) -> Fraction:
    times = [Fraction(0)] * (max(devices) + 1)
    for kind in ("forward", "fused"):
        for device, time in zip(devices, plain.per_stage(kind, bounds), strict=True):
            times[device] += time
    return max(times)


@pytest.mark.parametrize("seed", first(3, range(24)))
def test_no_split_fits_where_none_is_found_and_the_best_one_is_taken(seed: int) -> None:
    rng = random.Random(1000 + seed)
    data = random_document(rng)
    data["cluster"]["memory"] = rng.choice([40, 80, 120.5, 200, 400])
    data["search"] |= {
        "layer_splits": ["balanced"],
        "microbatches": [3],
        "replicas": [1],
    }
    request = parse_request(data)
    builder = PipelineBuilder(request)
    room = Fraction(str(data["cluster"]["memory"]))
    for chosen in enumerate_space(request).configurations:
        plain = Plain(data, chosen.microbatch_size)
        devices = builder.stage_to_device(chosen)
        every = list(splits(len(plain.layers), len(devices)))
        one_each = (1,) * len(devices)
        least = min(needs(plain, one, devices, one_each) for one in every)
        assert builder.least_memory(chosen.microbatch_size, devices) == least
        lack = builder.lack_of_memory(chosen.microbatch_size, chosen.pipeline_depth)
        assert lack is None or room < lack <= least
        as_1f1b = tuple(min(3, chosen.pipeline_depth - device) for device in devices)
        roomy = [one for one in every if needs(plain, one, devices, as_1f1b) <= room]
        fitting = [one for one in every if needs(plain, one, devices, one_each) <= room]
        bounds = (builder.split(chosen) or (None,))[0]
        assert (bounds is None) == (not fitting)
        if bounds is not None:
            assert bounds in (roomy or fitting)
            best = min(slowest_device(plain, one, devices) for one in roomy or fitting)
            assert slowest_device(plain, bounds, devices) == best


PROOFS = [
    # in flight 1; two stages on one device hold one micro-batch both
    {"placement": "vshape", "virtual_stages": 2, "microbatches": 1},
    {"placement": "interleaved", "virtual_stages": 2, "microbatches": 1},
    {"microbatches": 2},
    {"microbatches": 2, "backward": "split"},
    {
        "microbatches": 1,
        "backward": "split",
        "placement": "vshape",
        "virtual_stages": 2,
    },
]


@pytest.mark.parametrize("share", [0, 0.5, 1])
@pytest.mark.parametrize("fields", PROOFS)
@pytest.mark.slow
def test_memory_proofs_hold_for_every_schedule_of_every_split(
    fields: dict[str, Any], share: float
) -> None:
    layers = [
        {
            "forward": 1,
            "backward_input": 1,
            "backward_weight": 1,
            "activation_bytes": held,
        }
        | {"state_bytes": state}
        for held, state in ((1.5, 0), (0, 2.25), (2, 0.5), (0.75, 1), (0.5, 0.5))
    ]
    chosen = configuration(**fields)
    outcomes = set()
    for room in (3.5, 4, 4.5, 4.75, 5, 5.5, 6):
        request = request_of(
            layers,
            model={"released_by_backward_weight": share},
            cluster={"memory": room},
        )
        builder = PipelineBuilder(request)
        bounds = (builder.split(chosen) or (None,))[0]
        stages = chosen.pipeline_depth * chosen.virtual_stages
        schedules = [
            brute_force(lower_instance(builder.pipeline(chosen, one).instance()))
            for one in splits(len(layers), stages)
        ]
        assert (bounds is None) == all(schedule is None for schedule in schedules)
        lack = builder.lack_of_memory(1, chosen.pipeline_depth)
        assert bounds is None or lack is None
        outcomes.add(bounds is None)
    assert outcomes == {True, False}

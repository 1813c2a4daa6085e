"""Write the shipped instances again, byte for byte: ``python benchmarks/make_instances.py [DIR]``.

Without DIR the instances go where they are kept. Files that are not in the set are left alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from shipped import run_writer

from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.studies.generate.flags import IntegerRange, PerDevice
from ppsolve.solver.studies.generate.instances import LARGE_MODEL_SHARE, generate

SPAN = "device_span"
FUSED = {"forward": 100, "backward": 200}

Instances = Iterator[PipelineInstance]


def every_instance() -> dict[str, PipelineInstance]:
    """Return the set: file name below the directory -> instance, named after its file."""
    families = {
        "published": published(),
        "memory_scan": memory_scan(),
        "memory_curve": memory_curve(),
        "uniform": uniform(),
        "heterogeneous": heterogeneous(),
        "tight_memory": tight_memory(),
        "p2p_heavy": p2p_heavy(),
        "virtual_stages": virtual_stages(),
        "few_microbatches": few_microbatches(),
        "step_end": step_end(),
        "large": large(),
    }
    return {
        f"{family}/{instance.name}.json": instance
        for family, members in families.items()
        for instance in members
    }


def activations(factor: str) -> PerDevice:
    """Return a capacity of `factor` times the number of devices."""
    return PerDevice(Decimal(factor))


def pipeline(
    name: str, devices: int, microbatches: int, **options: Any
) -> PipelineInstance:
    """Return an instance of that shape; options as for `generate`."""
    return generate(name=name, devices=devices, microbatches=microbatches, **options)


def split(forward: Any, backward_input: Any, backward_weight: Any) -> dict[str, Any]:
    """Return options of split backwards."""
    return {
        "forward": forward,
        "backward_input": backward_input,
        "backward_weight": backward_weight,
    }


def published() -> Instances:
    """Measured profiles of the zero-bubble papers, with memory p and 2p."""
    for profile, factor, objective in (
        ("zb-1.5b-8x24", "1", "makespan"),
        ("zb-1.5b-8x24", "2", SPAN),
        ("zb-8x64", "1", "makespan"),
        ("zb-8x64", "2", SPAN),
        ("zb-6.2b-8x24", "1", "makespan"),
        ("zb-6.2b-8x24", "2", "makespan"),
        ("zb-6.2b-8x24", "2", SPAN),
        ("zb-16x48-a", "1", "makespan"),
        ("zb-16x48-a", "2", SPAN),
        ("zb-16x48-b", "1", "makespan"),
        ("zb-32x96-a", "1", "makespan"),
        ("zb-32x96-b", "2", SPAN),
        ("zb-32x256", "1", "makespan"),
        ("zb-32x256", "2", SPAN),
    ):
        name = f"{profile}-{factor}p" + ("-span" if objective == SPAN else "")
        capacity = activations(factor)
        yield generate(
            name=name, profile=profile, capacity=capacity, objective=objective
        )
    joined = {"forward": 29718, "backward": 29444 + 19927}
    yield pipeline("zb-6.2b-8x24-1p-fused", 8, 24, **joined, p2p=527, capacity=8)


def memory_scan() -> Instances:
    """Scan memory on the 6.2B profile, 4 devices, 8 micro-batches: from 1 to 7 activations."""
    for amount in ("1", "1.5", "2", "2.5", "3", "3.5", "4.5", "5", "6", "7"):
        yield pipeline(
            f"scan-4x8-{amount}", 4, 8, profile="6.2b", capacity=Decimal(amount)
        )


def memory_curve() -> Instances:
    """Follow the 16-device profile as memory grows, with one and with two stages a device."""
    linear = [
        ("", "linear", factor) for factor in ("1", "1.25", "1.5", "1.625", "1.75", "2")
    ]
    for letter, placement, factor in (
        *linear,
        ("v-", "vshape", "1"),
        ("v-", "vshape", "1.5"),
    ):
        yield generate(
            name=f"curve-16x48-{letter}{factor}p",
            profile="zb-16x48-b",
            capacity=activations(factor),
            objective=SPAN,
            placement=placement,
        )


def uniform() -> Instances:
    """F = I = W, no transfer time, W releases all; memory p and 2p."""
    for devices, microbatches in ((4, 8), (8, 16), (8, 32), (16, 64), (32, 256)):
        for factor in ("1", "2"):
            name = f"uniform-{devices}x{microbatches}-{factor}p"
            capacity = activations(factor)
            yield pipeline(
                name, devices, microbatches, **split(100, 100, 100), capacity=capacity
            )


def heterogeneous() -> Instances:
    """Uneven stages: embedding and head, a slow device, uneven micro-batches, random times."""
    yield _embedding_head(4, 8, "1")
    yield _embedding_head(8, 24, "1")
    yield _embedding_head(8, 24, "1.5")
    slow = [100] * 8
    slow[3] = 140
    yield pipeline(
        "slow-device-8x16-1p", 8, 16, **split(slow, slow, slow), p2p=5, capacity=8
    )
    yield _uneven_microbatches()
    for seed in range(5):
        yield generate(seed=seed)
    yield pipeline("random-16x32-seed0", 16, 32, seed=0)


def _embedding_head(devices: int, microbatches: int, factor: str) -> PipelineInstance:
    middle = devices - 2
    times = split(
        [115, *[100] * middle, 150],
        [100, *[105] * middle, 155],
        [85, *[70] * middle, 120],
    )
    name = f"embedding-head-{devices}x{microbatches}-{factor}p"
    memory = {"capacity": activations(factor), "share": LARGE_MODEL_SHARE}
    return pipeline(name, devices, microbatches, **times, p2p=4, **memory)


def _uneven_microbatches() -> PipelineInstance:
    lengths = [100, 60, 140, 100, 80, 120, 60, 140]
    forward = [lengths] * 4
    times = split(forward, forward, [[length // 2 for length in lengths]] * 4)
    return pipeline("uneven-microbatches-4x8-1p", 4, 8, **times, p2p=3, capacity=4)


def tight_memory() -> Instances:
    """Less memory than p activations, fractions of one, unequal stages and devices."""
    for factor in ("0.5", "0.75", "1.125"):
        yield pipeline(
            f"random-8x12-{factor}p", 8, 12, seed=11, capacity=activations(factor)
        )
    times = split(100, 110, 70)
    unequal = {
        "capacity": 4,
        "activation": [1.5, 1, 1, 0.75],
        "share": LARGE_MODEL_SHARE,
    }
    yield pipeline("activations-differ-4x12", 4, 12, **times, p2p=5, **unequal)
    capacity = [5, 3, 2.5, 2]
    yield pipeline(
        "devices-differ-4x12", 4, 12, **times, p2p=5, capacity=capacity, share=0.5
    )
    static = {
        "capacity": 8,
        "activation": 1.25,
        "share": 0.4,
        "static": [3.2, 2, 2, 4.1],
    }
    yield pipeline("static-4x12", 4, 12, **times, **static)


def p2p_heavy() -> Instances:
    """Transfers as long as compute: delays, two nodes, links and NICs that fill up."""
    times = split(100, 100, 60)
    for latency in (50, 100):
        yield pipeline(
            f"delay-{latency}-8x16", 8, 16, **times, p2p=latency, capacity=12
        )
    nodes = [[5 if a // 4 == b // 4 else 60 for b in range(8)] for a in range(8)]
    yield pipeline("two-nodes-8x16", 8, 16, **times, p2p=nodes, capacity=10)
    for mode in ("link", "nic"):
        for size in (40, 90):
            transfers = {"p2p_mode": mode, "p2p": 5, "p2p_bytes": size, "bandwidth": 1}
            yield pipeline(f"{mode}-{size}-4x8", 4, 8, **times, **transfers, capacity=6)
    uneven: dict[str, Any] = {
        "p2p_bytes": [30, 60, 30],
        "bandwidth": 0.75,
        "capacity": 5,
    }
    link = {"p2p_mode": "link", "p2p": 2, "share": LARGE_MODEL_SHARE}
    yield pipeline("link-uneven-4x12", 4, 12, **times, **link, **uneven)


def virtual_stages() -> Instances:
    """Several stages on a device, and pipes in both directions."""
    in_v = {"placement": "vshape", "p2p": 527, **split(29718 // 2, 29444 // 2, 9963)}
    yield pipeline("v-4x8-cap8", 4, 8, **in_v, capacity=8, share=0.43)
    yield pipeline("v-4x8-cap6", 4, 8, **in_v, capacity=6)
    looped = {"placement": "interleaved", "stages_per_device": 2, "p2p": 2}
    yield pipeline("interleaved-4x8-fused", 4, 8, **looped, forward=50, backward=100)
    yield pipeline(
        "interleaved-4x8-split", 4, 8, **looped, **split(50, 50, 35), capacity=10
    )
    wave = {"placement": "wave", "stages_per_device": 4, "p2p": 1}
    yield pipeline("wave-4x8", 4, 8, **wave, **split(25, 25, 18), capacity=16)
    times = split([40, 70, 30, 60], [45, 70, 30, 65], [30, 50, 20, 40])
    explicit = {"stage_to_device": [0, 1, 2, 0]}
    yield pipeline("explicit-3x6", 3, 6, **times, placement=explicit, p2p=3, capacity=5)
    for devices, microbatches in ((4, 8), (8, 16)):
        name = f"bidirectional-{devices}x{microbatches}"
        both_ways = {"placement": "bidirectional", "p2p": 5, "capacity": devices}
        yield pipeline(name, devices, microbatches, **FUSED, **both_ways)


def few_microbatches() -> Instances:
    """Fewer micro-batches than devices: fill and drain is all there is."""
    for devices, microbatches in ((8, 1), (8, 4), (16, 8)):
        yield pipeline(
            f"random-{devices}x{microbatches}", devices, microbatches, seed=5
        )
    yield pipeline(
        "zb-6.2b-8x6-0.5p", 8, 6, profile="6.2b", capacity=activations("0.5")
    )


def step_end() -> Instances:
    """Gradient all-reduce and optimizer after the last backward of a stage."""
    times = {**split(100, 100, 70), "p2p": 4}
    yield pipeline("allreduce-4x8", 4, 8, **times, capacity=4, allreduce=250)
    ends = {"allreduce": [300, *[200] * 6, 300], "optimizer": 40}
    yield pipeline("allreduce-optimizer-8x16", 8, 16, **times, capacity=8, **ends)
    both_ways = {
        "placement": "bidirectional",
        "p2p": 5,
        "allreduce": 150,
        "optimizer": 30,
    }
    yield pipeline("bidirectional-allreduce-4x8", 4, 8, **FUSED, **both_ways)


def large() -> Instances:
    """Heterogeneous stages in large shapes, up to 24,576 ops."""
    times = split(IntegerRange(90, 110), IntegerRange(90, 110), IntegerRange(60, 80))
    for devices, microbatches, factor in (
        (16, 128, "1"),
        (32, 128, "1"),
        (32, 256, "1.5"),
    ):
        yield pipeline(
            f"random-{devices}x{microbatches}-{factor}p",
            devices,
            microbatches,
            seed=1,
            **times,
            capacity=activations(factor),
            share=LARGE_MODEL_SHARE,
        )
    yield _embedding_head(32, 128, "1")


if __name__ == "__main__":
    run_writer(__doc__, every_instance)

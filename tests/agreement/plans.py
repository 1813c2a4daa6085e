"""Questions about plans: of one configuration, of several, and for runtimes of few orders."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from itertools import combinations, pairwise
from random import Random
from typing import Any

import ppsolve
from ppsolve.models.core.result import HeuristicStatus, Status
from ppsolve.models.documents.text import instance_data
from ppsolve.solver.formats.layers import parse_layout
from ppsolve.solver.formats.megatron import LayerTimes, instance_of, megatron_flags
from ppsolve.solver.formats.program import read_program
from ppsolve.solver.formats.targets import chosen
from tests.agreement.claims import Claim, best_of, claim
from tests.agreement.draws import Document
from tests.agreement.question import LIMITS, Question, solved

MICROSECONDS = 1_000_000
KINDS = ("forward", "backward", "backward_input", "backward_weight")


def _layer(draw: Random, *, is_split: bool) -> Document:
    kinds = ("forward", "backward_input", "backward_weight") if is_split else KINDS[:2]
    return {kind: draw.randint(1, 6) for kind in kinds} | {
        "activation_bytes": draw.choice([1, 2, 3]),
        "state_bytes": draw.choice([0, 1]),
        "output_bytes": draw.choice([0, 1, 2]),
    }


def _make_blocks(draw: Random, layers: list[Document]) -> None:
    """Make all layers alike but the ends, which take longer and keep no activation."""
    layers[1:-1] = [dict(layers[1]) for _ in layers[1:-1]]
    for end in (layers[0], layers[-1]):
        end |= {"forward": 2 * end["forward"], "activation_bytes": 0}
        end["state_bytes"] = draw.choice([0, 1, 3])


def _request(
    draw: Random, layers: int, devices: int, *, is_split: bool = False
) -> Document:
    count = draw.randint(1, 4)
    profile = [_layer(draw, is_split=is_split) for _ in range(layers)]
    if draw.random() < 0.5:
        _make_blocks(draw, profile)
    share = (
        sum(layer["activation_bytes"] + layer["state_bytes"] for layer in profile)
        / devices
    )
    cluster: Document = {
        "devices_per_node": devices,
        "within_node": {
            "latency": draw.choice([0, 1]),
            "bandwidth": draw.choice([1, 2]),
        },
    }
    if draw.random() < 0.8:
        cluster["memory"] = max(
            1, round(share * draw.choice([0.75, 1, 1.25, 1.25, 1.5, 2, 3]))
        )
    return {
        "kind": "plan",
        "model": {"microbatch_sizes": [1], "layers": profile},
        "cluster": cluster,
        "goodput": {"init_batch_size": count},
        "search": {
            "pipeline_depths": [devices],
            "replicas": [1],
            "microbatches": [count],
            "backward": ["split" if is_split else "fused"],
            "rank_orders": ["stages_first"],
        },
    }


def _one_configuration(draw: Random) -> Document:
    devices = draw.randint(2, 3)
    return _request(draw, devices, devices, is_split=draw.random() < 0.5)


def _several_splits(draw: Random) -> Document:
    return _request(draw, draw.randint(3, 5), 2)


def _recomputed(draw: Random) -> Document:
    """Draw a request that may recompute, where memory is short or not."""
    request = _several_splits(draw)
    layers = [
        layer
        | {"backward": layer["backward"] + layer["forward"], "activation_bytes": 0.5}
        for layer in request["model"]["layers"]
    ]
    request["variants"] = [request["model"] | {"recompute": "full", "layers": layers}]
    return request


def _on_several_placements(draw: Random) -> Document:
    request = _request(draw, draw.randint(4, 5), 2, is_split=draw.random() < 0.3)
    request["search"]["placements"] = ["linear", draw.choice(["interleaved", "vshape"])]
    return request


def _looped(draw: Random) -> Document:
    request = _interleaved(draw)
    request["search"]["placements"] = ["linear", "interleaved"]
    return request


def _interleaved(draw: Random) -> Document:
    request = _request(draw, draw.randint(4, 6), 2)
    request["search"] |= {
        "placements": ["interleaved"],
        "microbatches": [draw.randint(2, 6)],
    }
    request["goodput"]["init_batch_size"] = request["search"]["microbatches"][0]
    return request


def _plan(request: Document, **options: Any) -> ppsolve.Plan:
    search = {
        name: options.pop(name)
        for name in ("schedules", "placements")
        if name in options
    }
    document = request | {"search": request["search"] | search}
    return ppsolve.plan(ppsolve.PlanRequest.parse(document), **(LIMITS | options))


def planned(request: Document, **options: Any) -> Claim:
    """Return what a plan claims of the shortest step; its goodput is micro-batches a second."""
    plan = _plan(request, **options)
    if plan.goodput is None:
        return claim(plan.status, None, None)
    count = request["search"]["microbatches"][0]
    high, low = (_step(count, plan.goodput.low), _step(count, plan.goodput.high))
    return claim(plan.status, high, low)


def _step(count: int, goodput: float) -> float:
    # Steps of drawn requests are multiples of a half.
    return round(count * MICROSECONDS / goodput, 6)


def _with_named_layers(draw: Random) -> Document:
    """Draw a request whose layers have the letters of a layout, and tensors of one size."""
    request = _request(draw, draw.randint(4, 6), 2)
    request["search"]["placements"] = [draw.choice(["linear", "interleaved"])]
    request["search"]["microbatches"] = [count := draw.randint(2, 4)]
    request["goodput"]["init_batch_size"] = count
    request["cluster"].pop("memory", None)
    layers = request["model"]["layers"]
    for layer in layers:
        layer |= {"name": "block", "output_bytes": 2}
    layers[0]["name"], layers[-1]["name"] = "embedding", "head"
    return request


def _by_its_layout(request: Document) -> Claim | None:
    """Return what the split of a plan takes, read from the flags that are exported of it."""
    plan = _plan(request, runtime="megatron")
    assert plan.winner is not None
    program = read_program(json.loads(plan.model_dump_json()))
    flags = megatron_flags(program, chosen("megatron").settings())
    found = re.search('--pipeline-model-parallel-layout "(.*)"', flags)
    assert found is not None
    times = [{k: layer[k] for k in KINDS[:2]} for layer in request["model"]["layers"]]
    link = request["cluster"]["within_node"]
    described = {
        "num_microbatches": request["search"]["microbatches"][0],
        "embedding": times[0],
        "decoder": times[1:-1],
        "loss": times[-1],
        "p2p": {"latency": link["latency"] + 2 / link["bandwidth"]},
    }
    instance = instance_of(parse_layout(found[1], 2), LayerTimes.parse(described))
    return solved(instance_data(instance), runtime="megatron", time_limit=0)


def profiles_of(request: Document) -> list[Document]:
    """Return the requests of one profile each."""
    profiles = [request["model"], *request.get("variants", ())]
    return [
        {name: entry for name, entry in request.items() if name != "variants"}
        | {"model": profile}
        for profile in profiles
    ]


def pipelines_of(request: Document) -> Iterator[Document]:
    """Yield the pipeline of every split of the layers, written out by hand."""
    devices = request["cluster"]["devices_per_node"]
    for placement in request["search"].get("placements", ["linear"]):
        stages = devices if placement == "linear" else 2 * devices
        for profile in profiles_of(request):
            layers = profile["model"]["layers"]
            for inner in combinations(range(1, len(layers)), stages - 1):
                yield _pipeline(profile, placement, [0, *inner, len(layers)])


def _pipeline(request: Document, placement: str, boundaries: list[int]) -> Document:
    layers, devices = request["model"]["layers"], request["cluster"]["devices_per_node"]
    stages = [layers[first:last] for first, last in pairwise(boundaries)]

    def sums(field: str) -> list[Any]:
        return [sum(layer.get(field, 0) for layer in stage) for stage in stages]

    document: Document = {
        "kind": "pipeline",
        "num_devices": devices,
        "num_microbatches": request["search"]["microbatches"][0],
        "placement": placement,
        "times": {kind: sums(kind) for kind in KINDS if kind in layers[0]},
        "p2p": {"latency": _latencies(request, stages, placement)},
    }
    if placement != "linear":
        document["stages_per_device"] = 2
    if "memory" in request["cluster"]:
        document["memory"] = {
            "capacity": request["cluster"]["memory"],
            "activation": sums("activation_bytes"),
            "static": sums("state_bytes"),
        }
    return document


def _latencies(
    request: Document, stages: list[list[Document]], placement: str
) -> list[list[Any]]:
    # The largest tensor between two devices decides for both directions, as docs/planning.md says.
    link, devices = (
        request["cluster"]["within_node"],
        request["cluster"]["devices_per_node"],
    )
    row = list(range(devices))
    order = (
        row
        if placement == "linear"
        else [*row, *(row[::-1] if placement == "vshape" else row)]
    )
    latency: list[list[Any]] = [[0] * devices for _ in row]
    for (a, b), stage in zip(pairwise(order), stages, strict=False):
        if a != b:
            time = link["latency"] + stage[-1]["output_bytes"] / link["bandwidth"]
            latency[a][b] = latency[b][a] = max(latency[a][b], time)
    return latency


def every_split(request: Document, **options: Any) -> Claim:
    """Return what the best of all splits takes, each solved by itself."""
    return best_of(solved(document, **options) for document in pipelines_of(request))


def _simulated(request: Document, heuristic: str) -> Claim:
    claims = []
    for document in pipelines_of(request):
        entry = ppsolve.simulate(ppsolve.parse_instance(document), heuristic)
        is_feasible = entry.status is HeuristicStatus.FEASIBLE
        status = Status.OPTIMAL if is_feasible else Status.INFEASIBLE
        claims.append(claim(status, entry.value if is_feasible else None, None))
    return best_of(claims)


def _each_placement(request: Document, **options: Any) -> Claim:
    placements = request["search"]["placements"]
    return best_of(
        planned(request, placements=[name], **options) for name in placements
    )


ONE_STAGE_A_RANK = {
    "--for megatron": partial(planned, runtime="megatron"),
    "--for deepspeed": partial(planned, runtime="deepspeed"),
    "schedules": partial(planned, schedules=["1f1b"]),
    "every split for megatron": partial(every_split, runtime="megatron", time_limit=0),
    "every split simulated": partial(_simulated, heuristic="1f1b"),
}

PLANS = (
    Question(
        "layout of a plan",
        _with_named_layers,
        {"plan": partial(planned, runtime="megatron"), "layout": _by_its_layout},
        count=8,
    ),
    Question(
        "plan of one configuration",
        _one_configuration,
        {
            "plan": planned,
            "exhaustive": partial(planned, exhaustive=True),
            "pipeline": every_split,
        },
        count=12,
    ),
    Question(
        "plan of all splits",
        _several_splits,
        {
            "plan": planned,
            "exhaustive": partial(planned, exhaustive=True),
            "splits": every_split,
        },
        count=8,
    ),
    Question(
        "plan of placements",
        _on_several_placements,
        {"together": planned, "each alone": _each_placement, "splits": every_split},
        count=6,
    ),
    Question("plan for a runtime", _several_splits, ONE_STAGE_A_RANK, count=16),
    Question(
        "plan that recomputes for a runtime", _recomputed, ONE_STAGE_A_RANK, count=16
    ),
    Question(
        "plan of placements for a runtime",
        _looped,
        {
            "--for megatron": partial(planned, runtime="megatron"),
            "each alone": partial(_each_placement, runtime="megatron"),
            "every split": partial(every_split, runtime="megatron", time_limit=0),
        },
        count=6,
    ),
    Question(
        "plan of several stages for a runtime",
        _interleaved,
        {
            "--for megatron": partial(planned, runtime="megatron"),
            "every split": partial(every_split, runtime="megatron", time_limit=0),
        },
        count=12,
    ),
)

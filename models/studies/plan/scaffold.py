"""Requests for plans from the sizes of a decoder: operations, activations, parameters by formula.

Times are operations over an achieved rate, not measurements: a request to begin with.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ppsolve.models.studies.plan.estimates import (
    Term,
    Terms,
    attention_pairs,
    block_activations,
    block_operations,
    block_parameters,
    embedding_activations,
    embedding_parameters,
    expert_weights,
    head_activations,
    head_operations,
    head_parameters,
    total,
)
from ppsolve.models.studies.plan.request import PlanRequest, parse_request
from ppsolve.models.studies.plan.sizes import Sizes

MICROSECONDS = 10**6
DECIMALS = 3
"""Of times in microseconds: nanoseconds."""

FIELDS = ("forward", "backward_input", "backward_weight")
"""Times of a layer."""


def plan_request(sizes: Sizes, *variants: Sizes) -> PlanRequest:
    """Return a request for the plan of a decoder on a cluster, in microseconds.

    It has one batch size and allows any schedule. With tensor parallelism each device of a group
    has a share of the operations and parameters, and sends a share of the next stage's input
    (scatter and gather, Narayanan et al. 2021, section 4.1); a block all-reduces its output twice
    there and twice back (section 2.3), and twice again where its forward is run again. Parameters
    and gradients take 2 bytes each, with weights, gradients and Adam in mixed precision 16 bytes,
    the default of requests, of which replicas may share the 12 of the optimizer.

    `variants`: the same sizes with other tensor parallelism or recomputation, each of which has a
        profile that the plan may choose.
    """
    unit = sizes.replica_unit
    replicas = [
        n for n in range(unit, sizes.devices + 1, unit) if not sizes.devices % n
    ]
    return parse_request(
        {
            "schema": 1,
            "kind": "plan",
            "name": sizes.name,
            "time_unit": "us",
            "model": _profile(sizes),
            "variants": [_profile(variant) for variant in variants],
            "cluster": _cluster(sizes),
            "search": {
                "placements": ["linear", "interleaved", "vshape"],
                "batch_sizes": [sizes.batch_size],
                "backward": ["fused", "split"],
                **({"replicas": replicas} if unit > 1 else {}),
            },
        }
    )


def explained(sizes: Sizes) -> Iterator[str]:
    """Yield a line for each estimate of a request: what is counted, its amount, its formula."""
    rate = f"{float(sizes.flops) * sizes.group_size:.4g}"
    for layer in _layers(sizes):
        yield _line(f"{layer.name} parameters", layer.parameters)
        yield _line(f"{layer.name} activation bytes of a sample", layer.activations)
        for name in FIELDS:
            label = f"{layer.name} {name.replace('_', ' ')}"
            if layer.operations:
                yield _line(f"{label} operations of a sample", layer.operations[name])
            for term in layer.waits.get(name, ()):
                yield f"{label} {term.name}: {term.amount:,.3f} us = {term.formula}"
        amount = f"{_state_bytes(sizes, layer):,.0f} bytes"
        shards = sizes.optimizer_shards * sizes.context_parallel
        share = "12" if sizes.optimizer_shards == 1 else f"12 / {shards}"
        yield f"{layer.name} state of a device: {amount} = (4 + {share}) x parameters of it"
    yield f"times: operations / {rate} operations per second of a group, and what it waits for"


def _line(name: str, terms: Terms) -> str:
    parts = " + ".join(
        f"{term.name} {term.amount:,.0f} [{term.formula}]"
        for term in terms
        if term.amount
    )
    return f"{name}: {total(terms):,.0f} = {parts or '0'}"


@dataclass(frozen=True)
class _Layer:
    """A layer, or equal ones in a row."""

    name: str
    parameters: Terms
    activations: Terms
    operations: dict[str, Terms] = field(default_factory=dict)  # by field
    reduces: dict[str, int] = field(default_factory=dict)  # all-reduces by field
    waits: dict[str, Terms] = field(default_factory=dict)  # us of a sample, by field
    experts: float = 0  # parameters of all experts among which a token chooses
    count: int = 1


def _layers(sizes: Sizes) -> Iterator[_Layer]:
    embedding = {"forward": 1}
    yield _Layer(
        "embedding",
        embedding_parameters(sizes),
        embedding_activations(sizes),
        reduces=embedding,
        waits=_waits(sizes, embedding),
    )
    again = 2 if sizes.recompute == "full" else 0
    reduces = {"forward": 2, "backward_input": 2 + again}
    for has_experts, count in sizes.block_kinds.items():
        yield _Layer(
            "dense block" if sizes.dense_layers and not has_experts else "block",
            block_parameters(sizes, has_experts=has_experts),
            block_activations(sizes, has_experts=has_experts),
            block_operations(sizes, has_experts=has_experts),
            reduces,
            _waits(sizes, reduces, is_block=True, has_experts=has_experts),
            expert_weights(sizes).amount if has_experts else 0,
            count,
        )
    last = {"backward_input": 1}
    yield _Layer(
        "head",
        head_parameters(sizes),
        head_activations(sizes),
        head_operations(sizes),
        last,
        _waits(sizes, last),
    )


def _waits(
    sizes: Sizes,
    reduces: dict[str, int],
    *,
    is_block: bool = False,
    has_experts: bool = False,
) -> dict[str, Terms]:
    """Return the microseconds for which a sample waits for other devices of a group, by field.

    Nothing hides all-reduces and all-to-alls. Keys and values pass a ring while scores are
    computed (Liu et al. 2023), so that only what takes longer than them counts.
    """
    t, c, e = sizes.tensor_parallel, sizes.context_parallel, sizes.expert_parallel
    sent = 2 * sizes.sequence_length * sizes.hidden / c / t
    waits = {}
    for name, count in reduces.items():
        terms: Terms = ()
        if t > 1:
            amount = _us(sizes, 2 * (t - 1) * count * sent)
            formula = f"{count} x 2 (t - 1) x 2 s h / (t c) / bandwidth"
            terms += (Term("all-reduces", formula, amount),)
        if is_block and c > 1:
            terms += _ring(sizes, count // 2)
        if has_experts and e > 1:
            amount = count * sent * sizes.experts_per_token * (e - 1) / e
            spans = e * sizes.group_size > sizes.node_size
            formula = f"{count} x 2 s h K (e - 1) / (e t c) / bandwidth"
            terms += (Term("all-to-alls", formula, _us(sizes, amount, spans=spans)),)
        waits[name] = terms
    return waits


def _ring(sizes: Sizes, passes: int) -> Terms:
    c = sizes.context_parallel
    local = sizes.sequence_length / c
    sent = (c - 1) * 4 * local * sizes.kv_width / sizes.tensor_parallel
    scores = attention_pairs(sizes).amount / _rate(sizes)
    amount = passes * max(0.0, _us(sizes, sent) - scores)
    formula = f"{passes} x ((c - 1) x 4 s k d / (t c) / bandwidth - scores)"
    return (Term("ring of keys and values", formula, amount),)


def _us(sizes: Sizes, amount: float, *, spans: bool = False) -> float:
    bandwidth = sizes.node_bandwidth if spans else sizes.bandwidth
    return amount / float(bandwidth or sizes.bandwidth) * MICROSECONDS


def _rate(sizes: Sizes) -> float:
    return float(sizes.flops) * sizes.group_size / MICROSECONDS


def _profile(sizes: Sizes) -> dict[str, Any]:
    return {
        "tensor_parallel": sizes.group_size,
        "recompute": sizes.recompute,
        "microbatch_sizes": sizes.microbatch_sizes,
        "layers": [_layer(sizes, layer) for layer in _layers(sizes)],
    }


def _layer(sizes: Sizes, layer: _Layer) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": layer.name,
        "count": layer.count,
        "activation_bytes": round(total(layer.activations)),
    }
    latency = 2 * (sizes.tensor_parallel - 1) * float(sizes.latency)
    for name in FIELDS:
        work = total(layer.operations.get(name, ())) / _rate(sizes)
        waits = total(layer.waits.get(name, ()))
        fixed = latency * layer.reduces.get(name, 0)
        entry[name] = {
            "fixed": round(fixed, DECIMALS),
            "per_sample": round(work + waits, DECIMALS),
        }
    gradients = 2 * sum(_held(sizes, layer))
    shared = sizes.context_parallel
    if shared > 1:
        reduced = _us(sizes, 2 * (shared - 1) / shared * gradients)
        entry["optimizer"] = round(reduced, DECIMALS)
    sent = 2 * sizes.sequence_length * sizes.hidden / sizes.group_size
    entry |= {"output_bytes": round(sent), "parameter_bytes": round(gradients)}
    if sizes.optimizer_shards > 1:
        entry["state_bytes"] = round(_state_bytes(sizes, layer))
    return entry


def _held(sizes: Sizes, layer: _Layer) -> tuple[float, float]:
    """Return the parameters of a layer on a device: of experts, and all others."""
    own = layer.experts / sizes.expert_parallel / sizes.tensor_parallel
    return own, (total(layer.parameters) - layer.experts) / sizes.tensor_parallel


def _state_bytes(sizes: Sizes, layer: _Layer) -> float:
    """Return the bytes of parameters, gradients and the optimizer on a device.

    Weights and gradients take 4 bytes, the optimizer 12 (Rajbhandari et al. 2020), which replicas
    share; each expert has fewer of those.
    """
    shards = sizes.optimizer_shards
    if shards == 1:
        return 16 * sum(_held(sizes, layer))
    experts, others = _held(sizes, layer)
    ring = sizes.context_parallel
    copies = max(1, shards * ring // sizes.expert_parallel)
    return experts * (4 + 12 / copies) + others * (4 + 12 / (shards * ring))


def _cluster(sizes: Sizes) -> dict[str, Any]:
    links = {"within_node": sizes.bandwidth, "between_nodes": sizes.node_bandwidth}
    return {
        "nodes": sizes.devices // sizes.node_size,
        "devices_per_node": sizes.node_size,
        "memory": sizes.memory,
        **{
            name: {"latency": sizes.latency, "bandwidth": bandwidth / MICROSECONDS}
            for name, bandwidth in links.items()
            if bandwidth is not None
        },
    }

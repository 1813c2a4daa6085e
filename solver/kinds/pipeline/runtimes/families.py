"""The runtimes, and what each of them runs: one list for exporters, checks and searches.

Read in Megatron-LM main (2026-08-22): 1F1B with p - r - 1 forwards first, or interleaved with
2 (p - r - 1) + (v - 1) N, for rank r of p, v chunks per rank and groups of N micro-batches, of
which the last has at least p; one forward more where forwards and backwards are combined. DeepSpeed
(master, 2026-11): 1F1B. Primus (main, 2026-08-22) takes data in the order of forwards, ColossalAI
(main, 2026-11) micro-batches from queues.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.pipeline.modes import group_sizes
from ppsolve.solver.kinds.pipeline.grammar import (
    BACKWARD,
    FORWARD,
    Action,
    Overlap,
    actions_of,
)
from ppsolve.solver.kinds.pipeline.interleaved import interleaved_1f1b
from ppsolve.solver.kinds.pipeline.one_stage import one_forward_one_backward
from ppsolve.solver.kinds.pipeline.programs.shape import PipelineShape
from ppsolve.solver.kinds.pipeline.runtimes.deepspeed_waits import deepspeed_waits
from ppsolve.solver.kinds.pipeline.runtimes.family import (
    FixedOrder,
    Rows,
    RuntimeFamily,
)
from ppsolve.solver.kinds.pipeline.runtimes.megatron_waits import megatron_waits
from ppsolve.solver.kinds.pipeline.runtimes.placement import (
    elsewhere,
    folded,
    is_folded,
    not_looped,
)
from ppsolve.solver.kinds.pipeline.runtimes.primus_waits import primus_programs
from ppsolve.solver.kinds.pipeline.runtimes.recomputing import (
    unknown_to_deepspeed,
    unknown_to_megatron,
    unknown_to_primus,
)
from ppsolve.solver.kinds.pipeline.runtimes.torch_waits import torch_programs


def _one_f_one_b(shape: PipelineShape) -> Iterator[FixedOrder]:
    yield FixedOrder(
        "1F1B", one_forward_one_backward(shape.num_ranks, shape.num_microbatches)
    )


def _in_groups(shape: PipelineShape) -> Iterator[FixedOrder]:
    if shape.chunks == 1:
        yield from _one_f_one_b(shape)
        return
    ranks, count = shape.num_ranks, shape.num_microbatches
    for size in group_sizes(ranks, count):
        orders = interleaved_1f1b(ranks, shape.chunks, count, size)
        yield FixedOrder(f"groups of {size}", orders, size)
        if shape.fuses:
            orders = interleaved_1f1b(ranks, shape.chunks, count, size, combined=True)
            yield FixedOrder(
                f"groups of {size}, combined", orders, size, is_combined=True
            )


def _megatron_rule(shape: PipelineShape) -> str:
    if shape.chunks == 1:
        return "1F1B with one stage per rank"
    ranks, count = shape.num_ranks, shape.num_microbatches
    return (
        f"interleaved 1F1B in groups of {ranks} to {count} micro-batches, the last one not below "
        f"{ranks}"
    )


def _not_in_groups(shape: PipelineShape, title: str) -> str | None:
    wrong = not_looped(shape, title)
    if wrong is not None or shape.chunks == 1:
        return wrong
    ranks, count = shape.num_ranks, shape.num_microbatches
    if ranks == 1:
        return f"placement: {title} needs several ranks for several stages per rank"
    if count < ranks:
        return f"order: {title} runs groups of at least {ranks} micro-batches, there are {count}"
    return None


def _in_groups_of_ranks(shape: PipelineShape) -> Iterator[FixedOrder]:
    yield next(iter(_in_groups(shape)))


def _not_in_groups_of_ranks(shape: PipelineShape, title: str) -> str | None:
    wrong, ranks, count = (
        not_looped(shape, title),
        shape.num_ranks,
        shape.num_microbatches,
    )
    if wrong is None and shape.chunks > 1 and count % ranks:
        return f"micro-batches: {title} needs a multiple of {ranks} micro-batches, got {count}"
    return wrong


def _several_per_rank(shape: PipelineShape, title: str) -> str | None:
    wrong, ranks = not_looped(shape, title), shape.num_ranks
    if wrong is None and shape.chunks > 1:
        return f"placement: {title} has one stage per rank, stage {ranks} is on rank 0"
    return wrong


def _neither_looped_nor_folded(shape: PipelineShape, title: str) -> str | None:
    return None if is_folded(shape) else not_looped(shape, title)


def _not_in_queues(shape: PipelineShape, title: str) -> str | None:
    ranks, count = shape.num_ranks, shape.num_microbatches
    rule = f"{title} puts stages s and 2p - 1 - s on rank s"
    wrong = elsewhere(shape, folded(ranks), rule)
    if wrong is None and count % ranks:
        return f"micro-batches: {title} needs a multiple of {ranks} micro-batches, got {count}"
    if wrong is None and not shape.is_split:
        return f"op: {title} runs I and W apart, backwards are whole"
    return wrong


def _not_in_tables(rows: Rows, shape: PipelineShape, title: str) -> str | None:
    forwards = [
        [action for action in _all(rows) if action[:2] == (stage, FORWARD)]
        for stage in (0, shape.num_stages - 1)
    ]
    for index, (first, last) in enumerate(zip(*forwards, strict=True)):
        if first.microbatch != last.microbatch:
            return (
                f"data-order: {title} takes data in the order of forwards, on the first stage as "
                f"on the last one; {first} is forward number {index}"
            )
    for pair in (step for row in rows for step in row if isinstance(step, Overlap)):
        if pair.forward.microbatch == pair.backward.microbatch:
            return f"op: {title} combines different micro-batches, {pair} is of one"
    return None


def _queue_order(rows: Rows, shape: PipelineShape, title: str) -> str | None:
    counts: Counter[tuple[int, str]] = Counter()
    for step in (step for row in rows for step in row):
        if not isinstance(step, Action) or step.kind == BACKWARD:
            return f"op: {title} runs I and W apart, it has no {step}"
        key = step.stage, step.kind
        if step.microbatch != counts[key]:
            return (
                f"order: {title} runs the {step.kind} of each stage in the order of "
                f"micro-batches, {step} comes before {step._replace(microbatch=counts[key])}"
            )
        counts[key] += 1
    return None


def _all(rows: Rows) -> Iterator[Action]:
    return (action for row in rows for step in row for action in actions_of(step))


TORCH = RuntimeFamily(
    "torch", "PyTorch", lambda *_: None, recomputes="stage", waits_as_delays=True
)
TORCHTITAN = RuntimeFamily(
    "torchtitan",
    "torchtitan",
    _neither_looped_nor_folded,
    recomputes="stage",
    row_programs=torch_programs,
)
MEGATRON = RuntimeFamily(
    "megatron",
    "Megatron-LM",
    _not_in_groups,
    _in_groups,
    _megatron_rule,
    recomputes="all",
    has_windows=True,
    unknown=unknown_to_megatron,
    recomputes_layers="first",
    waits=megatron_waits,
)
COLOSSALAI = RuntimeFamily(
    "colossalai",
    "ColossalAI",
    _not_in_queues,
    breaks=_queue_order,
    recomputes_layers=None,
)
PRIMUS = RuntimeFamily(
    "primus",
    "Primus",
    _neither_looped_nor_folded,
    breaks=_not_in_tables,
    recomputes="stage",
    unknown=unknown_to_primus,
    recomputes_layers="whole",
    timed_programs=primus_programs,
)
DEEPSPEED = RuntimeFamily(
    "deepspeed",
    "DeepSpeed",
    _several_per_rank,
    _one_f_one_b,
    lambda _: "1F1B",
    recomputes="all",
    unknown=unknown_to_deepspeed,
    leaves_out_unknown=True,
    recomputes_layers="all",
    waits=deepspeed_waits,
)
MINDFORMERS = RuntimeFamily(
    "mindformers",
    "MindFormers",
    _not_in_groups_of_ranks,
    _in_groups_of_ranks,
    lambda s: (
        "1F1B" if s.chunks == 1 else f"interleaved 1F1B in groups of {s.num_ranks}"
    ),
    recomputes="stage",
)

FAMILIES = (TORCH, TORCHTITAN, MEGATRON, COLOSSALAI, PRIMUS, DEEPSPEED)
"""Every runtime, in the order of the help."""


def family_of(name: str) -> RuntimeFamily:
    """Return the runtime of this name; raises `InputError` where there is none."""
    known = {family.name: family for family in FAMILIES}
    if name not in known:
        raise InputError.unknown(
            "unknown runtime",
            name,
            known,
            field="runtime",
        )
    return known[name]

"""The published pipeline schedules, and the pipelines to which each applies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ppsolve.models.core.problem import IntArray
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.heuristics.heuristic import (
    Heuristic,
    Proposal,
    Request,
    Requirement,
)
from ppsolve.solver.kinds.pipeline import (
    controllable_memory,
    interleaved,
    one_stage,
    sliced,
    vshape,
)
from ppsolve.solver.kinds.pipeline.actions import (
    Order,
    action_strings,
    schedule_actions,
)
from ppsolve.solver.kinds.pipeline.blocks import schedule_blocks
from ppsolve.solver.kinds.pipeline.chimera import chimera

A_PIPELINE = "a pipeline"

ONE_PIPE = Requirement(
    "one pipe (not bidirectional)",
    lambda instance: instance.placement != "bidirectional",
)
ONE_STAGE = Requirement(
    "stages = devices, one stage on each",
    lambda instance: (
        sorted(instance.stage_to_device) == list(range(instance.num_devices))
    ),
)
LOOPED = Requirement(
    "at least 2 devices and 2 stages per device with stage = chunk x devices + device",
    lambda instance: (
        instance.num_devices >= 2
        and instance.num_stages >= 2 * instance.num_devices
        and instance.num_stages % instance.num_devices == 0
        and all(
            d == s % instance.num_devices
            for s, d in enumerate(instance.stage_to_device)
        )
    ),
)
V_SHAPED = Requirement(
    "a V placement: 2 stages per device, device d has d and 2 x devices - 1 - d",
    lambda instance: (
        instance.stage_to_device
        == (*range(instance.num_devices), *reversed(range(instance.num_devices)))
    ),
)
SPLIT = Requirement(
    "split backwards (backward_input and backward_weight)",
    lambda instance: instance.times.is_split,
)
TWICE_THE_DEVICES = Requirement(
    "micro-batches >= 2 x devices",
    lambda instance: instance.num_microbatches >= 2 * instance.num_devices,
)


UNEQUAL = Requirement(
    "unequal micro-batches that are not sliced",
    lambda instance: instance.slices is None and instance.has_unequal_microbatches,
)
SLICED = Requirement("sequence slices", lambda instance: instance.slices is not None)
IN_ROUNDS = Requirement(
    "stage = chunk x devices + device",
    lambda instance: (
        instance.num_stages % instance.num_devices == 0
        and all(
            d == s % instance.num_devices
            for s, d in enumerate(instance.stage_to_device)
        )
    ),
)
WHOLE_GROUPS = Requirement(
    "micro-batches as a multiple of the devices, and these of the slices",
    lambda instance: (
        instance.num_microbatches % instance.num_devices == 0
        and instance.num_devices % instance.num_slices == 0
    ),
)
BIDIRECTIONAL = Requirement(
    "bidirectional pipes", lambda instance: instance.placement == "bidirectional"
)
FUSING = Requirement(
    "blocks of a forward and a backward (overlap)",
    lambda instance: instance.overlap is not None,
)

EVEN_DEVICES = Requirement(
    "an even number of devices", lambda instance: instance.num_devices % 2 == 0
)

_Orders = Callable[[PipelineInstance, Request], list[Order]]


@dataclass(frozen=True)
class StaticOrders:
    """Runs orders that are known before time goes by; micro-batches go by their index.

    Orders that are sliced count slices; in others the slices of a micro-batch follow each other.
    """

    orders: _Orders
    is_sliced: bool = False

    def __call__(
        self, request: Request, permutation: IntArray | None = None
    ) -> Proposal:
        """Time the orders, in which each micro-batch may take the place of another one's index."""
        orders = self.orders(request.instance, request)
        if request.problem.slices > 1:
            if not self.is_sliced:
                orders = sliced.in_slices(orders, request.problem.slices)
            return Proposal(schedule_actions(request.problem, orders))
        if permutation is not None:
            orders = [
                replace(order, microbatch=permutation[order.microbatch])
                for order in orders
            ]
        if request.instance.overlap is not None and any(
            len(order.overlaps) for order in orders
        ):
            schedule = schedule_blocks(request.instance, orders)
        else:
            schedule = schedule_actions(request.problem, orders)
        return Proposal(schedule, action_strings(orders))


def _fixed(
    name: str,
    summary: str,
    orders: _Orders,
    requirements: tuple[Requirement, ...],
    source: str,
    *,
    is_sliced: bool = False,
) -> Heuristic:
    """Return a heuristic whose orders follow from the shape of the pipeline, whatever its times."""
    return Heuristic(
        name,
        summary,
        StaticOrders(orders, is_sliced),
        A_PIPELINE,
        requirements,
        orders=lambda request: orders(request.instance, request),
        source=source,
    )


def _per_stage(orders: Callable[[int, int], list[Order]]) -> _Orders:
    """Wrap a rule that gives one order per stage, each on a device of its own."""

    def placed(instance: PipelineInstance, _: Request) -> list[Order]:
        of_stage = orders(instance.num_stages, instance.num_microbatches)
        on_device = dict(zip(instance.stage_to_device, of_stage, strict=True))
        return [on_device[device] for device in range(instance.num_devices)]

    return placed


def _per_count(orders: Callable[[int, int], list[Order]]) -> _Orders:
    """Wrap a rule that asks for the numbers of devices and of micro-batches."""
    return lambda instance, _: orders(instance.num_devices, instance.num_microbatches)


def _interleaved(slope: int, *, combined: bool = False) -> _Orders:
    return lambda instance, request: interleaved.interleaved_1f1b(
        instance.num_devices,
        _chunks(instance),
        instance.num_microbatches,
        request.group_size,
        slope,
        combined=combined,
    )


def _looped_bfs(instance: PipelineInstance, _: Request) -> list[Order]:
    stages: list[list[int]] = [[] for _ in range(instance.num_devices)]
    for stage, device in enumerate(instance.stage_to_device):
        stages[device].append(stage)
    return interleaved.looped_bfs(stages, instance.num_microbatches)


def _chunks(instance: PipelineInstance) -> int:
    return instance.num_stages // instance.num_devices


def _sliced(
    name: str,
    summary: str,
    orders: Callable[[int, int, int, int], list[Order]],
    requirements: tuple[Requirement, ...],
    source: str,
) -> Heuristic:
    def placed(instance: PipelineInstance, _: Request) -> list[Order]:
        counts = instance.num_microbatches, instance.num_slices
        return orders(instance.num_devices, _chunks(instance), *counts)

    return _fixed(
        name,
        summary,
        placed,
        (SLICED, ONE_PIPE, *requirements),
        source,
        is_sliced=True,
    )


PUBLISHED = (
    _fixed(
        "1f1b",
        "one forward, one backward after a warm-up",
        _per_stage(one_stage.one_forward_one_backward),
        (ONE_PIPE, ONE_STAGE),
        "PipeDream-Flush: Narayanan et al. 2021",
    ),
    _fixed(
        "gpipe",
        "all forwards, then all backwards",
        _per_stage(one_stage.gpipe),
        (ONE_PIPE, ONE_STAGE),
        "GPipe: Huang et al. 2019; by slices TeraPipe: Li et al. 2021",
    ),
    _fixed(
        "zb-1p",
        "zero bubble within 1F1B's memory (visualizer's rule)",
        _per_stage(one_stage.zb_1p),
        (ONE_PIPE, ONE_STAGE, SPLIT),
        "zero-bubble visualizer: Qi et al. 2024",
    ),
    _fixed(
        "zb-h1",
        "hand-made zero bubble, memory of 1F1B",
        _per_stage(lambda stages, m: one_stage.zb_handmade(stages, m, 1)),
        (ONE_PIPE, ONE_STAGE, SPLIT),
        "ZB-H1: Qi et al. 2024",
    ),
    _fixed(
        "zb-h2",
        "hand-made zero bubble, twice the memory of 1F1B",
        _per_stage(lambda stages, m: one_stage.zb_handmade(stages, m, 2)),
        (ONE_PIPE, ONE_STAGE, SPLIT),
        "ZB-H2: Qi et al. 2024",
    ),
    _fixed(
        "interleaved-1f1b",
        "1F1B over several chunks per device, micro-batches in groups",
        _interleaved(2),
        (ONE_PIPE, LOOPED),
        "Megatron-LM: Narayanan et al. 2021",
    ),
    _fixed(
        "interleaved-less-memory",
        "interleaved 1F1B with a shorter warm-up, which holds fewer activations",
        _interleaved(1),
        (ONE_PIPE, LOOPED),
        "MindFormers pipeline_balance (SAPP), interleaved with less memory",
    ),
    _fixed(
        "combined-1f1b",
        "pairs of a forward and a backward after a warm-up",
        _per_stage(
            lambda stages, m: interleaved.interleaved_1f1b(
                stages, 1, m, m, combined=True
            )
        ),
        (ONE_PIPE, ONE_STAGE, FUSING),
        "Megatron-LM's combined 1F1B with one chunk per device, of which it runs one device",
    ),
    _fixed(
        "combined-interleaved-1f1b",
        "interleaved 1F1B with one more forward first, then pairs of a forward and a backward",
        _interleaved(2, combined=True),
        (ONE_PIPE, LOOPED, FUSING),
        "Megatron-LM --overlap-moe-expert-parallel-comm",
    ),
    _fixed(
        "looped-bfs",
        "chunk by chunk, all forwards, then all backwards in reverse",
        _looped_bfs,
        (ONE_PIPE,),
        "PyTorch ScheduleLoopedBFS: Lamy-Poirier 2022 (arXiv 2211.05953)",
    ),
    _fixed(
        "interleaved-zb",
        "zero bubble over several chunks per device",
        lambda instance, _: interleaved.interleaved_zero_bubble(
            instance.num_devices, _chunks(instance), instance.num_microbatches
        ),
        (ONE_PIPE, LOOPED, SPLIT),
        "PyTorch ScheduleInterleavedZeroBubble",
    ),
    _fixed(
        "zbv",
        "zero bubble on a V placement",
        _per_count(vshape.zbv),
        (ONE_PIPE, V_SHAPED, SPLIT),
        "ZB-V: Qi et al. 2024, as PyTorch emits it",
    ),
    _fixed(
        "v-half",
        "zero bubble on a V placement, half the memory of 1F1B and a little more",
        _per_count(controllable_memory.v_half),
        (ONE_PIPE, V_SHAPED, SPLIT),
        "V-Half: Qi et al. 2024 (arXiv 2405.15362), as its repository emits it",
    ),
    _fixed(
        "v-min",
        "zero bubble on a V placement, a third of the memory of 1F1B and a little more",
        _per_count(controllable_memory.v_min),
        (ONE_PIPE, V_SHAPED, SPLIT),
        "V-Min: Qi et al. 2024 (arXiv 2405.15362), as its repository emits it",
    ),
    _fixed(
        "dualpipe-v",
        "DualPipe folded onto a V placement; a pair is one block, or timed as F, then B",
        _per_count(vshape.dualpipe_v),
        (ONE_PIPE, V_SHAPED, TWICE_THE_DEVICES, SPLIT),
        "DualPipeV: DeepSeek 2025, as PyTorch emits it",
    ),
    _fixed(
        "dualpipe",
        "zero bubble in both directions; a pair is one block, or timed as F, then B",
        _per_count(vshape.dualpipe),
        (BIDIRECTIONAL, EVEN_DEVICES, TWICE_THE_DEVICES, SPLIT),
        "DualPipe: DeepSeek 2024",
    ),
    Heuristic(
        "chimera",
        "1F1B in both directions, merged on each device by earliest start",
        StaticOrders(
            lambda instance, request: chimera(instance, request.problem), is_sliced=True
        ),
        A_PIPELINE,
        (BIDIRECTIONAL,),
        source="Chimera: Li and Hoefler 2021",
    ),
)
"""Published pipeline schedules, in the order of reports. Of schedules that take as long the first
stays the best, so that 1F1B stands before GPipe, which holds all activations."""

SLICED_ORDERS = (
    _sliced(
        "seq1f1b",
        "1F1B by slices, whose first backward is that of a micro-batch's last slice",
        sliced.seq1f1b,
        (ONE_STAGE, IN_ROUNDS),
        "Seq1F1B: Sun et al. 2024, as its repository runs it",
    ),
    _sliced(
        "interleaved-seq1f1b",
        "interleaved 1F1B by slices, in groups of as many slices as devices",
        sliced.interleaved_seq1f1b,
        (LOOPED, WHOLE_GROUPS),
        "Seq1F1B-I: Sun et al. 2024, as its repository runs it",
    ),
    _sliced(
        "seq1f1b-zb",
        "ZB-H1 by slices, its warm-up longer by slices - 1",
        sliced.seq1f1b_zb,
        (ONE_STAGE, IN_ROUNDS, SPLIT),
        "Seq1F1B-ZBH1: Sun et al. 2024",
    ),
    _sliced(
        "slimpipe",
        "1F1B by slices, a micro-batch's together, two forwards further from device to device",
        sliced.slimpipe,
        (IN_ROUNDS,),
        "SlimPipe: Li et al. 2025 (arXiv 2504.14519)",
    ),
)
"""Published orders of sequence slices."""

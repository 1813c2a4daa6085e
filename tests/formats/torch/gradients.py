"""Run a schedule on small real stages and compare gradients with the model in one piece."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

from ppsolve.models.core.result import HeuristicEntry, Result
from ppsolve.solver.formats.program import Format
from ppsolve.solver.formats.torch.checkpoint import checkpointed
from ppsolve.solver.formats.torch.runtime import build_schedule, feeding_order

WIDTH, ROWS, LENGTH = 12, 3, 5
"""Features of an activation, sequences of a micro-batch, and their length."""

PARTS = {"first": ["0"]}
"""The layers of a stage that the mode ``first`` recomputes."""


def modules(count: int, *, is_transformer: bool = False) -> list[nn.Module]:
    """Uneven stages of 1, 2 and 3 layers, with the same weights in every process."""
    torch.manual_seed(count)
    more = {"dropout": 0, "batch_first": True, "norm_first": True}

    def layer() -> nn.Module:
        if is_transformer:
            return nn.TransformerEncoderLayer(WIDTH, 2, 8, **more)
        return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.LayerNorm(WIDTH))

    stages = [[layer() for _ in range(1 + stage % 3)] for stage in range(count)]
    return [nn.Sequential(*layers).double() for layers in stages]


def batch(microbatches: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    shape = (microbatches, ROWS, LENGTH, WIDTH)
    x, y = (
        torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2)
    )
    return x, y


def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return ((output - target) ** 2).mean()


def reference(
    whole: list[nn.Module], microbatches: int
) -> tuple[list[nn.Module], list[float]]:
    """Return the stages with the gradients of one piece, and the loss of each micro-batch."""
    model = nn.Sequential(*whole)
    losses = [loss(model(x), y) for x, y in zip(*batch(microbatches), strict=True)]
    torch.stack(losses).mean().backward()
    return whole, [float(one) for one in losses]


def furthest(found: nn.Module, wanted: nn.Module) -> float:
    """Return the largest difference of a gradient, relative to the largest of its parameter."""
    pairs = zip(found.parameters(), wanted.parameters(), strict=True)
    worst = 0.0
    for one, other in pairs:
        assert one.grad is not None and other.grad is not None
        worst = max(
            worst, float((one.grad - other.grad).abs().max() / other.grad.abs().max())
        )
    return worst


def differences(
    rank: int,
    group: Any,
    *,
    result: tuple[type[Result | HeuristicEntry], str],
    form: Format,
    is_transformer: bool = False,
) -> tuple[float, float]:
    """Run the schedule of a result on the stages of a rank.

    Returns the largest relative differences of gradients and of losses by micro-batch.
    """
    kind, text = result
    read = kind.model_validate_json(text)
    assert read.schedule is not None
    of_stage = {op.stage: op.device for op in read.schedule.ops if op.kind == "F"}
    count, order = len(of_stage), list(feeding_order(read))
    own, whole = (modules(count, is_transformer=is_transformer) for _ in range(2))
    stages = [
        PipelineStage(
            checkpointed(read, stage, own[stage], PARTS),
            stage,
            count,
            torch.device("cpu"),
            group=group,
        )
        for stage in sorted(
            stage for stage, device in of_stage.items() if device == rank
        )
    ]
    runtime = build_schedule(read, stages, loss, form=form)
    x, y = (chunks[order].flatten(0, 1) for chunks in batch(len(order)))
    whole, losses = reference(whole, len(order))
    has_first, has_last = 0 in {s.stage_index for s in stages}, stages[-1].is_last
    given = (x,) if has_first else ()
    kept: list[torch.Tensor] = []
    for module in own:
        module.zero_grad()
    if has_last:
        runtime.step(*given, target=y, losses=kept)
    else:
        runtime.step(*given)
    worst = max(
        furthest(own[stage.stage_index], whole[stage.stage_index]) for stage in stages
    )
    wrong = [abs(float(one) - losses[k]) for one, k in zip(kept, order, strict=False)]
    assert len(wrong) == (len(order) if has_last else 0)
    return worst, max(wrong, default=0.0)


def out_of_order(rank: int, group: Any) -> float:
    """Run a file whose last stage takes micro-batch 1 before 0; return the worst difference."""
    rows = ["0F0,0F1,0B0,0B1", "1F1,1F0,1B0,1B1"]
    own, whole = modules(2), reference(modules(2), 2)[0]
    stage = PipelineStage(own[rank], rank, 2, torch.device("cpu"), group=group)
    runtime = _PipelineScheduleRuntime([stage], 2, loss_fn=loss)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        path.write_text("\n".join(rows) + "\n", encoding="ascii")
        runtime._load_csv(str(path), format="compute_only")
    x, y = (chunks.flatten(0, 1) for chunks in batch(2))
    runtime.step(*([x] if rank == 0 else []), target=y)
    return furthest(own[rank], whole[rank])

"""Run the best schedule of a measured transformer in PyTorch, and compare times.

Its four uneven stages lie on two processes as a V. They are measured by themselves, then in the
steps of a first schedule, from which the best one follows; both are then run in turn. Needs
ppsolve[torch]; an argument names a folder for traces and results, `ppsolve diagnose` reads its
folder `run`.
"""

import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.pipelining import PipelineStage

import ppsolve
from ppsolve.solver.formats.detect import read_trace
from ppsolve.torch import (
    build_schedule,
    compare_in_turn,
    compare_run,
    measured_again,
    profile_stages,
    record_steps,
    steps_of,
    timed_again,
)

PLACES, LAYERS, WIDTH, WORDS, BATCH = [0, 1, 1, 0], (1, 3, 2, 2), 256, 2000, 2
CPU = torch.device("cpu")


def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return the loss of a micro-batch."""
    return nn.functional.cross_entropy(output.flatten(0, 1), target.flatten())


def model() -> list[nn.Module]:
    """Return the stages; the first has the embedding, the last the head."""
    more = {"dropout": 0, "batch_first": True, "norm_first": True}
    each = [
        [nn.TransformerEncoderLayer(WIDTH, 4, 1024, **more) for _ in range(n)]
        for n in LAYERS
    ]
    each[0].insert(0, nn.Embedding(WORDS, WIDTH))
    each[-1].append(nn.Linear(WIDTH, WORDS))
    return [nn.Sequential(*layers) for layers in each]


def best(of: Callable[[], ppsolve.PipelineInstance]) -> ppsolve.Result:
    """Return the best schedule of an instance, found by the first process for both."""
    texts: list[Any] = [None]
    if distributed.get_rank() == 0:
        texts = [ppsolve.optimize(of(), time_limit=10).model_dump_json()]
    distributed.broadcast_object_list(texts)
    return ppsolve.Result.model_validate_json(texts[0])


def work(rank: int, place: str) -> None:
    """Measure and run the stages of one process; the first one solves and compares."""
    torch.set_num_threads(1)
    folder = Path(place)
    distributed.init_process_group(
        "gloo", (folder / "store").resolve().as_uri(), rank=rank, world_size=2
    )
    words, modules = torch.randint(WORDS, (6 * BATCH, 128)), model()
    given = {"num_microbatches": 6, "loss_fn": loss, "target": words[:BATCH]}
    alone = profile_stages(modules, words[:BATCH], stage_to_device=PLACES, **given)
    own = [stage for stage, device in enumerate(PLACES) if device == rank]

    def schedule(result: ppsolve.Result) -> Any:
        stages = [
            PipelineStage(modules[stage], stage, len(PLACES), CPU) for stage in own
        ]
        return build_schedule(result, stages, loss)

    def record(name: str, schedules: list[Any], steps: int) -> None:
        (folder / name).mkdir(exist_ok=True)
        inputs = [words] if rank == 0 else []
        record_steps(schedules, folder / name, *inputs, steps=steps, target=words)
        distributed.barrier()

    first = schedule(best(lambda: alone))
    record("first", [first], 3)
    found = best(lambda: measured_again(alone, read_trace([folder / "first"])))
    record("run", [first, schedule(found)], 7)
    if rank == 0:
        report(alone, found, folder)


def report(
    alone: ppsolve.PipelineInstance, found: ppsolve.Result, folder: Path
) -> None:
    """Print the step as predicted by stages alone and by steps between, then as it was promised."""
    (folder / "result.json").write_text(found.model_dump_json())
    trace = read_trace([folder / "run"])
    beside, run = (steps_of(trace, number, 2) for number in (0, 1))
    rows = compare_run(found, run)
    each = compare_in_turn(found, run, beside)
    by_stages = replace(
        compare_run(timed_again(found, alone), run)[0], name="step, by stages"
    )
    for row in (by_stages, each[len(each) // 2], *rows):
        print(
            f"{row.name:15}{row.predicted:9.0f} us{row.measured:9.0f} us{row.error:8.1%}"
        )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        folder = Path(sys.argv[1] if sys.argv[1:] else made)
        folder.mkdir(parents=True, exist_ok=True)
        torch.multiprocessing.spawn(work, (str(folder),), nprocs=2)

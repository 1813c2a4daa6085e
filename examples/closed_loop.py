"""Run the best schedule of a measured transformer in PyTorch, and compare times.

Its four uneven stages lie on two processes as a V. Needs ppsolve[torch]; an argument names a folder
for the traces, which `ppsolve diagnose` reads.
"""

import sys
import tempfile

import torch
from torch import distributed, nn
from torch.distributed.pipelining import PipelineStage

import ppsolve
from ppsolve.solver.traces.detect import read_trace
from ppsolve.torch import build_schedule, compare_run, profile_stages, record_steps

PLACES, LAYERS, WIDTH, WORDS, BATCH = [0, 1, 1, 0], (1, 3, 2, 2), 256, 2000, 2


def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return the loss of a micro-batch."""
    return nn.functional.cross_entropy(output.flatten(0, 1), target.flatten())


def model() -> list[nn.Module]:
    """Return the stages; the first has the embedding, the last the head."""
    more = {"dropout": 0, "batch_first": True, "norm_first": True}
    each = [[nn.TransformerEncoderLayer(WIDTH, 4, 1024, **more) for _ in range(n)] for n in LAYERS]
    each[0].insert(0, nn.Embedding(WORDS, WIDTH))
    each[-1].append(nn.Linear(WIDTH, WORDS))
    return [nn.Sequential(*layers) for layers in each]


def work(rank: int, folder: str) -> None:
    """Measure stages on both processes at once, as they run; solve on the first; run and record."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=2)
    words, modules = torch.randint(WORDS, (6 * BATCH, 128)), model()
    given = {"num_microbatches": 6, "loss_fn": loss, "target": words[:BATCH]}
    instance = profile_stages(modules, words[:BATCH], stage_to_device=PLACES, **given)
    texts = [ppsolve.optimize(instance, time_limit=30).model_dump_json() if rank == 0 else ""]
    distributed.broadcast_object_list(texts)
    result = ppsolve.Result.model_validate_json(texts[0])
    own = [stage for stage, place in enumerate(PLACES) if place == rank]
    stages = [PipelineStage(modules[n], n, len(PLACES), torch.device("cpu")) for n in own]
    schedule = build_schedule(result, stages, loss)
    record_steps(schedule, folder, *([words] if rank == 0 else []), target=words)
    distributed.barrier()
    for row in compare_run(result, read_trace([folder])) if rank == 0 else ():
        print(f"{row.name:5}{row.predicted:9.0f} us{row.measured:9.0f} us{row.error:7.1%}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        torch.multiprocessing.spawn(work, (sys.argv[1] if sys.argv[1:] else made,), nprocs=2)

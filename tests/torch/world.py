"""Processes that stay alive and run one schedule after another, one process per rank."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

MOST_RANKS = 4
SECONDS = 60
"""After this long without an answer a schedule hangs: none below takes over 5 s."""


class World:
    """Ranks 0 to 3, with a group of the first two, three and four of them."""

    def __init__(self, folder: Path) -> None:
        import multiprocessing as mp

        # One import of torch for all ranks: four at once take over 10 s on two cores.
        context = mp.get_context("forkserver")
        context.set_forkserver_preload(["tests.torch.gradients"])
        self.pipes: list[Connection] = []
        self.processes = []
        for rank in range(MOST_RANKS):
            here, there = context.Pipe()
            process = context.Process(
                target=_serve, args=(there, rank, str(folder / "store")), daemon=True
            )
            process.start()
            self.pipes.append(here)
            self.processes.append(process)

    def run(self, job: Callable[..., Any], ranks: int, **arguments: Any) -> list[Any]:
        """Run ``job(rank, group, **arguments)`` on the first ranks; return what each returns."""
        used = self.pipes[:ranks]
        for pipe in used:
            pipe.send((job, ranks, arguments))
        answers = []
        for rank, pipe in enumerate(used):
            if not pipe.poll(SECONDS):
                self.close()
                raise AssertionError(f"rank {rank} hangs in {job.__name__}")
            is_good, value = pipe.recv()
            if not is_good:
                self.close()
                raise AssertionError(f"rank {rank}: {value}")
            answers.append(value)
        return answers

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.join()


def _serve(pipe: Connection, rank: int, store: str) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=MOST_RANKS,
        timeout=timedelta(seconds=SECONDS),
    )
    groups = {count: dist.new_group(list(range(count))) for count in range(2, MOST_RANKS + 1)}
    while True:
        job, ranks, arguments = pipe.recv()
        try:
            pipe.send((True, job(rank, groups[ranks], **arguments)))
        except Exception:
            pipe.send((False, traceback.format_exc()))

"""Processes that stay alive and run one schedule after another, one process per rank."""

from __future__ import annotations

import multiprocessing as mp
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

MOST_RANKS = 4
SECONDS = 60
"""After this long without an answer a schedule hangs: none below takes over 5 s."""


class World:
    """Ranks 0 to 3, with a group of the first two, three and four of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.starts = 0
        self.pipes: list[Connection] = []
        self.processes: list[BaseProcess] = []

    def start(self) -> None:
        """Start all ranks; again after a schedule that failed, which can leave others waiting."""
        context = mp.get_context("forkserver")
        # One import of torch for all ranks: four at once take over 10 s on two cores.
        context.set_forkserver_preload(["tests.formats.torch.gradients"])
        self.starts += 1
        store = str(self.folder / f"store{self.starts}")
        for rank in range(MOST_RANKS):
            here, there = context.Pipe()
            process = context.Process(
                target=_serve, args=(there, rank, store), daemon=True
            )
            process.start()
            self.pipes.append(here)
            self.processes.append(process)

    def run(self, job: Callable[..., Any], ranks: int, **arguments: Any) -> list[Any]:
        """Run ``job(rank, group, **arguments)`` on the first ranks; return what each returns."""
        if not self.pipes:
            self.start()
        pipes = dict(enumerate(self.pipes[:ranks]))
        for pipe in pipes.values():
            pipe.send((job, ranks, arguments))
        answers: dict[int, Any] = {}
        while len(answers) < ranks:
            left = {pipe: rank for rank, pipe in pipes.items() if rank not in answers}
            ready = wait(list(left), timeout=SECONDS)
            if not ready:
                self.close()
                raise AssertionError(f"ranks {[*left.values()]} hang in {job.__name__}")
            for pipe in ready:
                is_good, answers[left[pipe]] = pipe.recv()
                if not is_good:
                    self.close()
                    raise AssertionError(f"rank {left[pipe]}: {answers[left[pipe]]}")
        return [answers[rank] for rank in range(ranks)]

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.join()
        self.pipes, self.processes = [], []


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
    groups = {
        count: dist.new_group(list(range(count))) for count in range(2, MOST_RANKS + 1)
    }
    while True:
        job, ranks, arguments = pipe.recv()
        try:
            pipe.send((True, job(rank, groups[ranks], **arguments)))
        except Exception:
            pipe.send((False, traceback.format_exc()))


def least_seconds(
    world: World, instance: Any, result: Any, stretches: list[Any], form: str
) -> float:
    """Run a schedule twice; return the seconds from the first beginning to the last end, the least.

    Other programs on the machine can only make a step longer.
    """
    from tests.formats.torch.emulation import seconds_of_step

    steps = []
    for _ in range(2):
        found = world.run(
            seconds_of_step,
            instance.num_devices,
            result=(type(result), result.model_dump_json()),
            stretches=stretches,
            places=list(instance.stage_to_device),
            form=form,
        )
        steps.append(max(end for _, end in found) - min(begin for begin, _ in found))
    return min(steps)

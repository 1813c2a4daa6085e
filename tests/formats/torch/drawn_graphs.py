"""Random FX graphs, and the orders that torch's OverlapScheduler gives them.

``python -m tests.formats.torch.drawn_graphs`` writes the kept ones anew.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.paths import DATA, ROOT

KEPT = DATA / "inductor" / "drawn" / "graphs.json"
SEEDS = (0, 1, 5, 6, 8, 11, 12, 13, 19, 20, 21, 28, 38, 156, 199)
"""Graphs on which other rules lead to other orders, among others."""


def scheduled(seed: int) -> tuple[dict[str, Any], list[str]]:
    """Return a graph as an instance, and its nodes as torch orders them."""
    import dump_inductor

    times: dict[str, float] = {}

    def time_of(node: Any, size: int | None = None) -> float | None:
        return 0.0 if size == 0 else times.get(node.name)

    graph = _drawn(random.Random(seed), times)
    with patch.object(dump_inductor, "of_fx_node", time_of):
        return dump_inductor.scheduled(graph, f"drawn-{seed}")


def _drawn(rng: random.Random, times: dict[str, float]) -> Any:
    import torch

    aten, c10d = torch.ops.aten, torch.ops._c10d_functional
    graph = torch.fx.Graph()
    waiting: list[Any] = []

    def add(target: Any, *given: Any, time: int) -> Any:
        node = graph.call_function(target, given)
        node.meta["val"] = torch.empty(4, 4, device="meta")
        times[node.name] = float(time)
        return node

    usable = [graph.placeholder(f"arg{at}") for at in range(rng.randint(1, 4))]
    for node in usable:
        node.meta["val"] = torch.empty(4, 4, device="meta")
    for _ in range(rng.randint(10, 32)):
        draw, one, other = rng.random(), rng.choice(usable[-6:]), rng.choice(usable)
        group = rng.choice(["0", "1"])
        if draw < 0.3:
            usable.append(add(aten.mm.default, one, other, time=rng.randint(3, 12)))
        elif draw < 0.5:
            usable.append(add(aten.relu.default, one, time=rng.choice([0, 1, 2])))
        elif draw < 0.6:
            usable.append(add(aten.add.Tensor, one, other, time=rng.choice([0, 1, 2])))
        else:
            target, more = rng.choice(
                [
                    (c10d.all_reduce.default, ("sum", group)),
                    (c10d.all_gather_into_tensor.default, (8, group)),
                    (c10d.reduce_scatter_tensor.default, ("sum", 8, group)),
                ]
            )
            waiting.append(add(target, one, *more, time=rng.randint(2, 14)))
        if waiting and rng.random() < 0.4:
            usable.append(_wait(graph, waiting.pop(0)))
    usable += [_wait(graph, each) for each in waiting]
    graph.output(tuple(node for node in usable if not node.users))
    return torch.fx.GraphModule({}, graph)


def _wait(graph: Any, comm: Any) -> Any:
    import torch

    node = graph.call_function(torch.ops._c10d_functional.wait_tensor.default, (comm,))
    node.meta["val"] = comm.meta["val"]
    return node


def main(path: Path) -> None:
    """Write the kept graphs."""
    kept = []
    for seed in SEEDS:
        instance, order = scheduled(seed)
        kept.append(json.dumps({"fx": instance, "fx_order": order}))
    path.write_text("[" + ",\n".join(kept) + "]\n", encoding="utf-8")


def _join() -> None:
    """Have the groups "0" and "1"."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=8, store=FakeStore())
    dist.new_group(list(range(8)))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "benchmarks"))
    _join()
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else KEPT)

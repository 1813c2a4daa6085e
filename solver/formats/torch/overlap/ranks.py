"""One order for all ranks: rank 0 solves, the others get its answer."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

Solve = Callable[[], list[str] | None]

PREFIX = "ppsolve/overlap"
_turns: Counter[str] = Counter()


def agreed_order(
    digest: str, solve: Solve, patience: float, group: Any = None
) -> list[str] | None:
    """Return the order that all ranks apply to the graph that they compile now, or None.

    The first rank solves once every rank has told the same hash through the store of the default
    process group, then tells its answer. Ranks that wait in vain keep their order: as orders keep
    the collectives as they are, that is slower but hangs nothing.

    `digest`: hash of the graph, its durations and the options.
    `solve`: returns the names of the nodes in order, or None.
    `patience`: seconds for which ranks wait for one another.
    `group`: the ranks; all by default.
    """
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_initialized():
        return solve()
    ranks = dist.get_process_group_ranks(group or dist.group.WORLD)
    if len(ranks) == 1 or dist.get_backend(group) == "fake":
        return solve()
    store = dist.distributed_c10d._get_default_store()  # noqa: SLF001 - there is no other way
    name = f"{PREFIX}/{'-'.join(map(str, ranks))}"
    turn, limit = f"{name}/{_turns[name]}", timedelta(seconds=patience)
    _turns[name] += 1
    if dist.get_rank() == ranks[0]:
        keys = [f"{turn}/{rank}" for rank in ranks[1:]]
        told: list[str] | None = None
        try:
            store.wait(keys, limit)
            if all(store.get(key).decode() == digest for key in keys):
                told = solve()
        finally:
            store.set(f"{turn}/order", json.dumps([digest, told]))
        return told
    store.set(f"{turn}/{dist.get_rank()}", digest)
    # The first rank waits for the slowest rank, then solves.
    store.wait([f"{turn}/order"], 2 * limit)
    first, names = json.loads(store.get(f"{turn}/order").decode())
    return names if first == digest else None

"""One order for all ranks: rank 0 solves, the others get its answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from itertools import count

Solve = Callable[[], list[str] | None]

PREFIX = "ppsolve/overlap"
_turns = count()


def agreed_order(digest: str, solve: Solve, patience: float) -> list[str] | None:
    """Return the order that all ranks apply to the graph that they compile now.

    Rank 0 solves once every rank has told the same hash through the store of the default process
    group, then tells its answer. Ranks that wait in vain keep their order: as orders keep the
    collectives as they are, that is slower but hangs nothing.

    Parameters
    ----------
    digest : str
        Hash of the graph, its durations and the options.
    solve : callable
        Returns the names of the nodes in order, or None.
    patience : float
        Seconds for which ranks wait for one another.

    Returns
    -------
    list of str or None
        None where ranks have different graphs, or there is no answer.
    """
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_initialized():
        return solve()
    ranks = dist.get_world_size()
    if ranks == 1 or dist.get_backend() == "fake":
        return solve()
    store = dist.distributed_c10d._get_default_store()  # noqa: SLF001 - there is no other way
    turn, limit = f"{PREFIX}/{next(_turns)}", timedelta(seconds=patience)
    if dist.get_rank() == 0:
        others = [f"{turn}/{rank}" for rank in range(1, ranks)]
        told: list[str] | None = None
        try:
            store.wait(others, limit)
            if all(store.get(key).decode() == digest for key in others):
                told = solve()
        finally:
            store.set(f"{turn}/order", json.dumps([digest, told]))
        return told
    store.set(f"{turn}/{dist.get_rank()}", digest)
    # Rank 0 waits for the slowest rank first, and solves.
    store.wait([f"{turn}/order"], 2 * limit)
    first, names = json.loads(store.get(f"{turn}/order").decode())
    return names if first == digest else None

"""The pass that gives Inductor's scheduler nodes their proved best overlap order."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ppsolve.models.documents.errors import PpsolveError
from ppsolve.models.documents.files import write_text
from ppsolve.models.documents.text import instance_text
from ppsolve.models.kinds.overlap.instance import OverlapInstance
from ppsolve.solver.formats.torch.overlap.durations import Estimates, measured_share
from ppsolve.solver.formats.torch.overlap.graph import WAIT, Collectives, CompiledGraph
from ppsolve.solver.formats.torch.overlap.ranks import agreed_order

LOG = logging.getLogger("ppsolve.torch")

AS_COMPILED = "as_compiled"
TESTED = ("2.12", "2.13", "2.14")
"""Releases of torch whose scheduler nodes are read; others keep their order."""


@dataclass
class OverlapPass:
    """A pass of ``torch._inductor.config.reorder_for_compute_comm_overlap_passes``.

    It returns the nodes in the best order that it proves or finds in time, or as it got them, with
    one logged reason; it never raises.
    """

    time_limit: float = 2.0  # seconds for a graph
    memory: float | str | None = (
        AS_COMPILED  # most memory: a factor of the peak as compiled
    )
    profile: str | None = (
        None  # trace of torch.profiler whose run times are taken where it has them
    )
    collectives: Collectives = (
        "chained"  # "frozen": one order per group; "free": a new one
    )
    dump: str | None = None  # folder for the instances
    cache: str | None = None  # folder of the answers
    patience: float = 60.0  # seconds for which ranks wait for each other
    group: Any = (
        None  # torch.distributed.ProcessGroup whose ranks agree; all by default
    )
    graphs: int = 0  # of them so far

    def __call__(self, nodes: Sequence[Any]) -> list[Any]:
        """Return the scheduler nodes of a graph in the order in which Inductor should emit them."""
        original = list(nodes)
        self.graphs += 1
        try:
            return self._ordered(original)
        except Exception as error:
            LOG.warning("graph %d keeps its order: %s", self.graphs, error)
            return original

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the options alone: Inductor finds compiled code again by a hash of them."""
        options = (self.time_limit, self.memory, self.profile, self.collectives)
        return OverlapPass, options

    def _ordered(self, nodes: list[Any]) -> list[Any]:
        refused = refused_version()
        if refused is not None:
            raise PpsolveError(refused)
        graph = CompiledGraph.of(nodes, self.collectives)
        if not graph.has_collectives:
            return nodes
        began = time.monotonic()
        cap = self._cap(graph.peak(nodes))
        durations = Estimates(self.profile)
        instance = graph.instance(durations, f"graph-{self.graphs}", cap)
        if self.dump is not None:
            write_text(
                Path(self.dump) / f"{instance.name}.json", instance_text(instance)
            )
        digest = self._digest(instance)
        solve = partial(self._solved, instance, digest)
        names = agreed_order(digest, solve, self.patience, self.group)
        if names is None:
            raise PpsolveError(
                "ranks compile different graphs, or no order was found in time"
            )
        by_name = {node.get_name(): node for node in nodes}
        order = [by_name[name] for name in names]
        broken = graph.broken(order, cap)
        if broken is not None:
            raise PpsolveError(f"the order found is not valid: {broken}")
        LOG.info(
            "graph %d: %d of %d nodes moved in %.2f s, %.0f %% of the run time measured",
            self.graphs,
            sum(
                ordered is not original
                for ordered, original in zip(order, nodes, strict=True)
            ),
            len(nodes),
            time.monotonic() - began,
            100 * measured_share(durations, nodes),
        )
        return order

    def _cap(self, peak: int) -> float | None:
        if self.memory is None:
            return None
        return float(peak) if isinstance(self.memory, str) else peak * self.memory

    def _digest(self, instance: OverlapInstance) -> str:
        text = json.dumps([instance_text(instance), self.time_limit, _version()])
        return hashlib.sha256(text.encode()).hexdigest()

    def _solved(self, instance: OverlapInstance, digest: str) -> list[str] | None:
        """Return the names of the nodes in the best order, from the cache where it is known."""
        stored = None if self.cache is None else Path(self.cache) / f"{digest}.json"
        if stored is not None and stored.is_file():
            with suppress(OSError, ValueError):
                return list(map(str, json.loads(stored.read_text())))
        names = best_order(instance, self.time_limit)
        if stored is not None and names is not None:
            with suppress(OSError):
                stored.parent.mkdir(parents=True, exist_ok=True)
                write_text(stored, json.dumps(names))
        return names


def best_order(instance: OverlapInstance, time_limit: float) -> list[str] | None:
    """Return the names of the scheduler nodes in the best program order found, None without one.

    Waits that the instance has beside the nodes are left out.
    """
    from ppsolve.solver.api.api import optimize

    result = optimize(instance, time_limit=time_limit)
    order = getattr(result, "order", None)
    return (
        None
        if order is None
        else [name for name in order if not name.startswith(f"{WAIT}:")]
    )


def refused_version() -> str | None:
    """Return why this torch is not read, None where it is."""
    import torch

    release = ".".join(torch.__version__.split(".")[:2])
    if release in TESTED:
        return None
    return f"expected torch {', '.join(TESTED)}, got {torch.__version__}"


def _version() -> str:
    import torch

    from ppsolve import __version__

    return f"{__version__} {torch.__version__}"


def overlap_pass(**options: Any) -> OverlapPass:
    """Return a pass for ``config.reorder_for_compute_comm_overlap_passes``."""
    folder = options.pop("cache", default_folder())
    return OverlapPass(cache=folder, **options)


def default_folder() -> str:
    """Return the folder in which answers are kept between compiles."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return os.path.join(os.environ.get("PPSOLVE_CACHE_DIR") or base, "ppsolve-overlap")


@contextmanager
def use_overlap_pass(**options: Any) -> Iterator[OverlapPass]:
    """Let Inductor order what it compiles inside the block by `overlap_pass`."""
    from torch._inductor import config

    reordering = overlap_pass(**options)
    values: dict[str, Any] = {
        "reorder_for_compute_comm_overlap": True,
        "reorder_for_compute_comm_overlap_passes": [reordering],
    }
    if hasattr(config.aten_distributed_optimizations, "enable_simple_overlap"):
        values["aten_distributed_optimizations.enable_simple_overlap"] = False
    with config.patch(values):
        yield reordering

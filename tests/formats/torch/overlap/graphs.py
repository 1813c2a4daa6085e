"""Steps with collectives that compile without a C++ kernel, and what a pass sees of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

WIDTH, LAYERS = 32, 3

Look = Callable[[Sequence[Any]], None]


class _SeenError(Exception):
    """Ends a compile once the pass has seen the graph."""


def sharded_step(group: Any, x: Any, *weights: Any) -> Any:
    """Gather each layer's weights, and scatter its gradient, as FSDP does."""
    from torch.distributed import _functional_collectives as fc

    fulls, inputs = [], []
    for weight in weights:
        full = fc.all_gather_tensor(weight, 0, group)
        fulls.append(full)
        inputs.append(x)
        x = x @ full.t()
    gradients = []
    for full, given in zip(reversed(fulls), reversed(inputs), strict=True):
        gradients.append(fc.reduce_scatter_tensor(x.t() @ given, "sum", 0, group))
        x = x @ full
    return x, *gradients


def two_microbatches(group: Any, x: Any, *weights: Any) -> Any:
    """Reduce the output of each layer over all ranks, for two micro-batches in turn."""
    from torch.distributed import _functional_collectives as fc

    one, other = x, x @ x.t() @ x
    for weight in weights:
        one = fc.all_reduce(one @ weight, "sum", group)
        other = fc.all_reduce(other @ weight, "sum", group)
    return one, other


def experts(group: Any, x: Any, *weights: Any) -> Any:
    """Send tokens to experts and back around each layer, beside a shared one."""
    from torch.distributed import _functional_collectives as fc

    shared = x
    for weight in weights:
        sent = fc.all_to_all_single(x @ weight, None, None, group)
        x = fc.all_to_all_single(sent @ weight, None, None, group)
        shared = shared @ weight
    return x, shared


def trained(group: Any, x: Any, *weights: Any) -> Any:
    """Gather each layer's weights; the backward gathers nothing and scatters their gradients."""
    from torch.distributed import _functional_collectives as fc

    for weight in weights:
        x = x @ fc.all_gather_tensor_autograd(weight, 0, group).t()
    return x


STEPS: dict[str, Callable[..., Any]] = {
    "sharded step": sharded_step,
    "two micro-batches": two_microbatches,
    "experts": experts,
}


def arguments(name: str, ranks: int, seed: int = 0, layers: int = LAYERS) -> list[Any]:
    """Return an input and the weights of a rank."""
    import torch

    torch.manual_seed(seed)
    rows = WIDTH // ranks if name in {"sharded step", "trained"} else WIDTH
    weights = [torch.randn(rows, WIDTH) / WIDTH**0.5 for _ in range(layers)]
    return [torch.randn(16, WIDTH), *weights]


def run_time(node: Any) -> float:
    """Estimate the run time of a scheduler node in ms, so that collectives take as long."""
    from torch._inductor.utils import contains_collective, contains_wait

    if contains_wait(node):
        return 0.0
    size = float(node.get_read_write_buffers_sizes() or 0)
    return size * (3e-6 if contains_collective(node) else 1e-6)


@contextmanager
def inductor(passes: list[Any]) -> Iterator[None]:
    """Let Inductor run passes on whatever is compiled inside, with `run_time` as estimate."""
    import torch
    from torch._inductor import config

    torch._dynamo.reset()
    values = {
        "reorder_for_compute_comm_overlap": True,
        "reorder_for_compute_comm_overlap_passes": passes,
        "estimate_op_runtime": run_time,
        "fx_graph_cache": False,
        "compile_threads": 1,
    }
    with config.patch(values):
        yield
    torch._dynamo.reset()


def see(name: str, group: Any, ranks: int, look: Look, **sizes: int) -> None:
    """Let `look` see the scheduler nodes of a step; what it raises is raised."""
    import torch

    caught: list[BaseException] = []

    def seen(nodes: Sequence[Any]) -> list[Any]:
        try:
            look(nodes)
        except BaseException as error:
            caught.append(error)
        raise _SeenError

    def step(*given: Any) -> Any:
        return STEPS[name](group, *given)

    with inductor([seen]):
        try:
            torch.compile(step, fullgraph=True)(*arguments(name, ranks, **sizes))
        except Exception as error:
            if "_SeenError" not in repr(error):
                raise
    if caught:
        raise caught[0]

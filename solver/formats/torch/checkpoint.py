"""Stages that recompute in PyTorch what a result says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ppsolve.models.core.result import HeuristicEntry, Result
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.kinds.pipeline.modes import KEEP, OFFLOAD


def checkpointed(
    result: Result | HeuristicEntry,
    stage: int,
    module: Any,
    parts: Mapping[str, Sequence[str]] | None = None,
) -> Any:
    """Return the module of a stage that recomputes what the result says, before its backward.

    Submodules are replaced in place; where the stage keeps its activations the module stays as it
    is. Raises `InputError` where the result has no such stage, the stage offloads or has a mode for
    each micro-batch, or the module has no such part.

    `result`: of a pipeline, with the mode of each stage.
    `parts`: for a mode, the names of the submodules that it recomputes, as ``layers.0.mlp``; a mode
        that is not named recomputes the whole module.
    """
    modes = getattr(result, "modes", None)
    if modes is None:
        return module
    if not 0 <= stage < len(modes):
        raise InputError(
            f"expected a stage from 0 to {len(modes) - 1}, got {stage}",
            field="stage",
            code=ErrorCode.RANGE,
        )
    mode = modes[stage]
    if not isinstance(mode, str) or mode == OFFLOAD:
        said = OFFLOAD if mode == OFFLOAD else "a mode for each micro-batch"
        raise InputError(
            f"expected a stage that keeps or recomputes, got {said}", field="modes"
        )
    if mode == KEEP:
        return module
    names = (parts or {}).get(mode)
    if names is None:
        return _recomputing(module)
    for name in names:
        try:
            parent, submodule = (
                module.get_submodule(name.rpartition(".")[0]),
                module.get_submodule(name),
            )
        except AttributeError:
            raise InputError(
                f'expected the name of a submodule for mode "{mode}", got "{name}"',
                field="parts",
                code=ErrorCode.UNKNOWN_NAME,
            ) from None
        setattr(parent, name.rpartition(".")[2], _recomputing(submodule))
    return module


def _recomputing(module: Any) -> Any:
    from torch import nn
    from torch.utils.checkpoint import checkpoint

    class Recomputing(nn.Module):  # type: ignore[misc]
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return checkpoint(self.inner, *args, use_reentrant=False, **kwargs)

    return Recomputing(module)

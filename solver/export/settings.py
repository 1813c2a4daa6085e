"""Choices of the caller that exporters read."""

from __future__ import annotations

from dataclasses import dataclass

from ppsolve.solver.export.torch import FORMATS, Format


@dataclass(frozen=True)
class Settings:
    """Choices of the caller.

    Parameters
    ----------
    form : str
        Format of PyTorch's file.
    shards : bool
        Gather and drop parameters, see `torch_csv`.
    model : str, optional
        The layers of the model, see `letters_of`.
    recomputed : tuple of int, optional
        Decoder layers of each stage whose forward is run again before their backward.
    """

    form: Format = FORMATS[0]
    shards: bool = False
    model: str | None = None
    recomputed: tuple[int, ...] | None = None

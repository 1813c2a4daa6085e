"""What nodes of programs are called."""

from __future__ import annotations

from enum import StrEnum


class NodeKind(StrEnum):
    """Kind of a node: a kernel, a collective, or the wait for a collective."""

    COMPUTE = "compute"
    COMM = "comm"
    WAIT = "wait"

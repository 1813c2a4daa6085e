"""The words of pipeline programs, as PyTorch writes them: ``0F3``, ``1SEND_B2``, ``4REDUCE_GRAD``.

The grammar is that of the schedule files of ``torch.distributed.pipelining`` 2.13: actions that
compute (`Action`), pairs of them that are launched together (`Overlap`), and what goes on between
them (`Communication`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ppsolve.models.core.keys import JoinedOps
from ppsolve.models.documents.base import describe
from ppsolve.models.documents.errors import ErrorCode, InputError, errors_about

FORWARD, BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT = "F", "B", "I", "W"
COMPUTE_KINDS = (FORWARD, BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT)
"""Kinds of ops on compute streams, by PyTorch's letters."""

SEND_F, RECV_F, SEND_B, RECV_B = "SEND_F", "RECV_F", "SEND_B", "RECV_B"
TRANSFERS = (SEND_F, RECV_F, SEND_B, RECV_B)
"""Transfers of one micro-batch to or from a stage on another rank."""

UNSHARD, RESHARD, REDUCE_GRAD = "UNSHARD", "RESHARD", "REDUCE_GRAD"
STAGE_STEPS = (UNSHARD, RESHARD, REDUCE_GRAD)
"""What happens to a whole stage: its parameters are gathered or dropped, its gradients reduced."""

OVERLAPPED = "OVERLAP_F_B"

_COMPUTE = re.compile(rf"([0-9]{{1,7}})([{''.join(COMPUTE_KINDS)}])([0-9]{{1,7}})")
_TRANSFER = re.compile(rf"([0-9]{{1,7}})({'|'.join(TRANSFERS)})([0-9]{{1,7}})")
_STAGE_STEP = re.compile(rf"([0-9]{{1,7}})({'|'.join(STAGE_STEPS)})")
_OVERLAP = re.compile(rf"\(([^;()]*);([^;()]*)\){OVERLAPPED}")
_BLOCK = re.compile(r"F(\d+)\.(\d+)\+(?:B|I(?=.*W))(\d+)\.(\d+)(?:\+W\d+\.\d+)?")

Numbers = Mapping[int, int] | Sequence[int]
"""New number of each micro-batch."""


class Action(NamedTuple):
    """One compute action of a device, written as PyTorch writes it: ``0F3``."""

    stage: int
    kind: str
    microbatch: int

    def __str__(self) -> str:
        """Return ``<stage><kind><micro-batch>``."""
        return f"{self.stage}{self.kind}{self.microbatch}"

    def renumbered(self, number: Numbers) -> Action:
        """Return the action of the micro-batch that has this number elsewhere."""
        return self._replace(microbatch=number[self.microbatch])


class Overlap(NamedTuple):
    """A forward and a full backward that are launched together.

    They are one op where the pipeline has such a block (`overlap`), else timed one after the other.
    """

    forward: Action
    backward: Action

    def __str__(self) -> str:
        """Return ``(<forward>;<backward>)OVERLAP_F_B``."""
        return f"({self.forward};{self.backward}){OVERLAPPED}"

    def renumbered(self, number: Numbers) -> Overlap:
        """Return the pair of the micro-batches that have these numbers elsewhere."""
        return Overlap(
            self.forward.renumbered(number), self.backward.renumbered(number)
        )


class Communication(NamedTuple):
    """A transfer of a micro-batch (``1SEND_F3``), or a step of a whole stage (``0UNSHARD``)."""

    stage: int
    kind: str
    microbatch: int | None = None

    def __str__(self) -> str:
        """Return ``<stage><kind>``, and the micro-batch of a transfer behind it."""
        return f"{self.stage}{self.kind}{'' if self.microbatch is None else self.microbatch}"


ComputeStep = Action | Overlap
"""One cell of a program without communications."""

Step = Action | Overlap | Communication
"""One cell of a program."""


def actions_of(step: Step) -> Iterator[Action]:
    """Yield the compute actions of a step; none for a communication."""
    if isinstance(step, Overlap):
        yield from step
    elif isinstance(step, Action):
        yield step


def parse_step(text: str) -> Step:
    """Read one cell of a program; an `InputError` says that it is no action of PyTorch's files."""
    text = text.strip()
    if match := _COMPUTE.fullmatch(text):
        return Action(int(match[1]), match[2], int(match[3]))
    if match := _TRANSFER.fullmatch(text):
        return Communication(int(match[1]), match[2], int(match[3]))
    if match := _STAGE_STEP.fullmatch(text):
        return Communication(int(match[1]), match[2])
    if match := _OVERLAP.fullmatch(text):
        pair = parse_step(match[1]), parse_step(match[2])
        if [getattr(step, "kind", "") for step in pair] == [FORWARD, BACKWARD]:
            return Overlap(pair[0], pair[1])  # type: ignore[arg-type]
    raise InputError(
        f'expected an action such as "0F3", "1SEND_F3", "0REDUCE_GRAD" or '
        f'"(0F4;7B0){OVERLAPPED}", got {describe(text)}',
        code=ErrorCode.SYNTAX,
    )


def pair_of(name: str) -> Overlap | None:
    """Return the pair that a document calls ``F0.4+B7.0``, None without a whole backward."""
    match = _BLOCK.fullmatch(name)
    if match is None:
        return None
    stage, microbatch, backward_stage, earlier = map(int, match.groups())
    return Overlap(
        Action(stage, FORWARD, microbatch), Action(backward_stage, BACKWARD, earlier)
    )


def pair_in(block: JoinedOps) -> Overlap | None:
    """Return the pair that the ops of a fused block are, None without a whole backward."""
    if "".join(key.kind for key in block.keys) not in ("FB", "FIW"):
        return None
    forward, backward, *_ = block.keys
    return Overlap(
        Action(forward.stage, FORWARD, forward.microbatch),
        Action(backward.stage, BACKWARD, backward.microbatch),
    )


def is_compute(text: object) -> bool:
    """Say whether something is the text of a compute action, or of a pair of them."""
    if not isinstance(text, str):
        return False
    try:
        return not isinstance(parse_step(text), Communication)
    except InputError:
        return False


def compute_rows(orders: Any) -> tuple[tuple[ComputeStep, ...], ...]:
    """Read the compute actions of every device.

    An `InputError` says that there are no orders, or where a text is no compute action.
    """
    if not orders:
        raise InputError(
            "expected the actions of each rank, there are none",
            field="orders",
            code=ErrorCode.MISSING,
        )
    rows = []
    for rank, texts in enumerate(orders):
        row: list[ComputeStep] = []
        for index, text in enumerate(texts if isinstance(texts, list) else [texts]):
            field = f"orders[{rank}][{index}]"
            with errors_about(field):
                step = parse_step(text) if isinstance(text, str) else None
            if step is None or isinstance(step, Communication):
                raise InputError(
                    f"expected a compute action, got {describe(text)}", field=field
                )
            row.append(step)
        rows.append(tuple(row))
    return tuple(rows)

"""Programs beside the orders that runtimes are fixed to: the first op that differs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from ppsolve.models.documents.errors import InputError
from ppsolve.solver.export.program import RuntimeProgram
from ppsolve.solver.pipeline.actions import Order


def refuse_other_orders(program: RuntimeProgram, orders: Sequence[Order], rule: str) -> None:
    """Refuse a program that is not in a fixed order.

    Parameters
    ----------
    program : RuntimeProgram
        The program.
    orders : sequence of Order
        The order of each rank that the runtime runs.
    rule : str
        Name of this order, in words.

    Raises
    ------
    InputError
        Names the first op that differs.
    """
    for rank, (row, order) in enumerate(zip(program.rows, orders, strict=True)):
        for place, (step, wanted) in enumerate(zip_longest(row, order)):
            if step != wanted:
                raise InputError(
                    f"order: {rule}; rank {rank} runs {step} at place {place}, not {wanted}",
                    field="schedule",
                )

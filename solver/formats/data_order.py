"""Micro-batches in the order in which the last stage runs them, as runtimes feed data."""

from __future__ import annotations

from dataclasses import replace

from ppsolve.solver.formats.program import RuntimeProgram, cannot_say
from ppsolve.solver.kinds.pipeline import grammar


def in_data_order(program: RuntimeProgram, *, may_permute: bool) -> RuntimeProgram:
    """Renumber micro-batches so that the last stage runs their forwards in the order 0, 1, 2.

    Where they may differ from each other, this changes the order in which the data must be fed,
    that of
    `RuntimeProgram.microbatches`: it is an `InputError` unless `may_permute` is true.
    """
    last = program.num_stages - 1
    row = program.actions(program.stage_to_rank[last])
    order = [a.microbatch for a in row if (a.stage, a.kind) == (last, grammar.FORWARD)]
    wrong = next((k for k, microbatch in enumerate(order) if k != microbatch), None)
    if wrong is None:
        return program
    instance = program.instance
    alike = instance is not None and not instance.has_unequal_microbatches
    if not (alike or may_permute):
        differ = (
            "micro-batches differ" if program.instance else "micro-batches may differ"
        )
        hint = "" if program.instance else ", --instance says whether they do"
        raise cannot_say(
            f"data-order: {last}F{order[wrong]} is forward number {wrong} of the last stage, which "
            f"must run micro-batches in the order 0, 1, 2, ...; {differ}{hint}, --data-order FILE "
            "renumbers them and writes the order in which the data must be fed"
        )
    index = {microbatch: k for k, microbatch in enumerate(order)}
    copies = {
        action.renumbered(index): tuple(copy.renumbered(index) for copy in group)
        for action, group in program.copies.items()
    }
    return replace(
        program,
        rows=tuple(
            tuple(step.renumbered(index) for step in row) for row in program.rows
        ),
        ends=program.ends
        and {a.renumbered(index): end for a, end in program.ends.items()},
        modes=tuple(
            tuple(row[microbatch] for microbatch in order) for row in program.modes
        ),
        copies=copies,
        microbatches=tuple(program.microbatches[microbatch] for microbatch in order),
    )

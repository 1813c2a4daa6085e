"""The rules that PyTorch's runtime asks of a program, and for the most part does not check.

Read in ``torch.distributed.pipelining`` 2.13: wrong orders of last-stage forwards or of receives
give wrong gradients without an error, and gradients that are not reduced once are m times too
large.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from ppsolve.models.core.violation import Violation
from ppsolve.models.documents.errors import DeadlockError
from ppsolve.solver.pipeline.grammar import (
    BACKWARD,
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    FORWARD,
    Action,
    ComputeStep,
    actions_of,
)
from ppsolve.solver.pipeline.programs.communications import events, needs

MOST_MISSING = 1000
"""Most missing ops that are listed; one wrong number can make millions seem to be missing."""


@dataclass(frozen=True)
class PipelineShape:
    """The pipeline that a program must be of.

    Parameters
    ----------
    num_microbatches : int
        Number of micro-batches.
    stage_to_rank : tuple of int
        Rank of each stage.
    is_split : bool
        Whether backwards may be split in I and W.
    """

    num_microbatches: int
    stage_to_rank: tuple[int, ...]
    is_split: bool = True


def broken_rules(
    rows: Sequence[Sequence[ComputeStep]], shape: PipelineShape | None = None
) -> Iterator[Violation]:
    """Yield the rules that the compute steps of a program break; a rule may hide those behind it.

    Parameters
    ----------
    rows : sequence of sequence of Action or Overlap
        The steps of each rank.
    shape : PipelineShape, optional
        What the program is to be of; by default all stages and micro-batches up to the largest
        numbers that are there.

    Yields
    ------
    Violation
        Of the rules ``unknown``, ``placement``, ``twice``, ``missing``, ``precedence``,
        ``data-order``, ``deadlock``, in this order; the last two where no other is broken.
    """
    actions = [list(chain.from_iterable(map(actions_of, row))) for row in rows]
    found = [] if shape is None else list(_foreign(actions, shape))
    found = found or [*_misplaced(actions), *_miscounted(actions, shape)]
    found = found or list(_too_early(actions))
    if found:
        yield from found
        return
    yield from data_order(actions, 1 + max(action.stage for row in actions for action in row))
    yield from _deadlocks(rows)


def _foreign(rows: Sequence[Sequence[Action]], shape: PipelineShape) -> Iterator[Violation]:
    ranks = max(shape.stage_to_rank) + 1
    if len(rows) != ranks:
        yield Violation("placement", f"expected {ranks} ranks (rows), got {len(rows)}", ())
    for rank, row in enumerate(rows):
        for action in row:
            is_half = action.kind in {BACKWARD_INPUT, BACKWARD_WEIGHT}
            if (
                action.stage >= len(shape.stage_to_rank)
                or action.microbatch >= shape.num_microbatches
                or (is_half and not shape.is_split)
            ):
                yield Violation("unknown", f"the pipeline has no op {action}", (str(action),))
            elif shape.stage_to_rank[action.stage] != rank:
                own = shape.stage_to_rank[action.stage]
                text = f"{action} is on rank {rank}, its stage is on rank {own}"
                yield Violation("placement", text, (str(action),))


def _misplaced(rows: Sequence[Sequence[Action]]) -> Iterator[Violation]:
    ranks: dict[int, tuple[int, Action]] = {}
    for rank, row in enumerate(rows):
        if not row:
            yield Violation("placement", f"rank {rank} has no op; every rank needs a stage", ())
        for action in row:
            other, first = ranks.setdefault(action.stage, (rank, action))
            if other != rank:
                text = (
                    f"{action} is on rank {rank} and {first} on rank {other}; "
                    "a stage lives on one rank"
                )
                yield Violation("placement", text, (str(first), str(action)))
                break


def _miscounted(
    rows: Sequence[Sequence[Action]], shape: PipelineShape | None
) -> Iterator[Violation]:
    counts = Counter(action for row in rows for action in row)
    for action, count in counts.items():
        if count > 1:
            yield Violation("twice", f"{action} is there {count} times", (str(action),))
    if shape is None:
        stages = 1 + max((action.stage for action in counts), default=0)
        microbatches = 1 + max((action.microbatch for action in counts), default=0)
    else:
        stages, microbatches = len(shape.stage_to_rank), shape.num_microbatches
    # No `product`: it makes lists of its ranges, and one wrong number can make these endless.
    every = ((stage, index) for stage in range(stages) for index in range(microbatches))
    incomplete = (_incomplete(stage, index, counts) for stage, index in every)
    yield from islice(chain.from_iterable(incomplete), MOST_MISSING)


def _incomplete(stage: int, microbatch: int, counts: Counter[Action]) -> Iterator[Violation]:
    forward, full, inputs, weight = (
        Action(stage, kind, microbatch)
        for kind in (FORWARD, BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT)
    )
    if not counts[forward]:
        yield Violation("missing", f"{forward} is missing", (str(forward),))
    halves = [action for action in (inputs, weight) if counts[action]]
    if counts[full] and halves:
        text = f"{full} is a whole backward, and {halves[0]} is there too"
        yield Violation("twice", text, (str(full), str(halves[0])))
    elif not counts[full] and not halves:
        yield Violation("missing", f"{full} (or {inputs} and {weight}) is missing", (str(full),))
    elif len(halves) == 1:
        other = weight if counts[inputs] else inputs
        yield Violation("missing", f"{other} is missing, {halves[0]} is there", (str(other),))


def _too_early(rows: Sequence[Sequence[Action]]) -> Iterator[Violation]:
    for row in rows:
        place = {action: index for index, action in enumerate(row)}
        for index, action in enumerate(row):
            for options in needs(action, action.stage + 1):
                own = options[0]
                if own.stage == action.stage and place[own] > index:
                    text = f"{action} stands before {own}, which it needs"
                    yield Violation("precedence", text, (str(own), str(action)))


def data_order(rows: Sequence[Sequence[Action]], num_stages: int) -> Iterator[Violation]:
    """Yield the first forward of the last stage that is out of order.

    The runtime stores losses in the order in which they are computed and looks them up by
    micro-batch.

    Parameters
    ----------
    rows : sequence of sequence of Action
        The actions of each rank.
    num_stages : int
        Number of stages.

    Yields
    ------
    Violation
        Of the rule ``data-order``, at most one.
    """
    forwards = (action for row in rows for action in row if action.kind == FORWARD)
    last = (action for action in forwards if action.stage == num_stages - 1)
    for microbatch, action in enumerate(last):
        if action.microbatch != microbatch:
            text = (
                f"{action} is forward number {microbatch} of the last stage, which must run "
                "micro-batches in the order 0, 1, 2, ..."
            )
            yield Violation("data-order", text, (str(action),))
            return


def _deadlocks(rows: Sequence[Sequence[ComputeStep]]) -> Iterator[Violation]:
    try:
        # Whether all can run does not depend on when: equal ends are the cheapest.
        deque(events(rows, defaultdict(float)), maxlen=0)
    except DeadlockError as error:
        yield Violation("deadlock", str(error).removeprefix("deadlock: "), tuple(error.cycle))

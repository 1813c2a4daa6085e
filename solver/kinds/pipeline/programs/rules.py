"""The schedule of a program, and the rules that PyTorch's runtime asks of it.

The runtime does not check most of them. Read in ``torch.distributed.pipelining`` 2.13: wrong orders
of last-stage forwards or of receives give wrong gradients without an error, and gradients that are
not reduced once are m times too large.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice, zip_longest
from typing import Any

import numpy as np

from ppsolve.models.core.result import BrokenRule, HeuristicEntry, HeuristicStatus
from ppsolve.models.core.violation import Violation
from ppsolve.models.documents.errors import DeadlockError, ErrorCode, InputError
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.modes import choice_of, modes_of
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.heuristics.heuristic import (
    Heuristic,
    HeuristicOutcome,
    Proposal,
    Request,
)
from ppsolve.solver.kinds.pipeline.actions import Order
from ppsolve.solver.kinds.pipeline.adapters import adapted
from ppsolve.solver.kinds.pipeline.collectives import WITH_COLLECTIVES
from ppsolve.solver.kinds.pipeline.grammar import (
    BACKWARD,
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    FORWARD,
    RECV_F,
    REDUCE_GRAD,
    RESHARD,
    SEND_B,
    SEND_F,
    TRANSFERS,
    UNSHARD,
    Action,
    Communication,
    ComputeStep,
    Step,
    actions_of,
)
from ppsolve.solver.kinds.pipeline.kind import PIPELINE
from ppsolve.solver.kinds.pipeline.programs.communications import (
    events,
    needs,
    stages_to_ranks,
    transfer_of,
)
from ppsolve.solver.kinds.pipeline.programs.shape import PipelineShape
from ppsolve.solver.kinds.pipeline.published import A_PIPELINE, StaticOrders

MOST_MISSING = 1000
"""Most missing ops that are listed; one wrong number can make millions seem to be missing."""


def broken_rules(
    rows: Sequence[Sequence[ComputeStep]], shape: PipelineShape | None = None
) -> Iterator[Violation]:
    """Yield the rules that the compute steps of a program break; a rule may hide those behind it.

    They are ``unknown``, ``placement``, ``twice``, ``missing``, ``precedence``, ``data-order`` and
    ``deadlock``, in this order; the last two where no other is broken. By default the program is to
    be of all stages and micro-batches up to the largest numbers that are there.
    """
    actions = [list(chain.from_iterable(map(actions_of, row))) for row in rows]
    violations = [] if shape is None else list(_foreign(actions, shape))
    violations = violations or [*_misplaced(actions), *_miscounted(actions, shape)]
    violations = violations or list(_too_early(actions))
    if violations:
        yield from violations
        return
    yield from data_order(
        actions, 1 + max(action.stage for row in actions for action in row)
    )
    yield from _deadlocks(rows)


def _foreign(
    rows: Sequence[Sequence[Action]], shape: PipelineShape
) -> Iterator[Violation]:
    ranks = max(shape.stage_to_rank) + 1
    if len(rows) != ranks:
        yield Violation(
            "placement", f"expected {ranks} ranks (rows), got {len(rows)}", ()
        )
    for rank, row in enumerate(rows):
        for action in row:
            is_half = action.kind in {BACKWARD_INPUT, BACKWARD_WEIGHT}
            if (
                action.stage >= len(shape.stage_to_rank)
                or action.microbatch >= shape.num_microbatches
                or (is_half and not shape.is_split)
            ):
                yield Violation(
                    "unknown", f"the pipeline has no op {action}", (str(action),)
                )
            elif shape.stage_to_rank[action.stage] != rank:
                owner = shape.stage_to_rank[action.stage]
                text = f"{action} is on rank {rank}, its stage is on rank {owner}"
                yield Violation("placement", text, (str(action),))


def _misplaced(rows: Sequence[Sequence[Action]]) -> Iterator[Violation]:
    ranks: dict[int, tuple[int, Action]] = {}
    for rank, row in enumerate(rows):
        if not row:
            yield Violation(
                "placement", f"rank {rank} has no op; every rank needs a stage", ()
            )
        for action in row:
            owner, first = ranks.setdefault(action.stage, (rank, action))
            if owner != rank:
                text = (
                    f"{action} is on rank {rank} and {first} on rank {owner}; "
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


def _incomplete(
    stage: int, microbatch: int, counts: Counter[Action]
) -> Iterator[Violation]:
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
        yield Violation(
            "missing", f"{full} (or {inputs} and {weight}) is missing", (str(full),)
        )
    elif len(halves) == 1:
        absent = weight if counts[inputs] else inputs
        yield Violation(
            "missing", f"{absent} is missing, {halves[0]} is there", (str(absent),)
        )


def _too_early(rows: Sequence[Sequence[Action]]) -> Iterator[Violation]:
    for row in rows:
        index_of = {action: index for index, action in enumerate(row)}
        for index, action in enumerate(row):
            for options in needs(action, action.stage + 1):
                needed = options[0]
                if needed.stage == action.stage and index_of[needed] > index:
                    text = f"{action} stands before {needed}, which it needs"
                    yield Violation("precedence", text, (str(needed), str(action)))


def data_order(
    rows: Sequence[Sequence[Action]], num_stages: int
) -> Iterator[Violation]:
    """Yield at most one violation: the first forward of the last stage that is out of order.

    The runtime stores losses in the order in which they are computed and looks them up by
    micro-batch.
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
        yield Violation("deadlock", error.circle, tuple(error.cycle))


Rows = Sequence[Sequence[Step]]
Pairs = Mapping[Communication, Communication]


def broken_exchanges(rows: Rows) -> Iterator[Violation]:
    """Yield the rules that the communications of a program break, whose compute steps keep all.

    They are ``placement``, ``twice``, ``missing``, ``needless``, ``send``, ``receive``,
    ``receive-order``, ``reduce-grad``, ``shard``; and ``deadlock`` where no other is broken.
    """
    ranks = stages_to_ranks(rows)
    pairs = _pairs(rows, ranks)
    violations = [
        *_misplaced_communications(rows, ranks),
        *_miscounted_transfers(rows, pairs),
    ]
    for row in rows:
        violations += [*_out_of_place(row), *_reductions(row), *_shards(row)]
    violations = violations or list(_mismatched(rows, ranks, pairs))
    yield from violations or _blocked(rows, ranks, pairs)


def _pairs(rows: Rows, ranks: Mapping[int, int]) -> dict[Communication, Communication]:
    actions = (action for row in rows for step in row for action in actions_of(step))
    transfers = (transfer_of(action, ranks) for action in actions)
    return dict(transfer for transfer in transfers if transfer is not None)


def _communications(row: Sequence[Step], *kinds: str) -> list[Communication]:
    return [
        step for step in row if isinstance(step, Communication) and step.kind in kinds
    ]


def _misplaced_communications(
    rows: Rows, ranks: Mapping[int, int]
) -> Iterator[Violation]:
    for rank, row in enumerate(rows):
        for step in _communications(row, *TRANSFERS, UNSHARD, RESHARD, REDUCE_GRAD):
            owner = ranks.get(step.stage)
            if owner != rank:
                location = (
                    "there is no such stage"
                    if owner is None
                    else f"its stage is on rank {owner}"
                )
                yield Violation(
                    "placement", f"{step} is on rank {rank}, {location}", (str(step),)
                )


def _miscounted_transfers(rows: Rows, pairs: Pairs) -> Iterator[Violation]:
    counts = Counter(step for row in rows for step in _communications(row, *TRANSFERS))
    expected = {*pairs, *pairs.values()}
    for step, count in counts.items():
        if step not in expected:
            text = f"{step} is there, and no stage on another rank needs or makes it"
            yield Violation("needless", text, (str(step),))
        elif count > 1:
            yield Violation("twice", f"{step} is there {count} times", (str(step),))
    for step in sorted(expected - counts.keys()):
        yield Violation("missing", f"{step} is missing", (str(step),))


def _partners(step: Communication) -> tuple[Action, ...]:
    is_forward = step.kind in {SEND_F, RECV_F}
    kinds = (FORWARD,) if is_forward else (BACKWARD_INPUT, BACKWARD)
    return tuple(Action(step.stage, kind, step.microbatch or 0) for kind in kinds)


def _out_of_place(row: Sequence[Step]) -> Iterator[Violation]:
    index_of = {
        action: index for index, step in enumerate(row) for action in actions_of(step)
    }
    for index, step in enumerate(row):
        if not isinstance(step, Communication) or step.kind not in TRANSFERS:
            continue
        op = next((action for action in _partners(step) if action in index_of), None)
        if op is None:
            continue
        if step.kind in {SEND_F, SEND_B} and index_of[op] > index:
            text = f"{step} stands before {op}, whose result it sends"
            yield Violation("send", text, (str(step), str(op)))
        if step.kind not in {SEND_F, SEND_B} and index_of[op] < index:
            text = f"{step} stands behind {op}, which needs it"
            yield Violation("receive", text, (str(step), str(op)))


def _reductions(row: Sequence[Step]) -> Iterator[Violation]:
    last: dict[int, tuple[int, Action]] = {}
    for index, step in enumerate(row):
        for action in actions_of(step):
            if action.kind in {BACKWARD, BACKWARD_WEIGHT}:
                last[action.stage] = index, action
    for stage, (last_index, action) in last.items():
        step = Communication(stage, REDUCE_GRAD)
        count = row.count(step)
        if count != 1:
            text = (
                f"{step} is there {count} times; gradients are reduced once per stage"
            )
            yield Violation("reduce-grad", text, (str(step),))
        elif row.index(step) < last_index:
            text = f"{step} stands before {action}, the last backward of its stage"
            yield Violation("reduce-grad", text, (str(step), str(action)))


def _shards(row: Sequence[Step]) -> Iterator[Violation]:
    sharded = {step.stage for step in _communications(row, UNSHARD, RESHARD)}
    gathered: set[int] = set()
    for step in row if sharded else ():
        for action in actions_of(step):
            if action.stage in sharded - gathered:
                text = (
                    f"{action} runs while the parameters of its stage are not gathered"
                )
                yield Violation("shard", text, (str(action),))
        if isinstance(step, Communication) and step.kind in {UNSHARD, RESHARD}:
            if (step.kind == UNSHARD) == (step.stage in gathered):
                yield Violation(
                    "shard", f"{step} follows another {step.kind}", (str(step),)
                )
            gathered ^= {step.stage}
    for stage in sorted(gathered):
        step = Communication(stage, RESHARD)
        yield Violation("shard", f"{step} is missing at the end", (str(step),))


def _mismatched(
    rows: Rows, ranks: Mapping[int, int], pairs: Pairs
) -> Iterator[Violation]:
    # Transfers between two ranks have no names: the first receive gets what was sent first.
    sent: dict[tuple[int, int], list[Communication]] = defaultdict(list)
    received: dict[tuple[int, int], list[Communication]] = defaultdict(list)
    sends = {receive: send for send, receive in pairs.items()}
    for row in rows:
        for step in _communications(row, *TRANSFERS):
            if step in pairs:
                sent[ranks[step.stage], ranks[pairs[step].stage]].append(pairs[step])
            else:
                received[ranks[sends[step].stage], ranks[step.stage]].append(step)
    for (source, target), expected in sent.items():
        for want, got in zip_longest(expected, received[source, target]):
            if want != got:
                text = (
                    f"{got} is rank {target}'s receive for {sends[want]} of rank {source}; "
                    "receives must be in the order of the sends"
                )
                yield Violation("receive-order", text, (str(got), str(sends[want])))
                break


def _blocked(rows: Rows, ranks: Mapping[int, int], pairs: Pairs) -> Iterator[Violation]:
    # NCCL runs the transfers of a process group on one stream, in the order in which they are
    # posted, each until both sides have come to it.
    partner = {**pairs, **{receive: send for send, receive in pairs.items()}}
    heads = [0] * len(rows)
    awake = list(range(len(rows)))
    while awake:
        rank = awake.pop()
        while (step := _at(rows, heads, rank)) is not None:
            counterpart = partner.get(step) if isinstance(step, Communication) else None
            if counterpart is not None:
                peer = ranks[counterpart.stage]
                if _at(rows, heads, peer) != counterpart:
                    break
                heads[peer] += 1
                awake.append(peer)
            heads[rank] += 1
    waiting = [_at(rows, heads, rank) for rank in range(len(rows))]
    blocked = tuple(str(step) for step in waiting if step is not None)
    if blocked:
        yield Violation(
            "deadlock", f"these wait for each other: {', '.join(blocked)}", blocked
        )


def _at(rows: Rows, heads: Sequence[int], rank: int) -> Step | None:
    return rows[rank][heads[rank]] if heads[rank] < len(rows[rank]) else None


def simulated(
    rows: Sequence[Sequence[ComputeStep]],
    instance: PipelineInstance,
    document: Any = None,
    *,
    exact: bool = False,
) -> tuple[Proposal, list[Violation]]:
    """Start each op of a program as early as its order allows; return what that breaks, too.

    The program keeps all rules of programs, but its schedule may break one of the pipeline, such as
    memory. A document claims the memory modes, or the layers of stages, that are open. Times
    without a common tick within the limit are refused if exact, else rounded up. An `InputError`
    says that stages recompute at any time, of which an order says nothing.
    """
    orders = [Order.of(row) for row in rows]
    heuristic = Heuristic("program", "", StaticOrders(lambda _, __: orders), A_PIPELINE)
    claims = None if instance.replicas is not None else document
    modes = modes_of(instance)
    choice = (
        () if modes is None or not modes.is_anytime else choice_of(modes, claims)[0]
    )
    if modes is not None and np.isin(choice, modes.recomputing).any():
        text = "expected a schedule: an order does not say when a stage recomputes"
        raise InputError(text, field="schedule", code=ErrorCode.MISSING)
    problem = PIPELINE.lower(instance, exact=exact, document=claims)
    everywhere = adapted(heuristic, WITH_COLLECTIVES)
    proposal: Proposal = everywhere.propose(Request(instance, problem))
    return proposal, check_schedule(proposal.schedule.problem, proposal.schedule)


def simulated_entry(
    rows: Sequence[Sequence[ComputeStep]],
    instance: PipelineInstance,
    name: str,
    document: Any = None,
    *,
    exact: bool = False,
) -> tuple[HeuristicEntry, Proposal]:
    """Return the entry of a heuristic that a program on a pipeline makes, with its schedule.

    It is infeasible where the schedule breaks a rule of the pipeline such as memory.
    """
    proposal, violations = simulated(rows, instance, document, exact=exact)
    outcome = HeuristicOutcome(
        name,
        HeuristicStatus.INFEASIBLE if violations else HeuristicStatus.FEASIBLE,
        proposal.schedule,
        str(violations[0]) if violations else None,
        proposal.orders,
        broken=BrokenRule.first_of(violations),
    )
    problem = proposal.schedule.problem
    entry = PIPELINE.entry_of(instance, problem, outcome)
    error = problem.scale.time(problem.tick_error) or None
    unit = PIPELINE.value_unit(instance)
    update = {"kind": PIPELINE.name, "value_unit": unit, "tick_error": error}
    return entry.model_copy(update=update), proposal

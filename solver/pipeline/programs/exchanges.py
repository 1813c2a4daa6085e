"""The rules of sends, receives and steps of whole stages in a program (``compute_comms``)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

from ppsolve.models.core.violation import Violation
from ppsolve.solver.pipeline.grammar import (
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
    Step,
    actions_of,
)
from ppsolve.solver.pipeline.programs.communications import stages_to_ranks, transfer_of

Rows = Sequence[Sequence[Step]]
Pairs = Mapping[Communication, Communication]


def broken_exchanges(rows: Rows) -> Iterator[Violation]:
    """Yield the rules that the communications of a program break."""
    ranks = stages_to_ranks(rows)
    pairs = _pairs(rows, ranks)
    found = [*_misplaced(rows, ranks), *_miscounted(rows, pairs)]
    for row in rows:
        found += [*_out_of_place(row), *_reductions(row), *_shards(row)]
    found = found or list(_mismatched(rows, ranks, pairs))
    yield from found or _blocked(rows, ranks, pairs)


def _pairs(rows: Rows, ranks: Mapping[int, int]) -> dict[Communication, Communication]:
    actions = (action for row in rows for step in row for action in actions_of(step))
    transfers = (transfer_of(action, ranks) for action in actions)
    return dict(transfer for transfer in transfers if transfer is not None)


def _communications(row: Sequence[Step], *kinds: str) -> list[Communication]:
    return [step for step in row if isinstance(step, Communication) and step.kind in kinds]


def _misplaced(rows: Rows, ranks: Mapping[int, int]) -> Iterator[Violation]:
    for rank, row in enumerate(rows):
        for step in _communications(row, *TRANSFERS, UNSHARD, RESHARD, REDUCE_GRAD):
            if ranks.get(step.stage) != rank:
                own = ranks.get(step.stage)
                where = "there is no such stage" if own is None else f"its stage is on rank {own}"
                yield Violation("placement", f"{step} is on rank {rank}, {where}", (str(step),))


def _miscounted(rows: Rows, pairs: Pairs) -> Iterator[Violation]:
    counts = Counter(step for row in rows for step in _communications(row, *TRANSFERS))
    wanted = {*pairs, *pairs.values()}
    for step, count in counts.items():
        if step not in wanted:
            text = f"{step} is there, and no stage on another rank needs or makes it"
            yield Violation("needless", text, (str(step),))
        elif count > 1:
            yield Violation("twice", f"{step} is there {count} times", (str(step),))
    for step in sorted(wanted - counts.keys()):
        yield Violation("missing", f"{step} is missing", (str(step),))


def _partners(step: Communication) -> tuple[Action, ...]:
    is_forward = step.kind in {SEND_F, RECV_F}
    kinds = (FORWARD,) if is_forward else (BACKWARD_INPUT, BACKWARD)
    return tuple(Action(step.stage, kind, step.microbatch or 0) for kind in kinds)


def _out_of_place(row: Sequence[Step]) -> Iterator[Violation]:
    place = {action: index for index, step in enumerate(row) for action in actions_of(step)}
    for index, step in enumerate(row):
        if not isinstance(step, Communication) or step.kind not in TRANSFERS:
            continue
        op = next((action for action in _partners(step) if action in place), None)
        if op is None:
            continue
        if step.kind in {SEND_F, SEND_B} and place[op] > index:
            text = f"{step} stands before {op}, whose result it sends"
            yield Violation("send", text, (str(step), str(op)))
        if step.kind not in {SEND_F, SEND_B} and place[op] < index:
            text = f"{step} stands behind {op}, which needs it"
            yield Violation("receive", text, (str(step), str(op)))


def _reductions(row: Sequence[Step]) -> Iterator[Violation]:
    last: dict[int, tuple[int, Action]] = {}
    for index, step in enumerate(row):
        for action in actions_of(step):
            if action.kind in {BACKWARD, BACKWARD_WEIGHT}:
                last[action.stage] = index, action
    for stage, (place, action) in last.items():
        step = Communication(stage, REDUCE_GRAD)
        count = row.count(step)
        if count != 1:
            text = f"{step} is there {count} times; gradients are reduced once per stage"
            yield Violation("reduce-grad", text, (str(step),))
        elif row.index(step) < place:
            text = f"{step} stands before {action}, the last backward of its stage"
            yield Violation("reduce-grad", text, (str(step), str(action)))


def _shards(row: Sequence[Step]) -> Iterator[Violation]:
    sharded = {step.stage for step in _communications(row, UNSHARD, RESHARD)}
    gathered: set[int] = set()
    for step in row if sharded else ():
        for action in actions_of(step):
            if action.stage in sharded - gathered:
                text = f"{action} runs while the parameters of its stage are not gathered"
                yield Violation("shard", text, (str(action),))
        if isinstance(step, Communication) and step.kind in {UNSHARD, RESHARD}:
            if (step.kind == UNSHARD) == (step.stage in gathered):
                yield Violation("shard", f"{step} follows another {step.kind}", (str(step),))
            gathered ^= {step.stage}
    for stage in sorted(gathered):
        step = Communication(stage, RESHARD)
        yield Violation("shard", f"{step} is missing at the end", (str(step),))


def _mismatched(rows: Rows, ranks: Mapping[int, int], pairs: Pairs) -> Iterator[Violation]:
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
    for (source, target), wanted in sent.items():
        for want, got in zip_longest(wanted, received[source, target]):
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
            other = partner.get(step) if isinstance(step, Communication) else None
            if other is not None:
                peer = ranks[other.stage]
                if _at(rows, heads, peer) != other:
                    break
                heads[peer] += 1
                awake.append(peer)
            heads[rank] += 1
    waiting = [_at(rows, heads, rank) for rank in range(len(rows))]
    left = tuple(str(step) for step in waiting if step is not None)
    if left:
        yield Violation("deadlock", f"these wait for each other: {', '.join(left)}", left)


def _at(rows: Rows, heads: Sequence[int], rank: int) -> Step | None:
    return rows[rank][heads[rank]] if heads[rank] < len(rows[rank]) else None

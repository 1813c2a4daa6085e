"""From a result to the program that its devices run: the one thing that every exporter reads."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, groupby, pairwise
from operator import itemgetter
from typing import Any, Literal

from ppsolve.models.core.result import ScheduleDocument
from ppsolve.models.core.violation import Violation
from ppsolve.models.documents.base import describe
from ppsolve.models.documents.contents import RESULT, refuse_others
from ppsolve.models.documents.errors import ErrorCode, InputError, errors_about
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.labels import OFFLOAD_KIND, RELOAD_KIND
from ppsolve.models.kinds.pipeline.layers import counts_of_document, named_counts
from ppsolve.models.kinds.pipeline.modes import choice_of, modes_of
from ppsolve.models.kinds.pipeline.origin import PlanOrigin
from ppsolve.solver.api.kinds import CARRIED
from ppsolve.solver.kinds.pipeline import grammar
from ppsolve.solver.kinds.pipeline.actions import action_strings
from ppsolve.solver.kinds.pipeline.claimed import as_claimed
from ppsolve.solver.kinds.pipeline.grammar import (
    Action,
    ComputeStep,
    Overlap,
    actions_of,
)
from ppsolve.solver.kinds.pipeline.kind import PIPELINE
from ppsolve.solver.kinds.pipeline.programs.communications import Ends, stages_to_ranks
from ppsolve.solver.kinds.pipeline.programs.rules import broken_rules, simulated
from ppsolve.solver.kinds.pipeline.programs.shape import PipelineShape, shape_of
from ppsolve.solver.kinds.pipeline.runtimes.claims import claimed_settings

Rows = tuple[tuple[ComputeStep, ...], ...]

Format = Literal["compute_only", "compute_comms"]

FORMATS: tuple[Format, ...] = ("compute_only", "compute_comms")

_COPY_KINDS = (OFFLOAD_KIND, RELOAD_KIND)


@dataclass(frozen=True)
class Settings:
    """Choices of the caller that exporters read."""

    form: Format = FORMATS[0]  # format of PyTorch's file
    shards: bool = False  # gather and drop parameters, see `torch_csv`
    model: str | None = None  # the layers of the model, see `letters_of`
    # decoder layers of each stage whose forward is run again before their backward
    recomputed: tuple[int, ...] | None = None
    offload_modules: tuple[
        str, ...
    ] = ()  # modules of Megatron-LM whose inputs go to the host


@dataclass(frozen=True, eq=False)
class RuntimeProgram:
    """What each rank of a pipeline runs."""

    name: str
    # the steps of each rank, in order; every rule of `broken_rules` but ``data-order`` holds
    rows: Rows
    ends: Ends | None = (
        None  # ends in the time unit of the result, where the result has a schedule
    )
    instance: PipelineInstance | None = None  # the pipeline, where it is known
    layers: tuple[int, ...] | None = None  # layers of each stage, where they are known
    # mode of each stage and micro-batch; empty where every activation is kept
    modes: tuple[tuple[str, ...], ...] = ()
    # layers of each stage by mode, of a result that shares out layers
    layer_modes: tuple[Mapping[str, int], ...] = ()
    # copies before each action: O to the host that have ended, L back that begin by then
    copies: Mapping[Action, tuple[Action, ...]] = field(default_factory=dict)
    # the micro-batch of the result that stands at each index of the program
    microbatches: tuple[int, ...] = ()
    # what makes a runtime of few orders run it, where the result claims one
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def plan(self) -> PlanOrigin | None:
        """What the plan chose that made its pipeline."""
        return None if self.instance is None else self.instance.plan

    @property
    def stage_to_rank(self) -> tuple[int, ...]:
        """Rank of each stage."""
        ranks = stages_to_ranks(self.rows)
        return tuple(ranks[stage] for stage in range(len(ranks)))

    @property
    def shape(self) -> PipelineShape:
        """Shape of the pipeline."""
        fuses = any(isinstance(step, Overlap) for row in self.rows for step in row)
        return PipelineShape(self.num_microbatches, self.stage_to_rank, fuses=fuses)

    @property
    def num_stages(self) -> int:
        """Number of stages."""
        return len(self.stage_to_rank)

    @property
    def num_microbatches(self) -> int:
        """Number of micro-batches."""
        return len(self.microbatches)

    @property
    def is_renumbered(self) -> bool:
        """Whether micro-batches have other numbers than in the result."""
        return self.microbatches != tuple(range(self.num_microbatches))

    def actions(self, rank: int) -> list[Action]:
        """Return the actions of a rank one by one."""
        return [action for step in self.rows[rank] for action in actions_of(step)]


def cannot_say(message: str) -> InputError:
    """Return the error for a schedule that no file, or not this one, can say."""
    return InputError(message, field="schedule")


def read_program(
    data: Any,
    instance: PipelineInstance | None = None,
    *,
    heuristic: str | None = None,
    replica: int | None = None,
) -> RuntimeProgram:
    """Return the program of a result, a heuristic's entry, a bare schedule or a plan.

    Raises `InputError` where there is no readable schedule of a pipeline with one rank per stage,
    or it breaks a rule.

    `data`: the document as read from JSON.
    `instance`: the pipeline, by default the one that the result carries; the schedule must keep
        every rule of it. A plan has its own.
    `heuristic`: the heuristic of a result whose order is read.
    `replica`: the one of several that is read, its devices and micro-batches counted from 0.
    """
    if not isinstance(data, dict):
        raise InputError(
            f"expected a result or a plan (an object), got {describe(data)}",
            code=ErrorCode.TYPE,
        )
    if data.get("kind") == "plan-result":
        data, instance = winner_in(data)
        if instance.plan is None:
            text = "expected the choices of the plan, which older versions left out: plan again"
            raise InputError(text, field="instance.plan", code=ErrorCode.MISSING)
    refuse_others(data, "a result or a plan", RESULT)
    instance = instance or _carried(data)
    if heuristic is not None:
        data = entry_in(data, heuristic)
    instance = None if instance is None else as_claimed(instance, data)
    if data.get("kind") not in (None, "pipeline"):
        text = f"expected the result of a pipeline, got {describe(data['kind'])}"
        raise InputError(text, field="kind", code=ErrorCode.MISSING)
    if data.get("status") == "infeasible":
        raise InputError(
            f"the schedule breaks a rule: {data.get('reason')}",
            field="status",
            code=ErrorCode.SCHEDULE,
        )
    document, members = (data, None) if replica is None else _of_replica(data, replica)
    is_split = data.get("layers") is not None and data.get("orders") is None
    is_timed = is_split or _ops_in(data) is not None
    claimed = None
    if instance is not None and replica is None and is_timed:
        claimed = claimed_settings(instance, data)
        if claimed is not None:
            # The runtime runs backwards whole, which the schedule may have in halves.
            document = {**data, "orders": action_strings(claimed.orders).value}
    rows, ends = _rows(document)
    _refuse(broken for broken in broken_rules(rows) if broken.rule != "data-order")
    types = layer_types(data, instance)
    if instance is not None and ends is None:
        ends = _simulated_ends(rows, instance, data)
    elif instance is not None:
        _refuse(PIPELINE.check(instance, data))
    count = 1 + max(
        a.microbatch for row in rows for step in row for a in actions_of(step)
    )
    name = str(data.get("instance") or (instance.name if instance else "pipeline"))
    numbers = members or tuple(range(count))
    plan = None if instance is None else instance.plan
    layers = None if plan is None else plan.layers_per_stage
    settings = {} if claimed is None else claimed.named
    program = RuntimeProgram(
        name, rows, ends, instance, layers, microbatches=numbers, settings=settings
    )
    copies = {} if instance is None else _copies(_ops_in(document) or [], rows)
    return replace(_with_memory_decisions(program, data, types), copies=copies)


def _with_memory_decisions(
    program: RuntimeProgram, data: dict[str, Any], types: tuple[Mapping[str, int], ...]
) -> RuntimeProgram:
    """Return the program with the modes or the layers by mode that its document claims."""
    modes = None if program.instance is None else modes_of(program.instance)
    if modes is not None:
        choice, _ = choice_of(modes, data)
        rows = (tuple(modes.names[number] for number in row) for row in choice.tolist())
        return replace(program, modes=tuple(rows))
    layers = tuple(sum(stage.values()) for stage in types) or program.layers
    return replace(program, layers=layers, layer_modes=types)


def _refuse(violations: Iterable[Violation]) -> None:
    first = next(iter(violations), None)
    if first is not None:
        raise cannot_say(str(first))


def _carried(data: dict[str, Any]) -> PipelineInstance | None:
    document = data.get(CARRIED)
    if document is None or data.get("kind") != PIPELINE.name:
        return None
    try:
        return PIPELINE.parse(document)
    except InputError as error:
        raise error.about(".".join(filter(None, (CARRIED, error.field)))) from None


def _simulated_ends(
    rows: Rows, instance: PipelineInstance, data: dict[str, Any]
) -> Ends:
    _refuse(
        broken
        for broken in broken_rules(rows, shape_of(instance))
        if broken.rule != "data-order"
    )
    proposal, violations = simulated(rows, instance, data)
    _refuse(violations)
    document = ScheduleDocument.of(proposal.schedule).model_dump(mode="json")
    with errors_about("orders"):
        return _ends_of(rows, *_timed(document["ops"]))


def layer_types(
    data: dict[str, Any], instance: PipelineInstance | None
) -> tuple[dict[str, int], ...]:
    """Return the layers of each stage by type, of pipelines that choose them; else none.

    Heuristics that say none have an even split. Raises `InputError` where a document says them in
    another form, or other layers than the pipeline has.
    """
    rows = data.get("layers")
    if instance is not None and instance.layers is not None:
        counts, wrong = counts_of_document(instance, data)
        if wrong is not None and rows is not None:
            raise InputError(wrong, field="layers")
        return named_counts(instance.layers, counts)
    is_form = isinstance(rows, list) and all(isinstance(row, dict) for row in rows)
    if rows is None or (
        is_form and all(type(n) is int for row in rows for n in row.values())
    ):
        return tuple(rows or ())
    text = f"expected the numbers of layers of each stage, got {describe(rows)}"
    raise InputError(text, field="layers", code=ErrorCode.TYPE)


def winner_in(plan: dict[str, Any]) -> tuple[dict[str, Any], PipelineInstance]:
    """Return the result and the pipeline of the winner of a plan.

    Raises `InputError` where the plan has no winner, or its parts cannot be read.
    """
    for name in ("result", "instance", "winner"):
        if not isinstance(plan.get(name), dict):
            status = f" (status {plan.get('status')})"
            raise InputError(
                f"the plan has no winner{status}", field=name, code=ErrorCode.MISSING
            )
    return plan["result"], PIPELINE.parse(plan["instance"])


def entry_in(data: dict[str, Any], heuristic: str) -> dict[str, Any]:
    """Return the entry of a heuristic of a result, with the name of the instance.

    Raises `InputError` where the result has no such heuristic.
    """
    entries = data.get("heuristics")
    rows = (
        [row for row in entries if isinstance(row, dict)]
        if isinstance(entries, list)
        else []
    )
    by_name = {str(row.get("name")): row for row in rows}
    if heuristic not in by_name:
        raise InputError.unknown(
            "the result has no heuristic",
            heuristic,
            by_name,
            field="--heuristic",
        )
    return {"instance": data.get("instance"), **by_name[heuristic]}


def _ops_in(data: dict[str, Any]) -> list[Any] | None:
    document = data.get("schedule", data)
    ops = document.get("ops") if isinstance(document, dict) else None
    return ops if isinstance(ops, list) else None


def _of_replica(
    data: dict[str, Any], replica: int
) -> tuple[dict[str, Any], tuple[int, ...]]:
    """Return the schedule of one replica, counted from 0, and its micro-batches in the step."""
    ops = (op for op in _ops_in(data) or () if isinstance(op, dict))
    placed = (
        op for op in ops if type(op.get("device")) is type(op.get("microbatch")) is int
    )
    entries = [op for op in placed if op.get("replica") == replica]
    if not entries:
        raise InputError(
            f"the schedule has no replica {replica}",
            field="--replica",
            code=ErrorCode.MISSING,
        )
    first = min(op["device"] for op in entries)
    members = tuple(sorted({op["microbatch"] for op in entries}))
    index = {microbatch: k for k, microbatch in enumerate(members)}
    renumbered = []
    for op in entries:
        device, microbatch = op["device"] - first, index[op["microbatch"]]
        fields = {"replica": None, "device": device, "microbatch": microbatch}
        renumbered.append(op | fields)
    return {"instance": data.get("instance"), "schedule": {"ops": renumbered}}, members


def _rows(data: dict[str, Any]) -> tuple[Rows, Ends | None]:
    """Return the rows of a document, of its action strings if it has any, and the ends of ops."""
    orders, ops = data.get("orders"), _ops_in(data)
    rows = grammar.compute_rows(orders) if isinstance(orders, list) else None
    if ops is not None:
        timed, ends = _timed(ops)
        return (timed, ends) if rows is None else (rows, _ends_of(rows, timed, ends))
    if rows is None:
        reason = f": {data['reason']}" if data.get("reason") else ""
        raise cannot_say(f"expected the schedule of a pipeline, there is none{reason}")
    return rows, None


def _timed(ops: list[Any]) -> tuple[Rows, dict[Action, float]]:
    """Return the compute ops of a schedule by rank, in the order of starts, and their ends."""
    placed: dict[int, list[tuple[Any, Any, ComputeStep]]] = {}
    identities: set[tuple[Any, ...]] = set()
    for index, op in enumerate(ops):
        step = _step(op, f"schedule.ops[{index}]")
        if step is None:
            continue
        # Pieces of no time may begin together, with identities of their own.
        identity = (op.get("id"), op["device"], op["start"], op["end"], step)
        if identity in identities:
            raise cannot_say(f"twice: {step} is there more than once")
        identities.add(identity)
        placed.setdefault(op["device"], []).append((op["start"], op["end"], step))
    if not placed:
        raise cannot_say("expected ops of a pipeline (F, B, I, W), there are none")
    empty = next((rank for rank in range(len(placed)) if rank not in placed), None)
    if empty is not None:
        raise cannot_say(f"placement: rank {empty} has no op; every rank needs a stage")
    timed = [
        _continued(sorted(placed[rank], key=_by_start)) for rank in range(len(placed))
    ]
    ends = {
        action: end
        for row in timed
        for _, end, step in row
        for action in actions_of(step)
    }
    rows = tuple(
        tuple(action for action, _ in groupby(step for *_, step in row))
        for row in timed
    )
    _refuse_pieces(rows)
    return rows, ends


def _continued(
    row: list[tuple[Any, Any, ComputeStep]],
) -> list[tuple[Any, Any, ComputeStep]]:
    """Return timed steps in which pieces of no time stand behind the piece that they continue."""
    steps: list[tuple[Any, Any, ComputeStep]] = []
    for _, group in groupby(row, itemgetter(0, 1)):
        pieces: dict[ComputeStep, list[tuple[Any, Any, ComputeStep]]] = {}
        if steps:
            pieces[steps[-1][2]] = []
        for timed in group:
            pieces.setdefault(timed[2], []).append(timed)
        steps += chain.from_iterable(pieces.values())
    return steps


def _by_start(timed: tuple[Any, Any, ComputeStep]) -> tuple[Any, ...]:
    # Ops of no length at one moment come as a micro-batch passes the stages.
    start, end, step = timed
    action = next(actions_of(step))
    is_forward = action.kind == grammar.FORWARD
    is_last = action.kind == grammar.BACKWARD_WEIGHT
    return (
        start,
        end,
        is_last,
        not is_forward,
        action.stage if is_forward else -action.stage,
    )


def _copies(ops: list[Any], rows: Rows) -> dict[Action, tuple[Action, ...]]:
    """Return the copies that stand before each action.

    A copy out stands before the first op that begins once it has ended, one back before the op that
    runs when it begins: so neither makes an op wait, and memory holds as in the schedule. Only what
    comes back into room that a copy out leaves meanwhile begins after it, with the next op.
    """
    actions = {action for row in rows for step in row for action in actions_of(step)}
    steps: dict[int, list[tuple[Any, Any, Action]]] = {}
    events: dict[int, list[tuple[Any, bool, Action]]] = {}
    for index, op in enumerate(ops):
        action = _action(
            op, f"schedule.ops[{index}]", (*grammar.COMPUTE_KINDS, *_COPY_KINDS)
        )
        if action is not None and action.kind in _COPY_KINDS:
            is_back = action.kind == RELOAD_KIND
            moment = op["start"] if is_back else op["end"]
            events.setdefault(op["device"], []).append((moment, is_back, action))
        elif action is not None:
            steps.setdefault(op["device"], []).append((op["start"], op["end"], action))
    copies_before: dict[Action, tuple[Action, ...]] = {}
    for device, copies in events.items():
        row, earliest = sorted(steps[device], key=_by_start), 0
        for moment, is_back, copy in sorted(copies):
            position = bisect_left(row, moment, key=itemgetter(0))
            if is_back and position > earliest and row[position - 1][1] > moment:
                position -= 1
            earliest = max(earliest, position)
            before = row[position][2]
            if before not in actions:  # an order with whole backwards
                before = before._replace(kind=grammar.BACKWARD)
            copies_before[before] = (*copies_before.get(before, ()), copy)
    return copies_before


def _step(op: Any, field: str) -> ComputeStep | None:
    """Return the action of an op, the pair of a fused block, None for what is no compute op."""
    kind = op.get("kind") if isinstance(op, dict) else None
    if not isinstance(kind, str) or "+" not in kind:
        return _action(op, field)
    _action(op, field, (kind,))
    pair = grammar.pair_of(str(op.get("id")))
    if pair is None:
        text = f"a block of a forward and a whole backward; {describe(op.get('id'))} is another one"
        raise cannot_say(f"op: expected {text}")
    return pair


def _action(
    op: Any, field: str, kinds: tuple[str, ...] = grammar.COMPUTE_KINDS
) -> Action | None:
    """Return the action of an op, None for transfers, collectives and optimizer steps."""
    if not isinstance(op, dict):
        raise InputError(
            f"expected an object, got {describe(op)}", field=field, code=ErrorCode.TYPE
        )
    if op.get("kind") not in kinds or op.get("microbatch") is None:
        return None
    if op.get("replica") is not None:
        raise InputError(
            f"one rank per stage: {op.get('id')} runs on replica {op['replica']}; "
            "--replica R exports one of them",
            field=field,
            code=ErrorCode.MISSING,
        )
    for name in ("stage", "device", "microbatch", "start", "end"):
        value, is_time = op.get(name), name in {"start", "end"}
        if is_time and isinstance(value, bool | str | list | dict | None):
            raise InputError(
                f"expected a number, got {describe(value)}",
                field=f"{field}.{name}",
                code=ErrorCode.TYPE,
            )
        if not is_time and (type(value) is not int or value < 0):
            text = f"expected a number >= 0, got {describe(value)}"
            raise InputError(text, field=f"{field}.{name}", code=ErrorCode.RANGE)
    return Action(op["stage"], op["kind"], op["microbatch"])


def _refuse_pieces(rows: Rows) -> None:
    counts = Counter(
        action for row in rows for step in row for action in actions_of(step)
    )
    action, count = counts.most_common(1)[0]
    if count > 1:
        raise cannot_say(
            f"one op per stage, kind and micro-batch: {action} runs in {count} pieces with others "
            "between them, which no runtime's file can say"
        )


def _ends_of(rows: Rows, timed: Rows, ends: dict[Action, float]) -> dict[Action, float]:
    """Return the ends of the actions of an order; a full backward ends with its W.

    Refuses an order that is another one than that of the schedule.
    """
    completed: dict[Action, float] = {}
    kinds = (grammar.BACKWARD_INPUT, grammar.BACKWARD_WEIGHT)
    for rank, row in enumerate(rows):
        halves: list[Action] = []
        for action in (action for step in row for action in actions_of(step)):
            pieces = [action]
            if action not in ends and action.kind == grammar.BACKWARD:
                pieces = [action._replace(kind=kind) for kind in kinds]
            halves += pieces
            completed[action] = ends.get(pieces[-1], 0.0)
        if rank >= len(timed) or sorted(halves) != sorted(
            action for step in timed[rank] for action in actions_of(step)
        ):
            raise InputError(
                "expected the ops of the schedule",
                field=f"orders[{rank}]",
                code=ErrorCode.MISSING,
            )
        for before, after in pairwise(halves):
            if ends[after] < ends[before]:
                text = f"the schedule ends {after} before {before}, the order says otherwise"
                raise InputError(text, field=f"orders[{rank}]", code=ErrorCode.SCHEDULE)
    return completed

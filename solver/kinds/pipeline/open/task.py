"""Pipelines that leave more open than orders, while they are solved: the table of their steps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from ppsolve.models.core.options import OpenProblem
from ppsolve.models.core.problem import IntArray, Objective, Problem
from ppsolve.models.core.result import Bottleneck, StopReason
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.kinds.pipeline.filler_devices import CHOSEN_DEVICES, device_choices
from ppsolve.models.kinds.pipeline.fused import CHOSEN_BLOCKS
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.modes import CHOSEN_MODES, MemoryModes, modes_of
from ppsolve.models.kinds.pipeline.replicas import ModeAlternative
from ppsolve.solver.board import Bound
from ppsolve.solver.bounds.flow.flow import Flow
from ppsolve.solver.bounds.frontier_blocks import BlockRelaxations
from ppsolve.solver.bounds.registry import assignment_bounds, quick_bounds
from ppsolve.solver.bounds.relaxations import Relaxations
from ppsolve.solver.clock import Clock
from ppsolve.solver.exact.question import (
    EXACT,
    FEW_DEVICES,
    VARIANTS,
    ExactAnswer,
    SearchLimits,
)
from ppsolve.solver.exact.windows import latest_end
from ppsolve.solver.heuristics.heuristic import Effort, Heuristic
from ppsolve.solver.heuristics.order_search import obstacle
from ppsolve.solver.kinds.pipeline.choice_bounds import INFEASIBLE, analytic_bound
from ppsolve.solver.kinds.pipeline.chosen import (
    answered_jointly,
    has_best_choice,
    search_orders,
    solve_jointly,
)
from ppsolve.solver.kinds.pipeline.layers.bottleneck import bottleneck_of_layers
from ppsolve.solver.kinds.pipeline.layers.chain import LayerChain, is_chain
from ppsolve.solver.kinds.pipeline.layers.linear import least_times, mean_work
from ppsolve.solver.kinds.pipeline.layers.ordered import LAYERS, balanced_split
from ppsolve.solver.kinds.pipeline.layers.steps import (
    FURTHER_SPLITS,
    SPLIT_ORDERS,
    SPLIT_SEARCHES,
    SPLIT_STEP,
)
from ppsolve.solver.kinds.pipeline.modes.alternatives import (
    NEARBY,
    Alternative,
    alternatives_of,
    improve,
)
from ppsolve.solver.kinds.pipeline.modes.problems import ModeProblems
from ppsolve.solver.kinds.pipeline.open.beams import ChoiceBeams, has_beams
from ppsolve.solver.kinds.pipeline.open.decisions import CHOSEN_REPLICAS
from ppsolve.solver.kinds.pipeline.open.device_frontiers import (
    DeviceFrontiers,
    device_frontiers,
)
from ppsolve.solver.kinds.pipeline.open.search import CHOICES, ChoiceSearch
from ppsolve.solver.kinds.pipeline.open.space import PipelineSpace, is_decided
from ppsolve.solver.kinds.pipeline.open.tree import ChoiceTree
from ppsolve.solver.kinds.pipeline.options.last_forward import (
    LAST_FORWARD,
    last_forward,
)
from ppsolve.solver.kinds.pipeline.options.relaxed import relaxed
from ppsolve.solver.kinds.pipeline.options.search import FUSED, FusedOrderSearch
from ppsolve.solver.kinds.pipeline.replicas.search import ReplicaSearch
from ppsolve.solver.kinds.pipeline.replicas.steps import (
    AFTER_ORDERS,
    FIRST_OF_REPLICAS,
    REST_OF_REPLICAS,
    bound_replicas,
    is_large_step,
    members_by_start,
)
from ppsolve.solver.run.schedule_task import ScheduleTask, search_below
from ppsolve.solver.run.step import Step, Steps, Turn, whole
from ppsolve.solver.run.steps import (
    BOUNDS,
    EXACT_SLACK,
    FRONTIER,
    GREEDY,
    ROBUST,
    SETTLED,
    VERIFIED,
    has_time_to_search,
    raise_by_frontiers,
)
from ppsolve.solver.structure.holds import MemoryInfeasible
from ppsolve.solver.structure.implied import ImpliedOrder

AVERAGE = "work of all devices"
"""Name of a bound in reports."""

ORDER_SHARE = 0.3
"""Part of the time for the orders of the best choice where nothing but devices is chosen."""


# What applies when.


def has_joint_model(turn: Turn) -> bool:
    """Apply where choices and orders are one model that is not too large."""
    task, params = turn.task, turn.params
    if not has_time_to_search(turn) or task.obstacle_to_joint is not None:
        return False
    if task.modes is not None:
        return task.cells <= params.modes.joint_cells
    return len(task.options) <= params.options.most_options


def has_quick_model(turn: Turn) -> bool:
    """Apply to few options, or stages and micro-batches: all is soon proved together."""
    if not has_joint_model(turn):
        return False
    if turn.task.modes is not None:
        return turn.task.cells <= turn.params.modes.quick_cells
    return len(turn.task.options) <= turn.params.options.quick_options


def has_quick_modes(turn: Turn) -> bool:
    """Apply to few stages and micro-batches: modes and orders are proved first."""
    return has_quick_model(turn) and turn.task.modes is not None


def has_tree(turn: Turn) -> bool:
    """Apply where choices are proved away one by one: not where one model has them all."""
    task = turn.task
    if not has_time_to_search(turn) or task.alone is not None:
        return False
    return task.modes is not None or task.obstacle_to_joint is not None


def has_decisions(turn: Turn) -> bool:
    """Apply where list schedules rate what is chosen."""
    return has_tree(turn) and bool(turn.task.space.decisions)


def wants_beams(turn: Turn) -> bool:
    """Apply to modes in tight memory, whose choices plain beams can follow."""
    task = turn.task
    return has_decisions(turn) and task.modes is not None and has_beams(task.problem)


def has_blocks(turn: Turn) -> bool:
    """Apply where a schedule is known, ops may run as one, and their orders say all."""
    schedule = turn.board.schedule
    if schedule is None or turn.task.instance.overlap is None:
        return False
    return has_time_to_search(turn) and obstacle(turn.task.blocks.base) is None


def has_block_frontier(turn: Turn) -> bool:
    """Apply to blocks of alike micro-batches in memory, where nothing else is chosen."""
    if not has_blocks(turn) or turn.task.space.decisions:
        return False
    base = turn.task.blocks.base
    return bool(base.pools) and bool(base.families)


def has_orders(turn: Turn) -> bool:
    """Apply where some choice has a schedule, and more than blocks is chosen."""
    is_searched = bool(turn.task.space.decisions) and turn.task.alone is None
    return has_best_choice(turn) and is_searched


def has_time_for_parts(turn: Turn) -> bool:
    """Apply to many blocks without a frontier where a schedule is known and a clock runs."""
    is_timed = turn.clock.is_limited and not turn.options.deterministic
    is_alone = turn.task.instance.overlap is not None and has_joint_model(turn)
    is_large = is_alone and not has_quick_model(turn) and not has_block_frontier(turn)
    return is_large and has_best_choice(turn) and is_timed


def decides_stages(turn: Turn) -> bool:
    """Apply where nothing but the mode of each stage is chosen, and a schedule is known."""
    modes = turn.task.modes
    return has_best_choice(turn) and modes is not None and modes.decide == "stage"


def is_timed_by_stage(turn: Turn) -> bool:
    """Apply where stages have modes of their own, and a clock runs."""
    is_timed = turn.clock.is_limited and not turn.options.deterministic
    return decides_stages(turn) and is_timed


# What runs.


def solve_quick_modes(turn: Turn) -> StopReason | None:
    """Search modes and orders of few micro-batches for a part of the time."""
    reason = solve_jointly(turn)
    return reason if reason in {StopReason.INFEASIBLE, StopReason.INTERRUPTED} else None


def search_choices(turn: Turn) -> None:
    """Search over choices by list schedules."""
    steps = turn.params.modes.rated if turn.options.deterministic else 10**9
    search = ChoiceSearch(turn.task.space, turn.board, turn.options.seed, steps)
    search.run(turn.clock)


def beam_choices(turn: Turn) -> None:
    """Search schedules of the choices of least bound by beams over frontiers."""
    task, params = turn.task, turn.params.modes
    beams = ChoiceBeams(
        task.space, turn.board, turn.options.seed, params, task.device_frontiers
    )
    beams.run(turn.clock)


def search_blocks(turn: Turn) -> None:
    """Search over lists of ops of the best choices, of which neighbours are fused."""
    params, board = turn.params, turn.board
    schedule = board.schedule
    assert schedule is not None
    blocks = turn.task.blocks_of(schedule)
    is_timed = turn.clock.is_limited and not turn.options.deterministic
    is_endless = is_timed and len(blocks.options) > params.options.quick_options
    steps = params.options.steps_per_option * len(blocks.options)
    budget = replace(params.heuristics.orders, cold=params.options.cold)
    search = FusedOrderSearch(blocks, board, turn.options.seed)
    search.run(schedule, turn.clock, float("inf") if is_endless else steps, budget)


def bound_by_block_frontiers(turn: Turn) -> None:
    """Raise the bound by the frontiers of a few devices, of which two ops may run as one."""
    raise_by_frontiers(turn, BlockRelaxations(turn.task.blocks, turn.clock))


def bound_by_parts(turn: Turn) -> StopReason | None:
    """Raise the bound by models in which few devices hold one op at a time.

    They begin with the device of the best analytic bound, and get its neighbours one by one.
    """
    from ppsolve.solver.exact.search import CpsatSearch, SharedIncumbent
    from ppsolve.solver.kinds.pipeline.options.joint_model import OptionsModel

    task, board = turn.task, turn.board
    devices = task.problem.span_resources.tolist()
    named = [bound.resource for bound in task.bounds if bound.resource in devices]
    low = high = devices.index(named[0]) if named else 0
    while not (turn.clock.is_over or board.is_closed):
        assert board.schedule is not None and board.value is not None
        limits = turn.share(0.5).limits()
        only = devices[low : high + 1]
        model = OptionsModel(task.blocks, board.bound.value, board.value, only)
        model.hint(board.schedule)
        incumbent = SharedIncumbent(model)
        answer = CpsatSearch(model, incumbent, limits, limits.start()).execute()
        if model.memory_is_exact and answer.bound is not None:
            board.raise_bound(answer.bound, FEW_DEVICES)
        is_whole = len(only) == len(devices)
        if answer.stop_reason is StopReason.INTERRUPTED or is_whole:
            return None if is_whole else answer.stop_reason
        low, high = (low - 1, high) if low else (low, high + 1)
    return None


def prove_choices(turn: Turn) -> StopReason | None:
    """Prove choices away, or find better schedules of them."""
    task, params = turn.task, turn.params.modes
    tree = ChoiceTree(
        task.space, turn.board, turn.limits(), params, task.device_frontiers
    )
    stop = tree.run(turn.clock)
    turn.board.units += tree.spent
    return stop


def try_other_modes(turn: Turn) -> None:
    """Try every other mode of every stage, one at a time."""
    task, best = turn.task, turn.board.schedule
    if best is not None:
        task.alternatives = list(alternatives_of(task.problems, best, turn.clock))
        for alternative in task.alternatives:
            if alternative.schedule is not None:
                turn.board.propose(alternative.schedule, NEARBY)


# For which share of the time.


def _order_share(turn: Turn) -> float:
    is_searched = has_decisions(turn)
    return turn.params.modes.order_share if is_searched else ORDER_SHARE


def _choice_share(turn: Turn) -> float:
    params, modes = turn.params.modes, turn.task.modes
    # Copies are no part of a beam: lists alone schedule them.
    is_copied = modes is not None and modes.offload is not None
    is_beamed = wants_beams(turn) and not is_copied
    return params.beamed_share if is_beamed else params.choice_share


def _last_share(turn: Turn) -> float:
    return 1 - turn.params.modes.price_share if decides_stages(turn) else 1.0


def _tree_share(turn: Turn) -> float:
    is_followed = has_joint_model(turn)
    return turn.params.modes.variant_share if is_followed else _last_share(turn)


def _greedy_share(turn: Turn) -> float:
    return AFTER_ORDERS if is_large_step(turn) else GREEDY.share(turn)


CHOICE_STEPS: tuple[Step | Steps, ...] = (
    BOUNDS,
    *FIRST_OF_REPLICAS,
    replace(GREEDY, share=_greedy_share),
    *REST_OF_REPLICAS,
    SPLIT_SEARCHES,
    SPLIT_STEP,
    SPLIT_ORDERS,
    FURTHER_SPLITS,
    Step(
        "quick exact",
        has_quick_modes,
        lambda t: t.params.modes.quick_share,
        solve_quick_modes,
        EXACT_SLACK,
    ),
    Step(CHOICES, has_decisions, _choice_share, search_choices),
    Step("beams", wants_beams, lambda t: t.params.modes.beam_share, beam_choices),
    Step(FUSED, has_blocks, lambda t: t.params.options.order_share, search_blocks),
    Step("orders", has_orders, _order_share, search_orders, EXACT_SLACK),
    replace(FRONTIER, applies=has_block_frontier, run=bound_by_block_frontiers),
    Step("nearby", is_timed_by_stage, lambda t: t.params.modes.near_share, improve),
    Step(
        FEW_DEVICES,
        has_time_for_parts,
        lambda t: t.params.options.part_share,
        bound_by_parts,
        EXACT_SLACK,
    ),
    Step(VARIANTS, has_tree, _tree_share, prove_choices, EXACT_SLACK),
    Step(EXACT, has_joint_model, _last_share, solve_jointly, EXACT_SLACK),
    SETTLED,
    Step(
        NEARBY,
        is_timed_by_stage,
        whole,
        try_other_modes,
        EXACT_SLACK,
        runs_anyway=True,
    ),
    VERIFIED,
    ROBUST,
)
"""The steps of a pipeline that leaves more open than orders."""


class ChoiceTask(ScheduleTask):
    """A pipeline that leaves more open than orders.

    Every choice has a problem of its own; `problem` relaxes all that is open, so that its bounds
    hold for all choices.

    `alone`: the field of what is open where it is alone and has searches of its own.
    `flow`: all micro-batches, where replicas exchange them and nothing else is open.
    `exchange`: the search that exchanges them.
    """

    steps = CHOICE_STEPS

    def __init__(
        self,
        kind: Any,
        instance: PipelineInstance,
        *,
        exact: bool,
        alone: str | None = None,
    ) -> None:
        self._usual = kind.lower(instance, exact=exact)
        self.space, self.alone = PipelineSpace(instance, exact=exact), alone
        is_open = alone is None or bool(self.space.decisions)
        self._least = self.space.problem(self.space.open) if is_open else self._usual
        self.blocks = self.space.blocks(self._least)
        problem = self._least if self.blocks is None else relaxed(self.blocks)
        super().__init__(kind, instance, problem)
        self.alternatives: list[Alternative] = []
        self.balanced: IntArray | None = None  # the layers of the best such bound
        self.flow: Flow | None = None
        self.exchange: ReplicaSearch | None = None

    @cached_property
    def tick_error(self) -> int:
        """The most of a few choices: all have nearly the same ops."""
        if self.scale.is_exact:
            return 0
        return max(self.space.problem(c).tick_error for c in self.space.corners())

    @cached_property
    def modes(self) -> MemoryModes | None:
        """The modes of a pipeline of which nothing else is open, and each op runs as a whole."""
        is_alone = self.space.fields == (CHOSEN_MODES,) and self.blocks is None
        return (
            modes_of(self.instance)
            if is_alone and self.instance.has_whole_ops
            else None
        )

    @cached_property
    def device_frontiers(self) -> DeviceFrontiers | None:
        """Bounds on modes by single devices, None where more than modes is open."""
        return device_frontiers(self.space)

    @cached_property
    def problems(self) -> ModeProblems:
        """The problems of all choices of modes."""
        assert self.modes is not None
        return ModeProblems(self.modes, self.scale)

    @property
    def cells(self) -> int:
        """Number of stages times micro-batches."""
        return self.instance.num_stages * self.instance.num_microbatches

    @cached_property
    def devices(self) -> OpenProblem:
        """The devices of fillers as options."""
        return device_choices(self.instance, self._least)

    @property
    def options(self) -> tuple[Any, ...]:
        """The blocks, or the devices of fillers, one of which has a joint model."""
        return (self.devices if self.blocks is None else self.blocks).options

    def wrong_choice(self, schedule: Schedule) -> str | None:
        """Return that decisions do not allow what the schedule chose."""
        choices = self.space.chosen(schedule)
        if not is_decided(choices) or not self.space.allows(choices):
            return "choices that may not be made"
        blocks = schedule.problem.chosen(CHOSEN_BLOCKS)
        if self.blocks is not None and not self.blocks_of(schedule).allows(blocks):
            return "options of which two cover one op"
        return None

    def blocks_of(self, schedule: Schedule) -> OpenProblem:
        """Return the blocks over the choices of a schedule, of a pipeline with blocks."""
        if not self.space.decisions:
            assert self.blocks is not None
            return self.blocks
        blocks = self.space.blocks(self.space.problem(self.space.chosen(schedule)))
        assert blocks is not None
        return blocks

    def problem_of(self, given: Any) -> Problem:
        """Return the problem of the choices of a document, or of a `Schedule`."""
        if isinstance(given, Schedule):
            given = self.kind.claims_of(self.instance, given)
        return self.kind.problem_of(self.instance, exact=False, document=given)

    @property
    def size(self) -> int:
        """Number of ops of the usual choice; what is undecided may be left out of bounds."""
        return self._usual.num_ops

    def run_heuristic(self, heuristic: Heuristic, effort: Effort | None = None) -> None:
        """Run a heuristic on the usual choices; it may return a schedule of others."""
        kind, instance = self.kind, self.instance
        self.note(kind.run_heuristic(heuristic, instance, self._usual, effort=effort))

    def find_bounds(self, clock: Clock | None = None) -> None:
        """Raise the bound by the relaxed problem, and by rules of what is open."""
        if self.instance.layers is not None and self.instance.replicas is None:
            self._bound_by_layers(clock)
        super().find_bounds(clock)
        if self.alone == CHOSEN_REPLICAS:
            self._bound_by_flows(clock)
        if self.blocks is not None:
            self._bound_by_blocks(clock)
        elif CHOSEN_DEVICES in self.space.fields:
            self._bound_by_work()

    def _bound_by_flows(self, clock: Clock | None) -> None:
        bounds: Iterable[Bound] = ()
        if self.flow is not None:
            replicas = self.instance.replicas
            equal = replicas.counts == "equal"
            bounds = assignment_bounds(self.flow, replicas.count, equal=equal)
        elif self.objective is Objective.MAKESPAN:
            bounds = bound_replicas(self.instance, self.problem, clock)
        for bound in bounds:
            if bound.value > self.board.bound.value:
                self.board.raise_bound(bound.value, bound.name)

    def _bound_by_blocks(self, clock: Clock | None) -> None:
        assert self.blocks is not None
        problem = relaxed(self.blocks, favours_firsts=True)
        for bound in quick_bounds(Relaxations(ImpliedOrder(problem), clock)):
            self.board.raise_bound(bound.value, bound.name, bound.resource)
        if self.instance.steps == 1 and self.blocks.options:
            value, resource = last_forward(self.blocks)
            self.board.raise_bound(value, LAST_FORWARD, resource)

    def _bound_by_work(self) -> None:
        """Raise the bound by the mean work of the devices.

        Until the makespan no device works before the first op that it may run can start, nor in the
        time that must pass after the last one. Its span is its own work at least.
        """
        base, dag = self._least, self.implied.full
        heads = dag.heads(base.release)
        rest = dag.tails(base.duration) - base.duration
        mobile = np.array(self._mobile, dtype=np.int64)
        work = int(base.duration[base.is_compute].sum())
        work += int(base.duration[mobile].sum())
        is_makespan = base.objective is Objective.MAKESPAN
        for resource in base.span_resources.tolist() if is_makespan else ():
            ops = np.union1d(base.ops_by_resource[resource], mobile)
            work += int(heads[ops].min() + rest[ops].min())
        self.board.raise_bound(-(-work // len(base.span_resources)), AVERAGE)

    def bottleneck(self) -> Bottleneck | None:
        """Return the bottleneck by the strongest rule, which may be one over all splits."""
        return bottleneck_of_layers(self, super().bottleneck())

    @property
    def _mobile(self) -> list[int]:
        # Fillers with a choice that run on compute streams.
        spans = set(self._least.span_resources.tolist())
        return sorted(
            {
                option.ops[0]
                for option in self.devices.options
                if spans.issuperset(option.resources)
            }
        )

    def _bound_by_layers(self, clock: Clock | None) -> None:
        instance, scale = self.instance, self.scale
        self.board.raise_bound(mean_work(instance, scale), LAYERS)
        if self.objective is Objective.MAKESPAN:
            times = least_times(instance, scale)
            if is_chain(instance):
                # This takes moments, the model of the balanced split has to be loaded.
                chain = LayerChain(instance, scale, times)
                bound = chain.bound(self.board.bound.value, clock or Clock())
                self.board.raise_bound(bound, LAYERS)
            answer = balanced_split(instance, scale, times, clock)
            self.balanced = answer.counts
            self.board.raise_bound(answer.bound, LAYERS)

    @cached_property
    def obstacle_to_joint(self) -> str | None:
        """Why choices and orders have no joint model, None where they have one."""
        if self.modes is not None:
            from ppsolve.solver.kinds.pipeline.modes.joint_model import (
                obstacle as obstacle_to_modes,
            )

            return obstacle_to_modes(self.problems)
        expected = () if self.blocks is not None else (CHOSEN_DEVICES,)
        if self.space.fields != expected:
            return "several things are open"
        is_makespan = self.objective is Objective.MAKESPAN
        return None if is_makespan else "it minimises the makespan"

    def joint_model(self, lower: int, upper: int | None) -> Any:
        """Return one model of CP-SAT of all choices and orders, with `hint`.

        `lower`, `upper`: smallest and largest makespan to look for, in ticks; without
            `upper` whatever there is.
        """
        if self.modes is not None:
            from ppsolve.solver.kinds.pipeline.modes.joint_model import JointModel

            if upper is None:
                corners = self.space.corners()
                upper = sum(latest_end(self.space.problem(c)) for c in corners)
            return JointModel(self.problems, lower, upper)
        from ppsolve.solver.kinds.pipeline.options.joint_model import OptionsModel

        problem = self.blocks
        if problem is None:
            problem = device_choices(self.instance, self.space.base)
        if upper is None:
            upper = latest_end(replace(problem.base, duration=problem.slowest))
        return OptionsModel(problem, lower, upper)

    def search_below(
        self, analytic: int, claimed: int | None, limits: SearchLimits
    ) -> ExactAnswer:
        """Search for a schedule of any choice below a bound, see `ScheduleTask.search_below`."""
        if self.modes is not None and self.modes.decide in {"all", "window"}:
            return self._search_few_choices(claimed, limits)
        if self.obstacle_to_joint is None:
            return answered_jointly(self, claimed, limits)
        answer = super().search_below(analytic, claimed, limits)
        if answer.infeasible or self._least is self._usual:
            return answer
        # A schedule of the relaxed problem is none of a choice, but one of the usual choice is.
        usual = ImpliedOrder(self._usual)
        try:
            schedule = search_below(usual, analytic, claimed, limits).schedule
        except MemoryInfeasible:
            schedule = None
        return replace(answer, schedule=schedule)

    def _search_few_choices(
        self, claimed: int | None, limits: SearchLimits
    ) -> ExactAnswer:
        """Ask one choice after the other, but for those that analytic bounds settle."""
        assert self.modes is not None
        answer = ExactAnswer(None, claimed, True, StopReason.INFEASIBLE, True, 0.0)
        clock = limits.start()
        for choice in self.modes.variants():
            implied = ImpliedOrder(self.problems.problem(choice))
            analytic = analytic_bound(implied)
            if analytic < (INFEASIBLE if claimed is None else claimed):
                seconds = clock.left if clock.is_limited else None
                left = replace(limits, seconds=seconds)
                answer = search_below(implied, analytic, claimed, left)
                limits = limits.less(0.0, answer.deterministic_time)
            if not answer.infeasible:
                break
        return answer

    def figures(self) -> dict[str, Any]:
        """Return the fields of the result that the best schedule has, and other modes."""
        figures = super().figures()
        if self.schedule is not None and self.instance.replicas is not None:
            figures["assignment"] = members_by_start(self.schedule)
        if self.schedule is None or self.modes is None:
            return figures
        alternatives = [
            ModeAlternative(
                stage=each.stage,
                mode=self.modes.names[each.mode],
                value=None
                if each.schedule is None
                else self.shown(each.schedule.value),
                peak=each.peak,
            )
            for each in self.alternatives
        ]
        return figures | {"alternatives": alternatives or None}

"""The list of all lower bounds, and the ways to walk it.

A new bound is a function in a module of its own and one more rule in `BOUNDS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ppsolve.models.core.problem import FREE, Problem
from ppsolve.models.core.result import Bottleneck
from ppsolve.models.documents.base import series
from ppsolve.solver.board import Bound
from ppsolve.solver.bounds.drain import drain, larger_drains, resource_bounds
from ppsolve.solver.bounds.exchange import exchange_bound
from ppsolve.solver.bounds.flow.flow import Flow, Paths
from ppsolve.solver.bounds.frontier import frontier
from ppsolve.solver.bounds.memory_time import memory_time, memory_time_of_lanes
from ppsolve.solver.bounds.one_machine import Reason, largest
from ppsolve.solver.bounds.params import DEFAULT_PARAMS, BoundsParams
from ppsolve.solver.bounds.passing import passing
from ppsolve.solver.bounds.relaxations import Relaxations
from ppsolve.solver.bounds.two_resources import two_resources
from ppsolve.solver.clock import Clock
from ppsolve.solver.kernels.compilation import expect
from ppsolve.solver.kernels.records import NEVER
from ppsolve.solver.structure.implied import ImpliedOrder


@dataclass(frozen=True)
class OpenGap:
    """The gap that a costly bound has to close, in ticks, and the effort for it."""

    lower: int
    upper: int
    clock: Clock
    params: BoundsParams


@dataclass(frozen=True)
class BoundRule:
    """A lower bound: its name, where it applies, how it is found, and its sentence in reports.

    It applies where it has a function for the problem, by objective and structure alone. One that
    has no function at all is found by a search elsewhere.

    `why`: what keeps a schedule from being shorter; ``{about}`` is the name of a
        resource.
    `lowered_by`: what would lower the bound.
    `makespan`, `device_span`: returns the bound on this objective of a problem.
    `flow`: returns the bound on the makespan of unequal micro-batches in ticks, within
        milliseconds.
    `costly`: yields ever larger bounds of a flow where bound and best schedule do not
        meet.
    `assignments`: returns the bound on the slowest of a number of replicas, over all
        assignments of micro-batches, in ticks.
    """

    name: str
    why: str
    lowered_by: str
    makespan: Callable[[Relaxations], Reason] | None = None
    device_span: Callable[[Relaxations], Reason] | None = None
    flow: Callable[[Paths, BoundsParams], int] | None = None
    costly: Callable[[Paths, OpenGap], Iterable[int]] | None = None
    assignments: Callable[[Flow, int, bool], int] | None = None
    needs_memory: bool = False
    counts_memory: bool = True
    is_cheap: bool = False
    is_modest: bool = False

    def find(self, relaxations: Relaxations) -> Callable[[], Reason] | None:
        """Return a function that finds the bound of a problem, None where it does not apply."""
        if self.needs_memory and not relaxations.problem.pools:
            return None
        on_problem = self.device_span if relaxations.is_on_spans else self.makespan
        if on_problem is not None:
            return lambda: on_problem(relaxations)
        on_flow, paths = self.flow, relaxations.paths
        if on_flow is None or paths is None:
            return None
        return lambda: Reason(on_flow(paths, relaxations.params))


BOUNDS = (
    BoundRule(
        "critical-path",
        "the critical path: the longest chain of ops that wait for each other",
        "shorter ops or transfers on that chain",
        lambda known: known.plain.longest(),
        lambda known: known.plain.spans.longest_path(),
        counts_memory=False,
        is_cheap=True,
    ),
    BoundRule(
        "work",
        "the work of {about}, after what must come before it and with what must follow",
        "less work on {about}, or a shorter way to its first op and from its last",
        lambda known: largest(known.plain.works()),
        lambda known: known.ordered.spans.work(),
        counts_memory=False,
        is_cheap=True,
    ),
    # Per resource: the preemptive relaxation under index order.
    BoundRule(
        "one-machine",
        "the work of {about}, whose ops become ready and must end at different times",
        "less work on {about}, or a shorter way to it and from it",
        lambda known: known.one_machine(known.ordered.heads, known.ordered.tails),
        lambda known: known.ordered.spans.own(),
        flow=lambda paths, _: max(resource_bounds(paths), default=0),
        counts_memory=False,
    ),
    # The same for another resource that lies between ops of the device.
    BoundRule(
        "chain",
        "the work of {about} between the first and the last op of another device",
        "less work on {about}, or a shorter way from there to the other device",
        device_span=lambda known: known.full.spans.through_others(),
    ),
    # The longest chain once a cap makes acquires wait for releases.
    BoundRule(
        "memory-cycle",
        "memory: the longest chain in which ops wait until others have given theirs back",
        "more memory, or shorter ops between taking memory and giving it back",
        lambda known: known.full.longest(),
        lambda known: known.full.spans.longest_path(),
        needs_memory=True,
    ),
    # One-machine with those waits: before the first release only what fits can run.
    BoundRule(
        "first-return",
        "the round trip from {about}: until its first backward only forwards that fit run there",
        "more memory on {about}, or a shorter round trip through the later stages",
        lambda known: known.with_returns(known.full.heads, 1),
        lambda known: largest(
            (known.full.spans.own(), known.full.spans.returns(known.implied.pools))
        ),
        needs_memory=True,
    ),
    # First-return with heads that also count the work which frees memory for each acquire.
    BoundRule(
        "memory-work",
        "the memory of {about}: its forwards wait for the work that makes room for them",
        "more memory on {about}, or less that a micro-batch holds there",
        lambda known: known.with_returns(
            known.strong_heads, known.params.return_moments
        ),
        lambda known: known.full.spans.strongest(
            known.implied.pools, known.memory_work.raise_heads
        ),
        needs_memory=True,
    ),
    # The optimum of each device by itself, where it raises the bound.
    BoundRule(
        "frontier",
        "the memory of {about}: the best order of its ops, while all others run any number at once",
        "more memory on {about}, or less that a micro-batch holds there",
        frontier,
        frontier,
        needs_memory=True,
        is_modest=True,
    ),
    BoundRule(
        "joint-spans",
        "the devices together: each begins late enough to end in time, so that others wait for it",
        "shorter ways between devices, or more equal ones",
        device_span=lambda known: known.full.spans.together(),
    ),
    BoundRule(
        "passing",
        "the way of one micro-batch past all others: each delays it, follows it or overtakes it",
        "less work in all, or more equal micro-batches",
        flow=lambda paths, params: passing(paths, params=params),
    ),
    BoundRule(
        "memory-time",
        "memory: every amount times the time that it is held fills the whole capacity",
        "more memory, or less that a micro-batch holds",
        lambda known: Reason(
            memory_time_of_lanes(
                known.implied, known.ordered.heads, known.ordered.tails
            )
            if known.paths is None
            else memory_time(known.paths)
        ),
        flow=lambda paths, _: memory_time(paths),
        needs_memory=True,
        is_modest=True,
    ),
    BoundRule(
        "drain",
        "a busy device and the backwards that must follow it, one after the other",
        "less work on these devices, or more equal micro-batches",
        flow=drain,
        costly=lambda paths, gap: larger_drains(
            paths, gap.params, gap.clock.share(gap.params.drain_share)
        ),
    ),
    BoundRule(
        "two-resources",
        "the first and the last device, with the few micro-batches that memory lets be on the way",
        "more memory on these devices, less work there, or more equal micro-batches",
        costly=lambda paths, gap: (
            two_resources(
                paths,
                gap.upper,
                lower=gap.lower,
                clock=gap.clock.share(gap.params.pair_share),
                max_placed=gap.params.placed_ops,
            ),
        ),
    ),
    BoundRule(
        "exchange",
        "the slowest replica, whichever micro-batches it runs: the mean work of all replicas, or "
        "the heaviest micro-batches, which some replica must run",
        "less work in all, or more equal micro-batches",
        assignments=lambda flow, count, equal: exchange_bound(flow, count, equal=equal),
    ),
    # Found by `FrontierDevices`, within a step of its own.
    BoundRule(
        "joint-frontier",
        "the memory of {about}: the best orders of the ops there, while all others run any number "
        "at once",
        "more memory on {about}, or less that a micro-batch holds there",
        needs_memory=True,
    ),
    # Found by `ppsolve.solver.heuristics.frontier_beam`.
    BoundRule(
        "frontier-beam",
        "memory and work together: every order of the ops of all devices was tried or ruled out",
        "more memory, or less that a micro-batch holds",
        needs_memory=True,
    ),
    # Found by `ppsolve.solver.exact.few_devices`, within a step of its own.
    BoundRule(
        "few-devices",
        "the orders of a few devices together, where all others run any number of ops at once",
        "less work on these devices, or more memory there",
    ),
)
"""Every lower bound; of equal bounds the first one is reported."""

RULES = {rule.name: rule for rule in BOUNDS}
"""The rules by name."""


def quick_bounds(relaxations: Relaxations) -> Iterator[Bound]:
    """Yield the bounds of a problem that take little time, one after the other.

    Once the clock is over, only cheap rules are still begun. Bounds on the flow of unequal
    micro-batches are left out where they are no larger than all before.
    """
    expect(_steps(relaxations.problem, on_spans=relaxations.is_on_spans))
    best = 0
    for rule in BOUNDS:
        if (not rule.is_cheap and relaxations.clock.is_over) or (
            find := rule.find(relaxations)
        ) is None:
            continue
        reason = find()
        is_on_flow = rule.makespan is None and rule.device_span is None
        if reason.value > best or not (is_on_flow or rule.is_modest):
            yield Bound(rule.name, *reason)
        best = relaxations.lower = max(best, reason.value)


def costly_bounds(
    relaxations: Relaxations, lower: int, upper: int = NEVER
) -> Iterator[Bound]:
    """Yield better bounds by costly rules, while the gap is open and the clock not over.

    Each is larger than `lower` and all before, in ticks; each rule takes a share of the time that
    is left.
    """
    if (paths := relaxations.paths) is None:
        return
    for rule in BOUNDS:
        if rule.costly is None or lower >= upper or relaxations.clock.is_over:
            continue
        for value in rule.costly(
            paths, OpenGap(lower, upper, relaxations.clock, relaxations.params)
        ):
            if value > lower:
                lower = value
                yield Bound(rule.name, value)
            if lower >= upper:
                return


def lower_bounds(
    implied: ImpliedOrder, clock: Clock | None = None, *, enough: float = math.inf
) -> list[Bound]:
    """Return the bounds of a problem that take little time, strongest first.

    Once the clock is over, only cheap rules are still begun, and others keep what they have found:
    all bounds are valid, however little time there was. No rule is begun once one has proved enough
    ticks. Ties keep the simpler rule first. A `MemoryInfeasible` says that no schedule keeps the
    capacity of a pool, unless simpler rules prove enough.
    """
    if enough == math.inf:
        _ = implied.full
    bounds: list[Bound] = []
    for bound in quick_bounds(Relaxations(implied, clock)):
        bounds.append(bound)
        if bound.value >= enough:
            break
    return strongest_first(bounds)


def flow_bounds(flow: Flow, clock: Clock | None = None) -> list[Bound]:
    """Return the bounds of a flow that take little time, strongest first.

    They hold for every order of micro-batches. Once the clock is over no further rule is begun; the
    first one always is.
    """
    paths, bounds = Paths(flow), list[Bound]()
    for rule in BOUNDS:
        if rule.flow is not None and not (
            bounds and clock is not None and clock.is_over
        ):
            bounds.append(Bound(rule.name, rule.flow(paths, DEFAULT_PARAMS)))
    return strongest_first(bounds)


def assignment_bounds(flow: Flow, replicas: int, *, equal: bool) -> list[Bound]:
    """Return the bounds on the slowest replica over all assignments, strongest first.

    The flow has all micro-batches of the step for alike replicas; all take as many, or any number
    where `equal` is false, none included.
    """
    return strongest_first(
        Bound(rule.name, rule.assignments(flow, replicas, equal))
        for rule in BOUNDS
        if rule.assignments is not None
    )


def strongest_first(bounds: Iterable[Bound]) -> list[Bound]:
    """Return bounds by value, the largest first; of equals the simpler rule."""
    rank = {rule.name: number for number, rule in enumerate(BOUNDS)}
    return sorted(
        bounds, key=lambda bound: (-bound.value, rank.get(bound.name, len(rank)))
    )


def best_bound(bounds: Iterable[Bound]) -> Bound:
    """Return the strongest bound, or the trivial bound 0 if there is none."""
    return max(bounds, key=lambda bound: bound.value, default=Bound("trivial", 0))


def bottleneck(
    problem: Problem, bounds: Sequence[Bound], best: Bound
) -> Bottleneck | None:
    """Return the rule and the resource of the strongest analytic bound, in words.

    Bounds are in ticks, strongest first; those of searches are passed over. The best one may be of
    a search. There is no bottleneck where no bound is above 0.
    """
    analytic = [bound for bound in bounds if bound.name in RULES]
    strongest = next((bound for bound in analytic if bound.value > 0), None)
    if strongest is None:
        return None
    rule, time, resource = RULES[strongest.name], problem.scale.time, strongest.resource
    about = None
    if resource != FREE:
        proving = (resource, *strongest.others)
        about = series(problem.resource_names[number] for number in proving)
    why, lowered_by = (
        text.format(about=about or "one device") for text in (rule.why, rule.lowered_by)
    )
    without_memory = [
        bound.value for bound in analytic if not RULES[bound.name].counts_memory
    ]
    work = None
    if resource != FREE and not strongest.others:
        work = time(int(problem.duration[problem.ops_by_resource[resource]].sum()))
    return Bottleneck(
        rule=strongest.name,
        about=about,
        value=time(strongest.value),
        work=work,
        without_memory=time(max(without_memory))
        if rule.needs_memory and without_memory
        else None,
        raised_by=best.name if best.value > strongest.value else None,
        why=why,
        lowered_by=lowered_by,
    )


def _steps(problem: Problem, *, on_spans: bool) -> int:
    """Return about how many edges the longest paths of all rules pass."""
    edges = len(problem.before) + problem.num_ops
    return 8 * edges * (max(1, len(problem.span_resources)) if on_spans else 1)

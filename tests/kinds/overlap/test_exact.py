"""Overlap instances against brute force over every program order, with and without caps."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest

import ppsolve
from ppsolve.models.core.result import HeuristicStatus, Status
from ppsolve.models.documents.errors import InputError, NotApplicableError
from ppsolve.models.kinds.overlap import lowering as overlap_lowering
from ppsolve.models.kinds.overlap.instance import OverlapInstance
from ppsolve.models.kinds.overlap.result import (
    OverlapEntry,
    OverlapResult,
    ProgramFigures,
)
from ppsolve.solver.api.registry import all_heuristics
from tests.kinds.overlap.bruteforce import (
    Document,
    Graph,
    Order,
    Timed,
    alike,
    optimum,
    program,
    random_document,
    with_caps,
)
from tests.marks import first

BATCH = 20
EXACT_ONLY = ["original"]
"""One weak heuristic, so that the exact search has to find the answer."""


def solve(
    document: Document, *, time_limit: float = 30, **options: Any
) -> OverlapResult:
    """Solve a program; no value that the run told of is below the one of its result."""
    instance, told = OverlapInstance.parse(document), []
    result = ppsolve.optimize(
        instance, workers=1, time_limit=time_limit, on_progress=told.append, **options
    )
    assert isinstance(result, OverlapResult)
    values = [event.incumbent for event in told if event.incumbent is not None]
    assert not values or result.makespan == min(values)
    return result


def near(value: Any, exact: Fraction) -> bool:
    return abs(float(value) - float(exact)) <= 1e-9 * max(1.0, float(exact))


def numbered(graph: Graph, names: list[str]) -> Order:
    return tuple(graph.names.index(name) for name in names)


def assert_figures(
    graph: Graph, order: Order, timed: Timed, given: ProgramFigures
) -> None:
    waits = sum((timed.end[w] - timed.start[w] for w in graph.awaited), Fraction(0))
    assert near(given.exposed_wait, waits)
    assert near(given.peak_live_bytes, graph.peak(timed))
    assert given.max_in_flight == max(graph.in_flight(order).values(), default=0)


def assert_answer(document: Document, result: OverlapResult) -> None:
    """The order is valid, keeps the caps, and runs as the result says, by a replay of our own."""
    graph = Graph(document)
    assert result.order is not None and result.schedule is not None
    order = numbered(graph, result.order)
    timed = graph.replay(order)
    assert graph.is_valid(order) and graph.flights_fit(order) and graph.bytes_fit(timed)
    assert near(result.makespan, timed.makespan) and near(result.value, timed.makespan)
    rows = {row.id: row for row in result.schedule.ops}
    for node, name in enumerate(graph.names):
        start = timed.end[node] if node in graph.awaited else timed.start[node]
        assert near(rows[name].start, start) and near(rows[name].end, timed.end[node])
    assert_figures(graph, order, timed, result)
    assert_curves(graph, timed, result)
    instance = OverlapInstance.parse(document)
    assert ppsolve.check(instance, result) == []
    assert ppsolve.check(instance, json.loads(result.model_dump_json())) == []


def assert_curves(graph: Graph, timed: Timed, result: OverlapResult) -> None:
    assert result.live_bytes_curve is not None and result.in_flight_curve is not None
    expected, last = [], Fraction(0)
    for time, amount in graph.curve(timed):
        if amount != last:
            expected.append((time, amount))
        last = amount
    for given, exact in zip(result.live_bytes_curve, expected, strict=True):
        assert near(given[0], exact[0]) and near(given[1], exact[1])
    if result.in_flight_curve:
        assert result.in_flight_curve[-1][1] == 0


def assert_entry(graph: Graph, entry: OverlapEntry) -> None:
    """A feasible entry keeps every rule and runs as it says; an infeasible one breaks a cap."""
    if entry.order is None:
        assert entry.status in {HeuristicStatus.FAILED, HeuristicStatus.NOT_APPLICABLE}
        assert entry.reason
        return
    order = numbered(graph, entry.order)
    timed = graph.replay(order)
    assert graph.is_valid(order)
    assert near(entry.makespan, timed.makespan)
    assert_figures(graph, order, timed, entry)
    fits = graph.flights_fit(order) and graph.bytes_fit(timed)
    assert entry.status is (
        HeuristicStatus.FEASIBLE if fits else HeuristicStatus.INFEASIBLE
    )
    assert fits or entry.reason


def assert_sound(
    document: Document, result: OverlapResult, best: Fraction | None
) -> None:
    """Whatever was found: no value below the optimum, no bound above it, no entry that lies."""
    graph = Graph(document)
    if result.schedule is not None:
        assert best is not None
        assert_answer(document, result)
        assert float(result.value or 0) >= float(best) * (1 - 1e-9)
    if best is not None:
        assert result.status is not Status.INFEASIBLE
        bounds = [result.bound, *(bound.value for bound in result.bounds)]
        assert all(float(bound or 0) <= float(best) * (1 + 1e-9) for bound in bounds)
    for entry in result.heuristics:
        assert_entry(graph, entry)


def documents(
    seed: int, *, capped: bool
) -> Iterator[tuple[Document, list[str] | None]]:
    """Yield random programs, every other one for the exact search alone."""
    rng = random.Random(seed)
    for number in range(BATCH):
        document = random_document(rng)
        alone = EXACT_ONLY if number % 2 else None
        yield (with_caps(rng, document) if capped else document), alone


@pytest.mark.parametrize("seed", first(1, range(8)))
def test_without_caps_every_random_program_is_solved(seed: int) -> None:
    for document, heuristics in documents(seed, capped=False):
        best = optimum(document).makespan
        assert best is not None
        result = solve(document, heuristics=heuristics)
        assert_sound(document, result, best)
        assert result.status is Status.OPTIMAL and near(result.value, best), document


@pytest.mark.parametrize("seed", first(1, range(100, 109)))
def test_with_caps_no_random_program_is_solved_wrongly(seed: int) -> None:
    for document, heuristics in documents(seed, capped=True):
        best = optimum(document).makespan
        result = solve(document, heuristics=heuristics)
        assert_sound(document, result, best)
        # A schedule with idle time may be shorter than every program order: then all are tried.
        assert result.status is (
            Status.INFEASIBLE if best is None else Status.OPTIMAL
        ), document
        assert best is None or near(result.value, best), document


@pytest.mark.parametrize("seed", first(1, [1, 2, 0, 3]))
def test_alike_parts_do_not_change_the_optimum(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    for number in range(5):
        document = alike(rng)
        best = optimum(document).makespan
        assert best is not None
        heuristics = EXACT_ONLY if number % 3 else None
        found = solve(document, heuristics=heuristics)
        assert_sound(document, found, best)
        with monkeypatch.context() as patched:
            patched.setattr(overlap_lowering, "alike_parts", lambda instance: [])
            plain = solve(document, heuristics=heuristics)
        assert found.status is plain.status is Status.OPTIMAL
        assert near(found.value, best) and near(plain.value, best)


def least_peak(document: Document, makespan: Fraction) -> Fraction:
    """Return the least peak, a multiple of 1/2, of the orders with this makespan."""
    low, high = 0, 2 * sum(int(2 * node.get("bytes", 0)) for node in document["nodes"])
    while low < high:
        cap = (low + high) // 2
        if optimum({**document, "max_live_bytes": cap / 2}).makespan == makespan:
            high = cap
        else:
            low = cap + 1
    return Fraction(low, 2)


@pytest.mark.parametrize("seed", first(1, range(3)))
def test_the_least_peak_of_live_bytes_at_the_least_makespan(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(4):
        document = {**random_document(rng), "objective": "makespan_then_bytes"}
        best = optimum(document).makespan
        assert best is not None
        result = solve(document)
        assert_sound(document, result, best)
        peak = least_peak(document, best)
        assert near(result.value, best) and near(result.peak_live_bytes, peak)
        assert result.least_peak_bytes is not None
        assert near(result.least_peak_bytes, peak)


def tampered(
    rng: random.Random, document: Document, claim: Document
) -> Iterator[Document]:
    """Yield copies of a result with one claim made wrong."""
    graph = Graph(document)
    timed = graph.replay(numbered(graph, claim["order"]))
    for _ in range(4):
        order = list(claim["order"])
        one, other = rng.randrange(graph.size), rng.randrange(graph.size)
        order[one], order[other] = order[other], order[one]
        swapped = numbered(graph, order)
        fits = graph.is_valid(swapped) and graph.flights_fit(swapped)
        if not fits or graph.replay(swapped).makespan != timed.makespan:
            yield {**claim, "order": order}
    first, *rest = claim["order"]
    for wrong in (
        rest,
        [first, first, *rest],
        [first, *rest[:-1], first],
        ["?", *rest],
        ["k"],
    ):
        yield {**claim, "order": wrong}
    for key in ("makespan", "value"):
        yield {**claim, key: claim[key] + 1}
    for place, row in enumerate(claim["schedule"]["ops"]):
        rows = list(claim["schedule"]["ops"])
        rows[place] = {
            **row,
            "start": claim["makespan"] + 1,
            "end": claim["makespan"] + 1,
        }
        yield {**claim, "schedule": {**claim["schedule"], "ops": rows}}


@pytest.mark.parametrize("seed", first(1, range(4)))
def test_a_tampered_result_is_refused(seed: int) -> None:
    rng = random.Random(seed)
    for number in range(4):
        document = random_document(rng)
        document = with_caps(rng, document) if number % 2 else document
        result = solve(document)
        if result.order is None:
            continue
        claim = json.loads(result.model_dump_json())
        instance = OverlapInstance.parse(document)
        for wrong in tampered(rng, document, claim):
            try:
                assert ppsolve.check(instance, wrong) != [], wrong
            except InputError as error:
                assert "\n" not in str(error)


@pytest.mark.parametrize(
    "order", [3, True, "k0", {}, [1], [None], [[]], [{}], [["k0"]], [""], ["k0", 1]]
)
def test_an_order_of_nonsense_is_refused(order: Any) -> None:
    document = program("k0 1")
    claim = json.loads(solve(document).model_dump_json())
    with pytest.raises(InputError, match="order"):
        ppsolve.check(OverlapInstance.parse(document), {**claim, "order": order})


@pytest.mark.parametrize(
    "given", [None, 3, "x", [], {}, {"schedule": {}}, {"order": ["k0"]}]
)
def test_a_document_without_a_schedule_is_refused(given: Any) -> None:
    with pytest.raises(InputError):
        ppsolve.check(OverlapInstance.parse(program("k0 1")), given)


BY_HAND = {
    "a wait that a collective uses must come before it in the order": (
        program("c0 3", "k1 4", "w0 <- c0", "c1 2 g=x <- w0", "w1 <- c1", "k2 1 <- w1"),
        7,
    ),
    "one wait for two collectives": (
        program("c0 3", "w0 <- c0", "c1 2 <- w0", "c2 2 g=x <- w0", "w1 <- c1", "w2 <- c2", "k 5"),
        7,
    ),
    "waits that need waits": (
        program("c0 3", "c1 2", "c2 6", "w3 <- c0", "w4 <- c2 w3", "k5 5 <- w4", "w6 <- c1",
                collective_order="free"),
        14,
    ),
    "a kernel uses a collective without its wait": (program("c0 3", "k1 4 <- c0", "w0 <- c0"), 7),
    "the order frees a launch": (
        program("c0 4", "w0 <- c0", "c1 1", "w1 <- c1", "k2 5 <- w1", collective_order="free"),
        6,
    ),
    "the same launch frozen": (
        program("c0 4", "w0 <- c0", "c1 1", "w1 <- c1", "k2 5 <- w1"),
        10,
    ),
    "one in flight": (
        program("c1 3", "k 5", "c2 3", "w1 <- c1", "w2 <- c2", max_in_flight=1),
        8,
    ),
    "one in flight, other groups aside": (
        program("c1 3 g=a", "c2 3 g=b", "c3 3 g=b", "k 2", "w1 <- c1", "w2 <- c2", "w3 <- c3",
                max_in_flight={"b": 1}),
        6,
    ),
    "a collective is launched while the one that it needs runs": (
        program("c1 10 g=a", "c2 10 g=b <- c1", "k 30", "w1 <- c1", "w2 <- c2", max_in_flight=2),
        30,
    ),
    "bytes let the collective and the kernel run one after the other only": (
        program("c0 8 b=3", "k1 3 b=2", "w2 <- c0", collective_order="free", max_in_flight=2,
                max_live_bytes=3.5),
        11,
    ),
    "a gather is held until its last use ends": (
        program("c0 2 b=4", "w0 <- c0", "k0 5 <- w0", "c1 2 b=4", "w1 <- c1", "k1 5 <- w1",
                max_live_bytes=4),
        14,
    ),
    "the same gathers with room for both": (
        program("c0 2 b=4", "w0 <- c0", "k0 5 <- w0", "c1 2 b=4", "w1 <- c1", "k1 5 <- w1",
                max_live_bytes=8),
        12,
    ),
}  # fmt: skip


@pytest.mark.parametrize("heuristics", [None, EXACT_ONLY])
@pytest.mark.parametrize("name", BY_HAND)
def test_by_hand(name: str, heuristics: list[str] | None) -> None:
    document, best = BY_HAND[name]
    assert optimum(document).makespan == best
    result = solve(document, heuristics=heuristics)
    assert (result.status, result.value) == (Status.OPTIMAL, best)
    assert_answer(document, result)


def test_a_collective_without_length_is_in_flight_too() -> None:
    """Its launch and its wait fall on one instant, so only the order shows that two fly."""
    document = program(
        "k0 8", "c1 0 <- k0", "w2 <- c1", "c3 2", "w4 <- c3 w2", "k5 1 <- w4",
        collective_order="free", max_in_flight=1,
    )  # fmt: skip
    assert optimum(document).makespan == 11
    result = solve(document)
    assert_answer(document, result)
    assert result.value == 11
    assert result.max_in_flight == 1


def test_the_plain_definition_agrees_with_the_search() -> None:
    """The brute force itself: all permutations of small programs, one by one."""
    rng = random.Random(7)
    for number in range(24):
        document = random_document(rng, most=6)
        document = with_caps(rng, document) if number % 2 else document
        graph = Graph(document)
        allowed = [order for order in graph.orders() if graph.flights_fit(order)]
        timed = [graph.replay(order) for order in allowed]
        best = min(
            (one.makespan for one in timed if graph.bytes_fit(one)), default=None
        )
        assert optimum(document).makespan == best


@pytest.mark.parametrize("name", all_heuristics())
@pytest.mark.slow
def test_every_heuristic_runs_on_random_programs(name: str) -> None:
    rng = random.Random(11)
    for number in range(4 if all_heuristics()[name].is_search else 10):
        document = random_document(rng, most=14)
        document = with_caps(rng, document) if number % 2 else document
        try:
            entry = ppsolve.simulate(OverlapInstance.parse(document), name)
        except NotApplicableError:
            continue
        assert isinstance(entry, OverlapEntry)
        assert_entry(Graph(document), entry)
        json.loads(entry.model_dump_json())


def test_deterministic_runs_agree() -> None:
    rng = random.Random(13)
    for number in range(4):
        document = random_document(rng, most=12)
        document = with_caps(rng, document) if number % 2 else document
        instance = OverlapInstance.parse(document)
        one, other = (
            ppsolve.optimize(instance, deterministic=True, time_limit=5, seed=3)
            for _ in range(2)
        )
        fields = one.model_dump(exclude={"wall_seconds", "steps"})
        assert fields == other.model_dump(exclude={"wall_seconds", "steps"})


def test_the_least_peak_is_exact_where_a_byte_is_less_than_the_excess_of_a_cap() -> (
    None
):
    """Caps may be exceeded by 1e-9 of them, which is 80 bytes here; the proof must not be."""
    document = program(
        "k1 1 b=80000000000", "k2 1 b=4", "k3 1 b=8 <- k1 k2", "k4 1 b=40000000000 <- k2",
        objective="makespan_then_bytes",
    )  # fmt: skip
    result = solve(document)
    assert result.peak_live_bytes == result.least_peak_bytes == 80_000_000_012
    assert_answer(document, result)


def test_the_least_peak_is_found_where_a_schedule_idles_for_nothing() -> None:
    document = program(
        "k0 0 b=3", "k1 1 b=5 <- k0", "k2 0.5 b=2 <- k1", "c3 1.5 b=0.5 g=x <- k2", "k4 0.25 b=3",
        "w5 <- c3", "c6 1.75 b=1 g=x <- k1", "w7 <- c6", "c8 0 b=0.5 g=x", "w9 <- c8",
        collective_order="free", objective="makespan_then_bytes",
    )  # fmt: skip
    result = solve(document)
    assert result.peak_live_bytes == result.least_peak_bytes == 8
    assert_answer(document, result)


def wrong_figure(field: str, value: float | None) -> list[str]:
    document = program("c1 3 b=2", "k 5 b=1", "w1 <- c1", "k2 1 <- w1")
    instance = OverlapInstance.parse(document)
    claim = json.loads(solve(document).model_dump_json()) | {field: value}
    return [str(violation) for violation in ppsolve.check(instance, claim)]


def test_figures_of_the_order_are_claims() -> None:
    assert wrong_figure("estimate_seed", 4) == []
    assert wrong_figure("estimate_seed", None) == []
    assert wrong_figure("least_peak_bytes", 3) == []
    text = "objective: estimate_seed is given as 7, the order has 4"
    assert wrong_figure("estimate_seed", 7) == [text]
    text = "objective: least_peak_bytes is given as 3.5, the order holds 3.0"
    assert wrong_figure("least_peak_bytes", 3.5) == [text]
    with pytest.raises(InputError, match="estimate_seed: expected a finite number"):
        wrong_figure("estimate_seed", float("inf"))


def test_a_collective_is_in_flight_from_its_launch_to_its_wait() -> None:
    # k0 until 2, then c1 is launched and k runs until 7, behind which c1 is waited for.
    document = program("k0 2", "c1 3 <- k0", "k 5 <- k0", "w1 <- c1", "k2 1 <- w1 k")
    found = solve(document)
    assert found.order == ["k0", "c1", "k", "w1", "k2"]
    assert found.in_flight_curve == [(2, 1), (7, 0)]


def test_no_estimate_can_be_claimed_where_two_collectives_run_at_once() -> None:
    document = program("c1 3 g=a", "c2 3 g=b", "w1 <- c1", "w2 <- c2")
    claim = json.loads(solve(document).model_dump_json())
    assert claim["estimate_seed"] is None
    found = ppsolve.check(OverlapInstance.parse(document), claim | {"estimate_seed": 6})
    assert [v.message for v in found] == [
        "estimate_seed is given as 6, the order has none"
    ]


def test_an_order_that_is_not_that_of_the_schedule_is_refused() -> None:
    document = program("k1 1", "k2 2")
    claim = json.loads(solve(document).model_dump_json())
    assert claim["order"] == ["k1", "k2"]
    found = ppsolve.check(
        OverlapInstance.parse(document), claim | {"order": ["k2", "k1"]}
    )
    assert [str(v) for v in found] == [
        "order: k2 starts at 1 us, as the order runs at 0 us"
    ]


@pytest.mark.parametrize(("limit", "size"), first(1, [(0, 100), (0, 300), (1, 300)]))
def test_larger_programs_replay(limit: float, size: int) -> None:
    rng = random.Random(17)
    for number in range(4):
        document = random_document(rng, most=size, least=size)
        if number % 2:
            document["max_in_flight"] = 2
        result = solve(document, time_limit=limit)
        if result.order is not None:
            assert_answer(document, result)


def test_no_value_is_told_that_no_program_reaches() -> None:
    """CP-SAT's schedules end at 18 and 17, but no order of the program keeps both caps."""
    found = solve(
        {
            "kind": "overlap",
            "nodes": [
                {"name": "k0", "kind": "compute", "duration": 9, "bytes": 1},
                {"name": "k1", "kind": "compute", "duration": 2, "bytes": 4},
                {
                    "name": "c0",
                    "kind": "comm",
                    "duration": 5,
                    "deps": ["k0"],
                    "bytes": 8,
                },
                {"name": "k2", "kind": "compute", "duration": 1, "bytes": 1},
                {"name": "w0", "kind": "wait", "deps": ["c0", "k2"]},
                {"name": "c1", "kind": "comm", "duration": 9, "bytes": 2},
                {"name": "w1", "kind": "wait", "deps": ["c1"]},
            ],
            "collective_order": "free",
            "max_in_flight": 1,
            "max_live_bytes": 9,
        }
    )
    assert found.status is Status.INFEASIBLE and found.value is None
    assert "no program order" in str(found.reason)

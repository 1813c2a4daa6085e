"""Kernels and collectives that slow each other down: against every order, run as a fluid."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import pytest

import ppsolve
from ppsolve.models.core.result import Status
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.overlap.instance import OverlapInstance
from ppsolve.solver.kinds.overlap.contention import EXACT_BITS, shortened
from tests.kinds.overlap.bruteforce import (
    Document,
    Graph,
    Order,
    exact,
    random_document,
    with_buffers,
    with_caps,
)
from tests.kinds.overlap.cases import program
from tests.marks import first


class Fluid:
    """The rule in exact fractions: whatever runs does 1 / factor of its work in each moment."""

    def __init__(self, document: Document) -> None:
        self.graph, self.rules = Graph(document), document["contention"]
        self.nodes = document["nodes"]

    def factors(self, kernel: int, comm: int) -> tuple[Fraction, Fraction]:
        found = [(Fraction(1), Fraction(1))]
        for rule in self.rules:
            kernels, comms = rule.get("category"), rule.get("collective")
            if kernels in {None, self.nodes[kernel].get("category")} and comms in {
                None,
                self.nodes[comm].get("collective"),
            }:
                one, other = (
                    rule.get("kernel_factor", 1),
                    rule.get("collective_factor", 1),
                )
                found.append((exact(one), exact(other)))
        return max(one for one, _ in found), max(other for _, other in found)

    def makespan(self, order: Order) -> Fraction:
        """Run an order: at each moment the next node of each stream that may run does."""
        graph, place = self.graph, {node: at for at, node in enumerate(order)}
        compute = [node for node in order if graph.kind[node] != "comm"]
        work = {node: graph.length[node] for node in order}
        done: set[int] = set()
        now = Fraction(0)
        while len(done) < len(order):
            running = []
            if compute and graph.deps[compute[0]] <= done:
                running.append(compute[0])
            for group in sorted({graph.group[comm] for comm in graph.comms}):
                own = [c for c in order if c in graph.comms and graph.group[c] == group]
                left = [comm for comm in own if comm not in done]
                passed = [n for n in compute if left and place[n] < place[left[0]]]
                if left and not passed and graph.deps[left[0]] <= done:
                    running.append(left[0])
            pace = {node: self._pace(node, running) for node in running}
            step = min(work[node] * pace[node] for node in running)
            now += step
            for node in running:
                work[node] -= step / pace[node]
                if work[node] == 0:
                    done.add(node)
                    if compute and compute[0] == node:
                        compute.pop(0)
        return now

    def _pace(self, node: int, running: list[int]) -> Fraction:
        is_comm = node in self.graph.comms
        others = [n for n in running if (n in self.graph.comms) != is_comm]
        others = [n for n in others if self.graph.kind[n] != "wait"]
        if self.graph.kind[node] == "wait":
            return Fraction(1)
        pairs = [
            self.factors(n, node)[1] if is_comm else self.factors(node, n)[0]
            for n in others
        ]
        return max(pairs, default=Fraction(1))


def drawn(seed: int) -> Document:
    rng = random.Random(seed)
    document = random_document(rng, most=7)
    if rng.random() < 0.3:
        document = with_buffers(rng, document)
    for node in document["nodes"]:
        if node["kind"] == "compute":
            node["category"] = rng.choice(["matmul", "memory"])
        elif node["kind"] == "comm":
            node["collective"] = rng.choice(["all_gather", "all_reduce"])
    rules = [
        {"category": "matmul", "kernel_factor": rng.choice([1.25, 1.4, 2])},
        {"collective": "all_reduce", "collective_factor": rng.choice([1.5, 3])},
        {"category": "memory", "collective": "all_gather", "kernel_factor": 1.3},
    ]
    return {**document, "contention": rng.sample(rules, rng.randint(1, 3))}


@pytest.mark.parametrize("seed", first(4, range(250)))
def test_the_optimum_is_that_of_all_orders(seed: int) -> None:
    document = drawn(seed)
    fluid, graph = Fluid(document), Graph(document)
    fit = [
        order
        for order in graph.orders()
        if graph.byte_cap is None
        or graph.peak_along(order) <= graph.byte_cap * (1 + Fraction(1, 10**9))
    ]
    best = min(map(fluid.makespan, fit), default=None)
    instance = OverlapInstance.parse(document)
    result: Any = ppsolve.optimize(instance, time_limit=20, workers=1)
    if best is None:
        assert result.status is Status.INFEASIBLE
        return
    assert result.status is Status.OPTIMAL
    order = tuple(graph.names.index(name) for name in result.order)
    assert fluid.makespan(order) == best
    assert result.value == result.bound == float(best)
    assert result.tick_error == 0
    assert not ppsolve.check(instance, result)


@pytest.mark.parametrize("seed", first(4, range(200)))
def test_what_no_tick_holds_is_rounded_up_and_told(seed: int) -> None:
    """Factors of many digits, or durations of which no two share a tick."""
    document = drawn(seed)
    rng = random.Random(seed)
    for rule in document["contention"]:
        rule |= {"kernel_factor": 1.23456789, "collective_factor": 1.098765432}
    for node in document["nodes"]:
        if seed % 2 and node.get("duration"):
            node["duration"] += rng.random()
    document.pop("max_live_bytes", None)
    best = min(map(Fluid(document).makespan, Graph(document).orders()))
    instance = OverlapInstance.parse(document)
    result: Any = ppsolve.optimize(instance, time_limit=20, workers=1)
    assert result.status is Status.OPTIMAL
    error, value = exact(result.tick_error), exact(result.value)
    digits = Fraction(1, 10**14)
    assert best * (1 - digits) <= value <= best * (1 + digits) + error
    assert exact(result.bound) - error <= best * (1 + digits)
    assert error <= best / 10**8
    assert not ppsolve.check(instance, result)


def test_a_third_of_a_unit_is_exact() -> None:
    """k does 4 / 1.5 beside g and the rest alone, 4 + 4 / 3: no tick of 1/1024 holds that."""
    found: Any = ppsolve.optimize(program(*STEP, contention=[{"kernel_factor": 1.5}]))
    assert (found.value, found.bound, found.tick_error) == (16 / 3, 16 / 3, 0)


def test_a_simulated_order_tells_what_was_rounded() -> None:
    instance = program(*STEP, contention=[{"kernel_factor": 1.23456789}])
    entry: Any = ppsolve.simulate(instance, "original")
    assert entry.tick_error > 0
    exactly = 4 + 4 * (1 - 1 / Fraction("1.23456789"))
    assert exactly <= exact(entry.value) <= exactly + exact(entry.tick_error)


def test_work_with_a_long_denominator_is_rounded_up_by_next_to_nothing() -> None:
    long = Fraction(1, 3**1400)
    assert shortened(Fraction(1, 3)) == Fraction(1, 3)
    assert long < shortened(long) <= long + Fraction(1, 2**EXACT_BITS)
    assert shortened(long).denominator <= 2**EXACT_BITS


def test_an_order_that_keeps_its_cap_alone_only_is_none() -> None:
    """Alone c0 and k1 end at 3, when k2 and w run in no time; slowed down c0 ends at 3.9.

    Then k2 holds 3 bytes beside the 3 of c0 until w, in every order: the cap is 3.5.
    """
    nodes: list[dict[str, Any]] = [
        {"name": "c0", "kind": "comm", "duration": 3, "bytes": 3},
        {"name": "k1", "kind": "compute", "duration": 3},
        {"name": "k2", "kind": "compute", "duration": 0, "bytes": 3},
        {"name": "w", "kind": "wait", "deps": ["c0", "k2"]},
    ]
    alone = ppsolve.optimize(
        program(*nodes, max_live_bytes=3.5), time_limit=10, workers=1
    )
    assert (alone.status, alone.value) == (Status.OPTIMAL, 3)
    slowed = program(
        *nodes, max_live_bytes=3.5, contention=[{"collective_factor": 1.3}]
    )
    result = ppsolve.optimize(slowed, time_limit=10, workers=1)
    assert result.status is Status.INFEASIBLE


STEP = [
    {"name": "g", "kind": "comm", "duration": 4, "collective": "all_gather"},
    {"name": "k", "kind": "compute", "duration": 4, "category": "matmul"},
    {"name": "w", "kind": "wait", "deps": ["g"]},
]


@pytest.mark.parametrize(
    ("rule", "makespan"),
    [
        ({"kernel_factor": 1.5}, 16 / 3),
        ({"category": "memory", "kernel_factor": 1.5}, 4),
        ({"collective": "all_reduce", "kernel_factor": 1.5}, 4),
        ({"kernel_factor": 1.5, "collective_factor": 1.5}, 6),
        ({"kernel_factor": 3, "collective_factor": 3}, 8),
    ],
)
def test_by_hand(rule: dict[str, Any], makespan: float) -> None:
    """k does 4 / 1.5 beside g and the rest alone; three times as slow, one after the other wins."""
    instance = program(*STEP, contention=[rule])
    found = ppsolve.optimize(instance)
    assert found.status is Status.OPTIMAL
    assert found.value == makespan


def test_moves_improve_larger_programs() -> None:
    rng = random.Random(1)
    nodes: list[dict[str, Any]] = []
    for layer in range(30):
        nodes += [
            {"name": f"g{layer}", "kind": "comm", "duration": rng.randint(3, 9)},
            {"name": f"w{layer}", "kind": "wait", "deps": [f"g{layer}"]},
            {
                "name": f"k{layer}",
                "kind": "compute",
                "duration": rng.randint(3, 9),
                "deps": [f"w{layer}"],
            },
        ]
    instance = program(
        *nodes, contention=[{"kernel_factor": 1.4, "collective_factor": 1.1}]
    )
    found: Any = ppsolve.optimize(instance, time_limit=1, workers=1)
    assert found.status in {Status.OPTIMAL, Status.FEASIBLE}
    least = min(
        entry.makespan for entry in found.heuristics if entry.makespan is not None
    )
    assert found.bound <= found.value <= least
    assert not ppsolve.check(instance, found)


def test_a_result_with_another_order_is_refused() -> None:
    instance = program(*STEP, contention=[{"kernel_factor": 1.5}])
    found: Any = ppsolve.optimize(instance)
    wrong = found.model_copy(update={"order": ["k", "g", "w"]})
    assert ppsolve.check(instance, wrong)


def test_a_category_of_a_collective_is_refused() -> None:
    with pytest.raises(InputError, match=r"nodes\[0\]\.category.*kernels only"):
        program({**STEP[0], "category": "matmul"}, *STEP[1:])


def test_a_factor_below_one_is_refused() -> None:
    with pytest.raises(InputError, match=r"contention\[0\]\.kernel_factor"):
        program(*STEP, contention=[{"kernel_factor": 0.5}])


@pytest.mark.parametrize("seed", first(3, range(60)))
def test_caps_that_are_not_counted_along_the_order_are_kept(seed: int) -> None:
    """Collectives in flight, and bytes of outputs or of buffers."""
    rng = random.Random(seed)
    document = random_document(rng, most=7)
    document = with_buffers(rng, document) if seed % 2 else with_caps(rng, document)
    rules = [{"kernel_factor": 1.5, "collective_factor": 1.25}] if seed % 4 < 3 else []
    document = {**document, "max_in_flight": rng.randint(1, 2), "contention": rules}
    instance = OverlapInstance.parse(document)
    result: Any = ppsolve.optimize(instance, time_limit=1, workers=1)
    if result.value is not None:
        assert not ppsolve.check(instance, result)
        order = tuple(Graph(document).names.index(name) for name in result.order)
        assert Graph(document).flights_fit(order)

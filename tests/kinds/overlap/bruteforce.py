"""Overlap instances by brute force: every program order, timed by a replay of its own.

Works on plain documents (as read from JSON) in exact fractions and shares no code with ppsolve.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations
from typing import Any

Document = dict[str, Any]
Order = tuple[int, ...]

KINDS = {"k": "compute", "c": "comm", "w": "wait"}
"""Kind of a node by the first letter of its name, in the programs made here."""


def exact(value: Any) -> Fraction:
    """Return a JSON number as the decimal that its text says."""
    return Fraction(repr(value)) if isinstance(value, float) else Fraction(value)


@dataclass(frozen=True)
class Timed:
    """Times of a program order by place in the program; a wait ends when it lets go."""

    start: tuple[Fraction, ...]
    end: tuple[Fraction, ...]

    @property
    def makespan(self) -> Fraction:
        return max(self.end, default=Fraction(0))


class Graph:
    """A document in plain lists; nodes are numbered by their place in the program."""

    def __init__(self, document: Document) -> None:
        nodes = document["nodes"]
        number = {node["name"]: place for place, node in enumerate(nodes)}
        self.size = len(nodes)
        self.names = [node["name"] for node in nodes]
        self.kind = [node["kind"] for node in nodes]
        self.length = [exact(node.get("duration", 0)) for node in nodes]
        self.bytes = [exact(node.get("bytes", 0)) for node in nodes]
        self.group = [str(node.get("group") or "0") for node in nodes]
        self.deps = [{number[name] for name in node.get("deps", ())} for node in nodes]
        self.comms = [i for i in range(self.size) if self.kind[i] == "comm"]
        self.awaited = {
            i: next(d for d in self.deps[i] if self.kind[d] == "comm")
            for i in range(self.size)
            if self.kind[i] == "wait"
        }
        self.uses = [self._uses(i) for i in range(self.size)]
        self.flight_cap = document.get("max_in_flight")
        cap = document.get("max_live_bytes")
        self.byte_cap = None if cap is None else exact(cap)
        self.before = [
            deps | {number[name] for name in node.get("after", ())}
            for deps, node in zip(self.deps, nodes, strict=True)
        ]
        self.buffers = [
            (
                number.get(each.get("producer"), -1),
                {number[name] for name in each.get("users", ())},
                exact(each["bytes"]),
                bool(each.get("kept")),
            )
            for each in document.get("buffers") or ()
        ]
        for made, users, _, _ in self.buffers:
            for user in users - {made} if made >= 0 else ():
                self.before[user].add(made)
        if document.get("collective_order", "frozen") == "frozen":
            for place, comm in enumerate(self.comms):
                self.before[comm] |= {
                    c for c in self.comms[:place] if self.group[c] == self.group[comm]
                }

    def _uses(self, node: int) -> set[int]:
        """Return what must end before the output of a node goes; none for a wait."""
        if self.kind[node] == "wait":
            return set()
        direct = {i for i in range(self.size) if node in self.deps[i]}
        aliases = {i for i in direct if self.awaited.get(i) == node}
        return {node} | direct | {i for i in range(self.size) if aliases & self.deps[i]}

    def cap_of(self, group: str) -> int | None:
        cap = self.flight_cap
        return cap.get(group) if isinstance(cap, dict) else cap

    def is_valid(self, order: Order) -> bool:
        if sorted(order) != list(range(self.size)):
            return False
        place = {node: at for at, node in enumerate(order)}
        return all(place[b] < place[node] for node in order for b in self.before[node])

    def replay(self, order: Order) -> Timed:
        start, end = [Fraction(0)] * self.size, [Fraction(0)] * self.size
        for at in range(len(order)):
            self._run(order[:at], order[at], start, end)
        return Timed(tuple(start), tuple(end))

    def _run(
        self, done: Order, node: int, start: list[Fraction], end: list[Fraction]
    ) -> None:
        """Time a node after those done: a kernel or wait holds the compute stream."""
        comm = self.kind[node] == "comm"
        launched = [end[i] for i in done if self.kind[i] != "comm"]
        same = [
            end[i]
            for i in done
            if comm and self.kind[i] == "comm" and self._meet(i, node)
        ]
        data = [end[i] for i in self.deps[node]]
        clock = max(launched, default=Fraction(0))
        ready = max([clock, *same, *data])
        start[node] = clock if self.kind[node] == "wait" else ready
        end[node] = ready + self.length[node]

    def _meet(self, one: int, other: int) -> bool:
        return self.group[one] == self.group[other]

    def in_flight(self, order: Order) -> dict[str, int]:
        """Return the most collectives of each group from their place to their wait's."""
        most: dict[str, int] = {self.group[c]: 0 for c in self.comms}
        now = dict(most)
        for node in order:
            if self.kind[node] == "comm":
                now[self.group[node]] += 1
            elif self.kind[node] == "wait":
                now[self.group[self.awaited[node]]] -= 1
            most = {group: max(most[group], now[group]) for group in most}
        return most

    def flights_fit(self, order: Order) -> bool:
        found = self.in_flight(order)
        return all(
            (cap := self.cap_of(g)) is None or n <= cap for g, n in found.items()
        )

    def held(self, timed: Timed) -> list[tuple[Fraction, Fraction, Fraction]]:
        """Return the outputs as (from, until, bytes), those held for no time left out."""
        spans = [
            (timed.start[i], max(timed.end[u] for u in self.uses[i]), self.bytes[i])
            for i in range(self.size)
            if self.uses[i] and self.bytes[i]
        ]
        return [span for span in spans if span[0] < span[1]]

    def curve(self, timed: Timed) -> list[tuple[Fraction, Fraction]]:
        """Return (time, bytes held from then on) at each time at which an output comes or goes."""
        held = self.held(timed)
        times = sorted({time for first, last, _ in held for time in (first, last)})
        return [
            (t, sum((b for a, z, b in held if a <= t < z), Fraction(0))) for t in times
        ]

    def peak(self, timed: Timed) -> Fraction:
        return max((amount for _, amount in self.curve(timed)), default=Fraction(0))

    def peak_along(self, order: Order) -> Fraction:
        """Return the most bytes of buffers that an order, or the beginning of one, holds."""
        held = sum((size for made, _, size, _ in self.buffers if made < 0), Fraction(0))
        most = held
        for at, node in enumerate(order):
            done = set(order[: at + 1])
            held += sum(size for made, _, size, _ in self.buffers if made == node)
            most = max(most, held)
            for made, users, size, kept in self.buffers:
                last = users or {made}
                if not kept and node in last and last <= done:
                    held -= size
        return most

    def bytes_fit(self, timed: Timed) -> bool:
        # The contract allows an excess of 1e-9 of the capacity.
        cap = self.byte_cap
        return cap is None or self.peak(timed) <= cap * (1 + Fraction(1, 10**9))

    def orders(self) -> Iterator[Order]:
        """Yield every valid order, caps left aside: the plain definition, for small graphs."""
        yield from (
            order for order in permutations(range(self.size)) if self.is_valid(order)
        )


@dataclass(frozen=True)
class Optimum:
    """The least makespan and an order that has it; both None where no order keeps the caps."""

    makespan: Fraction | None
    order: Order | None


class Search:
    """Depth-first over all valid orders; skips only what cannot be better, or is the same.

    Two beginnings with the same nodes at the same times have the same continuations, and the
    bytes that a beginning is sure to hold only grow.
    """

    def __init__(self, document: Document) -> None:
        self.graph = Graph(document)
        self.best: Fraction | None = None
        self.best_order: Order | None = None
        self.start = [Fraction(0)] * self.graph.size
        self.end = [Fraction(0)] * self.graph.size
        self.seen: set[tuple[frozenset[int], tuple[Fraction, ...]]] = set()

    def run(self) -> Optimum:
        self._extend(())
        return Optimum(self.best, self.best_order)

    def _extend(self, order: Order) -> None:
        latest = max((self.end[i] for i in order), default=Fraction(0))
        if (self.best is not None and latest >= self.best) or not self._may_fit(order):
            return
        done = frozenset(order)
        key = done, tuple(self.end[i] for i in sorted(order))
        if key in self.seen:
            return
        self.seen.add(key)
        if len(order) == self.graph.size:
            self.best, self.best_order = latest, order
            return
        for node in range(self.graph.size):
            if node not in done and self.graph.before[node] <= done:
                self.graph._run(order, node, self.start, self.end)
                self._extend((*order, node))

    def _may_fit(self, order: Order) -> bool:
        graph = self.graph
        if order and graph.kind[order[-1]] == "comm" and not graph.flights_fit(order):
            return False
        if graph.byte_cap is not None and graph.buffers:
            return graph.peak_along(order) <= graph.byte_cap * (1 + Fraction(1, 10**9))
        return graph.byte_cap is None or self._bytes_may_fit(order)

    def _bytes_may_fit(self, order: Order) -> bool:
        """Count outputs as held until the ends known so far, and until now while a use is left."""
        graph, done = self.graph, set(order)
        clock = max(
            (self.end[i] for i in order if graph.kind[i] != "comm"), default=Fraction(0)
        )
        end = list(self.end)
        for i in set(range(graph.size)) - done:
            end[i] = max([clock, *(end[d] for d in graph.deps[i] if d in done)])
        known = [i for i in order if graph.bytes[i] and graph.uses[i]]
        spans = [
            (self.start[i], max(end[u] for u in graph.uses[i]), graph.bytes[i])
            for i in known
        ]
        limit = (graph.byte_cap or 0) * (1 + Fraction(1, 10**9))
        return all(
            sum((b for a, z, b in spans if a <= t < z), Fraction(0)) <= limit
            for t, _, _ in spans
        )


def optimum(document: Document) -> Optimum:
    """Return the least makespan over every program order that keeps the caps."""
    return Search(document).run()


def random_document(rng: random.Random, most: int = 9, least: int = 2) -> Document:
    """Return a random program: zero durations, waits that collectives use or nobody does."""
    size = rng.randint(least, most)
    groups = rng.choice([["0"], ["x", "y"]])
    zero, unit = rng.choice([0.1, 0.1, 0.4]), rng.choice([1, 1, 1, 0.25, 0.1])
    nodes: list[Document] = []
    unwaited: list[str] = []
    while len(nodes) + len(unwaited) < size:
        room = size - len(nodes) - len(unwaited)
        kinds = (
            ["compute"] * 3
            + ["comm"] * (3 if room > 1 else 0)
            + ["wait"] * 3 * bool(unwaited)
        )
        nodes.append(
            _node(rng, rng.choice(kinds), nodes, unwaited, (groups, zero, unit))
        )
    while unwaited:
        nodes.append(_node(rng, "wait", nodes, unwaited, (groups, zero, unit)))
    return {
        "schema": 1,
        "kind": "overlap",
        "name": "random",
        "nodes": nodes,
        "collective_order": rng.choice(["frozen", "free", "free"]),
    }


def _node(
    rng: random.Random,
    kind: str,
    nodes: list[Document],
    unwaited: list[str],
    style: tuple[list[str], float, float],
) -> Document:
    groups, zero, unit = style
    name = f"{next(letter for letter in KINDS if KINDS[letter] == kind)}{len(nodes)}"
    waits = [node["name"] for node in nodes if node["kind"] == "wait"]
    usable = [node["name"] for node in nodes if node["kind"] == "compute"] + 2 * waits
    deps = sorted(
        {rng.choice(usable) for _ in range(rng.choice([0, 1, 1, 2, 3])) if usable}
    )
    if kind == "wait":
        awaited = unwaited.pop(rng.randrange(len(unwaited)))
        return {
            "name": name,
            "kind": kind,
            "deps": [awaited, *deps[: rng.random() < 0.25]],
        }
    length = 0 if rng.random() < zero else rng.randint(1, 9) * unit
    node = {"name": name, "kind": kind, "duration": round(length, 6), "deps": deps}
    node["bytes"] = rng.choice([0, 1, 2, 3, 5, 0.5])
    if kind == "comm":
        node["group"] = rng.choice(groups)
        unwaited.append(name)
    elif unwaited and rng.random() < 0.05:
        # Rare, but the rules allow it: a kernel that uses a collective without its wait.
        node["deps"] = [*deps, unwaited[0]]
    return node


def with_caps(rng: random.Random, document: Document) -> Document:
    """Return the document with a cap on collectives in flight, on live bytes, or both."""
    graph = Graph(document)
    caps: Document = {}
    which = rng.choice(["flight", "bytes", "bytes", "both"])
    groups = sorted({graph.group[c] for c in graph.comms})
    if which != "bytes":
        each = {group: rng.randint(1, 3) for group in groups if rng.random() < 0.8}
        caps["max_in_flight"] = rng.choice([rng.randint(1, 3), each])
    if which != "flight":
        peak = graph.peak(graph.replay(tuple(range(graph.size))))
        share = rng.choice([0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2])
        caps["max_live_bytes"] = round(float(peak) * share * 2) / 2
    return {**document, **caps}


def with_buffers(rng: random.Random, document: Document) -> Document:
    """Return the document with buffers instead of outputs, order-only rules, and a cap on bytes."""
    graph = Graph(document)
    nodes = [{**node, "bytes": 0} for node in document["nodes"]]
    for place, node in enumerate(nodes):
        if place and rng.random() < 0.15:
            node["after"] = [graph.names[rng.randrange(place)]]
    buffers: list[Document] = []
    for place in range(-rng.randint(0, 2), graph.size):
        users = [
            graph.names[i]
            for i in range(max(place, 0), graph.size)
            if rng.random() < 0.25
        ]
        if place >= 0:
            users = [
                graph.names[i] for i in range(graph.size) if place in graph.deps[i]
            ] or users
        one: Document = {"bytes": rng.choice([0, 1, 2, 3, 5, 0.5]), "users": users}
        one |= {"producer": graph.names[place]} if place >= 0 else {}
        buffers.append({**one, "kept": rng.random() < 0.2})
    found = {**document, "nodes": nodes, "buffers": buffers}
    peak = Graph(found).peak_along(tuple(range(graph.size)))
    share = rng.choice([0.6, 0.7, 0.8, 0.9, 1.0, 1.0, 1.0, 1.2])
    return {**found, "max_live_bytes": round(float(peak) * share * 2) / 2 or 1}


def alike(rng: random.Random) -> Document:
    """Return a program of two or three equal parts, and sometimes more, in free order."""
    copies = rng.choice([2, 2, 3])
    part = random_document(rng, most=9 // copies)["nodes"]
    room = 9 - copies * len(part)
    more = (
        random_document(rng, most=room)["nodes"]
        if room > 1 and rng.random() < 0.5
        else []
    )
    parts = [[_tagged(node, f"_{copy}") for node in part] for copy in range(copies)]
    parts.append([_tagged(node, "_more") for node in more])
    nodes = []
    shuffled = rng.random() < 0.5
    while parts := [own for own in parts if own]:
        nodes.append((rng.choice(parts) if shuffled else parts[0]).pop(0))
    return {"kind": "overlap", "nodes": nodes, "collective_order": "free"}


def _tagged(node: Document, tag: str) -> Document:
    return {
        **node,
        "name": node["name"] + tag,
        "deps": [dep + tag for dep in node["deps"]],
    }


def program(*nodes: str, **fields: Any) -> Document:
    """Return a document from nodes like ``c1 3 b=5 <- k0 w0``; the kind is the first letter."""
    found = []
    for text in nodes:
        own, _, deps = text.partition("<-")
        name, *rest = own.split()
        node: Document = {"name": name, "kind": KINDS[name[0]], "deps": deps.split()}
        for part in rest:
            key, _, value = part.rpartition("=")
            full = {"": "duration", "b": "bytes", "g": "group"}[key]
            node[full] = value if key == "g" else json.loads(value)
        found.append(node)
    return {"schema": 1, "kind": "overlap", "name": "by hand", "nodes": found, **fields}

"""What is wrong with a schedule of a program, from documents alone; shares no code with ppsolve.

A schedule may idle; it has a start for every node, for the launch of every collective that a cap
counts in flight, and for the moment at which an output with several last users is given back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import pairwise

from tests.kinds.overlap.bruteforce import Document, Graph

Span = tuple[Fraction, Fraction]


class Rules:
    """The ops of a program, and the rules that their starts must keep."""

    def __init__(self, document: Document) -> None:
        self.graph = Graph(document)
        self.is_frozen = document.get("collective_order", "frozen") == "frozen"
        graph = self.graph
        self.length = dict(zip(graph.names, graph.length, strict=True))
        self.launched = [
            c for c in graph.comms if graph.cap_of(graph.group[c]) is not None
        ]
        self.length |= dict.fromkeys(
            (f"launch:{graph.names[c]}" for c in self.launched), Fraction()
        )
        self.last = {i: self._last_users(i) for i in range(graph.size)}
        self.released = [
            i
            for i in range(graph.size)
            if graph.byte_cap is not None and graph.bytes[i] and len(self.last[i]) > 1
        ]
        self.length |= dict.fromkeys(
            (f"release:{graph.names[i]}" for i in self.released), Fraction()
        )

    def _last_users(self, node: int) -> set[int]:
        """Return the users of an output that no other one uses, the node itself if none does."""
        waits = {wait for wait, comm in self.graph.awaited.items() if comm == node}
        users = self.graph.uses[node] - {node}
        if users - waits:
            users -= {
                wait for wait in waits if any(wait in self.graph.deps[u] for u in users)
            }
        return {
            u for u in users if not any(u in self.graph.deps[v] for v in users)
        } or {node}

    def broken(self, starts: Mapping[str, Fraction]) -> set[str]:
        """Return the rules that starts break, one for each op of the program."""
        assert starts.keys() == self.length.keys()
        span = {
            name: (start, start + self.length[name]) for name, start in starts.items()
        }
        checks = {
            "start": any(start < 0 for start in starts.values()),
            "precedence": any(span[b][0] < span[a][1] for a, b in self._precedences()),
            "overlap": any(
                _clash(span, ops, points) for ops, points in self._streams()
            ),
            "memory": not (self._flights_fit(span) and self._bytes_fit(span)),
        }
        return {rule for rule, is_broken in checks.items() if is_broken}

    def _precedences(self) -> Iterator[tuple[str, str]]:
        graph, names = self.graph, self.graph.names
        yield from (
            (names[d], names[i]) for i in range(graph.size) for d in graph.deps[i]
        )
        for comm in self.launched:
            launch = f"launch:{names[comm]}"
            yield launch, names[comm]
            yield from ((names[d], launch) for d in graph.deps[comm])
        for group in set(graph.group) if self.is_frozen else ():
            own = [c for c in graph.comms if graph.group[c] == group]
            yield from ((names[a], names[b]) for a, b in pairwise(own))
            if set(own) <= set(self.launched):
                yield from (
                    (f"launch:{names[a]}", f"launch:{names[b]}")
                    for a, b in pairwise(own)
                )
        for node in self.released:
            yield from ((names[u], f"release:{names[node]}") for u in self.last[node])

    def _streams(self) -> Iterator[tuple[list[str], list[str]]]:
        """Yield, for each stream, its ops that take time and those that take a moment of it."""
        graph = self.graph
        kernels = [i for i in range(graph.size) if graph.kind[i] == "compute"]
        waits = [wait for wait in graph.awaited if self._is_placed(wait)]
        launches = [f"launch:{graph.names[c]}" for c in self.launched]
        empty = [i for i in kernels if not graph.length[i]]
        yield self._names(kernels), [*self._names(empty + waits), *launches]
        for group in set(graph.group):
            own = [c for c in graph.comms if graph.group[c] == group]
            yield self._names(own), self._names([c for c in own if not graph.length[c]])

    def _is_placed(self, wait: int) -> bool:
        """Whether more than the users of a wait depend on when it is."""
        graph = self.graph
        used = any(wait in graph.deps[comm] for comm in graph.comms)
        capped = graph.byte_cap is not None or graph.awaited[wait] in self.launched
        return used or capped

    def _names(self, nodes: list[int]) -> list[str]:
        return [self.graph.names[node] for node in nodes]

    def _flights_fit(self, span: Mapping[str, Span]) -> bool:
        graph = self.graph
        wait_of = {comm: wait for wait, comm in graph.awaited.items()}
        for group in {graph.group[c] for c in self.launched}:
            own = [c for c in self.launched if graph.group[c] == group]
            begin = [span[f"launch:{graph.names[c]}"][0] for c in own]
            end = [span[graph.names[wait_of[c]]][1] for c in own]
            counts = [
                sum(b <= t for b in begin) - sum(e <= t for e in end) for t in begin
            ]
            if max(counts) > (graph.cap_of(group) or 0):
                return False
        return True

    def _bytes_fit(self, span: Mapping[str, Span]) -> bool:
        graph = self.graph
        if graph.byte_cap is None:
            return True
        held = []
        for node, amount in enumerate(graph.bytes):
            name = graph.names[node]
            if node in self.released:
                end = span[f"release:{name}"][1]
            else:
                end = max(span[user][1] for user in self._names(list(self.last[node])))
            held.append((span[name][0], end, amount))
        most = max(
            sum(b for begin, _, b in held if begin <= t)
            - sum(b for _, end, b in held if end <= t)
            for t, _, _ in held
        )
        return most <= graph.byte_cap * (1 + Fraction(1, 10**9))


def _clash(span: Mapping[str, Span], ops: list[str], points: list[str]) -> bool:
    """Whether two ops run at once, or a moment is inside an op."""
    busy = sorted(span[op] for op in ops if span[op][0] < span[op][1])
    if any(second[0] < first[1] for first, second in pairwise(busy)):
        return True
    return any(start < span[point][0] < end for point in points for start, end in busy)

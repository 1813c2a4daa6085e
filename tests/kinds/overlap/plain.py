"""The passes word by word in plain sets and loops; shares no code with the fast ones."""

from __future__ import annotations

from fractions import Fraction

from ppsolve.models.kinds.overlap.instance import OverlapInstance

Sets = dict[str, set[str]]


class Plain:
    """Names, direct dependencies with chained collectives, and their closures."""

    def __init__(self, instance: OverlapInstance) -> None:
        self.names = [node.name for node in instance.nodes]
        self.kind = {node.name: str(node.kind) for node in instance.nodes}
        self.time = {node.name: Fraction(node.duration) for node in instance.nodes}
        self.comms = [name for name in self.names if self.kind[name] == "comm"]
        self.deps: Sets = {}
        latest: dict[str, str] = {}
        for place, node in enumerate(instance.nodes):
            self.deps[node.name] = set(node.deps)
            if self.kind[node.name] == "comm":
                group = instance.group_of(place)
                self.deps[node.name] |= {latest[group]} if group in latest else set()
                latest[group] = node.name
        self.above: Sets = {}
        for name in self.names:
            self.above[name] = set(self.deps[name])
            for dep in self.deps[name]:
                self.above[name] |= self.above[dep]

    def below(self, name: str) -> set[str]:
        return {other for other in self.names if name in self.above[other]}


def plain_reorder(instance: OverlapInstance) -> list[str]:
    plain = Plain(instance)
    if not plain.comms:
        return plain.names
    done: list[str] = []

    def ready(name: str) -> bool:
        return plain.deps[name] <= set(done)

    def sweeps(names: set[str]) -> None:
        left = set(names)
        while left:
            for name in sorted(left):
                if ready(name):
                    done.append(name)
                    left.discard(name)

    def earliest(name: str) -> int:
        leads = (k for k, comm in enumerate(plain.comms) if name in plain.above[comm])
        return next(leads, len(plain.comms))

    sweeps(plain.above[plain.comms[0]])
    done.append(plain.comms[0])
    rolled_over = Fraction(0)
    for number in range(1, len(plain.comms)):
        previous, comm = plain.comms[number - 1], plain.comms[number]
        below = plain.below(previous)
        first = plain.above[comm] - set(done) - below
        sweeps(first)
        before = cost = rolled_over + sum(plain.time[name] for name in first)
        time = plain.time[previous]
        if cost < time:
            fillers = [
                name
                for name in sorted(plain.names)
                if name not in done
                and ready(name)
                and plain.kind[name] != "comm"
                and name not in below
            ]
            for name in sorted(fillers, key=earliest):
                if cost >= time:
                    break
                if time - cost > plain.time[name] / 2:
                    done.append(name)
                    cost += plain.time[name]
        remaining = plain.above[comm] - set(done)
        sweeps(remaining)
        done.append(comm)
        rolled_over = Fraction(0) if remaining else cost - before
    sweeps(set(plain.names) - set(done))
    return done


def plain_raise(instance: OverlapInstance) -> list[str] | None:
    plain = Plain(instance)
    held: list[str] = []
    backwards: list[str] = []
    for name in reversed(plain.names):
        if plain.kind[name] == "comm":
            held.append(name)
            continue
        while any(name in plain.deps[comm] for comm in held):
            backwards.append(held.pop(0))
        backwards.append(name)
    return None if len(held) > 1 else [*held, *reversed(backwards)]


def plain_list(
    instance: OverlapInstance, *, raises: bool, sinks: bool, fills: bool
) -> list[str]:
    plain = Plain(instance)
    done: list[str] = []

    def key(name: str) -> tuple[float, int, int]:
        leads = (
            k
            for k, comm in enumerate(plain.comms)
            if name == comm or name in plain.above[comm]
        )
        first = next(leads, float("inf")) if raises else float("inf")
        return first, int(sinks and plain.kind[name] == "wait"), plain.names.index(name)

    def ready() -> list[str]:
        left = [name for name in plain.names if name not in done]
        return sorted((name for name in left if plain.deps[name] <= set(done)), key=key)

    while names := ready():
        done.append(names[0])
        left = plain.time[names[0]]
        while fills and plain.kind[names[0]] == "comm" and left > 0:
            compute = [name for name in ready() if plain.kind[name] == "compute"]
            if not compute:
                break
            done.append(compute[0])
            left -= plain.time[compute[0]]
    return done

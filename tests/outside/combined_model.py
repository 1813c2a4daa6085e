"""Optima of pipelines with parts beside each other, from `docs/instances.md` alone.

Layers, modes, replicas and devices of fillers are tried in every way; each is a plain program, in
which only blocks and orders are open. Nothing is shared with what it judges. It does not read
costs over lengths, capacities such as ``1p`` and programs of blocks.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property
from itertools import pairwise, product
from typing import Any, NamedTuple

from tests.outside.open_choices import OFFLOAD, Choice, choices_of
from tests.outside.plain_model import Instance, exact, pipes_of
from tests.outside.timed_program import Block, Program, Stream, optimum_of

KINDS = {
    "F": "forward",
    "B": "backward",
    "I": "backward_input",
    "W": "backward_weight",
}


class OpEnds(NamedTuple):
    """The first and the last op of a forward or backward, and the one that gives its result."""

    first: str
    last: str
    result: str


class _Reader:
    """Writes the program of one pipeline, or of one replica of it."""

    def __init__(self, instance: Instance, choice: Choice, members: tuple[int, ...]):
        self.instance, self.choice, self.members = instance, choice, members
        self.program = Program()
        self.pipes, self.stages = pipes_of(instance), len(pipes_of(instance)[0])
        self.count, self.steps = instance["num_microbatches"], instance.get("steps", 1)
        slices = instance.get("slices", 1)
        self.slices = slices if isinstance(slices, int) else len(slices)
        self.memory, self.times = instance.get("memory"), instance.get("times")
        self.collectives = instance.get("collectives") or {}
        if "layers" in instance:
            self.shares_layers()
        self.is_split = "backward_input" in self.times
        self.back = "I" if self.is_split else "B"
        self.gradient = "W" if self.is_split else "B"
        self.ends: dict[tuple[str, int, int, int, int], OpEnds] = {}
        self.tails: dict[tuple[int, int, int], list[str]] = {}

    def shares_layers(self) -> None:
        """Set times, activations and static memory by the layers of each stage."""
        layers, stages = self.instance["layers"], range(self.stages)
        types = layers.get("recompute", [])
        again = [exact(0), *(exact(entry["time"]) for entry in types)]
        held = [
            exact(layers["body"].get("activation", 0)),
            *(exact(entry.get("held", 0)) for entry in types),
        ]
        rows = self.choice.layers

        def amount(name: str, stage: int) -> Fraction:
            total = exact(layers["body"].get(name, 0)) * sum(rows[stage])
            if name == "activation":
                total = _weighed(held, rows[stage])
            ends = {"first": stage == 0, "last": stage == self.stages - 1}
            for end in (end for end, is_here in ends.items() if is_here):
                total += exact(layers.get(end, {}).get(name, 0))
            return total

        fields = [field for field in KINDS.values() if field in layers["body"]]
        self.times = {field: [amount(field, s) for s in stages] for field in fields}
        recomputed = self.times[fields[1]]
        for stage in stages:
            recomputed[stage] += _weighed(again, rows[stage])
        if self.memory is not None:
            amounts = {
                field: [amount(field, s) for s in stages]
                for field in ("activation", "static")
            }
            self.memory = self.memory | amounts

    def entry(self, value: Any, stage: int, batch: int = 0, piece: int = 0) -> Fraction:
        """Return a number for all, by stage, micro-batch, slice, or slice of a micro-batch."""
        value = value[stage] if isinstance(value, list) else value
        if isinstance(value, list):
            if "slices" not in self.instance:
                value = value[batch]
            elif len(value) == self.slices:
                value = value[piece]
            else:
                value = value[batch * self.slices + piece]
        return value if isinstance(value, Fraction) else exact(value)

    def device(self, stage: int, batch: int) -> int:
        """Return the device of a stage: each pipe takes half of the micro-batches."""
        return self.pipes[batch * len(self.pipes) // self.count][stage]

    @cached_property
    def units(self) -> list[tuple[int, int, int, int]]:
        """Steps, stages, micro-batches and slices of this replica."""
        parts = range(self.steps), range(self.stages), self.members, range(self.slices)
        return list(product(*parts))

    def read(self) -> Program:
        """Return the program."""
        for unit in self.units:
            self.computes(*unit)
        for unit in self.units:
            self.follows(*unit)
            if self.memory is not None:
                self.holds(*unit)
                self.leaves(*unit)
        for step in range(self.steps):
            for stage in range(self.stages):
                self.updates(step, stage)
        if self.instance.get("overlap"):
            self.blocks()
        for filler, device in zip(
            self.instance.get("fillers", []), self.choice.devices, strict=True
        ):
            self.fills(filler, device)
        if self.memory is not None:
            self.rooms()
        return self.program

    def name(self, kind: str, step: int, stage: int, batch: int, piece: int) -> str:
        """Return the name of an op."""
        suffix = f".{piece}" if "slices" in self.instance else ""
        return f"{kind}{stage}.{batch}{suffix}" + (f"@{step}" if step else "")

    def mode(self, stage: int, batch: int) -> dict[str, Any] | None:
        """Return the way in which a stage recomputes the activation of a micro-batch."""
        name = self.choice.modes[stage][batch]
        modes = ((self.memory or {}).get("recompute") or {}).get("modes", [])
        return next((mode for mode in modes if mode["name"] == name), None)

    def again(self, stage: int, batch: int) -> Fraction:
        """Return by how much the backward is longer to recompute before."""
        mode = self.mode(stage, batch)
        if mode is None or self.memory["recompute"].get("place") == "anytime":
            return Fraction(0)
        return self.entry(mode["time"], stage) / self.speed(stage, batch)

    def speed(self, stage: int, batch: int) -> Fraction:
        """Return the speed of the device of a stage."""
        speed = self.instance.get("speed", 1)
        return self.entry(speed, self.device(stage, batch))

    def alone(self, kind: str, stage: int, batch: int, piece: int) -> Fraction:
        """Return the time of an op without recomputing."""
        time = self.entry(self.times[KINDS[kind]], stage, batch, piece)
        return time / self.speed(stage, batch)

    def computes(self, step: int, stage: int, batch: int, piece: int) -> None:
        """Add the forward and the backward of a stage, in pieces where collectives cut them."""
        device = self.device(stage, batch)
        for kind in ("F", "I", "W") if self.is_split else ("F", "B"):
            name = self.name(kind, step, stage, batch, piece)
            time = self.alone(kind, stage, batch, piece)
            again = self.again(stage, batch) if kind == self.back else Fraction(0)
            inside = self.collectives.get(KINDS[kind]) if kind != "W" else None
            if inside is None:
                self.program.add(name, time + again, ("device", device))
                ends = OpEnds(name, name, name)
            else:
                ends = self.pieces(name, time, again, inside, stage, device)
            self.ends[kind, step, stage, batch, piece] = ends

    def pieces(
        self,
        name: str,
        time: Fraction,
        again: Fraction,
        inside: dict[str, Any],
        stage: int,
        device: int,
    ) -> OpEnds:
        """Add the pieces of an op and the collectives behind them."""
        shares = _of_stage(inside.get("pieces", [1]), stage)
        purpose = "experts" if "alltoall" in inside else "tensors"
        behind = inside["alltoall"] if "alltoall" in inside else inside["allreduce"]
        if purpose == "experts":
            behind = _of_stage(behind, stage)
        else:
            behind = [self.entry(behind, stage)] * len(shares)
        segments = int(self.entry(inside.get("segments", 1), stage))
        total, previous, names = sum(map(exact, shares)) * segments, "", []
        for number in range(segments * len(shares)):
            share = exact(shares[number % len(shares)]) / total
            length = exact(behind[number % len(shares)])
            extra = Fraction(0) if number else again
            piece = self.program.add(
                f"{name}/{number}", time * share + extra, ("device", device)
            )
            self.program.wait([previous] if previous else [], piece)
            names.append(piece)
            previous = piece
            if length:
                stream = self.comm(device, purpose)
                previous = self.program.add(f"C{piece}", length, stream)
                self.program.wait([piece], previous)
        return OpEnds(names[0], names[-1], previous)

    def comm(self, device: int, purpose: str) -> Stream:
        """Return the stream of a device's collectives."""
        width = self.collectives.get("devices_per_node")
        if purpose == "experts" and width:
            return ("node", device // width)
        if self.collectives.get("comm_streams", "shared") == "shared":
            return ("comm", device)
        return ("comm", purpose, device)

    def follows(self, step: int, stage: int, batch: int, piece: int) -> None:
        """Let ops of one unit wait for each other, for other slices and for other stages."""
        unit, program = (step, stage, batch, piece), self.program
        forward, backward = self.ends["F", *unit], self.ends[self.back, *unit]
        program.wait([forward.result], backward.first)
        if self.is_split:
            program.wait([backward.last], self.ends["W", *unit].first)
        if piece:
            before = (step, stage, batch, piece - 1)
            program.wait([self.ends["F", *before].last], forward.first)
            program.wait([backward.last], self.ends[self.back, *before].first)
        if stage:
            before = (step, stage - 1, batch, piece)
            self.passes(self.ends["F", *before], forward, stage - 1, stage, batch)
            back = self.ends[self.back, *before]
            self.passes(backward, back, stage, stage - 1, batch)

    def passes(
        self, source: OpEnds, target: OpEnds, begin: int, end: int, batch: int
    ) -> None:
        """Let the op of a stage wait for that of its neighbour, and for the transfer."""
        p2p = self.instance.get("p2p") or {}
        here, there = self.device(begin, batch), self.device(end, batch)
        mode = p2p.get("mode", "delay")
        latency = _between(p2p.get("latency", 0), here, there)
        if here == there or mode == "delay":
            lag = Fraction(0) if here == there else latency
            self.program.wait([source.result], target.first, lag)
            return
        size = self.entry(p2p["bytes"], min(begin, end), batch)
        streams = {
            "link": (("link", here, there),),
            "nic": (("nic", here), ("nic", there)),
            "send_queue": (("queue", here),),
        }[mode]
        duration = size / _between(p2p["bandwidth"], here, there)
        transfer = self.program.add(f"T{source.first}", duration, *streams)
        self.program.wait([source.result], transfer)
        self.program.wait([transfer], target.first, latency)

    def holds(self, step: int, stage: int, batch: int, piece: int) -> None:
        """Take an activation at the start of the forward, give it back behind the backward."""
        unit, pool = (step, stage, batch, piece), ("device", self.device(stage, batch))
        forward, backward = self.ends["F", *unit], self.ends[self.back, *unit]
        memory, program = self.memory, self.program
        amount, later = (
            self.entry(memory.get("activation", 1), stage, batch, piece),
            Fraction(0),
        )
        if self.is_split and "left_to_weight" in memory:
            later = self.entry(memory["left_to_weight"], stage, batch, piece)
        elif self.is_split:
            share = memory.get("released_by_backward_weight", 1)
            later = amount * self.entry(share, stage)
        program.take(pool, forward.first, amount)
        program.take(pool, backward.first, max(later - amount, Fraction(0)))
        program.give(pool, backward.last, max(amount - later, Fraction(0)))
        if later:
            program.give(pool, self.ends["W", *unit].last, later)
        if "forward_peak" in memory:
            peak = self.entry(memory["forward_peak"], stage, batch, piece)
            excess = max(peak - amount, Fraction(0))
            program.take(pool, forward.first, excess)
            program.give(pool, forward.last, excess)
        if "key_value" in memory:
            kept = self.entry(memory["key_value"], stage, batch, piece)
            program.take(pool, forward.first, kept)
            last = self.ends[self.back, step, stage, batch, 0].last
            program.give(pool, last, kept)

    def leaves(self, step: int, stage: int, batch: int, piece: int) -> None:
        """Let what a mode does not keep leave the device, and come back for the backward."""
        unit, pool = (step, stage, batch, piece), ("device", self.device(stage, batch))
        forward, backward = self.ends["F", *unit], self.ends[self.back, *unit]
        mode, memory, program = self.mode(stage, batch), self.memory, self.program
        if mode is not None:
            activation = self.entry(memory.get("activation", 1), stage, batch, piece)
            amount = activation - self.entry(mode.get("held", 0), stage, batch, piece)
            back = backward.first
            if memory["recompute"].get("place", "before_backward") == "anytime":
                time = self.entry(mode["time"], stage) / self.speed(stage, batch)
                back = program.add(self.name("R", *unit), time, pool)
                program.wait([forward.last], back)
                program.wait([back], backward.first)
            program.give(pool, forward.last, amount)
            program.take(pool, back, amount)
        elif self.choice.modes[stage][batch] == OFFLOAD:
            offload, host = memory["offload"], ("host", self.device(stage, batch))
            amount = self.entry(offload["amount"], stage)
            out, back = self.copies(unit, self.device(stage, batch))
            program.wait([forward.last], out)
            program.wait([out], back)
            program.wait([back], backward.first)
            program.give(pool, out, amount)
            program.take(pool, back, amount)
            program.take(host, out, amount)
            program.give(host, back, amount)

    def copies(self, unit: tuple[int, int, int, int], device: int) -> tuple[str, str]:
        """Add the copies to the host and back."""
        offload, stage = self.memory["offload"], unit[1]
        links = offload.get("links") or []
        shared = [number for number, link in enumerate(links) if device in link]
        channel: Stream = ("host link", *shared) if shared else ("own link", device)
        away = (*channel, "out") if offload.get("duplex", True) else channel
        home = (*channel, "back") if offload.get("duplex", True) else channel
        out, back = (self.entry(offload[name], stage) for name in ("out", "back"))
        return (
            self.program.add(self.name("O", *unit), out, away),
            self.program.add(self.name("L", *unit), back, home),
        )

    def updates(self, step: int, stage: int) -> None:
        """Add what follows a stage's last backward, and what its next step waits for."""
        parts, devices = self.collectives, sorted({pipe[stage] for pipe in self.pipes})
        suffix = f"@{step}" if step else ""
        units = [unit for unit in self.units if unit[:2] == (step, stage)]
        reduced = parts.get("reduce_scatter", self.instance.get("allreduce"))
        reduction = ""
        if reduced is not None:
            streams = [self.comm(device, "gradients") for device in devices]
            time = self.entry(reduced, stage)
            reduction = self.program.add(f"AR{stage}{suffix}", time, *streams)
            gradients = [self.ends[self.gradient, *unit].last for unit in units]
            self.program.wait(gradients, reduction)
        for device in devices:
            mine = [unit for unit in units if self.device(stage, unit[2]) == device]
            tail = [self.ends[self.gradient, *unit].last for unit in mine]
            tail = [reduction] if reduction else tail
            if "optimizer" in self.instance:
                time = self.entry(self.instance["optimizer"], stage)
                time /= self.entry(self.instance.get("speed", 1), device)
                name = f"OPT{stage}/{device}{suffix}"
                self.program.wait(
                    tail, self.program.add(name, time, ("device", device))
                )
                tail = [name]
            forwards = [self.ends["F", *unit].first for unit in mine]
            earlier = self.tails.get((step - 1, stage, device), [])
            if "all_gather" in parts:
                time = self.entry(parts["all_gather"], stage)
                stream = self.comm(device, "gradients")
                name = f"AG{stage}/{device}{suffix}"
                self.program.wait(earlier, self.program.add(name, time, stream))
                for forward in forwards:
                    self.program.wait([name], forward)
            for forward in forwards:
                self.program.wait(earlier, forward)
            self.tails[step, stage, device] = tail

    def blocks(self) -> None:
        """Add every forward with the backward of another micro-batch as a block."""
        overlap = self.instance["overlap"]
        kinds = [self.back, "W"] if self.is_split else ["B"]
        kinds = kinds if overlap.get("with_weight", True) else kinds[:1]
        pairs = product(self.units, self.units)
        for unit, other in ((a, b) for a, b in pairs if a[0] == b[0] and a[2] != b[2]):
            (s, i), (t, h) = unit[1:3], other[1:3]
            if self.device(s, i) != self.device(t, h):
                continue
            again = self.again(t, h)
            if "ratio" in overlap:
                time = self.alone("F", s, i, 0) + again
                time += sum(self.alone(kind, t, h, 0) for kind in kinds)
                time *= exact(overlap["ratio"])
            else:
                cell = _cell(overlap["time"], s, t)
                if cell is None:
                    continue
                time = exact(cell) / self.speed(s, i) + again
            memory = exact(_cell(overlap.get("memory", 0), s, t) or 0)
            ops = [self.name("F", *unit)]
            ops += [self.name(kind, *other) for kind in kinds]
            stream = ("device", self.device(s, i))
            self.program.blocks.append(Block(tuple(ops), time, stream, memory))

    def named(self, name: str, step: int) -> list[OpEnds]:
        """Return the ops of a name, counted from a step; none where that is behind the last."""
        text, _, later = name.partition("@")
        step += int(later or 0)
        if text in self.fillers_above:
            runs = self.fillers_above[text]
            return [runs[min(step, len(runs) - 1)]]
        kind = text.rstrip("0123456789.")
        numbers = [int(number) for number in text[len(kind) :].split(".")]
        if kind == "OPT":
            suffix = f"@{step}" if step else ""
            devices = {pipe[numbers[0]] for pipe in self.pipes}
            names = [f"OPT{numbers[0]}/{device}{suffix}" for device in devices]
            return [OpEnds(op, op, op) for op in names if step < self.steps]
        return [
            ends
            for (letter, at, *unit), ends in self.ends.items()
            if letter == kind and at == step and unit[: len(numbers)] == numbers
        ]

    @cached_property
    def fillers_above(self) -> dict[str, list[OpEnds]]:
        """Ends of the fillers that were read, one for each step in which they run."""
        return {}

    def fills(self, filler: dict[str, Any], device: int) -> None:
        """Add a filler, once or in each step."""
        stream: Stream = {
            "compute": ("device", device),
            "comm": self.comm(device, "gradients"),
            "host": ("host stream", device),
        }[filler.get("stream", "compute")]
        runs = []
        for step in range(self.steps if filler.get("per_step") else 1):
            suffix = f"@{step}" if step else ""
            names = [
                self.program.add(f"{filler['name']}/{n}{suffix}", exact(time), stream)
                for n, time in enumerate(filler["pieces"])
            ]
            for before, after in pairwise(names):
                self.program.wait([before], after)
            self.program.releases[names[0]] = exact(filler.get("release", 0))
            above = [
                ends
                for name in _listed(filler, "after")
                for ends in self.named(name, step)
            ]
            self.program.wait([ends.last for ends in above], names[0])
            for name in _listed(filler, "before"):
                for ends in self.named(name, step):
                    self.program.wait([names[-1]], ends.first)
            runs.append(OpEnds(names[0], names[-1], names[-1]))
            pool, memory = ("device", device), filler.get("memory", {})
            if memory.get("waiting"):
                (ends,) = above
                self.program.take(pool, ends.first, exact(memory["waiting"]))
                self.program.give(pool, names[-1], exact(memory["waiting"]))
            self.program.take(pool, names[0], exact(memory.get("running", 0)))
            self.program.give(pool, names[-1], exact(memory.get("running", 0)))
        self.fillers_above[filler["name"]] = runs

    def rooms(self) -> None:
        """Say how much memory each device and its host have."""
        memory, program = self.memory, self.program
        host = (memory.get("offload") or {}).get("host_capacity")
        for device in range(self.instance["num_devices"]):
            stages = {
                s
                for pipe in self.pipes
                for s in range(self.stages)
                if pipe[s] == device
            }
            static = sum(self.entry(memory.get("static", 0), stage) for stage in stages)
            room = self.entry(memory["capacity"], device) - static
            program.rooms["device", device] = room
            if host is not None:
                program.rooms["host", device] = self.entry(host, device)


def _weighed(amounts: list[Fraction], counts: tuple[int, ...]) -> Fraction:
    pairs = zip(amounts, counts, strict=True)
    return sum((amount * count for amount, count in pairs), Fraction(0))


def _of_stage(value: list[Any], stage: int) -> list[Any]:
    is_by_stage = any(isinstance(row, list) for row in value)
    row = value[stage] if is_by_stage else value
    return row if isinstance(row, list) else [row]


def _between(value: Any, here: int, there: int) -> Fraction:
    return exact(value[here][there] if isinstance(value, list) else value)


def _cell(value: Any, row: int, column: int) -> Any:
    return value[row][column] if isinstance(value, list) else value


def _listed(filler: dict[str, Any], field: str) -> list[str]:
    value = filler.get(field, [])
    return [value] if isinstance(value, str) else value


def programs_of(instance: Instance, choice: Choice) -> list[Program]:
    """Return the programs of a choice: one, or one of each replica."""
    return [_Reader(instance, choice, row).read() for row in choice.replicas]


def combined_optimum(instance: Instance, *, seconds: float = 60.0) -> Fraction | None:
    """Return the least value over all choices, in the pipeline's unit of time; None without any.

    Raises
    ------
    TimeoutError
        A choice was not proved within these deterministic seconds.
    """
    objective, best = instance.get("objective", "makespan"), None
    solved: dict[Any, Fraction | None] = {}
    for choice in choices_of(instance):
        value: Fraction | None = Fraction(0)
        for members in choice.replicas:
            modes = [[row[i] for i in members] for row in choice.modes]
            key = str((members, modes, choice.layers, choice.devices))
            if key not in solved:
                program = _Reader(instance, choice, members).read()
                below = best if len(choice.replicas) == 1 else None
                solved[key] = optimum_of(
                    program, objective, below=below, seconds=seconds
                )
            slowest = solved[key]
            value = None if slowest is None or value is None else max(value, slowest)
            if value is None:
                break
        if value is not None and (best is None or value < best):
            best = value
    return best

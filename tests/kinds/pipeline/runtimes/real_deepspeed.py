"""DeepSpeed's own `TrainSchedule`, executed in virtual time: a program by itself, JSON in and out.

The instructions are real. Each send and receive is executed as a blocking one, in their order: a
receive ends at `max(sent + latency, posted)` where sends are buffered; send and receive end at
`max(sent, posted) + latency` where they rendezvous. A case has the fields p, m, F and B (a time per
stage), rendezvous and latency. Printed are for each case the ops as [kind, stage, micro-batch,
start, end]. Shares nothing with the program.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any


def schedules() -> Any:
    """Load the module of schedules alone: the package asks for an accelerator."""
    spec = importlib.util.find_spec("deepspeed")
    assert spec is not None
    assert spec.origin is not None
    path = Path(spec.origin).parent / "runtime" / "pipe" / "schedule.py"
    for name in ("deepspeed", "deepspeed.runtime", "deepspeed.runtime.pipe"):
        sys.modules[name] = ModuleType(name)
        sys.modules[name].__path__ = []
    utils = ModuleType("deepspeed.runtime.utils")
    utils.call_to_str = lambda name, **kwargs: name
    sys.modules["deepspeed.runtime.utils"] = utils
    name = "deepspeed.runtime.pipe.schedule"
    found = importlib.util.spec_from_file_location(name, path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


Key = tuple[str, int, int]
"""Activation (a) or gradient (g), the stage that sends it, its number."""


class Rank:
    """What a stage has executed."""

    def __init__(
        self, case: dict[str, Any], stage: int, posts: Any, module: Any
    ) -> None:
        self.case, self.stage, self.posts = case, stage, posts
        every = module.TrainSchedule(case["m"], case["p"], stage)
        self.todo = [type(command).__name__ for step in every for command in step]
        self.counts = dict.fromkeys(("F", "B", "sa", "sg", "ra", "rg"), 0)
        self.position, self.clock, self.log = 0, 0, []  # type: ignore[var-annotated]

    def proceed(self) -> bool:
        """Execute commands until one has to wait for another stage; whether any was executed."""
        begun = self.position
        while self.position < len(self.todo) and self.execute(self.todo[self.position]):
            self.position += 1
        return self.position > begun

    def execute(self, command: str) -> bool:
        if command in {"ForwardPass", "BackwardPass"}:
            kind, start = command[0], self.clock
            self.clock += self.case[kind][self.stage]
            self.log.append([kind, self.stage, self.counts[kind], start, self.clock])
            self.counts[kind] += 1
            return True
        if not command.startswith(("Send", "Recv")):
            return True
        what = "a" if "Activation" in command else "g"
        is_send = command.startswith("Send")
        count = ("s" if is_send else "r") + what
        origin = self.stage if is_send else self.stage + (-1 if what == "a" else 1)
        key = (what, origin, self.counts[count])
        self.posts.setdefault((key, is_send), self.clock)
        if is_send and not self.case["rendezvous"]:
            self.counts[count] += 1
            return True
        if (key, not is_send) not in self.posts:
            return False
        sent, received = self.posts[key, True], self.posts[key, False]
        end = max(sent + self.case["latency"], received)
        if self.case["rendezvous"]:
            end = max(sent, received) + self.case["latency"]
        self.clock = max(self.clock, end)
        self.counts[count] += 1
        return True


def run_case(case: dict[str, Any], module: Any) -> list[Any]:
    posts: dict[tuple[Key, bool], int] = {}
    ranks = [Rank(case, stage, posts, module) for stage in range(case["p"])]
    while any([rank.proceed() for rank in ranks]):
        pass
    assert all(rank.position == len(rank.todo) for rank in ranks), "deadlock"
    return [op for rank in ranks for op in rank.log]


if __name__ == "__main__":
    module = schedules()
    json.dump([run_case(case, module) for case in json.load(sys.stdin)], sys.stdout)

"""A runtime of programs with communications: data are names, queues of rank pairs have none.

It says what a program computes, by no rule: what was sent first between two ranks is received
first, whatever the receiver expects. It shares no code with the rules under test.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from typing import Any

CELL = re.compile(r"(\d+)([A-Z]+(?:_[A-Z]+)?)(\d*)")


class WrongProgramError(Exception):
    """The program stops for ever, or computes something else."""


class Runtime:
    """Runs the rows of all ranks, as (stage, word, micro-batch)."""

    def __init__(
        self, rows: list[list[str]], stage_to_rank: list[int], microbatches: int
    ) -> None:
        self.rows = [[self._cell(text) for text in row] for row in rows]
        self.ranks, self.microbatches = stage_to_rank, microbatches
        self.queues: dict[tuple[int, int], deque[Any]] = defaultdict(deque)
        self.local: list[set[Any]] = [set() for _ in rows]
        self.losses: list[int] = []
        self.gradients: dict[int, list[int]] = defaultdict(list)
        self.reduced: list[int] = []

    @staticmethod
    def _cell(text: str) -> tuple[int, str, int]:
        found = CELL.fullmatch(text)
        assert found, text
        return int(found[1]), found[2], int(found[3] or 0)

    def run(self) -> None:
        place = [0] * len(self.rows)
        moved = True
        while moved:
            moved = False
            for rank, row in enumerate(self.rows):
                while place[rank] < len(row) and self._step(rank, *row[place[rank]]):
                    place[rank] += 1
                    moved = True
        stages = len(self.ranks)
        every = list(range(self.microbatches))
        self._demand(place == [len(row) for row in self.rows], "it stops for ever")
        self._demand(not any(self.queues.values()), "something sent is not received")
        self._demand(self.losses == every, "losses are out of order")
        self._demand(
            sorted(self.reduced) == list(range(stages)),
            "gradients are not reduced once",
        )
        for stage in range(stages):
            self._demand(
                sorted(self.gradients[stage]) == every, f"gradients of stage {stage}"
            )

    def _demand(self, holds: bool, text: str) -> None:
        if not holds:
            raise WrongProgramError(text)

    def _step(self, rank: int, stage: int, word: str, microbatch: int) -> bool:
        if word.startswith("SEND"):
            peer = self._rank(stage + 1 if word == "SEND_F" else stage - 1)
            self._demand(peer != rank, "a rank sends to itself")
            kind = "out" if word == "SEND_F" else "grad"
            self._demand(
                (kind, stage, microbatch) in self.local[rank], "nothing to send"
            )
            self.queues[rank, peer].append((kind, stage, microbatch))
        elif word.startswith("RECV"):
            before = stage - 1 if word == "RECV_F" else stage + 1
            queue = self.queues[self._rank(before), rank]
            if not queue:
                return False
            kind = "out" if word == "RECV_F" else "grad"
            self._demand(
                queue.popleft() == (kind, before, microbatch), "other data are received"
            )
            self.local[rank].add((kind, before, microbatch))
        elif word == "REDUCE_GRAD":
            self.reduced.append(stage)
            self._demand(
                len(self.gradients[stage]) == self.microbatches, "reduced too early"
            )
        else:
            self._compute(rank, stage, word, microbatch)
        return True

    def _rank(self, stage: int) -> int:
        self._demand(0 <= stage < len(self.ranks), "there is no such stage")
        return self.ranks[stage]

    def _compute(self, rank: int, stage: int, word: str, microbatch: int) -> None:
        self._demand(self._rank(stage) == rank, "the stage is elsewhere")
        last = stage + 1 == len(self.ranks)
        have = self.local[rank]
        if word == "F":
            self._demand(
                stage == 0 or ("out", stage - 1, microbatch) in have, "no input"
            )
            have.add(("out", stage, microbatch))
            self.losses += [microbatch] if last else []
            return
        if word in "BI":
            needed = (
                ("out", stage, microbatch) if last else ("grad", stage + 1, microbatch)
            )
            forward = ("out", stage, microbatch)
            self._demand({needed, forward} <= have, "no gradient or no forward")
            have.add(("grad", stage, microbatch))
        if word in "BW":
            self._demand(("grad", stage, microbatch) in have, "no input gradient")
            self.gradients[stage].append(microbatch)

"""Problems in which some ops may run as one, or otherwise: a base problem and its options."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from ppsolve.models.core.keys import JoinedOps
from ppsolve.models.core.problem import COLUMNS, IntArray, Pool, Problem


@dataclass(frozen=True)
class Option:
    """Ops of a base problem that run as one op, or one op that runs otherwise.

    The op starts when all its ops may start, and ends as one: what waits for any of them waits for
    its end. It takes and gives back what they do.
    """

    ops: tuple[int, ...]  # the first one lends its labels
    duration: int  # in ticks, > 0
    resources: tuple[int, ...]
    kind: str
    name: str
    extra: tuple[tuple[int, Fraction], ...] = ()
    """Pools by number, and what it takes more of them from its start to its end.

    Below 0 it takes less, such as from the pool of the device on which its op would run else.
    """


@dataclass(frozen=True, eq=False)
class OpenProblem:
    """A base problem, whose ops run by themselves unless an option that covers them is chosen.

    A choice is a sorted int64[c] of numbers of options, no two of which cover one op.
    """

    base: Problem
    options: tuple[Option, ...]
    numbered: tuple[IntArray, ...] = ()
    """Ops that may be held to start one after the other, where no family says so.

    They are one op of every alike micro-batch, all of whose ops may be exchanged at once.
    """
    field: str = "options"
    """Key of the choice in the choices of a problem."""

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of ops of every choice: those of the base, then those of the options."""
        return tuple(
            dict.fromkeys((*self.base.kinds, *(option.kind for option in self.options)))
        )

    @cached_property
    def fastest(self) -> IntArray:
        """Least ticks that each op of the base takes, alone or by an option, int64[n]."""
        duration = self.base.duration.copy()
        for option in self.options:
            for op in option.ops:
                duration[op] = min(duration[op], option.duration)
        return duration

    @cached_property
    def slowest(self) -> IntArray:
        """Most ticks that each op of the base takes, alone or by an option it lends its labels."""
        duration = self.base.duration.copy()
        for option in self.options:
            first = option.ops[0]
            duration[first] = max(duration[first], option.duration)
        return duration

    @cached_property
    def covering(self) -> dict[int, list[int]]:
        """Numbers of the options that cover each op; an op that runs by itself only is absent."""
        numbers: dict[int, list[int]] = defaultdict(list)
        for number, option in enumerate(self.options):
            for op in option.ops:
                numbers[op].append(number)
        return dict(numbers)

    def allows(self, choice: IntArray) -> bool:
        """Return true if a choice is sorted, in range, and covers no op twice."""
        in_range = not len(choice) or (
            choice[0] >= 0 and choice[-1] < len(self.options)
        )
        if not in_range or np.any(np.diff(choice) <= 0):
            return False
        covered = [op for number in choice.tolist() for op in self.options[number].ops]
        return len(set(covered)) == len(covered)

    def places(self, choice: IntArray) -> IntArray:
        """Return the number that each op of the base has in the problem of a choice, int64[n]."""
        first = np.arange(self.base.num_ops)
        for number in choice.tolist():
            first[list(self.options[number].ops)] = self.options[number].ops[0]
        return np.asarray(
            (np.cumsum(first == np.arange(len(first))) - 1)[first], dtype=np.int64
        )

    def problem(self, choice: IntArray) -> Problem:
        """Return the problem of a choice, its ops in the order of those of the base.

        Families keep the rows of which no op is covered.
        """
        base, place = self.base, self.places(choice)
        chosen = [self.options[number] for number in choice.tolist()]
        kept, covered = (
            np.unique(place, return_index=True)[1],
            np.zeros(len(place), np.bool_),
        )
        columns: dict[str, Any] = {
            name: getattr(base, name)[kept]
            for name in COLUMNS
            if len(getattr(base, name))
        }
        np.maximum.at(columns["release"], place, base.release)
        held = [base.resources_of(op) for op in kept.tolist()]
        names = {int(place[op]): name for op, name in base.explicit_names.items()}
        for option in chosen:
            op = int(place[option.ops[0]])
            covered[list(option.ops)] = True
            columns["duration"][op] = option.duration
            columns["kind"][op] = self.kinds.index(option.kind)
            held[op], names[op] = (
                np.array(option.resources, dtype=np.int64),
                option.name,
            )
        before, after = place[base.before], place[base.after]
        apart = before != after
        rows = [family[~covered[family].any(axis=1)] for family in base.families]
        return replace(
            base,
            **columns,
            resource_ptr=np.concatenate(([0], np.cumsum([len(each) for each in held]))),
            resource_idx=np.concatenate([np.zeros(0, np.int64), *held]),
            before=before[apart],
            after=after[apart],
            lag=base.lag[apart],
            pools=tuple(
                _moved(n, pool, place, chosen) for n, pool in enumerate(base.pools)
            ),
            families=tuple(place[family] for family in rows if len(family) > 1),
            kinds=self.kinds,
            explicit_names=names,
            windows={int(place[op]): windows for op, windows in base.windows.items()},
            points=place[base.points],
            joined={
                int(place[option.ops[0]]): JoinedOps(
                    tuple(base.op_keys(option.ops)), tuple(base.op_names(option.ops))
                )
                for option in chosen
                if len(option.ops) > 1
            },
            choices={**base.choices, self.field: choice},
        )


def _moved(number: int, pool: Pool, number_of: IntArray, options: list[Option]) -> Pool:
    """Return a pool whose events are those of other ops; events of one op are summed."""
    extras = [(o.ops[0], share) for o in options for n, share in o.extra if n == number]
    columns = []
    for ops, index in (
        (pool.acquire_op, pool.acquire_amount),
        (pool.release_op, pool.release_amount),
    ):
        sums: dict[int, Fraction] = {}
        events = zip(
            ops.tolist(), (pool.amounts[i] for i in index.tolist()), strict=True
        )
        for op, amount in (*events, *extras):
            target = int(number_of[op])
            sums[target] = sums[target] + amount if target in sums else amount
        columns.append([(op, amount) for op, amount in sums.items() if amount])
    return pool.used_by(*columns)

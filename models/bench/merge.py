"""Several files of benchmark results as one."""

from __future__ import annotations

from collections.abc import Mapping

from ppsolve.models.bench.file import Records, with_machines_once
from ppsolve.models.bench.record import BenchRecord, Machine


def merged(files: Mapping[str, Records]) -> tuple[list[BenchRecord], list[str]]:
    """Return the records of all files, each key once, and how results of one key differ.

    A result is kept rather than a failure, else the record of the file named first.

    Parameters
    ----------
    files : mapping of str to Records
        Contents by name of the file.

    Returns
    -------
    records : list of BenchRecord
        In the order of their first keys, the first of each machine with its facts.
    differences : list of str
        A line for each record left out whose status, value, bound or failure is another.
    """
    kept: dict[str, tuple[str, BenchRecord]] = {}
    machines: dict[str, Machine] = {}
    differences = []
    for name, found in files.items():
        machines |= {key: one for key, one in found.machines.items() if key not in machines}
        for record in found.records:
            before = kept.setdefault(record.key, (name, record))
            if before[1].answer() != record.answer():
                chosen, other = _ordered(before, (name, record))
                kept[record.key] = chosen
                differences.append(_difference(chosen, other))
    records = (record for _, record in kept.values())
    return list(with_machines_once(records, machines)), differences


Named = tuple[str, BenchRecord]


def _ordered(one: Named, other: Named) -> tuple[Named, Named]:
    """Return both, the one to keep first."""
    is_better = one[1].failure is not None and other[1].failure is None
    return (other, one) if is_better else (one, other)


def _difference(kept: Named, other: Named) -> str:
    (kept_name, kept_record), (name, record) = kept, other
    parts = [
        f"{field} {mine} ({kept_name}) and {theirs} ({name})"
        for (field, mine), theirs in zip(
            kept_record.answer().items(), record.answer().values(), strict=True
        )
        if mine != theirs
    ]
    return f"{record.instance} ({record.key}) differs: {', '.join(parts)}; {kept_name} is kept"

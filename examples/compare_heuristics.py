"""Compare published schedules over shipped instances of one profile as memory grows."""

from pathlib import Path

import ppsolve

INSTANCES = Path(__file__).resolve().parents[1] / "instances" / "memory_scan"
HEURISTICS = ("1f1b", "zb-1p", "zb-h2", "list-backward-first")


def main() -> None:
    """Print one row per instance: the optimum, and the gap of each heuristic to it."""
    print(
        f"{'instance':14}{'value':>9} {'status':9}",
        *(f"{name:>20}" for name in HEURISTICS),
    )
    for capacity in (1.5, 3, 6):
        instance = ppsolve.load_instance(INSTANCES / f"scan-4x8-{capacity}.json")
        result = ppsolve.optimize(instance, time_limit=10, deterministic=True)
        entries = {entry.name: entry for entry in result.heuristics}
        cells = [_cell(entries[name]) for name in HEURISTICS]
        print(f"{instance.name:14}{result.value:>9} {result.status:9}", *cells)


def _cell(entry: ppsolve.HeuristicEntry) -> str:
    return f"{entry.status.value:>20}" if entry.gap is None else f"{entry.gap:>20.2%}"


if __name__ == "__main__":
    main()

"""Listen to a search: every heuristic, bound and schedule as it is found."""

from pathlib import Path

import ppsolve

INSTANCES = Path(__file__).resolve().parents[1] / "instances"


def tell(progress: ppsolve.Progress) -> None:
    """Print one event; a real listener might draw a chart or log it."""
    gap = "" if progress.gap is None else f"  gap {progress.gap:.2%}"
    figures = f"{progress.incumbent or '-':>8} {progress.bound or '-':>8}{gap}"
    print(f"{progress.event:10}{progress.source:20}{figures}")


def main() -> None:
    """Solve a shipped instance, reproducibly, and tell every event."""
    instance = ppsolve.load_instance(INSTANCES / "memory_scan" / "scan-4x8-3.json")
    result = ppsolve.optimize(
        instance, time_limit=10, deterministic=True, on_progress=tell
    )
    print(f"{result.status} because {result.stop_reason}")


if __name__ == "__main__":
    main()

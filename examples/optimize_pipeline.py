"""Optimize a pipeline that is described in Python, and print how far each heuristic is from it."""

import ppsolve


def main() -> None:
    """Solve four uneven stages under a memory cap and print the gap table."""
    instance = ppsolve.PipelineInstance(
        name="uneven",
        num_devices=4,
        num_microbatches=8,
        times={
            "forward": [100, 90, 90, 140],
            "backward_input": 95,
            "backward_weight": 60,
        },
        p2p={"latency": 5},
        memory={"capacity": 4, "activation": 1, "released_by_backward_weight": 0.43},
    )
    result = ppsolve.optimize(instance, time_limit=60)
    print(f"{result.instance}: {result.status}, {result.value} {result.time_unit}")
    print(
        f"no schedule is shorter than {result.bound}, says the bound {result.bound_by}"
    )
    print(f"{'heuristic':22}{'makespan':>9}{'gap':>12}")
    for entry in result.heuristics:
        if entry.makespan is not None:
            gap = entry.status.value if entry.gap is None else f"{entry.gap:.2%}"
            print(f"{entry.name:22}{entry.makespan:>9}{gap:>12}")


if __name__ == "__main__":
    main()

"""Hide K-FAC work in the bubbles of a 1F1B pipeline, in as few iterations as possible."""

import ppsolve


def main() -> None:
    """Print after how many iterations the factors are refreshed: PipeFisher's and the fewest."""
    work = {"curvature_a": 4, "curvature_b": 5, "inverse_a": 40, "inverse_b": 60}
    instance = ppsolve.parse_instance(
        {
            "kind": "kfac",
            "name": "bubbles",
            "time_unit": "ms",
            "pipeline": {
                "num_devices": 4,
                "num_microbatches": 8,
                "time_unit": "ms",
                "times": {"forward": 30, "backward": 60},
            },
            "modules": [
                {"stage": stage, "name": "block", **work} for stage in range(4)
            ],
            "pattern": "1f1b",
            "objective": "iterations",
        }
    )
    result = ppsolve.optimize(instance, time_limit=60)
    print(
        f"{result.instance}: {result.status}, a refresh takes {result.iterations} iterations"
    )
    print("per device:", result.iterations_of, "at least", result.bound_of)
    print("busy in percent:", [round(usage, 1) for usage in result.usage_of])
    for entry in result.heuristics:
        print(f"{entry.name:18} {entry.status:11} {entry.value or '-'} iterations")


if __name__ == "__main__":
    main()

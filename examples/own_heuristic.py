"""Heuristics of your own, checked and compared like the published ones."""

import ppsolve


def eager(instance: ppsolve.PipelineInstance, more: int = 1) -> list[list[str]]:
    """Keep one micro-batch more in flight than 1F1B, whatever the memory."""
    orders = []
    for stage in range(instance.num_devices):
        ahead = max(1, instance.num_devices - stage + more)
        orders.append(_alternating(stage, ahead, instance.num_microbatches))
    return orders


def lazy(instance: ppsolve.PipelineInstance) -> list[list[str]]:
    """Keep one micro-batch less in flight than 1F1B."""
    return eager(instance, more=-1)


def _alternating(stage: int, ahead: int, count: int) -> list[str]:
    """Return some forwards, then a backward and a forward in turn."""
    steps = [f"{stage}F{i}" for i in range(min(ahead, count))]
    for i in range(count):
        steps.append(f"{stage}B{i}")
        if i + ahead < count:
            steps.append(f"{stage}F{i + ahead}")
    return steps


def main() -> None:
    """Print both beside 1F1B and the optimum."""
    instance = ppsolve.PipelineInstance(
        num_devices=3,
        num_microbatches=6,
        times={"forward": [10, 12, 10], "backward": [20, 22, 24]},
        memory={"capacity": 3, "activation": 1},
    )
    result = ppsolve.optimize(instance, heuristics=["1f1b", eager, lazy], time_limit=20)
    print(f"{result.status}, {result.value} us")
    for entry in result.heuristics:
        gap = "" if entry.gap is None else f"{entry.gap:.2%}"
        print(f"{entry.name:16} {entry.status.value:10} {gap}{entry.reason or ''}")


if __name__ == "__main__":
    main()

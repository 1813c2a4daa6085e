"""Order the micro-batches of every training step, and share them among replicas."""

import random

import ppsolve
from ppsolve.models.kinds.pipeline.instance import PipelineInstance

REPLICAS, STAGES, MICROBATCHES = 2, 2, 4
LONGEST = 4096

PIPELINE = {
    "num_devices": STAGES,
    "num_microbatches": REPLICAS * MICROBATCHES,
    "time_unit": "ms",
    # An example of a step: memory has to hold for the longest sequences there are.
    "lengths": [LONGEST] * (REPLICAS * MICROBATCHES),
    "times": {
        "forward": {"per_token": 0.01, "per_square": 0.000001},
        "backward": {"per_token": 0.02, "per_square": 0.000002},
    },
    "memory": {"capacity": [2 * LONGEST, LONGEST], "activation": {"per_token": 1}},
    "replicas": {"count": REPLICAS, "assignment": "free"},
}


class OrderedBatches:
    """A data loader around another one: the same micro-batches, in better places."""

    def __init__(self, batches, scheduler):
        self.batches, self.scheduler = batches, scheduler

    def __iter__(self):
        """Yield, for each step, the answer and the micro-batches of every replica in order."""
        for batch in self.batches:
            answer = self.scheduler.schedule(
                lengths=list(map(len, batch)), deadline=0.2
            )
            yield (
                answer,
                [[batch[number] for number in those] for those in answer.assignment],
            )


def batches(steps):
    """Yield lists of token lists: the micro-batches of one step, as the sampler drew them."""
    draw = random.Random(0)
    for _ in range(steps):
        lengths = [draw.randint(256, LONGEST) for _ in range(REPLICAS * MICROBATCHES)]
        yield [[number] * length for number, length in enumerate(lengths)]


def main() -> None:
    """Print that every step trains on its own micro-batches, and ends in time."""
    scheduler = ppsolve.StepScheduler(PipelineInstance.parse(PIPELINE))
    given = list(batches(3))
    for batch, (answer, shares) in zip(
        given, OrderedBatches(given, scheduler), strict=True
    ):
        same = sorted(map(len, batch)) == sorted(
            len(row) for share in shares for row in share
        )
        print(f"the same micro-batches: {same}, within the bound: {answer.gap < 0.25}")


if __name__ == "__main__":
    main()

"""Profiles of one rank, event by event: launches, kernels, collectives, waits."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import count

from ppsolve.solver.formats.kineto.program import convert_kineto_overlap

COMPUTE, SIDE, COMM = 7, 9, 20


@dataclass
class Recording:
    """Events of a profile; each launch comes one microsecond of the CPU after the one before."""

    events: list[dict] = field(default_factory=list)
    number: count = field(default_factory=lambda: count(1))
    clock: int = 0

    def tick(self):
        self.clock += 1
        return self.clock - 1

    def call(self, name):
        number = next(self.number)
        args = {"correlation": number}
        event = {
            "ph": "X",
            "cat": "cuda_runtime",
            "name": name,
            "ts": self.tick(),
            "dur": 0.5,
        }
        self.events.append({**event, "pid": 1, "tid": 1, "args": args})
        return number

    def kernel(self, name, start, end, stream=COMPUTE, cat="kernel", **args):
        args |= {"correlation": self.call("cudaLaunchKernel"), "stream": stream}
        event = {"ph": "X", "cat": cat, "name": name, "ts": start, "dur": end - start}
        self.events.append({**event, "pid": 0, "tid": stream, "args": args})

    def collective(self, kind, start, end, stream=COMM, **args):
        args = {
            "Collective name": kind,
            "Process Group Name": "0",
            "Process Group Ranks": "[0, 1]",
            "In msg nelems": 8,
            "Out msg nelems": 16,
            "dtype": "BFloat16",
            **args,
        }
        args = {name: value for name, value in args.items() if value is not None}
        self.kernel(
            "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgs)",
            start,
            end,
            stream,
            **args,
        )

    def wait(self, stream, other):
        record = self.call("cudaEventRecord")
        self.sync("Stream Wait Event", stream, wait_on_stream=other, record=record)

    def sync(self, kind, stream, record=-1, **args):
        number = self.call("cudaStreamWaitEvent")
        args |= {"stream": stream, "correlation": number, "cuda_sync_kind": kind}
        args["wait_on_cuda_event_record_corr_id"] = record
        event = {
            "ph": "X",
            "cat": "cuda_sync",
            "name": kind,
            "ts": self.events[-1]["ts"],
        }
        self.events.append({**event, "dur": 0, "pid": 0, "tid": stream, "args": args})

    def step(self, number, begin, length):
        event = {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{number}"}
        self.events.append({**event, "ts": begin, "dur": length, "pid": 1, "tid": 1})

    def save(self, path, **fields):
        path.write_text(json.dumps({"traceEvents": self.events, **fields}))
        return path


def fsdp(events, shift=0, recording=None):
    """Record two layers: gathers beside compute, no gaps but those of waits; it ends at 110.

    gather A 0-30, embed 0-10, layer A 30-60 behind A; gather B 30-70; layer B 70-90 behind B;
    scatter 90-110 of what layer B made.
    """
    made = recording or Recording()

    def record(wait, *args):
        if events:
            made.wait(*args)
        return wait

    made.collective("_allgather_base", shift, shift + 30)
    made.kernel("void at::native::embed<float>(int)", shift, shift + 10)
    record(made, COMPUTE, COMM)
    made.collective("_allgather_base", shift + 30, shift + 70)
    made.kernel("gemm_a", shift + 30, shift + 60)
    record(made, COMPUTE, COMM)
    made.kernel("gemm_b", shift + 70, shift + 90)
    record(made, COMM, COMPUTE)
    made.collective("_reduce_scatter_base", shift + 90, shift + 110)
    record(made, COMPUTE, COMM)
    return made


def converted(tmp_path, made, *args, **fields):
    return convert_kineto_overlap([made.save(tmp_path / "run.json", **fields)], *args)


def deps_of(instance):
    return {node.name: node.deps for node in instance.nodes}


def executed(draw, lead):
    """Run random launches on streams as a GPU does; a call takes `lead` microseconds."""
    made, free, events = Recording(), {}, {}
    for _ in range(draw.randint(5, 25)):
        stream = draw.choice([COMPUTE, COMPUTE, COMM, 21])
        if draw.random() < 0.5:
            other = draw.choice(
                [each for each in (COMPUTE, COMM, 21) if each != stream]
            )
            made.wait(stream, other)
            events[stream] = max(events.get(stream, 0), free.get(other, 0))
        start = max(free.get(stream, 0), events.pop(stream, 0), lead * made.clock)
        free[stream] = start + draw.randint(1, 9)
        if stream == COMPUTE:
            made.kernel("gemm", start, free[stream])
        else:
            named = {"Process Group Name": str(draw.choice([1, 2]))}
            made.collective("allreduce_", start, free[stream], stream, **named)
    return made, max(free.values())


def ancestors(instance):
    """Return what each node waits for: by dependencies, and by the order of its group."""
    found = {}
    for place, node in enumerate(instance.nodes):
        direct = [instance.index_of[name] for name in node.deps]
        direct += [
            before
            for after, before in instance.previous_in_group.items()
            if after == place
        ]
        found[place] = set(direct).union(*(found[dep] for dep in direct))
    return {
        instance.nodes[place].name: {instance.nodes[dep].name for dep in deps}
        for place, deps in found.items()
    }

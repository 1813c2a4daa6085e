"""Quick questions from many clients at once: to a service, and to the library in as many processes.

    python benchmarks/serve_load.py --clients 8 --questions 500

Both ask for the same mixed pipelines, as documents, in turns of a tenth of the questions, so that
both meet what else the machine does. Answers have to be equal.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import ppsolve

TURNS = 10


def pipelines(seed: int, count: int) -> list[dict[str, Any]]:
    """Return pipelines of 2 x 4 to 8 x 64, a few shapes with new times each."""
    rng = random.Random(seed)
    shapes = [(2, 4), (4, 8), (4, 16), (8, 16), (8, 32), (8, 64)]
    made = []
    for number in range(count):
        devices, microbatches = rng.choice(shapes)
        placement = rng.choice(["linear", "interleaved", "vshape"])
        stages = devices * (1 if placement == "linear" else 2)
        halves = ("forward", "backward_input", "backward_weight")
        made.append(
            {
                "kind": "pipeline",
                "name": f"{seed}.{number}",
                "num_devices": devices,
                "num_microbatches": microbatches,
                "placement": placement,
                "times": {
                    name: [rng.randint(10, 99) for _ in range(stages)]
                    for name in halves
                },
                "p2p": {"latency": rng.choice([0, 3])},
                "memory": {
                    "capacity": rng.choice([1, 2]) * stages,
                    "activation": 1,
                },
            }
        )
    return made


def ask_library(_: int) -> Callable[[dict[str, Any]], Any]:
    """Return a function that answers in this process."""

    def ask(document: dict[str, Any]) -> Any:
        answer = ppsolve.quick(ppsolve.parse_instance(document))  # type: ignore[arg-type]
        return {**asdict(answer), "gap": answer.gap, "time_unit": "us"}

    return ask


def ask_service(port: int) -> Callable[[dict[str, Any]], Any]:
    """Return a function that asks the service."""
    connection = http.client.HTTPConnection("127.0.0.1", port)

    def ask(document: dict[str, Any]) -> Any:
        body = json.dumps({"instance": document})
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/quick", body, headers)
        return json.loads(connection.getresponse().read())

    return ask


def work(channel: Connection, asker: Any, port: int, seed: int, count: int) -> None:
    """Ask in turns, whenever told to, and send the answers and their times."""
    ask, documents = asker(port), pipelines(seed, count)
    for document in pipelines(-1, 100):
        ask(document)
    channel.send("ready")
    size = -(-count // TURNS)
    for first in range(0, count, size):
        channel.recv()
        answers, times, spent = [], [], time.process_time()
        for document in documents[first : first + size]:
            began = time.perf_counter()
            answers.append(ask(document))
            times.append(time.perf_counter() - began)
        channel.send((answers, times, time.process_time() - spent))


class Crowd:
    """Processes that ask, in turns."""

    def __init__(self, asker: Any, port: int, clients: int, questions: int) -> None:
        context = get_context("spawn")
        self.seconds = self.cpu = 0.0
        self.times: list[float] = []
        self.answers: list[Any] = []
        self._channels = []
        for seed in range(clients):
            ours, theirs = context.Pipe()
            arguments = (theirs, asker, port, seed, questions)
            context.Process(target=work, args=arguments, daemon=True).start()
            self._channels.append(ours)
        for channel in self._channels:
            channel.recv()

    def take_turn(self) -> None:
        """Let all ask the next part of their questions."""
        began = time.perf_counter()
        for channel in self._channels:
            channel.send("go")
        for channel in self._channels:
            answers, times, spent = channel.recv()
            self.cpu += spent
            self.answers += answers
            self.times += times
        self.seconds += time.perf_counter() - began


def cpu_of_tree(process: int) -> float:
    """Return the processor seconds of a process and of those below it, on Linux."""
    rows = {}
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="latin-1") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        ticks = int(fields[11]) + int(fields[12])
        rows[int(name)] = int(fields[1]), ticks / os.sysconf("SC_CLK_TCK")
    below, total = [process], 0.0
    while below:
        parent = below.pop()
        total += rows[parent][1]
        below += [pid for pid, (above, _) in rows.items() if above == parent]
    return total


def main() -> None:
    """Measure, and print one line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--questions", type=int, default=500)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    command = [sys.executable, "-m", "ppsolve", "serve", "--port", "0"]
    command += ["--workers", str(options.workers)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        port = int(service.stdout.readline().strip().rstrip("/").rpartition(":")[2])
        size = options.clients, options.questions
        library, asked = Crowd(ask_library, 0, *size), Crowd(ask_service, port, *size)
        before = cpu_of_tree(service.pid)
        for _ in range(TURNS):
            library.take_turn()
            asked.take_turn()
        own = cpu_of_tree(service.pid) - before
        service.terminate()
    # JSON has lists where the library has tuples.
    assert json.loads(json.dumps(library.answers)) == asked.answers
    count, times = len(asked.times), sorted(asked.times)
    print(
        f"{count} questions, answers equal; throughput {library.seconds / asked.seconds:.2f} "
        f"of the library's; p50 {1e3 * times[count // 2]:.1f} ms, "
        f"p99 {1e3 * times[count * 99 // 100]:.1f} ms; processor ms a question: "
        f"library {1e3 * library.cpu / count:.2f}, service {1e3 * own / count:.2f}, "
        f"clients {1e3 * asked.cpu / count:.2f}"
    )


if __name__ == "__main__":
    main()

"""Mutated files given to every command that reads files: what it answers, and how long it takes.

``python -m tests.cli.mutated_files --count 5000 --seed 1 --log FILE`` lets the program make files
of all kinds, mutates them, and runs a command on each. A mutation follows from the seed and its
number; ``--only NUMBER`` repeats one and prints its traceback, ``--keep FOLDER`` keeps its file.
Commands run in forked children: one that hangs, or ends its process, costs nothing but itself.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import json
import os
import random
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from ppsolve.solver.cli import guard
from ppsolve.solver.cli.guard import ExitCode
from ppsolve.solver.cli.main import COMMANDS, build, load
from tests.cli.mutated_commands import READING, SEEDS, SUFFIXES, Reading, Seed
from tests.documents.mutations import mutated_json, mutated_lines, mutated_text

BATCH = 40  # commands a child
GRACE = 1.0  # seconds beyond its limit within which a command has to end
HARD = 60.0  # seconds after which a command is ended
MEMORY = 6 * 2**30  # bytes of addresses that a child may take
ANY_FILE = (
    0.15  # share of mutations given to commands that do not expect a file of that kind
)

WITHOUT_FILES = {"schema", "convert megatron-layout", "explore"}
"""Commands whose argument is a word, and one that goes on until it is stopped."""

CODES = frozenset(ExitCode) - {
    ExitCode.INTERNAL,
    ExitCode.INTERRUPTED,
    ExitCode.BROKEN_PIPE,
}
"""What a command that nobody interrupts may return."""


@dataclass(frozen=True)
class Answer:
    """What a command did with a mutated file."""

    number: int
    argv: str
    code: int | None  # None where it was ended from outside
    seconds: (
        float  # the lesser of wall and processor time: other programs may be running
    )
    limit: float
    text: str  # what it wrote to stderr, and a traceback where there is one

    @property
    def fault(self) -> str | None:
        """What is wrong with the answer, None if nothing is."""
        if self.code is None:
            return "hang"
        defects = ("internal error", '"code": "internal"', "Traceback")
        if any(words in self.text for words in defects):
            return "internal error"
        if "Warning: " in self.text:
            return "warning of a library"
        # `bench run` ends so where an item failed.
        has_failed_items = self.code == ExitCode.INTERNAL and self.argv.startswith(
            "bench run "
        )
        if self.code not in CODES and not has_failed_items:
            return f"exit code {self.code}"
        if self.code == ExitCode.USAGE and not any(
            words in self.text for words in ("rror: ", '{"error": ')
        ):
            return "no error"
        return None

    @property
    def is_late(self) -> bool:
        """Whether the command went beyond its limit by more than a second."""
        return self.code is None or self.seconds > self.limit + GRACE


def reading_commands() -> Iterator[str]:
    """Yield the names of all commands that take a file, as the program lists them."""
    for name in COMMANDS:
        yield from _file_commands(name, load(name))


def _file_commands(name: str, command: Any) -> Iterator[str]:
    for child, nested in getattr(command, "commands", {}).items():
        yield from _file_commands(f"{name} {child}", nested)
    has_argument = any(one.param_type_name == "argument" for one in command.params)
    if has_argument and name not in WITHOUT_FILES:
        yield name


class Folder:
    """The files to mutate, made once by the program, and the commands run on their mutations."""

    def __init__(
        self,
        path: Path,
        seeds: tuple[Seed, ...] = SEEDS,
        seed: int = 0,
        commands: tuple[Reading, ...] = READING,
    ) -> None:
        self.path, self.seed, self.commands = path, seed, commands
        self.files: list[tuple[str, Path]] = []
        for one in seeds:
            self._make(one)
        by_role: dict[str, list[Path]] = {}
        for role, file in self.files:
            by_role.setdefault(role, []).append(file)
        self.by_role = by_role

    def _make(self, one: Seed) -> None:
        origin = self.path / f"{one.name}.{one.suffix}"
        match one.source:
            case Path():
                origin.write_text(one.source.read_text())
            case str():
                origin.write_text(one.source)
            case _:
                origin.write_text(json.dumps(one.source))
        self.files.append((one.role, origin))
        made_of = {"file": origin}
        for role, arguments in one.derived.items():
            made = self.path / f"{one.name}.{role}.{SUFFIXES.get(role, 'json')}"
            words = [word.format(**made_of, out=made) for word in arguments.split()]
            done = CliRunner().invoke(build(), words)
            assert made.exists(), (words, done.exit_code, done.output)
            made_of[role] = made
            self.files.append((role, made))

    def mutation(self, number: int, folder: Path) -> tuple[Reading, list[str]]:
        """Write the mutated file of a number and return the command that reads it."""
        rng = random.Random(f"{self.seed}:{number}")
        roles = sorted(self.by_role)
        role = rng.choices(roles, [len(self.by_role[one]) ** 0.7 for one in roles])[0]
        origin = rng.choice(self.by_role[role])
        suited = [one for one in self.commands if role in one.roles]
        is_any = not suited or rng.random() < ANY_FILE
        reading = rng.choice(self.commands if is_any else suited)
        file = folder / f"mutated{origin.suffix}"
        mutated = {".json": mutated_json, ".jsonl": mutated_lines}.get(
            origin.suffix, mutated_text
        )
        file.write_text(mutated(origin.read_text(), rng))
        # A result's instance, for commands that take both; else the file itself.
        instance = self.path / f"{origin.name.split('.')[0]}.json"
        result = self.path / f"{origin.name.split('.')[0]}.{role}-result.json"
        names = {
            "file": file,
            "origin": origin,
            "out": folder / "out",
            "dir": folder / "made",
        }
        names |= {"instance": instance, "result": result if result.exists() else origin}
        return reading, [word.format(**names) for word in reading.argv]

    def answers(self, numbers: list[int]) -> Iterator[Answer]:
        """Run the commands of mutations and yield what each did."""
        numbers = list(numbers)
        while numbers:
            count = 0
            for answer in self._batch(numbers[:BATCH]):
                count += 1
                yield answer
            numbers = numbers[count:]

    def _batch(self, numbers: list[int]) -> Iterator[Answer]:
        """Run mutations in one child; the last answer is the one that ended it, if one did."""
        folder = Path(tempfile.mkdtemp(dir=self.path))
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.close(reader)
            _Child(self, folder, writer).run(numbers)
        os.close(writer)
        try:
            yield from self._collected(child, reader, numbers, folder)
        finally:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(reader)
            shutil.rmtree(folder, ignore_errors=True)

    def _collected(
        self, child: int, reader: int, numbers: list[int], folder: Path
    ) -> Iterator[Answer]:
        pending, done = b"", 0
        while done < len(numbers):
            ready, _, _ = select.select([reader], [], [], HARD)
            data = os.read(reader, 1 << 16) if ready else b""
            pending += data
            *lines, pending = pending.split(b"\n")
            for line in lines:
                done += 1
                yield Answer(**json.loads(line))
            if not data:
                if not ready:
                    os.kill(child, signal.SIGUSR1)  # the child writes where it is
                    time.sleep(1)
                reading, argv = self.mutation(numbers[done], folder)
                stack = folder / "stack"
                text = stack.read_text() if stack.exists() else ""
                why = "hang" if not ready else "the process ended"
                code = -1 if ready else None
                yield Answer(
                    numbers[done],
                    " ".join(argv),
                    code,
                    HARD,
                    reading.limit,
                    f"{why}\n{text}",
                )
                return


class _Child:
    """Runs commands in a forked process and writes an answer a line."""

    def __init__(self, folder: Folder, path: Path, writer: int) -> None:
        self.folder, self.path, self.writer = folder, path, writer

    def run(self, numbers: list[int]) -> None:
        try:
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            warnings.simplefilter("always")
            stack = (self.path / "stack").open("w")
            faulthandler.register(signal.SIGUSR1, file=stack)
            os.chdir(self.path)
            guard._report_internal = _report_with_traceback
            for number in numbers:
                line = json.dumps(self.answer(number)) + "\n"
                os.write(self.writer, line.encode())
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    def answer(self, number: int) -> dict[str, Any]:
        """Run the command of a mutation."""
        reading, argv = self.folder.mutation(number, self.path)
        wall, processor = time.monotonic(), time.process_time()
        done = CliRunner().invoke(build(), argv)
        seconds = min(time.monotonic() - wall, time.process_time() - processor)
        text = done.stderr
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            text += "Traceback\n" + "".join(traceback.format_exception(done.exception))
        return {
            "number": number,
            "argv": " ".join(argv),
            "code": done.exit_code,
            "seconds": seconds,
            "limit": reading.limit,
            "text": text[-6000:],
        }


def _report_with_traceback(error: Exception, *, with_traceback: bool) -> None:
    sys.stderr.write(f"internal error: {traceback.format_exc()}")


def main() -> int:
    """Run mutations, print what is wrong, and return 1 if anything is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--keep", type=Path, help="put the file of --only here")
    asked = parser.parse_args()
    _load_all()
    with tempfile.TemporaryDirectory() as name:
        folder = Folder(Path(name), seed=asked.seed)
        numbers = list(range(asked.count)) if asked.only is None else [asked.only]
        if asked.keep is not None:
            asked.keep.mkdir(exist_ok=True)
            print(folder.mutation(numbers[0], asked.keep)[1])
        return _report(folder.answers(numbers), asked)


def _load_all() -> None:
    """Load what children need, before they are forked."""
    import matplotlib

    matplotlib.use("agg")
    for name in ("matplotlib.pyplot", "ortools.sat.python.cp_model"):
        importlib.import_module(name)
    for name in COMMANDS:
        load(name)


def _report(answers: Iterator[Answer], asked: argparse.Namespace) -> int:
    faults: Counter[str] = Counter()
    codes: Counter[str] = Counter()
    late: list[Answer] = []
    commands: Counter[str] = Counter()
    for answer in answers:
        commands[_command_of(answer.argv)] += 1
        codes[str(answer.code)] += 1
        if answer.fault is not None:
            faults[answer.fault] += 1
            print(
                f"--- {answer.number}: {answer.fault}: {answer.argv}\n{answer.text[-2500:]}"
            )
        elif answer.is_late:
            late.append(answer)
            print(f"--- {answer.number}: late: {answer.seconds:.1f} s: {answer.argv}")
        elif asked.only is not None:
            print(answer.code, f"{answer.seconds:.2f} s", answer.argv, answer.text)
        sys.stdout.flush()
    total = sum(codes.values())
    lines = [
        f"seed {asked.seed}: {total} mutations, {len(commands)} commands",
        f"faults {dict(faults)}, beyond its limit by more than {GRACE:g} s: {len(late)}",
        f"exit codes {dict(codes.most_common())}",
        f"commands {dict(commands.most_common())}",
    ]
    print("\n".join(lines))
    if asked.log is not None:
        with asked.log.open("a") as stream:
            stream.write("\n".join(lines) + "\n\n")
    return 1 if faults or late else 0


def _command_of(argv: str) -> str:
    known = sorted(reading_commands(), key=len, reverse=True)
    return next((name for name in known if argv.startswith(name)), argv.split()[0])


if __name__ == "__main__":
    sys.exit(main())

"""The text of one function in LLVM's language, and the values in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

INT, POINTER = "i64", "ptr"
"""Kinds of numbers, by LLVM's names. Truth is an `INT`, 0 or 1."""


class UntranslatableError(Exception):
    """A kernel uses something that has no translation; kernels are written without it."""


class NoSourceError(UntranslatableError):
    """The text of a kernel is not here, as in programs that are shipped without it."""


@dataclass(frozen=True)
class Number:
    """A constant, or a register."""

    text: str
    kind: str = INT


@dataclass(frozen=True)
class Slot:
    """A number in memory, which LLVM turns into registers."""

    text: str
    kind: str


@dataclass(frozen=True)
class Array:
    """An int64 array: the address of its first number, and how many there are."""

    pointer: Number | Slot
    length: Number | Slot


@dataclass(frozen=True)
class Record:
    """A named tuple; or a tuple, which has no names."""

    names: tuple[str, ...]
    items: tuple[Value, ...]


Value: TypeAlias = Number | Slot | Array | Record


FAULT = "fault"
"""Kind of the last layout of checked code: an address to which a kernel writes what was wrong, as
the address of a text and two numbers."""


@dataclass(frozen=True)
class ArgumentLayout:
    """How an argument is passed, in words of 64 bits.

    A number is passed as it is, an array (`POINTER`) as address and length, a "record" as the
    address of the words of all fields.
    """

    kind: str
    names: tuple[str, ...] = ()  # of the fields of a record
    fields: tuple[ArgumentLayout, ...] = ()


def layout_of(value: Any) -> ArgumentLayout:
    """Return the layout of an argument, and of all like it.

    An `UntranslatableError` says that it, or a field of it, is a float.
    """
    if isinstance(value, np.ndarray):
        return ArgumentLayout(POINTER)
    if isinstance(value, tuple):
        return ArgumentLayout(
            "record", getattr(value, "_fields", ()), tuple(map(layout_of, value))
        )
    if isinstance(value, float):
        raise UntranslatableError(f"the float {value}")
    return ArgumentLayout(INT)


class Body:
    """Blocks of instructions, each of which ends with a jump; slots are made at the beginning.

    `fault`: register with the address that `FAULT` stands for; empty where nothing is
        checked.
    `descriptions`: name of each text that is written there.
    """

    def __init__(self) -> None:
        self.fault = ""
        self.descriptions: dict[str, str] = {}
        self.opening: list[str] = []
        self.lines: list[str] = []
        self.is_open = True
        self._count = 0

    def fresh(self, letter: str) -> str:
        """Return a name that nothing has."""
        self._count += 1
        return f"{letter}{self._count}"

    def emit(self, operation: str) -> str:
        """Add an operation; return the register with its result."""
        register = f"%{self.fresh('r')}"
        self.lines.append(f"{register} = {operation}")
        return register

    def run(self, instruction: str) -> None:
        """Add an instruction without a result."""
        self.lines.append(instruction)

    def begin(self, label: str) -> None:
        """Begin a block, which follows the one before where that is still open."""
        self.jump(label)
        self.lines.append(f"{label}:")
        self.is_open = True

    def jump(self, label: str) -> None:
        """End the block: go on at a label."""
        if self.is_open:
            self.lines.append(f"br label %{label}")
            self.is_open = False

    def fork(self, truth: str, yes: str, no: str) -> None:
        """End the block: go on at one of two labels, as a register or constant of one bit says."""
        self.lines.append(f"br i1 {truth}, label %{yes}, label %{no}")
        self.is_open = False

    def refuse(self, truth: str, description: str, first: str, second: str) -> None:
        """Let checked code end where the register `truth` says that something is wrong.

        The description is the name of the error, a space, and what is wrong where. The caller is
        told two constants or registers too.
        """
        wrong, fine = self.fresh("l"), self.fresh("l")
        self.fork(truth, wrong, fine)
        self.begin(wrong)
        text = self.descriptions.setdefault(description, f"@{self.fresh('t')}")
        for index, word in enumerate((f"ptr {text}", f"i64 {first}", f"i64 {second}")):
            address = self.emit(
                f"getelementptr inbounds i64, ptr {self.fault}, i64 {index}"
            )
            self.run(f"store {word}, ptr {address}")
        self.run("ret i64 0")
        self.is_open = False
        self.begin(fine)

    def slot(self, kind: str) -> Slot:
        """Return room for a number."""
        name = f"%{self.fresh('s')}"
        self.opening.append(f"{name} = alloca {kind}")
        return Slot(name, kind)

    def slots(self, value: Value) -> Value:
        """Return room for a value."""
        if isinstance(value, Array):
            return Array(self.slot(value.pointer.kind), self.slot(value.length.kind))
        if isinstance(value, Record):
            return Record(value.names, tuple(map(self.slots, value.items)))
        return self.slot(value.kind)

    def read(self, value: Value) -> Number:
        """Return a number, out of memory if it is there."""
        if isinstance(value, Slot):
            return Number(self.emit(f"load {value.kind}, ptr {value.text}"), value.kind)
        if isinstance(value, Number):
            return value
        raise UntranslatableError("an array or a record in place of a number")

    def settle(self, value: Value) -> Value:
        """Return a value as it is now, whatever is written to its slots later."""
        if isinstance(value, Array):
            return Array(self.read(value.pointer), self.read(value.length))
        if isinstance(value, Record):
            return Record(value.names, tuple(map(self.settle, value.items)))
        return self.read(value)

    def store(self, room: Value, value: Value) -> None:
        """Write a value into slots; an `UntranslatableError` says that their shapes differ."""
        if isinstance(room, Array) and isinstance(value, Array):
            self.store(room.pointer, value.pointer)
            self.store(room.length, value.length)
        elif (
            isinstance(room, Record)
            and isinstance(value, Record)
            and room.names == value.names
        ):
            for inner, item in zip(room.items, value.items, strict=True):
                self.store(inner, item)
        elif isinstance(room, Slot):
            self.lines.append(
                f"store {room.kind} {self.read(value).text}, ptr {room.text}"
            )
        else:
            raise UntranslatableError("a name stands for values of two types")

    def whole(self, truth: str) -> Number:
        """Return truth as a number, 0 or 1."""
        return Number(self.emit(f"zext i1 {truth} to i64"))

"""Object files of kernels: made by LLVM, loaded, and called with arrays."""

from __future__ import annotations

import builtins
import ctypes
import hashlib
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from ppsolve.solver.kernels.cache import store, stored
from ppsolve.solver.kernels.native.body import FAULT, POINTER, ArgumentLayout, layout_of
from ppsolve.solver.kernels.native.translate import SYMBOL, translate

llvm.initialize_native_target()
llvm.initialize_native_asmprinter()


def machine_code(
    function: Any,
    arguments: tuple[Any, ...],
    callees: set[Callable[..., Any]],
    may_make: bool = True,
    is_checked: bool = False,
) -> MachineCode | None:
    """Return a kernel as machine code, from the cache if it is there.

    The arguments are those of one call; those of all others must be alike. The kernel may call the
    callees. Where the cache does not have it, it is compiled, or None where that may not be.
    Checked code, which checks indices and operands, is neither taken from the cache nor kept in it.
    An `UntranslatableError` says that the kernel uses something that has no translation.
    """
    layouts = [layout_of(value) for value in arguments]
    returns = str(function.__annotations__.get("return")) != "None"
    if is_checked:
        layouts.append(ArgumentLayout(FAULT))
        return CheckedCode(
            object_of(translate(function, layouts, callees)), layouts, returns
        )
    key = _key(function, layouts)
    code = stored(function.__name__, key)
    if code is None:
        if not may_make:
            return None
        code = object_of(translate(function, layouts, callees))
        store(function.__name__, key, code)
    return MachineCode(code, layouts, returns)


def _key(function: FunctionType, layouts: Sequence[ArgumentLayout]) -> str:
    """Return a hash of what the machine code depends on beside the package's text."""
    code = function.__code__
    text = (code.co_code, code.co_consts, code.co_names, function.__module__, layouts)
    processor = f"{llvm.get_process_triple()} {llvm.get_host_cpu_name()}"
    features = llvm.get_host_cpu_features().flatten()
    return hashlib.sha256(f"{text!r} {processor} {features}".encode()).hexdigest()[:16]


def _target() -> Any:
    """Return the machine that runs this; each engine owns one."""
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=2,
        reloc="default",
        codemodel="jitdefault",
        jit=True,
    )


def object_of(text: str) -> bytes:
    """Return the object file of a module in LLVM's language."""
    target = _target()
    module = llvm.parse_assembly(text)
    tuning = llvm.create_pipeline_tuning_options(speed_level=2)
    tuning.loop_vectorization = tuning.slp_vectorization = False
    builder = llvm.create_pass_builder(target, tuning)
    builder.getModulePassManager().run(module, builder)
    return target.emit_object(module)


class MachineCode:
    """A kernel in memory, ready to be called.

    `code` is the object file, `layouts` say how arguments are passed.
    """

    def __init__(
        self, code: bytes, layouts: Sequence[ArgumentLayout], returns: bool
    ) -> None:
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target())
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()
        address = self._engine.get_function_address(SYMBOL)
        self._function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(address)
        self._layouts, self._returns = layouts, returns
        self._last: list[tuple[Any, Any, int]] = [(None, None, 0)] * len(layouts)

    def __call__(self, *arguments: Any) -> int | None:
        """Run the kernel; it lets go of Python's interpreter lock."""
        words: list[int] = []
        kept: list[Any] = []
        copies: list[tuple[Any, Any]] = []
        for index, (value, layout) in enumerate(
            zip(arguments, self._layouts, strict=True)
        ):
            if layout.kind != "record":
                _append(words, value, layout, kept, copies)
                continue
            record, block, address = self._last[index]
            if record is not value:
                record, block, address = value, *_block(value, layout, kept, copies)
                if not copies:
                    self._last[index] = value, (block, *kept), address
            kept.append(block)
            words.append(address)
        answer = self._function((ctypes.c_int64 * len(words))(*words))
        for original, copy in copies:
            if original.flags.writeable:
                original[...] = copy
        return int(answer) if self._returns else None


class CheckedCode(MachineCode):
    """A kernel that looks at each index and operand before it uses it."""

    def __call__(self, *arguments: Any) -> int | None:
        """Run the kernel; raise Python's error if an index or operand is out of range.

        Arrays are as they were written until then.
        """
        fault = np.zeros(3, dtype=np.int64)
        answer = super().__call__(*arguments, fault.ctypes.data)
        if fault[0]:
            text = ctypes.string_at(int(fault[0])).decode()
            kernel, error, location = text.split(" ", 2)
            words = (
                "index {}, length {}" if error == "IndexError" else "operands {} and {}"
            )
            numbers = words.format(*fault[1:].tolist())
            raise getattr(builtins, error)(f"kernel {kernel}: {location}: {numbers}")
        return answer


def _block(
    record: Any, layout: ArgumentLayout, kept: list[Any], copies: list[Any]
) -> tuple[Any, int]:
    """Return the words of a record, and their address."""
    words: list[int] = []
    for value, field in zip(record, layout.fields, strict=True):
        _append(words, value, field, kept, copies)
    block = (ctypes.c_int64 * len(words))(*words)
    return block, ctypes.addressof(block)


def _append(
    words: list[int],
    value: Any,
    layout: ArgumentLayout,
    kept: list[Any],
    copies: list[Any],
) -> None:
    """Add the words of an argument; `kept` must outlive the call, `copies` be written back."""
    if layout.kind == POINTER:
        face = value.__array_interface__
        if face["strides"] is not None or face["typestr"] != "<i8":
            copy = np.array(value, dtype=np.int64, order="C")
            copies.append((value, copy))
            face = copy.__array_interface__
        words += (face["data"][0], face["shape"][0])
    elif layout.kind == "record":
        block, address = _block(value, layout, kept, copies)
        kept.append(block)
        words.append(address)
    else:
        words.append(int(value))

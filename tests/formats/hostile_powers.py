"""Pickles that reach for the powers of Python's unpickler, or for more than it can bear."""

from __future__ import annotations

import struct

from tests.formats.hostile_pickles import (
    array,
    dtype,
    labelled,
    short_text,
    some_bytes,
    stack_name,
    whole,
)

DEEP = b")" + b"\x85" * 100_000
SCALAR = stack_name(b"numpy.core.multiarray", b"scalar")
BARE_DTYPE = stack_name(b"numpy", b"dtype") + short_text(b"i8") + b"\x89\x88\x87R"
MANY_DIGITS = b"9" * 5000

POWERS: dict[str, tuple[bytes, str]] = {
    # What Python's BUILD does: call __setstate__, update __dict__, set attributes.
    "attributes of a name": (
        whole(SCALAR + b"N}" + short_text(b"_value_") + b"K\x01s\x86b"), "sets another state"
    ),
    "attributes of a dtype": (
        whole(BARE_DTYPE + b"}" + short_text(b"order") + short_text(b"<") + b"sb"),
        "sets another state",
    ),
    "reducer of a dtype": (
        whole(BARE_DTYPE + b"}" + short_text(b"__reduce__") + SCALAR + b"sb"), "sets another state"
    ),
    "slots of a dtype": (
        whole(BARE_DTYPE + b"N}" + short_text(b"code") + short_text(b"O8") + b"s\x86b"),
        "sets another state",
    ),
    "class of a dtype": (
        whole(BARE_DTYPE + b"}" + short_text(b"__class__") + SCALAR + b"sb"), "sets another state"
    ),
    "function as a state": (
        whole(BARE_DTYPE + b"}" + short_text(b"__setstate__") + stack_name(b"builtins", b"exec")
              + b"sb"),
        "names builtins.exec",
    ),
    "state of a scalar": (
        whole(SCALAR + dtype() + some_bytes(bytes(8)) + b"\x86R}b"), "sets another state"
    ),
    "byte order of two bytes": (
        whole(dtype(state=b"(K\x03" + short_text(b"|")
                    + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb")),
        "sets another state",
    ),
    # What REDUCE calls.
    "text that reads like a name": (whole(short_text(b"numpy.dtype") + b")R"), "calls a value in"),
    "pair that reads like a name": (
        whole(short_text(b"numpy") + short_text(b"dtype") + b"\x86)R"), "calls a value in"
    ),
    "dtype called": (whole(BARE_DTYPE + b")R"), "calls a value in another way"),
    "array called": (whole(array(b"K\x01\x85", some_bytes(bytes(8))) + b")R"), "calls a value in"),
    "list of arguments": (
        whole(SCALAR + b"](" + dtype() + some_bytes(bytes(8)) + b"eR"), "calls numpy's scalar in"
    ),
    "scalar of an array": (
        whole(SCALAR + dtype() + array(b"K\x01\x85", some_bytes(bytes(8))) + b"\x86R"),
        "without bytes",
    ),
    "scalar without bytes": (whole(SCALAR + dtype() + b"N\x86R"), "without bytes"),
    "dtype of two": (
        whole(stack_name(b"numpy", b"dtype") + short_text(b"i8,i8") + b"\x89\x88\x87R"),
        "got dtype 'i8,i8'",
    ),
    "dtype with an order": (
        whole(stack_name(b"numpy", b"dtype") + short_text(b"<i8") + b"\x89\x88\x87R"),
        "got dtype '<i8'",
    ),
    # What names resolve.
    "dotted path to a known name": (
        whole(stack_name(b"numpy", b"core.multiarray.scalar")), "names numpy.core.multiarray.scalar"
    ),
    "attribute of a known name": (
        whole(stack_name(b"numpy._core.multiarray", b"scalar.__self__")), "scalar.__self__"
    ),
    "empty module": (whole(stack_name(b"", b"numpy.dtype")), "names .numpy.dtype"),
    "empty name": (whole(stack_name(b"numpy.dtype", b"")), "names numpy.dtype."),
    "relative module": (whole(stack_name(b".os", b"system")), "names .os.system"),
    "wide letters": (
        whole(stack_name("\N{FULLWIDTH LATIN SMALL LETTER N}umpy".encode(), b"dtype")),
        "umpy.dtype; only",
    ),
    "known name in two halves": (b"c\nnumpy dtype\n.", "GLOBAL at byte 0 has a line of another"),
    "name with escapes": (b"cnum\\x70y\ndtype\n.", "GLOBAL at byte 0 has a line of another form"),
    "name that Python 2 had": (b"c__builtin__\nreduce\n.", "names __builtin__.reduce"),
    "module that Python 2 had": (b"ccPickle\nloads\n.", "names cPickle.loads"),
    "names from the memo": (
        whole(b"(" + short_text(b"os") + b"\x94" + short_text(b"system")
              + b"\x94h\x00h\x01\x93t"),
        "names os.system",
    ),
    "name that is deep": (whole(DEEP + short_text(b"a") + b"\x93"), "STACK_GLOBAL requires str"),
    # NEWOBJ and its like, of names that are known.
    "NEWOBJ_EX with keywords": (
        whole(stack_name(b"numpy", b"ndarray") + b")}" + short_text(b"shape") + b"K\x01s\x92"),
        "uses NEWOBJ_EX",
    ),
    "NEWOBJ of a text": (whole(short_text(b"a") + b")\x81"), "uses NEWOBJ"),
    "items of a set": (whole(b"](K\x01\x90"), "uses ADDITEMS"),
    "text with escapes": (b"S'\\z'\n.", "uses STRING at byte 0"),
    "text of Python 2": (b"T\xff\xff\xff\xffa.", "uses BINSTRING"),
}  # fmt: skip

GIANTS: dict[str, tuple[bytes, str]] = {
    "INT of many digits": (b"I" + MANY_DIGITS + b"\n.", "INT at byte 0 has a line of another form"),
    "LONG of many digits": (b"L-" + MANY_DIGITS * 200 + b"L\n.", "LONG at byte 0 has a line"),
    "PUT of many digits": (b"Np" + MANY_DIGITS + b"\n.", "PUT at byte 1 has a line of another"),
    "GET of many digits": (b"g" + MANY_DIGITS + b"\n.", "GET at byte 0 has a line of another form"),
    "FLOAT of many digits": (b"F" + MANY_DIGITS + b"\n.", "FLOAT at byte 0 has a line of another"),
    "GLOBAL of many letters": (b"c" + b"a" * 10**6 + b"\nb\n.", "GLOBAL at byte 0 has a line of"),
    "octal INT": (b"I0o17\n.", "has a line of another form"),
    "INT with a plus": (b"I+5\n.", "has a line of another form"),
    "INT with a blank": (b"I 5\n.", "has a line of another form"),
    "INT with a zero before it": (b"I005\n.", "has a line of another form"),
    "FLOAT with marks": (b"F1_0\n.", "has a line of another form"),
    "FLOAT with two points": (b"F1.2.3\n.", "FLOAT at byte 0 has a line"),
    "FLOAT that is endless": (b"}Va\n](F1e999\nF1\ntas.", "a[0]: expected a finite number"),
    "LONG4 of a million bytes": (
        whole(b"\x8b" + struct.pack("<i", 10**6) + bytes(10**6)), "numbers of at most 16 bytes"
    ),
    "LONG1 of 17 bytes": (whole(b"\x8a\x11" + bytes(17)), "numbers of at most 16 bytes"),
    "BYTEARRAY8 beyond all memory": (
        whole(b"\x96" + struct.pack("<Q", 2**63 - 1), protocol=5), "BYTEARRAY8 at byte 2: expected"
    ),
    "BYTEARRAY8 beyond the largest size": (
        whole(b"\x96" + struct.pack("<Q", 2**63), protocol=5), "byte count > sys.maxsize"
    ),
    "BYTEARRAY8 beyond its frame": (
        whole(b"\x95\x0b" + bytes(7) + b"\x96\x04" + bytes(7) + bytes(4), protocol=5),
        "crosses the end of its frame",
    ),
    "items of a BYTEARRAY8": (
        whole(b"\x96" + bytes(8) + b"(K\x01e", protocol=5), "appends to what is no list"
    ),
    "frames that hold frames": (
        b"\x80\x04" + b"".join(b"\x95" + struct.pack("<Q", 9 * k + 2) for k in range(99, -1, -1))
        + b"N.",
        "a new frame before end of current frame",
    ),
    "item of a list by place": (whole(b"]NaK\x00Ns"), "sets items of what is no dict"),
    "item of a name": (whole(SCALAR + short_text(b"a") + b"Ns"), "sets items of what is no dict"),
    "item of a text": (whole(short_text(b"a") + b"K\x00Ns"), "sets items of what is no dict"),
    # To hash or show a value that is nested deeply takes the process down.
    "key that is deep": (whole(b"}" + DEEP + b"Ns"), "expected texts as keys of a dict"),
    "key that is deep, in DICT": (whole(b"(" + DEEP + b"Nd"), "expected texts as keys of a dict"),
    "shape that is deep": (
        whole(array(DEEP + b"\x85", some_bytes(bytes(8)))), "is no tuple of whole numbers"
    ),
    "state that is deep": (whole(BARE_DTYPE + DEEP + b"b"), "sets another state"),
    "arguments that are deep": (whole(SCALAR + DEEP + b"R"), "calls numpy's scalar in another way"),
    "payload that is deep": (whole(array(b"K\x01\x85", DEEP)), "or without bytes"),
    "rows of nothing": (
        whole(labelled(array(b"J\x40\x42\x0f\x00K\x00\x86", some_bytes(b"")))),
        "call_forward: expected a list of (start, end), got an array (1000000, 0)",
    ),
    "memo place after the last": (
        whole(b"Nr" + struct.pack("<I", 300_001)), "expected memo places from 0 to 300000"
    ),
    "memo places": (whole(b"]" + b"N\x94a" * 200_000), "at most 300000 opcodes"),
    "array again and again": (
        whole(b"}(" + short_text(b"a") + array(b"J\x40\x0d\x03\x00K\x02\x86",
              b"B" + struct.pack("<I", 400_000) + bytes(400_000), dtype(b"i1", b"(K\x03"
              + short_text(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb")) + b"\x94"
              + b"".join(short_text(b"b%d" % k) + b"h\x00" for k in range(1000)) + b"u"),
        "at most 500000 entries, counted as often as they are referred to",
    ),
}  # fmt: skip

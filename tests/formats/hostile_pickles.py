"""Hostile, broken and oversized pickles by kind, each with what its refusal says."""

from __future__ import annotations

import pickle
import struct
from collections import OrderedDict
from typing import Any

import numpy as np

SMALL = {
    "start_end": [(0, 10)],
    "call_forward": [(1, 2), (3, 4)],
    "call_backward": [(5, 6)],
}


def short_text(text: bytes) -> bytes:
    return b"\x8c" + bytes([len(text)]) + text


def whole(*parts: bytes, protocol: int = 4) -> bytes:
    return b"\x80" + bytes([protocol]) + b"".join(parts) + b"."


def stack_name(module: bytes, name: bytes) -> bytes:
    return short_text(module) + short_text(name) + b"\x93"


def called(module: bytes, name: bytes, argument: bytes) -> bytes:
    return stack_name(module, name) + argument + b"\x85R"


def labelled(value: bytes) -> bytes:
    return b"}" + short_text(b"call_forward") + value + b"s"


def dtype(code: bytes = b"i8", state: bytes = b"") -> bytes:
    plain = (
        b"(K\x03" + short_text(b"<") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    )
    return (
        stack_name(b"numpy", b"dtype")
        + short_text(code)
        + b"\x89\x88\x87R"
        + (state or plain)
    )


def some_bytes(payload: bytes) -> bytes:
    return b"C" + bytes([len(payload)]) + payload


def array(shape: bytes, payload: bytes, kind: bytes | None = None) -> bytes:
    made = stack_name(b"numpy.core.multiarray", b"_reconstruct")
    made += (
        stack_name(b"numpy", b"ndarray") + b"K\x00\x85" + some_bytes(b"b") + b"\x87R"
    )
    return made + b"(K\x01" + shape + (kind or dtype()) + b"\x89" + payload + b"tb"


class Reduced:
    """Pickles as a call of anything."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts

    def __reduce__(self) -> Any:
        return self.parts


SHELL = b"touch canary"
NAMED: dict[str, tuple[bytes, str]] = {
    "os.system, text protocol": (b"cos\nsystem\n(S'touch canary'\ntR.", "names os.system"),
    "posix.system": (whole(called(b"posix", b"system", short_text(SHELL))), "names posix.system"),
    "nt.system": (whole(called(b"nt", b"system", short_text(SHELL))), "names nt.system"),
    "eval": (whole(called(b"builtins", b"eval", short_text(b"1"))), "names builtins.eval"),
    "exec": (whole(called(b"builtins", b"exec", short_text(b"1"))), "names builtins.exec"),
    "old eval": (b"c__builtin__\neval\n(V1\ntR.", "names __builtin__.eval"),
    "getattr": (whole(stack_name(b"builtins", b"getattr")), "names builtins.getattr"),
    "import": (whole(called(b"builtins", b"__import__", short_text(b"os"))), "names builtins.__im"),
    "dotted name": (
        whole(called(b"os", b"system.__call__", short_text(SHELL))),
        "names os.system.__call__",
    ),
    "dotted name in numpy": (
        whole(stack_name(b"numpy", b"ndarray.__reduce__")),
        "names numpy.ndarray.__reduce__",
    ),
    "module in a name": (whole(stack_name(b"numpy.core", b"multiarray.scalar")), "names numpy.co"),
    "numpy.load": (whole(called(b"numpy", b"load", short_text(b"x.npy"))), "names numpy.load"),
    "numpy.frombuffer": (whole(stack_name(b"numpy", b"frombuffer")), "names numpy.frombuffer"),
    "numpy runs strings": (
        whole(called(b"numpy.testing._private.utils", b"runstring", short_text(b"1"))),
        "names numpy.testing._private.utils.runstring",
    ),
    "numpy.f2py": (whole(stack_name(b"numpy.f2py", b"compile")), "names numpy.f2py.compile"),
    "copyreg": (
        whole(stack_name(b"copyreg", b"_reconstructor")),
        "names copyreg._reconstructor",
    ),
    "subprocess": (whole(stack_name(b"subprocess", b"Popen")), "names subprocess.Popen"),
    "codecs.decode": (whole(stack_name(b"_codecs", b"decode")), "names _codecs.decode"),
    "codecs.encode of the module": (whole(stack_name(b"codecs", b"encode")), "names codecs.encode"),
    "our own module": (
        whole(stack_name(b"ppsolve.models.documents.files", b"write_text")),
        "names ppsolve.models.documents.files.write_text",
    ),
    "name with a line break": (whole(stack_name(b"o\ns", b"sys\x1btem")), r"names o\ns.sys\x1btem"),
    "name that is long": (whole(stack_name(b"m" * 255, b"n" * 255)), "m" * 60 + "." + "n" * 60),
    "name that is no text": (whole(b"K\x01K\x02\x93"), "STACK_GLOBAL requires str"),
    "ordered dict": (pickle.dumps(OrderedDict(a=1)), "names collections.OrderedDict"),
    "datetime array": (pickle.dumps({"a": np.array(["2020-01-01"], "M8[s]")}), "got dtype 'M8'"),
    "reduced object": (pickle.dumps({"a": Reduced(print, ("canary",))}), "names builtins.print"),
    "state setter": (
        pickle.dumps(Reduced(list, (), None, None, None, print)),
        "names builtins.",
    ),
}  # fmt: skip

OPCODES: dict[str, tuple[bytes, str]] = {
    "INST": (b"(S'touch canary'\nios\nsystem\n.", "uses STRING at byte 1"),
    "INST alone": (b"(Vtouch canary\nios\nsystem\n.", "uses INST"),
    "OBJ": (b"(cos\nsystem\nVx\no.", "names os.system"),
    "OBJ of a known name": (b"(cnumpy\nndarray\no.", "uses OBJ"),
    "NEWOBJ": (whole(stack_name(b"numpy", b"ndarray") + b")\x81"), "uses NEWOBJ"),
    "NEWOBJ_EX": (
        whole(stack_name(b"numpy", b"ndarray") + b")}\x92"),
        "uses NEWOBJ_EX",
    ),
    "EXT1": (whole(b"\x82\x01"), "uses EXT1"),
    "EXT2": (whole(b"\x83\x01\x00"), "uses EXT2"),
    "EXT4": (whole(b"\x84\x01\x00\x00\x00"), "uses EXT4"),
    "PERSID": (b"Pcanary\n.", "uses PERSID"),
    "BINPERSID": (whole(b"K\x01Q"), "uses BINPERSID"),
    "out-of-band buffer": (whole(b"\x97", protocol=5), "uses NEXT_BUFFER"),
    "read-only buffer": (whole(b"K\x01\x98", protocol=5), "uses READONLY_BUFFER"),
    "set": (whole(b"\x8f(K\x01\x90"), "uses EMPTY_SET"),
    "frozen set": (whole(b"(K\x01\x91"), "uses FROZENSET"),
    "DUP": (whole(b"K\x012"), "uses DUP"),
    "POP": (whole(b"NN0"), "uses POP"),
    "POP_MARK": (whole(b"N(N1"), "uses POP_MARK"),
    "Python 2 text": (b"U\x01a.", "uses SHORT_BINSTRING"),
    "second protocol": (whole(b"\x80\x04N"), "uses PROTO"),
    "unknown opcode": (b"\x80\x04\xffN.", "no opcode is 0xff, at byte 2"),
}

BROKEN: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "expected a pickle, the file is empty"),
    "JSON": (b'{"call_forward": []}', "not a valid pickle: no opcode is 0x7b, at byte 0"),
    "zip": (b"PK\x03\x04\n\n\n.", "uses PERSID"),
    "truncated": (pickle.dumps(SMALL)[:-20], "(truncated?)"),
    "without STOP": (b"\x80\x04N", "it ends after 3 bytes without STOP (truncated?)"),
    "only PROTO": (b"\x80", "PROTO at byte 0: not enough data"),
    "junk after STOP": (pickle.dumps(SMALL) + b"x", "more bytes follow its end at byte 93"),
    "second pickle": (b"}.}.", "more bytes follow its end at byte 2"),
    "protocol 6": (whole(b"N", protocol=6), "unsupported pickle protocol: 6"),
    "protocol 255": (whole(b"N", protocol=255), "unsupported pickle protocol: 255"),
    "frame beyond the end": (b"\x80\x04\x95" + b"\xff" * 8 + b"N.", "FRAME claims 1844674"),
    "frame past STOP": (b"\x80\x04\x95\x03" + bytes(7) + b"N.K", "more bytes follow its end"),
    "frame within a value": (
        b"\x80\x04\x95\x02" + bytes(7) + b"M\x01\x01.",
        "crosses the end of its frame",
    ),
    "frame in a frame": (
        b"\x80\x04\x95\x0b" + bytes(7) + b"\x95\x02" + bytes(7) + b"N.",
        "a new frame before end of current frame",
    ),
    "values left": (whole(b"NN"), "2 values are left at its end, not 1"),
    "nothing left": (b".", "takes a value that is not there"),
    "open mark": (whole(b"N("), "takes a value that is not there"),
    "no mark": (whole(b"Nt"), "goes back to a mark that is not there"),
    "pair of one": (whole(b"N\x86"), "takes a value that is not there"),
    "pair across a mark": (whole(b"N(N\x86"), "takes a value that is not there"),
    "append to a number": (whole(b"K\x01Na"), "appends to what is no list"),
    "append to a tuple": (whole(b")(N" + b"e"), "appends to what is no list"),
    "item of a list": (whole(b"]" + short_text(b"a") + b"Ns"), "sets items of what is no dict"),
    "key without value": (whole(b"}(" + short_text(b"a") + b"u"), "a key without a value"),
    "memo place unset": (whole(b"h\x07"), "Memo value not found at index 7"),
    "memo of nothing": (whole(b"\x94"), "takes a value that is not there"),
    "negative memo place": (b"Np-1\n.", "expected memo places from 0"),
    "number that is text": (b"Iabc\n.", r"INT at byte 0 has a line of another form: b'abc\n"),
    "number with marks": (b"I1_000\n.", "has a line of another form"),
    "hexadecimal number": (b"L0x10L\n.", "has a line of another form"),
    "real that is text": (b"Fabc\n.", "FLOAT at byte 0 has a line of another form"),
    "text not UTF-8": (whole(b"\x8c\x01\xff"), "'utf-8' codec can't decode"),
    "bad escape": (b"V\\u12\n.", "'rawunicodeescape' codec can't decode"),
    "name not ended": (b"cos", "has a line of another form"),
}  # fmt: skip

BOMBS: dict[str, tuple[bytes, str]] = {
    "memo place": (whole(b"Nr\xff\xff\xff\xff"), "expected memo places from 0 to 300000"),
    "memo place as text": (b"Np99999999999\n.", "expected memo places from 0"),
    "LONG1": (whole(b"\x8a\xff" + b"\x01" * 255), "numbers of at most 16 bytes"),
    "LONG4": (whole(b"\x8b\xff\xff\xff\x7f"), "numbers of at most 16 bytes"),
    "negative LONG4": (whole(b"\x8b\xff\xff\xff\xff"), "numbers of at most 16 bytes"),
    "digits": (b"L" + b"9" * 100_000 + b"L\n.", "has a line of another form"),
    "INT digits": (b"I" + b"9" * 41 + b"\n.", "INT at byte 0 has a line of another form"),
    "BINBYTES8": (whole(b"\x8e" + b"\xff" * 8), "byte count > sys.maxsize"),
    "BYTEARRAY8": (whole(b"\x96\x00\x00\x00\x00\xff" + bytes(3), protocol=5), "BYTEARRAY8 at"),
    "BINUNICODE8": (whole(b"\x8d" + b"\xff" * 7 + b"\x7f"), "BINUNICODE8 at byte 2: expected 92"),
    "BINBYTES": (whole(b"B\xff\xff\xff\xff"), "BINBYTES at byte 2: expected 4294967295 bytes"),
    "opcodes": (whole(b"]" + b"Na" * 1_000_000), "at most 300000 opcodes"),
    "stack": (whole(b"N" * 200_000), "more than 100000 values waiting"),
    "marks": (whole(b"(" * 1000 + b"t" * 1000), "nested deeper than 100 levels"),
    "nested tuples": (whole(b")" + b"\x85" * 299_000), "got a tuple of 1"),
    "nested lists": (whole(b"]" * 90_000 + b"a" * 89_999), "got a list of 1"),
    "nested in a pair": (
        whole(labelled(b"](N" + b")" + b"\x85" * 200_000 + b"\x86" + b"e")),
        "call_forward[0]: expected two numbers or (None, None), got one None",
    ),
    "nested dicts": (
        whole((b"}" + short_text(b"a")) * 40_000 + b"N" + b"s" * 40_000),
        "a: expected a list of (start, end), got a dict",
    ),
    "laughs": (
        whole(b"}(" + short_text(b"a") + b"](" + b"NN\x86q\x00" + b"h\x00" * 90_000 + b"eq\x01"
              + b"".join(short_text(b"b%d" % k) + b"h\x01" for k in range(30_000)) + b"u"),
        "at most 500000 entries, counted as often as they are referred to",
    ),
    "laughs by doubling": (
        whole(b"(]q\x00" + b"(h\x00h\x00lq\x00" * 50_000 + b"t"),
        "got a tuple of 50001",
    ),
    "bytes as text again and again": (
        whole(b"(X" + struct.pack("<I", 2**20) + b"a" * 2**20 + b"q\x00"
              + (stack_name(b"_codecs", b"encode") + b"h\x00" + short_text(b"latin1") + b"\x86R")
              * 90 + b"t"),
        "the bytes in the pickle are more than",
    ),
    "arrays of the same bytes": (
        whole(b"(B" + struct.pack("<I", 2**19) + bytes(2**19) + b"q\x00" + dtype(b"i1") + b"q\x01"
              + (stack_name(b"numpy._core.numeric", b"_frombuffer")
                 + b"(h\x00h\x01J\x00\x00\x08\x00\x85" + short_text(b"C") + b"tR") * 50 + b"t"),
        "the arrays in the pickle hold more than 1000000 numbers",
    ),
}  # fmt: skip

NUMPY: dict[str, tuple[bytes, str]] = {
    "object array": (pickle.dumps({"a": np.array([[None, 1]])}), "got dtype 'O8'"),
    "structured array": (pickle.dumps({"a": np.zeros(2, "i4,i4")}), "got dtype 'V8'"),
    "subarray": (
        whole(dtype(b"i8", b"(K\x03" + short_text(b"<") + b")NNKKKKK\x00tb")),
        "sets another state",
    ),
    "text array": (pickle.dumps({"a": np.array(["a"])}), "got dtype 'U1'"),
    "bool array": (pickle.dumps({"a": np.array([[True, False]])}), "got dtype 'b1'"),
    "complex scalar": (pickle.dumps({"a": [(np.complex128(1), 1)]}), "got dtype 'c16'"),
    "dtype of a number": (
        whole(stack_name(b"numpy", b"dtype") + b"K\x01\x89\x88\x87R"), "calls numpy.dtype in"
    ),
    "dtype without flags": (
        whole(called(b"numpy", b"dtype", short_text(b"i8"))), "calls numpy.dtype in"
    ),
    "dtype without arguments": (
        whole(stack_name(b"numpy", b"dtype") + b")R"), "calls numpy.dtype in"
    ),
    "byte order": (
        whole(dtype(state=b"(K\x03" + short_text(b"=") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xff"
                    b"K\x00tb")),
        "sets another state",
    ),
    "payload too short": (
        whole(labelled(array(b"K\x01K\x02\x86", some_bytes(bytes(15))))),
        "expected 16 bytes for 2 numbers i8, got 15 bytes",
    ),
    "payload too long": (
        whole(labelled(array(b"K\x01\x85", some_bytes(bytes(9))))), "expected 8 bytes for 1"
    ),
    "payload of objects": (whole(labelled(array(b"K\x01\x85", b"]"))), "or without bytes"),
    "negative shape": (
        whole(array(b"J\xff\xff\xff\xffJ\xff\xff\xff\xff\x86", some_bytes(bytes(8)))),
        "arrays of 1 or 2 dim",
    ),
    "huge shape": (whole(array(b"J\xff\xff\xff\x7fK\x00\x86", some_bytes(b""))), "1 or 2 dim"),
    "three dimensions": (pickle.dumps({"a": np.zeros((1, 1, 2))}), "arrays of 1 or 2 dim"),
    "no dimension": (pickle.dumps({"a": np.array(3)}), "arrays of 1 or 2 dim"),
    "shape of reals": (
        whole(array(b"G" + struct.pack(">d", 1) + b"\x85", some_bytes(bytes(8)))),
        "is no tuple of whole numbers",
    ),
    "array without dtype": (
        whole(array(b"K\x01\x85", some_bytes(bytes(8)), b"N")), "without a complete dtype"
    ),
    "dtype without state": (
        whole(stack_name(b"numpy.core.multiarray", b"scalar") + stack_name(b"numpy", b"dtype")
              + short_text(b"i8") + b"\x89\x88\x87R" + some_bytes(bytes(8)) + b"\x86R"),
        "without a complete dtype",
    ),
    "array of a subclass": (
        whole(stack_name(b"numpy.core.multiarray", b"_reconstruct") + stack_name(b"numpy", b"dtype")
              + b"K\x00\x85" + some_bytes(b"b") + b"\x87R"),
        "calls numpy's _reconstruct in another way than numpy",
    ),
    "array state of another form": (
        whole(array(b"K\x01\x85", some_bytes(bytes(8)))[:-2] + b"Ntb"), "sets another state"
    ),
    "scalar of three": (
        whole(stack_name(b"numpy.core.multiarray", b"scalar") + b"NNN\x87R"), "calls numpy's scalar"
    ),
    "frombuffer order": (
        whole(stack_name(b"numpy.core.numeric", b"_frombuffer") + b"(NNNK\x01tR"),
        "calls numpy's _frombuffer in another way than numpy",
    ),
    "encode to another codec": (
        whole(
            stack_name(b"_codecs", b"encode") + short_text(b"a") + short_text(b"idna") + b"\x86R"
        ),
        "calls _codecs.encode in another way than numpy",
    ),
    "encode beyond latin1": (
        whole(stack_name(b"_codecs", b"encode") + short_text("€".encode()) + short_text(b"latin1")
              + b"\x86R"),
        "'latin-1' codec can't encode",
    ),
    "ndarray called": (whole(called(b"numpy", b"ndarray", b"K\x01")), "calls numpy.ndarray in"),
    "number called": (whole(b"K\x01)R"), "calls a value in another way"),
    "arguments no tuple": (whole(stack_name(b"numpy", b"dtype") + b"]R"), "calls numpy.dtype"),
    "state of a dict": (
        whole(b"}" + b"}" + short_text(b"__setstate__") + b"Nsb"), "sets another state"
    ),
    "state of a list": (whole(b"]}b"), "sets another state"),
    "state of a name": (whole(stack_name(b"numpy", b"ndarray") + b"}b"), "sets another state"),
    "state twice": (whole(dtype() + b"Nb"), "sets another state"),
}  # fmt: skip

FORMS: dict[str, tuple[Any, str]] = {
    "None": (None, "expected a dict of lists of (start, end), got None"),
    "list": ([1], "expected a dict of lists of (start, end), got a list of 1"),
    "text": ("canary\n", 'got the text "canary\\n"'),
    "bytes": (b"canary", "got bytes"),
    "array": (np.zeros(3), "got an array (3,)"),
    "empty dict": ({}, "the dict is empty"),
    "key None": ({None: []}, "expected texts as keys of a dict"),
    "key tuple": ({(1, 2): []}, "expected texts as keys of a dict"),
    "key dtype": ({np.dtype("i8"): []}, "expected texts as keys of a dict"),
    "empty label": ({"": []}, "labels of 1 to 500 characters, got one of 0"),
    "long label": ({"x" * 501: []}, "labels of 1 to 500 characters, got one of 501"),
    "label with a line break": (
        {"a\nb": []},
        'labels of printable characters, got "a\\nb"',
    ),
    "number": ({"a": 3}, "a: expected a list of (start, end), got 3"),
    "nested dict": ({"a": {"b": []}}, "a: expected a list of (start, end), got a dict"),
    "text as list": (
        {"a": "bc"},
        'a: expected a list of (start, end), got the text "bc"',
    ),
    "number as pair": ({"a": [(1, 2), 3]}, "a[1]: expected a pair (start, end), got 3"),
    "triple": (
        {"a": [(1, 2, 3)]},
        "a[0]: expected a pair (start, end), got a tuple of 3",
    ),
    "array of triples": (
        {"a": np.zeros((4, 3))},
        "a: expected a list of (start, end), got an arr",
    ),
    "array as number": (
        {"a": [(np.zeros(2), 1)]},
        "a[0]: expected a number, got an array (2,)",
    ),
    "long array as pair": (
        {"a": [np.zeros(3)]},
        "a[0]: expected a pair (start, end), got an arr",
    ),
    "text as number": ({"a": [("1", 2)]}, 'a[0]: expected a number, got the text "1"'),
    "truth as number": ({"a": [(True, 2)]}, "a[0]: expected a number, got True"),
    "one None": (
        {"a": [(None, 2)]},
        "a[0]: expected two numbers or (None, None), got one None",
    ),
    "other None": ({"a": [(2, None)]}, "a[0]: expected two numbers or (None, None)"),
    "not a number": (
        {"a": [(float("nan"), 2)]},
        "a[0]: expected a finite number, got nan",
    ),
    "infinite": ({"a": [(0, float("inf"))]}, "a[0]: expected a finite number, got inf"),
    "numpy not a number": (
        {"a": np.array([[0, np.nan]])},
        "a[0]: expected a finite number",
    ),
    "dtype": (
        {"a": np.dtype("i8")},
        "a: expected a list of (start, end), got a part of numpy's",
    ),
    "ndarray itself": (
        {"a": [(np.ndarray, 1)]},
        "a[0]: expected a number, got a part of numpy's",
    ),
}

HOSTILE = {**NAMED, **OPCODES, **BROKEN, **BOMBS, **NUMPY}

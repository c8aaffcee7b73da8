"""Ways to spoil a file, as Hypothesis strategies: of bytes, of text, of JSON and YAML trees, of archives of arrays."""

from __future__ import annotations

import copy
import io
import json
import re
import struct
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import yaml
from hypothesis import strategies as st

Draw = Callable[[st.SearchStrategy[Any]], Any]
Step = Callable[[Draw, bytes], bytes]

NUMBERS = (
    *(b"nan", b"inf", b"-inf", b"1e308", b"-1e308", b"1e-320", b"0", b"-0.0", b"-1", b"1", b"0.5", b"2147483648"),
    *(b"-9223372036854775809", b"9" * 400, b"1e9", b"1000000000", b"0x7f", b"1_000", b"", b"abc", b"true", b"null"),
    *(b"1,5", b"1;5", b"[1]", b"{a: 1}", b"1e999", b"\xe2\x88\x92" + b"1", b"\xd9\xa3"),  # a minus sign, an Arabic 3
)
WORDS = (
    *(b"", *(bytes([mark]) for mark in b" \n\r\0\t\"',;#:{[}]<"), b"- ", b"&a *a", b"</x>", b"<!--", b"%s%n", b"{0}"),
    *(b"../../../etc/passwd", b"/etc/passwd", b"~", b"$(id)", b"!!python/object/apply:os.system ['true']"),
    *(b"\x1b[31m", b"\xff\xfe", b"\xef\xbb\xbf", b"\xc3\xa9", b"a" * 3000, b"x,y\n" * 300),
)
DEEP = tuple(mark * count for mark in (b"[", b'{"a":', b"<a>", b"(", b"- ") for count in (50, 2000, 20000))
VALUES = (
    *(None, True, False, "", "x", "nan", 0, -1, 1, 3, 2**31, 2**63, 10**40, 0.5, 1e308, 1e-320, -0.0),
    *(float("nan"), float("inf"), float("-inf"), [], {}, [[]], [1], [1, 2, 3], ["x"], [None], {"a": 1}, {"": None}),
    *([[1, 2], [3]], "../../x", "/etc/passwd", "a\nb", "\x1b[2J", "é", [0] * 1000),
)
INTEGERS = (0, 1, 2, 127, 128, 255, 256, 32767, 32768, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1, 10**9)
ENCODINGS = ("utf-16", "utf-32", "latin-1", "cp1252", "utf-8-sig", "utf-16-be")
_DEEPEST = 200
_NUMBER = re.compile(rb"[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")


def place(draw: Draw, data: bytes, last: int = 0) -> int:
    """An offset in `data`, its end included when `last` is 1."""
    return int(draw(st.integers(0, max(0, len(data) - 1 + last))))


def flip(draw: Draw, data: bytes) -> bytes:
    """A few bytes set to others."""
    out = bytearray(data)
    for _ in range(draw(st.integers(1, 8)) if data else 0):
        out[place(draw, data)] = draw(st.integers(0, 255))
    return bytes(out)


def cut(draw: Draw, data: bytes) -> bytes:
    """The end is missing."""
    return data[: place(draw, data)]


def gap(draw: Draw, data: bytes) -> bytes:
    """A piece is missing."""
    at = place(draw, data)
    return data[:at] + data[at + draw(st.integers(1, 200)) :]


def double(draw: Draw, data: bytes) -> bytes:
    """A piece stands twice, or many times."""
    at = place(draw, data)
    return data[:at] + data[at : at + draw(st.integers(1, 200))] * draw(st.sampled_from((2, 3, 50))) + data[at:]


def insert(draw: Draw, data: bytes) -> bytes:
    """Something strange is put in."""
    at = place(draw, data, 1)
    strange = st.one_of(st.sampled_from(WORDS), st.sampled_from(DEEP), st.binary(max_size=40))
    return data[:at] + bytes(draw(strange)) + data[at:]


def integer(draw: Draw, data: bytes) -> bytes:
    """A binary integer is set: where a header counts, it counts wrong."""
    form = draw(st.sampled_from(("<B", "<H", ">H", "<I", ">I", "<Q", ">Q")))
    size = struct.calcsize(form)
    at = draw(st.integers(0, max(0, min(len(data), draw(st.sampled_from((64, 4096, 10**9)))) - size)))
    return data[:at] + struct.pack(form, draw(st.sampled_from(INTEGERS)) & (256**size - 1)) + data[at + size :]


def number(draw: Draw, data: bytes) -> bytes:
    """Numbers in the text are replaced."""
    found = list(_NUMBER.finditer(data[:100_000]))
    for _ in range(draw(st.integers(1, 3)) if found else 0):
        at = found[draw(st.integers(0, len(found) - 1))]
        data = data[: at.start()] + draw(st.sampled_from(NUMBERS)) + data[at.end() :]
        found = list(_NUMBER.finditer(data[:100_000])) or found[:1]
    return data


def lines(draw: Draw, data: bytes) -> bytes:
    """A line is gone, stands twice or elsewhere, or is cut."""
    rows = data.split(b"\n")
    at, how = draw(st.integers(0, len(rows) - 1)), draw(st.integers(0, 3))
    row = rows.pop(at)
    if how == 1:
        rows[at:at] = [row, row]
    elif how == 2:
        rows.insert(draw(st.integers(0, len(rows))), row)
    elif how == 3:
        rows.insert(at, row[: len(row) // 2])
    return b"\n".join(rows)


def cell(draw: Draw, data: bytes) -> bytes:
    """A cell of a table is gone, stands twice or is another."""
    parts = re.split(rb"([,;\t ])", data[:100_000])
    at = draw(st.integers(0, len(parts) - 1))
    parts[at] = draw(st.sampled_from((b"", parts[at] + b"," + parts[at], *NUMBERS[:12], b"x")))
    return b"".join(parts) + data[100_000:]


def encoding(draw: Draw, data: bytes) -> bytes:
    """The text in another encoding, or with other ends of lines."""
    how = draw(st.sampled_from((*ENCODINGS, "\r", "\r\n")))
    if how.isspace():
        return data.replace(b"\n", how.encode())
    return data.decode("utf-8", "replace").encode(how, "replace")


def whole(draw: Draw, data: bytes) -> bytes:
    """Something else altogether."""
    strange = st.sampled_from((b"", b"\n", b" ", b"\0" * 100, b"null", b"[]", b"{}", b"0", b"''", *DEEP, *WORDS))
    return bytes(draw(st.one_of(strange, st.binary(max_size=300), st.text(max_size=100).map(str.encode))))


def tree(draw: Draw, data: bytes) -> bytes:
    """A JSON or YAML file in which values are others, missing, or stand under other names."""
    if max(data.count(mark) for mark in (b"[", b"{", b"- ")) > _DEEPEST:  # how deep is too deep is not always the same
        return number(draw, data)
    try:
        root = {"": yaml.safe_load(data) if data[:1] != b"{" else json.loads(data)}
    except (ValueError, yaml.YAMLError):
        return number(draw, data)
    for _ in range(draw(st.integers(1, 3))):
        _spoil(draw, root)
    return json.dumps(root.get(""), default=str).encode()


def _spoil(draw: Draw, root: dict[str, Any]) -> None:
    """Changes one place of a tree; deep ones are as likely as shallow ones."""
    holder: Any = root
    key: Any = next(iter(root), "")
    for _ in range(draw(st.integers(0, 6))):
        inside = holder[key] if isinstance(holder, list) or key in holder else None
        if not isinstance(inside, dict | list) or not inside:
            break
        holder = inside
        key = draw(st.sampled_from(sorted(inside, key=str) if isinstance(inside, dict) else range(len(inside))))
    how = draw(st.integers(0, 4))
    if how == 0 and holder is not root:
        del holder[key]
    elif how == 1 and isinstance(holder, dict) and holder is not root:
        holder[draw(st.sampled_from(("", "x", "command", "clip", "\n", "out", "0")))] = holder.pop(key)
    elif how == 2 and isinstance(holder, list):
        holder.extend(holder[: draw(st.integers(1, 3))])
    else:
        holder[key] = copy.deepcopy(draw(st.sampled_from(VALUES)))  # it may be spoiled itself


def header(draw: Draw, data: bytes) -> bytes:
    """Of a safetensors file, the table of contents is spoiled as a tree, and its length is right."""
    size = int.from_bytes(data[:8], "little")
    table = tree(draw, data[8 : 8 + size].strip())
    return len(table).to_bytes(8, "little") + table + data[8 + size :]


def arrays(draw: Draw, data: bytes) -> bytes:
    """Of an npz file, an array is of another kind, size or content, or is missing."""
    with np.load(io.BytesIO(data)) as archive:
        named = dict(archive)
    name = draw(st.sampled_from(sorted(named)))
    array = named.pop(name)
    fill = draw(st.sampled_from((np.nan, np.inf, 1e308, 0.0, -1.0)))
    changed: dict[str, Callable[[], Any]] = {
        "gone": lambda: None,
        "kind": lambda: array.astype(draw(st.sampled_from(("f4", "i8", "U3", "c16", "?", "M8[s]", "S2")))),
        "row": lambda: array[:-1],
        "flat": lambda: array.ravel(),
        "scalar": lambda: np.float64(fill),
        "deeper": lambda: array[None],
        "filled": lambda: np.full(array.shape, fill),
        "empty": lambda: array[:0],
        "reversed": lambda: array[::-1],
    }
    value = changed[draw(st.sampled_from(sorted(changed)))]()
    out = io.BytesIO()
    np.savez(out, **(named if value is None else named | {name: value}))
    return out.getvalue()


def member(draw: Draw, data: bytes) -> bytes:
    """Of a zip archive, one file's bytes are spoiled, and the archive is whole."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        inside = {name: archive.read(name) for name in archive.namelist()}
    name = draw(st.sampled_from(sorted(inside)))
    inside[name] = draw(st.sampled_from((flip, cut, integer, number, insert)))(draw, inside[name])
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for each, content in inside.items():
            archive.writestr(zipfile.ZipInfo(each), content)  # of no date, so that the same draw gives the same bytes
    return out.getvalue()


BINARY: tuple[Step, ...] = (flip, cut, gap, double, insert, integer, whole)
TEXT: tuple[Step, ...] = (flip, cut, gap, double, insert, number, number, lines, cell, encoding, whole)
TREE: tuple[Step, ...] = (*TEXT, tree, tree, tree, tree, tree)
NPZ: tuple[Step, ...] = (*BINARY, arrays, arrays, arrays, member, member)
TENSORS: tuple[Step, ...] = (*BINARY, header, header, header)


_NOT_OF_ITS_KIND = (
    *(ValueError, TypeError, KeyError, EOFError, OSError, OverflowError, NotImplementedError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error),
)


@st.composite
def spoiled(draw: Draw, data: bytes, steps: tuple[Step, ...]) -> bytes:
    """`data` after one to three of the steps."""
    for _ in range(draw(st.sampled_from((1, 1, 2, 3)))):
        step = draw(st.sampled_from(steps))
        try:
            data = step(draw, data)
        except _NOT_OF_ITS_KIND:  # no longer what the step takes
            data = flip(draw, data)
    return data

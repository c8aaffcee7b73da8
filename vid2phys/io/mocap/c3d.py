"""Read C3D (c3d.org's user guide, 2008): labelled markers, from which a rigid body is made (`_markers.py`).

Integers or floats, of Intel, DEC or SGI machines; more than 65,535 frames through TRIAL:ACTUAL_END_FIELD; labels in
LABELS, LABELS2 and so on. A point that was not detected has a negative residual (or three zeros). Limit: analog
channels are skipped.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from vid2phys.errors import InputError
from vid2phys.io.mocap._markers import choose_markers, poses_of_markers
from vid2phys.io.mocap._poses import LENGTH_UNITS, Asked, Source, make_log, require_length_scale
from vid2phys.types import Array, PoseLog

_BLOCK = 512
_KEY = 0x50
_INTEL, _DEC, _SGI = 84, 85, 86
_A_C3D = "a whole C3D file"
_CUT_SHORT = "the file may be cut short or damaged; export it again"
Parameters = dict[str, Any]  # by "GROUP:NAME": a list of texts or an array


def matches(source: Source) -> bool:
    """Return whether the file is binary, has C3D's second byte, and has at least a header and a block of parameters."""
    return len(source.binary) > 2 * _BLOCK and source.binary[1] == _KEY and source.binary[0] > 0


def load(source: Source, asked: Asked) -> PoseLog:
    """Return the body of the markers asked for, or of the only group. Raises InputError listing the markers."""
    path, data = source.path, source.binary
    start = (data[0] - 1) * _BLOCK
    if start + 4 > len(data) or data[start + 3] not in (_INTEL, _DEC, _SGI):
        raise InputError(f"'{path}' has no parameter section", _A_C3D, _CUT_SHORT)
    kind = data[start + 3]
    parameters = _parameters(data, start, kind)
    points, first, rate = _points(path, data, kind, parameters)
    labels = _labels(parameters, points.shape[1])
    unit = next(iter(parameters.get("POINT:UNITS", [])), "").strip().lower()
    scale = require_length_scale(path, unit if unit in LENGTH_UNITS else None, asked.units)
    name, chosen = choose_markers(path, labels, asked.body)
    names = [labels[i] for i in chosen]
    positions, quats = poses_of_markers(path, points[:, chosen] * scale, names)
    times_s = (first - 1 + np.arange(len(points))) / rate
    return make_log(path, times_s, positions, quats, np.arange(len(points)) + first, name)


def _numbers(data: bytes, dtype: str, kind: int, at: int, count: int) -> Array:
    """Return `count` numbers (i1, u1, u2, i2, f4) at a byte, as floats; fewer where the file ends."""
    size = int(dtype[1])
    count = max(0, min(count, (len(data) - at) // size))
    order = ">" if kind == _SGI else "<"
    if dtype == "f4" and kind == _DEC:  # words swapped, and an exponent that is larger by two
        words = np.frombuffer(data, "<u2", 2 * count, at).reshape(-1, 2)[:, ::-1]
        return np.ascontiguousarray(words).view("<f4").ravel().astype(float) / 4.0
    with np.errstate(invalid="ignore"):
        return np.frombuffer(data, order + dtype, count, at).astype(float)


def _parameters(data: bytes, start: int, kind: int) -> Parameters:
    """Return all parameters of the section. Records that point beyond the file end the search."""
    groups: dict[int, str] = {}
    found: list[tuple[int, str, Any]] = []
    at, end = start + 4, min(len(data), start + max(data[start + 2], 1) * _BLOCK)
    while at + 4 < end:
        length, number = abs(int(np.int8(np.uint8(data[at])))), int(np.int8(np.uint8(data[at + 1])))
        if length == 0 or number == 0:
            break
        name = data[at + 2 : at + 2 + length].decode("ascii", "replace").strip().upper()
        link = at + 2 + length
        if link + 2 > end:
            break
        step = int(_numbers(data, "u2", kind, link, 1)[0])
        if number < 0:
            groups[-number] = name
        else:
            found.append((number, name, _value(data, kind, link + 2, end)))
        if step == 0:
            break
        at = link + step
    return {f"{groups.get(number, '')}:{name}": value for number, name, value in found}


def _value(data: bytes, kind: int, at: int, end: int) -> Any:
    """Return a parameter: a list of texts, or an array; empty where it does not fit into the section."""
    if at + 2 > end:
        return []
    item, rank = int(np.int8(np.uint8(data[at]))), data[at + 1]
    sizes = list(data[at + 2 : at + 2 + rank])
    begin, count = at + 2 + rank, int(np.prod(sizes, dtype=object)) if sizes else 1
    if item not in (-1, 1, 2, 4) or begin + count * abs(item) > end:
        return []
    if item == -1:
        width = sizes[0] if sizes else 1
        text = data[begin : begin + count].decode("latin-1")
        return [text[i : i + width].strip(" \0") for i in range(0, count, width)] if width else []
    return _numbers(data, {1: "u1", 2: "i2", 4: "f4"}[item], kind, begin, count)


def _first(parameters: Parameters, name: str, default: float) -> float:
    value = parameters.get(name)
    return float(value[0]) if isinstance(value, np.ndarray) and len(value) else default


def _points(path: Path, data: bytes, kind: int, parameters: Parameters) -> tuple[Array, int, float]:
    """Return markers [T, M, 3] in the file's unit, NaN if not detected; the first frame's number; frames a second."""
    words = _numbers(data, "u2", kind, 0, 12)
    scale, header_rate = _numbers(data, "f4", kind, 12, 1)[0], _numbers(data, "f4", kind, 20, 1)[0]
    count, analog, first, last = int(words[1]), int(words[2]), int(words[3]), int(words[4])
    scale = _first(parameters, "POINT:SCALE", scale)
    rate = _first(parameters, "POINT:RATE", header_rate)
    if count == 0 or not (np.isfinite(rate) and 0.0 < rate < 1e6) or not np.isfinite(scale) or scale == 0.0:
        raise InputError(
            f"'{path}' has {count} points at {rate:g} Hz, scale {scale:g}", "markers, a rate, a scale", _CUT_SHORT
        )
    is_float = scale < 0.0
    size = 4 if is_float else 2
    frame_bytes = size * (4 * count + analog)
    begin = (int(_first(parameters, "POINT:DATA_START", words[8])) - 1) * _BLOCK
    stored = max(0, (len(data) - begin) // frame_bytes) if begin >= _BLOCK else 0
    start, end = _field(parameters, "TRIAL:ACTUAL_START_FIELD"), _field(parameters, "TRIAL:ACTUAL_END_FIELD")
    frames = end - start + 1 if start and end else last - first + 1
    if not (start and end) and last == 0xFFFF and stored > frames:  # the header cannot count further
        frames = stored
    if frames <= 0 or frames > stored:
        raise InputError(f"'{path}' announces {frames} frames and holds {stored}", _A_C3D, _CUT_SHORT)
    raw = _numbers(data, "f4" if is_float else "i2", kind, begin, frames * (4 * count + analog))
    table = raw.reshape(frames, -1)[:, : 4 * count].reshape(frames, count, 4)
    points = table[:, :, :3] if is_float else table[:, :, :3] * scale
    missing = (table[:, :, 3] < 0.0) | ~np.isfinite(points).all(axis=2) | ~points.any(axis=2)
    return np.where(missing[:, :, None], np.nan, points), start or max(first, 1), rate


def _field(parameters: Parameters, name: str) -> int:
    """Return a frame's number of two words, the lower one first; 0 where the file has none."""
    value = parameters.get(name)
    if not isinstance(value, np.ndarray) or len(value) < 2:
        return 0
    low, high = (int(word) & 0xFFFF for word in value[:2])
    return low + (high << 16)


def _labels(parameters: Parameters, count: int) -> list[str]:
    """Return a label a point; points without a label are numbered, as unlabelled ones."""
    labels: list[str] = []
    for suffix in ["", *range(2, 100)]:
        more = parameters.get(f"POINT:LABELS{suffix}")
        if not isinstance(more, list):
            break
        labels += more
    return [(labels[i] if i < len(labels) else "") or f"*{i}" for i in range(count)]

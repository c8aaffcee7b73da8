"""C3D files by the format's public description; shares nothing with the reader."""

from __future__ import annotations

import struct

import numpy as np

RATE = 120.0


def c3d(
    points_m: np.ndarray,
    labels: list[str],
    *,
    kind: str = "intel",
    floats: bool = True,
    units: str = "mm",
    analog: int = 3,
    frames: int | None = None,
    first: int = 5,
    rate: float = RATE,
) -> bytes:
    """A C3D file: points in `units`, NaN as unseen, `analog` channels beside them."""
    order = ">" if kind == "sgi" else "<"
    factor = {"mm": 1000.0, "m": 1.0}[units]
    step = 0.1 * factor / 1000.0

    def real(value: float) -> bytes:
        if kind != "dec":
            return struct.pack(order + "f", value)
        high, low = struct.unpack("<HH", struct.pack("<f", 4.0 * value))
        return struct.pack("<HH", low, high)

    def word(value: int) -> bytes:
        return struct.pack(order + "h", value)

    def parameter(group: int, name: str, item: int, sizes: list[int], data: bytes) -> bytes:
        body = struct.pack("bB", item, len(sizes)) + bytes(sizes) + data + b"\0"
        return struct.pack("bb", len(name), group) + name.encode() + struct.pack(order + "H", len(body) + 2) + body

    def group(number: int, name: str) -> bytes:
        return struct.pack("bb", len(name), -number) + name.encode() + struct.pack(order + "H", 3) + b"\0"

    width = max(map(len, labels))
    records = group(1, "POINT") + group(2, "ANALOG")
    records += parameter(1, "USED", 2, [], word(len(labels)))
    records += parameter(1, "SCALE", 4, [], real(-step if floats else step))
    records += parameter(1, "RATE", 4, [], real(rate))
    records += parameter(1, "UNITS", -1, [4], units.ljust(4).encode())
    records += parameter(1, "LABELS", -1, [width, len(labels)], "".join(s.ljust(width) for s in labels).encode())
    records += parameter(2, "LABELS", -1, [2, 1], b"Fx")
    blocks = (len(records) + 4 + 511) // 512 + 1
    key = {"intel": 84, "dec": 85, "sgi": 86}[kind]
    section = (bytes([0, 0x50, blocks, key]) + records).ljust(512 * blocks, b"\0")
    count = len(points_m) if frames is None else frames
    head = bytes([2, 0x50]) + b"".join(
        struct.pack(order + "H", x) for x in (len(labels), analog, first, min(first + count - 1, 65535), 10)
    )
    head += real(-step if floats else step) + struct.pack(order + "HH", 2 + blocks, 1) + real(rate)
    data = b""
    for frame in points_m:
        for point in frame:
            lost = not np.isfinite(point).all()
            values = [0.0, 0.0, 0.0] if lost else (factor * point)
            if floats:
                data += b"".join(real(float(x)) for x in values) + real(-1.0 if lost else 0.3)
            else:
                data += b"".join(word(round(float(x) / step)) for x in values) + word(-1 if lost else 3)
        data += b"".join(real(1.0) if floats else word(1) for _ in range(analog))
    return head.ljust(512, b"\0") + section + data

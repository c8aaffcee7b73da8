"""Read TUM trajectories: `time tx ty tz qx qy qz qw` a line, in seconds and metres; `#` starts a comment."""

from __future__ import annotations

import numpy as np

from vid2phys.io.mocap._poses import Asked, Source, length_scale, make_log
from vid2phys.io.table import numbers
from vid2phys.types import PoseLog


def matches(source: Source) -> bool:
    """Return whether the first line that is no comment has eight numbers between blanks."""
    first = next((line for line in source.text.splitlines() if line.strip() and not line.startswith("#")), "")
    if "," in first or ";" in first or len(first.split()) != 8:
        return False
    try:
        [float(word) for word in first.split()]
    except ValueError:
        return False
    return True


def load(source: Source, asked: Asked) -> PoseLog:
    """Return the only body of the file; its name is the one asked for, or the file's."""
    kept = [
        (i, line.split())
        for i, line in enumerate(source.text.splitlines(), start=1)
        if line.strip() and not line.startswith("#")
    ]
    row_of = np.array([i for i, _ in kept], dtype=np.int64)
    table = numbers(source.path, [row for _, row in kept], list(range(8)), row_of)
    positions = table[:, 1:4] * length_scale(source.path, None, asked.units)
    name = asked.body or source.path.stem
    return make_log(source.path, table[:, 0], positions, table[:, [7, 4, 5, 6]], row_of, name)

"""Read a plain matrix in a text file: 3x3, 3x4 or 4x4, a row a line, as NumPy and MATLAB print it or with commas.

The nine numbers of a 3x3 matrix may also be in one row. Limits: the file has no lens, no image size and no pose. The
size is that of the clip, the pose comes from another file.
"""

from __future__ import annotations

import re

import numpy as np

from vid2phys.errors import InputError
from vid2phys.io.camera._lens import Lens
from vid2phys.io.camera._parse import Source, choose, make_camera
from vid2phys.types import Array, Camera

_LONGEST = 4096  # characters
_SHAPES = ((3, 3), (3, 4), (4, 4))


def matches(source: Source) -> bool:
    """Return whether the text holds the numbers of such a matrix and nothing else."""
    return len(source.text) <= _LONGEST and _rows(source.text) is not None


def load(source: Source, camera_name: str | None, poses: dict[str, Array]) -> Camera:
    """Return the camera of the matrix, without distortion. Raises InputError for a matrix with a translation."""
    rows = _rows(source.text)
    assert rows is not None  # matches
    if not np.isfinite(rows).all():
        raise InputError(f"the matrix in '{source.path}' is not finite", "numbers", "calibrate again")
    if rows[:3, 3:].any() or (rows[3:] - [0.0, 0.0, 0.0, 1.0] if len(rows) == 4 else rows[3:]).any():
        got = f"the matrix in '{source.path}' is a projection with a translation, or a pose"
        raise InputError(got, "K = [fx 0 cx; 0 fy cy; 0 0 1]", "give K here, and the pose with --camera-pose")
    name = choose(source.path, [source.path.stem], camera_name)
    return make_camera(source.path, rows[:3, :3], Lens(), (None, None), poses.get(name), name)


def _rows(text: str) -> Array | None:
    """Return the matrix, or None where the text is anything else."""
    lines = "\n".join(re.split("[#%]", line)[0] for line in text.splitlines())  # without comments
    plain = re.sub(r"^\s*([A-Za-z_]\w*\s*[=:])?\s*((np|numpy)\.)?(array|matrix)?\(?", "", lines)
    plain = re.sub(r"(,\s*dtype=[\w.]+)?\s*\)?;?\s*$", "", plain)
    rows = [re.split(r"[\s,]+", row.strip(" \t,")) for row in re.split(r"[\n;]|\]\s*,?\s*\[", plain)]
    rows = [[word for word in (cell.strip("[]") for cell in row) if word] for row in rows]
    rows = [row for row in rows if row]
    try:
        found = np.array([[float(word) for word in row] for row in rows])
    except ValueError:  # words, or rows of different lengths
        return None
    if found.shape in ((1, 9), (9, 1)) and found.ravel()[[1, 3, 6, 7, 8]].tolist() == [0.0, 0.0, 0.0, 0.0, 1.0]:
        return found.reshape(3, 3)
    return found if found.shape in _SHAPES else None

"""Read and write keypoints of another tracker as CSV: one row a frame and point.

| column | |
|---|---|
| `time_s` or `frame` | in the clip's clock (0 at its first frame), or counted from 0 |
| `point` | its name, as in the file of the body's points |
| `x_px`, `y_px` | in the image as filmed, not undistorted; pixel centres at whole numbers; blank: not detected |
| `sigma_px` | one standard deviation; or `cov_xx_px2`, `cov_xy_px2`, `cov_yy_px2`; neither: it is estimated |
| `shared_px` | standard deviation of the error that all points of a frame share; none: as much as one by itself |
| `visible` | 0 or 1; what is not visible is not used |
| `confidence` | 0 to 1; what is below a half is not used |

Points without a row in a frame were not detected in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vid2phys.errors import InputError
from vid2phys.io.files import write_text
from vid2phys.io.table import Sheet
from vid2phys.types import Array

_WHAT = "a CSV with the columns time_s (or frame), point, x_px, y_px and optionally sigma_px, visible, confidence"
_CORRECT = "correct it or leave the row out"
_SURE = 0.5  # the least confidence of a point that is used
_SMALLEST_PX = 1e-3  # no tracker is more certain
_NORMALISED = 1.5  # pixels that are all smaller than this are shares of the image
_BEYOND = 1.0  # sizes of the image by which a point may lie outside
_COVARIANCE = ("cov_xx_px2", "cov_xy_px2", "cov_yy_px2")


@dataclass(frozen=True)
class Keypoints:
    """Where K named points were detected in T frames.

    pixels: [T, K, 2]. covariance: [T, K, 2, 2] px^2, or None where the file has no errors. visible: [T, K]. shared_px:
    [T], or None. What is not visible holds harmless numbers.
    """

    names: tuple[str, ...]
    pixels: Array
    covariance: Array | None
    visible: NDArray[np.bool_]
    shared_px: Array | None

    def __getitem__(self, frames: slice | NDArray[np.int64]) -> Keypoints:
        """Return the keypoints of some of the frames."""
        covariance = None if self.covariance is None else self.covariance[frames]
        shared = None if self.shared_px is None else self.shared_px[frames]
        return Keypoints(self.names, self.pixels[frames], covariance, self.visible[frames], shared)


def load_keypoints(
    path: str | Path, names: tuple[str, ...], times_s: Array, size: tuple[int, int], body: str | Path
) -> Keypoints:
    """Return keypoints on the frames of a clip.

    Args:
        path: of the CSV file.
        names: the points that the file `body` has.
        times_s: [T] s, of the clip's frames.
        size: width and height of the clip [px].
        body: the file of the body's points, for errors.

    Raises:
        InputError: names the row or column at fault.
    """
    sheet = Sheet.read(path, _WHAT)
    frame, point = _frames(sheet, times_s), _points(sheet, names, body)
    twice = _first_repeated(frame * len(names) + point)
    if twice is not None:
        got = f"{sheet.where(twice)} has point '{names[point[twice]]}' of frame {frame[twice]} again"
        raise InputError(got, "each point once a frame", _CORRECT)
    place = sheet.numbers([sheet.column(rf"{axis}(?:_px)?|{other}(?:_px)?") for axis, other in ("xu", "yv")])
    seen = np.isfinite(place).all(axis=1) & _flagged(sheet)
    _check_pixels(sheet, place, seen, size)
    shape = (len(times_s), len(names))
    pixels, visible = np.zeros((*shape, 2)), np.zeros(shape, dtype=bool)
    visible[frame, point] = seen
    pixels[frame[seen], point[seen]] = place[seen]
    spread = _covariances(sheet, seen)
    covariance = None
    if spread is not None:
        covariance = np.broadcast_to(np.eye(2), (*shape, 2, 2)).copy()
        covariance[frame[seen], point[seen]] = spread[seen]
    return Keypoints(names, pixels, covariance, visible, _shared(sheet, frame, len(times_s)))


def save_keypoints(keypoints: Keypoints, times_s: Array, path: str | Path) -> None:
    """Write what `load_keypoints` reads, with rows for visible points only."""
    header = ["time_s", "point", "x_px", "y_px", *(_COVARIANCE if keypoints.covariance is not None else ())]
    header += [] if keypoints.shared_px is None else ["shared_px"]
    lines = [",".join(header)]
    for t, k in np.argwhere(keypoints.visible):
        values = [*keypoints.pixels[t, k]]
        if keypoints.covariance is not None:
            values += [keypoints.covariance[t, k][i] for i in ((0, 0), (0, 1), (1, 1))]
        values += [] if keypoints.shared_px is None else [keypoints.shared_px[t]]
        numerals = (f"{value:.10g}" for value in values)
        lines.append(",".join((f"{times_s[t]:.9g}", keypoints.names[k], *numerals)))
    write_text(path, "\n".join(lines) + "\n")


def _frames(sheet: Sheet, times_s: Array) -> NDArray[np.int64]:
    """Return the frame of each row."""
    at_frame = sheet.find("frame")
    column = at_frame if at_frame is not None else sheet.column("time_s")
    given = sheet.numbers([column])[:, 0]
    if at_frame is not None:
        whole = (given == np.round(given)) & (given >= 0) & (given < len(times_s))
        index, bad = np.where(whole, given, 0.0).astype(np.int64), np.flatnonzero(~whole)
        expected = f"0 to {len(times_s) - 1}, the frames of the clip"
    else:
        near = np.clip(np.searchsorted(times_s, given), 1, len(times_s) - 1)
        index = near - (given - times_s[near - 1] < times_s[near] - given)
        bad = np.flatnonzero(~(np.abs(times_s[index] - given) < 0.5 * np.median(np.diff(times_s))))
        expected = f"times of the clip's frames, {times_s[0]:.3f} to {times_s[-1]:.3f} s"
    if len(bad):
        got = f"{sheet.where(bad[0])} has {sheet.header[column]} {given[bad[0]]:.6g}"
        raise InputError(got, expected, "the clip's clock is 0 at its first frame")
    return np.asarray(index, dtype=np.int64)


def _points(sheet: Sheet, names: tuple[str, ...], body: str | Path) -> NDArray[np.int64]:
    """Return the point of each row."""
    column = sheet.column("point|name|keypoint|bodypart|label")
    number = {name: i for i, name in enumerate(names)}
    for i, cells in enumerate(sheet.rows):
        if cells[column] not in number:
            known = ", ".join(names[:12])
            raise InputError(f"{sheet.where(i)} has the point '{cells[column]}'", f"one of '{body}': {known}")
    return np.array([number[cells[column]] for cells in sheet.rows])


def _first_repeated(keys: NDArray[np.int64]) -> int | None:
    order = np.argsort(keys, kind="stable")
    again = order[1:][np.diff(keys[order]) == 0]
    return int(again.min()) if len(again) else None


def _flagged(sheet: Sheet) -> NDArray[np.bool_]:
    """Return which rows to use by the columns `visible` and `confidence`, where the file has them."""
    used = np.ones(len(sheet.rows), dtype=bool)
    at = sheet.find("visible|visibility")
    if at is not None:
        words = {"0": False, "false": False, "no": False, "1": True, "true": True, "yes": True}
        for i, cells in enumerate(sheet.rows):
            if cells[at].lower() not in words:
                raise InputError(f"{sheet.where(i)} has visible '{cells[at]}'", "0 or 1", _CORRECT)
            used[i] = words[cells[at].lower()]
    at = sheet.find("confidence|likelihood|score")
    if at is not None:
        confidence = sheet.numbers([at])[:, 0]
        bad = np.flatnonzero((confidence < 0.0) | (confidence > 1.0))
        if len(bad):
            got = f"{sheet.where(bad[0])} has {sheet.header[at]} {confidence[bad[0]]:g}"
            raise InputError(got, "0 to 1", "give standard deviations as sigma_px")
        used &= np.nan_to_num(confidence) >= _SURE
    return used


def _check_pixels(sheet: Sheet, place: Array, seen: NDArray[np.bool_], size: tuple[int, int]) -> None:
    if not seen.any():
        raise InputError(f"'{sheet.path}' has no visible point", _WHAT, "check the columns visible and confidence")
    if np.abs(place[seen]).max() <= _NORMALISED:
        got = f"'{sheet.path}' has places up to {np.abs(place[seen]).max():.3g} px"
        raise InputError(got, "pixels of the image", "multiply shares by its width and height")
    outside = (place < -_BEYOND * np.array(size)) | (place > (1.0 + _BEYOND) * np.array(size))
    bad = np.flatnonzero(seen & outside.any(axis=1))
    if len(bad):
        x, y = place[bad[0]]
        got = f"{sheet.where(bad[0])} is at {x:.6g}, {y:.6g} px"
        raise InputError(got, f"places in an image of {size[0]}x{size[1]}", "is it of this clip, in its resolution?")


def _covariances(sheet: Sheet, seen: NDArray[np.bool_]) -> Array | None:
    """Return covariances [N, 2, 2] px^2 of the rows, None where the file has no such columns."""
    at = sheet.find("sigma_px|std_px|sigma")
    parts = [sheet.find(name) for name in _COVARIANCE]
    if at is not None:
        sigma = sheet.numbers([at])[:, 0]
        covariance = sigma[:, None, None] ** 2 * np.eye(2)
        sound = sigma >= _SMALLEST_PX
    elif all(part is not None for part in parts):
        xx, xy, yy = sheet.numbers([part for part in parts if part is not None]).T
        covariance = np.stack([np.stack([xx, xy], axis=-1), np.stack([xy, yy], axis=-1)], axis=-2)
        sound = (np.minimum(xx, yy) >= _SMALLEST_PX**2) & (xx * yy - xy**2 > 1e-12 * xx * yy)
    else:
        return None
    sound &= np.isfinite(covariance).all(axis=(1, 2))
    bad = np.flatnonzero(seen & ~sound)
    if len(bad):
        got = f"{sheet.where(bad[0])} has no proper {'sigma_px' if at is not None else 'covariance'}"
        raise InputError(got, f"a standard deviation of at least {_SMALLEST_PX:g} px", _CORRECT)
    return covariance


def _shared(sheet: Sheet, frame: NDArray[np.int64], count: int) -> Array | None:
    """Return the error that a frame's points share, [T] px: the mean of its rows; None where the file has no column."""
    at = sheet.find("shared_px")
    if at is None:
        return None
    given = sheet.numbers([at])[:, 0]
    bad = np.flatnonzero(~(np.isfinite(given) & (given >= 0.0)))
    if len(bad):
        raise InputError(f"{sheet.where(bad[0])} has no proper shared_px", "0 or more", _CORRECT)
    total = np.bincount(frame, given, count) / np.maximum(np.bincount(frame, minlength=count), 1)
    return np.asarray(total)

"""Detect a target in an image: numbered points with their pixels (centres at integers, as OpenCV counts)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vid2phys.camera_calibration.target import Target, charuco_board, dictionary, other_layout
from vid2phys.types import Array

_FEWEST = 8  # points of a view: a homography has eight unknowns, and some are wrong
Grey = NDArray[np.uint8]


@dataclass(frozen=True)
class View:
    """What one image shows of a target.

    ids: [N], indices into `Target.points_m`. pixels: [N, 2] px. name: of the image.
    """

    ids: NDArray[np.int64]
    pixels: Array
    name: str = ""


def grey(image: NDArray[np.uint8]) -> Grey:
    """Return the luma of an RGB image, [H, W, 3] -> [H, W]."""
    import cv2

    return np.asarray(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), dtype=np.uint8)


def detect(target: Target, image: Grey, name: str = "") -> View | None:
    """Return the view of a target in a grey image [H, W]; None when too little of the target is visible."""
    if target.kind == "chessboard":
        return _chessboard(target, image, name)
    if target.kind == "charuco":
        return _charuco(target, image, name)
    found = detect_markers(target.dictionary, image).get(target.tag)
    return None if found is None else View(np.arange(4), found, name)


def detect_markers(name: str, image: Grey) -> dict[int, Array]:
    """Return the corners [4, 2] px, clockwise from the upper left, of each marker of a dictionary, by its number."""
    import cv2

    parameters = cv2.aruco.DetectorParameters()
    parameters.cornerRefinementMethod = cv2.aruco.CORNER_REFINE_SUBPIX
    parameters.minMarkerDistanceRate = 0.05  # else the border of a tag's paper is detected in its place
    corners, ids, _ = cv2.aruco.ArucoDetector(dictionary(name), parameters).detectMarkers(image)
    numbers = [] if ids is None else [int(i) for i in np.ravel(ids)]
    found = {number: np.asarray(four, dtype=float).reshape(4, 2) for number, four in zip(numbers, corners, strict=True)}
    return {number: found[number] for number in found if numbers.count(number) == 1}  # two alike are ambiguous


def layout(target: Target, images: list[Grey]) -> Target:
    """Return the target in that of OpenCV's two ChArUco layouts of which these images show more."""
    other = other_layout(target)
    if other is None:
        return target
    counts = [sum(len(v.ids) for p in images if (v := detect(each, p)) is not None) for each in (target, other)]
    return other if counts[1] > counts[0] else target


def _charuco(target: Target, image: Grey, name: str) -> View | None:
    import cv2

    detector: Any = cv2.aruco.CharucoDetector(charuco_board(target))
    corners, ids, _, _ = detector.detectBoard(image)
    if ids is None or len(ids) < _FEWEST:
        return None
    numbers, pixels = np.ravel(ids).astype(np.int64), np.asarray(corners, dtype=float).reshape(-1, 2)
    order = np.argsort(numbers)
    view = View(numbers[order], pixels[order], name)
    spread = np.linalg.svd(target.points_m()[view.ids][:, :2] - target.points_m()[view.ids][:, :2].mean(axis=0))[1]
    return view if spread[1] > 0.5 * target.side_m else None  # points along one row give no homography


def chessboard_corners(image: Grey, columns: int = 3, rows: int = 3) -> Array | None:
    """Return the whole grid of inner corners in an image, [rows, columns, 2] px; None if none is of at least this size.

    A board with more corners than were asked for is found whole, so that a part is never taken for the board.
    """
    import cv2

    flags = cv2.CALIB_CB_NORMALIZE_IMAGE | cv2.CALIB_CB_ACCURACY | cv2.CALIB_CB_LARGER
    found, corners, meta = cv2.findChessboardCornersSBWithMeta(image, (columns, rows), flags)
    return np.asarray(corners, dtype=float).reshape(*meta.shape[:2], 2) if found else None


def _chessboard(target: Target, image: Grey, name: str) -> View | None:
    grid = chessboard_corners(image, target.columns - 1, target.rows - 1)
    if grid is None or grid.shape[:2] != (target.rows - 1, target.columns - 1):
        return None
    pixels = _as_printed(target, grid, image).reshape(-1, 2)
    return View(np.arange(len(pixels)), pixels, name)


def _as_printed(target: Target, grid: Array, image: Grey) -> Array:
    """Return the grid [rows, columns, 2], rotated to begin at the page's upper left, the corner of a black square.

    The result is never a mirror image. A board that a half turn leaves alike stays as it was found.
    """
    across, down = grid[0, -1] - grid[0, 0], grid[-1, 0] - grid[0, 0]
    if across[0] * down[1] - across[1] * down[0] < 0.0:
        grid = grid[:, ::-1]
    if target.half_turn_alike:
        return grid
    return grid if _outer(grid, image) <= _outer(grid[::-1, ::-1], image) else grid[::-1, ::-1]


def _outer(grid: Array, image: Grey) -> float:
    """Return the brightness of the square outside of the grid's first corner."""
    place = grid[0, 0] - 0.5 * (grid[0, 1] - grid[0, 0]) - 0.5 * (grid[1, 0] - grid[0, 0])
    column, row = np.clip(np.round(place).astype(int), 2, np.array(image.shape[::-1]) - 3)
    return float(image[row - 2 : row + 3, column - 2 : column + 3].mean())

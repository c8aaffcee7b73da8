"""Define the targets of a calibration: a chessboard, a ChArUco board, or a single marker.

A target lies in *page axes*: x right, y up, z towards the viewer, the origin at the lower left corner of its pattern.
Its text names it whole, `charuco:11x7:24mm:18mm:4x4_50`; boards are counted in squares, not in inner corners.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from vid2phys.errors import UsageError
from vid2phys.types import Array

if TYPE_CHECKING:
    from collections.abc import Iterator

Kind = Literal["chessboard", "charuco", "tag"]
Rectangle = tuple[float, float, float, float]  # left, bottom, width, height [m], page axes
_EXAMPLES = (
    "chessboard:10x7:25mm, charuco:11x7:24mm:18mm:4x4_50 (squares, their side, markers' side), tag:36h11:7:160mm"
)
_LENGTHS = {"mm": 1e-3, "cm": 1e-2, "m": 1.0, "in": 0.0254}
_MOST_SQUARES = 100
_LARGEST_M = 20.0


@dataclass(frozen=True)
class Target:
    """A board or a tag.

    columns, rows: squares of a board (1 and 1 for a tag). side_m: of a square, or of a tag's black border [m].
    marker_m: side of a ChArUco board's markers. dictionary: of the markers, as in `4x4_50` or `36h11`. tag: its number.
    legacy: the layout of OpenCV before 4.6, where a board of an even number of rows begins with a marker.
    """

    kind: Kind
    columns: int
    rows: int
    side_m: float
    marker_m: float = 0.0
    dictionary: str = ""
    tag: int = 0
    legacy: bool = False

    @property
    def text(self) -> str:
        """Return the text of which `parse_target` makes this target."""
        side = f"{self.side_m * 1e3:g}mm"
        if self.kind == "tag":
            return f"tag:{self.dictionary}:{self.tag}:{side}"
        board = f"{self.kind}:{self.columns}x{self.rows}:{side}"
        return board if self.kind == "chessboard" else f"{board}:{self.marker_m * 1e3:g}mm:{self.dictionary}"

    @property
    def size_m(self) -> tuple[float, float]:
        """Return width and height of the pattern [m]."""
        return self.columns * self.side_m, self.rows * self.side_m

    @property
    def half_turn_alike(self) -> bool:
        """Return whether a half turn leaves the pattern alike, so that its two ends cannot be distinguished."""
        return self.kind == "chessboard" and (self.columns + self.rows) % 2 == 0

    def points_m(self) -> Array:
        """Return the points [N, 3] m in page axes.

        Those of a board are its inner corners, row by row from the top left; those of a tag its corners, clockwise from
        there.
        """
        if self.kind == "tag":
            return self.side_m * np.array([[0.0, 1, 0], [1, 1, 0], [1, 0, 0], [0, 0, 0]])
        column, row = np.meshgrid(np.arange(1, self.columns), np.arange(1, self.rows))
        places = [column.ravel(), self.rows - row.ravel(), np.zeros(column.size)]
        return self.side_m * np.stack(places, axis=1).astype(float)


def parse_target(text: str) -> Target:
    """Return the target that a text names. Raises UsageError with examples."""
    kind, *words = text.strip().split(":")
    try:
        if kind == "tag" and len(words) == 3:
            target = Target("tag", 1, 1, parse_length(words[2]), 0.0, words[0].lower(), int(words[1]))
        elif kind == "chessboard" and len(words) == 2:
            target = Target("chessboard", *_counts(words[0]), parse_length(words[1]))
        elif kind == "charuco" and len(words) == 4:
            counts = _counts(words[0])
            target = Target("charuco", *counts, parse_length(words[1]), parse_length(words[2]), words[3].lower())
        else:
            raise ValueError
    except ValueError:
        raise UsageError(f"board '{text}'", f"for example {_EXAMPLES}", "name its kind, squares and sizes") from None
    _check(target)
    return target


def parse_length(text: str) -> float:
    """Return the metres of `24mm`, `2.4cm`, `0.024m` or `1in`. Raises ValueError for a text without a unit."""
    found = re.fullmatch(r"\s*(\d*\.?\d+)\s*(mm|cm|m|in)\s*", text)
    if found is None:
        raise ValueError(text)
    return float(found[1]) * _LENGTHS[found[2]]


def dictionary_names() -> tuple[str, ...]:
    """Return the names of OpenCV's ArUco and AprilTag families: `4x4_50`, `36h11` ..."""
    import cv2

    names = {name.removeprefix("DICT_").removeprefix("APRILTAG_").lower() for name in dir(cv2.aruco)}
    return tuple(sorted(name for name in names if re.fullmatch(r"\d+x\d+_\d+|\d+h\d+|aruco_original", name)))


def dictionary(name: str) -> Any:
    """Return OpenCV's dictionary of a name. Raises UsageError listing the names."""
    import cv2

    for attribute in (f"DICT_{name.upper()}", f"DICT_APRILTAG_{name}", f"DICT_APRILTAG_{name.upper()}"):
        if hasattr(cv2.aruco, attribute):
            return cv2.aruco.getPredefinedDictionary(getattr(cv2.aruco, attribute))
    raise UsageError(f"unknown marker dictionary '{name}'", f"one of {', '.join(dictionary_names())}", "choose one")


def charuco_board(target: Target) -> Any:
    """Return OpenCV's board of a ChArUco target."""
    import cv2

    size = (target.columns, target.rows)
    board = cv2.aruco.CharucoBoard(size, target.side_m, target.marker_m, dictionary(target.dictionary))
    board.setLegacyPattern(target.legacy)
    return board


def black_areas(target: Target) -> list[Rectangle]:
    """Return the rectangles to fill with black on white, in page axes [m]; they do not overlap."""
    if target.kind == "tag":
        return list(_marker(target.dictionary, target.tag, 0.0, 0.0, target.side_m))
    height = target.size_m[1]
    side, marker = target.side_m, target.marker_m
    if target.kind == "chessboard":
        squares = [(i, j) for j in range(target.rows) for i in range(target.columns) if (i + j) % 2 == 0]
        return [(i * side, height - (j + 1) * side, side, side) for i, j in squares]
    board = charuco_board(target)
    corners = np.array(board.getObjPoints())[:, 0, :2]  # upper left of each marker, y down from the top
    marked = {(int(x // side), int(y // side)) for x, y in corners}
    squares = [(i, j) for j in range(target.rows) for i in range(target.columns) if (i, j) not in marked]
    areas = [(i * side, height - (j + 1) * side, side, side) for i, j in squares]
    for (x, y), number in zip(corners, np.ravel(board.getIds()), strict=True):
        areas += _marker(target.dictionary, int(number), float(x), float(height - y - marker), marker)
    return areas


def other_layout(target: Target) -> Target | None:
    """Return the same ChArUco board in the other of OpenCV's two layouts; None where the layouts agree."""
    if target.kind != "charuco" or target.rows % 2:
        return None
    return replace(target, legacy=not target.legacy)


def _counts(word: str) -> tuple[int, int]:
    columns, rows = word.lower().split("x")
    return int(columns), int(rows)


def _check(target: Target) -> None:
    if target.kind != "tag" and not (
        3 <= min(target.columns, target.rows) <= max(target.columns, target.rows) <= _MOST_SQUARES
    ):
        got = f"a board of {target.columns}x{target.rows} squares"
        raise UsageError(got, f"3 to {_MOST_SQUARES} squares a side", "count squares, not inner corners")
    if not 0.0 < target.side_m <= _LARGEST_M:
        raise UsageError(f"a side of {target.side_m:g} m", f"up to {_LARGEST_M:g} m", "measure one square")
    if target.kind == "chessboard":
        return
    size = len(dictionary(target.dictionary).bytesList)
    if target.kind == "tag":
        if not 0 <= target.tag < size:
            raise UsageError(f"tag {target.tag} of {target.dictionary}", f"0 to {size - 1}", "read its number")
        return
    if not 0.3 * target.side_m <= target.marker_m < target.side_m:
        got = f"markers of {target.marker_m * 1e3:g} mm in squares of {target.side_m * 1e3:g} mm"
        raise UsageError(got, "markers smaller than their squares, and not much", "measure both")
    markers = target.columns * target.rows // 2
    if markers > size:
        got = f"{target.dictionary} has {size} markers, a board of {target.columns}x{target.rows} needs {markers}"
        raise UsageError(got, "enough of them", "take a larger dictionary")


def _marker(name: str, number: int, left: float, bottom: float, side: float) -> Iterator[Rectangle]:
    """Yield the black cells of a marker, joined along rows and then down equal rows."""
    import cv2

    count = dictionary(name).markerSize + 2  # with its border
    image = cv2.aruco.generateImageMarker(dictionary(name), number, count) == 0
    cell = side / count
    open_runs: dict[tuple[int, int], int] = {}
    for row in range(count + 1):
        runs = _runs(image[row]) if row < count else []
        for run, top in list(open_runs.items()):
            if run not in runs:
                del open_runs[run]
                height = (row - top) * cell
                yield left + run[0] * cell, bottom + side - row * cell, (run[1] - run[0]) * cell, height
        for run in runs:
            open_runs.setdefault(run, row)


def _runs(line: NDArray[np.bool_]) -> list[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(np.concatenate([[0], line.astype(int), [0]])))
    return [(int(a), int(b)) for a, b in edges.reshape(-1, 2)]

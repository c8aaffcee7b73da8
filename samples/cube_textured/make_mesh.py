"""Makes `cube_textured.obj`: a cube with sides of 0.1 m and six different faces: no turn of it looks like another.

    python samples/cube_textured/make_mesh.py

Every face has an image of its own that is not the same turned or mirrored, in few flat colours: large shapes, that a
cube 30 pixels wide still shows.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

NAME, SIDE_M = "cube_textured", 0.1
TILE_PX, COLUMNS, ROWS = 128, 3, 2
Tile = NDArray[np.uint8]
Color = tuple[int, int, int]

WHITE, BLACK, RED, BLUE, GREEN, YELLOW, ORANGE, VIOLET = (
    (236, 234, 226),
    (24, 24, 28),
    (196, 40, 36),
    (38, 74, 168),
    (44, 132, 70),
    (238, 196, 48),
    (226, 116, 32),
    (112, 58, 140),
)
# Faces by their outward axis: where an image's right and down lie on the cube.
SIDES: tuple[tuple[tuple[int, int, int], tuple[int, int, int]], ...] = (
    ((0, 1, 0), (0, 0, -1)),  # +x
    ((0, -1, 0), (0, 0, -1)),  # -x
    ((-1, 0, 0), (0, 0, -1)),  # +y
    ((1, 0, 0), (0, 0, -1)),  # -y
    ((1, 0, 0), (0, -1, 0)),  # +z
    ((1, 0, 0), (0, 1, 0)),  # -z
)


def ell(tile: Tile) -> None:
    """A thick letter L in a corner, and a dot."""
    _fill(tile, WHITE)
    _box(tile, RED, (0.12, 0.1, 0.36, 0.9))
    _box(tile, RED, (0.12, 0.66, 0.86, 0.9))
    _disc(tile, BLACK, (0.68, 0.3), 0.13)


def stripes(tile: Tile) -> None:
    """Bars that grow wider, a third of them cut short."""
    _fill(tile, BLUE)
    for left, right, bottom in ((0.06, 0.14, 1.0), (0.24, 0.4, 1.0), (0.52, 0.92, 0.55)):
        _box(tile, WHITE, (left, 0.0, right, bottom))


def triangle(tile: Tile) -> None:
    """A triangle without equal sides over a band."""
    _fill(tile, YELLOW)
    _box(tile, BLACK, (0.0, 0.78, 1.0, 1.0))
    _polygon(tile, VIOLET, ((0.06, 0.72), (0.5, 0.72), (0.94, 0.06)))


def quarters(tile: Tile) -> None:
    """A field of four colours with a disc in one of them."""
    _fill(tile, GREEN)
    _box(tile, WHITE, (0.5, 0.0, 1.0, 0.5))
    _box(tile, BLACK, (0.0, 0.5, 0.5, 1.0))
    _disc(tile, ORANGE, (0.75, 0.75), 0.19)


def comma(tile: Tile) -> None:
    """A disc with a tail."""
    _fill(tile, ORANGE)
    _disc(tile, BLACK, (0.36, 0.36), 0.24)
    _polygon(tile, BLACK, ((0.5, 0.2), (0.62, 0.4), (0.9, 0.94), (0.36, 0.58)))
    _box(tile, WHITE, (0.78, 0.06, 0.94, 0.3))


def arrow(tile: Tile) -> None:
    """An arrow with one barb, on two grounds."""
    _fill(tile, VIOLET)
    _polygon(tile, WHITE, ((0.0, 0.0), (1.0, 0.0), (0.0, 0.62)))
    _box(tile, GREEN, (0.14, 0.5, 0.9, 0.7))
    _polygon(tile, GREEN, ((0.9, 0.7), (0.9, 0.5), (0.52, 0.18), (0.46, 0.32)))


FACES: tuple[Callable[[Tile], None], ...] = (ell, stripes, triangle, quarters, comma, arrow)


def main() -> None:
    """Writes mesh, material and image beside this file."""
    folder = Path(__file__).parent
    atlas = np.zeros((ROWS * TILE_PX, COLUMNS * TILE_PX, 3), np.uint8)
    lines = ["# metres", f"mtllib {NAME}.mtl", f"o {NAME}", "usemtl faces"]
    texture, faces = [], []
    for side, paint in enumerate(FACES):
        row, column = divmod(side, COLUMNS)
        tile = np.zeros((TILE_PX, TILE_PX, 3), np.uint8)
        paint(tile)
        atlas[row * TILE_PX : (row + 1) * TILE_PX, column * TILE_PX : (column + 1) * TILE_PX] = tile
        right, down = (np.array(axis, dtype=float) for axis in SIDES[side])
        outward = np.cross(down, right)  # right, down and the way into the cube are a right-handed system
        for x, y in ((0, 1), (1, 1), (1, 0), (0, 0)):  # counter-clockwise seen from outside
            corner = 0.5 * SIDE_M * (outward + (2 * x - 1) * right + (2 * y - 1) * down)
            lines.append("v " + " ".join(f"{value:g}" for value in corner))
            inset = 0.5 / TILE_PX  # half a texel, so that neighbours do not show at the edges
            u, v = (column + abs(x - inset)) / COLUMNS, 1.0 - (row + abs(y - inset)) / ROWS
            texture.append(f"vt {u:.6f} {v:.6f}")
        first = 4 * side + 1
        faces += [f"f {' '.join(f'{first + i}/{first + i}' for i in corners)}" for corners in ((0, 1, 2), (0, 2, 3))]
    (folder / f"{NAME}.obj").write_text("\n".join([*lines, *texture, *faces]) + "\n")
    (folder / f"{NAME}.mtl").write_text(f"newmtl faces\nKd 1 1 1\nmap_Kd {NAME}.png\n")
    Image.fromarray(atlas).save(folder / f"{NAME}.png", optimize=True)


def _fill(tile: Tile, color: Color) -> None:
    tile[:] = color


def _box(tile: Tile, color: Color, box: tuple[float, float, float, float]) -> None:
    """left, top, right, bottom: shares of the face."""
    left, top, right, bottom = (round(share * TILE_PX) for share in box)
    tile[top:bottom, left:right] = color


def _disc(tile: Tile, color: Color, middle: tuple[float, float], radius: float) -> None:
    x, y = (round(share * TILE_PX) for share in middle)
    cv2.circle(tile, (x, y), round(radius * TILE_PX), color, -1, cv2.LINE_AA)


def _polygon(tile: Tile, color: Color, corners: tuple[tuple[float, float], ...]) -> None:
    points = np.round(np.array(corners) * TILE_PX).astype(np.int32)
    cv2.fillPoly(tile, [points], color, cv2.LINE_AA)


if __name__ == "__main__":
    main()

"""Draw images of a model card: held-out frames with truth and detection, as contact sheets (JPEG)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vid2phys.errors import InputError
from vid2phys.io.files import write_bytes
from vid2phys.report.mesh_lines import Image, Projected, Window, blend, mesh_lines
from vid2phys.tracking.uncertainty.single_images import EvaluatedModel, ImageEvaluation, projected

TRUE_COLOR, READ_COLOR = (70, 230, 70), (255, 120, 30)
UNITS = {
    "px": ("points", "px"),
    "rotation_deg": ("rotation", "deg"),
    "sideways_mm": ("sideways", "mm"),
    "depth_percent": ("depth", "%"),
    "points_mm": ("fitted points", "mm"),
    "configuration_deg": ("joints", "deg"),
    "configuration_mm": ("modes", "mm"),
}
_TILE, _TEXT, _COLUMNS, _GAP = 192, 34, 3, 6
_QUALITY = 80
_INK = (30, 30, 30)


def write_sheet(path: Path, body: EvaluatedModel, judged: ImageEvaluation, chosen: NDArray[np.int64]) -> None:
    """Write one tile for each of the `chosen` images: as it is, then with true and detected contour and keypoints."""
    import cv2

    tiles = [_tile(body, judged, int(index)) for index in chosen]
    rows = -(-len(tiles) // _COLUMNS)
    height, width = tiles[0].shape[:2]
    sheet = np.full((rows * (height + _GAP) - _GAP, _COLUMNS * (width + _GAP) - _GAP, 3), 255, np.uint8)
    for place, tile in enumerate(tiles):
        top, left = (place // _COLUMNS) * (height + _GAP), (place % _COLUMNS) * (width + _GAP)
        sheet[top : top + height, left : left + width] = tile
    done, data = cv2.imencode(".jpg", sheet[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])
    if not done:
        raise InputError(f"'{path}' could not be made", "a JPEG", "see `vid2phys doctor`")
    write_bytes(path, data.tobytes())


def _tile(body: EvaluatedModel, judged: ImageEvaluation, index: int) -> Image:
    import cv2

    size = judged.images.shape[1]
    scale = _TILE / size
    window = Window(-0.5, -0.5, _TILE, _TILE, scale)
    plain: Image = cv2.resize(judged.images[index], (_TILE, _TILE), interpolation=cv2.INTER_CUBIC).astype(np.uint8)
    drawn = plain.copy()
    sides = (
        (judged.truth_pose, judged.truth_configuration, judged.truth_px, TRUE_COLOR),
        (judged.estimated_pose, judged.estimated_configuration, judged.estimated_px, READ_COLOR),
    )
    for pose, configuration, points_px, color in sides:
        shape = None if configuration is None else configuration[index]
        seen = Projected(*projected(body, pose[index], shape, judged.K[index]))
        blend(drawn, mesh_lines(seen, body.mesh, window, thickness_px=1.2), color)
        for k, (x, y) in enumerate(window.place(points_px[index])):
            centre = (round(16 * float(x)), round(16 * float(y)))
            hollow = color == TRUE_COLOR and bool(judged.hidden[index, k])
            cv2.circle(drawn, centre, 40, color, 1 if hollow else cv2.FILLED, cv2.LINE_AA, shift=4)
    text = np.full((_TEXT, 2 * _TILE, 3), 255, np.uint8)
    for line, words in enumerate(_words(judged, index, body.across)):
        cv2.putText(text, words, (3, 13 + 15 * line), cv2.FONT_HERSHEY_SIMPLEX, 0.4, _INK, 1, cv2.LINE_AA)
    return np.concatenate([np.concatenate([plain, drawn], axis=1), text])


def _words(judged: ImageEvaluation, index: int, across: str) -> tuple[str, str]:
    errors = [f"{UNITS[n][0]} {_short(v[index])} {UNITS[n][1]}" for n, v in judged.errors.items() if n != "sideways_mm"]
    seen = f"{across} {judged.diameter_px[index]:.0f} px, contrast {judged.contrast[index]:.0f}"
    return ", ".join(errors), f"{seen}, {judged.hidden_share[index]:.0%} of the points covered"


def _short(value: float) -> str:
    return f"{value:.1f}" if value < 10.0 else f"{value:.0f}"

"""A contact sheet: a row of overlay frames for each run of `identify`, to see how it fails."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np

from vid2phys.indices import evenly
from vid2phys.io.video import read_clip

_COLUMNS, _ROW_PX = 6, 140


def write_sheet(path: Path, runs: dict[str, Path]) -> None:
    """Write the image of the runs that have an overlay video. runs: titles, and folders of runs."""
    rows = [_row(title, folder / "overlay.mp4") for title, folder in runs.items() if (folder / "overlay.mp4").is_file()]
    if rows:
        width = max(row.shape[1] for row in rows)
        padded = [np.pad(row, [(0, 0), (0, width - row.shape[1]), (0, 0)], constant_values=255) for row in rows]
        path.parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(path), np.vstack(padded)[..., ::-1])


def _row(title: str, video: Path) -> np.ndarray:
    clip = read_clip(video)
    shown = list(clip.frames.at(evenly(len(clip.frames), _COLUMNS)))
    fits = [frame[:, frame.shape[1] // 2 :] for frame in shown]  # the left half is the frame without the fit
    scale = _ROW_PX / fits[0].shape[0]
    row = np.hstack([cv2.resize(fit, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA) for fit in fits])
    band = np.full((20, row.shape[1], 3), 255, np.uint8)
    cv2.putText(band, title, (6, 14), cv2.FONT_HERSHEY_SIMPLEX, 0.4, (0, 0, 0), 1, cv2.LINE_AA)
    return np.vstack([band, row])

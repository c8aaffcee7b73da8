"""How true a calibration is: corners, intrinsics and their spread, on images of a board through a known lens.

    python -m benchmarks.calibration [--json FILE] [--quick]

Images are painted by this project's own projection (`tests/board_scene.py`), blurred by 0.4 to 1.5 px and with noise
of 2 grey levels. Corners are judged as OpenCV finds them and as refined against the pattern; `score` is the RMS of
errors of fx, fy, cx, cy and the distortion over their standard deviations, which is 1 where these are honest.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.tables import write_table
from tests.board_scene import photograph, round_about
from vid2phys.camera_calibration.detect import View, detect
from vid2phys.camera_calibration.intrinsics import calibrate_views
from vid2phys.camera_calibration.refine import refine
from vid2phys.camera_calibration.target import parse_target
from vid2phys.engine.observe import project
from vid2phys.types import Array, Camera

SIZE = (640, 480)
BOARDS = ("charuco:11x7:24mm:18mm:4x4_50", "chessboard:10x7:25mm")
BLURS_PX = (0.4, 0.6, 1.0, 1.5)
LENSES = {
    "plumb_bob": ((610.0, 605.0, 322.0, 236.0), (-0.28, 0.09, 0.0008, -0.0006, 0.0)),
    "equidistant": ((300.0, 298.0, 322.0, 236.0), (0.02, -0.01, 0.004, -0.001)),
}


def lens(model: str) -> Camera:
    """Return the camera that takes the images."""
    (fx, fy, cx, cy), distortion = LENSES[model]
    return Camera(np.array([[fx, 0.0, cx], [0.0, fy, cy], [0.0, 0.0, 1.0]]), *SIZE, np.array(distortion), model)


def numbers(camera: Camera) -> Array:
    """Return the fx, fy, cx, cy and the distortion."""
    return np.array([camera.K[0, 0], camera.K[1, 1], camera.K[0, 2], camera.K[1, 2], *camera.distortion])


def measure(board: str, model: str, repeats: int, count: int) -> list[dict[str, Any]]:
    """Return the rows of the table for one board and lens."""
    target, camera = parse_target(board), lens(model)
    errors: dict[str, list[Array]] = {"opencv": [], "refined": []}
    scores: dict[str, list[Array]] = {"opencv": [], "refined": []}
    focal: dict[str, list[float]] = {"opencv": [], "refined": []}
    for repeat in range(repeats):
        views: dict[str, list[View]] = {"opencv": [], "refined": []}
        for i, pose in enumerate(round_about(target, camera, count, seed=repeat)):
            image = photograph(camera, target, pose, seed=100 * repeat + i, blur=BLURS_PX[i % len(BLURS_PX)])
            found = detect(target, image, str(i))
            if found is None:
                continue
            for method, view in (("opencv", found), ("refined", refine(target, found, image))):
                truth = project(camera, target.points_m()[view.ids] @ pose[:3, :3].T + pose[:3, 3])
                errors[method].append(view.pixels - truth)
                views[method].append(view)
        for method, some in views.items():
            fit = calibrate_views(target, some, SIZE, model)
            error, free = numbers(fit.camera) - numbers(camera), fit.std > 0.0
            scores[method].append(error[free] / fit.std[free])
            focal[method].append(abs(error[0]))
    rows = []
    for method in errors:
        values = {
            ("corner_rms", "px"): np.sqrt((np.concatenate(errors[method]) ** 2).sum(axis=1).mean()),
            ("focal_error", "px"): np.median(focal[method]),
            ("score", "1"): np.sqrt(np.mean(np.concatenate(scores[method]) ** 2)),
        }
        system = f"{target.kind}, {model}"
        for (metric, unit), value in values.items():
            rows.append(
                {"system": system, "method": method, "metric": metric, "value": float(value), "std": None, "n": repeats}
                | {"unit": unit, "paper": None}
            )
    return rows


def main() -> None:
    """Print the table, and write it when asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="one repeat of one board")
    options = parser.parse_args()
    start, rows = time.monotonic(), []
    for board in BOARDS[:1] if options.quick else BOARDS:
        for model in list(LENSES)[:1] if options.quick else LENSES:
            rows += measure(board, model, 1 if options.quick else 3, 9 if options.quick else 14)
    for row in rows:
        print(f"{row['system']:26} {row['method']:8} {row['metric']:12} {row['value']:.3f} {row['unit']}")
    if options.json:
        write_table(options.json, "calibration", rows, time.monotonic() - start, quick=options.quick)


if __name__ == "__main__":
    main()

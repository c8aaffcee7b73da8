"""Find views of a target in many images, and choose views that differ from each other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vid2phys.camera_calibration.detect import View, chessboard_corners, detect, layout
from vid2phys.camera_calibration.images import Images
from vid2phys.camera_calibration.refine import refine
from vid2phys.camera_calibration.target import Target
from vid2phys.errors import InputError
from vid2phys.types import Array

Progress = Callable[[int, int], None]
_PROBED = 8  # images from which the layout of a ChArUco board is found


def find_views(
    target: Target, images: Images, progress: Progress = lambda done, total: None
) -> tuple[Target, list[View]]:
    """Return the target, in its layout, and its views in the images.

    Args:
        target: the board or tag.
        images: where to search.
        progress: called with the number of images done and their total.

    Raises:
        InputError: no image shows the target; for another chessboard the error states how many squares it has.
    """
    greys = [image for _, (_, image) in zip(range(_PROBED), images, strict=False)]
    target = layout(target, greys) if target.kind == "charuco" else target
    views = []
    for done, (name, image) in enumerate(images):
        progress(done, len(images.names))
        view = detect(target, image, name)
        if view is not None:
            views.append(view)
    if views:
        return target, views
    remedy = "check the board's counts and sizes, the light and the focus; the whole pattern has to be in the image"
    grids = [chessboard_corners(image) for image in greys] if target.kind == "chessboard" else []
    sizes = [grid.shape for grid in grids if grid is not None]
    if sizes:
        few, many = sorted(count + 1 for count in max(sizes)[:2])
        remedy = f"they show one of {many} by {few} squares: count squares, not inner corners, columns first"
    raise InputError(f"{target.text} is in none of {len(images.names)} images of '{images.path}'", "the board", remedy)


def refine_views(target: Target, views: list[View], images: Images) -> list[View]:
    """Return the views with their corners moved to where the pattern fits best."""
    named = {view.name: view for view in views}
    return [refine(target, named[name], image) for name, image in images.only(tuple(named))]


def choose_views(views: list[View], size: tuple[int, int], most: int) -> list[View]:
    """Return at most `most` views: the one with most points first, then always the one least like those chosen.

    The comparison uses where the points lie, how large and how tilted their cloud is, in shares of the image.
    """
    if len(views) <= most:
        return views
    marks = np.array([_mark(view, size) for view in views])
    marks /= np.maximum(marks.std(axis=0), 1e-9)
    counts = np.array([len(view.ids) for view in views])
    chosen = [int(np.argmax(counts))]
    distance = np.linalg.norm(marks - marks[chosen[0]], axis=1)
    while len(chosen) < most:
        following = int(np.argmax(distance * np.sqrt(counts / counts.max())))
        chosen.append(following)
        distance = np.minimum(distance, np.linalg.norm(marks - marks[following], axis=1))
    return [views[i] for i in sorted(chosen)]


def coverage(views: list[View], size: tuple[int, int]) -> float:
    """Return the share of the image that the points of all views span together."""
    import cv2

    scale = 256.0 / max(size)
    canvas = np.zeros((max(1, round(size[1] * scale)), max(1, round(size[0] * scale))), dtype=np.uint8)
    for view in views:
        hull = cv2.convexHull(((view.pixels + 0.5) * scale).round().astype(np.int32))
        cv2.fillConvexPoly(canvas, hull, 1)
    return float(canvas.mean())


def _mark(view: View, size: tuple[int, int]) -> Array:
    points = view.pixels / np.array(size)
    spread = np.cov(points.T)
    return np.array(
        [
            *points.mean(axis=0),
            *np.log(np.diag(spread) + 1e-9),
            3.0 * spread[0, 1] / np.sqrt(np.prod(np.diag(spread)) + 1e-12),
        ]
    )

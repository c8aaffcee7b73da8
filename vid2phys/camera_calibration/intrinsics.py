"""Fit intrinsics and distortion to views of a target, with standard deviations.

`plumb_bob` and `rational_polynomial` use OpenCV's calibrateCameraExtended (Zhang 2000; Bouguet); k3 is fitted only
where it differs from zero by more than its error. `equidistant` uses the bundle of this package, from several guesses
of the focal length: OpenCV's own fisheye calibration gives no standard deviations and needs a good start. Views with
errors far above those of the others (blurred, or wrongly detected) are left out. Limit: at most a quarter of the views
is left out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from vid2phys.camera_calibration.bundle import Bundle
from vid2phys.camera_calibration.detect import View
from vid2phys.camera_calibration.target import Target
from vid2phys.engine.observe import pixels_to_bearings
from vid2phys.errors import InputError, unknown_name
from vid2phys.io.camera import COEFFICIENTS
from vid2phys.types import Array, Camera

MODELS = ("plumb_bob", "rational_polynomial", "equidistant")
FEWEST_VIEWS = 6
_OUTLIER = 2.5  # times the median view's error
_MOST_DROPPED = 0.25
_NO_OUTLIER_PX = 0.15  # an error that is small enough whatever the others are
_CLEARLY_NOT_ZERO = 3.0  # standard deviations
_FIELDS_DEG = (50.0, 80.0, 110.0, 140.0, 170.0, 190.0)  # guesses of a fisheye's horizontal field


@dataclass(frozen=True)
class Fit:
    """A camera and how well it fits.

    std: standard deviations of fx, fy, cx, cy and the coefficients, in the order of `names`. poses: [V, 6], rotation
    vector and translation [m] of the target in camera axes. residuals: [M, 2] px, detected minus projected, of all
    points of `views` in their order. dropped: names of the images that were left out.
    """

    camera: Camera
    std: Array
    poses: Array
    views: list[View]
    residuals: Array
    dropped: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the numbers in `std`."""
        return ("fx", "fy", "cx", "cy", *COEFFICIENTS[self.camera.model])

    @property
    def focal_std(self) -> float:
        """Return the standard deviation of the focal length, as a share of it: the larger one of both axes."""
        return float(np.max(self.std[:2] / np.diagonal(self.camera.K)[:2]))

    @property
    def rms_px(self) -> float:
        """Return the root mean square distance of detected and projected points [px]."""
        return float(np.sqrt((self.residuals**2).sum(axis=1).mean()))

    def view_rms_px(self) -> Array:
        """Return the root mean square distance of detected and projected points of each view, [V] px."""
        ends = np.cumsum([len(view.ids) for view in self.views])[:-1]
        return np.array([np.sqrt((part**2).sum(axis=1).mean()) for part in np.split(self.residuals, ends)])


def calibrate_views(target: Target, views: list[View], size: tuple[int, int], model: str = "plumb_bob") -> Fit:
    """Return the camera that projects the target's points best.

    Args:
        target: the board.
        views: what the images show of it.
        size: width and height of the images [px].
        model: `plumb_bob`, `rational_polynomial` or `equidistant`.

    Raises:
        InputError: there are too few views, or no camera fits them.
    """
    if model not in MODELS:
        raise unknown_name("camera model", model, MODELS)
    if target.kind == "tag":
        raise InputError(
            f"{target.text} is a single marker", "a chessboard or ChArUco board", "print one: --print-board"
        )
    _require_views(views)
    fit = _fit(target, views, size, model)
    errors = fit.view_rms_px()
    most = np.sort(errors)[int(np.ceil((1.0 - _MOST_DROPPED) * len(errors))) - 1]
    limit = max(_OUTLIER * float(np.median(errors)), _NO_OUTLIER_PX, float(most))
    kept = [view for view, error in zip(views, errors, strict=True) if error <= limit]
    if len(kept) == len(views) or len(kept) < FEWEST_VIEWS:
        return fit
    names = {view.name for view in kept}
    dropped = tuple(view.name for view in views if view.name not in names)
    return replace(_fit(target, kept, size, model), dropped=dropped)


def _require_views(views: list[View]) -> None:
    if len(views) < FEWEST_VIEWS:
        got = f"the board was seen in {len(views)} images"
        remedy = "move the board to all parts of the image, near and far, tilted by 20 to 40 degrees to all sides"
        raise InputError(got, f"{FEWEST_VIEWS} or more (20 are good)", remedy)


def _fit(target: Target, views: list[View], size: tuple[int, int], model: str) -> Fit:
    bundle = Bundle(target.points_m(), views, size, model)
    if model == "equidistant":
        intrinsics, poses = _fisheye(bundle)
        std = bundle.standard_deviations(intrinsics, poses)
    else:
        intrinsics, poses, std = _opencv(bundle, model)
    if not np.isfinite(intrinsics).all() or intrinsics[:2].min() <= 0.0:
        raise _none_fits(model)
    return Fit(bundle.camera(intrinsics), std, poses, views, bundle.residuals(intrinsics, poses))


def _opencv(bundle: Bundle, model: str) -> tuple[Array, Array, Array]:
    import cv2

    points = [bundle.points[view.ids].astype(np.float32) for view in bundle.views]
    pixels = [view.pixels.astype(np.float32)[:, None] for view in bundle.views]
    plain = cv2.CALIB_RATIONAL_MODEL if model == "rational_polynomial" else 0
    count = len(COEFFICIENTS[model])

    def run(flags: int) -> tuple[Array, Array, Array]:
        try:
            _, K, distortion, rotvecs, shifts, std, _, _ = cv2.calibrateCameraExtended(
                points, pixels, bundle.size, np.eye(3), np.zeros(14), flags=flags
            )
        except cv2.error:
            raise _none_fits(model) from None
        poses = np.hstack([np.reshape(rotvecs, (-1, 3)), np.reshape(shifts, (-1, 3))])
        intrinsics = np.array([K[0, 0], K[1, 1], K[0, 2], K[1, 2], *np.ravel(distortion)[:count]])
        return intrinsics, poses.astype(float), np.ravel(std)[: 4 + count].astype(float)

    intrinsics, poses, std = run(plain)
    if model == "plumb_bob" and abs(intrinsics[8]) < _CLEARLY_NOT_ZERO * std[8]:
        intrinsics, poses, std = run(plain | cv2.CALIB_FIX_K3)
    return intrinsics, poses, std


def _fisheye(bundle: Bundle) -> tuple[Array, Array]:
    """Return intrinsics and poses, refined from the best of several starts without distortion."""
    width, height = bundle.size
    starts = []
    for field in _FIELDS_DEG:
        focal = width / np.deg2rad(field)
        intrinsics = np.array([focal, focal, 0.5 * (width - 1), 0.5 * (height - 1), 0.0, 0.0, 0.0, 0.0])
        poses = _poses(bundle, intrinsics)
        if poses is not None:
            starts.append((float(np.abs(bundle.residuals(intrinsics, poses)).mean()), intrinsics, poses))
    if not starts:
        raise _none_fits("equidistant")
    _, intrinsics, poses = min(starts, key=lambda start: start[0])
    return bundle.solve(intrinsics, poses)


def _poses(bundle: Bundle, intrinsics: Array) -> Array | None:
    """Return the poses of the views through a given camera, [V, 6]; None where a view has none."""
    import cv2

    camera, found = bundle.camera(intrinsics), []
    for view in bundle.views:
        bearings = pixels_to_bearings(camera, view.pixels)
        good = np.isfinite(bearings).all(axis=1)
        if good.sum() < 6:
            return None
        points = bundle.points[view.ids][good]
        solved, rotvec, shift = cv2.solvePnP(points, bearings[good], np.eye(3), None, flags=cv2.SOLVEPNP_IPPE)
        if not solved:
            return None
        found.append(np.concatenate([np.ravel(rotvec), np.ravel(shift)]))
    return np.array(found)


def _none_fits(model: str) -> InputError:
    remedy = "check the board's counts and sizes; film it tilted, in all parts of the image"
    return InputError(f"no camera of model {model} fits these views", "views of one board by one camera", remedy)

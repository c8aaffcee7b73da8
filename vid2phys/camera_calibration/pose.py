"""Estimate the camera's pose from points with known positions in the world, with standard deviations.

Pixels become bearings through the camera's own model. Candidates come from OpenCV's perspective-n-point solvers: SQPnP
(Terzakis and Lourakis 2020), and for points in a plane both solutions of IPPE (Collins and Bartoli 2014). The best
candidate is refined on the pixels. Limit: a flat target far away has two ambiguous poses, and then no pose is returned.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vid2phys.camera_calibration.detect import Grey, View, detect_markers
from vid2phys.camera_calibration.refine import refine
from vid2phys.camera_calibration.target import Target
from vid2phys.engine.observe import bearings_to_pixels, pixels_to_bearings, project
from vid2phys.errors import InputError, UsageError
from vid2phys.geometry import invert_transform, make_transform, matrix_from_rotvec
from vid2phys.types import Array, Camera

# World axes of a target by how it is fixed, in page axes (columns: the world's x, y, z).
LYING = {
    "level": np.eye(3),
    "upright": np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, 0.0]]),
}
_LEAST_ERROR_PX = 0.1  # the least that standard deviations are computed from: a few points may fit by chance
_LARGEST_POSE_RMS_PX = 2.0  # or three thousandths of the width, where that is more
_ON_A_LINE = 1e-2
_IN_A_PLANE = 1e-3
_AMBIGUOUS = 1.5  # RMS error of the other pose, relative to the better one's
_OTHER_POSE_DEG = 8.0
_STEP = 1e-6


@dataclass(frozen=True)
class Places:
    """Points of the world and where they were detected. names: [N]; points_m: [N, 3]; pixels: [N, 2]."""

    names: tuple[str, ...]
    points_m: Array
    pixels: Array


@dataclass(frozen=True)
class Pose:
    """A camera's pose and its errors.

    camera_to_world: [4, 4]. residuals: [N, 2] px. std_m: [3], of the position. std_deg: of the direction.
    """

    camera_to_world: Array
    residuals: Array
    std_m: Array
    std_deg: float

    @property
    def rms_px(self) -> float:
        """Return the root mean square distance of detected and projected points [px]."""
        return float(np.sqrt((self.residuals**2).sum(axis=1).mean()))


def places_of_target(target: Target, view: View, lying: str) -> Places:
    """Return the points of a static target, which defines the world: its lower left corner is the origin.

    lying: where gravity points; `level` (face up: x right, y up the page, z out of it) or `upright` (hanging: x right,
    z up the page).
    """
    if lying not in LYING:
        raise UsageError(f"a board that lies '{lying}'", f"one of {', '.join(LYING)}", "say how it is fixed")
    points = target.points_m()[view.ids] @ LYING[lying]
    return Places(tuple(f"corner {i}" for i in view.ids), points, view.pixels)


def places_of_markers(camera: Camera, known: dict[tuple[int, int | None], Array], image: Grey, name: str) -> Places:
    """Return the known markers of a dictionary in a grey image.

    Args:
        camera: through which the image was taken.
        known: positions [3] m in the world, by marker and corner (0 to 3 clockwise from the upper left; None: the
            middle).
        image: [H, W].
        name: of the dictionary.
    """
    seen = {number: _refined(name, number, corners, image) for number, corners in detect_markers(name, image).items()}
    found = [(key, place) for key, place in known.items() if key[0] in seen]
    if not found:
        there = ", ".join(str(number) for number in sorted(seen)) or "none"
        wanted = ", ".join(str(number) for number in sorted({key[0] for key in known}))
        got = f"the image shows markers of {name}: {there}"
        raise InputError(got, f"some of {wanted}", "check the dictionary, light and focus")
    pixels = [
        seen[number][corner] if corner is not None else _middle(camera, seen[number]) for (number, corner), _ in found
    ]
    names = [f"marker {number}" + ("" if corner is None else f" corner {corner}") for (number, corner), _ in found]
    return Places(tuple(names), np.array([place for _, place in found]), np.array(pixels))


def solve_pose(camera: Camera, places: Places) -> Pose:
    """Return the pose in which the camera sees the points where they were detected.

    Raises InputError for points that do not determine a pose (too few, on a line, outside of the image), for two poses
    that fit equally well, and for a large error, naming the worst point.
    """
    _require_points(camera, places)
    candidates = sorted((_refine(camera, places, start) for start in _starts(camera, places)), key=lambda pose: pose[0])
    if not candidates:
        raise InputError(
            "no pose of the camera fits these points", "points before the camera", "check points and pixels"
        )
    rms, best = candidates[0]
    limit = max(_LARGEST_POSE_RMS_PX, 3e-3 * camera.width)
    residuals = _residuals(camera, places, best)
    if rms > limit:
        worst = int(np.argmax((residuals**2).sum(axis=1)))
        got = f"the points are {rms:.1f} px off, '{places.names[worst]}' by {np.linalg.norm(residuals[worst]):.1f} px"
        raise InputError(
            got, f"up to {limit:.1f} px", "check that point, the board's sizes and the camera's intrinsics"
        )
    for other_rms, other in candidates[1:]:
        apart = _apart_deg(best, other)
        if apart > _OTHER_POSE_DEG and other_rms < _AMBIGUOUS * max(rms, _LEAST_ERROR_PX):
            got = f"two poses of the camera fit alike ({rms:.2f} and {other_rms:.2f} px), {apart:.0f} deg apart"
            remedy = "bring the target closer, seen at a slant, or use a larger one, or points that are not in a plane"
            raise InputError(got, "one that fits best", remedy)
    std_m, std_deg = _spread(camera, places, best, residuals)
    world_to_camera = make_transform(matrix_from_rotvec(best[:3]), best[3:])
    return Pose(invert_transform(world_to_camera), residuals, std_m, std_deg)


def _require_points(camera: Camera, places: Places) -> None:
    if len(places.names) < 4:
        got = f"{len(places.names)} points are known ({', '.join(places.names)})"
        raise InputError(got, "four or more, not on a line", "measure more points of the scene")
    extents = np.linalg.svd(places.points_m - places.points_m.mean(axis=0), compute_uv=False)
    if extents[1] < _ON_A_LINE * extents[0]:
        raise InputError("the known points are on a line", "points in a plane or in space", "measure points beside it")
    outside = ((places.pixels < -0.5) | (places.pixels > [camera.width - 0.5, camera.height - 0.5])).any(axis=1)
    if outside.any():
        at = int(np.argmax(outside))
        got = f"point '{places.names[at]}' is at pixel {places.pixels[at, 0]:g}, {places.pixels[at, 1]:g}"
        raise InputError(got, f"a pixel of {camera.width}x{camera.height}", "check the pixels' columns")


def _starts(camera: Camera, places: Places) -> list[Array]:
    """Return poses (rotation vector, translation; world to camera) to refine, in front of the camera."""
    import cv2

    bearings = pixels_to_bearings(camera, places.pixels)
    good = np.isfinite(bearings).all(axis=1)
    if good.sum() < 4:
        raise InputError(
            "the points lie where the lens shows nothing", "points nearer to the middle", "check the pixels"
        )
    points, bearings = places.points_m[good], bearings[good]
    middle = points.mean(axis=0)
    _, extents, axes = np.linalg.svd(points - middle)
    found = []
    methods = [(cv2.SOLVEPNP_SQPNP, np.eye(3))]
    if extents[2] < _IN_A_PLANE * extents[0]:  # IPPE wants its plane at z = 0
        methods.append((cv2.SOLVEPNP_IPPE, axes * np.sign(np.linalg.det(axes))))
    for method, to_plane in methods:
        moved = (points - middle) @ to_plane.T
        moved = moved * [1.0, 1.0, 0.0] if method == cv2.SOLVEPNP_IPPE else moved
        try:
            _, rotvecs, shifts, _ = cv2.solvePnPGeneric(moved, bearings, np.eye(3), None, flags=method)
        except cv2.error:
            continue
        for rotvec, shift in zip(rotvecs, shifts, strict=True):
            rotation = matrix_from_rotvec(np.ravel(rotvec)) @ to_plane
            translation = np.ravel(shift) - rotation @ middle
            if np.isfinite(rotation).all() and ((points @ rotation.T + translation)[:, 2] > 0.0).all():
                found.append(np.concatenate([np.ravel(cv2.Rodrigues(rotation)[0]), translation]))
    return found


def _residuals(camera: Camera, places: Places, pose: Array) -> Array:
    points = places.points_m @ matrix_from_rotvec(pose[:3]).T + pose[3:]
    return np.nan_to_num(places.pixels - project(camera, points), nan=1e3)


def _refine(camera: Camera, places: Places, start: Array) -> tuple[float, Array]:
    from scipy.optimize import least_squares

    found = least_squares(
        lambda x: _residuals(camera, places, x).ravel(), start, method="lm", x_scale="jac", max_nfev=200
    )
    pose = np.asarray(found.x)
    return float(np.sqrt((_residuals(camera, places, pose) ** 2).sum(axis=1).mean())), pose


def _apart_deg(one: Array, other: Array) -> float:
    between = matrix_from_rotvec(one[:3]).T @ matrix_from_rotvec(other[:3])
    return float(np.rad2deg(np.arccos(np.clip(0.5 * (np.trace(between) - 1.0), -1.0, 1.0))))


def _spread(camera: Camera, places: Places, pose: Array, residuals: Array) -> tuple[Array, float]:
    """Return standard deviations of the camera's position [3] m and of its direction (the largest) in degrees."""
    rotation = matrix_from_rotvec(pose[:3])
    position = -rotation.T @ pose[3:]

    def moved(step: Array) -> Array:
        """Return the residuals after a small rotation (in camera axes) and translation (in the world)."""
        points = (places.points_m - position - step[3:]) @ rotation.T @ matrix_from_rotvec(step[:3])
        return (places.pixels - project(camera, points)).ravel()

    steps = _STEP * np.eye(6)
    jacobian = np.stack([(moved(step) - moved(-step)) / (2.0 * _STEP) for step in steps], axis=1)
    jacobian = jacobian[np.isfinite(jacobian).all(axis=1)]
    variance = max(float((residuals**2).sum()) / max(residuals.size - 6, 1), _LEAST_ERROR_PX**2)
    covariance = variance * np.linalg.pinv(jacobian.T @ jacobian)
    deviations = np.sqrt(np.diag(covariance))
    return deviations[3:], float(np.rad2deg(deviations[:3].max()))


def _refined(name: str, number: int, corners: Array, image: Grey) -> Array:
    """Return a marker's corners where its pattern fits best; the marker's size in the world does not matter."""
    return refine(Target("tag", 1, 1, 1.0, 0.0, name, number), View(np.arange(4), corners), image).pixels


def _middle(camera: Camera, corners: Array) -> Array:
    """Return the pixel of a marker's middle, where its diagonals cross in the undistorted image."""
    a, b, c, d = pixels_to_bearings(camera, corners)
    share = np.linalg.solve(np.stack([c - a, b - d], axis=1), b - a)[0]
    return bearings_to_pixels(camera, a + share * (c - a))

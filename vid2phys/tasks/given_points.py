"""Keypoints given in place of RISP's readings: of another tracker (CSV), or of an earlier run (observation.npz).

The error model of another tracker is what its file says: a covariance for each point, independent of all others, and an
error that all points of a frame share, since trackers see a whole body a little wrong and go on doing so. The shared
error is one of the six ways in which a pose can be wrong, each of which moves the points by `shared_px` (root mean
square) and is forgotten within `_LASTS_S` by the clock of turning (`risp/calibration/clock.py`). Both levels are fitted
as those of RISP are: the points' from what the motion leaves over, the shared one never below what is stated.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vid2phys.errors import InputError, UsageError

if TYPE_CHECKING:
    from vid2phys.io.keypoints import Keypoints
    from vid2phys.risp.tracking.pose import Pose
    from vid2phys.risp.tracking.tracked import Track
    from vid2phys.types import Array, Camera, Clip, Mesh, Observation

_LEAST_POINTS = 4
_LASTS_S = 0.2  # correlation time of the shared error, by the clock of a body that turns
_MODES = 6
_ABOUT = 1.5  # radii of the mesh within which its points lie
_FLAT = 1e-3  # of their spread: points closer to a line than this show no turn about it
_LEAST_PX = 0.05  # of an estimated standard deviation
_CHI2_MEDIAN = 1.386  # of two degrees of freedom
_SAME_S = 1e-3


def check_given(
    observation: str | Path | None, body_points: str | Path | None, *, rigid: bool, loss: str, clips: int = 1
) -> None:
    """Raises UsageError for combinations that do not exist, before anything is read."""
    if observation is None:
        if body_points is not None:
            raise UsageError("--body-points without --observation", "both", "give the CSV of the keypoints, too")
        return
    if not rigid:
        raise UsageError("--observation for a body on a known base", "a rigid body with its --mesh", "leave it out")
    if clips > 1:
        raise UsageError(f"--observation for {clips} clips", "one clip", "fit the clips one by one")
    if loss not in ("keypoint", "state"):
        raise UsageError(f"--loss {loss} with --observation", "--loss keypoint or state", "leave one of them out")
    if (Path(observation).suffix == ".npz") == (body_points is not None):
        got = f"--observation {observation} " + ("with" if body_points is not None else "without") + " --body-points"
        raise UsageError(got, "a CSV with --body-points FILE, or an observation.npz, which has its own points")


def given_track(
    observation: str | Path, body_points: str | Path | None, clip: Clip, camera: Camera, mesh: Mesh
) -> tuple[Track, tuple[str, ...]]:
    """What was seen of the body by the files given, and notes for a reader of the result. Raises InputError."""
    if body_points is None:
        return _track(_of_earlier_run(observation, clip)), ()
    from vid2phys.io.keypoints import load_keypoints
    from vid2phys.io.points import load_body_points

    points = load_body_points(body_points)
    body = np.array(list(points.values()))
    _check_body_points(body_points, body, mesh)
    size = (clip.width, clip.height)
    whole, frames = clip.whole or (clip, slice(None))  # the file may be of the whole video
    seen = load_keypoints(observation, tuple(points), whole.times_s, size, body_points)[frames]
    return _of_keypoints(seen, body, clip, camera, observation)


def to_keypoints(seen: Observation, camera: Camera) -> Keypoints:
    """What was seen as keypoints of the picture, named p0, p1 ..., for other tools and for `given_track`.

    A CSV holds one number of the error that a frame's points share: the root mean square of what its modes move.
    """
    from vid2phys.engine.observe import bearing_jacobian_to_pixels, bearings_to_pixels
    from vid2phys.io.keypoints import Keypoints

    to_pixels = bearing_jacobian_to_pixels(camera, seen.bearings)
    pixels = bearings_to_pixels(camera, seen.bearings)
    shared = np.sqrt(((to_pixels @ seen.shared_basis) ** 2).mean(axis=(1, 2, 3)))
    covariance = to_pixels @ seen.covariance @ np.swapaxes(to_pixels, -1, -2)
    names = tuple(f"p{k}" for k in range(len(seen.points_body)))
    return Keypoints(names, pixels, covariance, seen.visible & np.isfinite(pixels).all(axis=-1), shared)


def _of_earlier_run(path: str | Path, clip: Clip) -> Observation:
    from vid2phys.io.recordings import load_observation

    seen = load_observation(path)
    if len(seen.times_s) != len(clip.times_s) or np.abs(seen.times_s - clip.times_s).max() > _SAME_S:
        got = f"'{path}' has {len(seen.times_s)} frames up to {seen.times_s[-1]:.3f} s"
        raise InputError(got, f"those of '{clip.name}', {len(clip.times_s)} up to {clip.times_s[-1]:.3f} s")
    return seen


def _of_keypoints(
    seen: Keypoints, body: Array, clip: Clip, camera: Camera, path: str | Path
) -> tuple[Track, tuple[str, ...]]:
    from vid2phys.engine.observe import bearing_jacobian_to_pixels, pixels_to_bearings
    from vid2phys.types import Observation

    bearings = pixels_to_bearings(camera, seen.pixels)
    visible = seen.visible & np.isfinite(bearings).all(axis=-1)  # beyond what the lens model covers
    bearings = np.where(visible[..., None], bearings, 0.0)
    from_pixels = np.linalg.inv(bearing_jacobian_to_pixels(camera, bearings))
    in_pixels = np.broadcast_to(np.eye(2), (*visible.shape, 2, 2)) if seen.covariance is None else seen.covariance
    first = Observation(
        clip.times_s,
        bearings,
        from_pixels @ in_pixels @ np.swapaxes(from_pixels, -1, -2),
        np.zeros((*visible.shape, 2, _MODES)),
        np.full(_MODES, _LASTS_S),
        visible,
        body,
    )
    if visible.sum(axis=1).max() < _LEAST_POINTS:
        most = int(visible.sum(axis=1).max())
        raise InputError(f"'{path}' has at most {most} points in a frame", f"{_LEAST_POINTS} or more", "track more")
    track, notes = _track(first).clocked(), []
    if seen.covariance is None:
        scale = _misfit(track)
        notes.append(f"'{Path(path).name}' says nothing of its errors: estimated, {scale:.2g} px a point")
        track = _track(replace(first, covariance=scale**2 * first.covariance)).clocked()
    covariance = track.observation.covariance
    focal = float(np.sqrt(camera.K[0, 0] * camera.K[1, 1]))
    shared = _typical(covariance, visible) if seen.shared_px is None else seen.shared_px / focal
    basis = _shared_basis(track, shared)
    return replace(track, observation=replace(track.observation, shared_basis=basis)), tuple(notes)


def _track(seen: Observation) -> Track:
    """A pose of each frame with enough points, joined by continuity: flat sets of points have two."""
    from vid2phys.risp.tracking.path import likeliest_path
    from vid2phys.risp.tracking.pose import solve_poses
    from vid2phys.risp.tracking.tracked import Track

    frames = np.flatnonzero(seen.visible.sum(axis=1) >= _LEAST_POINTS)
    poses = solve_poses(
        *(seen.bearings[frames], seen.covariance[frames], seen.points_body), visible=seen.visible[frames], hypotheses=3
    )
    sound = np.isfinite(poses.cost[:, 0])
    frames, poses = frames[sound], poses[sound]
    if not len(frames):
        raise InputError("no frame's points lie as those of the body do", "the body's points", "check their names")
    path = likeliest_path(poses.cost, poses.rotation, seen.times_s[frames])
    chosen = poses[np.arange(len(frames)), path]
    tracked = np.zeros(len(seen.times_s), dtype=bool)
    tracked[frames] = True
    element = np.where(tracked, 0, -1).astype(np.int64)
    poses = _spread(chosen, frames, len(tracked))
    return Track(seen, poses, tracked, tracked * 1.0, element, np.zeros(1))


def _spread(poses: Pose, frames: NDArray[np.int64], count: int) -> Pose:
    """Poses [N] of some frames among all [count], NaN elsewhere."""
    from dataclasses import fields

    from vid2phys.risp.tracking.pose import Pose

    def put(values: Any) -> Any:
        out = np.zeros((count, *values.shape[1:]), dtype=values.dtype)
        if values.dtype != bool:
            out[:] = np.nan
        out[frames] = values
        return out

    return Pose(**{f.name: put(getattr(poses, f.name)) for f in fields(Pose)})


def _misfit(track: Track) -> float:
    """By how much more than one standard deviation points are off their frame's pose, of which they took up six
    numbers: robust, by the median."""
    from vid2phys.risp.tracking.geometry import project_points

    seen, frames = track.observation, np.flatnonzero(track.tracked)
    predicted = project_points(track.poses.rotation[frames], track.poses.translation[frames], seen.points_body)
    whitener = np.linalg.inv(np.linalg.cholesky(seen.covariance[frames]))
    residual = (whitener @ (seen.bearings[frames] - predicted)[..., None])[..., 0]
    squared = (residual**2).sum(axis=-1)
    count = 2.0 * seen.visible[frames].sum(axis=1)
    freedom = np.maximum((count - 6.0) / count, 0.1)[:, None]
    visible = seen.visible[frames]
    return max(_LEAST_PX, float(np.sqrt(np.median((squared / freedom)[visible]) / _CHI2_MEDIAN)))


def _typical(covariance: Array, visible: NDArray[np.bool_]) -> Array:
    """The standard deviation of one point of each frame, a coordinate, [T]; the clip's where none is seen."""
    variance = 0.5 * np.trace(covariance, axis1=-2, axis2=-1)
    overall = float(np.median(variance[visible]))
    count = visible.sum(axis=1)
    mean = (variance * visible).sum(axis=1) / np.maximum(count, 1)
    return np.sqrt(np.where(count > 0, mean, overall))


def _shared_basis(track: Track, shared: Array) -> Array:
    """The six ways a pose can be wrong, each moving the points by `shared` [T] (root mean square), [T, K, 2, 6].

    Frames with too few points for a pose have those of the nearest one that has it.
    """
    from vid2phys.indices import nearest
    from vid2phys.risp.tracking.geometry import pose_modes

    frames = np.flatnonzero(track.tracked)
    poses = track.poses[frames[nearest(len(track.tracked), frames)]]
    modes = pose_modes(poses.rotation, poses.translation, track.observation.points_body)
    size = np.sqrt((modes**2).sum(axis=2).mean(axis=1) / 2.0)  # a coordinate, [T, 6]
    return np.asarray(modes / np.maximum(size, 1e-12)[:, None, None, :] * shared[:, None, None, None])


def _check_body_points(path: str | Path, points: Array, mesh: Mesh) -> None:
    if len(points) < _LEAST_POINTS:
        raise InputError(f"'{path}' has {len(points)} points", f"{_LEAST_POINTS} or more", "name more points")
    spread = np.linalg.svd(points - points.mean(axis=0), compute_uv=False)
    if spread[1] < _FLAT * spread[0]:
        raise InputError(f"the points of '{path}' lie on a line", "points that do not", "add points beside it")
    radius = float(np.linalg.norm(mesh.vertices, axis=1).max())
    farthest = float(np.linalg.norm(points, axis=1).max())
    if farthest > _ABOUT * radius:
        got = f"a point of '{path}' is {farthest:.3g} m from the body's origin"
        raise InputError(got, f"points of the mesh, which reaches to {radius:.3g} m", "check axes and units")

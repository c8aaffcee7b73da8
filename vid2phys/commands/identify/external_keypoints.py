"""Measurements given in place of RISP: keypoints of another tracker (CSV), or those of an earlier run (npz).

The error model of another tracker is what its file says: a covariance for each point, independent of all others, and an
error that all points of a frame share, since trackers see a whole body a little wrong and go on doing so. What the file
does not say is estimated (`given_errors`). Points that fit no pose of the body are found beforehand (`given_doubts`).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vid2phys.commands.identify.external_doubts import Points, doubts
from vid2phys.commands.identify.external_errors import LASTS_S, point_error, with_shared_error
from vid2phys.commands.identify.inputs import LEAST_TRACKED
from vid2phys.errors import InputError
from vid2phys.geometry import Pose
from vid2phys.notes import warning

if TYPE_CHECKING:
    from vid2phys.engine.pnp import PoseEstimate
    from vid2phys.io.keypoints import Keypoints
    from vid2phys.tracking.track import Track
    from vid2phys.types import Array, Camera, Clip, Mesh, Observation

_LEAST_POINTS = 4  # of a frame with a pose
_MODES = 6  # of a shared error, see `pose_modes`
_UNITS = "check axes and units: millimetres are named x_mm, y_mm, z_mm"
_TINY = 0.02  # radii of the mesh: points that all lie within are in another unit
_ABOUT = 1.5  # radii of the mesh within which its points lie
_FLAT = 1e-3  # of their spread: points closer to a line than this show no turn about it
_SAME_S = 1e-3  # times closer than this are those of the same frame
_UNDERSTATED = 1.5  # times their stated errors: points that miss every pose by more have larger errors


def given_track(
    observation: str | Path, body_points: str | Path | None, clip: Clip, camera: Camera, mesh: Mesh
) -> tuple[Track, tuple[str, ...]]:
    """Return the track that the given files state, and notes for a reader of the result. Raises InputError."""
    if body_points is None:
        return _track(_of_earlier_run(observation, clip, camera)), ()
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
    """Return what was seen as keypoints of the image, named p0, p1 ..., for other tools and for `given_track`.

    A CSV has no poses: where a pose was measured, it gets the keypoints of this pose. It holds one number of the error
    that a frame's points share: the root mean square of what its modes move.
    """
    from vid2phys.engine.observe import bearing_jacobian_to_pixels, bearings_to_pixels
    from vid2phys.engine.pose_geometry import image_points, pose_modes
    from vid2phys.io.keypoints import Keypoints

    (bearings, visible), basis, measured = image_points(seen), seen.shared_basis.copy(), seen.configuration
    if measured is not None and isinstance(measured.configuration, Pose):
        modes = pose_modes(measured.pose, seen.points_body) @ measured.shared_basis[:, None]
        basis = np.where(measured.measured[:, None, None, None], modes, basis)
    to_pixels, pixels = bearing_jacobian_to_pixels(camera, bearings), bearings_to_pixels(camera, bearings)
    shared = np.sqrt(((to_pixels @ basis) ** 2).mean(axis=(1, 2, 3)))
    covariance = to_pixels @ seen.covariance @ np.swapaxes(to_pixels, -1, -2)
    names = tuple(f"p{k}" for k in range(len(seen.points_body)))
    return Keypoints(names, pixels, covariance, visible & np.isfinite(pixels).all(axis=-1), shared)


def _of_earlier_run(path: str | Path, clip: Clip, camera: Camera) -> Observation:
    from vid2phys.io.recordings import load_observation

    seen = load_observation(path)
    most_s = _SAME_S + 0.5 * camera.readout_s  # a row before or after the middle one
    if len(seen.times_s) != len(clip.times_s) or np.abs(seen.times_s - clip.times_s).max() > most_s:
        got = f"'{path}' has {len(seen.times_s)} frames up to {seen.times_s[-1]:.3f} s"
        raise InputError(got, f"those of '{clip.name}', {len(clip.times_s)} up to {clip.times_s[-1]:.3f} s")
    return seen


def _of_keypoints(
    seen: Keypoints, body: Array, clip: Clip, camera: Camera, path: str | Path
) -> tuple[Track, tuple[str, ...]]:
    """Return the track and notes.

    Raises InputError for too few points, in a frame or in all, and for points that a common mistake explains.
    """
    from vid2phys.engine.observe import bearing_jacobian_to_pixels, pixels_to_bearings
    from vid2phys.types import Observation

    bearings = pixels_to_bearings(camera, seen.pixels)
    visible = seen.visible & np.isfinite(bearings).all(axis=-1)  # beyond what the lens model covers
    most = int(visible.sum(axis=1).max())
    if most < _LEAST_POINTS:
        raise InputError(f"'{path}' has at most {most} points in a frame", f"{_LEAST_POINTS} or more", "track more")
    frames, enough = int((visible.sum(axis=1) >= _LEAST_POINTS).sum()), LEAST_TRACKED * len(visible)
    if frames < enough:
        got = f"'{path}' has {_LEAST_POINTS} or more points in {frames} of {len(visible)} frames"
        raise InputError(got, f"at least {int(np.ceil(enough))}", "track more, or select a part with --from and --to")
    name = Path(path).name
    notes = doubts(Points(seen.pixels, visible, body, seen.names), camera, f"the points of '{name}'")
    bearings = np.where(visible[..., None], bearings, 0.0)
    from_pixels = np.linalg.inv(bearing_jacobian_to_pixels(camera, bearings))
    in_pixels = np.broadcast_to(np.eye(2), (*visible.shape, 2, 2)) if seen.covariance is None else seen.covariance
    first = Observation(
        clip.times_s,
        bearings,
        from_pixels @ in_pixels @ np.swapaxes(from_pixels, -1, -2),
        np.zeros((*visible.shape, 2, _MODES)),
        np.full(_MODES, LASTS_S),
        visible,
        body,
    )
    estimated = []
    scale = point_error(replace(_track(_at_least(first, in_pixels[visible])), observation=first))
    if seen.covariance is None:
        estimated.append(f"{scale:.2g} px a point")
    elif scale > _UNDERSTATED:
        miss = f"the points of '{name}' miss every pose of the body by {scale:.2g} times the errors that it states"
        notes = (*notes, warning(f"{miss}: these are taken to be as many times larger"))
    else:
        scale = 1.0
    track = _track(replace(first, covariance=scale**2 * first.covariance)).clocked()
    focal = float(np.sqrt(camera.K[0, 0] * camera.K[1, 1]))
    track = with_shared_error(track, None if seen.shared_px is None else seen.shared_px / focal)
    if seen.shared_px is None:
        share = focal * float(np.sqrt((track.observation.shared_basis**2).mean(axis=(0, 1, 2)).max()))
        estimated.append(f"up to {share:.1g} px that all points of a frame share")
    unsaid = ["each point"] if seen.covariance is None else []
    unsaid += ["all points of a frame"] if seen.shared_px is None else []
    if estimated:
        errors = f"'{name}' does not say how far {' and '.join(unsaid)} may be off"
        notes = (*notes, f"{errors}: estimated, {' and '.join(estimated)}")
    return track, notes


def _at_least(seen: Observation, in_pixels: Array) -> Observation:
    """Return what was seen with covariances of at least about a pixel; in_pixels: [N, 2, 2] those of visible points.

    No pose explains points whose stated errors are far too small.
    """
    variance = 0.5 * float(np.median(np.trace(in_pixels, axis1=-2, axis2=-1)))
    return replace(seen, covariance=max(1.0, 1.0 / variance) * seen.covariance)


def _track(seen: Observation) -> Track:
    """Return the measured poses, and one of each other frame with enough points.

    The latter are joined by continuity: flat sets of points have two poses.
    """
    from vid2phys.engine.pnp import known_pose, solve_poses
    from vid2phys.tracking.track import Track
    from vid2phys.tracking.viterbi import viterbi_path

    frames = np.flatnonzero(seen.used.sum(axis=1) >= _LEAST_POINTS)
    tracked, found = seen.measured.copy(), None
    if len(frames):
        poses = solve_poses(
            *(seen.bearings[frames], seen.covariance[frames], seen.points_body), visible=seen.used[frames], hypotheses=3
        )
        sound = np.isfinite(poses.cost[:, 0])
        frames, poses = frames[sound], poses[sound]
    if len(frames):
        path = viterbi_path(poses.cost, poses.rotation, seen.times_s[frames])
        tracked[frames] = True
        found = _spread(poses[np.arange(len(frames)), path], frames, len(tracked))
    if not tracked.any():
        raise InputError("no frame's points lie as those of the body do", "the body's points", "check their names")
    if seen.configuration is not None and seen.measured.any():
        at = np.flatnonzero(seen.measured)
        measured = replace(known_pose(seen.configuration.pose[at]), inliers=seen.visible[at])
        found = _spread(measured, at, len(tracked)) if found is None else found.with_rows(at, measured)
    assert found is not None
    poses, element = found, np.where(tracked, 0, -1).astype(np.int64)
    return Track(seen, poses, tracked, tracked.astype(float), element, np.zeros(1))


def _spread(poses: PoseEstimate, frames: NDArray[np.int64], count: int) -> PoseEstimate:
    """Return poses [N] of some frames among all [count], NaN elsewhere."""
    from dataclasses import fields

    from vid2phys.engine.pnp import PoseEstimate

    def put(values: Any) -> Any:
        out = np.zeros((count, *values.shape[1:]), dtype=values.dtype)
        if values.dtype != bool:
            out[:] = np.nan
        out[frames] = values
        return out

    arrays = {f.name: put(getattr(poses, f.name)) for f in fields(PoseEstimate) if f.name != "pose"}
    return PoseEstimate(poses.pose.map(put), **arrays)


def _check_body_points(path: str | Path, points: Array, mesh: Mesh) -> None:
    if len(points) < _LEAST_POINTS:
        raise InputError(f"'{path}' has {len(points)} points", f"{_LEAST_POINTS} or more", "name more points")
    spread = np.linalg.svd(points - points.mean(axis=0), compute_uv=False)
    if spread[1] < _FLAT * spread[0]:
        raise InputError(f"the points of '{path}' lie on a line", "points that do not", "add points beside it")
    radius = mesh.radius_m
    farthest = float(np.linalg.norm(points, axis=1).max())
    if farthest > _ABOUT * radius:
        got = f"a point of '{path}' is {farthest:.3g} m from the body's origin"
        raise InputError(got, f"points of the mesh, which reaches to {radius:.3g} m", _UNITS)
    if farthest < _TINY * radius:
        got = f"all points of '{path}' are within {farthest:.3g} m of the body's origin"
        raise InputError(got, f"points of the mesh, which reaches to {radius:.3g} m", _UNITS)

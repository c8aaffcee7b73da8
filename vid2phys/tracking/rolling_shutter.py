"""Correct the track of a rolling-shutter clip: each pose at the time of its row, fitted to the body as frames show it.

A tracker takes all rows of a frame as exposed at once. So a body that falls looks stretched, which reads as another
distance and another rotation, and its pose belongs to the time of its row. Both are corrected here. Differences of the
poses give the body's twist in each frame; its mesh is then moved to the times of its rows (`engine.rolling_shutter`),
and its edges are fitted again. New poses give better twists. Keypoints are moved to the time of the origin's row.

Limits: rigid bodies before a static camera. Poses that a texture or points measured are corrected to first order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from vid2phys.engine.observe import project, to_bearings
from vid2phys.engine.parallel import in_processes
from vid2phys.engine.pose_geometry import modes_of_points
from vid2phys.engine.rolling_shutter import Twist, origin_delay, row_delay, shown_mesh, shown_points
from vid2phys.geometry import Pose, quat_from_matrix, rotvec_from_quat
from vid2phys.tracking.background import Indexed
from vid2phys.tracking.cues.contour_config import DEFAULTS, ContourConfig
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.cues.edge_steps import slopes
from vid2phys.tracking.cues.photometric import PRIOR_STD
from vid2phys.tracking.refine import fit_edges
from vid2phys.tracking.silhouette_fit import SilhouetteFitConfig
from vid2phys.tracking.track import Track
from vid2phys.types import Array, Camera, Mesh

_EDGES = ("silhouette", "contour")  # sources of poses that edges measured
_STD = np.array(SilhouetteFitConfig().contour_std)  # of the poses before their edges are fitted again
_MOST = DEFAULTS.max_step_prior * PRIOR_STD  # of a pose in these fits
_ROUNDS = 2
_STEPS = 3  # of a pose that its points correct
_CENTRAL = 0.5  # roughness of the stencil around a frame, as a share, with which it is as good as one beside it


@dataclass(frozen=True)
class MovingBody:
    """A rigid mesh in a frame of a rolling shutter (see `refine.PlacedMesh`).

    Its coordinates are the six of the pose, and the readout in seconds where that is fitted, too.
    """

    mesh: Mesh
    camera: Camera
    pose: Pose
    twist: Twist
    fits_readout: bool

    def vertices(self) -> Array:
        """See `refine.PlacedMesh`."""
        return shown_points(self.camera, self.pose, self.twist, self.mesh.vertices)

    def slopes(self, points: Array, along: Array) -> Array:
        """See `refine.PlacedMesh`."""
        by_pose = slopes(points, along, self.pose.translation)
        if not self.fits_readout:
            return np.asarray(by_pose)
        of_a_second, about = replace(self.camera, readout_s=1.0), points - self.pose.translation
        pixels = project(self.camera, points)
        share = np.nan_to_num(row_delay(of_a_second, pixels) - origin_delay(of_a_second, self.pose))
        moved = (self.twist.linear + np.cross(self.twist.angular, about)) * share[:, None]
        by_readout = (along * (moved[:, :2] - to_bearings(points) * moved[:, 2:]) / points[:, 2:]).sum(axis=1)
        return np.concatenate([by_pose, by_readout[:, None]], axis=1)

    def moved(self, step: Array) -> tuple[MovingBody, Array]:
        """See `refine.PlacedMesh`."""
        camera = self.camera
        if self.fits_readout:
            camera = replace(camera, readout_s=camera.readout_s + float(step[6]))
        return replace(self, pose=self.pose.retract(step[:6]), camera=camera), step


@dataclass(frozen=True)
class ReadoutFits:
    """What the edges of each frame by itself tell of the readout.

    Attributes:
        change_s: [T] by how much longer the readout is than assumed, s.
        information: [T] about it, 1 / s^2, with the pose unknown.
        response: [T, 6] derivative of the pose by the readout, in its local coordinates, 1 / s.
    """

    change_s: Array
    information: Array
    response: Array


def at_row_times(
    frames: Indexed, camera: Camera, mesh: Mesh, track: Track, times_s: Array, near: Pose | None = None
) -> Track:
    """Return a track with each measurement at the time of its row.

    Args:
        frames: T images.
        camera: of the clip, static, with its readout.
        mesh: of the body.
        track: as a tracker gives it, which takes all rows as exposed at once.
        times_s: [T] of the frames' middle rows.
        near: poses [T] of about the same readout, which save a round.
    """
    tracked, seen = track.poses.pose, track.observation
    known = np.flatnonzero(tracked.is_finite & seen.seen).tolist()
    by_edges = seen.configuration is not None and set(seen.configuration.source.split(", ")) <= set(_EDGES)
    solid = Solid.of(mesh)
    pose = (tracked if near is None else near).copy()

    def corrected(of_frame: tuple[int, Twist]) -> Pose:
        i, twist = of_frame
        if not (by_edges and seen.measured[i]):
            return _by_points(camera, mesh, pose[i], twist, tracked[i])
        body = MovingBody(mesh, camera, pose[i], twist, False)
        fit = fit_edges(frames[i], camera, solid, body, np.diag(_STD**-2.0), _MOST, config=_contour(track, i))
        return pose[i] if fit is None else fit[0].pose

    for _ in range(_ROUNDS if near is None else 1):
        motion = twists(pose, row_times(camera, pose, times_s))
        for i, found in zip(known, in_processes(corrected, ((i, motion[i]) for i in known)), strict=True):
            pose[i] = found
    return _moved(camera, track, pose, row_times(camera, pose, times_s))


def fit_readouts(
    frames: Indexed, camera: Camera, mesh: Mesh, track: Track, std_s: float, most: int | None = None
) -> ReadoutFits:
    """Fit pose and readout to the edges of each frame, about a track of `at_row_times`.

    std_s: of the camera's readout. most: number of frames, the fastest ones (default: all). A frame that shows no
    motion or no edges has no information.
    """
    pose, solid = track.poses.pose, Solid.of(mesh)
    motion = twists(pose, track.observation.times_s)
    speed = np.where(track.tracked & pose.is_finite, np.linalg.norm(motion.linear, axis=-1), -1.0)
    known = sorted(int(i) for i in np.argsort(-speed)[:most] if speed[i] >= 0.0)
    prior, largest = np.diag(np.append(_STD, std_s) ** -2.0), np.append(_MOST, std_s)
    out = ReadoutFits(np.zeros(len(pose)), np.zeros(len(pose)), np.zeros((len(pose), 6)))

    def fitted(i: int) -> tuple[MovingBody, Array] | None:
        body = MovingBody(mesh, camera, pose[i], motion[i], True)
        return fit_edges(frames[i], camera, solid, body, prior, largest, config=_contour(track, i))

    for i, found in zip(known, in_processes(fitted, known), strict=True):
        if found is None:
            continue
        information = found[1] / DEFAULTS.overconfidence
        response = -np.linalg.solve(information[:6, :6] + prior[:6, :6], information[:6, 6])
        own = float(information[6, 6] + information[6, :6] @ response)
        if own > 0.0:
            change_s = found[0].camera.readout_s - camera.readout_s
            out.change_s[i] = change_s * (1.0 + prior[6, 6] / own)  # as if there were no prior
            out.information[i], out.response[i] = own, response
    return out


def _contour(track: Track, i: int) -> ContourConfig:
    """Return the settings of an edge fit in frame i of a track."""
    return DEFAULTS if track.blur is None else replace(DEFAULTS, path_px=track.blur.path(i))


def row_times(camera: Camera, pose: Pose, times_s: Array) -> Array:
    """Return when the row of the body's origin is exposed, [T] s; the frame's time [T] where its pose [T] is NaN.

    An origin beyond the image counts as at its border, so that times increase.
    """
    most = 0.5 * abs(camera.readout_s)
    return np.asarray(times_s + np.clip(np.nan_to_num(origin_delay(camera, pose)), -most, most))


def meshes_of_frames(camera: Camera, mesh: Mesh, pose: Pose, times_s: Array) -> Callable[[int], Mesh]:
    """Return a function that gives the mesh as a frame shows it.

    Args:
        camera: of the clip.
        mesh: of the body.
        pose: camera_from_body [T] at times_s.
        times_s: [T] of the rows of the body's origin.
    """
    if not camera.readout_s:
        return lambda _: mesh
    motion = twists(pose, times_s)
    return lambda i: shown_mesh(camera, pose[i], motion[i], mesh)


def _by_points(camera: Camera, mesh: Mesh, start: Pose, twist: Twist, tracked: Pose) -> Pose:
    """Return the pose of a moving body whose vertices look as those of a static one at the tracked pose."""
    pose, vertices = start, mesh.vertices
    for _ in range(_STEPS):
        target, looks_like = to_bearings(shown_points(camera, pose, twist, vertices)), pose
        for _ in range(_STEPS):
            points = looks_like.apply(vertices)
            modes = modes_of_points(points, looks_like.translation).reshape(-1, 6)
            off = (target - to_bearings(points)).ravel()
            sound = np.isfinite(off)
            step = np.linalg.lstsq(modes[sound], off[sound], rcond=None)[0]
            looks_like = looks_like.retract(np.asarray(step, dtype=float))
        pose = pose.retract(looks_like.step_to(tracked))
    return pose


def _moved(camera: Camera, track: Track, pose: Pose, times_s: Array) -> Track:
    """Return the track with corrected poses [T] and times [T]."""
    seen, motion = track.observation, twists(pose, times_s)
    bearings = seen.bearings.copy()
    for i in np.flatnonzero(pose.is_finite).tolist():
        still = to_bearings(pose[i].apply(seen.points_body))
        shift = to_bearings(shown_points(camera, pose[i], motion[i], seen.points_body)) - still
        bearings[i] -= np.nan_to_num(shift)
    part = seen.configuration
    if part is not None:
        known = part.measured & pose.is_finite
        part = replace(part, configuration=part.pose.copy())
        part.pose[known] = pose[known]
    observation = replace(seen, times_s=times_s, bearings=bearings, configuration=part)
    return replace(track, observation=observation, poses=replace(track.poses, pose=pose)).clocked()


def twists(pose: Pose, times_s: Array) -> Twist:
    """Return the twists [T] of a body from its poses camera_from_body [T] at times_s [T]; NaN poses are left out.

    Quadratics through three poses give them. Of those before, around and after a frame the smoothest one counts: the
    others may have an impact between their poses. A clip with less than three poses has no motion.
    """
    known = np.flatnonzero(pose.is_finite)
    out = Twist(np.zeros((len(times_s), 3)), np.zeros((len(times_s), 3)))
    if len(known) < 3:
        return out
    at, times = pose[known], times_s[known]
    apart = np.diff(times)[:, None]
    rotations = at.rotation[1:] @ np.swapaxes(at.rotation[:-1], -1, -2)
    out.angular[known] = _rates(rotvec_from_quat(quat_from_matrix(rotations)) / apart, times)
    out.linear[known] = _rates(np.diff(at.translation, axis=0) / apart, times)
    return out


def _rates(between: Array, times_s: Array) -> Array:
    """Return velocities [n, 3] at n times from those between them, [n - 1, 3]."""
    middle = 0.5 * (times_s[1:] + times_s[:-1])
    slope = np.diff(between, axis=0) / np.diff(middle)[:, None]
    roughness, count = np.linalg.norm(slope, axis=-1), len(times_s)
    out = np.zeros((count, 3))
    for k in range(count):
        pairs = [j for j in (k - 2, k - 1, k) if 0 <= j < count - 2]
        j = min(pairs, key=lambda j: roughness[j] * (_CENTRAL if j == k - 1 else 1.0))
        out[k] = between[j] + slope[j] * (times_s[k] - middle[j])
    return out

"""Refine the poses of a textured body through a clip by its texture.

The texture decides what the network is unsure of, given a pose that is nearly right: that of the frame, or that of the
frame before or after. Patches of the texture are the most accurate, also where something covers half of the body
(`cues.texture_patches`). Where too few of them agree, or the pose is too far off, all colours are fitted at once
(`cues.texture_fit`). Where nothing explains a detection, all orientations are tried at its place
(`detectors.texture_search`). The fit that explains most of the image counts.

Limits: a texture of known colours, up to light and white balance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.pose_geometry import pose_modes, project_points
from vid2phys.engine.virtual_camera import in_frame
from vid2phys.error_model import Calibration
from vid2phys.geometry import Pose
from vid2phys.tracking.background import Indexed
from vid2phys.tracking.cues.texture import SurfaceTexture
from vid2phys.tracking.cues.texture_fit import fit_texture, mirrored
from vid2phys.tracking.cues.texture_patches import Patches
from vid2phys.tracking.detectors.texture_search import search
from vid2phys.tracking.measured import error_basis, with_poses
from vid2phys.tracking.track import Track
from vid2phys.tracking.viterbi import viterbi_path
from vid2phys.types import Array, Camera, Mesh

_LEAST_PIECES = 0.25  # least share of the patches that agree on a pose
_ON_PIECES = 0.5  # share of the explained frames: from there on patches alone count
_LEAST_SCORE = 0.25  # least score of a fit of all colours,
_LEAST_SHARE = 0.6  # and least share of the clip's median
_PIECES_NATS = 20.0  # difference of two poses of one frame if all patches agree on one
_BETTER = 0.03  # by which the score of an adjacent frame has to be larger, for a second fit
_EVERY = 5  # frames, between detections that are fitted too
_NEXT_S = 1.0  # frames further apart are not adjacent
_OVERCONFIDENT = 100.0  # temperature of the information of all colours
_POINT_SHARE = 0.003  # error of a single keypoint, as a share of the body's size
_STD_FLOOR = np.array([0.03, 0.03, 0.03, 1e-3, 1e-3, 6e-3])  # in modes


@dataclass(frozen=True)
class Fit:
    """A pose that the texture gives for one frame.

    Attributes:
        pose: camera_from_body.
        information: [6, 6], in the local coordinates of the pose, after its correction for overconfidence.
        score: share of the patches that agree (by_pieces), or of the image that colours explain.
        by_pieces: whether patches gave the pose, in place of all colours.
    """

    pose: Pose
    information: Array
    score: float
    by_pieces: bool

    @property
    def rank(self) -> tuple[bool, float]:
        """The order of fits of a frame."""
        return self.by_pieces, self.score


@dataclass(frozen=True)
class TextureRefiner:
    """A textured body in the frames of one clip."""

    frames: Indexed
    camera: Camera
    texture: SurfaceTexture
    patches: Patches

    def fit(self, i: int, pose: Pose) -> Fit | None:
        """Return the pose in frame i near a known one, by patches; by all colours where patches do not agree."""
        frame = self.frames[i]
        by_pieces = self._by_pieces(frame, pose)
        if by_pieces is not None:
            return by_pieces
        by_colours = fit_texture(frame, self.camera, self.texture, pose)
        if by_colours is None:
            return None
        nearer = self._by_pieces(frame, by_colours.pose)  # patches have a shorter reach than colours
        return nearer or Fit(by_colours.pose, by_colours.information / _OVERCONFIDENT, by_colours.score, False)

    def _by_pieces(self, frame: NDArray[np.uint8], pose: Pose) -> Fit | None:
        found = self.patches.fit(frame, self.camera, pose)
        if found is None or found.share < _LEAST_PIECES:
            return None
        return Fit(found.pose, found.information, found.share, True)

    def mirrored(self, i: int, fit: Fit) -> Fit | None:
        """Return the fit from the mirrored pose, which looks almost the same on the side that faces the camera."""
        return self.fit(i, mirrored(self.texture, fit.pose))

    def other(self, i: int, fit: Fit) -> Fit:
        """Return the mirrored pose by patches alone; the fit itself where there is no other."""
        found = self._by_pieces(self.frames[i], mirrored(self.texture, fit.pose))
        return found or fit

    def searched(self, i: int, bearings: Array) -> Fit | None:
        """Return the best fit of all orientations at the place where keypoints [K, 2] were detected."""
        best: Fit | None = None
        for pose in search(self.frames[i], self.camera, self.texture, bearings):
            best = _better(best, self.fit(i, pose))
            if best is not None and best.by_pieces:
                break
        return best


def refine_texture(
    frames: Indexed,
    camera: Camera,
    mesh: Mesh,
    texture: SurfaceTexture,
    track: Track,
    calibration: Calibration,
    progress: Callable[[float], None] | None = None,
) -> tuple[Track, NDArray[np.bool_]]:
    """Return the track with the poses that the texture gives, and which frames [T] the texture explains.

    A frame that was lost is found where the pose of an adjacent frame explains it. Frames that the texture does not
    explain stay as they were.
    """
    body, count = TextureRefiner(frames, camera, texture, Patches(mesh)), len(track.tracked)
    fits: list[Fit | None] = [None] * count
    for way, order in enumerate((range(count), range(count - 1, -1, -1))):
        _pass(body, track, fits, order, None if progress is None else _half(progress, way))
    _resolve_mirrored(body, track.observation.times_s, fits)
    least = _least(fits)
    believed = {i: fit for i, fit in enumerate(fits) if fit is not None and fit.rank >= least}
    return _moved(track, camera, believed, calibration), np.isin(np.arange(count), list(believed))


def _resolve_mirrored(body: TextureRefiner, times_s: Array, fits: list[Fit | None]) -> None:
    """Choose between mirrored poses of a flat side by continuity and by the patches of all frames."""
    known = [i for i, fit in enumerate(fits) if fit is not None and fit.by_pieces]
    if not known:
        return
    pairs = [(fit, body.other(i, fit)) for i in known if (fit := fits[i]) is not None]
    nats = np.array([[-_PIECES_NATS * fit.score for fit in pair] for pair in pairs])
    path = viterbi_path(nats, np.stack([[fit.pose.rotation for fit in pair] for pair in pairs]), times_s[known])
    for i, pair, chosen in zip(known, pairs, path, strict=True):
        fits[i] = pair[chosen]


def _least(fits: list[Fit | None]) -> tuple[bool, float]:
    """Return the least rank of a fit that counts."""
    pieces = sum(fit is not None and fit.by_pieces for fit in fits)
    scores = [fit.score for fit in fits if fit is not None and not fit.by_pieces]
    explained = pieces + sum(score >= _LEAST_SCORE for score in scores)
    if pieces > _ON_PIECES * explained:
        return True, 0.0
    return False, max(_LEAST_SCORE, _LEAST_SHARE * float(np.median(scores))) if scores else np.inf


def _half(progress: Callable[[float], None], way: int) -> Callable[[float], None]:
    return lambda share: progress(0.5 * (way + share))


def _pass(
    body: TextureRefiner,
    track: Track,
    fits: list[Fit | None],
    order: Iterable[int],
    progress: Callable[[float], None] | None,
) -> None:
    """Fit all frames in an order, each from its fit so far, from its detection, or from the frame before.

    While the motion continues as well explained as before, the detection of a frame is fitted only now and then, and
    never where patches agree.
    """
    times, last = track.observation.times_s, -1
    for done, i in enumerate(order):
        now, before = fits[i], fits[last] if last >= 0 and abs(times[i] - times[last]) < _NEXT_S else None
        if progress is not None:
            progress(done / len(fits))
        if now is None or _is_better(before, now):
            now = _best_fit(body, track, i, now, before)
            fits[i] = now
        if now is not None and (now.by_pieces or now.score >= _LEAST_SCORE):
            last = i


def _is_better(before: Fit | None, now: Fit) -> bool:
    """Return whether the frame before is explained so much better that its pose may suit this frame, too."""
    if before is None or now.by_pieces:
        return False
    return before.by_pieces or before.score >= now.score + _BETTER


def _best_fit(body: TextureRefiner, track: Track, i: int, now: Fit | None, before: Fit | None) -> Fit | None:
    """Return the best fit of frame i: the present one, from the pose before, or, at first, from the detection."""
    best = now if before is None else _better(now, body.fit(i, before.pose))
    if now is not None or not track.tracked[i] or (best is not None and best.by_pieces):
        return best
    if before is not None and best is not None and best.score > before.score - _BETTER and i % _EVERY != 0:
        return best
    best = _better(best, body.fit(i, track.poses.pose[i]))
    if best is not None and not best.by_pieces:
        best = _better(best, body.mirrored(i, best))
    if i % _EVERY == 0 and (best is None or best.rank < (False, _LEAST_SCORE)):
        best = _better(best, body.searched(i, track.observation.bearings[i]))
    return best


def _better(one: Fit | None, other: Fit | None) -> Fit | None:
    return max((fit for fit in (one, other) if fit is not None), key=lambda fit: fit.rank, default=None)


def _own_covariance(pose: Pose, camera: Camera, points_body: Array) -> Array:
    """Return the covariance [6, 6] of a pose whose keypoints in the image err by `_POINT_SHARE` of the body's size."""
    bearings = project_points(pose, points_body)
    variance = (_POINT_SHARE * float(np.ptp(bearings, axis=0).max())) ** 2
    modes = pose_modes(pose, points_body)[in_frame(camera, bearings)]
    information = np.einsum("kia,kib->ab", modes, modes) / variance
    return np.linalg.inv(information + np.diag((30.0 * _STD_FLOOR) ** -2.0))


def _moved(track: Track, camera: Camera, fits: dict[int, Fit], calibration: Calibration) -> Track:
    seen, poses = track.observation, track.poses
    tracked, quality = track.tracked.copy(), track.quality.copy()
    pose, pose_covariance, inliers = poses.pose.copy(), poses.covariance.copy(), poses.inliers.copy()
    basis, covariance = np.zeros((len(fits), 6, 6)), np.zeros((len(fits), 6, 6))
    for row, (i, fit) in enumerate(fits.items()):
        if not tracked[i]:
            inliers[i], quality[i], tracked[i] = True, fit.score, True
        of_colours = np.asarray(np.linalg.inv(fit.information + np.diag((30.0 * _STD_FLOOR) ** -2.0)), dtype=float)
        basis[row] = error_basis(of_colours, np.sqrt(np.diag(of_colours) + _STD_FLOOR**2))
        covariance[row] = _own_covariance(fit.pose, camera, seen.points_body)
        pose[i] = fit.pose
        pose_covariance[i] = 0.0  # the error processes hold all of the error
    frames = np.array(list(fits), dtype=np.int64)
    correlation_s = np.maximum(seen.correlation_time_s, calibration.align_correlation_s)
    observation = with_poses(seen, frames, pose[frames], basis, correlation_s, "texture", covariance)
    poses = replace(poses, pose=pose, covariance=pose_covariance, inliers=inliers)
    return replace(track, observation=observation, poses=poses, tracked=tracked, quality=quality)

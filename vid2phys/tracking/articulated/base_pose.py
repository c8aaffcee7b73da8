"""Find the pose of a robot's base from its silhouettes, where it is given only roughly or wrongly.

Some frames are searched for the robot on a base that may be shifted; the shift on which most frames agree wins. The
edges of tracked frames then give shift and rotation together with the joints of each frame (block least squares: the
joints of a frame are eliminated, the information of all frames adds up).

Limits: the camera does not move. Errors of the edges are those of `silhouette_tracker`. A rotation about the first
joint's axis shows only by parts that never move, and is otherwise taken as given; so is what the prior alone states.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from vid2phys.engine.movable.joints import JointBody
from vid2phys.engine.movable.moved_base import MovedBase
from vid2phys.engine.parallel import in_processes, one_thread
from vid2phys.geometry import matrix_from_rotvec
from vid2phys.indices import evenly
from vid2phys.tracking.articulated.contour import refine_from
from vid2phys.tracking.articulated.detector import Window
from vid2phys.tracking.articulated.silhouette_fit import Fit
from vid2phys.tracking.articulated.silhouette_search import ConfigurationSearch, SilhouetteSearchConfig
from vid2phys.tracking.articulated.silhouette_tracker import VIEW_PX, SilhouetteTracker
from vid2phys.tracking.articulated.tracker import ConfigurationTrack
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.frame_store import FrameStore
from vid2phys.types import Array, Camera, Clip


@dataclass(frozen=True, kw_only=True)
class BasePoseConfig:
    """Settings of the search and the fit of a base."""

    shift_m: float = 0.25
    """Largest shift along each axis of the world that is searched."""
    shift_std_m: float = 0.1
    """Standard deviation of the given place."""
    rotation_std_rad: float = 0.08
    """Standard deviation of the given rotation about each axis."""
    searched: int = 8
    """Number of frames that are searched."""
    agree_m: float = 0.03
    """Difference of shifts in two frames that agree, at right angles to the line of sight; along it, four times."""
    fitted: int = 14
    """Number of tracked frames whose edges are fitted."""
    rounds: int = 3
    """Number of such fits, each from the base of the one before."""
    error_scale: float = 0.5
    """Ratio of measured to stated errors of contour fits."""
    lasting_m: float = 0.003
    """Error of the shift that no number of frames makes smaller."""
    lasting_share: float = 0.006
    """The same along the line of sight, as a share of the distance."""
    lasting_rad: float = 0.014
    """The same of the rotation about each axis."""


DEFAULTS = BasePoseConfig()
_SEARCH = SilhouetteSearchConfig(configurations=16384)
_JOINT_STD = 0.15  # of a joint about its tracked value, rad, or as a share of the workspace's radius


@dataclass(frozen=True)
class BaseEstimate:
    """A base's shift (m) and rotation vector (rad) from where it was given, [6], with their covariance [6, 6].

    rotation: [3, 3], and shift: [3] m, of the robot about the world's origin. `prior_std`: [6] of what was given.
    """

    moved: Array
    covariance: Array
    prior_std: Array
    pivot: Array

    @property
    def rotation(self) -> Array:
        """Return the rotation [3, 3] of the robot about the world's origin."""
        return matrix_from_rotvec(self.moved[3:])

    @property
    def shift(self) -> Array:
        """Return the shift [3] m of the robot after `rotation`."""
        return np.asarray(self.pivot + self.moved[:3] - self.rotation @ self.pivot)

    @property
    def std(self) -> Array:
        """Return the standard deviations [6]."""
        return np.sqrt(np.diagonal(self.covariance))

    @property
    def contradicts(self) -> bool:
        """Return whether the base is not where it was given."""
        return bool(self.moved @ np.linalg.solve(self.covariance, self.moved) > chi2.ppf(0.99, 6))

    @property
    def is_rotated(self) -> bool:
        """Return whether the base is rotated."""
        angles = self.moved[3:]
        return bool(angles @ np.linalg.solve(self.covariance[3:, 3:], angles) > chi2.ppf(0.95, 3))

    def unrotated(self) -> BaseEstimate:
        """Return the estimate for a base that is rotated as it was given."""
        gain = self.covariance[:3, 3:] @ np.linalg.inv(self.covariance[3:, 3:])
        shift, left = self.moved[:3] - gain @ self.moved[3:], self.covariance[:3, :3] - gain @ self.covariance[3:, :3]
        covariance = np.zeros((6, 6))
        covariance[:3, :3], covariance[3:, 3:] = left, np.diag(self.prior_std[3:] ** 2)
        return replace(self, moved=np.concatenate([shift, np.zeros(3)]), covariance=covariance)


class _BaseSearch(ConfigurationSearch):
    """A search in which the base is unknown: its parts belong to the background, wherever they are."""

    @cached_property
    def moving(self) -> NDArray[np.bool_]:
        """See `ConfigurationSearch.moving`: what moves on a base that does not."""
        assert isinstance(self.body, MovedBase)
        return ConfigurationSearch(self.body.body, self.window, self.config).moving

    @cached_property
    def static(self) -> NDArray[np.bool_]:
        """See `ConfigurationSearch.static`: no pixel is known to show the base."""
        return np.zeros((self.window.camera.height, self.window.camera.width), dtype=np.bool_)


@one_thread()
def searched_shift(
    clip: Clip,
    camera: Camera,
    body: JointBody,
    config: BasePoseConfig = DEFAULTS,
    search: SilhouetteSearchConfig = _SEARCH,
) -> Array | None:
    """Return the shift [3] m of the base on which most of the searched frames agree; None where none shows the body."""
    moved = MovedBase(body, _pivot(body), config.shift_m)
    drawn = _BaseSearch(moved, Window.of(camera, body, VIEW_PX), search)
    tracker = SilhouetteTracker(FrameStore.of(clip), clip.times_s, drawn)
    found = tracker.searched_anchors(config.searched)
    fits = [each for each in found.values() if each]
    if not fits:
        return None
    ray = _ray(camera, moved.pivot)
    ray /= np.linalg.norm(ray)
    each = [(fit, frame) for frame, some in enumerate(fits) for fit in some]
    votes = [_votes(fit, fits, ray, config) for fit, _ in each]
    best = each[int(np.argmax(votes))][0]
    near = [max(some, key=lambda fit: _alike(fit, best, ray, config) * fit.nats) for some in fits]
    agreed = [fit.configuration[:3] for fit in near if _alike(fit, best, ray, config) > 0.5]
    return np.asarray(np.median(agreed, axis=0))


def _alike(a: Fit, b: Fit, ray: Array, config: BasePoseConfig) -> float:
    """Return how well the shifts of two fits agree, 0..1."""
    off = a.configuration[:3] - b.configuration[:3]
    along = float(off @ ray)
    across = float(np.sum((off - along * ray) ** 2))
    return float(np.exp(-0.5 * (across + (along / 4.0) ** 2) / config.agree_m**2))


def _votes(fit: Fit, fits: Sequence[Sequence[Fit]], ray: Array, config: BasePoseConfig) -> float:
    """Return the evidence of all frames for the shift of one fit."""
    return sum(max(_alike(fit, other, ray, config) * other.nats for other in some) for some in fits)


@one_thread()
def fitted_base(
    clip: Clip,
    camera: Camera,
    body: JointBody,
    track: ConfigurationTrack,
    shift: Array | None = None,
    config: BasePoseConfig = DEFAULTS,
) -> BaseEstimate | None:
    """Return the base that the edges of tracked frames show; None where too few of them have edges.

    body: on its base as it was given. track: of the body, shifted by `shift` [3] m where that is not None.
    """
    moved = MovedBase(body, _pivot(body), 3.0 * config.shift_std_m, 3.0 * config.rotation_std_rad)
    window, solid = Window.of(camera, body, VIEW_PX), Solid.of(body.mesh)
    rows = np.flatnonzero(track.tracked)
    rows = rows[evenly(len(rows), min(len(rows), config.fitted))]
    frames = FrameStore.of(clip)
    prior_std = np.repeat([config.shift_std_m, config.rotation_std_rad], 3)
    joint_std = np.where(body.is_angle, _JOINT_STD, _JOINT_STD * body.radius_m)
    prior = np.diag(np.concatenate([prior_std, joint_std]) ** -2.0)
    base, joints = np.concatenate([np.zeros(3) if shift is None else shift, np.zeros(3)]), track.configurations[rows]
    for _ in range(config.rounds):
        starts = [(int(row), np.concatenate([base, each])) for row, each in zip(rows, joints, strict=True)]
        found = in_processes(lambda at: refine_from(frames[at[0]], window, moved, solid, at[1], prior), starts)
        kept = [(*each, n) for n, each in enumerate(found) if each is not None]
        if len(kept) < 3:
            return None
        base, covariance = _joined(kept, base, prior_std, config)
        joints = np.array([_given_base(at, cov, base) for at, cov, _ in kept])
        rows = rows[[n for *_, n in kept]]
    ray = config.lasting_share * _ray(camera, moved.pivot)
    lasting = np.diag(np.repeat([config.lasting_m, config.lasting_rad], 3) ** 2)
    lasting[:3, :3] += np.outer(ray, ray)
    return BaseEstimate(base, covariance + lasting, prior_std, moved.pivot)


def _joined(
    found: Sequence[tuple[Array, Array, int]], start: Array, prior_std: Array, config: BasePoseConfig
) -> tuple[Array, Array]:
    """Return the base [6] of all frames and its covariance; each frame has its own fit from a start with a prior.

    The frames' errors are those of one camera and one robot. So they are taken as common: information is averaged.
    """
    weak = np.diag(prior_std**-2.0)
    information, pull = weak.copy(), np.zeros(6)
    share = 1.0 / (len(found) * config.error_scale**2)
    for at, covariance, _ in found:
        own = np.linalg.inv(covariance[:6, :6])
        information += share * (own - weak)
        pull += share * (own @ at[:6] - weak @ start)
    return np.asarray(np.linalg.solve(information, pull), dtype=float), np.asarray(
        np.linalg.inv(information), dtype=float
    )


def _given_base(at: Array, covariance: Array, base: Array) -> Array:
    """Return the joints [D] of a fit, given the base [6]."""
    gain = covariance[6:, :6] @ np.linalg.inv(covariance[:6, :6])
    return np.asarray(at[6:] + gain @ (base - at[:6]))


def _ray(camera: Camera, place: Array) -> Array:
    """Return the way [3] m from the camera to a place."""
    assert camera.camera_to_world is not None
    return np.asarray(place - np.asarray(camera.camera_to_world)[:3, 3])


def _pivot(body: JointBody) -> Array:
    """Return the place of the first joint at rest [3], m."""
    return np.asarray(body.system.frames(body.system.drawn_state())[1][1])

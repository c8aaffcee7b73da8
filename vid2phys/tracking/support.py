"""Which frames count as tracked: those in which the image supports the pose that was found.

The tracker takes the most likely place in each frame. Where the object is hidden, or unknown to the network, that place
is a hand, a similar object or a print on the object. Each frame's pose gets evidence (`EVIDENCE`) from the frame itself
and from the frames around it. A logistic regression turns the evidence into the log odds that the pose is right, and
poses below a threshold count as lost, as do poses that no motion joins with the others. Weights and threshold were
fitted on clips with distractors. They are the same for all meshes (`python -m benchmarks.lost_frames`).

Limits: an object of the same shape in another size or place cannot be told from the body, nor can a pose that looks the
same in the image.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.parallel import one_thread, side_by_side
from vid2phys.tracking.detectors.network import direction_and_size, in_frame_diameter
from vid2phys.tracking.frame_store import FrameStore
from vid2phys.tracking.track import Track
from vid2phys.tracking.verifier import Verifier, background_of, crop_of
from vid2phys.types import Array, Camera, Mesh

Image = NDArray[np.uint8]
EVIDENCE = (
    "quality",  # of the keypoints, 0..1 (`Track.quality`)
    "keypoint_misfit",  # logarithm of the keypoints' chi-square about the pose
    "log_size",  # logarithm of the body's diameter in pixels: large bodies show more
    "image_match",  # logit of the verifier, which compares the frame with the mesh drawn at the pose
    "depth_jump",  # logarithm of the distance's change against that of the frames around
)
SURE_MATCH = 3.5  # logit of the verifier, median of a clip; right meshes have 4.0 and more
_SHOWN = 121  # frames of a clip whose images are compared with the mesh
_WEIGHTS = Path(__file__).with_suffix(".json")


@dataclass(frozen=True, kw_only=True)
class SupportConfig:
    """Settings of the evidence and of the choice of frames. The weights were fitted with these values."""

    misfit_offset: float = 0.1
    """Number that is added to chi-square before the logarithm."""
    no_misfit: float = 3.0
    """Logarithm of the misfit of a pose without one."""
    max_log_size: float = 4.5
    """Largest logarithm of the diameter in pixels."""
    depth_offset: float = 3e-3
    """Number that is added to a depth jump before the logarithm."""
    max_depth_jump: float = 2.0
    """Largest depth jump."""
    beside: int = 3
    """Number of adjacent frames on each side."""
    share_rounds: int = 20
    """Rounds of the estimate of a clip's share of right poses."""
    prior_frames: float = 5.0
    """Frames right, and as many wrong, that count beforehand."""
    max_speed_m_s: float = 15.0
    """Largest speed of a body, m/s."""
    max_gap_frames: int = 300
    """Largest number of frames between two that follow each other."""
    slack_sizes: float = 0.3
    """Error of a place, sizes of the body."""
    slack_share: float = 0.1
    """Error of a place, as a share of its distance."""


DEFAULTS = SupportConfig()


@dataclass(frozen=True)
class SupportModel:
    """The logistic regression. mean, std, weights: [E] of `EVIDENCE`. bias, threshold: log odds."""

    mean: Array
    std: Array
    weights: Array
    bias: float
    threshold: float

    def log_odds(self, evidence: Array, config: SupportConfig = DEFAULTS) -> Array:
        """Return the log odds [N] that poses of a clip are right; evidence: [N, E], NaN where there is none."""
        each = np.nan_to_num((evidence - self.mean) / self.std) @ self.weights + self.bias
        return _with_share(np.asarray(each), config)

    @staticmethod
    @cache
    def load() -> SupportModel:
        """Return the model that comes with this version."""
        data = json.loads(_WEIGHTS.read_text(encoding="utf-8"))
        mean, std, weights = (np.array([data[name][each] for each in EVIDENCE]) for name in ("mean", "std", "weights"))
        return SupportModel(mean, std, weights, float(data["bias"]), float(data["threshold"]))


@one_thread()
def supported(track: Track, frames: FrameStore, camera: Camera, mesh: Mesh) -> Track:
    """Return the track without the frames whose image does not support the pose; `Track.unsupported` lists them."""
    rows, evidence = evidence_of(track, frames, camera, mesh)
    lost = np.zeros(len(track.tracked), dtype=bool)
    lost[rows[~decided(track, rows, evidence, mesh)]] = True
    return track.without(lost, unsupported=True)


def evidence_of(
    track: Track, frames: FrameStore, camera: Camera, mesh: Mesh, config: SupportConfig = DEFAULTS
) -> tuple[NDArray[np.int64], Array]:
    """Return the tracked frames' indices [N] and the evidence for their poses [N, E], NaN where there is none."""
    rows = np.flatnonzero(track.tracked & track.poses.pose.is_finite)
    verifier = Verifier.load()
    background = None if camera.moves else background_of(frames.background, frames[0].shape)

    def image_match(item: tuple[int, Image]) -> float:
        i, frame = item
        return verifier.logit(crop_of(frame, background, camera.at(i), mesh, track.poses.pose[i]))

    matches = list(side_by_side(image_match, ((int(i), frames[int(i)]) for i in rows)))
    misfit, translation = track.poses.chi2[rows], track.poses.translation[rows]
    sizes_px = in_frame_diameter(camera, *direction_and_size(translation, _radius_m(mesh)))
    log_misfit = np.log(config.misfit_offset + np.nan_to_num(misfit))
    columns = {
        "quality": track.quality[rows],
        "keypoint_misfit": np.where(np.isfinite(misfit), log_misfit, config.no_misfit),
        "log_size": np.minimum(np.log(np.maximum(sizes_px, 1.0)), config.max_log_size),
        "image_match": np.array(matches),
        "depth_jump": _depth_jumps(rows, translation, config),
    }
    return rows, np.column_stack([columns[name] for name in EVIDENCE])


@one_thread()
def image_match(track: Track, frames: FrameStore, camera: Camera, mesh: Mesh) -> float:
    """Return the median logit of the verifier over some tracked frames: how well the images show the mesh.

    Of 18 clips with the right mesh none has less than 4.0. Clips with the mesh of another body have -3 to 4.0: a
    box that passes for a cube is not noticed. NaN where nothing was tracked.
    """
    rows = np.flatnonzero(track.tracked & track.poses.pose.is_finite)
    if not len(rows):
        return float("nan")
    verifier = Verifier.load()
    background = None if camera.moves else background_of(frames.background, frames[0].shape)
    some = rows[:: max(1, len(rows) // _SHOWN)]
    crops = [crop_of(frames[int(i)], background, camera.at(int(i)), mesh, track.poses.pose[int(i)]) for i in some]
    return float(np.median([verifier.logit(crop) for crop in crops]))


def decided(
    track: Track,
    rows: NDArray[np.int64],
    evidence: Array,
    mesh: Mesh,
    model: SupportModel | None = None,
    config: SupportConfig = DEFAULTS,
) -> NDArray[np.bool_]:
    """Return which of the frames `rows` [N], with evidence [N, E], count as tracked.

    Of the frames above the threshold, those count that a body can visit one after the other at a plausible speed. Where
    two groups of frames exclude each other, the group with the larger sum of log odds counts.
    """
    model = model or SupportModel.load()
    beyond = model.log_odds(evidence, config) - model.threshold
    likely = np.flatnonzero(beyond >= 0.0)
    times, places = track.observation.times_s[rows[likely]], track.poses.translation[rows[likely]]
    slack_m = config.slack_sizes * 2.0 * _radius_m(mesh) + config.slack_share * np.linalg.norm(places, axis=-1)
    kept = np.zeros(len(rows), dtype=bool)
    kept[likely[_heaviest_chain(times, places, slack_m, beyond[likely], config)]] = True
    return kept


def _with_share(log_odds: Array, config: SupportConfig) -> Array:
    """Return log odds [N] with the share of right poses in their clip as the prior (empirical Bayes).

    log_odds: [N] of poses that are as often right as wrong. Where most of what was found is not the object, the few
    others are probably something that looks like it. The share is estimated from the poses themselves.
    """
    share = 0.5
    for _ in range(config.share_rounds):
        right = 1.0 / (1.0 + np.exp(-np.clip(log_odds + np.log(share / (1.0 - share)), -50.0, 50.0)))
        share = float((right.sum() + config.prior_frames) / (len(right) + 2.0 * config.prior_frames))
    return np.asarray(log_odds + np.log(share / (1.0 - share)))


def _heaviest_chain(
    times_s: Array, places: Array, slack_m: Array, weights: Array, config: SupportConfig = DEFAULTS
) -> NDArray[np.int64]:
    """Return the indices of the frames [N] with the largest sum of weights that a plausible motion visits in order."""
    count = len(weights)
    best, before = weights.copy(), np.full(count, -1)
    for j in range(1, count):
        i = np.arange(max(0, j - config.max_gap_frames), j)
        apart = np.linalg.norm(places[i] - places[j], axis=-1)
        reached = i[apart <= config.max_speed_m_s * (times_s[j] - times_s[i]) + slack_m[i] + slack_m[j]]
        if len(reached):
            before[j] = reached[int(np.argmax(best[reached]))]
            best[j] += best[before[j]]
    chain = [int(np.argmax(best))] if count else []
    while chain and before[chain[-1]] >= 0:
        chain.append(int(before[chain[-1]]))
    return np.array(chain[::-1], dtype=np.int64)


def _depth_jumps(rows: NDArray[np.int64], translation: Array, config: SupportConfig) -> Array:
    """Return the logarithm of how far each distance is from the median of the adjacent ones, relative to it, [N].

    NaN for a frame with fewer than two adjacent frames.
    """
    log_depth = np.log(np.maximum(translation[:, 2], 1e-9))
    jumps = np.full(len(rows), np.nan)
    for k, i in enumerate(rows):
        near = np.flatnonzero((np.abs(rows - i) <= config.beside) & (rows != i))
        if len(near) > 1:
            jumps[k] = min(abs(log_depth[k] - float(np.median(log_depth[near]))), config.max_depth_jump)
    return np.asarray(np.log(config.depth_offset + jumps))


def _radius_m(mesh: Mesh) -> float:
    """Return the radius of the bounding sphere about the body's origin."""
    return mesh.radius_m

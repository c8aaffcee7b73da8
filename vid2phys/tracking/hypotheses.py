"""The scored hypotheses of a clip: pose hypotheses of each frame times symmetry elements, with all cues' evidence.

The keypoints of a nearly symmetric body are detected up to an element g of its symmetry group, which the network
chooses anew in every frame. A flat body has a second pose that projects almost alike. All of these are one list of
hypotheses. Each cue adds an `Evidence` with its temperature, the factor by which the cue states too much (one table,
`TEMPERATURES`). The Viterbi path through the list makes the motion continuous (`viterbi`). The evidence of the whole
clip then says under which element the path lies.

Limits: under an exact symmetry all elements are right, and the path keeps the label of the first frame. A body that
turns by more than half of the group's smallest rotation between frames (45 deg for a cube) may be followed the wrong
way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.pnp import PoseEstimate
from vid2phys.engine.pose_geometry import project_points
from vid2phys.engine.virtual_camera import View, bearings_to_view
from vid2phys.geometry import Pose
from vid2phys.risp.shape.rotation_groups import composition, under_element
from vid2phys.tracking.background import Indexed
from vid2phys.tracking.cues import ALL_CUES, ActiveCues, likelihoods
from vid2phys.tracking.viterbi import viterbi_path
from vid2phys.types import Array, Camera, ConfigurationMeasurement, Mesh, Observation

_STEP = 1e-6  # of differences, in local coordinates of a pose
_SAME_NATS = 1e-6  # evidence that differs by less is equal


@dataclass(frozen=True, kw_only=True)
class Temperatures:
    """By which factor each cue states too much, as measured on held-out appearances.

    `front` and `tilt` have the temperature of the model's error model and of the clip's length
    (`Calibration.clip_divisor`).
    """

    texture: float = 1.0
    """Colours of the texture, which count correlated points as one already."""
    symmetry: float = 5.0
    """Contour, creases and colours at a pose that was fitted under each element."""
    part_colors: float = 3.0
    """Colours of the parts; of all frames together, which show one appearance."""
    temporal: float = 5.0
    """Contour, creases and colours at the poses of a frame that contradicts the adjacent frames."""
    photometric: float = 1.5
    """Pixels of a clip after the first fit. On 60 held-out appearances of each of two quadrotors, 1.5 to 2 made the
    true elements most probable."""


TEMPERATURES = Temperatures()


@dataclass(frozen=True, kw_only=True)
class HypothesesConfig:
    """Settings of `front_evidence` and `tilt_evidence`."""

    noise_share: float = 0.02
    """Least probability of an element in one frame, over all elements, so that no frame decides alone."""
    blob_cells: float = 1.1
    """Width of the front map's blobs, cells: that of its training targets and a little for errors of place."""
    unexplained_share: float = 0.1
    """Share of the map that no element explains."""
    mixture_steps: int = 6
    """Steps of the expectation maximisation."""
    max_tilt_nats: float = 8.0
    """Largest cost of a tilt, nats."""


DEFAULTS = HypothesesConfig()


@dataclass(frozen=True)
class Evidence:
    """What one cue says of the hypotheses.

    Attributes:
        cue: name of the cue.
        nats: [N, H, G] log-likelihoods as the cue states them, up to a constant per frame.
        temperature: factor by which the cue states too much.
    """

    cue: str
    nats: Array
    temperature: float


def scored(evidence: Sequence[Evidence]) -> Array:
    """Return the log-probability [N, H, G] of the hypotheses by all cues; those of one temperature add up first."""
    sums: dict[float, Array] = {}
    for each in evidence:
        sums[each.temperature] = sums.get(each.temperature, 0.0) + each.nats
    return np.asarray(sum(nats / temperature for temperature, nats in sums.items()))


@dataclass(frozen=True)
class ChosenHypotheses:
    """The Viterbi path through the hypotheses of a clip with N tracked frames and G symmetry elements.

    Attributes:
        hypothesis: [N] index of the pose hypothesis.
        element: [N] symmetry element g; the orientation is R_detected @ rotations[g]^T.
        log_likelihood: [G] nats of the clip with every orientation R of the path replaced by R @ rotations[g]^T. The
            first is the path itself, and the largest.
    """

    hypothesis: NDArray[np.int64]
    element: NDArray[np.int64]
    log_likelihood: Array


def choose_hypotheses(poses: PoseEstimate, times_s: Array, rotations: Array, support: Array) -> ChosenHypotheses:
    """Return the most probable path through the hypotheses of a clip.

    Args:
        poses: [N, H] pose hypotheses of the tracked frames; their costs are the keypoints' evidence.
        times_s: [N] times of these frames, s.
        rotations: [G, 3, 3] symmetry elements, the identity first.
        support: [N, H, G] log-probability of the orientation R @ rotations[g]^T by all cues (`scored`), nats.
    """
    count = len(poses.cost)
    oriented = poses.rotation[:, :, None] @ np.swapaxes(rotations, -1, -2)
    cost = poses.cost[..., None] - support
    path = viterbi_path(cost.reshape(count, -1), oriented.reshape(count, -1, 3, 3), times_s)
    hypothesis, element = np.divmod(path, len(rotations))
    table = composition(rotations)
    frames = np.arange(count)
    totals = support[frames, hypothesis, table[:, element]].sum(axis=1)  # of the path under each element
    best = np.flatnonzero(totals > totals.max() - _SAME_NATS)
    as_detected = best[table[best, element[0]] == 0]
    element = table[int(as_detected[0] if len(as_detected) else best[0]), element]
    return ChosenHypotheses(hypothesis, element, support[frames, hypothesis, table[:, element]].sum(axis=1))


def tilt_evidence(
    poses: PoseEstimate,
    rotations: Array,
    camera: Camera,
    tilt_std_rad: float | None,
    config: HypothesesConfig = DEFAULTS,
) -> Array:
    """Return the log-probability [N, H, G] of the angle between the body's z axis and up, nats.

    camera: of a camera that moves, with the poses of the N frames. tilt_std_rad: standard deviation of that angle in
    the system's motions; None: all angles are equally probable.
    """
    shape = (*poses.cost.shape, len(rotations))
    if tilt_std_rad is None or camera.camera_to_world is None:
        return np.zeros(shape)
    up_in_camera = np.asarray(camera.camera_to_world, dtype=float)[..., 2, :3]
    body_z = poses.rotation[:, :, None] @ np.swapaxes(rotations, -1, -2) @ np.array([0.0, 0.0, 1.0])
    cosine = np.einsum("nhgk,nk->nhg", body_z, up_in_camera) if camera.moves else body_z @ up_in_camera
    tilt = np.arccos(np.clip(cosine, -1.0, 1.0))
    return -np.minimum(0.5 * (tilt / tilt_std_rad) ** 2, config.max_tilt_nats)


def front_evidence(
    front_logprob: Array,
    views: list[View],
    poses: PoseEstimate,
    rotations: Array,
    front_body: Array | None,
    center: Array | None = None,
    config: HypothesesConfig = DEFAULTS,
) -> Array:
    """Return the log-probability [N, H, G] of the hypotheses by the front map, nats.

    The map is a mixture of blobs at the places of the front point under the G elements, and of an even floor
    (expectation maximisation over the weights). The weight of a blob is the probability of its element, however sharp
    the blob is.

    Args:
        front_logprob: [N, h, w] over the cells of each view.
        views: the N virtual cameras.
        poses: [N, H] pose hypotheses.
        rotations: [G, 3, 3] symmetry elements.
        front_body: [3] point of the body that the map was trained to find, m; None if there is none: then all
            hypotheses are equally probable.
        center: [3] centre of the rotations, the body's origin by default, m.
        config: settings.
    """
    cells = front_logprob.shape[-1]
    if front_body is None:
        return np.zeros((*poses.cost.shape, len(rotations)))
    center = np.zeros(3) if center is None else center
    # rotations[g]^T @ front: the place of the front on the body as detected
    points = np.einsum("gji,j->gi", rotations, front_body - center) + center
    bearings = project_points(poses.pose, points)
    evidence = np.zeros(bearings.shape[:-1])
    for n, view in enumerate(views):
        place = (bearings_to_view(view, bearings[n]) + 0.5) * (cells / view.size) - 0.5
        evidence[n] = np.log(_mixture_weights(np.exp(front_logprob[n]), place, config))
    return evidence


def cue_evidence(
    frames: Indexed,
    indices: NDArray[np.int64],
    poses: PoseEstimate,
    inputs: tuple[Camera, Mesh],
    symmetry: tuple[Array, Array],
    cues: ActiveCues = ALL_CUES,
) -> list[Evidence]:
    """Return the evidence of every cue in use that has a function `log_likelihood` (see `tracking.cues`).

    Args:
        frames: images by index.
        indices: [N] indices of the tracked frames.
        poses: [N, H] pose hypotheses, camera_from_body.
        inputs: camera of the frames, and mesh of the body.
        symmetry: rotations [G, 3, 3] of the body, and their centre [3], m.
        cues: cues in use.
    """
    (camera, mesh), (rotations, center) = inputs, symmetry
    found = []
    for name, temperature, log_likelihood in likelihoods(cues):
        nats = np.zeros((*poses.cost.shape, len(rotations)))
        for n, h in zip(*np.nonzero(np.isfinite(poses.cost)), strict=True):
            pose = poses.pose[n, h]
            for g, rotation in enumerate(rotations):
                hypothesis = under_element(pose, rotation, center)
                nats[n, h, g] = log_likelihood(frames[int(indices[n])], camera, mesh, hypothesis)
        found.append(Evidence(name, nats, temperature))
    return found


def _mixture_weights(probability: Array, place: Array, config: HypothesesConfig) -> Array:
    """Return the weights [H, G] of blobs at places [H, G, 2] (x, y), cells, in a map [h, w] that sums to 1."""
    width = config.blob_cells
    grid = [np.arange(extent, dtype=float) for extent in probability.shape]
    place = np.nan_to_num(place, nan=-99.0)
    along_x = np.exp(-0.5 * ((grid[1] - place[..., :1]) / width) ** 2)
    along_y = np.exp(-0.5 * ((grid[0] - place[..., 1:]) / width) ** 2)
    blobs = along_y[..., :, None] * along_x[..., None, :] / (2.0 * np.pi * width**2)
    count = place.shape[1]
    weights = np.full(place.shape[:2], 1.0 / count)
    for _ in range(config.mixture_steps):
        parts = weights[..., None, None] * blobs
        total = parts.sum(axis=1, keepdims=True) + config.unexplained_share / probability.size
        weights = (parts * (probability / total)).sum(axis=(-1, -2)) + 1e-9
        weights /= weights.sum(axis=1, keepdims=True)
    return (1.0 - config.noise_share) * weights + config.noise_share / count


def relabelled(observation: Observation, order: NDArray[np.int64], rotation: Array, center: Array) -> Observation:
    """Return the observation under another symmetry element g: point k becomes point order[k] = permutation[g, k].

    The result belongs to the orientations R @ rotation^T.

    Args:
        observation: of T frames.
        order: [K] permutation of the keypoints.
        rotation: [3, 3] the symmetry element.
        center: [3] m, the centre of the symmetry.
    """
    frames = len(observation.times_s)
    names = np.broadcast_to(np.argsort(order), observation.visible.shape)
    return named(observation, names, np.broadcast_to(rotation, (frames, 3, 3)), center)


def named(observation: Observation, names: NDArray[np.int64], rotation: Array, center: Array) -> Observation:
    """Return the observation with another symmetry element in each frame.

    Args:
        observation: of T frames.
        names: [T, K], point names[t, k] of frame t becomes its point k.
        rotation: [T, 3, 3] the symmetry elements: orientations R become R @ rotation^T.
        center: [3] m, the centre of the symmetry.
    """

    def ordered(values: NDArray[Any]) -> NDArray[Any]:
        return np.take_along_axis(values, names.reshape(*names.shape, *(1,) * (values.ndim - 2)), axis=1)

    changed = {n: ordered(getattr(observation, n)) for n in ("bearings", "covariance", "shared_basis", "visible")}
    part = observation.configuration
    return replace(observation, **changed, configuration=part and _in_element(part, rotation, center))


def _in_element(measured: ConfigurationMeasurement, rotation: Array, center: Array) -> ConfigurationMeasurement:
    """Return measured poses under symmetry elements [T, 3, 3], with their errors in the new local coordinates."""

    def moved(pose: Pose) -> Pose:
        after = pose.rotation @ np.swapaxes(rotation, -1, -2)
        return Pose(after, pose.translation + (pose.rotation - after) @ center)

    pose, columns = moved(measured.pose), []
    for unit in _STEP * np.eye(6):
        ahead, behind = (pose.step_to(moved(measured.pose.retract(step))) for step in (unit, -unit))
        columns.append((ahead - behind) / (2.0 * _STEP))
    slope = np.stack(columns, axis=-1)
    covariance = slope @ measured.covariance @ np.swapaxes(slope, -1, -2)
    return replace(measured, configuration=pose, covariance=covariance, shared_basis=slope @ measured.shared_basis)

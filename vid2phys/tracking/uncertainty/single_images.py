"""Evaluate a model on single images with held-out appearances, and under which conditions it errs.

Held-out renders are developed as training images are, with everything that is randomised, but at known sizes in the
frame. The model estimates each image as the tracker does.

Limits: images come from renders, with their exact masks and depths.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.movable.body import ArticulatedBody
from vid2phys.engine.pnp import solve_poses
from vid2phys.engine.pose_geometry import project_points
from vid2phys.engine.render.rasterizer import rasterize
from vid2phys.error_model import Calibration
from vid2phys.geometry import Pose, make_transform
from vid2phys.io.photographs import photographs
from vid2phys.risp.appearance.backgrounds import make_bank
from vid2phys.risp.appearance.develop import FILL, VIEW_PX, DevelopOptions, develop
from vid2phys.risp.appearance.randomisation import ALL, Randomisation
from vid2phys.risp.networks.validate import pose_errors_each
from vid2phys.risp.renders.articulated_viewpoints import VIEW_PX as ARTICULATED_VIEW_PX
from vid2phys.risp.renders.dataset import RenderSet
from vid2phys.risp.shape.rotation_groups import offsets
from vid2phys.tracking.articulated.kinematic_fit import fit_configurations
from vid2phys.tracking.uncertainty.config import DEFAULTS, UncertaintyConfig
from vid2phys.types import Array, Mesh

if TYPE_CHECKING:
    from vid2phys.risp.networks.model import Model


@dataclass(frozen=True)
class EvaluatedModel:
    """A model that is evaluated on single images.

    Attributes:
        model: The model.
        mesh: The mesh of its body.
        articulated: The body itself if it is articulated or modal, else None.
    """

    model: Model
    mesh: Mesh
    articulated: ArticulatedBody | None = None

    @property
    def view_px(self) -> tuple[float, float]:
        """Return the least and the largest width of the virtual camera's image in frame pixels."""
        px = VIEW_PX if self.articulated is None else ARTICULATED_VIEW_PX
        return px[0], px[2]

    @property
    def fill(self) -> float:
        """Return the share of the image that the diameter of the body's sphere, or of its workspace, takes."""
        return FILL if self.articulated is None else 1.0

    @property
    def across(self) -> str:
        """Return what `ImageEvaluation.diameter_px` is the diameter of."""
        return "body" if self.articulated is None else "workspace"

    @property
    def main_error(self) -> str:
        """Return the name of the error by which images are ranked."""
        return "rotation_deg" if self.articulated is None else "points_mm"

    @property
    def radius_m(self) -> float:
        """Return the radius of the body's sphere or of its workspace, m."""
        return self.model.radius_m if self.articulated is None else self.articulated.radius_m

    def vertices(self, configuration: Array | None) -> Array:
        """Return the mesh's vertices [V, 3] in a configuration, or of the rigid body, m."""
        if self.articulated is None or configuration is None:
            return self.mesh.vertices
        return self.articulated.vertices(configuration)

    def points(self, configurations: Array | None, count: int) -> Array:
        """Return the keypoints [N, K, 3] in N images, m."""
        if self.articulated is None or configurations is None:
            return np.broadcast_to(self.model.points_body, (count, *self.model.points_body.shape))
        return self.articulated.points(configurations)


@dataclass(frozen=True)
class ImageEvaluation:
    """N images with their truth and with what a model estimates. Keypoints have the labels of the truth.

    Attributes:
        images: [N, V, V, 3].
        appearance: [N] number of the appearance.
        K: [N, 3, 3] camera matrices, px.
        truth_pose: [N, 4, 4], m.
        estimated_pose: [N, 4, 4], m; the truth where the base is known.
        truth_configuration: [N, D], or None for a rigid body.
        estimated_configuration: [N, D], or None for a rigid body.
        truth_px: [N, K, 2] keypoints.
        estimated_px: [N, K, 2] keypoints.
        errors: Errors [N] by name.
        points_mm: [N, K] errors of the keypoints of the estimated configuration, or None for a rigid body.
        diameter_px: [N] diameter of the sphere around the body or its workspace, in frame pixels.
        hidden: [N, K], whether a keypoint is behind something, the body itself too.
        hidden_share: [N] share of the keypoints that other things or the end of the frame hide.
        contrast: [N] difference of colour from the surroundings, of 255.
    """

    images: NDArray[np.uint8]
    appearance: NDArray[np.int64]
    K: Array
    truth_pose: Array
    estimated_pose: Array
    truth_configuration: Array | None
    estimated_configuration: Array | None
    truth_px: Array
    estimated_px: Array
    errors: dict[str, Array]
    points_mm: Array | None
    diameter_px: Array
    hidden: NDArray[np.bool_]
    hidden_share: Array
    contrast: Array


@dataclass(frozen=True)
class _Truth:
    """N developed images with their truth; see `ImageEvaluation`. points: [N, K, 3] m. visible: [N, K]."""

    images: NDArray[np.uint8]
    K: Array
    pose: Array
    px: Array
    visible: NDArray[np.bool_]
    points: Array
    configurations: Array | None
    diameter_px: Array


def evaluate_images(
    evaluated: EvaluatedModel,
    renders: RenderSet,
    indices: NDArray[np.int64],
    *,
    seed: int = 0,
    varied: Randomisation = ALL,
    progress: Callable[[float], None] | None = None,
    config: UncertaintyConfig = DEFAULTS,
) -> ImageEvaluation:
    """Develop images of held-out renders and estimate what they show.

    Args:
        evaluated: The model.
        renders: Held-out renders.
        indices: Indices of the N renders.
        seed: Seed of all random numbers. Equal seeds give equal images but for what is switched off in `varied`, so
            that its share of the error can be measured.
        varied: What is randomised in developing.
        progress: Is called with the share of images done.
        config: Settings.
    """
    truth = _developed(evaluated, renders, indices, seed, varied, progress, config)
    count = len(indices)
    surfaces = [
        _surface(
            evaluated, None if truth.configurations is None else truth.configurations[i], truth.pose[i], truth.K[i]
        )
        for i in range(count)
    ]
    least_m = config.hidden_depth_share * evaluated.radius_m
    behind = np.stack(
        [_behind(surfaces[i], truth.px[i], _depth(truth.points[i], truth.pose[i]), least_m) for i in range(count)]
    )
    found = _estimate(evaluated, truth, config)
    distances = zip(_distance(found.px, truth.px), truth.visible, strict=True)
    errors = {"px": np.array([_median(distance[visible]) for distance, visible in distances])}
    contrasts = [
        _contrast(image, np.isfinite(depth), config.contrast_ring_share)
        for image, depth in zip(truth.images, surfaces, strict=True)
    ]
    return ImageEvaluation(
        truth.images,
        renders.appearance_id()[indices],
        truth.K,
        truth.pose,
        found.pose,
        truth.configurations,
        found.configuration,
        truth.px,
        found.px,
        errors | found.errors,
        found.points_mm,
        truth.diameter_px,
        behind | ~truth.visible,
        1.0 - truth.visible.mean(axis=1),
        np.array(contrasts),
    )


def _developed(
    evaluated: EvaluatedModel,
    renders: RenderSet,
    indices: NDArray[np.int64],
    seed: int,
    varied: Randomisation,
    progress: Callable[[float], None] | None,
    config: UncertaintyConfig,
) -> _Truth:
    """Develop the renders' images, each at a random size in the frame."""
    low_high = np.log(evaluated.view_px)
    bank = make_bank(photographs(), count=config.bank_images, seed=seed + 1)
    configurations = renders.configurations()[indices] if evaluated.articulated is not None else None
    points = evaluated.points(configurations, len(indices))
    samples, widths = [], []
    for row, index in enumerate(indices):
        rng = np.random.default_rng([seed, int(index), 9])
        width = float(np.exp(rng.uniform(*low_high)))
        narrow = (width, 1.0005 * width, 1.001 * width)
        shown = develop(
            renders.sample(int(index)),
            points[row],
            rng,
            DevelopOptions(evaluated.model.view_size, bank, jitter=False, view_px=narrow, varied=varied),
        )
        samples.append(shown)
        widths.append(width)
        if progress is not None:
            progress((row + 1) / len(indices))
    return _Truth(
        np.stack([p.image for p in samples]),
        np.stack([p.K for p in samples]),
        np.stack([p.view_from_body for p in samples]),
        np.stack([p.points_px for p in samples]),
        np.stack([p.visible for p in samples]),
        points,
        configurations,
        evaluated.fill * np.array(widths),
    )


@dataclass(frozen=True)
class _Estimates:
    """What a model estimates of N images; see `ImageEvaluation`."""

    px: Array
    pose: Array
    configuration: Array | None
    errors: dict[str, Array]
    points_mm: Array | None


def _estimate(evaluated: EvaluatedModel, truth: _Truth, config: UncertaintyConfig) -> _Estimates:
    """Estimate keypoints, and the pose or configuration that fits them, with errors up to the body's symmetry."""
    model = evaluated.model
    keypoints, inverse = model.predict(truth.images), np.linalg.inv(truth.K)
    bearings = np.einsum("nij,nkj->nki", inverse[:, :2, :2], keypoints.points_px) + inverse[:, None, :2, 2]
    calibration = Calibration.from_dict(model.calibration)
    to_bearings = inverse[:, None, :2, :2]
    pixels = calibration.point_covariance(keypoints.covariance_px, truth.diameter_px)
    covariance = to_bearings @ pixels @ np.swapaxes(to_bearings, -1, -2)
    if evaluated.articulated is None or truth.configurations is None:
        found = solve_poses(bearings, covariance, model.points_body)
        poses = make_transform(found.rotation[:, 0], found.translation[:, 0])
        symmetry = make_transform(model.rotations, offsets(model.rotations, model.center))
        px = _labelled_as(truth.px, keypoints.points_px, model.permutation, config.far_share * model.view_size)
        return _Estimates(px, poses, None, pose_errors_each(poses, truth.pose, symmetry), None)
    configuration = fit_configurations(evaluated.articulated, truth.pose, bearings, covariance).configuration
    away = 1e3 * _distance(
        evaluated.articulated.points(configuration), evaluated.articulated.points(truth.configurations)
    )
    off = np.abs(configuration - truth.configurations).mean(axis=1)
    named = {"configuration_deg": np.degrees(off)} if model.shape.kind == "joints" else {"configuration_mm": 1e3 * off}
    errors = {"points_mm": away.mean(axis=1), **named}
    return _Estimates(keypoints.points_px, truth.pose, configuration, errors, away)


def _labelled_as(truth_px: Array, found_px: Array, permutation: NDArray[np.int64], far_px: float) -> Array:
    """Return estimated points [N, K, 2] under the labels of the truth, by the symmetry element that fits best."""
    places = truth_px[:, permutation]  # [N, G, K, 2]: places of the points under each labelling
    distance = np.minimum(_distance(found_px[:, None], places), far_px).sum(axis=-1)
    names = np.argsort(permutation, axis=1)[distance.argmin(axis=1)]
    return np.take_along_axis(found_px, names[..., None], axis=1)


def _surface(evaluated: EvaluatedModel, configuration: Array | None, pose: Array, K: Array) -> Array:
    """Return the depth [V, V] of the body's visible surface, infinite where there is none, m."""
    size = evaluated.model.view_size
    vertices = evaluated.vertices(configuration) @ pose[:3, :3].T + pose[:3, 3]
    return rasterize(vertices, evaluated.mesh.faces, K, size, size).depth


def _depth(points: Array, pose: Array) -> Array:
    """Return the depths [N] of points [N, 3] in a pose [4, 4], m."""
    return np.asarray(points @ pose[2, :3] + pose[2, 3])


def _behind(surface: Array, points_px: Array, depth: Array, least_m: float) -> NDArray[np.bool_]:
    """Return which points lie behind the visible surface by more than `least_m`."""
    cell = np.clip(np.round(points_px), 0, len(surface) - 1).astype(int)
    return np.asarray(depth - surface[cell[:, 1], cell[:, 0]] > least_m)


def _contrast(image: NDArray[np.uint8], body: NDArray[np.bool_], ring_share: float) -> float:
    """Return the difference of mean colour between the body and a ring around it, root mean square over RGB."""
    import cv2

    side = 2 * round(ring_share * len(image)) + 1
    near = cv2.dilate(body.astype(np.uint8), np.ones((side, side), np.uint8)).astype(bool) & ~body
    if not body.any() or not near.any():
        return 0.0
    return float(np.sqrt(((image[body].mean(axis=0) - image[near].mean(axis=0)) ** 2).mean()))


def _distance(a: Array, b: Array) -> Array:
    return np.asarray(np.linalg.norm(a - b, axis=-1))


def _median(values: Array) -> float:
    return float(np.median(values)) if len(values) else float("nan")


def projected(evaluated: EvaluatedModel, pose: Array, configuration: Array | None, K: Array) -> tuple[Array, Array]:
    """Return the pixels [V, 2] and the depths [V] m of the mesh's vertices in an image."""
    vertices = evaluated.vertices(configuration)
    bearings = project_points(Pose(pose[:3, :3], pose[:3, 3]), vertices)
    return np.asarray(bearings @ K[:2, :2].T + K[:2, 2]), _depth(vertices, pose)

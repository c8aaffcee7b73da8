"""How well single images of looks held out from training are read, and under which conditions.

Held-out renders are developed as training images are, with everything that is randomised, but at sizes in the frame
that are known; each is read as the tracker reads a view.
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
from vid2phys.geometry import make_transform
from vid2phys.io.photographs import photographs
from vid2phys.risp.appearance.backgrounds import make_bank
from vid2phys.risp.appearance.develop import FILL, VIEW_PX, develop
from vid2phys.risp.appearance.randomisation import ALL, Randomisation
from vid2phys.risp.renders.articulated_viewpoints import VIEW_PX as ARTICULATED_VIEW_PX
from vid2phys.risp.renders.dataset import RenderSet
from vid2phys.risp.shape.rotation_groups import offsets
from vid2phys.risp.training.validate import pose_errors_each
from vid2phys.tracking.articulated.kinematic_fit import fit_configurations
from vid2phys.types import Array, Mesh

if TYPE_CHECKING:
    from vid2phys.risp.networks.model import Model

_BANK = 64
_FAR = 0.1  # share of the view beyond which a point's distance does not matter to how an image is labelled
_BEHIND = 0.1  # of the body's radius: a point so far behind the surface that is seen is hidden by it
_RING = 0.06  # share of the view around the body that its colour is compared with


@dataclass(frozen=True)
class EvaluatedModel:
    """What is judged: a model, its body's mesh, and the body itself where it is one on a known base."""

    model: Model
    mesh: Mesh
    articulated: ArticulatedBody | None = None

    @property
    def view_px(self) -> tuple[float, float]:
        """Least and largest width of the view in frame pixels."""
        px = VIEW_PX if self.articulated is None else ARTICULATED_VIEW_PX
        return px[0], px[2]

    @property
    def fill(self) -> float:
        """Share of the view that the diameter of the body's sphere, or of its workspace, takes."""
        return FILL if self.articulated is None else 1.0

    @property
    def across(self) -> str:
        """What `ImageEvaluation.diameter_px` is the diameter of."""
        return "body" if self.articulated is None else "workspace"

    @property
    def main_error(self) -> str:
        """The error by which readings are ranked."""
        return "rotation_deg" if self.articulated is None else "points_mm"

    def vertices(self, configuration: Array | None) -> Array:
        """The mesh's vertices [V, 3] m in a configuration, or of the rigid body."""
        return (
            self.mesh.vertices
            if self.articulated is None or configuration is None
            else self.articulated.vertices(configuration)
        )

    def points(self, configurations: Array | None, count: int) -> Array:
        """Keypoints [N, K, 3] m of N images."""
        if self.articulated is None or configurations is None:
            return np.broadcast_to(self.model.points_body, (count, *self.model.points_body.shape))
        return self.articulated.points(configurations)


@dataclass(frozen=True)
class ImageEvaluation:
    """N images with what they show and what was read. An image's keypoints are labelled as the truth is.

    images: [N, V, V, 3]. look: [N]. K: [N, 3, 3] px. truth_pose, read_pose: [N, 4, 4] m, the same where the base is
    known. truth_configuration, read_configuration: [N, D], or None for a rigid body. truth_px, read_px: [N, K, 2].
    errors: by name, [N] each. points_mm: [N, K] of the body as read, or None for a rigid one. diameter_px: [N] in the
    frame, of the sphere about the body or its workspace. hidden: [N, K] behind something, itself too. hidden_share: [N]
    of the keypoints, by other things or the end of the frame. contrast: [N] difference of colour from what is around,
    of 255.
    """

    images: NDArray[np.uint8]
    look: NDArray[np.int64]
    K: Array
    truth_pose: Array
    read_pose: Array
    truth_configuration: Array | None
    read_configuration: Array | None
    truth_px: Array
    read_px: Array
    errors: dict[str, Array]
    points_mm: Array | None
    diameter_px: Array
    hidden: NDArray[np.bool_]
    hidden_share: Array
    contrast: Array


def evaluate_images(
    subject: EvaluatedModel,
    renders: RenderSet,
    indices: NDArray[np.int64],
    *,
    seed: int = 0,
    varied: Randomisation = ALL,
    progress: Callable[[float], None] | None = None,
) -> ImageEvaluation:
    """Develops the `indices` of a held-out dataset and reads them. varied: what is randomised in developing.

    The same seed gives the same images but for what is switched off, so that its share of the error can be told.
    """
    model, low_high = subject.model, np.log(subject.view_px)
    bank = make_bank(photographs(), count=_BANK, seed=seed + 1)
    configurations = renders.configurations()[indices] if subject.articulated is not None else None
    points = subject.points(configurations, len(indices))
    samples, widths = [], []
    for row, index in enumerate(indices):
        rng = np.random.default_rng([seed, int(index), 9])
        width = float(np.exp(rng.uniform(*low_high)))
        narrow = (width, 1.0005 * width, 1.001 * width)
        shown = develop(
            renders.sample(int(index)),
            points[row],
            rng,
            size=model.view_size,
            bank=bank,
            jitter=False,
            view_px=narrow,
            varied=varied,
        )
        samples.append(shown)
        widths.append(width)
        if progress is not None:
            progress((row + 1) / len(indices))
    images, K = np.stack([p.image for p in samples]), np.stack([p.K for p in samples])
    truth_px, pose = np.stack([p.points_px for p in samples]), np.stack([p.view_from_body for p in samples])
    visible, diameter = np.stack([p.visible for p in samples]), subject.fill * np.array(widths)
    seen = [
        _surface(subject, None if configurations is None else configurations[i], pose[i], K[i])
        for i in range(len(pose))
    ]
    behind = np.stack([_behind(seen[i], truth_px[i], _depth(points[i], pose[i]), subject) for i in range(len(pose))])
    read = _read(subject, images, K, pose, truth_px, configurations, diameter)
    errors = {"px": np.array([_median(d[v]) for d, v in zip(_distance(read.px, truth_px), visible, strict=True)])}
    return ImageEvaluation(
        images,
        renders.appearance_id()[indices],
        K,
        pose,
        read.pose,
        configurations,
        read.configuration,
        truth_px,
        read.px,
        errors | read.errors,
        read.points_mm,
        diameter,
        behind | ~visible,
        1.0 - visible.mean(axis=1),
        np.array([_contrast(image, np.isfinite(depth)) for image, depth in zip(images, seen, strict=True)]),
    )


@dataclass(frozen=True)
class _Read:
    px: Array
    pose: Array
    configuration: Array | None
    errors: dict[str, Array]
    points_mm: Array | None


def _read(
    subject: EvaluatedModel,
    images: NDArray[np.uint8],
    K: Array,
    pose: Array,
    truth_px: Array,
    configurations: Array | None,
    diameter: Array,
) -> _Read:
    """Keypoints, and the pose or configuration that fits them, with errors up to the body's symmetry."""
    model = subject.model
    reading, inverse = model.predict(images), np.linalg.inv(K)
    bearings = np.einsum("nij,nkj->nki", inverse[:, :2, :2], reading.points_px) + inverse[:, None, :2, 2]
    calibration = Calibration.from_dict(model.calibration)
    turn = inverse[:, None, :2, :2]
    pixels = calibration.point_covariance(reading.covariance_px, diameter)
    covariance = turn @ pixels @ np.swapaxes(turn, -1, -2)
    if subject.articulated is None or configurations is None:
        found = solve_poses(bearings, covariance, model.points_body)
        poses = make_transform(found.rotation[:, 0], found.translation[:, 0])
        turns = make_transform(model.rotations, offsets(model.rotations, model.center))
        px = _labelled_as(truth_px, reading.points_px, model.permutation, model.view_size)
        return _Read(px, poses, None, pose_errors_each(poses, pose, turns), None)
    configuration = fit_configurations(subject.articulated, pose, bearings, covariance).configuration
    away = 1e3 * _distance(subject.articulated.points(configuration), subject.articulated.points(configurations))
    off = np.abs(configuration - configurations).mean(axis=1)
    named = {"posture_deg": np.degrees(off)} if model.shape.kind == "joints" else {"posture_mm": 1e3 * off}
    return _Read(reading.points_px, pose, configuration, {"points_mm": away.mean(axis=1), **named}, away)


def _labelled_as(truth_px: Array, read_px: Array, permutation: NDArray[np.int64], size: int) -> Array:
    """Read points [N, K, 2] under the names that the truth has, by the element of the group that fits best."""
    places = truth_px[:, permutation]  # [N, G, K, 2]: where the points would be read under each labelling
    distance = np.minimum(_distance(read_px[:, None], places), _FAR * size).sum(axis=-1)
    names = np.argsort(permutation, axis=1)[distance.argmin(axis=1)]
    return np.take_along_axis(read_px, names[..., None], axis=1)


def _surface(subject: EvaluatedModel, configuration: Array | None, pose: Array, K: Array) -> Array:
    """Depth [V, V] m of the body that is seen, infinite where there is none."""
    size = subject.model.view_size
    vertices = subject.vertices(configuration) @ pose[:3, :3].T + pose[:3, 3]
    return rasterize(vertices, subject.mesh.faces, K, size, size).depth


def _depth(points: Array, pose: Array) -> Array:
    return np.asarray(points @ pose[2, :3] + pose[2, 3])


def _behind(surface: Array, points_px: Array, depth: Array, subject: EvaluatedModel) -> NDArray[np.bool_]:
    """Which points lie behind the surface that is seen, farther than the body's own thickness is likely to be."""
    radius = subject.model.radius_m if subject.articulated is None else subject.articulated.radius_m
    cell = np.clip(np.round(points_px), 0, len(surface) - 1).astype(int)
    return np.asarray(depth - surface[cell[:, 1], cell[:, 0]] > _BEHIND * radius)


def _contrast(image: NDArray[np.uint8], body: NDArray[np.bool_]) -> float:
    """Difference of mean colour between the body and what is around it, root mean square over RGB, 0 to 255."""
    import cv2

    side = 2 * round(_RING * len(image)) + 1
    near = cv2.dilate(body.astype(np.uint8), np.ones((side, side), np.uint8)).astype(bool) & ~body
    if not body.any() or not near.any():
        return 0.0
    return float(np.sqrt(((image[body].mean(axis=0) - image[near].mean(axis=0)) ** 2).mean()))


def _distance(a: Array, b: Array) -> Array:
    return np.asarray(np.linalg.norm(a - b, axis=-1))


def _median(values: Array) -> float:
    return float(np.median(values)) if len(values) else float("nan")


def projected(subject: EvaluatedModel, pose: Array, configuration: Array | None, K: Array) -> tuple[Array, Array]:
    """Pixels [V, 2] and depths [V] m of the mesh's vertices in an image."""
    vertices = subject.vertices(configuration)
    bearings = project_points(pose[:3, :3], pose[:3, 3], vertices)
    return np.asarray(bearings @ K[:2, :2].T + K[:2, 2]), _depth(vertices, pose)

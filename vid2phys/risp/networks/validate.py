"""Validate a network in physical units on renders with held-out appearances.

Limits: all keypoints have the same standard deviation, since the network is not yet calibrated.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vid2phys.engine.pnp import solve_poses
from vid2phys.geometry import make_transform
from vid2phys.risp.networks import heatmaps
from vid2phys.risp.networks.losses import Targets, best_targets
from vid2phys.risp.networks.network import LocatorNetwork, predict
from vid2phys.risp.renders.stream import ImageStream, Key
from vid2phys.risp.shape.rotation_groups import offsets
from vid2phys.types import Array

_VALIDATION_EPOCH = 1_000_000  # a number that no training epoch has: the same images each time
_KEYPOINT_STD_PX = 1.5


@dataclass(frozen=True)
class Body:
    """Keypoints and symmetry of a rigid body.

    Attributes:
        points: [K, 3] keypoints, m.
        permutation: [G, K] symmetry group of the points.
        rotations: [G, 3, 3] symmetry group about `center`.
        front: Index of the front point; None where nothing tells symmetry elements apart.
        center: [3] fixed point of the group, m.
    """

    points: Array
    permutation: NDArray[np.int64]
    rotations: Array
    front: int | None
    center: Array = field(default_factory=lambda: np.zeros(3))

    @property
    def symmetry_transforms(self) -> Array:
        """Return the group as transforms [G, 4, 4], m: pose @ transforms[g] looks like pose."""
        return make_transform(self.rotations, offsets(self.rotations, self.center))


@dataclass(frozen=True)
class Views:
    """N held-out images.

    Attributes:
        images: [N, V, V, 3].
        points_px: [N, K, 2] true keypoints, px.
        visible: [N, K].
        K: [N, 3, 3] camera matrices, px.
        view_from_body: [N, 4, 4] true poses, m.
    """

    images: NDArray[np.uint8]
    points_px: Tensor
    visible: Tensor
    K: Array
    view_from_body: Array


def prepare_views(stream: ImageStream, indices: NDArray[np.int64]) -> Views:
    """Develop the images of some renders. `stream` must not jitter: poses are in the render's own camera."""
    items = [stream[Key(_VALIDATION_EPOCH, int(i), "plain")] for i in indices]
    return Views(
        np.stack([item["image"].numpy() for item in items]),
        torch.stack([item["points_px"] for item in items]),
        torch.stack([item["visible"] for item in items]),
        np.stack([item["K"].double().numpy() for item in items]),
        np.stack([item["view_from_body"].double().numpy() for item in items]),
    )


def pose_errors_each(found: Array, truth: Array, symmetry: Array) -> dict[str, Array]:
    """Return errors [N] of poses [N, 4, 4] by name: rotation, sideways, and depth over range.

    symmetry: [G, 4, 4] transforms after which the body looks the same; the nearest one counts.
    """
    rotated = truth[:, None] @ symmetry
    cosine = 0.5 * (np.einsum("ngij,nij->ng", rotated[..., :3, :3], found[:, :3, :3]) - 1.0)
    angle = np.degrees(np.arccos(np.clip(cosine, -1.0, 1.0)))
    element, angle = angle.argmin(axis=1), angle.min(axis=1)
    place = rotated[np.arange(len(rotated)), element, :3, 3]
    distance = np.linalg.norm(place, axis=1)
    ray = place / distance[:, None]
    error = found[:, :3, 3] - place
    depth = np.einsum("ni,ni->n", error, ray)
    sideways = np.linalg.norm(error - depth[:, None] * ray, axis=1)
    return {"rotation_deg": angle, "sideways_mm": 1e3 * sideways, "depth_percent": 100.0 * np.abs(depth) / distance}


def pose_errors(found: Array, truth: Array, symmetry: Array) -> dict[str, float]:
    """Return the medians of `pose_errors_each`, and the share of rotations with errors above 20 degrees."""
    each = pose_errors_each(found, truth, symmetry)
    medians = {name: float(np.median(values)) for name, values in each.items()}
    return {**medians, "rotation_over_20deg": float((each["rotation_deg"] > 20.0).mean())}


@dataclass
class KeypointValidation:
    """Validation of a keypoint network on held-out images; see `Views`."""

    images: NDArray[np.uint8]
    points_px: Tensor
    visible: Tensor
    K: Array
    view_from_body: Array
    body: Body

    @staticmethod
    def prepare(stream: ImageStream, indices: NDArray[np.int64], body: Body) -> KeypointValidation:
        """Develop the images of some renders; see `prepare_views`."""
        views = prepare_views(stream, indices)
        return KeypointValidation(views.images, views.points_px, views.visible, views.K, views.view_from_body, body)

    def __call__(self, network: nn.Module) -> dict[str, float]:
        """Return medians of point, rotation (up to symmetry), sideways and depth errors, with units in the names."""
        output = predict(network, self.images)
        targets = Targets(self.points_px, self.visible, torch.from_numpy(self.body.permutation), self.body.front)
        log_prob = heatmaps.log_probabilities(output[:, :-1])
        value, best, visible = best_targets(log_prob, targets)
        decoded, _, _ = heatmaps.decode(output[:, :-1])
        distance = (decoded - best).norm(dim=-1)[visible]
        found = self._solve(decoded.double().numpy())
        return {
            "val_ce": float(value.mean()),
            "px": float(distance.median()),
            "px_p90": float(distance.quantile(0.9)),
            **pose_errors(found, self.view_from_body, self.body.symmetry_transforms),
            "branch_right": self._front_right(output[:, -1:]),
        }

    def predict_poses(self, network: nn.Module) -> Array:
        """Return the poses [N, 4, 4] in the images, m, up to the body's symmetry."""
        decoded, _, _ = heatmaps.decode(predict(network, self.images)[:, :-1])
        return self._solve(decoded.double().numpy())

    def _solve(self, decoded_px: Array) -> Array:
        """Return the poses [N, 4, 4] of keypoints [N, K, 2] px, m."""
        inverse = np.linalg.inv(self.K)
        bearings = np.einsum("nij,nkj->nki", inverse[:, :2, :2], decoded_px) + inverse[:, None, :2, 2]
        variance = (_KEYPOINT_STD_PX / self.K[:, 0, 0]) ** 2
        covariance = variance[:, None, None, None] * np.eye(2) * np.ones((1, decoded_px.shape[1], 1, 1))
        poses = solve_poses(bearings, covariance, self.body.points, visible=self.visible.numpy())
        return make_transform(poses.rotation[:, 0], poses.translation[:, 0])

    def _front_right(self, front_logits: Tensor) -> float:
        """Return the share of images whose front map is highest at the true symmetry element."""
        if len(self.body.permutation) < 2 or self.body.front is None:
            return 1.0
        places = self.points_px[:, torch.from_numpy(self.body.permutation[:, self.body.front])]
        score = heatmaps.sample_log_probability(heatmaps.log_probabilities(front_logits)[:, 0], places)
        return float((score.argmax(1) == _identity_element(self.body)).float().mean())


def _identity_element(body: Body) -> int:
    return int(np.argmax(np.trace(body.rotations, axis1=1, axis2=2)))


@dataclass
class LocatorValidation:
    """Validation of a locator on held-out scenes; see `scenes.Scene`."""

    images: NDArray[np.uint8]
    center_px: Tensor
    diameter_px: Tensor
    present: Tensor

    @staticmethod
    def prepare(stream: ImageStream, indices: NDArray[np.int64]) -> LocatorValidation:
        """Develop the scenes of some renders."""
        items = [stream[Key(_VALIDATION_EPOCH, int(i), "scene")] for i in indices]
        return LocatorValidation(
            np.stack([item["image"].numpy() for item in items]),
            torch.stack([item["center_px"] for item in items]),
            torch.stack([item["diameter_px"] for item in items]),
            torch.stack([item["present"] for item in items]),
        )

    def __call__(self, network: nn.Module) -> dict[str, float]:
        """Return the share of centres found within a quarter diameter, the median size error, and the ranking."""
        output = predict(network, self.images)
        flat = output[:, 0].flatten(1)
        score, cell = flat.max(1)
        width = output.shape[-1]
        place = torch.stack([cell % width, cell // width], -1) * 4.0 + 1.5
        here = self.present > 0
        found = (place - self.center_px).norm(dim=-1) < 0.25 * self.diameter_px + 2.0
        size = output[:, 1].flatten(1).gather(1, cell[:, None])[:, 0].exp() * LocatorNetwork.REFERENCE_PX
        error = (size / self.diameter_px).log().abs()[here & found]
        pairs = score[here & found][:, None] > score[~here][None]
        return {
            "found_first": float(found[here].float().mean()),
            "size_error": float(error.median()) if len(error) else float("nan"),
            "above_empty": float(pairs.float().mean()) if pairs.numel() else 1.0,
        }

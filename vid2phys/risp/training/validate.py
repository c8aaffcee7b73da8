"""How good a network is, in physical units, on renders whose looks were never trained on."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vid2phys.engine.pnp import solve_poses
from vid2phys.geometry import make_transform
from vid2phys.risp.networks import heatmaps
from vid2phys.risp.networks.network import LocatorNetwork, predict
from vid2phys.risp.renders.stream import ImageStream, Key
from vid2phys.risp.shape.rotation_groups import offsets
from vid2phys.risp.training.losses import Targets, best_targets
from vid2phys.types import Array

_VALIDATION_EPOCH = 1_000_000  # images of their own, the same after every epoch
_READING_STD_PX = 1.5


@dataclass(frozen=True)
class Body:
    """What poses are measured with: points [K, 3] m, group permutation [G, K] and rotations [G, 3, 3] about `center`.

    front: index of the front point, None for a body that has nothing to tell its branches apart by.
    """

    points: Array
    permutation: NDArray[np.int64]
    rotations: Array
    front: int | None
    center: Array = field(default_factory=lambda: np.zeros(3))

    @property
    def symmetry_transforms(self) -> Array:
        """The group as transforms of the body, [G, 4, 4]: pose @ turns[g] looks like pose."""
        return make_transform(self.rotations, offsets(self.rotations, self.center))


@dataclass(frozen=True)
class Views:
    """Held-out views, developed once: images [N, V, V, 3], where points are, camera matrices and true poses."""

    images: NDArray[np.uint8]
    points_px: Tensor
    visible: Tensor
    K: Array
    view_from_body: Array


def prepare_views(stream: ImageStream, indices: NDArray[np.int64]) -> Views:
    """The same views after every epoch. `stream` must not jitter: poses are judged with the render's own camera."""
    items = [stream[Key(_VALIDATION_EPOCH, int(i), "plain")] for i in indices]
    return Views(
        np.stack([item["image"].numpy() for item in items]),
        torch.stack([item["points_px"] for item in items]),
        torch.stack([item["visible"] for item in items]),
        np.stack([item["K"].double().numpy() for item in items]),
        np.stack([item["view_from_body"].double().numpy() for item in items]),
    )


def pose_errors_each(found: Array, truth: Array, turns: Array) -> dict[str, Array]:
    """Return the errors of poses [N, 4, 4] against the truth, each [N]: rotation, sideways, depth over range."""
    turned = truth[:, None] @ turns
    cosine = 0.5 * (np.einsum("ngij,nij->ng", turned[..., :3, :3], found[:, :3, :3]) - 1.0)
    angle = np.degrees(np.arccos(np.clip(cosine, -1.0, 1.0)))
    element, angle = angle.argmin(axis=1), angle.min(axis=1)
    place = turned[np.arange(len(turned)), element, :3, 3]
    distance = np.linalg.norm(place, axis=1)
    sight = place / distance[:, None]
    error = found[:, :3, 3] - place
    depth = np.einsum("ni,ni->n", error, sight)
    sideways = np.linalg.norm(error - depth[:, None] * sight, axis=1)
    return {"rotation_deg": angle, "sideways_mm": 1e3 * sideways, "depth_percent": 100.0 * np.abs(depth) / distance}


def pose_errors(found: Array, truth: Array, turns: Array) -> dict[str, float]:
    """Medians of `pose_errors_each`, and the share of rotations that are off by more than 20 degrees."""
    each = pose_errors_each(found, truth, turns)
    medians = {name: float(np.median(values)) for name, values in each.items()}
    return {**medians, "rotation_over_20deg": float((each["rotation_deg"] > 20.0).mean())}


@dataclass
class KeypointValidation:
    """Held-out views with their true poses, developed once."""

    images: NDArray[np.uint8]
    points_px: Tensor
    visible: Tensor
    K: Array
    view_from_body: Array
    body: Body

    @staticmethod
    def prepare(stream: ImageStream, indices: NDArray[np.int64], body: Body) -> KeypointValidation:
        """`stream` must not jitter: poses are judged with the render's own camera."""
        views = prepare_views(stream, indices)
        return KeypointValidation(views.images, views.points_px, views.visible, views.K, views.view_from_body, body)

    def __call__(self, network: nn.Module) -> dict[str, float]:
        """Median point error, rotation up to symmetry, sideways, depth over range; units are in the names."""
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
            "branch_right": self._branch(output[:, -1:]),
        }

    def predict_poses(self, network: nn.Module) -> Array:
        """Poses of the views, [N, 4, 4] m, as labelled by the network (up to the body's symmetry)."""
        decoded, _, _ = heatmaps.decode(predict(network, self.images)[:, :-1])
        return self._solve(decoded.double().numpy())

    def _solve(self, decoded_px: Array) -> Array:
        inverse = np.linalg.inv(self.K)
        bearings = np.einsum("nij,nkj->nki", inverse[:, :2, :2], decoded_px) + inverse[:, None, :2, 2]
        variance = (_READING_STD_PX / self.K[:, 0, 0]) ** 2
        covariance = variance[:, None, None, None] * np.eye(2) * np.ones((1, decoded_px.shape[1], 1, 1))
        poses = solve_poses(bearings, covariance, self.body.points, visible=self.visible.numpy())
        return make_transform(poses.rotation[:, 0], poses.translation[:, 0])

    def _branch(self, front_logits: Tensor) -> float:
        """Share of images whose front map is highest, of the places the group allows, at the true one."""
        if len(self.body.permutation) < 2 or self.body.front is None:
            return 1.0
        places = self.points_px[:, torch.from_numpy(self.body.permutation[:, self.body.front])]
        score = heatmaps.sample_log_probability(heatmaps.log_probabilities(front_logits)[:, 0], places)
        return float((score.argmax(1) == _identity_element(self.body)).float().mean())


def _identity_element(body: Body) -> int:
    return int(np.argmax(np.trace(body.rotations, axis1=1, axis2=2)))


@dataclass
class LocatorValidation:
    """Held-out scenes."""

    images: NDArray[np.uint8]
    center_px: Tensor
    diameter_px: Tensor
    present: Tensor

    @staticmethod
    def prepare(stream: ImageStream, indices: NDArray[np.int64]) -> LocatorValidation:
        """Scenes of held-out renders."""
        items = [stream[Key(_VALIDATION_EPOCH, int(i), "scene")] for i in indices]
        return LocatorValidation(
            np.stack([item["image"].numpy() for item in items]),
            torch.stack([item["center_px"] for item in items]),
            torch.stack([item["diameter_px"] for item in items]),
            torch.stack([item["present"] for item in items]),
        )

    def __call__(self, network: nn.Module) -> dict[str, float]:
        """Share found first (within a quarter diameter), median log size error, share of empty scenes scored lower."""
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

"""How the fine and the coarse network are trained: sizes, schedules, losses, held-out renders."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vid2phys.risp.losses import Targets, keypoint_loss, locator_loss, rendering_gradient_norm
from vid2phys.risp.model import Model
from vid2phys.risp.network import KeypointNetwork, LocatorNetwork, to_input
from vid2phys.risp.randomisation import ALL
from vid2phys.risp.stream import PictureStream, Plan, StreamSettings
from vid2phys.risp.train import Batch, Reporter, Schedule, Trained, train_network
from vid2phys.risp.validate import Body, KeypointValidation, LocatorValidation
from vid2phys.types import Array

FINE_SIZE = {"width": 16, "features": 32, "depth": 3}
COARSE_SIZE = {"width": 12, "features": 24, "depth": 3}
_ERROR_WEIGHT = 0.1  # of a pixel against a nat
_FRONT_WEIGHT = 1.0
_FRONT_REACH = 0.3  # of the farthest keypoint's distance from the axis
_NOSE_COSINE = 0.98
_GAMMA_FROM = 1.0 / 3.0  # of the training: before, gamma is 0, after, it rises linearly


@dataclass(frozen=True)
class TrainingData:
    """Where renders are and what they show. held_out: share of the renders (the last ones) kept for validation."""

    pictures: StreamSettings
    body: Body
    renders: int
    gradient_indices: NDArray[np.int64]
    held_out: int

    @property
    def training(self) -> NDArray[np.int64]:
        """Renders to train on."""
        return np.arange(self.renders - self.held_out)

    @property
    def validation(self) -> NDArray[np.int64]:
        """Renders to judge by."""
        return np.arange(self.renders - self.held_out, self.renders)


@dataclass(frozen=True)
class Sitting:
    """Where one training is run. folder: of checkpoints. device: torch's name. start: a model whose features both
    networks begin with, or None."""

    folder: Path
    device: str
    reporter: Reporter
    resume: bool = True
    start: Model | None = None


def _begin_with(network: nn.Module, other: nn.Module | None) -> None:
    """Copies the features of another network, which know edges, blur and clutter; heads are learnt anew."""
    if other is None:
        return
    own, given = network.state_dict(), other.state_dict()
    same = {k: v for k, v in given.items() if k.startswith("pyramid.") and k in own and own[k].shape == v.shape}
    network.load_state_dict({**own, **same})


def gamma_at(fraction: float, gamma: float) -> float:
    """Eq. 12's weight at a fraction of the training: 0 for the first third, then rising linearly to `gamma`."""
    return gamma * max(0.0, (fraction - _GAMMA_FROM) / (1.0 - _GAMMA_FROM))


def known_body(points_body: Array, permutation: NDArray[np.int64], rotations: Array, surface: Array) -> Body:
    """The keypoints [K, 3] with the one by which the branches of the group are told apart, at the nose (towards +x).

    Bodies are mostly mirror images of themselves about the plane through their nose. A point in that plane lies at the
    end of what is long or looks forward; one aside of it could only be told from its mirror image by handedness. Where
    no keypoint lies near the plane, the foremost point of the `surface` [N, 3] in it is added with its whole orbit.
    """
    ahead, distance = _ahead(points_body, rotations)
    far = distance >= _FRONT_REACH * distance.max()
    front = int(np.argmax(np.where(far, ahead, -np.inf)))
    if ahead[front] < _NOSE_COSINE and len(rotations) > 1:
        nose, reach = _ahead(surface, rotations)
        reach = np.where(nose > _NOSE_COSINE, reach, -1.0)
        if reach.max() >= _FRONT_REACH * distance.max():
            front = len(points_body)
            orbit = rotations @ surface[int(np.argmax(reach))]
            turned = np.einsum("gij,hj->ghi", rotations, orbit)
            table = np.linalg.norm(turned[:, :, None] - orbit, axis=-1).argmin(axis=-1)
            points_body = np.concatenate([points_body, orbit])
            permutation = np.concatenate([permutation, table + front], axis=1)
    return Body(points_body, permutation, rotations, front)


def _ahead(points: Array, rotations: Array) -> tuple[Array, Array]:
    """Cosine between the direction of points off the group's axis and the nose, and their distance from the axis."""
    aside = points - np.einsum("gij,kj->ki", rotations, points) / len(rotations)
    if len(rotations) < 2:  # no symmetry, no branches
        aside = points
    distance = np.linalg.norm(aside, axis=1)
    nose = next((axis for axis in np.eye(3) if np.linalg.norm(rotations.mean(axis=0) @ axis) < 0.9), np.eye(3)[0])
    return aside @ nose / np.maximum(distance, 1e-12), distance


def keypoint_step(body: Body, gamma: float, device: str) -> _KeypointStep:
    """The loss of a batch for `train_network`."""
    return _KeypointStep(torch.from_numpy(body.permutation).to(device), body.front, gamma)


@dataclass(frozen=True)
class _KeypointStep:
    permutation: Tensor
    front: int
    gamma: float

    def __call__(self, network: nn.Module, batch: Batch, fraction: float) -> tuple[Tensor, dict[str, float]]:
        targets = Targets(batch["points_px"], batch["visible"], self.permutation, self.front)
        if "tangents" in batch:
            assert isinstance(network, KeypointNetwork)
            error, norm = rendering_gradient_norm(network, batch["image"], batch["tangents"], targets)
            loss = _ERROR_WEIGHT * (error + gamma_at(fraction, self.gamma) * norm)
            return loss, {"gradient_px": float(norm.detach())}
        parts = keypoint_loss(network(to_input(batch["image"])), targets)
        values = {"ce": float(parts.cross_entropy.detach()), "front": float(parts.front.detach())}
        return parts.total(front_weight=_FRONT_WEIGHT, error_weight=_ERROR_WEIGHT), values


def train_keypoints(
    data: TrainingData, schedule: Schedule, sitting: Sitting, *, gamma: float, seed: int, gradient_every: int = 5
) -> Trained:
    """Trains the fine network. gamma 0 is eq. 8; above it eq. 12 with the renders that have derivatives."""
    torch.manual_seed(seed)
    network = KeypointNetwork(len(data.body.points), **FINE_SIZE)
    _begin_with(network, sitting.start.fine if sitting.start else None)
    unjittered = PictureStream(replace(data.pictures, varied=ALL), jitter=False)  # an ablation is judged by all
    validation = KeypointValidation.prepare(unjittered, data.validation, data.body)
    plan = Plan(
        data.training,
        np.intersect1d(data.gradient_indices, data.training),
        batch=schedule.batch,
        gradient_every=gradient_every if gamma > 0.0 else 0,
        seed=seed,
    )
    return train_network(
        network,
        keypoint_step(data.body, gamma, sitting.device),
        validation,
        data.pictures,
        plan,
        schedule,
        name="fine network",
        checkpoint=sitting.folder / "fine.checkpoint.safetensors",
        device=sitting.device,
        reporter=sitting.reporter,
        resume=sitting.resume,
    )


def _locator_step(network: nn.Module, batch: Batch, fraction: float) -> tuple[Tensor, dict[str, float]]:
    output = network(to_input(batch["image"]))
    reference = LocatorNetwork.REFERENCE_PX
    loss = locator_loss(output, batch["center_px"], batch["diameter_px"], batch["present"], reference)
    return loss, {"loss": float(loss.detach())}


def train_locator(data: TrainingData, schedule: Schedule, sitting: Sitting, *, seed: int) -> Trained:
    """Trains the coarse network."""
    torch.manual_seed(seed + 1)
    network = LocatorNetwork(**COARSE_SIZE)
    _begin_with(network, sitting.start.coarse if sitting.start else None)
    validation = LocatorValidation.prepare(PictureStream(replace(data.pictures, varied=ALL)), data.validation)
    return train_network(
        network,
        _locator_step,
        validation,
        data.pictures,
        Plan(data.training, data.gradient_indices, kind="scene", batch=schedule.batch, seed=seed),
        schedule,
        name="coarse network",
        checkpoint=sitting.folder / "coarse.checkpoint.safetensors",
        device=sitting.device,
        reporter=sitting.reporter,
        resume=sitting.resume,
    )

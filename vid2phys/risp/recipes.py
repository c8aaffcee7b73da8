"""How the fine and the coarse network are trained: sizes, schedules, losses, held-out renders."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vid2phys.risp import heads, penalties
from vid2phys.risp.appearance.randomisation import ALL
from vid2phys.risp.heads import Head
from vid2phys.risp.networks.model import Model
from vid2phys.risp.networks.network import LocatorNetwork, to_input
from vid2phys.risp.penalties import Penalty
from vid2phys.risp.renders.stream import ImageStream, Plan, StreamSettings
from vid2phys.risp.shape.keypoints import choose_keypoints
from vid2phys.risp.shape.symmetry import Symmetry
from vid2phys.risp.training import mixed_precision
from vid2phys.risp.training.losses import locator_loss
from vid2phys.risp.training.train import Batch, Reporter, Schedule, Trained, Validate, train_network
from vid2phys.risp.training.validate import Body, LocatorValidation
from vid2phys.types import Array, Mesh

COARSE_SIZE = {"width": 12, "features": 24, "depth": 3}
_FRONT_REACH = 0.3  # of the farthest keypoint's distance from the axis
_NOSE_COSINE = 0.98
_GAMMA_FROM = 1.0 / 3.0  # of the training: before, gamma is 0, after, it rises linearly


@dataclass(frozen=True)
class TrainingData:
    """Where renders are and what they show. held_out: share of the renders (the last ones) kept for validation."""

    stream: StreamSettings
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
class TrainingRun:
    """Where one training is run. folder: of checkpoints. device: torch's name. start: a model whose features both
    networks begin with, or None."""

    folder: Path
    device: str
    reporter: Reporter
    resume: bool = True
    start: Model | None = None


def _copy_features(network: nn.Module, other: nn.Module | None) -> None:
    """Copies the features of another network, which know edges, blur and clutter; heads are learnt anew."""
    if other is None:
        return
    own, given = network.state_dict(), other.state_dict()
    same = {k: v for k, v in given.items() if k.startswith("pyramid.") and k in own and own[k].shape == v.shape}
    network.load_state_dict({**own, **same})


def paper_schedule(epochs: int = 100, workers: int = 1) -> Schedule:
    """RISP's own training (Ma, Du et al., ICLR 2022, appendix): Adam 1e-2, cosine, weight decay 1e-6, batches of 16."""
    return Schedule(
        epochs,
        batch=16,
        learning_rate=1e-2,
        weight_decay=1e-6,
        average=0.0,
        workers=workers,
        clip_norm=float("inf"),
        rise=0.0,
        optimizer=torch.optim.Adam,
    )


def gamma_at(fraction: float, gamma: float) -> float:
    """Eq. 12's weight at a fraction of the training: 0 for the first third, then rising linearly to `gamma`."""
    return gamma * max(0.0, (fraction - _GAMMA_FROM) / (1.0 - _GAMMA_FROM))


def body_of(mesh: Mesh, symmetry: Symmetry) -> Body:
    """Keypoints of a mesh under its symmetry, with a front point unless the symmetry is exact."""
    keypoints = choose_keypoints(mesh, symmetry)
    points, center = keypoints.points_body - symmetry.center, symmetry.center
    if symmetry.exact and symmetry.order > 1:
        return Body(keypoints.points_body, keypoints.permutation, symmetry.rotations, None, center)
    known = body_with_front(points, keypoints.permutation, symmetry.rotations, mesh.vertices - center)
    return replace(known, points=known.points + center, center=center)


def body_with_front(points_body: Array, permutation: NDArray[np.int64], rotations: Array, surface: Array) -> Body:
    """The keypoints [K, 3] with the one by which the branches of the group are told apart, at the nose (towards +x).

    The group's turns are about the origin.

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


@dataclass(frozen=True)
class HeadStep:
    """The loss of a batch for `train_network`: the head's own, or error and penalty where there are derivatives."""

    head: Head
    penalty: Penalty
    gamma: float

    def __call__(self, network: nn.Module, batch: Batch, fraction: float) -> tuple[Tensor, dict[str, float]]:
        """See `train.StepLoss`."""
        if "tangents" in batch:
            chance = torch.Generator().manual_seed(round(1e9 * fraction))  # the same when training is resumed
            error, norm = self.penalty(network, self.head, batch, chance)
            loss = self.head.gradient_weight * (error + gamma_at(fraction, self.gamma) * norm)
            return loss, {"gradient_px" if self.head.name == "keypoint" else "gradient": float(norm.detach())}
        images = to_input(batch["image"])
        paper = self.head.name == "state"  # RISP's own training stays as it is
        return self.head.loss(network(images) if paper else mixed_precision.run(network, images), batch)


def head_of(data: TrainingData, spec: str) -> Head:
    """The head called `spec` (see `heads.get`) for the body and the views of `data`."""
    stream = data.stream
    numbers = None if stream.states is None else stream.states.shape[1]
    return heads.get(spec, data.body, radius_m=stream.radius_m, view_size=stream.view_size, numbers=numbers)


def train_head(
    data: TrainingData,
    head: Head,
    schedule: Schedule,
    sitting: TrainingRun,
    *,
    gamma: float,
    seed: int,
    loss: str = "error-gradient",
    gradient_every: int = 5,
    validation: Validate | None = None,
) -> Trained:
    """Trains a head's network. loss: name of a penalty (see `penalties`); gamma: its weight, 0 for eq. 8 alone.

    validation: judges it after every epoch; None: the head's own.
    """
    torch.manual_seed(seed)
    network = head.network()
    if head.name == "keypoint":
        _copy_features(network, sitting.start.fine if sitting.start else None)
    if validation is None:
        unjittered = ImageStream(replace(data.stream, varied=ALL), jitter=False)  # an ablation is judged by all
        validation = head.validation(unjittered, data.validation)
    with_gradients = gamma > 0.0 and loss != "error-only"
    plan = Plan(
        data.training,
        np.intersect1d(data.gradient_indices, data.training),
        batch=schedule.batch,
        gradient_every=gradient_every if with_gradients else 0,
        seed=seed,
    )
    known = head.name == "keypoint" and loss == "error-gradient"
    return train_network(
        network,
        HeadStep(head, penalties.get(loss), gamma),
        validation,
        data.stream,
        plan,
        schedule,
        name="fine network" if known else f"{head.name} network, {loss}",
        checkpoint=sitting.folder / ("fine.checkpoint.safetensors" if known else f"{head.name}.checkpoint.safetensors"),
        device=sitting.device,
        reporter=sitting.reporter,
        resume=sitting.resume,
    )


def _locator_step(network: nn.Module, batch: Batch, fraction: float) -> tuple[Tensor, dict[str, float]]:
    output = mixed_precision.run(network, to_input(batch["image"]))
    reference = LocatorNetwork.REFERENCE_PX
    loss = locator_loss(output, batch["center_px"], batch["diameter_px"], batch["present"], reference)
    return loss, {"loss": float(loss.detach())}


def train_locator(data: TrainingData, schedule: Schedule, sitting: TrainingRun, *, seed: int) -> Trained:
    """Trains the coarse network."""
    torch.manual_seed(seed + 1)
    network = LocatorNetwork(**COARSE_SIZE)
    _copy_features(network, sitting.start.coarse if sitting.start else None)
    validation = LocatorValidation.prepare(ImageStream(replace(data.stream, varied=ALL)), data.validation)
    return train_network(
        network,
        _locator_step,
        validation,
        data.stream,
        Plan(data.training, data.gradient_indices, kind="scene", batch=schedule.batch, seed=seed),
        schedule,
        name="coarse network",
        checkpoint=sitting.folder / "coarse.checkpoint.safetensors",
        device=sitting.device,
        reporter=sitting.reporter,
        resume=sitting.resume,
    )

"""The networks that tables compare: trained by recipe on the same pictures, kept under the recipe's hash, and read.

Nothing here is shipped: weights lie in the work folder, where a training that was interrupted goes on.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vid2phys.io.files import sha256, write_text
from vid2phys.reproduce.bodies import Body
from vid2phys.reproduce.stage import Frames, radius_m
from vid2phys.reproduce.table import Setting
from vid2phys.rotations import make_transform
from vid2phys.types import Array

if TYPE_CHECKING:
    from torch import nn

    from vid2phys.risp.heads import Head
    from vid2phys.risp.training.recipes import TrainingData
    from vid2phys.risp.training.train import Validate

FLAT = 0.03  # a validation curve is flat when its last quarter brings no more than this share
_LEAST_EPOCHS, _LEAST_IMAGES = 8, 100_000  # with fewer a curve is flat because nothing was learnt yet
_PLAUSIBLE = 0.3  # of the distance: five times what the size in a view may be off
_GRADIENT_EVERY, _GRADIENT_BATCH = 5, 8
_ASIDE, _SIZE = 0.03, 0.06  # errors of where a tracker looks: share of the view, log size
_LOOK = 3  # stream of random numbers


@dataclass(frozen=True)
class Recipe:
    """Everything that weights depend on. looks: 0, ever new ones (see `make_dataset`)."""

    head: str
    loss: str
    gamma: float
    samples: int
    epochs: int
    looks: int = 0
    seed: int = 0
    version: int = 1

    @property
    def digest(self) -> str:
        """Names the folder of the weights."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:12]

    @property
    def is_paper(self) -> bool:
        """Whether RISP's own schedule is followed."""
        return self.head.startswith("state")


@dataclass(frozen=True)
class Learnt:
    """A trained network. images: pictures it has seen, the same ones again counted again. sha256: of the weights."""

    recipe: Recipe
    head: Head
    network: nn.Module
    data: TrainingData
    history: list[dict[str, float]]
    seconds: float
    images: int
    sha256: str

    @property
    def converged(self) -> bool:
        """Whether the validation curve is flat at its end, after a training worth the name."""
        curve = [entry["val_error" if self.recipe.is_paper else "px"] for entry in self.history]
        return self.images >= _LEAST_IMAGES and is_flat(curve)

    def effort(self) -> dict[str, Any]:
        """What every row of the method says of its training."""
        return {
            "network": self.recipe.head,
            "images_seen": self.images,
            "seconds": round(self.seconds, 1),
            "converged": self.converged,
            "recipe": self.recipe.digest,
            "weights_sha256": self.sha256,
        }


def is_flat(curve: list[float]) -> bool:
    """Whether the last quarter of a curve brings at most 3 % more than was reached before; never of a few epochs."""
    if len(curve) < _LEAST_EPOCHS:
        return False
    begin = len(curve) - len(curve) // 4
    return min(curve[begin:]) > (1.0 - FLAT) * min(curve[:begin])


def training_data(body: Body, setting: Setting, samples: int, looks: int) -> TrainingData:
    """Renders of the body, made once for all methods."""
    from dataclasses import replace

    from vid2phys.tasks.train_rigid import training_data as make

    folder = folder_of(body, setting) / f"data-{samples}-{looks}-{setting.seed}"
    data = make(
        body.mesh, body.system, folder, samples=samples, seed=setting.seed, progress=setting.progress, looks=looks
    )
    return replace(data, pictures=replace(data.pictures, looks=looks))


def folder_of(body: Body, setting: Setting) -> Path:
    """What is kept for a body."""
    return setting.work / body.name


def train(body: Body, recipe: Recipe, setting: Setting, validation: Validate | None = None) -> Learnt:
    """The network of a recipe, trained or taken from the work folder. validation: None for the head's own."""
    from vid2phys.risp.training.recipes import Sitting, head_of, paper_schedule, train_head
    from vid2phys.risp.training.train import Schedule
    from vid2phys.tasks.training import share_cores

    data = training_data(body, setting, recipe.samples, recipe.looks)
    workers = share_cores(setting.device)
    schedule = paper_schedule(recipe.epochs, workers) if recipe.is_paper else Schedule(recipe.epochs, workers=workers)
    folder, head = folder_of(body, setting) / recipe.digest, head_of(data, recipe.head)
    folder.mkdir(parents=True, exist_ok=True)
    trained = train_head(
        data,
        head,
        schedule,
        Sitting(folder, setting.device, setting.progress),
        gamma=recipe.gamma,
        seed=recipe.seed,
        loss=recipe.loss,
        gradient_every=_GRADIENT_EVERY,
        validation=validation,
    )
    digest = sha256(next(folder.glob("*.checkpoint.safetensors")))
    write_text(folder / "recipe.json", json.dumps({**asdict(recipe), "sha256": digest}, indent=1) + "\n")
    steps = len(data.training) // schedule.batch
    with_gradients = _GRADIENT_BATCH * (steps // _GRADIENT_EVERY) if recipe.gamma > 0.0 else 0
    images = recipe.epochs * (steps * schedule.batch + with_gradients)
    return Learnt(recipe, head, trained.network.cpu(), data, trained.history, trained.seconds, images, digest)


def read(learnt: Learnt, body: Body, frames: Frames, seed: int) -> Array:
    """World poses [N, 4, 4] m that the network gives frames, each looked at where a tracker would look.

    That is at the true place with a tracker's errors (3 % of the view, 6 % of size), the same for all methods. A pose
    beyond what those errors allow is put where it was looked for (`at_plausible_place`).
    """
    from vid2phys.risp.tracking.sight import direction_and_size

    read_one = _read_numbers if learnt.recipe.is_paper else _keypoint_reader(learnt, body)
    rng = np.random.default_rng([seed, _LOOK])
    found = []
    for piece, camera, pose in zip(frames.pieces, frames.cameras, frames.world_from_body, strict=True):
        assert camera.camera_to_world is not None
        place = camera.camera_to_world[:3, :3].T @ (pose[:3, 3] - camera.camera_to_world[:3, 3])
        center, radius = direction_and_size(place, radius_m(body))
        error = rng.normal(size=3) * [_ASIDE, _ASIDE, _SIZE]
        aside = center + 3.0 * error[:2] * np.tan(radius)  # the view is three radii wide
        expected = float(radius * np.exp(error[2]))
        in_camera = read_one(learnt, camera, piece, aside, expected)
        in_camera = at_plausible_place(in_camera, aside, expected, radius_m(body))
        found.append(camera.camera_to_world @ in_camera)
    return np.stack(found)


def at_plausible_place(camera_from_body: Array, center: Array, angular_radius: float, radius_m: float) -> Array:
    """A pose [4, 4] as it is if a tracker would believe its place, else with the place where it was looked for.

    center [2], angular_radius [rad]: of the view. Its sides are three radii: a body half of that aside is not in it. A
    distance 30 % off is kept on its line of sight.
    """
    place, expected = camera_from_body[:3, 3], radius_m / np.sin(angular_radius)
    in_front = bool(np.isfinite(place).all() and place[2] > 0.0)
    if not in_front or np.linalg.norm(place[:2] / place[2] - center) > 1.5 * np.tan(angular_radius):
        place = np.array([*center, 1.0])
    elif abs(np.linalg.norm(place) / expected - 1.0) <= _PLAUSIBLE:
        return camera_from_body
    return make_transform(camera_from_body[:3, :3], expected * place / np.linalg.norm(place))


def _read_numbers(learnt: Learnt, camera: Any, piece: Any, center: Array, radius: float) -> Array:
    import torch

    from vid2phys.risp.heads.state import StateHead, read_numbers
    from vid2phys.risp.tracking.view import make_view, resample

    assert isinstance(learnt.head, StateHead)
    view = make_view(camera, center, radius, learnt.data.pictures.view_size)
    numbers = read_numbers(learnt.network, resample(piece, camera, view)[None])
    in_view = learnt.head.codes.decode(numbers, torch.from_numpy(view.K)[None])[0].numpy()
    turn = view.rotation_view_from_camera.T
    return make_transform(turn @ in_view[:3, :3], turn @ in_view[:3, 3])


def _keypoint_reader(learnt: Learnt, body: Body) -> Any:
    """Points, pose by PnP, and the branch of a symmetric body by the front map: as a frame of a clip is read."""
    from vid2phys.io.mesh import geometry_signature
    from vid2phys.risp.calibration.error_model import Calibration
    from vid2phys.risp.networks.model import Model, Shape
    from vid2phys.risp.networks.network import KeypointNetwork, LocatorNetwork
    from vid2phys.risp.tracking.branch import front_evidence
    from vid2phys.risp.tracking.sight import look
    from vid2phys.risp.training.recipes import COARSE_SIZE

    known = learnt.data.body
    signature = geometry_signature(body.mesh)
    shape = Shape(
        body.system.name,
        signature,
        known.points,
        known.rotations,
        known.permutation,
        known.front,
        body.mesh.name,
        known.center,
    )
    assert isinstance(learnt.network, KeypointNetwork)
    coarse = LocatorNetwork(**COARSE_SIZE)  # places are given
    model = Model(shape, learnt.network, coarse, learnt.data.pictures.view_size, {})
    calibration = Calibration()

    def read_one(_: Learnt, camera: Any, piece: Any, center: Array, radius: float) -> Array:
        seen = look(model, camera, [piece], center[None], np.array([radius]), calibration)
        pose = make_transform(seen.poses.rotation[0, 0], seen.poses.translation[0, 0])
        front = None if known.front is None else known.points[known.front]
        evidence = front_evidence(seen.front_logprob, seen.views, seen.poses, known.rotations, front, known.center)
        return pose @ np.linalg.inv(known.turns[int(np.argmax(evidence[0, 0]))])

    return read_one

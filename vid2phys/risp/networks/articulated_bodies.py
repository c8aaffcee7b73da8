"""Which systems have a base whose place is known, and their bodies: made for training, or made again from a model."""

from __future__ import annotations

from pathlib import Path

from vid2phys.engine.movable.body import ArticulatedBody
from vid2phys.engine.movable.joints import JointBody
from vid2phys.engine.movable.modes import CELLS, ModalBody, Motions, find_motions
from vid2phys.engine.system import System
from vid2phys.engine.systems._joint_tree import JointTree
from vid2phys.engine.systems.rod import Rod
from vid2phys.errors import InputError
from vid2phys.risp.networks.model import Model

MODES_FILE = "modes.safetensors"


def configuration_kind(system: System) -> str:
    """`joints` (links on a fixed base), `modes` (a rod clamped at both ends), or `rigid` (what moves as a whole)."""
    if isinstance(system, JointTree) and not system.robot.free_base and system.surface is not None:
        return "joints"
    return "modes" if isinstance(system, Rod) else "rigid"


def body_for_training(system: System, folder: Path, seed: int = 0) -> ArticulatedBody:
    """The body that images are made of. folder: keeps the modes of one that bends, which take a minute to find.

    Raises ValueError for a rigid body.
    """
    if isinstance(system, Rod):
        path, size = folder / MODES_FILE, system.size_m
        if not path.exists():
            find_motions(Rod(CELLS, size_m=size), seed).save(path)
        return ModalBody(Rod(CELLS, size_m=size), Motions.load(path))
    if isinstance(system, JointTree):
        return JointBody(system)
    raise ValueError(f"'{system.name}' is a body that moves as a whole")


def body_of_model(model: Model, system: System) -> ArticulatedBody:
    """The body of `system` as `model` was trained for it. Raises InputError when they do not belong together."""
    shape = model.shape
    if configuration_kind(system) != shape.kind or shape.cameras is None:
        raise InputError(
            f"a model for '{shape.system}' ({shape.kind})",
            f"one for '{system.name}' ({configuration_kind(system)})",
            f"train one with `vid2phys train-risp --system {system.name}`",
        )
    if isinstance(system, Rod):
        assert model.folder is not None
        body: ArticulatedBody = ModalBody(system, Motions.load(model.folder / MODES_FILE), shape.cameras)
    else:
        assert isinstance(system, JointTree)
        body = JointBody(system, shape.cameras)
    if body.points_body.shape != model.points_body.shape:
        raise InputError(
            f"a model with {len(model.points_body)} keypoints for '{system.name}'",
            f"{len(body.points_body)}",
            "train it again, for this body",
        )
    return body
